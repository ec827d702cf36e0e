//! What would change: the difference between the plan and the record, by load balancer and
//! consumer. `bowline plan` prints it. Pure.

use super::View;
use super::facts::Facts;
use super::status::ConsumerName;
use super::status_text::notes;
use super::words::{bullet, paragraph, pieces};
use bowline_core::key::ConsumerRef;
use bowline_core::plan::Fragment;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// All differences.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Difference {
    pub(super) load_balancers: Vec<LoadBalancerDifference>,
    pub(super) notes: Vec<String>,
}

#[derive(Debug, PartialEq, Serialize)]
pub(super) struct LoadBalancerDifference {
    pub(super) name: String,
    pub(super) consumers: Vec<ConsumerDifference>,
}

/// The difference for one consumer.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct ConsumerDifference {
    pub(super) consumer: ConsumerName,
    pub(super) change: Change,
    /// What is recorded, and what would be; without certificates if Secrets cannot be read.
    pub(super) before: Vec<Fragment>,
    pub(super) after: Vec<Fragment>,
    /// The same as lines for people.
    #[serde(skip)]
    pub(super) added: Vec<String>,
    #[serde(skip)]
    pub(super) removed: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) enum Change {
    Add,
    Modify,
    Remove,
}

impl Difference {
    /// The difference between what is recorded and what the planner decides now.
    pub(crate) fn of(facts: &Facts) -> Self {
        let mut names: BTreeSet<Arc<str>> = facts.recorded.keys().cloned().collect();
        names.extend(facts.load_balancers.keys().map(|name| name.as_str().into()));
        let differs = |name: &Arc<str>| {
            let consumers = consumers(facts, name);
            (!consumers.is_empty())
                .then(|| LoadBalancerDifference { name: name.to_string(), consumers })
        };
        Self {
            load_balancers: names.iter().filter_map(differs).collect(),
            notes: facts.notes.clone(),
        }
    }

    /// The same for the consumers of one namespace.
    pub(crate) fn in_namespace(mut self, namespace: &str) -> Self {
        for lb in &mut self.load_balancers {
            lb.consumers.retain(|one| one.consumer.namespace == namespace);
        }
        self.load_balancers.retain(|lb| !lb.consumers.is_empty());
        self
    }

    /// Whether nothing would change.
    pub(crate) fn is_empty(&self) -> bool {
        self.load_balancers.is_empty()
    }
}

impl View for Difference {
    fn kind(&self) -> &'static str {
        "Difference"
    }

    fn text(&self) -> String {
        let mut out = String::new();
        if self.is_empty() {
            out.push_str("Nothing would change: what is recorded is what would be planned.\n");
        }
        for lb in &self.load_balancers {
            let many =
                |change: Change| lb.consumers.iter().filter(|it| it.change == change).count();
            let (add, modify) = (many(Change::Add), many(Change::Modify));
            let remove = many(Change::Remove);
            let counts = format!("{add} to add, {modify} to change, {remove} to remove");
            paragraph(&mut out, &format!("{}: {counts}", lb.name));
            for one in &lb.consumers {
                let mark = match one.change {
                    Change::Add => "  + ",
                    Change::Modify => "  ~ ",
                    Change::Remove => "  - ",
                };
                bullet(&mut out, mark, &one.consumer.to_string());
                for line in &one.removed {
                    bullet(&mut out, "      - ", line);
                }
                for line in &one.added {
                    bullet(&mut out, "      + ", line);
                }
            }
        }
        notes(&mut out, &self.notes);
        out
    }
}

type Parts = Vec<Fragment>;

fn consumers(facts: &Facts, load_balancer: &Arc<str>) -> Vec<ConsumerDifference> {
    let mut planned: BTreeMap<ConsumerRef, Parts> = BTreeMap::new();
    for fragment in facts.planner.fragments(load_balancer) {
        let parts = planned.entry(fragment.consumer.clone()).or_default();
        parts.push(facts.comparable(fragment));
    }
    let recorded: BTreeMap<ConsumerRef, Parts> = match facts.recorded.get(load_balancer) {
        None => BTreeMap::new(),
        Some(recorded) => {
            let comparable = |parts: &Parts| parts.iter().map(|it| facts.comparable(it)).collect();
            recorded.fragments.iter().map(|(who, parts)| (who.clone(), comparable(parts))).collect()
        }
    };
    let everybody: BTreeSet<&ConsumerRef> = planned.keys().chain(recorded.keys()).collect();
    let differs = |who: &&ConsumerRef| difference(facts, who, recorded.get(who), planned.get(who));
    everybody.iter().filter_map(differs).collect()
}

fn difference(
    facts: &Facts,
    who: &ConsumerRef,
    before: Option<&Parts>,
    after: Option<&Parts>,
) -> Option<ConsumerDifference> {
    if before == after {
        return None;
    }
    let change = match (before, after) {
        (None, _) => Change::Add,
        (_, None) => Change::Remove,
        _ => Change::Modify,
    };
    let lines = |parts: Option<&Parts>| -> BTreeSet<String> {
        let pieces = |part| pieces(part, facts.knows_secrets);
        parts.into_iter().flatten().flat_map(pieces).collect()
    };
    let (old, new) = (lines(before), lines(after));
    Some(ConsumerDifference {
        consumer: who.into(),
        change,
        before: before.cloned().unwrap_or_default(),
        after: after.cloned().unwrap_or_default(),
        added: new.difference(&old).cloned().collect(),
        removed: old.difference(&new).cloned().collect(),
    })
}
