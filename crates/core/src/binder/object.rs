//! What the binder knows of objects: small values, already parsed. Data only; `bowline-api` makes
//! them.

use super::report::{ClaimReport, Report};
use crate::addresses::{Labels, Scope};
use crate::key::ObjectKey;
use crate::objects::{AllowedNamespaces, LabelSelector, Namespace, Timestamp, Version};
use crate::outcome::Problem;
use crate::resources::Amounts;
use std::sync::Arc;

/// An object that the machine observes.
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
    /// Its resourceVersion. None for kinds that are never written.
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
    /// Which clients can reach it.
    pub scope: Scope,
    /// Its class.
    pub class: Option<Arc<str>>,
    /// What it can carry. Empty: no limit.
    pub capacity: Amounts,
    /// What happens when its claim goes.
    pub reclaim: Reclaim,
    /// Whether it is for use by name: then a claim gets it only if it is reserved for that claim.
    pub shared: bool,
    /// The claim that it was provisioned for, with its uid. None: it was not provisioned.
    pub provisioned_for: Option<(ObjectKey, Arc<str>)>,
    /// The namespaces of consumers that have a seat on it; sorted.
    pub users: Vec<Arc<str>>,
    /// Its `claimRef` and finalizers.
    pub tie: Tie,
    /// What its status says of its binding.
    pub report: Option<Report>,
}

/// A load balancer to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewLoadBalancer {
    /// Its name.
    pub name: Arc<str>,
    /// The class that it is created from.
    pub class: Arc<str>,
    /// Which clients can reach it.
    pub scope: Scope,
    /// What it can carry. Empty: no limit.
    pub capacity: Amounts,
    /// What happens when its claim goes.
    pub reclaim: Reclaim,
    /// The claim that it is created for: its `claimRef`, and marked on it for good.
    pub claim: (ObjectKey, Arc<str>),
}

impl NewLoadBalancer {
    /// Its tie from the moment of its creation.
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
    /// What it asks for, or why that cannot be read.
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
    /// Which clients must be able to reach it. None: does not matter.
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
    /// This class: a load balancer of it, or one that it creates.
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
    /// Which clients can reach its load balancers. None: as the claim asks.
    pub scope: Option<Scope>,
    /// The namespaces with claims for which it creates load balancers.
    pub allowed: AllowedNamespaces,
    /// Why this build cannot provision from its source. None: it can.
    pub unmakable: Option<Arc<str>>,
}
