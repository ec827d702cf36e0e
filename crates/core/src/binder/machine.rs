//! The machine itself: the books, and the loop that decides for everything that events touched, claims first and the
//! oldest of them first. How it decides is in the modules beside it. It does no I/O; the controller calls it.

use super::best_fit::BestFit;
use super::newly_free::Opened;
use super::object::{Claim, Class, LoadBalancer, NewLoadBalancer, Tie};
use super::report::ClaimReport;
use super::{Changes, Id, JobKind, Kind, Subject};
use crate::addresses::Labels;
use crate::key::ObjectKey;
use crate::objects::{Timestamp, Version};
use crate::relist::{Epoch, Relist};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;
use std::sync::Arc;

/// Seconds after which a read without an answer is asked for again.
const ASK_AGAIN: Timestamp = 30;
/// Seconds after which a claim may be told in other words why it waits.
pub(super) const RESTATE: Timestamp = 30;

/// The order of claims: the oldest first, then by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Age {
    pub(super) created: Timestamp,
    pub(super) key: ObjectKey,
}

/// A write that has not been answered.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) id: Id,
    /// Whether it writes the tie of a load balancer.
    pub(super) tie: bool,
    /// The version that it was decided on.
    pub(super) base: Option<Version>,
    /// Uids of objects of this name that the watch delivered as deleted meanwhile.
    pub(super) gone: Vec<Arc<str>>,
}

/// A load balancer, with the write and the job that are in flight for it.
#[derive(Debug, Default)]
pub(super) struct LbSlot {
    pub(super) seen: Option<Arc<LoadBalancer>>,
    /// The tie that it should have, where that is not recorded yet.
    pub(super) want: Option<Tie>,
    /// The load balancer to create.
    pub(super) making: Option<NewLoadBalancer>,
    pub(super) epoch: Epoch,
    pub(super) sent: Option<Sent>,
    pub(super) failures: u32,
    pub(super) retry_at: Timestamp,
    /// What the API said when it refused the last write.
    pub(super) refused: Option<Arc<str>>,
    /// The uid of a claim that is gone for sure.
    pub(super) dead: Option<Arc<str>>,
    pub(super) job: Option<(Id, JobKind)>,
    /// A job that was done, and the uid of the claim that the load balancer had then.
    pub(super) done: Option<(JobKind, Option<Arc<str>>)>,
    pub(super) job_failed: Option<Arc<str>>,
    pub(super) job_failures: u32,
    pub(super) job_retry_at: Timestamp,
}

impl LbSlot {
    /// The tie that it should have, else the recorded one.
    pub(super) fn tie(&self) -> Option<&Tie> {
        self.want.as_ref().or(self.seen.as_deref().map(|lb| &lb.tie))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.seen.is_none() && self.making.is_none() && self.sent.is_none()
    }
}

/// A claim, with the write that is in flight for it.
#[derive(Debug)]
pub(super) struct ClaimSlot {
    pub(super) seen: Arc<Claim>,
    pub(super) epoch: Epoch,
    /// What its status should say. None: it stays as it is.
    pub(super) report: Option<ClaimReport>,
    pub(super) told_at: Option<Timestamp>,
    pub(super) sent: Option<Sent>,
    pub(super) failures: u32,
    pub(super) retry_at: Timestamp,
    /// The load balancer that it had, with the version that a read found. None: it is gone.
    pub(super) lost: Option<(Arc<str>, Option<Version>)>,
}

/// What to look at again when its time comes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Deadline {
    Lb(Arc<str>),
    Claim(ObjectKey),
    Ask(Subject),
    /// Waiting claims are told why they wait now.
    Restate,
}

/// The object of a write.
#[derive(Clone, Debug)]
pub(super) enum Flight {
    Lb(Arc<str>),
    Claim(ObjectKey),
}

/// Binds claims to load balancers.
///
/// It observes events in [`Binder::handle`] and decides in [`Binder::take`]: however many events came in between and
/// in whatever order, claims choose by their age. It decides nothing before all kinds have been listed once.
#[derive(Debug, Default)]
pub struct Binder {
    pub(super) relists: [Relist; Kind::ALL.len()],
    pub(super) lbs: BTreeMap<Arc<str>, LbSlot>,
    pub(super) claims: BTreeMap<ObjectKey, ClaimSlot>,
    pub(super) classes: BTreeMap<Arc<str>, (Class, Epoch)>,
    pub(super) namespaces: BTreeMap<Arc<str>, (Labels, Epoch)>,
    pub(super) wanted: FxHashMap<ObjectKey, (u32, Epoch)>,
    /// The namespaces that use load balancers, whether that is recorded or not.
    pub(super) users: FxHashMap<Arc<str>, Vec<Arc<str>>>,
    /// Load balancers without a claim.
    pub(super) index: BestFit,
    /// Load balancers that a claim has, by its uid.
    pub(super) held: FxHashMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// Load balancers that are reserved for a claim.
    pub(super) reserved: FxHashMap<ObjectKey, BTreeSet<Arc<str>>>,
    /// Load balancers that were provisioned for a claim, by its uid.
    pub(super) made_for: FxHashMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// The claims with a status that names a load balancer.
    pub(super) homes: FxHashMap<Arc<str>, BTreeSet<ObjectKey>>,
    /// Claims without a load balancer.
    pub(super) pending: BTreeSet<Age>,
    pub(super) dirty_claims: BTreeSet<Age>,
    pub(super) dirty_lbs: BTreeSet<Arc<str>>,
    /// Whether something changed that may concern all waiting claims: all are decided for again.
    pub(super) woken: bool,
    pub(super) opened: Opened,
    /// Whether to tell waiting claims again why they wait.
    pub(super) restates: bool,
    /// Whether what waiting claims were told may no longer be true.
    pub(super) outdated: bool,
    pub(super) in_flight: FxHashMap<Id, Flight>,
    pub(super) jobs: FxHashMap<Id, Arc<str>>,
    pub(super) asked: BTreeMap<Subject, Timestamp>,
    pub(super) deadlines: BTreeSet<(Timestamp, Deadline)>,
    pub(super) changes: Changes,
    pub(super) next_id: u64,
    pub(super) visited: u64,
}

impl Binder {
    /// A machine that has observed nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether every kind has been listed once. Before that, nothing is decided.
    pub fn synced(&self) -> bool {
        self.relists.iter().all(Relist::is_listed)
    }

    /// When to call [`Binder::take`] although no event comes.
    pub fn wake_at(&self) -> Option<Timestamp> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// How many claims and load balancers have been looked at: the cost, for tests.
    pub fn visited(&self) -> u64 {
        self.visited
    }

    /// The tie that a load balancer should have, else the recorded one.
    pub fn tie(&self, load_balancer: &str) -> Option<&Tie> {
        self.lbs.get(load_balancer)?.tie()
    }

    /// Decides for everything that events touched, and returns what to do.
    pub fn take(&mut self, now: Timestamp) -> Changes {
        if !self.synced() {
            return Changes::default();
        }
        self.meet_deadlines(now);
        if take(&mut self.restates) {
            self.pending.clone().iter().for_each(|age| self.restate(age, now));
        }
        loop {
            if take(&mut self.woken) {
                self.dirty_claims.extend(self.pending.iter().cloned());
            }
            if let Some(age) = self.next_claim() {
                self.visited += 1;
                self.decide(&age, now);
            } else if let Some(name) = self.dirty_lbs.pop_first() {
                self.visited += 1;
                self.settle(&name, now);
            } else {
                break;
            }
        }
        if take(&mut self.outdated) && !self.pending.is_empty() {
            let waits = |(_, it): &(Timestamp, Deadline)| *it == Deadline::Restate;
            if !self.deadlines.iter().any(waits) {
                self.deadlines.insert((now + RESTATE, Deadline::Restate));
            }
        }
        take(&mut self.changes)
    }

    fn meet_deadlines(&mut self, now: Timestamp) {
        while self.deadlines.first().is_some_and(|(at, _)| *at <= now) {
            match self.deadlines.pop_first() {
                Some((_, Deadline::Lb(name))) => _ = self.dirty_lbs.insert(name),
                Some((_, Deadline::Claim(key))) => self.touch_claim(&key),
                Some((_, Deadline::Restate)) => self.restates = true,
                Some((_, Deadline::Ask(subject))) => {
                    self.asked.remove(&subject);
                    match subject {
                        Subject::Claim { load_balancer, .. } => {
                            self.dirty_lbs.insert(load_balancer);
                        }
                        Subject::LoadBalancer { claim, .. } => self.touch_claim(&claim),
                    }
                }
                None => {}
            }
        }
    }

    /// Asks for a read, unless it is in flight.
    pub(super) fn ask(&mut self, subject: Subject, now: Timestamp) {
        if !self.asked.contains_key(&subject) {
            self.asked.insert(subject.clone(), now + ASK_AGAIN);
            self.deadlines.insert((now + ASK_AGAIN, Deadline::Ask(subject.clone())));
            self.changes.confirm.push(subject);
        }
    }

    pub(super) fn touch_claim(&mut self, key: &ObjectKey) {
        if let Some(slot) = self.claims.get(key) {
            self.dirty_claims.insert(slot.seen.age());
        }
    }

    /// The claim of this name and uid.
    pub(super) fn claim(&self, key: &ObjectKey, uid: &str) -> Option<&Arc<Claim>> {
        self.claims.get(key).map(|slot| &slot.seen).filter(|claim| *claim.uid == *uid)
    }

    pub(super) fn is_wanted(&self, claim: &ObjectKey) -> bool {
        self.wanted.get(claim).is_some_and(|(consumers, _)| *consumers > 0)
    }

    /// The namespaces that use a load balancer: those with a seat, and those planned there.
    pub(super) fn users(&self, lb: &LoadBalancer) -> BTreeSet<Arc<str>> {
        let planned = self.users.get(&lb.name).into_iter().flatten();
        lb.users.iter().chain(planned).cloned().collect()
    }

    pub(super) fn is_used(&self, lb: &LoadBalancer) -> bool {
        !lb.users.is_empty() || self.users.get(&lb.name).is_some_and(|users| !users.is_empty())
    }

    /// Changes what is known of a load balancer, and enqueues everything that this touches.
    pub(super) fn amend(&mut self, name: &Arc<str>, edit: impl FnOnce(&mut LbSlot)) {
        let mut slot = self.lbs.remove(name).unwrap_or_default();
        let before = (slot.seen.clone(), slot.tie().and_then(|tie| tie.claim.clone()));
        self.touch_claims_of(name, &slot);
        self.take_out(name, &slot);
        edit(&mut slot);
        // No claim can have a load balancer that neither exists nor is to be created.
        if slot.is_empty() {
            slot.want = None;
        }
        self.touch_claims_of(name, &slot);
        self.put_in(name, &slot);
        self.dirty_lbs.insert(name.clone());
        let tie = slot.tie().and_then(|tie| tie.claim.as_ref());
        let same = before.1.as_ref() == tie
            && match (&before.0, &slot.seen) {
                (Some(old), Some(new)) => stands_as(old, new),
                (None, None) => true,
                _ => false,
            };
        if !same {
            let open = slot.seen.as_ref().is_some_and(|lb| !lb.deleting)
                && tie.is_none_or(|claim| claim.uid.is_none());
            match open {
                true => self.opened.add(name),
                false => self.opened.remove(name),
            }
            self.outdated = true;
        }
        if !slot.is_empty() {
            self.lbs.insert(name.clone(), slot);
        }
    }

    fn touch_claims_of(&mut self, name: &Arc<str>, slot: &LbSlot) {
        if let Some(claim) = slot.tie().and_then(|tie| tie.claim.as_ref()) {
            self.touch_claim(&claim.key);
        }
        if let Some((claim, _)) = slot.seen.as_ref().and_then(|lb| lb.provisioned_for.as_ref()) {
            self.touch_claim(claim);
        }
        for key in self.homes.get(name).cloned().into_iter().flatten() {
            self.touch_claim(&key);
        }
    }

    fn take_out(&mut self, name: &Arc<str>, slot: &LbSlot) {
        if let Some(lb) = &slot.seen {
            self.index.remove(lb);
            if let Some((_, uid)) = &lb.provisioned_for {
                drop_from(&mut self.made_for, uid, name);
            }
        }
        if let Some(claim) = slot.tie().and_then(|tie| tie.claim.as_ref()) {
            match &claim.uid {
                Some(uid) => drop_from(&mut self.held, uid, name),
                None => drop_from(&mut self.reserved, &claim.key, name),
            }
        }
    }

    fn put_in(&mut self, name: &Arc<str>, slot: &LbSlot) {
        if let Some((_, uid)) = slot.seen.as_ref().and_then(|lb| lb.provisioned_for.as_ref()) {
            self.made_for.entry(uid.clone()).or_default().insert(name.clone());
        }
        match (&slot.seen, slot.tie().and_then(|tie| tie.claim.as_ref())) {
            // Before its release is recorded no other claim can have it.
            (Some(lb), None) if !lb.deleting && lb.tie.uid().is_none() => self.index.insert(lb),
            (_, Some(claim)) => match &claim.uid {
                Some(uid) => _ = self.held.entry(uid.clone()).or_default().insert(name.clone()),
                None => {
                    self.reserved.entry(claim.key.clone()).or_default().insert(name.clone());
                }
            },
            _ => {}
        }
    }
}

impl Claim {
    pub(super) fn age(&self) -> Age {
        Age { created: self.created, key: self.key.clone() }
    }
}

/// Whether two versions of a load balancer are the same to waiting claims.
fn stands_as(old: &LoadBalancer, new: &LoadBalancer) -> bool {
    let of = |lb: &LoadBalancer| {
        (lb.uid.clone(), lb.tie.uid().cloned(), lb.deleting, lb.scope, lb.capacity)
    };
    of(old) == of(new)
        && (&old.labels, &old.class, &old.users, old.shared, &old.provisioned_for)
            == (&new.labels, &new.class, &new.users, new.shared, &new.provisioned_for)
}

pub(super) fn drop_from<K: std::hash::Hash + Eq, V: Ord>(
    map: &mut FxHashMap<K, BTreeSet<V>>,
    key: &K,
    value: &V,
) {
    if let Some(values) = map.get_mut(key) {
        values.remove(value);
        if values.is_empty() {
            map.remove(key);
        }
    }
}
