//! A queue in which tenants take turns. However many items a tenant adds, an item of another tenant waits for one
//! item of each tenant at most. The leader's work, the choice of the next shard and Events use it. It keeps no
//! clock and does no work itself.

use std::collections::BTreeMap;

/// Waiting items, each in the lane of its tenant. No item is in a lane twice.
#[derive(Clone, Debug)]
pub struct Queue<N, I> {
    lanes: BTreeMap<N, Lane<I>>,
    /// Lanes in the order of their last turns, the longest ago first.
    turns: BTreeMap<u64, N>,
    clock: u64,
    len: usize,
}

#[derive(Clone, Debug)]
struct Lane<I> {
    turn: u64,
    /// By rank and arrival.
    items: BTreeMap<(u8, u64), I>,
    places: BTreeMap<I, (u8, u64)>,
}

impl<N, I> Default for Queue<N, I> {
    fn default() -> Self {
        Self { lanes: BTreeMap::new(), turns: BTreeMap::new(), clock: 0, len: 0 }
    }
}

impl<N: Ord + Clone, I: Ord + Clone> Queue<N, I> {
    /// Adds an item to a lane; within a lane a lower rank comes first, then what came first. False: the item waits
    /// there already, and keeps its place.
    pub fn insert(&mut self, lane: &N, rank: u8, item: I) -> bool {
        self.clock += 1;
        if !self.lanes.contains_key(lane) {
            self.turns.insert(self.clock, lane.clone());
        }
        let lane = self.lanes.entry(lane.clone()).or_insert_with(|| Lane {
            turn: self.clock,
            items: BTreeMap::new(),
            places: BTreeMap::new(),
        });
        if lane.places.contains_key(&item) {
            return false;
        }
        let place = (rank, self.clock);
        lane.items.insert(place, item.clone());
        lane.places.insert(item, place);
        self.len += 1;
        true
    }

    /// Takes an item out. False: it does not wait. The turn of its lane stays.
    pub fn remove(&mut self, lane: &N, item: &I) -> bool {
        let Some(of) = self.lanes.get_mut(lane) else { return false };
        let Some(place) = of.places.remove(item) else { return false };
        of.items.remove(&place);
        self.len -= 1;
        if of.items.is_empty() {
            self.turns.remove(&of.turn);
            self.lanes.remove(lane);
        }
        true
    }

    /// Takes the first item of the next lane in turn.
    pub fn pop(&mut self) -> Option<(N, I)> {
        let lane = self.turns.values().next()?.clone();
        let item = self.items(&lane).next()?.clone();
        self.served(&lane);
        self.remove(&lane, &item);
        Some((lane, item))
    }

    /// A lane has had its turn: all others come before it.
    pub fn served(&mut self, lane: &N) {
        let Some(of) = self.lanes.get_mut(lane) else { return };
        self.clock += 1;
        self.turns.remove(&of.turn);
        of.turn = self.clock;
        self.turns.insert(self.clock, lane.clone());
    }

    /// Lanes with waiting items, in turn.
    pub fn lanes(&self) -> impl Iterator<Item = &N> {
        self.turns.values()
    }

    /// What waits in a lane, in order.
    pub fn items(&self, lane: &N) -> impl Iterator<Item = &I> {
        self.lanes.get(lane).into_iter().flat_map(|lane| lane.items.values())
    }

    /// How many items wait in a lane.
    pub fn waiting(&self, lane: &N) -> usize {
        self.lanes.get(lane).map_or(0, |lane| lane.items.len())
    }

    /// Whether an item waits in a lane.
    pub fn contains(&self, lane: &N, item: &I) -> bool {
        self.lanes.get(lane).is_some_and(|lane| lane.places.contains_key(item))
    }

    /// How many lanes have waiting items.
    pub fn tenants(&self) -> usize {
        self.lanes.len()
    }

    /// How many items wait.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no item waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Chooses `most` of these items, each with its tenant: the first of every tenant, then the second of every tenant,
/// and so on, with tenants by name. However much one tenant adds, it gets no more than its share, and the
/// choice of the other tenants' items stays as it is. The choice is in the order of the items.
pub fn share<N: Ord, I>(items: impl IntoIterator<Item = (N, I)>, most: usize) -> Vec<I> {
    let mut lanes: BTreeMap<N, Vec<(usize, I)>> = BTreeMap::new();
    for (at, (tenant, item)) in items.into_iter().enumerate() {
        let lane = lanes.entry(tenant).or_default();
        if lane.len() < most {
            lane.push((at, item));
        }
    }
    let mut lanes: Vec<_> = lanes.into_values().map(Vec::into_iter).collect();
    let mut chosen = Vec::new();
    while chosen.len() < most && !lanes.is_empty() {
        let round: Vec<_> = lanes.iter_mut().filter_map(Iterator::next).collect();
        lanes.retain(|lane| lane.len() > 0);
        let left = most - chosen.len();
        chosen.extend(round.into_iter().take(left));
    }
    chosen.sort_unstable_by_key(|(at, _)| *at);
    chosen.into_iter().map(|(_, item)| item).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(queue: &mut Queue<&'static str, u32>) -> Vec<(&'static str, u32)> {
        std::iter::from_fn(|| queue.pop()).collect()
    }

    #[test]
    fn tenants_take_turns_and_each_is_served_in_order() {
        let mut queue = Queue::default();
        for item in [3, 1, 2] {
            assert!(queue.insert(&"evil", 0, item));
        }
        queue.insert(&"shop", 0, 7);
        queue.insert(&"web", 1, 8);
        queue.insert(&"web", 0, 9);
        assert!(!queue.insert(&"evil", 0, 3), "it waits already");
        assert_eq!((queue.len(), queue.waiting(&"evil")), (6, 3));
        let order = [("evil", 3), ("shop", 7), ("web", 9), ("evil", 1), ("web", 8), ("evil", 2)];
        assert_eq!(all(&mut queue), order);
        assert!(queue.is_empty() && queue.lanes().next().is_none());
    }

    #[test]
    fn a_lane_that_was_served_comes_after_all_others() {
        let mut queue = Queue::default();
        for (lane, item) in [("evil", 1), ("evil", 2), ("shop", 3)] {
            queue.insert(&lane, 0, item);
        }
        queue.served(&"evil");
        assert!(queue.remove(&"evil", &1) && !queue.remove(&"evil", &1));
        assert_eq!(all(&mut queue), [("shop", 3), ("evil", 2)]);
    }

    #[test]
    fn a_tenant_with_many_items_hides_no_other() {
        let evil = (0..100).map(|item| ("evil", item));
        let items = evil.chain([("shop", 200), ("web", 300), ("web", 301)]);
        assert_eq!(share(items, 5), [0, 1, 200, 300, 301]);
        assert_eq!(share((0..9).map(|item| ("evil", item)), 3), [0, 1, 2]);
        assert_eq!(share((0..2).map(|item| (item, item)), 3), [0, 1]);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u8, u8, u8),
        Remove(u8, u8),
        Served(u8),
        Pop,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (0..6u8, 0..3u8, 0..9u8).prop_map(|(lane, rank, item)| Step::Insert(lane, rank, item)),
            1 => (0..6u8, 0..9u8).prop_map(|(lane, item)| Step::Remove(lane, item)),
            1 => (0..6u8).prop_map(Step::Served),
            3 => Just(Step::Pop),
        ];
        prop::collection::vec(step, 0..80)
    }

    fn run(queue: &mut Queue<u8, u8>, step: &Step) -> Option<(u8, u8)> {
        match *step {
            Step::Insert(lane, rank, item) => drop(queue.insert(&lane, rank, item)),
            Step::Remove(lane, item) => drop(queue.remove(&lane, &item)),
            Step::Served(lane) => queue.served(&lane),
            Step::Pop => return queue.pop(),
        }
        None
    }

    proptest! {
        /// The lane 100 is of a tenant that adds one item.
        #[test]
        fn a_tenant_with_one_item_waits_for_one_item_of_each_other_whatever_they_add(
            before in steps(), after in steps(),
        ) {
            let mut queue = Queue::default();
            for step in &before {
                run(&mut queue, step);
            }
            let others = queue.lanes().count();
            queue.insert(&100, 2, 1);
            let mut popped = 0;
            for step in after.iter().chain(std::iter::repeat(&Step::Pop)) {
                match run(&mut queue, step) {
                    Some((100, _)) => break,
                    Some(_) => popped += 1,
                    None => {}
                }
                prop_assert!(popped <= others, "{popped} came before it, of {others} tenants");
            }
        }

        #[test]
        fn what_is_added_comes_out_once(steps in steps()) {
            let mut queue = Queue::default();
            let mut known = std::collections::BTreeSet::new();
            for step in &steps {
                match (run(&mut queue, step), step) {
                    (Some(popped), _) => prop_assert!(known.remove(&popped)),
                    (None, Step::Insert(lane, _, item)) => drop(known.insert((*lane, *item))),
                    (None, Step::Remove(lane, item)) => drop(known.remove(&(*lane, *item))),
                    _ => {}
                }
                prop_assert_eq!(queue.len(), known.len());
                prop_assert_eq!(queue.turns.len(), queue.lanes.len());
            }
            let rest: std::collections::BTreeSet<_> = std::iter::from_fn(|| queue.pop()).collect();
            prop_assert_eq!(rest, known);
        }

        /// What a tenant adds takes no more than what others leave of their equal share.
        #[test]
        fn a_choice_has_every_tenants_share_whatever_another_adds(
            items in prop::collection::vec((1..5u8, 0..50u8), 0..40), more in 0..100u8, most in 1..20usize,
        ) {
            let tenants: std::collections::BTreeSet<_> = items.iter().map(|(tenant, _)| *tenant).collect();
            let crowd = (0..more).map(|item| (0, item));
            let chosen = share(crowd.chain(items.clone()).map(|it| (it.0, it)), most);
            let equal = most / (tenants.len() + 1);
            for tenant in tenants {
                let own = items.iter().filter(|it| it.0 == tenant).count();
                let got = chosen.iter().filter(|it| it.0 == tenant).count();
                prop_assert!(got >= own.min(equal), "{tenant} has {got} of {own}, {chosen:?}");
            }
            prop_assert_eq!(chosen.len(), most.min(usize::from(more) + items.len()));
        }
    }
}
