//! The planner itself: it takes events into its stores, follows reverse edges to the consumers that they touch, and
//! plans these again when asked. The modules beside it make all decisions.

use super::address_requests::{Grant, Has, NOT_RECORDED, Own, none_of_its_own, wants_own};
use super::admitted::Admitted;
use super::asked_load_balancer::{
    Ask, Asked, NotOurs, Refusal, Why, ask_of_ingress, ask_of_service, ingress_not_ours, not_ours,
};
use super::assignments::{Assignment, Assignments, Placed, Wants};
use super::build::{Built, Target};
use super::consumer::{Age, ConsumerKey};
use super::edges::Edges;
use super::ingress::{self, Around};
use super::moves::Way;
use super::output::{Before, Output, Planned};
use super::recorded::{News, Recorded, unreadable_ingress, unreadable_service};
use super::store::Replaced;
use super::stores::{Changed, Stores};
use super::web::{self, Web};
use super::{Changes, Config, Event, Record, routes, service};
use crate::key::{ConsumerKind, ConsumerRef, ObjectKey};
use crate::objects::{
    Ingress, IngressClass, LoadBalancer, LoadBalancerClaim, Namespace, Service, Timestamp,
};
use crate::outcome::{Problem, Reason};
use crate::update::{Extent, ListenerKey};
use rustc_hash::FxHashMap;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::mem::take;
use std::net::IpAddr;
use std::sync::Arc;

/// Decides which consumer is on which load balancer, and what each has there.
///
/// It gets objects by [`Planner::handle`] and plans in [`Planner::take`]: however many events come in between, each
/// touched consumer is planned once.
#[derive(Debug, Default)]
pub struct Planner {
    pub(super) config: Config,
    pub(super) stores: Stores,
    ingresses_by_service: Edges<ObjectKey, ObjectKey>,
    ingresses_by_secret: Edges<ObjectKey, ObjectKey>,
    ingresses_by_class: Edges<Arc<str>, ObjectKey>,
    pub(super) recorded: Recorded,
    /// Consumers with their uid, and the load balancer that has served them for long enough.
    pub(super) arrived: FxHashMap<ConsumerKey, (Arc<str>, Arc<str>)>,
    pub(super) grants: FxHashMap<ObjectKey, Grant>,
    pub(super) admitted: Admitted,
    pub(super) assignments: Assignments,
    webs: FxHashMap<Arc<str>, Web>,
    /// Consumers with an assignment that may change.
    pub(super) to_assign: BTreeSet<ConsumerKey>,
    /// Consumers with a new decision of the admission: they may release the load balancer on which they stayed.
    pub(super) decided: BTreeSet<ConsumerKey>,
    /// Consumers whose fragment or outcome may change.
    to_build: BTreeSet<ConsumerKey>,
    pub(super) output: Output,
    pub(super) visited: u64,
}

impl Planner {
    /// A planner without objects.
    pub fn new(config: Config) -> Self {
        Self { config, ..Self::default() }
    }

    /// Takes an event. An object that did not change has no effect.
    pub fn handle(&mut self, event: Event) {
        match event {
            Event::Begin(kind) => self.stores.begin(kind),
            Event::Apply(object) => {
                let changed = self.stores.apply(*object);
                changed.iter().for_each(|changed| self.follow(changed));
            }
            Event::Delete(kind, key) => {
                let changed = self.stores.delete(kind, &key);
                changed.iter().for_each(|changed| self.follow(changed));
            }
            Event::Done(kind) => {
                let changed = self.stores.done(kind);
                changed.iter().for_each(|changed| self.follow(changed));
            }
            Event::Reported(name, addresses) => {
                let directory = &mut self.stores.directory;
                if directory.report(name.clone(), addresses)
                    && let Some(lb) = directory.by_name(&name).cloned()
                {
                    self.touch_load_balancer(&lb);
                }
            }
            Event::Granted(kind, key, grant) => self.grant(kind, key, grant),
            Event::Admitted(consumer, decision) => self.admit(&consumer, decision),
            Event::Stays(consumer, lb, amounts) => self.stay(consumer, lb, amounts),
            Event::Arrived(consumer, lb) => self.arrive(&consumer, lb),
            Event::Recorded(record) => {
                self.recorded.saw(&record);
                self.record(record);
            }
            Event::Writing(record) => {
                let record = self.recorded.writing(record);
                self.record(record);
            }
            Event::WriteFailed(lb, shard) => {
                if let Some(record) = self.recorded.failed(lb, shard) {
                    self.record(record);
                }
            }
            Event::WritesAbandoned => {
                for record in self.recorded.unwritten() {
                    self.record(record);
                }
            }
            Event::Unserved(lb, unserved) => self.unserve(lb, unserved.into_iter().collect()),
        }
    }

    fn record(&mut self, record: Record) {
        let news = self.recorded.news(&record);
        let before = self.assignments.decisions(&news, &self.recorded);
        self.recorded.set(record);
        let after = self.assignments.decisions(&news, &self.recorded);
        self.assignments.follow(&news.load_balancer, &before, &after, &mut self.to_build);
        for consumer in news.consumers {
            let who = ConsumerKey::of(&consumer);
            if self.is_elsewhere(&who, &consumer) || self.heeds_records(&who) {
                self.touch(who);
            }
        }
    }

    /// Takes the reports of agents on what they do not serve for one consumer because they serve it for another. They
    /// decide where Plans of two leaders record both.
    fn unserve(&mut self, lb: Arc<str>, unserved: BTreeSet<(ConsumerRef, Extent)>) {
        let told = self.recorded.unserved(&lb).chain(&unserved);
        let mut news = News { load_balancer: lb.clone(), ..News::default() };
        for (consumer, extent) in told {
            match extent {
                Extent::Host(host) => _ = news.hosts.insert(host.clone()),
                _ => news.consumers.push(consumer.clone()),
            }
        }
        let before = self.assignments.decisions(&news, &self.recorded);
        self.recorded.set_unserved(lb, unserved);
        let after = self.assignments.decisions(&news, &self.recorded);
        self.assignments.follow(&news.load_balancer, &before, &after, &mut self.to_build);
    }

    /// The content of Plans: load balancer, consumer, and the consumer's addresses there. A consumer in several Plans
    /// comes several times.
    pub fn recorded(&self) -> impl Iterator<Item = (&Arc<str>, &ConsumerRef, Vec<IpAddr>)> {
        self.recorded.all()
    }

    /// Whether a Plan has a fragment of a consumer.
    pub(super) fn is_recorded(&self, consumer: &ConsumerRef) -> bool {
        self.recorded.has(consumer)
    }

    /// Whether a Service may request addresses of its own that it does not have.
    fn awaits_own(&self, who: &ConsumerKey, service: &Service) -> bool {
        let directory = &self.stores.directory;
        let lb = match self.assignments.get(who) {
            Some(Assignment::Placed(placed)) => directory.by_name(&placed.lb),
            _ => None,
        };
        let addresses = lb.map(|lb| directory.addresses(lb)).unwrap_or_default();
        let grant = self.grants.get(&service.key).filter(|_| lb.is_none_or(|lb| lb.door.is_none()));
        wants_own(service, &addresses) && grant.is_none_or(|grant| grant.addresses.is_empty())
    }

    /// Whether the recorded content for a consumer counts.
    fn heeds_records(&self, who: &ConsumerKey) -> bool {
        match who.kind {
            ConsumerKind::Service => {
                let service = self.stores.services.get(&who.key);
                service.is_some_and(|service| {
                    unreadable_service(service).is_some() || self.awaits_own(who, service)
                })
            }
            ConsumerKind::Ingress => {
                let ingress = self.stores.ingresses.get(&who.key);
                ingress.is_some_and(|ingress| {
                    let class = self.stores.class_of(ingress);
                    class.is_some_and(|class| unreadable_ingress(ingress, class).is_some())
                })
            }
            ConsumerKind::LoadBalancer => false,
        }
    }

    /// Whether a Service or Ingress belongs to Bowline, and which load balancer it asks for. Only what it says itself
    /// counts, not what stays recorded where that cannot be read.
    pub fn why(&self, kind: ConsumerKind, key: &ObjectKey) -> Why {
        let missing = Why::NotOurs(NotOurs::Missing);
        match kind {
            ConsumerKind::Service => match self.stores.services.get(key) {
                None => missing,
                Some(service) => not_ours(service, &self.config)
                    .map_or_else(|| Why::Asks(ask_of_service(service, &self.config)), Why::NotOurs),
            },
            ConsumerKind::Ingress => {
                let Some(ingress) = self.stores.ingresses.get(key) else { return missing };
                let class = self.stores.class_of(ingress);
                match (ingress_not_ours(ingress, class), class) {
                    (None, Some(class)) => Why::Asks(ask_of_ingress(ingress, class, &self.config)),
                    (why, _) => Why::NotOurs(why.unwrap_or(NotOurs::NoIngressClass)),
                }
            }
            ConsumerKind::LoadBalancer => missing,
        }
    }

    /// A Service of ours, as it is planned.
    pub(super) fn service(&self, who: &ConsumerKey) -> Option<Cow<'_, Service>> {
        let service = self.stores.services.get(&who.key)?;
        // Checked before recorded values take the place of its own.
        if not_ours(service, &self.config).is_some() {
            return None;
        }
        let directory = &self.stores.directory;
        let available =
            |lb: &str| directory.by_name(lb).map(|lb| directory.addresses(lb)).unwrap_or_default();
        Some(self.recorded.service(service, &who.with_uid(&service.uid), available))
    }

    /// An Ingress as it is planned, and its class. None: it does not exist, or has no class.
    pub(super) fn ingress(&self, who: &ConsumerKey) -> Option<(Cow<'_, Ingress>, &IngressClass)> {
        let ingress = self.stores.ingresses.get(&who.key)?;
        let class = self.stores.class_of(ingress)?;
        Some((self.recorded.ingress(ingress, class, &who.with_uid(&ingress.uid)), class))
    }

    /// Marks the consumers that a changed object touches.
    fn follow(&mut self, changed: &Changed) {
        match changed {
            Changed::Service(change) => {
                let Some(service) = change.either() else { return };
                self.touch(ConsumerKey::service(&service.key));
                let ingresses = self.ingresses_by_service.of(&service.key);
                self.to_build.extend(ingresses.map(ConsumerKey::ingress));
            }
            Changed::Ingress(change) => self.follow_ingress(change),
            Changed::IngressClass(change) => {
                let Some(class) = change.either() else { return };
                let ingresses = self.ingresses_by_class.of(&class.name).map(ConsumerKey::ingress);
                let ingresses: Vec<_> = ingresses.collect();
                ingresses.into_iter().for_each(|who| self.touch(who));
            }
            Changed::TlsSecret(change) => {
                let Some(secret) = change.either() else { return };
                let ingresses = self.ingresses_by_secret.of(&secret.key).map(ConsumerKey::ingress);
                let ingresses: Vec<_> = ingresses.collect();
                ingresses.into_iter().for_each(|who| self.touch(who));
            }
            Changed::Namespace(change) => {
                let Some(namespace) = change.either() else { return };
                self.follow_namespace(namespace);
            }
            Changed::LoadBalancer(change) => {
                self.stores.directory.follow(change);
                for lb in [&change.old, &change.new].into_iter().flatten() {
                    self.touch_load_balancer(lb);
                }
            }
            Changed::Claim(change) => {
                let Some(claim) = change.either() else { return };
                let ask = Ask::Claim(claim.key.clone());
                let asking: Vec<_> = self.assignments.asking(&ask).cloned().collect();
                asking.into_iter().for_each(|who| self.touch(who));
                let uid =
                    |it: &Option<Arc<LoadBalancerClaim>>| it.as_ref().map(|it| it.uid.clone());
                if uid(&change.old) != uid(&change.new) {
                    let lbs: Vec<_> = self.stores.directory.naming(&claim.key).cloned().collect();
                    lbs.iter().for_each(|lb| self.touch_load_balancer(lb));
                }
            }
        }
    }

    fn follow_ingress(&mut self, change: &Replaced<Ingress>) {
        if let Some(old) = &change.old {
            for service in services(old) {
                self.ingresses_by_service.remove(&service, &old.key);
            }
            for secret in secrets(old) {
                self.ingresses_by_secret.remove(&secret, &old.key);
            }
            if let Some(class) = &old.class {
                self.ingresses_by_class.remove(class, &old.key);
            }
        }
        if let Some(new) = &change.new {
            for service in services(new) {
                self.ingresses_by_service.insert(service, new.key.clone());
            }
            for secret in secrets(new) {
                self.ingresses_by_secret.insert(secret, new.key.clone());
            }
            if let Some(class) = &new.class {
                self.ingresses_by_class.insert(class.clone(), new.key.clone());
            }
        }
        if let Some(ingress) = change.either() {
            self.touch(ConsumerKey::ingress(&ingress.key));
        }
    }

    /// The labels of a namespace decide where its consumers may be, not whether they are ours.
    fn follow_namespace(&mut self, namespace: &Namespace) {
        let first = ObjectKey::new(namespace.name.clone(), "");
        let inside = |key: &&ObjectKey| key.namespace == namespace.name;
        let services = self.stores.services.range(first.clone()..).map(|(key, _)| key);
        let services = services.take_while(inside).map(ConsumerKey::service);
        self.to_assign.extend(services.filter(|who| self.assignments.get(who).is_some()));
        let ingresses = self.stores.ingresses.range(first..).map(|(key, _)| key);
        let ingresses = ingresses.take_while(inside).map(ConsumerKey::ingress);
        self.to_assign.extend(ingresses.filter(|who| self.assignments.get(who).is_some()));
    }

    pub(super) fn touch(&mut self, who: ConsumerKey) {
        self.to_assign.insert(who.clone());
        self.to_build.insert(who);
    }

    pub(super) fn touch_load_balancer(&mut self, lb: &LoadBalancer) {
        let asks = [
            Some(Ask::Name(lb.name.clone())),
            Some(Ask::Source(lb.source.clone())),
            lb.claim.as_ref().map(|(claim, _)| Ask::Claim(claim.clone())),
            lb.external.then_some(Ask::External),
        ];
        for ask in asks.iter().flatten() {
            self.to_assign.extend(self.assignments.asking(ask).cloned());
            self.to_build.extend(self.assignments.asking(ask).cloned());
        }
        // Also consumers that are recorded here and go elsewhere: whether they may stay can change.
        let stay: Vec<ConsumerKey> = self.recorded.at(&lb.name).map(ConsumerKey::of).collect();
        stay.into_iter().for_each(|who| self.touch(who));
        self.to_build.insert(ConsumerKey::load_balancer(&lb.name));
    }

    /// Plans what the events since the last call touch, and returns what changed. Several changes of one consumer are
    /// one change; changes that cancel each other are none.
    pub fn take(&mut self) -> Changes {
        for who in take(&mut self.to_assign) {
            let assignment = self.assign(&who);
            self.assignments.set(&who, assignment, &self.recorded, &mut self.to_build);
        }
        // Load balancers come second: the age of their listeners is that of their oldest Ingress.
        for who in self.load_balancers_to_build() {
            let assignment = self.assign_web(&who);
            self.assignments.set(&who, assignment, &self.recorded, &mut self.to_build);
        }
        // Their listeners are planned first: Ingresses are reached at these.
        for who in self.load_balancers_to_build() {
            self.to_build.remove(&who);
            let planned = self.build_web(&who);
            self.output.set(who, planned);
        }
        for who in take(&mut self.to_build) {
            let planned = self.build(&who);
            self.output.set(who, planned);
        }
        Changes { wanted: self.assignments.take_wanted(), ..self.output.take() }
    }

    fn load_balancers_to_build(&self) -> Vec<ConsumerKey> {
        let first = ConsumerKey::load_balancer(&"".into());
        self.to_build.range(first..).cloned().collect()
    }

    fn assign(&mut self, who: &ConsumerKey) -> Option<(Option<Ask>, Assignment)> {
        self.visited += 1;
        let stores = &self.stores;
        match who.kind {
            ConsumerKind::Service => {
                let service = self.service(who)?;
                let ask = ask_of_service(&service, &self.config);
                Some(self.place(ask, who, (&service.uid, service.created), |target| {
                    let wants = match self.has(&service, target)? {
                        Has::LoadBalancers => service::wants(&service, target),
                        Has::Own(own) => service::wants(&service, own.on(target)),
                        Has::AsBefore(before) => service::wants(&before, target),
                    };
                    wants.map(Wants::Ports)
                }))
            }
            ConsumerKind::Ingress => {
                let (ingress, class) = self.ingress(who)?;
                if ingress_not_ours(&ingress, Some(class)).is_some() {
                    return None;
                }
                let ask = ask_of_ingress(&ingress, class, &self.config);
                let secret = |key: &ObjectKey| stores.secrets.get(key).map(|secret| &**secret);
                Some(self.place(ask, who, (&ingress.uid, ingress.created), |target| {
                    routes::wants(&ingress, target, secret).map(Wants::Hosts)
                }))
            }
            ConsumerKind::LoadBalancer => None,
        }
    }

    fn place(
        &self,
        asked: Result<Asked, Problem>,
        who: &ConsumerKey,
        (uid, created): (&Arc<str>, Timestamp),
        wants: impl Fn(Target<'_>) -> Result<Wants, Problem>,
    ) -> (Option<Ask>, Assignment) {
        let asked = match asked {
            Ok(asked) => asked,
            Err(problem) => return (None, Assignment::Refused(Refusal::nowhere(problem))),
        };
        let placed = self.way(&asked, who, uid).and_then(|Way { lb, unmet, before }| {
            let place = |lb: &Arc<LoadBalancer>| {
                let addresses = self.stores.directory.addresses(lb);
                let target = Target::new(lb, &addresses);
                let wants = wants(target).map_err(|problem| Refusal::by(lb, problem))?;
                let age = Age { created, key: who.key.clone() };
                let through = lb.claim.as_ref().filter(|it| it.1.is_some()).map(|it| it.0.clone());
                let (lb, uid, (unmet, before)) = (lb.name.clone(), uid.clone(), <_>::default());
                Ok::<_, Refusal>(Placed { lb, uid, age, wants, unmet, through, before })
            };
            let may_stay = |lb: &&&Arc<LoadBalancer>| {
                // An address of its own is on one load balancer at a time.
                let addresses = self.stores.directory.addresses(lb);
                let service = self.service(who);
                service.is_none_or(|service| !wants_own(&service, &addresses))
            };
            let stays = before.iter().filter(may_stay).filter_map(|lb| place(lb).ok());
            let before = if before.is_empty() { Vec::new() } else { stays.collect() };
            Ok(Placed { unmet, before, ..place(lb)? })
        });
        let refused = |refusal: Refusal| Assignment::Refused(refusal.named_by(&asked.by));
        let assignment = placed.map_or_else(refused, Assignment::Placed);
        (Some(asked.ask), assignment)
    }

    /// The addresses at which a Service is served on a load balancer.
    fn has(&self, service: &Service, target: Target<'_>) -> Result<Has<'_>, Problem> {
        if !wants_own(service, target.addresses) {
            return Ok(Has::LoadBalancers);
        }
        let behind = target.lb.door.is_some();
        let grant = self.grants.get(&service.key).filter(|_| !behind);
        if let Some(grant) = grant.filter(|grant| !grant.addresses.is_empty()) {
            return Ok(Has::Own(Own::new(grant)));
        }
        let problem = grant.and_then(|grant| grant.problem.as_ref());
        let unmet = match problem.or(service.address.problem.as_ref()) {
            Some(problem) => problem.clone(),
            None if behind => none_of_its_own(target.lb),
            None => Problem::new(Reason::Recording, NOT_RECORDED),
        };
        let consumer = ConsumerKey::service(&service.key).with_uid(&service.uid);
        match self.recorded.before(service, &consumer, target, &unmet) {
            Some(before) => Ok(Has::AsBefore(Box::new(before))),
            None => Err(unmet),
        }
    }

    fn assign_web(&mut self, who: &ConsumerKey) -> Option<(Option<Ask>, Assignment)> {
        self.visited += 1;
        let directory = &self.stores.directory;
        let lb = directory.by_name(&who.key.name)?;
        let oldest = self.assignments.ground(&lb.name)?.ingresses.first()?;
        let wants = web::wants(Target::new(lb, &directory.addresses(lb)));
        let placed = Placed {
            lb: lb.name.clone(),
            uid: lb.uid.clone(),
            age: oldest.clone(),
            wants: Wants::Ports(wants),
            unmet: None,
            through: None,
            before: Vec::new(),
        };
        Some((None, Assignment::Placed(placed)))
    }

    fn build_web(&mut self, who: &ConsumerKey) -> Option<Planned> {
        self.visited += 1;
        let name = &who.key.name;
        let built = self.assignments.get(who).and_then(|_| {
            let directory = &self.stores.directory;
            let lb = directory.by_name(name)?;
            let ground = self.assignments.ground(name)?;
            let addresses = directory.addresses(lb);
            let target = Target::new(lb, &addresses);
            let records = self.recorded.of_lb(name);
            let (built, web) = web::build(target, |key, me| ground.ports.holder(key, me, records));
            Some((Planned::built(who, &lb.uid, name, built), web))
        });
        let (planned, web) = built.unzip();
        let before = match &web {
            Some(web) => self.webs.insert(name.clone(), web.clone()),
            None => self.webs.remove(name),
        };
        if before != web
            && let Some(ground) = self.assignments.ground(name)
        {
            self.to_build.extend(ground.ingresses.iter().map(|age| ConsumerKey::ingress(&age.key)));
        }
        planned
    }

    fn build(&mut self, who: &ConsumerKey) -> Option<Planned> {
        self.visited += 1;
        let assignment = self.assignments.get(who)?;
        let (service, ingress) = match who.kind {
            ConsumerKind::Service => (self.service(who), None),
            ConsumerKind::Ingress => (None, self.ingress(who).map(|(ingress, _)| ingress)),
            ConsumerKind::LoadBalancer => (None, None),
        };
        let (uid, problems) = match (&service, &ingress) {
            (Some(service), _) => (&service.uid, &service.problems),
            (None, Some(ingress)) => (&ingress.uid, &ingress.problems),
            (None, None) => return None,
        };
        let placed = match assignment {
            Assignment::Placed(placed) => placed,
            Assignment::Refused(refusal) => {
                return Some(Planned::refused(who, uid, refusal.clone(), problems.clone()));
            }
        };
        let on = |name: &Arc<str>| {
            self.build_on(name, (who, uid), service.as_deref(), ingress.as_deref())
        };
        let (lb, mut built) = on(&placed.lb)?;
        built.problems.extend(self.short(lb, who, uid));
        built.problems.extend(placed.unmet.as_ref().map(|it| it.problem.clone()));
        let before = placed.before.iter();
        let before = before.filter_map(|it| Before::built(&it.lb, on(&it.lb)?.1)).collect();
        let planned = Planned::built(who, uid, &placed.lb, built).staying(placed.unmet.clone());
        Some(planned.coming_from(before))
    }

    /// What a Service or Ingress has on a load balancer on which it is placed.
    fn build_on(
        &self,
        name: &Arc<str>,
        (who, uid): (&ConsumerKey, &Arc<str>),
        service: Option<&Service>,
        ingress: Option<&Ingress>,
    ) -> Option<(&LoadBalancer, Built)> {
        let stores = &self.stores;
        let lb = stores.directory.by_name(name)?;
        let ground = self.assignments.ground(name)?;
        let addresses = stores.directory.addresses(lb);
        let seat = self.admitted_with(lb, who, uid);
        let target = Target { seat, ..Target::new(lb, &addresses) };
        let draining = stores.directory.draining(lb);
        let records = self.recorded.of_lb(name);
        let holder = |key: &ListenerKey, me: &ConsumerKey| ground.ports.holder(key, me, records);
        let built = match (service, ingress) {
            (Some(service), _) => match self.has(service, target) {
                Ok(Has::LoadBalancers) => service::build(service, target, holder).hiding(draining),
                Ok(Has::AsBefore(before)) => {
                    service::build(&before, target, holder).hiding(draining)
                }
                Ok(Has::Own(own)) => own.hide(service::build(service, own.on(target), holder)),
                Err(problem) => Built::refused(problem, service.problems.clone()),
            },
            (None, ingress) => ingress::build(
                ingress?,
                &Around {
                    target,
                    hosts: &ground.hosts,
                    records,
                    web: self.webs.get(name)?,
                    service: |key: &ObjectKey| stores.services.get(key).map(|it| &**it),
                    secret: |key: &ObjectKey| stores.secrets.get(key).map(|it| &**it),
                },
            )
            .hiding(draining),
        };
        Some((lb, built))
    }
}

/// The Services that an Ingress names.
fn services(ingress: &Ingress) -> BTreeSet<ObjectKey> {
    let paths = ingress.rules.iter().flat_map(|rule| &rule.paths);
    let backends = paths.map(|path| &path.backend).chain(&ingress.default_backend);
    let names: BTreeSet<_> = backends.filter_map(|backend| backend.service.as_ref()).collect();
    let namespace = &ingress.key.namespace;
    names.into_iter().map(|name| ObjectKey::new(namespace.clone(), name.clone())).collect()
}

/// The Secrets that an Ingress names.
fn secrets(ingress: &Ingress) -> BTreeSet<ObjectKey> {
    let names = ingress.tls.iter().filter_map(|entry| entry.secret.as_ref());
    let namespace = &ingress.key.namespace;
    names.map(|name| ObjectKey::new(namespace.clone(), name.clone())).collect()
}
