//! Which load balancer to create for a claim that none fits, or why none is created. Its name is made of the claim's
//! uid, so that however often its creation is tried there is one. It sends nothing; [`super::decide`] calls it.

use super::fit::Unfit;
use super::machine::Binder;
use super::object::{Ask, Claim, Class, ClassWish, LoadBalancer, NewLoadBalancer, Tie};
use crate::addresses::Scope;
use crate::nearest::{MOST_COMPARED, did_you_mean, nearest};
use crate::objects::AllowedNamespaces;
use std::fmt;
use std::sync::Arc;

/// The name of the load balancer that is created for the claim of this uid.
pub fn provisioned_name(uid: &str) -> Arc<str> {
    format!("lbc-{uid}").into()
}

/// Why no load balancer is created for a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unmade {
    /// It names a load balancer.
    Named,
    /// `className: ""`.
    Never,
    /// It has a selector, and which labels would match it is unknown.
    Selector,
    /// It names no class, and none is the default.
    NoDefault,
    /// Its class does not exist. The class that is probably meant.
    Missing(Arc<str>, Option<Arc<str>>),
    /// Its class is being deleted.
    Deleting(Arc<str>),
    /// Its namespace may not use the class.
    NotAllowed(Arc<str>),
    /// Its class creates load balancers of this other scope.
    Scope(Arc<str>, Scope),
    /// This build cannot provision from the class's source, for this reason.
    NoDriver(Arc<str>, Arc<str>),
    /// Another load balancer has the name.
    NameTaken(Arc<str>),
    /// The one that was created before is being removed.
    Removing(Arc<str>),
}

impl fmt::Display for Unmade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("none is made, because ")?;
        match self {
            Self::Named => f.write_str("loadBalancerName is set"),
            Self::Never => f.write_str("className is empty"),
            Self::Selector => f.write_str("selector is set"),
            Self::NoDefault => f.write_str("no class is named and none is the default"),
            Self::Missing(class, meant) => {
                write!(f, "class {class} does not exist{}", did_you_mean(class, meant.as_deref()))
            }
            Self::Deleting(class) => write!(f, "class {class} is being deleted"),
            Self::NotAllowed(class) => write!(f, "class {class} does not allow this namespace"),
            Self::Scope(class, scope) => {
                write!(f, "class {class} makes only load balancers of scope {scope:?}")
            }
            Self::NoDriver(class, why) => write!(f, "class {class} cannot make one: {why}"),
            Self::NameTaken(name) => write!(f, "another load balancer is called {name}"),
            Self::Removing(name) => write!(f, "{name} is still being removed"),
        }
    }
}

impl Binder {
    /// The load balancer to create for a claim that none fits.
    pub(super) fn made(&self, claim: &Claim, ask: &Ask) -> Result<NewLoadBalancer, Unmade> {
        let class = self.class_for(claim, ask)?;
        let name = provisioned_name(&claim.uid);
        if let Some(lb) = self.lbs.get(&name).and_then(|slot| slot.seen.as_ref()) {
            return Err(if lb.deleting { Unmade::Removing(name) } else { Unmade::NameTaken(name) });
        }
        Ok(NewLoadBalancer {
            name,
            class: class.name.clone(),
            scope: ask.scope.or(class.scope).unwrap_or(Scope::Internet),
            capacity: class.capacity.at_least(&ask.requests),
            reclaim: class.reclaim,
            claim: (claim.key.clone(), claim.uid.clone()),
        })
    }

    fn class_for(&self, claim: &Claim, ask: &Ask) -> Result<&Class, Unmade> {
        if ask.load_balancer.is_some() {
            return Err(Unmade::Named);
        }
        let class = match &ask.class {
            ClassWish::Never => return Err(Unmade::Never),
            ClassWish::Named(name) => {
                let class = self.classes.get(name).map(|(class, _)| class);
                class.ok_or_else(|| Unmade::Missing(name.clone(), self.meant_class(name, claim)))?
            }
            ClassWish::Default => {
                let classes = self.classes.values().take(MOST_COMPARED).map(|(class, _)| class);
                let default = classes.filter(|class| class.default && !class.deleting);
                let oldest = default.min_by_key(|class| (class.created, &class.name));
                oldest.ok_or(Unmade::NoDefault)?
            }
        };
        if !ask.selector.requirements.is_empty() {
            return Err(Unmade::Selector);
        }
        if class.deleting {
            return Err(Unmade::Deleting(class.name.clone()));
        }
        match &class.unmakable {
            _ if !self.allows(class, claim) => Err(Unmade::NotAllowed(class.name.clone())),
            Some(why) => Err(Unmade::NoDriver(class.name.clone(), why.clone())),
            None => match class.scope {
                Some(scope) if ask.scope.is_some_and(|it| it != scope) => {
                    Err(Unmade::Scope(class.name.clone(), scope))
                }
                _ => Ok(class),
            },
        }
    }

    /// The class for the namespace of a claim that the claim probably means.
    fn meant_class(&self, name: &str, claim: &Claim) -> Option<Arc<str>> {
        let classes = self.classes.values().map(|(class, _)| class);
        let allowed = classes.filter(|class| !class.deleting && self.allows(class, claim));
        nearest(name, allowed.map(|class| &*class.name)).map(Into::into)
    }

    /// Whether a class is for the namespace of a claim.
    fn allows(&self, class: &Class, claim: &Claim) -> bool {
        match &class.allowed {
            AllowedNamespaces::All => true,
            AllowedNamespaces::None => false,
            // A namespace with unknown labels matches no selector.
            AllowedNamespaces::Selector(selector) => {
                let labels = self.namespaces.get(&claim.key.namespace);
                labels.is_some_and(|(labels, _)| selector.matches(labels))
            }
        }
    }

    /// Whether a claim may have a load balancer that a class created for another claim. A class that is gone allows
    /// no namespace. A claim that `claimRef` names may have it in any case: an administrator put it there.
    pub(super) fn inherits(
        &self,
        claim: &Claim,
        lb: &LoadBalancer,
        tie: &Tie,
    ) -> Result<(), Unfit> {
        let Some(name) = lb.class.as_ref().filter(|_| lb.provisioned_for.is_some()) else {
            return Ok(());
        };
        let class = self.classes.get(name).map(|(class, _)| class);
        match tie.claim.is_some() || class.is_some_and(|class| self.allows(class, claim)) {
            true => Ok(()),
            false => Err(Unfit::NotAllowed(name.clone())),
        }
    }
}
