//! Objects of bounded size that together hold a set of items, as `bowline_core::shard` packs them, with the
//! versions under which they are written. It does no I/O. Plans and certificate Secrets use it.

use crate::watch::is_older;
use bowline_core::clock::Uptime;
use bowline_core::shard::{Items, Rewrite, Shards, Stamp, Write};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The packed objects of one load balancer: what exists, and what is wanted.
#[derive(Debug)]
pub(super) struct Packed<K, H> {
    rewrite: Rewrite<K, H>,
    versions: BTreeMap<u32, String>,
    /// The uid of the load balancer that each observed object belongs to. None: it has no owner, or its label is
    /// wrong. An object that this process wrote has no entry: its owner is right.
    owners: BTreeMap<u32, Option<String>>,
    /// Objects whose write failed, and when each is retried.
    refused: BTreeMap<u32, Uptime>,
}

impl<K: Ord + Clone, H: PartialEq + Clone> Packed<K, H> {
    /// Begins with these existing objects and nothing wanted. `tenant` gives the tenant of an item, as far as its
    /// key says it.
    pub(super) fn new(shards: Shards<K, H>, tenant: fn(&K) -> Arc<str>) -> Self {
        Self {
            rewrite: Rewrite::new(shards, tenant),
            versions: BTreeMap::new(),
            owners: BTreeMap::new(),
            refused: BTreeMap::new(),
        }
    }

    /// Assigns an item whose key names no tenant to this tenant. Tenants take turns.
    pub(super) fn belongs(&mut self, key: &K, tenant: &Arc<str>) {
        self.rewrite.belongs(key, tenant);
    }

    /// Sets an item's wanted stamp. None: the item is removed.
    pub(super) fn want(&mut self, key: K, stamp: Option<Stamp<H>>) {
        self.rewrite.want(key, stamp);
    }

    /// Whether this version of an object is newer than the known one.
    pub(super) fn is_news(&self, index: u32, version: &str) -> bool {
        self.versions.get(&index).is_none_or(|known| known != version && !is_older(version, known))
    }

    /// Records an observed object and the uid of the load balancer that it belongs to.
    pub(super) fn seen(
        &mut self,
        index: u32,
        version: String,
        owner: Option<String>,
        items: Items<K, H>,
    ) {
        self.happened(Write::Put { index, items }, Some(version));
        self.owners.insert(index, owner);
    }

    /// Records a write of this process, unless the watch already showed it or something newer.
    pub(super) fn wrote(&mut self, write: Write<K, H>, version: Option<String>) {
        if version.as_deref().is_none_or(|version| self.is_news(write.index(), version)) {
            self.happened(write, version);
        }
    }

    /// Records that an object does not exist any more.
    pub(super) fn gone(&mut self, index: u32) {
        self.happened(Write::Delete { index }, None);
    }

    /// Records what an object holds now, whoever wrote it.
    fn happened(&mut self, write: Write<K, H>, version: Option<String>) {
        let index = write.index();
        self.refused.remove(&index);
        self.owners.remove(&index);
        match version {
            Some(version) => drop(self.versions.insert(index, version)),
            None => drop(self.versions.remove(&index)),
        }
        self.rewrite.happened(write);
    }

    /// Records that an object's write failed. The other objects go on; this one is retried at `until`.
    pub(super) fn refused(&mut self, index: u32, until: Uptime) {
        self.refused.insert(index, until);
        self.rewrite.passed(index);
    }

    /// When each failed write is retried.
    pub(super) fn tried_again(&self) -> impl Iterator<Item = Uptime> {
        self.refused.values().copied()
    }

    /// The version of an object. None: it does not exist.
    pub(super) fn version(&self, index: u32) -> Option<&str> {
        self.versions.get(&index).map(String::as_str)
    }

    /// The numbers of all objects.
    pub(super) fn indices(&self) -> impl Iterator<Item = u32> {
        self.versions.keys().copied()
    }

    /// Whether an object holds this item.
    pub(super) fn holds(&self, key: &K) -> bool {
        self.seen_as(key).is_some()
    }

    /// The stamp with which an item was last observed.
    pub(super) fn seen_as(&self, key: &K) -> Option<&Stamp<H>> {
        self.rewrite.shards().get(key)
    }

    /// The items that an object holds.
    pub(super) fn items(&self, index: u32) -> Option<&Items<K, H>> {
        self.rewrite.shards().items(index)
    }

    /// All items that objects hold.
    pub(super) fn held(&self) -> impl Iterator<Item = &K> {
        self.rewrite.shards().keys()
    }

    /// All items that are wanted.
    pub(super) fn wanted(&self) -> &Items<K, H> {
        self.rewrite.wanted()
    }

    /// Whether an item is not yet held as it is wanted.
    pub(super) fn is_open(&self, key: &K) -> bool {
        self.rewrite.is_open(key)
    }

    /// Whether items of a tenant wait for a write.
    pub(super) fn waits(&self, tenant: &Arc<str>) -> bool {
        self.rewrite.waits(tenant)
    }

    /// Whether no object exists and nothing is wanted.
    pub(super) fn is_empty(&self) -> bool {
        self.versions.is_empty() && self.wanted().is_empty()
    }

    /// Whether every item is held as it is wanted.
    pub(super) fn is_settled(&self) -> bool {
        self.rewrite.is_settled()
    }

    /// Whether every item is held as it is wanted, and no write waits for a retry.
    pub(super) fn is_at_rest(&self) -> bool {
        self.is_settled() && self.refused.is_empty()
    }

    /// The next write that may be tried now. `uid` is the uid of the load balancer that owns the objects.
    pub(super) fn next(&mut self, uid: Option<&str>, now: Uptime) -> Option<Write<K, H>> {
        self.refused.retain(|_, until| now < *until);
        let refused = &self.refused;
        self.rewrite.next(|index| !refused.contains_key(&index)).or_else(|| self.adopt(uid?))
    }

    /// Writes an object with its present items and the right owner, if it belongs to another load balancer:
    /// perhaps a deleted one of the same name.
    fn adopt(&self, uid: &str) -> Option<Write<K, H>> {
        let foreign = self.owners.iter().filter(|(_, owner)| owner.as_deref() != Some(uid));
        foreign.map(|(index, _)| *index).find_map(|index| self.again(index))
    }

    /// Writes an object with its present items, if all items are as they are wanted and its last write did not fail.
    pub(super) fn again(&self, index: u32) -> Option<Write<K, H>> {
        let may = self.is_settled() && !self.refused.contains_key(&index);
        Some(Write::Put { index, items: self.items(index).filter(|_| may)?.clone() })
    }
}

#[cfg(test)]
mod tests;
