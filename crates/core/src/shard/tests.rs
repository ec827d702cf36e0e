//! Tests of packing: which shard an item goes to, and the order of the writes.

use super::*;
use proptest::prelude::*;

const LIMIT: usize = 10;

fn stamp(hash: u8, size: usize) -> Stamp<u8> {
    Stamp { hash, size }
}

/// An item: its key, hash and size.
type Item = (char, u8, usize);

fn shards(all: &[(u32, &[Item])]) -> Shards<char, u8> {
    let mut shards = Shards::new(LIMIT);
    for (index, items) in all {
        shards.observe(
            *index,
            items.iter().map(|(key, hash, size)| (*key, stamp(*hash, *size))).collect(),
        );
    }
    shards
}

/// Writes, one per line: `0: a1 b2` for the items with their hashes, or `0: gone`.
fn shown(writes: &[Write<char, u8>]) -> Vec<String> {
    let show = |write: &Write<char, u8>| match write {
        Write::Put { index, items } => {
            let items: Vec<_> =
                items.iter().map(|(key, stamp)| format!("{key}{}", stamp.hash)).collect();
            format!("{index}: {}", items.join(" "))
        }
        Write::Delete { index } => format!("{index}: gone"),
    };
    writes.iter().map(show).collect()
}

fn pack(shards: &Shards<char, u8>, wanted: &[(char, Option<(u8, usize)>)]) -> Vec<String> {
    let stamps = wanted.iter().map(|(key, it)| (*key, it.map(|(hash, size)| stamp(hash, size))));
    shown(&shards.pack(&stamps.collect()))
}

#[test]
fn a_new_item_goes_to_the_first_shard_with_room() {
    let shards = shards(&[(0, &[('a', 1, 8)]), (1, &[('b', 1, 5)])]);
    assert_eq!(pack(&shards, &[('c', Some((1, 2)))]), ["0: a1 c1"]);
    assert_eq!(pack(&shards, &[('c', Some((1, 3)))]), ["1: b1 c1"]);
    assert_eq!(pack(&shards, &[('c', Some((1, 6)))]), ["2: c1"]);
}

#[test]
fn an_item_stays_where_it_is_while_it_fits() {
    let shards = shards(&[(0, &[('a', 1, 1)]), (3, &[('b', 1, 5), ('c', 1, 1)])]);
    assert_eq!(pack(&shards, &[('b', Some((2, 9)))]), ["3: b2 c1"]);
    assert_eq!(pack(&shards, &[('b', Some((2, 10)))]), ["1: b2", "3: c1"]);
}

#[test]
fn an_item_that_moves_is_in_its_new_place_before_it_leaves_the_old_one() {
    let shards = shards(&[(0, &[('a', 1, 5), ('b', 1, 5)]), (1, &[('c', 1, 2)])]);
    let wanted = [('a', Some((2, 6))), ('b', Some((2, 4))), ('d', Some((1, 2)))];
    assert_eq!(pack(&shards, &wanted), ["1: a2 c1 d1", "0: b2"]);
}

#[test]
fn a_plan_without_items_has_no_shards() {
    let shards = shards(&[(0, &[('a', 1, 5)]), (1, &[('b', 1, 7), ('c', 1, 1)])]);
    assert_eq!(pack(&shards, &[('a', None), ('b', None), ('c', None)]), ["0: gone", "1: gone"]);
    assert_eq!(pack(&shards, &[('a', None), ('d', Some((1, 9)))]), ["0: d1"]);
}

#[test]
fn an_item_in_two_shards_is_taken_out_of_the_higher_one() {
    let shards =
        shards(&[(0, &[('a', 1, 5)]), (1, &[('a', 2, 5), ('b', 1, 5)]), (2, &[('a', 1, 5)])]);
    assert_eq!(pack(&shards, &[]), ["1: b1", "2: gone"]);
    assert_eq!(pack(&shards, &[('a', Some((2, 5)))]), ["0: a2", "1: b1", "2: gone"]);
}

#[test]
fn an_item_in_two_shards_stays_in_the_higher_one_if_it_fits_only_there() {
    let shards = shards(&[(0, &[('a', 1, 5), ('b', 1, 5)]), (1, &[('a', 2, 6)])]);
    assert_eq!(pack(&shards, &[('a', Some((2, 6)))]), ["0: b1"]);
}

#[test]
fn an_item_larger_than_a_shard_has_one_of_its_own() {
    let shards = shards(&[(0, &[('a', 1, 5)])]);
    assert_eq!(pack(&shards, &[('b', Some((1, 11)))]), ["1: b1"]);
}

#[test]
fn the_difference_names_what_is_new_different_or_gone() {
    let shards = shards(&[(0, &[('a', 1, 5), ('b', 1, 5)]), (1, &[('c', 1, 5)])]);
    let all = [('a', stamp(1, 5)), ('b', stamp(2, 5)), ('d', stamp(1, 1))].into();
    let wanted = [('b', Some(stamp(2, 5))), ('c', None), ('d', Some(stamp(1, 1)))].into();
    assert_eq!(shards.difference(&all), wanted);
}

#[test]
fn the_size_of_a_value_is_that_of_its_json() {
    assert_eq!(json_size(&[Some("a\n"), None]), r#"["a\n",null]"#.len());
}

fn items() -> impl Strategy<Value = Items<u8, u8>> {
    prop::collection::btree_map(0..12u8, (0..3u8, 0..8usize).prop_map(|(h, s)| stamp(h, s)), 0..9)
}

proptest! {
    #[test]
    fn packing_loses_nothing_on_the_way_and_ends_with_what_is_wanted(
        old in prop::collection::btree_map(0..5u32, items(), 0..4),
        new in items(),
    ) {
        let mut shards = Shards::new(LIMIT);
        let mut before = BTreeSet::new();
        for (index, items) in old {
            before.extend(items.keys().copied());
            shards.observe(index, items);
        }
        let untouched: Vec<_> = new
            .iter()
            .filter(|(key, stamp)| shards.get(key) == Some(stamp))
            .map(|(key, _)| (*key, *shards.places[key].first().unwrap()))
            .collect();
        let sizes = shards.sizes.clone();
        let wanted = shards.difference(&new);
        for write in shards.pack(&wanted) {
            shards.written(write);
            for key in new.keys().filter(|key| before.contains(key)) {
                prop_assert!(shards.get(key).is_some(), "{} is missing: {:?}", key, shards);
            }
        }
        let all: Vec<_> = shards.shards.values().flatten().map(|(key, it)| (*key, *it)).collect();
        prop_assert_eq!(all.len(), new.len());
        prop_assert_eq!(all.into_iter().collect::<BTreeMap<_, _>>(), new);
        for (index, size) in &shards.sizes {
            let before = sizes.get(index).copied().unwrap_or(0);
            prop_assert!(*size <= LIMIT.max(before), "{}: {:?}", index, shards);
            prop_assert!(!shards.shards[index].is_empty());
        }
        for (key, index) in untouched {
            prop_assert_eq!(shards.places[&key].first(), Some(&index));
        }
        prop_assert_eq!(shards.pack(&BTreeMap::new()), []);
        prop_assert!(shards.repeated.is_empty());
    }
}
