//! A BGPPeer: the router that a node tells its routes, and how.

use crate::objects::LabelSelector;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU8;
use std::sync::Arc;
use std::time::Duration;

/// Which AS number a peer may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerAsn {
    /// This one.
    Is(u32),
    /// Any but the own one.
    External,
    /// The own one.
    Internal,
}

impl fmt::Display for PeerAsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Is(asn) => write!(f, "{asn}"),
            Self::External => f.write_str("external"),
            Self::Internal => f.write_str("internal"),
        }
    }
}

/// Where a peer is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PeerTarget {
    /// At this address.
    Address(IpAddr),
    /// The router on the link of this interface (unnumbered).
    Interface(Arc<str>),
}

impl fmt::Display for PeerTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => write!(f, "{address}"),
            Self::Interface(name) => write!(f, "the router at interface {name}"),
        }
    }
}

/// A BGPPeer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its name.
    pub name: Arc<str>,
    /// Where the router is.
    pub target: PeerTarget,
    /// Its TCP port.
    pub port: u16,
    /// Its AS number.
    pub asn: PeerAsn,
    /// The own AS number.
    pub my_asn: u32,
    /// The own BGP identifier. None: an IPv4 address of the node.
    pub router_id: Option<Ipv4Addr>,
    /// The own address of connections.
    pub source: Option<IpAddr>,
    /// Where routes of this family lead. None: to the own address of the connection.
    pub next_hop: Option<IpAddr>,
    /// The VRF (its device) of connections.
    pub vrf: Option<Arc<str>>,
    /// Only packets that crossed no router count (GTSM).
    pub ttl_security: bool,
    /// Connections of the peer are accepted, too.
    pub listen: bool,
    /// The nodes that have the session. None: every node that runs a speaker.
    pub nodes: Option<LabelSelector>,
    /// The proposed hold time in seconds: 0 for none, or at least 3.
    pub hold_time: u16,
    /// How often KEEPALIVE is sent. None: a third of the hold time.
    pub keepalive_time: Option<Duration>,
    /// The longest pause between two attempts to connect.
    pub connect_time: Duration,
    /// A peer of another AS may be behind routers.
    pub multi_hop: bool,
    /// The Secret of the password, in Bowline's own namespace.
    pub password_secret: Option<Arc<str>>,
    /// Graceful restart with this restart time in seconds.
    pub graceful_restart: Option<u16>,
    /// Failure detection.
    pub bfd: Option<Bfd>,
}

/// How BFD watches a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bfd {
    /// The shortest interval at which packets of the peer are wanted.
    pub receive_interval: Duration,
    /// The interval of own packets.
    pub transmit_interval: Duration,
    /// This many lost packets mean that the peer is away.
    pub detect_multiplier: NonZeroU8,
    /// Packets of a peer behind routers with a lower TTL are dropped.
    pub minimum_ttl: NonZeroU8,
}
