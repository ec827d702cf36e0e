//! The Plan objects of one load balancer: what they hold, what they should hold, and the next write that
//! brings them closer. Fragments stay in the object in which they were found.

use super::inputs::PlanSeen;
use bowline_api::{Plan, PlanSpec, names};
use bowline_core::hash::PlanHash;
use bowline_core::key::ConsumerRef;
use bowline_core::plan::Fragment;
use bowline_core::shard::json_size;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The most bytes of fragments in one object.
const LARGEST: usize = 480 * 1024;

type Item = (ConsumerRef, u32);

/// What is known of the Plans of a load balancer.
#[derive(Debug, Default)]
pub(super) struct Plans {
    shards: BTreeMap<u32, Shard>,
    wanted: BTreeMap<Item, Wanted>,
}

#[derive(Debug)]
struct Shard {
    version: String,
    items: BTreeMap<Item, PlanHash>,
}

#[derive(Debug)]
struct Wanted {
    fragment: Arc<Fragment>,
    hash: PlanHash,
    size: usize,
}

/// A write of one object.
#[derive(Debug)]
pub(super) struct PlanWrite {
    /// Its name.
    pub(super) name: String,
    /// The version that it replaces. None: it is new.
    pub(super) version: Option<String>,
    /// What it shall hold. None: it is deleted.
    pub(super) spec: Option<PlanSpec>,
}

impl Plans {
    /// A consumer wants this now.
    pub(super) fn want(&mut self, consumer: &ConsumerRef, parts: &[Arc<Fragment>]) {
        let old: Vec<_> = self
            .wanted
            .range((consumer.clone(), 0)..=(consumer.clone(), u32::MAX))
            .map(|(item, _)| item.clone())
            .collect();
        for item in old {
            self.wanted.remove(&item);
        }
        for part in parts {
            let item = (consumer.clone(), part.part);
            let wanted = Wanted {
                fragment: Arc::clone(part),
                hash: PlanHash::of(part),
                size: json_size(&**part),
            };
            self.wanted.insert(item, wanted);
        }
    }

    /// An object was seen, in a watch or as the answer to a write.
    pub(super) fn seen(&mut self, plan: &PlanSeen) {
        let Some(index) = names::plan_index(&plan.name) else { return };
        let items = plan.fragments.iter();
        let items = items
            .map(|it| ((it.consumer.clone(), it.part), PlanHash::of(it)))
            .collect::<BTreeMap<_, _>>();
        match self.shards.get(&index) {
            Some(known) if super::shown::is_older(&plan.version, &known.version) => {}
            _ => drop(self.shards.insert(index, Shard { version: plan.version.clone(), items })),
        }
    }

    /// An object is gone.
    pub(super) fn gone(&mut self, name: &str) {
        if let Some(index) = names::plan_index(name) {
            self.shards.remove(&index);
        }
    }

    /// The names of all objects.
    pub(super) fn names(&self, load_balancer: &str) -> impl Iterator<Item = String> {
        self.shards.keys().map(move |index| names::plan_name(load_balancer, *index))
    }

    /// The version of an object that is known.
    pub(super) fn version(&self, name: &str) -> Option<&str> {
        let index = names::plan_index(name)?;
        self.shards.get(&index).map(|shard| shard.version.as_str())
    }

    /// Whether nothing is wanted and nothing is there.
    pub(super) fn is_empty(&self) -> bool {
        self.shards.is_empty() && self.wanted.is_empty()
    }

    /// The next write, or None when all is as wanted.
    pub(super) fn next(&self, load_balancer: &str) -> Option<PlanWrite> {
        let placed = self.placed();
        let holds = |index: &u32, items: &[&Item]| {
            let Some(shard) = self.shards.get(index) else { return false };
            items.iter().all(|item| {
                let hash = self.wanted.get(*item).map(|wanted| &wanted.hash);
                shard.items.get(*item) == hash
            })
        };
        // First what is added or changed, so that nothing is missing at any moment.
        let added = placed.iter().find(|(index, items)| !holds(index, items));
        if let Some((index, items)) = added {
            return Some(self.write(load_balancer, *index, items));
        }
        let none = Vec::new();
        let fuller = self.shards.iter().find_map(|(index, shard)| {
            let items = placed.get(index).unwrap_or(&none);
            (shard.items.len() != items.len() || items.is_empty()).then_some((index, items))
        });
        fuller.map(|(index, items)| self.write(load_balancer, *index, items))
    }

    /// Which fragment belongs into which object.
    fn placed(&self) -> BTreeMap<u32, Vec<&Item>> {
        let mut found = BTreeMap::new();
        for (index, shard) in &self.shards {
            for item in shard.items.keys() {
                found.entry(item).or_insert(*index);
            }
        }
        let mut placed: BTreeMap<u32, (usize, Vec<&Item>)> = BTreeMap::new();
        let mut homeless = Vec::new();
        for (item, wanted) in &self.wanted {
            match found.get(item) {
                Some(index) => {
                    let (size, items) = placed.entry(*index).or_default();
                    if *size + wanted.size > LARGEST && !items.is_empty() {
                        homeless.push((item, wanted.size));
                        continue;
                    }
                    *size += wanted.size;
                    items.push(item);
                }
                None => homeless.push((item, wanted.size)),
            }
        }
        for (item, bytes) in homeless {
            let index = (0..)
                .find(|index| placed.get(index).is_none_or(|(size, _)| size + bytes <= LARGEST))
                .unwrap_or(0);
            let (size, items) = placed.entry(index).or_default();
            *size += bytes;
            items.push(item);
        }
        placed.into_iter().map(|(index, (_, items))| (index, items)).collect()
    }

    fn write(&self, load_balancer: &str, index: u32, items: &[&Item]) -> PlanWrite {
        let mut wanted: Vec<_> =
            items.iter().filter_map(|item| self.wanted.get_key_value(*item)).collect();
        wanted.sort_by_key(|(item, _)| *item);
        let spec = PlanSpec {
            load_balancer: load_balancer.to_owned(),
            hash: wanted.iter().fold(PlanHash::default(), |sum, (_, it)| sum.plus(it.hash)),
            fragments: wanted.iter().map(|(_, it)| (*it.fragment).clone()).collect(),
        };
        PlanWrite {
            name: names::plan_name(load_balancer, index),
            version: self.shards.get(&index).map(|shard| shard.version.clone()),
            spec: (!items.is_empty()).then_some(spec),
        }
    }
}

/// The object of a write; it belongs to its load balancer and goes with it.
pub(super) fn object(write: &PlanWrite, spec: PlanSpec, uid: &str) -> Plan {
    let load_balancer = spec.load_balancer.clone();
    let mut plan = Plan::new(&write.name, spec);
    plan.metadata = super::writes::owned(&write.name, &load_balancer, uid);
    plan.metadata.resource_version = write.version.clone();
    plan
}
