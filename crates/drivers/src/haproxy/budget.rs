//! How many files HAProxy needs, and what is left out where it may not open as many. HAProxy checks its files
//! without counting these, and then neither loads nor starts: one tenant with many members would keep the changes
//! of all others from going live. A listener takes one, and so does each member that is checked; half of all are
//! kept for connections. What HAProxy has loaded stays: newcomers are left out, of the namespace that asks for
//! most first. Pure.

use super::text::Word;
use super::wanted::{Body, Section};
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

/// Room for checks that is left free where checks come back without another reason to load: else a member that
/// comes and goes would cause a reload each time.
pub(super) fn slack(most: usize) -> usize {
    most / 16
}

/// What HAProxy has now, and so keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Frontends.
    pub frontends: BTreeSet<Word>,
    /// How many servers are checked, by backend.
    pub checks: BTreeMap<Word, usize>,
}

impl Held {
    /// What is held with these sections, where a backend has so many servers.
    pub(super) fn of(sections: &BTreeMap<Section, Body>, servers: impl Fn(&Word) -> usize) -> Self {
        let mut held = Self::default();
        for (section, body) in sections {
            match section {
                Section::Frontend(name) => _ = held.frontends.insert(name.clone()),
                Section::Backend(name) if body.checks() => {
                    held.checks.insert(name.clone(), servers(name));
                }
                _ => {}
            }
        }
        held
    }
}

/// What something needs.
pub(super) struct Need<K> {
    pub(super) namespace: Arc<str>,
    pub(super) key: K,
    pub(super) files: usize,
    /// How many of them it has already.
    pub(super) held: usize,
}

/// Those to leave out so that the others need no more than `most`. What needs more than it holds goes first:
/// what grows most of the namespace that needs most, and so on.
pub(super) fn over<K: Ord>(needs: impl IntoIterator<Item = Need<K>>, most: usize) -> BTreeSet<K> {
    let needs: Vec<_> = needs.into_iter().collect();
    let mut sums: BTreeMap<Arc<str>, usize> = BTreeMap::new();
    for need in &needs {
        *sums.entry(need.namespace.clone()).or_default() += need.files;
    }
    let mut total: usize = sums.values().sum();
    let mut out = BTreeSet::new();
    if total <= most {
        return out;
    }
    let (newcomers, holders): (Vec<_>, Vec<_>) =
        needs.into_iter().partition(|need| need.files > need.held);
    for candidates in [newcomers, holders] {
        let mut namespaces: BTreeMap<Arc<str>, Vec<_>> = BTreeMap::new();
        for Need { namespace, key, files, held } in candidates {
            let grows = files.saturating_sub(held);
            namespaces.entry(namespace).or_default().push((grows, files, key));
        }
        // The largest last.
        namespaces.values_mut().for_each(|all| all.sort());
        let of = |name: &Arc<str>, sums: &BTreeMap<_, usize>| sums.get(name).copied().unwrap_or(0);
        let mut order: BTreeSet<(usize, Arc<str>)> =
            namespaces.keys().map(|name| (of(name, &sums), name.clone())).collect();
        while total > most
            && let Some((sum, name)) = order.pop_last()
        {
            let Some((_, files, key)) = namespaces.get_mut(&name).and_then(Vec::pop) else {
                continue;
            };
            out.insert(key);
            total -= files;
            sums.insert(name.clone(), sum - files);
            order.insert((sum - files, name));
        }
    }
    out
}

/// The listeners that are left out: those that Ingresses share never are.
pub(super) fn closed<'a>(
    listeners: impl IntoIterator<Item = (&'a ListenerKey, &'a Arc<str>)>,
    descriptors: usize,
    is_open: impl Fn(&ListenerKey) -> bool,
) -> BTreeSet<ListenerKey> {
    let (shared, own): (Vec<_>, Vec<_>) =
        listeners.into_iter().partition(|(_, namespace)| namespace.is_empty());
    let most = most_listeners(descriptors).saturating_sub(shared.len());
    let need = |(key, namespace): (&ListenerKey, &Arc<str>)| Need {
        namespace: namespace.clone(),
        key: *key,
        files: 1,
        held: usize::from(is_open(key)),
    };
    over(own.into_iter().map(need), most)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of those that need and hold as much.
    fn left_out_of(needs: &[(&str, &str, usize, usize)], most: usize) -> Vec<String> {
        let needs = needs.iter().map(|(namespace, key, files, held)| Need {
            namespace: Arc::from(*namespace),
            key: (*key).to_owned(),
            files: *files,
            held: *held,
        });
        over(needs, most).into_iter().collect()
    }

    /// Of newcomers.
    fn left_out(needs: &[(&str, &str, usize)], most: usize) -> Vec<String> {
        let needs: Vec<_> = needs.iter().map(|(ns, key, files)| (*ns, *key, *files, 0)).collect();
        left_out_of(&needs, most)
    }

    #[test]
    fn what_is_loaded_stays_however_small_the_portions_in_which_newcomers_come() {
        let shop = ("shop", "shop", 900, 900);
        let small: Vec<_> = (0..9).map(|n| (format!("evil-{n}"), format!("pool-{n}"))).collect();
        let mut all: Vec<_> =
            small.iter().map(|(ns, key)| (ns.as_str(), key.as_str(), 100, 0)).collect();
        all.push(shop);
        let out = left_out_of(&all, 1_000);
        assert_eq!(out, small[1..].iter().map(|(_, key)| key.clone()).collect::<Vec<_>>());
        // A pool that grows is a newcomer too.
        let grown = [shop, ("evil", "grown", 800, 10), ("evil", "before", 50, 50)];
        assert_eq!(left_out_of(&grown, 1_000), ["grown"]);
        // There are fewer files than before.
        assert_eq!(left_out_of(&[shop, ("evil", "evil", 200, 200)], 300), ["shop"]);
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
