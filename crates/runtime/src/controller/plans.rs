//! The Plan objects of one load balancer: what they hold, what they should hold, and the next write. It does no I/O;
//! `State::next` asks it.

use super::observed::PlanSeen;
use super::packed::Packed;
use bowline_api::plan::Unread;
use bowline_api::{Plan, PlanSpec, names};
use bowline_core::clock::Uptime;
use bowline_core::hash::PlanHash;
use bowline_core::held_back::{HeldBack, Ready};
use bowline_core::key::{ConsumerKind, ConsumerRef};
use bowline_core::objects::Carrier;
use bowline_core::plan::Fragment;
use bowline_core::planner::Record;
use bowline_core::shard::{Items, Shards, Stamp, Write, json_size};
use bowline_core::unread_fragments::{Item, UnreadFragments, Unreadable};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The most bytes of fragments in one object, unless one fragment is larger. An object is written, checked and read as
/// a whole for every change in it; small objects keep a change cheap when there are many consumers.
const LARGEST: usize = 64 * 1024;
/// A fragment that grows leaves an object larger than this. Below it the fragment stays, so that a change is one write
/// that waits for no other object.
const GROWN: usize = 4 * LARGEST;

/// The state of one load balancer's Plans.
#[derive(Debug)]
pub(super) struct Plans {
    packed: Packed<Item, PlanHash>,
    fragments: BTreeMap<Item, OwnFragment>,
    /// Fragments of another version that this one cannot read. They stay unchanged.
    unread: UnreadFragments<Unread>,
    /// Items that may have to be written, with the change in which they were last planned.
    unwritten: BTreeSet<(u64, Item)>,
    /// The hash of each object.
    hashes: BTreeMap<u32, PlanHash>,
    /// What each object says that agents have to run; an object that says nothing has no entry.
    drivers: BTreeMap<u32, Box<str>>,
    /// Consumers whose fragments wait for certificates.
    held_back: HeldBack,
}

/// A fragment that this version plans.
#[derive(Debug)]
struct OwnFragment {
    fragment: Arc<Fragment>,
    stamp: Stamp<PlanHash>,
    /// The change in which it was planned.
    change: u64,
}

impl Default for Plans {
    fn default() -> Self {
        Self {
            packed: Packed::new(Shards::new(LARGEST).growing_to(GROWN), |(consumer, _)| {
                Arc::clone(&consumer.namespace)
            }),
            fragments: BTreeMap::new(),
            unread: UnreadFragments::default(),
            unwritten: BTreeSet::new(),
            hashes: BTreeMap::new(),
            drivers: BTreeMap::new(),
            held_back: HeldBack::default(),
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
    /// The version that it replaces. None: the Plan is created.
    pub(super) version: Option<String>,
    /// What the agents of the load balancer have to run.
    pub(super) carrier: Option<Carrier>,
    load_balancer: Arc<str>,
    fragments: Vec<Arc<Fragment>>,
    unread: Vec<Unread>,
}

impl PlanWrite {
    /// The record of what consumers hold in the object after the write.
    pub(super) fn record(&self) -> Record {
        let unread: Vec<_> = self.unread.iter().filter_map(Unread::holds).collect();
        let fragments = self.fragments.iter().map(|fragment| &**fragment).chain(&unread);
        Record::new(Arc::clone(&self.load_balancer), self.write.index(), fragments)
    }

    /// Whether the object is deleted.
    pub(super) fn is_deletion(&self) -> bool {
        matches!(self.write, Write::Delete { .. })
    }

    /// The object, owned by the load balancer with this uid.
    pub(super) fn object(&self, uid: &str) -> Plan {
        let hash = match &self.write {
            Write::Put { items, .. } => sum(items),
            Write::Delete { .. } => PlanHash::default(),
        };
        let fragments = self.fragments.iter().map(|fragment| (**fragment).clone()).collect();
        let load_balancer = self.load_balancer.to_string();
        let spec = PlanSpec { load_balancer, hash, fragments, unread: self.unread.clone() };
        let mut plan = Plan::new(&self.name, spec);
        plan.metadata = super::writer::owned(&self.name, &self.load_balancer, uid);
        plan.metadata.resource_version = self.version.clone();
        plan.metadata.annotations = self
            .carrier
            .map(|it| [(names::ANNOTATION_DRIVER.to_owned(), it.name().to_owned())].into());
        plan
    }
}

fn stamp(fragment: &Fragment) -> Stamp<PlanHash> {
    Stamp { hash: PlanHash::of(fragment), size: json_size(fragment) }
}

/// The stamp of the fragment that is planned for an item.
fn stamps(fragments: &BTreeMap<Item, OwnFragment>) -> impl Fn(&Item) -> Option<Stamp<PlanHash>> {
    |item| fragments.get(item).map(|planned| planned.stamp)
}

fn no_consumer() -> ConsumerRef {
    let nothing: Arc<str> = "".into();
    ConsumerRef {
        kind: ConsumerKind::LoadBalancer,
        namespace: Arc::clone(&nothing),
        name: Arc::clone(&nothing),
        uid: nothing,
    }
}

/// The key of an unread fragment whose consumer cannot be read. Its text takes the place of the uid.
fn nameless(unread: &Unread) -> Item {
    (ConsumerRef { uid: unread.raw.to_string().into(), ..no_consumer() }, 0)
}

impl Plans {
    /// Records what a consumer wants as of this change. If it names a missing certificate, the consumer keeps its old
    /// fragments until [`Self::release`].
    pub(super) fn want_certified(
        &mut self,
        consumer: &ConsumerRef,
        parts: &[Arc<Fragment>],
        change: u64,
        lacks: impl Fn(&Arc<str>) -> bool,
    ) {
        if !self.held_back.hold(consumer, parts, change, lacks) {
            self.want(consumer, parts, change);
        }
    }

    /// Releases consumers that have their certificates or have waited long enough. Returns whether there were any.
    pub(super) fn release(&mut self, lacks: impl Fn(&Arc<str>) -> bool, now: Uptime) -> bool {
        // A fragment of a former leader is known by its hash only: a write of its object could not contain it, and
        // must not remove it. So its consumer may not wait.
        let may_wait = |consumer: &ConsumerRef| {
            let first = (consumer.clone(), 0);
            self.fragments.contains_key(&first) || !self.packed.holds(&first)
        };
        let ready = self.held_back.take(lacks, may_wait, now);
        for Ready { consumer, parts, change } in &ready {
            self.want(consumer, parts, *change);
        }
        !ready.is_empty()
    }

    /// When the first waiting consumer has waited long enough for certificates.
    pub(super) fn held_back_until(&self) -> Option<Uptime> {
        self.held_back.until()
    }

    /// Records what a consumer wants as of this change.
    fn want(&mut self, consumer: &ConsumerRef, parts: &[Arc<Fragment>], change: u64) {
        let all = (consumer.clone(), 0)..=(consumer.clone(), u32::MAX);
        let old = self.fragments.range(all).map(|(item, _)| item);
        let gone = old.filter(|(_, number)| parts.iter().all(|part| part.part != *number));
        for item in gone.cloned().collect::<Vec<_>>() {
            self.fragments.remove(&item);
            self.unread.forget(&item);
            self.packed.want(item.clone(), None);
            self.unwritten.insert((change, item));
        }
        for part in parts {
            let item = (consumer.clone(), part.part);
            let (fragment, stamp) = (Arc::clone(part), stamp(part));
            let recorded = self.unread.want(&item, stamp);
            self.packed.want(item.clone(), Some(recorded));
            self.fragments.insert(item.clone(), OwnFragment { fragment, stamp, change });
            self.unwritten.insert((change, item));
        }
    }

    /// Whether this version of an object is newer than the known one.
    pub(super) fn is_news(&self, name: &str, version: &str) -> bool {
        names::plan_index(name).is_some_and(|index| self.packed.is_news(index, version))
    }

    /// Records an observed Plan.
    pub(super) fn seen(&mut self, plan: PlanSeen) {
        let Some(index) = names::plan_index(&plan.name) else { return };
        if !self.packed.is_news(index, &plan.version) {
            return;
        }
        let items = plan.fragments.iter().map(|it| {
            let item = (it.consumer.clone(), it.part);
            // A fragment that is as planned is not measured again.
            let planned = self.fragments.get(&item).filter(|planned| *planned.fragment == *it);
            let stamp = planned.map_or_else(|| stamp(it), |planned| planned.stamp);
            (item, stamp)
        });
        let mut items: Items<_, _> = items.collect();
        if plan.unreadable || self.is_edited(&plan, sum(&items)) {
            // Takes the place of what cannot be read. Nothing wants it, so the object is written again without it.
            items.insert((no_consumer(), 0), Stamp { hash: PlanHash::default(), size: 0 });
        } else {
            self.adopt(index, &plan, &mut items);
        }
        self.hashes.insert(index, sum(&items));
        self.set_driver(index, plan.driver);
        self.suspect(index);
        self.packed.seen(index, plan.version, plan.owner, items);
        self.suspect(index);
    }

    /// Whether a person edited fragments so that they cannot be read. Then the recorded hash is still the hash of what
    /// this version plans.
    fn is_edited(&self, plan: &PlanSeen, readable: PlanHash) -> bool {
        let known = plan.unread.iter().filter_map(|it| self.fragments.get(it.item.as_ref()?));
        let ours = known.fold(readable, |sum, planned| sum.plus(planned.stamp.hash));
        !plan.unread.is_empty() && ours == plan.hash
    }

    /// Hands the fragments that cannot be read to `unread`.
    fn adopt(&mut self, index: u32, plan: &PlanSeen, items: &mut Items<Item, PlanHash>) {
        let unread = plan.unread.iter().map(|unread| Unreadable {
            item: unread.item.clone().unwrap_or_else(|| nameless(unread)),
            named: unread.item.is_some(),
            // One more than the text, so that the stamp never equals that of the same text as a planned fragment.
            size: json_size(&unread.raw) + 1,
            raw: unread.clone(),
        });
        let held = self.packed.items(index).into_iter().flatten();
        let held: Vec<_> = held.map(|(item, _)| item.clone()).collect();
        let planned = stamps(&self.fragments);
        let wanted = self.unread.adopt(plan.hash, unread.collect(), items, &held, planned);
        for (item, stamp) in wanted {
            self.packed.want(item, stamp);
        }
    }

    /// Whether there are fragments that another version wrote and this one cannot read.
    pub(super) fn has_foreign(&self) -> bool {
        !self.unread.is_empty()
    }

    /// Replaces unread fragments that agents cannot read either by what this leader plans. Returns the consumers for
    /// which it did.
    pub(super) fn plan_anew(
        &mut self,
        consumers: &BTreeSet<ConsumerRef>,
        change: u64,
    ) -> BTreeSet<ConsumerRef> {
        let items = self.unread.give_up(consumers, |item| self.fragments.contains_key(item));
        let mut anew = BTreeSet::new();
        for item in items {
            let Some(planned) = self.fragments.get_mut(&item) else { continue };
            planned.change = change;
            self.packed.want(item.clone(), Some(planned.stamp));
            anew.insert(item.0.clone());
            self.unwritten.insert((change, item));
        }
        anew
    }

    /// The hash of the plan as it is written, with unread fragments; `hash` is the hash of what this version plans.
    pub(super) fn with_foreign(&self, hash: PlanHash) -> PlanHash {
        self.unread.hash(hash, stamps(&self.fragments))
    }

    /// Marks the items of an object: they may have to be written again.
    fn suspect(&mut self, index: u32) {
        let held = self.packed.items(index).into_iter().flatten();
        let planned = held.filter_map(|(item, _)| {
            self.fragments.get(item).map(|planned| (planned.change, item.clone()))
        });
        self.unwritten.extend(planned);
    }

    /// Marks fragments of a former leader as unwritten as of this change. Until they are removed or wanted again, no
    /// written hash proves the change.
    pub(super) fn doubt(&mut self, consumers: &BTreeSet<ConsumerRef>, change: u64) {
        let held = self.packed.held().filter(|(consumer, _)| consumers.contains(consumer));
        self.unwritten.extend(held.map(|item| (change, item.clone())));
    }

    /// Records a write that was carried out.
    pub(super) fn wrote(
        &mut self,
        write: Write<Item, PlanHash>,
        version: Option<String>,
        carrier: Option<Carrier>,
    ) {
        let index = write.index();
        let is_news = version.as_deref().is_none_or(|version| self.packed.is_news(index, version));
        // Also where the write changed nothing, so that it is not repeated.
        if is_news || version.as_deref() == self.packed.version(index) {
            let carrier = carrier.filter(|_| write.items().is_some());
            self.set_driver(index, carrier.map(|it| it.name().into()));
        }
        // The watch may already have shown this version or a newer one.
        if !is_news {
            return;
        }
        match write.items() {
            Some(items) => self.hashes.insert(index, sum(items)),
            None => self.hashes.remove(&index),
        };
        self.packed.wrote(write, version);
        // A fragment that changed while the write was under way may have changed back.
        self.suspect(index);
    }

    fn set_driver(&mut self, index: u32, driver: Option<Box<str>>) {
        match driver {
            Some(driver) => drop(self.drivers.insert(index, driver)),
            None => drop(self.drivers.remove(&index)),
        }
    }

    /// Whether the known object differs from what the write would put there.
    pub(super) fn lacks(&self, write: &Write<Item, PlanHash>) -> bool {
        write.items() != self.packed.items(write.index())
    }

    /// Records that an object is deleted.
    pub(super) fn gone(&mut self, name: &str) {
        if let Some(index) = names::plan_index(name) {
            self.hashes.remove(&index);
            self.drivers.remove(&index);
            self.suspect(index);
            self.packed.gone(index);
        }
    }

    /// The hash of all objects together. A fragment that moves is in two objects and counted twice for a moment. No
    /// agent reports that hash, so it proves nothing and does no harm.
    pub(super) fn hash(&self) -> PlanHash {
        self.hashes.values().fold(PlanHash::default(), |sum, hash| sum.plus(*hash))
    }

    /// The first change that is not written completely, of those that are still wanted.
    pub(super) fn first_unwritten(&mut self) -> Option<u64> {
        let open = self.first_open();
        open.into_iter().chain(self.held_back.first_change()).min()
    }

    fn first_open(&mut self) -> Option<u64> {
        while let Some((change, item)) = self.unwritten.first() {
            let last = self.fragments.get(item).is_none_or(|planned| planned.change == *change);
            if last && self.packed.is_open(item) {
                return Some(*change);
            }
            self.unwritten.pop_first();
        }
        None
    }

    /// The names of all objects.
    pub(super) fn names(&self, load_balancer: &str) -> impl Iterator<Item = String> {
        self.packed.indices().map(move |index| names::plan_name(load_balancer, index))
    }

    /// Whether the object of this number exists.
    pub(super) fn exists(&self, index: u32) -> bool {
        self.packed.version(index).is_some()
    }

    /// The known version of an object.
    pub(super) fn version(&self, name: &str) -> Option<&str> {
        self.packed.version(names::plan_index(name)?)
    }

    /// Whether nothing is wanted and no object exists.
    pub(super) fn is_empty(&self) -> bool {
        self.packed.is_empty() && self.held_back.is_empty()
    }

    /// Whether every object is as it is wanted.
    pub(super) fn is_settled(&self) -> bool {
        self.packed.is_settled() && self.held_back.is_empty()
    }

    /// Records that an object's write failed. The other objects go on; this one is retried at `until`.
    pub(super) fn refused(&mut self, name: &str, until: Uptime) {
        if let Some(index) = names::plan_index(name) {
            self.packed.refused(index, until);
        }
    }

    /// The next write that may be tried now.
    pub(super) fn next(
        &mut self,
        load_balancer: &Arc<str>,
        uid: Option<&str>,
        now: Uptime,
    ) -> Option<PlanWrite> {
        for (item, stamp) in self.unread.compare(stamps(&self.fragments)) {
            self.packed.want(item, Some(stamp));
        }
        let write = self.packed.next(uid, now)?;
        Some(self.fill(load_balancer, write))
    }

    /// The next write of an object that is as it is wanted, except that it does not say what agents have to run: an
    /// earlier version wrote it, or the load balancer has another source now.
    pub(super) fn next_driver(
        &self,
        load_balancer: &Arc<str>,
        carrier: Option<Carrier>,
    ) -> Option<PlanWrite> {
        let needed = carrier.map(Carrier::name);
        let differs = |index: &u32| self.drivers.get(index).map(|it| &**it) != needed;
        let write = self.packed.indices().filter(differs).find_map(|it| self.packed.again(it))?;
        Some(self.fill(load_balancer, write))
    }

    /// A write with the fragments that it names.
    fn fill(&self, load_balancer: &Arc<str>, write: Write<Item, PlanHash>) -> PlanWrite {
        let index = write.index();
        let (mut fragments, mut unread) = (Vec::new(), Vec::new());
        for (item, stamp) in write.items().into_iter().flatten() {
            match (self.unread.raw(item, stamp), self.fragments.get(item)) {
                (Some(raw), _) => unread.push(raw.clone()),
                (None, Some(planned)) => fragments.push(Arc::clone(&planned.fragment)),
                (None, None) => {}
            }
        }
        PlanWrite {
            name: names::plan_name(load_balancer, index),
            version: self.packed.version(index).map(ToOwned::to_owned),
            carrier: None,
            load_balancer: Arc::clone(load_balancer),
            write,
            fragments,
            unread,
        }
    }
}

#[cfg(test)]
mod tests;
