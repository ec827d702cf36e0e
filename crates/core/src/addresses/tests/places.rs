//! The load balancers of the cloud: the Plans that a leader writes for them, agents that apply those late or are
//! gone, and what a leader concludes from their Leases, as the controller does.

use crate::addresses::*;
use crate::programmed::Pending;
use crate::status::{Progress, Undone, Waiting, in_force};
use std::collections::{BTreeMap, BTreeSet};

pub(super) const PLACES: [&str; 2] = ["edge", "core"];

/// What a load balancer serves, or should serve, by holder.
type Plan = BTreeMap<HolderRef, Vec<IpAddr>>;

/// The load balancer that serves a requester.
pub(super) fn place_of(request: &AddressRequest) -> Option<usize> {
    let name = match request.holder.kind {
        HolderKind::LoadBalancer => Some(&request.holder.key.name),
        _ => request.load_balancer.as_ref(),
    };
    PLACES.iter().position(|place| name.is_some_and(|name| **name == **place))
}

#[derive(Default)]
struct Place {
    plan: Plan,
    /// What its agent has applied, as its Lease says. None: there is no agent, and no Lease.
    agent: Option<Plan>,
}

/// What the API has for load balancers.
#[derive(Default)]
pub(super) struct Places([Place; PLACES.len()]);

impl Places {
    /// An agent comes, or catches up.
    pub(super) fn apply(&mut self, at: usize) {
        self.0[at].agent = Some(self.0[at].plan.clone());
    }

    /// An agent leaves and its Lease goes.
    pub(super) fn leave(&mut self, at: usize) {
        self.0[at].agent = None;
    }

    /// Whether every agent is there and has applied its Plan.
    pub(super) fn are_current(&self) -> bool {
        self.0.iter().all(|it| it.agent.as_ref() == Some(&it.plan))
    }

    /// What agents serve, and for whom.
    pub(super) fn served(&self) -> impl Iterator<Item = (&HolderRef, IpAddr)> {
        let plans = self.0.iter().flat_map(|it| it.agent.iter().flatten());
        plans.flat_map(|(holder, addresses)| addresses.iter().map(move |it| (holder, *it)))
    }
}

/// What a leader has planned.
#[derive(Default)]
pub(super) struct Planned {
    serving: Serving,
    change: u64,
    /// All plans, each with its last change.
    history: [Vec<(Plan, u64)>; PLACES.len()],
    /// The change with which the plan of a holder last changed.
    changed: BTreeMap<HolderRef, u64>,
    inherited: bool,
}

impl Planned {
    /// The `Serving` events that follow from Leases, before anything is decided.
    pub(super) fn follow(&mut self, machine: &Addresses, places: &Places) -> Vec<Event> {
        let mut news = BTreeSet::new();
        if !std::mem::replace(&mut self.inherited, true) {
            let names = PLACES.map(Arc::from);
            let plans = names.iter().zip(&places.0).flat_map(|(name, place)| {
                let all = place.plan.iter();
                all.map(move |(holder, addresses)| (holder.clone(), name, addresses.clone()))
            });
            let found = self.serving.inherit_all(machine, plans, self.change + 1);
            news.extend(found.places.into_iter().map(|(holder, _)| holder));
        }
        let (serving, history) = (&mut self.serving, &self.history);
        news.extend(serving.end(|lb, change| {
            let at = PLACES.iter().position(|it| **it == **lb).unwrap();
            places.0[at].agent.is_some() && proven(&history[at], &places.0[at]) < Some(change)
        }));
        self.told(news)
    }

    /// Writes Plans of what has been decided.
    pub(super) fn plan(
        &mut self,
        requests: impl Iterator<Item = (usize, HolderRef, Vec<IpAddr>)>,
        places: &mut Places,
    ) -> Vec<Event> {
        let mut plans = <[Plan; PLACES.len()]>::default();
        for (at, holder, addresses) in requests {
            plans[at].insert(holder, addresses);
        }
        self.change += 1;
        let mut news = BTreeSet::new();
        for (at, plan) in plans.into_iter().enumerate() {
            let before = self.history[at].last().map(|(plan, _)| plan.clone()).unwrap_or_default();
            for holder in before.keys().chain(plan.keys()).collect::<BTreeSet<_>>() {
                let now = plan.get(holder).cloned().unwrap_or_default();
                if before.get(holder) != plan.get(holder) {
                    self.changed.insert(holder.clone(), self.change);
                }
                if self.serving.plan(holder, &PLACES[at].into(), now, self.change) {
                    news.insert(holder.clone());
                }
            }
            places.0[at].plan = plan.clone();
            match self.history[at].last_mut() {
                Some((last, change)) if *last == plan => *change = self.change,
                _ => self.history[at].push((plan, self.change)),
            }
        }
        self.told(news)
    }

    fn told(&self, holders: BTreeSet<HolderRef>) -> Vec<Event> {
        let told = holders.into_iter();
        told.map(|holder| Event::Serving { places: self.serving.of(&holder), holder }).collect()
    }

    /// What the status of a holder on a load balancer should show.
    pub(super) fn status(
        &self,
        at: usize,
        holder: &HolderRef,
        decision: &Decision,
        written: &[IpAddr],
        places: &Places,
    ) -> Vec<IpAddr> {
        let applied = proven(&self.history[at], &places.0[at]);
        let changed = self.changed.get(holder).copied();
        let progress = if changed.is_some() && changed <= applied {
            Progress::Applied(Undone::default())
        } else if places.0[at].agent.is_none() {
            Progress::Waiting(Waiting::Agent(Pending::NoAgent))
        } else {
            Progress::Waiting(Waiting::Agent(Pending::AgentBehind))
        };
        let grant = decision.grant();
        in_force(&progress, &grant.addresses, &grant.draining, written)
    }
}

/// Up to which change an agent has applied a leader's plans.
fn proven(history: &[(Plan, u64)], place: &Place) -> Option<u64> {
    let applied = |plan: &Plan| place.agent.as_ref() == Some(plan);
    history.iter().rev().find(|(plan, _)| applied(plan)).map(|(_, change)| *change)
}
