//! Finds the items that are refused among many that are accepted, in few tries: it tries half of a group together with
//! all items known to be good. It decides what to try next; the caller tries it. The searches of `program` and
//! `template` call it.

/// A search. An item is good if it is accepted together with all good items.
#[derive(Debug)]
pub(crate) struct Sift<T> {
    good: Vec<T>,
    bad: Vec<T>,
    /// Groups that are not tried yet, the next one last.
    groups: Vec<Vec<T>>,
}

/// The result of a search.
#[derive(Debug)]
pub(crate) struct Known<T> {
    /// The items that are accepted, all together.
    pub(crate) good: Vec<T>,
    /// The items that are refused beside the good ones.
    pub(crate) bad: Vec<T>,
    /// The items that were not tried before the search was stopped.
    pub(crate) untried: Vec<T>,
}

impl<T: Clone> Sift<T> {
    /// A search among items that are refused together.
    pub(crate) fn new(all: Vec<T>) -> Self {
        let mut sift = Self { good: Vec::new(), bad: Vec::new(), groups: Vec::new() };
        sift.split(all);
        sift
    }

    /// A search among `others`, where `good` is known to be accepted alone.
    pub(crate) fn beside(good: Vec<T>, others: Vec<T>) -> Self {
        let mut sift = Self { good, bad: Vec::new(), groups: Vec::new() };
        sift.split(others);
        sift
    }

    /// The items to try together next. None: the search is over.
    pub(crate) fn next(&self) -> Option<Vec<T>> {
        let group = self.groups.last()?;
        Some(self.good.iter().chain(group).cloned().collect())
    }

    /// Takes the result of the last try. Returns an item that this result proves to be bad.
    pub(crate) fn answer(&mut self, fits: bool) -> Option<&T> {
        let group = self.groups.pop()?;
        if fits {
            self.good.extend(group);
            return None;
        }
        let before = self.bad.len();
        self.split(group);
        self.bad.get(before)
    }

    /// The result so far.
    pub(crate) fn known(self) -> Known<T> {
        let untried = self.groups.into_iter().flatten().collect();
        Known { good: self.good, bad: self.bad, untried }
    }

    fn split(&mut self, mut group: Vec<T>) {
        if group.len() <= 1 {
            self.bad.extend(group);
            return;
        }
        let second = group.split_off(group.len() / 2);
        self.groups.push(second);
        self.groups.push(group);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn search(count: usize, bad: &BTreeSet<usize>) -> (BTreeSet<usize>, usize) {
        let mut sift = Sift::new((0..count).collect());
        let mut tries = 0;
        while let Some(group) = sift.next() {
            tries += 1;
            sift.answer(!group.iter().any(|one| bad.contains(one)));
        }
        (sift.known().bad.into_iter().collect(), tries)
    }

    #[test]
    fn one_among_five_thousand_is_found_in_twice_thirteen_tries() {
        let (found, tries) = search(5000, &[1234].into());
        assert_eq!(found, [1234].into());
        assert!(tries <= 26, "{tries}");
    }

    proptest! {
        #[test]
        fn all_that_do_not_fit_are_found_and_no_others(
            count in 1usize..60, bad in prop::collection::btree_set(0usize..60, 1..8)
        ) {
            let bad: BTreeSet<usize> = bad.into_iter().filter(|one| *one < count).collect();
            // A search starts only if something is refused.
            prop_assume!(!bad.is_empty());
            prop_assert_eq!(search(count, &bad).0, bad);
        }
    }
}
