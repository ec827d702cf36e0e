//! Which interfaces of this node are Ethernet links that addresses can be announced on.

use crate::l2::frame::Mac;
use crate::l2::owners::Link;
use crate::netlink;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkLayerType, LinkMessage};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;

/// The links now, by index.
pub(super) fn read() -> io::Result<BTreeMap<u32, Link>> {
    let addressed = addressed(&netlink::addresses()?);
    Ok(netlink::links()?.iter().filter_map(|it| link(it, &addressed)).collect())
}

/// The interfaces that have an address of a network. Those of Pods and tunnels have none, or one of a single host.
fn addressed(addresses: &[AddressMessage]) -> BTreeSet<u32> {
    let of_network = |it: &&AddressMessage| {
        it.attributes.iter().any(|attribute| match attribute {
            AddressAttribute::Address(IpAddr::V4(_)) => it.header.prefix_len < 32,
            AddressAttribute::Address(IpAddr::V6(address)) => {
                it.header.prefix_len < 128 && !address.is_unicast_link_local()
            }
            _ => false,
        })
    };
    addresses.iter().filter(of_network).map(|it| it.header.index).collect()
}

fn link(message: &LinkMessage, addressed: &BTreeSet<u32>) -> Option<(u32, Link)> {
    let header = &message.header;
    let runs = LinkFlags::Up | LinkFlags::LowerUp;
    if header.link_layer_type != LinkLayerType::Ether || !header.flags.contains(runs) {
        return None;
    }
    let (mut name, mut mac, mut is_port) = (None, None, false);
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(it) => name = Some(it.clone()),
            LinkAttribute::Address(it) => mac = it.as_slice().try_into().ok().map(Mac),
            LinkAttribute::Controller(it) => is_port = *it != 0,
            _ => {}
        }
    }
    let mac = mac.filter(|it| it.is_unicast())?;
    // A port of a bridge or bond has its link's address there, not here.
    let usual = addressed.contains(&header.index) && !is_port;
    Some((header.index, Link { name: name?, mac, usual }))
}
