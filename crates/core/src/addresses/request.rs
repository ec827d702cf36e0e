//! The request of a Service, a load balancer or an ExternalIP for addresses, reduced to what the choice of an address
//! depends on. Text is parsed before; a value that cannot be parsed is a [`Problem`] in its place. Data only.

use super::record::{Age, HolderKey, HolderKind, HolderRef, Port};
use crate::dns;
use crate::objects::{Family, Timestamp};
use crate::outcome::Problem;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Labels by key.
pub type Labels = BTreeMap<Arc<str>, Arc<str>>;

/// Which clients can reach an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// All clients.
    Internet,
    /// Clients inside.
    Intranet,
}

/// What a Service, LoadBalancer or ExternalIP asks of the AddressPools. Not a LoadBalancerClaim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressRequest {
    /// The object that asks.
    pub holder: HolderRef,
    /// When it was created: the oldest waiter is served first.
    pub created: Timestamp,
    /// Its labels, for `serviceSelectors`.
    pub labels: Labels,
    /// Which clients must be able to reach it. None: either scope will do.
    pub scope: Option<Scope>,
    /// What it asks for. Err: a value cannot be read; recorded addresses stay, no new one is granted.
    pub ask: Result<Ask, Problem>,
    /// Whether it is a door: the Service in front of a load balancer that a class made. A door is no tenant of its
    /// namespace; it is treated as a load balancer.
    pub door: bool,
    /// The load balancer that it is on. None: it has its addresses alone, or is one itself.
    pub load_balancer: Option<Arc<str>>,
    /// The families that it wants.
    pub families: Families,
    /// How it would share an address. None: it does not share.
    pub sharing: Option<Sharing>,
    /// The addresses that its status shows now.
    pub status: Vec<IpAddr>,
    /// Addresses that it uses without a grant: `externalIPs`, the status of a Service that Bowline does not serve,
    /// the fixed addresses of a load balancer. Sorted. A tenant's use makes an address taken only if the pool would
    /// grant it to the tenant.
    pub uses: Vec<IpAddr>,
}

impl AddressRequest {
    pub(super) fn holder_key(&self) -> HolderKey {
        self.holder.holder_key()
    }

    pub(super) fn age(&self) -> Age {
        Age { created: self.created, holder: self.holder_key() }
    }

    pub(super) fn namespace(&self) -> &Arc<str> {
        &self.holder.key.namespace
    }

    /// The namespace whose rules and quota count for it. Load balancers are made by administrators and classes and
    /// have no tenant; neither has a door.
    pub(super) fn tenant(&self) -> Option<&Arc<str>> {
        let own = self.holder.kind == HolderKind::LoadBalancer || self.door;
        (!own).then(|| self.namespace())
    }

    /// Whether only the status is different.
    pub(super) fn wishes_as(&self, other: &Self) -> bool {
        self.holder == other.holder
            && self.created == other.created
            && self.labels == other.labels
            && self.scope == other.scope
            && self.ask == other.ask
            && self.door == other.door
            && self.load_balancer == other.load_balancer
            && self.families == other.families
            && self.sharing == other.sharing
            && self.uses == other.uses
    }

    /// Whether it asks for addresses or uses any: most Services do neither.
    pub fn is_news(&self) -> bool {
        self.ask != Ok(Ask::Nothing) || !self.uses.is_empty()
    }

    /// The families that it wants, as questions to the DNS.
    pub fn questions(&self) -> dns::Families {
        match self.families {
            Families::One(family) => [family].into_iter().collect(),
            Families::Prefer(_) | Families::Require(_) | Families::OfPool => dns::Families::BOTH,
        }
    }

    /// The DNS name that it asks for.
    pub(super) fn name(&self) -> Option<&Arc<str>> {
        match &self.ask {
            Ok(Ask::Name { name, .. }) => Some(name),
            _ => None,
        }
    }

    /// Whether it asks for no address of an AddressPool.
    pub fn wants_nothing(&self) -> bool {
        matches!(self.ask, Ok(Ask::Nothing))
    }
}

/// What a requester asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// No address of a pool: Bowline does not serve it, it is being deleted, or it has its load balancer's.
    Nothing,
    /// Any address.
    Any,
    /// One of this pool.
    Pool(Arc<str>),
    /// These, at most one per family.
    Addresses {
        /// The addresses.
        addresses: Vec<IpAddr>,
        /// The pool in which they must lie, and from which a family that they leave out is served.
        pool: Option<Arc<str>>,
    },
    /// What this name resolves to.
    Name {
        /// The name, in lower case, without a dot at its end.
        name: Arc<str>,
        /// The pool in which it must lie.
        pool: Option<Arc<str>>,
    },
}

impl Ask {
    /// The pool that is asked for by name.
    pub(super) fn pool(&self) -> Option<&Arc<str>> {
        match self {
            Self::Nothing | Self::Any => None,
            Self::Pool(pool) => Some(pool),
            Self::Addresses { pool, .. } | Self::Name { pool, .. } => pool.as_ref(),
        }
    }
}

/// Which IP families a requester wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Families {
    /// This one.
    One(Family),
    /// Both if they can be had, this one first.
    Prefer(Family),
    /// Both or nothing, this one first.
    Require(Family),
    /// Each family that the named pool has.
    OfPool,
}

/// The terms under which a requester would share an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sharing {
    /// The key, which is not empty.
    pub key: Arc<str>,
    /// The ports it uses; sorted.
    pub ports: Vec<Port>,
    /// `externalTrafficPolicy: Local`.
    pub local_only: bool,
    /// Its Pods.
    pub selector: Labels,
}
