//! A map from a key to an ordered set that mostly has one element. Contenders and reverse edges are such maps: ten
//! thousand Services with a port each should not cost ten thousand tree nodes. It knows nothing of consumers.

use rustc_hash::FxHashMap;
use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::hash::Hash;

/// An ordered set that is never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SmallSet<V> {
    One(V),
    Many(BTreeSet<V>),
}

impl<V: Ord> SmallSet<V> {
    pub(super) fn first(&self) -> Option<&V> {
        self.iter().next()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &V> {
        let (one, many) = match self {
            Self::One(value) => (Some(value), None),
            Self::Many(values) => (None, Some(values)),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    /// The first element that is not before this one.
    fn first_from(&self, from: &V) -> Option<&V> {
        match self {
            Self::One(value) => (value >= from).then_some(value),
            Self::Many(values) => values.range(from..).next(),
        }
    }

    fn insert(self, value: V) -> Self {
        match self {
            Self::One(one) if one == value => Self::One(one),
            Self::One(one) => Self::Many(BTreeSet::from([one, value])),
            Self::Many(mut values) => {
                values.insert(value);
                Self::Many(values)
            }
        }
    }

    fn remove(self, value: &V) -> Option<Self> {
        match self {
            Self::One(one) => (one != *value).then_some(Self::One(one)),
            Self::Many(mut values) => {
                values.remove(value);
                match values.len() {
                    0 => None,
                    1 => values.pop_first().map(Self::One),
                    _ => Some(Self::Many(values)),
                }
            }
        }
    }
}

/// A map from a key to the ordered set of its values.
#[derive(Debug)]
pub(super) struct Edges<K, V>(FxHashMap<K, SmallSet<V>>);

impl<K, V> Default for Edges<K, V> {
    fn default() -> Self {
        Self(FxHashMap::default())
    }
}

impl<K: Hash + Eq, V: Ord> Edges<K, V> {
    pub(super) fn insert(&mut self, key: K, value: V) {
        let set = match self.0.remove(&key) {
            Some(set) => set.insert(value),
            None => SmallSet::One(value),
        };
        self.0.insert(key, set);
    }

    pub(super) fn remove(&mut self, key: &K, value: &V) {
        if let Some((key, set)) = self.0.remove_entry(key)
            && let Some(rest) = set.remove(value)
        {
            self.0.insert(key, rest);
        }
    }

    pub(super) fn first<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.0.get(key)?.first()
    }

    /// The first element of a set that is not before this one, found without a walk through the others.
    pub(super) fn first_from<Q: Hash + Eq + ?Sized>(&self, key: &Q, from: &V) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.0.get(key)?.first_from(from)
    }

    pub(super) fn of<'a, Q: Hash + Eq + ?Sized>(
        &'a self,
        key: &Q,
    ) -> impl Iterator<Item = &'a V> + use<'a, K, V, Q>
    where
        K: Borrow<Q>,
    {
        self.0.get(key).into_iter().flat_map(SmallSet::iter)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn edges_are_a_map_of_ordered_sets(
            steps in prop::collection::vec((any::<bool>(), 0..3u8, 0..4u8), 0..40),
        ) {
            let (mut edges, mut model) = (Edges::default(), BTreeMap::<u8, BTreeSet<u8>>::new());
            for (insert, key, value) in steps {
                if insert {
                    edges.insert(key, value);
                    model.entry(key).or_default().insert(value);
                } else {
                    edges.remove(&key, &value);
                    model.entry(key).or_default().remove(&value);
                }
                let values: Vec<_> = edges.of(&key).collect();
                prop_assert_eq!(values, model[&key].iter().collect::<Vec<_>>());
                prop_assert_eq!(edges.first(&key), model[&key].first());
                prop_assert_eq!(edges.first_from(&key, &value), model[&key].range(value..).next());
                prop_assert_eq!(edges.is_empty(), model.values().all(BTreeSet::is_empty));
            }
        }
    }
}
