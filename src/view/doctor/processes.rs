//! Checks that a controller leads, that every load balancer has a live agent, and that all are of one version. Pure.

use super::{Check, Checked, Installation, State, bounded, some};
use crate::view::facts::{Facts, Holder};
use crate::view::words::{ago, count};
use bowline_api::{convert, names};
use bowline_core::objects::Carrier;
use bowline_runtime::controller::has_driver;
use k8s_openapi::api::coordination::v1::Lease;
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn leader(facts: &Facts, installation: &Installation) -> Vec<Checked> {
    let Installation { system, leases, .. } = installation;
    let remedy = format!(
        "kubectl -n {system} get pods,leases; kubectl -n {system} logs deployment/bowline-controller"
    );
    match &facts.controller {
        // A controller without an election writes its settings into the Lease, and never renews it.
        None if leases.iter().any(is_never_renewed) => Check::Leader
            .unknown("controllers run with --leader-elect=false: whether one runs cannot be seen"),
        None => vec![Check::Leader.wrong("no controller leads", remedy)],
        Some(holder) if holder.overdue => {
            let message = format!("{} led and was {}", holder.identity, seen(holder));
            vec![Check::Leader.wrong(message, remedy)]
        }
        Some(holder) => Check::Leader.ok(format!("{} leads, {}", holder.identity, seen(holder))),
    }
}

/// Whether a Lease is that of controllers without an election.
fn is_never_renewed(lease: &Lease) -> bool {
    let renewed = lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref());
    lease.metadata.name.as_deref() == Some(names::LEASE_CONTROLLER) && renewed.is_none()
}

fn seen(holder: &Holder) -> String {
    format!("last seen {}", ago(holder.silent_seconds))
}

/// Whether an agent of this load balancer lives.
pub(super) fn is_carried(facts: &Facts, load_balancer: &str) -> bool {
    let agents = facts.agents.get(load_balancer).map(|it| it.all.as_slice()).unwrap_or_default();
    agents.iter().any(|agent| agent.holder.as_ref().is_some_and(|holder| !holder.overdue))
}

/// The command that starts an agent of a load balancer.
pub(super) fn start(facts: &Facts, load_balancer: &str) -> String {
    let object = facts.load_balancers.get(load_balancer);
    Carrier::command(object.and_then(|it| convert::load_balancer(it).carrier), load_balancer)
}

pub(super) fn agents(facts: &Facts) -> Vec<Checked> {
    let ours = facts.load_balancers.iter().filter(|(_, it)| has_driver(&it.spec.source));
    let ours: Vec<&String> = ours.map(|(name, _)| name).collect();
    let without = ours.iter().filter(|name| !is_carried(facts, name)).map(|name| {
        let agents = facts.agents.get(*name).into_iter().flat_map(|it| &it.all);
        let last = agents.filter_map(|it| it.holder.as_ref()).next();
        let message = match last {
            Some(holder) => format!("agent {} of {name} was {}", holder.identity, seen(holder)),
            None => format!("load balancer {name} has no agent: nothing carries its traffic"),
        };
        let remedy = format!(
            "start it: {}, or kubectl get pods --all-namespaces to see why its Pod does not run",
            start(facts, name)
        );
        Check::Agents.wrong(message, remedy)
    });
    let found = bounded(without.collect());
    Check::Agents.or_ok(found, format!("{} with live agents", count(ours.len(), "load balancer")))
}

/// Whether two builds are different: their versions are, or their commits where both say one.
fn differ(one: &str, other: &str) -> bool {
    let parts = |it: &str| {
        let (version, commit) = it.split_once('+').unwrap_or((it, ""));
        (version.to_owned(), commit.to_owned())
    };
    let ((version, commit), (other, another)) = (parts(one), parts(other));
    version != other || (![&commit, &another].contains(&&String::new()) && commit != another)
}

pub(super) fn versions(facts: &Facts, own: &str) -> Vec<Checked> {
    const REMEDY: &str = "upgrade what is older: docs/install.md, Upgrading";
    let Some(leader) = facts.controller.as_ref() else { return Vec::new() };
    let Some(version) = leader.version.as_deref() else {
        let message = "the leader does not say its version: it is older than this program";
        return vec![Check::Versions.wrong(message, REMEDY)];
    };
    let mut others: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for agent in facts.agents.values().flat_map(|it| &it.all) {
        let Some(holder) = agent.holder.as_ref().filter(|holder| !holder.overdue) else { continue };
        let of = holder.version.as_deref().unwrap_or("an unknown version");
        if differ(of, version) {
            others.entry(of).or_default().insert(&holder.identity);
        }
    }
    let speakers: Vec<(&str, String)> = facts
        .announcing
        .reports
        .iter()
        .filter(|it| differ(&it.version, version))
        .map(|it| (&*it.version, format!("the speaker of {}", it.node)))
        .collect();
    for (of, speaker) in &speakers {
        others.entry(of).or_default().insert(speaker);
    }
    let found = others.iter().map(|(of, agents)| {
        let agents: Vec<_> = agents.iter().collect();
        let message = format!("{} of {of}, the leader of {version}", some(&agents));
        Check::Versions.wrong(message, REMEDY)
    });
    let mut found = Check::Versions.or_ok(found.collect(), format!("all are of {version}"));
    if differ(own, version) {
        let message =
            format!("this program is of {own}: its checks may not fit the leader's {version}");
        found.push(Check::Versions.found(State::Unknown, message));
    }
    found
}
