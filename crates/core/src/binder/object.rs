//! What the binder knows of objects: small values, already read into types. `bowline-api` makes them.

use super::report::{ClaimReport, Report};
use crate::addresses::{Labels, Scope};
use crate::key::ObjectKey;
use crate::objects::{AllowedNamespaces, LabelSelector, Namespace, Timestamp, Version};
use crate::outcome::Problem;
use crate::resources::Amounts;
use std::sync::Arc;

/// An object that the machine is told of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    /// A LoadBalancer.
    LoadBalancer(LoadBalancer),
    /// A LoadBalancerClaim.
    Claim(Claim),
    /// A LoadBalancerClass.
    Class(Class),
    /// A Namespace.
    Namespace(Namespace),
}

impl Object {
    /// Its resourceVersion; none for what is never written.
    pub(super) fn version(&self) -> Option<&Version> {
        match self {
            Self::LoadBalancer(lb) => Some(&lb.version),
            Self::Claim(claim) => Some(&claim.version),
            Self::Class(_) | Self::Namespace(_) => None,
        }
    }
}

/// What happens to a load balancer when its claim goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reclaim {
    /// It waits for a person.
    Retain,
    /// It is wiped and can be claimed again.
    Recycle,
    /// It is deleted.
    Delete,
}

/// The claim that has a load balancer, or, without uid, for which it is reserved.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClaimRef {
    /// Namespace and name.
    pub key: ObjectKey,
    /// Its uid.
    pub uid: Option<Arc<str>>,
}

/// What the leader writes into a load balancer beside its status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tie {
    /// `spec.claimRef`.
    pub claim: Option<ClaimRef>,
    /// Whether it has the finalizer `bowline.dev/in-use`.
    pub in_use: bool,
    /// Whether it has the finalizer `bowline.dev/cleanup`.
    pub cleanup: bool,
}

impl Tie {
    /// Whether this claim has it.
    pub fn is_of(&self, claim: &Claim) -> bool {
        let named = self.claim.as_ref();
        named.is_some_and(|it| it.key == claim.key && it.uid.as_ref() == Some(&claim.uid))
    }

    /// The uid of the claim that has it.
    pub fn uid(&self) -> Option<&Arc<str>> {
        self.claim.as_ref()?.uid.as_ref()
    }
}

/// A LoadBalancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadBalancer {
    /// Its name.
    pub name: Arc<str>,
    /// Its uid.
    pub uid: Arc<str>,
    /// Its resourceVersion.
    pub version: Version,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Its labels.
    pub labels: Labels,
    /// Who can reach it.
    pub scope: Scope,
    /// Its class.
    pub class: Option<Arc<str>>,
    /// What it can carry. Empty: no limit.
    pub capacity: Amounts,
    /// What happens when its claim goes.
    pub reclaim: Reclaim,
    /// Whether it is for use by name: then a claim gets it only where it is reserved for it.
    pub shared: bool,
    /// The claim it was made for, with its uid. None: somebody else made it.
    pub provisioned_for: Option<(ObjectKey, Arc<str>)>,
    /// The namespaces of those who have a seat on it; sorted.
    pub users: Vec<Arc<str>>,
    /// Whom it belongs to.
    pub tie: Tie,
    /// What its status says of that.
    pub report: Option<Report>,
}

/// A load balancer that is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewLoadBalancer {
    /// Its name.
    pub name: Arc<str>,
    /// The class that says what it is.
    pub class: Arc<str>,
    /// Who can reach it.
    pub scope: Scope,
    /// What it can carry. Empty: no limit.
    pub capacity: Amounts,
    /// What happens when its claim goes.
    pub reclaim: Reclaim,
    /// The claim it is made for: this is its `claimRef`, and is marked on it for good.
    pub claim: (ObjectKey, Arc<str>),
}

impl NewLoadBalancer {
    /// Whom it belongs to from the beginning.
    pub fn tie(&self) -> Tie {
        let (key, uid) = self.claim.clone();
        let claim = Some(ClaimRef { key, uid: Some(uid) });
        Tie { claim, in_use: true, cleanup: true }
    }
}

/// A LoadBalancerClaim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Namespace and name.
    pub key: ObjectKey,
    /// Its uid.
    pub uid: Arc<str>,
    /// Its resourceVersion.
    pub version: Version,
    /// When it was created: the older of two chooses first.
    pub created: Timestamp,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// What it asks for, or what of it cannot be read.
    pub ask: Result<Ask, Problem>,
    /// Whether it has the finalizer `bowline.dev/in-use`.
    pub in_use: bool,
    /// What its status says.
    pub report: Option<ClaimReport>,
}

/// What a claim asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ask {
    /// Which load balancers are considered, where none is named.
    pub selector: LabelSelector,
    /// The least that will do.
    pub requests: Amounts,
    /// The most that will be used.
    pub limits: Amounts,
    /// This load balancer and no other.
    pub load_balancer: Option<Arc<str>>,
    /// Who must be able to reach it. None: does not matter.
    pub scope: Option<Scope>,
    /// Its class.
    pub class: ClassWish,
}

/// What a claim says of classes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClassWish {
    /// Nothing: any load balancer will do, and the default class makes one.
    #[default]
    Default,
    /// `className: ""`: any load balancer will do, and none is made.
    Never,
    /// This class: of it, and made by it.
    Named(Arc<str>),
}

/// A LoadBalancerClass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    /// Its name.
    pub name: Arc<str>,
    /// When it was created: of several default classes the oldest counts.
    pub created: Timestamp,
    /// Whether it is being deleted: nothing new is made.
    pub deleting: bool,
    /// Whether claims that name no class use it.
    pub default: bool,
    /// What each load balancer can carry at least. A resource that is left out: what is requested.
    pub capacity: Amounts,
    /// What happens to a load balancer when its claim goes.
    pub reclaim: Reclaim,
    /// Seconds without consumers after which a load balancer is deprovisioned.
    pub idle_timeout: Option<Timestamp>,
    /// Who can reach those that it makes. None: whom a claim asks for.
    pub scope: Option<Scope>,
    /// Whose claims it makes load balancers for.
    pub allowed: AllowedNamespaces,
    /// Why this build makes nothing of its source. None: it does.
    pub unmakable: Option<Arc<str>>,
}
