//! Checks that what Advertisements and BGPPeers ask for can be announced: speakers live, their sessions are up, and they
//! hear the agents on their nodes. Pure.

use super::{Check, Checked, bounded, some};
use crate::view::announcing::Summary;
use crate::view::facts::{Announcing, Facts};
use crate::view::words::ago;
use bowline_api::convert;
use bowline_core::announce::Advertisement;
use bowline_core::outcome::{Reason, quote};
use bowline_core::report::speaker::SpeakerReport;
use bowline_runtime::lease;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use std::collections::BTreeSet;
use std::sync::Arc;

pub(super) fn speakers(facts: &Facts, leases: &[Lease], now: Timestamp) -> Vec<Checked> {
    let announcing = &facts.announcing;
    let advertisements: Vec<Advertisement> =
        announcing.advertisements.iter().filter_map(|it| convert::advertisement(it).ok()).collect();
    if announcing.reports.is_empty() && advertisements.is_empty() && announcing.peers.is_empty() {
        return Check::Speakers.ok("none runs, and no Advertisement asks for one");
    }
    let mut found = Vec::new();
    found.extend(silent(leases, now));
    if announcing.reports.is_empty() {
        found.push(Check::Speakers.wrong(
            "Advertisements or BGPPeers exist, and no speaker runs: nothing is announced",
            "run speakers on the nodes: helm upgrade --set speaker.enabled=true, or `bowline speaker`; if another \
             product announces the addresses, delete the Advertisements",
        ));
        return found;
    }
    let groups = [
        advertisements.iter().filter_map(|it| selects_nothing(facts, it)).collect(),
        advertisements.iter().filter_map(|it| without_speaker(announcing, it)).collect(),
        peers(announcing),
        unheard(facts),
    ];
    found.extend(groups.into_iter().flat_map(bounded));
    let fine = Summary::of(facts).map(|it| it.text()).unwrap_or_default();
    Check::Speakers.or_ok(found, fine)
}

/// Speakers that do not renew their Lease, and did not say that they leave.
fn silent(leases: &[Lease], now: Timestamp) -> Vec<Checked> {
    let silent = leases.iter().filter_map(|it| lease::silent_speaker(it, now));
    let found = silent.map(|(node, seconds)| {
        let message = format!("the speaker of node {} was last seen {}", quote(&node), ago(seconds));
        Check::Speakers.wrong(
            message,
            "see on the node whether it runs and reaches the API server; of a node that is gone for good, delete the Lease",
        )
    });
    bounded(found.collect())
}

/// An Advertisement that covers no address, as what it names does not exist.
fn selects_nothing(facts: &Facts, one: &Advertisement) -> Option<Checked> {
    let covers = &one.covers;
    let pools = &facts.announcing.pools;
    let mut missing: Vec<String> = Vec::new();
    let unknown = covers.pools.iter().filter(|name| !pools.iter().any(|(it, _)| it == *name));
    missing.extend(unknown.map(|name| format!("AddressPool {name}")));
    let unknown =
        covers.load_balancers.iter().filter(|name| !facts.load_balancers.contains_key(&***name));
    missing.extend(unknown.map(|name| format!("LoadBalancer {name}")));
    let name = &one.name;
    let selector = covers.pool_selector.as_ref();
    let message = if !missing.is_empty() {
        format!("Advertisement {name} names what does not exist: {}", some(&missing))
    } else if selector.is_some_and(|it| !pools.iter().any(|(_, labels)| it.matches(labels))) {
        format!("addressPoolSelector of Advertisement {name} selects no AddressPool")
    } else {
        return None;
    };
    Some(Check::Speakers.wrong(message, "correct its spec, or create what it names"))
}

/// Nodes that an Advertisement selects by their labels, and that have no speaker.
fn without_speaker(announcing: &Announcing, one: &Advertisement) -> Option<Checked> {
    let selector = one.nodes.as_ref()?;
    let selected: Vec<_> =
        announcing.nodes.iter().filter(|node| selector.matches(&node.labels)).collect();
    let runs = |node: &Arc<str>| announcing.reports.iter().any(|it| it.node == *node);
    let without: Vec<&Arc<str>> =
        selected.iter().map(|it| &it.name).filter(|name| !runs(name)).collect();
    let name = &one.name;
    if selected.is_empty() {
        let message = format!("nodeSelector of Advertisement {name} selects no Node");
        return Some(Check::Speakers.wrong(message, "label a node, or change nodeSelector"));
    }
    let message =
        || format!("Advertisement {name} selects nodes without a speaker: {}", some(&without));
    let remedy = "run a speaker there (speaker.nodeSelector and speaker.tolerations of the chart), or change nodeSelector";
    (!without.is_empty()).then(|| Check::Speakers.wrong(message(), remedy))
}

/// BGPPeers that no node reaches.
fn peers(announcing: &Announcing) -> Vec<Checked> {
    let names = announcing.peers.iter().filter_map(|it| it.metadata.name.as_deref());
    let found = names.filter_map(|name| {
        let has = |it: &&SpeakerReport| it.sessions.contains_key(name);
        let nodes: Vec<&SpeakerReport> = announcing.reports.iter().filter(has).collect();
        if nodes.iter().any(|it| it.sessions[name].up) {
            return None;
        }
        let Some(first) = nodes.first() else {
            let message = format!("BGPPeer {name} selects no node with a speaker");
            return Some(
                Check::Speakers.wrong(message, "change nodeSelector, or run a speaker there"),
            );
        };
        let why = first.sessions[name].reason.as_deref();
        let why = why.map(|why| format!(": node {}: {why}", first.node)).unwrap_or_default();
        let message = format!("BGPPeer {name} has no session on any node{why}");
        let remedy = Reason::SessionsDown.remedy().map_or("", |it| it.what);
        Some(Check::Speakers.wrong(message, remedy))
    });
    found.collect()
}

/// Agents on a node with a speaker that does not hear them: their addresses are not announced from there.
fn unheard(facts: &Facts) -> Vec<Checked> {
    let mut found = Vec::new();
    for (name, agents) in &facts.agents {
        let live = agents.all.iter().filter(|it| it.holder.as_ref().is_some_and(|it| !it.overdue));
        let nodes: BTreeSet<&Arc<str>> = live.filter_map(|it| it.said.node.as_ref()).collect();
        let deaf = facts.announcing.reports.iter().filter(|report| {
            nodes.contains(&report.node) && !report.agents.iter().any(|it| **it == **name)
        });
        let deaf: Vec<&Arc<str>> = deaf.map(|it| &it.node).collect();
        if !deaf.is_empty() {
            let message =
                format!("agents of {name} do not reach the speaker of node {}", some(&deaf));
            found.push(Check::Speakers.wrong(
                message,
                "both have to have the folder /run/bowline of the node: the chart mounts it into agents where \
                 speaker.enabled is true; elsewhere see --sockets of both",
            ));
        }
    }
    found
}
