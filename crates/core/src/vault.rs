//! Which certificates a load balancer's agents are handed. Secrets that an agent may read are limited in number
//! and size, so each namespace has a share of them. A certificate that is handed out stays, and so does its
//! successor; what waits comes in as soon as there is room. Pure: the leader's writer tells it what is needed.
//!
//! ```text
//!  all that may be needed at once ─┬─ half: every namespace has SHARE of its own
//!  (a quarter more is kept free    └─ half: what namespaces have beyond that, each a quarter of all at most
//!   for successors)
//! ```

use crate::key::ObjectKey;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// The Secrets of one load balancer: as many as a Role should list by name.
pub const SECRETS: u32 = 64;
/// The most bytes of certificates in one Secret: base64 makes more of them, and 1 MiB is the limit.
pub const SECRET: usize = 600 * 1024;
/// The most bytes of one certificate: its chain and its key as PEM.
pub const LARGEST: usize = 40 * 1024;
/// What fits for sure: while there is less than this, some Secret has room for the largest.
pub const ROOM: usize = SECRETS as usize * (SECRET - LARGEST);
/// All that may be needed at once. The rest is for certificates that replace others, which stay until no Plan
/// names them.
const MOST: usize = ROOM / 4 * 3;
/// What every namespace has to itself: about twenty certificates.
const SHARE: usize = 128 * 1024;
/// What all namespaces together have beyond that.
const COMMON: usize = MOST / 2;
/// What one namespace has at most, where others may come.
const QUOTA: usize = MOST / 4;
/// The most bytes of a successor that takes the place of one of this size: names and signatures vary.
const fn alike(size: usize) -> usize {
    size + size / 8
}

/// A certificate that is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need<'a> {
    /// Its hash.
    pub hash: &'a Arc<str>,
    /// Its bytes.
    pub size: usize,
    /// The Secrets that have it, sorted.
    pub places: &'a [ObjectKey],
    /// Whether agents have it already.
    pub held: bool,
}

/// Why a certificate is not handed out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Withheld {
    /// It is larger than one may be.
    TooLarge(usize),
    /// Its namespace has as many bytes as it may have.
    NamespaceFull(Arc<str>),
    /// What namespaces share beyond their own is used up.
    Full(Arc<str>),
}

impl fmt::Display for Withheld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const KIB: usize = 1024;
        match self {
            Self::TooLarge(size) => write!(
                f,
                "it has {} KiB, chain and key together, and {} KiB is the most",
                size.div_ceil(KIB),
                LARGEST / KIB
            ),
            Self::NamespaceFull(namespace) => write!(
                f,
                "namespace {namespace} has {} KiB of certificates there, the most that one has",
                QUOTA / KIB
            ),
            Self::Full(namespace) => write!(
                f,
                "namespace {namespace} has the {} KiB that are its own, and what all share beyond that \
                 is used up",
                SHARE / KIB
            ),
        }
    }
}

/// Who has a place, and of which size.
#[derive(Clone, Debug, Default)]
pub struct Vault {
    /// The bytes of the certificate with which each Secret came in.
    placed: BTreeMap<ObjectKey, usize>,
    withheld: BTreeMap<Arc<str>, Withheld>,
}

/// What namespaces have.
#[derive(Debug, Default)]
struct Used {
    by: BTreeMap<Arc<str>, usize>,
    total: usize,
    /// What they have beyond their own.
    common: usize,
}

impl Used {
    fn add(&mut self, namespace: &Arc<str>, size: usize) {
        let used = self.by.entry(namespace.clone()).or_default();
        let beyond = |used: usize| used.saturating_sub(SHARE);
        self.common += beyond(*used + size) - beyond(*used);
        self.total += size;
        *used += size;
    }

    /// Why a namespace may not have so much more. `alone`: no other namespace may come.
    fn refuse(&self, namespace: &Arc<str>, size: usize, alone: bool) -> Option<Withheld> {
        let used = self.by.get(namespace).copied().unwrap_or(0);
        let beyond = (used + size).saturating_sub(SHARE);
        let more = beyond - used.saturating_sub(SHARE);
        let (quota, common) = if alone { (MOST, MOST) } else { (QUOTA, COMMON) };
        if beyond > 0 && used + size > quota {
            Some(Withheld::NamespaceFull(namespace.clone()))
        } else if more > 0 && self.common + more > common || self.total + size > MOST {
            Some(Withheld::Full(namespace.clone()))
        } else {
            None
        }
    }
}

impl Vault {
    /// Decides anew which of these are handed out. `alone`: the load balancer is for one namespace only.
    /// What is held stays, and so does the place of a Secret whose certificate is another now.
    pub fn admit<'a>(&mut self, needs: impl IntoIterator<Item = Need<'a>>, alone: bool) {
        self.withheld.clear();
        let mut used = Used::default();
        let (mut waiting, mut placed) = (Vec::new(), BTreeMap::new());
        for need in needs {
            let had = |place: &&ObjectKey| {
                self.placed.get(*place).is_some_and(|size| need.size <= alike(*size))
            };
            let place = need.places.iter().find(had).or(need.places.first().filter(|_| need.held));
            match place {
                Some(place) => {
                    used.add(&place.namespace, need.size);
                    self.keep(&need, &mut placed);
                }
                None => waiting.push(need),
            }
        }
        waiting.sort_by(|a, b| (a.places, a.hash).cmp(&(b.places, b.hash)));
        for need in waiting {
            match Self::first(&need, &used, alone) {
                Ok(namespace) => {
                    used.add(&namespace, need.size);
                    self.keep(&need, &mut placed);
                }
                Err(why) => drop(self.withheld.insert(need.hash.clone(), why)),
            }
        }
        self.placed = placed;
    }

    /// The first namespace that may have it.
    fn first(need: &Need<'_>, used: &Used, alone: bool) -> Result<Arc<str>, Withheld> {
        if need.size > LARGEST {
            return Err(Withheld::TooLarge(need.size));
        }
        let namespaces: BTreeSet<_> = need.places.iter().map(|place| &place.namespace).collect();
        let mut why = None;
        for namespace in namespaces {
            match used.refuse(namespace, need.size, alone) {
                None => return Ok(namespace.clone()),
                refused => why = why.or(refused),
            }
        }
        Err(why.unwrap_or_else(|| Withheld::Full("".into())))
    }

    /// The places of what is handed out, each with the size with which it came in: sizes do not creep up.
    fn keep(&self, need: &Need<'_>, placed: &mut BTreeMap<ObjectKey, usize>) {
        for place in need.places {
            let before = self.placed.get(place).filter(|before| need.size <= alike(**before));
            placed.insert(place.clone(), before.copied().unwrap_or(need.size));
        }
    }

    /// Why a certificate is not handed out. None: it is, or nobody needs it.
    pub fn withholds(&self, hash: &str) -> Option<&Withheld> {
        self.withheld.get(hash)
    }

    /// All that are not handed out, by hash.
    pub fn withheld(&self) -> &BTreeMap<Arc<str>, Withheld> {
        &self.withheld
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A certificate of a namespace, in the Secret of this number.
    #[derive(Clone, Debug)]
    struct Item {
        hash: Arc<str>,
        places: Vec<ObjectKey>,
        size: usize,
    }

    fn item(namespace: &str, number: usize, size: usize) -> Item {
        let places = vec![ObjectKey::new(namespace, format!("tls-{number:05}"))];
        Item { hash: format!("{namespace}-{number:05}-{size}").into(), places, size }
    }

    /// Decides, and takes in what is handed out.
    fn admit(vault: &mut Vault, items: &[Item], held: &mut BTreeSet<Arc<str>>, alone: bool) {
        let needs = items.iter().map(|it| Need {
            hash: &it.hash,
            size: it.size,
            places: &it.places,
            held: held.contains(&it.hash),
        });
        vault.admit(needs, alone);
        let admitted = items.iter().filter(|it| vault.withholds(&it.hash).is_none());
        *held = admitted.map(|it| it.hash.clone()).collect();
    }

    fn many(namespace: &str, number: usize, size: usize) -> Vec<Item> {
        (0..number).map(|n| item(namespace, n, size)).collect()
    }

    fn refused<'a>(vault: &Vault, items: &'a [Item]) -> Vec<&'a Item> {
        items.iter().filter(|it| vault.withholds(&it.hash).is_some()).collect()
    }

    const ORDINARY: usize = 5_700;

    #[test]
    fn one_namespace_cannot_use_up_what_others_need() {
        let (mut vault, mut held) = (Vault::default(), BTreeSet::new());
        let mut all = many("evil", 10_000, LARGEST);
        all.extend(many("evil-2", 10_000, LARGEST));
        all.extend(many("evil-3", 10_000, LARGEST));
        admit(&mut vault, &all, &mut held, false);
        let evil = all.iter().filter(|it| held.contains(&it.hash)).map(|it| it.size).sum::<usize>();
        assert!(evil <= MOST / 2 + 3 * SHARE, "{evil}");
        let shop: Vec<_> =
            (0..100).flat_map(|n| many(&format!("shop-{n}"), 20, ORDINARY)).collect();
        all.extend(shop.clone());
        admit(&mut vault, &all, &mut held, false);
        assert!(refused(&vault, &shop).is_empty());
    }

    #[test]
    fn a_namespace_has_its_quota_and_one_that_is_alone_has_everything() {
        let more_than_before = many("shop", 1_100, ORDINARY);
        let all = many("shop", 6_000, ORDINARY);
        for (alone, fits) in [(false, QUOTA / ORDINARY), (true, MOST / ORDINARY)] {
            let (mut vault, mut held) = (Vault::default(), BTreeSet::new());
            admit(&mut vault, &more_than_before, &mut held, alone);
            assert!(refused(&vault, &more_than_before).is_empty());
            admit(&mut vault, &all, &mut held, alone);
            assert_eq!(held.len(), fits);
            let why = &refused(&vault, &all)[0].hash;
            let why = vault.withholds(why).unwrap().to_string();
            assert!(why.starts_with("namespace shop has "), "{why}");
        }
    }

    #[test]
    fn what_is_handed_out_stays_and_so_does_its_successor() {
        let (mut vault, mut held) = (Vault::default(), BTreeSet::new());
        let mut all = many("shop", 6_000, ORDINARY);
        admit(&mut vault, &all, &mut held, false);
        let before = held.clone();
        // A namespace that comes first in order, and asks for what the other has.
        all.extend(many("aaa", 6_000, ORDINARY));
        all.extend(many("aab", 6_000, ORDINARY));
        admit(&mut vault, &all, &mut held, false);
        assert!(before.is_subset(&held));
        // Everything of the first one is renewed at once, a little larger.
        let places: BTreeSet<_> =
            all.iter().filter(|it| before.contains(&it.hash)).map(|it| it.places.clone()).collect();
        for it in all.iter_mut().filter(|it| places.contains(&it.places)) {
            *it =
                Item { hash: format!("{}-new", it.hash).into(), size: it.size + 100, ..it.clone() };
        }
        admit(&mut vault, &all, &mut held, false);
        let renewed: Vec<_> =
            all.iter().filter(|it| places.contains(&it.places)).cloned().collect();
        assert!(!renewed.is_empty() && refused(&vault, &renewed).is_empty());
    }

    #[test]
    fn a_successor_that_is_far_larger_has_to_find_room_and_sizes_do_not_creep_up() {
        let (mut vault, mut held) = (Vault::default(), BTreeSet::new());
        let mut all = many("shop", QUOTA / ORDINARY, ORDINARY);
        admit(&mut vault, &all, &mut held, false);
        assert!(refused(&vault, &all).is_empty());
        for step in 1..=10 {
            for it in &mut all {
                let hash = format!("{}-{step}", it.hash).into();
                *it = Item { hash, size: alike(it.size), ..it.clone() };
            }
            admit(&mut vault, &all, &mut held, false);
        }
        let used: usize = all.iter().filter(|it| held.contains(&it.hash)).map(|it| it.size).sum();
        assert!(used <= alike(QUOTA), "{used}");
    }

    #[test]
    fn one_that_is_padded_is_refused_and_one_in_two_namespaces_may_be_the_second_ones() {
        let (mut vault, mut held) = (Vault::default(), BTreeSet::new());
        let padded = item("shop", 0, LARGEST + 1);
        let mut all = many("aaa", 6_000, ORDINARY);
        let mut both = item("aaa", 9_999, ORDINARY);
        both.places.push(ObjectKey::new("shop", "copy"));
        all.extend([padded.clone(), both.clone()]);
        admit(&mut vault, &all, &mut held, false);
        assert_eq!(vault.withholds(&padded.hash), Some(&Withheld::TooLarge(LARGEST + 1)));
        assert_eq!(vault.withholds(&both.hash), None);
    }

    #[test]
    fn what_an_older_version_handed_out_stays_although_it_is_more_than_one_has() {
        let mut vault = Vault::default();
        let all = many("shop", 100, 2 * LARGEST);
        let mut held = all.iter().map(|it| it.hash.clone()).collect();
        admit(&mut vault, &all, &mut held, false);
        assert!(refused(&vault, &all).is_empty());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        /// In any history: what is in and still needed stays; a namespace within its share gets all in while
        /// fewer than a hundred have one; and never more is handed out than there is room for.
        #[test]
        fn holders_stay_and_small_ones_always_come_in(
            steps in prop::collection::vec((0usize..6, 0usize..60, 500usize..LARGEST), 1..10),
        ) {
            let (mut vault, mut held) = (Vault::default(), BTreeSet::new());
            let mut all: BTreeMap<usize, Vec<Item>> = BTreeMap::new();
            for (who, number, size) in steps {
                all.insert(who, many(&format!("ns-{who}"), number * 20, size));
                let items: Vec<_> = all.values().flatten().cloned().collect();
                let before = held.clone();
                admit(&mut vault, &items, &mut held, false);
                let needed: BTreeSet<_> = items.iter().map(|it| it.hash.clone()).collect();
                prop_assert!(before.intersection(&needed).all(|hash| held.contains(hash)));
                for own in all.values() {
                    let wants: usize = own.iter().map(|it| it.size).sum();
                    prop_assert!(wants > SHARE || refused(&vault, own).is_empty());
                }
                let used: usize =
                    items.iter().filter(|it| held.contains(&it.hash)).map(|it| it.size).sum();
                prop_assert!(used <= ROOM, "{}", used);
            }
        }
    }
}
