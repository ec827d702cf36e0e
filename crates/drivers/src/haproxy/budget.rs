//! How many files HAProxy needs, and what is left out where it may not open as many. HAProxy checks its files
//! without counting these, and then neither loads nor starts: one tenant with many members would keep the changes
//! of all others from going live. A listener takes one, and so does each member that is checked; half of all are
//! kept for connections. The namespace that asks for most gives way first. Pure.

use bowline_core::update::ListenerKey;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Files that HAProxy has open anyway: logs, sockets, pipes between its threads.
const ANYWAY: usize = 128;

/// How many listeners there may be.
pub(super) fn most_listeners(descriptors: usize) -> usize {
    descriptors / 4
}

/// How many members may be checked beside so many listeners.
pub(super) fn most_checks(descriptors: usize, listeners: usize) -> usize {
    (descriptors / 2).saturating_sub(listeners + ANYWAY)
}

/// What a namespace needs, in all and for each.
type Needs<K> = (usize, Vec<(usize, K)>);

/// Those to leave out so that the others need no more than `most`, of what each needs: the largest of the
/// namespace that needs most, and so on.
pub(super) fn over<K: Ord + Clone>(
    needs: impl IntoIterator<Item = (Arc<str>, K, usize)>,
    most: usize,
) -> BTreeSet<K> {
    let mut namespaces: BTreeMap<Arc<str>, Needs<K>> = BTreeMap::new();
    let mut total = 0;
    for (namespace, key, need) in needs {
        let (sum, all) = namespaces.entry(namespace).or_default();
        *sum += need;
        all.push((need, key));
        total += need;
    }
    let mut out = BTreeSet::new();
    if total <= most {
        return out;
    }
    // The largest last.
    namespaces.values_mut().for_each(|(_, all)| all.sort());
    let mut order: BTreeSet<(usize, Arc<str>)> =
        namespaces.iter().map(|(name, (sum, _))| (*sum, name.clone())).collect();
    while total > most
        && let Some((sum, name)) = order.pop_last()
        && let Some((need, key)) = namespaces.get_mut(&name).and_then(|(_, all)| all.pop())
    {
        out.insert(key);
        total -= need;
        order.insert((sum - need, name));
    }
    out
}

/// The listeners that are left out: those that Ingresses share never are.
pub(super) fn closed<'a>(
    listeners: impl IntoIterator<Item = (&'a ListenerKey, &'a Arc<str>)>,
    descriptors: usize,
) -> BTreeSet<ListenerKey> {
    let (shared, own): (Vec<_>, Vec<_>) =
        listeners.into_iter().partition(|(_, namespace)| namespace.is_empty());
    let most = most_listeners(descriptors).saturating_sub(shared.len());
    over(own.into_iter().map(|(key, namespace)| (namespace.clone(), *key, 1)), most)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left_out(needs: &[(&str, &str, usize)], most: usize) -> Vec<String> {
        let needs = needs.iter().map(|(ns, key, need)| (Arc::from(*ns), (*key).to_owned(), *need));
        over(needs, most).into_iter().collect()
    }

    #[test]
    fn the_namespace_that_needs_most_gives_way_and_its_largest_first() {
        let evil: Vec<_> = (0..30).map(|n| ("evil", format!("evil-{n:02}"), 100)).collect();
        let mut all: Vec<_> =
            evil.iter().map(|(ns, key, need)| (*ns, key.as_str(), *need)).collect();
        all.push(("shop", "shop", 900));
        assert_eq!(left_out(&all, 4_000), [""; 0]);
        let out = left_out(&all, 2_000);
        assert_eq!(out.len(), 19, "{out:?}");
        assert!(out.iter().all(|key| key.starts_with("evil")), "{out:?}");
        assert_eq!(left_out(&[("a", "small", 1), ("a", "large", 9), ("b", "b", 5)], 6), ["large"]);
        assert_eq!(left_out(&[("a", "a", 5)], 0), ["a"]);
    }

    #[test]
    fn half_of_all_is_kept_for_connections() {
        assert_eq!(most_checks(20_000, 100), 9_772);
        assert_eq!(most_checks(100, 100), 0);
    }
}
