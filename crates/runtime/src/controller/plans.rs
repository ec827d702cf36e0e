//! The Plan objects of one load balancer: what they hold, what they should hold, and the next write that
//! brings them closer.

use super::inputs::PlanSeen;
use super::packed::Packed;
use bowline_api::{Plan, PlanSpec, names};
use bowline_core::hash::PlanHash;
use bowline_core::key::{ConsumerKind, ConsumerRef};
use bowline_core::plan::Fragment;
use bowline_core::shard::{Items, Stamp, Write, json_size};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// The most bytes of fragments in one object, unless one alone has more. An object is written, checked
/// and read whole for every change in it: small ones keep a change cheap when there are many consumers.
const LARGEST: usize = 64 * 1024;

type Item = (ConsumerRef, u32);

/// What is known of the Plans of a load balancer.
#[derive(Debug)]
pub(super) struct Plans {
    packed: Packed<Item, PlanHash>,
    fragments: BTreeMap<Item, Arc<Fragment>>,
    /// The hash of each object.
    hashes: BTreeMap<u32, PlanHash>,
    /// The uid of the load balancer to which each object was seen to belong.
    owners: BTreeMap<u32, Option<String>>,
}

impl Default for Plans {
    fn default() -> Self {
        Self {
            packed: Packed::new(LARGEST),
            fragments: BTreeMap::new(),
            hashes: BTreeMap::new(),
            owners: BTreeMap::new(),
        }
    }
}

fn sum(items: &Items<Item, PlanHash>) -> PlanHash {
    items.values().fold(PlanHash::default(), |sum, stamp| sum.plus(stamp.hash))
}

/// A write of one object.
#[derive(Debug)]
pub(super) struct PlanWrite {
    pub(super) write: Write<Item, PlanHash>,
    /// Its name.
    pub(super) name: String,
    /// The version that it replaces. None: it is new.
    pub(super) version: Option<String>,
    load_balancer: Arc<str>,
    fragments: Vec<Arc<Fragment>>,
}

impl PlanWrite {
    /// Whether the object is deleted.
    pub(super) fn is_deletion(&self) -> bool {
        matches!(self.write, Write::Delete { .. })
    }

    /// The object; it belongs to the load balancer of this uid and goes with it.
    pub(super) fn object(&self, uid: &str) -> Plan {
        let hash = match &self.write {
            Write::Put { items, .. } => sum(items),
            Write::Delete { .. } => PlanHash::default(),
        };
        let fragments = self.fragments.iter().map(|fragment| (**fragment).clone()).collect();
        let load_balancer = self.load_balancer.to_string();
        let spec = PlanSpec { load_balancer, hash, fragments, unreadable: 0 };
        let mut plan = Plan::new(&self.name, spec);
        plan.metadata = super::writes::owned(&self.name, &self.load_balancer, uid);
        plan.metadata.resource_version = self.version.clone();
        plan
    }
}

fn stamp(fragment: &Fragment) -> Stamp<PlanHash> {
    Stamp { hash: PlanHash::of(fragment), size: json_size(fragment) }
}

fn nobody() -> ConsumerRef {
    let nothing: Arc<str> = "".into();
    ConsumerRef {
        kind: ConsumerKind::LoadBalancer,
        namespace: Arc::clone(&nothing),
        name: Arc::clone(&nothing),
        uid: nothing,
    }
}

impl Plans {
    /// A consumer wants this now.
    pub(super) fn want(&mut self, consumer: &ConsumerRef, parts: &[Arc<Fragment>]) {
        let all = (consumer.clone(), 0)..=(consumer.clone(), u32::MAX);
        let old: Vec<_> = self.fragments.range(all).map(|(item, _)| item.clone()).collect();
        for item in old {
            self.fragments.remove(&item);
            self.packed.want(item, None);
        }
        for part in parts {
            let item = (consumer.clone(), part.part);
            self.packed.want(item.clone(), Some(stamp(part)));
            self.fragments.insert(item, Arc::clone(part));
        }
    }

    /// An object was seen in a watch.
    pub(super) fn seen(&mut self, plan: PlanSeen) {
        let Some(index) = names::plan_index(&plan.name) else { return };
        if !self.packed.is_news(index, &plan.version) {
            return;
        }
        self.owners.insert(index, plan.owner);
        let items = plan.fragments.iter().map(|it| ((it.consumer.clone(), it.part), stamp(it)));
        let mut items: Items<_, _> = items.collect();
        if plan.unreadable > 0 {
            // Stands for what cannot be read. As nobody wants it, the object is written without it.
            items.insert((nobody(), 0), Stamp { hash: PlanHash::default(), size: 0 });
        }
        self.hashes.insert(index, sum(&items));
        self.packed.seen(index, plan.version, items);
    }

    /// A write was carried out.
    pub(super) fn wrote(&mut self, write: Write<Item, PlanHash>, version: Option<String>) {
        match &write {
            Write::Put { index, items } => self.hashes.insert(*index, sum(items)),
            Write::Delete { index } => self.hashes.remove(index),
        };
        let (Write::Put { index, .. } | Write::Delete { index }) = &write;
        self.owners.remove(index);
        self.packed.wrote(write, version);
    }

    /// An object is gone.
    pub(super) fn gone(&mut self, name: &str) {
        if let Some(index) = names::plan_index(name) {
            self.hashes.remove(&index);
            self.owners.remove(&index);
            self.packed.gone(index);
        }
    }

    /// The hash of all that is written. While a fragment moves it is in two objects and counted twice:
    /// then nobody reports this hash, which proves nothing and harms nothing.
    pub(super) fn hash(&self) -> PlanHash {
        self.hashes.values().fold(PlanHash::default(), |sum, hash| sum.plus(*hash))
    }

    /// Consumers whose fragments are not written as they should be.
    pub(super) fn unwritten(&mut self) -> impl Iterator<Item = &ConsumerRef> {
        self.packed.open().map(|(consumer, _)| consumer)
    }

    /// The names of all objects.
    pub(super) fn names(&self, load_balancer: &str) -> impl Iterator<Item = String> {
        self.packed.indices().map(move |index| names::plan_name(load_balancer, index))
    }

    /// The version of an object that is known.
    pub(super) fn version(&self, name: &str) -> Option<&str> {
        self.packed.version(names::plan_index(name)?)
    }

    /// Whether nothing is wanted and nothing is there.
    pub(super) fn is_empty(&self) -> bool {
        self.packed.is_empty()
    }

    /// Whether all is as wanted.
    pub(super) fn is_settled(&mut self) -> bool {
        self.packed.is_settled()
    }

    /// An object could not be written: the others go on until then.
    pub(super) fn refused(&mut self, name: &str, until: Instant) {
        if let Some(index) = names::plan_index(name) {
            self.packed.refused(index, until);
        }
    }

    /// The next write that may be tried now, or None.
    pub(super) fn next(
        &mut self,
        load_balancer: &Arc<str>,
        uid: Option<&str>,
        now: Instant,
    ) -> Option<PlanWrite> {
        let write = self.packed.next(now).or_else(|| self.adopt(uid?))?;
        let (index, fragments) = match &write {
            Write::Put { index, items } => {
                // What is not wanted any more but still there goes with a later write.
                (
                    *index,
                    items.keys().filter_map(|item| self.fragments.get(item)).cloned().collect(),
                )
            }
            Write::Delete { index } => (*index, Vec::new()),
        };
        Some(PlanWrite {
            name: names::plan_name(load_balancer, index),
            version: self.packed.version(index).map(ToOwned::to_owned),
            load_balancer: Arc::clone(load_balancer),
            write,
            fragments,
        })
    }

    /// An object that belongs to somebody else, perhaps a load balancer of the same name that was
    /// deleted, is written again as it is, with its owner.
    fn adopt(&mut self, uid: &str) -> Option<Write<Item, PlanHash>> {
        let foreign = self.owners.iter().filter(|(_, owner)| owner.as_deref() != Some(uid));
        let index = foreign.map(|(index, _)| *index).find(|index| self.packed.may_write(*index))?;
        if !self.packed.is_settled() {
            return None;
        }
        let items = self.packed.items(index)?.clone();
        Some(Write::Put { index, items })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn consumer() -> ConsumerRef {
        ConsumerRef { name: "edge".into(), uid: "1".into(), ..nobody() }
    }

    fn fragment() -> Fragment {
        Fragment {
            consumer: consumer(),
            part: 0,
            listeners: Vec::new(),
            sites: Vec::new(),
            pools: Vec::new(),
        }
    }

    fn seen(version: &str, owner: &str, unreadable: usize) -> PlanSeen {
        PlanSeen {
            name: "edge-0".to_owned(),
            load_balancer: "edge".into(),
            version: version.to_owned(),
            owner: Some(owner.to_owned()),
            fragments: vec![fragment()],
            unreadable,
        }
    }

    /// The fragments of the next write, and the version that it replaces.
    fn next(plans: &mut Plans, uid: &str) -> Option<(Vec<Fragment>, Option<String>)> {
        let write = plans.next(&"edge".into(), Some(uid), Instant::now())?;
        Some((write.object(uid).spec.fragments, write.version))
    }

    #[test]
    fn a_plan_with_something_that_cannot_be_read_is_written_anew() {
        let mut plans = Plans::default();
        plans.want(&consumer(), &[Arc::new(fragment())]);
        plans.seen(seen("1", "uid", 0));
        assert!(plans.is_settled());
        plans.seen(seen("2", "uid", 1));
        assert_eq!(next(&mut plans, "uid"), Some((vec![fragment()], Some("2".to_owned()))));
        plans.seen(seen("3", "uid", 0));
        assert!(plans.is_settled());
    }

    #[test]
    fn a_plan_that_belongs_to_a_deleted_load_balancer_is_written_again_once() {
        let mut plans = Plans::default();
        plans.want(&consumer(), &[Arc::new(fragment())]);
        plans.seen(seen("1", "old", 0));
        assert_eq!(next(&mut plans, "old"), None);
        assert_eq!(next(&mut plans, "new"), Some((vec![fragment()], Some("1".to_owned()))));
        let (now, wait) = (Instant::now(), std::time::Duration::from_secs(9));
        plans.refused("edge-0", now + wait);
        assert_eq!(next(&mut plans, "new"), None);
        let write = plans.next(&"edge".into(), Some("new"), now + wait).unwrap();
        plans.wrote(write.write, Some("2".to_owned()));
        assert_eq!(next(&mut plans, "new"), None);
    }
}
