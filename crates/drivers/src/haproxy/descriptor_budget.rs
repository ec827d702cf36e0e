//! Decides how many file descriptors HAProxy needs, and which members get no health check if it may not open enough.
//! HAProxy does not count descriptors when it checks its files, but with too few it neither loads nor starts: one
//! tenant with many members would keep the changes of all others from going live. Each listener and each checked member
//! needs one; half of all are kept for connections. Namespaces share the checks equally; checks that a namespace does
//! not need go to the others. An existing check stays as long as no namespace waits for its share. The number of
//! listeners is limited earlier ([`crate::Driver::most_listeners`]). Pure; the renderer and the driver call it.

use super::diff::Running;
use super::text::Word;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

/// Descriptors for everything else: logs, sockets, pipes between its threads.
const ANYWAY: usize = 128;

/// How many listeners may be open.
pub(super) fn most_listeners(descriptors: usize) -> usize {
    descriptors / 4
}

/// How many members may be checked beside this number of listeners.
pub(super) fn most_checks(descriptors: usize, listeners: usize) -> usize {
    (descriptors / 2).saturating_sub(listeners + ANYWAY)
}

/// Whether health checks that only a reload can add justify a reload: they are many, or the budget has much left.
/// Otherwise each member that comes and goes would cause one.
pub(super) fn is_worth_a_load(checks: usize, left: usize, most: usize) -> bool {
    let many = most / 16;
    checks > 0 && (checks >= many || left >= many)
}

/// The servers that HAProxy has, by backend, so that checked servers can keep their checks.
pub type Held = BTreeMap<Word, BTreeMap<SocketAddr, Running>>;

/// The servers of a pool.
pub(super) struct Need<K> {
    pub(super) namespace: Arc<str>,
    pub(super) key: K,
    /// How many servers the pool has.
    pub(super) servers: usize,
    /// How many of them have a check already.
    pub(super) held: usize,
}

/// The number of checked servers for each pool that does not get checks for all. A pool that is not in the result gets
/// all.
pub(super) fn allot<K: Ord>(
    needs: impl IntoIterator<Item = Need<K>>,
    most: usize,
) -> BTreeMap<K, usize> {
    let mut namespaces: BTreeMap<Arc<str>, Vec<(K, Want)>> = BTreeMap::new();
    for Need { namespace, key, servers, held } in needs {
        let want = Want { wants: servers, has: held.min(servers) };
        namespaces.entry(namespace).or_default().push((key, want));
    }
    let sum = |pools: &Vec<(K, Want)>| Want {
        wants: pools.iter().map(|(_, it)| it.wants).sum(),
        has: pools.iter().map(|(_, it)| it.has).sum(),
    };
    let wants: Vec<_> = namespaces.values().map(sum).collect();
    let mut short = BTreeMap::new();
    for (pools, most) in namespaces.into_values().zip(fair(&wants, most)) {
        let (keys, wants): (Vec<_>, Vec<_>) = pools.into_iter().unzip();
        let parts = keys.into_iter().zip(&wants).zip(fair(&wants, most));
        let parts = parts.filter(|((_, want), part)| *part < want.wants);
        short.extend(parts.map(|((key, _), part)| (key, part)));
    }
    short
}

/// The demand of a namespace or pool for checks.
#[derive(Clone, Copy, Debug)]
struct Want {
    wants: usize,
    /// How many of these it has already.
    has: usize,
}

/// The share of each. All get the same, or what they want if that is less. Of the rest, each keeps what it has as far
/// as possible, and those that have most give up first.
fn fair(all: &[Want], most: usize) -> Vec<usize> {
    let highest = |it: fn(&Want) -> usize| all.iter().map(it).max().unwrap_or(0);
    let equal = largest(0, highest(|it| it.wants), |level| {
        all.iter().map(|it| it.wants.min(level)).sum::<usize>() <= most
    });
    let with = |cap: usize| all.iter().map(move |it| it.wants.min(equal).max(it.has.min(cap)));
    let cap = largest(equal, highest(|it| it.has), |cap| with(cap).sum::<usize>() <= most);
    let mut parts: Vec<_> = with(cap).collect();
    // Less than one for each is left over.
    let mut left = most.saturating_sub(parts.iter().sum());
    for limit in [|it: &Want| it.has, |it: &Want| it.wants] {
        for (part, it) in parts.iter_mut().zip(all) {
            if left > 0 && *part < limit(it) {
                *part += 1;
                left -= 1;
            }
        }
    }
    parts
}

/// The largest number up to `high` that fits. `low` fits, and if a number fits, all smaller ones do.
fn largest(low: usize, high: usize, fits: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (low, high.max(low));
    while low < high {
        let middle = high - (high - low) / 2;
        match fits(middle) {
            true => low = middle,
            false => high = middle - 1,
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The checked servers of pools, each with its number of servers and of existing checks.
    fn allotted(needs: &[(&str, &str, usize, usize)], most: usize) -> Vec<(String, usize)> {
        let needs = needs.iter().map(|(namespace, key, servers, held)| Need {
            namespace: Arc::from(*namespace),
            key: (*key).to_owned(),
            servers: *servers,
            held: *held,
        });
        allot(needs, most).into_iter().collect()
    }

    fn short(key: &str, checks: usize) -> (String, usize) {
        (key.to_owned(), checks)
    }

    #[test]
    fn a_namespace_that_came_first_gives_way_to_one_that_waits_for_its_part() {
        let evil = ("evil", "evil", 1_000, 1_000);
        assert_eq!(allotted(&[evil], 1_000), []);
        let shop = ("shop", "shop", 30, 0);
        assert_eq!(allotted(&[evil, shop], 1_000), [short("evil", 970)]);
        let large = ("shop", "shop", 900, 0);
        assert_eq!(allotted(&[evil, large], 1_000), [short("evil", 500), short("shop", 500)]);
    }

    #[test]
    fn a_pool_that_grows_keeps_the_checks_that_it_has() {
        let all = [("a", "a", 501, 500), ("b", "b", 500, 500)];
        assert_eq!(allotted(&all, 1_000), [short("a", 500)]);
        // A pool keeps what it has beyond an equal share while the others have theirs.
        let all = [("a", "a", 800, 700), ("b", "b", 300, 300)];
        assert_eq!(allotted(&all, 1_000), [short("a", 700)]);
        // Pools of one namespace divide its share in the same way.
        let all = [("a", "one", 900, 600), ("a", "two", 500, 400)];
        assert_eq!(allotted(&all, 1_000), [short("one", 500)]);
    }

    #[test]
    fn namespaces_have_equal_parts_however_many_pools_they_have() {
        let names: Vec<_> = (0..30).map(|n| format!("evil-{n:02}")).collect();
        let mut all: Vec<_> = names.iter().map(|key| ("evil", key.as_str(), 100, 0)).collect();
        all.push(("shop", "shop", 900, 0));
        assert_eq!(allotted(&all, 4_000), []);
        let checked: usize = allotted(&all, 2_000).iter().map(|(_, checks)| checks).sum();
        assert_eq!(checked, 1_100, "all of shop's, and the rest for evil");
        assert_eq!(allotted(&[("a", "a", 5, 5)], 0), [short("a", 0)]);
        assert_eq!(allotted(&[("a", "a", 2, 0), ("b", "b", 2, 0)], 3), [short("b", 1)]);
    }

    #[test]
    fn half_of_all_is_kept_for_connections() {
        assert_eq!(most_checks(20_000, 100), 9_772);
        assert_eq!(most_checks(100, 100), 0);
    }

    proptest! {
        #[test]
        fn each_has_its_equal_part_and_none_gives_up_more_than_is_needed(
            all in prop::collection::vec((0usize..50, 0usize..50), 1..12),
            most in 0usize..300,
        ) {
            let all: Vec<_> =
                all.into_iter().map(|(wants, has)| Want { wants, has: has.min(wants) }).collect();
            let parts = fair(&all, most);
            let (sum, wanted): (usize, usize) =
                (parts.iter().sum(), all.iter().map(|it| it.wants).sum());
            prop_assert_eq!(sum, wanted.min(most), "nothing is left over while one waits");
            let equal = most / all.len();
            for (part, it) in parts.iter().zip(&all) {
                prop_assert!(*part <= it.wants && *part >= it.wants.min(equal));
            }
            // A pool gives up no more than others need for their share.
            let waiting = all.iter().zip(&parts).any(|(it, part)| *part > it.has);
            let gave = all.iter().zip(&parts).any(|(it, part)| *part < it.has);
            let held: usize = all.iter().map(|it| it.has).sum();
            prop_assert!(!gave || waiting || held > most);
            // A second run changes nothing.
            let again: Vec<_> =
                all.iter().zip(&parts).map(|(it, part)| Want { has: *part, ..*it }).collect();
            prop_assert_eq!(fair(&again, most), parts);
        }
    }
}
