//! The HTTP and HTTPS listeners that the Ingresses of a load balancer share. They exist while it
//! has an Ingress. Where no Plan records them, their age is that of the oldest Ingress. Pure
//! functions, called by `index`.

use super::build::{Built, Target};
use super::consumer::ConsumerKey;
use super::ports;
use crate::outcome::{Problem, Reason};
use crate::plan::{ENTRY_WEB, Fragment, Listener, ListenerProtocol, Serves, Transport};
use crate::update::ListenerKey;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// What Ingresses need to know of the listeners that they share.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Web {
    /// The addresses with a listener, sorted; or why there is none.
    pub(super) reached: Result<Vec<IpAddr>, Problem>,
    /// Why HTTP listeners are missing.
    pub(super) http: Vec<Problem>,
    /// Why HTTPS listeners are missing.
    pub(super) https: Vec<Problem>,
}

/// The ports that the load balancer wants, sorted.
pub(super) fn wants(target: Target<'_>) -> Vec<ListenerKey> {
    let ports = BTreeSet::from([target.lb.http_port, target.lb.https_port]);
    let keys = |address| ports.iter().map(move |port| key(address, *port));
    target.addresses.iter().copied().flat_map(keys).collect()
}

fn key(address: IpAddr, port: u16) -> ListenerKey {
    ListenerKey { address, port, transport: Transport::Tcp }
}

/// The fragment of the load balancer, given the holder of each port, and what Ingresses need to
/// know of it.
pub(super) fn build<'a>(
    target: Target<'_>,
    holder: impl Fn(&ListenerKey, &ConsumerKey) -> Option<&'a ConsumerKey>,
) -> (Built, Web) {
    let me = ConsumerKey::load_balancer(&target.lb.name);
    let mut listeners = Vec::new();
    let mut had = |protocol, port| {
        let mut problems = Vec::new();
        for address in target.addresses {
            let key = key(*address, port);
            match holder(&key, &me) {
                Some(who) if *who == me => listeners.push(Listener {
                    address: *address,
                    port,
                    protocol,
                    serves: Serves::Entry(ENTRY_WEB.into()),
                }),
                Some(other) => problems.push(ports::taken(&key, other)),
                None => {}
            }
        }
        problems
    };
    let http = had(ListenerProtocol::Http, target.lb.http_port);
    let https = if target.lb.https_port == target.lb.http_port {
        vec![target.problem(Reason::BadValue, "has the same port for HTTP and HTTPS")]
    } else {
        had(ListenerProtocol::Https, target.lb.https_port)
    };
    listeners.sort_by_key(ListenerKey::of);
    let mut reached: Vec<_> = listeners.iter().map(|listener| listener.address).collect();
    reached.dedup();
    let reached = match reached.is_empty() {
        false => Ok(reached),
        true => Err(http
            .first()
            .cloned()
            .unwrap_or_else(|| target.problem(Reason::NoAddress, "has no address yet"))),
    };
    let consumer = me.with_uid(&target.lb.uid);
    let fragment = Fragment {
        consumer,
        part: 0,
        claimed: false,
        listeners,
        sites: Vec::new(),
        pools: Vec::new(),
    };
    let built = Built {
        addresses: reached.clone(),
        draining: Vec::new(),
        parts: if reached.is_ok() { vec![fragment] } else { Vec::new() },
        problems: http.iter().chain(&https).cloned().collect(),
        certificates: BTreeSet::new(),
    };
    (built, Web { reached, http, https })
}
