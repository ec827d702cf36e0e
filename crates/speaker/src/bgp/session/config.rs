//! How a session is configured, and the OPEN that follows from it.

use crate::bgp::family::PerFamily;
use crate::bgp::open::{Capabilities, GracefulRestart, Open};
use crate::bgp::rib_out::NextHops;
pub use bowline_core::announce::PeerAsn;
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;
use std::time::Duration;

/// The configuration of a session. Address, port, password and TTL are the shell's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// The own AS number.
    pub asn: u32,
    /// The own BGP identifier; not 0.0.0.0.
    pub router_id: Ipv4Addr,
    /// The peer's AS number.
    pub peer_asn: PeerAsn,
    /// The families of routes to announce.
    pub families: PerFamily<bool>,
    /// The proposed hold time in seconds: 0 for none, or at least 3.
    pub hold_time: u16,
    /// How often KEEPALIVE is sent, at least three times per hold time; `None` for a third of the hold time.
    pub keepalive_time: Option<Duration>,
    /// The longest pause between two attempts to connect.
    pub connect_time: Duration,
    /// This side makes connections.
    pub connects: bool,
    /// This side accepts connections.
    pub accepts: bool,
    /// Graceful restart with this restart time in seconds, at most 4095.
    pub graceful_restart: Option<u16>,
    /// Used in place of the address of the connection.
    pub next_hops: NextHops,
}

impl Config {
    /// Whether a session with the other configuration cannot go on with this one.
    pub(super) fn needs_reset_from(&self, other: &Self) -> bool {
        let unimportant = |config: &Self| Self {
            connect_time: Duration::ZERO,
            connects: true,
            accepts: true,
            next_hops: NextHops::default(),
            ..config.clone()
        };
        unimportant(self) != unimportant(other)
    }

    /// Where routes lead on a connection from these addresses.
    pub(super) fn next_hops(&self, local: NextHops) -> NextHops {
        NextHops {
            v4: self.next_hops.v4.or(local.v4),
            v6: self.next_hops.v6.or(local.v6),
            link_local: self.next_hops.link_local.or(local.link_local),
        }
    }

    pub(super) fn open(&self, restarted: bool) -> Open {
        let graceful_restart = self.graceful_restart.map(|restart_time| GracefulRestart {
            restarted,
            // Bowline leaves by NOTIFICATION when routes have to go (RFC 8538 would keep them).
            notification: false,
            restart_time: restart_time.min(4095),
            // The kernel forwards without a speaker.
            forwarding: PerFamily::from_fn(|family| self.families.get(family).then_some(true)),
        });
        let capabilities = Capabilities {
            families: Some(self.families),
            four_octet: true,
            route_refresh: true,
            extended_next_hop: self.families.v4,
            graceful_restart,
        };
        Open { asn: self.asn, hold_time: self.hold_time, id: self.router_id, capabilities }
    }
}

/// Numbers that differ between sessions and are the same for the same seed (splitmix64).
#[derive(Clone, Debug)]
pub struct Jitter(pub u64);

impl Jitter {
    pub(super) fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((value ^ (value >> 31)) >> 32) as u32
    }
}
