//! Packs items into few objects of bounded size, "shards": fragments into Plan objects, certificates into Secrets. It
//! decides the content and order of writes and writes nothing itself. The leader passes on what it reads from the API,
//! so the next write repairs a crash between two writes.

mod pack;
mod rewrite;

#[cfg(test)]
mod tests;

pub use rewrite::Rewrite;

use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// An item of a shard without its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp<H> {
    /// The hash of the content.
    pub hash: H,
    /// The bytes that the item takes in a shard.
    pub size: usize,
}

/// The items of one shard.
pub type Items<K, H> = BTreeMap<K, Stamp<H>>;

/// A write that brings a shard nearer to its wanted content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write<K, H> {
    /// The shard of this number gets exactly these items. The shard may be new.
    Put {
        /// The number of the shard.
        index: u32,
        /// All its items.
        items: Items<K, H>,
    },
    /// The shard of this number is deleted.
    Delete {
        /// The number of the shard.
        index: u32,
    },
}

impl<K, H> Write<K, H> {
    /// The number of the shard.
    pub fn index(&self) -> u32 {
        match self {
            Self::Put { index, .. } | Self::Delete { index } => *index,
        }
    }

    /// All items of the shard after the write. None: the shard is deleted.
    pub fn items(&self) -> Option<&Items<K, H>> {
        match self {
            Self::Put { items, .. } => Some(items),
            Self::Delete { .. } => None,
        }
    }
}

/// Wanted changes: items as they should be, or None for items that should be deleted.
pub type Wanted<K, H> = BTreeMap<K, Option<Stamp<H>>>;

/// The shards of one load balancer, as last observed.
#[derive(Clone, Debug)]
pub struct Shards<K, H> {
    /// A shard takes another item only up to this many bytes.
    limit: usize,
    /// Items that grow leave a shard with more bytes than this.
    most: usize,
    shards: BTreeMap<u32, Items<K, H>>,
    sizes: BTreeMap<u32, usize>,
    places: BTreeMap<K, BTreeSet<u32>>,
    /// Items in more than one shard.
    repeated: BTreeSet<K>,
    /// Shards without items.
    empty: BTreeSet<u32>,
}

impl<K: Ord + Clone, H: PartialEq + Clone> Shards<K, H> {
    /// No shards yet; new items go into a shard up to `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            most: limit,
            shards: BTreeMap::new(),
            sizes: BTreeMap::new(),
            places: BTreeMap::new(),
            repeated: BTreeSet::new(),
            empty: BTreeSet::new(),
        }
    }

    /// Items that grow stay in their shard until it has more than `most` bytes. While no item moves, each change is one
    /// write, which does not depend on another.
    pub fn growing_to(mut self, most: usize) -> Self {
        self.most = most.max(self.limit);
        self
    }

    /// A shard was read or written.
    pub fn observe(&mut self, index: u32, items: Items<K, H>) {
        self.forget(index);
        for key in items.keys() {
            let places = self.places.entry(key.clone()).or_default();
            places.insert(index);
            if places.len() > 1 {
                self.repeated.insert(key.clone());
            }
        }
        if items.is_empty() {
            self.empty.insert(index);
        }
        self.sizes.insert(index, items.values().map(|stamp| stamp.size).sum());
        self.shards.insert(index, items);
    }

    /// A shard is deleted.
    pub fn forget(&mut self, index: u32) {
        self.sizes.remove(&index);
        self.empty.remove(&index);
        for key in self.shards.remove(&index).unwrap_or_default().into_keys() {
            let Some(places) = self.places.get_mut(&key) else { continue };
            places.remove(&index);
            if places.len() < 2 {
                self.repeated.remove(&key);
            }
            if places.is_empty() {
                self.places.remove(&key);
            }
        }
    }

    /// A write was carried out.
    pub fn written(&mut self, write: Write<K, H>) {
        match write {
            Write::Put { index, items } => self.observe(index, items),
            Write::Delete { index } => self.forget(index),
        }
    }

    /// An item as last observed. If several shards have it, the lowest one counts.
    pub fn get(&self, key: &K) -> Option<&Stamp<H>> {
        let index = self.places.get(key)?.first()?;
        self.shards.get(index)?.get(key)
    }

    /// Whether no item is in two shards and no shard is empty.
    pub fn is_tidy(&self) -> bool {
        self.repeated.is_empty() && self.empty.is_empty()
    }

    /// The items of a shard. None: there is no such shard.
    pub fn items(&self, index: u32) -> Option<&Items<K, H>> {
        self.shards.get(&index)
    }

    /// All items, in any shard.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.places.keys()
    }

    /// The numbers of all shards.
    pub fn indices(&self) -> impl Iterator<Item = u32> {
        self.shards.keys().copied()
    }

    /// The changes after which the shards hold exactly these items.
    pub fn difference(&self, all: &Items<K, H>) -> Wanted<K, H> {
        let different = all.iter().filter(|(key, stamp)| self.get(key) != Some(stamp));
        let mut wanted: Wanted<K, H> =
            different.map(|(key, stamp)| (key.clone(), Some(stamp.clone()))).collect();
        let gone = self.places.keys().filter(|key| !all.contains_key(key));
        wanted.extend(gone.map(|key| (key.clone(), None)));
        wanted
    }

    /// The writes for a change, in order.
    ///
    /// An item stays in its shard while that may grow; otherwise, and when it is new, it goes to the first shard with
    /// room. After every single write, each item that existed and is still wanted is in some shard. An item in two
    /// shards is removed from the higher one. A shard without items is deleted.
    pub fn pack(&self, wanted: &Wanted<K, H>) -> Vec<Write<K, H>> {
        pack::Packing::new(self).run(wanted).0
    }
}

/// How many bytes a value takes as JSON.
pub fn json_size<T: Serialize + ?Sized>(value: &T) -> usize {
    let mut counter = Counter(0);
    // Counting cannot fail, and no measured value has a map with keys other than strings.
    let written = serde_json::to_writer(&mut counter, value);
    debug_assert!(written.is_ok());
    counter.0
}

struct Counter(usize);

impl io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
