//! Which claim has which load balancer. The machine binds LoadBalancerClaims to the LoadBalancers that fit
//! best, says what is to be made where none fits, and what becomes of a load balancer whose claim is gone.
//! It does no I/O, knows no clock, and decides the same from the same objects, in whatever order it is told
//! of them. The controller tells it of objects and carries out what it says.
//!
//! ```text
//!  handle(Event, now) ─▶ books: load balancers by capacity, claims, classes ─▶ who is touched
//!
//!  take(now) ─▶ claims, the oldest first: keep, the one named, the one reserved, best match, make one
//!          │    load balancers: bound, released, to be recycled or deleted, idle
//!          ├─▶ writes     each named, under the version it was decided on   ─▶ Event::Written
//!          ├─▶ confirm    is this claim, this load balancer really gone?    ─▶ Event::Confirmed
//!          └─▶ jobs       wipe or deprovision what is behind one            ─▶ Event::Finished
//! ```
//!
//! A binding is three writes, and each can be the last one of a controller that dies:
//!
//! 1. [`Op::Bind`] puts the claim, with its uid, into the load balancer's `claimRef`. This is the binding: it is
//!    under the load balancer's version, so that no two claims ever have one load balancer.
//! 2. [`Op::ReportClaim`] says in the claim's status where it is. From then on it is nowhere else: should two
//!    controllers have bound it twice, the load balancer that the status does not name lets go.
//! 3. [`Op::Report`] says in the load balancer's status that it is bound.
//!
//! A load balancer that is made has its claim from the moment of its creation, under a name made of the
//! claim's uid: however often it is tried, there is one. What is behind one is wiped or removed only when
//! a read has confirmed that its claim is gone. One that is idle is given up in three writes, each of which is undone
//! by a new consumer: [`Op::Release`] takes the uid out of `claimRef`, [`Op::ReportClaim`] says Idle, [`Op::Delete`] follows.

mod best_fit;
mod decide;
mod fit;
mod machine;
mod object;
mod observe;
mod opened;
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

/// Kinds that the machine is told of.
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
    /// All of them. Each must be told of before anything is decided.
    pub const ALL: [Self; 5] =
        [Self::LoadBalancer, Self::Claim, Self::Class, Self::Namespace, Self::Consumer];
}

/// What the machine is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// All objects of a kind follow; those that do not are gone.
    Begin(Kind),
    /// All objects of a kind have been told.
    Done(Kind),
    /// An object as it is now.
    Apply(Box<Object>),
    /// An object is gone.
    Delete {
        /// Its kind.
        kind: Kind,
        /// Which.
        key: ObjectKey,
        /// Its uid; not needed for classes and namespaces.
        uid: Arc<str>,
    },
    /// How many consumers name a claim.
    Wanted {
        /// Which claim.
        claim: ObjectKey,
        /// How many.
        consumers: u32,
    },
    /// What a read of the API says of something that was asked for.
    Confirmed {
        /// Of what.
        subject: Subject,
        /// Its version. None: there is none of this uid.
        version: Option<Version>,
    },
    /// A write was answered.
    Written {
        /// Which.
        id: Id,
        /// How.
        result: Written,
    },
    /// A job was done, or why not.
    Finished {
        /// Which.
        id: Id,
        /// How.
        result: Result<(), Arc<str>>,
    },
    /// A job goes on, and this is what it waits for.
    Waits {
        /// Which.
        id: Id,
        /// What for.
        why: Arc<str>,
    },
    /// A job was given up, because it is somebody else's to do: nobody knows how far it got.
    Abandoned {
        /// Which.
        id: Id,
    },
    /// The namespaces that use a load balancer, whether its status says so yet or not.
    Used {
        /// Which load balancer.
        load_balancer: Arc<str>,
        /// Which namespaces; sorted.
        namespaces: Vec<Arc<str>>,
    },
}

/// A write or job, within one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(pub u64);

/// How a write ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// It was carried out; this is the object now. None: it is gone.
    Ok(Option<Box<Object>>),
    /// The object is another one, or is there already, or is gone: this is what is there.
    Conflict(Option<Box<Object>>),
    /// It failed, or nobody knows. It is tried again after a while.
    Failed,
    /// The API refuses it, and says this. It is tried again after a while, and whom it concerns is told.
    Refused(Arc<str>),
}

/// What is to be read from the API.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// A claim that a load balancer names and nobody has seen.
    Claim {
        /// Which.
        key: ObjectKey,
        /// Its uid.
        uid: Arc<str>,
        /// Who names it.
        load_balancer: Arc<str>,
    },
    /// A load balancer that a claim has and that seems to be lost.
    LoadBalancer {
        /// Which.
        name: Arc<str>,
        /// The claim.
        claim: ObjectKey,
    },
}

/// What is to be done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Writes, one per object at a time.
    pub writes: Vec<Write>,
    /// What to read.
    pub confirm: Vec<Subject>,
    /// What to do to what is behind load balancers. Each may be done twice and must not mind.
    pub jobs: Vec<Job>,
}

/// A write of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// For its answer.
    pub id: Id,
    /// What to write.
    pub op: Op,
}

/// Which object is written: it must still have this uid and version.
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
    /// Make a load balancer; that one of this name exists is a conflict.
    Create(NewLoadBalancer),
    /// Delete a load balancer.
    Delete(Target),
    /// Set whether a claim has the finalizer `bowline.dev/in-use`.
    GuardClaim(Target, bool),
    /// Say in a claim's status where it is, or why it is nowhere.
    ReportClaim(Target, ClaimReport),
}

/// Something to do to what is behind a load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// For its answer.
    pub id: Id,
    /// Which load balancer.
    pub load_balancer: Arc<str>,
    /// Its uid.
    pub uid: Arc<str>,
    /// The uid in its `claimRef`. With another one it is somebody else's by now, and must not be touched.
    pub claim: Option<Arc<str>>,
    /// What.
    pub kind: JobKind,
}

/// What to do to what is behind a load balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JobKind {
    /// Wipe its configuration: it will be somebody else's.
    Recycle,
    /// Remove it.
    Deprovision,
}
