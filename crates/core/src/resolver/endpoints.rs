//! EndpointSlices of all Services, stored compactly: they may come before the plan that needs them. It finds the pools
//! that a slice touches, and the endpoints of a Service port; it applies no rules for members.

use super::names::Names;
use crate::key::ObjectKey;
use crate::objects::{Endpoint, Slice};
use crate::plan::{ServicePortRef, Transport};
use crate::relist::{Epoch, Relist};
use crate::update::{Member, MemberState};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Namespace and name of a Service, as numbers of [`Names`].
type ServiceId = (u32, u32);

/// Slices by name and by Service.
#[derive(Debug, Default)]
pub(super) struct Endpoints {
    names: Names,
    slices: BTreeMap<ObjectKey, (Epoch, Arc<Stored>)>,
    services: FxHashMap<ServiceId, Service>,
}

#[derive(Debug, Default)]
struct Service {
    slices: Vec<Arc<Stored>>,
    pools: Vec<Arc<str>>,
}

#[derive(Debug, PartialEq, Eq)]
struct Stored {
    service: ServiceId,
    ports: Box<[Port]>,
    endpoints: Box<[Address]>,
}

#[derive(Debug, PartialEq, Eq)]
struct Port {
    name: u32,
    number: u16,
    transport: Transport,
}

/// An endpoint that takes traffic, in 24 bytes.
#[derive(Debug, PartialEq, Eq)]
struct Address {
    ip: IpAddr,
    state: MemberState,
    node: u32,
}

/// Stands for the number of a missing node.
const NO_NODE: u32 = u32::MAX;

/// The state of an endpoint as a member. None: it is neither ready nor serving its last requests.
fn state(endpoint: &Endpoint) -> Option<MemberState> {
    if endpoint.ready {
        Some(MemberState::Ready)
    } else if endpoint.serving && endpoint.terminating {
        Some(MemberState::Draining)
    } else {
        None
    }
}

impl Endpoints {
    /// Takes a slice as it is now. Pools that it may change go into `dirty`.
    pub(super) fn apply(&mut self, slice: Slice, epoch: Epoch, dirty: &mut BTreeSet<Arc<str>>) {
        let Some(stored) = self.store(&slice) else {
            return self.delete(&slice.key, dirty);
        };
        if let Some((seen, old)) = self.slices.get_mut(&slice.key)
            && **old == stored
        {
            *seen = epoch;
            return self.release(&stored);
        }
        self.delete(&slice.key, dirty);
        let stored = Arc::new(stored);
        let service = self.services.entry(stored.service).or_default();
        dirty.extend(service.pools.iter().cloned());
        service.slices.push(stored.clone());
        let namespace = self.names.text(stored.service.0).clone();
        let key = ObjectKey { namespace, name: slice.key.name };
        self.slices.insert(key, (epoch, stored));
    }

    /// Forgets a slice.
    pub(super) fn delete(&mut self, key: &ObjectKey, dirty: &mut BTreeSet<Arc<str>>) {
        let Some((_, stored)) = self.slices.remove(key) else { return };
        if let Some(service) = self.services.get_mut(&stored.service) {
            service.slices.retain(|slice| !Arc::ptr_eq(slice, &stored));
            dirty.extend(service.pools.iter().cloned());
        }
        self.tidy(stored.service);
        self.release(&stored);
    }

    /// Forgets slices that the last list did not deliver.
    pub(super) fn sweep(&mut self, relist: Relist, dirty: &mut BTreeSet<Arc<str>>) {
        let missed = relist.missed(&self.slices, |(epoch, _)| *epoch);
        missed.iter().for_each(|key| self.delete(key, dirty));
    }

    /// Links a Service to a pool: slices of the Service touch the pool from now on.
    pub(super) fn link(&mut self, port: &ServicePortRef, pool: Arc<str>) {
        let id = (self.names.hold(&port.namespace), self.names.hold(&port.name));
        self.services.entry(id).or_default().pools.push(pool);
    }

    /// Undoes [`Self::link`].
    pub(super) fn unlink(&mut self, port: &ServicePortRef, pool: &str) {
        let Some(id) = self.id(port) else { return };
        let Some(service) = self.services.get_mut(&id) else { return };
        let Some(at) = service.pools.iter().position(|name| **name == *pool) else { return };
        service.pools.swap_remove(at);
        self.tidy(id);
        self.names.release(id.0);
        self.names.release(id.1);
    }

    /// The Pods of a Service port, unsorted. An address in several slices occurs several times.
    pub(super) fn pods(&self, port: &ServicePortRef) -> Vec<Member> {
        let mut members = Vec::new();
        self.each(port, |endpoint, number| {
            members.push(Member {
                address: SocketAddr::new(endpoint.ip, number),
                weight: 1,
                state: endpoint.state,
            });
        });
        members
    }

    /// The nodes with endpoints of a Service port, each with the best state of its endpoints.
    pub(super) fn nodes(&self, port: &ServicePortRef) -> BTreeMap<&Arc<str>, MemberState> {
        let mut nodes = BTreeMap::new();
        self.each(port, |endpoint, _| {
            if endpoint.node != NO_NODE {
                let best = nodes.entry(self.names.text(endpoint.node)).or_insert(endpoint.state);
                *best = endpoint.state.min(*best);
            }
        });
        nodes
    }

    fn each(&self, port: &ServicePortRef, mut see: impl FnMut(&Address, u16)) {
        let Some(service) = self.id(port).and_then(|id| self.services.get(&id)) else { return };
        let Some(name) = self.names.find(&port.port) else { return };
        for slice in &service.slices {
            let ports = slice.ports.iter();
            for found in ports.filter(|p| p.name == name && p.transport == port.protocol) {
                slice.endpoints.iter().for_each(|endpoint| see(endpoint, found.number));
            }
        }
    }

    fn id(&self, port: &ServicePortRef) -> Option<ServiceId> {
        Some((self.names.find(&port.namespace)?, self.names.find(&port.name)?))
    }

    /// The compact form of a slice. None: nothing in it could ever be a member.
    fn store(&mut self, slice: &Slice) -> Option<Stored> {
        let service = slice.service.as_ref()?;
        if slice.ports.is_empty() || !slice.endpoints.iter().any(|e| state(e).is_some()) {
            return None;
        }
        let names = &mut self.names;
        let service = (names.hold(&slice.key.namespace), names.hold(service));
        let ports = slice.ports.iter().map(|port| Port {
            name: names.hold(&port.name),
            number: port.number,
            transport: port.transport,
        });
        let ports = ports.collect();
        let endpoints = slice.endpoints.iter().filter_map(|endpoint| {
            Some(Address {
                ip: endpoint.address,
                state: state(endpoint)?,
                node: endpoint.node.as_ref().map_or(NO_NODE, |node| names.hold(node)),
            })
        });
        Some(Stored { service, ports, endpoints: endpoints.collect() })
    }

    fn release(&mut self, stored: &Stored) {
        let nodes = stored.endpoints.iter().map(|e| e.node).filter(|node| *node != NO_NODE);
        let ports = stored.ports.iter().map(|port| port.name);
        for id in nodes.chain(ports).chain([stored.service.0, stored.service.1]) {
            self.names.release(id);
        }
    }

    fn tidy(&mut self, id: ServiceId) {
        if self.services.get(&id).is_some_and(|s| s.slices.is_empty() && s.pools.is_empty()) {
            self.services.remove(&id);
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.names.len() == 0 && self.slices.is_empty() && self.services.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_takes_24_bytes_and_a_member_no_more_than_36() {
        assert_eq!(size_of::<Address>(), 24);
        assert!(size_of::<Member>() <= 36);
    }
}
