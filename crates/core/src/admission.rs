//! Who has a seat on a load balancer. The machine holds what consumers request against what a load
//! balancer can carry; it does no I/O, knows no clock, and decides the same from the same objects, in
//! whatever order it is told of them. The controller tells it of objects and carries out what it says.
//!
//! ```text
//!  handle(Event, now) ─▶ what is recorded on each load balancer, who wants to be there
//!
//!  take(now) ─▶ per load balancer that was touched: seats that stay, then the oldest who wait
//!          ├─▶ writes     the seats of a load balancer, under its version  ─▶ Event::Written
//!          ├─▶ confirm    has this consumer really left?                   ─▶ Event::Confirmed
//!          └─▶ decisions  who is admitted, who waits and why
//! ```
//!
//! - **Recording the seat is the admission.** A consumer is admitted when its seat is in the status of the
//!   load balancer; the write is under the version that was decided on, so that two machines at work at
//!   once never give away more than there is.
//! - A seat stays until its consumer has left, which a read of the API confirms: what a watch has not told
//!   yet never costs anybody a seat. An increase that does not fit leaves the old request in force.
//! - What becomes free is kept for the first of those who wait, the oldest object first: nobody behind it
//!   gets any of what it lacks. One that would not fit into the empty load balancer holds up nobody.
//! - Where no capacity is set nothing can be used up: everybody is admitted and the first 1,000 are recorded.

mod machine;
mod observe;
mod plan;

#[cfg(test)]
mod tests;

pub use machine::Admission;
pub use plan::MOST_SEATS;

use crate::key::ConsumerRef;
use crate::objects::{Timestamp, Version};
use crate::outcome::Problem;
use crate::resources::{Amounts, Totals};
use std::sync::Arc;

/// Kinds that the machine is told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// LoadBalancers.
    LoadBalancer,
    /// Services and Ingresses that go to a load balancer.
    Consumer,
}

impl Kind {
    /// All of them. Each must be told of before anything is decided.
    pub const ALL: [Self; 2] = [Self::LoadBalancer, Self::Consumer];
}

/// A load balancer as the API has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadBalancer {
    /// Its name.
    pub name: Arc<str>,
    /// Its uid.
    pub uid: Arc<str>,
    /// Its resourceVersion.
    pub version: Version,
    /// Whether it is being deleted: nobody new is admitted.
    pub deleting: bool,
    /// What it can carry. Empty: no limit. A resource that is left out has none either.
    pub capacity: Amounts,
    /// Whether consumers must say what they will use.
    pub require_requests: bool,
    /// The seats that its status has, in the order of their admission.
    pub seats: Vec<Seat>,
}

impl LoadBalancer {
    /// What its seats take together.
    pub fn allocated(&self) -> Totals {
        let mut sum = Totals::default();
        self.seats.iter().for_each(|seat| sum.add(&seat.requests));
        sum
    }
}

/// A seat on a load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    /// Whose.
    pub consumer: ConsumerRef,
    /// What it was admitted with.
    pub requests: Amounts,
}

/// A consumer that belongs on a load balancer, if there is room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Want {
    /// Who.
    pub consumer: ConsumerRef,
    /// When it was created: the older of two is admitted first.
    pub created: Timestamp,
    /// Where.
    pub load_balancer: Arc<str>,
    /// How much it will use, or why that cannot be read.
    pub requests: Result<Amounts, Problem>,
    /// Where it stays beside, with the seats that it has there, until it has arrived where it belongs.
    pub keeps: Vec<Arc<str>>,
}

/// What the machine is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// All objects of a kind follow; those that do not are gone.
    Begin(Kind),
    /// All objects of a kind have been told.
    Done(Kind),
    /// A load balancer as it is now.
    LoadBalancer(Box<LoadBalancer>),
    /// A load balancer is gone.
    LoadBalancerGone(Arc<str>),
    /// A load balancer counts no seats, at this version.
    Uncounted(Arc<str>, Version),
    /// Where a consumer belongs now, and nowhere else but where it stays until then.
    Wants(Want),
    /// A consumer belongs nowhere any more.
    Leaves(ConsumerRef),
    /// Whether a consumer still belongs on a load balancer, as a read of the API says.
    Confirmed {
        /// Who.
        consumer: ConsumerRef,
        /// Where.
        load_balancer: Arc<str>,
        /// Whether it does.
        wants: bool,
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
    /// It was carried out; the object has this version.
    Ok(Version),
    /// The object is another one now, or is gone: this is what is there.
    Conflict(Option<Box<LoadBalancer>>),
    /// It failed, or nobody knows. It is tried again after a while.
    Failed,
}

/// What is different since the machine was last asked, and what is to be done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Seats to record, one write per load balancer at a time; by name.
    pub writes: Vec<Write>,
    /// Who seems to have left: a read must say whether it belongs on this load balancer.
    pub confirm: Vec<(ConsumerRef, Arc<str>)>,
    /// What became of consumers; by consumer. None: it is gone, or its load balancer is.
    pub decisions: Vec<(ConsumerRef, Option<Decision>)>,
    /// With how much those who belong elsewhere stay on a load balancer. None: they do not any more.
    pub stays: Vec<(ConsumerRef, Arc<str>, Option<Amounts>)>,
}

/// A write of the seats in the status of a load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// For its answer.
    pub id: WriteId,
    /// Which load balancer.
    pub load_balancer: Arc<str>,
    /// Its uid.
    pub uid: Arc<str>,
    /// The version that it must still have.
    pub version: Version,
    /// All its seats, in the order of their admission.
    pub seats: Vec<Seat>,
    /// What they take together.
    pub allocated: Totals,
}

/// What became of a consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It has a seat.
    Admitted {
        /// Where.
        load_balancer: Arc<str>,
        /// With how much.
        requests: Amounts,
        /// Why it does not have what it requests now.
        short: Option<Problem>,
    },
    /// It has none.
    Waiting {
        /// Where.
        load_balancer: Arc<str>,
        /// Why.
        problem: Problem,
    },
}
