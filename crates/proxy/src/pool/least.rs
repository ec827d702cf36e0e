//! Least connections by weight: the member that would have the fewest connections for its weight if
//! it were given one more. Ties go in turn.

use std::sync::atomic::{AtomicU64, Ordering};

/// The member to take. `load` gives a member's connections and weight, or none if it is to be skipped;
/// the cursor remembers who was last.
pub(super) fn pick(
    members: usize,
    heaviest: u16,
    cursor: &AtomicU64,
    mut load: impl FnMut(usize) -> Option<(usize, u16)>,
) -> Option<usize> {
    if members == 0 {
        return None;
    }
    let start = (cursor.load(Ordering::Relaxed) % members as u64) as usize;
    let mut best: Option<(usize, u64, u64)> = None;
    for index in (start..members).chain(0..start) {
        let Some((active, weight)) = load(index) else { continue };
        let (active, weight) = (active as u64 + 1, u64::from(weight));
        if best.is_none_or(|(_, least, by)| active * by < least * weight) {
            best = Some((index, active, weight));
            // Nobody can be better than an idle member of the greatest weight.
            if active == 1 && weight == u64::from(heaviest) {
                break;
            }
        }
    }
    let (index, ..) = best?;
    cursor.store(index as u64 + 1, Ordering::Relaxed);
    Some(index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn take(loads: &mut [(usize, u16)], cursor: &AtomicU64) -> usize {
        let heaviest = loads.iter().map(|(_, w)| *w).max().unwrap();
        let taken = pick(loads.len(), heaviest, cursor, |i| Some(loads[i])).unwrap();
        loads[taken].0 += 1;
        taken
    }

    #[test]
    fn ties_go_in_turn() {
        let cursor = AtomicU64::new(0);
        let picks = [(); 6]
            .map(|()| pick(4, 1, &cursor, |i| Some((if i == 1 { 9 } else { 0 }, 1))).unwrap());
        assert_eq!(picks, [0, 2, 3, 0, 2, 3]);
    }

    #[test]
    fn skipped_members_are_not_taken() {
        let cursor = AtomicU64::new(0);
        assert_eq!(pick(3, 1, &cursor, |i| (i == 2).then_some((5, 1))), Some(2));
        assert_eq!(pick(3, 1, &cursor, |_| None), None);
        assert_eq!(pick(0, 1, &cursor, |_| None), None);
    }

    proptest! {
        #[test]
        fn nobody_would_have_had_fewer_connections_for_its_weight(
            mut loads in prop::collection::vec((0usize..9, 1u16..9), 1..9), start: u64,
        ) {
            let before = loads.clone();
            let taken = take(&mut loads, &AtomicU64::new(start));
            let cost = |(active, weight): (usize, u16)| (active + 1) as f64 / f64::from(weight);
            for other in &before {
                prop_assert!(cost(before[taken]) <= cost(*other) + 1e-9);
            }
        }

        #[test]
        fn connections_that_stay_end_up_in_proportion_to_weights(
            weights in prop::collection::vec(1u16..9, 1..9),
        ) {
            let mut loads: Vec<_> = weights.iter().map(|w| (0, *w)).collect();
            let cursor = AtomicU64::new(0);
            for _ in 0..weights.iter().map(|w| usize::from(*w)).sum::<usize>() * 10 {
                take(&mut loads, &cursor);
            }
            for (active, weight) in loads {
                prop_assert_eq!(active, usize::from(weight) * 10);
            }
        }
    }
}
