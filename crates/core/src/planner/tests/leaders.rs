//! Tests with two leaders that have stale views and write the Plans of one load balancer, piece by piece, and an agent
//! that serves them: whatever the leaders do, a consumer that is served and does not change stays served.

use super::make::*;
use crate::cases::cases;
use crate::hash::PlanHash;
use crate::key::{ConsumerKind, ConsumerRef, ObjectKey};
use crate::objects::{Ingress, Service};
use crate::plan::{Fragment, Host};
use crate::planner::{Config, Event, Kind, Object, Planner, Record};
use crate::resolver::{self, Resolver};
use crate::shard::{Items, Shards, Stamp, Write};
use crate::update::{Change, Extent, ListenerKey, ResolvedListener, ResolvedSite, SiteKey, Update};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use proptest::test_runner::TestCaseError;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// The most fragments in one Plan object.
const FRAGMENTS: usize = 2;

type Item = (ConsumerRef, u32);
type Id = (Kind, ObjectKey);
/// A version of a Plan object: its number, its version, and its fragments. None: it is deleted.
type PlanSeen = (u32, u64, Option<Vec<Fragment>>);

/// The fate of a write.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Answer {
    /// It is carried out, and the leader gets the answer.
    Known,
    /// It is carried out, and the leader gets no answer before its watch shows it.
    Lost,
    /// It is lost.
    Dropped,
}

#[derive(Clone, Debug)]
enum Step {
    /// A tenant writes an object.
    Put(Box<Object>),
    /// A tenant deletes an object.
    Delete(Id),
    /// A leader observes this many writes of tenants.
    Hear(usize, usize),
    /// A leader observes this many writes of Plans.
    See(usize, usize),
    /// A leader observes what the agent does not serve.
    Learn(usize),
    /// A leader writes one Plan object.
    Write(usize, Answer),
    /// Another leader replaces this one.
    Restart(usize),
    /// The agent observes this many writes of Plans, and serves them.
    Serve(usize),
    /// The agent restarts with its kept state.
    RestartAgent,
    /// Everything is delivered to everyone, and written.
    Settle,
}

struct Leader {
    planner: Planner,
    shards: Shards<Item, PlanHash>,
    versions: BTreeMap<u32, u64>,
    /// How many writes of tenants it has observed.
    heard: usize,
    plans: VecDeque<PlanSeen>,
    unserved: Option<Vec<(ConsumerRef, Extent)>>,
}

impl Leader {
    fn new(cluster: &Cluster) -> Self {
        let mut planner = Planner::new(Config::default());
        for object in [Object::from(lb("lb")), class("web").into()] {
            planner.handle(Event::Apply(Box::new(object)));
        }
        for (object, _) in cluster.objects.values() {
            planner.handle(Event::Apply(Box::new(object.clone())));
        }
        let mut leader = Self {
            planner,
            shards: Shards::new(FRAGMENTS),
            versions: BTreeMap::new(),
            heard: cluster.writes.len(),
            plans: VecDeque::new(),
            unserved: Some(cluster.unserved.clone()),
        };
        for (index, (version, fragments)) in &cluster.plans {
            leader.see((*index, *version, Some(fragments.clone())));
        }
        leader.learn();
        leader
    }

    fn hear(&mut self, writes: &[Event]) {
        writes.iter().for_each(|event| self.planner.handle(event.clone()));
        self.heard += writes.len();
    }

    fn see(&mut self, (index, version, fragments): PlanSeen) {
        if self.versions.get(&index).is_some_and(|known| *known >= version) {
            return;
        }
        self.versions.insert(index, version);
        let all = fragments.as_deref().unwrap_or_default();
        self.planner.handle(Event::Recorded(Record::new("lb", index, all)));
        match &fragments {
            Some(fragments) => self.shards.observe(index, items(fragments)),
            None => self.shards.forget(index),
        }
    }

    fn learn(&mut self) {
        if let Some(unserved) = self.unserved.take() {
            self.planner.handle(Event::Unserved("lb".into(), unserved));
        }
    }

    /// The next write, with the version that it replaces, and what the object holds afterwards.
    fn next(&mut self) -> Option<(u32, Option<u64>, Option<Vec<Fragment>>)> {
        self.planner.take();
        let planned: Vec<_> = self.planner.fragments("lb").map(|it| (**it).clone()).collect();
        let wanted = self.shards.difference(&items(&planned));
        let write = self.shards.pack(&wanted).into_iter().next()?;
        let index = write.index();
        let there = self.shards.items(index).is_some();
        let version = self.versions.get(&index).copied().filter(|_| there);
        let fragments = match write {
            Write::Delete { .. } => None,
            Write::Put { items, .. } => {
                let has = |it: &Fragment| items.contains_key(&(it.consumer.clone(), it.part));
                let fragments: Vec<_> = planned.into_iter().filter(has).collect();
                assert_eq!(fragments.len(), items.len(), "what is written is planned");
                Some(fragments)
            }
        };
        Some((index, version, fragments))
    }
}

fn items(fragments: &[Fragment]) -> Items<Item, PlanHash> {
    let item =
        |it: &Fragment| ((it.consumer.clone(), it.part), Stamp { hash: PlanHash::of(it), size: 1 });
    fragments.iter().map(item).collect()
}

/// What the agent serves.
#[derive(Clone, Debug, Default)]
struct Served {
    listeners: BTreeMap<ListenerKey, Arc<ResolvedListener>>,
    sites: BTreeMap<SiteKey, Arc<ResolvedSite>>,
}

impl Served {
    fn apply(&mut self, update: &Update) {
        if update.complete {
            *self = Self::default();
        }
        follow(&mut self.listeners, &update.listeners);
        follow(&mut self.sites, &update.sites);
    }

    /// Whether a port is served for an object, or a host for any object of its namespace. `passing`: a host may be on
    /// its way from one Ingress of its namespace to another; then it is only not served for others.
    fn has(&self, (id, held): &(Id, Held), passing: bool) -> bool {
        match held {
            Held::Port(key) => {
                let holder = self.listeners.get(key).and_then(|it| self::id(&it.consumer));
                holder.as_ref() == Some(id)
            }
            Held::Host(host) => {
                let site = self.sites.iter().find(|(key, _)| key.host == *host);
                site.map_or(passing, |(_, site)| site.owner == id.1.namespace)
            }
        }
    }

    /// The served ports and hosts, each with its object.
    fn holdings(&self) -> BTreeSet<(Id, Held)> {
        let listeners = self
            .listeners
            .iter()
            .filter_map(|(key, it)| Some((id(&it.consumer)?, Held::Port(*key))));
        let sites = self.sites.iter().flat_map(|(key, site)| {
            let rules = site.rules.iter();
            rules.filter_map(|(_, it)| Some((id(it)?, Held::Host(key.host.clone()))))
        });
        listeners.chain(sites).collect()
    }
}

fn follow<K: Ord + Clone, V: Clone>(all: &mut BTreeMap<K, V>, changes: &[Change<K, V>]) {
    for change in changes {
        match change {
            Change::Put(key, value) => drop(all.insert(key.clone(), value.clone())),
            Change::Remove(key) => drop(all.remove(key)),
        }
    }
}

fn id(consumer: &ConsumerRef) -> Option<Id> {
    let kind = match consumer.kind {
        ConsumerKind::Service => Kind::Service,
        ConsumerKind::Ingress => Kind::Ingress,
        ConsumerKind::LoadBalancer => return None,
    };
    Some((kind, ObjectKey::new(consumer.namespace.clone(), consumer.name.clone())))
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Held {
    Port(ListenerKey),
    Host(Host),
}

fn wants(object: &Object, held: &Held) -> bool {
    match (object, held) {
        (Object::Service(it), Held::Port(key)) => {
            it.ports.iter().any(|port| port.number == key.port)
        }
        (Object::Ingress(it), Held::Host(host)) => it.rules.iter().any(|rule| rule.host == *host),
        _ => false,
    }
}

#[derive(Default)]
struct Cluster {
    /// Each object, with the number of writes when it was last written.
    objects: BTreeMap<Id, (Object, usize)>,
    /// The same for each namespace. Which of its Ingresses has a path does not matter to other namespaces.
    namespaces: BTreeMap<Arc<str>, usize>,
    writes: Vec<Event>,
    plans: BTreeMap<u32, (u64, Vec<Fragment>)>,
    version: u64,
    unserved: Vec<(ConsumerRef, Extent)>,
}

struct Run {
    cluster: Cluster,
    leaders: [Leader; 2],
    agent: Resolver,
    /// The Plans that the agent has not observed yet.
    unseen: VecDeque<PlanSeen>,
    served: Served,
    /// Ports and hosts that are served for objects as last written and known to everyone: they must stay.
    firm: BTreeSet<(Id, Held)>,
}

fn tell(agent: &mut Resolver, (index, _, fragments): PlanSeen) {
    let name: Arc<str> = format!("lb-{index}").into();
    agent.handle(match fragments {
        Some(fragments) => {
            resolver::Event::Apply(resolver::Object::Shard(name, index, fragments.into()))
        }
        None => resolver::Event::Delete(resolver::Kind::Shard, ObjectKey::new("", name)),
    });
}

impl Run {
    fn new() -> Self {
        let cluster = Cluster::default();
        let leaders = [Leader::new(&cluster), Leader::new(&cluster)];
        let (agent, unseen) = (Resolver::new(), VecDeque::new());
        let (served, firm) = (Served::default(), BTreeSet::new());
        Self { cluster, leaders, agent, unseen, served, firm }
    }

    fn put(&mut self, object: Object) {
        let id = super::world::id(&object);
        self.wrote(Event::Apply(Box::new(object.clone())), &id);
        self.cluster.objects.insert(id, (object, self.cluster.writes.len()));
    }

    fn delete(&mut self, id: &Id) {
        if self.cluster.objects.remove(id).is_some() {
            self.wrote(Event::Delete(id.0, id.1.clone()), id);
        }
    }

    fn wrote(&mut self, event: Event, id: &Id) {
        let namespace = &id.1.namespace;
        self.cluster.writes.push(event);
        self.cluster.namespaces.insert(namespace.clone(), self.cluster.writes.len());
        self.firm.retain(|(it, held)| {
            it != id && (it.1.namespace != *namespace || matches!(held, Held::Port(_)))
        });
    }

    fn hear(&mut self, which: usize, many: usize) {
        let leader = &mut self.leaders[which];
        let all = &self.cluster.writes[leader.heard..];
        leader.hear(&all[..many.min(all.len())]);
    }

    fn see(&mut self, which: usize, many: usize) {
        let leader = &mut self.leaders[which];
        for _ in 0..many {
            let Some(seen) = leader.plans.pop_front() else { return };
            leader.see(seen);
        }
    }

    /// Writes once. False: there was nothing to write.
    fn write(&mut self, which: usize, answer: Answer) -> bool {
        let leader = &mut self.leaders[which];
        let Some((index, version, fragments)) = leader.next() else { return false };
        let all = fragments.as_deref().unwrap_or_default();
        leader.planner.handle(Event::Writing(Record::new("lb", index, all)));
        if answer == Answer::Dropped {
            return true;
        }
        let known = self.cluster.plans.get(&index).map(|(version, _)| *version);
        if known != version {
            leader.planner.handle(Event::WriteFailed("lb".into(), index));
            return true;
        }
        self.cluster.version += 1;
        let seen = (index, self.cluster.version, fragments.clone());
        match fragments {
            Some(fragments) => {
                drop(self.cluster.plans.insert(index, (self.cluster.version, fragments)));
            }
            None => drop(self.cluster.plans.remove(&index)),
        }
        self.unseen.push_back(seen.clone());
        self.leaders.iter_mut().for_each(|it| it.plans.push_back(seen.clone()));
        if answer == Answer::Known {
            self.leaders[which].see(seen);
        }
        true
    }

    fn serve(&mut self, many: usize) -> Result<(), TestCaseError> {
        for _ in 0..many {
            let Some(seen) = self.unseen.pop_front() else { break };
            tell(&mut self.agent, seen);
        }
        self.resolve()
    }

    fn restart_agent(&mut self) -> Result<(), TestCaseError> {
        let kept = self.agent.snapshot();
        self.agent = Resolver::new();
        self.agent.recall(&kept);
        self.unseen.clear();
        for (index, (version, fragments)) in &self.cluster.plans {
            tell(&mut self.agent, (*index, *version, Some(fragments.clone())));
        }
        self.resolve()
    }

    /// The agent serves what it has observed and reports what it does not serve. Everything that has to stay is served.
    fn resolve(&mut self) -> Result<(), TestCaseError> {
        let before = self.served.clone();
        self.agent.take().iter().for_each(|update| self.served.apply(update));
        let unserved: Vec<_> = self.agent.unserved().filter_map(|it| it.unserved()).collect();
        if unserved != self.cluster.unserved {
            self.cluster.unserved.clone_from(&unserved);
            self.leaders.iter_mut().for_each(|it| it.unserved = Some(unserved.clone()));
        }
        let holdings = self.served.holdings();
        self.check(true)?;
        // The listeners that Ingresses share stay while an Ingress is served by them.
        if self.firm.iter().any(|(_, held)| matches!(held, Held::Host(_))) {
            for (key, it) in &before.listeners {
                let now = self.served.listeners.get(key).map(|it| &it.consumer);
                let shared = it.consumer.kind == ConsumerKind::LoadBalancer;
                prop_assert!(!shared || now == Some(&it.consumer), "{key:?} is of {now:?}");
            }
        }
        if self.unseen.is_empty() {
            let known = self.leaders.iter().map(|it| it.heard).min().unwrap_or_default();
            let Cluster { objects, namespaces, .. } = &self.cluster;
            // No host is reachable without a listener.
            let mut listeners = self.served.listeners.values();
            let shared = listeners.any(|it| it.consumer.kind == ConsumerKind::LoadBalancer);
            self.firm.extend(holdings.into_iter().filter(|(id, held)| {
                let Some((object, written)) = objects.get(id) else { return false };
                let written = match held {
                    Held::Port(_) => Some(written),
                    Held::Host(_) => namespaces.get(&id.1.namespace).filter(|_| shared),
                };
                written.is_some_and(|it| *it <= known) && wants(object, held)
            }));
        }
        Ok(())
    }

    /// Asserts that everything that has to stay is served.
    fn check(&self, passing: bool) -> Result<(), TestCaseError> {
        for firm in &self.firm {
            let has = self.served.has(firm, passing);
            prop_assert!(has, "{firm:?} is gone; now {:?}", self.served);
        }
        Ok(())
    }

    fn settle(&mut self) -> Result<(), TestCaseError> {
        // No write is under way any more.
        self.leaders.iter_mut().for_each(|it| it.planner.handle(Event::WritesAbandoned));
        // A few rounds are enough: a contested port is served, reported, and removed from the plan.
        for _ in 0..100 {
            let mut wrote = false;
            for which in 0..2 {
                self.hear(which, usize::MAX);
                self.see(which, usize::MAX);
                self.leaders[which].learn();
                wrote |= self.write(which, Answer::Known);
            }
            self.serve(usize::MAX)?;
            let learns = self.leaders.iter().any(|it| it.unserved.is_some());
            if !wrote && !learns {
                return self.check(false);
            }
        }
        Err(TestCaseError::fail("two leaders that know everything write for ever"))
    }

    fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Put(object) => self.put(*object),
            Step::Delete(id) => self.delete(&id),
            Step::Hear(which, many) => self.hear(which, many),
            Step::See(which, many) => self.see(which, many),
            Step::Learn(which) => self.leaders[which].learn(),
            Step::Write(which, answer) => drop(self.write(which, answer)),
            Step::Restart(which) => self.leaders[which] = Leader::new(&self.cluster),
            Step::Serve(many) => self.serve(many)?,
            Step::RestartAgent => self.restart_agent()?,
            Step::Settle => self.settle()?,
        }
        Ok(())
    }
}

fn a_name() -> impl Strategy<Value = String> {
    (select(&["a", "b", "c"][..]), select(&["x", "y"][..]))
        .prop_map(|(ns, it)| format!("{ns}/{it}"))
}

fn an_object() -> impl Strategy<Value = Object> {
    let ports = subsequence(vec![80, 443, 53, 8080], 1..=3);
    let services = (a_name(), ports, 0..3i64);
    let services = services.prop_map(|(name, ports, created)| {
        Object::from(Service { created, ..service(&name, &ports) })
    });
    let hosts = subsequence(vec!["h.example", "*.example", "i.example"], 1..=2);
    let ingresses = (a_name(), hosts, 0..3i64).prop_map(|(name, hosts, created)| {
        let rules = hosts.into_iter().map(|host| rule(host, &[("/", "x:80")])).collect();
        Object::from(Ingress { created, ..ingress(&name, rules) })
    });
    prop_oneof![services, ingresses]
}

fn a_step() -> impl Strategy<Value = Step> {
    let which = || 0..2usize;
    let answer = prop_oneof![
        6 => Just(Answer::Known),
        2 => Just(Answer::Lost),
        1 => Just(Answer::Dropped),
    ];
    prop_oneof![
        8 => an_object().prop_map(|it| Step::Put(Box::new(it))),
        2 => an_object().prop_map(|it| Step::Delete(super::world::id(&it))),
        5 => (which(), 1..4usize).prop_map(|(which, many)| Step::Hear(which, many)),
        4 => (which(), 1..4usize).prop_map(|(which, many)| Step::See(which, many)),
        2 => which().prop_map(Step::Learn),
        8 => (which(), answer).prop_map(|(which, answer)| Step::Write(which, answer)),
        1 => which().prop_map(Step::Restart),
        4 => (1..4usize).prop_map(Step::Serve),
        1 => Just(Step::RestartAgent),
        2 => Just(Step::Settle),
    ]
}

proptest! {
    #![proptest_config(cases(80))]

    #[test]
    fn with_two_leaders_no_consumer_that_changes_nothing_loses_what_is_served(
        steps in prop::collection::vec(a_step(), 0..60),
    ) {
        let mut run = Run::new();
        for step in steps {
            run.step(step)?;
        }
        run.settle()?;
    }
}
