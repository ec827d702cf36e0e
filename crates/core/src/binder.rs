//! Binds LoadBalancerClaims to the LoadBalancers that fit best, decides what to create where none fits, and what
//! becomes of a load balancer when its claim is gone. It does no I/O and has no clock; the same objects give the same
//! decisions, in whatever order the events come. The controller feeds it events and carries out the changes that it
//! returns.
//!
//! ```text
//!  handle(Event, now) ─▶ books: load balancers by capacity, claims, classes ─▶ what to decide for
//!
//!  take(now) ─▶ claims, the oldest first: keep, the one named, one reserved, best match, create one
//!          │    load balancers: bound, released, to be recycled or deleted, idle
//!          ├─▶ writes     of one object each, under the version decided on  ─▶ Event::Written
//!          ├─▶ confirm    is this claim, this load balancer really gone?    ─▶ Event::Confirmed
//!          └─▶ jobs       wipe or remove what is behind a load balancer     ─▶ Event::Finished
//! ```
//!
//! A binding is three writes, and each can be the last one of a controller that dies:
//!
//! 1. [`Op::Bind`] puts the claim, with its uid, into the load balancer's `claimRef`. This is the binding. The
//!    write carries the load balancer's resourceVersion, so no two claims ever have one load balancer.
//! 2. [`Op::ReportClaim`] names the load balancer in the claim's status. From then on the claim keeps it:
//!    if two leaders bound the claim twice, the load balancer that the status does not name is released.
//! 3. [`Op::Report`] says in the load balancer's status that it is bound.
//!
//! A provisioned load balancer has its claim from the moment of its creation, and its name is made of the claim's
//! uid: however often its creation is tried, there is one. What is behind a load balancer is wiped or removed only
//! when no claim has it; if its claim seems to be gone, only after a read has confirmed that. An idle one is given up
//! in three writes, each of which is undone by a new consumer: [`Op::Release`] takes the uid out of `claimRef`,
//! [`Op::ReportClaim`] says Idle, [`Op::Delete`] follows.

mod best_fit;
mod decide;
mod fit;
mod machine;
mod newly_free;
mod object;
mod observe;
mod provision;
mod reclaim;
mod report;
mod wipe;
mod write;

#[cfg(test)]
mod tests;

pub use fit::{PassedOver, Unfit};
pub use machine::Binder;
pub use object::{
    Ask, Claim, ClaimRef, Class, ClassWish, LoadBalancer, NewLoadBalancer, Object, Reclaim, Tie,
};
pub use provision::{Unmade, provisioned_name};
pub use report::{Binding, ClaimReason, ClaimReport, Phase, Report};
pub use wipe::Wipe;

use crate::key::ObjectKey;
use crate::objects::Version;
use std::sync::Arc;

/// Kinds of objects that the machine observes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// LoadBalancer.
    LoadBalancer,
    /// LoadBalancerClaim.
    Claim,
    /// LoadBalancerClass.
    Class,
    /// Namespace.
    Namespace,
    /// How many consumers name a claim.
    Consumer,
}

impl Kind {
    /// All kinds. Nothing is decided before each of them has been listed.
    pub const ALL: [Self; 5] =
        [Self::LoadBalancer, Self::Claim, Self::Class, Self::Namespace, Self::Consumer];
}

/// An input of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A list of all objects of a kind begins; an object that it does not deliver is gone.
    Begin(Kind),
    /// The list of a kind has ended.
    Done(Kind),
    /// An object as it is now.
    Apply(Box<Object>),
    /// An object is gone.
    Delete {
        /// Its kind.
        kind: Kind,
        /// Namespace and name.
        key: ObjectKey,
        /// Its uid; not needed for classes and namespaces.
        uid: Arc<str>,
    },
    /// How many consumers name a claim.
    Wanted {
        /// The claim.
        claim: ObjectKey,
        /// How many.
        consumers: u32,
    },
    /// The result of a read that [`Changes::confirm`] asked for.
    Confirmed {
        /// What was read.
        subject: Subject,
        /// Its version. None: there is none of this uid.
        version: Option<Version>,
    },
    /// A write was answered.
    Written {
        /// The write.
        id: Id,
        /// Its result.
        result: Written,
    },
    /// A job was done, or failed.
    Finished {
        /// The job.
        id: Id,
        /// Err: why it failed.
        result: Result<(), Arc<str>>,
    },
    /// A job goes on, and this is what it waits for.
    Waits {
        /// The job.
        id: Id,
        /// What it waits for.
        why: Arc<str>,
    },
    /// A job was given up, because this process does not lead any more: it is unknown how far it got.
    Abandoned {
        /// The job.
        id: Id,
    },
    /// The namespaces that use a load balancer, whether its status says so yet or not.
    Used {
        /// The load balancer.
        load_balancer: Arc<str>,
        /// The namespaces; sorted.
        namespaces: Vec<Arc<str>>,
    },
}

/// Identifies a write or job of one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(pub u64);

/// How a write ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// It was carried out; this is the object now. None: it is gone.
    Ok(Option<Box<Object>>),
    /// The object is another one, exists already, or is gone. Carries what the API has now.
    Conflict(Option<Box<Object>>),
    /// It failed, or its result is unknown. It is repeated after a while.
    Failed,
    /// The API refused it, with this message. It is repeated after a while, and a claim that waits for it is told.
    Refused(Arc<str>),
}

/// What to read from the API.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// A claim that a load balancer names and that the machine does not know.
    Claim {
        /// Namespace and name.
        key: ObjectKey,
        /// Its uid.
        uid: Arc<str>,
        /// The load balancer that names it.
        load_balancer: Arc<str>,
    },
    /// A load balancer that a claim has and that seems to be lost.
    LoadBalancer {
        /// Its name.
        name: Arc<str>,
        /// The claim.
        claim: ObjectKey,
    },
}

/// What the controller has to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Writes, one per object at a time.
    pub writes: Vec<Write>,
    /// What to read.
    pub confirm: Vec<Subject>,
    /// Jobs on what is behind load balancers. A job may run twice, and must be idempotent.
    pub jobs: Vec<Job>,
}

/// A write of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Identifies the write in its answer.
    pub id: Id,
    /// What to write.
    pub op: Op,
}

/// The object to write; it must still have this uid and version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Namespace (none for load balancers) and name.
    pub key: ObjectKey,
    /// Its uid.
    pub uid: Arc<str>,
    /// The version that was decided on.
    pub version: Version,
}

/// What to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Give a load balancer to a claim.
    Bind(Target, Tie),
    /// Take a load balancer from a claim.
    Release(Target, Tie),
    /// Set the finalizers of a load balancer.
    Guard(Target, Tie),
    /// Say in a load balancer's status how it is bound.
    Report(Target, Report),
    /// Create a load balancer. It is a conflict if one of this name exists.
    Create(NewLoadBalancer),
    /// Delete a load balancer.
    Delete(Target),
    /// Set whether a claim has the finalizer `bowline.dev/in-use`.
    GuardClaim(Target, bool),
    /// Say in a claim's status which load balancer it has, or why it has none.
    ReportClaim(Target, ClaimReport),
}

/// A job on what is behind a load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Identifies the job in its answer.
    pub id: Id,
    /// The load balancer.
    pub load_balancer: Arc<str>,
    /// Its uid.
    pub uid: Arc<str>,
    /// The uid in its `claimRef`. If that is another one by now, another claim has it, and it must not be touched.
    pub claim: Option<Arc<str>>,
    /// What to do.
    pub kind: JobKind,
}

/// What to do to what is behind a load balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JobKind {
    /// Wipe its configuration: another claim may get it.
    Recycle,
    /// Remove it.
    Deprovision,
}
