//! Small records of the objects that a watch has delivered, by key. A relist is mark-and-sweep: a
//! record that the new list does not deliver is removed when the list ends. Every index uses it; it
//! knows nothing about the meaning of the records.

use kube::runtime::watcher::Event;
use std::collections::BTreeMap;

/// What an index keeps of an object.
pub(super) trait Record: PartialEq {
    /// Whether this record replaces `known`. A record with a revision returns false when it is older
    /// than `known`: the answer to a write can arrive before the watch's event.
    fn supersedes(&self, _known: &Self) -> bool {
        true
    }
}

/// Records by key.
#[derive(Debug)]
pub(super) struct Table<K, V> {
    rows: BTreeMap<K, (u64, V)>,
    epoch: u64,
    complete: bool,
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Self { rows: BTreeMap::new(), epoch: 0, complete: false }
    }
}

/// A key whose record changed, with the record it had before.
pub(super) type Change<K, V> = (K, Option<V>);

impl<K: Ord + Clone, V: Record> Table<K, V> {
    /// Takes in an event, and returns the changed records. A record equal to the known one is not a
    /// change.
    pub(super) fn observe(&mut self, event: Event<(K, V)>) -> Vec<Change<K, V>> {
        match event {
            Event::Init => {
                self.epoch += 1;
                Vec::new()
            }
            Event::Apply((key, value)) | Event::InitApply((key, value)) => {
                self.apply(key, value).into_iter().collect()
            }
            Event::Delete((key, _)) => {
                let old = self.rows.remove(&key);
                old.map(|(_, old)| (key, Some(old))).into_iter().collect()
            }
            Event::InitDone => {
                self.complete = true;
                let epoch = self.epoch;
                self.rows
                    .extract_if(.., |_, (seen, _)| *seen < epoch)
                    .map(|(key, (_, old))| (key, Some(old)))
                    .collect()
            }
        }
    }

    fn apply(&mut self, key: K, value: V) -> Option<Change<K, V>> {
        let epoch = self.epoch;
        match self.rows.get_mut(&key) {
            Some((seen, known)) => {
                *seen = epoch;
                if *known == value || !value.supersedes(known) {
                    return None;
                }
                let old = std::mem::replace(known, value);
                Some((key, Some(old)))
            }
            None => {
                self.rows.insert(key.clone(), (epoch, value));
                Some((key, None))
            }
        }
    }

    /// Whether a whole list was observed.
    pub(super) fn complete(&self) -> bool {
        self.complete
    }

    /// The record under a key.
    pub(super) fn get<Q>(&self, key: &Q) -> Option<&V>
    where
        K: std::borrow::Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.rows.get(key).map(|(_, value)| value)
    }

    /// All records in order of their keys.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.rows.iter().map(|(key, (_, value))| (key, value))
    }

    /// The records from `start` on, in order of their keys.
    pub(super) fn from<'a>(
        &'a self,
        start: &K,
    ) -> impl Iterator<Item = (&'a K, &'a V)> + use<'a, K, V> {
        self.rows.range(start..).map(|(key, (_, value))| (key, value))
    }

    /// Removes and returns all records.
    pub(super) fn into_changes(self) -> Vec<Change<K, V>> {
        self.rows.into_iter().map(|(key, (_, old))| (key, Some(old))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Record for u32 {
        fn supersedes(&self, known: &Self) -> bool {
            self > known
        }
    }

    fn rows(table: &Table<&'static str, u32>) -> Vec<(&'static str, u32)> {
        table.iter().map(|(key, value)| (*key, *value)).collect()
    }

    #[test]
    fn a_relist_removes_what_it_does_not_name_when_it_is_complete() {
        let mut table = Table::default();
        for event in [Event::Init, Event::InitApply(("a", 1)), Event::InitApply(("b", 1))] {
            table.observe(event);
        }
        assert!(!table.complete());
        assert_eq!(table.observe(Event::InitDone), []);
        assert!(table.complete());

        assert_eq!(table.observe(Event::Init), []);
        assert_eq!(table.observe(Event::InitApply(("b", 2))), [("b", Some(1))]);
        assert_eq!(rows(&table), [("a", 1), ("b", 2)]);
        assert_eq!(table.observe(Event::InitDone), [("a", Some(1))]);
        assert_eq!(rows(&table), [("b", 2)]);
    }

    #[test]
    fn an_equal_or_older_record_is_no_change_but_survives_the_relist() {
        let mut table = Table::default();
        assert_eq!(table.observe(Event::Apply(("a", 5))), [("a", None)]);
        assert_eq!(table.observe(Event::Apply(("a", 5))), []);
        table.observe(Event::Init);
        assert_eq!(table.observe(Event::InitApply(("a", 4))), []);
        assert_eq!(table.observe(Event::InitDone), []);
        assert_eq!(rows(&table), [("a", 5)]);
    }

    #[test]
    fn deleting_what_is_not_known_changes_nothing() {
        let mut table = Table::default();
        assert_eq!(table.observe(Event::Delete(("a", 5))), []);
        table.observe(Event::Apply(("a", 5)));
        assert_eq!(table.observe(Event::Delete(("a", 9))), [("a", Some(5))]);
    }
}
