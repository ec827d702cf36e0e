//! Whether a claim may have a load balancer, and if not, the first reason why. Pure functions, which
//! [`super::decide`] calls. The reasons name no other claim, because any user may read them.

use super::object::{Ask, Claim, ClassWish, LoadBalancer, Tie};
use crate::addresses::Scope;
use crate::resources::{Amounts, Fill, Quantity, Resource};
use std::fmt;
use std::sync::Arc;

/// Why a load balancer was passed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// It does not exist.
    Missing,
    /// It is being deleted.
    Deleting,
    /// Another claim has it.
    Taken,
    /// The claim that had it is gone, and it has not been cleared.
    Released,
    /// It is reserved for another claim.
    Reserved,
    /// It is for use by name, and not reserved for the claim.
    Shared,
    /// Consumers of another namespace use it by its name.
    InUse,
    /// It has another scope: this one.
    Scope(Scope),
    /// It has another class, or none.
    Class(Option<Arc<str>>),
    /// Its class created it, and does not allow the claim's namespace or is gone.
    NotAllowed(Arc<str>),
    /// Its labels do not match.
    Labels,
    /// It does not say how much of a resource it has.
    NotOffered(Resource),
    /// It has too little of a resource.
    TooSmall {
        /// The resource.
        resource: Resource,
        /// How much it has.
        capacity: u64,
        /// How much is requested.
        request: u64,
    },
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("does not exist"),
            Self::Deleting => f.write_str("is being deleted"),
            Self::Taken => f.write_str("another claim has it"),
            Self::Released => {
                f.write_str("its claim is gone, and its claimRef has not been cleared")
            }
            Self::Reserved => f.write_str("it is reserved for another claim"),
            Self::Shared => f.write_str(
                "its allowedNamespaces let namespaces use it by name, and it is not reserved for this claim",
            ),
            Self::InUse => f.write_str("another namespace uses it"),
            Self::Scope(scope) => write!(f, "its scope is {scope:?}"),
            Self::Class(Some(class)) => write!(f, "its class is {class}"),
            Self::Class(None) => f.write_str("it has no class"),
            Self::NotAllowed(class) => {
                write!(f, "its class {class} does not allow this namespace, or does not exist")
            }
            Self::Labels => f.write_str("its labels do not match"),
            Self::NotOffered(resource) => write!(f, "it does not say how much {resource} it has"),
            Self::TooSmall { resource, capacity, request } => {
                let (capacity, request) = (Quantity::from(*capacity), Quantity::from(*request));
                write!(f, "it has {capacity} {resource}, and {request} is requested")
            }
        }
    }
}

/// The load balancers that a claim does not get, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PassedOver {
    /// The first ones: those without a claim, then the others, by name.
    pub first: Vec<(Arc<str>, Unfit)>,
    /// How many more there are.
    pub more: usize,
}

impl PassedOver {
    /// At most this many are listed in the status of a claim.
    pub const TOLD: usize = 10;
}

impl fmt::Display for PassedOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first.is_empty() {
            return f.write_str("there are no load balancers");
        }
        f.write_str("no load balancer fits: ")?;
        for (at, (name, unfit)) in self.first.iter().enumerate() {
            write!(f, "{}{name}: {unfit}", if at == 0 { "" } else { "; " })?;
        }
        if self.more > 0 {
            write!(f, "; and {} more", self.more)?;
        }
        Ok(())
    }
}

/// Whether a claim may have a load balancer, as far as other claims and users of it allow. `users` are the namespaces
/// that use it; `lives` says whether the claim of a uid exists.
pub(super) fn free<'a>(
    claim: &Claim,
    lb: &LoadBalancer,
    tie: &Tie,
    mut users: impl Iterator<Item = &'a Arc<str>>,
    lives: impl FnOnce(&str) -> bool,
) -> Result<(), Unfit> {
    if lb.deleting {
        return Err(Unfit::Deleting);
    }
    match &tie.claim {
        Some(it) if it.key == claim.key && it.uid.as_ref().is_none_or(|uid| *uid == claim.uid) => {}
        Some(it) => {
            return Err(match &it.uid {
                Some(uid) if lives(uid) => Unfit::Taken,
                Some(_) => Unfit::Released,
                None => Unfit::Reserved,
            });
        }
        None if lb.shared => return Err(Unfit::Shared),
        None => {}
    }
    match users.any(|namespace| *namespace != claim.key.namespace) {
        true => Err(Unfit::InUse),
        false => Ok(()),
    }
}

/// Whether a load balancer is what a claim asks for. `selected`: whether its labels matter.
pub(super) fn suits(ask: &Ask, lb: &LoadBalancer, selected: bool) -> Result<(), Unfit> {
    if ask.scope.is_some_and(|scope| scope != lb.scope) {
        return Err(Unfit::Scope(lb.scope));
    }
    if let ClassWish::Named(class) = &ask.class
        && lb.class.as_ref() != Some(class)
    {
        return Err(Unfit::Class(lb.class.clone()));
    }
    if selected && !ask.selector.matches(&lb.labels) {
        return Err(Unfit::Labels);
    }
    covers(&lb.capacity, &ask.requests)
}

fn covers(capacity: &Amounts, requests: &Amounts) -> Result<(), Unfit> {
    if capacity.is_empty() {
        return Ok(());
    }
    for resource in Resource::ALL {
        let request = requests.amount(resource);
        match capacity.of(resource) {
            _ if request == 0 => {}
            None => return Err(Unfit::NotOffered(resource)),
            Some(capacity) if capacity < request => {
                return Err(Unfit::TooSmall { resource, capacity, request });
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// How full requests would make a load balancer that covers them. Without requests nothing is filled.
pub(super) fn fill(capacity: &Amounts, requests: &Amounts) -> Fill {
    let pair = |it| (requests.amount(it), capacity.of(it));
    match (pair(Resource::Bandwidth), pair(Resource::Iops)) {
        ((0, _), (0, _)) => Fill::NONE,
        ((request, Some(capacity)), (0, _)) | ((0, _), (request, Some(capacity))) => {
            Fill::one(request, capacity)
        }
        ((one, Some(first)), (two, Some(second))) => Fill::two((one, first), (two, second)),
        _ => Fill::NONE,
    }
}
