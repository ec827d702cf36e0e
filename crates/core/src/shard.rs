//! Packs items into few objects of bounded size, "shards": fragments into Plan objects, certificates
//! into Secrets. It decides which object is written with what, and in which order; it writes nothing
//! itself. The leader tells it what it reads in the API, so a crash between two writes is repaired by
//! the next one.

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
    /// Which content.
    pub hash: H,
    /// The bytes that it takes in a shard.
    pub size: usize,
}

/// The items of one shard.
pub type Items<K, H> = BTreeMap<K, Stamp<H>>;

/// A write that brings the shards nearer to what they should hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write<K, H> {
    /// The shard of this number is to hold exactly these items. It may be a new one.
    Put {
        /// Which shard.
        index: u32,
        /// All its items.
        items: Items<K, H>,
    },
    /// The shard of this number holds nothing any more.
    Delete {
        /// Which shard.
        index: u32,
    },
}

impl<K, H> Write<K, H> {
    /// Which shard.
    pub fn index(&self) -> u32 {
        match self {
            Self::Put { index, .. } | Self::Delete { index } => *index,
        }
    }

    /// All items that the shard has afterwards; None: there is no such shard then.
    pub fn items(&self) -> Option<&Items<K, H>> {
        match self {
            Self::Put { items, .. } => Some(items),
            Self::Delete { .. } => None,
        }
    }
}

/// What is to change: items as they should be, or None for those that should not be there.
pub type Wanted<K, H> = BTreeMap<K, Option<Stamp<H>>>;

/// The shards of one load balancer, as they were last seen.
#[derive(Clone, Debug)]
pub struct Shards<K, H> {
    /// A shard with so many bytes takes in no further item.
    limit: usize,
    /// A shard with more bytes than this is left by items that grow.
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
    /// No shards yet; each may hold items of `limit` bytes together.
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

    /// The same, where items that grow stay in their shard until it has more than `most` bytes. While nothing moves,
    /// each change is one write, which needs no other before it.
    pub fn growing_to(mut self, most: usize) -> Self {
        self.most = most.max(self.limit);
        self
    }

    /// A shard was read, or has been written.
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

    /// A shard is gone.
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

    /// What an item was last seen as; of several the one that counts, in the lowest shard.
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

    /// All items, in whatever shard.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.places.keys()
    }

    /// The numbers of all shards.
    pub fn indices(&self) -> impl Iterator<Item = u32> {
        self.shards.keys().copied()
    }

    /// What has to change for the shards to hold exactly these items.
    pub fn difference(&self, all: &Items<K, H>) -> Wanted<K, H> {
        let different = all.iter().filter(|(key, stamp)| self.get(key) != Some(stamp));
        let mut wanted: Wanted<K, H> =
            different.map(|(key, stamp)| (key.clone(), Some(stamp.clone()))).collect();
        let gone = self.places.keys().filter(|key| !all.contains_key(key));
        wanted.extend(gone.map(|key| (key.clone(), None)));
        wanted
    }

    /// The writes that bring a change about, in order.
    ///
    /// An item stays where it is while its shard may grow; else, and when it is new, it goes to the first shard
    /// with room. After every single write each item that was there and is still wanted is in some
    /// shard. An item in two shards is taken out of the higher one. A shard without items is deleted.
    pub fn pack(&self, wanted: &Wanted<K, H>) -> Vec<Write<K, H>> {
        pack::Packing::new(self).run(wanted).0
    }
}

/// How many bytes a value takes as JSON.
pub fn json_size<T: Serialize + ?Sized>(value: &T) -> usize {
    let mut counter = Counter(0);
    // Counting cannot fail, and what is measured here has no map with other keys than strings.
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
