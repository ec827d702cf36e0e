//! An Advertisement: which addresses are announced, from which nodes, and how.

use super::Route;
use crate::objects::{Family, LabelSelector};
use ipnet::IpNet;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

/// An Advertisement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advertisement {
    /// Its name.
    pub name: Arc<str>,
    /// The addresses that it is about.
    pub covers: Covers,
    /// The nodes that announce. None: every node that runs a speaker.
    pub nodes: Option<LabelSelector>,
    /// By ARP and neighbour discovery.
    pub l2: Option<ByL2>,
    /// By BGP.
    pub bgp: Option<ByBgp>,
}

/// The addresses that an Advertisement is about. One that names neither pools nor load balancers covers the addresses
/// of all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Covers {
    /// AddressPools by name.
    pub pools: BTreeSet<Arc<str>>,
    /// AddressPools by their labels.
    pub pool_selector: Option<LabelSelector>,
    /// LoadBalancers by name.
    pub load_balancers: BTreeSet<Arc<str>>,
    /// Only addresses that a Service with these labels holds.
    pub services: Option<LabelSelector>,
}

impl Covers {
    /// Whether it names neither pools nor load balancers.
    pub fn is_everything(&self) -> bool {
        self.pools.is_empty() && self.pool_selector.is_none() && self.load_balancers.is_empty()
    }
}

/// How addresses are announced by ARP and neighbour discovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ByL2 {
    /// The interfaces that answer. Empty: all of them.
    pub interfaces: BTreeSet<Arc<str>>,
    /// The nodes that own an address before others. A preference: without such a node, another one owns it.
    pub preferred: Option<LabelSelector>,
}

/// How addresses are announced by BGP.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ByBgp {
    /// BGPPeers by name. Empty: all of them.
    pub peers: BTreeSet<Arc<str>>,
    /// The lengths of the announced prefixes.
    pub lengths: Lengths,
    /// What is told with each prefix.
    pub route: Route,
}

/// The prefix length of routes, for each family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lengths {
    v4: u8,
    v6: u8,
}

impl Default for Lengths {
    fn default() -> Self {
        Self { v4: 32, v6: 128 }
    }
}

impl Lengths {
    /// None: a length that the family does not have. A length of 0 would be a default route.
    pub fn new(v4: u8, v6: u8) -> Option<Self> {
        ((1..=32).contains(&v4) && (1..=128).contains(&v6)).then_some(Self { v4, v6 })
    }

    /// The prefix in which an address is announced.
    pub fn prefix(&self, address: IpAddr) -> IpNet {
        let length = match Family::of(address) {
            Family::V4 => self.v4,
            Family::V6 => self.v6,
        };
        // A length that `new` allows always makes a prefix.
        IpNet::new(address, length).map_or(IpNet::from(address), |net| net.trunc())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_announced_in_a_prefix_of_its_family() {
        let lengths = Lengths::new(24, 64).unwrap();
        let prefix = |text: &str| lengths.prefix(text.parse().unwrap()).to_string();
        assert_eq!(prefix("203.0.113.10"), "203.0.113.0/24");
        assert_eq!(prefix("2001:db8::10"), "2001:db8::/64");
        let alone = Lengths::default().prefix("203.0.113.10".parse().unwrap());
        assert_eq!(alone.to_string(), "203.0.113.10/32");
    }

    #[test]
    fn no_length_makes_a_default_route_or_is_longer_than_an_address() {
        for (v4, v6) in [(0, 128), (33, 128), (32, 0), (32, 129)] {
            assert_eq!(Lengths::new(v4, v6), None, "{v4} {v6}");
        }
    }
}
