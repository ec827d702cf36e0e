//! Which namespace begins the next of several long jobs, such as a health check or a look-up of a DNS name. It does no
//! I/O and knows no time: the schedules of the proxy's checks and of DNS names tell it what is due.
//!
//! Only a limited number of jobs runs at once. A namespace may begin another job while it runs fewer than there are
//! free places. So a namespace without a running job begins at once as long as a place is free, and many namespaces
//! that want all places end up with equal parts and as many places free. Where several may begin, the one with the
//! fewest running jobs is first, then the one whose first job waits longest. So however many namespaces come, one
//! without a running job waits only for jobs that waited before.
//!
//! Several namespaces may want the same job. It waits in the line of each, and uses the share of the one that begins
//! it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// The place of a waiting job in the order of arrival; it also identifies the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobTurn(u64);

/// A job that begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begun<J> {
    /// The namespace for which it counts until [`JobSlots::done`].
    pub namespace: Arc<str>,
    /// Its turn. It still waits in the lines of other namespaces: see [`JobSlots::leave`].
    pub turn: JobTurn,
    /// The job.
    pub job: J,
}

/// The jobs that wait for their turn, and the number of running jobs.
#[derive(Debug)]
pub struct JobSlots<J> {
    most: usize,
    next: u64,
    tenants: HashMap<Arc<str>, Standing<J>>,
    /// Namespaces with waiting jobs, by the number of their running jobs and the turn of the first waiting one.
    wanting: BTreeSet<(usize, JobTurn, Arc<str>)>,
    under_way: usize,
}

#[derive(Debug)]
struct Standing<J> {
    under_way: usize,
    /// The waiting jobs, in order.
    waits: BTreeMap<JobTurn, J>,
}

impl<J> Standing<J> {
    /// The position of the namespace among those with waiting jobs. None: it has none.
    fn wants(&self, namespace: &Arc<str>) -> Option<(usize, JobTurn, Arc<str>)> {
        let (since, _) = self.waits.first_key_value()?;
        Some((self.under_way, *since, namespace.clone()))
    }
}

impl<J> JobSlots<J> {
    /// Without jobs; at most `most` run at once.
    pub fn new(most: usize) -> Self {
        Self {
            most: most.max(1),
            next: 0,
            tenants: HashMap::new(),
            wanting: BTreeSet::new(),
            under_way: 0,
        }
    }

    /// A job waits from now on, for each of these namespaces.
    pub fn wait<'a>(
        &mut self,
        namespaces: impl IntoIterator<Item = &'a Arc<str>>,
        job: &J,
    ) -> JobTurn
    where
        J: Clone,
    {
        let turn = JobTurn(self.next);
        self.next += 1;
        namespaces.into_iter().for_each(|namespace| self.join(namespace, turn, job.clone()));
        turn
    }

    /// A waiting job waits for this namespace, too.
    pub fn join(&mut self, namespace: &Arc<str>, turn: JobTurn, job: J) {
        self.change(namespace, |standing| _ = standing.waits.insert(turn, job));
    }

    /// A job no longer waits for this namespace.
    pub fn leave(&mut self, namespace: &Arc<str>, turn: JobTurn) {
        self.change(namespace, |standing| _ = standing.waits.remove(&turn));
    }

    /// The next job to begin. None: no job waits, or each namespace with waiting jobs runs its share.
    pub fn begin(&mut self) -> Option<Begun<J>> {
        let (under_way, turn, namespace) = self.wanting.first()?.clone();
        if under_way >= self.most - self.under_way {
            return None;
        }
        let mut first = None;
        self.change(&namespace, |standing| {
            first = standing.waits.remove(&turn);
            standing.under_way += 1;
        });
        self.under_way += 1;
        Some(Begun { namespace, turn, job: first? })
    }

    /// A job that began for this namespace has ended.
    pub fn done(&mut self, namespace: &Arc<str>) {
        self.under_way -= 1;
        self.change(namespace, |standing| standing.under_way -= 1);
    }

    /// The number of running jobs.
    pub fn under_way(&self) -> usize {
        self.under_way
    }

    /// The number of running jobs of a namespace.
    pub fn under_way_of(&self, namespace: &str) -> usize {
        self.tenants.get(namespace).map_or(0, |standing| standing.under_way)
    }

    /// The namespaces with waiting jobs, each with the number of these jobs.
    pub fn waiting(&self) -> impl Iterator<Item = (&Arc<str>, usize)> {
        let waits = |namespace| self.tenants.get(namespace).map_or(0, |it| it.waits.len());
        self.wanting.iter().map(move |(_, _, namespace)| (namespace, waits(namespace)))
    }

    /// Whether no job waits or runs.
    pub fn is_empty(&self) -> bool {
        self.tenants.is_empty()
    }

    fn change(&mut self, namespace: &Arc<str>, how: impl FnOnce(&mut Standing<J>)) {
        let empty = || Standing { under_way: 0, waits: BTreeMap::new() };
        let standing = self.tenants.entry(namespace.clone()).or_insert_with(empty);
        let before = standing.wants(namespace);
        how(standing);
        let after = standing.wants(namespace);
        let gone = after.is_none() && standing.under_way == 0;
        if before != after {
            before.iter().for_each(|wants| _ = self.wanting.remove(wants));
            self.wanting.extend(after);
        }
        if gone {
            self.tenants.remove(namespace);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names(all: &[&str]) -> Vec<Arc<str>> {
        all.iter().map(|it| Arc::from(*it)).collect()
    }

    #[test]
    fn a_namespace_alone_has_half_and_two_have_a_third_each() {
        let (a, b) = (names(&["a"]), names(&["b"]));
        let mut turns = JobSlots::new(60);
        (0..400).for_each(|job| _ = turns.wait(&a, &job));
        let mut running: Vec<_> = std::iter::from_fn(|| turns.begin()).collect();
        assert_eq!(running.len(), 30);
        (0..400).for_each(|job| _ = turns.wait(&b, &job));
        running.extend(std::iter::from_fn(|| turns.begin()));
        // As jobs end, the two come to equal parts.
        for _ in 0..200 {
            turns.done(&running.remove(0).namespace);
            running.extend(std::iter::from_fn(|| turns.begin()));
        }
        assert_eq!((turns.under_way_of("a"), turns.under_way_of("b")), (20, 20));
    }

    #[test]
    fn a_job_of_two_namespaces_uses_the_share_of_the_one_with_fewer_under_way() {
        let mut turns = JobSlots::new(8);
        let (busy, both) = (names(&["busy"]), names(&["busy", "idle"]));
        (0..9).for_each(|job| _ = turns.wait(&busy, &job));
        while turns.begin().is_some() {}
        let turn = turns.wait(&both, &9);
        let begun = turns.begin().unwrap();
        assert_eq!((&*begun.namespace, begun.turn, begun.job), ("idle", turn, 9));
        turns.leave(&both[0], turn);
        let waiting: Vec<_> =
            turns.waiting().map(|(who, count)| (who.to_string(), count)).collect();
        assert_eq!(waiting, [("busy".to_owned(), 5)]);
    }

    #[derive(Clone, Debug)]
    enum Step {
        /// For the namespaces whose bits are set.
        Wait(u8),
        Leave(prop::sample::Index),
        Done(prop::sample::Index),
        Begin,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let index = any::<prop::sample::Index>;
        let step = prop_oneof![
            (1..16u8).prop_map(Step::Wait),
            index().prop_map(Step::Leave),
            index().prop_map(Step::Done),
            Just(Step::Begin),
        ];
        prop::collection::vec(step, 0..150)
    }

    proptest! {
        #[test]
        fn in_any_history_a_namespace_with_none_under_way_begins_while_a_place_is_free(
            steps in steps(), most in 1usize..8,
        ) {
            let all = names(&["a", "b", "c", "d"]);
            let mut turns = JobSlots::new(most);
            let mut waits: BTreeMap<JobTurn, Vec<Arc<str>>> = BTreeMap::new();
            let mut running: Vec<Arc<str>> = Vec::new();
            for (job, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Wait(bits) => {
                        let by = all.iter().enumerate().filter(|(at, _)| bits & (1 << at) != 0);
                        let by: Vec<_> = by.map(|(_, it)| it.clone()).collect();
                        let turn = turns.wait(&by, &job);
                        waits.insert(turn, by);
                    }
                    Step::Leave(which) if !waits.is_empty() => {
                        let turn = *waits.keys().nth(which.index(waits.len())).unwrap();
                        for namespace in waits.remove(&turn).unwrap() {
                            turns.leave(&namespace, turn);
                        }
                    }
                    Step::Done(which) if !running.is_empty() => {
                        turns.done(&running.swap_remove(which.index(running.len())));
                    }
                    Step::Begin => {
                        while let Some(begun) = turns.begin() {
                            let by = waits.remove(&begun.turn).expect("a job that waits");
                            prop_assert!(by.contains(&begun.namespace));
                            let own = running.iter().filter(|it| **it == begun.namespace).count();
                            let free = most - running.len();
                            prop_assert!(own < free, "begins with {own} under way, {free} free");
                            for other in by.iter().filter(|it| **it != begun.namespace) {
                                turns.leave(other, begun.turn);
                            }
                            running.push(begun.namespace);
                        }
                        let free = most - running.len();
                        for namespace in waits.values().flatten() {
                            let own = running.iter().filter(|it| *it == namespace).count();
                            prop_assert!(
                                own >= free,
                                "{namespace} waits with {own} under way and {free} free"
                            );
                        }
                    }
                    _ => {}
                }
                prop_assert!(running.len() <= most);
                prop_assert_eq!(turns.under_way(), running.len());
                for namespace in &all {
                    let own = running.iter().filter(|it| *it == namespace).count();
                    prop_assert_eq!(turns.under_way_of(namespace), own);
                }
                let waiting: usize = turns.waiting().map(|(_, count)| count).sum();
                prop_assert_eq!(waiting, waits.values().map(Vec::len).sum::<usize>());
                prop_assert_eq!(turns.is_empty(), running.is_empty() && waits.is_empty());
            }
        }
    }
}
