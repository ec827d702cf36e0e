//! Objects of bounded size that together hold a set of items, as `bowline_core::shard` packs them, with
//! the versions by which they are written. Plans and the Secrets with certificates are both kept so.

use crate::watch::is_older;
use bowline_core::clock::Uptime;
use bowline_core::shard::{Items, Rewrite, Shards, Stamp, Write};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What is there, and what should be.
#[derive(Debug)]
pub(super) struct Packed<K, H> {
    rewrite: Rewrite<K, H>,
    versions: BTreeMap<u32, String>,
    /// To which load balancer each object was seen to belong, by uid; None: to none, or its label is
    /// wrong. What we write ourselves belongs to the right one.
    owners: BTreeMap<u32, Option<String>>,
    /// Objects that could not be written, and when that is tried again.
    refused: BTreeMap<u32, Uptime>,
}

impl<K: Ord + Clone, H: PartialEq + Clone> Packed<K, H> {
    /// Objects as these shards, nothing is wanted; `tenant` gives the tenant of an item as far as its key says it.
    pub(super) fn new(shards: Shards<K, H>, tenant: fn(&K) -> Arc<str>) -> Self {
        Self {
            rewrite: Rewrite::new(shards, tenant),
            versions: BTreeMap::new(),
            owners: BTreeMap::new(),
            refused: BTreeMap::new(),
        }
    }

    /// Assigns an item with a key that names no tenant to this tenant; tenants take turns.
    pub(super) fn belongs(&mut self, key: &K, tenant: &Arc<str>) {
        self.rewrite.belongs(key, tenant);
    }

    /// An item should be so, or not be there.
    pub(super) fn want(&mut self, key: K, stamp: Option<Stamp<H>>) {
        self.rewrite.want(key, stamp);
    }

    /// Whether an object of this version would be news.
    pub(super) fn is_news(&self, index: u32, version: &str) -> bool {
        self.versions.get(&index).is_none_or(|known| known != version && !is_older(version, known))
    }

    /// An object was seen that belongs to the load balancer with this uid.
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

    /// A write of ours was carried out. The watch may have shown that already, and what came after it.
    pub(super) fn wrote(&mut self, write: Write<K, H>, version: Option<String>) {
        if version.as_deref().is_none_or(|version| self.is_news(write.index(), version)) {
            self.happened(write, version);
        }
    }

    /// An object is gone.
    pub(super) fn gone(&mut self, index: u32) {
        self.happened(Write::Delete { index }, None);
    }

    /// An object is now so, whoever wrote it.
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

    /// An object could not be written: the others go on until then.
    pub(super) fn refused(&mut self, index: u32, until: Uptime) {
        self.refused.insert(index, until);
        self.rewrite.passed(index);
    }

    /// When objects that could not be written are tried again.
    pub(super) fn tried_again(&self) -> impl Iterator<Item = Uptime> {
        self.refused.values().copied()
    }

    /// The version of an object; None: it is not there.
    pub(super) fn version(&self, index: u32) -> Option<&str> {
        self.versions.get(&index).map(String::as_str)
    }

    /// The numbers of all objects.
    pub(super) fn indices(&self) -> impl Iterator<Item = u32> {
        self.versions.keys().copied()
    }

    /// Whether an item is there.
    pub(super) fn holds(&self, key: &K) -> bool {
        self.seen_as(key).is_some()
    }

    /// What an item was last seen as.
    pub(super) fn seen_as(&self, key: &K) -> Option<&Stamp<H>> {
        self.rewrite.shards().get(key)
    }

    /// What an object holds.
    pub(super) fn items(&self, index: u32) -> Option<&Items<K, H>> {
        self.rewrite.shards().items(index)
    }

    /// All items that are there.
    pub(super) fn held(&self) -> impl Iterator<Item = &K> {
        self.rewrite.shards().keys()
    }

    /// All items that are wanted.
    pub(super) fn wanted(&self) -> &Items<K, H> {
        self.rewrite.wanted()
    }

    /// Whether an item is not there as it should be.
    pub(super) fn is_open(&self, key: &K) -> bool {
        self.rewrite.is_open(key)
    }

    /// Whether items of a tenant wait for a write.
    pub(super) fn waits(&self, tenant: &Arc<str>) -> bool {
        self.rewrite.waits(tenant)
    }

    /// Whether nothing is there and nothing is wanted.
    pub(super) fn is_empty(&self) -> bool {
        self.versions.is_empty() && self.wanted().is_empty()
    }

    /// Whether all is as wanted.
    pub(super) fn is_settled(&self) -> bool {
        self.rewrite.is_settled()
    }

    /// Whether all is as wanted and nothing is to be tried again.
    pub(super) fn is_at_rest(&self) -> bool {
        self.is_settled() && self.refused.is_empty()
    }

    /// The next write that may be tried now, or None; the objects belong to the load balancer with
    /// this uid.
    pub(super) fn next(&mut self, uid: Option<&str>, now: Uptime) -> Option<Write<K, H>> {
        self.refused.retain(|_, until| now < *until);
        let refused = &self.refused;
        self.rewrite.next(|index| !refused.contains_key(&index)).or_else(|| self.adopt(uid?))
    }

    /// An object that belongs to somebody else, perhaps a load balancer of the same name that was
    /// deleted, is written again as it is, with its owner.
    fn adopt(&self, uid: &str) -> Option<Write<K, H>> {
        let foreign = self.owners.iter().filter(|(_, owner)| owner.as_deref() != Some(uid));
        let mut free = foreign.filter(|(index, _)| !self.refused.contains_key(index));
        let (&index, _) = free.next().filter(|_| self.is_settled())?;
        Some(Write::Put { index, items: self.items(index)?.clone() })
    }
}

#[cfg(test)]
mod tests;
