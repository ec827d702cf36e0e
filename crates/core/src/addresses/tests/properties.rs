//! What holds whatever happens: users and administrators who edit, leaders that are killed between any
//! two writes, answers that are lost, and two leaders at once.

use super::make::*;
use crate::addresses::*;
use crate::key::ObjectKey;
use crate::objects::{Family, Timestamp};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::TestCaseError;
use std::collections::BTreeMap;

const NAME: &str = "web.example.com";
const SERVICES: usize = 6;

#[derive(Clone, Debug)]
enum Step {
    /// A Service asks for something.
    Put(usize, Wish),
    Remove(usize),
    /// The second pool is another one; 0: it is gone.
    Pool(usize),
    Resolve(Option<Vec<u8>>),
    /// The watch of a leader tells some of what it has not told.
    Hear(usize, usize),
    Take(usize),
    /// A leader's write reaches the API.
    Write(usize, Index, Fate),
    /// A leader writes a status.
    Show(usize, Index),
    Kill(usize),
    Pass(Timestamp),
}

#[derive(Clone, Copy, Debug)]
enum Fate {
    Answered,
    /// Carried out, and nobody hears of it.
    AnswerLost,
    Lost,
}

#[derive(Clone, Debug)]
struct Wish {
    ask: u8,
    last: u8,
    families: u8,
    key: bool,
    port: u16,
    local: bool,
}

fn wish() -> impl Strategy<Value = Wish> {
    (0u8..12, 0u8..6, 0u8..6, any::<bool>(), 80u16..83, prop::bool::weighted(0.1)).prop_map(
        |(ask, last, families, key, port, local)| Wish { ask, last, families, key, port, local },
    )
}

fn claim(at: usize, wish: &Wish) -> Claim {
    let namespace = if at < SERVICES / 2 { "shop" } else { "bank" };
    let mut claim = service(&format!("{namespace}/s{at}"));
    // Names and ages in different orders.
    claim.created = (SERVICES - at) as i64 % 4;
    claim.ask = match wish.ask {
        0 | 1 => Ok(Ask::Addresses { addresses: vec![at_two(wish.last)], pool: None }),
        2 => Ok(Ask::Pool("two".into())),
        3 | 4 => named(NAME),
        5 => Ok(Ask::Nothing),
        6 => Err(crate::outcome::Problem::new(crate::outcome::Reason::BadValue, "unreadable")),
        _ => Ok(Ask::Any),
    };
    claim.families = match wish.families {
        0 => Families::Prefer(Family::V4),
        1 => Families::Require(Family::V6),
        _ => Families::One(Family::V4),
    };
    if wish.key {
        claim.sharing = sharing("k", &[wish.port]);
        claim.sharing.as_mut().unwrap().local_only = wish.local;
        let one = ("app".into(), claim.holder.key.name.clone());
        claim.sharing.as_mut().unwrap().selector = [one].into();
    }
    claim
}

fn at_two(last: u8) -> IpAddr {
    std::net::Ipv4Addr::new(198, 51, 100, last).into()
}

fn second_pool(variant: usize) -> Option<Pool> {
    let entries: &[&str] = match variant {
        0 => return None,
        1 => &["198.51.100.0/30", "2001:db8:2::/126"],
        2 => &["198.51.100.2/31"],
        3 => &["198.51.100.0/31", "192.0.2.0/31"],
        _ => &["198.51.100.0/29", "2001:db8:2::1-2001:db8:2::9"],
    };
    Some(Pool { created: 1, reuse_after: [0, 20][variant % 2], ..pool("two", entries) })
}

/// The first pool is never edited and is never full of Services.
fn first_pool() -> Pool {
    pool("one", &["192.0.2.0/28"])
}

fn step(leaders: usize) -> impl Strategy<Value = Step> {
    let leader = 0..leaders;
    let fate = prop_oneof![
        6 => Just(Fate::Answered),
        1 => Just(Fate::AnswerLost),
        1 => Just(Fate::Lost)
    ];
    let names = prop::option::weighted(0.8, prop::collection::vec(0u8..6, 0..3));
    prop_oneof![
        3 => (0..SERVICES, wish()).prop_map(|(at, wish)| Step::Put(at, wish)),
        1 => (0..SERVICES).prop_map(Step::Remove),
        1 => (0usize..5).prop_map(Step::Pool),
        1 => names.prop_map(Step::Resolve),
        6 => (leader.clone(), 1usize..6).prop_map(|(leader, count)| Step::Hear(leader, count)),
        6 => leader.clone().prop_map(Step::Take),
        6 => (leader.clone(), any::<Index>(), fate).prop_map(|(at, which, fate)| Step::Write(at, which, fate)),
        4 => (leader.clone(), any::<Index>()).prop_map(|(at, which)| Step::Show(at, which)),
        1 => leader.prop_map(Step::Kill),
        1 => (1i64..40).prop_map(Step::Pass),
    ]
}

/// A leader, what its watches have told, and what it has not done yet.
struct Leader {
    machine: Addresses,
    heard: usize,
    writes: Vec<Write>,
    /// The newest decision of each whose status has not been written.
    decisions: BTreeMap<HolderRef, Option<Arc<Decision>>>,
}

/// The API, and leaders that work on it.
struct Cloud {
    now: Timestamp,
    version: u64,
    records: BTreeMap<IpAddr, Record>,
    pools: BTreeMap<Arc<str>, Pool>,
    claims: BTreeMap<ObjectKey, Claim>,
    answer: Answer,
    log: Vec<Event>,
    leaders: Vec<Leader>,
    uids: u64,
}

fn leader() -> Leader {
    let machine = Addresses::new(Config { grace: GRACE });
    Leader { machine, heard: 0, writes: Vec::new(), decisions: BTreeMap::new() }
}

impl Cloud {
    fn new(leaders: usize) -> Self {
        let mut cloud = Self {
            now: 1_000,
            version: 0,
            records: BTreeMap::new(),
            pools: [first_pool()].map(|pool| (pool.name.clone(), pool)).into(),
            claims: BTreeMap::new(),
            answer: Answer::Failed { reason: "not looked up".into() },
            log: Vec::new(),
            leaders: (0..leaders).map(|_| leader()).collect(),
            uids: 0,
        };
        (0..leaders).for_each(|at| cloud.kill(at));
        cloud
    }

    /// A leader dies, and another one reads everything.
    fn kill(&mut self, at: usize) {
        self.leaders[at] = leader();
        self.leaders[at].heard = self.log.len();
        for event in self.list() {
            self.leaders[at].machine.handle(event, self.now);
        }
    }

    fn list(&self) -> Vec<Event> {
        let mut events: Vec<Event> = Kind::ALL.map(Event::Begin).into();
        let apply = |object| Event::Apply(Box::new(object));
        events.extend(self.pools.values().cloned().map(|it| apply(Object::Pool(it))));
        events.extend(self.claims.values().cloned().map(|it| apply(Object::Claim(it))));
        events.push(Event::Resolved { name: NAME.into(), answer: self.answer.clone() });
        events.extend(self.records.values().cloned().map(Event::Recorded));
        events.extend(Kind::ALL.map(Event::Done));
        events
    }

    fn put(&mut self, claim: Claim) {
        self.claims.insert(claim.holder.key.clone(), claim.clone());
        self.log.push(Event::Apply(Box::new(Object::Claim(claim))));
        // As the part that looks names up would: it tells a name again to those who newly ask.
        self.log.push(Event::Resolved { name: NAME.into(), answer: self.answer.clone() });
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Put(at, wish) => {
                let mut new = claim(at, &wish);
                match self.claims.get(&new.holder.key) {
                    Some(old) => {
                        new.holder = old.holder.clone();
                        new.status = old.status.clone();
                    }
                    None => {
                        self.uids += 1;
                        new.holder.uid = format!("uid-{}", self.uids).into();
                    }
                }
                self.put(new);
            }
            Step::Remove(at) => {
                let any = Wish { ask: 9, last: 0, families: 9, key: false, port: 80, local: false };
                let key = claim(at, &any).holder.key;
                if self.claims.remove(&key).is_some() {
                    self.log.push(Event::Delete(Kind::Service, key));
                }
            }
            Step::Pool(variant) => match second_pool(variant) {
                Some(pool) => {
                    self.pools.insert(pool.name.clone(), pool.clone());
                    self.log.push(Event::Apply(Box::new(Object::Pool(pool))));
                }
                None => {
                    self.pools.remove("two");
                    self.log.push(Event::Delete(Kind::Pool, ObjectKey::new("", "two")));
                }
            },
            Step::Resolve(answer) => {
                self.answer = match answer {
                    Some(last) => Answer::Addresses(last.into_iter().map(at_two).collect()),
                    None => Answer::Failed { reason: "NXDOMAIN".into() },
                };
                self.log.push(Event::Resolved { name: NAME.into(), answer: self.answer.clone() });
            }
            Step::Hear(at, count) => self.hear(at, count),
            Step::Take(at) => _ = self.take(at),
            Step::Write(at, which, fate) => {
                let writes = &mut self.leaders[at].writes;
                if !writes.is_empty() {
                    let write = writes.swap_remove(which.index(writes.len()));
                    self.write(at, &write, fate);
                }
            }
            Step::Show(at, which) => {
                let decisions = &mut self.leaders[at].decisions;
                if !decisions.is_empty() {
                    let holder =
                        decisions.keys().nth(which.index(decisions.len())).unwrap().clone();
                    let decision = decisions.remove(&holder).unwrap();
                    self.show(at, holder, decision);
                }
            }
            Step::Kill(at) => self.kill(at),
            Step::Pass(seconds) => self.now += seconds,
        }
    }

    fn hear(&mut self, at: usize, count: usize) {
        let leader = &mut self.leaders[at];
        let until = (leader.heard + count).min(self.log.len());
        for event in &self.log[leader.heard..until] {
            leader.machine.handle(event.clone(), self.now);
        }
        leader.heard = until;
    }

    /// True: there was nothing to do.
    fn take(&mut self, at: usize) -> bool {
        let leader = &mut self.leaders[at];
        let changes = leader.machine.take(self.now);
        let idle =
            changes.writes.is_empty() && changes.decisions.is_empty() && changes.confirm.is_empty();
        leader.writes.extend(changes.writes);
        leader.decisions.extend(changes.decisions);
        for holder in changes.confirm {
            let exists = self.claims.values().any(|it| it.holder == holder);
            leader.machine.handle(Event::Confirmed { holder, exists }, self.now);
        }
        idle
    }

    fn write(&mut self, at: usize, write: &Write, fate: Fate) {
        let result = if matches!(fate, Fate::Lost) { Written::Failed } else { self.perform(write) };
        let result = if matches!(fate, Fate::AnswerLost) { Written::Failed } else { result };
        let event = Event::Written { id: write.id, result };
        self.leaders[at].machine.handle(event, self.now);
    }

    fn perform(&mut self, write: &Write) -> Written {
        let address = write.address;
        let there = self.records.get(&address).cloned();
        let new = match (&write.op, &there) {
            (Op::Create(content), None) => Some(content.clone()),
            (Op::Update { version, content }, Some(it)) if *version == it.version => {
                Some(content.clone())
            }
            (Op::Delete { version }, Some(it)) if *version == it.version => None,
            _ => return Written::Conflict(there),
        };
        self.version += 1;
        let version = Version(self.version.to_string().into());
        match new {
            Some(content) => {
                let record = Record { address, version: version.clone(), content };
                self.records.insert(address, record.clone());
                self.log.push(Event::Recorded(record));
            }
            None => {
                self.records.remove(&address);
                let version = Some(version.clone());
                self.log.push(Event::Unrecorded { address, version });
            }
        }
        Written::Ok(version)
    }

    fn show(&mut self, at: usize, holder: HolderRef, decision: Option<Arc<Decision>>) {
        let shown: Vec<IpAddr> = decision.as_deref().map(shown_by).unwrap_or_default();
        if let Some(old) = self.claims.get(&holder.key).filter(|it| it.holder == holder)
            && old.status != shown
        {
            let claim = Claim { status: shown.clone(), ..old.clone() };
            self.put(claim);
        }
        let event = Event::Shown { holder, addresses: shown };
        self.leaders[at].machine.handle(event, self.now);
    }

    /// Everything is told, done and answered, as often as it takes.
    fn settle(&mut self) -> Result<(), TestCaseError> {
        for round in 1..=300 {
            let mut idle = true;
            // Two leaders may see different objects until a write that failed is repeated: time goes on.
            self.now += Timestamp::from(round % 10 == 0);
            for at in 0..self.leaders.len() {
                self.hear(at, usize::MAX / 2);
                idle &= self.take(at);
                // Also what was left to do before.
                idle &= self.leaders[at].writes.is_empty() && self.leaders[at].decisions.is_empty();
                for write in std::mem::take(&mut self.leaders[at].writes) {
                    self.write(at, &write, Fate::Answered);
                    self.check()?;
                }
                for (holder, decision) in std::mem::take(&mut self.leaders[at].decisions) {
                    self.show(at, holder, decision);
                }
            }
            if idle && self.leaders.iter().all(|it| it.heard == self.log.len()) {
                if self.repair() {
                    continue;
                }
                let next = self.leaders.iter().filter_map(|it| it.machine.wake_at()).min();
                let Some(next) = next else { return Ok(()) };
                self.now = self.now.max(next);
            }
        }
        Err(TestCaseError::fail("it does not come to rest"))
    }

    /// A status that is not as the first leader says is written again, as its controller would.
    fn repair(&mut self) -> bool {
        let wrong = self.claims.values().filter_map(|claim| {
            let decision = self.leaders[0].machine.decision(&claim.holder);
            let shown: Vec<_> = decision.map(shown_by).unwrap_or_default();
            let decision = decision.cloned().map(Arc::new);
            (shown != claim.status).then(|| (claim.holder.clone(), decision))
        });
        let wrong: Vec<_> = wrong.collect();
        let any = !wrong.is_empty();
        wrong.into_iter().for_each(|(holder, decision)| self.show(0, holder, decision));
        any
    }

    /// No address is held by two who may not share it.
    fn check(&self) -> Result<(), TestCaseError> {
        for (address, record) in &self.records {
            let holders = &record.content.holders;
            for (at, one) in holders.iter().enumerate() {
                for other in &holders[at + 1..] {
                    let fits = one.key.is_some()
                        && one.key == other.key
                        && one.holder.uid != other.holder.uid
                        && one.holder.key.namespace == other.holder.key.namespace
                        && !one.ports.is_empty()
                        && !other.ports.is_empty()
                        && one.ports.iter().all(|port| !other.ports.contains(port));
                    prop_assert!(fits, "{address}: {one:#?} {other:#?}");
                }
            }
        }
        Ok(())
    }

    fn held_by(&self, uid: &str) -> Vec<IpAddr> {
        let has = |it: &&Record| it.content.has(uid);
        self.records.values().filter(has).map(|it| it.address).collect()
    }

    /// When nothing more happens, records, decisions and status agree.
    fn check_at_rest(&self) -> Result<(), TestCaseError> {
        for claim in self.claims.values() {
            let held = self.held_by(&claim.holder.uid);
            for leader in &self.leaders {
                let decision = leader.machine.decision(&claim.holder);
                let mut shown: Vec<_> = decision.into_iter().flat_map(shown_by).collect();
                shown.sort_unstable();
                prop_assert_eq!(&held, &shown, "{:?} {:?}", claim, decision);
            }
            let mut status = claim.status.clone();
            status.sort_unstable();
            prop_assert_eq!(&held, &status, "{:?}", claim);
            let families: Vec<_> = held.iter().map(|it| Family::of(*it)).collect();
            prop_assert!(families.len() < 2 || families[0] != families[1], "{:?}", held);
            match (&claim.ask, claim.families) {
                (Ok(Ask::Nothing), _) => prop_assert_eq!(held, Vec::<IpAddr>::new()),
                (Ok(Ask::Any), Families::One(_)) => prop_assert_eq!(held.len(), 1),
                _ => {}
            }
        }
        for record in self.records.values() {
            for holder in &record.content.holders {
                prop_assert!(self.claims.values().any(|it| it.holder == holder.holder));
            }
        }
        Ok(())
    }

    /// Everything is deleted: nothing is left.
    fn check_leaks(&mut self) -> Result<(), TestCaseError> {
        (0..SERVICES).for_each(|at| self.step(Step::Remove(at)));
        let bystander = ObjectKey::new("shop", "bystander");
        self.claims.remove(&bystander);
        self.log.push(Event::Delete(Kind::Service, bystander));
        self.settle()?;
        prop_assert_eq!(&self.records, &BTreeMap::new());
        for leader in &self.leaders {
            prop_assert!(leader.machine.is_empty(), "{:#?}", leader.machine);
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn with_two_leaders_no_address_has_two_who_may_not_share_it_and_nothing_leaks(
        steps in prop::collection::vec(step(2), 1..120),
    ) {
        let mut cloud = Cloud::new(2);
        for step in steps {
            cloud.step(step);
            cloud.check()?;
        }
        cloud.settle()?;
        cloud.check_at_rest()?;
        cloud.check_leaks()?;
    }

    #[test]
    fn an_address_once_given_stays_whatever_happens_to_others_and_to_the_leader(
        steps in prop::collection::vec(step(1), 1..150),
    ) {
        let mut cloud = Cloud::new(1);
        let bystander = service("shop/bystander");
        cloud.put(bystander.clone());
        cloud.settle()?;
        let before = cloud.held_by(&bystander.holder.uid);
        prop_assert_eq!(before.len(), 1);
        for step in steps {
            cloud.step(step);
            cloud.check()?;
            prop_assert_eq!(&cloud.held_by(&bystander.holder.uid), &before);
            prop_assert_eq!(&cloud.claims[&bystander.holder.key].status, &before);
        }
        cloud.settle()?;
        prop_assert_eq!(&cloud.claims[&bystander.holder.key].status, &before);
        cloud.check_at_rest()?;
        cloud.check_leaks()?;
    }
}

/// What a machine says of what is recorded, told in some order.
fn answers(cloud: &Cloud, mut seed: u64) -> Changes {
    let mut events = cloud.list();
    let (first, last) = (Kind::ALL.len(), events.len() - Kind::ALL.len());
    // A name is kept only once somebody asks for it: its answer stays behind the objects.
    let body = &mut events[first..last];
    let resolved = body.iter().position(|it| matches!(it, Event::Resolved { .. })).unwrap();
    let end = body.len() - 1;
    body.swap(resolved, end);
    for at in 1..end {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        body.swap(at, (seed >> 33) as usize % (at + 1));
    }
    let mut machine = Addresses::new(Config { grace: GRACE });
    events.into_iter().for_each(|event| machine.handle(event, cloud.now));
    machine.take(cloud.now)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn from_what_is_recorded_the_order_of_delivery_does_not_matter(
        steps in prop::collection::vec(step(1), 1..80),
        seed: u64,
    ) {
        let mut cloud = Cloud::new(1);
        steps.into_iter().for_each(|step| cloud.step(step));
        let expected = answers(&cloud, seed);
        for turn in 0..100 {
            prop_assert_eq!(&answers(&cloud, seed.wrapping_add(turn)), &expected);
        }
    }
}
