//! The objects of a plan that can be excluded because a program refuses them, and the plan without them. Pure;
//! [`Search`](super::search) finds the objects to exclude.

use crate::desired::Desired;
use bowline_core::key::ConsumerRef;
use bowline_core::plan::{Action, Serves};
use bowline_core::update::ListenerKey;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// What is excluded because a try failed, each with the reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Excluded {
    /// Listeners whose address cannot be bound.
    pub listeners: BTreeMap<ListenerKey, String>,
    /// Consumers that the program refuses.
    pub consumers: BTreeMap<ConsumerRef, String>,
    /// Certificates that the program refuses, by hash.
    pub certificates: BTreeMap<Arc<str>, String>,
}

/// An object that can be excluded.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Suspect {
    Certificate(Arc<str>),
    Consumer(ConsumerRef),
}

impl fmt::Display for Suspect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Certificate(hash) => write!(f, "the certificate with the hash {hash}"),
            Self::Consumer(consumer) => consumer.fmt(f),
        }
    }
}

/// All objects of a plan that can be excluded and are not yet.
pub(crate) fn all(desired: &Desired, excluded: &Excluded) -> Vec<Suspect> {
    let certificates = desired.certificates.keys();
    let certificates = certificates.filter(|hash| !excluded.certificates.contains_key(*hash));
    // Shared listeners are no suspects: without them no site would be tried.
    let own = desired.listeners.values().filter(|it| matches!(it.listener.serves, Serves::Pool(_)));
    let listeners = own.map(|it| &it.consumer);
    let rules =
        desired.sites.values().flat_map(|site| site.rules.iter().map(|(_, consumer)| consumer));
    let consumers: BTreeSet<_> =
        listeners.chain(rules).filter(|it| !excluded.consumers.contains_key(*it)).collect();
    let certificates = certificates.cloned().map(Suspect::Certificate);
    certificates.chain(consumers.into_iter().cloned().map(Suspect::Consumer)).collect()
}

/// The objects of a plan that are new, or have changed, since another plan.
pub(crate) fn changed(before: &Desired, now: &Desired) -> BTreeSet<Suspect> {
    let is_new = |hash: &&Arc<str>| !before.certificates.contains_key(*hash);
    let certificates = now.certificates.keys().filter(is_new).cloned().map(Suspect::Certificate);
    let is_changed = |pool: &Arc<str>| {
        now.pools.get(pool) != before.pools.get(pool) || now.members(pool) != before.members(pool)
    };
    let listeners = now.listeners.iter().filter(|(key, it)| {
        let of_changed = matches!(&it.listener.serves, Serves::Pool(pool) if is_changed(pool));
        of_changed || before.listeners.get(*key) != Some(*it)
    });
    let listeners = listeners.map(|(_, it)| &it.consumer);
    let rules = now.sites.iter().flat_map(|(key, site)| {
        let same = before.sites.get(key) == Some(site);
        site.rules.iter().filter(move |(rule, _)| match &rule.action {
            _ if !same => true,
            Action::Forward(to) => to.iter().any(|to| is_changed(&to.pool)),
            Action::Redirect(_) | Action::Respond(_) => false,
        })
    });
    let consumers = listeners.chain(rules.map(|(_, consumer)| consumer));
    certificates.chain(consumers.cloned().map(Suspect::Consumer)).collect()
}

/// What to exclude so that only the suspects in `tried` are tried.
pub(crate) fn only(excluded: &Excluded, all: &[Suspect], tried: &[Suspect]) -> Excluded {
    let tried: BTreeSet<_> = tried.iter().collect();
    let mut excluded = excluded.clone();
    for suspect in all.iter().filter(|suspect| !tried.contains(suspect)) {
        leave_out(&mut excluded, suspect, String::new());
    }
    excluded
}

/// Excludes one suspect.
pub(crate) fn leave_out(excluded: &mut Excluded, suspect: &Suspect, why: String) {
    match suspect {
        Suspect::Certificate(hash) => drop(excluded.certificates.insert(hash.clone(), why)),
        Suspect::Consumer(consumer) => drop(excluded.consumers.insert(consumer.clone(), why)),
    }
}

/// What a consumer asks for, as a text to find out later whether it has changed.
pub(crate) fn asks(desired: &Desired, consumer: &ConsumerRef) -> String {
    let listeners = desired.listeners.values().filter(|it| it.consumer == *consumer);
    let mut asked: Vec<_> = listeners.map(|it| format!("{:?}", it.listener)).collect();
    let mut pools: BTreeMap<&str, String> = BTreeMap::new();
    for (key, site) in &desired.sites {
        for (rule, _) in site.rules.iter().filter(|(_, of)| of == consumer) {
            asked.push(format!("{key:?} {:?} {rule:?}", site.tls));
            if let Action::Forward(to) = &rule.action {
                for pool in to.iter().filter_map(|to| desired.pools.get(&to.pool)) {
                    pools.entry(&pool.name).or_insert_with(|| format!("{pool:?}"));
                }
            }
        }
    }
    for resolved in desired.listeners.values().filter(|it| it.consumer == *consumer) {
        if let Serves::Pool(name) = &resolved.listener.serves
            && let Some(pool) = desired.pools.get(name)
        {
            pools.entry(&pool.name).or_insert_with(|| format!("{pool:?}"));
        }
    }
    asked.extend(pools.into_values());
    asked.join("\n")
}
