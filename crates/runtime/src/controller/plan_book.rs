//! The Plans of all load balancers, and the number of the last change. Every change of the plan has a number, by which
//! an agent's report is compared with what a consumer wants. It does no I/O.

use super::observed::PlanSeen;
use super::plans::Plans;
use bowline_api::names;
use bowline_core::hash::PlanHash;
use bowline_core::planner::Record;
use bowline_core::relist::Missing;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The Plans, by load balancer.
#[derive(Debug, Default)]
pub(super) struct PlanBook {
    plans: BTreeMap<Arc<str>, Plans>,
    /// Plans that the current list has not delivered yet.
    missing: Missing<(Arc<str>, String)>,
    change: u64,
    /// Load balancers whose plan may have a hash that the history of their agents does not have yet.
    stale_hashes: BTreeSet<Arc<str>>,
    /// Plans that were deleted although this leader wants what they held, by load balancer. What they recorded counts
    /// until the leader has written it again.
    lost: BTreeMap<Arc<str>, BTreeSet<u32>>,
}

impl PlanBook {
    /// The number of the last change.
    pub(super) fn change(&self) -> u64 {
        self.change
    }

    /// Begins the next change, and returns its number.
    pub(super) fn begin_change(&mut self) -> u64 {
        self.change += 1;
        self.change
    }

    /// Load balancers that have Plans or should have them.
    pub(super) fn load_balancers(&self) -> impl Iterator<Item = &Arc<str>> {
        self.plans.keys()
    }

    pub(super) fn get(&self, lb: &str) -> Option<&Plans> {
        self.plans.get(lb)
    }

    pub(super) fn get_mut(&mut self, lb: &str) -> Option<&mut Plans> {
        self.plans.get_mut(lb)
    }

    pub(super) fn entry(&mut self, lb: &Arc<str>) -> &mut Plans {
        self.plans.entry(Arc::clone(lb)).or_default()
    }

    /// Whether nothing is planned for a load balancer, and no Plan of it exists.
    pub(super) fn is_empty(&self, lb: &str) -> bool {
        self.plans.get(lb).is_none_or(Plans::is_empty)
    }

    /// Whether all Plans of a load balancer are as they are wanted.
    pub(super) fn is_settled(&self, lb: &str) -> bool {
        self.plans.get(lb).is_none_or(Plans::is_settled)
    }

    /// The hash that all Plans of a load balancer will have. `planned` is the hash of what this version plans; unread
    /// fragments count in place of the planned ones.
    pub(super) fn hash(&self, lb: &str, planned: PlanHash) -> PlanHash {
        self.plans.get(lb).map_or(planned, |plans| plans.with_foreign(planned))
    }

    /// The hash that all Plans of a load balancer have together now.
    pub(super) fn shown(&self, lb: &str) -> PlanHash {
        self.plans.get(lb).map(Plans::hash).unwrap_or_default()
    }

    /// Marks a load balancer: the hash of its plan is recorded again in this turn.
    pub(super) fn mark_stale_hash(&mut self, lb: Arc<str>) {
        self.stale_hashes.insert(lb);
    }

    /// Takes the load balancers whose hash is to be recorded again.
    pub(super) fn take_stale_hashes(&mut self) -> BTreeSet<Arc<str>> {
        std::mem::take(&mut self.stale_hashes)
    }

    /// Begins a list of Plans.
    pub(super) fn begin(&mut self) {
        let all = self.plans.iter().flat_map(|(lb, plans)| {
            plans.names(lb).map(|name| (Arc::clone(lb), name)).collect::<Vec<_>>()
        });
        self.missing.begin(all);
    }

    /// Ends a list of Plans. Returns the Plans that it did not deliver.
    pub(super) fn done(&mut self) -> BTreeSet<(Arc<str>, String)> {
        self.missing.done()
    }

    /// Marks a Plan as delivered by the list. False: this version is not newer than the known one.
    pub(super) fn observe(&mut self, plan: &PlanSeen) -> bool {
        self.missing.observe(&(Arc::clone(&plan.load_balancer), plan.name.clone()));
        self.entry(&plan.load_balancer).is_news(&plan.name, &plan.version)
    }

    /// Removes a Plan. Returns the empty record for the planner. None: something of the Plan has to be written again, and
    /// until then consumers keep what it recorded for them. Bowline's namespace may be deleted with all Plans, and that
    /// takes no port, host or load balancer from its holder.
    pub(super) fn gone(&mut self, lb: &Arc<str>, name: &str) -> Option<Record> {
        if let Some(plans) = self.plans.get_mut(lb) {
            plans.gone(name);
        }
        let index = names::plan_index(name)?;
        if !self.is_settled(lb) {
            self.lost.entry(Arc::clone(lb)).or_default().insert(index);
            return None;
        }
        Some(empty(lb, index))
    }

    /// The empty records of Plans that were deleted, and of which all that is wanted is written again.
    pub(super) fn take_replaced(&mut self) -> Vec<Record> {
        let settled = |lb: &Arc<str>| self.plans.get(lb).is_none_or(Plans::is_settled);
        let settled: Vec<_> = self.lost.keys().filter(|lb| settled(lb)).cloned().collect();
        let lost = settled.into_iter().filter_map(|lb| self.lost.remove_entry(&lb));
        let lost: Vec<_> = lost.collect();
        let records = lost.iter().flat_map(|(lb, indices)| {
            let exists = |index: u32| self.plans.get(lb).is_some_and(|it| it.exists(index));
            let gone = indices.iter().copied().filter(move |index| !exists(*index));
            gone.map(|index| empty(lb, index))
        });
        records.collect()
    }

    /// Forgets a load balancer that has no Plan and needs none.
    pub(super) fn prune(&mut self, lb: &str) {
        if self.is_empty(lb) {
            self.plans.remove(lb);
        }
    }
}

/// The record of a Plan that does not exist.
fn empty(lb: &Arc<str>, index: u32) -> Record {
    Record::new(Arc::clone(lb), index, std::iter::empty())
}
