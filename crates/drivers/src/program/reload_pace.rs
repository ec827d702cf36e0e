//! Decides when a program may reload, and which old generations of its processes must end. A reload leaves a generation
//! behind as long as one of its connections lasts, so reloads that come faster than connections end would exhaust the
//! machine. Pure: the task that drives the program reports loads, processes and the time.
//!
//! Each namespace waits because of its own changes. It may leave a quarter of the allowed generations behind before it
//! waits, so an ordinary rollout does not wait. With `k` generations beyond that, its next change is loaded
//! `min · 2^k` after its last one, at most a bound set by the driver. A change of another namespace waits only for
//! `min`, and its reload brings all waiting changes.
//!
//! While files load, changes of hosts and certificates of all namespaces wait. So on a load balancer that namespaces
//! share, a namespace with changes waits after a load three times ([`YIELD`]) its share of the load's duration, at most
//! [`SHORT`]. Its share is the part that its own pools and members cause.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The default limit of old generations.
pub const MAX_OLD_GENERATIONS: usize = 16;

/// The longest wait for changes that must not be late: changes of members, and changes of a namespace that has the load
/// balancer to itself and so can cut only its own connections. It also bounds how long a namespace waits because its
/// last load took long.
pub(crate) const SHORT: Duration = Duration::from_secs(30);

/// After a load, a namespace waits for this multiple of its share of the load's duration.
const YIELD: u32 = 3;

/// The limits for reloads and old generations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The least time between two reloads.
    pub(crate) min: Duration,
    /// The longest that a namespace's changes wait because of generations that its earlier changes left behind.
    pub(crate) longest: Duration,
    /// How many old generations may exist.
    pub(crate) most_old: usize,
}

impl Limits {
    /// How long a change waits after the last load for its namespace, whose loads have left `old` generations behind.
    fn interval(&self, old: usize, shared: bool) -> Duration {
        let longest = if shared { self.longest } else { self.longest.min(SHORT) };
        let beyond = old.saturating_sub(self.most_old / 4);
        let doubled = u32::try_from(beyond).ok().and_then(|it| 2_u32.checked_pow(it));
        let doubled = doubled.and_then(|times| self.min.checked_mul(times));
        // Without a minimum interval, the administrator wants no spacing at all.
        if self.min.is_zero() {
            self.min
        } else {
            doubled.map_or(longest, |it| it.min(longest)).max(self.min)
        }
    }
}

/// The number of pools and members of each namespace.
pub(super) type Sizes = BTreeMap<Arc<str>, u32>;

/// The processes from before a load that still have connections.
#[derive(Clone, Debug)]
struct Generation {
    pids: Vec<u32>,
    /// The namespaces with changes in the load that ended the generation's service. Empty if that load was before this
    /// agent started.
    by: BTreeSet<Arc<str>>,
    /// When that load was.
    at: Instant,
    /// How long the generation accepted new connections. None: unknown.
    served: Option<Duration>,
    /// Whether it was told to end.
    ends: bool,
}

/// A generation that a load has just ended: it accepts no new connections.
#[derive(Clone, Debug)]
pub(super) struct Ended {
    by: BTreeSet<Arc<str>>,
    served: Option<Duration>,
    at: Instant,
}

/// Processes that must end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Surplus {
    pub(super) pids: Vec<u32>,
    /// Whether these processes are returned for the first time. A process may take a while to end.
    pub(super) new: bool,
}

/// The history of loads, as far as it matters for the next one.
#[derive(Clone, Debug)]
pub(crate) struct ReloadPace {
    limits: Limits,
    /// Old generations, oldest first.
    old: Vec<Generation>,
    /// The namespaces with changes that wait for a reload.
    asking: BTreeSet<Arc<str>>,
    /// Whether a reload is needed for a reason other than a change. It waits for no namespace.
    needed: bool,
    /// Whether more than one namespace uses the load balancer.
    shared: bool,
    /// Since when the current generation accepts connections.
    since: Option<Instant>,
    /// When the load in progress began, and the sizes of the namespaces in it.
    begun: Option<(Instant, Sizes)>,
    /// Until when a namespace waits because its last load took long.
    yields: BTreeMap<Arc<str>, Instant>,
}

impl ReloadPace {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            old: Vec::new(),
            asking: BTreeSet::new(),
            needed: false,
            shared: false,
            since: None,
            begun: None,
            yields: BTreeMap::new(),
        }
    }

    /// Notes that changes of these namespaces may need a reload.
    pub(super) fn ask(&mut self, namespaces: BTreeSet<Arc<str>>, shared: bool) {
        self.asking.extend(namespaces);
        self.shared = shared;
    }

    /// Notes that a reload is needed though nothing has changed.
    pub(crate) fn need(&mut self) {
        self.needed = true;
    }

    /// Notes that nothing waits for a reload.
    pub(super) fn rest(&mut self) {
        self.asking.clear();
        self.needed = false;
    }

    /// The least time between two reloads.
    pub(super) fn min(&self) -> Duration {
        self.limits.min
    }

    /// The earliest time at which the changes of a waiting namespace may be loaded. None: now.
    pub(super) fn due(&self) -> Option<Instant> {
        if self.needed {
            return None;
        }
        let due = |namespace| {
            let own = || self.old.iter().filter(|it| it.by.contains(namespace));
            let last = own().map(|it| it.at).max();
            let spaced = last.map(|last| last + self.limits.interval(own().count(), self.shared));
            let yields = self.yields.get(namespace).filter(|_| self.shared).copied();
            spaced.max(yields)
        };
        // `None` is less than any time: if one namespace may load at once, the load is due now.
        self.asking.iter().map(due).min().flatten()
    }

    /// The namespaces with changes that wait.
    pub(super) fn asking(&self) -> &BTreeSet<Arc<str>> {
        &self.asking
    }

    /// Notes that a check and load of files begins.
    pub(super) fn begins(&mut self, now: Instant, sizes: Sizes) {
        self.begun = Some((now, sizes));
    }

    /// Notes that the program has loaded files. [`Self::left_behind`] then takes the processes that are left.
    pub(super) fn loaded(&mut self, now: Instant) -> Ended {
        let by = std::mem::take(&mut self.asking);
        self.yields.retain(|_, until| *until > now);
        if let Some((begun, sizes)) = self.begun.take()
            && !self.limits.min.is_zero()
        {
            let all: u32 = sizes.values().sum();
            let of = |namespace| sizes.get(namespace).copied().unwrap_or(0);
            let part = |namespace| (now - begun) * YIELD * of(namespace) / all.max(1);
            let until = |namespace| now + part(namespace).min(SHORT);
            self.yields.extend(by.iter().map(|it| (it.clone(), until(it))));
        }
        let served = self.since.replace(now).map(|since| now - since);
        self.needed = false;
        Ended { by, served, at: now }
    }

    /// Takes the old processes after a load, one list for each generation.
    pub(super) fn left_behind(&mut self, Ended { by, served, at }: Ended, old: Vec<Vec<u32>>) {
        self.take(old, &by, served, at);
    }

    /// Takes the present old processes, one list for each generation.
    pub(super) fn seen(&mut self, old: Vec<Vec<u32>>, now: Instant) {
        self.take(old, &BTreeSet::new(), None, now);
    }

    fn take(
        &mut self,
        old: Vec<Vec<u32>>,
        by: &BTreeSet<Arc<str>>,
        served: Option<Duration>,
        now: Instant,
    ) {
        let alive: BTreeSet<u32> = old.iter().flatten().copied().collect();
        for generation in &mut self.old {
            generation.pids.retain(|pid| alive.contains(pid));
        }
        self.old.retain(|it| !it.pids.is_empty());
        let known: BTreeSet<u32> = self.old.iter().flat_map(|it| &it.pids).copied().collect();
        for mut pids in old {
            pids.retain(|pid| !known.contains(pid));
            if !pids.is_empty() {
                self.old.push(Generation { pids, by: by.clone(), at: now, served, ends: false });
            }
        }
    }

    /// How many old generations there are.
    pub(super) fn old(&self) -> usize {
        self.old.len()
    }

    /// The processes that must end because there are too many old generations. It chooses the namespace that left most
    /// generations behind, and of these the generation that served for the shortest time. So quick changes of one
    /// namespace cut few connections of others, and none from before the changes began. Of generations from before this
    /// agent started, the oldest ends first.
    pub(super) fn surplus(&mut self) -> Vec<Surplus> {
        let (ending, mut stay): (Vec<_>, Vec<_>) = self.old.iter_mut().partition(|it| it.ends);
        let again = ending.into_iter().map(|it| Surplus { pids: it.pids.clone(), new: false });
        let mut end: Vec<_> = again.collect();
        while stay.len() > self.limits.most_old {
            let mut counts: BTreeMap<Arc<str>, usize> = BTreeMap::new();
            for namespace in stay.iter().flat_map(|it| &it.by) {
                *counts.entry(namespace.clone()).or_default() += 1;
            }
            // Generations without a known namespace count as those of one more namespace.
            let unknown = stay.iter().filter(|it| it.by.is_empty()).count();
            let most = counts.values().copied().max().unwrap_or(0).max(unknown);
            let is_of_most = |it: &Generation| {
                let mut counts = it.by.iter().filter_map(|namespace| counts.get(namespace));
                counts.any(|count| *count == most) || it.by.is_empty() && unknown == most
            };
            let candidates = stay.iter().enumerate().filter(|(_, it)| is_of_most(it));
            let served = |it: &Generation| it.served.unwrap_or(Duration::MAX);
            let Some((at, _)) = candidates.min_by_key(|(_, it)| served(it)) else { break };
            let ended = stay.remove(at);
            ended.ends = true;
            end.push(Surplus { pids: ended.pids.clone(), new: true });
        }
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HOUR: Duration = Duration::from_secs(3600);
    const MIN: Duration = Duration::from_secs(2);
    /// The limits for HAProxy. nginx has `MEMBERS_WAIT`.
    const USUAL: Limits =
        Limits { min: MIN, longest: Duration::from_secs(225), most_old: MAX_OLD_GENERATIONS };
    const MEMBERS_WAIT: Limits = Limits { longest: SHORT, ..USUAL };

    fn namespaces(names: &[&str]) -> BTreeSet<Arc<str>> {
        names.iter().map(|it| Arc::from(*it)).collect()
    }

    /// Records a load that leaves these processes behind.
    fn loaded(pace: &mut ReloadPace, old: Vec<Vec<u32>>, now: Instant) {
        let ended = pace.loaded(now);
        pace.left_behind(ended, old);
    }

    /// A program whose old generations all live for an hour.
    struct Play {
        pace: ReloadPace,
        /// Of each generation that had to end: how long ago its service ended, and how long it had served.
        ended: Vec<(Duration, Duration)>,
        now: Instant,
        loaded: Instant,
        processes: Vec<(Instant, u32)>,
        next: u32,
    }

    impl Play {
        fn new(limits: Limits) -> Self {
            let now = Instant::now();
            let mut pace = ReloadPace::new(limits);
            pace.loaded(now);
            Self { pace, ended: Vec::new(), now, loaded: now, processes: Vec::new(), next: 1 }
        }

        fn groups(&self) -> Vec<Vec<u32>> {
            self.processes.iter().map(|(_, pid)| vec![*pid]).collect()
        }

        fn pass(&mut self, time: Duration) {
            self.now += time;
            self.processes.retain(|(since, _)| *since + HOUR > self.now);
            let groups = self.groups();
            self.pace.seen(groups, self.now);
        }

        fn due(&self) -> Instant {
            let soonest = self.loaded + self.pace.min();
            self.pace.due().map_or(soonest, |due| due.max(soonest))
        }

        /// Loads if a change waits and may be loaded now.
        fn tick(&mut self) -> bool {
            if self.pace.asking().is_empty() || self.due() > self.now {
                return false;
            }
            self.processes.push((self.now, self.next));
            self.next += 1;
            let groups = self.groups();
            loaded(&mut self.pace, groups, self.now);
            self.loaded = self.now;
            for Surplus { pids, .. } in self.pace.surplus() {
                let ended = self.pace.old.iter().filter(|it| it.pids == pids);
                let now = self.now;
                self.ended.extend(ended.map(|it| (now - it.at, it.served.unwrap_or_default())));
                self.processes.retain(|(_, pid)| !pids.contains(pid));
            }
            true
        }
    }

    #[test]
    fn the_changes_of_a_namespace_wait_twice_as_long_with_each_generation_beyond_the_first_four() {
        let seconds = |limits: Limits, old, shared| limits.interval(old, shared).as_secs();
        assert!((0..4).all(|old| seconds(USUAL, old, true) == 2));
        let shared: Vec<_> = (4..14).map(|old| seconds(USUAL, old, true)).collect();
        assert_eq!(shared, [2, 4, 8, 16, 32, 64, 128, 225, 225, 225]);
        for (limits, shared) in [(USUAL, false), (MEMBERS_WAIT, true), (MEMBERS_WAIT, false)] {
            let short: Vec<_> = (4..11).map(|old| seconds(limits, old, shared)).collect();
            assert_eq!(short, [2, 4, 8, 16, 30, 30, 30]);
        }
        assert_eq!(seconds(USUAL, usize::MAX, true), 225);
        let none = Limits { min: Duration::ZERO, ..USUAL };
        assert_eq!(none.interval(9, true), Duration::ZERO, "an administrator may choose that");
    }

    #[test]
    fn changes_without_end_cut_few_connections_late_and_none_from_before_them() {
        // A generation that served for long before the changes begin is never ended. Of the others, the one that served
        // shortest ends, and late.
        for (limits, youngest) in [(USUAL, 1200), (MEMBERS_WAIT, 240)] {
            let mut play = Play::new(limits);
            play.pass(Duration::from_secs(600));
            let mut most = 0;
            for _ in 0..4 * 3600 {
                play.pace.ask(namespaces(&["evil"]), true);
                play.tick();
                most = most.max(play.processes.len());
                play.pass(Duration::from_secs(1));
            }
            assert_eq!(most, MAX_OLD_GENERATIONS);
            let ages = play.ended.iter().map(|(age, _)| age.as_secs());
            let first = ages.min().expect("some ended");
            assert!(first >= youngest, "one ended after {first} s");
            assert!(play.ended.iter().all(|(_, served)| *served <= limits.longest));
        }
    }

    #[test]
    fn the_change_of_another_namespace_waits_for_the_least_time_alone_and_takes_along_what_waits() {
        let mut play = Play::new(USUAL);
        for _ in 0..1000 {
            play.pace.ask(namespaces(&["evil"]), true);
            play.tick();
            play.pass(Duration::from_secs(1));
        }
        play.pace.ask(namespaces(&["evil"]), true);
        assert!(play.due() > play.now + Duration::from_secs(60), "evil waits");
        play.pace.ask(namespaces(&["shop"]), true);
        assert!(play.due() <= play.now + MIN);
        play.pass(MIN);
        assert!(play.tick());
        assert!(play.pace.asking().is_empty(), "nothing waits any more");
    }

    #[test]
    fn loads_for_one_namespace_leave_three_quarters_of_the_time_to_others() {
        let mut pace = ReloadPace::new(USUAL);
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let sizes = || Sizes::from([("evil".into(), 900), ("shop".into(), 100)]);
        pace.ask(namespaces(&["evil", "shop"]), true);
        pace.begins(at(0), sizes());
        pace.loaded(at(10));
        pace.ask(namespaces(&["evil"]), true);
        assert_eq!(pace.due(), Some(at(10 + 27)));
        pace.ask(namespaces(&["shop"]), true);
        assert_eq!(pace.due(), Some(at(10 + 3)), "one that is small waits for its part alone");
        pace.ask(namespaces(&["other"]), true);
        assert_eq!(pace.due(), None, "another waits for the least time alone");
        pace.ask(namespaces(&["evil"]), true);
        pace.begins(at(20), sizes());
        pace.loaded(at(120));
        pace.ask(namespaces(&["evil"]), true);
        assert_eq!(pace.due(), Some(at(120) + SHORT), "not without end");
        pace.ask(namespaces(&["evil"]), false);
        assert_eq!(pace.due(), None, "one that has the load balancer to itself waits for nothing");
    }

    #[test]
    fn what_is_needed_without_a_change_waits_for_no_namespace() {
        let mut play = Play::new(USUAL);
        for _ in 0..100 {
            play.pace.ask(namespaces(&["evil"]), true);
            play.tick();
            play.pass(Duration::from_secs(1));
        }
        play.pace.ask(namespaces(&["evil"]), true);
        assert!(play.pace.due().is_some());
        play.pace.need();
        assert_eq!(play.pace.due(), None);
    }

    #[test]
    fn of_the_namespace_with_most_the_generation_that_served_shortest_ends() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut pace = ReloadPace::new(Limits { most_old: 3, ..USUAL });
        pace.loaded(at(0));
        // The first generation served for long before the first change of `evil`.
        let loads = [(1000, "evil"), (1010, "evil"), (1013, "shop"), (1020, "evil")];
        let mut groups = Vec::new();
        for (pid, (seconds, namespace)) in (1..).zip(loads) {
            assert!(pace.surplus().is_empty());
            pace.ask(namespaces(&[namespace]), true);
            groups.push(vec![pid]);
            loaded(&mut pace, groups.clone(), at(seconds));
        }
        // The generation that `shop` ended served for 3 s; of those that `evil` ended, the last served for 7 s.
        let ended = |new| Surplus { pids: vec![4], new };
        assert_eq!(pace.surplus(), [ended(true)]);
        assert_eq!(pace.surplus(), [ended(false)], "it takes its time");
        pace.seen(vec![vec![1], vec![2], vec![3]], at(1021));
        assert_eq!((pace.old(), pace.surplus()), (3, vec![]));
    }

    #[test]
    fn generations_from_before_the_agent_count_as_those_of_one_namespace_and_the_oldest_ends_first()
    {
        let mut pace = ReloadPace::new(Limits { most_old: 2, ..USUAL });
        let now = Instant::now();
        pace.seen(vec![vec![1, 2], vec![3]], now);
        loaded(&mut pace, vec![vec![1, 2], vec![3]], now);
        pace.ask(namespaces(&["evil"]), true);
        let now_old = vec![vec![2], vec![3], vec![4, 5]];
        loaded(&mut pace, now_old, now + Duration::from_secs(9));
        let ended = Surplus { pids: vec![2], new: true };
        assert_eq!((pace.old(), pace.surplus()), (3, vec![ended]));
    }

    proptest! {
        /// Whatever namespaces ask for, and whenever: there are never more old generations than the limit, and a
        /// namespace without old generations waits only for the minimum interval.
        #[test]
        fn old_generations_are_bounded_in_every_history(
            steps in prop::collection::vec((0..4_usize, 0..40_u64, any::<bool>()), 1..200),
            most_old in 1..8_usize,
        ) {
            let mut play = Play::new(Limits { most_old, ..USUAL });
            for (who, seconds, shared) in steps {
                let name = ["a", "b", "c", "d"][who];
                play.pace.ask(namespaces(&[name]), shared);
                if !play.pace.old.iter().any(|it| it.by.contains(name)) {
                    prop_assert!(play.due() <= play.loaded + MIN);
                }
                play.tick();
                prop_assert!(play.processes.len() <= most_old);
                play.pass(Duration::from_secs(seconds));
            }
        }
    }
}
