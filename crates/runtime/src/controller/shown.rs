//! What the statuses of objects show now, as far as the leader writes them. Values come from watches and
//! from the answers to the leader's writes; the newer one wins. Nothing else of the objects is kept.

use crate::watch::is_older;
use bowline_api::claim::ClaimPhase;
use bowline_api::load_balancer::LoadBalancerStatus;
use bowline_api::provisioned_objects::Made;
use bowline_api::{LoadBalancer, LoadBalancerClaim, LoadBalancerClaimStatus, convert, names};
use bowline_core::lines::{self, State};
use bowline_core::relist::{Epoch, Relist};
use bowline_core::{admission, binder};
use k8s_openapi::api::core::v1::{LoadBalancerIngress, Service};
use k8s_openapi::api::networking::v1::{Ingress, IngressLoadBalancerIngress};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use std::collections::HashMap;
use std::hash::Hash;

/// The status of an object, with the resourceVersion at which it was read.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Shown<S> {
    pub(super) version: Box<str>,
    pub(super) generation: i64,
    pub(super) status: S,
}

impl<S> Shown<S> {
    pub(super) fn new(metadata: &ObjectMeta, status: S) -> Self {
        Self {
            version: metadata.resource_version.as_deref().unwrap_or_default().into(),
            generation: metadata.generation.unwrap_or(0),
            status,
        }
    }
}

/// The status of a Service.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ServiceShown {
    pub(super) ingress: Vec<LoadBalancerIngress>,
    pub(super) conditions: Vec<Condition>,
}

impl Shown<ServiceShown> {
    pub(super) fn of(service: &Service) -> Self {
        let status = service.status.clone().unwrap_or_default();
        let shown = ServiceShown {
            ingress: status.load_balancer.and_then(|it| it.ingress).unwrap_or_default(),
            conditions: status.conditions.unwrap_or_default(),
        };
        Self::new(&service.metadata, shown)
    }
}

impl Shown<Vec<IngressLoadBalancerIngress>> {
    pub(super) fn of(ingress: &Ingress) -> Self {
        let status = ingress.status.as_ref().and_then(|it| it.load_balancer.as_ref());
        let points = status.and_then(|it| it.ingress.clone()).unwrap_or_default();
        Self::new(&ingress.metadata, points)
    }
}

/// What the leader keeps of a LoadBalancer beside the planner's part.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LoadBalancerShown {
    pub(super) status: LoadBalancerStatus,
    /// Whether this build has a driver for its source.
    pub(super) driven: bool,
    /// The load balancer in the binder's terms.
    pub(super) known: binder::LoadBalancer,
    /// The load balancer in admission's terms. None: it does not count seats.
    pub(super) seating: Option<admission::LoadBalancer>,
    pub(super) finalizers: Vec<String>,
    /// The objects that its class provisions in the cluster. None: its class provisions none there.
    pub(super) made: Option<Made>,
}

impl Shown<LoadBalancerShown> {
    pub(super) fn of(load_balancer: &LoadBalancer) -> Self {
        let shown = LoadBalancerShown {
            status: load_balancer.status.clone().unwrap_or_default(),
            driven: super::has_driver(&load_balancer.spec.source),
            known: convert::bindable(load_balancer),
            seating: convert::seating(load_balancer),
            made: Made::of(load_balancer),
            finalizers: load_balancer.metadata.finalizers.clone().unwrap_or_default(),
        };
        Self::new(&load_balancer.metadata, shown)
    }
}

/// What the leader keeps of a LoadBalancerClaim.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ClaimShown {
    pub(super) known: binder::Claim,
    pub(super) status: LoadBalancerClaimStatus,
    pub(super) finalizers: Vec<String>,
}

impl Shown<ClaimShown> {
    pub(super) fn of(claim: &LoadBalancerClaim) -> Self {
        let shown = ClaimShown {
            known: convert::claim(claim),
            status: claim.status.clone().unwrap_or_default(),
            finalizers: claim.metadata.finalizers.clone().unwrap_or_default(),
        };
        Self::new(&claim.metadata, shown)
    }
}

impl ClaimShown {
    /// The state of it that `bowline up` prints. None: nothing is decided yet.
    pub(super) fn state(&self) -> Option<State> {
        let bound = self.status.phase == Some(ClaimPhase::Bound);
        let lb = self.status.load_balancer_name.as_deref().filter(|_| bound);
        let mut conditions = self.status.conditions.iter();
        let waits = conditions.find(|it| it.type_ == names::CONDITION_BOUND);
        lines::claim(lb, waits.map(|it| (it.reason.as_str(), it.message.as_str())))
    }
}

/// A Secret with the key that signs cookies, as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CookiesShown {
    /// The uid of the load balancer that owns it, if its label is right too.
    pub(super) owner: Option<String>,
    /// Whether agents can use it.
    pub(super) readable: bool,
}

/// The statuses of one kind, by object.
#[derive(Debug)]
pub(super) struct Board<K, S> {
    shown: HashMap<K, (Epoch, Shown<S>)>,
    relist: Relist,
}

impl<K, S> Default for Board<K, S> {
    fn default() -> Self {
        Self { shown: HashMap::new(), relist: Relist::default() }
    }
}

impl<K: Hash + Eq, S> Board<K, S> {
    pub(super) fn get(&self, key: &K) -> Option<&Shown<S>> {
        self.shown.get(key).map(|(_, shown)| shown)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &K> {
        self.shown.keys()
    }

    /// Begins a list.
    pub(super) fn begin(&mut self) {
        self.relist.begin();
    }

    /// Takes in a status. A watch may be behind the answer to a write: the older status is ignored.
    pub(super) fn put(&mut self, key: K, shown: Shown<S>) {
        let epoch = self.relist.epoch();
        match self.shown.get_mut(&key) {
            Some((seen, known)) if is_older(&shown.version, &known.version) => *seen = epoch,
            _ => drop(self.shown.insert(key, (epoch, shown))),
        }
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<Shown<S>> {
        self.shown.remove(key).map(|(_, shown)| shown)
    }

    /// Ends a list: forgets and returns the objects that it did not deliver.
    pub(super) fn done(&mut self) -> Vec<(K, Shown<S>)> {
        self.relist.done();
        let missed = self.shown.extract_if(|_, (epoch, _)| self.relist.has_missed(*epoch));
        missed.map(|(key, (_, shown))| (key, shown)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(version: &str) -> Shown<()> {
        Shown { version: version.into(), generation: 0, status: () }
    }

    #[test]
    fn a_watch_that_is_behind_does_not_undo_the_answer_to_a_write() {
        let mut board = Board::default();
        board.put("a", shown("10"));
        board.put("a", shown("9"));
        assert_eq!(board.get(&"a"), Some(&shown("10")));
        board.put("a", shown("11"));
        assert_eq!(board.get(&"a"), Some(&shown("11")));
    }

    #[test]
    fn what_a_new_list_does_not_show_is_gone() {
        let mut board = Board::default();
        board.begin();
        board.put("a", shown("1"));
        board.put("b", shown("2"));
        board.done();
        board.begin();
        board.put("b", shown("2"));
        board.done();
        assert_eq!(board.keys().collect::<Vec<_>>(), [&"b"]);
    }
}
