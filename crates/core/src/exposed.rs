//! What kube2lb's templates see: all Services of type LoadBalancer and NodePort, whatever their class, with their
//! endpoints, and the names of the nodes. It owns the objects and builds a [`view::View`] of them; it places nothing
//! and knows no plan. The runtime's template role feeds it watch events.
//!
//! ```text
//!  Services, EndpointSlices, Nodes ─▶ Exposed ─▶ Cluster (what a template is given)
//!                                        └─────▶ Told    (what is left out, and why)
//! ```

mod contend;
mod crowd;
pub mod foreign;
pub mod held;
pub mod text;
pub mod view;

use crate::key::ObjectKey;
use crate::objects::{Family, Slice, Timestamp};
use crate::outcome::Problem;
use crate::plan::Transport;
use crate::relist::{Epoch, Relist};
use held::Held;
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use text::ServerName;

/// A Service that is exposed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Namespace and name.
    pub key: ObjectKey,
    /// Its uid.
    pub uid: Arc<str>,
    /// When it was created: the older of two wins.
    pub created: Timestamp,
    /// The address it asks for; only a Service of type LoadBalancer can.
    pub address: Option<IpAddr>,
    /// The family of the endpoints that count: the old Endpoints API has only one.
    pub family: Family,
    /// Its ports.
    pub ports: Vec<Port>,
    /// Its further names.
    pub external: Vec<ServerName>,
    /// Clients that may use it; empty: all.
    pub source_ranges: Vec<IpNet>,
    /// Why it is left out: a text that cannot be read, or one that a template must not see.
    pub refused: Option<Problem>,
    /// What was not understood of it, although it is served.
    pub problems: Vec<Problem>,
}

/// A port of an exposed Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its name; empty for the only port.
    pub name: Arc<str>,
    /// Its number.
    pub number: u16,
    /// Its protocol.
    pub transport: Transport,
    /// Its node port.
    pub node_port: Option<u16>,
    /// Its mode if the Service says one, in lower case.
    pub mode: Option<Arc<str>>,
    /// Milliseconds that a member may be silent.
    pub timeout_ms: Option<u32>,
}

/// Kinds that are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Services.
    Service,
    /// EndpointSlices.
    Slice,
    /// Nodes.
    Node,
}

/// An object as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    /// A Service that is exposed.
    Service(Service),
    /// An EndpointSlice.
    Slice(Slice),
    /// A Node, by its name.
    Node(Arc<str>),
}

/// An event of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A list of all objects of a kind begins; an object that it does not deliver is gone.
    Begin(Kind),
    /// An object as it is now.
    Apply(Object),
    /// An object is gone, or is exposed no more.
    Delete(Kind, ObjectKey),
    /// The list of a kind has ended.
    Done(Kind),
}

/// Objects by name, each with the last list that delivered it.
type Store<T> = BTreeMap<ObjectKey, (Epoch, T)>;

/// The objects that are known, and what Services had in the last view.
#[derive(Debug, Default)]
pub struct Exposed {
    services: Store<Service>,
    slices: Store<Slice>,
    nodes: Store<()>,
    /// The slices of each Service.
    slices_of: BTreeMap<ObjectKey, BTreeSet<ObjectKey>>,
    /// The lists of each kind.
    relists: [Relist; 3],
    dirty: bool,
    /// The endpoints that the last view had.
    crowds: crowd::Crowds,
    /// What Services have in the last files.
    held: Held,
}

impl Exposed {
    /// Starts without objects.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets what Services have in the last files: they keep it while they ask for it.
    pub fn hold(&mut self, held: Held) {
        self.held = held;
    }

    /// What Services have in the last files.
    pub fn held(&self) -> &Held {
        &self.held
    }

    /// Whether all kinds have been listed at least once.
    pub fn synced(&self) -> bool {
        self.relists.iter().all(Relist::is_listed)
    }

    /// Whether a view may differ from the one that was taken last. Taking one resets this.
    pub fn is_dirty(&self) -> bool {
        self.dirty
    }

    /// Observes an event.
    pub fn handle(&mut self, event: Event) {
        match event {
            Event::Begin(kind) => self.relists[kind as usize].begin(),
            Event::Apply(object) => self.apply(object),
            Event::Delete(kind, key) => self.delete(kind, &key),
            Event::Done(kind) => {
                self.dirty |= self.relists[kind as usize].done();
                for key in self.missed(kind) {
                    self.delete(kind, &key);
                }
            }
        }
    }

    fn apply(&mut self, object: Object) {
        match object {
            Object::Service(service) => {
                let epoch = self.relists[Kind::Service as usize].epoch();
                self.dirty |= put(&mut self.services, service.key.clone(), service, epoch);
            }
            Object::Node(name) => {
                let epoch = self.relists[Kind::Node as usize].epoch();
                self.dirty |= put(&mut self.nodes, ObjectKey::new("", name), (), epoch);
            }
            Object::Slice(slice) => self.apply_slice(slice),
        }
    }

    fn apply_slice(&mut self, slice: Slice) {
        let key = slice.key.clone();
        let owner = owner(&slice);
        if let Some((_, old)) = self.slices.get(&key)
            && self::owner(old) != owner
        {
            self.delete(Kind::Slice, &key);
        }
        if let Some(owner) = &owner {
            self.slices_of.entry(owner.clone()).or_default().insert(key.clone());
        }
        let epoch = self.relists[Kind::Slice as usize].epoch();
        // A slice of a Service that is not exposed changes nothing.
        let seen = owner.is_some_and(|owner| self.services.contains_key(&owner));
        self.dirty |= put(&mut self.slices, key, slice, epoch) && seen;
    }

    fn delete(&mut self, kind: Kind, key: &ObjectKey) {
        match kind {
            Kind::Service => self.dirty |= self.services.remove(key).is_some(),
            Kind::Node => self.dirty |= self.nodes.remove(key).is_some(),
            Kind::Slice => {
                let Some((_, slice)) = self.slices.remove(key) else { return };
                let Some(owner) = owner(&slice) else { return };
                self.dirty |= self.services.contains_key(&owner);
                if let Some(slices) = self.slices_of.get_mut(&owner) {
                    slices.remove(key);
                    if slices.is_empty() {
                        self.slices_of.remove(&owner);
                    }
                }
            }
        }
    }

    /// Objects of a kind that the last list did not deliver.
    fn missed(&self, kind: Kind) -> Vec<ObjectKey> {
        let relist = self.relists[kind as usize];
        match kind {
            Kind::Service => relist.missed(&self.services, |(epoch, _)| *epoch),
            Kind::Slice => relist.missed(&self.slices, |(epoch, _)| *epoch),
            Kind::Node => relist.missed(&self.nodes, |(epoch, _)| *epoch),
        }
    }

    fn slices(&self, service: &ObjectKey) -> impl Iterator<Item = &Slice> {
        let keys = self.slices_of.get(service).into_iter().flatten();
        keys.filter_map(|key| self.slices.get(key).map(|(_, slice)| slice))
    }
}

/// Stores an object. Returns whether it is new or different.
fn put<T: PartialEq>(store: &mut Store<T>, key: ObjectKey, value: T, epoch: Epoch) -> bool {
    match store.get_mut(&key) {
        Some((observed, old)) => {
            *observed = epoch;
            let different = *old != value;
            *old = value;
            different
        }
        None => {
            store.insert(key, (epoch, value));
            true
        }
    }
}

/// The Service that a slice belongs to.
fn owner(slice: &Slice) -> Option<ObjectKey> {
    let name = slice.service.clone()?;
    Some(ObjectKey { namespace: slice.key.namespace.clone(), name })
}

#[cfg(test)]
mod tests;
