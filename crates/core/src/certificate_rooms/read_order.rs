//! Which certificates are read next. Each namespace has its turn, so a namespace that changes thousands of certificates
//! at once, or one all the time, delays no other. Pure: the leader's writer reads them.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

/// The turns of namespaces.
#[derive(Clone, Debug, Default)]
pub struct ReadOrder {
    /// The namespace that was served last.
    last: Option<Arc<str>>,
}

impl ReadOrder {
    /// Takes up to `most` of these items, each with its namespace: one of each namespace in turn, beginning after the
    /// namespace that was served last. Within a namespace the first come first.
    pub fn take<T>(
        &mut self,
        items: impl IntoIterator<Item = (Arc<str>, T)>,
        most: usize,
    ) -> Vec<T> {
        let mut waiting = BTreeMap::<Arc<str>, VecDeque<T>>::new();
        for (namespace, item) in items {
            waiting.entry(namespace).or_default().push_back(item);
        }
        let mut taken = Vec::new();
        while taken.len() < most {
            let after = self.last.clone().map_or(Unbounded, Excluded);
            let next = waiting.range((after, Unbounded)).next().or_else(|| waiting.iter().next());
            let Some(namespace) = next.map(|(namespace, _)| Arc::clone(namespace)) else { break };
            if let Some(items) = waiting.get_mut(&namespace) {
                taken.extend(items.pop_front());
                if items.is_empty() {
                    waiting.remove(&namespace);
                }
            }
            self.last = Some(namespace);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(namespace: &str, numbers: std::ops::Range<usize>) -> Vec<(Arc<str>, String)> {
        numbers.map(|n| (namespace.into(), format!("{namespace}-{n}"))).collect()
    }

    #[test]
    fn a_namespace_with_many_changes_leaves_every_other_its_turn() {
        let mut turns = ReadOrder::default();
        let all = [of("evil", 0..1_000), of("shop", 0..1), of("web", 0..2)].concat();
        assert_eq!(turns.take(all, 4), ["evil-0", "shop-0", "web-0", "evil-1"]);
        // The turn goes on where it ended, whatever has come since.
        let all = [of("evil", 2_000..3_000), of("shop", 1..2), of("web", 1..2)].concat();
        assert_eq!(turns.take(all, 2), ["shop-1", "web-1"]);
        assert_eq!(turns.take(of("evil", 0..2), 9), ["evil-0", "evil-1"]);
        assert!(turns.take(Vec::<(Arc<str>, String)>::new(), 9).is_empty());
    }

    proptest! {
        /// A single certificate of a namespace is read after at most as many others as there are namespaces, however
        /// many certificates these change between two rounds.
        #[test]
        fn no_namespace_waits_longer_than_one_turn_of_all_others(
            others in 1usize..20, most in 1usize..10, before in 0usize..20,
        ) {
            let mut turns = ReadOrder::default();
            let crowd = |round: usize| {
                let all = (0..others).map(move |n| of(&format!("evil-{n:02}"), round * 50..round * 50 + 30));
                all.flatten().collect::<Vec<_>>()
            };
            turns.take(crowd(0), before);
            let mut taken = 0;
            for round in 1.. {
                let mut all = crowd(round);
                all.extend(of("evil-10-shop", 0..1));
                let read = turns.take(all, most);
                if let Some(at) = read.iter().position(|it| it == "evil-10-shop-0") {
                    taken += at;
                    break;
                }
                taken += read.len();
            }
            prop_assert!(taken <= others, "{taken} before it, of {others} namespaces");
        }
    }
}
