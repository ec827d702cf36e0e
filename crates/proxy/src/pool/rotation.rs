//! Smooth weighted round-robin without a lock. One counter walks over the members again and again;
//! in each walk the heaviest is taken every time, and one of weight w in w of `heaviest` walks, evenly
//! spread. With equal weights that is plain round-robin. Over any g walks a member is taken
//! g·w/heaviest times, give or take one: as smooth as nginx's, at a cost that does not grow with the
//! number of members unless their weights differ wildly.

use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug)]
pub(super) struct Rotation {
    weights: Box<[u16]>,
    heaviest: u64,
    equal: bool,
}

impl Rotation {
    /// Members by weight; none is 0.
    pub(super) fn new(weights: Box<[u16]>) -> Self {
        let heaviest = weights.iter().copied().max().unwrap_or(1);
        let equal = weights.iter().all(|w| *w == heaviest);
        Self { weights, heaviest: u64::from(heaviest).max(1), equal }
    }

    /// The next member that is not to be skipped.
    pub(super) fn pick(
        &self,
        counter: &AtomicU64,
        mut skip: impl FnMut(usize) -> bool,
    ) -> Option<usize> {
        let members = self.weights.len();
        if members == 0 {
            return None;
        }
        // Each walk takes the heaviest, so one walk finds somebody unless the heaviest are skipped.
        for _ in 0..members * 2 {
            let step = counter.fetch_add(1, Ordering::Relaxed);
            let index = (step % members as u64) as usize;
            if self.has_turn(index, step / members as u64) && !skip(index) {
                return Some(index);
            }
        }
        (0..members).find(|index| !skip(*index))
    }

    fn has_turn(&self, index: usize, walk: u64) -> bool {
        if self.equal {
            return true;
        }
        let weight = u64::from(self.weights[index]);
        // Members start at different phases, so that light ones do not all come in the same walk.
        let turn = (index as u64).wrapping_mul(GOLDEN);
        let phase = ((u128::from(turn) * u128::from(self.heaviest)) >> 64) as u64;
        let position = (weight * (walk % self.heaviest) + phase) % self.heaviest;
        position >= self.heaviest - weight
    }
}

/// 2⁶⁴ divided by the golden ratio: its multiples, modulo 2⁶⁴, are spread evenly.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn picks(weights: &[u16], n: usize, start: u64) -> Vec<usize> {
        let rotation = Rotation::new(weights.into());
        let counter = AtomicU64::new(start);
        (0..n).filter_map(|_| rotation.pick(&counter, |_| false)).collect()
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
        let rotation = Rotation::new([60_000, 1, 1].into());
        let counter = AtomicU64::new(0);
        assert_ne!(rotation.pick(&counter, |i| i == 0), Some(0));
        assert_eq!(rotation.pick(&counter, |_| true), None);
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
