//! What holds whatever happens: consumers that come, go and change, administrators that edit,
//! leaders that are killed between any two writes, watches that lag, answers that are lost, and two
//! leaders at once.

use super::make::*;
use crate::admission::*;
use crate::cases::{Fate, cases, fate, next_events, pick};
use crate::objects::Version;
use crate::resources::{Amounts, Resource, Totals};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::TestCaseError;
use std::collections::BTreeMap;

const CONSUMERS: usize = 6;
const LBS: [&str; 2] = ["edge", "other"];

#[derive(Clone, Debug)]
enum Step {
    Want(usize, usize, u64, u64),
    Leave(usize),
    /// An administrator sets the capacity of a load balancer, and creates it if it does not exist.
    Capacity(usize, Option<u64>),
    Delete(usize),
    /// The watch of a kind delivers to a leader some of what it has not delivered.
    Observe(usize, usize, usize),
    Take(usize),
    Write(usize, Index, Fate),
    Confirm(usize, Index),
    Kill(usize),
    /// The watches of a leader start over, and deliver everything.
    Relist(usize),
}

fn step(leaders: usize) -> impl Strategy<Value = Step> {
    let leader = 0..leaders;
    let capacity = prop::option::weighted(0.9, 0u64..12);
    prop_oneof![
        4 => (0..CONSUMERS, 0..LBS.len(), 0u64..7, 0u64..4)
            .prop_map(|(who, lb, bandwidth, iops)| Step::Want(who, lb, bandwidth, iops)),
        1 => (0..CONSUMERS).prop_map(Step::Leave),
        1 => (0..LBS.len(), capacity).prop_map(|(lb, capacity)| Step::Capacity(lb, capacity)),
        1 => (0..LBS.len()).prop_map(Step::Delete),
        9 => (leader.clone(), 0usize..2, 1usize..6).prop_map(|(leader, kind, count)| Step::Observe(leader, kind, count)),
        6 => leader.clone().prop_map(Step::Take),
        6 => (leader.clone(), any::<Index>(), fate()).prop_map(|(at, which, fate)| Step::Write(at, which, fate)),
        3 => (leader.clone(), any::<Index>()).prop_map(|(at, which)| Step::Confirm(at, which)),
        1 => leader.clone().prop_map(Step::Kill),
        1 => leader.prop_map(Step::Relist),
    ]
}

struct Leader {
    machine: Admission,
    observed: [usize; 2],
    writes: Vec<Write>,
    asks: Vec<(ConsumerRef, Arc<str>)>,
}

struct Cloud {
    now: Timestamp,
    version: u64,
    lbs: BTreeMap<Arc<str>, LoadBalancer>,
    wants: BTreeMap<ConsumerRef, Want>,
    /// What the watches of both kinds deliver.
    logs: [Vec<Event>; 2],
    leaders: Vec<Leader>,
}

impl Cloud {
    fn new(leaders: usize) -> Self {
        let mut cloud = Self {
            now: NOW,
            version: 1,
            lbs: LBS.map(|name| (name.into(), lb(name, bandwidth(10)))).into(),
            wants: BTreeMap::new(),
            logs: <_>::default(),
            leaders: Vec::new(),
        };
        (0..leaders).for_each(|at| cloud.kill(at));
        cloud
    }

    /// What lists of both kinds deliver.
    fn everything(&self) -> Vec<Event> {
        let mut events: Vec<Event> = Kind::ALL.map(Event::Begin).into();
        events.extend(self.lbs.values().cloned().map(|lb| Event::LoadBalancer(Box::new(lb))));
        events.extend(self.wants.values().cloned().map(Event::Wants));
        events.extend(Kind::ALL.map(Event::Done));
        events
    }

    /// A leader dies, and another one reads everything.
    fn kill(&mut self, at: usize) {
        let (machine, observed) = (Admission::new(), [0, 0]);
        let leader = Leader { machine, observed, writes: Vec::new(), asks: Vec::new() };
        match self.leaders.get_mut(at) {
            Some(old) => *old = leader,
            None => self.leaders.push(leader),
        }
        self.relist(at);
    }

    fn relist(&mut self, at: usize) {
        let (events, told) = (self.everything(), self.logs.each_ref().map(Vec::len));
        let leader = &mut self.leaders[at];
        events.into_iter().for_each(|event| leader.machine.handle(event, self.now));
        leader.observed = told;
    }

    fn put(&mut self, mut lb: LoadBalancer) -> Version {
        self.version += 1;
        lb.version = Version(self.version.to_string().into());
        self.lbs.insert(lb.name.clone(), lb.clone());
        let version = lb.version.clone();
        self.logs[0].push(Event::LoadBalancer(Box::new(lb)));
        version
    }

    fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Want(who, lb, bandwidth, iops) => {
                let requests = Amounts { bandwidth: Some(bandwidth), iops: Some(iops) };
                let want = Want {
                    load_balancer: LBS[lb].into(),
                    requests: Ok(requests),
                    // Names and ages are in different orders.
                    ..want(&format!("c{who}"), (CONSUMERS - who) as i64 % 4, 0)
                };
                self.wants.insert(want.consumer.clone(), want.clone());
                self.logs[1].push(Event::Wants(want));
            }
            Step::Leave(who) => {
                let who = consumer(&format!("c{who}"));
                self.wants.remove(&who);
                self.logs[1].push(Event::Leaves(who));
            }
            Step::Capacity(at, capacity) => {
                let mut lb = self.lbs.get(LBS[at]).cloned().unwrap_or_else(|| LoadBalancer {
                    uid: format!("{}-{}", LBS[at], self.version).into(),
                    ..lb(LBS[at], bandwidth(0))
                });
                lb.capacity = Amounts { bandwidth: capacity, iops: None };
                self.put(lb);
            }
            Step::Delete(at) => {
                if let Some(lb) = self.lbs.remove(LBS[at]) {
                    self.version += 1;
                    self.logs[0].push(Event::LoadBalancerGone(lb.name));
                }
            }
            Step::Observe(at, kind, count) => self.observe(at, kind, count),
            Step::Take(at) => _ = self.take(at),
            Step::Write(at, which, fate) => {
                if let Some(write) = pick(&mut self.leaders[at].writes, which) {
                    self.write(at, write, fate)?;
                }
            }
            Step::Confirm(at, which) => {
                if let Some(ask) = pick(&mut self.leaders[at].asks, which) {
                    self.confirm(at, ask);
                }
            }
            Step::Kill(at) => self.kill(at),
            Step::Relist(at) => self.relist(at),
        }
        Ok(())
    }

    fn observe(&mut self, at: usize, kind: usize, count: usize) {
        let (leader, log) = (&mut self.leaders[at], &self.logs[kind]);
        for event in next_events(log, &mut leader.observed[kind], count) {
            leader.machine.handle(event.clone(), self.now);
        }
    }

    fn take(&mut self, at: usize) -> bool {
        let leader = &mut self.leaders[at];
        let changes = leader.machine.take(self.now);
        let idle = changes == Changes::default();
        leader.writes.extend(changes.writes);
        leader.asks.extend(changes.confirm);
        idle
    }

    fn confirm(&mut self, at: usize, (consumer, load_balancer): (ConsumerRef, Arc<str>)) {
        let there = self.wants.get(&consumer);
        let wants = there.is_some_and(|it| it.load_balancer == load_balancer);
        let event = Event::Confirmed { consumer, load_balancer, wants };
        self.leaders[at].machine.handle(event, self.now);
    }

    fn write(&mut self, at: usize, write: Write, fate: Fate) -> Result<(), TestCaseError> {
        let id = write.id;
        let result =
            if matches!(fate, Fate::Lost) { Written::Failed } else { self.perform(write)? };
        let result = if matches!(fate, Fate::AnswerLost) { Written::Failed } else { result };
        self.leaders[at].machine.handle(Event::Written { id, result }, self.now);
        Ok(())
    }

    fn perform(&mut self, write: Write) -> Result<Written, TestCaseError> {
        let Some(lb) = self.lbs.get(&write.load_balancer).cloned() else {
            return Ok(Written::Conflict(None));
        };
        if lb.version != write.version {
            return Ok(Written::Conflict(Some(Box::new(lb))));
        }
        let (before, mut after) = (totals(&lb.seats), Totals::default());
        write.seats.iter().for_each(|seat| after.add(&seat.requests));
        prop_assert_eq!(after, write.allocated);
        for it in Resource::ALL {
            let capacity = lb.capacity.of(it).map_or(u128::MAX, u128::from);
            prop_assert!(
                after.of(it) <= capacity.max(before.of(it)),
                "over-committed: {:?}",
                write
            );
        }
        // The record is what the leader has seen, so every consumer in it that has not left keeps
        // its seat.
        for seat in &lb.seats {
            let stays = write.seats.iter().any(|it| it.consumer == seat.consumer);
            let there = self.wants.get(&seat.consumer);
            let left = there.is_none_or(|it| it.load_balancer != lb.name);
            prop_assert!(stays || left || self.has_left(seat, &lb), "{:?} lost its seat", seat);
        }
        let version = self.put(LoadBalancer { seats: write.seats, ..lb });
        Ok(Written::Ok(version))
    }

    /// Whether a consumer was on a load balancer and left it: it may have lost its seat and come
    /// back.
    fn has_left(&self, seat: &Seat, lb: &LoadBalancer) -> bool {
        let mut here = self.logs[1].iter().filter_map(|event| match event {
            Event::Wants(want) if want.consumer == seat.consumer => {
                Some(want.load_balancer == lb.name)
            }
            Event::Leaves(who) if *who == seat.consumer => Some(false),
            _ => None,
        });
        here.any(|here| here) && here.any(|here| !here)
    }

    /// Delivers, carries out and answers everything, as often as it takes.
    fn settle(&mut self) -> Result<(), TestCaseError> {
        for _ in 0..300 {
            let mut idle = true;
            for at in 0..self.leaders.len() {
                (0..2).for_each(|kind| self.observe(at, kind, usize::MAX / 2));
                idle &= self.take(at);
                for write in std::mem::take(&mut self.leaders[at].writes) {
                    idle = false;
                    self.write(at, write, Fate::Answered)?;
                }
                for ask in std::mem::take(&mut self.leaders[at].asks) {
                    idle = false;
                    self.confirm(at, ask);
                }
            }
            let told = self.logs.each_ref().map(Vec::len);
            if idle && self.leaders.iter().all(|it| it.observed == told) {
                let next = self.leaders.iter().filter_map(|it| it.machine.wake_at()).min();
                let Some(next) = next else { return Ok(()) };
                self.now = self.now.max(next);
            }
        }
        Err(TestCaseError::fail("it does not come to rest"))
    }

    /// The resources that older consumers lack that wait on the same load balancer and could fit.
    fn kept(&self, of: &Want) -> Vec<Resource> {
        let lb = &self.lbs[&of.load_balancer];
        let age = |want: &Want| (want.created, want.consumer.clone());
        let older = self.wants.values().filter(|it| it.load_balancer == lb.name);
        let older = older.filter(|it| age(it) < age(of));
        older
            .flat_map(|it| {
                let requests = it.requests.clone().unwrap_or_default();
                let seat = lb.seats.iter().find(|seat| seat.consumer == it.consumer);
                let old = seat.map(|seat| seat.requests).unwrap_or_default();
                let alone = lacking(lb, &Totals::default(), &requests, &Amounts::default());
                let lacks = lacking(lb, &totals(&lb.seats), &requests, &old);
                if alone.is_empty() { lacks } else { Vec::new() }
            })
            .collect()
    }

    /// At rest every consumer has a seat where it belongs, or could not have one.
    fn check_rest(&self) -> Result<(), TestCaseError> {
        for lb in self.lbs.values() {
            for seat in &lb.seats {
                let belongs = self.wants.get(&seat.consumer);
                prop_assert_eq!(belongs.map(|it| &it.load_balancer), Some(&lb.name));
            }
        }
        for want in self.wants.values() {
            let Some(lb) = self.lbs.get(&want.load_balancer) else {
                let mut told =
                    self.leaders.iter().filter_map(|it| it.machine.decision(&want.consumer));
                prop_assert_eq!(told.next(), None, "{:?}: its load balancer is gone", want);
                continue;
            };
            let seat = lb.seats.iter().find(|it| it.consumer == want.consumer);
            let requests = want.requests.clone().unwrap();
            for leader in &self.leaders {
                let decision = leader.machine.decision(&want.consumer).cloned();
                let (has, told) = match &decision {
                    Some(Decision::Admitted { requests, short, .. }) => {
                        (Some(*requests), short.is_some())
                    }
                    Some(Decision::Waiting { .. }) => (None, true),
                    None => return Err(TestCaseError::fail(format!("{want:?}: nothing is said"))),
                };
                prop_assert_eq!(has, seat.map(|it| it.requests));
                prop_assert_eq!(told, has != Some(requests), "{:?}", decision);
            }
            if seat.map(|it| it.requests) != Some(requests) {
                let old = seat.map(|it| it.requests).unwrap_or_default();
                let total = totals(&lb.seats);
                let lacks = lacking(lb, &total, &requests, &old);
                let more = |it: &Resource| requests.amount(*it) > old.amount(*it);
                let kept =
                    Resource::ALL.into_iter().filter(more).any(|it| self.kept(want).contains(&it));
                prop_assert!(!lacks.is_empty() || kept, "{:?} waits for nothing at {:?}", want, lb);
            }
        }
        Ok(())
    }
}

/// The resources that a consumer lacks that has `old` and wants `new`.
fn lacking(lb: &LoadBalancer, total: &Totals, new: &Amounts, old: &Amounts) -> Vec<Resource> {
    let lacks = |it: &Resource| {
        let (new, old) = (u128::from(new.amount(*it)), u128::from(old.amount(*it)));
        let capacity = lb.capacity.of(*it).map_or(u128::MAX, u128::from);
        new > old && total.of(*it) - old + new > capacity
    };
    Resource::ALL.into_iter().filter(lacks).collect()
}

fn totals(seats: &[Seat]) -> Totals {
    let mut totals = Totals::default();
    seats.iter().for_each(|seat| totals.add(&seat.requests));
    totals
}

fn run(leaders: usize, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut cloud = Cloud::new(leaders);
    for step in steps {
        cloud.step(step)?;
    }
    cloud.settle()?;
    cloud.check_rest()
}

proptest! {
    #![proptest_config(cases(80))]

    #[test]
    fn one_leader_that_may_die_never_overcommits_and_takes_no_seat(
        steps in prop::collection::vec(step(1), 0..80)
    ) {
        run(1, steps)?;
    }

    #[test]
    fn two_leaders_never_overcommit_and_take_no_seat(
        steps in prop::collection::vec(step(2), 0..120)
    ) {
        run(2, steps)?;
    }

    #[test]
    fn the_order_within_a_batch_does_not_matter(
        wants in prop::collection::vec((0usize..12, 0u64..7, 0i64..4), 1..12),
        swaps in prop::collection::vec(any::<(Index, Index)>(), 0..20),
    ) {
        let wants: BTreeMap<usize, Want> = wants
            .into_iter()
            .map(|(who, amount, created)| (who, want(&format!("c{who}"), created, amount)))
            .collect();
        let wants: Vec<Want> = wants.into_values().collect();
        let mut shuffled = wants.clone();
        for (one, other) in swaps {
            shuffled.swap(one.index(wants.len()), other.index(wants.len()));
        }
        let seats = |wants: Vec<Want>| {
            let mut api = Api::new([lb("edge", bandwidth(10))]);
            api.wants(wants);
            api.run();
            api.seats().to_vec()
        };
        prop_assert_eq!(seats(wants), seats(shuffled));
    }
}
