//! The load balancers: by name, by source, and the external ones. It finds the load balancer that a consumer asks for.
//! Whether the consumer may use it is decided by [`super::placement`].

use super::address_requests::Grant;
use super::edges::Edges;
use super::store::{Replaced, Store};
use crate::key::ObjectKey;
use crate::objects::LoadBalancer;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

/// The most load balancers that are searched for a name that somebody may have meant.
const MOST_NAMED: usize = 1_000;

/// The addresses that a load balancer has from its AddressPool, sorted.
#[derive(Debug, PartialEq, Eq)]
struct Granted {
    served: Vec<IpAddr>,
    /// Those of `served` that it has only for a while.
    draining: Vec<IpAddr>,
}

#[derive(Debug, Default)]
pub(super) struct Directory {
    pub(super) store: Store<Arc<str>, LoadBalancer>,
    sources: Edges<Arc<str>, Arc<str>>,
    external: BTreeSet<Arc<str>>,
    /// External load balancers that are being deleted.
    leaving_external: BTreeSet<Arc<str>>,
    /// Load balancers by the claim that they name.
    claimed: Edges<ObjectKey, Arc<str>>,
    /// Load balancers by their door.
    doors: Edges<ObjectKey, Arc<str>>,
    reported: FxHashMap<Arc<str>, Vec<IpAddr>>,
    granted: FxHashMap<Arc<str>, Granted>,
}

impl Directory {
    /// Follows a change of the store.
    pub(super) fn follow(&mut self, change: &Replaced<LoadBalancer>) {
        let claim = |lb: &LoadBalancer| lb.claim.as_ref().map(|(claim, _)| claim.clone());
        if let Some((old, claim)) = change.old.as_deref().and_then(|lb| Some((lb, claim(lb)?))) {
            self.claimed.remove(&claim, &old.name);
        }
        if let Some((new, claim)) = change.new.as_deref().and_then(|lb| Some((lb, claim(lb)?))) {
            self.claimed.insert(claim, new.name.clone());
        }
        if let Some((old, door)) = change.old.as_ref().and_then(|lb| Some((lb, lb.door.as_ref()?)))
        {
            self.doors.remove(door, &old.name);
        }
        if let Some((new, door)) = change.new.as_ref().and_then(|lb| Some((lb, lb.door.as_ref()?)))
        {
            self.doors.insert(door.clone(), new.name.clone());
        }
        if let Some(old) = change.old.as_deref() {
            self.sources.remove(&old.source, &old.name);
            self.external.remove(&old.name);
            self.leaving_external.remove(&old.name);
        }
        if let Some(new) = change.new.as_deref() {
            self.sources.insert(new.source.clone(), new.name.clone());
            if new.external {
                let all = match new.deleting {
                    true => &mut self.leaving_external,
                    false => &mut self.external,
                };
                all.insert(new.name.clone());
            }
        }
    }

    pub(super) fn by_name(&self, name: &str) -> Option<&Arc<LoadBalancer>> {
        self.store.get(name)
    }

    /// The first load balancers by name, for a message: it costs no more where there are many.
    pub(super) fn names(&self) -> impl Iterator<Item = &Arc<LoadBalancer>> {
        self.store.iter().take(MOST_NAMED)
    }

    /// The load balancers with this source, by name.
    pub(super) fn by_source(&self, source: &str) -> impl Iterator<Item = &Arc<LoadBalancer>> {
        self.sources.of(source).filter_map(|name| self.store.get(name))
    }

    /// The load balancers that name this claim.
    pub(super) fn naming(&self, claim: &ObjectKey) -> impl Iterator<Item = &Arc<LoadBalancer>> {
        self.claimed.of(claim).filter_map(|name| self.store.get(name))
    }

    /// The load balancers with this door.
    pub(super) fn behind(&self, door: &ObjectKey) -> impl Iterator<Item = &Arc<LoadBalancer>> {
        self.doors.of(door).filter_map(|name| self.store.get(name))
    }

    /// The external load balancer, while there is exactly one. Those that are being deleted count only if there is no
    /// other one.
    pub(super) fn only_external(&self) -> Option<&Arc<LoadBalancer>> {
        let all = if self.external.is_empty() { &self.leaving_external } else { &self.external };
        let name = all.first().filter(|_| all.len() == 1)?;
        self.store.get(name)
    }

    /// Notes the addresses that agents report. True: the addresses of the load balancer changed.
    pub(super) fn report(&mut self, name: Arc<str>, mut addresses: Vec<IpAddr>) -> bool {
        addresses.sort_unstable();
        addresses.dedup();
        let own = |lb: &Arc<LoadBalancer>| !lb.addresses.is_empty() || lb.address_pool.is_some();
        let fixed = self.store.get(&name).is_some_and(own);
        let old = if addresses.is_empty() {
            self.reported.remove(&name)
        } else {
            self.reported.insert(name.clone(), addresses)
        };
        !fixed && self.reported.get(&name) != old.as_ref()
    }

    /// Notes the addresses from an AddressPool. True: the addresses of the load balancer changed.
    pub(super) fn grant(&mut self, name: &Arc<str>, grant: &Grant) -> bool {
        let (served, draining) = (grant.served(), grant.draining.clone());
        let old = match served.is_empty() {
            true => self.granted.remove(name),
            false => self.granted.insert(name.clone(), Granted { served, draining }),
        };
        self.granted.get(name) != old.as_ref()
    }

    /// Those of its addresses that it has only for a while. They are served, and shown in no status that does not show
    /// them already.
    pub(super) fn draining(&self, lb: &LoadBalancer) -> &[IpAddr] {
        let from_pool = lb.addresses.is_empty() && lb.address_pool.is_some();
        let granted = self.granted.get(&lb.name).filter(|_| from_pool);
        granted.map_or(&[], |granted| &granted.draining)
    }

    /// Its addresses, sorted: fixed ones, else those of its AddressPool, else those that its agents report.
    pub(super) fn addresses(&self, lb: &LoadBalancer) -> Vec<IpAddr> {
        if lb.addresses.is_empty() {
            let from = match lb.address_pool.is_some() {
                true => self.granted.get(&lb.name).map(|granted| &granted.served),
                false => self.reported.get(&lb.name),
            };
            return from.cloned().unwrap_or_default();
        }
        let mut addresses = lb.addresses.clone();
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }
}
