//! A cloud for the property tests: an API, users and administrators that edit its objects, and leaders that hear of
//! each kind when its watch delivers it, write when they can, and are killed. Every write of a leader is judged as it
//! is carried out: by [`super::causes`], against what that leader had heard.

use super::causes::{Causes, Gain};
use super::leader::{Decided, Leader, NODES, POOLS, RECORDS, REQUESTS};
use super::make::*;
use super::places::{PLACES, Places};
use super::steps::{
    ANY, Fate, NAMES, Step, WATCHES, at_six, at_two, first_pool, other_pools, request,
};
use crate::addresses::*;
use crate::key::ObjectKey;
use crate::objects::{Family, Timestamp};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::TestCaseError;
use std::collections::BTreeMap;
use std::rc::Rc;

/// What users and administrators have made of the API; or what a leader has heard of it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct World {
    pub(super) pools: BTreeMap<Arc<str>, Pool>,
    pub(super) requests: BTreeMap<ObjectKey, AddressRequest>,
    pub(super) answers: [Answer; 2],
    pub(super) node: Option<IpAddr>,
}

impl World {
    pub(super) fn request_of(&self, uid: &str) -> Option<&AddressRequest> {
        self.requests.values().find(|it| *it.holder.uid == *uid)
    }

    pub(super) fn answer(&self, name: &str) -> &Answer {
        &self.answers[usize::from(name != NAMES[0])]
    }

    pub(super) fn hear(&mut self, event: &Event) {
        match event {
            Event::Apply(object) => match &**object {
                Object::Pool(pool) => _ = self.pools.insert(pool.name.clone(), pool.clone()),
                Object::Request(request) => {
                    self.requests.insert(request.holder.key.clone(), request.clone());
                }
                Object::Node { addresses, .. } => self.node = addresses.first().copied(),
                Object::Namespace(_) => {}
            },
            Event::Delete(Kind::Pool, key) => _ = self.pools.remove(&key.name),
            Event::Delete(_, key) => _ = self.requests.remove(key),
            Event::Resolved { name, answer } => {
                self.answers[usize::from(**name != *NAMES[0])] = answer.clone();
            }
            _ => {}
        }
    }
}

/// The API, and leaders that work on it.
pub(super) struct Cloud {
    pub(super) now: Timestamp,
    version: u64,
    pub(super) records: BTreeMap<IpAddr, Record>,
    pub(super) world: Rc<World>,
    logs: [Vec<Event>; WATCHES],
    pub(super) leaders: Vec<Leader>,
    /// Load balancers with agents. With two leaders no Service is on one: nothing is promised for that.
    places: Option<Places>,
    causes: Causes,
    uids: u64,
}

fn apply(object: Object) -> Event {
    Event::Apply(Box::new(object))
}

pub(super) fn node(address: Option<IpAddr>) -> Event {
    apply(Object::Node { name: "n".into(), addresses: address.into_iter().collect() })
}

fn kind_of(kind: HolderKind) -> Kind {
    match kind {
        HolderKind::Service => Kind::Service,
        HolderKind::LoadBalancer => Kind::LoadBalancer,
        HolderKind::ExternalIp => Kind::ExternalIp,
    }
}

/// All objects as a list; answers come after the objects that ask for them.
pub(super) fn list(world: &World, records: &BTreeMap<IpAddr, Record>) -> Vec<Event> {
    let mut events: Vec<Event> = Kind::ALL.map(Event::Begin).into();
    events.extend(world.pools.values().cloned().map(|it| apply(Object::Pool(it))));
    events.extend(world.requests.values().cloned().map(|it| apply(Object::Request(it))));
    events.push(node(world.node));
    events.extend(records.values().cloned().map(Event::Recorded));
    events.extend(resolved(world));
    events.extend(Kind::ALL.map(Event::Done));
    events
}

pub(super) fn resolved(world: &World) -> [Event; 2] {
    let [one, other] = world.answers.clone();
    [(NAMES[0], one), (NAMES[1], other)]
        .map(|(name, answer)| Event::Resolved { name: name.into(), answer })
}

impl Cloud {
    pub(super) fn new(leaders: usize) -> Self {
        let failed = Answer::Failed { reason: "not looked up".into() };
        let world = Rc::new(World {
            pools: [first_pool()].map(|pool| (pool.name.clone(), pool)).into(),
            requests: BTreeMap::new(),
            answers: [failed.clone(), failed],
            node: None,
        });
        let mut cloud = Self {
            now: 1_000,
            version: 0,
            records: BTreeMap::new(),
            leaders: (0..leaders).map(|_| Leader::new(world.clone())).collect(),
            places: (leaders == 1).then(Places::default),
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
        self.leaders[at] = Leader::new(self.world.clone());
        self.causes.killed();
        (0..WATCHES).for_each(|watch| self.relist(at, watch));
        self.causes.seen(&self.leaders[at].view);
    }

    fn relist(&mut self, at: usize, watch: usize) {
        let log = self.logs[watch].len();
        self.leaders[at].list(watch, &self.world, &self.records, log);
    }

    /// Something changes, and the watch of its kind has it.
    fn change(&mut self, watch: usize, event: Event) {
        Rc::make_mut(&mut self.world).hear(&event);
        self.logs[watch].push(event);
    }

    pub(super) fn put(&mut self, request: AddressRequest) {
        self.change(REQUESTS, apply(Object::Request(request)));
        // As the part that looks names up does: it sends answers again to new requesters.
        let answers = resolved(&self.world);
        self.logs[REQUESTS].extend(answers);
    }

    pub(super) fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Put(at, wish) => {
                let mut new = request(at, &wish);
                match self.world.requests.get(&new.holder.key) {
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
                // New pools come first, as an administrator renames or splits a pool in use.
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
                self.change(REQUESTS, Event::Resolved { name: NAMES[at].into(), answer });
            }
            Step::Node(last) => self.change(NODES, node(last.map(at_two))),
            Step::Spoil(at, last) => {
                let key = request(at, &ANY).holder.key;
                if let Some(old) = self.world.requests.get(&key) {
                    self.causes.taint(&old.holder.uid);
                    let request = AddressRequest { status: vec![at_two(last)], ..old.clone() };
                    self.put(request);
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
            Step::Relist(at, watch) => self.relist(at, watch),
            Step::Take(at) => _ = self.take(at),
            Step::Perform(at, which) => self.perform_one(at, which)?,
            Step::Answer(at, which, fate) => self.answer(at, which, fate),
            Step::Apply(at) => self.places.iter_mut().for_each(|it| it.apply(at)),
            Step::Leave(at) => self.places.iter_mut().for_each(|it| it.leave(at)),
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
        let holder = request(at, &ANY).holder;
        if self.world.requests.contains_key(&holder.key) {
            self.change(REQUESTS, Event::Delete(kind_of(holder.kind), holder.key));
        }
    }

    fn hear(&mut self, at: usize, watch: usize, count: usize) {
        for _ in 0..count {
            if !self.leaders[at].hear(watch, &self.logs[watch], self.now) {
                return;
            }
            self.causes.seen(&self.leaders[at].view);
        }
    }

    /// True: there was nothing to do.
    fn take(&mut self, at: usize) -> bool {
        let leader = &mut self.leaders[at];
        let agents = self.places.as_mut().filter(|_| leader.machine.synced());
        let mut idle = !agents.as_ref().is_some_and(|it| leader.follow(it, self.now));
        let decided = leader.decided();
        let changes = leader.machine.take(self.now);
        idle &=
            changes.writes.is_empty() && changes.decisions.is_empty() && changes.confirm.is_empty();
        for chosen in leader.wanted(&changes) {
            let chosen = leader.chosen.entry(chosen);
            chosen.or_insert_with(|| self.causes.choose(&leader.view));
        }
        for write in changes.writes {
            leader.writes.push((write, decided.clone()));
        }
        leader.decisions.extend(changes.decisions);
        idle &= !agents.is_some_and(|it| leader.plan(it, self.now));
        for holder in changes.confirm {
            let exists = self.world.requests.values().any(|it| it.holder == holder);
            leader.machine.handle(Event::Confirmed { holder, exists }, self.now);
        }
        idle
    }

    /// A write reaches the API, in time or late.
    fn perform_one(&mut self, at: usize, which: Index) -> Result<(), TestCaseError> {
        let Leader { writes, late, .. } = &mut self.leaders[at];
        let all = writes.len() + late.len();
        if all == 0 {
            return Ok(());
        }
        match which.index(all).checked_sub(writes.len()) {
            Some(which) => {
                let (write, decided) = late.swap_remove(which);
                self.perform(at, &write, &decided)?;
            }
            None => {
                let (write, decided) = writes.swap_remove(which.index(all));
                self.perform_in_time(at, &write, &decided)?;
            }
        }
        Ok(())
    }

    fn perform_in_time(
        &mut self,
        at: usize,
        write: &Write,
        decided: &Decided,
    ) -> Result<(), TestCaseError> {
        // An older write of this address is no longer in flight.
        self.leaders[at].late.retain(|(late, _)| late.address != write.address);
        let result = self.perform(at, write, decided)?;
        self.leaders[at].answers.push((write.id, write.address, result));
        Ok(())
    }

    /// A leader is told how a write ended, or that its result is unknown.
    fn answer(&mut self, at: usize, which: Index, fate: Fate) {
        let Leader { writes, answers, late, .. } = &mut self.leaders[at];
        let (id, result) = match fate {
            Fate::Answered | Fate::AnswerLost if !answers.is_empty() => {
                let (id, _, result) = answers.swap_remove(which.index(answers.len()));
                (id, if matches!(fate, Fate::Answered) { result } else { Written::Failed })
            }
            Fate::Lost | Fate::Late if !writes.is_empty() => {
                let (write, decided) = writes.swap_remove(which.index(writes.len()));
                let id = write.id;
                if matches!(fate, Fate::Late) {
                    late.push((write, decided));
                }
                (id, Written::Failed)
            }
            _ => return,
        };
        self.answered(at, id, result);
    }

    fn answered(&mut self, at: usize, id: WriteId, result: Written) {
        self.leaders[at].machine.handle(Event::Written { id, result }, self.now);
        self.causes.seen(&self.leaders[at].view);
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
        let there = self.world.requests.get(&holder.key).filter(|it| it.holder == holder);
        let leader = &self.leaders[at];
        let known = leader.view.requests.get(&holder.key).filter(|it| it.holder == holder);
        let mut shown = Vec::new();
        if let (Some(there), Some(known)) = (there, known) {
            let (decision, places) = (decision.as_deref(), self.places.as_ref());
            shown = leader.status(known, decision, &there.status, places);
        }
        self.causes.shown(&holder.uid, &shown);
        if let Some(old) = there.filter(|it| it.status != shown) {
            let request = AddressRequest { status: shown.clone(), ..old.clone() };
            self.put(request);
        }
        let event = Event::Shown { holder, addresses: shown };
        self.leaders[at].machine.handle(event, self.now);
    }

    /// Delivers, carries out and answers everything, as often as it takes.
    pub(super) fn settle(&mut self) -> Result<(), TestCaseError> {
        for round in 1..=400 {
            let mut idle = true;
            // Two leaders may see different objects until a write that failed is repeated: time goes on.
            self.now += Timestamp::from(round % 10 == 0);
            for at in 0..self.leaders.len() {
                (0..WATCHES).for_each(|watch| self.hear(at, watch, usize::MAX));
                idle &= self.take(at);
                // It is not idle either if there was something left to do before.
                let Leader { writes, answers, decisions, late, .. } = &mut self.leaders[at];
                idle &= writes.is_empty() && answers.is_empty() && decisions.is_empty();
                idle &= late.is_empty();
                for (write, decided) in std::mem::take(late) {
                    self.perform(at, &write, &decided)?;
                    self.check()?;
                }
                for (write, decided) in std::mem::take(&mut self.leaders[at].writes) {
                    self.perform_in_time(at, &write, &decided)?;
                    self.check()?;
                }
                for (id, _, result) in std::mem::take(&mut self.leaders[at].answers) {
                    self.answered(at, id, result);
                }
                for (holder, decision) in std::mem::take(&mut self.leaders[at].decisions) {
                    self.show(at, holder, decision);
                }
            }
            if let Some(places) = &mut self.places {
                idle &= places.are_current();
                (0..PLACES.len()).for_each(|at| places.apply(at));
            }
            let all = self.logs.each_ref().map(Vec::len);
            if idle && self.leaders.iter().all(|it| it.heard == all) {
                if (0..self.leaders.len()).any(|at| self.repair(at)) {
                    continue;
                }
                let next = self.leaders.iter().filter_map(|it| it.machine.wake_at()).min();
                let Some(next) = next else { return Ok(()) };
                self.now = self.now.max(next);
            }
        }
        Err(TestCaseError::fail("it does not come to rest"))
    }

    /// Writes a status again that is not as a leader says, as its controller would.
    fn repair(&mut self, at: usize) -> bool {
        let wrong = self.world.requests.values().filter_map(|request| {
            let leader = &self.leaders[at];
            let decision = leader.machine.decision(&request.holder);
            let shown = leader.status(request, decision, &request.status, self.places.as_ref());
            let decision = decision.cloned().map(Arc::new);
            (shown != request.status).then(|| (request.holder.clone(), decision))
        });
        let wrong: Vec<_> = wrong.collect();
        let any = !wrong.is_empty();
        wrong.into_iter().for_each(|(holder, decision)| self.show(at, holder, decision));
        any
    }

    /// No address is held by two holders that may not share it, and with one leader no status shows an address that
    /// is not recorded.
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
            let requests = self.world.requests.values();
            for request in requests.filter(|it| !self.causes.is_tainted(&it.holder.uid)) {
                let held = self.held_by(&request.holder.uid);
                let shown = &request.status;
                prop_assert!(shown.iter().all(|it| held.contains(it)), "{request:?} has {held:?}");
            }
        }
        for (holder, address) in self.places.iter().flat_map(Places::served) {
            let held = self.causes.is_tainted(&holder.uid)
                || self.records.get(&address).is_some_and(|it| it.content.has(&holder.uid));
            prop_assert!(held, "{address} is served for {holder:?}, who does not have it");
        }
        Ok(())
    }

    pub(super) fn held_by(&self, uid: &str) -> Vec<IpAddr> {
        let has = |it: &&Record| it.content.has(uid);
        self.records.values().filter(has).map(|it| it.address).collect()
    }

    /// When nothing more happens, records, decisions and status agree.
    pub(super) fn check_at_rest(&self) -> Result<(), TestCaseError> {
        for request in self.world.requests.values() {
            let held = self.held_by(&request.holder.uid);
            for leader in &self.leaders {
                let decision = leader.machine.decision(&request.holder);
                let mut shown: Vec<_> = decision.into_iter().flat_map(shown_by).collect();
                shown.sort_unstable();
                prop_assert_eq!(&held, &shown, "{:?} {:?}", request, decision);
            }
            let mut status = request.status.clone();
            status.sort_unstable();
            prop_assert_eq!(&held, &status, "{:?}", request);
            let families: Vec<_> = held.iter().map(|it| Family::of(*it)).collect();
            prop_assert!(families.len() < 2 || families[0] != families[1], "{:?}", held);
            match (&request.ask, request.families) {
                (Ok(Ask::Nothing), _) => prop_assert_eq!(held, Vec::<IpAddr>::new()),
                (Ok(Ask::Any), Families::One(Family::V4)) => prop_assert_eq!(held.len(), 1),
                _ => {}
            }
        }
        for record in self.records.values() {
            for holder in &record.content.holders {
                let request = self.world.request_of(&holder.holder.uid);
                prop_assert!(request.is_some(), "{record:?}");
                // A requester with a request that cannot be read stays where it was.
                let place = request.filter(|it| it.ask.is_ok()).map(|it| &it.load_balancer);
                let there = place.is_none_or(|place| *place == holder.load_balancer);
                prop_assert!(there, "{request:?} is not where it is recorded: {record:?}");
            }
        }
        self.leaders.iter().try_for_each(|leader| self.check_uses(&leader.machine))
    }

    /// What tenants use without a grant counts only if its pool would grant it.
    fn check_uses(&self, machine: &Addresses) -> Result<(), TestCaseError> {
        for namespace in ["shop", "bank"] {
            let counted = machine.ledger.uses.of(namespace);
            for pool in self.world.pools.values().filter(|it| !it.deleting) {
                let inside = |it: &&IpAddr| pool.contains(**it);
                let of = |record: &&Record| {
                    let mut holders = record.content.holders.iter();
                    holders.any(|it| &*it.holder.key.namespace == namespace)
                };
                let held = self.records.values().filter(of).map(|it| it.address);
                let held: std::collections::BTreeSet<IpAddr> =
                    held.filter(|it| pool.contains(*it)).collect();
                let used = counted.iter().filter(inside).filter(|it| !held.contains(it)).count();
                let quota = pool.per_namespace_quota.map_or(usize::MAX, |it| it as usize);
                prop_assert!(used == 0 || used + held.len() <= quota, "{namespace} {counted:?}");
                let to = &pool.allocate_to.namespaces;
                let fits = to.is_empty() || to.iter().any(|it| &**it == namespace);
                prop_assert!(used == 0 || fits, "{namespace} {counted:?}");
            }
            for address in &counted {
                let record = self.records.get(address);
                let mut holders = record.into_iter().flat_map(|it| &it.content.holders);
                let theirs = holders.find(|it| &*it.holder.key.namespace != namespace);
                prop_assert!(theirs.is_none(), "{namespace} uses {address} of {theirs:?}");
            }
        }
        Ok(())
    }

    /// Everything is deleted: nothing is left.
    pub(super) fn check_leaks(&mut self) -> Result<(), TestCaseError> {
        let all = self.world.requests.values().map(|it| it.holder.clone());
        for holder in all.collect::<Vec<_>>() {
            self.change(REQUESTS, Event::Delete(kind_of(holder.kind), holder.key));
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
