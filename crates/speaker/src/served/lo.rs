//! The addresses of `lo`: which are there, which have to be added or removed, and the orders for it.

use super::Served;
use crate::netlink::Order;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::{
    AddressAttribute, AddressFlags, AddressMessage, AddressScope, CacheInfo,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

/// The loopback interface of every network namespace.
const LO: u32 = 1;
/// The protocol of addresses that this program added (Linux 5.18 and later keep it).
const PROTOCOL: u8 = 66;
/// The metric of IPv6 addresses that this program added (Linux 4.18 and later). On `lo` it has no other effect.
const METRIC: u32 = 0x626f_776c;
/// The label of IPv4 addresses that this program added.
const LABEL: &str = "lo:bowline";

/// The interface on which kube-proxy in IPVS mode has the addresses of Services.
const KUBE_PROXY: &str = "kube-ipvs0";

/// What the kernel has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// The addresses of `lo`, and whether they have the mark.
    pub(super) lo: BTreeMap<IpAddr, bool>,
    /// One IPv4 address of each other interface that has any.
    pub(super) interfaces: BTreeMap<u32, Ipv4Addr>,
    /// The addresses of the other interfaces.
    pub(super) elsewhere: BTreeSet<IpAddr>,
    /// Those of them that are the node's own, not kube-proxy's.
    pub(super) own: BTreeSet<IpAddr>,
}

impl Seen {
    /// `added`: what this process added, whether the kernel keeps the mark or not.
    pub(super) fn of(messages: &[AddressMessage], added: &BTreeSet<IpAddr>) -> Self {
        let mut seen = Self::default();
        for message in messages {
            let (mut address, mut local, mut ours) = (None, None, false);
            let mut of_kube_proxy = false;
            for attribute in &message.attributes {
                match attribute {
                    AddressAttribute::Address(it) => address = Some(*it),
                    AddressAttribute::Local(it) => local = Some(*it),
                    AddressAttribute::Label(it) => {
                        ours |= it == LABEL;
                        of_kube_proxy = it == KUBE_PROXY;
                    }
                    AddressAttribute::Protocol(it) => ours |= u8::from(*it) == PROTOCOL,
                    AddressAttribute::RoutePriority(it) => ours |= *it == METRIC,
                    _ => {}
                }
            }
            match local.or(address) {
                Some(address) if message.header.index == LO => {
                    seen.lo.insert(address, ours || added.contains(&address));
                }
                Some(address) => {
                    seen.elsewhere.insert(address);
                    if of_kube_proxy {
                        continue;
                    }
                    seen.own.insert(address);
                    if let IpAddr::V4(address) = address {
                        seen.interfaces.entry(message.header.index).or_insert(address);
                    }
                }
                None => {}
            }
        }
        seen
    }

    /// What can be served: without addresses of other interfaces. The kernel answers for those, and the node may need
    /// them. The second value is one of those.
    pub(super) fn servable<'a>(
        &self,
        served: &'a Served,
    ) -> (std::borrow::Cow<'a, Served>, Option<IpAddr>) {
        let taken = served.addresses.keys().find(|it| self.elsewhere.contains(it)).copied();
        if taken.is_none() {
            return (std::borrow::Cow::Borrowed(served), None);
        }
        let mut rest = served.clone();
        rest.addresses.retain(|it, _| !self.elsewhere.contains(it));
        (std::borrow::Cow::Owned(rest), taken)
    }

    /// The served addresses that are there.
    pub(super) fn present(&self, served: &Served) -> BTreeSet<IpAddr> {
        let left = self.lo.iter().filter(|it| *it.1).map(|it| *it.0);
        let there = served.addresses.keys().filter(|it| self.lo.contains_key(it)).copied();
        // Of an empty set, what is left shows that it is not yet done.
        if served.addresses.is_empty() { left.collect() } else { there.collect() }
    }
}

/// What has to be done.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Steps {
    pub(super) add: Vec<IpAddr>,
    pub(super) remove: Vec<IpAddr>,
}

impl Steps {
    pub(super) fn is_empty(&self) -> bool {
        self.add.is_empty() && self.remove.is_empty()
    }
}

pub(super) fn steps(served: &Served, seen: &Seen) -> Steps {
    let add = served.addresses.keys().filter(|it| !seen.lo.contains_key(it)).copied();
    let unwanted = seen.lo.iter().filter(|(it, ours)| **ours && !served.addresses.contains_key(it));
    Steps {
        add: add.collect(),
        remove: unwanted.filter(|_| served.complete).map(|it| *it.0).collect(),
    }
}

/// Adds an address with the mark. It is no source of connections that the node opens: an IPv4 address by its scope, an
/// IPv6 address because it is deprecated.
pub(super) fn add(address: IpAddr) -> Order {
    let mut message = message(address);
    message.attributes.push(AddressAttribute::Protocol(PROTOCOL.into()));
    if address.is_ipv4() {
        message.attributes.push(AddressAttribute::Label(LABEL.into()));
    } else {
        let mut times = CacheInfo::default();
        (times.ifa_preferred, times.ifa_valid) = (0, u32::MAX);
        message.attributes.push(AddressAttribute::CacheInfo(times));
        message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
        message.attributes.push(AddressAttribute::RoutePriority(METRIC));
    }
    Order::Add(message)
}

pub(super) fn remove(address: IpAddr) -> Order {
    Order::Remove(message(address))
}

fn message(address: IpAddr) -> AddressMessage {
    let mut message = AddressMessage::default();
    let (family, length, scope) = match address {
        IpAddr::V4(_) => (AddressFamily::Inet, 32, AddressScope::Host),
        IpAddr::V6(_) => (AddressFamily::Inet6, 128, AddressScope::Universe),
    };
    message.header.family = family;
    message.header.prefix_len = length;
    message.header.scope = scope;
    message.header.index = LO;
    message.attributes = vec![AddressAttribute::Address(address), AddressAttribute::Local(address)];
    message
}

#[cfg(test)]
mod tests {
    use super::{Order, Seen, Steps, add, steps};
    use crate::served::{Ports, Served};
    use netlink_packet_route::address::AddressAttribute;
    use std::collections::{BTreeMap, BTreeSet};
    use std::net::IpAddr;

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    fn served(addresses: &[IpAddr], complete: bool) -> Served {
        Served {
            addresses: addresses.iter().map(|it| (*it, Ports::All)).collect(),
            complete,
            ..Served::default()
        }
    }

    #[test]
    fn only_marked_addresses_are_removed_and_only_after_the_whole_view() {
        let lo = BTreeMap::from([(ip(1), true), (ip(2), true), (ip(3), false), (ip(4), false)]);
        let seen = Seen { lo, ..Seen::default() };
        let wanted = [ip(1), ip(3), ip(5)];
        let add = vec![ip(5)];
        assert_eq!(
            steps(&served(&wanted, false), &seen),
            Steps { add: add.clone(), remove: vec![] }
        );
        assert_eq!(steps(&served(&wanted, true), &seen), Steps { add, remove: vec![ip(2)] });
        assert_eq!(seen.present(&served(&wanted, true)), BTreeSet::from([ip(1), ip(3)]));
        assert_eq!(seen.present(&served(&[], true)), BTreeSet::from([ip(1), ip(2)]), "left");
    }

    #[test]
    fn an_address_of_another_interface_is_left_alone() {
        let seen = Seen { elsewhere: [ip(1)].into(), ..Seen::default() };
        let wanted = served(&[ip(1), ip(2)], true);
        let (servable, taken) = seen.servable(&wanted);
        assert_eq!((servable.into_owned(), taken), (served(&[ip(2)], true), Some(ip(1))));
        let (servable, taken) = Seen::default().servable(&wanted);
        assert_eq!((servable.into_owned(), taken), (wanted.clone(), None));
    }

    #[test]
    fn an_ipv6_address_is_known_where_the_kernel_keeps_no_protocol() {
        let address: IpAddr = "2001:db8::1".parse().expect("one");
        let Order::Add(mut message) = add(address) else { panic!("an address is added") };
        message.attributes.retain(|it| !matches!(it, AddressAttribute::Protocol(_)));
        let none = BTreeSet::new();
        let lo = BTreeMap::from([(address, true)]);
        assert_eq!(Seen::of(&[message.clone()], &none).lo, lo, "after a crash, since Linux 4.18");
        message.attributes.retain(|it| !matches!(it, AddressAttribute::RoutePriority(_)));
        assert_eq!(Seen::of(&[message.clone()], &[address].into()).lo, lo, "by the same process");
        assert_eq!(Seen::of(&[message], &none).lo, BTreeMap::from([(address, false)]));
    }
}
