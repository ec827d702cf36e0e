//! The planned parts of a consumer in words: listeners, hosts and pools, and whether they are recorded. Pure.

use super::{HostView, ListenerView, PoolView, RecordedView, RuleView};
use crate::view::facts::Facts;
use crate::view::members::members;
use crate::view::words;
use bowline_core::key::{ConsumerKind, ObjectKey};
use bowline_core::plan::{BY_NAME, Fragment, Pool, Serves};
use bowline_core::update::ListenerKey;
use std::sync::Arc;

/// The listeners of a consumer: its own, or those that the Ingresses of its load balancer share.
pub(super) fn listeners(
    facts: &Facts,
    kind: ConsumerKind,
    load_balancer: &Arc<str>,
    parts: &[Arc<Fragment>],
) -> Vec<ListenerView> {
    let shared =
        facts.planner.parts(ConsumerKind::LoadBalancer, &ObjectKey::new("", load_balancer.clone()));
    let parts = if kind == ConsumerKind::Ingress { shared } else { parts };
    all_listeners(facts, load_balancer, parts)
}

/// The listeners of some fragments on a load balancer with these host names.
pub(in crate::view) fn all_listeners(
    facts: &Facts,
    load_balancer: &str,
    parts: &[Arc<Fragment>],
) -> Vec<ListenerView> {
    let names = facts.hostnames(load_balancer);
    let agents = facts.agents.get(load_balancer);
    let shut = agents.map(|it| it.joint.shut.clone()).unwrap_or_default();
    let pools: Vec<&Pool> = parts.iter().flat_map(|part| &part.pools).collect();
    let name = |wanted: &str| {
        let found = pools.iter().find(|pool| &*pool.name == wanted);
        found.map_or_else(|| wanted.to_owned(), |pool| words::pool_name(pool))
    };
    let all = parts.iter().flat_map(|part| &part.listeners);
    all.map(|listener| ListenerView {
        listener: listener.clone(),
        closed: shut.contains(&ListenerKey::of(listener)),
        hostnames: if listener.address == BY_NAME { names.clone() } else { Vec::new() },
        to: match &listener.serves {
            Serves::Pool(pool) => Some(name(pool)),
            Serves::Entry(_) => None,
        },
    })
    .collect()
}

pub(super) fn hosts(facts: &Facts, load_balancer: &str, parts: &[Arc<Fragment>]) -> Vec<HostView> {
    let mut all = Vec::new();
    for part in parts {
        let name = |wanted: &str| {
            let found = part.pools.iter().find(|pool| &*pool.name == wanted);
            found.map_or_else(|| wanted.to_owned(), words::pool_name)
        };
        // A site without rules only records the host.
        for site in part.sites.iter().filter(|site| !site.rules.is_empty()) {
            let rules = site.rules.iter().map(|rule| RuleView {
                matches: words::rule_match(rule),
                to: words::rule_action(rule, name),
            });
            let tls = site.tls.as_ref();
            let certificate = tls.map(|tls| facts.certificate(load_balancer, part, site, tls));
            all.push(HostView {
                host: site.host.to_string(),
                tls: tls.zip(certificate.as_ref()).map(|(tls, known)| words::tls(tls, known)),
                certificate,
                rules: rules.collect(),
            });
        }
    }
    all
}

pub(super) fn pools(facts: &Facts, parts: &[Arc<Fragment>]) -> Vec<PoolView> {
    let members = members(facts, parts);
    let all = parts.iter().flat_map(|part| &part.pools);
    all.map(|pool| PoolView {
        name: pool.name.clone(),
        title: words::pool_name(pool),
        treatment: words::treatment(pool),
        members: members.get(&pool.name).cloned().unwrap_or_default(),
    })
    .collect()
}

pub(super) fn recorded(
    facts: &Facts,
    load_balancer: &str,
    parts: &[Arc<Fragment>],
) -> RecordedView {
    let Some(consumer) = parts.first().map(|part| &part.consumer) else { return RecordedView::No };
    let recorded = facts.recorded.get(load_balancer);
    match recorded.and_then(|recorded| recorded.fragments.get(consumer)) {
        None => RecordedView::No,
        Some(found) => {
            let same = found
                .iter()
                .map(|it| facts.comparable(it))
                .eq(parts.iter().map(|it| facts.comparable(it)));
            if same { RecordedView::Yes } else { RecordedView::Differs }
        }
    }
}
