//! One packing: from shards as they are and items as they should be to an ordered list of writes.
//!
//! Each shard is written once. The order has no cycles, because a shard that an item leaves for another one takes no
//! item itself: shards that take items are written first, shards that items leave last. `shard` and `rewrite` call it;
//! it writes nothing.

use super::{Items, Shards, Stamp, Wanted, Write};
use std::collections::{BTreeMap, BTreeSet};

pub(super) struct Packing<'a, K, H> {
    from: &'a Shards<K, H>,
    /// The changes of a shard: items put or removed.
    edits: BTreeMap<u32, Wanted<K, H>>,
    sizes: BTreeMap<u32, usize>,
    /// Shards that items leave for another one.
    left: BTreeSet<u32>,
    /// The shards of items that are new, or leave their shard.
    homes: BTreeMap<K, u32>,
}

/// The writes of a packing, in an order in which nothing is lost, and the new shards of items.
pub(super) type Packed<K, H> = (Vec<Write<K, H>>, BTreeMap<K, u32>);

impl<'a, K: Ord + Clone, H: PartialEq + Clone> Packing<'a, K, H> {
    pub(super) fn new(from: &'a Shards<K, H>) -> Self {
        let sizes = from.sizes.clone();
        let (edits, homes) = (BTreeMap::new(), BTreeMap::new());
        Self { from, edits, sizes, left: BTreeSet::new(), homes }
    }

    pub(super) fn run(mut self, wanted: &Wanted<K, H>) -> Packed<K, H> {
        for (key, stamp) in wanted {
            if stamp.is_none() {
                self.take_out(key, None);
            }
        }
        let homeless: Vec<_> = wanted
            .iter()
            .filter_map(|(key, stamp)| Some((key, stamp.as_ref()?)))
            .filter(|(key, stamp)| !self.keep(key, stamp))
            .collect();
        for key in self.from.repeated.iter().filter(|key| !wanted.contains_key(key)) {
            self.take_out(key, self.places(key).next());
        }
        for index in &self.from.empty {
            self.edits.entry(*index).or_default();
        }
        self.house(&homeless);
        let homes = std::mem::take(&mut self.homes);
        (self.writes(), homes)
    }

    /// Gives each item a shard: the first one with room that no item leaves, else a new one. Shards without room for
    /// the smallest item are skipped for good.
    fn house(&mut self, homeless: &[(&K, &Stamp<H>)]) {
        let Some(least) = homeless.iter().map(|(_, stamp)| stamp.size).min() else { return };
        let limit = self.from.limit;
        let known = self.sizes.iter().filter(|(index, _)| !self.left.contains(index));
        let mut roomy: BTreeSet<u32> =
            known.filter(|(_, used)| **used + least <= limit).map(|(index, _)| *index).collect();
        let mut unused = 0;
        for (key, stamp) in homeless {
            let room = roomy.iter().find(|index| self.size(**index) + stamp.size <= limit);
            let index = room.copied().unwrap_or_else(|| {
                unused =
                    (unused..).find(|index| !self.sizes.contains_key(index)).unwrap_or(u32::MAX);
                unused
            });
            self.put(index, key, stamp);
            self.homes.insert((*key).clone(), index);
            if self.size(index) + least <= limit {
                roomy.insert(index);
            } else {
                roomy.remove(&index);
            }
        }
    }

    fn places(&self, key: &K) -> impl Iterator<Item = u32> + use<'a, K, H> {
        self.from.places.get(key).into_iter().flatten().copied()
    }

    fn size(&self, index: u32) -> usize {
        self.sizes.get(&index).copied().unwrap_or(0)
    }

    /// Keeps an item in the first of its shards in which its new size fits. False: in none.
    fn keep(&mut self, key: &K, stamp: &Stamp<H>) -> bool {
        let mut places = self.places(key);
        let fits = |index: &u32| {
            let old = self.from.shards.get(index).and_then(|items| items.get(key));
            let old_size = old.map_or(0, |old| old.size);
            let others = self.size(*index) - old_size;
            stamp.size <= old_size || others == 0 || others + stamp.size <= self.from.most
        };
        let home = places.find(fits);
        match home {
            Some(home) => {
                let old = self.from.shards.get(&home).and_then(|items| items.get(key));
                if old != Some(stamp) {
                    let size = self.size(home) - old.map_or(0, |old| old.size);
                    self.sizes.insert(home, size);
                    self.put(home, key, stamp);
                }
            }
            None => self.left.extend(self.places(key)),
        }
        self.take_out(key, home);
        home.is_some()
    }

    fn put(&mut self, index: u32, key: &K, stamp: &Stamp<H>) {
        self.edits.entry(index).or_default().insert(key.clone(), Some(stamp.clone()));
        self.sizes.insert(index, self.size(index) + stamp.size);
    }

    /// Removes an item from all its shards, except `but`.
    fn take_out(&mut self, key: &K, but: Option<u32>) {
        for index in self.places(key).filter(|index| Some(*index) != but) {
            let old = self.from.shards.get(&index).and_then(|items| items.get(key));
            self.sizes.insert(index, self.size(index) - old.map_or(0, |old| old.size));
            self.edits.entry(index).or_default().insert(key.clone(), None);
        }
    }

    fn writes(self) -> Vec<Write<K, H>> {
        let gains = |index: &u32, edit: &Wanted<K, H>| {
            !self.left.contains(index) && edit.values().any(Option::is_some)
        };
        let (first, last): (Vec<_>, Vec<_>) =
            self.edits.into_iter().partition(|(index, edit)| gains(index, edit));
        let write = |(index, edit): (u32, Wanted<K, H>)| {
            let mut items: Items<K, H> = self.from.shards.get(&index).cloned().unwrap_or_default();
            for (key, stamp) in edit {
                match stamp {
                    Some(stamp) => items.insert(key, stamp),
                    None => items.remove(&key),
                };
            }
            if items.is_empty() { Write::Delete { index } } else { Write::Put { index, items } }
        };
        first.into_iter().chain(last).map(write).collect()
    }
}
