//! The leader's index: which consumer is on which load balancer, and what it wants there. It is told
//! of objects one by one and plans again only what an object touches.
//!
//! ```text
//!  handle: store ── equal? nothing ── different ─▶ reverse edges ─▶ dirty
//!
//!  take:   dirty ─▶ seat: ours? placement, may it? ─▶ wanted ports, hosts, paths
//!                                                        │ recorded holders keep them, else the
//!                                                        │ oldest; a holder changed: its contenders
//!                ─▶ build: objects + won ports and hosts ─▶ fragment, outcome
//!                                                        │ different from before
//!                ─▶ output: changes, hash, certificates
//! ```

mod admitted;
mod assignments;
mod build;
mod certificates;
mod consumer;
mod directory;
mod edges;
mod hosts;
mod index;
mod ingress;
mod moves;
mod output;
mod parts;
mod placement;
mod pools;
mod ports;
mod read;
mod recorded;
mod requests;
mod routes;
mod service;
mod store;
mod stores;
mod tls;
mod web;

#[cfg(test)]
mod tests;

pub use admitted::Read;
pub use certificates::{NeededCertificate, NeededCertificates};
pub use index::Planner;
pub use placement::{Ask, Asked, By, NotOurs, Why};
pub use recorded::Record;
pub use requests::{Grant, NOT_RECORDED};

use crate::admission::Decision;
use crate::key::{ConsumerKind, ConsumerRef, ObjectKey};
use crate::objects::{
    Ingress, IngressClass, LoadBalancer, LoadBalancerClaim, Namespace, Service, TlsSecret,
};
use crate::outcome::Outcome;
use crate::plan::Fragment;
use crate::resources::Amounts;
use crate::update::Extent;
use std::net::IpAddr;
use std::sync::Arc;

/// What the planner is set to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Whether Services without a class are ours.
    pub default_class: bool,
    /// Where consumers go that ask for nothing in particular.
    pub default_load_balancer: Option<Arc<str>>,
}

/// Kinds that the planner is told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Service.
    Service,
    /// Ingress.
    Ingress,
    /// IngressClass.
    IngressClass,
    /// Secret of type kubernetes.io/tls.
    TlsSecret,
    /// Namespace.
    Namespace,
    /// LoadBalancer.
    LoadBalancer,
    /// LoadBalancerClaim.
    Claim,
}

/// An object that the planner is told of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    /// A Service.
    Service(Service),
    /// An Ingress.
    Ingress(Ingress),
    /// An IngressClass.
    IngressClass(IngressClass),
    /// A TLS Secret.
    TlsSecret(TlsSecret),
    /// A Namespace.
    Namespace(Namespace),
    /// A LoadBalancer.
    LoadBalancer(LoadBalancer),
    /// A LoadBalancerClaim.
    Claim(LoadBalancerClaim),
}

/// What the planner is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// All objects of a kind follow; those that do not are gone.
    Begin(Kind),
    /// An object as it is now.
    Apply(Box<Object>),
    /// An object is gone.
    Delete(Kind, ObjectKey),
    /// All objects of a kind have been told.
    Done(Kind),
    /// The addresses that the agent of a load balancer without fixed ones reports.
    Reported(Arc<str>, Vec<IpAddr>),
    /// The addresses that a Service or load balancer has from pools.
    Granted(ConsumerKind, ObjectKey, Grant),
    /// What a Plan object holds, as the API has it: told for every Plan that is seen, and with nothing
    /// in it for one that is gone. A consumer keeps the ports and hosts that it has there, and where a
    /// placement or address cannot be read, what is recorded stays.
    Recorded(Record),
    /// A Plan object is being written with this: until it is seen, what it held counts as well.
    Writing(Record),
    /// A write of the Plan with this number was refused, so nothing of it is there.
    WriteFailed(Arc<str>, u32),
    /// No write of a Plan is under way any more: only what was seen counts.
    WritesAbandoned,
    /// All that the agents of a load balancer do not serve for a consumer because they serve it for another.
    Unserved(Arc<str>, Vec<(ConsumerRef, Extent)>),
    /// Whether a consumer has a seat on a load balancer that counts them. None: it wants none any more.
    Admitted(ConsumerRef, Option<Decision>),
    /// With how much a consumer that belongs elsewhere stays on a load balancer that counts seats. None: it
    /// does not any more.
    Stays(ConsumerRef, Arc<str>, Option<Amounts>),
    /// The load balancer that has served a consumer for long enough: those before it may let go. None:
    /// it is on its way, or nobody knows.
    Arrived(ConsumerRef, Option<Arc<str>>),
}

/// What is different since the planner was last asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Fragments by load balancer; sorted.
    pub fragments: Vec<FragmentChange>,
    /// What became of consumers; sorted. None: it is gone, or is no longer ours.
    pub outcomes: Vec<(ConsumerRef, Option<Outcome>)>,
    /// Claims that others ask for than before, and how many do now; sorted.
    pub wanted: Vec<(ObjectKey, u32)>,
    /// Load balancers that other namespaces use than before, and which do now; sorted.
    pub users: Vec<(Arc<str>, Vec<Arc<str>>)>,
}

/// A fragment that is different.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FragmentChange {
    /// On which load balancer.
    pub load_balancer: Arc<str>,
    /// Whose.
    pub consumer: ConsumerRef,
    /// Its parts now; empty: it is gone.
    pub parts: Vec<Arc<Fragment>>,
}
