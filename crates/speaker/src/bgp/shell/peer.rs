//! The configuration of a peer with all that concerns sockets, and its status.

use super::socket::{index, routed_from};
use crate::bfd;
use crate::bgp::session::{Config, Status};
use bowline_core::clock::Uptime;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU8;

/// A peer as it is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// What the session needs.
    pub session: Config,
    /// Where the peer is.
    pub remote: Remote,
    /// Its port: 179.
    pub port: u16,
    /// Connections are made from this address; else from the one that the kernel chooses.
    pub source: Option<IpAddr>,
    /// Connections are made in this VRF.
    pub vrf: Option<String>,
    /// How far the peer may be.
    pub distance: Distance,
    /// The password of TCP MD5 signatures (RFC 2385).
    pub password: Option<Password>,
    /// A BFD session beside the BGP session.
    pub bfd: Option<Bfd>,
}

/// How a peer's BFD session is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bfd {
    /// The timers.
    pub parameters: bfd::Parameters,
    /// Packets of a peer behind routers with a lower TTL are dropped.
    pub minimum_ttl: NonZeroU8,
}

/// Where a peer is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remote {
    /// At this address.
    Address(IpAddr),
    /// At this link-local address, on the link of this interface.
    LinkLocal(Ipv6Addr, String),
    /// The router that was heard last on the link of this interface (unnumbered). It may connect only without a password, as
    /// that would belong to an address.
    Interface(String),
}

impl Remote {
    pub(super) fn address(&self) -> Option<IpAddr> {
        match self {
            Self::Address(address) => Some(*address),
            Self::LinkLocal(address, _) => Some((*address).into()),
            Self::Interface(_) => None,
        }
    }
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => write!(f, "{address}"),
            Self::LinkLocal(address, interface) => write!(f, "{address}%{interface}"),
            Self::Interface(interface) => write!(f, "the router at {interface}"),
        }
    }
}

/// How far a peer may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distance {
    /// On the link: packets to it have a TTL of 1.
    Link,
    /// On the link, proven: both sides send with a TTL of 255 and drop everything else (GTSM, RFC 5082).
    LinkProven,
    /// Behind routers.
    Routed,
}

/// A password of at most [`Password::LIMIT`] bytes. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(Vec<u8>);

impl Password {
    /// The most bytes that Linux takes.
    pub const LIMIT: usize = bowline_sys::TCP_MD5_KEY_LIMIT;

    /// `None` for a password that is empty or too long.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Option<Self> {
        let bytes = bytes.into();
        (1..=Self::LIMIT).contains(&bytes.len()).then_some(Self(bytes))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(…)")
    }
}

impl Peer {
    /// Whether a connection that was made for the other configuration is not one for this.
    pub(super) fn needs_other_connection(&self, other: &Self) -> bool {
        let unimportant =
            |peer: &Self| Self { session: self.session.clone(), bfd: None, ..peer.clone() };
        unimportant(self) != unimportant(other)
    }

    /// The same peer, at the address where it was found.
    pub(super) fn found_at(&self, address: Ipv6Addr) -> Self {
        let remote = match &self.remote {
            Remote::Interface(interface) => Remote::LinkLocal(address, interface.clone()),
            remote => remote.clone(),
        };
        Self { remote, ..self.clone() }
    }

    /// The BFD session that there should be. It has the local address of the BGP session, as that is the one that the
    /// router has its own session with; before there is one, the address that a connection would be made from.
    pub(super) fn wanted_bfd(
        &self,
        connected: Option<IpAddr>,
    ) -> Result<Option<bfd::shell::Wanted>, String> {
        let Some(Bfd { parameters, minimum_ttl }) = self.bfd else { return Ok(None) };
        let (peer, interface) = match &self.remote {
            Remote::Address(address) => (*address, None),
            Remote::LinkLocal(address, interface) => ((*address).into(), Some(index(interface)?)),
            Remote::Interface(_) => return Ok(None),
        };
        let local = match connected.or(self.source) {
            Some(local) => local,
            None => routed_from(peer, interface, self.vrf.as_deref())?,
        };
        let hops = match self.distance {
            Distance::Link | Distance::LinkProven => bfd::Hops::Single,
            Distance::Routed => bfd::Hops::Multi,
        };
        let key = bfd::SessionKey { local, peer, interface, hops };
        let peer = bfd::Peer { key, parameters, minimum_ttl };
        Ok(Some(bfd::shell::Wanted { peer, vrf: self.vrf.clone() }))
    }
}

/// A peer at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerStatus {
    /// The session.
    pub session: Status,
    /// Since when it has been established, or has not been.
    pub since: Uptime,
    /// Why the peer cannot connect to this node although it may.
    pub not_listening: Option<String>,
    /// The BFD session, or why there is none although it is configured.
    pub bfd: Option<Result<bfd::State, String>>,
    /// How often a BFD session that was up ended. A session that the peer's administrator ended counts, too.
    pub bfd_flaps: u64,
}

#[cfg(test)]
mod tests {
    use super::Password;

    #[test]
    fn a_password_is_neither_printed_nor_longer_than_the_kernel_takes() {
        let password = Password::new("hunter2").expect("7 bytes");
        assert_eq!(format!("{password:?}"), "Password(…)");
        let lengths = [0, 1, 80, 81];
        assert_eq!(
            lengths.map(|length| Password::new(vec![b'x'; length]).is_some()),
            [false, true, true, false]
        );
    }
}
