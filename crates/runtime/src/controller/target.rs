//! Targets: the objects that the leader reconciles, and the result of asking for a target's next write. It
//! decides nothing.

use super::kinds::KindId;
use super::writer::Write;
use bowline_core::addresses::HolderRef;
use bowline_core::binder::Subject;
use bowline_core::clock::Uptime;
use bowline_core::key::{ConsumerKind, ConsumerRef, ObjectKey};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// An object, or several that belong together, which the leader reconciles independently of others. `write_queue`
/// orders them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Target {
    /// A read that confirms that the holder named by an Address exists.
    Holder(HolderRef),
    /// A read that confirms that a claim or load balancer is deleted.
    Subject(Subject),
    /// A read that confirms that a consumer has left a load balancer on which it has a seat.
    Leaver(ConsumerRef, Arc<str>),
    /// The claimRef and the seats of a LoadBalancer.
    Binding(Arc<str>),
    /// The finalizers and the status of a LoadBalancerClaim.
    Claim(ObjectKey),
    /// An Address object.
    Address(IpAddr),
    /// What the status of an Address says of its announcement.
    Announced(IpAddr),
    /// The Secret with the key that signs the cookies of a load balancer.
    Cookies(Arc<str>),
    /// The Secrets with certificates of a load balancer.
    Certificates(Arc<str>),
    /// The Plans of a load balancer.
    Plans(Arc<str>),
    /// The status of a Service or Ingress.
    Consumer(ConsumerKind, ObjectKey),
    /// The status of a LoadBalancer.
    LoadBalancer(Arc<str>),
    /// The finalizers and the status of an object of one of the kinds in `kinds`.
    Object(KindId, ObjectKey),
    /// Entries of dead agents in the Lease of a load balancer.
    Agents(Arc<str>),
    /// Recycling or deprovisioning a LoadBalancer after its claim is deleted.
    Job(Arc<str>),
    /// The objects that serve a LoadBalancer of a class.
    Provision(Arc<str>),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Holder(holder) => write!(f, "the holder {}", holder.key),
            Self::Subject(_) => f.write_str("a claim or load balancer that seems to be deleted"),
            Self::Leaver(consumer, lb) => write!(f, "the seat of {consumer} on load balancer {lb}"),
            Self::Binding(lb) => write!(f, "the binding of LoadBalancer {lb}"),
            Self::Claim(key) => write!(f, "LoadBalancerClaim {key}"),
            Self::Address(address) => write!(f, "Address {address}"),
            Self::Announced(address) => write!(f, "the status of Address {address}"),
            Self::Cookies(lb) => write!(f, "the cookie Secret of load balancer {lb}"),
            Self::Certificates(lb) => write!(f, "the certificates of load balancer {lb}"),
            Self::Plans(lb) => write!(f, "a Plan of load balancer {lb}"),
            Self::Consumer(kind, key) => write!(f, "the status of {kind} {key}"),
            Self::LoadBalancer(lb) => write!(f, "the status of LoadBalancer {lb}"),
            Self::Object(kind, key) if key.namespace.is_empty() => {
                write!(f, "{kind:?} {}", key.name)
            }
            Self::Object(kind, key) => write!(f, "{kind:?} {key}"),
            Self::Agents(lb) => write!(f, "the agents' Lease of load balancer {lb}"),
            Self::Job(lb) => write!(f, "the end of LoadBalancer {lb}"),
            Self::Provision(lb) => write!(f, "the objects that serve LoadBalancer {lb}"),
        }
    }
}

impl Target {
    /// Another target with the same object: the two are never written at the same time.
    pub(super) fn twin(&self) -> Option<Self> {
        match self {
            Self::Binding(lb) => Some(Self::LoadBalancer(Arc::clone(lb))),
            Self::LoadBalancer(lb) => Some(Self::Binding(Arc::clone(lb))),
            Self::Address(address) => Some(Self::Announced(*address)),
            Self::Announced(address) => Some(Self::Address(*address)),
            _ => None,
        }
    }
}

/// What a target needs next.
#[derive(Debug)]
pub(super) enum Next {
    /// The target is up to date, or waits for an event.
    Nothing,
    /// This write, and the object and version that it replaces.
    Write(Write, Tried),
    /// Requeue the target at this time.
    Later(Uptime),
}

/// The object that a write replaces.
#[derive(Clone, Debug, Default)]
pub(super) struct Tried {
    /// The name of a Plan or Secret, because a target has several of them. Empty: the target itself names the
    /// object.
    pub(super) name: String,
    /// The object's version. None: it did not exist.
    pub(super) version: Option<String>,
}

impl Tried {
    /// Whether the write creates the object.
    pub(super) fn creates(&self) -> bool {
        self.version.is_none() && !self.name.is_empty()
    }

    /// The object that the target itself names, at this version.
    pub(super) fn at(version: &str) -> Self {
        Self { name: String::new(), version: Some(version.to_owned()) }
    }
}
