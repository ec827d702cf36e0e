//! Which ports a Service may ask for in place of ports that other consumers have on a load balancer. Pure. Only the plan is
//! known here: another program of the machine may have a port that the plan leaves free.

use super::facts::Facts;
use bowline_core::key::ObjectKey;
use bowline_core::outcome::Reason;
use bowline_core::plan::Transport;
use std::collections::{BTreeMap, BTreeSet};

/// The most ports that are named.
const MOST: usize = 3;

/// The end of the remedy for a Service with ports that other consumers have, with the command that asks for free ones. None:
/// it has no such port.
pub(super) fn hint(facts: &Facts, load_balancer: &str, key: &ObjectKey) -> Option<String> {
    let service = facts.services.get(key)?;
    let fragments = facts.planner.fragments(load_balancer);
    let others = fragments.filter(|it| {
        let who = &it.consumer;
        (&who.namespace, &who.name) != (&key.namespace, &key.name)
    });
    let others = others.flat_map(|it| &it.listeners);
    let used: BTreeSet<_> = others.map(|it| (it.protocol.transport(), it.port)).collect();
    let ports = service.spec.iter().flat_map(|it| it.ports.iter().flatten());
    let wanted: Vec<_> = ports
        .map(|it| {
            let transport = match it.protocol.as_deref() {
                None | Some("TCP") => Transport::Tcp,
                Some("UDP") => Transport::Udp,
                Some("SCTP") => Transport::Sctp,
                Some(_) => return None,
            };
            Some((transport, u16::try_from(it.port).ok()?))
        })
        .collect();
    let mut free = BTreeMap::new();
    for (index, wants) in wanted.iter().enumerate() {
        let Some((transport, port)) = wants.filter(|it| used.contains(it)) else { continue };
        let is_free = |it: &u16| {
            let one = (transport, *it);
            !used.contains(&one)
                && !wanted.contains(&Some(one))
                && !free.values().any(|it| *it == one)
        };
        if let Some(next) = (port.saturating_add(1)..=u16::MAX).find(is_free) {
            free.insert(index, (transport, next));
        }
    }
    if free.is_empty() {
        return None;
    }
    let named = free.values().take(MOST);
    let named = named
        .map(|(transport, port)| format!("{port}/{}", format!("{transport:?}").to_uppercase()));
    let named: Vec<_> = named.collect();
    let edits = free.iter().map(|(index, (_, port))| {
        format!(r#"{{"op":"replace","path":"/spec/ports/{index}/port","value":{port}}}"#)
    });
    let edits: Vec<_> = edits.collect();
    Some(format!(
        "no consumer of {load_balancer} has {}: `kubectl patch service NAME -n NAMESPACE --type json -p '[{}]'`",
        named.join(", "),
        edits.join(",")
    ))
}

/// Whether a problem is about ports that others have.
pub(super) fn concerns(reason: &str) -> bool {
    reason == Reason::PortTaken.to_string()
}
