//! Plan objects taken apart: fragments by consumer and part, from whichever Plan has them, and the hash of the whole
//! plan. It keeps a previous fragment while the new one cannot be read, and Plans that are gone while it is told to
//! hold them. The resolver calls it.

use crate::hash::PlanHash;
use crate::key::ConsumerRef;
use crate::plan::{Fragment, Pool, Site};
use crate::relist::{Epoch, Relist};
use crate::update::{ListenerKey, ResolvedListener, SiteKey};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Identifies a fragment: consumer and part.
pub(super) type PartKey = (ConsumerRef, u32);

/// A fragment in the pieces that a driver gets.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) key: PartKey,
    hash: PlanHash,
    /// Whether the load balancer is claimed by the consumer's namespace.
    pub(super) claimed: bool,
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
            claimed: fragment.claimed,
            listeners,
            sites: sites.collect(),
            pools: fragment.pools.into_iter().map(Arc::new).collect(),
            key: (consumer, fragment.part),
        }
    }
}

/// Another fragment counts for a consumer.
#[derive(Debug)]
pub(super) struct Swap {
    pub(super) old: Option<Arc<Part>>,
    pub(super) new: Option<Arc<Part>>,
}

type Parts = BTreeMap<PartKey, Arc<Part>>;

/// The number of a shard among those of its load balancer, and its name. Ordered by number, as the leader counts:
/// `edge-2` comes before `edge-10`.
type Rank = (u32, Arc<str>);

#[derive(Debug)]
struct Shard {
    rank: Rank,
    epoch: Epoch,
    parts: Parts,
    /// Fragments in it that cannot be read.
    unread: BTreeSet<PartKey>,
    /// The difference between the leader's hash and the sum of the parts that can be read.
    beyond: PlanHash,
}

/// What a shard has under one key.
#[derive(Clone, Debug)]
enum Carried {
    /// A fragment.
    Part(Arc<Part>),
    /// A fragment that cannot be read.
    Unread,
}

/// The content of a Plan object as it is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// The fragments that can be read.
    pub fragments: Vec<Fragment>,
    /// The fragments that cannot be read, as far as consumer and part can be read.
    pub unread: Vec<(ConsumerRef, u32)>,
    /// The hash from the leader. None: it is the sum of the fragments. A leader of another version also hashes what
    /// cannot be read here, and accepts only its own hash as proof.
    pub hash: Option<PlanHash>,
}

impl From<Vec<Fragment>> for Written {
    fn from(fragments: Vec<Fragment>) -> Self {
        Self { fragments, ..Self::default() }
    }
}

/// All Plan objects of the load balancer.
#[derive(Debug, Default)]
pub(super) struct Shards {
    /// Shards by name.
    shards: BTreeMap<Arc<str>, Shard>,
    /// The shards that have a fragment; the first one counts.
    carriers: BTreeMap<PartKey, BTreeMap<Rank, Carried>>,
    /// Fragments that the first shard has but that cannot be read, with the part that counted before.
    kept: BTreeMap<PartKey, Option<Arc<Part>>>,
    /// Whether `kept` changed since the last call.
    kept_changed: bool,
    hash: PlanHash,
    /// Whether shards that are gone stay.
    holds: bool,
    /// The shards that are gone and stay.
    held: BTreeSet<Arc<str>>,
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
        written: Written,
        epoch: Epoch,
    ) -> Vec<Swap> {
        let Written { fragments, unread, hash: declared } = written;
        let rank = (index, name.clone());
        let mut swaps = Vec::new();
        self.held.remove(name);
        if self.shards.get(name).is_some_and(|shard| shard.rank != rank) {
            swaps = self.remove(name);
        }
        let old = self.shards.remove(name);
        let before = old.as_ref().map_or_else(PlanHash::default, |shard| shard.beyond);
        let (mut old, mut gone) = old.map(|it| (it.parts, it.unread)).unwrap_or_default();
        let mut new = Parts::new();
        let mut sum = PlanHash::default();
        for fragment in fragments {
            let key = (fragment.consumer.clone(), fragment.part);
            if new.contains_key(&key) {
                continue;
            }
            let hash = PlanHash::of(&fragment);
            sum = sum.plus(hash);
            let part = match old.remove(&key) {
                Some(part) if part.hash == hash => part,
                _ => {
                    let part = Arc::new(Part::new(fragment, hash));
                    swaps.extend(self.carry(&rank, &key, Some(Carried::Part(part.clone()))));
                    part
                }
            };
            gone.remove(&key);
            new.insert(key, part);
        }
        let unread: BTreeSet<_> = unread.into_iter().filter(|key| !new.contains_key(key)).collect();
        for key in &unread {
            old.remove(key);
            gone.remove(key);
            swaps.extend(self.carry(&rank, key, Some(Carried::Unread)));
        }
        let gone = old.into_keys().chain(gone);
        swaps.extend(gone.filter_map(|key| self.carry(&rank, &key, None)).collect::<Vec<_>>());
        let beyond = declared.map_or_else(PlanHash::default, |declared| declared.minus(sum));
        self.hash = self.hash.minus(before).plus(beyond);
        self.shards.insert(name.clone(), Shard { rank, epoch, parts: new, unread, beyond });
        swaps
    }

    /// From now on shards that are gone stay, or they do not: then those that stayed are forgotten.
    pub(super) fn hold(&mut self, holds: bool) -> Vec<Swap> {
        self.holds = holds;
        if holds {
            return Vec::new();
        }
        let gone = std::mem::take(&mut self.held);
        gone.iter().flat_map(|name| self.remove(name)).collect()
    }

    /// Forgets a shard, unless those that are gone stay.
    pub(super) fn delete(&mut self, name: &str) -> Vec<Swap> {
        if !self.holds {
            return self.remove(name);
        }
        self.held.extend(self.shards.get_key_value(name).map(|(name, _)| name.clone()));
        Vec::new()
    }

    /// Forgets a shard that the agent refuses, also while those that are gone stay: the leader has written it.
    pub(super) fn refuse(&mut self, name: &str) -> Vec<Swap> {
        self.held.remove(name);
        self.remove(name)
    }

    fn remove(&mut self, name: &str) -> Vec<Swap> {
        let Some(shard) = self.shards.remove(name) else { return Vec::new() };
        let Shard { rank, parts, unread, beyond, .. } = shard;
        self.hash = self.hash.minus(beyond);
        let gone = parts.into_keys().chain(unread);
        gone.filter_map(|key| self.carry(&rank, &key, None)).collect()
    }

    /// Forgets shards that the last list did not deliver.
    pub(super) fn sweep(&mut self, relist: Relist) -> Vec<Swap> {
        let missed = relist.missed(&self.shards, |shard| shard.epoch);
        missed.iter().flat_map(|name| self.delete(name)).collect()
    }

    /// Consumers with a fragment that cannot be read, and whether they are served as before.
    pub(super) fn unread(&self) -> impl Iterator<Item = (&ConsumerRef, bool)> {
        self.kept.iter().map(|((consumer, _), kept)| (consumer, kept.is_some()))
    }

    /// Whether [`Self::unread`] may have changed since the last call.
    pub(super) fn take_unread_changed(&mut self) -> bool {
        std::mem::take(&mut self.kept_changed)
    }

    /// Notes what a shard has under a key, and returns the swap if another fragment counts now.
    fn carry(&mut self, shard: &Rank, key: &PartKey, part: Option<Carried>) -> Option<Swap> {
        let carriers = self.carriers.entry(key.clone()).or_default();
        let first = carriers.values().next().cloned();
        match part {
            Some(part) => carriers.insert(shard.clone(), part),
            None => carriers.remove(shard),
        };
        let then = carriers.values().next().cloned();
        if carriers.is_empty() {
            self.carriers.remove(key);
        }
        let was_unread = matches!(first, Some(Carried::Unread));
        let (old, counted) = match first {
            Some(Carried::Part(part)) => (Some(part.clone()), Some(part)),
            Some(Carried::Unread) => (self.kept.remove(key).flatten(), None),
            None => (None, None),
        };
        let (new, counts) = match then {
            Some(Carried::Part(part)) => (Some(part.clone()), Some(part)),
            // The previous fragment stays.
            Some(Carried::Unread) => {
                self.kept.insert(key.clone(), old.clone());
                (old.clone(), None)
            }
            None => (None, None),
        };
        self.kept_changed |= was_unread || self.kept.contains_key(key);
        self.hash = counted.iter().fold(self.hash, |hash, part| hash.minus(part.hash));
        self.hash = counts.iter().fold(self.hash, |hash, part| hash.plus(part.hash));
        match (&old, &new) {
            (Some(old), Some(new)) if Arc::ptr_eq(old, new) => return None,
            (None, None) => return None,
            _ => {}
        }
        Some(Swap { old, new })
    }
}
