//! What a session says of itself.

use super::connection::Phase;
use super::negotiate::Peer;
use super::{Attempt, Session};
use crate::bgp::family::PerFamily;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The state of a session, as routers name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum State {
    /// Not wanted, or waiting before the next attempt.
    Idle,
    /// Waiting for the peer's connection.
    Active,
    /// Making a connection.
    Connect,
    /// An OPEN is awaited.
    OpenSent,
    /// A KEEPALIVE is awaited.
    OpenConfirm,
    /// Routes are exchanged.
    Established,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// Something to log and to count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    /// The session is established.
    Up(Peer),
    /// It no longer is, for this reason.
    Down(String),
    /// It could not be established, for this reason.
    NotUp(String),
}

/// Counted since the process started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// How often an established session ended.
    pub flaps: u64,
    /// UPDATE messages to the peer.
    pub updates_sent: u64,
    /// UPDATE messages of the peer.
    pub updates_received: u64,
    /// Routes that the peer announced. None is kept.
    pub routes_ignored: u64,
    /// UPDATE messages of the peer with attributes that cannot be read.
    pub malformed_updates: u64,
    /// NOTIFICATION messages to the peer.
    pub notifications_sent: u64,
    /// NOTIFICATION messages of the peer.
    pub notifications_received: u64,
}

/// A session at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Its state.
    pub state: State,
    /// The peer, while the session is established.
    pub peer: Option<Peer>,
    /// Why it last ended or could not be established.
    pub last_failure: Option<String>,
    /// How many routes are wanted.
    pub wanted: PerFamily<usize>,
    /// How many routes the peer has been told.
    pub told: PerFamily<usize>,
    /// Why wanted routes of a family are not told, while the session is established.
    pub held_back: PerFamily<Option<String>>,
    /// What was counted.
    pub counters: Counters,
}

impl Session {
    /// The session now.
    pub fn status(&self) -> Status {
        let wanted = self.rib.wanted();
        Status {
            state: self.state(),
            peer: self.established().and_then(|it| it.peer.clone()),
            last_failure: self.last_failure.clone(),
            wanted,
            told: self.rib.told(),
            held_back: PerFamily::from_fn(|it| {
                self.rib.held_back(it).filter(|_| *wanted.get(it) > 0)
            }),
            counters: self.counters,
        }
    }

    /// Its state.
    pub fn state(&self) -> State {
        let connections = self.connections.iter().map(|it| match it.phase {
            Phase::OpenSent => State::OpenSent,
            Phase::OpenConfirm => State::OpenConfirm,
            Phase::Established => State::Established,
        });
        let without = match self.attempt {
            Attempt::Connecting(..) => State::Connect,
            Attempt::None if self.wanted && self.config.accepts => State::Active,
            Attempt::None | Attempt::At(_) => State::Idle,
        };
        connections.max().unwrap_or(without)
    }

    /// What was counted.
    pub fn counters(&self) -> Counters {
        self.counters
    }
}
