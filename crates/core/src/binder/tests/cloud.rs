//! An API, the objects that serve load balancers, and leaders that hear of changes late and write to the API.

use super::make::*;
use super::steps::{CLAIMS, LBS, NAMESPACES, Step, variant};
use crate::binder::*;
use crate::cases::{Fate, next_events, pick};
use crate::key::ObjectKey;
use crate::objects::Timestamp;
use crate::provision::{self, Found, Mark, to_have, to_lose};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::TestCaseError;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

struct Leader {
    machine: Binder,
    observed: [usize; 3],
    writes: Vec<Write>,
    jobs: Vec<Job>,
    asks: Vec<Subject>,
    /// Load balancers as the watch delivered them.
    seen: BTreeMap<Arc<str>, LoadBalancer>,
}

/// The parts that serve a load balancer.
pub(super) const PARTS: [u8; 3] = [0, 1, 2];

pub(super) struct Cloud {
    pub(super) now: Timestamp,
    pub(super) store: Store,
    pub(super) class: Option<Class>,
    pub(super) wanted: BTreeMap<ObjectKey, u32>,
    /// Events of classes and consumers.
    pub(super) rest: Vec<Event>,
    leaders: Vec<Leader>,
    /// The parts that exist, by load balancer, with the uid of the load balancer that owns each.
    pub(super) parts: BTreeMap<(Arc<str>, u8), Arc<str>>,
    /// Load balancers that a person deleted, changed or took away: a claim may lose these.
    pub(super) meddled: BTreeSet<Arc<str>>,
}

fn apply(object: Object) -> Event {
    Event::Apply(Box::new(object))
}

impl Cloud {
    pub(super) fn new(leaders: usize) -> Self {
        let mut cloud = Self {
            now: NOW,
            store: Store::default(),
            class: None,
            wanted: BTreeMap::new(),
            rest: Vec::new(),
            leaders: Vec::new(),
            parts: BTreeMap::new(),
            meddled: BTreeSet::new(),
        };
        (0..leaders).for_each(|at| cloud.kill(at));
        cloud
    }

    /// What lists of all kinds deliver.
    fn everything(&self) -> Vec<Event> {
        let mut events: Vec<Event> = Kind::ALL.map(Event::Begin).into();
        events.extend(self.store.lbs.values().cloned().map(|it| apply(Object::LoadBalancer(it))));
        events.extend(self.store.claims.values().cloned().map(|it| apply(Object::Claim(it))));
        events.extend(self.class.clone().map(|it| apply(Object::Class(it))));
        for (claim, consumers) in &self.wanted {
            events.push(Event::Wanted { claim: claim.clone(), consumers: *consumers });
        }
        events.extend(Kind::ALL.map(Event::Done));
        events
    }

    pub(super) fn fresh(&self) -> Binder {
        let mut machine = Binder::new();
        self.everything().into_iter().for_each(|event| machine.handle(event, self.now));
        machine
    }

    fn told(&self) -> [usize; 3] {
        [self.store.logs[0].len(), self.store.logs[1].len(), self.rest.len()]
    }

    /// A leader dies, and another one reads everything.
    fn kill(&mut self, at: usize) {
        let (writes, jobs, asks) = (Vec::new(), Vec::new(), Vec::new());
        let (machine, seen) = (self.fresh(), self.store.lbs.clone());
        let leader = Leader { machine, observed: self.told(), writes, jobs, asks, seen };
        match self.leaders.get_mut(at) {
            Some(old) => *old = leader,
            None => self.leaders.push(leader),
        }
    }

    fn some_lb(&self, which: Index) -> Option<LoadBalancer> {
        let lbs: Vec<_> = self.store.lbs.values().collect();
        (!lbs.is_empty()).then(|| lbs[which.index(lbs.len())].clone())
    }

    pub(super) fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::MakeClaim(at, wish) => {
                if self.store.claims.contains_key(&key(CLAIMS[at])) {
                    return Ok(());
                }
                let mut claim = asking(CLAIMS[at], |ask| {
                    ask.requests = amounts(wish.request, 0);
                    ask.load_balancer = wish.named.map(|at| LBS[at].into());
                    ask.class = if wish.never { ClassWish::Never } else { ClassWish::Default };
                });
                // Names and ages are in different orders.
                claim.created = (CLAIMS.len() - at) as i64 % 3;
                claim.uid = self.store.new_uid();
                self.store.put_claim(claim);
            }
            Step::DeleteClaim(at) => {
                if let Some(mut claim) = self.store.claims.get(&key(CLAIMS[at])).cloned() {
                    claim.deleting = true;
                    self.store.put_claim(claim);
                }
            }
            Step::MakeLb(at, size, policy) => {
                if !self.store.lbs.contains_key(LBS[at]) {
                    let mut lb = lb(LBS[at], amounts(size, 0));
                    lb.reclaim =
                        [Reclaim::Retain, Reclaim::Recycle, Reclaim::Delete][usize::from(policy)];
                    lb.uid = self.store.new_uid();
                    self.store.put_lb(lb);
                }
            }
            Step::DeleteLb(which) => {
                if let Some(mut lb) = self.some_lb(which) {
                    self.meddled.insert(lb.name.clone());
                    lb.deleting = true;
                    self.store.put_lb(lb);
                }
            }
            Step::Refer(which, claim) => {
                if let Some(mut lb) = self.some_lb(which) {
                    self.meddled.insert(lb.name.clone());
                    let key = claim.map(|at| key(CLAIMS[at]));
                    lb.tie.claim = key.map(|key| ClaimRef { key, uid: None });
                    self.store.put_lb(lb);
                }
            }
            Step::Resize(which, size) => {
                if let Some(mut lb) = self.some_lb(which) {
                    self.meddled.insert(lb.name.clone());
                    lb.capacity = amounts(size, 0);
                    self.store.put_lb(lb);
                }
            }
            Step::Class(which) => {
                self.class = variant(which);
                let (kind, key) = (Kind::Class, key("bronze"));
                let gone = || Event::Delete { kind, key, uid: "".into() };
                let event = self.class.clone().map(|it| apply(Object::Class(it)));
                self.rest.push(event.unwrap_or_else(gone));
            }
            Step::Want(at, wanted) => {
                let (claim, consumers) = (key(CLAIMS[at]), u32::from(wanted));
                self.wanted.insert(claim.clone(), consumers);
                self.rest.push(Event::Wanted { claim, consumers });
            }
            Step::Use(which, namespace, used) => {
                if let Some(mut lb) = self.some_lb(which) {
                    self.meddled.insert(lb.name.clone());
                    let namespace: Arc<str> = NAMESPACES[namespace].into();
                    lb.users.retain(|it| *it != namespace);
                    lb.users.extend(used.then_some(namespace));
                    self.store.put_lb(lb);
                }
            }
            Step::Observe(at, kind, count) => self.observe(at, kind, count),
            Step::Take(at) => _ = self.take(at),
            Step::Write(at, which, fate) => {
                if let Some(write) = pick(&mut self.leaders[at].writes, which) {
                    self.write(at, write, fate)?;
                }
            }
            Step::Work(at, which, ok) => {
                if let Some(job) = pick(&mut self.leaders[at].jobs, which) {
                    self.work(at, job, ok)?;
                }
            }
            Step::Confirm(at, which) => {
                if let Some(subject) = pick(&mut self.leaders[at].asks, which) {
                    self.confirm(at, subject);
                }
            }
            Step::Provision(at, which, count) => {
                let made: Vec<_> = self.made(at);
                if !made.is_empty() {
                    let lb = made[which.index(made.len())].clone();
                    (0..count).for_each(|_| _ = self.provision(&lb, to_have));
                }
            }
            Step::Collect => self.collect(),
            Step::Kill(at) => self.kill(at),
            Step::Relist(at) => {
                let (events, told) = (self.everything(), self.told());
                let leader = &mut self.leaders[at];
                events.into_iter().for_each(|event| leader.machine.handle(event, self.now));
                leader.observed = told;
                leader.seen = self.store.lbs.clone();
            }
            Step::Pass(seconds) => self.now += seconds,
        }
        Ok(())
    }

    fn observe(&mut self, at: usize, kind: usize, count: usize) {
        let log = self.store.logs.get(kind).unwrap_or(&self.rest);
        let leader = &mut self.leaders[at];
        for event in next_events(log, &mut leader.observed[kind], count) {
            leader.machine.handle(event.clone(), self.now);
            match event {
                Event::Apply(object) => {
                    if let Object::LoadBalancer(lb) = &**object {
                        leader.seen.insert(lb.name.clone(), lb.clone());
                    }
                }
                Event::Delete { kind: Kind::LoadBalancer, key, .. } => {
                    leader.seen.remove(&key.name);
                }
                _ => {}
            }
        }
    }

    /// Provisioned load balancers that are to be served, as a leader knows them.
    fn made(&self, at: usize) -> Vec<LoadBalancer> {
        let seen = self.leaders[at].seen.values();
        seen.filter(|lb| lb.provisioned_for.is_some() && !lb.deleting).cloned().collect()
    }

    /// Takes one step towards all parts of a load balancer, or none. Returns whether there was one to take.
    fn provision(
        &mut self,
        lb: &LoadBalancer,
        next: fn(&[(u8, Found)]) -> provision::Step<u8>,
    ) -> bool {
        let mark = Mark { uid: "".into(), version: lb.version.clone() };
        let found = PARTS.map(|part| match self.parts.get(&(lb.name.clone(), part)) {
            None => (part, Found::Missing),
            Some(owner) if *owner == lb.uid => (part, Found::Same(mark.clone())),
            Some(_) => (part, Found::Foreign),
        });
        match next(&found) {
            provision::Step::Create(part) => {
                self.parts.insert((lb.name.clone(), part), lb.uid.clone());
                true
            }
            provision::Step::Delete(part, _) => {
                self.parts.remove(&(lb.name.clone(), part)).is_some()
            }
            _ => false,
        }
    }

    /// Removes parts of owners that do not exist any more.
    fn collect(&mut self) {
        let live: BTreeSet<_> = self.store.lbs.values().map(|lb| lb.uid.clone()).collect();
        self.parts.retain(|_, owner| live.contains(owner));
    }

    fn take(&mut self, at: usize) -> bool {
        let leader = &mut self.leaders[at];
        let changes = leader.machine.take(self.now);
        let idle = changes == Changes::default();
        leader.writes.extend(changes.writes);
        leader.jobs.extend(changes.jobs);
        leader.asks.extend(changes.confirm);
        idle
    }

    fn confirm(&mut self, at: usize, subject: Subject) {
        let version = self.store.version_of(&subject);
        self.leaders[at].machine.handle(Event::Confirmed { subject, version }, self.now);
    }

    fn write(&mut self, at: usize, write: Write, fate: Fate) -> Result<(), TestCaseError> {
        let mut result = Written::Failed;
        if !matches!(fate, Fate::Lost) {
            self.check_op(&write.op)?;
            result = self.store.perform(&write.op).map_err(TestCaseError::fail)?;
        }
        if matches!(fate, Fate::AnswerLost) {
            result = Written::Failed;
        }
        self.leaders[at].machine.handle(Event::Written { id: write.id, result }, self.now);
        Ok(())
    }

    /// The claim that has a load balancer and names it in its status.
    fn holder(&self, lb: &LoadBalancer) -> Option<&Claim> {
        let claim = self.store.claims.get(&lb.tie.claim.as_ref()?.key)?;
        let home = claim.report.as_ref().and_then(ClaimReport::home);
        (Some(&claim.uid) == lb.tie.uid() && home == Some(&lb.name)).then_some(claim)
    }

    /// What no leader may do to a load balancer that a claim has.
    fn check_op(&self, op: &Op) -> Result<(), TestCaseError> {
        let (Op::Delete(target) | Op::Release(target, _)) = op else { return Ok(()) };
        let Some(lb) = self.store.lbs.get(&target.key.name) else { return Ok(()) };
        if lb.version != target.version {
            return Ok(());
        }
        match op {
            Op::Delete(_) => prop_assert!(self.holder(lb).is_none(), "{:?} of {:?}", op, lb),
            // Without consumers it may become idle.
            _ => prop_assert!(
                self.holder(lb).is_none() || (lb.users.is_empty() && lb.provisioned_for.is_some()),
                "{:?} of {:?}",
                op,
                lb
            ),
        }
        Ok(())
    }

    fn work(&mut self, at: usize, job: Job, ok: bool) -> Result<(), TestCaseError> {
        let lb = self.store.lbs.get(&job.load_balancer);
        let same = |lb: &&LoadBalancer| lb.uid == job.uid && lb.tie.uid() == job.claim.as_ref();
        if let Some(lb) = lb.filter(same) {
            let uid = lb.tie.uid();
            let lives = self.store.claims.values().any(|claim| Some(&claim.uid) == uid);
            prop_assert!(!lives, "{:?} while {:?} lives", job, uid);
            prop_assert!(lb.deleting || job.kind == JobKind::Recycle);
            if job.kind == JobKind::Deprovision {
                let lb = lb.clone();
                // A job that fails has done a part of it.
                while self.provision(&lb, to_lose) && ok {}
            }
        }
        let result = if ok { Ok(()) } else { Err("it does not answer".into()) };
        self.leaders[at].machine.handle(Event::Finished { id: job.id, result }, self.now);
        Ok(())
    }

    /// Delivers, carries out and answers everything, as often as it takes.
    pub(super) fn settle(&mut self) -> Result<(), TestCaseError> {
        // How often everything came to rest. Time goes on then, as two leaders may wait for each other's writes.
        let mut rests = 0;
        for round in 1..=400 {
            let mut idle = true;
            // Two leaders may see things differently until a write that failed is repeated: time goes on.
            self.now += Timestamp::from(round % 10 == 0);
            for at in 0..self.leaders.len() {
                (0..3).for_each(|kind| self.observe(at, kind, usize::MAX / 2));
                idle &= self.take(at);
                for write in std::mem::take(&mut self.leaders[at].writes) {
                    idle = false;
                    self.write(at, write, Fate::Answered)?;
                }
                for job in std::mem::take(&mut self.leaders[at].jobs) {
                    idle = false;
                    self.work(at, job, true)?;
                }
                for subject in std::mem::take(&mut self.leaders[at].asks) {
                    idle = false;
                    self.confirm(at, subject);
                }
                for lb in self.made(at) {
                    idle &= !self.provision(&lb, to_have);
                }
            }
            self.collect();
            let told = self.told();
            if idle && self.leaders.iter().all(|it| it.observed == told) {
                let next = self.leaders.iter().filter_map(|it| it.machine.wake_at()).min();
                rests += 1;
                // Reads that are repeated bring nothing new.
                let Some(next) = next.filter(|_| rests < 40) else { return Ok(()) };
                self.now = self.now.max(next);
            }
        }
        Err(TestCaseError::fail("it does not come to rest"))
    }
}
