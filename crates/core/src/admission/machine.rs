//! The machine itself: its state, and the loop that decides for each load balancer that events touched. How it
//! decides is in [`super::plan`]. It does no I/O; the controller calls it.

use super::plan::{Age, Plan, Wants, plan};
use super::{Changes, Decision, Kind, LoadBalancer, Seat, Write, WriteId};
use crate::key::ConsumerRef;
use crate::objects::{Timestamp, Version};
use crate::relist::{Epoch, Relist};
use crate::resources::Amounts;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;
use std::sync::Arc;

/// A load balancer, and the write that is in flight for it.
#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) recorded: Option<LoadBalancer>,
    pub(super) epoch: Epoch,
    pub(super) wants: Wants,
    /// Uids of consumers that belong elsewhere and stay here until they have arrived there.
    pub(super) kept: FxHashSet<Arc<str>>,
    /// Their amounts, as last returned in [`Changes::stays`].
    pub(super) stays: BTreeMap<ConsumerRef, Amounts>,
    /// Uids of consumers that have left for sure.
    pub(super) left: FxHashSet<Arc<str>>,
    pub(super) sent: Option<Sent>,
    pub(super) failures: u32,
    pub(super) retry_at: Timestamp,
}

/// A write that has not been answered.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) id: WriteId,
    pub(super) uid: Arc<str>,
    /// The version that it was decided on.
    pub(super) base: Version,
    pub(super) seats: Vec<Seat>,
    /// The uid of a load balancer of this name that the watch delivered as deleted meanwhile.
    pub(super) gone: Option<Arc<str>>,
}

/// Where a consumer belongs, with the epoch of the last list that delivered it.
#[derive(Clone, Debug)]
pub(super) struct Belongs {
    pub(super) load_balancer: Arc<str>,
    pub(super) keeps: Vec<Arc<str>>,
    pub(super) age: Age,
    pub(super) epoch: Epoch,
}

/// Gives seats on load balancers to Services and Ingresses.
///
/// It observes events in [`Admission::handle`] and decides in [`Admission::take`]: however many events came in
/// between and in whatever order, it decides once for each load balancer that they touch. It decides nothing before
/// all kinds have been listed once.
#[derive(Debug, Default)]
pub struct Admission {
    pub(super) relists: [Relist; Kind::ALL.len()],
    pub(super) slots: BTreeMap<Arc<str>, Slot>,
    pub(super) belongs: FxHashMap<ConsumerRef, Belongs>,
    pub(super) dirty: BTreeSet<Arc<str>>,
    pub(super) withdrawn: BTreeSet<ConsumerRef>,
    pub(super) published: FxHashMap<ConsumerRef, Decision>,
    pub(super) in_flight: FxHashMap<WriteId, Arc<str>>,
    /// Reads that were asked for, and when to ask again.
    pub(super) asked: BTreeMap<(Arc<str>, ConsumerRef), Timestamp>,
    pub(super) deadlines: BTreeSet<(Timestamp, Arc<str>)>,
    pub(super) next_id: u64,
    pub(super) visited: u64,
}

/// Seconds after which a read without an answer is asked for again.
const ASK_AGAIN: Timestamp = 30;

impl Admission {
    /// A machine that has observed nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether every kind has been listed once. Before that, nothing is decided.
    pub fn synced(&self) -> bool {
        self.relists.iter().all(Relist::is_listed)
    }

    /// When to call [`Admission::take`] although no event comes.
    pub fn wake_at(&self) -> Option<Timestamp> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// How many load balancers have been decided for: the cost, for tests.
    pub fn visited(&self) -> u64 {
        self.visited
    }

    /// The last decision for a consumer.
    pub fn decision(&self, consumer: &ConsumerRef) -> Option<&Decision> {
        self.published.get(consumer)
    }

    /// Decides for everything that events touched, and returns what changed.
    pub fn take(&mut self, now: Timestamp) -> Changes {
        let mut changes = Changes::default();
        if !self.synced() {
            return changes;
        }
        while self.deadlines.first().is_some_and(|(at, _)| *at <= now) {
            self.dirty.extend(self.deadlines.pop_first().map(|(_, name)| name));
        }
        let withdrawn = take(&mut self.withdrawn).into_iter();
        let mut told: BTreeMap<_, _> = withdrawn.map(|consumer| (consumer, None)).collect();
        for name in take(&mut self.dirty) {
            self.visited += 1;
            self.decide(&name, now, &mut changes, &mut told);
        }
        for (consumer, decision) in told {
            if self.published.get(&consumer) == decision.as_ref() {
                continue;
            }
            match &decision {
                Some(decision) => _ = self.published.insert(consumer.clone(), decision.clone()),
                None => _ = self.published.remove(&consumer),
            }
            changes.decisions.push((consumer, decision));
        }
        changes
    }

    fn decide(
        &mut self,
        name: &Arc<str>,
        now: Timestamp,
        changes: &mut Changes,
        told: &mut BTreeMap<ConsumerRef, Option<Decision>>,
    ) {
        let Some(slot) = self.slots.get_mut(name) else { return };
        let seats = slot.recorded.iter().flat_map(|lb| &lb.seats);
        let stay = seats.filter(|seat| slot.kept.contains(&seat.consumer.uid));
        let stay = stay.map(|seat| (seat.consumer.clone(), seat.requests)).collect();
        let stayed = std::mem::replace(&mut slot.stays, stay);
        let gone = stayed.keys().filter(|consumer| !slot.stays.contains_key(consumer));
        changes.stays.extend(gone.map(|consumer| (consumer.clone(), name.clone(), None)));
        let news = slot.stays.iter().filter(|(who, amounts)| stayed.get(who) != Some(amounts));
        let news = news.map(|(who, amounts)| (who.clone(), name.clone(), Some(*amounts)));
        changes.stays.extend(news);
        let Some(lb) = &slot.recorded else {
            told.extend(slot.wants.keys().map(|age| (age.consumer.clone(), None)));
            if slot.wants.is_empty() && slot.kept.is_empty() && slot.sent.is_none() {
                self.slots.remove(name);
            }
            return;
        };
        let plan = plan(lb, &slot.wants, &slot.kept, &slot.left);
        for want in slot.wants.values() {
            if let Some(decision) = decision(lb, &plan, &want.consumer) {
                told.insert(want.consumer.clone(), Some(decision));
            }
        }
        // The answer of a write decides what comes next.
        if slot.sent.is_some() {
            return;
        }
        for consumer in plan.strangers {
            let key = (name.clone(), consumer);
            let again = self.asked.get(&key).copied().unwrap_or(now);
            if again <= now {
                changes.confirm.push((key.1.clone(), name.clone()));
                self.asked.insert(key, now + ASK_AGAIN);
                self.deadlines.insert((now + ASK_AGAIN, name.clone()));
            } else {
                self.deadlines.insert((again, name.clone()));
            }
        }
        if plan.seats == lb.seats {
            return;
        }
        if slot.retry_at > now {
            self.deadlines.insert((slot.retry_at, name.clone()));
            return;
        }
        self.next_id += 1;
        let id = WriteId(self.next_id);
        self.in_flight.insert(id, name.clone());
        let (uid, base) = (lb.uid.clone(), lb.version.clone());
        slot.sent = Some(Sent { id, uid, base, seats: plan.seats.clone(), gone: None });
        changes.writes.push(Write {
            id,
            load_balancer: name.clone(),
            uid: lb.uid.clone(),
            version: lb.version.clone(),
            seats: plan.seats,
            allocated: plan.allocated,
        });
    }

    pub(super) fn version_of(&self, name: &str) -> Option<&Version> {
        self.slots.get(name)?.recorded.as_ref().map(|lb| &lb.version)
    }
}

/// The decision for a consumer that wants a seat. None: its seat is being recorded, and there is no decision before
/// it is.
fn decision(lb: &LoadBalancer, plan: &Plan, consumer: &ConsumerRef) -> Option<Decision> {
    let load_balancer = lb.name.clone();
    let problem = plan.problems.get(&consumer.uid).cloned();
    let recorded = lb.seats.iter().find(|seat| seat.consumer.uid == consumer.uid);
    if let Some(seat) = recorded {
        return Some(Decision::Admitted { load_balancer, requests: seat.requests, short: problem });
    }
    if plan.unrecorded.contains(&consumer.uid) {
        return Some(Decision::Admitted { load_balancer, requests: <_>::default(), short: None });
    }
    problem.map(|problem| Decision::Waiting { load_balancer, problem })
}
