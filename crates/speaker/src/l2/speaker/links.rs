//! Which interfaces of this node are Ethernet links that addresses can be announced on.

use crate::l2::frame::Mac;
use crate::l2::owners::Link;
use crate::netlink;
use ipnet::IpNet;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{
    InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage,
};
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;

/// The links now, by index. `at`: where other speakers reach this one.
pub(super) fn read(at: IpAddr) -> io::Result<BTreeMap<u32, Link>> {
    Ok(all(&netlink::links()?, &netlink::addresses()?, at))
}

fn all(links: &[LinkMessage], addresses: &[AddressMessage], at: IpAddr) -> BTreeMap<u32, Link> {
    let mut networks = BTreeMap::<u32, Vec<IpNet>>::new();
    let mut home = None;
    for message in addresses {
        let index = message.header.index;
        for address in message.attributes.iter().filter_map(address) {
            if address == at {
                home = Some(index);
            }
            networks.entry(index).or_default().extend(network(address, message.header.prefix_len));
        }
    }
    // A bridge of which all ports are virtual has guests of this node behind it, and perhaps no other host at all.
    let mut outward = BTreeMap::<u32, bool>::new();
    for message in links {
        if let Some(bridge) = controller(message) {
            *outward.entry(bridge).or_default() |=
                !matches!(kind(message), Some(InfoKind::Veth | InfoKind::Tun));
        }
    }
    let links = links.iter().filter_map(|message| {
        let (index, name, mac) = ethernet(message)?;
        let mut networks = networks.remove(&index).unwrap_or_default();
        networks.sort_unstable();
        networks.dedup();
        let home = home == Some(index);
        let of_guests = match kind(message) {
            Some(InfoKind::Bridge) => !outward.get(&index).is_some_and(|it| *it),
            Some(InfoKind::Dummy) => true,
            _ => false,
        };
        // A port of a bridge or bond has its link's address there, not here.
        let usual = !networks.is_empty() && controller(message).is_none() && (home || !of_guests);
        let up = message.header.flags.contains(LinkFlags::Up | LinkFlags::LowerUp);
        Some((index, Link { name, mac, up, usual, home, networks }))
    });
    links.collect()
}

/// An address of the interface itself, or at least one of its network.
fn address(attribute: &AddressAttribute) -> Option<IpAddr> {
    match attribute {
        AddressAttribute::Address(it) | AddressAttribute::Local(it) => Some(*it),
        _ => None,
    }
}

/// The network that an address is in. Interfaces of Pods and tunnels have none, or one of a single host.
fn network(address: IpAddr, prefix: u8) -> Option<IpNet> {
    let (most, local) = match address {
        IpAddr::V4(_) => (32, false),
        IpAddr::V6(it) => (128, it.is_unicast_link_local()),
    };
    let network = IpNet::new(address, prefix).ok()?.trunc();
    (prefix < most && !local).then_some(network)
}

fn controller(message: &LinkMessage) -> Option<u32> {
    message.attributes.iter().find_map(|it| match it {
        LinkAttribute::Controller(it) => Some(*it).filter(|it| *it != 0),
        _ => None,
    })
}

fn kind(message: &LinkMessage) -> Option<&InfoKind> {
    let infos = message.attributes.iter().find_map(|it| match it {
        LinkAttribute::LinkInfo(infos) => Some(infos),
        _ => None,
    })?;
    infos.iter().find_map(|it| match it {
        LinkInfo::Kind(kind) => Some(kind),
        _ => None,
    })
}

fn ethernet(message: &LinkMessage) -> Option<(u32, String, Mac)> {
    if message.header.link_layer_type != LinkLayerType::Ether {
        return None;
    }
    let (mut name, mut mac) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(it) => name = Some(it.clone()),
            LinkAttribute::Address(it) => mac = it.as_slice().try_into().ok().map(Mac),
            _ => {}
        }
    }
    Some((message.header.index, name?, mac.filter(|it| it.is_unicast())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(index: u32, name: &str, kind: Option<InfoKind>, controller: u32) -> LinkMessage {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.header.link_layer_type = LinkLayerType::Ether;
        message.header.flags = LinkFlags::Up | LinkFlags::LowerUp;
        message.attributes = vec![
            LinkAttribute::IfName(name.into()),
            LinkAttribute::Address(vec![2, 0, 0, 0, 0, index as u8]),
            LinkAttribute::Controller(controller),
        ];
        message.attributes.extend(kind.map(|it| LinkAttribute::LinkInfo(vec![LinkInfo::Kind(it)])));
        message
    }

    fn on(index: u32, network: &str) -> AddressMessage {
        let network: IpNet = network.parse().expect("a network");
        let mut message = AddressMessage::default();
        message.header.index = index;
        message.header.prefix_len = network.prefix_len();
        message.attributes = vec![AddressAttribute::Address(network.addr())];
        message
    }

    #[test]
    fn bridges_of_guests_are_no_usual_links() {
        let links = [
            interface(2, "eth0", None, 0),
            interface(3, "cni0", Some(InfoKind::Bridge), 0),
            interface(4, "vethpod", Some(InfoKind::Veth), 3),
            interface(5, "docker0", Some(InfoKind::Bridge), 0),
            interface(6, "br0", Some(InfoKind::Bridge), 0),
            interface(7, "eth1", None, 6),
            interface(8, "tap0", Some(InfoKind::Tun), 6),
            interface(9, "kube-ipvs0", Some(InfoKind::Dummy), 0),
            interface(10, "virbr0", Some(InfoKind::Bridge), 0),
            interface(11, "tap1", Some(InfoKind::Tun), 10),
            interface(12, "vethptp", Some(InfoKind::Veth), 0),
        ];
        let addresses = [
            on(2, "192.0.2.1/24"),
            on(2, "2001:db8::1/64"),
            on(2, "fe80::1/64"),
            on(3, "10.244.1.1/24"),
            on(5, "172.17.0.1/16"),
            on(6, "198.51.100.1/24"),
            on(9, "10.96.0.1/24"),
            on(10, "192.168.122.1/24"),
            on(12, "10.244.2.1/32"),
        ];
        let all = all(&links, &addresses, "192.0.2.1".parse().expect("one"));
        let usual: Vec<_> = all.values().filter(|it| it.usual).map(|it| &*it.name).collect();
        assert_eq!(usual, ["eth0", "br0"]);
        let eth0 = &all[&2];
        let expected = ["192.0.2.0/24", "2001:db8::/64"].map(|it| it.parse().expect("a network"));
        assert_eq!((eth0.home, eth0.up, eth0.networks.as_slice()), (true, true, &expected[..]));
        let homes = all.values().filter(|it| it.home).count();
        assert_eq!(homes, 1);
    }

    #[test]
    fn a_bridge_with_the_address_of_the_node_is_a_usual_link() {
        let links = [
            interface(3, "br0", Some(InfoKind::Bridge), 0),
            interface(4, "eth0", Some(InfoKind::Veth), 3),
        ];
        let at = "192.0.2.1".parse().expect("one");
        assert!(all(&links, &[on(3, "192.0.2.1/24")], at)[&3].usual, "a node in a container");
    }
}
