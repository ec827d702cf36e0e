//! Listeners, each held back while the pool that it serves is missing.

use super::pieces::Pieces;
use super::pools::Pools;
use super::shards::Part;
use crate::plan::Serves;
use crate::update::{Change, ListenerKey, ResolvedListener, Update};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// All listeners, and those that have to be looked at.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    listeners: BTreeMap<ListenerKey, Entry>,
    /// Listeners to look at before the next update.
    pub(super) dirty: BTreeSet<ListenerKey>,
}

#[derive(Debug, Default)]
struct Entry {
    pieces: Pieces,
    /// The pool that it watches.
    pool: Option<Arc<str>>,
    given: Option<Arc<ResolvedListener>>,
}

impl Listeners {
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
        for key in std::mem::take(&mut self.dirty) {
            let Some(entry) = self.listeners.get_mut(&key) else { continue };
            let wanted = entry.pieces.first().map(|(part, index)| part.listeners[index].1.clone());
            let pool = wanted.as_ref().and_then(|wanted| match &wanted.listener.serves {
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
            match (&entry.given, &wanted) {
                (Some(before), Some(now)) if before == now => {}
                (_, Some(now)) => update.listeners.push(Change::Put(key, now.clone())),
                (Some(_), None) => update.listeners.push(Change::Remove(key)),
                (None, None) => {}
            }
            entry.given = wanted;
            if entry.pieces.is_empty() {
                self.listeners.remove(&key);
            }
        }
    }

    /// All that the driver has.
    pub(super) fn snapshot(&self, update: &mut Update) {
        let given =
            |(key, entry): (&ListenerKey, &Entry)| Some(Change::Put(*key, entry.given.clone()?));
        update.listeners.extend(self.listeners.iter().filter_map(given));
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.listeners.is_empty()
    }
}
