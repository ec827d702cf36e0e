//! Listeners, each held back while the pool that it serves is missing, and while its namespace has no room for it
//! ([`super::shares`]). A listener that two consumers have in the plan stays with the one that it was opened for.

use super::pieces::Pieces;
use super::pools::Pools;
use super::shards::Part;
use super::shares::{self, Shares};
use super::{Contested, Unserved};
use crate::key::ConsumerRef;
use crate::outcome::{Problem, Reason};
use crate::plan::Serves;
use crate::update::{Change, Extent, ListenerKey, Refusal, ResolvedListener, Update};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// All listeners, and those that have to be looked at.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    listeners: BTreeMap<ListenerKey, Entry>,
    /// Listeners to look at before the next update.
    pub(super) dirty: BTreeSet<ListenerKey>,
    /// Listeners that several consumers have in the plan.
    contested: BTreeSet<ListenerKey>,
    /// How many are open, and which wait for room.
    pub(super) shares: Shares,
    /// The consumers that listeners were open for before a restart. They count until the first update.
    recalled: BTreeMap<ListenerKey, ConsumerRef>,
}

#[derive(Debug, Default)]
struct Entry {
    pieces: Pieces,
    /// The consumer that it is for: it stays that as long as the plan has it so.
    holder: Option<ConsumerRef>,
    /// The pool that it watches.
    pool: Option<Arc<str>>,
    /// What the driver has.
    given: Option<Arc<ResolvedListener>>,
    /// What it gets when there is room.
    waiting: Option<Arc<ResolvedListener>>,
}

impl Entry {
    /// The listener as its holder has it; where that has none any more, as the first of the others has it. And
    /// whether the load balancer is claimed for it.
    fn wanted(&mut self) -> Option<(Arc<ResolvedListener>, bool)> {
        let held = |(part, _): &(&Part, usize)| Some(&part.key.0) == self.holder.as_ref();
        let chosen = self.pieces.iter().find(held).or_else(|| self.pieces.first());
        let (part, index) = chosen?;
        let (holder, wanted) = (part.key.0.clone(), part.listeners[index].1.clone());
        let claimed = part.claimed;
        self.holder = Some(holder);
        Some((wanted, claimed))
    }

    /// The consumers that have it in the plan and are not its holder.
    fn others(&self) -> impl Iterator<Item = &ConsumerRef> {
        let all = self.pieces.iter().map(|(part, _)| &part.key.0);
        all.filter(|consumer| Some(*consumer) != self.holder.as_ref())
    }
}

impl Listeners {
    /// A listener was open for this consumer before a restart.
    pub(super) fn recall(&mut self, key: ListenerKey, holder: ConsumerRef) {
        self.recalled.insert(key, holder);
    }

    /// Adds the listeners of a fragment.
    pub(super) fn add(&mut self, part: &Arc<Part>) {
        for (index, (key, _)) in part.listeners.iter().enumerate() {
            self.listeners.entry(*key).or_default().pieces.add(part, index);
            self.dirty.insert(*key);
        }
    }

    /// Takes out the listeners of a fragment.
    pub(super) fn remove(&mut self, part: &Arc<Part>) {
        for (key, _) in &part.listeners {
            if let Some(entry) = self.listeners.get_mut(key) {
                entry.pieces.remove(part);
            }
            self.dirty.insert(*key);
        }
    }

    /// Brings dirty listeners up to date, after the pools, and says what is different.
    pub(super) fn take(&mut self, pools: &mut Pools, update: &mut Update) {
        for (key, holder) in std::mem::take(&mut self.recalled) {
            if let Some(entry) = self.listeners.get_mut(&key).filter(|it| it.given.is_none()) {
                entry.holder = Some(holder);
            }
        }
        // Those that are closed for one namespace may be opened for another.
        let mut closed = BTreeSet::new();
        for key in std::mem::take(&mut self.dirty) {
            self.look_at(key, pools, &mut closed, update);
        }
        while let Some(key) = self.shares.admit() {
            let Some(entry) = self.listeners.get_mut(&key) else { continue };
            entry.given = entry.waiting.take();
            closed.remove(&key);
            update.listeners.extend(entry.given.clone().map(|now| Change::Put(key, now)));
        }
        self.shares.settle();
        update.listeners.extend(closed.into_iter().map(Change::Remove));
        update.listeners.sort_unstable_by_key(|change| match change {
            Change::Put(key, _) | Change::Remove(key) => *key,
        });
    }

    /// Looks at one listener: what is open for its namespace stays open, all else waits until all are looked at.
    fn look_at(
        &mut self,
        key: ListenerKey,
        pools: &mut Pools,
        closed: &mut BTreeSet<ListenerKey>,
        update: &mut Update,
    ) {
        let Some(entry) = self.listeners.get_mut(&key) else { return };
        let wanted = entry.wanted();
        match entry.others().next() {
            Some(_) => self.contested.insert(key),
            None => self.contested.remove(&key),
        };
        let pool = wanted.as_ref().and_then(|(wanted, _)| match &wanted.listener.serves {
            Serves::Pool(pool) => Some(pool.clone()),
            Serves::Entry(_) => None,
        });
        if entry.pool != pool {
            if let Some(old) = &entry.pool {
                pools.unwatch(old, key);
            }
            if let Some(new) = &pool {
                pools.watch(new.clone(), key);
            }
            entry.pool = pool;
        }
        let held_back = entry.pool.as_ref().is_some_and(|pool| !pools.is_given(pool));
        let wanted = wanted.filter(|_| !held_back);
        if let Some(waiting) = entry.waiting.take() {
            self.shares.leave(key, &waiting.consumer.namespace);
        }
        let before = entry.given.take();
        match (before, wanted) {
            (Some(before), Some((now, claimed)))
                if before.consumer.namespace == now.consumer.namespace =>
            {
                self.shares.claim(&now.consumer.namespace, claimed);
                if before != now {
                    update.listeners.push(Change::Put(key, now.clone()));
                }
                entry.given = Some(now);
            }
            (before, wanted) => {
                if let Some(before) = before {
                    self.shares.close(&before.consumer.namespace);
                    closed.insert(key);
                }
                if let Some((now, claimed)) = wanted {
                    self.shares.wait(key, &now.consumer.namespace, claimed);
                    entry.waiting = Some(now);
                }
            }
        }
        if entry.pieces.is_empty() {
            self.listeners.remove(&key);
        }
    }

    /// The listeners that are not open for want of room, each on its consumer.
    pub(super) fn left_out(&self) -> impl Iterator<Item = Refusal> {
        self.shares.waiting().filter_map(|(key, namespace, full)| {
            let waiting = self.listeners.get(key)?.waiting.as_ref()?;
            let problem =
                Problem::new(Reason::TooManyListeners, shares::message(full, key, namespace));
            let (consumer, extent) = (waiting.consumer.clone(), Extent::Listener(*key));
            Some(Refusal { consumer, problem, extent })
        })
    }

    /// What the plan has for a consumer and is served for another.
    pub(super) fn unserved(&self) -> impl Iterator<Item = Unserved<'_>> {
        let entries = self.contested.iter().filter_map(|key| self.listeners.get_key_value(key));
        entries.flat_map(|(key, entry)| {
            entry.others().filter_map(move |consumer| {
                let by = Contested::Port(*key, entry.holder.as_ref()?);
                Some(Unserved { consumer, extent: Extent::Listener(*key), by })
            })
        })
    }

    /// All that the driver has.
    pub(super) fn snapshot(&self, update: &mut Update) {
        let given =
            |(key, entry): (&ListenerKey, &Entry)| Some(Change::Put(*key, entry.given.clone()?));
        update.listeners.extend(self.listeners.iter().filter_map(given));
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.listeners.is_empty() && self.shares.is_empty()
    }
}
