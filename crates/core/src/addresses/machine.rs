//! The machine itself: its state, and the loop that decides for every requester that events touched, the oldest
//! first. How it decides is in the modules beside it. It does no I/O; the controller calls it.

use super::entry::Entry;
use super::ledger::Ledger;
use super::pools::Pools;
use super::record::{Age, Content, HolderKey, HolderKind, HolderRef};
use super::request::Labels;
use super::requester::Requester;
use super::verdict::{Decision, Notice};
use super::waiters::Wait;
use super::{Answer, Changes, Config, Kind, Namespaces, WriteId};
use crate::objects::{Timestamp, Version};
use crate::relist::{Epoch, Relist};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;
use std::net::IpAddr;
use std::sync::Arc;

/// What to look at again when its time comes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Deadline {
    /// A grace ends.
    Holder(Age),
    /// A rest ends, or a failed write is tried again.
    Address(IpAddr),
    /// A holder that an Address names has still not been observed.
    Stranger(HolderRef),
}

/// Grants addresses to Services, load balancers and ExternalIPs.
///
/// It observes events in [`Addresses::handle`] and decides in [`Addresses::take`]: however many events came in
/// between and in whatever order, it decides for each requester that they touch, the oldest first. It decides nothing
/// before all kinds have been listed once.
#[derive(Debug, Default)]
pub struct Addresses {
    pub(super) grace: Timestamp,
    pub(super) relists: [Relist; Kind::ALL.len()],
    /// Whether a list of Addresses is being delivered.
    pub(super) listing_addresses: bool,
    pub(super) ledger: Ledger,
    pub(super) requesters: FxHashMap<HolderKey, Requester>,
    pub(super) namespaces: Namespaces,
    pub(super) nodes: BTreeMap<Arc<str>, (Vec<IpAddr>, Epoch)>,
    pub(super) answers: FxHashMap<Arc<str>, Answer>,
    pub(super) by_name: FxHashMap<Arc<str>, BTreeSet<Age>>,
    /// What load balancers still serve for a holder, by its uid.
    pub(super) serving: FxHashMap<Arc<str>, Vec<(IpAddr, Arc<str>)>>,
    /// Uids of holders that are gone for sure and still have an address.
    pub(super) gone: FxHashSet<Arc<str>>,
    pub(super) to_bury: BTreeSet<Arc<str>>,
    /// Holders that an Address names and that were never observed: the API must say whether they exist.
    pub(super) strangers: BTreeSet<HolderRef>,
    /// Requesters to decide for.
    pub(super) dirty: BTreeSet<Age>,
    /// Requesters that do not have all that they want.
    pub(super) unserved: BTreeSet<Age>,
    pub(super) to_publish: BTreeSet<Age>,
    pub(super) withdrawn: Vec<HolderRef>,
    pub(super) notices: Vec<Notice>,
    pub(super) deadlines: BTreeSet<(Timestamp, Deadline)>,
    pub(super) in_flight: FxHashMap<WriteId, IpAddr>,
    pub(super) next_id: u64,
    /// The last versions of deleted Address objects until the watch delivers the deletion, each with the epoch of the
    /// list during or before which it was deleted.
    pub(super) tombstones: FxHashMap<IpAddr, (Version, Epoch)>,
    pub(super) visited: u64,
}

impl Addresses {
    /// A machine that has observed nothing.
    pub fn new(config: Config) -> Self {
        Self { grace: config.grace, ..Self::default() }
    }

    /// Whether every kind has been listed once. Before that, nothing is decided.
    pub fn synced(&self) -> bool {
        self.relists.iter().all(Relist::is_listed)
    }

    /// When to call [`Addresses::take`] although no event comes: a rest or grace ends, or a failed write is repeated.
    pub fn wake_at(&self) -> Option<Timestamp> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// How many holders and addresses have been looked at: the cost, for tests.
    pub fn visited(&self) -> u64 {
        self.visited
    }

    /// The wanted content of an address, recorded or not.
    pub fn address(&self, address: IpAddr) -> Option<&Content> {
        self.ledger.held(address)
    }

    /// The addresses of a holder, including those that are being recorded.
    pub fn addresses_of(&self, holder: &HolderRef) -> Vec<IpAddr> {
        self.ledger.holds(&holder.uid).iter().map(|hold| hold.address).collect()
    }

    /// The recorded addresses that are on a load balancer: holder, load balancer and address. They count as served
    /// there until an agent says otherwise, whichever leader planned that.
    pub fn places(&self) -> impl Iterator<Item = (&HolderRef, &Arc<str>, IpAddr)> {
        self.ledger.entries.iter().flat_map(|(address, entry)| {
            let holders = entry.recorded.iter().flat_map(|(content, _)| &content.holders);
            holders.filter_map(|it| {
                let on = match it.holder.kind {
                    HolderKind::LoadBalancer => Some(&it.holder.key.name),
                    _ => it.load_balancer.as_ref(),
                };
                Some((&it.holder, on?, *address))
            })
        })
    }

    /// The last published decision of a holder.
    pub fn decision(&self, holder: &HolderRef) -> Option<&Decision> {
        self.requester_of(holder)?.published.as_deref()
    }

    /// Whether no requester and no holder is left, and no trace of one.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.requesters.is_empty()
            && self.ledger.is_empty()
            && self.answers.is_empty()
            && self.by_name.is_empty()
            && self.serving.is_empty()
            && self.gone.is_empty()
            && self.unserved.is_empty()
            && self.in_flight.is_empty()
            && self.deadlines.is_empty()
    }

    /// Decides for everything that events touched, and returns what changed.
    pub fn take(&mut self, now: Timestamp) -> Changes {
        if !self.synced() {
            return Changes::default();
        }
        if self.ledger.pools.refresh() {
            self.ledger.recount();
            self.dirty.extend(self.unserved.iter().cloned());
        }
        self.meet_deadlines(now);
        self.decide_all(now);
        let writes = self.write(now);
        let decisions = self.publish(now);
        Changes {
            writes,
            confirm: self.ask_for_strangers(now),
            decisions,
            notices: take(&mut self.notices),
            pools: self.ledger.pools.reports(),
        }
    }

    fn meet_deadlines(&mut self, now: Timestamp) {
        while self.deadlines.first().is_some_and(|(at, _)| *at <= now) {
            match self.deadlines.pop_first() {
                Some((_, Deadline::Holder(age))) => _ = self.dirty.insert(age),
                Some((_, Deadline::Address(address))) => {
                    self.ledger.to_write.insert(address);
                }
                Some((_, Deadline::Stranger(holder))) => _ = self.strangers.insert(holder),
                None => {}
            }
        }
    }

    /// Requesters whose status shows an address that is not recorded for them come first: it must not be granted to
    /// another one. All others come by age, and waiters that something became free for are among them.
    fn decide_all(&mut self, now: Timestamp) {
        let mut queue: BTreeSet<(bool, Age)> = BTreeSet::new();
        loop {
            self.requeue_touched();
            // First, so that holders that are gone keep no requester from an address that it shows.
            self.release_gone(now);
            self.settle_uses();
            for age in take(&mut self.dirty) {
                queue.insert((!self.adopts(&age), age));
            }
            if let Some((false, age)) = queue.first().cloned() {
                queue.pop_first();
                match self.adopts(&age) {
                    true => self.decide_alone(&age, now),
                    false => _ = queue.insert((true, age)),
                }
                continue;
            }
            let Ledger { waiters, pools, entries, .. } = &mut self.ledger;
            let waiter = waiters.oldest(|wait| is_free(wait, pools, entries));
            let fresh = queue.first().map(|(_, age)| age.clone());
            let Some(age) = waiter.into_iter().chain(fresh).min() else {
                // Ignored uses come after all requests.
                match self.settle_deferred_uses() {
                    true => continue,
                    false => break,
                }
            };
            queue.remove(&(true, age.clone()));
            self.ledger.waiters.offered(&age);
            self.decide_alone(&age, now);
        }
    }

    fn decide_alone(&mut self, age: &Age, now: Timestamp) {
        self.decide(age, now);
        // It has just been decided for: its own changes enqueue it no second time.
        if let Some(requester) = self.requesters.get(&age.holder) {
            self.ledger.touched.retain(|holder| holder.uid != *requester.uid());
        }
    }

    fn adopts(&self, age: &Age) -> bool {
        let requester = self.requesters.get(&age.holder);
        requester.is_some_and(|requester| self.view().adopts(requester))
    }

    /// Enqueues the holders that the books touched: for a decision, a release, or a read of the API.
    fn requeue_touched(&mut self) {
        for holder in take(&mut self.ledger.touched) {
            if let Some(requester) = self.requester_of(&holder) {
                self.dirty.insert(requester.request.age());
            } else if self.gone.contains(&holder.uid) {
                self.to_bury.insert(holder.uid);
            } else if !self.ledger.holds(&holder.uid).is_empty() {
                self.strangers.insert(holder);
            }
        }
    }

    /// The holders that were never observed and of which a read of the API must say whether they exist: the watch of
    /// their kind may be behind that of Addresses.
    fn ask_for_strangers(&mut self, now: Timestamp) -> Vec<HolderRef> {
        const AGAIN: Timestamp = 30;
        let mut ask = Vec::new();
        for holder in take(&mut self.strangers) {
            let unknown = self.requester_of(&holder).is_none() && !self.gone.contains(&holder.uid);
            if unknown && !self.ledger.holds(&holder.uid).is_empty() {
                self.deadlines.insert((now + AGAIN, Deadline::Stranger(holder.clone())));
                ask.push(holder);
            }
        }
        ask
    }
}

/// Whether what became free still is.
fn is_free(wait: &Wait, pools: &Pools, entries: &BTreeMap<IpAddr, Entry>) -> bool {
    match wait {
        Wait::Address(address) => entries
            .get(address)
            .is_none_or(|it| it.held.as_ref().is_some_and(|held| held.key().is_some())),
        Wait::Space(pool, family) => {
            pools.get(pool).is_some_and(|slot| slot.space(*family).lowest().is_some())
        }
        Wait::Key(_) => true,
        Wait::Quota(pool, namespace) => pools.get(pool).is_some_and(|slot| {
            slot.pool.per_namespace_quota.is_none_or(|quota| slot.held_by(namespace) < quota)
        }),
        Wait::Move(pool, namespace) => pools.get(pool).is_some_and(|slot| {
            slot.pool.per_namespace_quota.is_none_or(|quota| slot.held_by(namespace) <= quota)
        }),
    }
}

/// Whether the labels of a Namespace are unchanged.
pub(super) fn same_labels(old: Option<&(Labels, Epoch)>, new: &Labels) -> bool {
    old.is_some_and(|(old, _)| old == new)
}
