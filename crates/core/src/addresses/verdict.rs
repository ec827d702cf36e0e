//! What a requester is told: its addresses, why it has no others, and what would help. A reason is
//! one word for programs, a message a sentence for people. Both depend on the state alone, so that
//! nothing is told twice. Nothing is decided here.

use super::pool::Unfit;
use super::record::{HolderKind, HolderRef, Port};
use super::request::AddressRequest;
use super::share::Clash;
use super::waiters::Wait;
use crate::event_correlator::{EventDraft, Severity};
use crate::key::{ConsumerKind, ConsumerRef};
use crate::objects::{Family, Timestamp};
use crate::outcome::{Reason, quote};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// The addresses of a requester, and what it is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The addresses it has, its first family first. They are recorded.
    pub addresses: Vec<Granted>,
    /// Addresses that are still served for it: until a time, and until its status shows the
    /// successor.
    pub draining: Vec<Draining>,
    /// Why it has these.
    pub verdict: Verdict,
}

impl Decision {
    pub(super) fn shows(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|it| it.address == address)
            || self.draining.iter().any(|it| it.address == address)
    }
}

/// An address that a requester has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// The address.
    pub address: IpAddr,
    /// The pool that it lies in.
    pub pool: Option<Arc<str>>,
}

/// An address that is being given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draining {
    /// The address.
    pub address: IpAddr,
    /// When its grace ends.
    pub until: Timestamp,
}

/// Why a requester has what it has.
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
        Self { reason, message: message.into(), remedy: reason.remedy().map(|it| it.what) }
    }

    /// The refusal that decides, with the message of all refusals.
    pub(super) fn refused(by: &Refusal, message: String) -> Self {
        Self { reason: by.reason(), message, remedy: Some(by.remedy()) }
    }
}

/// A message to send once, as an Event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The holder that it is about.
    pub holder: HolderRef,
    /// Its kind.
    pub kind: NoticeKind,
    /// One sentence for people.
    pub message: String,
}

impl Notice {
    /// The Event. None for an ExternalIP, which is told by its conditions.
    pub fn event(self) -> Option<EventDraft> {
        let HolderRef { key, kind, uid } = self.holder;
        let kind = match kind {
            HolderKind::Service => ConsumerKind::Service,
            HolderKind::LoadBalancer => ConsumerKind::LoadBalancer,
            HolderKind::ExternalIp => return None,
        };
        let severity = match self.kind {
            NoticeKind::AddressAssigned | NoticeKind::AddressReleased => Severity::Normal,
            NoticeKind::AddressChanged | NoticeKind::AddressLost | NoticeKind::AddressIgnored => {
                Severity::Warning
            }
        };
        Some(EventDraft {
            object: ConsumerRef { kind, namespace: key.namespace, name: key.name, uid }.into(),
            severity,
            reason: format!("{:?}", self.kind).into(),
            message: self.message.into(),
        })
    }
}

/// The kinds of notices; each name is the reason of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoticeKind {
    /// It got an address.
    AddressAssigned,
    /// It got another address in place of one.
    AddressChanged,
    /// It lost an address, and may have got none in its place yet.
    AddressLost,
    /// It no longer asks for one, and gave up what it had.
    AddressReleased,
    /// It uses an address that it would not be granted; the use does not make the address taken.
    AddressIgnored,
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
    /// Its status showed an address that was not recorded for it, and that it may not have.
    NotGranted(String),
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked => f.write_str("it asks for another address"),
            Self::Family => f.write_str("it no longer asks for this IP family"),
            Self::OutsidePools => f.write_str("no AddressPool has the address any more"),
            Self::Sharing(clash) => write!(f, "it can no longer share the address with {clash}"),
            Self::Name(name) => write!(f, "{} resolves to another address", quote(name)),
            Self::Spare => f.write_str("it has another address, and one is enough"),
            Self::NotGranted(why) => f.write_str(why),
        }
    }
}

/// Why a pool was passed over, or an address not given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The pool that is probably meant.
    NoSuchPool(Option<Arc<str>>),
    /// It has no autoAssign, and was not named.
    ByName,
    Overlaps(Arc<str>),
    Deleting,
    Unfit(Unfit),
    Empty,
    NoFamily(Family),
    Exhausted(Family),
    /// `moves`: the requester would give up one of its own addresses for it.
    Quota {
        quota: u32,
        used: u32,
        moves: bool,
    },
    Domain,
    WrongFamily(IpAddr),
    NotInPools(IpAddr),
    NotInPool(IpAddr),
    Avoided(IpAddr),
    Foreign(IpAddr, String),
    Clash(IpAddr, Box<Clash>),
    Resting(IpAddr),
    Leaving(IpAddr),
    /// A Service or a namespace uses more than this without a grant.
    TooManyUses(usize),
}

impl Refusal {
    pub(super) fn reason(&self) -> Reason {
        match self {
            Self::NoSuchPool(_) => Reason::PoolNotFound,
            Self::ByName => Reason::NoPool,
            Self::WrongFamily(_) => Reason::WrongFamily,
            Self::Overlaps(_) | Self::Deleting => Reason::PoolNotUsed,
            Self::Unfit(_) | Self::Domain | Self::TooManyUses(_) => Reason::NotAllowed,
            Self::Quota { .. } => Reason::QuotaReached,
            Self::Empty | Self::NoFamily(_) | Self::Exhausted(_) => Reason::PoolsExhausted,
            Self::NotInPools(_) | Self::NotInPool(_) | Self::Avoided(_) => Reason::NotInPool,
            Self::Foreign(..) | Self::Clash(..) | Self::Resting(_) | Self::Leaving(_) => {
                Reason::AddressTaken
            }
        }
    }

    /// Of several refusals the one with the lowest weight decides: its remedy would help best.
    /// Pools for others come last.
    pub(super) fn weight(&self) -> u8 {
        match self {
            Self::Exhausted(_) => 0,
            Self::Quota { .. } => 1,
            Self::Empty | Self::NoFamily(_) => 2,
            Self::Unfit(_) => 4,
            _ => 3,
        }
    }

    /// What would help. It says more than the row of its reason: there are several causes for one reason.
    pub(super) fn remedy(&self) -> &'static str {
        match self {
            Self::NoSuchPool(_) => "create the AddressPool, or name another one",
            Self::ByName => "name the AddressPool, or set its autoAssign",
            Self::Overlaps(_) => {
                "take the addresses that both have out of one of them, or use another AddressPool"
            }
            Self::Deleting => "use another AddressPool",
            Self::Unfit(Unfit::Namespace) => {
                "add the namespace to the pool's allocateTo, or use another AddressPool"
            }
            Self::Unfit(Unfit::Labels) => {
                "give the Service labels that the pool's serviceSelectors match, or use another \
                 AddressPool"
            }
            Self::Unfit(Unfit::Scope) => "use an AddressPool of the load balancer's scope",
            Self::Empty => "add addresses to it, or use another AddressPool",
            Self::NoFamily(Family::V4) => "add IPv4 addresses to it, or use another AddressPool",
            Self::NoFamily(Family::V6) => "add IPv6 addresses to it, or use another AddressPool",
            Self::Exhausted(_) => {
                "add addresses to a pool; the request that has waited longest gets the first free one"
            }
            Self::Quota { .. } => {
                "give up an address of this namespace, or raise the pool's perNamespaceQuota"
            }
            Self::Domain => "add the domain to the pool's allowedDomains, or use another name",
            Self::WrongFamily(_) => "ask for an address of one of its ipFamilies",
            Self::NotInPools(_) => {
                "ask for an address of a pool or of the load balancer, or add it to a pool"
            }
            Self::NotInPool(_) => "ask for an address of this pool, or name the one that has it",
            Self::Avoided(_) => "ask for another address",
            Self::Foreign(..) => "ask for another address, or free it there",
            Self::Clash(_, clash) => clash.remedy(),
            Self::Resting(_) => "wait until its rest is over, or ask for another address",
            Self::Leaving(_) => "wait until it is free, or ask for another address",
            Self::TooManyUses(_) => "ask for the address by a Service of type LoadBalancer",
        }
    }

    /// What to wait for before asking again. Changes of pools and namespaces always enqueue the
    /// requester.
    pub(super) fn waits(&self, pool: Option<&Arc<str>>, request: &AddressRequest) -> Option<Wait> {
        match self {
            Self::Exhausted(family) => pool.map(|pool| Wait::Space(pool.clone(), *family)),
            Self::Quota { moves, .. } => pool.map(|pool| {
                let wait = if *moves { Wait::Move } else { Wait::Quota };
                wait(pool.clone(), request.namespace().clone())
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
            Self::NoSuchPool(None) => f.write_str("there is no such pool"),
            Self::NoSuchPool(Some(meant)) => {
                write!(f, "there is no such pool: did you mean {}?", quote(meant))
            }
            Self::ByName => f.write_str("is used only when it is named (autoAssign is off)"),
            Self::WrongFamily(address) => {
                let family = family_name(Family::of(*address));
                write!(f, "{address} is {family}, which the Service does not have")
            }
            Self::Overlaps(other) => {
                write!(f, "not used, because it overlaps the older pool {}", quote(other))
            }
            Self::Deleting => f.write_str("is being deleted"),
            Self::Unfit(Unfit::Namespace) => f.write_str("not for this namespace"),
            Self::Unfit(Unfit::Labels) => f.write_str("not for a Service with these labels"),
            Self::Unfit(Unfit::Scope) => f.write_str("has another scope"),
            Self::Empty => f.write_str("has no addresses"),
            Self::NoFamily(family) => write!(f, "has no {} addresses", family_name(*family)),
            Self::Exhausted(family) => write!(f, "no free {} address", family_name(*family)),
            Self::Quota { quota, used, .. } => {
                write!(f, "the namespace has {used} of the {quota} addresses of its quota")
            }
            Self::Domain => f.write_str("does not allow names of this domain"),
            Self::NotInPools(address) => write!(f, "{address} is in no pool"),
            Self::NotInPool(address) => write!(f, "{address} is not in it"),
            Self::Avoided(address) => write!(f, "{address} is left out by avoidBuggyIPs"),
            Self::Foreign(address, user) => write!(f, "{user} uses {address}"),
            Self::Clash(address, clash) => write!(f, "{address} is held by {clash}"),
            Self::Resting(address) => write!(f, "{address} rests after its last holder gave it up"),
            Self::Leaving(address) => write!(f, "{address} is being given up"),
            Self::TooManyUses(most) => {
                write!(
                    f,
                    "only the first {most} addresses that are used without a grant are looked at"
                )
            }
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
