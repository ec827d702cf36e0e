//! What may be said, and a memory that forgets the oldest.

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
    /// Nothing is used.
    pub(super) fn new(now: Uptime) -> Self {
        Self { used: 0, since: now }
    }

    /// Gives back what time gives back.
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

/// A map that forgets what was not put for the longest time.
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
