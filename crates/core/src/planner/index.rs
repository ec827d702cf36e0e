//! The planner itself: takes events into its stores, follows reverse edges to what they touch, and
//! plans that again when it is asked. All decisions are made in the modules beside it.

use super::build::Target;
use super::directory::Directory;
use super::output::{Output, Planned};
use super::placement::{Ask, Refusal, ask_of_service, place};
use super::seat::{Placed, Seat, Seats, Wants};
use super::store::{Replaced, Store};
use super::who::{Age, Who};
use super::{Changes, Config, Event, Kind, Object, service};
use crate::hash::PlanHash;
use crate::key::{ConsumerKind, ConsumerRef, ObjectKey};
use crate::objects::{
    Exposure, Ingress, IngressClass, LoadBalancer, Namespace, Service, TlsSecret,
};
use crate::outcome::{Outcome, State};
use crate::plan::Fragment;
use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;
use std::net::IpAddr;
use std::sync::Arc;

/// Decides which consumer is on which load balancer, and what each has there.
///
/// It is told of objects by [`Planner::handle`] and plans in [`Planner::take`]: however many events
/// came in between, each consumer that they touch is planned once.
#[derive(Debug, Default)]
pub struct Planner {
    config: Config,
    services: Store<ObjectKey, Service>,
    ingresses: Store<ObjectKey, Ingress>,
    classes: Store<Arc<str>, IngressClass>,
    secrets: Store<ObjectKey, TlsSecret>,
    namespaces: Store<Arc<str>, Namespace>,
    directory: Directory,
    seats: Seats,
    /// Those whose seat may be another one.
    to_seat: BTreeSet<Who>,
    /// Those whose fragment or outcome may be different.
    to_build: BTreeSet<Who>,
    output: Output,
    visited: u64,
}

impl Planner {
    /// A planner that has been told of nothing.
    pub fn new(config: Config) -> Self {
        Self { config, ..Self::default() }
    }

    /// Takes in an event. An object that is as it was changes nothing.
    pub fn handle(&mut self, event: Event) {
        match event {
            Event::Begin(kind) => self.begin(kind),
            Event::Apply(object) => self.apply(*object),
            Event::Delete(kind, key) => self.delete(kind, &key),
            Event::Done(kind) => self.done(kind),
            Event::Reported(name, addresses) => {
                if self.directory.report(name.clone(), addresses)
                    && let Some(lb) = self.directory.by_name(&name).cloned()
                {
                    self.load_balancer_touched(&lb);
                }
            }
        }
    }

    fn begin(&mut self, kind: Kind) {
        match kind {
            Kind::Service => self.services.begin(),
            Kind::Ingress => self.ingresses.begin(),
            Kind::IngressClass => self.classes.begin(),
            Kind::TlsSecret => self.secrets.begin(),
            Kind::Namespace => self.namespaces.begin(),
            Kind::LoadBalancer => self.directory.store.begin(),
        }
    }

    fn apply(&mut self, object: Object) {
        match object {
            Object::Service(it) => {
                let change = self.services.apply(it.key.clone(), it);
                change.iter().for_each(|change| self.service_changed(change));
            }
            Object::Ingress(it) => {
                let change = self.ingresses.apply(it.key.clone(), it);
                change.iter().for_each(|change| self.ingress_changed(change));
            }
            Object::IngressClass(it) => {
                let change = self.classes.apply(it.name.clone(), it);
                change.iter().for_each(|change| self.class_changed(change));
            }
            Object::TlsSecret(it) => {
                let change = self.secrets.apply(it.key.clone(), it);
                change.iter().for_each(|change| self.secret_changed(change));
            }
            Object::Namespace(it) => {
                let change = self.namespaces.apply(it.name.clone(), it);
                change.iter().for_each(|change| self.namespace_changed(change));
            }
            Object::LoadBalancer(it) => {
                let change = self.directory.store.apply(it.name.clone(), it);
                change.iter().for_each(|change| self.load_balancer_changed(change));
            }
        }
    }

    fn delete(&mut self, kind: Kind, key: &ObjectKey) {
        match kind {
            Kind::Service => {
                let change = self.services.delete(key);
                change.iter().for_each(|change| self.service_changed(change));
            }
            Kind::Ingress => {
                let change = self.ingresses.delete(key);
                change.iter().for_each(|change| self.ingress_changed(change));
            }
            Kind::IngressClass => {
                let change = self.classes.delete(&key.name);
                change.iter().for_each(|change| self.class_changed(change));
            }
            Kind::TlsSecret => {
                let change = self.secrets.delete(key);
                change.iter().for_each(|change| self.secret_changed(change));
            }
            Kind::Namespace => {
                let change = self.namespaces.delete(&key.name);
                change.iter().for_each(|change| self.namespace_changed(change));
            }
            Kind::LoadBalancer => {
                let change = self.directory.store.delete(&key.name);
                change.iter().for_each(|change| self.load_balancer_changed(change));
            }
        }
    }

    fn done(&mut self, kind: Kind) {
        match kind {
            Kind::Service => {
                self.services.sweep().iter().for_each(|change| self.service_changed(change));
            }
            Kind::Ingress => {
                self.ingresses.sweep().iter().for_each(|change| self.ingress_changed(change));
            }
            Kind::IngressClass => {
                self.classes.sweep().iter().for_each(|change| self.class_changed(change));
            }
            Kind::TlsSecret => {
                self.secrets.sweep().iter().for_each(|change| self.secret_changed(change));
            }
            Kind::Namespace => {
                self.namespaces.sweep().iter().for_each(|change| self.namespace_changed(change));
            }
            Kind::LoadBalancer => {
                let gone = self.directory.store.sweep();
                gone.iter().for_each(|change| self.load_balancer_changed(change));
            }
        }
    }

    fn service_changed(&mut self, change: &Replaced<Service>) {
        if let Some(service) = change.new.as_ref().or(change.old.as_ref()) {
            self.touch(Who::service(&service.key));
        }
    }

    fn ingress_changed(&mut self, _change: &Replaced<Ingress>) {}

    fn class_changed(&mut self, _change: &Replaced<IngressClass>) {}

    fn secret_changed(&mut self, _change: &Replaced<TlsSecret>) {}

    fn namespace_changed(&mut self, change: &Replaced<Namespace>) {
        let Some(namespace) = change.new.as_ref().or(change.old.as_ref()) else { return };
        let first = ObjectKey::new(namespace.name.clone(), "");
        let inside = |key: &ObjectKey| key.namespace == namespace.name;
        let services = self.services.range(first.clone()..).map(|(key, _)| key);
        let services = services.take_while(|key| inside(key)).map(Who::service);
        self.to_seat.extend(services.filter(|who| self.seats.get(who).is_some()));
    }

    fn load_balancer_changed(&mut self, change: &Replaced<LoadBalancer>) {
        self.directory.follow(change);
        for lb in [&change.old, &change.new].into_iter().flatten() {
            self.load_balancer_touched(lb);
        }
    }

    fn load_balancer_touched(&mut self, lb: &LoadBalancer) {
        let asks = [
            Some(Ask::Name(lb.name.clone())),
            Some(Ask::Source(lb.source.clone())),
            lb.claim.as_ref().map(|(claim, _)| Ask::Claim(claim.clone())),
            lb.external.then_some(Ask::External),
        ];
        for ask in asks.iter().flatten() {
            self.to_seat.extend(self.seats.asking(ask).cloned());
            self.to_build.extend(self.seats.asking(ask).cloned());
        }
    }

    fn touch(&mut self, who: Who) {
        self.to_seat.insert(who.clone());
        self.to_build.insert(who);
    }

    /// Plans what the events since the last call touch, and says what is different. Several changes
    /// of one consumer are one, and those that cancel each other are none.
    pub fn take(&mut self) -> Changes {
        for who in take(&mut self.to_seat) {
            let seat = self.seat(&who);
            self.seats.set(&who, seat, &mut self.to_build);
        }
        for who in take(&mut self.to_build) {
            let planned = self.build(&who);
            self.output.set(who, planned);
        }
        self.output.take()
    }

    fn seat(&mut self, who: &Who) -> Option<(Option<Ask>, Seat)> {
        self.visited += 1;
        match who.kind {
            ConsumerKind::Service => {
                let service = self.services.get(&who.key)?;
                let ask = ask_of_service(service, &self.config)?;
                Some(self.place(ask, who, service.created, |target| {
                    service::wants(service, target).map(Wants::Ports)
                }))
            }
            ConsumerKind::Ingress | ConsumerKind::LoadBalancer => None,
        }
    }

    fn place(
        &self,
        ask: Result<Ask, crate::outcome::Problem>,
        who: &Who,
        created: i64,
        wants: impl Fn(Target<'_>) -> Result<Wants, crate::outcome::Problem>,
    ) -> (Option<Ask>, Seat) {
        let ask = match ask {
            Ok(ask) => ask,
            Err(problem) => return (None, Seat::Refused(Refusal::nowhere(problem))),
        };
        let namespace = &who.key.namespace;
        let labels = self.namespaces.get(namespace).map(|it| &**it);
        let seat = place(&ask, namespace, labels, &self.directory).and_then(|lb| {
            let target = Target { lb, addresses: &self.directory.addresses(lb) };
            let wants = wants(target).map_err(|problem| Refusal::by(lb, problem))?;
            let age = Age { created, key: who.key.clone() };
            Ok(Placed { lb: lb.name.clone(), age, wants })
        });
        (Some(ask), seat.map_or_else(Seat::Refused, Seat::Placed))
    }

    fn build(&mut self, who: &Who) -> Option<Planned> {
        self.visited += 1;
        let seat = self.seats.get(who)?;
        match who.kind {
            ConsumerKind::Service => {
                let service = self.services.get(&who.key)?;
                let placed = match seat {
                    Seat::Placed(placed) => placed,
                    Seat::Refused(refusal) => {
                        let problems = service.problems.clone();
                        return Some(Planned::refused(
                            who,
                            &service.uid,
                            refusal.clone(),
                            problems,
                        ));
                    }
                };
                let lb = self.directory.by_name(&placed.lb)?;
                let ground = self.seats.ground(&placed.lb)?;
                let target = Target { lb, addresses: &self.directory.addresses(lb) };
                let built = service::build(service, target, |key| ground.ports.holder(key));
                Some(Planned::built(who, &service.uid, &placed.lb, built))
            }
            ConsumerKind::Ingress | ConsumerKind::LoadBalancer => None,
        }
    }

    /// Whether all objects of every kind have been told: before that a plan lacks something.
    pub fn is_complete(&self) -> bool {
        self.services.is_listed()
            && self.ingresses.is_listed()
            && self.classes.is_listed()
            && self.secrets.is_listed()
            && self.namespaces.is_listed()
            && self.directory.store.is_listed()
    }

    /// What became of a consumer. None: there is none, or it is not ours.
    pub fn outcome(&self, kind: ConsumerKind, key: &ObjectKey) -> Option<&Outcome> {
        self.output.outcome(&Who { kind, key: key.clone() })
    }

    /// What became of all consumers, sorted.
    pub fn outcomes(&self) -> impl Iterator<Item = &Outcome> {
        self.output.outcomes()
    }

    /// Whether the addresses of a consumer belong into its status: not those of a NodePort Service,
    /// nor of what is not ours.
    pub fn has_status_address(&self, kind: ConsumerKind, key: &ObjectKey) -> bool {
        let ours = self.outcome(kind, key).is_some();
        ours && match kind {
            ConsumerKind::Service => {
                self.services.get(key).is_some_and(|it| it.exposure == Exposure::LoadBalancer)
            }
            ConsumerKind::Ingress => true,
            ConsumerKind::LoadBalancer => false,
        }
    }

    /// The plan of a load balancer, sorted by consumer and part.
    pub fn fragments(&self, lb: &str) -> impl Iterator<Item = &Arc<Fragment>> {
        self.output.consumers(lb).flat_map(|who| self.output.parts(who))
    }

    /// What is planned for one consumer, in parts.
    pub fn parts(&self, kind: ConsumerKind, key: &ObjectKey) -> &[Arc<Fragment>] {
        self.output.parts(&Who { kind, key: key.clone() })
    }

    /// The hash of a load balancer's plan: the sum of its fragments' hashes.
    pub fn hash(&self, lb: &str) -> PlanHash {
        self.output.hash(lb)
    }

    /// The Services and Ingresses that are planned on a load balancer, sorted.
    pub fn consumers(&self, lb: &str) -> impl Iterator<Item = &ConsumerRef> {
        self.on(lb).filter_map(|outcome| {
            let planned = matches!(outcome.state, State::Planned { .. });
            let itself = outcome.consumer.kind == ConsumerKind::LoadBalancer;
            (planned && !itself).then_some(&outcome.consumer)
        })
    }

    /// What became of those whom a load balancer refused, in whole or in part; sorted.
    pub fn refused(&self, lb: &str) -> impl Iterator<Item = &Outcome> {
        self.on(lb).filter(|outcome| {
            matches!(outcome.state, State::Refused { .. })
                || outcome.problems.iter().any(|problem| !problem.reason.is_warning())
        })
    }

    fn on(&self, lb: &str) -> impl Iterator<Item = &Outcome> {
        self.output.consumers(lb).filter_map(|who| self.output.outcome(who))
    }

    /// All load balancers, sorted by name.
    pub fn load_balancers(&self) -> impl Iterator<Item = &Arc<LoadBalancer>> {
        self.directory.store.iter()
    }

    /// The addresses of a load balancer, sorted: its fixed ones, else those that its agent reports.
    pub fn addresses(&self, lb: &LoadBalancer) -> Vec<IpAddr> {
        self.directory.addresses(lb)
    }

    /// The certificates that a load balancer's plan needs, by hash, and the Secrets that have each.
    pub fn certificates(&self, lb: &str) -> BTreeMap<Arc<str>, Vec<ObjectKey>> {
        self.output.certificates(lb)
    }

    /// How many times a consumer was looked at so far: what an event costs.
    pub fn visited(&self) -> u64 {
        self.visited
    }
}
