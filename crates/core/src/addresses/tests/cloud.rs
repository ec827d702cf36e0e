//! A cloud for the properties: an API, users and administrators who edit what is in it, and leaders that
//! hear of each kind when its watch tells it, write when they can, and are killed. Every write of a
//! leader is judged as it is carried out: by [`super::causes`], against what that leader had heard.

use super::causes::{Causes, Chosen, Gain};
use super::make::*;
use super::steps::{
    ANY, Fate, NAMES, Step, WATCHES, at_six, at_two, claim, first_pool, other_pools,
};
use crate::addresses::*;
use crate::key::ObjectKey;
use crate::objects::{Family, Timestamp};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use std::collections::BTreeMap;
use std::rc::Rc;

/// What users and administrators have made of the API; or what a leader has heard of it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct World {
    pub(super) pools: BTreeMap<Arc<str>, Pool>,
    pub(super) claims: BTreeMap<ObjectKey, Claim>,
    pub(super) answers: [Answer; 2],
    pub(super) node: Option<IpAddr>,
}

impl World {
    pub(super) fn claim_of(&self, uid: &str) -> Option<&Claim> {
        self.claims.values().find(|it| *it.holder.uid == *uid)
    }

    pub(super) fn answer(&self, name: &str) -> &Answer {
        &self.answers[usize::from(name != NAMES[0])]
    }

    fn hear(&mut self, event: &Event) {
        match event {
            Event::Apply(object) => match &**object {
                Object::Pool(pool) => _ = self.pools.insert(pool.name.clone(), pool.clone()),
                Object::Claim(claim) => {
                    self.claims.insert(claim.holder.key.clone(), claim.clone());
                }
                Object::Node { addresses, .. } => self.node = addresses.first().copied(),
                Object::Namespace(_) => {}
            },
            Event::Delete(Kind::Pool, key) => _ = self.pools.remove(&key.name),
            Event::Delete(_, key) => _ = self.claims.remove(key),
            Event::Resolved { name, answer } => {
                self.answers[usize::from(**name != *NAMES[0])] = answer.clone();
            }
            _ => {}
        }
    }
}

const POOLS: usize = 0;
const CLAIMS: usize = 1;
const RECORDS: usize = 2;
const NODES: usize = 3;

/// A leader, what its watches have told, and what it has not done yet.
pub(super) struct Leader {
    pub(super) machine: Addresses,
    view: Rc<World>,
    heard: [usize; WATCHES],
    writes: Vec<(Write, Decided)>,
    /// What had been heard when somebody was first to have an address: writes are repeated.
    chosen: BTreeMap<(Arc<str>, IpAddr), Chosen>,
    /// The newest decision of each whose status has not been written.
    decisions: BTreeMap<HolderRef, Option<Arc<Decision>>>,
}

/// What a leader knew when it decided on a write.
#[derive(Clone, Debug)]
struct Decided {
    view: Rc<World>,
    /// How much of what happened to Addresses it had heard.
    records: usize,
    /// Of these it believes nothing before its own writes are answered, also those that are yet to come.
    in_flight: Rc<[IpAddr]>,
}

impl Leader {
    /// What somebody is recorded to have and is not to have: to be written as soon as that can be.
    fn given_up(&self) -> impl Iterator<Item = IpAddr> {
        let entries = self.machine.ledger.entries.iter();
        let left = entries.filter(|(_, entry)| {
            let mut recorded = entry.recorded.iter().flat_map(|(it, _)| &it.holders);
            let held = |uid: &str| entry.held.as_ref().is_some_and(|held| held.has(uid));
            recorded.any(|it| !held(&it.holder.uid))
        });
        left.map(|(address, _)| *address)
    }
}

fn leader(world: Rc<World>) -> Leader {
    let machine = Addresses::new(Config { grace: GRACE });
    let (heard, writes, chosen) = ([0; WATCHES], Vec::new(), BTreeMap::new());
    Leader { machine, view: world, heard, writes, chosen, decisions: BTreeMap::new() }
}

/// The API, and leaders that work on it.
pub(super) struct Cloud {
    pub(super) now: Timestamp,
    version: u64,
    pub(super) records: BTreeMap<IpAddr, Record>,
    pub(super) world: Rc<World>,
    logs: [Vec<Event>; WATCHES],
    pub(super) leaders: Vec<Leader>,
    causes: Causes,
    uids: u64,
}

fn apply(object: Object) -> Event {
    Event::Apply(Box::new(object))
}

fn node(address: Option<IpAddr>) -> Event {
    apply(Object::Node { name: "n".into(), addresses: address.into_iter().collect() })
}

fn kind_of(kind: HolderKind) -> Kind {
    match kind {
        HolderKind::Service => Kind::Service,
        HolderKind::LoadBalancer => Kind::LoadBalancer,
        HolderKind::ExternalIp => Kind::ExternalIp,
    }
}

/// Everything that there is, as a list; answers behind those who ask.
pub(super) fn list(world: &World, records: &BTreeMap<IpAddr, Record>) -> Vec<Event> {
    let mut events: Vec<Event> = Kind::ALL.map(Event::Begin).into();
    events.extend(world.pools.values().cloned().map(|it| apply(Object::Pool(it))));
    events.extend(world.claims.values().cloned().map(|it| apply(Object::Claim(it))));
    events.push(node(world.node));
    events.extend(records.values().cloned().map(Event::Recorded));
    events.extend(resolved(world));
    events.extend(Kind::ALL.map(Event::Done));
    events
}

fn resolved(world: &World) -> [Event; 2] {
    let [one, other] = world.answers.clone();
    [(NAMES[0], one), (NAMES[1], other)]
        .map(|(name, answer)| Event::Resolved { name: name.into(), answer })
}

impl Cloud {
    pub(super) fn new(leaders: usize) -> Self {
        let failed = Answer::Failed { reason: "not looked up".into() };
        let world = Rc::new(World {
            pools: [first_pool()].map(|pool| (pool.name.clone(), pool)).into(),
            claims: BTreeMap::new(),
            answers: [failed.clone(), failed],
            node: None,
        });
        let mut cloud = Self {
            now: 1_000,
            version: 0,
            records: BTreeMap::new(),
            leaders: (0..leaders).map(|_| leader(world.clone())).collect(),
            world,
            logs: Default::default(),
            causes: Causes::default(),
            uids: 0,
        };
        (0..leaders).for_each(|at| cloud.kill(at));
        cloud
    }

    /// A leader dies, and another one reads everything.
    fn kill(&mut self, at: usize) {
        self.leaders[at] = leader(self.world.clone());
        self.causes.killed();
        self.relist(at);
    }

    fn relist(&mut self, at: usize) {
        let leader = &mut self.leaders[at];
        leader.view = self.world.clone();
        leader.heard = self.logs.each_ref().map(Vec::len);
        for event in list(&self.world, &self.records) {
            leader.machine.handle(event, self.now);
        }
        self.causes.seen(&leader.view);
    }

    /// Something changes, and the watch of its kind has it.
    fn change(&mut self, watch: usize, event: Event) {
        Rc::make_mut(&mut self.world).hear(&event);
        self.logs[watch].push(event);
    }

    pub(super) fn put(&mut self, claim: Claim) {
        self.change(CLAIMS, apply(Object::Claim(claim)));
        // As the part that looks names up would: it tells names again to those who newly ask.
        let answers = resolved(&self.world);
        self.logs[CLAIMS].extend(answers);
    }

    pub(super) fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Put(at, wish) => {
                let mut new = claim(at, &wish);
                match self.world.claims.get(&new.holder.key) {
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
            Step::Remove(at) => self.remove(at),
            Step::Pools(variant) => {
                // What is new comes first, as one does who renames or splits a pool in use.
                let new = other_pools(variant);
                let gone = self.world.pools.keys().filter(|name| ***name != *"one");
                let gone = gone.filter(|name| new.iter().all(|it| it.name != **name));
                let gone: Vec<Arc<str>> = gone.cloned().collect();
                for pool in new.into_iter().rev() {
                    self.change(POOLS, apply(Object::Pool(pool)));
                }
                for name in gone {
                    self.change(POOLS, Event::Delete(Kind::Pool, ObjectKey::new("", name)));
                }
            }
            Step::Resolve(at, answer) => {
                let answer = match answer {
                    Some(last) => {
                        let both = last.into_iter().flat_map(|it| [at_two(it), at_six(it)]);
                        Answer::Addresses(both.collect())
                    }
                    None => Answer::Failed { reason: "NXDOMAIN".into() },
                };
                self.change(CLAIMS, Event::Resolved { name: NAMES[at].into(), answer });
            }
            Step::Node(last) => self.change(NODES, node(last.map(at_two))),
            Step::Spoil(at, last) => {
                let key = claim(at, &ANY).holder.key;
                if let Some(old) = self.world.claims.get(&key) {
                    self.causes.taint(&old.holder.uid);
                    let claim = Claim { status: vec![at_two(last)], ..old.clone() };
                    self.put(claim);
                }
            }
            Step::Vandal(which) => {
                if !self.records.is_empty() {
                    let at = which.index(self.records.len());
                    let address = *self.records.keys().nth(at).unwrap();
                    self.version += 1;
                    let version = Some(Version(self.version.to_string().into()));
                    let record = self.records.remove(&address).unwrap();
                    self.causes.vandalised(&record);
                    self.change(RECORDS, Event::Unrecorded { address, version });
                }
            }
            Step::Hear(at, watch, count) => self.hear(at, watch, count),
            Step::Relist(at) => self.relist(at),
            Step::Take(at) => _ = self.take(at),
            Step::Write(at, which, fate) => {
                let writes = &mut self.leaders[at].writes;
                if !writes.is_empty() {
                    let (write, decided) = writes.swap_remove(which.index(writes.len()));
                    self.write(at, &write, &decided, fate)?;
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
        Ok(())
    }

    fn remove(&mut self, at: usize) {
        let holder = claim(at, &ANY).holder;
        if self.world.claims.contains_key(&holder.key) {
            self.change(CLAIMS, Event::Delete(kind_of(holder.kind), holder.key));
        }
    }

    fn hear(&mut self, at: usize, watch: usize, count: usize) {
        let leader = &mut self.leaders[at];
        let from = leader.heard[watch];
        let until = from.saturating_add(count).min(self.logs[watch].len());
        for event in &self.logs[watch][from..until] {
            Rc::make_mut(&mut leader.view).hear(event);
            leader.machine.handle(event.clone(), self.now);
            self.causes.seen(&leader.view);
        }
        leader.heard[watch] = until;
    }

    /// True: there was nothing to do.
    fn take(&mut self, at: usize) -> bool {
        let leader = &mut self.leaders[at];
        let given_up: Vec<IpAddr> = leader.given_up().collect();
        let changes = leader.machine.take(self.now);
        let idle =
            changes.writes.is_empty() && changes.decisions.is_empty() && changes.confirm.is_empty();
        let in_flight = leader.writes.iter().map(|(write, _)| write.address);
        let in_flight = in_flight.chain(given_up).collect();
        let (view, records) = (leader.view.clone(), leader.heard[RECORDS]);
        let decided = Decided { view, records, in_flight };
        // What is chosen while another write of that address is under way is written after it.
        let wanted = leader.view.claims.values().map(|it| it.holder.clone());
        let wanted: Vec<_> = wanted
            .flat_map(|it| {
                leader.machine.addresses_of(&it).into_iter().map(move |at| (it.uid.clone(), at))
            })
            .collect();
        let written = changes.writes.iter().filter_map(|write| match &write.op {
            Op::Create(content) | Op::Update { content, .. } => Some((write.address, content)),
            Op::Delete { .. } => None,
        });
        let written = written.flat_map(|(address, content)| {
            content.holders.iter().map(move |it| (it.holder.uid.clone(), address))
        });
        for chosen in wanted.into_iter().chain(written) {
            let chosen = leader.chosen.entry(chosen);
            chosen.or_insert_with(|| self.causes.choose(&leader.view));
        }
        for write in changes.writes {
            leader.writes.push((write, decided.clone()));
        }
        leader.decisions.extend(changes.decisions);
        for holder in changes.confirm {
            let exists = self.world.claims.values().any(|it| it.holder == holder);
            leader.machine.handle(Event::Confirmed { holder, exists }, self.now);
        }
        idle
    }

    fn write(
        &mut self,
        at: usize,
        write: &Write,
        decided: &Decided,
        fate: Fate,
    ) -> Result<(), TestCaseError> {
        let result = match fate {
            Fate::Lost => Written::Failed,
            Fate::Answered | Fate::AnswerLost => self.perform(at, write, decided)?,
        };
        let result = if matches!(fate, Fate::AnswerLost) { Written::Failed } else { result };
        let event = Event::Written { id: write.id, result };
        self.leaders[at].machine.handle(event, self.now);
        self.causes.seen(&self.leaders[at].view);
        Ok(())
    }

    fn perform(
        &mut self,
        leader: usize,
        write: &Write,
        decided: &Decided,
    ) -> Result<Written, TestCaseError> {
        let address = write.address;
        let there = self.records.get(&address).cloned();
        let new = match (&write.op, &there) {
            (Op::Create(content), None) => Some(content.clone()),
            (Op::Update { version, content }, Some(it)) if *version == it.version => {
                Some(content.clone())
            }
            (Op::Delete { version }, Some(it)) if *version == it.version => None,
            _ => return Ok(Written::Conflict(there)),
        };
        let at = self.logs[RECORDS].len();
        let Decided { view, records, in_flight } = decided;
        let chosen = &self.leaders[leader].chosen;
        let alone = self.leaders.len() == 1;
        let gain = Gain { now: &self.world, view, chosen, heard: *records, in_flight, at, alone };
        let before = there.as_ref().map(|it| &it.content);
        self.causes.judge(address, before, new.as_ref(), &gain)?;
        self.version += 1;
        let version = Version(self.version.to_string().into());
        let event = match new {
            Some(content) => {
                let record = Record { address, version: version.clone(), content };
                self.records.insert(address, record.clone());
                Event::Recorded(record)
            }
            None => {
                self.records.remove(&address);
                Event::Unrecorded { address, version: Some(version.clone()) }
            }
        };
        self.change(RECORDS, event);
        Ok(Written::Ok(version))
    }

    fn show(&mut self, at: usize, holder: HolderRef, decision: Option<Arc<Decision>>) {
        let shown: Vec<IpAddr> = decision.as_deref().map(shown_by).unwrap_or_default();
        let there = self.world.claims.get(&holder.key).filter(|it| it.holder == holder);
        if let Some(old) = there.filter(|it| it.status != shown) {
            let claim = Claim { status: shown.clone(), ..old.clone() };
            self.put(claim);
        }
        let event = Event::Shown { holder, addresses: shown };
        self.leaders[at].machine.handle(event, self.now);
    }

    /// Everything is told, done and answered, as often as it takes.
    pub(super) fn settle(&mut self) -> Result<(), TestCaseError> {
        for round in 1..=400 {
            let mut idle = true;
            // Two leaders may see different objects until a write that failed is repeated: time goes on.
            self.now += Timestamp::from(round % 10 == 0);
            for at in 0..self.leaders.len() {
                (0..WATCHES).for_each(|watch| self.hear(at, watch, usize::MAX));
                idle &= self.take(at);
                // Also what was left to do before.
                idle &= self.leaders[at].writes.is_empty() && self.leaders[at].decisions.is_empty();
                for (write, decided) in std::mem::take(&mut self.leaders[at].writes) {
                    self.write(at, &write, &decided, Fate::Answered)?;
                    self.check()?;
                }
                for (holder, decision) in std::mem::take(&mut self.leaders[at].decisions) {
                    self.show(at, holder, decision);
                }
            }
            let all = self.logs.each_ref().map(Vec::len);
            if idle && self.leaders.iter().all(|it| it.heard == all) {
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
        let wrong = self.world.claims.values().filter_map(|claim| {
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

    /// No address is held by two who may not share it, and of one leader no status shows what is not
    /// recorded.
    pub(super) fn check(&self) -> Result<(), TestCaseError> {
        for (address, record) in &self.records {
            let holders = &record.content.holders;
            for (at, one) in holders.iter().enumerate() {
                for other in &holders[at + 1..] {
                    let fits = one.key.is_some()
                        && one.key == other.key
                        && one.holder.uid != other.holder.uid
                        && (one.holder.key.namespace == other.holder.key.namespace
                            || self.causes.shared_across())
                        && !one.ports.is_empty()
                        && !other.ports.is_empty()
                        && one.ports.iter().all(|port| !other.ports.contains(port));
                    prop_assert!(fits, "{address}: {one:#?} {other:#?}");
                }
            }
        }
        if let [_] = &self.leaders[..] {
            let claims = self.world.claims.values();
            for claim in claims.filter(|it| !self.causes.is_tainted(&it.holder.uid)) {
                let held = self.held_by(&claim.holder.uid);
                let shown = &claim.status;
                prop_assert!(shown.iter().all(|it| held.contains(it)), "{claim:?} has {held:?}");
            }
        }
        Ok(())
    }

    pub(super) fn held_by(&self, uid: &str) -> Vec<IpAddr> {
        let has = |it: &&Record| it.content.has(uid);
        self.records.values().filter(has).map(|it| it.address).collect()
    }

    /// When nothing more happens, records, decisions and status agree.
    pub(super) fn check_at_rest(&self) -> Result<(), TestCaseError> {
        for claim in self.world.claims.values() {
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
                (Ok(Ask::Any), Families::One(Family::V4)) => prop_assert_eq!(held.len(), 1),
                _ => {}
            }
        }
        for record in self.records.values() {
            for holder in &record.content.holders {
                let mut claims = self.world.claims.values();
                prop_assert!(claims.any(|it| it.holder == holder.holder));
            }
        }
        Ok(())
    }

    /// Everything is deleted: nothing is left.
    pub(super) fn check_leaks(&mut self) -> Result<(), TestCaseError> {
        let all = self.world.claims.values().map(|it| it.holder.clone());
        for holder in all.collect::<Vec<_>>() {
            self.change(CLAIMS, Event::Delete(kind_of(holder.kind), holder.key));
        }
        self.change(NODES, Event::Delete(Kind::Node, ObjectKey::new("", "n")));
        self.settle()?;
        prop_assert_eq!(&self.records, &BTreeMap::new());
        for leader in &self.leaders {
            prop_assert!(leader.machine.is_empty(), "{:#?}", leader.machine);
        }
        Ok(())
    }
}
