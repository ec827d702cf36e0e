//! Prefixes that this node announces as a whole: packets to their addresses that nothing on the node takes would go back to
//! the router, and round again. They are refused by routes in a table of their own. Two rules lead packets there that
//! the node forwards, after its own routes but before the default route. Programs of the node are not concerned: what
//! translates an address for them does so after the choice of a route.

use crate::netlink::{self, Order};
use ipnet::IpNet;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleFlags, RuleMessage};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// The protocol of routes and rules that this program added.
const PROTOCOL: u8 = 66;
/// The table of the routes.
const TABLE: u32 = 6666;
/// The places of the two rules: the routes of the main table without the default route, then the table.
const PRIORITIES: [u32; 2] = [32_000, 32_001];
const FAMILIES: [AddressFamily; 2] = [AddressFamily::Inet, AddressFamily::Inet6];

/// Adds the routes and rules of these prefixes, and removes those of others if these are all.
pub(super) fn reconcile(wanted: &BTreeSet<IpNet>, complete: bool) -> Result<(), String> {
    let rules = netlink::rules().map_err(|error| format!("cannot read routing rules: {error}"))?;
    let rules: Vec<_> = rules.iter().filter_map(our_rule).collect();
    if wanted.is_empty() && rules.is_empty() {
        return Ok(());
    }
    let routes = netlink::routes().map_err(|error| format!("cannot read routes: {error}"))?;
    let routes: BTreeSet<_> = routes.iter().filter_map(our_route).collect();
    for prefix in wanted.difference(&routes) {
        netlink::carry_out(Order::AddRoute(route(*prefix)))
            .map_err(|error| format!("cannot add an unreachable route to {prefix}: {error}"))?;
    }
    for prefix in routes.difference(wanted).filter(|_| complete) {
        netlink::carry_out(Order::RemoveRoute(route(*prefix)))
            .map_err(|error| format!("cannot remove the unreachable route to {prefix}: {error}"))?;
    }
    for family in FAMILIES {
        let is_used = wanted.iter().any(|it| family_of(it.addr()) == family);
        for priority in PRIORITIES {
            let (is_there, rule) = (rules.contains(&(family, priority)), rule(family, priority));
            let done = match (is_used, is_there) {
                (true, false) => netlink::carry_out(Order::AddRule(rule)),
                (false, true) if complete => netlink::carry_out(Order::RemoveRule(rule)),
                _ => Ok(()),
            };
            done.map_err(|error| format!("cannot change routing rule {priority}: {error}"))?;
        }
    }
    Ok(())
}

fn family_of(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

fn our_rule(message: &RuleMessage) -> Option<(AddressFamily, u32)> {
    let mut protocol = None;
    let mut priority = None;
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Protocol(it) => protocol = Some(u8::from(*it)),
            RuleAttribute::Priority(it) => priority = Some(*it),
            _ => {}
        }
    }
    priority.filter(|_| protocol == Some(PROTOCOL)).map(|it| (message.header.family, it))
}

fn our_route(message: &RouteMessage) -> Option<IpNet> {
    let header = &message.header;
    let ours = header.kind == RouteType::Unreachable && u8::from(header.protocol) == PROTOCOL;
    let table = message.attributes.contains(&RouteAttribute::Table(TABLE));
    let destination = message.attributes.iter().find_map(|it| match it {
        RouteAttribute::Destination(RouteAddress::Inet(it)) => Some(IpAddr::V4(*it)),
        RouteAttribute::Destination(RouteAddress::Inet6(it)) => Some(IpAddr::V6(*it)),
        _ => None,
    });
    let prefix = IpNet::new(destination?, header.destination_prefix_length).ok()?;
    (ours && table).then_some(prefix)
}

fn route(prefix: IpNet) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = family_of(prefix.addr());
    message.header.destination_prefix_length = prefix.prefix_len();
    message.header.table = RouteHeader::RT_TABLE_UNSPEC;
    message.header.protocol = RouteProtocol::from(PROTOCOL);
    message.header.scope = RouteScope::Universe;
    message.header.kind = RouteType::Unreachable;
    message.attributes =
        vec![RouteAttribute::Table(TABLE), RouteAttribute::Destination(prefix.network().into())];
    message
}

fn rule(family: AddressFamily, priority: u32) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = family;
    message.header.action = RuleAction::ToTable;
    // Not from the node itself.
    message.header.flags = RuleFlags::Invert;
    message.attributes = vec![
        RuleAttribute::Iifname("lo".to_owned()),
        RuleAttribute::Priority(priority),
        RuleAttribute::Protocol(PROTOCOL.into()),
    ];
    message.attributes.extend(match priority == PRIORITIES[0] {
        true => vec![
            RuleAttribute::Table(RouteHeader::RT_TABLE_MAIN.into()),
            RuleAttribute::SuppressPrefixLen(0),
        ],
        false => vec![RuleAttribute::Table(TABLE)],
    });
    message
}
