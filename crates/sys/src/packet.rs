//! Packet sockets: whole Ethernet frames of one protocol on one interface.

use socket2::{Domain, SockAddr, SockFilter, Socket, Type};
use std::io::{self, Read, Write};
use std::mem::size_of;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, BorrowedFd};

/// The frames that a packet socket receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// ARP.
    Arp,
    /// IPv6, of which the filter takes a part.
    Ipv6,
}

/// A non-blocking socket that receives the frames which arrive at one interface, and sends frames there. It does not
/// receive what this machine sends.
#[derive(Debug)]
pub struct PacketSocket(Socket);

impl PacketSocket {
    /// Opens one. Only frames for which the classic BPF program returns a length are received. It takes CAP_NET_RAW.
    pub fn open(
        interface: NonZeroU32,
        protocol: Protocol,
        filter: &[SockFilter],
    ) -> io::Result<Self> {
        // Without a protocol, a new socket receives nothing. So no frame passes before the filter is in place.
        let socket = Socket::new(Domain::PACKET, Type::RAW, None)?;
        socket.set_nonblocking(true)?;
        socket.attach_filter(filter)?;
        socket.bind(&address(interface, protocol)?)?;
        Ok(Self(socket))
    }

    /// The length of the next frame, which is put into `buffer`. A longer frame is cut.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        (&self.0).read(buffer)
    }

    /// Sends a frame, from its Ethernet header on.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        (&self.0).write(frame).map(drop)
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl std::os::fd::AsRawFd for PacketSocket {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.0.as_raw_fd()
    }
}

fn address(interface: NonZeroU32, protocol: Protocol) -> io::Result<SockAddr> {
    let protocol = match protocol {
        Protocol::Arp => libc::ETH_P_ARP,
        Protocol::Ipv6 => libc::ETH_P_IPV6,
    };
    let index = i32::try_from(interface.get())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "no such interface index"))?;
    let link = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: (protocol as u16).to_be(),
        sll_ifindex: index,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    // SAFETY: the closure writes a whole `sockaddr_ll`, whose family is AF_PACKET, into storage that is larger and
    // zeroed, and sets the length to what it wrote.
    let ((), address) = unsafe {
        SockAddr::try_init(|storage, length| {
            storage.cast::<libc::sockaddr_ll>().write(link);
            *length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
            Ok(())
        })?
    };
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::{PacketSocket, Protocol};
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use nix::sched::{CloneFlags, unshare};
    use socket2::SockFilter;
    use std::num::NonZeroU32;
    use std::os::fd::AsFd;
    use std::process::Command;

    /// `ldb [14]; jeq #1, pass; ret #0; pass: ret #65535`: frames whose payload begins with 1.
    const BEGINS_WITH_1: [(u16, u8, u8, u32); 4] =
        [(0x30, 0, 0, 14), (0x15, 1, 0, 1), (0x06, 0, 0, 0), (0x06, 0, 0, 0xffff)];

    #[test]
    fn a_packet_socket_receives_frames_of_its_protocol_that_the_filter_passes() {
        let inside = std::thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).expect("run as root, or under `unshare -r`");
            let up = Command::new("ip").args(["link", "set", "lo", "up"]).status();
            assert!(up.expect("run ip").success());
            let filter = BEGINS_WITH_1.map(|(code, jt, jf, k)| SockFilter::new(code, jt, jf, k));
            let lo = NonZeroU32::MIN;
            let socket = PacketSocket::open(lo, Protocol::Arp, &filter).expect("open");

            let frame = |protocol: u16, payload: u8| {
                let mut frame = [0; 60];
                frame[12..14].copy_from_slice(&protocol.to_be_bytes());
                frame[14] = payload;
                frame[59] = payload;
                frame
            };
            for (protocol, payload) in [(0x0806, 2), (0x86dd, 1), (0x0806, 1)] {
                socket.send(&frame(protocol, payload)).expect("send");
            }
            let mut ready = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
            poll(&mut ready, PollTimeout::from(10_000u16)).expect("wait for a frame");
            let mut buffer = [0; 2048];
            let length = socket.receive(&mut buffer).expect("receive");
            assert_eq!(buffer[..length], frame(0x0806, 1), "the two before it do not pass");
        });
        inside.join().expect("the test inside");
    }
}
