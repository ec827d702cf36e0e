//! Plan objects taken apart: fragments by whose they are, whichever shard carries them, and the hash of
//! the whole plan.

use crate::hash::PlanHash;
use crate::key::ConsumerRef;
use crate::plan::{Fragment, Pool, Site};
use crate::update::{ListenerKey, ResolvedListener, SiteKey};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a fragment is known by: whose, and which part.
pub(super) type PartKey = (ConsumerRef, u32);

/// A fragment in the pieces that a driver gets.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) key: PartKey,
    hash: PlanHash,
    pub(super) listeners: Vec<(ListenerKey, Arc<ResolvedListener>)>,
    pub(super) sites: Vec<(SiteKey, Site)>,
    pub(super) pools: Vec<Arc<Pool>>,
}

impl Part {
    fn new(fragment: Fragment, hash: PlanHash) -> Self {
        let consumer = fragment.consumer;
        let listeners = fragment.listeners.into_iter().map(|listener| {
            let key = ListenerKey::of(&listener);
            (key, Arc::new(ResolvedListener { consumer: consumer.clone(), listener }))
        });
        let listeners = listeners.collect();
        let sites = fragment
            .sites
            .into_iter()
            .map(|site| (SiteKey { entry: site.entry.clone(), host: site.host.clone() }, site));
        Self {
            hash,
            listeners,
            sites: sites.collect(),
            pools: fragment.pools.into_iter().map(Arc::new).collect(),
            key: (consumer, fragment.part),
        }
    }
}

/// That another fragment counts now for somebody.
#[derive(Debug)]
pub(super) struct Swap {
    pub(super) old: Option<Arc<Part>>,
    pub(super) new: Option<Arc<Part>>,
}

type Parts = BTreeMap<PartKey, Arc<Part>>;

/// The number of a shard among those of its load balancer, and its name. By number, as the leader
/// counts them: `edge-2` comes before `edge-10`.
type Rank = (u32, Arc<str>);

#[derive(Debug)]
struct Shard {
    rank: Rank,
    epoch: u32,
    parts: Parts,
}

/// All Plan objects of the load balancer.
#[derive(Debug, Default)]
pub(super) struct Shards {
    /// By name.
    shards: BTreeMap<Arc<str>, Shard>,
    /// Who carries a fragment; the first one counts.
    carriers: BTreeMap<PartKey, BTreeMap<Rank, Arc<Part>>>,
    hash: PlanHash,
}

impl Shards {
    /// The hash of all fragments that count.
    pub(super) fn hash(&self) -> PlanHash {
        self.hash
    }

    /// Takes a shard as it is now.
    pub(super) fn apply(
        &mut self,
        name: &Arc<str>,
        index: u32,
        fragments: Vec<Fragment>,
        epoch: u32,
    ) -> Vec<Swap> {
        let rank = (index, name.clone());
        let mut swaps = Vec::new();
        if self.shards.get(name).is_some_and(|shard| shard.rank != rank) {
            swaps = self.delete(name);
        }
        let mut old = self.shards.remove(name).map(|shard| shard.parts).unwrap_or_default();
        let mut new = Parts::new();
        for fragment in fragments {
            let key = (fragment.consumer.clone(), fragment.part);
            if new.contains_key(&key) {
                continue;
            }
            let hash = PlanHash::of(&fragment);
            let part = match old.remove(&key) {
                Some(part) if part.hash == hash => part,
                _ => {
                    let part = Arc::new(Part::new(fragment, hash));
                    swaps.extend(self.carry(&rank, &key, Some(part.clone())));
                    part
                }
            };
            new.insert(key, part);
        }
        swaps.extend(old.keys().filter_map(|key| self.carry(&rank, key, None)));
        self.shards.insert(name.clone(), Shard { rank, epoch, parts: new });
        swaps
    }

    /// Forgets a shard.
    pub(super) fn delete(&mut self, name: &str) -> Vec<Swap> {
        let Some(Shard { rank, parts, .. }) = self.shards.remove(name) else { return Vec::new() };
        parts.keys().filter_map(|key| self.carry(&rank, key, None)).collect()
    }

    /// Forgets shards that were last told in another epoch.
    pub(super) fn sweep(&mut self, epoch: u32) -> Vec<Swap> {
        let stale = self.shards.iter().filter(|(_, shard)| shard.epoch != epoch);
        let gone: Vec<Arc<str>> = stale.map(|(name, _)| name.clone()).collect();
        gone.iter().flat_map(|name| self.delete(name)).collect()
    }

    /// Notes what a shard carries for somebody, and says what counts instead, if that changes.
    fn carry(&mut self, shard: &Rank, key: &PartKey, part: Option<Arc<Part>>) -> Option<Swap> {
        let carriers = self.carriers.entry(key.clone()).or_default();
        let old = carriers.values().next().cloned();
        match part {
            Some(part) => carriers.insert(shard.clone(), part),
            None => carriers.remove(shard),
        };
        let new = carriers.values().next().cloned();
        if carriers.is_empty() {
            self.carriers.remove(key);
        }
        match (&old, &new) {
            (Some(old), Some(new)) if Arc::ptr_eq(old, new) => return None,
            (None, None) => return None,
            _ => {}
        }
        self.hash = old.iter().fold(self.hash, |hash, part| hash.minus(part.hash));
        self.hash = new.iter().fold(self.hash, |hash, part| hash.plus(part.hash));
        Some(Swap { old, new })
    }
}
