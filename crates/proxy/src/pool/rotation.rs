//! Smooth weighted round-robin without a lock. One counter walks over the members again and again. In
//! each walk the heaviest members are picked every time, and a member of weight w in w of `heaviest`
//! walks, evenly spread. With equal weights that is plain round-robin. Over any g walks a member is
//! picked g·w/heaviest times, give or take one: as smooth as nginx's, at a cost that does not grow
//! with the number of members unless their weights differ wildly.

use super::live::View;
use std::sync::atomic::{AtomicU64, Ordering};

/// The next member that is not to be skipped.
pub(super) fn pick(
    live: View<'_>,
    counter: &AtomicU64,
    mut skip: impl FnMut(usize) -> bool,
) -> Option<usize> {
    let members = live.len();
    if members == 0 {
        return None;
    }
    // Each walk picks the heaviest, so one walk finds a member unless the heaviest are skipped.
    for _ in 0..members * 2 {
        let step = counter.fetch_add(1, Ordering::Relaxed);
        let member = live.member((step % members as u64) as usize);
        if has_turn(live, member, step / members as u64) && !skip(member) {
            return Some(member);
        }
    }
    live.members().find(|member| !skip(*member))
}

fn has_turn(live: View<'_>, member: usize, walk: u64) -> bool {
    if live.equal {
        return true;
    }
    let heaviest = u64::from(live.heaviest).max(1);
    let weight = u64::from(live.weight(member));
    // Members start at different phases, so that light ones are not all picked in the same walk.
    let turn = (member as u64).wrapping_mul(GOLDEN);
    let phase = ((u128::from(turn) * u128::from(heaviest)) >> 64) as u64;
    let position = (weight * (walk % heaviest) + phase) % heaviest;
    position >= heaviest.saturating_sub(weight)
}

/// 2⁶⁴ divided by the golden ratio: its multiples, modulo 2⁶⁴, are spread evenly.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

#[cfg(test)]
mod tests {
    use super::super::live::Live;
    use super::*;
    use proptest::prelude::*;

    fn picks(weights: &[u16], n: usize, start: u64) -> Vec<usize> {
        let live = Live::new(weights.into(), |_| true);
        let counter = AtomicU64::new(start);
        (0..n).filter_map(|_| pick(live.view(), &counter, |_| false)).collect()
    }

    #[test]
    fn equal_weights_take_turns() {
        assert_eq!(picks(&[7, 7, 7], 7, 0), [0, 1, 2, 0, 1, 2, 0]);
    }

    #[test]
    fn light_members_come_between_the_picks_of_the_heavy_one() {
        assert_eq!(picks(&[5, 1, 1], 7, 0), [0, 0, 1, 0, 0, 2, 0]);
    }

    #[test]
    fn skipped_members_are_passed_over_and_all_skipped_is_none() {
        let live = Live::new([60_000, 1, 1].into(), |_| true);
        let counter = AtomicU64::new(0);
        assert_ne!(pick(live.view(), &counter, |i| i == 0), Some(0));
        assert_eq!(pick(live.view(), &counter, |_| true), None);
    }

    #[test]
    fn members_that_are_down_leave_their_turns_to_all_others_alike() {
        let live = Live::new([2; 10].into(), |_| true);
        for down in [1, 2, 3, 4] {
            live.set(down, false);
        }
        let counter = AtomicU64::new(0);
        let mut counts = [0; 10];
        for _ in 0..60 {
            counts[pick(live.view(), &counter, |_| false).unwrap()] += 1;
        }
        assert_eq!(counts, [10, 0, 0, 0, 0, 10, 10, 10, 10, 10]);
        // The heaviest is down: the lighter ones take turns as if it were not there.
        let live = Live::new([60_000, 1, 3].into(), |member| member > 0);
        let mut counts = [0; 3];
        for _ in 0..40 {
            counts[pick(live.view(), &counter, |_| false).unwrap()] += 1;
        }
        assert_eq!(counts, [0, 10, 30]);
    }

    proptest! {
        #[test]
        fn over_a_cycle_each_member_has_exactly_its_share(
            weights in prop::collection::vec(1u16..9, 1..8), cycles in 0u64..3,
        ) {
            let heaviest = u64::from(*weights.iter().max().unwrap());
            let cycle: usize = if weights.iter().all(|w| u64::from(*w) == heaviest) {
                weights.len()
            } else {
                weights.iter().map(|w| usize::from(*w)).sum()
            };
            let start = cycles * heaviest * weights.len() as u64;
            let mut counts = vec![0u16; weights.len()];
            picks(&weights, cycle, start).into_iter().for_each(|i| counts[i] += 1);
            if weights.iter().any(|w| u64::from(*w) != heaviest) {
                prop_assert_eq!(counts, weights);
            } else {
                prop_assert_eq!(counts, vec![1; weights.len()]);
            }
        }

        #[test]
        fn over_any_stretch_a_member_is_never_far_from_its_share(
            weights in prop::collection::vec(1u16..100, 1..10), start in 0u64..10_000,
        ) {
            let total: f64 = weights.iter().map(|w| f64::from(*w)).sum();
            let taken = picks(&weights, 200, start);
            for (i, weight) in weights.iter().enumerate() {
                let share = 200.0 * f64::from(*weight) / total;
                let count = taken.iter().filter(|t| **t == i).count() as f64;
                let slack = 2.0 + weights.len() as f64;
                prop_assert!((count - share).abs() <= slack, "{i}: {count} of {share}");
            }
        }
    }
}
