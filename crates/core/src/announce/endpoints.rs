//! The nodes on which a Service has endpoints that take traffic, from its EndpointSlices. Endpoints that are going away
//! count only while the Service has no other one, as for kube-proxy.

use crate::key::ObjectKey;
use crate::objects::Slice;
use crate::relist::{Epoch, Relist};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How many endpoints a node has: ready ones, and ones that still answer while they go away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    ready: u32,
    leaving: u32,
}

#[derive(Debug)]
struct OneSlice {
    service: ObjectKey,
    /// None: an endpoint on no known node.
    nodes: Vec<(Option<Arc<str>>, Counts)>,
    epoch: Epoch,
}

#[derive(Debug, Default)]
struct OfService {
    nodes: BTreeMap<Option<Arc<str>>, Counts>,
    total: Counts,
}

impl OfService {
    fn takes_traffic(&self, counts: Counts) -> bool {
        if self.total.ready > 0 { counts.ready > 0 } else { counts.leaving > 0 }
    }
}

/// The endpoints of all Services.
#[derive(Debug, Default)]
pub(super) struct Endpoints {
    slices: FxHashMap<ObjectKey, OneSlice>,
    services: FxHashMap<ObjectKey, OfService>,
    /// Names of nodes, each once.
    names: BTreeSet<Arc<str>>,
}

impl Endpoints {
    /// Whether any node has an endpoint that takes traffic.
    pub(super) fn any(&self, service: &ObjectKey) -> bool {
        let of = self.services.get(service);
        of.is_some_and(|it| it.total.ready > 0 || it.total.leaving > 0)
    }

    /// Whether a node has an endpoint that takes traffic.
    pub(super) fn on(&self, service: &ObjectKey, node: &Arc<str>) -> bool {
        let Some(of) = self.services.get(service) else { return false };
        let counts = of.nodes.get(&Some(node.clone()));
        counts.is_some_and(|counts| of.takes_traffic(*counts))
    }

    /// The nodes with an endpoint that takes traffic, by name.
    pub(super) fn nodes(&self, service: &ObjectKey) -> impl Iterator<Item = &Arc<str>> {
        let of = self.services.get(service);
        of.into_iter().flat_map(|of| {
            let taking = of.nodes.iter().filter(|(_, counts)| of.takes_traffic(**counts));
            taking.filter_map(|(node, _)| node.as_ref())
        })
    }

    /// Takes in a slice. Returns the Services that it concerns: its own, and the one that it belonged to before.
    pub(super) fn apply(&mut self, slice: &Slice, epoch: Epoch) -> [Option<ObjectKey>; 2] {
        let before = self.delete(&slice.key);
        let Some(service) = &slice.service else { return [before, None] };
        let service = ObjectKey::new(slice.key.namespace.clone(), service.clone());
        let mut nodes = BTreeMap::<Option<Arc<str>>, Counts>::new();
        for endpoint in &slice.endpoints {
            let counts = Counts {
                ready: u32::from(endpoint.ready),
                leaving: u32::from(!endpoint.ready && endpoint.serving && endpoint.terminating),
            };
            if counts != Counts::default() {
                let node = endpoint.node.as_ref().map(|node| self.intern(node));
                let sum = nodes.entry(node).or_default();
                sum.ready += counts.ready;
                sum.leaving += counts.leaving;
            }
        }
        let nodes: Vec<_> = nodes.into_iter().collect();
        if !nodes.is_empty() {
            let of = self.services.entry(service.clone()).or_default();
            for (node, counts) in &nodes {
                let sum = of.nodes.entry(node.clone()).or_default();
                sum.ready += counts.ready;
                sum.leaving += counts.leaving;
                of.total.ready += counts.ready;
                of.total.leaving += counts.leaving;
            }
        }
        let slice_seen = OneSlice { service: service.clone(), nodes, epoch };
        self.slices.insert(slice.key.clone(), slice_seen);
        [before, Some(service)]
    }

    fn intern(&mut self, name: &Arc<str>) -> Arc<str> {
        match self.names.get(name) {
            Some(known) => known.clone(),
            None => {
                self.names.insert(name.clone());
                name.clone()
            }
        }
    }

    /// Forgets a slice. Returns its Service.
    pub(super) fn delete(&mut self, key: &ObjectKey) -> Option<ObjectKey> {
        let OneSlice { service, nodes, .. } = self.slices.remove(key)?;
        if let Some(of) = self.services.get_mut(&service) {
            for (node, counts) in nodes {
                of.total.ready -= counts.ready;
                of.total.leaving -= counts.leaving;
                if let Some(sum) = of.nodes.get_mut(&node) {
                    sum.ready -= counts.ready;
                    sum.leaving -= counts.leaving;
                    if *sum == Counts::default() {
                        of.nodes.remove(&node);
                    }
                }
            }
            if of.nodes.is_empty() {
                self.services.remove(&service);
            }
        }
        Some(service)
    }

    /// The slices that the last list did not deliver.
    pub(super) fn missed(&self, relist: &Relist) -> Vec<ObjectKey> {
        relist.missed(&self.slices, |slice| slice.epoch)
    }
}
