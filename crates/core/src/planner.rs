//! The leader's machine that places consumers on load balancers and makes their fragments. It gets objects one by one
//! and plans only what an object touches. It does no I/O; the controller's shell calls it.
//!
//! ```text
//!  handle: store ── equal? nothing ── different ─▶ reverse edges ─▶ dirty
//!
//!  take:   dirty ─▶ assign: ours? placement, usable? ─▶ wanted ports, hosts, paths
//!                                                        │ recorded holders keep them, else the
//!                                                        │ oldest; a holder changed: its contenders
//!                ─▶ build: objects + won ports and hosts ─▶ fragment, outcome
//!                                                        │ different from before
//!                ─▶ output: changes, hash, certificates
//! ```

mod address_requests;
mod admitted;
mod allowed_namespaces;
mod asked_load_balancer;
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
mod pools;
mod ports;
mod read;
mod recorded;
mod routes;
mod service;
mod store;
mod stores;
mod tls;
mod web;

#[cfg(test)]
mod tests;

pub use address_requests::{Grant, NOT_RECORDED};
pub use admitted::Read;
pub use asked_load_balancer::{Ask, Asked, By, NotOurs, Why};
pub use certificates::{NeededCertificate, NeededCertificates};
pub use index::Planner;
pub use recorded::Record;

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

/// The settings of the planner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Whether Services without a class belong to Bowline.
    pub default_class: bool,
    /// The load balancer of consumers that ask for none in particular.
    pub default_load_balancer: Option<Arc<str>>,
}

/// The kinds of objects that the planner gets.
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

/// An object that the planner gets.
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

/// An event for the planner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A list of all objects of a kind begins. Objects that it does not deliver are deleted.
    Begin(Kind),
    /// An object as it is now.
    Apply(Box<Object>),
    /// An object is deleted.
    Delete(Kind, ObjectKey),
    /// The list of all objects of a kind has ended.
    Done(Kind),
    /// The addresses that the agents of a load balancer without fixed addresses report.
    Reported(Arc<str>, Vec<IpAddr>),
    /// The addresses that a Service or load balancer has from AddressPools.
    Granted(ConsumerKind, ObjectKey, Grant),
    /// The content of a Plan object in the API: sent for every Plan that is observed, and without content for a deleted
    /// one. A consumer keeps the ports and hosts that are recorded for it. Where its placement or address cannot be
    /// read, the recorded one stays.
    Recorded(Record),
    /// A Plan object is being written with this content. Until it is observed, its old content counts as well.
    Writing(Record),
    /// The API refused a write of the Plan with this number, so none of it is recorded.
    WriteFailed(Arc<str>, u32),
    /// No write of a Plan is under way any more: only observed content counts.
    WritesAbandoned,
    /// All that the agents of a load balancer do not serve for one consumer because they serve it for another.
    Unserved(Arc<str>, Vec<(ConsumerRef, Extent)>),
    /// Whether a consumer has a seat on a load balancer that counts seats. None: it wants no seat any more.
    Admitted(ConsumerRef, Option<Decision>),
    /// The amounts with which a consumer that belongs elsewhere stays on a load balancer that counts seats. None: it
    /// does not stay any more.
    Stays(ConsumerRef, Arc<str>, Option<Amounts>),
    /// The load balancer that has served a consumer for long enough, so that earlier ones may release it. None: the
    /// consumer is still moving, or it is not known.
    Arrived(ConsumerRef, Option<Arc<str>>),
}

/// The changes since the planner was last asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Changed fragments, by load balancer; sorted.
    pub fragments: Vec<FragmentChange>,
    /// Changed outcomes of consumers; sorted. None: the consumer is gone, or no longer belongs to Bowline.
    pub outcomes: Vec<(ConsumerRef, Option<Outcome>)>,
    /// Claims for which the set of asking consumers changed, with the number of consumers; sorted.
    pub wanted: Vec<(ObjectKey, u32)>,
    /// Load balancers for which the set of using namespaces changed, with the namespaces; sorted.
    pub users: Vec<(Arc<str>, Vec<Arc<str>>)>,
}

/// A changed fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FragmentChange {
    /// The load balancer that it is on.
    pub load_balancer: Arc<str>,
    /// Its consumer.
    pub consumer: ConsumerRef,
    /// Its parts now. Empty: the fragment is gone.
    pub parts: Vec<Arc<Fragment>>,
}
