//! Mark and sweep over a relist: which objects of a kind a list did not deliver, and are therefore deleted. Every cache
//! of objects uses it. It owns no objects and never deletes one: its user does, with what follows from that.
//!
//! A cache that holds the objects stores an [`Epoch`] with each and has one [`Relist`] per kind. A cache of objects
//! that are held elsewhere has one [`Missing`], which needs no memory between relists.
//!
//! ```text
//!  begin ─▶ apply* ─▶ done     objects that were not applied since begin are missed
//!  begin ─▶ apply* ─▶ begin    the list was cut off and starts over: what it applied does not count
//! ```

use std::collections::BTreeSet;

/// The number of a list. Stored with an object, it is the last list that delivered the object, or after which a watch
/// did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Epoch(u32);

/// The lists of one kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct Relist {
    epoch: Epoch,
    listed: bool,
}

impl Relist {
    /// A list begins: all objects of the kind follow.
    pub fn begin(&mut self) {
        self.epoch = Epoch(self.epoch.0.wrapping_add(1));
    }

    /// The epoch of an object that is observed now, whether by a list, by a watch or in the answer to a write.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The list has ended. True: it is the first one.
    pub fn done(&mut self) -> bool {
        !std::mem::replace(&mut self.listed, true)
    }

    /// Whether a list has ended: all objects of the kind have been observed once.
    pub fn is_listed(&self) -> bool {
        self.listed
    }

    /// Whether the last list did not deliver an object with this epoch.
    pub fn has_missed(&self, epoch: Epoch) -> bool {
        epoch != self.epoch
    }

    /// Keys of the objects that the last list did not deliver. `epoch` reads the epoch of an object.
    pub fn missed<'a, K: Clone + 'a, V: 'a>(
        &self,
        objects: impl IntoIterator<Item = (&'a K, &'a V)>,
        epoch: impl Fn(&V) -> Epoch,
    ) -> Vec<K> {
        let missed = objects.into_iter().filter(|(_, object)| self.has_missed(epoch(object)));
        missed.map(|(key, _)| key.clone()).collect()
    }

    /// Whether an epoch is that of the last list or of the one before it.
    pub fn is_recent(&self, epoch: Epoch) -> bool {
        self.epoch.0.wrapping_sub(epoch.0) <= 1
    }
}

/// Keys of the objects that the list under way has not delivered yet.
#[derive(Debug)]
pub struct Missing<K>(BTreeSet<K>);

impl<K> Default for Missing<K> {
    fn default() -> Self {
        Self(BTreeSet::new())
    }
}

impl<K: Ord> Missing<K> {
    /// A list begins while these objects are known.
    pub fn begin(&mut self, known: impl IntoIterator<Item = K>) {
        self.0 = known.into_iter().collect();
    }

    /// An object is observed.
    pub fn observe(&mut self, key: &K) {
        self.0.remove(key);
    }

    /// The list has ended: keys of the objects that it did not deliver.
    pub fn done(&mut self) -> BTreeSet<K> {
        std::mem::take(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[derive(Clone, Copy, Debug)]
    enum Event {
        Begin,
        Apply(u8),
        Delete(u8),
        Done,
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            1 => Just(Event::Begin),
            6 => (0..6_u8).prop_map(Event::Apply),
            2 => (0..6_u8).prop_map(Event::Delete),
            1 => Just(Event::Done),
        ]
    }

    /// A cache as the users of [`Relist`] write it.
    #[derive(Default)]
    struct Marked {
        objects: BTreeMap<u8, Epoch>,
        relist: Relist,
    }

    impl Marked {
        fn handle(&mut self, event: Event) {
            match event {
                Event::Begin => self.relist.begin(),
                Event::Apply(key) => _ = self.objects.insert(key, self.relist.epoch()),
                Event::Delete(key) => _ = self.objects.remove(&key),
                Event::Done => {
                    self.relist.done();
                    let missed = self.relist.missed(&self.objects, |epoch| *epoch);
                    missed.iter().for_each(|key| _ = self.objects.remove(key));
                }
            }
        }
    }

    /// A cache as the users of [`Missing`] write it.
    #[derive(Default)]
    struct Elsewhere {
        objects: BTreeSet<u8>,
        missing: Missing<u8>,
    }

    impl Elsewhere {
        fn handle(&mut self, event: Event) {
            match event {
                Event::Begin => self.missing.begin(self.objects.iter().copied()),
                Event::Apply(key) => {
                    self.missing.observe(&key);
                    self.objects.insert(key);
                }
                Event::Delete(key) => _ = self.objects.remove(&key),
                Event::Done => {
                    self.missing.done().iter().for_each(|key| _ = self.objects.remove(key));
                }
            }
        }
    }

    /// The objects after these events, read off their history: an object exists if it was applied and not deleted
    /// since. The end of a list asks in addition that it was applied since the last begin before that end.
    fn expected(events: &[Event]) -> BTreeSet<u8> {
        let exists = |key: u8| {
            let applied =
                events.iter().rposition(|it| matches!(it, Event::Apply(it) if *it == key));
            let deleted =
                events.iter().rposition(|it| matches!(it, Event::Delete(it) if *it == key));
            let swept = events.iter().rposition(|it| matches!(it, Event::Done));
            let begun =
                events[..swept.unwrap_or(0)].iter().rposition(|it| matches!(it, Event::Begin));
            applied.is_some() && applied > deleted && (begun.is_none() || applied > begun)
        };
        (0..6).filter(|key| exists(*key)).collect()
    }

    proptest! {
        #[test]
        fn after_a_list_exactly_the_objects_applied_since_its_begin_remain(
            events in vec(event(), 0..60),
        ) {
            let (mut marked, mut elsewhere) = (Marked::default(), Elsewhere::default());
            for (at, event) in events.iter().enumerate() {
                marked.handle(*event);
                elsewhere.handle(*event);
                let expected = expected(&events[..=at]);
                prop_assert_eq!(marked.objects.keys().copied().collect::<BTreeSet<_>>(), expected.clone());
                prop_assert_eq!(&elsewhere.objects, &expected);
                let listed = events[..=at].iter().any(|it| matches!(it, Event::Done));
                prop_assert_eq!(marked.relist.is_listed(), listed);
            }
        }
    }

    #[test]
    fn a_list_that_starts_over_does_not_count_what_the_broken_one_delivered() {
        let mut cache = Marked::default();
        let broken = [Event::Apply(1), Event::Apply(2), Event::Begin, Event::Apply(1)];
        let whole = [Event::Begin, Event::Apply(2), Event::Done];
        broken.into_iter().chain(whole).for_each(|event| cache.handle(event));
        assert_eq!(cache.objects.into_keys().collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn an_end_without_a_begin_misses_nothing() {
        let mut relist = Relist::default();
        let epoch = relist.epoch();
        assert!(relist.done());
        assert!(!relist.has_missed(epoch));
        assert!(!relist.done());
    }

    #[test]
    fn an_epoch_is_recent_for_one_more_list_and_the_numbers_may_wrap() {
        let mut relist = Relist { epoch: Epoch(u32::MAX), listed: true };
        let epoch = relist.epoch();
        relist.begin();
        assert!(relist.has_missed(epoch));
        assert!(relist.is_recent(epoch));
        relist.begin();
        assert!(!relist.is_recent(epoch));
    }
}
