//! `make bench`: what it costs to bind claims to load balancers, in CPU time. Prints numbers; asserts
//! nothing about time. Each binding is whole: claim and load balancer are told, the best is chosen, and
//! each of its writes is answered and echoed by the watch.

use bowline_core::ObjectKey;
use bowline_core::addresses::Scope;
use bowline_core::binder::{
    Ask, Binder, Claim, ClassWish, Event, Kind, LoadBalancer, Object, Op, Phase, Reclaim, Tie,
    Write, Written,
};
use bowline_core::objects::{LabelSelector, Operator, Requirement, Version};
use bowline_core::resources::Amounts;
use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const NOW: i64 = 1_000_000;
const COUNT: usize = 10_000;
/// How many wait for what the index cannot find.
const WAITING: usize = 1_000;
const ROUNDS: usize = 3;

fn main() -> Result<()> {
    println!("{:56}{:>12}{:>14}", "binder", "took", "per second");
    let two = |at: usize| Amounts { bandwidth: Some(size(at)), iops: Some(size(at + 7)) };
    let one = |at: usize| Amounts { bandwidth: Some(size(at)), iops: None };
    let same = |_| Amounts { bandwidth: Some(1_000_000_000), iops: Some(100_000) };
    let (took, api) = bind(one, one, false)?;
    print("10000 claims over 10000, one resource, all different", took, COUNT);
    print("restart: 10000 bindings found again", restart(&api)?, COUNT);
    print("10000 claims over 10000, two resources, all different", bind(two, two, false)?.0, COUNT);
    print("10000 claims over 10000, all alike", bind(same, same, false)?.0, COUNT);
    print("10000 claims over 10000, each by a label of its own", bind(same, same, true)?.0, COUNT);
    print("a load balancer comes, 10000 wait", freed()?, 100);
    let (begins, comes, restated) = passed_by()?;
    print("1000 select among 10000, by no label, and none suits", begins, WAITING);
    print("one more comes and suits none of them", comes, ROUNDS);
    print("they are told anew why they wait", restated, ROUNDS);
    Ok(())
}

/// Sizes in no order, each once.
fn size(at: usize) -> u64 {
    ((at * 7_919) % COUNT + 1) as u64 * 1_000_003
}

fn print(what: &str, took: Duration, count: usize) {
    let milliseconds = took.as_secs_f64() * 1e3;
    let rate = count as f64 / took.as_secs_f64();
    println!("{what:56}{milliseconds:>9.1} ms{rate:>14.0}");
}

/// How long this process has been on a CPU: a busy machine does not count.
struct Cpu(Duration);

impl Cpu {
    fn now() -> Result<Self> {
        let schedule = fs::read_to_string("/proc/self/schedstat")?;
        let nanoseconds = schedule.split_whitespace().next().ok_or("time on a CPU")?.parse()?;
        Ok(Self(Duration::from_nanos(nanoseconds)))
    }

    fn elapsed(&self) -> Result<Duration> {
        Ok(Self::now()?.0 - self.0)
    }
}

/// A machine, and an API that says yes to everything.
struct Api {
    machine: Binder,
    lbs: BTreeMap<Arc<str>, LoadBalancer>,
    claims: BTreeMap<ObjectKey, Claim>,
    version: u64,
    now: i64,
}

impl Api {
    fn new() -> Self {
        let machine = Binder::new();
        Self { machine, lbs: BTreeMap::new(), claims: BTreeMap::new(), version: 0, now: NOW }
    }

    fn next(&mut self) -> Version {
        self.version += 1;
        Version(self.version.to_string().into())
    }

    fn tell(&mut self, event: Event) {
        self.machine.handle(event, self.now);
    }

    fn apply(&mut self, object: Object) {
        self.tell(Event::Apply(Box::new(object)));
    }

    fn done(&mut self) {
        Kind::ALL.into_iter().for_each(|kind| self.tell(Event::Done(kind)));
    }

    fn write(&mut self, write: Write) -> Result<()> {
        let version = self.next();
        let object = match write.op {
            Op::Bind(target, tie) | Op::Release(target, tie) | Op::Guard(target, tie) => {
                let lb = self.lbs.get_mut(&target.key.name).ok_or("load balancer")?;
                (lb.tie, lb.version) = (tie, version);
                Object::LoadBalancer(lb.clone())
            }
            Op::Report(target, report) => {
                let lb = self.lbs.get_mut(&target.key.name).ok_or("load balancer")?;
                (lb.report, lb.version) = (Some(report), version);
                Object::LoadBalancer(lb.clone())
            }
            Op::ReportClaim(target, report) => {
                let claim = self.claims.get_mut(&target.key).ok_or("claim")?;
                (claim.report, claim.version) = (Some(report), version);
                Object::Claim(claim.clone())
            }
            Op::GuardClaim(target, in_use) => {
                let claim = self.claims.get_mut(&target.key).ok_or("claim")?;
                (claim.in_use, claim.version) = (in_use, version);
                Object::Claim(claim.clone())
            }
            other => return Err(format!("{other:?}").into()),
        };
        let result = Written::Ok(Some(Box::new(object.clone())));
        self.tell(Event::Written { id: write.id, result });
        self.apply(object);
        Ok(())
    }

    /// Does what is to be done. How many claims are bound then.
    fn run(&mut self) -> Result<usize> {
        loop {
            let changes = self.machine.take(self.now);
            if changes.writes.is_empty() {
                break;
            }
            changes.writes.into_iter().try_for_each(|write| self.write(write))?;
        }
        let bound = |claim: &&Claim| {
            claim.report.as_ref().is_some_and(|report| report.phase == Phase::Bound)
        };
        Ok(self.claims.values().filter(bound).count())
    }
}

fn lb(at: usize, capacity: Amounts, label: bool) -> LoadBalancer {
    let name: Arc<str> = format!("lb-{at:05}").into();
    let mut labels: BTreeMap<Arc<str>, Arc<str>> =
        [("team".into(), "a".into()), ("zone".into(), format!("{}", at % 3).into())].into();
    if label {
        labels.insert("app".into(), format!("app-{at}").into());
    }
    LoadBalancer {
        uid: format!("uid-{name}").into(),
        name,
        version: Version("0".into()),
        deleting: false,
        labels,
        scope: Scope::Internet,
        class: None,
        capacity,
        reclaim: Reclaim::Retain,
        shared: false,
        provisioned_for: None,
        users: Vec::new(),
        tie: Tie::default(),
        report: None,
    }
}

fn claim(at: usize, requests: Amounts, label: bool) -> Claim {
    let operator = Operator::In(vec![format!("app-{at}").into()]);
    let requirements = Vec::from_iter(label.then(|| Requirement { key: "app".into(), operator }));
    let selector = LabelSelector { requirements };
    let ask = Ask { selector, requests, class: ClassWish::Default, ..Ask::default() };
    Claim {
        key: ObjectKey::new(format!("team-{}", at % 100), format!("claim-{at}")),
        uid: format!("claim-uid-{at}").into(),
        version: Version("0".into()),
        created: (at % 1_000) as i64,
        deleting: false,
        ask: Ok(ask),
        in_use: false,
        report: None,
    }
}

fn bind(
    capacity: impl Fn(usize) -> Amounts,
    request: impl Fn(usize) -> Amounts,
    label: bool,
) -> Result<(Duration, Api)> {
    let mut api = Api::new();
    for at in 0..COUNT {
        let (lb, claim) = (lb(at, capacity(at), label), claim(at, request(at), label));
        api.lbs.insert(lb.name.clone(), lb);
        api.claims.insert(claim.key.clone(), claim);
    }
    let objects: Vec<Object> = all(&api);
    let started = Cpu::now()?;
    objects.into_iter().for_each(|object| api.apply(object));
    api.done();
    let bound = api.run()?;
    let took = started.elapsed()?;
    // The best for one may be what another one needs: not all of them find a place.
    println!("{bound:>8} bound");
    Ok((took, api))
}

fn all(api: &Api) -> Vec<Object> {
    let claims = api.claims.values().cloned().map(Object::Claim);
    claims.chain(api.lbs.values().cloned().map(Object::LoadBalancer)).collect()
}

fn restart(api: &Api) -> Result<Duration> {
    let mut next = Api { lbs: api.lbs.clone(), claims: api.claims.clone(), ..Api::new() };
    next.version = api.version;
    let objects = all(&next);
    let started = Cpu::now()?;
    objects.into_iter().for_each(|object| next.apply(object));
    next.done();
    next.run()?;
    if next.version != api.version {
        return Err(format!("{} writes after a restart", next.version - api.version).into());
    }
    started.elapsed()
}

/// One after the other comes, and the oldest of all who wait gets it.
fn freed() -> Result<Duration> {
    let mut api = Api::new();
    let request = Amounts { bandwidth: Some(1_000), iops: None };
    for at in 0..COUNT {
        let claim = claim(at, request, false);
        api.claims.insert(claim.key.clone(), claim);
    }
    all(&api).into_iter().for_each(|object| api.apply(object));
    api.done();
    api.run()?;
    let started = Cpu::now()?;
    for at in 0..100 {
        let lb = lb(at, request, false);
        api.lbs.insert(lb.name.clone(), lb.clone());
        api.apply(Object::LoadBalancer(lb));
        let bound = api.run()?;
        if bound != at + 1 {
            return Err(format!("{bound} bound to {} load balancers", at + 1).into());
        }
    }
    started.elapsed()
}

/// Claims whose selectors no label narrows, beside load balancers that do not suit: what it costs when all look for
/// the first time, when one more comes, and when those who wait are told of it.
fn passed_by() -> Result<(Duration, Duration, Duration)> {
    let mut api = Api::new();
    let request = Amounts { bandwidth: Some(1_000), iops: None };
    let operator = Operator::NotIn(vec!["0".into(), "1".into(), "2".into()]);
    let selector =
        LabelSelector { requirements: vec![Requirement { key: "zone".into(), operator }] };
    for at in 0..COUNT {
        if at < WAITING {
            let mut claim = claim(at, request, false);
            claim.ask = claim.ask.map(|ask| Ask { selector: selector.clone(), ..ask });
            api.claims.insert(claim.key.clone(), claim);
        }
        let lb = lb(at, request, false);
        api.lbs.insert(lb.name.clone(), lb);
    }
    let objects = all(&api);
    let started = Cpu::now()?;
    objects.into_iter().for_each(|object| api.apply(object));
    api.done();
    api.run()?;
    let begins = started.elapsed()?;
    let (mut comes, mut restated) = (Duration::ZERO, Duration::ZERO);
    for at in 0..ROUNDS {
        let lb = lb(COUNT + at, request, false);
        api.lbs.insert(lb.name.clone(), lb.clone());
        let started = Cpu::now()?;
        api.apply(Object::LoadBalancer(lb));
        api.run()?;
        comes += started.elapsed()?;
        let started = Cpu::now()?;
        api.now = api.machine.wake_at().unwrap_or(api.now);
        api.run()?;
        restated += started.elapsed()?;
    }
    Ok((begins, comes, restated))
}
