//! Tests of the order of writes: tenants take turns, and no item is lost on the way.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// An item: its tenant and a number.
type Key = (&'static str, u32);

fn stamp(hash: u8, size: usize) -> Stamp<u8> {
    Stamp { hash, size }
}

/// Shards for ten bytes, which may grow to `most`.
fn rewrite(most: usize) -> Rewrite<Key, u8> {
    Rewrite::new(Shards::new(10).growing_to(most), |(tenant, _)| Arc::from(*tenant))
}

/// Carries out the next write and returns its shard.
fn write(rewrite: &mut Rewrite<Key, u8>) -> Option<u32> {
    let write = rewrite.next(|_| true)?;
    let index = write.index();
    rewrite.happened(write);
    Some(index)
}

fn settle(rewrite: &mut Rewrite<Key, u8>) -> Vec<u32> {
    std::iter::from_fn(|| write(rewrite)).collect()
}

/// Tenant evil has forty shards; the item of tenant shop comes after them.
fn crowded() -> Rewrite<Key, u8> {
    let mut rewrite = rewrite(40);
    for number in 0..400 {
        rewrite.want(("evil", number), Some(stamp(0, 1)));
    }
    settle(&mut rewrite);
    rewrite.want(("shop", 0), Some(stamp(0, 1)));
    assert_eq!(settle(&mut rewrite), [40]);
    rewrite
}

#[test]
fn a_tenant_that_changes_all_its_items_before_every_write_delays_another_by_one_write() {
    let mut rewrite = crowded();
    let change = |rewrite: &mut Rewrite<Key, u8>, hash: u8| {
        (0..400).for_each(|number| rewrite.want(("evil", number), Some(stamp(hash, 1))));
    };
    change(&mut rewrite, 1);
    rewrite.want(("shop", 0), Some(stamp(1, 1)));
    let mut written = Vec::new();
    for hash in 2..6 {
        written.extend(write(&mut rewrite));
        change(&mut rewrite, hash);
    }
    assert_eq!(written, [0, 40, 1, 2]);
    assert!(!rewrite.is_open(&("shop", 0)));
    // Within a tenant, the item that waits longest comes first: all its shards are written, one after another.
    let more: BTreeSet<_> = (0..38).map(|_| write(&mut rewrite).unwrap()).collect();
    assert_eq!(more, (0..40).filter(|it| ![1, 2].contains(it)).collect());
}

#[test]
fn items_whose_keys_name_no_tenant_take_turns_by_the_tenant_that_was_said() {
    let mut rewrite = Rewrite::new(Shards::new(10), |_: &u32| Arc::from(""));
    let (evil, shop) = (Arc::from("evil"), Arc::from("shop"));
    let next = |rewrite: &mut Rewrite<u32, u8>| {
        let write = rewrite.next(|_| true).unwrap();
        rewrite.happened(write.clone());
        write.index()
    };
    for item in 0..5 {
        rewrite.belongs(&item, if item == 4 { &shop } else { &evil });
        rewrite.want(item, Some(stamp(0, 10)));
    }
    assert_eq!([(); 5].map(|()| next(&mut rewrite)), [0, 4, 1, 2, 3]);
    // An item that is to be removed still belongs to its tenant; a removed item belongs to none.
    (0..5).for_each(|item| rewrite.want(item, None));
    assert_eq!([(); 5].map(|()| next(&mut rewrite)), [0, 4, 1, 2, 3]);
    assert!(rewrite.is_settled() && rewrite.tenants.is_empty());
}

#[test]
fn an_item_that_waits_goes_over_to_the_tenant_to_which_it_belongs_now() {
    let mut rewrite = rewrite(10);
    for number in 0..3 {
        rewrite.want(("evil", number), Some(stamp(0, 10)));
    }
    rewrite.belongs(&("evil", 2), &Arc::from("shop"));
    assert_eq!(settle(&mut rewrite), [0, 2, 1]);
    assert!(rewrite.is_settled());
}

#[test]
fn who_looks_takes_no_turn() {
    let mut rewrite = crowded();
    rewrite.want(("evil", 0), Some(stamp(1, 1)));
    rewrite.want(("evil", 399), Some(stamp(1, 1)));
    rewrite.want(("shop", 0), Some(stamp(1, 1)));
    for _ in 0..3 {
        assert_eq!(rewrite.next(|_| true).unwrap().index(), 0);
    }
    // A failed write counts as a turn.
    rewrite.passed(0);
    assert_eq!(rewrite.next(|_| true).unwrap().index(), 40);
    assert_eq!(rewrite.next(|index| index != 40).unwrap().index(), 0);
    assert_eq!(settle(&mut rewrite), [40, 0, 39]);
}

#[test]
fn an_item_that_grows_stays_where_it_is_and_needs_one_write() {
    let mut rewrite = rewrite(40);
    for number in 0..10 {
        rewrite.want(("shop", number), Some(stamp(0, 1)));
    }
    settle(&mut rewrite);
    rewrite.want(("shop", 3), Some(stamp(1, 31)));
    assert_eq!(settle(&mut rewrite), [0]);
    rewrite.want(("shop", 4), Some(stamp(1, 2)));
    assert_eq!(settle(&mut rewrite), [1, 0]);
}

/// A change of an item: the tenant, the number, the wanted stamp, and whether all items of the tenant change alike.
type Change = (usize, u32, Option<(u8, usize)>, bool);

const TENANTS: [&str; 3] = ["evil", "more", "other"];

fn changes(largest: usize) -> impl Strategy<Value = Vec<Vec<Change>>> {
    let stamp = prop::option::weighted(0.8, (0..4u8, 1..largest));
    let change = (0..TENANTS.len(), 0..12u32, stamp, prop::bool::weighted(0.3));
    prop::collection::vec(prop::collection::vec(change, 0..4), 1..25)
}

fn apply(rewrite: &mut Rewrite<Key, u8>, changes: &[Change]) {
    for (tenant, number, to, all) in changes {
        let numbers = if *all { 0..12 } else { *number..*number + 1 };
        for number in numbers {
            rewrite.want((TENANTS[*tenant], number), to.map(|(hash, size)| stamp(hash, size)));
        }
    }
}

proptest! {
    /// Shop changes one item. Before every write the other tenants change anything, while their items may grow where
    /// they are. Shop's change is written after one write of each other tenant.
    #[test]
    fn a_change_waits_for_one_write_of_each_other_tenant_whatever_they_change(
        before in changes(4), after in changes(4), to in prop::option::of(1..4usize),
    ) {
        let mut rewrite = rewrite(200);
        rewrite.want(("shop", 0), Some(stamp(0, 1)));
        for changes in &before {
            apply(&mut rewrite, changes);
            write(&mut rewrite);
        }
        while rewrite.is_open(&("shop", 0)) {
            write(&mut rewrite);
        }
        rewrite.want(("shop", 0), to.map(|size| stamp(9, size)));
        let mut writes = 0;
        let mut after = after.iter();
        while rewrite.is_open(&("shop", 0)) {
            writes += usize::from(write(&mut rewrite).is_some());
            prop_assert!(writes <= 1 + TENANTS.len(), "{writes} writes, {rewrite:?}");
            apply(&mut rewrite, after.next().map_or(&[], Vec::as_slice));
        }
    }

    /// At every moment, each item that existed and is still wanted is in some shard, also while items move, some shards
    /// cannot be written for a while, and everything changes. In the end everything is as wanted.
    #[test]
    fn nothing_is_lost_on_the_way_and_in_the_end_all_is_as_wanted(
        steps in changes(9), most in 10..30usize, stuck in prop::collection::vec(0..6u32, 0..25),
    ) {
        let mut rewrite = rewrite(most);
        let mut there: BTreeSet<Key> = BTreeSet::new();
        let mut stuck = stuck.into_iter();
        for changes in &steps {
            apply(&mut rewrite, changes);
            there.retain(|key| rewrite.wanted().contains_key(key));
            let stuck = stuck.next();
            if let Some(write) = rewrite.next(|index| Some(index) != stuck) {
                let whole = write.items().is_none_or(|items| {
                    items.iter().all(|(key, stamp)| rewrite.wanted().get(key) == Some(stamp))
                });
                prop_assert!(whole, "what is written is as wanted: {write:?}");
                rewrite.happened(write);
            }
            for key in &there {
                prop_assert!(rewrite.shards().get(key).is_some(), "{key:?} is missing: {rewrite:?}");
            }
            there.extend(rewrite.shards().keys().filter(|key| rewrite.wanted().contains_key(*key)));
        }
        for _ in 0..100 {
            write(&mut rewrite);
        }
        prop_assert!(rewrite.is_settled());
        prop_assert_eq!(rewrite.shards().difference(rewrite.wanted()), Wanted::new());
        for (index, size) in &rewrite.shards().sizes {
            prop_assert!(*size <= most, "{index}: {rewrite:?}");
        }
    }
}
