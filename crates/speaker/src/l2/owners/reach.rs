//! To which links of the node an address belongs. Clients ask for an address on the link of its network; on other links
//! are hosts that must not decide which node owns it: guests of a bridge, a network for storage.

use super::{Interfaces, Link};
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The links of one address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reach {
    /// Where it is announced and listened for: indices in ascending order.
    pub(super) links: Vec<u32>,
    /// Whether an interface of the node is in a network that contains the address.
    pub(super) near: bool,
}

impl Reach {
    /// An address belongs to the links in networks that contain it, also while these are down: other links do not
    /// stand in for them. If no link is in such a network, it belongs to the links with the node's own address, or else
    /// to all. Links that are named are all used, while one of those in the network of the address is up.
    pub(super) fn of(
        address: IpAddr,
        interfaces: &Interfaces,
        links: &BTreeMap<u32, Link>,
    ) -> Self {
        let allowed = || links.iter().filter(|it| interfaces.contains(it.1));
        let up = |choose: &dyn Fn(&Link) -> bool| -> Vec<u32> {
            allowed().filter(|it| it.1.up && choose(it.1)).map(|it| *it.0).collect()
        };
        let near = |link: &Link| link.networks.iter().any(|it: &IpNet| it.contains(&address));
        if allowed().any(|it| near(it.1)) {
            let mut chosen = up(&near);
            if matches!(interfaces, Interfaces::Named(_)) && !chosen.is_empty() {
                chosen = up(&|_| true);
            }
            return Self { links: chosen, near: true };
        }
        let home = matches!(interfaces, Interfaces::All) && allowed().any(|it| it.1.home);
        Self { links: up(&|link| link.home || !home), near: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::l2::frame::Mac;

    fn link(name: &str, networks: &[&str]) -> Link {
        let networks = networks.iter().map(|it| it.parse().expect("a network")).collect();
        let mac = Mac([2, 0, 0, 0, 0, name.as_bytes()[3]]);
        Link { name: name.into(), mac, up: true, usual: true, home: false, networks }
    }

    /// eth0 has the node's address, eth1 a network of clients, eth2 a network of storage, and `br0` is for guests.
    fn links() -> BTreeMap<u32, Link> {
        let home = Link { home: true, ..link("eth0", &["10.0.0.0/24", "fd00::/64"]) };
        let guests = Link { usual: false, ..link("cni0", &["10.244.1.0/24"]) };
        BTreeMap::from([
            (1, home),
            (2, link("eth1", &["192.0.2.0/24"])),
            (3, link("eth2", &["10.9.0.0/16"])),
            (4, guests),
        ])
    }

    /// What it is, the address, the interfaces of its candidate, all links; and its links, and whether one is near.
    type Case<'a> = (&'a str, &'a str, &'a Interfaces, &'a BTreeMap<u32, Link>, &'a [u32], bool);

    fn named(names: &[&str]) -> Interfaces {
        Interfaces::Named(names.iter().map(|it| (*it).to_owned()).collect())
    }

    #[test]
    fn an_address_belongs_to_the_links_of_its_network() {
        let (all, down) = (links(), ["eth1", "eth0"]);
        let mut without = all.clone();
        for link in without.values_mut().filter(|it| down.contains(&it.name.as_str())) {
            link.up = false;
        }
        let mut homeless = all.clone();
        homeless.values_mut().for_each(|it| it.home = false);
        let (eth0_eth1, cni0) = (named(&["eth0", "eth1"]), named(&["cni0"]));
        let cases: [Case<'_>; 10] = [
            ("in a network", "192.0.2.9", &Interfaces::All, &all, &[2], true),
            ("of IPv6", "fd00::9", &Interfaces::All, &all, &[1], true),
            ("its link is down", "192.0.2.9", &Interfaces::All, &without, &[], true),
            ("in none", "203.0.113.1", &Interfaces::All, &all, &[1], false),
            ("in none, home is down", "203.0.113.1", &Interfaces::All, &without, &[], false),
            ("in none, no home", "203.0.113.1", &Interfaces::All, &homeless, &[1, 2, 3], false),
            ("of guests", "10.244.1.9", &Interfaces::All, &all, &[1], false),
            ("named", "192.0.2.9", &eth0_eth1, &all, &[1, 2], true),
            ("named and down", "192.0.2.9", &eth0_eth1, &without, &[], true),
            ("named guests", "10.244.1.9", &cni0, &all, &[4], true),
        ];
        for (what, address, interfaces, links, expected, near) in cases {
            let reach = Reach::of(address.parse().expect("one"), interfaces, links);
            assert_eq!(reach, Reach { links: expected.to_vec(), near }, "{what}");
        }
    }
}
