//! Which object holds which address. The machine gives addresses of pools to Services, load balancers and
//! ExternalIPs; it does no I/O, knows no clock, and decides the same from the same objects, in whatever
//! order it is told of them. The controller tells it of objects and carries out what it says.
//!
//! ```text
//!  handle(Event, now) ─▶ books: addresses, holders, pools, waiters ─▶ who is touched
//!
//!  take(now) ─▶ decide: the oldest first: keep, request, named pool, pinned pools, others
//!          │      └▶ what is free again goes to the oldest who waits for it
//!          ├─▶ writes     create, update, delete Address objects     ─▶ Event::Written
//!          ├─▶ confirm    does this holder still exist?              ─▶ Event::Confirmed
//!          ├─▶ decisions  what each holder has, for status           ─▶ Event::Shown
//!          ├─▶ notices    told once, as Events
//!          └─▶ pools      counts and conditions
//! ```
//!
//! How to drive it:
//! - For every kind: `Begin`, `Apply`/`Recorded` for each object, `Done`; then changes as they come. A
//!   watch that starts over says `Begin` again. Nothing is decided before all kinds are `Done` once.
//! - After a batch of events call [`Addresses::take`], and also at [`Addresses::wake_at`].
//! - Carry out [`Changes::writes`] in any order and answer each with [`Event::Written`]. On a conflict
//!   read the object and say what is there. Spec and status may be two writes, the spec first; the
//!   version is then that of the second. An answer that is not known is [`Written::Failed`].
//! - Write the status that a [`Decision`] says (none is told for one whose address is being recorded), after the driver serves the addresses. When the status
//!   is so (it may have been already) say [`Event::Shown`]: only then is released what it showed before.
//! - Where a driver still serves an address for a holder, say so by [`Event::Serving`], with nothing in
//!   it once it does not: it holds back a release also when the holder is gone.
//!
//! **Creating the Address is the allocation.** An address is shown when it is recorded, and is released
//! when it is not shown. Two machines may work at once: each write is exclusive or under a version.

mod choose;
mod conditions;
mod entry;
mod external_ip;
mod grant;
mod ledger;
mod machine;
mod observe;
mod pool;
mod pools;
mod publish;
mod range;
mod record;
mod report;
mod request;
mod requester;
mod serving;
mod settle;
mod share;
mod space;
mod survey;
mod uses;
mod verdict;
mod waiters;
mod wish;
mod write;

#[cfg(test)]
mod tests;

pub use conditions::{assigned, from_name};
pub use external_ip::{ExternalIpPhase, ExternalIpStatus};
pub use machine::Addresses;
pub use pool::{AllocateTo, Pool};
pub use range::{Range, RangeError};
pub use record::{AddressState, Content, Holder, HolderKind, HolderRef, Port, Record};
pub use report::{Counts, Guard, PoolReport, PoolUse};
pub use request::{AddressRequest, Ask, Families, Labels, Scope, Sharing};
pub use serving::{Inherited, Serving};
pub use survey::PassedOver;
pub use verdict::{Decision, Draining, Granted, Notice, NoticeKind, Verdict};
pub use wish::{Policy, Wish};

use crate::key::ObjectKey;
use crate::objects::{Namespace, Timestamp, Version};
use crate::relist::Epoch;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Labels of namespaces, and the relist that has seen them.
type Namespaces = BTreeMap<Arc<str>, (Labels, Epoch)>;

/// What the machine is set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Seconds for which somebody who moved to another address is still served at the old one.
    pub grace: Timestamp,
}

impl Default for Config {
    fn default() -> Self {
        Self { grace: 60 }
    }
}

/// Kinds that the machine is told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// AddressPool.
    Pool,
    /// Namespace.
    Namespace,
    /// Node.
    Node,
    /// Service.
    Service,
    /// LoadBalancer.
    LoadBalancer,
    /// ExternalIP.
    ExternalIp,
    /// Address.
    Address,
}

impl Kind {
    /// All of them. Each must be told of before anything is decided.
    pub const ALL: [Self; 7] = [
        Self::Pool,
        Self::Namespace,
        Self::Node,
        Self::Service,
        Self::LoadBalancer,
        Self::ExternalIp,
        Self::Address,
    ];
}

/// An object that the machine is told of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    /// An AddressPool.
    Pool(Pool),
    /// A Namespace.
    Namespace(Namespace),
    /// A Node: its addresses are taken.
    Node {
        /// Its name.
        name: Arc<str>,
        /// Its addresses.
        addresses: Vec<IpAddr>,
    },
    /// A Service, LoadBalancer or ExternalIP. Also one that asks for nothing, where it had something or
    /// uses addresses otherwise.
    Request(AddressRequest),
}

/// What a DNS name resolved to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// These addresses, of either family.
    Addresses(Vec<IpAddr>),
    /// Nothing that can be used: what is assigned stays, nothing new is.
    Failed {
        /// Why, for people.
        reason: Arc<str>,
    },
}

/// What the machine is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// All objects of a kind follow; those that do not are gone.
    Begin(Kind),
    /// An object as it is now.
    Apply(Box<Object>),
    /// An object is gone; an Address by [`Event::Unrecorded`].
    Delete(Kind, ObjectKey),
    /// All objects of a kind have been told.
    Done(Kind),
    /// An Address object as it is now.
    Recorded(Record),
    /// An Address object is gone.
    Unrecorded {
        /// Which.
        address: IpAddr,
        /// The version of its end, where the watch tells it.
        version: Option<Version>,
    },
    /// A name was looked up. Names that nobody asks for are not kept: tell again when one is.
    Resolved {
        /// Which.
        name: Arc<str>,
        /// To what.
        answer: Answer,
    },
    /// A decision was carried out: the status of a holder now shows these addresses.
    Shown {
        /// Whose.
        holder: HolderRef,
        /// Which.
        addresses: Vec<IpAddr>,
    },
    /// Something serves these addresses for a holder, whatever its status shows.
    Serving {
        /// For whom.
        holder: HolderRef,
        /// Which, and on which load balancers; empty: nothing any more.
        places: Vec<(IpAddr, Arc<str>)>,
    },
    /// Whether a holder exists, as a read of the API says, asked for by [`Changes::confirm`].
    Confirmed {
        /// Which, uid included.
        holder: HolderRef,
        /// Whether it does.
        exists: bool,
    },
    /// A write was answered.
    Written {
        /// Which.
        id: WriteId,
        /// How.
        result: Written,
    },
}

/// A write, within one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriteId(pub u64);

/// How a write ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// It was carried out; the object has this version. For a delete the version does not matter.
    Ok(Version),
    /// The object was there already, is another one now, or is gone: this is what is there.
    Conflict(Option<Record>),
    /// It failed, or nobody knows. It is tried again after a while.
    Failed,
}

/// What is different since the machine was last asked, and what is to be done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Writes of Address objects, one per address at a time; by address.
    pub writes: Vec<Write>,
    /// Holders of which an Address speaks and that nobody has seen: a read must say if they exist.
    pub confirm: Vec<HolderRef>,
    /// What holders have, the oldest first. None: it is gone, or has nothing to do with addresses.
    pub decisions: Vec<(HolderRef, Option<Arc<Decision>>)>,
    /// What to tell once.
    pub notices: Vec<Notice>,
    /// What pools have; by name. None: it is gone.
    pub pools: Vec<(Arc<str>, Option<PoolReport>)>,
}

/// A write of an Address object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// For its answer.
    pub id: WriteId,
    /// Which address.
    pub address: IpAddr,
    /// What to write.
    pub op: Op,
}

/// What to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Create the object; that it exists is a conflict.
    Create(Content),
    /// Replace what it says if it still has this version.
    Update {
        /// This.
        version: Version,
        /// What it is to say.
        content: Content,
    },
    /// Delete it if it still has this version.
    Delete {
        /// This.
        version: Version,
    },
}

impl Op {
    /// The namespace of the holder that had the address first. None: nothing holds it, or its holder has none.
    pub fn namespace(&self) -> Option<&Arc<str>> {
        let (Self::Create(content) | Self::Update { content, .. }) = self else { return None };
        let first = content.holders.first().map(|first| &first.holder.key.namespace);
        first.filter(|namespace| !namespace.is_empty())
    }
}
