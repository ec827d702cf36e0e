//! Questions to the planner. The answers are the state as of the last [`Planner::take`]. Nothing here changes the
//! planner; the controller's shell asks.

use super::consumer::ConsumerKey;
use super::{NeededCertificates, Planner};
use crate::hash::PlanHash;
use crate::key::{ConsumerKind, ConsumerRef, ObjectKey};
use crate::objects::{Exposure, LoadBalancer};
use crate::outcome::{Outcome, State};
use crate::plan::Fragment;
use std::net::IpAddr;
use std::sync::Arc;

impl Planner {
    /// Whether the objects of every kind have been listed. Before that a plan may be incomplete.
    pub fn is_complete(&self) -> bool {
        self.stores.are_listed()
    }

    /// The outcome of a consumer. None: it does not exist, or is not ours.
    pub fn outcome(&self, kind: ConsumerKind, key: &ObjectKey) -> Option<&Outcome> {
        self.output.outcome(&ConsumerKey { kind, key: key.clone() })
    }

    /// The outcomes of all consumers, sorted.
    pub fn outcomes(&self) -> impl Iterator<Item = &Outcome> {
        self.output.outcomes()
    }

    /// Whether the addresses of a consumer belong into its status. Those of a NodePort Service and of consumers that
    /// are not ours do not.
    pub fn has_status_address(&self, kind: ConsumerKind, key: &ObjectKey) -> bool {
        let ours = self.outcome(kind, key).is_some();
        ours && match kind {
            ConsumerKind::Service => self
                .stores
                .services
                .get(key)
                .is_some_and(|it| it.exposure == Exposure::LoadBalancer),
            ConsumerKind::Ingress => true,
            ConsumerKind::LoadBalancer => false,
        }
    }

    /// The uid of a Service, ours or not.
    pub fn service_uid(&self, key: &ObjectKey) -> Option<Arc<str>> {
        self.stores.services.get(key).map(|service| service.uid.clone())
    }

    /// The plan of a load balancer, sorted by consumer and part.
    pub fn fragments(&self, lb: &str) -> impl Iterator<Item = &Arc<Fragment>> {
        self.output.consumers(lb).flat_map(move |who| self.output.parts_on(who, lb))
    }

    /// The parts of one consumer on one load balancer.
    pub fn parts_on(&self, lb: &str, kind: ConsumerKind, key: &ObjectKey) -> &[Arc<Fragment>] {
        self.output.parts_on(&ConsumerKey { kind, key: key.clone() }, lb)
    }

    /// The outcomes of consumers that are still served by a load balancer from which they move, until
    /// [`super::Event::Arrived`].
    pub fn moving(&self) -> impl Iterator<Item = &Outcome> {
        self.output.moving()
    }

    /// The parts of one consumer on its load balancer.
    pub fn parts(&self, kind: ConsumerKind, key: &ObjectKey) -> &[Arc<Fragment>] {
        self.output.parts(&ConsumerKey { kind, key: key.clone() })
    }

    /// The hash of a load balancer's plan: the sum of its fragments' hashes.
    pub fn hash(&self, lb: &str) -> PlanHash {
        self.output.hash(lb)
    }

    /// The Services and Ingresses that are placed on a load balancer, sorted.
    pub fn consumers(&self, lb: &str) -> impl Iterator<Item = &ConsumerRef> {
        self.on(lb).filter_map(|outcome| {
            let planned = matches!(outcome.state, State::Planned { .. });
            let itself = outcome.consumer.kind == ConsumerKind::LoadBalancer;
            (planned && !itself).then_some(&outcome.consumer)
        })
    }

    /// The outcomes of consumers that a load balancer refused, in whole or in part; sorted.
    pub fn refused(&self, lb: &str) -> impl Iterator<Item = &Outcome> {
        self.output.refused(lb)
    }

    fn on(&self, lb: &str) -> impl Iterator<Item = &Outcome> {
        self.output.consumers(lb).filter_map(|who| self.output.outcome(who))
    }

    /// All load balancers, sorted by name.
    pub fn load_balancers(&self) -> impl Iterator<Item = &Arc<LoadBalancer>> {
        self.stores.directory.store.iter()
    }

    /// The load balancer of this name.
    pub fn load_balancer(&self, name: &str) -> Option<&Arc<LoadBalancer>> {
        self.stores.directory.by_name(name)
    }

    /// The addresses of a load balancer, sorted: its fixed ones, else those of its AddressPool, else those that its
    /// agents report. Draining ones are left out.
    pub fn addresses(&self, lb: &LoadBalancer) -> Vec<IpAddr> {
        let (mut all, draining) = (self.stores.directory.addresses(lb), self.draining(lb));
        all.retain(|address| !draining.contains(address));
        all
    }

    /// Addresses of its AddressPool that a load balancer has only for a while, beside the others.
    pub fn draining(&self, lb: &LoadBalancer) -> &[IpAddr] {
        self.stores.directory.draining(lb)
    }

    /// The certificates that a load balancer's plan needs, by hash.
    pub fn certificates(&self, lb: &str) -> &NeededCertificates {
        self.output.certificates(lb)
    }

    /// A number that changes whenever the certificates of a load balancer change.
    pub fn certificates_revision(&self, lb: &str) -> u64 {
        self.output.certificates_revision(lb)
    }

    /// How many times a consumer was visited so far: the cost of events.
    pub fn visited(&self) -> u64 {
        self.visited
    }
}
