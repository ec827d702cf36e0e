//! The ports at which datagrams of all peers arrive: one socket for each family and distance that a session needs.

use crate::bfd::sessions::{Datagram, Hops, SessionKey};
use crate::datagram::{Arrived, receive, tell_headers};
use bowline_core::clock::Uptime;
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::btree_map::{BTreeMap, Entry};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
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
        if let Entry::Vacant(place) = self.sockets.entry(Self::needs(key)) {
            place.insert(None);
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
                let Ok(arrived) = receive(socket, &mut buffer) else { break };
                let Arrived { from, to, interface, ttl, length } = arrived;
                let bytes = buffer.get(..length).unwrap_or_default();
                datagram(Datagram { from, to, interface, hops: port.hops, ttl, bytes });
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
    }
    tell_headers(&socket, port.v6)?;
    socket.bind(&SocketAddr::new(address, super::port(port.hops)).into())?;
    Ok(socket)
}
