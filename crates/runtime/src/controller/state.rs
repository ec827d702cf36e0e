//! All that the controller knows, and what follows from it: which object is to be looked at again, and
//! which write, if any, brings it closer to what it should be. It does no I/O; time is an argument.

use super::certificates::{self, Certificates};
use super::inputs::{Heard, LeaseSeen, Status};
use super::plans::Plans;
use super::render;
use super::shown::{Board, LoadBalancerShown, ServiceShown};
use super::writes::{Write, Written};
use crate::lease::Report;
use crate::observe::Change;
use crate::watch::Seen;
use bowline_api::names;
use bowline_core::announce::{Announcement, Severity};
use bowline_core::key::{ConsumerKind, ConsumerRef, ObjectKey};
use bowline_core::outcome::{Outcome, Problem, State as Place};
use bowline_core::plan::Fragment;
use bowline_core::planner::{Config, Event, Object, Planner, Record};
use bowline_core::programmed::{Claim, History, Pending, Verdict};
use bowline_core::status::{self, Known, Undone, Waiting};
use bowline_core::update::ListenerKey;
use k8s_openapi::api::networking::v1::IngressLoadBalancerIngress;
use k8s_openapi::jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// So long a load balancer may be a little behind before its phase says so: a change on its way is not
/// worth two writes.
const BEHIND: Duration = Duration::from_secs(2);
/// The least time between two writes of a LoadBalancer's lists.
const GAP: Duration = Duration::from_millis(250);

/// So long a Plan waits for the certificates that it refers to; then everybody else on it has waited
/// enough.
const LACKING: Duration = Duration::from_secs(1);

/// Something that is brought into step by itself. The order is the order of writing: what an agent needs
/// first, what people read last.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Target {
    /// The Secrets with certificates of a load balancer.
    Certificates(Arc<str>),
    /// The Plans of a load balancer.
    Plans(Arc<str>),
    /// The status of a Service or Ingress.
    Consumer(ConsumerKind, ObjectKey),
    /// The status of a LoadBalancer.
    LoadBalancer(Arc<str>),
}

/// What a look at a target led to.
#[derive(Debug)]
pub(super) enum Next {
    /// Nothing to do.
    Nothing,
    /// This, under this version of the object, if it exists.
    Write(Write, Tried),
    /// Look again then.
    Later(Instant),
}

/// What a write was based on.
#[derive(Clone, Debug, Default)]
pub(super) struct Tried {
    /// The object's name, where a target has several objects.
    pub(super) name: String,
    /// Its version; None: it did not exist.
    version: Option<String>,
}

impl Tried {
    /// Whether the object was to be made.
    pub(super) fn creates(&self) -> bool {
        self.version.is_none() && !self.name.is_empty()
    }

    fn at(version: &str) -> Self {
        Self { name: String::new(), version: Some(version.to_owned()) }
    }
}

/// What is known of a consumer beside what the planner knows.
#[derive(Clone, Debug, Default)]
struct Tracked {
    /// The change with which what it wants last changed.
    changed: u64,
    /// When that was.
    since: Option<Instant>,
    /// On which load balancer it was last.
    load_balancer: Option<Arc<str>>,
    /// Where it was to be reached.
    addresses: Vec<IpAddr>,
    /// What its owner has been told.
    problems: Vec<(ConsumerRef, Problem)>,
}

/// An agent's Lease.
#[derive(Debug)]
struct Agent {
    renewed: String,
    /// When we first saw this renewal.
    since: Instant,
    lasts: Duration,
    held: bool,
    report: Report,
    /// Whether it was renewed while we looked: only then it is known to live.
    alive: bool,
    /// Whether its end has been noticed.
    ended: bool,
}

/// See the module.
pub(super) struct State {
    planner: Planner,
    history: History,
    services: Board<ObjectKey, ServiceShown>,
    ingresses: Board<ObjectKey, Vec<IngressLoadBalancerIngress>>,
    balancers: Board<Arc<str>, LoadBalancerShown>,
    /// Agents by the name of their Lease.
    agents: HashMap<String, Agent>,
    /// Load balancers by the name of their agent's Lease.
    by_lease: HashMap<String, Arc<str>>,
    /// Names of load balancers by their label.
    by_label: HashMap<String, Arc<str>>,
    plans: BTreeMap<Arc<str>, Plans>,
    certificates: BTreeMap<Arc<str>, Certificates>,
    tracked: HashMap<(ConsumerKind, ObjectKey), Tracked>,
    /// Consumers whose load balancer has not proved yet that it serves them.
    unproven: HashMap<Arc<str>, BTreeSet<(ConsumerKind, ObjectKey)>>,
    behind: HashMap<Arc<str>, Instant>,
    /// Since when certificates are missing that a Plan refers to.
    lacking: HashMap<Arc<str>, Instant>,
    written: HashMap<Arc<str>, Instant>,
    change: u64,
    /// Load balancers whose plan has yet to be noted.
    met: BTreeSet<Arc<str>>,
    listed: BTreeSet<&'static str>,
    /// Objects of ours of which nothing was seen since their list began.
    unseen: HashMap<&'static str, BTreeSet<(Arc<str>, String)>>,
    /// To be looked at.
    pub(super) dirty: BTreeSet<Target>,
    /// To be announced.
    pub(super) said: Vec<Announcement>,
    /// For people who look on.
    pub(super) told: Vec<Change>,
}

impl State {
    pub(super) fn new(config: Config) -> Self {
        Self {
            planner: Planner::new(config),
            history: History::default(),
            services: Board::default(),
            ingresses: Board::default(),
            balancers: Board::default(),
            agents: HashMap::new(),
            by_lease: HashMap::new(),
            by_label: HashMap::new(),
            plans: BTreeMap::new(),
            certificates: BTreeMap::new(),
            tracked: HashMap::new(),
            unproven: HashMap::new(),
            behind: HashMap::new(),
            lacking: HashMap::new(),
            written: HashMap::new(),
            change: 0,
            met: BTreeSet::new(),
            listed: BTreeSet::new(),
            unseen: HashMap::new(),
            dirty: BTreeSet::new(),
            said: Vec::new(),
            told: Vec::new(),
        }
    }

    /// Whether everything has been heard once: before that nothing is written.
    pub(super) fn is_complete(&self) -> bool {
        self.listed.len() == 3 && self.planner.is_complete()
    }

    /// Takes in what was heard. Nothing is planned before [`Self::settle`].
    pub(super) fn hear(&mut self, heard: Heard, now: Instant) {
        match heard {
            Heard::Planner(event, status) => self.hear_object(event, status),
            Heard::Plan(seen) => self.hear_plan(seen),
            Heard::Certificates(seen) => self.hear_certificates(seen),
            Heard::Lease(seen) => self.hear_lease(seen, now),
        }
    }

    fn hear_object(&mut self, event: Event, status: Option<Status>) {
        use bowline_core::planner::Kind;
        match (&event, status) {
            (Event::Apply(object), Some(status)) => self.show(object, status),
            (Event::Begin(Kind::Service), _) => self.services.begin(),
            (Event::Done(Kind::Service), _) => self.services.done(),
            (Event::Delete(Kind::Service, key), _) => self.services.remove(key),
            (Event::Begin(Kind::Ingress), _) => self.ingresses.begin(),
            (Event::Done(Kind::Ingress), _) => self.ingresses.done(),
            (Event::Delete(Kind::Ingress, key), _) => self.ingresses.remove(key),
            (Event::Begin(Kind::LoadBalancer), _) => self.balancers.begin(),
            (Event::Done(Kind::LoadBalancer), _) => self.balancers.done(),
            (Event::Delete(Kind::LoadBalancer, key), _) => self.forget(&key.name),
            _ => {}
        }
        self.planner.handle(event);
    }

    fn show(&mut self, object: &Object, status: Status) {
        match (object, status) {
            (Object::Service(service), Status::Service(shown)) => {
                self.services.put(service.key.clone(), shown);
                self.dirty.insert(Target::Consumer(ConsumerKind::Service, service.key.clone()));
            }
            (Object::Ingress(ingress), Status::Ingress(shown)) => {
                self.ingresses.put(ingress.key.clone(), shown);
                self.dirty.insert(Target::Consumer(ConsumerKind::Ingress, ingress.key.clone()));
            }
            (Object::LoadBalancer(it), Status::LoadBalancer(shown)) => {
                let name = &it.name;
                if self.balancers.get(name).is_none() {
                    let shown = shown.status.status.ingress.iter().filter_map(|point| point.ip);
                    let fixed = !it.addresses.is_empty();
                    self.meet(name, if fixed { Vec::new() } else { shown.collect() });
                }
                self.balancers.put(Arc::clone(name), *shown);
                self.dirty.insert(Target::LoadBalancer(Arc::clone(name)));
            }
            _ => {}
        }
    }

    /// A load balancer appears; its agent may have been heard before. Where not, the addresses that its
    /// status shows are those that it had.
    fn meet(&mut self, name: &Arc<str>, shown: Vec<IpAddr>) {
        let lease = names::agent_lease(name);
        let reported = self.agents.get(&lease).map(|agent| agent.report.addresses.clone());
        let addresses = reported.filter(|addresses| !addresses.is_empty()).unwrap_or(shown);
        if !addresses.is_empty() {
            self.planner.handle(Event::Reported(Arc::clone(name), addresses));
        }
        self.by_lease.insert(lease, Arc::clone(name));
        self.by_label.insert(names::load_balancer_label(name), Arc::clone(name));
        self.met.insert(Arc::clone(name));
        self.touch(name);
    }

    fn forget(&mut self, name: &Arc<str>) {
        self.balancers.remove(name);
        self.by_lease.remove(&names::agent_lease(name));
        self.history.forget(name);
        self.unproven.remove(name);
        self.behind.remove(name);
        self.lacking.remove(name);
        self.written.remove(name);
        self.touch(name);
    }

    fn touch(&mut self, name: &Arc<str>) {
        self.dirty.insert(Target::Certificates(Arc::clone(name)));
        self.dirty.insert(Target::Plans(Arc::clone(name)));
        self.dirty.insert(Target::LoadBalancer(Arc::clone(name)));
    }

    fn hear_plan(&mut self, seen: Seen<super::inputs::PlanSeen>) {
        match seen {
            Seen::Begin => {
                let all = self.plans.iter().flat_map(|(lb, plans)| {
                    plans.names(lb).map(|name| (Arc::clone(lb), name)).collect::<Vec<_>>()
                });
                let all = all.collect();
                self.unseen.insert("Plan", all);
            }
            Seen::Apply(plan) => {
                let lb = Arc::clone(&plan.load_balancer);
                if let Some(unseen) = self.unseen.get_mut("Plan") {
                    unseen.remove(&(Arc::clone(&lb), plan.name.clone()));
                }
                self.record(&lb, &plan.name, &plan.fragments);
                self.plans.entry(Arc::clone(&lb)).or_default().seen(plan);
                self.dirty.insert(Target::Plans(lb));
            }
            Seen::Delete(plan) => self.plan_gone(&plan.load_balancer, &plan.name),
            Seen::Done => {
                self.listed.insert("Plan");
                for (lb, name) in self.unseen.remove("Plan").unwrap_or_default() {
                    self.plan_gone(&lb, &name);
                }
            }
        }
    }

    /// Tells the planner what a Plan holds; with nothing in it, that it is gone.
    fn record(&mut self, lb: &Arc<str>, name: &str, fragments: &[Fragment]) {
        if let Some(index) = names::plan_index(name) {
            let record = Record::new(Arc::clone(lb), index, fragments);
            self.planner.handle(Event::Recorded(record));
        }
    }

    fn plan_gone(&mut self, lb: &Arc<str>, name: &str) {
        self.record(lb, name, &[]);
        if let Some(plans) = self.plans.get_mut(lb) {
            plans.gone(name);
            if plans.is_empty() {
                self.plans.remove(lb);
            }
        }
        self.dirty.insert(Target::Plans(Arc::clone(lb)));
        self.dirty.insert(Target::Certificates(Arc::clone(lb)));
    }

    fn hear_certificates(&mut self, seen: Seen<super::inputs::CertificatesSeen>) {
        let lb = |state: &Self, label: &str| {
            state.by_label.get(label).cloned().unwrap_or_else(|| label.into())
        };
        match seen {
            Seen::Begin => {
                let all = self.certificates.iter().flat_map(|(lb, it)| {
                    it.names(lb).map(|name| (Arc::clone(lb), name)).collect::<Vec<_>>()
                });
                let all = all.collect();
                self.unseen.insert("Secret", all);
            }
            Seen::Apply(secret) => {
                let lb = lb(self, &secret.label);
                if let Some(unseen) = self.unseen.get_mut("Secret") {
                    unseen.remove(&(Arc::clone(&lb), secret.name.clone()));
                }
                self.certificates.entry(Arc::clone(&lb)).or_default().seen(secret);
                self.dirty.insert(Target::Certificates(lb));
            }
            Seen::Delete(secret) => {
                let lb = lb(self, &secret.label);
                self.certificates_gone(&lb, &secret.name);
            }
            Seen::Done => {
                self.listed.insert("Secret");
                for (lb, name) in self.unseen.remove("Secret").unwrap_or_default() {
                    self.certificates_gone(&lb, &name);
                }
            }
        }
    }

    fn certificates_gone(&mut self, lb: &Arc<str>, name: &str) {
        if let Some(certificates) = self.certificates.get_mut(lb) {
            certificates.gone(name);
        }
        self.dirty.insert(Target::Certificates(Arc::clone(lb)));
    }

    fn hear_lease(&mut self, seen: Seen<LeaseSeen>, now: Instant) {
        match seen {
            Seen::Begin => {}
            Seen::Done => drop(self.listed.insert("Lease")),
            Seen::Delete(lease) => {
                if let Some(agent) = self.agents.remove(&lease.name) {
                    self.agent_changed(&lease.name, &agent.report, &Report::default());
                }
            }
            Seen::Apply(lease) => {
                let old = self.agents.remove(&lease.name);
                let same = old.as_ref().filter(|old| old.renewed == lease.renewed);
                let agent = Agent {
                    since: same.map_or(now, |old| old.since),
                    alive: match &old {
                        None => self.listed.contains("Lease"),
                        Some(old) => old.alive || old.renewed != lease.renewed,
                    },
                    ended: same.is_some_and(|old| old.ended),
                    renewed: lease.renewed,
                    lasts: lease.lasts,
                    held: lease.holder.is_some(),
                    report: lease.report,
                };
                let news = old.as_ref().is_none_or(|old| {
                    old.report != agent.report
                        || old.held != agent.held
                        || old.ended != agent.ended
                        || old.alive != agent.alive
                });
                let before = old.map(|old| old.report).unwrap_or_default();
                let after = agent.report.clone();
                self.agents.insert(lease.name.clone(), agent);
                if news {
                    self.agent_changed(&lease.name, &before, &after);
                }
            }
        }
    }

    /// What an agent says is different: those are looked at whom it may concern.
    fn agent_changed(&mut self, lease: &str, before: &Report, after: &Report) {
        let Some(lb) = self.by_lease.get(lease).cloned() else { return };
        // An agent that stops, or whose Lease is gone, takes no address back.
        if before.addresses != after.addresses && !after.addresses.is_empty() {
            self.planner.handle(Event::Reported(Arc::clone(&lb), after.addresses.clone()));
        }
        for refusal in &after.refused {
            if !before.refused.contains(refusal) {
                self.say(&refusal.consumer, &refusal.problem);
            }
        }
        let concerned: Vec<_> = before
            .refused
            .iter()
            .chain(&after.refused)
            .flat_map(|refusal| self.concerned(&lb, &refusal.consumer))
            .collect();
        let waiting = self.unproven.get(&lb).into_iter().flatten().cloned();
        let all: Vec<_> = waiting.chain(concerned).collect();
        self.dirty.extend(all.into_iter().map(|(kind, key)| Target::Consumer(kind, key)));
        self.dirty.insert(Target::LoadBalancer(lb));
    }

    /// Whom a refusal for this consumer concerns: what keeps a load balancer's own listeners from
    /// opening keeps all its Ingresses from being reached.
    fn concerned(&self, lb: &str, consumer: &ConsumerRef) -> Vec<(ConsumerKind, ObjectKey)> {
        if consumer.kind != ConsumerKind::LoadBalancer {
            return vec![(consumer.kind, key(consumer))];
        }
        let ingresses = self.planner.consumers(lb).filter(|it| it.kind == ConsumerKind::Ingress);
        ingresses.map(|it| (it.kind, key(it))).collect()
    }

    /// Plans what was heard.
    pub(super) fn settle(&mut self, now: Instant) {
        let changes = self.planner.take();
        self.change += 1;
        let mut balancers = BTreeSet::new();
        for fragment in &changes.fragments {
            let lb = &fragment.load_balancer;
            let plans = self.plans.entry(Arc::clone(lb)).or_default();
            plans.want(&fragment.consumer, &fragment.parts);
            let who = (fragment.consumer.kind, key(&fragment.consumer));
            let tracked = self.tracked.entry(who).or_default();
            (tracked.changed, tracked.since) = (self.change, Some(now));
            balancers.insert(Arc::clone(lb));
        }
        for (consumer, outcome) in &changes.outcomes {
            let who = (consumer.kind, key(consumer));
            let place = outcome.as_ref().and_then(place);
            let tracked = self.tracked.entry(who.clone()).or_default();
            let before = std::mem::replace(&mut tracked.load_balancer, place.cloned());
            let addresses = outcome.as_ref().map_or(&[][..], addresses);
            if tracked.addresses != addresses {
                // Another address is in force with the plan that opens it, whoever asks for that.
                tracked.addresses = addresses.to_vec();
                (tracked.changed, tracked.since) = (self.change, Some(now));
                self.met.extend(place.cloned());
            }
            let problems: Vec<_> = outcome.iter().flat_map(problems).collect();
            let known = std::mem::replace(&mut tracked.problems, problems.clone());
            for lb in [before.as_ref(), place].into_iter().flatten() {
                self.dirty.insert(Target::LoadBalancer(Arc::clone(lb)));
            }
            if let Some(unproven) = before.and_then(|lb| self.unproven.get_mut(&lb)) {
                unproven.remove(&who);
            }
            for (consumer, problem) in problems.into_iter().filter(|it| !known.contains(it)) {
                self.say(&consumer, &problem);
                self.told.push(Change::Refused { consumer, problem });
            }
            self.dirty.insert(Target::Consumer(who.0, who.1));
        }
        for lb in balancers {
            self.touch(&lb);
            self.met.insert(lb);
        }
        for lb in std::mem::take(&mut self.met) {
            self.history.record(&lb, self.planner.hash(&lb), self.change);
        }
    }

    fn say(&mut self, consumer: &ConsumerRef, problem: &Problem) {
        self.said.push(Announcement {
            object: consumer.clone(),
            severity: Severity::Warning,
            reason: problem.reason.to_string().into(),
            message: problem.message.clone(),
        });
    }

    /// Everything is to be looked at: we have begun to lead.
    pub(super) fn touch_all(&mut self) {
        let problems: Vec<_> = self.planner.outcomes().flat_map(problems).collect();
        for (consumer, problem) in problems {
            self.say(&consumer, &problem);
        }
        let services = self.services.keys().cloned();
        let services = services.map(|key| Target::Consumer(ConsumerKind::Service, key));
        let ingresses = self.ingresses.keys().cloned();
        let ingresses = ingresses.map(|key| Target::Consumer(ConsumerKind::Ingress, key));
        let all: Vec<_> = services.chain(ingresses).collect();
        self.dirty.extend(all);
        let names: BTreeSet<_> = self
            .balancers
            .keys()
            .chain(self.plans.keys())
            .chain(self.certificates.keys())
            .cloned()
            .collect();
        for name in names {
            self.touch(&name);
        }
    }

    /// Time has passed: Leases may have ended.
    pub(super) fn tick(&mut self, now: Instant) {
        for (lease, agent) in &mut self.agents {
            let ended = now.duration_since(agent.since) > agent.lasts;
            if ended != agent.ended {
                agent.ended = ended;
                if let Some(lb) = self.by_lease.get(lease) {
                    self.dirty.insert(Target::LoadBalancer(Arc::clone(lb)));
                }
            }
        }
    }

    /// What its agent's Lease proves about a load balancer. None: it has no driver.
    fn verdict(&self, lb: &Arc<str>, now: Instant) -> Option<Verdict> {
        let driven = self.balancers.get(lb).is_some_and(|shown| shown.status.driven);
        driven.then(|| {
            let agent = self.agents.get(&names::agent_lease(lb));
            let claim = agent.map(|agent| Claim {
                hash: agent.report.hash,
                error: agent.report.error.as_deref().map(Into::into),
                // An agent that has left is as one that is silent: what it applied goes on.
                age: if agent.held { now.duration_since(agent.since) } else { Duration::MAX },
                lasts: agent.lasts,
            });
            self.history.judge(lb, claim.as_ref())
        })
    }

    /// What, if anything, brings a target closer to what it should be.
    pub(super) fn next(&mut self, target: &Target, now: Instant, clock: Timestamp) -> Next {
        match target {
            Target::Certificates(lb) => self.next_certificates(lb, now),
            Target::Plans(lb) => self.next_plan(lb, now),
            Target::Consumer(kind, key) => self.next_consumer(*kind, key, now, clock),
            Target::LoadBalancer(lb) => self.next_load_balancer(lb, now, clock),
        }
    }

    fn uid(&self, lb: &str) -> Option<Arc<str>> {
        self.planner.load_balancer(lb).map(|it| Arc::clone(&it.uid))
    }

    fn next_certificates(&mut self, lb: &Arc<str>, now: Instant) -> Next {
        let needed = self.planner.certificates(lb);
        let Some(certificates) = self.certificates.get_mut(lb) else {
            if needed.is_empty() {
                return Next::Nothing;
            }
            self.certificates.insert(Arc::clone(lb), Certificates::default());
            return self.next_certificates(lb, now);
        };
        // A Plan that still refers to a certificate must find it.
        let written = self.plans.get_mut(lb).is_none_or(Plans::is_settled);
        let next = certificates.next(lb, &needed, written, now);
        match next {
            None => Next::Nothing,
            Some(certificates::Next::Later(at)) => Next::Later(at),
            Some(certificates::Next::Fetch(wanted)) => {
                Next::Write(Write::Fetch(wanted), Tried::default())
            }
            Some(certificates::Next::Write(write)) => {
                let tried = Tried { name: write.name.clone(), version: write.version.clone() };
                let uid = self.uid(lb).unwrap_or_default();
                Next::Write(Write::Certificates(write, Arc::clone(lb), uid), tried)
            }
        }
    }

    fn next_plan(&mut self, lb: &Arc<str>, now: Instant) -> Next {
        let Some(write) = self.plans.get_mut(lb).and_then(|plans| plans.next(lb, now)) else {
            return Next::Nothing;
        };
        let uid = self.uid(lb);
        if !write.is_deletion() {
            // Certificates first: the agent finds them when it reads the Plan.
            let needed = self.planner.certificates(lb);
            let there =
                self.certificates.get(lb).map_or(needed.is_empty(), |it| it.has_all(needed.keys()));
            if there {
                self.lacking.remove(lb);
            } else {
                let until = *self.lacking.entry(Arc::clone(lb)).or_insert(now) + LACKING;
                if now < until {
                    return Next::Later(until);
                }
            }
        }
        let tried = Tried { name: write.name.clone(), version: write.version.clone() };
        match uid {
            None if !write.is_deletion() => Next::Nothing,
            uid => Next::Write(Write::Plan(write, uid.unwrap_or_default()), tried),
        }
    }

    fn next_consumer(
        &mut self,
        kind: ConsumerKind,
        key: &ObjectKey,
        now: Instant,
        clock: Timestamp,
    ) -> Next {
        let Some(outcome) = self.planner.outcome(kind, key) else {
            return self.next_stranger(kind, key);
        };
        let lb = place(outcome).cloned();
        if !self.planner.has_status_address(kind, key) {
            return self.next_stranger(kind, key);
        }
        let tracked = self.tracked.get(&(kind, key.clone())).cloned().unwrap_or_default();
        let changed = tracked.changed;
        let verdict = lb.as_ref().and_then(|lb| self.verdict(lb, now));
        let (undone, unlisted) =
            lb.as_ref().map(|lb| self.undone(lb, &outcome.consumer)).unwrap_or_default();
        let progress = status::progress(verdict.as_ref(), changed, undone, unlisted);
        let mut same_addresses = false;
        let patch = match kind {
            ConsumerKind::Service => {
                let Some(shown) = self.services.get(key) else { return Next::Nothing };
                let written = status::Written {
                    addresses: &render::addresses_of_service(&shown.status),
                    programmed: render::is_programmed(&shown.status),
                };
                let want = status::consumer(outcome, &progress, written);
                same_addresses = want.addresses == written.addresses;
                render::service(&want, shown, clock).map(|patch| (patch, Tried::at(&shown.version)))
            }
            _ => {
                let Some(shown) = self.ingresses.get(key) else { return Next::Nothing };
                let addresses = render::addresses_of_ingress(&shown.status);
                let written =
                    status::Written { programmed: !addresses.is_empty(), addresses: &addresses };
                let want = status::consumer(outcome, &progress, written);
                render::ingress(&want.addresses, shown)
                    .map(|patch| (patch, Tried::at(&shown.version)))
            }
        };
        if let Some(lb) = lb {
            let unproven = self.unproven.entry(lb).or_default();
            if matches!(progress, status::Progress::Waiting(_)) {
                unproven.insert((kind, key.clone()));
            } else {
                unproven.remove(&(kind, key.clone()));
            }
        }
        // A proof that is on its way saves the write that would say that it is missing.
        let behind = progress == status::Progress::Waiting(Waiting::Agent(Pending::AgentBehind));
        let until = tracked.since.map(|since| since + BEHIND).filter(|until| now < *until);
        if let Some(until) = until.filter(|_| behind && same_addresses && patch.is_some()) {
            return Next::Later(until);
        }
        match patch {
            None => Next::Nothing,
            Some((patch, tried)) => Next::Write(Write::Consumer(kind, key.clone(), patch), tried),
        }
    }

    /// What an agent does not do for a consumer, and how many refusals it does not name. An Ingress is
    /// reached at the load balancer's own listeners.
    fn undone(&self, lb: &Arc<str>, consumer: &ConsumerRef) -> (Undone, usize) {
        let Some(agent) = self.agents.get(&names::agent_lease(lb)) else {
            return Default::default();
        };
        let report = &agent.report;
        let shared = consumer.kind == ConsumerKind::Ingress;
        let refusals = report.refused.iter().filter(|refusal| {
            shared && refusal.consumer.kind == ConsumerKind::LoadBalancer
                || refusal.consumer == *consumer
        });
        let parts = if shared {
            self.planner.parts(ConsumerKind::LoadBalancer, &ObjectKey::new("", Arc::clone(lb)))
        } else {
            self.planner.parts(consumer.kind, &key(consumer))
        };
        let listeners = parts.iter().flat_map(|part| &part.listeners).map(ListenerKey::of);
        (Undone::of(refusals, listeners), report.unlisted)
    }

    /// A consumer that is not ours, or has no status of ours: what we once wrote is taken back.
    fn next_stranger(&mut self, kind: ConsumerKind, key: &ObjectKey) -> Next {
        let patch = match kind {
            ConsumerKind::Service => self.services.get(key).and_then(|shown| {
                Some((render::service_cleared(shown)?, Tried::at(&shown.version)))
            }),
            ConsumerKind::Ingress => self
                .ingresses
                .get(key)
                .filter(|_| self.tracked.contains_key(&(kind, key.clone())))
                .and_then(|shown| Some((render::ingress(&[], shown)?, Tried::at(&shown.version)))),
            ConsumerKind::LoadBalancer => None,
        };
        match patch {
            Some((patch, tried)) => Next::Write(Write::Consumer(kind, key.clone(), patch), tried),
            None => {
                if self.planner.outcome(kind, key).is_none() {
                    self.tracked.remove(&(kind, key.clone()));
                }
                Next::Nothing
            }
        }
    }

    fn next_load_balancer(&mut self, lb: &Arc<str>, now: Instant, clock: Timestamp) -> Next {
        let Some(shown) = self.balancers.get(lb) else { return Next::Nothing };
        let Some(known) = self.planner.load_balancer(lb) else {
            return Next::Nothing;
        };
        let verdict = self.verdict(lb, now);
        let agent = self.agents.get(&names::agent_lease(lb));
        let mut want = status::load_balancer(Known {
            name: lb,
            verdict: verdict.as_ref(),
            addresses: self.planner.addresses(known),
            consumers: self.planner.consumers(lb),
            refused: self.planner.refused(lb),
            undone: agent.map_or(&[], |agent| &agent.report.refused),
        });
        let before = &shown.status.status;
        let running = before.phase == Some(bowline_api::load_balancer::LoadBalancerPhase::Running);
        let mut again = None;
        if want.waiting == Some(Waiting::Agent(Pending::AgentBehind)) && running {
            let since = *self.behind.entry(Arc::clone(lb)).or_insert(now);
            if now.duration_since(since) < BEHIND {
                again = Some(since + BEHIND);
                want.assume_running();
            }
        } else {
            self.behind.remove(lb);
        }
        // The Lease may be that of an agent that died before we came: its end, or its next renewal,
        // shows.
        let unsure = agent.is_some_and(|agent| agent.held && !agent.alive && !agent.ended);
        if unsure && want.waiting.is_none() && !running {
            return Next::Nothing;
        }
        let rendered = render::load_balancer(want, shown, clock);
        if rendered == *before {
            return again.map_or(Next::Nothing, Next::Later);
        }
        let last = self.written.get(lb).map(|at| *at + GAP).filter(|at| now < *at);
        if let Some(at) = last.filter(|_| rendered.phase == before.phase) {
            return Next::Later(at);
        }
        let tried = Tried::at(&shown.version);
        let patch = render::load_balancer_patch(&rendered, &shown.version);
        self.written.insert(Arc::clone(lb), now);
        if again.is_some() {
            // Looked at again when the answer comes.
            self.dirty.insert(Target::LoadBalancer(Arc::clone(lb)));
        }
        Next::Write(Write::LoadBalancer(Arc::clone(lb), patch), tried)
    }

    /// Whether the object that a write concerned has changed since, as far as we know.
    pub(super) fn is_at(&self, target: &Target, tried: &Tried) -> bool {
        let known = match target {
            Target::Consumer(ConsumerKind::Service, key) => {
                self.services.get(key).map(|shown| &*shown.version)
            }
            Target::Consumer(_, key) => self.ingresses.get(key).map(|shown| &*shown.version),
            Target::LoadBalancer(lb) => self.balancers.get(lb).map(|shown| &*shown.version),
            Target::Plans(lb) => self.plans.get(lb).and_then(|plans| plans.version(&tried.name)),
            Target::Certificates(lb) => {
                self.certificates.get(lb).and_then(|it| it.version(&tried.name))
            }
        };
        known == tried.version.as_deref()
    }

    /// An object could not be written: the others of its target go on until then. False: the target
    /// is all there is.
    pub(super) fn refused_write(&mut self, target: &Target, tried: &Tried, until: Instant) -> bool {
        match target {
            _ if tried.name.is_empty() => return false,
            Target::Plans(lb) => {
                if let Some(plans) = self.plans.get_mut(lb) {
                    plans.refused(&tried.name, until);
                }
            }
            Target::Certificates(lb) => {
                if let Some(certificates) = self.certificates.get_mut(lb) {
                    certificates.refused(&tried.name, until);
                }
            }
            _ => return false,
        }
        self.dirty.insert(target.clone());
        true
    }

    /// Where a consumer can be reached, as its status says now.
    fn live(&self, kind: ConsumerKind, key: &ObjectKey) -> Option<Change> {
        let addresses = match kind {
            ConsumerKind::Service => render::addresses_of_service(&self.services.get(key)?.status),
            _ => render::addresses_of_ingress(&self.ingresses.get(key)?.status),
        };
        let consumer = self.planner.outcome(kind, key)?.consumer.clone();
        (!addresses.is_empty()).then_some(Change::Live { consumer, addresses })
    }

    /// A write has ended well; what of it people may want to know.
    pub(super) fn wrote(
        &mut self,
        target: &Target,
        written: Written,
        now: Instant,
    ) -> Option<Change> {
        match (target, written) {
            (Target::Consumer(kind, key), Written::Status(Status::Service(shown))) => {
                let before = self.live(*kind, key);
                self.services.put(key.clone(), shown);
                return self.live(*kind, key).filter(|after| before.as_ref() != Some(after));
            }
            (Target::Consumer(kind, key), Written::Status(Status::Ingress(shown))) => {
                let before = self.live(*kind, key);
                self.ingresses.put(key.clone(), shown);
                return self.live(*kind, key).filter(|after| before.as_ref() != Some(after));
            }
            (Target::LoadBalancer(lb), Written::Status(Status::LoadBalancer(shown))) => {
                self.balancers.put(Arc::clone(lb), *shown);
            }
            (Target::Plans(lb), Written::Plan(done, version)) => {
                let plans = self.plans.entry(Arc::clone(lb)).or_default();
                plans.wrote(done.write, version);
                let changed = plans.unwritten().filter_map(|consumer| {
                    self.tracked.get(&(consumer.kind, key(consumer))).map(|it| it.changed)
                });
                let all = changed.min().map_or(self.change, |first| first.saturating_sub(1));
                self.history.record_written(lb, plans.hash(), all);
                if plans.is_empty() {
                    self.plans.remove(lb);
                }
                self.dirty.insert(target.clone());
                self.dirty.insert(Target::Certificates(Arc::clone(lb)));
            }
            (Target::Certificates(lb), Written::Certificates(done, version)) => {
                let certificates = self.certificates.entry(Arc::clone(lb)).or_default();
                certificates.wrote(done.write, version);
                self.dirty.insert(target.clone());
                self.dirty.insert(Target::Plans(Arc::clone(lb)));
            }
            (Target::Certificates(lb), Written::Fetched(fetched, missed)) => {
                self.certificates.entry(Arc::clone(lb)).or_default().fetched(fetched, missed, now);
                self.dirty.insert(target.clone());
            }
            _ => {}
        }
        None
    }
}

/// Where an outcome is about.
fn place(outcome: &Outcome) -> Option<&Arc<str>> {
    match &outcome.state {
        Place::Planned { load_balancer, .. } => Some(load_balancer),
        Place::Refused { load_balancer, .. } => load_balancer.as_ref(),
    }
}

/// Where a consumer can be reached, once it is in force.
fn addresses(outcome: &Outcome) -> &[IpAddr] {
    match &outcome.state {
        Place::Planned { addresses, .. } => addresses,
        Place::Refused { .. } => &[],
    }
}

/// All that the owner of a consumer should be told.
fn problems(outcome: &Outcome) -> impl Iterator<Item = (ConsumerRef, Problem)> {
    let warnings = outcome.problems.iter().filter(|problem| problem.reason.is_warning());
    let warnings = warnings.map(|problem| (outcome.consumer.clone(), problem.clone()));
    status::refusals(outcome).chain(warnings)
}

fn key(consumer: &ConsumerRef) -> ObjectKey {
    ObjectKey { namespace: Arc::clone(&consumer.namespace), name: Arc::clone(&consumer.name) }
}
