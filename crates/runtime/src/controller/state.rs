//! All that the controller knows, and what follows from it: which object is to be looked at again, and
//! which write, if any, brings it closer to what it should be. It does no I/O; time is an argument.

mod addresses;
mod binding;
mod hear;
mod moves;
mod next;
mod provision;
mod seats;

#[cfg(test)]
mod tests;

use super::certificates::{self, Certificates, Needed};
use super::inputs::{Heard, LeaseSeen, Status};
use super::plans::Plans;
use super::render;
use super::shown::{
    Board, CookiesShown, ExternalIpShown, LoadBalancerShown, PoolShown, ServiceShown,
};
use super::work::Lane;
use super::writes::{Write, Written};
use crate::observe::Change;
use crate::watch::Seen;
use addresses::Pooled;
use binding::Bindings;
pub(super) use binding::amounts;
use bowline_api::convert::Ground;
use bowline_api::names;
use bowline_api::proxies::Images;
use bowline_core::addresses::HolderRef;
use bowline_core::announce::{Announcement, Severity};
use bowline_core::arrivals::Arrivals;
use bowline_core::binder::{self, Subject};
use bowline_core::key::{ConsumerKind, ConsumerRef, ObjectKey};
use bowline_core::outcome::{Outcome, Problem, Reason, State as Place};
use bowline_core::plan::Fragment;
use bowline_core::planner::{Config, Event, Object, Planner, Read, Record};
use bowline_core::programmed::{Claim, History, Pending, Verdict};
use bowline_core::replicas::{Joint, Replicas};
use bowline_core::status::{self, Known, Undone, Waiting};
use bowline_core::update::{ListenerKey, Refusal};
use ipnet::IpNet;
use k8s_openapi::api::networking::v1::IngressLoadBalancerIngress;
use k8s_openapi::jiff::Timestamp;
use provision::Provisions;
use seats::Seats;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// So long a load balancer may be a little behind before its phase says so: a change on its way is not
/// worth two writes.
const BEHIND: Duration = Duration::from_secs(2);
/// So long a Plan of which the API drops fields is not written again.
const OLD_KIND: Duration = Duration::from_secs(60);
/// The least time between two writes of a LoadBalancer's lists.
const GAP: Duration = Duration::from_millis(250);

/// Something that is brought into step by itself. In which order is for `work` to say.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Target {
    /// Whether somebody exists of whom an Address speaks.
    Holder(HolderRef),
    /// Whether a claim or load balancer exists that seems to be gone.
    Subject(Subject),
    /// Whether somebody still belongs on a load balancer where it has a seat.
    Leaver(ConsumerRef, Arc<str>),
    /// Whom a LoadBalancer belongs to, and who has a seat on it.
    Binding(Arc<str>),
    /// The finalizers and the status of a LoadBalancerClaim.
    Claim(ObjectKey),
    /// An Address object.
    Address(IpAddr),
    /// The Secret with what the cookies of a load balancer are signed with.
    Cookies(Arc<str>),
    /// The Secrets with certificates of a load balancer.
    Certificates(Arc<str>),
    /// The Plans of a load balancer.
    Plans(Arc<str>),
    /// The status of a Service or Ingress.
    Consumer(ConsumerKind, ObjectKey),
    /// The status of a LoadBalancer.
    LoadBalancer(Arc<str>),
    /// The finalizers and the status of an ExternalIP.
    ExternalIp(ObjectKey),
    /// The finalizers and the status of an AddressPool.
    Pool(Arc<str>),
    /// Entries of dead agents in the Lease of a load balancer.
    Agents(Arc<str>),
    /// What is behind a LoadBalancer whose claim is gone.
    Job(Arc<str>),
    /// What serves a LoadBalancer that a class made.
    Provision(Arc<str>),
}

impl Target {
    /// Another target that is the same object: the two are not written at once.
    pub(super) fn twin(&self) -> Option<Self> {
        match self {
            Self::Binding(lb) => Some(Self::LoadBalancer(Arc::clone(lb))),
            Self::LoadBalancer(lb) => Some(Self::Binding(Arc::clone(lb))),
            _ => None,
        }
    }
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
    /// The object's name, where the target does not say it: of Plans and Secrets of ours. Else empty.
    pub(super) name: String,
    /// Its version; None: it did not exist.
    version: Option<String>,
}

impl Tried {
    /// Whether the object was to be made.
    pub(super) fn creates(&self) -> bool {
        self.version.is_none() && !self.name.is_empty()
    }

    fn version(&self) -> Option<&str> {
        self.version.as_deref()
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
    /// Which one refused it while it stayed there.
    refused_by: Option<Arc<str>>,
    /// Where it was to be reached.
    addresses: Vec<IpAddr>,
    /// What its owner has been told.
    problems: Vec<(ConsumerRef, Problem)>,
}

/// See the module.
pub(super) struct State {
    planner: Planner,
    pooled: Pooled,
    bindings: Bindings,
    seats: Seats,
    arrivals: Arrivals,
    provisions: Provisions,
    history: History,
    services: Board<ObjectKey, ServiceShown>,
    ingresses: Board<ObjectKey, Vec<IngressLoadBalancerIngress>>,
    balancers: Board<Arc<str>, LoadBalancerShown>,
    /// Agents by the name of their Lease.
    agents: HashMap<String, Replicas>,
    /// Load balancers by the name of their agent's Lease.
    by_lease: HashMap<String, Arc<str>>,
    plans: BTreeMap<Arc<str>, Plans>,
    certificates: BTreeMap<Arc<str>, Certificates>,
    cookies: Board<Arc<str>, CookiesShown>,
    tracked: HashMap<(ConsumerKind, ObjectKey), Tracked>,
    /// Consumers whose load balancer has not proved yet that it serves them.
    unproven: HashMap<Arc<str>, BTreeSet<(ConsumerKind, ObjectKey)>>,
    behind: HashMap<Arc<str>, Instant>,
    written: HashMap<Arc<str>, Instant>,
    change: u64,
    /// Whether we begin to lead and have not looked at everything yet.
    begins: bool,
    /// Load balancers whose plan has yet to be noted.
    met: BTreeSet<Arc<str>>,
    listed: BTreeSet<&'static str>,
    /// Objects of ours of which nothing was seen since their list began.
    unseen: HashMap<&'static str, BTreeSet<(Arc<str>, String)>>,
    /// Leases of agents of which nothing was seen since their list began.
    unseen_leases: BTreeSet<String>,
    /// To be looked at.
    pub(super) dirty: BTreeSet<Target>,
    /// To be announced.
    pub(super) said: Vec<Announcement>,
    /// For people who look on.
    pub(super) told: Vec<Change>,
    /// Certificates that have no room on a load balancer, each on the Ingress that it concerns.
    withheld: BTreeMap<Arc<str>, Vec<Refusal>>,
    /// How much is refused now, by reason.
    pub(super) refused: BTreeMap<Reason, usize>,
    /// How often the consumers of a load balancer were gone through for its status.
    #[cfg(test)]
    walks: usize,
}

impl State {
    pub(super) fn new(config: Config, addresses: bowline_core::addresses::Config) -> Self {
        Self {
            planner: Planner::new(config),
            arrivals: Arrivals::new(Duration::from_secs(
                u64::try_from(addresses.grace).unwrap_or_default(),
            )),
            pooled: Pooled::new(addresses),
            bindings: Bindings::default(),
            seats: Seats::default(),
            provisions: Provisions::default(),
            history: History::default(),
            services: Board::default(),
            ingresses: Board::default(),
            balancers: Board::default(),
            agents: HashMap::new(),
            by_lease: HashMap::new(),
            plans: BTreeMap::new(),
            certificates: BTreeMap::new(),
            cookies: Board::default(),
            tracked: HashMap::new(),
            unproven: HashMap::new(),
            behind: HashMap::new(),
            written: HashMap::new(),
            change: 0,
            begins: false,
            met: BTreeSet::new(),
            listed: BTreeSet::new(),
            unseen: HashMap::new(),
            unseen_leases: BTreeSet::new(),
            dirty: BTreeSet::new(),
            said: Vec::new(),
            told: Vec::new(),
            withheld: BTreeMap::new(),
            refused: BTreeMap::new(),
            #[cfg(test)]
            walks: 0,
        }
    }

    /// The same, where load balancers that classes make are served there.
    pub(super) fn on(mut self, ground: Ground, images: Images, deny_members: Vec<IpNet>) -> Self {
        self.bindings.ground = ground;
        self.provisions.images = images;
        self.provisions.deny_members = deny_members;
        self
    }

    /// Whether everything has been heard once: before that nothing is written.
    pub(super) fn is_complete(&self) -> bool {
        self.listed.len() == 9 && self.planner.is_complete()
    }

    /// Plans what was heard.
    fn plan(&mut self, now: Instant) {
        let changes = self.planner.take();
        self.change += 1;
        let mut balancers = BTreeSet::new();
        for fragment in &changes.fragments {
            let lb = &fragment.load_balancer;
            let plans = self.plans.entry(Arc::clone(lb)).or_default();
            let certificates = self.certificates.get(lb);
            plans.want_certified(&fragment.consumer, &fragment.parts, self.change, |hash| {
                certificates.is_none_or(|it| it.lacks(hash))
            });
            let listeners = fragment.parts.iter().flat_map(|part| &part.listeners);
            let addresses = listeners.map(|listener| listener.address).collect();
            self.serve(&fragment.consumer, lb, addresses);
            let who = (fragment.consumer.kind, key(&fragment.consumer));
            // What it has where it comes from says nothing of where it goes.
            let goes = self.planner.outcome(who.0, &who.1).and_then(place);
            if goes.is_none_or(|goes| goes == lb) {
                let tracked = self.tracked.entry(who).or_default();
                (tracked.changed, tracked.since) = (self.change, Some(now));
            }
            balancers.insert(Arc::clone(lb));
        }
        for (consumer, outcome) in &changes.outcomes {
            let who = (consumer.kind, key(consumer));
            let alone = self.is_alone(who.0, &who.1);
            let place = outcome.as_ref().and_then(place);
            let tracked = self.tracked.entry(who.clone()).or_default();
            let before = std::mem::replace(&mut tracked.load_balancer, place.cloned());
            let refuses = outcome.as_ref().and_then(refuses);
            let refused = std::mem::replace(&mut tracked.refused_by, refuses.cloned());
            let departed = before.is_some() && before.as_ref() != place;
            let addresses = outcome.as_ref().map_or(&[][..], addresses);
            if tracked.addresses != addresses || departed {
                // Another address, or the same one elsewhere, is in force with the plan that opens it,
                // whoever asks for that.
                tracked.addresses = addresses.to_vec();
                (tracked.changed, tracked.since) = (self.change, Some(now));
                self.met.extend(place.cloned());
            }
            if departed {
                self.departed(consumer);
            }
            if who.0 == ConsumerKind::Service {
                self.pooled.touch(who.0, &who.1);
            }
            let problems: Vec<_> = match alone {
                true => self.problems_alone(&who.1),
                false => outcome.iter().flat_map(problems).collect(),
            };
            self.tell_problems(who.clone(), problems);
            for lb in [before.as_ref(), place, refused.as_ref(), refuses].into_iter().flatten() {
                self.dirty.insert(Target::LoadBalancer(Arc::clone(lb)));
            }
            if let Some(unproven) = before.and_then(|lb| self.unproven.get_mut(&lb)) {
                unproven.remove(&who);
            }
            self.dirty.insert(Target::Consumer(who.0, who.1));
        }
        self.want(changes.wanted, changes.users);
        for lb in balancers {
            self.touch(&lb);
            self.met.insert(lb);
        }
        for lb in std::mem::take(&mut self.met) {
            let planned = self.planner.hash(&lb);
            let plans = self.plans.get(&lb);
            let hash = plans.map_or(planned, |plans| plans.with_foreign(planned));
            let shown = plans.map(Plans::hash).unwrap_or_default();
            self.history.record(&lb, hash, self.change);
            self.history.record_shown(&lb, shown);
        }
    }

    /// Whose work a target is. A load balancer that has a claim is used by its namespace alone.
    pub(super) fn lane(&self, target: &Target) -> Lane {
        let namespace = match target {
            Target::Holder(holder) => &holder.key.namespace,
            Target::Subject(Subject::Claim { key, .. }) => &key.namespace,
            Target::Subject(Subject::LoadBalancer { claim, .. }) => &claim.namespace,
            Target::Leaver(consumer, _) => &consumer.namespace,
            Target::Claim(key) | Target::Consumer(_, key) | Target::ExternalIp(key) => {
                &key.namespace
            }
            Target::Address(address) => return Lane::Namespace(self.namespace_of(*address)),
            Target::Pool(_) => return Lane::Namespace("".into()),
            Target::Binding(lb)
            | Target::Cookies(lb)
            | Target::Certificates(lb)
            | Target::Plans(lb)
            | Target::LoadBalancer(lb)
            | Target::Agents(lb)
            | Target::Job(lb)
            | Target::Provision(lb) => {
                let known = self.planner.load_balancer(lb);
                match known.and_then(|it| it.claim.as_ref()) {
                    Some((claim, _)) => &claim.namespace,
                    None => return Lane::LoadBalancer(Arc::clone(lb)),
                }
            }
        };
        Lane::Namespace(Arc::clone(namespace))
    }

    /// The owner of a consumer should be told this, of which what is new is said.
    fn tell_problems(
        &mut self,
        who: (ConsumerKind, ObjectKey),
        problems: Vec<(ConsumerRef, Problem)>,
    ) {
        let tracked = self.tracked.entry(who).or_default();
        let known = std::mem::replace(&mut tracked.problems, problems.clone());
        for (_, problem) in &known {
            *self.refused.entry(problem.reason).or_default() -= 1;
        }
        for (_, problem) in &problems {
            *self.refused.entry(problem.reason).or_default() += 1;
        }
        for (consumer, problem) in problems.into_iter().filter(|it| !known.contains(it)) {
            self.say(&consumer, &problem);
            self.told.push(Change::Refused { consumer, problem });
        }
    }

    fn say(&mut self, consumer: &ConsumerRef, problem: &Problem) {
        self.said.push(Announcement {
            object: consumer.clone().into(),
            severity: Severity::Warning,
            reason: problem.reason.to_string().into(),
            message: problem.message.clone(),
        });
    }

    /// We begin to lead: everything is to be looked at, once it is settled who has which address.
    /// Before that many seem to have none.
    pub(super) fn begin(&mut self) {
        self.planner.handle(Event::WritesAbandoned);
        self.begins = true;
    }

    fn touch_all(&mut self) {
        let said = self.said.iter().map(|it| (it.object.clone(), Arc::clone(&it.message)));
        let said: BTreeSet<_> = said.collect();
        let problems = self.tracked.values().flat_map(|tracked| &tracked.problems);
        let problems = problems.filter(|(consumer, problem)| {
            !said.contains(&(consumer.clone().into(), Arc::clone(&problem.message)))
        });
        for (consumer, problem) in problems.cloned().collect::<Vec<_>>() {
            self.say(&consumer, &problem);
        }
        let services = self.services.keys().cloned();
        let services = services.map(|key| Target::Consumer(ConsumerKind::Service, key));
        let ingresses = self.ingresses.keys().cloned();
        let ingresses = ingresses.map(|key| Target::Consumer(ConsumerKind::Ingress, key));
        let all: Vec<_> = services.chain(ingresses).collect();
        self.dirty.extend(all);
        self.dirty.extend(self.pooled.pools.keys().cloned().map(Target::Pool));
        self.dirty.extend(self.pooled.external_ips.keys().cloned().map(Target::ExternalIp));
        self.dirty.extend(self.bindings.claims.keys().cloned().map(Target::Claim));
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
        self.touch_provisions();
    }

    /// Time has passed: Leases may have ended.
    pub(super) fn tick(&mut self, now: Instant) {
        let mut news = Vec::new();
        for (lease, agents) in &mut self.agents {
            let before = agents.joint().clone();
            if agents.tick(now) {
                news.push((lease.clone(), before));
            }
            if let Some(lb) = self.by_lease.get(lease)
                && !agents.dead(self.provisions.is_reached(lb), now).is_empty()
            {
                self.dirty.insert(Target::Agents(Arc::clone(lb)));
            }
        }
        for (lease, before) in news {
            self.agents_changed(&lease, &before);
        }
    }

    /// What its agents prove about a load balancer. None: it has no driver.
    fn verdict(&self, lb: &Arc<str>, now: Instant) -> Option<Verdict> {
        let driven = self.balancers.get(lb).is_some_and(|shown| shown.status.driven);
        driven.then(|| self.history.judge(lb, &self.claims(lb, now)))
    }

    /// What each of its agents says.
    fn claims(&self, lb: &str, now: Instant) -> Vec<Claim> {
        let agents = self.agents.get(&names::agent_lease(lb));
        agents.map(|agents| agents.claims(now)).unwrap_or_default()
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
            Target::Pool(name) => self.pooled.pools.get(name).map(|shown| &*shown.version),
            Target::ExternalIp(key) => {
                self.pooled.external_ips.get(key).map(|shown| &*shown.version)
            }
            Target::Claim(key) => self.bindings.claims.get(key).map(|shown| &*shown.version),
            Target::Address(_)
            | Target::Holder(_)
            | Target::Subject(_)
            | Target::Leaver(..)
            | Target::Binding(_)
            | Target::Agents(_)
            | Target::Provision(_)
            | Target::Job(_) => None,
            Target::Cookies(lb) => self.cookies.get(lb).map(|shown| &*shown.version),
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

    /// A Secret that is not ours has the name of one of ours: whoever looks after the load balancer is told.
    pub(super) fn taken(&mut self, target: &Target, tried: &Tried) {
        let (Target::Cookies(lb) | Target::Certificates(lb)) = target else { return };
        let Some(uid) = self.uid(lb) else { return };
        let (kind, name) = (ConsumerKind::LoadBalancer, Arc::clone(lb));
        let message = format!(
            "Secret {} is of another type and in the way of Bowline's: delete it",
            tried.name
        );
        self.said.push(Announcement {
            object: ConsumerRef { kind, namespace: "".into(), name, uid }.into(),
            severity: Severity::Warning,
            reason: "NameTaken".into(),
            message: message.into(),
        });
    }

    /// Where a consumer can be reached, as its status says now.
    fn live(&self, kind: ConsumerKind, key: &ObjectKey) -> Option<Change> {
        let points = match kind {
            ConsumerKind::Service => render::points_of_service(&self.services.get(key)?.status),
            _ => render::points_of_ingress(&self.ingresses.get(key)?.status),
        };
        let consumer = self.planner.outcome(kind, key)?.consumer.clone();
        (!points.is_empty()).then_some(Change::Live { consumer, points })
    }

    /// A write is sent: from now on a Plan may hold what is written, whatever is heard of it.
    pub(super) fn sends(&mut self, target: &Target, write: &Write) {
        if let (Target::Plans(lb), Write::Plan(plan, _)) = (target, write) {
            debug_assert_eq!(plan.name, names::plan_name(lb, plan.write.index()));
            self.planner.handle(Event::Writing(plan.record()));
        }
    }

    /// A write was refused: nothing of it is there.
    pub(super) fn unwritten(&mut self, target: &Target, tried: &Tried) {
        if let (Target::Plans(lb), Some(index)) = (target, names::plan_index(&tried.name)) {
            self.planner.handle(Event::WriteFailed(Arc::clone(lb), index));
        }
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
                self.pooled.touch(*kind, key);
                self.acknowledge(*kind, key);
                return self.live(*kind, key).filter(|after| before.as_ref() != Some(after));
            }
            (Target::Consumer(kind, key), Written::Status(Status::Ingress(shown))) => {
                let before = self.live(*kind, key);
                self.ingresses.put(key.clone(), shown);
                return self.live(*kind, key).filter(|after| before.as_ref() != Some(after));
            }
            (target, Written::Binding(id, answer)) => self.bound(target, id, answer),
            (Target::Claim(_), Written::Claim(shown))
                if !self.bindings.is_buried(&shown.status.known.uid) =>
            {
                let known = binder::Object::Claim(shown.status.known.clone());
                self.bindings.tell(binder::Event::Apply(Box::new(known)));
                self.put_claim(*shown);
            }
            (Target::Provision(lb), Written::Provisioned(after)) => {
                self.provisioned(lb, *after, now);
            }
            (Target::Job(lb), Written::Deprovisioned(id, result)) => {
                self.removed(lb, id, result, now);
            }
            (_, Written::LookedFor(subject, version)) => self.looked_for(subject, version),
            (Target::Binding(lb), Written::Seats(id, answer)) => self.seated(lb, id, &answer),
            (_, Written::Leaver(consumer, lb, found)) => {
                self.looked_at(consumer, lb, found.as_deref());
            }
            (Target::LoadBalancer(lb), Written::Status(Status::LoadBalancer(shown))) => {
                self.put_balancer(lb, *shown);
                let key = ObjectKey::new("", Arc::clone(lb));
                self.pooled.touch(ConsumerKind::LoadBalancer, &key);
                self.acknowledge(ConsumerKind::LoadBalancer, &key);
            }
            (Target::Plans(lb), Written::Plan(done, version)) => {
                let news = version.as_deref().is_none_or(|version| {
                    self.plans.get(lb).is_none_or(|plans| plans.is_news(&done.name, version))
                });
                if news {
                    self.planner.handle(Event::Recorded(done.record()));
                }
                let plans = self.plans.entry(Arc::clone(lb)).or_default();
                // The API has changed nothing, and what it has is not what was sent.
                let kept = version.is_some() && version == done.version;
                if kept && !news && plans.lacks(&done.write) {
                    tracing::warn!(
                        plan = done.name,
                        "the API drops fields of this Plan: its CustomResourceDefinition is older than this \
                         controller. Apply deploy/crds"
                    );
                    plans.refused(&done.name, now + OLD_KIND);
                }
                plans.wrote(done.write, version);
                let first = plans.first_unwritten();
                let all = first.map_or(self.change, |first| first.saturating_sub(1));
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
            (Target::Address(address), Written::Address(id, result)) => {
                self.wrote_address(*address, id, result);
            }
            (_, Written::Confirmed(holder, exists)) => self.confirmed(holder, exists),
            (Target::Pool(name), Written::Pool(shown)) => {
                self.pooled.pools.put(Arc::clone(name), *shown);
                self.dirty.insert(target.clone());
            }
            (Target::ExternalIp(_), Written::ExternalIp(after)) => self.put_external_ip(*after),
            (Target::Agents(lb), Written::Agents(removed)) => {
                let lease = names::agent_lease(lb);
                let agents = self.agents.get_mut(&lease);
                let before = agents.as_ref().map(|agents| agents.joint().clone());
                if agents.is_some_and(|agents| agents.forget(&removed)) {
                    self.agents_changed(&lease, &before.unwrap_or_default());
                }
            }
            (Target::Cookies(lb), Written::Cookies(shown)) => {
                self.cookies.put(Arc::clone(lb), shown);
                self.dirty.insert(target.clone());
            }
            _ => {}
        }
        None
    }
}

/// Where an outcome is about.
fn place(outcome: &Outcome) -> Option<&Arc<str>> {
    outcome.load_balancer()
}

/// The load balancer that keeps somebody where it is.
fn refuses(outcome: &Outcome) -> Option<&Arc<str>> {
    outcome.unmet.as_ref()?.load_balancer.as_ref()
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
