//! The ports at which datagrams of all peers arrive: one socket for each family and distance that a session needs.

use crate::bfd::sessions::{Datagram, Hops, SessionKey};
use bowline_core::clock::Uptime;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt,
};
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::BTreeMap;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

/// When a port is taken, it is tried again after this.
const AGAIN: Duration = Duration::from_secs(10);
/// How many datagrams of a socket are read before the sessions are asked what to do.
const BURST: usize = 1024;
/// The longest packet of interest is 24 bytes; what is longer has authentication behind it.
const LONGEST: usize = 128;

/// What a socket is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Port {
    v6: bool,
    hops: Hops,
}

/// A socket that cannot be opened.
pub(super) struct Failed {
    pub(super) port: Port,
    pub(super) why: String,
}

/// The sockets; `None` where one is wanted and not open.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    sockets: BTreeMap<Port, Option<Socket>>,
    retry_at: Option<Uptime>,
}

impl Inbox {
    /// The socket that a session needs.
    pub(super) fn needs(key: SessionKey) -> Port {
        Port { v6: key.peer.is_ipv6(), hops: key.hops }
    }

    /// A session needs its socket.
    pub(super) fn want(&mut self, key: SessionKey) {
        if !self.sockets.contains_key(&Self::needs(key)) {
            self.sockets.insert(Self::needs(key), None);
            self.retry_at = None;
        }
    }

    /// Only these sessions are left.
    pub(super) fn keep(&mut self, keys: &[SessionKey]) {
        self.sockets.retain(|port, _| keys.iter().any(|key| Self::needs(*key) == *port));
    }

    /// Opens what is wanted. The first failure is returned, once for each attempt.
    pub(super) fn open(&mut self, now: Uptime) -> Result<(), Failed> {
        if self.retry_at.is_some_and(|at| now < at) {
            return Ok(());
        }
        self.retry_at = None;
        let mut failed = None;
        for (port, socket) in self.sockets.iter_mut().filter(|(_, socket)| socket.is_none()) {
            match listen(*port) {
                Ok(opened) => *socket = Some(opened),
                Err(error) => {
                    let number = super::port(port.hops);
                    let why = format!("this node cannot listen at UDP port {number}: {error}");
                    failed.get_or_insert(Failed { port: *port, why });
                }
            }
        }
        match failed {
            None => Ok(()),
            Some(failed) => {
                self.retry_at = Some(now + AGAIN);
                Err(failed)
            }
        }
    }

    pub(super) fn retry_at(&self) -> Option<Uptime> {
        self.retry_at
    }

    pub(super) fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.values().flatten().map(AsFd::as_fd)
    }

    /// Passes on what has arrived.
    pub(super) fn receive(&self, mut datagram: impl FnMut(Datagram<'_>)) {
        for (port, socket) in &self.sockets {
            let Some(socket) = socket else { continue };
            for _ in 0..BURST {
                let mut buffer = [0; LONGEST];
                let Some(arrived) = receive(socket, &mut buffer) else { break };
                let Arrived { from, interface, ttl, length } = arrived;
                let bytes = buffer.get(..length).unwrap_or_default();
                datagram(Datagram { from, interface, hops: port.hops, ttl, bytes });
            }
        }
    }
}

fn listen(port: Port) -> io::Result<Socket> {
    let (domain, address) = match port.v6 {
        false => (Domain::IPV4, IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        true => (Domain::IPV6, IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
    };
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    if port.v6 {
        socket.set_only_v6(true)?;
        setsockopt(&socket, sockopt::Ipv6RecvHopLimit, &true)?;
        setsockopt(&socket, sockopt::Ipv6RecvPacketInfo, &true)?;
    } else {
        setsockopt(&socket, sockopt::Ipv4RecvTtl, &true)?;
        setsockopt(&socket, sockopt::Ipv4PacketInfo, &true)?;
    }
    socket.bind(&SocketAddr::new(address, super::port(port.hops)).into())?;
    Ok(socket)
}

struct Arrived {
    from: IpAddr,
    interface: u32,
    ttl: u8,
    length: usize,
}

/// The next datagram, if one waits. One without the wanted information has a TTL of 0, so that no session takes it.
fn receive(socket: &Socket, buffer: &mut [u8]) -> Option<Arrived> {
    let mut space = nix::cmsg_space!(nix::libc::in6_pktinfo, nix::libc::c_int);
    let mut slices = [IoSliceMut::new(buffer)];
    let flags = MsgFlags::MSG_DONTWAIT;
    let message =
        recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut slices, Some(&mut space), flags)
            .ok()?;
    let from = message.address.as_ref().and_then(|it| {
        let v4 = it.as_sockaddr_in().map(|it| IpAddr::from(it.ip()));
        v4.or_else(|| it.as_sockaddr_in6().map(|it| IpAddr::from(it.ip())))
    });
    let (mut interface, mut ttl) = (0, 0);
    for control in message.cmsgs().ok().into_iter().flatten() {
        match control {
            ControlMessageOwned::Ipv4PacketInfo(info) => interface = info.ipi_ifindex as u32,
            ControlMessageOwned::Ipv6PacketInfo(info) => interface = info.ipi6_ifindex,
            ControlMessageOwned::Ipv4Ttl(value) | ControlMessageOwned::Ipv6HopLimit(value) => {
                ttl = u8::try_from(value).unwrap_or(0);
            }
            _ => {}
        }
    }
    let length = message.bytes;
    Some(Arrived {
        from: from.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        interface,
        ttl,
        length,
    })
}
