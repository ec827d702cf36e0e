//! One set of shards on its way to its wanted content: which write comes next. Tenants take turns, so a tenant that
//! changes all its items all the time does not delay another tenant. The caller carries the writes out, one at a time,
//! and reports what happened.
//!
//! ```text
//! want ─▶ waiting items, by tenant ─▶ the tenant whose turn it is ─▶ its item that waits longest
//!                                                                          │
//!         written or observed ◀─ the write ◀─ first the new place of an item that this write removes, if any
//! ```

use super::{Items, Shards, Stamp, Wanted, Write, pack};
use crate::fair_queue::Queue;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The observed content, the wanted content, and the items that wait for a write.
#[derive(Clone, Debug)]
pub struct Rewrite<K, H> {
    shards: Shards<K, H>,
    wanted: Items<K, H>,
    /// The tenant of an item without a call of [`Self::belongs`].
    tenant: fn(&K) -> Arc<str>,
    /// The tenants of items from [`Self::belongs`].
    tenants: BTreeMap<K, Arc<str>>,
    /// Items that are not as wanted, or in more than one shard.
    waiting: Queue<Arc<str>, K>,
    /// The remaining writes, by shard.
    writes: BTreeMap<u32, Write<K, H>>,
    /// The shards of items that are new, or leave their shard.
    homes: BTreeMap<K, u32>,
    /// Whether something happened that the remaining writes do not take into account.
    stale: bool,
    /// The write that was chosen last, and the tenant whose turn it was.
    chosen: Option<(u32, Arc<str>)>,
}

impl<K: Ord + Clone, H: PartialEq + Clone> Rewrite<K, H> {
    /// Begins without wanted items. `tenant` gives the tenant of an item, as far as its key names one.
    pub fn new(shards: Shards<K, H>, tenant: fn(&K) -> Arc<str>) -> Self {
        Self {
            shards,
            wanted: Items::new(),
            tenant,
            tenants: BTreeMap::new(),
            waiting: Queue::default(),
            writes: BTreeMap::new(),
            homes: BTreeMap::new(),
            stale: false,
            chosen: None,
        }
    }

    /// Assigns an item to a tenant until the item is neither wanted nor recorded. It is for items with a key that names
    /// no tenant.
    pub fn belongs(&mut self, key: &K, tenant: &Arc<str>) {
        let before = self.tenant(key);
        if before == *tenant {
            return;
        }
        self.tenants.insert(key.clone(), Arc::clone(tenant));
        if self.waiting.remove(&before, key) {
            self.waiting.insert(tenant, 0, key.clone());
        }
    }

    fn tenant(&self, key: &K) -> Arc<str> {
        self.tenants.get(key).map_or_else(|| (self.tenant)(key), Arc::clone)
    }

    /// Sets an item as it should be. None: it should be deleted.
    pub fn want(&mut self, key: K, stamp: Option<Stamp<H>>) {
        if self.wanted.get(&key) == stamp.as_ref() {
            return;
        }
        self.stale = true;
        match stamp {
            Some(stamp) => drop(self.wanted.insert(key.clone(), stamp)),
            None => drop(self.wanted.remove(&key)),
        }
        self.check(key);
    }

    /// A shard was written, by any writer. The remaining writes stay valid if the write is one of them, or changes
    /// nothing.
    pub fn happened(&mut self, write: Write<K, H>) {
        let index = write.index();
        self.stale |= match self.writes.remove(&index) {
            Some(next) => next != write,
            None => self.shards.items(index) != write.items(),
        };
        let before = self.shards.items(index).into_iter().flatten();
        let after = write.items().into_iter().flatten();
        let touched: Vec<K> = before.chain(after).map(|(key, _)| key.clone()).collect();
        self.shards.written(write);
        for key in touched {
            self.check(key);
        }
        self.passed(index);
    }

    /// If this write was chosen, its tenant has had its turn, even if the write failed.
    pub fn passed(&mut self, index: u32) {
        if let Some((_, tenant)) = self.chosen.take_if(|(chosen, _)| *chosen == index) {
            self.waiting.served(&tenant);
        }
    }

    /// Notes whether an item waits for a write.
    fn check(&mut self, key: K) {
        let tenant = self.tenant(&key);
        if self.shards.get(&key).is_none() && !self.wanted.contains_key(&key) {
            self.tenants.remove(&key);
        }
        if self.is_open(&key) || self.shards.repeated.contains(&key) {
            self.waiting.insert(&tenant, 0, key);
        } else {
            self.waiting.remove(&tenant, &key);
        }
    }

    /// The shards as last observed.
    pub fn shards(&self) -> &Shards<K, H> {
        &self.shards
    }

    /// All wanted items.
    pub fn wanted(&self) -> &Items<K, H> {
        &self.wanted
    }

    /// Whether an item is not as wanted.
    pub fn is_open(&self, key: &K) -> bool {
        self.shards.get(key) != self.wanted.get(key)
    }

    /// Whether items of a tenant wait for a write.
    pub fn waits(&self, tenant: &Arc<str>) -> bool {
        self.waiting.waiting(tenant) > 0
    }

    /// Whether everything is as wanted.
    pub fn is_settled(&self) -> bool {
        self.waiting.is_empty() && self.shards.is_tidy()
    }

    /// The next write of a shard that is `free` to be written now. Until something happens it is the same at each call.
    pub fn next(&mut self, free: impl Fn(u32) -> bool) -> Option<Write<K, H>> {
        self.pack();
        let (index, tenant) = self.choose(free)?;
        self.chosen = tenant.map(|tenant| (index, tenant));
        self.writes.get(&index).cloned()
    }

    /// The write for the tenant whose turn it is. If no item waits, only deletions of empty shards remain.
    fn choose(&self, free: impl Fn(u32) -> bool) -> Option<(u32, Option<Arc<str>>)> {
        for tenant in self.waiting.lanes() {
            let mut writes = self.waiting.items(tenant).filter_map(|key| self.write_for(key));
            if let Some(index) = writes.find(|index| free(*index)) {
                return Some((index, Some(Arc::clone(tenant))));
            }
        }
        let mut left = self.writes.keys().copied();
        left.find(|index| free(*index) && self.before(*index) == Ok(None))
            .map(|index| (index, None))
    }

    fn pack(&mut self) {
        if !std::mem::take(&mut self.stale) {
            return;
        }
        let waiting = self.waiting.lanes().flat_map(|tenant| self.waiting.items(tenant));
        let change: Wanted<K, H> = waiting
            .filter(|key| self.is_open(key))
            .map(|key| (key.clone(), self.wanted.get(key).cloned()))
            .collect();
        let (writes, homes) = pack::Packing::new(&self.shards).run(&change);
        self.writes = writes.into_iter().map(|write| (write.index(), write)).collect();
        self.homes = homes;
    }

    /// The write that puts an item into its shard or, when it is there, removes it from another one; or a write that
    /// has to come before that.
    fn write_for(&self, key: &K) -> Option<u32> {
        let places = self.shards.places.get(key).into_iter().flatten();
        let known = self.homes.get(key).into_iter().chain(places).copied();
        let changed = known.filter_map(|index| {
            let after = self.writes.get(&index)?.items().and_then(|items| items.get(key));
            let before = self.shards.items(index).and_then(|items| items.get(key));
            (after != before).then_some((after.is_none(), index))
        });
        let (_, index) = changed.min_by_key(|(leaves, _)| *leaves)?;
        Some(self.before(index).ok()?.unwrap_or(index))
    }

    /// The write that has to come before another one, because an item that this one removes is in no other shard yet.
    /// Err: the item has no new shard.
    fn before(&self, index: u32) -> Result<Option<u32>, ()> {
        let after = self.writes.get(&index).and_then(Write::items);
        let mut left =
            self.shards.items(index).into_iter().flatten().map(|(key, _)| key).filter(|key| {
                let stays = after.is_some_and(|items| items.contains_key(*key));
                let places = self.shards.places.get(*key).map_or(0, |places| places.len());
                !stays && places < 2 && self.wanted.contains_key(*key)
            });
        match left.next() {
            None => Ok(None),
            Some(key) => self.homes.get(key).copied().map(Some).ok_or(()),
        }
    }
}

#[cfg(test)]
mod tests;
