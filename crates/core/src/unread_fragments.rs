//! Fragments of Plan objects that another version of Bowline wrote and this version cannot read. Such a fragment stays
//! unchanged while its consumer still wants what it wanted when this leader first planned it: a leader that is older
//! than the agents must not take away what they serve. This module decides when an unread fragment is replaced, and
//! with what; it never writes and never looks into a fragment (`U` is its raw form). The controller's Plans ask it
//! before every write.

use crate::hash::PlanHash;
use crate::key::ConsumerRef;
use crate::shard::{Items, Stamp};
use std::collections::{BTreeMap, BTreeSet};

/// The key of a fragment: its consumer and its part number.
pub type Item = (ConsumerRef, u32);

/// A fragment that this version cannot read, as a Plan object holds it.
#[derive(Clone, Debug)]
pub struct Unreadable<U> {
    /// Its key. A fragment whose consumer cannot be read gets a made-up key.
    pub item: Item,
    /// Whether its consumer can be read.
    pub named: bool,
    /// Its size in the object, in bytes.
    pub size: usize,
    /// Its raw form.
    pub raw: U,
}

/// All unread fragments of one load balancer, by key.
#[derive(Debug)]
pub struct UnreadFragments<U> {
    fragments: BTreeMap<Item, Kept<U>>,
}

#[derive(Debug)]
struct Kept<U> {
    raw: U,
    named: bool,
    stamp: Stamp<PlanHash>,
    /// The hash of the fragment that this leader planned in its place when it began to write. None before that.
    instead: Option<PlanHash>,
}

impl<U> Default for UnreadFragments<U> {
    fn default() -> Self {
        Self { fragments: BTreeMap::new() }
    }
}

impl<U: Clone + PartialEq> UnreadFragments<U> {
    /// Whether there are no unread fragments.
    pub fn is_empty(&self) -> bool {
        self.fragments.is_empty()
    }

    /// Forgets a fragment that its consumer no longer wants.
    pub fn forget(&mut self, item: &Item) {
        self.fragments.remove(item);
    }

    /// The planner planned a fragment. Returns the stamp to record: the unread fragment's, unless what is planned has
    /// changed since `compare`. Then the unread fragment is forgotten and the planned one recorded.
    pub fn want(&mut self, item: &Item, planned: Stamp<PlanHash>) -> Stamp<PlanHash> {
        let changed = |it: &Kept<U>| it.instead.is_some_and(|instead| instead != planned.hash);
        if self.fragments.get(item).is_some_and(changed) {
            self.fragments.remove(item);
        }
        self.fragments.get(item).map_or(planned, |kept| kept.stamp)
    }

    /// Takes in a Plan object with unread fragments. `hash` is the object's recorded hash, `items` its readable
    /// fragments, `held` what it held before, and `planned` what this version plans for an item. Adds the unread
    /// fragments to `items`, and returns the items whose wanted stamp changes. None as a stamp: the item is no longer
    /// wanted.
    pub fn adopt(
        &mut self,
        hash: PlanHash,
        unread: Vec<Unreadable<U>>,
        items: &mut Items<Item, PlanHash>,
        held: &[Item],
        planned: impl Fn(&Item) -> Option<Stamp<PlanHash>>,
    ) -> Vec<(Item, Option<Stamp<PlanHash>>)> {
        let mut wanted = Vec::new();
        let all: Vec<_> = unread.iter().map(|it| it.raw.clone()).collect();
        // The Plan's hash is the sum of its fragments' hashes. What the known fragments leave of it goes to the first
        // unread one, and the others get zero.
        let mut rest = items.values().fold(hash, |rest, stamp| rest.minus(stamp.hash));
        for Unreadable { item, named, size, raw } in unread {
            let stamp = Stamp { hash: std::mem::take(&mut rest), size };
            items.insert(item.clone(), stamp);
            let before = self.fragments.get(&item).filter(|it| it.raw == raw);
            let instead = before.and_then(|it| it.instead);
            // An unread fragment is removed with its consumer. One whose consumer cannot be read stays.
            if !named || planned(&item).is_some() {
                wanted.push((item.clone(), Some(stamp)));
            }
            self.fragments.insert(item, Kept { raw, named, stamp, instead });
        }
        // An unread fragment that the object no longer holds, or that is readable now, is forgotten: this version plans
        // that item again.
        let gone = held
            .iter()
            .filter(|item| self.fragments.contains_key(*item) && !items.contains_key(*item));
        let read = items
            .keys()
            .filter(|item| self.fragments.get(*item).is_some_and(|kept| !all.contains(&kept.raw)));
        for item in gone.chain(read).cloned().collect::<Vec<_>>() {
            self.fragments.remove(&item);
            let own = planned(&item);
            wanted.push((item, own));
        }
        wanted
    }

    /// Called when this leader begins to write. Notes what it plans in place of each unread fragment. Returns the
    /// fragments whose recorded hash equals the planned one: a person edited them, so they are written again.
    pub fn compare(
        &mut self,
        planned: impl Fn(&Item) -> Option<Stamp<PlanHash>>,
    ) -> Vec<(Item, Stamp<PlanHash>)> {
        let mut edited = Vec::new();
        for (item, kept) in self.fragments.iter_mut().filter(|(_, it)| it.instead.is_none()) {
            let Some(planned) = planned(item) else { continue };
            kept.instead = Some(planned.hash);
            if kept.stamp.hash == planned.hash {
                edited.push((item.clone(), planned));
            }
        }
        for (item, _) in &edited {
            self.fragments.remove(item);
        }
        edited
    }

    /// Agents cannot read the fragments of these consumers either, so this version's fragments replace them. Returns
    /// the replaced items; an item that is not planned is kept.
    pub fn give_up(
        &mut self,
        consumers: &BTreeSet<ConsumerRef>,
        planned: impl Fn(&Item) -> bool,
    ) -> Vec<Item> {
        let items = self.fragments.keys();
        let items = items.filter(|item| consumers.contains(&item.0) && planned(item));
        let items: Vec<_> = items.cloned().collect();
        for item in &items {
            self.fragments.remove(item);
        }
        items
    }

    /// The hash of the plan as it is written, with the unread fragments. `hash` is the hash of what this version plans.
    pub fn hash(
        &self,
        hash: PlanHash,
        planned: impl Fn(&Item) -> Option<Stamp<PlanHash>>,
    ) -> PlanHash {
        self.fragments.iter().fold(hash, |hash, (item, kept)| match planned(item) {
            Some(planned) => hash.minus(planned.hash).plus(kept.stamp.hash),
            None if !kept.named => hash.plus(kept.stamp.hash),
            None => hash,
        })
    }

    /// The unread fragment to write for an item with this stamp. None: this version writes its own.
    pub fn raw(&self, item: &Item, stamp: &Stamp<PlanHash>) -> Option<&U> {
        self.fragments.get(item).filter(|kept| kept.stamp == *stamp).map(|kept| &kept.raw)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::ConsumerKind;
    use crate::plan::Fragment;

    fn item(name: &str) -> Item {
        let kind = ConsumerKind::Service;
        let (namespace, name) = ("shop".into(), name.into());
        (ConsumerRef { kind, namespace, name, uid: "u".into() }, 0)
    }

    fn hash(text: &str) -> PlanHash {
        let consumer = item(text).0;
        let (listeners, sites, pools) = Default::default();
        PlanHash::of(&Fragment { consumer, part: 0, claimed: false, listeners, sites, pools })
    }

    fn stamp(text: &str) -> Stamp<PlanHash> {
        Stamp { hash: hash(text), size: 10 }
    }

    fn unread(name: &str, raw: &'static str) -> Unreadable<&'static str> {
        Unreadable { item: item(name), named: true, size: 20, raw }
    }

    /// One unread fragment of consumer `web`; this version plans `ours` in its place.
    fn one() -> (UnreadFragments<&'static str>, Stamp<PlanHash>) {
        let mut foreign = UnreadFragments::default();
        let theirs = stamp("theirs");
        let mut items = Items::default();
        let planned = |_: &Item| Some(stamp("ours"));
        let wanted =
            foreign.adopt(theirs.hash, vec![unread("web", "raw")], &mut items, &[], planned);
        let kept = Stamp { hash: theirs.hash, size: 20 };
        assert_eq!(wanted, [(item("web"), Some(kept))]);
        assert_eq!(items.get(&item("web")), Some(&kept));
        (foreign, kept)
    }

    #[test]
    fn an_unread_fragment_stays_until_its_consumer_wants_something_else() {
        let (mut foreign, kept) = one();
        assert_eq!(foreign.compare(|_| Some(stamp("ours"))), []);
        assert_eq!(foreign.want(&item("web"), stamp("ours")), kept);
        assert_eq!(foreign.raw(&item("web"), &kept), Some(&"raw"));
        assert_eq!(foreign.want(&item("web"), stamp("other")), stamp("other"));
        assert!(foreign.is_empty());
    }

    #[test]
    fn a_fragment_with_the_hash_of_this_versions_plan_was_edited_and_is_written_again() {
        let (mut foreign, _) = one();
        let edited = foreign.compare(|_| Some(stamp("theirs")));
        assert_eq!(edited, [(item("web"), stamp("theirs"))]);
        assert!(foreign.is_empty());
    }

    #[test]
    fn a_fragment_that_is_gone_from_its_object_is_this_versions_again() {
        let (mut foreign, _) = one();
        let (mut items, held) = (Items::default(), [item("web")]);
        let hash = PlanHash::default();
        let wanted = foreign.adopt(hash, Vec::new(), &mut items, &held, |_| Some(stamp("ours")));
        assert_eq!(wanted, [(item("web"), Some(stamp("ours")))]);
        assert!(foreign.is_empty());
    }

    #[test]
    fn what_agents_cannot_read_either_is_given_up_where_this_version_plans_it() {
        let (mut foreign, _) = one();
        let consumers = BTreeSet::from([item("web").0]);
        assert_eq!(foreign.give_up(&consumers, |_| false), []);
        assert_eq!(foreign.give_up(&BTreeSet::new(), |_| true), []);
        assert_eq!(foreign.give_up(&consumers, |_| true), [item("web")]);
        assert!(foreign.is_empty());
    }

    #[test]
    fn the_hash_of_the_plan_counts_what_is_written_in_place_of_what_is_planned() {
        let (mut foreign, kept) = one();
        let other = hash("another fragment");
        let (own, written) = (other.plus(stamp("ours").hash), other.plus(kept.hash));
        assert_eq!(foreign.hash(own, |_| Some(stamp("ours"))), written);
        // A consumer that is deleted takes its unread fragment along.
        assert_eq!(foreign.hash(other, |_| None), other);
        let nameless = Unreadable { named: false, ..unread("nameless", "raw") };
        let mut items = Items::default();
        let hash = stamp("nameless").hash;
        foreign.adopt(hash, vec![nameless], &mut items, &[], |_| None);
        assert_eq!(foreign.hash(other, |_| None), other.plus(hash));
    }
}
