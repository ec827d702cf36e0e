//! The content of Plan objects: the planner's memory. It serves two rules. A consumer for which a Plan records a port
//! or host keeps it, even if older consumers want the same (`Records`). And a consumer whose placement or address
//! cannot be read is planned as if it asked for the recorded one. The controller delivers the content, Plan object by
//! Plan object; it never reads or writes one itself.

use super::build::Target;
use super::edges::Edges;
use crate::key::{ConsumerKind, ConsumerRef};
use crate::objects::{Ingress, IngressClass, Placement, Service};
use crate::outcome::Problem;
use crate::plan::{Fragment, Host};
use crate::update::{Extent, ListenerKey};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// The content of one Plan object, as far as the planner needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The load balancer of the Plan.
    load_balancer: Arc<str>,
    /// The number of the Plan among the Plans of the load balancer.
    shard: u32,
    /// What each consumer has in it. Sorted; each consumer occurs once.
    consumers: Vec<Entry>,
}

/// A consumer, and what it has in a Plan.
type Entry = (ConsumerRef, Holding);

/// What a consumer has in one Plan object. Each list is sorted and without duplicates.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Holding {
    listeners: Vec<ListenerKey>,
    hosts: Vec<Host>,
}

impl Holding {
    fn normalize(&mut self) {
        self.listeners.sort_unstable();
        self.listeners.dedup();
        self.listeners.shrink_to_fit();
        self.hosts.sort_unstable();
        self.hosts.dedup();
        self.hosts.shrink_to_fit();
    }
}

impl Record {
    /// The record of a Plan object with these fragments; without any, of a deleted one.
    pub fn new<'a>(
        load_balancer: impl Into<Arc<str>>,
        shard: u32,
        fragments: impl IntoIterator<Item = &'a Fragment>,
    ) -> Self {
        let mut consumers = BTreeMap::<&ConsumerRef, Holding>::new();
        for fragment in fragments {
            let holding = consumers.entry(&fragment.consumer).or_default();
            holding.listeners.extend(fragment.listeners.iter().map(ListenerKey::of));
            holding.hosts.extend(fragment.sites.iter().map(|site| site.host.clone()));
        }
        let entry = |(consumer, mut holding): (&ConsumerRef, Holding)| {
            holding.normalize();
            (consumer.clone(), holding)
        };
        Self {
            load_balancer: load_balancer.into(),
            shard,
            consumers: consumers.into_iter().map(entry).collect(),
        }
    }
}

/// A Plan object: its load balancer and its number.
type PlanIndex = (Arc<str>, u32);

/// What a record changes.
#[derive(Default)]
pub(super) struct News {
    pub(super) load_balancer: Arc<str>,
    /// Consumers with a changed record.
    pub(super) consumers: Vec<ConsumerRef>,
    /// Hosts with a changed record.
    pub(super) hosts: BTreeSet<Host>,
}

#[derive(Debug, Default)]
pub(super) struct Recorded {
    plans: BTreeMap<PlanIndex, Vec<Entry>>,
    places: Edges<ConsumerRef, PlanIndex>,
    /// The consumers that have a listener, each with the number of the Plan.
    ports: Edges<(Arc<str>, ListenerKey), (ConsumerRef, u32)>,
    /// The consumers that have a host, each with the number of the Plan.
    hosts: Edges<(Arc<str>, Host), (ConsumerRef, u32)>,
    /// The observed content of Plans, from before our write that is under way.
    seen: BTreeMap<PlanIndex, Vec<Entry>>,
    /// What agents do not serve for one consumer because they serve it for another.
    unserved: BTreeMap<Arc<str>, BTreeSet<(ConsumerRef, Extent)>>,
}

/// The records of one load balancer.
#[derive(Clone, Copy)]
pub(super) struct Records<'a> {
    pub(super) recorded: &'a Recorded,
    pub(super) lb: &'a Arc<str>,
}

impl<'a> Records<'a> {
    /// The consumers for which Plans record this listener: mostly one.
    pub(super) fn port_holders(self, key: &ListenerKey) -> Vec<&'a ConsumerRef> {
        let place = (self.lb.clone(), *key);
        let mut all: Vec<_> =
            self.recorded.ports.of(&place).map(|(consumer, _)| consumer).collect();
        all.dedup();
        all
    }

    /// Whether a Plan records a listener with this port for the consumer, at any address.
    pub(super) fn has_port_somewhere(self, consumer: &ConsumerRef, key: &ListenerKey) -> bool {
        let same = |it: &ListenerKey| (it.port, it.transport) == (key.port, key.transport);
        self.holdings(consumer).any(|it| it.listeners.iter().any(same))
    }

    /// Whether a Plan records the host for any Ingress of the namespace.
    pub(super) fn has_host(self, namespace: &str, host: &Host) -> bool {
        let nothing: Arc<str> = "".into();
        let first = ConsumerRef {
            kind: ConsumerKind::Ingress,
            namespace: namespace.into(),
            name: nothing.clone(),
            uid: nothing,
        };
        let place = (self.lb.clone(), host.clone());
        let having = self.recorded.hosts.first_from(&place, &(first, 0));
        having.is_some_and(|(consumer, _)| {
            consumer.kind == ConsumerKind::Ingress && *consumer.namespace == *namespace
        })
    }

    /// Whether an agent reports that it serves this listener for another consumer.
    pub(super) fn is_port_unserved(self, consumer: &ConsumerRef, key: &ListenerKey) -> bool {
        let unserved = self.recorded.unserved.get(self.lb);
        unserved.is_some_and(|all| all.contains(&(consumer.clone(), Extent::Listener(*key))))
    }

    /// Whether an agent reports that it serves the host for another namespace.
    pub(super) fn is_host_unserved(self, namespace: &str, host: &Host) -> bool {
        let mut all = self.recorded.unserved.get(self.lb).into_iter().flatten();
        all.any(|(consumer, extent)| {
            *consumer.namespace == *namespace
                && matches!(extent, Extent::Host(unserved) if unserved == host)
        })
    }

    fn holdings<'c>(
        self,
        consumer: &'c ConsumerRef,
    ) -> impl Iterator<Item = &'a Holding> + use<'a, 'c> {
        let places = self.recorded.places.of(consumer).filter(move |(lb, _)| lb == self.lb);
        places.filter_map(move |place| self.recorded.holding(place, consumer))
    }
}

impl Recorded {
    /// The records of a load balancer.
    pub(super) fn of_lb<'a>(&'a self, lb: &'a Arc<str>) -> Records<'a> {
        Records { recorded: self, lb }
    }

    fn holding(&self, place: &PlanIndex, consumer: &ConsumerRef) -> Option<&Holding> {
        let entries = self.plans.get(place)?;
        let at = entries.binary_search_by(|(other, _)| other.cmp(consumer)).ok()?;
        entries.get(at).map(|(_, holding)| holding)
    }

    /// What a record changes.
    pub(super) fn news(&self, record: &Record) -> News {
        let place = (record.load_balancer.clone(), record.shard);
        let old = self.plans.get(&place).map(Vec::as_slice).unwrap_or_default();
        let new = &record.consumers;
        let gone = old.iter().filter(|entry| new.binary_search(entry).is_err());
        let come = new.iter().filter(|entry| old.binary_search(entry).is_err());
        let (mut consumers, mut hosts) = (Vec::new(), BTreeSet::new());
        for (consumer, holding) in gone.chain(come) {
            consumers.push(consumer.clone());
            hosts.extend(holding.hosts.iter().cloned());
        }
        consumers.sort_unstable();
        consumers.dedup();
        News { load_balancer: record.load_balancer.clone(), consumers, hosts }
    }

    /// The record that counts during a write of this one: the old and the new content of the Plan together, since
    /// either may be in the API.
    pub(super) fn writing(&mut self, record: Record) -> Record {
        let place = (record.load_balancer.clone(), record.shard);
        let old = self.plans.get(&place).cloned().unwrap_or_default();
        let mut consumers: BTreeMap<ConsumerRef, Holding> = old.iter().cloned().collect();
        for (consumer, holding) in record.consumers {
            let both = consumers.entry(consumer).or_default();
            both.listeners.extend(holding.listeners);
            both.hosts.extend(holding.hosts);
            both.normalize();
        }
        self.seen.entry(place).or_insert(old);
        Record { consumers: consumers.into_iter().collect(), ..record }
    }

    /// The observed content of a Plan for which our write has failed and is no longer under way.
    pub(super) fn failed(&mut self, lb: Arc<str>, shard: u32) -> Option<Record> {
        let consumers = self.seen.remove(&(lb.clone(), shard))?;
        Some(Record { load_balancer: lb, shard, consumers })
    }

    /// The observed content of all Plans for which a write was under way.
    pub(super) fn unwritten(&mut self) -> Vec<Record> {
        let all = std::mem::take(&mut self.seen).into_iter();
        all.map(|((load_balancer, shard), consumers)| Record { load_balancer, shard, consumers })
            .collect()
    }

    /// A Plan object was observed: none of our writes to it is under way any more.
    pub(super) fn saw(&mut self, record: &Record) {
        self.seen.remove(&(record.load_balancer.clone(), record.shard));
    }

    /// Sets the content of a Plan object.
    pub(super) fn set(&mut self, record: Record) {
        let place = (record.load_balancer, record.shard);
        let (lb, shard) = (&place.0, place.1);
        let old = self.plans.remove(&place).unwrap_or_default();
        let new = record.consumers;
        for (consumer, holding) in old.iter().filter(|entry| new.binary_search(entry).is_err()) {
            self.places.remove(consumer, &place);
            for key in &holding.listeners {
                self.ports.remove(&(lb.clone(), *key), &(consumer.clone(), shard));
            }
            for host in &holding.hosts {
                self.hosts.remove(&(lb.clone(), host.clone()), &(consumer.clone(), shard));
            }
        }
        for (consumer, holding) in new.iter().filter(|entry| old.binary_search(entry).is_err()) {
            self.places.insert(consumer.clone(), place.clone());
            for key in &holding.listeners {
                self.ports.insert((lb.clone(), *key), (consumer.clone(), shard));
            }
            for host in &holding.hosts {
                self.hosts.insert((lb.clone(), host.clone()), (consumer.clone(), shard));
            }
        }
        if !new.is_empty() {
            self.plans.insert(place, new);
        }
    }

    /// What the agents of a load balancer do not serve for one consumer because they serve it for another.
    pub(super) fn unserved(&self, lb: &str) -> impl Iterator<Item = &(ConsumerRef, Extent)> {
        self.unserved.get(lb).into_iter().flatten()
    }

    /// Sets what the agents of a load balancer report as not served.
    pub(super) fn set_unserved(&mut self, lb: Arc<str>, all: BTreeSet<(ConsumerRef, Extent)>) {
        if all.is_empty() {
            self.unserved.remove(&lb);
        } else {
            self.unserved.insert(lb, all);
        }
    }

    /// The addresses of all consumers, by load balancer. A consumer in several Plans comes several times.
    pub(super) fn all(&self) -> impl Iterator<Item = (&Arc<str>, &ConsumerRef, Vec<IpAddr>)> {
        self.plans.iter().flat_map(|((lb, _), entries)| {
            entries.iter().map(move |(consumer, holding)| (lb, consumer, addresses([holding])))
        })
    }

    /// The consumers on a load balancer. A consumer in several Plans comes several times.
    pub(super) fn at<'a>(&'a self, lb: &'a Arc<str>) -> impl Iterator<Item = &'a ConsumerRef> {
        let plans = self.plans.range((lb.clone(), 0)..).take_while(move |((it, _), _)| it == lb);
        plans.flat_map(|(_, entries)| entries.iter().map(|(consumer, _)| consumer))
    }

    /// Whether any Plan records a consumer.
    pub(super) fn has(&self, consumer: &ConsumerRef) -> bool {
        self.places.first(consumer).is_some()
    }

    /// The load balancers on which Plans record a consumer, by name; several only while it moves.
    pub(super) fn on(&self, consumer: &ConsumerRef) -> Vec<&Arc<str>> {
        let mut all: Vec<_> = self.places.of(consumer).map(|(lb, _)| lb).collect();
        all.dedup();
        all
    }

    /// The load balancer on which a consumer is recorded, and its addresses there. While it moves there are several,
    /// and the first by name counts.
    fn of(&self, consumer: &ConsumerRef) -> Option<(&Arc<str>, Vec<IpAddr>)> {
        let (lb, _) = self.places.first(consumer)?;
        Some((lb, addresses(self.of_lb(lb).holdings(consumer))))
    }

    /// The Service as it is planned. Where its request cannot be read and something is recorded, it asks for that. Of
    /// the recorded addresses, those count that the load balancer still has, if any.
    pub(super) fn service<'a>(
        &self,
        service: &'a Service,
        consumer: &ConsumerRef,
        available: impl Fn(&str) -> Vec<IpAddr>,
    ) -> Cow<'a, Service> {
        let Some(problem) = unreadable_service(service) else { return Cow::Borrowed(service) };
        let recorded = self.of(consumer).filter(|(_, addresses)| !addresses.is_empty());
        let Some((lb, mut addresses)) = recorded else { return Cow::Borrowed(service) };
        let available = available(lb);
        if addresses.iter().any(|address| available.contains(address)) {
            addresses.retain(|address| available.contains(address));
        }
        let mut service = service.clone();
        service.problems.push(problem.clone());
        service.placement = Ok(Placement::LoadBalancer(lb.clone()));
        service.vips = Ok(addresses);
        service.address.problem = None;
        Cow::Owned(service)
    }

    /// The Service as it was, where it is recorded at addresses of the load balancer itself. It requests other
    /// addresses that it does not have yet, and stays until it has them.
    pub(super) fn before(
        &self,
        service: &Service,
        consumer: &ConsumerRef,
        target: Target<'_>,
        unmet: &Problem,
    ) -> Option<Service> {
        let (lb, addresses) = self.of(consumer)?;
        let there = *lb == target.lb.name
            && !addresses.is_empty()
            && addresses.iter().all(|address| target.addresses.contains(address));
        there.then(|| {
            let mut before = service.clone();
            before.vips = Ok(addresses);
            (before.address.pool, before.address.name, before.address.problem) = (None, None, None);
            before.problems.push(unmet.clone());
            before
        })
    }

    /// The Ingress as it is planned, as for a Service. It has no addresses of its own.
    pub(super) fn ingress<'a>(
        &self,
        ingress: &'a Ingress,
        class: &IngressClass,
        consumer: &ConsumerRef,
    ) -> Cow<'a, Ingress> {
        let Some(problem) = unreadable_ingress(ingress, class) else {
            return Cow::Borrowed(ingress);
        };
        let Some((lb, _)) = self.of(consumer) else { return Cow::Borrowed(ingress) };
        let mut ingress = ingress.clone();
        ingress.problems.push(problem.clone());
        ingress.placement = Ok(Placement::LoadBalancer(lb.clone()));
        Cow::Owned(ingress)
    }
}

/// The addresses of listeners, sorted and without duplicates.
fn addresses<'a>(holdings: impl IntoIterator<Item = &'a Holding>) -> Vec<IpAddr> {
    let listeners = holdings.into_iter().flat_map(|holding| &holding.listeners);
    let mut addresses: Vec<_> = listeners.map(|listener| listener.address).collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

/// Why a Service's placement or addresses cannot be read.
pub(super) fn unreadable_service(service: &Service) -> Option<&Problem> {
    let address = service.address.problem.as_ref();
    service.placement.as_ref().err().or(service.vips.as_ref().err()).or(address)
}

/// Why an Ingress's placement cannot be read: its own, or that of its class if that counts.
pub(super) fn unreadable_ingress<'a>(
    ingress: &'a Ingress,
    class: &'a IngressClass,
) -> Option<&'a Problem> {
    match &ingress.placement {
        Err(problem) => Some(problem),
        Ok(Placement::Default) => class.parameters.as_ref().err(),
        Ok(_) => None,
    }
}
