//! What Plan objects say of who is where: the only memory of a consumer whose wish cannot be read. Such
//! a consumer is planned as if it asked for what is recorded; nobody else is looked up here. The
//! controller tells it, Plan object by Plan object.

use super::build::Target;
use super::few::Edges;
use crate::key::ConsumerRef;
use crate::objects::{Ingress, IngressClass, Placement, Service};
use crate::outcome::Problem;
use crate::plan::Fragment;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// What one Plan object holds, as far as the planner has to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The load balancer that the Plan is of.
    load_balancer: Arc<str>,
    /// The number of the Plan among those of the load balancer.
    shard: u32,
    /// Whose fragments it has, and the addresses of their listeners; sorted, each consumer once.
    consumers: Vec<Entry>,
}

/// A consumer, and the addresses of its listeners.
type Entry = (ConsumerRef, Vec<IpAddr>);

impl Record {
    /// A Plan object that has these fragments; with none, one that is gone.
    pub fn new<'a>(
        load_balancer: impl Into<Arc<str>>,
        shard: u32,
        fragments: impl IntoIterator<Item = &'a Fragment>,
    ) -> Self {
        let mut consumers = BTreeMap::<&ConsumerRef, Vec<IpAddr>>::new();
        for fragment in fragments {
            let addresses = fragment.listeners.iter().map(|listener| listener.address);
            consumers.entry(&fragment.consumer).or_default().extend(addresses);
        }
        let once = |(consumer, mut addresses): (&ConsumerRef, Vec<_>)| {
            addresses.sort_unstable();
            addresses.dedup();
            addresses.shrink_to_fit();
            (consumer.clone(), addresses)
        };
        Self {
            load_balancer: load_balancer.into(),
            shard,
            consumers: consumers.into_iter().map(once).collect(),
        }
    }
}

/// A Plan object: of which load balancer, and its number.
type Place = (Arc<str>, u32);

#[derive(Debug, Default)]
pub(super) struct Recorded {
    plans: BTreeMap<Place, Vec<Entry>>,
    places: Edges<ConsumerRef, Place>,
}

impl Recorded {
    /// A Plan object holds this now. Says of whom something else is recorded.
    pub(super) fn set(&mut self, record: Record) -> Vec<ConsumerRef> {
        let place = (record.load_balancer, record.shard);
        let old = self.plans.remove(&place).unwrap_or_default();
        let new = record.consumers;
        let differs = |one: &[Entry], other: &[Entry]| -> Vec<ConsumerRef> {
            let differ = one.iter().filter(|entry| other.binary_search(entry).is_err());
            differ.map(|(consumer, _)| consumer.clone()).collect()
        };
        let (gone, come) = (differs(&old, &new), differs(&new, &old));
        gone.iter().for_each(|consumer| self.places.remove(consumer, &place));
        come.iter().for_each(|consumer| self.places.insert(consumer.clone(), place.clone()));
        if !new.is_empty() {
            self.plans.insert(place, new);
        }
        gone.into_iter().chain(come).collect()
    }

    /// Who is where, and at which addresses; somebody in several Plans comes several times.
    pub(super) fn all(&self) -> impl Iterator<Item = (&Arc<str>, &ConsumerRef, &[IpAddr])> {
        self.plans.iter().flat_map(|((lb, _), entries)| {
            entries.iter().map(move |(consumer, addresses)| (lb, consumer, &addresses[..]))
        })
    }

    /// Who is on a load balancer; somebody in several Plans comes several times.
    pub(super) fn at<'a>(&'a self, lb: &'a Arc<str>) -> impl Iterator<Item = &'a ConsumerRef> {
        let plans = self.plans.range((lb.clone(), 0)..).take_while(move |((it, _), _)| it == lb);
        plans.flat_map(|(_, entries)| entries.iter().map(|(consumer, _)| consumer))
    }

    /// Whether somebody is anywhere.
    pub(super) fn has(&self, consumer: &ConsumerRef) -> bool {
        self.places.first(consumer).is_some()
    }

    /// On which load balancers somebody is, by name; on several only while it moves.
    pub(super) fn on(&self, consumer: &ConsumerRef) -> Vec<&Arc<str>> {
        let mut all: Vec<_> = self.places.of(consumer).map(|(lb, _)| lb).collect();
        all.dedup();
        all
    }

    /// On which load balancer somebody is, and at which addresses; on several only while it moves,
    /// and then the first by name counts.
    fn of(&self, consumer: &ConsumerRef) -> Option<(&Arc<str>, Vec<IpAddr>)> {
        let (lb, _) = self.places.first(consumer)?;
        let mut addresses = Vec::new();
        for place in self.places.of(consumer).filter(|(on, _)| on == lb) {
            let entries = self.plans.get(place).map(Vec::as_slice).unwrap_or_default();
            if let Ok(at) = entries.binary_search_by(|(other, _)| other.cmp(consumer)) {
                addresses.extend(&entries[at].1);
            }
        }
        addresses.sort_unstable();
        addresses.dedup();
        Some((lb, addresses))
    }

    /// The Service as it is planned: where its wish cannot be read and something is recorded, it
    /// asks for that. Of the recorded addresses those count that the load balancer still has, if any.
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

    /// The Service as it was, where it is recorded at addresses of the load balancer itself: it asks for
    /// others that it does not have, and stays there until it does.
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

    /// The Ingress as it is planned, likewise; it has no addresses of its own.
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

/// Why a Service's placement or addresses cannot be read.
pub(super) fn unreadable_service(service: &Service) -> Option<&Problem> {
    let address = service.address.problem.as_ref();
    service.placement.as_ref().err().or(service.vips.as_ref().err()).or(address)
}

/// Why an Ingress's placement cannot be read: its own, or that of its class where that counts.
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
