//! Decides which health checks start when, from values alone: time is an argument, and [`super::checks`] runs
//! the checks. Among those that are due, namespaces take turns ([`bowline_core::job_slots`]).

use bowline_core::job_slots::{JobSlots, JobTurn};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use tokio::time::Instant;

/// Identifies a check.
pub(super) type Id = u64;

/// The namespace of a check.
pub(super) type Tenant = Arc<str>;

/// All checks, by when they are due.
#[derive(Debug)]
pub(super) struct Schedule {
    next: Id,
    jobs: HashMap<Id, (Tenant, State)>,
    due: BTreeSet<(Instant, Id)>,
    turns: JobSlots<Id>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Due(Instant),
    Waits(JobTurn),
    UnderWay,
    /// The check was removed while under way.
    Removed,
}

impl Schedule {
    /// An empty schedule that runs at most this many checks at once.
    pub(super) fn new(most: usize) -> Self {
        let (jobs, due) = (HashMap::new(), BTreeSet::new());
        Self { next: 0, jobs, due, turns: JobSlots::new(most) }
    }

    /// Adds a check that is due at this time.
    pub(super) fn add(&mut self, tenant: Tenant, due: Instant) -> Id {
        let id = self.next;
        self.next += 1;
        self.jobs.insert(id, (tenant, State::Due(due)));
        self.due.insert((due, id));
        id
    }

    /// Removes a check. One that is under way counts until it is done.
    pub(super) fn remove(&mut self, id: Id) {
        let Some((tenant, state)) = self.jobs.get_mut(&id) else { return };
        match *state {
            State::Due(due) => _ = self.due.remove(&(due, id)),
            State::Waits(turn) => self.turns.leave(tenant, turn),
            State::UnderWay => {
                *state = State::Removed;
                return;
            }
            State::Removed => return,
        }
        self.jobs.remove(&id);
    }

    /// A started check is done; unless it was removed meanwhile, it is due again at this time.
    pub(super) fn done(&mut self, id: Id, again: Instant) {
        let Some((tenant, state)) = self.jobs.get_mut(&id) else { return };
        match *state {
            State::UnderWay => {
                self.turns.done(tenant);
                *state = State::Due(again);
                self.due.insert((again, id));
            }
            State::Removed => {
                self.turns.done(tenant);
                self.jobs.remove(&id);
            }
            State::Due(_) | State::Waits(_) => {}
        }
    }

    /// The checks to start now.
    pub(super) fn take(&mut self, now: Instant) -> Vec<Id> {
        while let Some((due, id)) = self.due.first().copied().filter(|(due, _)| *due <= now) {
            self.due.remove(&(due, id));
            let Some((tenant, state)) = self.jobs.get_mut(&id) else { continue };
            *state = State::Waits(self.turns.wait([&*tenant], &id));
        }
        let mut started = Vec::new();
        while let Some(begun) = self.turns.begin() {
            if let Some((_, state)) = self.jobs.get_mut(&begun.job) {
                *state = State::UnderWay;
            }
            started.push(begun.job);
        }
        started
    }

    /// When a check may be due next, unless one is done, added or removed before.
    pub(super) fn wakes(&self) -> Option<Instant> {
        self.due.first().map(|(due, _)| *due)
    }

    /// Checks that are under way.
    pub(super) fn under_way(&self) -> usize {
        self.turns.under_way()
    }

    /// Checks that are due and wait for their turn, by namespace.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (&Tenant, usize)> {
        self.turns.waiting()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::time::Duration;

    fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn ten_thousand_slow_members_of_a_namespace_delay_no_check_of_another() {
        let start = Instant::now();
        let mut schedule = Schedule::new(64);
        for _ in 0..10_000 {
            schedule.add("evil".into(), start);
        }
        let modest: Vec<_> =
            (0..10).map(|_| schedule.add("shop".into(), start + secs(1))).collect();
        // Each check of one namespace takes five seconds, the other's take none.
        let mut ends: BTreeMap<Instant, Vec<Id>> = BTreeMap::new();
        let mut late = Duration::ZERO;
        let mut checked = 0;
        for tick in 0..600u32 {
            let now = start + Duration::from_millis(100) * tick;
            let over: Vec<_> = ends.range(..=now).map(|(at, _)| *at).collect();
            for at in over {
                for id in ends.remove(&at).unwrap() {
                    schedule.done(id, now + secs(1));
                }
            }
            let due = |schedule: &Schedule, id: Id| match schedule.jobs.get(&id) {
                Some((_, State::Due(due))) => Some(*due),
                _ => None,
            };
            let wanted: Vec<_> =
                modest.iter().filter_map(|id| Some((*id, due(&schedule, *id)?))).collect();
            loop {
                let started = schedule.take(now);
                if started.is_empty() {
                    break;
                }
                for id in started {
                    if let Some((_, due)) = wanted.iter().find(|(other, _)| *other == id) {
                        late = late.max(now - *due);
                        checked += 1;
                        schedule.done(id, now + secs(1));
                    } else {
                        ends.entry(now + secs(5)).or_default().push(id);
                    }
                }
            }
            assert!(schedule.under_way() <= 64);
        }
        assert!(late <= Duration::from_millis(100), "{late:?}");
        assert!(checked >= 10 * 50, "{checked}");
    }

    #[test]
    fn with_more_silent_namespaces_than_places_each_check_gets_its_turn() {
        let start = Instant::now();
        let mut schedule = Schedule::new(8);
        for namespace in 0..40 {
            schedule.add(format!("silent-{namespace}").into(), start);
        }
        let shop: BTreeSet<_> = (0..3).map(|_| schedule.add("shop".into(), start)).collect();
        // Every check takes five seconds, and is due again a second later.
        let mut ends: BTreeMap<u64, Vec<Id>> = BTreeMap::new();
        let mut waits_since: BTreeMap<Id, u64> = shop.iter().map(|id| (*id, 0)).collect();
        let (mut longest, mut checked) = (0, 0);
        for now in 0..3_600 {
            for id in ends.remove(&now).unwrap_or_default() {
                schedule.done(id, start + secs(now + 1));
                if shop.contains(&id) {
                    waits_since.insert(id, now + 1);
                }
            }
            for id in schedule.take(start + secs(now)) {
                ends.entry(now + 5).or_default().push(id);
                checked += usize::from(waits_since.remove(&id).is_some());
            }
            let waits = waits_since.values().map(|since| now.saturating_sub(*since));
            longest = longest.max(waits.max().unwrap_or(0));
        }
        // Forty-one namespaces go through eight places in thirty seconds, and the shop needs three turns.
        assert!(longest <= 100, "a check waited for {longest} s");
        assert!(checked >= 100, "{checked}");
    }

    #[test]
    fn a_check_that_is_removed_is_not_started_and_counts_until_it_is_done() {
        let now = Instant::now();
        let mut schedule = Schedule::new(4);
        let [running, waiting, later] =
            [now, now, now + secs(1)].map(|due| schedule.add("a".into(), due));
        // A namespace may start a check while it has fewer under way than slots are free: two of four.
        assert_eq!(schedule.take(now), [running, waiting]);
        schedule.remove(running);
        schedule.remove(later);
        assert_eq!(schedule.under_way(), 2);
        schedule.done(running, now);
        schedule.done(running, now);
        assert_eq!((schedule.under_way(), schedule.take(now + secs(9))), (1, vec![]));
        schedule.done(waiting, now + secs(2));
        assert_eq!(schedule.wakes(), Some(now + secs(2)));
        schedule.remove(waiting);
        assert_eq!(schedule.wakes(), None);
        assert!(schedule.jobs.is_empty() && schedule.turns.is_empty());
    }

    #[derive(Clone, Debug)]
    enum Step {
        Add(u8, u64),
        Remove(prop::sample::Index),
        Done(prop::sample::Index, u64),
        Take(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let index = any::<prop::sample::Index>;
        prop::collection::vec(
            prop_oneof![
                (0..4u8, 0..5u64).prop_map(|(tenant, due)| Step::Add(tenant, due)),
                index().prop_map(Step::Remove),
                (index(), 0..5u64).prop_map(|(which, again)| Step::Done(which, again)),
                (0..3u64).prop_map(Step::Take),
            ],
            0..150,
        )
    }

    proptest! {
        #[test]
        fn in_any_history_whoever_has_none_under_way_begins_while_a_place_is_free(
            steps in steps(), most in 1usize..8,
        ) {
            let mut now = Instant::now();
            let mut schedule = Schedule::new(most);
            let mut known: Vec<Id> = Vec::new();
            let mut running: BTreeSet<Id> = BTreeSet::new();
            for step in steps {
                match step {
                    Step::Add(tenant, due) => {
                        known.push(schedule.add(tenant.to_string().into(), now + secs(due)));
                    }
                    Step::Remove(which) if !known.is_empty() => {
                        let id = known.swap_remove(which.index(known.len()));
                        schedule.remove(id);
                    }
                    Step::Done(which, again) if !running.is_empty() => {
                        let id = *running.iter().nth(which.index(running.len())).unwrap();
                        running.remove(&id);
                        schedule.done(id, now + secs(again));
                    }
                    Step::Take(passes) => {
                        now += secs(passes);
                        for id in schedule.take(now) {
                            prop_assert!(known.contains(&id), "{id} was removed");
                            prop_assert!(running.insert(id), "{id} is under way");
                        }
                        let free = most - schedule.under_way();
                        for (tenant, _) in schedule.waiting() {
                            let own = schedule.turns.under_way_of(tenant);
                            prop_assert!(
                                own >= free,
                                "{tenant} waits with {own} under way and {free} free"
                            );
                        }
                    }
                    _ => {}
                }
                prop_assert_eq!(schedule.under_way(), running.len());
                prop_assert!(running.len() <= most);
            }
        }
    }
}
