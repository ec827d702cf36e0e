//! What follows from the OPENs of both sides: whether there can be a session, and on which terms.

use super::config::{Config, PeerAsn};
use crate::bgp::family::PerFamily;
use crate::bgp::notification::{Kind, Refusal};
use crate::bgp::open::Open;
use crate::bgp::rib_out::{NextHops, Terms};
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;
use std::time::Duration;

/// A peer, and what both sides agreed on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// Its AS number.
    pub asn: u32,
    /// Its BGP identifier.
    pub id: Ipv4Addr,
    /// The families that both sides have.
    pub families: PerFamily<bool>,
    /// The smaller of both hold times; `None` if neither side checks.
    pub hold_time: Option<Duration>,
    /// How often KEEPALIVE is sent.
    pub keepalive_time: Option<Duration>,
    /// Both sides use AS numbers of four bytes.
    pub four_octet: bool,
    /// IPv4 routes may have an IPv6 next hop.
    pub extended_next_hop: bool,
    /// The peer keeps routes when this side restarts. It may list no family: then it does not restart itself.
    pub keeps_routes: bool,
    /// Both are in one AS.
    pub internal: bool,
}

impl Peer {
    pub(super) fn negotiate(config: &Config, open: &Open) -> Result<Self, Refusal> {
        let internal = open.asn == config.asn;
        let expected = match config.peer_asn {
            PeerAsn::Is(asn) => asn == open.asn,
            PeerAsn::External => !internal,
            PeerAsn::Internal => internal,
        };
        if !expected || open.asn == 0 {
            let (is, should) = (open.asn, config.peer_asn);
            let why = format!("the peer has AS {is}, and peerASN says {should}");
            return Err(Refusal::new(Kind::PEER_AS, why));
        }
        // RFC 6286: any but 0, and different inside an AS.
        if open.id.is_unspecified() || (internal && open.id == config.router_id) {
            let why = format!(
                "the peer has the router ID {}, which this speaker has or nobody can have",
                open.id
            );
            return Err(Refusal::new(Kind::IDENTIFIER, why));
        }
        if matches!(open.hold_time, 1 | 2) {
            let why = format!(
                "the peer proposes a hold time of {} s; 0 or at least 3 is allowed",
                open.hold_time
            );
            return Err(Refusal::new(Kind::HOLD_TIME, why));
        }
        let theirs = open.capabilities.families();
        let families = PerFamily::from_fn(|it| *config.families.get(it) && *theirs.get(it));
        if families == PerFamily::default() {
            return Err(no_family(config));
        }
        let hold = Duration::from_secs(config.hold_time.min(open.hold_time).into());
        let hold_time = (!hold.is_zero()).then_some(hold);
        let keepalive_time =
            hold_time.map(|hold| config.keepalive_time.map_or(hold / 3, |it| it.min(hold / 3)));
        Ok(Self {
            asn: open.asn,
            id: open.id,
            families,
            hold_time,
            keepalive_time,
            four_octet: open.capabilities.four_octet,
            extended_next_hop: config.families.v4 && open.capabilities.extended_next_hop,
            keeps_routes: config.graceful_restart.is_some()
                && open.capabilities.graceful_restart.is_some(),
            internal,
        })
    }

    pub(super) fn terms(&self, config: &Config, local: NextHops) -> Terms {
        Terms {
            families: self.families,
            next_hops: config.next_hops(local),
            extended_next_hop: self.extended_next_hop,
            four_octet: self.four_octet,
            asn: config.asn,
            internal: self.internal,
        }
    }
}

fn no_family(config: &Config) -> Refusal {
    let needed = config.families.members().flat_map(|family| {
        let [high, low] = family.afi().to_be_bytes();
        [1, 4, high, low, 0, 1]
    });
    let names: Vec<_> = config.families.members().map(|family| family.to_string()).collect();
    let why = format!("the peer does not exchange {} routes", names.join(" or "));
    Refusal::with(Kind::CAPABILITY, needed.collect(), why)
}
