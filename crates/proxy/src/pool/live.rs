//! Which members of a table take clients now. The members are kept in an array with the live ones in front,
//! so that a member that goes down or comes up swaps two slots and touches no other, and a pick reads
//! without a lock. If no member takes clients, all do: a check that fails everywhere is more likely wrong
//! than right.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Which members take clients now.
#[derive(Debug)]
pub(super) struct Live {
    weights: Box<[u16]>,
    /// Members by index; those that take clients first.
    slots: Box<[AtomicU32]>,
    /// How many slots are in use and the weights there, packed into one word so that they are read
    /// together.
    shape: AtomicU64,
    everybody: Shape,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The slot of each member.
    positions: Box<[u32]>,
    live: usize,
    /// How many of the live members have each weight.
    by_weight: BTreeMap<u16, usize>,
}

/// The number of members, their greatest weight, and whether all have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    members: u32,
    heaviest: u16,
    equal: bool,
}

impl Shape {
    fn of(by_weight: &BTreeMap<u16, usize>, members: usize) -> Self {
        Self {
            members: u32::try_from(members).unwrap_or(u32::MAX),
            heaviest: by_weight.keys().next_back().copied().unwrap_or(1),
            equal: by_weight.len() <= 1,
        }
    }

    fn pack(self) -> u64 {
        u64::from(self.members) << 32 | u64::from(self.heaviest) << 1 | u64::from(self.equal)
    }

    fn unpack(word: u64) -> Self {
        Self { members: (word >> 32) as u32, heaviest: (word >> 1) as u16, equal: word & 1 == 1 }
    }
}

/// The members that take clients, as a pick sees them. They may change during a pick, which may then see a
/// member twice, or one that has just gone down.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    slots: &'a [AtomicU32],
    weights: &'a [u16],
    /// The greatest weight.
    pub(super) heaviest: u16,
    /// Whether all members have it.
    pub(super) equal: bool,
}

impl View<'_> {
    /// The number of members.
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The member at this slot.
    pub(super) fn member(&self, slot: usize) -> usize {
        self.slots.get(slot).map_or(0, |member| member.load(Ordering::Relaxed) as usize)
    }

    pub(super) fn weight(&self, member: usize) -> u16 {
        self.weights.get(member).copied().unwrap_or(1)
    }

    /// All members.
    pub(super) fn members(&self) -> impl Iterator<Item = usize> {
        self.slots.iter().map(|member| member.load(Ordering::Relaxed) as usize)
    }
}

impl Live {
    /// Members by weight, none of which is 0, and whether each takes clients.
    pub(super) fn new(weights: Box<[u16]>, up: impl Fn(usize) -> bool) -> Self {
        let mut everybody = BTreeMap::new();
        for weight in &weights {
            *everybody.entry(*weight).or_default() += 1;
        }
        let everybody = Shape::of(&everybody, weights.len());
        let members = 0..weights.len();
        let (live, down): (Vec<_>, Vec<_>) = members.partition(|member| up(*member));
        let mut by_weight = BTreeMap::new();
        for member in &live {
            *by_weight.entry(weights[*member]).or_default() += 1;
        }
        let mut positions = vec![0; weights.len()].into_boxed_slice();
        let order: Vec<_> = live.iter().chain(&down).copied().collect();
        for (slot, member) in order.iter().enumerate() {
            positions[*member] = slot as u32;
        }
        let state = State { positions, live: live.len(), by_weight };
        let live = Self {
            slots: order.into_iter().map(|member| AtomicU32::new(member as u32)).collect(),
            shape: AtomicU64::new(0),
            everybody,
            state: Mutex::new(state),
            weights,
        };
        live.show(&live.state.lock());
        live
    }

    fn show(&self, state: &State) {
        let shape = match state.live {
            0 => self.everybody,
            live => Shape::of(&state.by_weight, live),
        };
        self.shape.store(shape.pack(), Ordering::Release);
    }

    /// Sets whether a member takes clients.
    pub(super) fn set(&self, member: usize, up: bool) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let (Some(position), Some(weight)) =
            (state.positions.get(member).copied(), self.weights.get(member).copied())
        else {
            return;
        };
        let is_up = (position as usize) < state.live;
        if is_up == up {
            return;
        }
        // The border between live and other members moves by one, and the member swaps slots with the one
        // there.
        let border = if up {
            *state.by_weight.entry(weight).or_default() += 1;
            state.live += 1;
            state.live - 1
        } else {
            if let Some(count) = state.by_weight.get_mut(&weight) {
                *count -= 1;
                if *count == 0 {
                    state.by_weight.remove(&weight);
                }
            }
            state.live -= 1;
            state.live
        };
        let other = self.slots[border].load(Ordering::Relaxed);
        self.slots[border].store(member as u32, Ordering::Relaxed);
        self.slots[position as usize].store(other, Ordering::Relaxed);
        state.positions[other as usize] = position;
        state.positions[member] = border as u32;
        self.show(state);
    }

    /// The members that take clients now.
    pub(super) fn view(&self) -> View<'_> {
        let shape = Shape::unpack(self.shape.load(Ordering::Acquire));
        let members = (shape.members as usize).min(self.slots.len());
        View {
            slots: &self.slots[..members],
            weights: &self.weights,
            heaviest: shape.heaviest,
            equal: shape.equal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn slots(live: &Live) -> Vec<u32> {
        live.slots.iter().map(|slot| slot.load(Ordering::Relaxed)).collect()
    }

    #[test]
    fn a_change_of_one_member_writes_two_slots_however_many_there_are() {
        for members in [10, 20_000] {
            let live = Live::new(vec![1; members].into(), |_| true);
            for (member, up) in [(3, false), (7, false), (3, true), (0, false), (7, true)] {
                let before = slots(&live);
                live.set(member, up);
                let written = slots(&live).iter().zip(&before).filter(|(a, b)| a != b).count();
                assert!(written <= 2, "{written} of {members}");
            }
            assert_eq!(live.view().len(), members - 1);
        }
    }

    proptest! {
        #[test]
        fn those_that_are_up_are_shown_and_all_if_none_is(
            weights in prop::collection::vec(1u16..4, 1..8),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 0..40),
        ) {
            let mut up: Vec<_> = weights.iter().map(|weight| weight % 2 == 0).collect();
            let live = Live::new(weights.clone().into(), |member| up[member]);
            for (member, state) in changes {
                let expected: BTreeSet<_> = if up.contains(&true) {
                    (0..up.len()).filter(|member| up[*member]).collect()
                } else {
                    (0..up.len()).collect()
                };
                let view = live.view();
                prop_assert_eq!(view.members().collect::<BTreeSet<_>>(), expected.clone());
                prop_assert_eq!(view.len(), expected.len());
                let shown: BTreeSet<_> = expected.iter().map(|member| weights[*member]).collect();
                prop_assert_eq!(Some(&view.heaviest), shown.last());
                prop_assert_eq!(view.equal, shown.len() == 1);
                let member = member.index(up.len());
                up[member] = state;
                live.set(member, state);
            }
        }
    }
}
