//! A Service on a load balancer: which ports it wants there, and its fragment, given the ports that
//! it has. Pure functions, called by `index`; they do not decide which contender has a port.

use super::build::{Built, Target};
use super::consumer::ConsumerKey;
use super::{parts, pools, ports};
use crate::objects::{Family, Service, ServicePort};
use crate::outcome::{Problem, Reason, quote};
use crate::plan::{
    BY_NAME, Fragment, Listener, ListenerProtocol, PersistenceKey, Pool, Serves, Transport,
    service_pool,
};
use crate::update::ListenerKey;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// The most listeners that one Service can have on a load balancer.
const MOST_LISTENERS: usize = 1_000;

/// The listeners that a Service wants, or why it can have none at all.
pub(super) fn wants(service: &Service, target: Target<'_>) -> Result<Vec<ListenerKey>, Problem> {
    pools::ranges(service)?;
    let addresses = addresses(service, target)?;
    let keys: BTreeSet<ListenerKey> = service
        .ports
        .iter()
        .filter(|port| pools::reachable(port, target))
        .take(room(&addresses))
        .flat_map(|port| addresses.iter().map(|address| key(*address, port)))
        .collect();
    if keys.is_empty() {
        return Err(no_node_port(target, "the Service"));
    }
    Ok(keys.into_iter().collect())
}

/// The most ports of a Service with this many addresses; the first ones count.
fn room(addresses: &[IpAddr]) -> usize {
    (MOST_LISTENERS / addresses.len().max(1)).max(1)
}

fn key(address: IpAddr, port: &ServicePort) -> ListenerKey {
    ListenerKey { address, port: port.number, transport: port.transport }
}

fn no_node_port(target: Target<'_>, what: &str) -> Problem {
    target.problem(
        Reason::NoNodePort,
        format_args!(
            "sends traffic to nodes, and {what} has no node port: let the Service allocate node ports"
        ),
    )
}

fn addresses(service: &Service, target: Target<'_>) -> Result<Vec<IpAddr>, Problem> {
    if target.own {
        return Ok(target.addresses.to_vec());
    }
    let vips = service.vips.as_ref().map_err(Clone::clone)?;
    if target.addresses.is_empty() {
        return Err(target.problem(Reason::NoAddress, "has no address yet"));
    }
    let wanted = |address: &IpAddr| match vips.is_empty() {
        // A load balancer known only by hostname matches every IP family.
        true => {
            *address == BY_NAME
                || service.families.is_empty()
                || service.families.contains(&Family::of(*address))
        }
        false => vips.contains(address),
    };
    let addresses: Vec<_> = target.addresses.iter().copied().filter(wanted).collect();
    if addresses.is_empty() {
        let what = "has no address of the Service's IP families";
        return Err(target.problem(Reason::NoAddress, what));
    }
    Ok(addresses)
}

/// The Service's fragment, given the holder of each port.
pub(super) fn build<'a>(
    service: &Service,
    target: Target<'_>,
    holder: impl Fn(&ListenerKey, &ConsumerKey) -> Option<&'a ConsumerKey>,
) -> Built {
    let mut problems = service.problems.clone();
    let addresses = match addresses(service, target) {
        Ok(addresses) => addresses,
        Err(problem) => return Built::refused(problem, problems),
    };
    let me = ConsumerKey::service(&service.key);
    let mut listeners: Vec<Listener> = Vec::new();
    let mut pools: Vec<Pool> = Vec::new();
    let mut refused: Vec<Problem> = Vec::new();
    let mut seen = BTreeSet::new();
    let (mut room, mut left_out) = (room(&addresses), 0);
    for port in &service.ports {
        if !pools::reachable(port, target) {
            let what = format!("port {}", port.number);
            refused.push(no_node_port(target, &what));
            continue;
        }
        if room == 0 {
            left_out += 1;
            continue;
        }
        room -= 1;
        let before = listeners.len();
        for address in &addresses {
            let key = key(*address, port);
            if !seen.insert(key) {
                continue;
            }
            match holder(&key, &me) {
                Some(holder) if *holder == me => listeners.push(listener(service, port, *address)),
                Some(other) => refused.push(ports::taken(&key, other)),
                None => {}
            }
        }
        if listeners.len() > before {
            pools.push(pools::for_listener(service, port, target));
        }
    }
    if left_out > 0 {
        let what = format_args!(
            "can have at most {MOST_LISTENERS} listeners for one Service: its last {left_out} ports are \
             left out"
        );
        refused.push(target.problem(Reason::NotSupported, what));
    }
    problems.extend(useless_tuning(service));
    if listeners.is_empty() {
        let first = refused.first().cloned().unwrap_or_else(|| no_node_port(target, "the Service"));
        problems.extend(refused);
        return Built::refused(first, problems);
    }
    problems.extend(refused);
    listeners.sort_by_key(ListenerKey::of);
    pools.sort_by(|a, b| a.name.cmp(&b.name));
    let mut reached: Vec<IpAddr> = listeners.iter().map(|listener| listener.address).collect();
    reached.sort_unstable();
    reached.dedup();
    let consumer = me.with_uid(&service.uid);
    let claimed = target.is_claimed_by(&service.key.namespace);
    let sites = Vec::new();
    match parts::split(Fragment { consumer, part: 0, claimed, listeners, sites, pools }) {
        Ok(parts) => {
            let (draining, certificates) = (Vec::new(), BTreeSet::new());
            Built { addresses: Ok(reached), draining, parts, problems, certificates }
        }
        Err(problem) => Built::refused(problem, problems),
    }
}

fn listener(service: &Service, port: &ServicePort, address: IpAddr) -> Listener {
    Listener {
        address,
        port: port.number,
        protocol: match port.transport {
            Transport::Tcp => ListenerProtocol::Tcp,
            Transport::Udp => ListenerProtocol::Udp,
            Transport::Sctp => ListenerProtocol::Sctp,
        },
        serves: Serves::Pool(service_pool(&service.key.namespace, &service.key.name, &port.name)),
    }
}

/// Tuning that does not work on a Service's own listeners.
fn useless_tuning(service: &Service) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut tell = |message: String| problems.push(Problem::new(Reason::BadTuning, message));
    let persistence = service.tuning.persistence.as_ref().and_then(Option::as_ref);
    if persistence.is_some_and(|it| it.by == PersistenceKey::Cookie) {
        let cookie = quote("cookie");
        tell(format!(
            "persistence {cookie} needs HTTP, which the Service's own ports do not speak: only an \
             Ingress can have it"
        ));
    }
    if service.ports.iter().all(|port| port.transport != Transport::Tcp) {
        if service.tuning.health_check.is_some() {
            tell("a health check needs a TCP port: there is none".to_owned());
        }
        if service.tuning.proxy_protocol == Some(true) {
            tell("the PROXY protocol needs a TCP port: there is none".to_owned());
        }
    }
    problems
}
