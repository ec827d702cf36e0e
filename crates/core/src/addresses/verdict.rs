//! What somebody is told: the addresses it has, why it has no others, and what would help. Reasons are
//! one word for programs, messages sentences for people; both depend on the state alone, so that
//! nothing is told twice.

use super::claim::Claim;
use super::pool::Unfit;
use super::record::{HolderRef, Port};
use super::share::Clash;
use super::waiters::Wait;
use crate::objects::{Family, Timestamp};
use crate::outcome::quote;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// Why somebody has what it has. Each is the reason of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// It has all that it asks for.
    Assigned,
    /// Addresses are chosen and are being recorded.
    Recording,
    /// It no longer asks for an address; what it had is being given up.
    Released,
    /// What it asks for cannot be read.
    BadValue,
    /// The pool that it names does not exist.
    PoolNotFound,
    /// The pool that it names is not used: it overlaps an older one, or is being deleted.
    PoolNotUsed,
    /// It may not have addresses of the pool.
    NotAllowed,
    /// The namespace has as many addresses of the pool as it may have.
    QuotaReached,
    /// The address that it asks for is in no pool, or not in the one that it names.
    NotInPool,
    /// Somebody else has the address that it asks for.
    AddressTaken,
    /// It asks for an address of a family that it does not have.
    WrongFamily,
    /// There is no pool, or none that those who name none may use.
    NoPool,
    /// No pool that it may use has a free address.
    PoolsExhausted,
    /// Its name has not been looked up yet.
    NamePending,
    /// Its name could not be looked up.
    NameFailed,
    /// Its name resolves to no address that it may have.
    NameUnusable,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What somebody has and is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The addresses it has, its first family first. They are recorded.
    pub addresses: Vec<Granted>,
    /// Addresses that it still serves, until a time and until its status shows what it has instead.
    pub draining: Vec<Draining>,
    /// Why.
    pub verdict: Verdict,
}

impl Decision {
    pub(super) fn shows(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|it| it.address == address)
            || self.draining.iter().any(|it| it.address == address)
    }
}

/// An address that somebody has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// Which.
    pub address: IpAddr,
    /// The pool that it lies in.
    pub pool: Option<Arc<str>>,
}

/// An address that is on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draining {
    /// Which.
    pub address: IpAddr,
    /// When it ends.
    pub until: Timestamp,
}

/// Why somebody has what it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// For programs.
    pub reason: Reason,
    /// For people: one sentence, with the pools that were tried.
    pub message: String,
    /// What would help, where something would.
    pub remedy: Option<&'static str>,
}

impl Verdict {
    pub(super) fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), remedy: remedy(reason) }
    }
}

fn remedy(reason: Reason) -> Option<&'static str> {
    Some(match reason {
        Reason::Assigned | Reason::Recording | Reason::Released | Reason::NamePending => {
            return None;
        }
        Reason::BadValue => "correct the value; until then nothing changes",
        Reason::PoolNotFound => "create the AddressPool, or name another one",
        Reason::PoolNotUsed => "remove the overlap, or name another AddressPool",
        Reason::NotAllowed => {
            "change the pool's allocateTo, scope or allowedDomains, or name another AddressPool"
        }
        Reason::QuotaReached => "give up an address of this namespace, or raise perNamespaceQuota",
        Reason::NotInPool => "ask for an address of a pool, or add it to one",
        Reason::AddressTaken => {
            "ask for another address, or share it: same bowline.dev/allow-shared-ip, other ports"
        }
        Reason::WrongFamily => "ask for an address of one of the Service's ipFamilies",
        Reason::NoPool => "create an AddressPool with autoAssign, or name a pool",
        Reason::PoolsExhausted => {
            "add addresses to a pool; the oldest that waits gets the first free one"
        }
        Reason::NameFailed => "check the name and the DNS servers; it is looked up again",
        Reason::NameUnusable => "make the name resolve to a free address of a pool",
    })
}

/// Something to be told once, as an Event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// About whom.
    pub holder: HolderRef,
    /// What.
    pub kind: NoticeKind,
    /// In a sentence.
    pub message: String,
}

/// What there is to tell; each is the reason of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoticeKind {
    /// It got an address.
    AddressAssigned,
    /// It got another address in place of one.
    AddressChanged,
    /// It lost an address, and may have got none in its place yet.
    AddressLost,
}

/// Why an address is taken from its holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// The holder asks for something else.
    Asked,
    /// The holder no longer wants this family.
    Family,
    /// No pool has the address any more.
    OutsidePools,
    /// The holder's own edit made its sharing invalid.
    Sharing(Box<Clash>),
    /// The holder's name resolves to something else.
    Name(Arc<str>),
    /// It has two, and one is enough.
    Spare,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked => f.write_str("it asks for another one"),
            Self::Family => f.write_str("it no longer wants this family"),
            Self::OutsidePools => f.write_str("no AddressPool has the address any more"),
            Self::Sharing(clash) => write!(f, "it can no longer share it: {clash}"),
            Self::Name(name) => write!(f, "{} resolves to another address", quote(name)),
            Self::Spare => f.write_str("it has another one"),
        }
    }
}

/// Why a pool was passed over, or an address not given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    NoSuchPool,
    Overlaps(Arc<str>),
    Deleting,
    Unfit(Unfit),
    Empty,
    NoFamily(Family),
    Exhausted(Family),
    /// Moves: it would give up one of its own for it.
    Quota {
        quota: u32,
        moves: bool,
    },
    Domain,
    NotInPools(IpAddr),
    NotInPool(IpAddr),
    Avoided(IpAddr),
    Foreign(IpAddr, String),
    Clash(IpAddr, Box<Clash>),
    Resting(IpAddr),
    Leaving(IpAddr),
}

impl Refusal {
    pub(super) fn reason(&self) -> Reason {
        match self {
            Self::NoSuchPool => Reason::PoolNotFound,
            Self::Overlaps(_) | Self::Deleting => Reason::PoolNotUsed,
            Self::Unfit(_) | Self::Domain => Reason::NotAllowed,
            Self::Quota { .. } => Reason::QuotaReached,
            Self::Empty | Self::NoFamily(_) | Self::Exhausted(_) => Reason::PoolsExhausted,
            Self::NotInPools(_) | Self::NotInPool(_) | Self::Avoided(_) => Reason::NotInPool,
            Self::Foreign(..) | Self::Clash(..) | Self::Resting(_) | Self::Leaving(_) => {
                Reason::AddressTaken
            }
        }
    }

    /// What would make it worth while to ask again. Changes of pools and namespaces always do.
    pub(super) fn waits(&self, pool: Option<&Arc<str>>, claim: &Claim) -> Option<Wait> {
        match self {
            Self::Exhausted(family) => pool.map(|pool| Wait::Space(pool.clone(), *family)),
            Self::Quota { moves, .. } => pool.map(|pool| {
                let wait = if *moves { Wait::Move } else { Wait::Quota };
                wait(pool.clone(), claim.namespace().clone())
            }),
            Self::Foreign(address, _)
            | Self::Clash(address, _)
            | Self::Resting(address)
            | Self::Leaving(address) => Some(Wait::Address(*address)),
            _ => None,
        }
    }
}

pub(super) fn family_name(family: Family) -> &'static str {
    match family {
        Family::V4 => "IPv4",
        Family::V6 => "IPv6",
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchPool => f.write_str("there is no such pool"),
            Self::Overlaps(other) => {
                write!(f, "not used, because it overlaps the older pool {}", quote(other))
            }
            Self::Deleting => f.write_str("is being deleted"),
            Self::Unfit(Unfit::Namespace) => f.write_str("not for this namespace"),
            Self::Unfit(Unfit::Labels) => f.write_str("not for a Service with these labels"),
            Self::Unfit(Unfit::Scope) => f.write_str("has another scope"),
            Self::Empty => f.write_str("has no addresses"),
            Self::NoFamily(family) => write!(f, "has no {}", family_name(*family)),
            Self::Exhausted(family) => write!(f, "no free {} address", family_name(*family)),
            Self::Quota { quota, .. } => write!(f, "the namespace has its {quota} addresses"),
            Self::Domain => f.write_str("does not allow names of this domain"),
            Self::NotInPools(address) => write!(f, "{address} is in no pool"),
            Self::NotInPool(address) => write!(f, "{address} is not in it"),
            Self::Avoided(address) => write!(f, "{address} is left out by avoidBuggyIPs"),
            Self::Foreign(address, user) => write!(f, "{user} uses {address}"),
            Self::Clash(address, clash) => write!(f, "{address} is held by {clash}"),
            Self::Resting(address) => write!(f, "{address} rests after its last holder"),
            Self::Leaving(address) => write!(f, "{address} is being given up"),
        }
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let transport = match self.transport {
            crate::plan::Transport::Tcp => "TCP",
            crate::plan::Transport::Udp => "UDP",
            crate::plan::Transport::Sctp => "SCTP",
        };
        write!(f, "{transport} {}", self.number)
    }
}
