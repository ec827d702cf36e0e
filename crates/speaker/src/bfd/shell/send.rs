//! One socket for each session, with a source port that it keeps (RFC 5881, section 4).

use super::{Wanted, port};
use crate::bfd::sessions::SessionKey;
use crate::dice::Dice;
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};

const FIRST_PORT: u16 = 49_152;
const CONTROL: u32 = 0xc0;
/// How many source ports are tried: others may have some of them.
const TRIES: usize = 16;

#[derive(Debug)]
struct Sender {
    wanted: Wanted,
    socket: Option<Socket>,
}

/// The sockets.
#[derive(Debug)]
pub(super) struct Outbox {
    senders: BTreeMap<SessionKey, Sender>,
    dice: Dice,
}

impl Outbox {
    pub(super) fn new(seed: u64) -> Self {
        Self { senders: BTreeMap::new(), dice: Dice::new(seed) }
    }

    pub(super) fn set(&mut self, wanted: Wanted) {
        let key = wanted.peer.key;
        if self.senders.get(&key).is_none_or(|it| it.wanted.vrf != wanted.vrf) {
            self.senders.insert(key, Sender { wanted, socket: None });
        }
    }

    pub(super) fn remove(&mut self, key: &SessionKey) {
        self.senders.remove(key);
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = SessionKey> + use<> {
        self.senders.keys().copied().collect::<Vec<_>>().into_iter()
    }

    /// Sends. A peer that does not listen, or that there is no route to, is no failure: it is down.
    pub(super) fn send(&mut self, key: SessionKey, bytes: &[u8]) -> Result<(), String> {
        let Some(sender) = self.senders.get_mut(&key) else { return Ok(()) };
        if sender.socket.is_none() {
            let opened = open(&sender.wanted, &mut self.dice);
            sender.socket = Some(opened.map_err(|e| format!("cannot send BFD packets: {e}"))?);
        }
        if let Some(socket) = &sender.socket
            && socket.send_to(bytes, &target(&sender.wanted).into()).is_err_and(|e| is_stale(&e))
        {
            sender.socket = None;
        }
        Ok(())
    }
}

/// The source address may have gone and come back.
fn is_stale(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::AddrNotAvailable)
}

fn target(wanted: &Wanted) -> SocketAddr {
    let key = wanted.peer.key;
    match key.peer {
        IpAddr::V4(_) => SocketAddr::new(key.peer, port(key.hops)),
        IpAddr::V6(peer) => {
            SocketAddrV6::new(peer, port(key.hops), 0, key.interface.unwrap_or(0)).into()
        }
    }
}

fn open(wanted: &Wanted, dice: &mut Dice) -> io::Result<Socket> {
    let target = target(wanted);
    let socket = Socket::new(Domain::for_address(target), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    if let Some(vrf) = &wanted.vrf {
        socket.bind_device(Some(vrf.as_bytes()))?;
    }
    if target.is_ipv6() {
        socket.set_only_v6(true)?;
        socket.set_unicast_hops_v6(255)?;
        socket.set_tclass_v6(CONTROL)?;
    } else {
        socket.set_ttl_v4(255)?;
        socket.set_tos_v4(CONTROL)?;
    }
    let scope = wanted.peer.key.interface.unwrap_or(0);
    for tried in 1.. {
        let port = FIRST_PORT + dice.below(usize::from(u16::MAX - FIRST_PORT) + 1) as u16;
        let from: SocketAddr = match wanted.peer.key.local {
            IpAddr::V4(local) => (local, port).into(),
            IpAddr::V6(local) => SocketAddrV6::new(local, port, 0, scope).into(),
        };
        match socket.bind(&from.into()) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && tried < TRIES => {}
            bound => return bound.map(|()| socket),
        }
    }
    Err(io::ErrorKind::AddrInUse.into())
}
