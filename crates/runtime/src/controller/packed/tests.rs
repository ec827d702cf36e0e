//! Tests of packed objects.

use super::*;
use std::cell::Cell;

fn stamp(hash: u8) -> Stamp<u8> {
    Stamp { hash, size: 10 }
}

/// Objects of at most this many bytes; all items belong to one tenant.
fn packed<K: Ord + Clone>(limit: usize) -> Packed<K, u8> {
    Packed::new(Shards::new(limit), |_| "".into())
}

/// The next version that the API gives.
fn newer<K: Ord, H>(packed: &Packed<K, H>) -> String {
    let versions = packed.versions.values().map(|version| version.parse::<u64>().unwrap());
    (versions.max().unwrap_or(0) + 1).to_string()
}

/// Carries out all writes, with no other writer.
fn settle(packed: &mut Packed<&'static str, u8>) -> Vec<Write<&'static str, u8>> {
    let mut writes = Vec::new();
    while let Some(write) = packed.next(None, Uptime::default()) {
        let deletes = matches!(write, Write::Delete { .. });
        let version = (!deletes).then(|| newer(packed));
        packed.wrote(write.clone(), version);
        writes.push(write);
    }
    writes
}

#[test]
fn what_is_as_wanted_is_not_written_and_what_somebody_changed_is_written_again() {
    let mut packed = self::packed(100);
    packed.want("a", Some(stamp(1)));
    let first = Write::Put { index: 0, items: Items::from([("a", stamp(1))]) };
    assert_eq!(settle(&mut packed), std::slice::from_ref(&first));
    assert_eq!(settle(&mut packed), []);
    packed.want("a", Some(stamp(1)));
    assert_eq!(settle(&mut packed), []);
    packed.seen(0, "9".to_owned(), None, Items::from([("b", stamp(7))]));
    assert_eq!(settle(&mut packed), [first]);
    packed.gone(0);
    assert_eq!(settle(&mut packed).len(), 1);
    packed.want("a", None);
    assert_eq!(settle(&mut packed), [Write::Delete { index: 0 }]);
    assert!(packed.is_empty());
}

fn put(index: u32, items: &[(&'static str, Stamp<u8>)]) -> Write<&'static str, u8> {
    Write::Put { index, items: items.iter().copied().collect() }
}

#[test]
fn the_old_copy_of_what_moved_is_taken_out_however_often_somebody_looks() {
    let now = Uptime::default();
    let mut packed = self::packed(24);
    let small = Stamp { hash: 1, size: 5 };
    let grown = Stamp { hash: 4, size: 15 };
    packed.seen(0, "1".to_owned(), None, Items::from([("a", small)]));
    packed.seen(1, "2".to_owned(), None, Items::from([("b", stamp(2)), ("c", stamp(3))]));
    packed.want("a", Some(small));
    packed.want("b", Some(stamp(2)));
    packed.want("c", Some(stamp(3)));
    assert!(packed.is_settled());
    packed.want("c", Some(grown));
    let moved = packed.next(None, now).unwrap();
    assert_eq!(moved, put(0, &[("a", small), ("c", grown)]));
    packed.wrote(moved, Some("3".to_owned()));
    for _ in 0..3 {
        assert!(!packed.is_settled());
        assert_eq!(packed.next(None, now), Some(put(1, &[("b", stamp(2))])));
    }
    settle(&mut packed);
    assert!(packed.is_settled());
}

#[test]
fn an_object_that_cannot_be_written_does_not_hold_up_the_others() {
    let now = Uptime::default();
    let later = now + std::time::Duration::from_secs(9);
    let mut packed = self::packed(15);
    packed.want("a", Some(stamp(1)));
    packed.want("b", Some(stamp(2)));
    assert_eq!(packed.next(None, now), Some(put(0, &[("a", stamp(1))])));
    packed.refused(0, later);
    let other = put(1, &[("b", stamp(2))]);
    assert_eq!(packed.next(None, now), Some(other.clone()));
    packed.wrote(other, Some("1".to_owned()));
    assert_eq!(packed.next(None, now), None);
    assert!(!packed.is_settled());
    assert_eq!(packed.next(None, later), Some(put(0, &[("a", stamp(1))])));
}

#[test]
fn what_moves_to_an_object_that_cannot_be_written_stays_where_it_is() {
    let now = Uptime::default();
    let mut packed = self::packed(25);
    packed.seen(0, "1".to_owned(), None, Items::from([("a", stamp(1)), ("b", stamp(2))]));
    packed.want("a", Some(stamp(1)));
    packed.want("b", Some(Stamp { hash: 3, size: 20 }));
    let moved = put(1, &[("b", Stamp { hash: 3, size: 20 })]);
    assert_eq!(packed.next(None, now), Some(moved));
    packed.refused(1, now + std::time::Duration::from_secs(9));
    assert_eq!(packed.next(None, now), None);
}

#[test]
fn an_object_that_changes_all_the_time_keeps_no_other_from_being_written() {
    let now = Uptime::default();
    let mut packed = Packed::new(Shards::new(15), |_| "".into());
    for key in ["a", "b", "c"] {
        packed.want(key, Some(stamp(0)));
    }
    settle(&mut packed);
    packed.want("c", Some(stamp(1)));
    let mut written = Vec::new();
    for change in 1..6 {
        packed.want("a", Some(stamp(change)));
        packed.want("b", Some(stamp(change)));
        let write = packed.next(None, now).unwrap();
        written.push(write.index());
        let version = newer(&packed);
        packed.wrote(write, Some(version));
    }
    assert_eq!(written, [2, 0, 1, 0, 1]);
}

thread_local! {
    static CLONES: Cell<usize> = const { Cell::new(0) };
}

/// An item that counts how often one is copied. All work on items copies them.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Counted(usize);

impl Clone for Counted {
    fn clone(&self) -> Self {
        CLONES.set(CLONES.get() + 1);
        Self(self.0)
    }
}

/// Carries out all writes, and asks between them what the controller asks. Returns the copies of
/// items made for one write.
fn cost(packed: &mut Packed<Counted, u8>, writes: usize) -> usize {
    CLONES.set(0);
    for _ in 0..writes {
        assert!(!packed.is_settled());
        let write = packed.next(None, Uptime::default()).unwrap();
        let version = newer(packed);
        packed.wrote(write, Some(version));
    }
    assert!(packed.is_settled());
    CLONES.get() / writes
}

#[test]
fn a_write_among_ten_thousand_items_costs_as_much_as_one_among_a_thousand() {
    let costs = |items: usize| {
        let mut packed = self::packed(100);
        (0..items).for_each(|item| packed.want(Counted(item), Some(stamp(1))));
        let all = cost(&mut packed, items / 10);
        packed.want(Counted(items / 2), Some(stamp(2)));
        (all, cost(&mut packed, 1))
    };
    assert_eq!(costs(1_000), costs(10_000));
    let (all, one) = costs(1_000);
    assert!(all < 100 && one < 100, "{all} and {one} copies for a write of ten items");
}

#[test]
fn what_the_watch_shows_before_the_answer_comes_leaves_the_other_writes_as_they_are() {
    let now = Uptime::default();
    let mut packed = self::packed(15);
    packed.want("a", Some(stamp(1)));
    packed.want("b", Some(stamp(2)));
    let first = packed.next(None, now).unwrap();
    packed.seen(0, "5".to_owned(), None, Items::from([("a", stamp(1))]));
    packed.wrote(first.clone(), Some("5".to_owned()));
    assert_eq!(packed.next(None, now), Some(put(1, &[("b", stamp(2))])));
    packed.seen(0, "7".to_owned(), None, Items::from([("a", stamp(9))]));
    packed.wrote(first.clone(), Some("6".to_owned()));
    assert_eq!(packed.version(0), Some("7"));
    assert_eq!(settle(&mut packed), [put(1, &[("b", stamp(2))]), first]);
}
