//! The agents of all load balancers: what their Leases report, which agents are live, and which plans they have
//! proved to run. A Lease may be observed before its load balancer, so agents are kept by the name of their
//! Lease. It decides nothing else: the state gets [`News`] and acts on them.

use super::observed::LeaseSeen;
use crate::watch::Seen;
use bowline_api::names;
use bowline_core::clock::Uptime;
use bowline_core::hash::PlanHash;
use bowline_core::programmed::{History, LeaseReport, Verdict};
use bowline_core::relist::Missing;
use bowline_core::replicas::{Joint, Replicas};
use bowline_core::update::Refusal;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// The agents of all load balancers, by Lease.
#[derive(Debug, Default)]
pub(super) struct Agents {
    replicas: HashMap<String, Replicas>,
    /// Load balancers by the name of their agents' Lease.
    load_balancers: HashMap<String, Arc<str>>,
    history: History,
    /// Leases that the current list has not delivered yet.
    missing: Missing<String>,
    /// Whether Leases were listed once. Only after that does a renewal prove that an agent is live.
    listed: bool,
}

/// A change in what the live agents of a load balancer report together.
#[derive(Debug)]
pub(super) struct News {
    pub(super) load_balancer: Arc<str>,
    pub(super) before: Joint,
    pub(super) after: Joint,
}

impl News {
    /// The new refusals.
    pub(super) fn refused(&self) -> impl Iterator<Item = &Refusal> {
        self.after.refused.iter().filter(|it| !self.before.refused.contains(it))
    }

    /// The refusals that ended.
    pub(super) fn ended(&self) -> impl Iterator<Item = &Refusal> {
        self.before.refused.iter().filter(|it| !self.after.refused.contains(it))
    }

    /// The addresses that agents report now, if they changed. An agent that stops, or whose Lease is deleted,
    /// withdraws no address.
    pub(super) fn addresses(&self) -> Option<&[IpAddr]> {
        let (before, after) = (&self.before.addresses, &self.after.addresses);
        (before != after && !after.is_empty()).then_some(after.as_slice())
    }
}

impl Agents {
    /// Observes a Lease.
    pub(super) fn observe(&mut self, seen: Seen<LeaseSeen>, now: Uptime) -> Vec<News> {
        match seen {
            Seen::Begin => {
                self.missing.begin(self.replicas.keys().cloned());
                Vec::new()
            }
            Seen::Apply(lease) => self.apply(lease, now).into_iter().collect(),
            Seen::Delete(lease) => self.delete(&lease.name).into_iter().collect(),
            Seen::Done => {
                self.listed = true;
                let gone = self.missing.done();
                gone.iter().filter_map(|name| self.delete(name)).collect()
            }
        }
    }

    fn apply(&mut self, lease: LeaseSeen, now: Uptime) -> Option<News> {
        self.missing.observe(&lease.name);
        let load_balancer = self.load_balancers.get(&lease.name);
        let writes = load_balancer.map_or(0, |lb| self.history.writes(lb));
        let replicas = self.replicas.entry(lease.name.clone()).or_default();
        let before = replicas.joint().clone();
        let news = replicas.show(lease.entries, self.listed, writes, now);
        news.then(|| self.news(&lease.name, before)).flatten()
    }

    fn delete(&mut self, lease: &str) -> Option<News> {
        let before = self.replicas.remove(lease)?.joint().clone();
        self.news(lease, before)
    }

    fn news(&self, lease: &str, before: Joint) -> Option<News> {
        let load_balancer = Arc::clone(self.load_balancers.get(lease)?);
        let after = self.replicas.get(lease).map(|it| it.joint().clone()).unwrap_or_default();
        Some(News { load_balancer, before, after })
    }

    /// Lets renewals expire.
    pub(super) fn tick(&mut self, now: Uptime) -> Vec<News> {
        let mut changed = Vec::new();
        for (lease, replicas) in &mut self.replicas {
            let before = replicas.joint().clone();
            if replicas.tick(now) {
                changed.push((lease.clone(), before));
            }
        }
        changed.into_iter().filter_map(|(lease, before)| self.news(&lease, before)).collect()
    }

    /// Records that a load balancer exists. Returns the addresses that its agents report, if their Lease was
    /// already observed.
    pub(super) fn meet(&mut self, lb: &Arc<str>) -> Vec<IpAddr> {
        let lease = names::agent_lease(lb);
        let reported = self.replicas.get(&lease).map(|it| it.joint().addresses.clone());
        self.load_balancers.insert(lease, Arc::clone(lb));
        reported.unwrap_or_default()
    }

    /// Forgets a deleted load balancer. Its agents may serve another one of the same name, with its own changes.
    pub(super) fn forget(&mut self, lb: &Arc<str>) {
        let lease = names::agent_lease(lb);
        self.load_balancers.remove(&lease);
        self.history.forget(lb);
        if let Some(replicas) = self.replicas.get_mut(&lease) {
            replicas.count_anew();
        }
    }

    /// Records that entries were removed from the Lease of a load balancer.
    pub(super) fn removed(&mut self, lb: &Arc<str>, agents: &[Arc<str>]) -> Option<News> {
        let lease = names::agent_lease(lb);
        let replicas = self.replicas.get_mut(&lease)?;
        let before = replicas.joint().clone();
        replicas.forget(agents).then(|| self.news(&lease, before)).flatten()
    }

    fn of(&self, lb: &str) -> Option<&Replicas> {
        self.replicas.get(&names::agent_lease(lb))
    }

    /// What all agents of a load balancer report together. None: it has no Lease.
    pub(super) fn joint(&self, lb: &str) -> Option<&Joint> {
        self.of(lb).map(Replicas::joint)
    }

    /// The refusals of a load balancer's agents.
    pub(super) fn refused(&self, lb: &str) -> &[Refusal] {
        self.joint(lb).map_or(&[], |joint| joint.refused.as_slice())
    }

    /// Whether the agents of a load balancer may have died before this leader began to watch.
    pub(super) fn are_unsure(&self, lb: &str) -> bool {
        self.of(lb).is_some_and(Replicas::are_unsure)
    }

    /// Load balancers with agents, by name.
    pub(super) fn load_balancers(&self) -> impl Iterator<Item = &Arc<str>> {
        self.replicas.keys().filter_map(|lease| self.load_balancers.get(lease))
    }

    /// The dead agents of a load balancer, whose entries can be removed. `fronted`: clients reach the load
    /// balancer through a Service.
    pub(super) fn dead(&self, lb: &str, fronted: bool, now: Uptime) -> Vec<Arc<str>> {
        self.of(lb).map(|it| it.dead(fronted, now)).unwrap_or_default()
    }

    /// What the agents of a load balancer prove.
    pub(super) fn verdict(&self, lb: &str, now: Uptime) -> Verdict {
        self.history.judge(lb, &self.reports(lb, now))
    }

    /// Whether a load balancer may still serve what a change removed. `driven`: whether this build drives it.
    /// None: it does not exist.
    pub(super) fn may_serve(
        &self,
        lb: &str,
        driven: Option<bool>,
        change: u64,
        now: Uptime,
    ) -> bool {
        self.history.may_serve(lb, driven, &self.reports(lb, now), change)
    }

    fn reports(&self, lb: &str, now: Uptime) -> Vec<LeaseReport> {
        self.of(lb).map(|it| it.reports(now)).unwrap_or_default()
    }

    /// Records that the plan of a load balancer has this hash from this change on.
    pub(super) fn record_planned(&mut self, lb: &Arc<str>, hash: PlanHash, change: u64) {
        self.history.record(lb, hash, change);
    }

    /// Records that the Plan objects of a load balancer have this hash together.
    pub(super) fn record_shown(&mut self, lb: &str, hash: PlanHash) {
        self.history.record_shown(lb, hash);
    }

    /// Records that Plan objects with this hash are written, and that they contain every change up to this one.
    pub(super) fn record_written(&mut self, lb: &str, hash: PlanHash, change: u64) {
        self.history.record_written(lb, hash, change);
    }

    /// The names of all Leases.
    #[cfg(test)]
    pub(super) fn leases(&self) -> impl Iterator<Item = &String> {
        self.replicas.keys()
    }
}
