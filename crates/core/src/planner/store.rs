//! The objects of one kind, as the planner last observed them. It finds out whether an object
//! really changed, and which objects a list did not deliver. It knows nothing of their meaning.

use crate::relist::{Epoch, Relist};
use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::ops::RangeBounds;
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Store<K, T> {
    entries: BTreeMap<K, Entry<T>>,
    relist: Relist,
}

#[derive(Debug)]
struct Entry<T> {
    object: Arc<T>,
    epoch: Epoch,
}

/// A changed object: as it was, and as it is.
#[derive(Debug, PartialEq)]
pub(super) struct Replaced<T> {
    pub(super) old: Option<Arc<T>>,
    pub(super) new: Option<Arc<T>>,
}

impl<T> Replaced<T> {
    /// The object as it is, or as it last was.
    pub(super) fn either(&self) -> Option<&T> {
        self.new.as_deref().or(self.old.as_deref())
    }
}

impl<K, T> Default for Store<K, T> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), relist: Relist::default() }
    }
}

impl<K: Ord, T: PartialEq> Store<K, T> {
    /// A list begins.
    pub(super) fn begin(&mut self) {
        self.relist.begin();
    }

    /// A list has ended: objects that it did not deliver are deleted.
    pub(super) fn done(&mut self) -> Vec<Replaced<T>> {
        self.relist.done();
        let relist = self.relist;
        self.entries
            .extract_if(.., |_, entry| relist.has_missed(entry.epoch))
            .map(|(_, entry)| Replaced { old: Some(entry.object), new: None })
            .collect()
    }

    /// Whether all objects have been listed once.
    pub(super) fn is_listed(&self) -> bool {
        self.relist.is_listed()
    }

    /// Applies an object. None: it did not change.
    pub(super) fn apply(&mut self, key: K, object: T) -> Option<Replaced<T>> {
        let epoch = self.relist.epoch();
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.epoch = epoch;
            if *entry.object == object {
                return None;
            }
            let new = Arc::new(object);
            let old = std::mem::replace(&mut entry.object, new.clone());
            return Some(Replaced { old: Some(old), new: Some(new) });
        }
        let new = Arc::new(object);
        self.entries.insert(key, Entry { object: new.clone(), epoch });
        Some(Replaced { old: None, new: Some(new) })
    }

    /// Deletes an object. None: it did not exist.
    pub(super) fn delete<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<Replaced<T>>
    where
        K: Borrow<Q>,
    {
        let entry = self.entries.remove(key)?;
        Some(Replaced { old: Some(entry.object), new: None })
    }

    pub(super) fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&Arc<T>>
    where
        K: Borrow<Q>,
    {
        self.entries.get(key).map(|entry| &entry.object)
    }

    pub(super) fn range(&self, range: impl RangeBounds<K>) -> impl Iterator<Item = (&K, &Arc<T>)> {
        self.entries.range(range).map(|(key, entry)| (key, &entry.object))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<T>> {
        self.entries.values().map(|entry| &entry.object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store_of(pairs: &[(u8, u8)]) -> Store<u8, u8> {
        let mut store = Store::default();
        for (key, value) in pairs {
            store.apply(*key, *value);
        }
        store
    }

    #[test]
    fn an_equal_object_is_no_change() {
        let mut store = store_of(&[(1, 10)]);
        assert_eq!(store.apply(1, 10), None);
        let changed = Replaced { old: Some(Arc::new(10)), new: Some(Arc::new(11)) };
        assert_eq!(store.apply(1, 11), Some(changed));
    }

    #[test]
    fn what_a_list_leaves_out_is_gone() {
        let mut store = store_of(&[(1, 10), (2, 20)]);
        store.begin();
        assert_eq!(store.apply(2, 20), None);
        assert_eq!(store.done(), [Replaced { old: Some(Arc::new(10)), new: None }]);
        assert_eq!(store.iter().map(|value| **value).collect::<Vec<_>>(), [20]);
    }

    #[test]
    fn a_list_that_starts_over_forgets_what_the_broken_one_told() {
        let mut store = store_of(&[(1, 10), (2, 20)]);
        store.begin();
        store.apply(1, 10);
        store.begin();
        store.apply(2, 20);
        assert_eq!(store.done().len(), 1);
        assert_eq!(store.get(&1), None);
    }

    #[test]
    fn an_end_without_a_beginning_takes_nothing_away() {
        let mut store = store_of(&[(1, 10)]);
        assert!(!store.is_listed());
        assert_eq!(store.done(), []);
        assert!(store.is_listed());
    }
}
