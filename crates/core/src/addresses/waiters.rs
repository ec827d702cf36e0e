//! What requesters wait for, the oldest first. When an address becomes free, only the requesters that wait for it are
//! looked at, one after the other, until it is taken again.

use super::record::Age;
use crate::objects::Family;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::Bound;
use std::sync::Arc;

/// What a requester waits for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Wait {
    /// This address, to have it or to share it.
    Address(IpAddr),
    /// A free address of a family of a pool.
    Space(Arc<str>, Family),
    /// Room on an address that is shared under this key.
    Key(Arc<str>),
    /// That the namespace may have one more address of the pool.
    Quota(Arc<str>, Arc<str>),
    /// That the namespace has no more than its quota of the pool. The requester exchanges an address of the pool for
    /// another one, so it needs no room in the quota.
    Move(Arc<str>, Arc<str>),
}

#[derive(Debug, Default)]
pub(super) struct Waiters {
    waiting: FxHashMap<Wait, BTreeSet<Age>>,
    /// What became free, and the youngest requester to which it has been offered.
    woken: BTreeMap<Wait, Option<Age>>,
}

impl Waiters {
    pub(super) fn add(&mut self, wait: Wait, age: Age) {
        self.waiting.entry(wait).or_default().insert(age);
    }

    pub(super) fn remove(&mut self, wait: &Wait, age: &Age) {
        if let Some(ages) = self.waiting.get_mut(wait) {
            ages.remove(age);
            if ages.is_empty() {
                self.waiting.remove(wait);
            }
        }
    }

    /// Something became free: it will be offered to its waiters, the oldest first.
    pub(super) fn wake(&mut self, wait: Wait) {
        if self.waiting.contains_key(&wait) {
            self.woken.insert(wait, None);
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.woken.is_empty()
    }

    /// The oldest waiter to which something free has not been offered yet. Forgets what is no longer free, and what
    /// all its waiters have been offered.
    pub(super) fn oldest(&mut self, is_free: impl Fn(&Wait) -> bool) -> Option<Age> {
        let (waiting, mut oldest) = (&self.waiting, None::<Age>);
        self.woken.retain(|wait, offered| {
            if !is_free(wait) {
                return false;
            }
            let Some(ages) = waiting.get(wait) else { return false };
            let from = offered.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
            let Some(next) = ages.range((from, Bound::Unbounded)).next() else { return false };
            if oldest.as_ref().is_none_or(|oldest| next < oldest) {
                oldest = Some(next.clone());
            }
            true
        });
        oldest
    }

    /// Everything that a requester waits for has been offered to it.
    pub(super) fn offered(&mut self, age: &Age) {
        for offered in self.woken.values_mut() {
            if offered.as_ref().is_none_or(|before| before < age) {
                *offered = Some(age.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addresses::record::{HolderKey, HolderKind};
    use crate::key::ObjectKey;

    fn age(created: i64) -> Age {
        let who = HolderKey { key: ObjectKey::new("shop", "web"), kind: HolderKind::Service };
        Age { created, holder: who }
    }

    #[test]
    fn what_becomes_free_is_offered_to_the_oldest_until_it_is_gone() {
        let mut waiters = Waiters::default();
        let space = |pool: &str| Wait::Space(pool.into(), Family::V4);
        for created in [3, 1, 2] {
            waiters.add(space("a"), age(created));
        }
        waiters.add(space("b"), age(0));
        waiters.wake(space("a"));
        waiters.wake(space("nobody waits for it"));
        assert_eq!(waiters.oldest(|_| true), Some(age(1)));
        waiters.offered(&age(1));
        assert_eq!(waiters.oldest(|_| true), Some(age(2)));
        waiters.offered(&age(2));
        assert_eq!(waiters.oldest(|_| false), None);
        assert_eq!(waiters.oldest(|_| true), None, "what was gone is not on offer again");
    }
}
