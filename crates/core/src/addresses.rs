//! Allocates addresses of AddressPools to Services, load balancers and ExternalIPs, and records each allocation in an
//! Address object. The machine does no I/O and has no clock; the same objects give the same decisions, in whatever
//! order the events come. The controller feeds it events and carries out the changes that it returns.
//!
//! ```text
//!  handle(Event, now) ─▶ books: addresses, holders, pools, waiters ─▶ requesters to decide for
//!
//!  take(now) ─▶ decide, the oldest first: keep, request, named pool, pinned pools, others
//!          │      └▶ what becomes free goes to the oldest requester that waits for it
//!          ├─▶ writes     create, update, delete Address objects     ─▶ Event::Written
//!          ├─▶ confirm    does this holder still exist?              ─▶ Event::Confirmed
//!          ├─▶ decisions  what each holder has, for status           ─▶ Event::Shown
//!          ├─▶ notices    to send once, as Events
//!          └─▶ pools      counts and conditions
//! ```
//!
//! How to drive it:
//! - For every kind: `Begin`, `Apply`/`Recorded` for each object, `Done`; then changes as they come. A watch that
//!   starts over sends `Begin` again. Nothing is decided before all kinds are `Done` once.
//! - After a batch of events call [`Addresses::take`], and also at [`Addresses::wake_at`].
//! - Carry out [`Changes::writes`] in any order and answer each with [`Event::Written`]. On a conflict read the
//!   object and answer with what is there. Spec and status may be two writes, the spec first; the version is then
//!   that of the second. An unknown result is [`Written::Failed`].
//! - Write the status of each [`Decision`] after the driver serves its addresses. No decision comes while an
//!   address is only being recorded. When the status shows the decision, even if it did so before, send
//!   [`Event::Shown`]: the addresses that it showed before are released only then.
//! - While a driver still serves addresses for a holder, send [`Event::Serving`] with its places, and without places
//!   once it stopped. This holds back a release also when the holder is gone.
//!
//! **Creating the Address is the allocation.** An address is shown only after it is recorded, and released only when
//! it is no longer shown. Two leaders may run at once: each write either creates an object or is under a version.

mod choose;
mod conditions;
mod entry;
mod external_ip;
mod grant;
mod holdings;
mod ledger;
mod machine;
mod observe;
mod pool;
mod pools;
mod publish;
mod range;
mod record;
mod release;
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
pub use holdings::{Holding, holdings};
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

/// Labels of namespaces, each with the epoch of the last list that delivered it.
type Namespaces = BTreeMap<Arc<str>, (Labels, Epoch)>;

/// Settings of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Seconds for which a holder that moved to another address is still served at the old one.
    pub grace: Timestamp,
}

impl Default for Config {
    fn default() -> Self {
        Self { grace: 60 }
    }
}

/// Kinds of objects that the machine observes.
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
    /// All kinds. Nothing is decided before each of them has been listed.
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

/// An object that the machine observes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    /// An AddressPool.
    Pool(Pool),
    /// A Namespace.
    Namespace(Namespace),
    /// A Node. Its addresses count as taken.
    Node {
        /// Its name.
        name: Arc<str>,
        /// Its addresses.
        addresses: Vec<IpAddr>,
    },
    /// A Service, LoadBalancer or ExternalIP. Also one that asks for nothing, if it had an address or uses addresses
    /// without a grant.
    Request(AddressRequest),
}

/// What a DNS name resolved to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// These addresses, of either family.
    Addresses(Vec<IpAddr>),
    /// The look-up gave no usable address. Assigned addresses stay, and no new one is granted.
    Failed {
        /// The reason, for people.
        reason: Arc<str>,
    },
}

/// An input of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A list of all objects of a kind begins; an object that it does not deliver is gone.
    Begin(Kind),
    /// An object as it is now.
    Apply(Box<Object>),
    /// An object is gone. For an Address, send [`Event::Unrecorded`].
    Delete(Kind, ObjectKey),
    /// The list of a kind has ended.
    Done(Kind),
    /// An Address object as it is now.
    Recorded(Record),
    /// An Address object is gone.
    Unrecorded {
        /// The address.
        address: IpAddr,
        /// The version of the deletion, if the watch delivered one.
        version: Option<Version>,
    },
    /// A DNS name was looked up. The answer is dropped if no requester asks for the name; send it again when one
    /// does.
    Resolved {
        /// The name.
        name: Arc<str>,
        /// What it resolved to.
        answer: Answer,
    },
    /// A decision was carried out: the status of a holder now shows these addresses.
    Shown {
        /// The holder.
        holder: HolderRef,
        /// The addresses.
        addresses: Vec<IpAddr>,
    },
    /// Load balancers serve these addresses for a holder, whatever its status shows.
    Serving {
        /// The holder.
        holder: HolderRef,
        /// The addresses, each with its load balancer. Empty: none is served any more.
        places: Vec<(IpAddr, Arc<str>)>,
    },
    /// The result of a read that [`Changes::confirm`] asked for.
    Confirmed {
        /// The holder, including its uid.
        holder: HolderRef,
        /// Whether it exists.
        exists: bool,
    },
    /// A write was answered.
    Written {
        /// The write.
        id: WriteId,
        /// Its result.
        result: Written,
    },
}

/// Identifies a write of one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriteId(pub u64);

/// How a write ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// It was carried out; the object has this version. For a delete the version does not matter.
    Ok(Version),
    /// The object exists already, is another one now, or is gone. Carries what the API has now.
    Conflict(Option<Record>),
    /// It failed, or its result is unknown. It is repeated after a while.
    Failed,
}

/// What changed since the last [`Addresses::take`], and what the controller has to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Writes of Address objects, one per address at a time; sorted by address.
    pub writes: Vec<Write>,
    /// Holders that an Address names and that were never observed: read whether they exist.
    pub confirm: Vec<HolderRef>,
    /// Decisions that changed: holders that are gone first, then the others, the oldest first. None: the holder is
    /// gone, or has nothing to do with addresses.
    pub decisions: Vec<(HolderRef, Option<Arc<Decision>>)>,
    /// Notices to send as Events, each once.
    pub notices: Vec<Notice>,
    /// Reports of pools that changed; sorted by name. None: the pool is gone.
    pub pools: Vec<(Arc<str>, Option<PoolReport>)>,
}

/// A write of an Address object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Identifies the write in its answer.
    pub id: WriteId,
    /// The address.
    pub address: IpAddr,
    /// The operation.
    pub op: Op,
}

/// An operation on an Address object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Create the object. It is a conflict if the object exists.
    Create(Content),
    /// Replace its content if it still has this version.
    Update {
        /// The expected version.
        version: Version,
        /// The new content.
        content: Content,
    },
    /// Delete it if it still has this version.
    Delete {
        /// The expected version.
        version: Version,
    },
}

impl Op {
    /// The namespace of the first holder. None: there is no holder, it has no namespace, or this is a delete.
    pub fn namespace(&self) -> Option<&Arc<str>> {
        let (Self::Create(content) | Self::Update { content, .. }) = self else { return None };
        let first = content.holders.first().map(|first| &first.holder.key.namespace);
        first.filter(|namespace| !namespace.is_empty())
    }
}
