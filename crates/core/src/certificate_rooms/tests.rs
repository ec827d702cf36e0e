//! Tests of which certificates have room, over histories of needs.

use super::*;
use crate::cases::cases;
use proptest::prelude::*;

/// A certificate of a namespace, in the Secret of this number.
#[derive(Clone, Debug)]
struct Item {
    hash: Arc<str>,
    places: Vec<ObjectKey>,
    size: usize,
    since: Timestamp,
}

fn item(namespace: &str, number: usize, size: usize) -> Item {
    let places = vec![ObjectKey::new(namespace, format!("tls-{number:05}"))];
    Item { hash: format!("{namespace}-{number:05}-{size}").into(), places, size, since: 0 }
}

/// Decides once, and adds the certificates that are handed out to `held`.
fn admit(rooms: &mut CertificateRooms, items: &[Item], held: &mut BTreeSet<Arc<str>>, alone: bool) {
    let needs = items.iter().map(|it| need(it, held.contains(&it.hash), None));
    rooms.admit(needs, [], alone);
    let admitted = items.iter().filter(|it| rooms.withholds(&it.hash).is_none());
    *held = admitted.map(|it| it.hash.clone()).collect();
}

fn need(it: &Item, held: bool, room: Option<Room>) -> Need<'_> {
    Need { hash: &it.hash, size: it.size, places: &it.places, held, room, since: it.since }
}

fn many(namespace: &str, number: usize, size: usize) -> Vec<Item> {
    (0..number).map(|n| item(namespace, n, size)).collect()
}

fn refused<'a>(rooms: &CertificateRooms, items: &'a [Item]) -> Vec<&'a Item> {
    items.iter().filter(|it| rooms.withholds(&it.hash).is_some()).collect()
}

const ORDINARY: usize = 5_700;

#[test]
fn one_namespace_cannot_use_up_what_others_need() {
    let (mut rooms, mut held) = (CertificateRooms::default(), BTreeSet::new());
    let mut all = many("evil", 10_000, LARGEST);
    all.extend(many("evil-2", 10_000, LARGEST));
    all.extend(many("evil-3", 10_000, LARGEST));
    admit(&mut rooms, &all, &mut held, false);
    let evil = all.iter().filter(|it| held.contains(&it.hash)).map(|it| it.size).sum::<usize>();
    assert!(evil <= MOST / 2 + 3 * SHARE, "{evil}");
    let shop: Vec<_> = (0..100).flat_map(|n| many(&format!("shop-{n}"), 20, ORDINARY)).collect();
    all.extend(shop.clone());
    admit(&mut rooms, &all, &mut held, false);
    assert!(refused(&rooms, &shop).is_empty());
}

#[test]
fn a_namespace_has_its_quota_and_one_that_is_alone_has_everything() {
    let more_than_before = many("shop", 1_100, ORDINARY);
    let all = many("shop", 6_000, ORDINARY);
    for (alone, fits, said) in [
        (false, QUOTA.each / ORDINARY, "namespace shop has 6720 KiB "),
        (true, MOST / ORDINARY, "all 26880 KiB "),
    ] {
        let (mut rooms, mut held) = (CertificateRooms::default(), BTreeSet::new());
        admit(&mut rooms, &more_than_before, &mut held, alone);
        assert!(refused(&rooms, &more_than_before).is_empty());
        admit(&mut rooms, &all, &mut held, alone);
        assert_eq!(held.len(), fits);
        let why = &refused(&rooms, &all)[0].hash;
        let why = rooms.withholds(why).unwrap().to_string();
        assert!(why.starts_with(said), "{why}");
    }
}

#[test]
fn what_is_handed_out_stays_and_so_does_its_successor() {
    let (mut rooms, mut held) = (CertificateRooms::default(), BTreeSet::new());
    let mut all = many("shop", 6_000, ORDINARY);
    admit(&mut rooms, &all, &mut held, false);
    let before = held.clone();
    // A namespace that comes first in order wants the room of the other one.
    all.extend(many("aaa", 6_000, ORDINARY));
    all.extend(many("aab", 6_000, ORDINARY));
    admit(&mut rooms, &all, &mut held, false);
    assert!(before.is_subset(&held));
    // All certificates of the first namespace are renewed at once, a little larger.
    let places: BTreeSet<_> =
        all.iter().filter(|it| before.contains(&it.hash)).map(|it| it.places.clone()).collect();
    for it in all.iter_mut().filter(|it| places.contains(&it.places)) {
        *it = Item { hash: format!("{}-new", it.hash).into(), size: it.size + 100, ..it.clone() };
    }
    admit(&mut rooms, &all, &mut held, false);
    let renewed: Vec<_> = all.iter().filter(|it| places.contains(&it.places)).cloned().collect();
    assert!(!renewed.is_empty() && refused(&rooms, &renewed).is_empty());
}

#[test]
fn a_successor_that_is_far_larger_has_to_find_room_and_sizes_do_not_creep_up() {
    let (mut rooms, mut held) = (CertificateRooms::default(), BTreeSet::new());
    let mut all = many("shop", QUOTA.each / ORDINARY, ORDINARY);
    admit(&mut rooms, &all, &mut held, false);
    assert!(refused(&rooms, &all).is_empty());
    for step in 1..=10 {
        for it in &mut all {
            let hash = format!("{}-{step}", it.hash).into();
            *it = Item { hash, size: alike(it.size), ..it.clone() };
        }
        admit(&mut rooms, &all, &mut held, false);
    }
    let used: usize = all.iter().filter(|it| held.contains(&it.hash)).map(|it| it.size).sum();
    assert!(used <= alike(QUOTA.each), "{used}");
}

#[test]
fn one_that_is_padded_is_refused_and_one_in_two_namespaces_may_be_the_second_ones() {
    let (mut rooms, mut held) = (CertificateRooms::default(), BTreeSet::new());
    let padded = item("shop", 0, LARGEST + 1);
    let mut all = many("aaa", 6_000, ORDINARY);
    let mut both = item("aaa", 9_999, ORDINARY);
    both.places.push(ObjectKey::new("shop", "copy"));
    all.extend([padded.clone(), both.clone()]);
    admit(&mut rooms, &all, &mut held, false);
    assert_eq!(rooms.withholds(&padded.hash), Some(&Withheld::TooLarge(LARGEST + 1)));
    assert_eq!(rooms.withholds(&both.hash), None);
}

#[test]
fn what_an_older_version_handed_out_stays_although_it_is_more_than_one_has() {
    let mut rooms = CertificateRooms::default();
    let all = many("shop", 100, 2 * LARGEST);
    let mut held = all.iter().map(|it| it.hash.clone()).collect();
    admit(&mut rooms, &all, &mut held, false);
    assert!(refused(&rooms, &all).is_empty());
}

/// A rooms in which three namespaces use all of the common room, and their certificates.
fn full() -> (CertificateRooms, BTreeSet<Arc<str>>, Vec<Item>) {
    let (mut rooms, mut held) = (CertificateRooms::default(), BTreeSet::new());
    let namespaces = ["evil-1", "evil-2", "shop"].iter();
    let all: Vec<_> = namespaces.flat_map(|it| many(it, 2_000, ORDINARY)).collect();
    admit(&mut rooms, &all, &mut held, false);
    let has: Vec<_> = all.into_iter().filter(|it| held.contains(&it.hash)).collect();
    (rooms, held, has)
}

/// The successor of a certificate in its Secret.
fn renewed(it: &Item, size: usize) -> Item {
    Item { hash: format!("{}-renewed", it.hash).into(), size, ..it.clone() }
}

#[test]
fn a_renewal_has_its_room_before_an_older_one_that_waits_also_at_a_leader_that_begins() {
    let (rooms, held, has) = full();
    let (old, rest) = has.split_last().unwrap();
    let new = renewed(old, ORDINARY + 50);
    // It comes first in order, is the oldest, and wants the room of the renewed certificate.
    let waiter = Item { since: -1, ..item("aaa", 0, LARGEST) };
    let many_more: Vec<_> =
        (1..10).map(|n| Item { since: -1, ..item("aaa", n, LARGEST) }).collect();
    let recorded = |hash: &Arc<str>| rooms.room(hash);
    for begins in [false, true] {
        let mut leader = if begins { CertificateRooms::default() } else { rooms.clone() };
        let holders = rest.iter().map(|it| need(it, true, recorded(&it.hash)));
        let waiting = many_more.iter().chain([&waiter]).map(|it| need(it, false, None));
        let needs: Vec<_> = waiting.chain(holders).chain([need(&new, false, None)]).collect();
        let leaving = [(old.hash.clone(), recorded(&old.hash).unwrap())];
        leader.admit(needs, leaving, false);
        assert_eq!(leader.withholds(&new.hash), None, "begins: {begins}");
        assert!(leader.withheld().len() > 3, "{:?}", leader.withheld());
    }
    assert!(held.contains(&old.hash));
}

#[test]
fn a_renewal_that_is_too_large_is_withheld_and_its_secret_keeps_its_room() {
    let (mut rooms, mut held, mut all) = full();
    let old = all.pop().unwrap();
    let waiter = Item { since: -1, ..item("shop", 9_999, ORDINARY) };
    all.extend([waiter.clone(), renewed(&old, LARGEST + 1)]);
    admit(&mut rooms, &all, &mut held, false);
    assert_eq!(refused(&rooms, &all).len(), 2);
    let room = Room { place: SecretHash::of(&old.places[0]), size: old.size };
    let is_there = |hash: &Arc<str>| held.contains(hash);
    assert!(rooms.reserves(&old.hash, Some(room), is_there));
    all.pop();
    let new = renewed(&old, ORDINARY);
    all.push(new.clone());
    admit(&mut rooms, &all, &mut held, false);
    assert_eq!(refused(&rooms, &all).iter().map(|it| &it.hash).collect::<Vec<_>>(), [&waiter.hash]);
    // When no object needs the Secret any more, the waiting certificate gets its room.
    all.pop();
    admit(&mut rooms, &all, &mut held, false);
    assert!(refused(&rooms, &all).is_empty());
}

#[test]
fn what_waits_is_served_oldest_first() {
    let (mut rooms, _, mut has) = full();
    let freed = has.pop().unwrap();
    let young = Item { since: 20, ..item("shop", 7_000, freed.size) };
    let old = Item { since: 10, ..item("shop", 7_001, freed.size) };
    let holders = has.iter().map(|it| need(it, true, None));
    let waiting = [need(&young, false, None), need(&old, false, None)];
    rooms.admit(holders.chain(waiting), [], false);
    assert_eq!(rooms.withheld().keys().collect::<Vec<_>>(), [&young.hash]);
    assert!(rooms.room(&old.hash).is_some());
}

#[test]
fn certificates_that_change_at_every_look_have_one_room_each_and_hold_up_none_that_waits() {
    let (mut rooms, mut held, mut has) = full();
    let freed = has.pop().unwrap();
    let waiter = Item { since: 20, ..item("shop", 7_000, freed.size) };
    for round in 0..20 {
        let changing = many("fast", SHARE / ORDINARY, ORDINARY).into_iter();
        let changing = changing.map(|it| {
            let hash = format!("{}-{round}", it.hash).into();
            // Ingresses older than that of the waiting certificate.
            Item { hash, since: -1, ..it }
        });
        let all: Vec<_> = has.iter().cloned().chain(changing).chain([waiter.clone()]).collect();
        // The certificates of this namespace change before they are read, so none is ever handed out.
        held.retain(|hash| !hash.starts_with("fast"));
        admit(&mut rooms, &all, &mut held, false);
        assert_eq!(refused(&rooms, &all).len(), 0, "in round {round}");
    }
}

#[test]
fn a_certificate_stays_as_the_record_of_its_room_until_its_successor_is_handed_out() {
    let (mut rooms, mut held, mut all) = full();
    let old = all.pop().unwrap();
    let room = rooms.room(&old.hash);
    let new = renewed(&old, ORDINARY + 50);
    all.push(new.clone());
    held.remove(&old.hash);
    admit(&mut rooms, &all, &mut held, false);
    assert!(rooms.reserves(&old.hash, room, |_| false), "the successor has not been written");
    assert!(!rooms.reserves(&old.hash, room, |hash| *hash == new.hash));
    assert!(!rooms.reserves(&old.hash, None, |_| false), "without a room there is nothing to keep");
    // No object needs the user's Secret any more, so no certificate has its room.
    all.pop();
    admit(&mut rooms, &all, &mut held, false);
    assert!(!rooms.reserves(&old.hash, room, |_| false));
}

#[test]
fn copies_of_one_certificate_that_become_different_ones_have_room_for_one() {
    let (mut rooms, mut held, mut all) = full();
    let it = all.pop().unwrap();
    let copies = (0..50).map(|n| ObjectKey::new("shop", format!("z-copy-{n:02}")));
    let places = it.places.iter().cloned().chain(copies).collect();
    all.push(Item { places, ..it.clone() });
    admit(&mut rooms, &all, &mut held, false);
    let last = all.pop().unwrap();
    for (n, place) in last.places.iter().enumerate() {
        let (hash, places) = (format!("different-{n}").into(), vec![place.clone()]);
        all.push(Item { hash, places, ..it.clone() });
        // The copies go one after another; those that are left still need the first certificate.
        let places = last.places[n + 1..].to_vec();
        let left = (!places.is_empty()).then(|| Item { places, ..last.clone() });
        let now: Vec<_> = all.iter().cloned().chain(left).collect();
        admit(&mut rooms, &now, &mut held, false);
    }
    assert_eq!(refused(&rooms, &all).len(), last.places.len() - 1);
}

#[test]
fn a_room_is_read_as_it_was_recorded() {
    let room = Room { place: SecretHash::of(&ObjectKey::new("shop", "tls")), size: 5_700 };
    assert_eq!(room.to_string().parse(), Ok(room));
    for bad in ["", "12", "x:1", "1:x", "1:-1", "1:99999999"] {
        assert!(bad.parse::<Room>().is_err(), "{bad}");
    }
}

proptest! {
    #![proptest_config(cases(16))]

    /// In any history: a certificate that is held and still needed stays. A namespace within its share gets all its
    /// certificates, while fewer than a hundred namespaces have any. The certificates never need more room than there
    /// is.
    #[test]
    fn holders_stay_and_small_ones_always_come_in(
        steps in prop::collection::vec((0usize..6, 0usize..60, 500usize..LARGEST), 1..10),
    ) {
        let (mut rooms, mut held) = (CertificateRooms::default(), BTreeSet::new());
        let mut all: BTreeMap<usize, Vec<Item>> = BTreeMap::new();
        for (who, number, size) in steps {
            all.insert(who, many(&format!("ns-{who}"), number * 20, size));
            let items: Vec<_> = all.values().flatten().cloned().collect();
            let before = held.clone();
            admit(&mut rooms, &items, &mut held, false);
            let needed: BTreeSet<_> = items.iter().map(|it| it.hash.clone()).collect();
            prop_assert!(before.intersection(&needed).all(|hash| held.contains(hash)));
            for own in all.values() {
                let wants: usize = own.iter().map(|it| it.size).sum();
                prop_assert!(wants > SHARE || refused(&rooms, own).is_empty());
            }
            let used: usize =
                items.iter().filter(|it| held.contains(&it.hash)).map(|it| it.size).sum();
            prop_assert!(used <= CAPACITY, "{}", used);
        }
    }
}
