//! Listeners. Each is held back while its pool is missing, and while its namespace has no room for it
//! ([`super::shares`]). A listener that the plan has for two consumers stays with the one for which it was opened. It
//! opens no socket; the resolver puts its changes into updates.

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

/// All listeners, and those to visit.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    listeners: BTreeMap<ListenerKey, Entry>,
    /// Listeners to visit before the next update.
    pub(super) dirty: BTreeSet<ListenerKey>,
    /// Listeners that the plan has for several consumers.
    contested: BTreeSet<ListenerKey>,
    /// The number of open listeners, and the listeners that wait for room.
    pub(super) shares: Shares,
    /// The consumers for which listeners were open before a restart. They count until the first update.
    recalled: BTreeMap<ListenerKey, ConsumerRef>,
}

#[derive(Debug, Default)]
struct Entry {
    pieces: Pieces,
    /// The consumer for which it is served, as long as the plan has it for this consumer.
    holder: Option<ConsumerRef>,
    /// The pool that it serves.
    pool: Option<Arc<str>>,
    /// The listener in the driver.
    given: Option<Arc<ResolvedListener>>,
    /// The listener that waits for room.
    waiting: Option<Arc<ResolvedListener>>,
}

impl Entry {
    /// The listener as the plan has it for its holder; if the plan has none for it any more, for the first other
    /// consumer. And whether that consumer's namespace has claimed the load balancer.
    fn wanted(&mut self) -> Option<(Arc<ResolvedListener>, bool)> {
        let held = |(part, _): &(&Part, usize)| Some(&part.key.0) == self.holder.as_ref();
        let chosen = self.pieces.iter().find(held).or_else(|| self.pieces.first());
        let (part, index) = chosen?;
        let (holder, wanted) = (part.key.0.clone(), part.listeners[index].1.clone());
        let claimed = part.claimed;
        self.holder = Some(holder);
        Some((wanted, claimed))
    }

    /// The consumers for which the plan has it, without its holder.
    fn others(&self) -> impl Iterator<Item = &ConsumerRef> {
        let all = self.pieces.iter().map(|(part, _)| &part.key.0);
        all.filter(|consumer| Some(*consumer) != self.holder.as_ref())
    }
}

impl Listeners {
    /// Notes that a listener was open for this consumer before a restart.
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

    /// Removes the listeners of a fragment.
    pub(super) fn remove(&mut self, part: &Arc<Part>) {
        for (key, _) in &part.listeners {
            if let Some(entry) = self.listeners.get_mut(key) {
                entry.pieces.remove(part);
            }
            self.dirty.insert(*key);
        }
    }

    /// Brings dirty listeners up to date, after the pools, and adds the changes to the update.
    pub(super) fn take(&mut self, pools: &mut Pools, update: &mut Update) {
        for (key, holder) in std::mem::take(&mut self.recalled) {
            if let Some(entry) = self.listeners.get_mut(&key).filter(|it| it.given.is_none()) {
                entry.holder = Some(holder);
            }
        }
        // A listener that is closed for one namespace may be opened for another.
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

    /// Visits one listener. If it is open for its namespace it stays open; else it waits until all are visited.
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

    /// The listeners that wait for room, as refusals.
    pub(super) fn left_out(&self) -> impl Iterator<Item = Refusal> {
        self.shares.waiting().filter_map(|(key, namespace, full)| {
            let waiting = self.listeners.get(key)?.waiting.as_ref()?;
            let problem =
                Problem::new(Reason::TooManyListeners, shares::message(full, key, namespace));
            let (consumer, extent) = (waiting.consumer.clone(), Extent::Listener(*key));
            Some(Refusal { consumer, problem, extent })
        })
    }

    /// The listeners that the plan has for one consumer and that are open for another.
    pub(super) fn unserved(&self) -> impl Iterator<Item = Unserved<'_>> {
        let entries = self.contested.iter().filter_map(|key| self.listeners.get_key_value(key));
        entries.flat_map(|(key, entry)| {
            entry.others().filter_map(move |consumer| {
                let by = Contested::Port(*key, entry.holder.as_ref()?);
                Some(Unserved { consumer, extent: Extent::Listener(*key), by })
            })
        })
    }

    /// Adds all listeners in the driver.
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
