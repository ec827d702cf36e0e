//! Finds those that do not fit among many that fit, with few tries: halves are tried together with all
//! that is known to fit. Decides what to try next; whoever asks tries it.

/// A search.
#[derive(Debug)]
pub(crate) struct Sift<T> {
    good: Vec<T>,
    bad: Vec<T>,
    /// Groups of which nothing is known, the next one last.
    groups: Vec<Vec<T>>,
}

/// What a search has found.
#[derive(Debug)]
pub(crate) struct Known<T> {
    /// Those that fit, all together.
    pub(crate) good: Vec<T>,
    /// Those that do not fit with them.
    pub(crate) bad: Vec<T>,
    /// Those of which nothing is known, as the search was broken off.
    pub(crate) untried: Vec<T>,
}

impl<T: Clone> Sift<T> {
    /// A search among those who do not fit all together.
    pub(crate) fn new(all: Vec<T>) -> Self {
        let mut sift = Self { good: Vec::new(), bad: Vec::new(), groups: Vec::new() };
        sift.split(all);
        sift
    }

    /// The same where those who fit alone are known.
    pub(crate) fn beside(good: Vec<T>, others: Vec<T>) -> Self {
        let mut sift = Self { good, bad: Vec::new(), groups: Vec::new() };
        sift.split(others);
        sift
    }

    /// What to try next. None: the search is over.
    pub(crate) fn next(&self) -> Option<Vec<T>> {
        let group = self.groups.last()?;
        Some(self.good.iter().chain(group).cloned().collect())
    }

    /// Whether what was to be tried fits. Returns one that is now known not to.
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

    /// What is known so far.
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
            // A search begins only where something does not fit.
            prop_assume!(!bad.is_empty());
            prop_assert_eq!(search(count, &bad).0, bad);
        }
    }
}
