//! All sessions of a speaker: finds the session of a datagram, gives out discriminators, and drops what comes from
//! too far or belongs to no session. Two addresses of this node may each have a session with one peer, so a session is
//! found by both of its addresses (RFC 5880, section 6.3; RFC 5881, section 3). The shell passes in every datagram that waits before it asks what to do, so that a late thread does not
//! take its own delay for a peer's silence.

use super::packet::{Diagnostic, Packet, State};
use super::session::{Change, Parameters, Session};
use crate::dice::Dice;
use bowline_core::clock::Uptime;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::{NonZeroU8, NonZeroU32};

/// How far a peer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hops {
    /// On the link: its packets have a TTL of 255 (RFC 5881, as RFC 5082 proposes).
    Single,
    /// Behind routers (RFC 5883).
    Multi,
}

/// Identifies a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionKey {
    /// The address of this node that it uses: packets are sent from it and arrive at it.
    pub local: IpAddr,
    /// The address of the peer.
    pub peer: IpAddr,
    /// The index of the interface that leads there, where the peer is on the link.
    pub interface: Option<u32>,
    /// How far it is.
    pub hops: Hops,
}

/// A configured peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its session.
    pub key: SessionKey,
    /// The configured timers.
    pub parameters: Parameters,
    /// Packets of a peer behind routers with a lower TTL are dropped.
    pub minimum_ttl: NonZeroU8,
}

/// A datagram as it arrived.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// Its sender.
    pub from: IpAddr,
    /// The address that it was sent to.
    pub to: IpAddr,
    /// The index of the interface at which it arrived.
    pub interface: u32,
    /// The port at which it arrived says this.
    pub hops: Hops,
    /// TTL or hop limit.
    pub ttl: u8,
    /// Its payload.
    pub bytes: &'a [u8],
}

/// What happens.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// There should be a session, with these parameters.
    Configured(Peer),
    /// There should be none. The peer is told.
    Removed(SessionKey),
    /// A datagram arrived.
    Received(Datagram<'a>),
}

/// What the shell has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send this with TTL 255, from a source port between 49152 and 65535 that the session keeps.
    Send {
        /// The session.
        key: SessionKey,
        /// The payload.
        bytes: Vec<u8>,
    },
    /// The state of a session changed.
    Changed {
        /// The session.
        key: SessionKey,
        /// Its state.
        state: State,
        /// Why it is not up any more.
        diagnostic: Diagnostic,
        /// What the peer said last of its own. If an administrator ended it there, its path is not broken (RFC 5882,
        /// section 3.2).
        peer: State,
    },
    /// The session is gone: its socket may be closed.
    Closed(SessionKey),
}

#[derive(Debug)]
struct Entry {
    session: Session,
    minimum_ttl: u8,
    /// Until when the peer is told that the session ended.
    ends: Option<Uptime>,
}

/// The machine of all sessions.
#[derive(Debug)]
pub struct Sessions {
    sessions: BTreeMap<SessionKey, Entry>,
    discriminators: BTreeMap<u32, SessionKey>,
    dice: Dice,
    refused: u64,
}

impl Sessions {
    /// None yet. The seed spreads timers and discriminators.
    pub fn new(seed: u64) -> Self {
        Self {
            sessions: BTreeMap::new(),
            discriminators: BTreeMap::new(),
            dice: Dice::new(seed),
            refused: 0,
        }
    }

    /// How many datagrams were refused since the start.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// The state of a session.
    pub fn state(&self, key: &SessionKey) -> Option<State> {
        Some(self.sessions.get(key)?.session.state())
    }

    /// Takes an event.
    pub fn handle(&mut self, event: Event<'_>, now: Uptime) {
        match event {
            Event::Configured(peer) => self.configure(peer, now),
            Event::Removed(key) => {
                if let Some(entry) = self.sessions.get_mut(&key)
                    && entry.ends.is_none()
                {
                    entry.ends = Some(entry.session.end(now));
                }
            }
            Event::Received(datagram) => {
                if self.receive(&datagram, now).is_none() {
                    self.refused += 1;
                }
            }
        }
    }

    fn configure(&mut self, peer: Peer, now: Uptime) {
        let minimum_ttl = peer.minimum_ttl.get();
        if let Some(entry) = self.sessions.get_mut(&peer.key)
            && entry.ends.is_none()
        {
            entry.minimum_ttl = minimum_ttl;
            entry.session.set_parameters(peer.parameters, now);
            return;
        }
        let discriminator = self.discriminator();
        self.discriminators.retain(|_, key| *key != peer.key);
        self.discriminators.insert(discriminator.get(), peer.key);
        let dice = Dice::new(self.dice.roll());
        let session = Session::new(discriminator, peer.parameters, dice, now);
        let entry = Entry { session, minimum_ttl, ends: None };
        self.sessions.insert(peer.key, entry);
    }

    /// A number that no session has.
    fn discriminator(&mut self) -> NonZeroU32 {
        loop {
            let number = self.dice.roll() as u32;
            if let Some(it) = NonZeroU32::new(number)
                && !self.discriminators.contains_key(&number)
            {
                return it;
            }
        }
    }

    /// Passes a datagram on. Nothing if it is refused.
    fn receive(&mut self, datagram: &Datagram<'_>, now: Uptime) -> Option<()> {
        let Datagram { from, to, interface, hops, ttl, bytes } = *datagram;
        if hops == Hops::Single && ttl != 255 {
            return None;
        }
        let packet = Packet::parse(bytes).ok()?;
        let key = match packet.your_discriminator {
            0 => [Some(interface), None]
                .map(|interface| SessionKey { local: to, peer: from, interface, hops })
                .into_iter()
                .find(|key| self.sessions.contains_key(key))?,
            number => *self.discriminators.get(&number)?,
        };
        // A discriminator is easy to observe. It does not move a session to another pair of addresses.
        let is_of_session = key.peer == from && key.local == to && key.hops == hops;
        if !is_of_session || key.interface.is_some_and(|it| it != interface) {
            return None;
        }
        let entry = self.sessions.get_mut(&key)?;
        if hops == Hops::Multi && ttl < entry.minimum_ttl {
            return None;
        }
        entry.session.receive(&packet, now);
        Some(())
    }

    /// When to call [`Sessions::take`] again.
    pub fn wake_at(&self) -> Option<Uptime> {
        let wakes = |it: &Entry| it.session.wake_at().into_iter().chain(it.ends).min();
        self.sessions.values().filter_map(wakes).min()
    }

    /// What has to be done now.
    pub fn take(&mut self, now: Uptime) -> Vec<Effect> {
        let mut effects = Vec::new();
        for (key, entry) in &mut self.sessions {
            let key = *key;
            for packet in entry.session.take(now) {
                effects.push(Effect::Send { key, bytes: packet.to_bytes().to_vec() });
            }
            for Change { state, diagnostic, peer } in entry.session.changes() {
                effects.push(Effect::Changed { key, state, diagnostic, peer });
            }
        }
        let ended = |it: &Entry| it.ends.is_some_and(|at| at <= now);
        for (key, _) in self.sessions.extract_if(.., |_, it| ended(it)) {
            self.discriminators.retain(|_, it| *it != key);
            effects.push(Effect::Closed(key));
        }
        effects
    }
}

#[cfg(test)]
mod tests;
