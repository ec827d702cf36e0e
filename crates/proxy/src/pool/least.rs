//! Least connections by weight: picks the member that would have the fewest connections for its weight
//! after one more. Ties go in turn. Pure, called by the pool's table.

use super::live::View;
use std::sync::atomic::{AtomicU64, Ordering};

/// The member to pick. `load` returns a member's connections, or None to skip it; the cursor remembers
/// the last pick.
pub(super) fn pick(
    live: View<'_>,
    cursor: &AtomicU64,
    mut load: impl FnMut(usize) -> Option<usize>,
) -> Option<usize> {
    let members = live.len();
    if members == 0 {
        return None;
    }
    let start = (cursor.load(Ordering::Relaxed) % members as u64) as usize;
    let mut best: Option<(usize, usize, u64, u64)> = None;
    for slot in (start..members).chain(0..start) {
        let member = live.member(slot);
        let Some(active) = load(member) else { continue };
        let (active, weight) = (active as u64 + 1, u64::from(live.weight(member)));
        if best.is_none_or(|(_, _, least, by)| active * by < least * weight) {
            best = Some((slot, member, active, weight));
            // No member can be better than an idle one of the greatest weight.
            if active == 1 && weight == u64::from(live.heaviest) {
                break;
            }
        }
    }
    let (slot, member, ..) = best?;
    cursor.store(slot as u64 + 1, Ordering::Relaxed);
    Some(member)
}

#[cfg(test)]
mod tests {
    use super::super::live::Live;
    use super::*;
    use proptest::prelude::*;

    fn take(loads: &mut [(usize, u16)], cursor: &AtomicU64) -> usize {
        let live = Live::new(loads.iter().map(|(_, weight)| *weight).collect(), |_| true);
        let taken = pick(live.view(), cursor, |i| Some(loads[i].0)).unwrap();
        loads[taken].0 += 1;
        taken
    }

    #[test]
    fn ties_go_in_turn() {
        let cursor = AtomicU64::new(0);
        let live = Live::new([1; 4].into(), |_| true);
        let load = |i| Some(if i == 1 { 9 } else { 0 });
        let picks = [(); 6].map(|()| pick(live.view(), &cursor, load).unwrap());
        assert_eq!(picks, [0, 2, 3, 0, 2, 3]);
    }

    #[test]
    fn skipped_members_are_not_taken() {
        let cursor = AtomicU64::new(0);
        let live = Live::new([1; 3].into(), |_| true);
        assert_eq!(pick(live.view(), &cursor, |i| (i == 2).then_some(5)), Some(2));
        assert_eq!(pick(live.view(), &cursor, |_| None), None);
        live.set(2, false);
        assert_ne!(pick(live.view(), &cursor, |_| Some(0)), Some(2));
        assert_eq!(pick(Live::new([].into(), |_| true).view(), &cursor, |_| None), None);
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
