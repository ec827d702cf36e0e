//! Options of sockets that carry BGP.

use socket2::SockAddr;
use std::io;
use std::mem::size_of;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};

/// The longest password that Linux takes for TCP MD5 signatures, in bytes.
pub const TCP_MD5_KEY_LIMIT: usize = 80;

/// `struct tcp_md5sig` of `linux/tcp.h`.
#[repr(C)]
struct TcpMd5Sig {
    address: libc::sockaddr_storage,
    flags: u8,
    prefix_length: u8,
    key_length: u16,
    interface: libc::c_int,
    key: [u8; TCP_MD5_KEY_LIMIT],
}

/// Signs the segments to `peer`, and accepts only signed ones from it (RFC 2385). On a listener it concerns the
/// connections of this peer. An empty password ends it.
pub fn set_tcp_md5(socket: &impl AsFd, peer: IpAddr, password: &[u8]) -> io::Result<()> {
    let mut key = [0; TCP_MD5_KEY_LIMIT];
    let Some(place) = key.get_mut(..password.len()) else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("a TCP MD5 password has at most {TCP_MD5_KEY_LIMIT} bytes"),
        ));
    };
    place.copy_from_slice(password);
    let address = SockAddr::from(SocketAddr::new(peer, 0));
    let signature = TcpMd5Sig {
        // SAFETY: `as_ptr` points to a whole `sockaddr_storage`, which a `SockAddr` always holds, initialized.
        address: unsafe { address.as_ptr().cast::<libc::sockaddr_storage>().read() },
        flags: 0,
        prefix_length: 0,
        key_length: password.len() as u16,
        interface: 0,
        key,
    };
    set(socket, libc::IPPROTO_TCP, libc::TCP_MD5SIG, &signature)
}

/// Drops arriving segments of a TCP socket that have a lower TTL or hop limit (RFC 5082). With 255, only neighbours on
/// the link are heard. It has no effect on UDP.
pub fn set_minimum_ttl(socket: &impl AsFd, v6: bool, ttl: u8) -> io::Result<()> {
    let (level, name) = if v6 {
        (libc::IPPROTO_IPV6, libc::IPV6_MINHOPCOUNT)
    } else {
        (libc::IPPROTO_IP, libc::IP_MINTTL)
    };
    set(socket, level, name, &libc::c_int::from(ttl))
}

fn set<T>(socket: &impl AsFd, level: i32, name: i32, value: &T) -> io::Result<()> {
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the pointer and the length describe `value`, which lives during the call; the kernel only reads it.
    let result = unsafe {
        let value = std::ptr::from_ref(value).cast::<libc::c_void>();
        libc::setsockopt(fd, level, name, value, size_of::<T>() as libc::socklen_t)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::{set_minimum_ttl, set_tcp_md5};
    use socket2::{Domain, SockAddr, Socket, Type};
    use std::net::{IpAddr, Ipv4Addr, SocketAddr};
    use std::time::Duration;

    const HOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn listener() -> (Socket, SockAddr) {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket.bind(&SockAddr::from(SocketAddr::new(HOST, 0))).expect("bind");
        socket.listen(1).expect("listen");
        let at = socket.local_addr().expect("an address");
        (socket, at)
    }

    /// Whether a connection with this password is made within the time of a first segment.
    fn connects(at: &SockAddr, password: &[u8]) -> bool {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        if !password.is_empty() {
            set_tcp_md5(&socket, HOST, password).expect("set the password");
        }
        socket.connect_timeout(at, Duration::from_millis(100)).is_ok()
    }

    #[test]
    fn a_listener_with_a_password_accepts_only_peers_that_have_it() {
        let (socket, at) = listener();
        set_tcp_md5(&socket, HOST, b"secret").expect("set the password");
        assert_eq!(
            [b"secret".as_slice(), b"other", b""].map(|password| connects(&at, password)),
            [true, false, false]
        );
        let error = set_tcp_md5(&socket, HOST, &[b'x'; 81]).expect_err("81 bytes");
        assert_eq!(error.to_string(), "a TCP MD5 password has at most 80 bytes");
    }

    #[test]
    fn a_listener_with_a_minimum_ttl_does_not_hear_peers_behind_a_router() {
        let (socket, at) = listener();
        set_minimum_ttl(&socket, false, 255).expect("set the minimum");
        assert!(!connects(&at, b""), "the default TTL of 64 is too low");
        let near = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        near.set_ttl_v4(255).expect("set the TTL");
        near.connect_timeout(&at, Duration::from_secs(5)).expect("connect with 255");

        let v6 = Socket::new(Domain::IPV6, Type::STREAM, None).expect("a socket");
        set_minimum_ttl(&v6, true, 255).expect("set the minimum of IPv6");
    }
}
