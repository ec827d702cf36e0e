//! What the Plan objects of a cluster record. Pure.

use crate::view::list::Lists;
use bowline_api::{Plan, names};
use bowline_core::hash::PlanHash;
use bowline_core::key::ConsumerRef;
use bowline_core::plan::Fragment;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What Plan objects hold for one load balancer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::view) struct Recorded {
    /// The fragments, in their parts, by consumer.
    pub(in crate::view) fragments: BTreeMap<ConsumerRef, Vec<Fragment>>,
    /// The hash of all fragments.
    pub(in crate::view) hash: PlanHash,
}

/// The index of a Plan among those of its load balancer. None: the leader did not create it.
pub(super) fn index(plan: &Plan) -> Option<u32> {
    names::plan_index(plan.metadata.name.as_deref()?)
}

pub(super) fn recorded(lists: &Lists) -> BTreeMap<Arc<str>, Recorded> {
    let mut all: BTreeMap<Arc<str>, Recorded> = BTreeMap::new();
    // A fragment in two Plans counts once, from the Plan with the lower index, as for agents.
    let mut plans: Vec<_> = lists.plans.iter().filter_map(|it| Some((index(it)?, it))).collect();
    plans.sort_by_key(|(index, _)| *index);
    for (_, plan) in plans {
        let recorded = all.entry(plan.spec.load_balancer.as_str().into()).or_default();
        for fragment in &plan.spec.fragments {
            let parts = recorded.fragments.entry(fragment.consumer.clone()).or_default();
            if parts.iter().all(|other| other.part != fragment.part) {
                parts.push(fragment.clone());
                recorded.hash = recorded.hash.plus(PlanHash::of(fragment));
            }
        }
    }
    for parts in all.values_mut().flat_map(|recorded| recorded.fragments.values_mut()) {
        parts.sort_by_key(|fragment| fragment.part);
    }
    all
}
