//! What happens to a session and what it wants done. Both can be written to a recording and read again.

use super::config::Config;
use super::status::Report;
use crate::bgp::rib_out::{NextHops, Route};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// A TCP connection with the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Conn {
    /// Made by this side; the session numbers it.
    Out(u64),
    /// Made by the peer; the shell numbers it.
    In(u64),
}

/// What happens to a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// The session is wanted.
    Start,
    /// The session is no longer wanted.
    Stop(Stop),
    /// The configuration of the peer, also an unchanged one.
    Configure(Box<Config>),
    /// Connections have to be made anew, because what the shell configures changed: address, password, TTL.
    Reset,
    /// A connection was made, from the machine with these addresses.
    Connected(Conn, NextHops),
    /// A connection could not be made.
    NotConnected(Conn, String),
    /// The peer made a connection. The shell has checked its address.
    Accepted(Conn, NextHops),
    /// Bytes of the peer.
    Received(Conn, #[serde(with = "hex")] Vec<u8>),
    /// Everything passed by `Send` so far is with the kernel.
    Sent(Conn),
    /// The peer, or the kernel, ended the connection.
    Closed(Conn, String),
    /// BFD says that the peer is not reached.
    BfdDown,
    /// A route is wanted, possibly the same as before.
    Announce(IpNet, Route),
    /// A route is no longer wanted.
    Withdraw(IpNet),
    /// All routes have been announced once since this process started, so End-of-RIB is true.
    Complete,
    /// The node is drained: routes are marked with GRACEFUL_SHUTDOWN. Or it no longer is.
    Drain(bool),
}

/// How a session ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stop {
    /// The node leaves: the peer forgets the routes at once, and its operator reads the text.
    Leave(String),
    /// A new process takes over on this node: a peer with graceful restart keeps the routes.
    Upgrade,
    /// The peer is no longer configured.
    Deconfigured,
}

/// What the shell has to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Effect {
    /// Make a connection, and answer with `Connected` or `NotConnected`.
    Connect(Conn),
    /// Write, and answer with `Sent`.
    Send(Conn, #[serde(with = "hex")] Vec<u8>),
    /// Write what is left for at most a second, then close; or stop making the connection.
    Close(Conn),
    /// Tell the log, the metrics and the status.
    Report(Report),
}

/// Bytes as hexadecimal text, for recordings.
mod hex {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(from)?;
        let pairs = text.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap_or("?"));
        pairs.map(|pair| u8::from_str_radix(pair, 16).map_err(Error::custom)).collect()
    }
}
