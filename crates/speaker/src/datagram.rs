//! Reads a datagram with what its header says: sender, destination, interface, TTL. A protocol that only neighbours may speak is safe
//! from others by the TTL (RFC 5082).

use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt,
};
use socket2::Socket;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd;

/// What is known of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrived {
    pub(crate) from: IpAddr,
    /// Where it was sent to; unspecified if that is unknown.
    pub(crate) to: IpAddr,
    /// The index of the interface; 0 if it is unknown.
    pub(crate) interface: u32,
    /// TTL or hop limit; 0 if it is unknown, so that it is from nobody near.
    pub(crate) ttl: u8,
    pub(crate) length: usize,
}

/// Makes the socket tell destination, interface and TTL.
pub(crate) fn tell_headers(socket: &Socket, v6: bool) -> io::Result<()> {
    if v6 {
        setsockopt(socket, sockopt::Ipv6RecvHopLimit, &true)?;
        setsockopt(socket, sockopt::Ipv6RecvPacketInfo, &true)?;
    } else {
        setsockopt(socket, sockopt::Ipv4RecvTtl, &true)?;
        setsockopt(socket, sockopt::Ipv4PacketInfo, &true)?;
    }
    Ok(())
}

/// The next datagram. An error of kind `WouldBlock`: none waits.
pub(crate) fn receive(socket: &impl AsRawFd, buffer: &mut [u8]) -> io::Result<Arrived> {
    let mut space = nix::cmsg_space!(nix::libc::in6_pktinfo, nix::libc::c_int);
    let mut slices = [IoSliceMut::new(buffer)];
    let flags = MsgFlags::MSG_DONTWAIT;
    let message =
        recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut slices, Some(&mut space), flags)?;
    let from = message.address.as_ref().and_then(|it| {
        let v4 = it.as_sockaddr_in().map(|it| IpAddr::from(it.ip()));
        v4.or_else(|| it.as_sockaddr_in6().map(|it| IpAddr::from(it.ip())))
    });
    let unknown = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let (mut to, mut interface, mut ttl) = (unknown, 0, 0);
    for control in message.cmsgs().ok().into_iter().flatten() {
        match control {
            ControlMessageOwned::Ipv4PacketInfo(info) => {
                interface = u32::try_from(info.ipi_ifindex).unwrap_or(0);
                // The kernel has it in the order of the network.
                to = Ipv4Addr::from(info.ipi_addr.s_addr.to_ne_bytes()).into();
            }
            ControlMessageOwned::Ipv6PacketInfo(info) => {
                interface = info.ipi6_ifindex;
                to = Ipv6Addr::from(info.ipi6_addr.s6_addr).into();
            }
            ControlMessageOwned::Ipv4Ttl(value) | ControlMessageOwned::Ipv6HopLimit(value) => {
                ttl = u8::try_from(value).unwrap_or(0);
            }
            _ => {}
        }
    }
    let from = from.unwrap_or(unknown);
    Ok(Arrived { from, to, interface, ttl, length: message.bytes })
}
