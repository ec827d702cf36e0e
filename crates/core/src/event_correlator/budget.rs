//! Budgets of writes that refill with time, and a map of bounded size that forgets the oldest entry. It decides
//! nothing; [`super::EventCorrelator`] owns both.

use crate::clock::Uptime;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::time::Duration;

/// How many writes an object or a namespace has used, and since when the oldest of them is growing back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    pub(super) used: u32,
    since: Duration,
}

impl Budget {
    /// A budget of which nothing is used.
    pub(super) fn new(now: Uptime) -> Self {
        Self { used: 0, since: now }
    }

    /// Gives back one write for each `refill` that has passed.
    pub(super) fn grow(&mut self, refill: Duration, now: Uptime) {
        while self.used > 0 && now.saturating_sub(self.since) >= refill {
            self.used -= 1;
            self.since += refill;
        }
        if self.used == 0 {
            self.since = now;
        }
    }
}

/// A map that forgets the entries that were put longest ago.
#[derive(Debug)]
pub(super) struct Recent<K, V> {
    pub(super) entries: HashMap<K, (u64, V)>,
    pub(super) order: BTreeMap<u64, K>,
    clock: u64,
}

impl<K, V> Default for Recent<K, V> {
    fn default() -> Self {
        Self { entries: HashMap::new(), order: BTreeMap::new(), clock: 0 }
    }
}

impl<K: Clone + Eq + Hash, V> Recent<K, V> {
    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|(_, value)| value)
    }

    pub(super) fn put(&mut self, key: K, value: V, most: usize) {
        self.clock += 1;
        self.order.insert(self.clock, key.clone());
        if let Some((before, _)) = self.entries.insert(key, (self.clock, value)) {
            self.order.remove(&before);
        }
        while self.entries.len() > most
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.entries.remove(&oldest);
        }
    }

    pub(super) fn forget(&mut self, which: impl Fn(&V) -> bool) {
        let order = &mut self.order;
        self.entries.retain(|_, (put, value)| {
            let keep = !which(value);
            if !keep {
                order.remove(put);
            }
            keep
        });
    }
}
