//! Decides which consumers have a seat on a load balancer: compares what consumers request with what the load
//! balancer can carry. It does no I/O and has no clock; the same objects give the same decisions, in whatever order
//! the events come. The controller feeds it events and carries out the changes that it returns.
//!
//! ```text
//!  handle(Event, now) ─▶ the seats that each load balancer records, the consumers that want one
//!
//!  take(now) ─▶ per touched load balancer: seats that stay, then the oldest waiting consumers
//!          ├─▶ writes     the seats of a load balancer, under its version  ─▶ Event::Written
//!          ├─▶ confirm    has this consumer really left?                   ─▶ Event::Confirmed
//!          └─▶ decisions  which consumers are admitted, which wait and why
//! ```
//!
//! - **Recording the seat is the admission.** A consumer is admitted when its seat is in the status of the load
//!   balancer. The write carries the resourceVersion of the load balancer that was decided on, so two leaders at
//!   once never grant more than there is.
//! - A seat stays until a read of the API confirms that its consumer has left: no consumer loses its seat because a
//!   watch is late. An increase that does not fit leaves the old request in force.
//! - What becomes free is kept for the waiting consumers, the oldest first: no younger one gets any resource that an
//!   older one lacks. A consumer that would not fit into the empty load balancer holds up no other.
//! - Without a capacity nothing can be used up: every consumer is admitted, and the first 1,000 are recorded.

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

/// Kinds of objects that the machine observes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// LoadBalancers.
    LoadBalancer,
    /// Services and Ingresses that go to a load balancer.
    Consumer,
}

impl Kind {
    /// All kinds. Nothing is decided before each of them has been listed.
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
    /// Whether it is being deleted: no new consumer is admitted.
    pub deleting: bool,
    /// What it can carry. Empty: no limit. A resource that is left out has no limit either.
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
    /// The consumer that has it.
    pub consumer: ConsumerRef,
    /// The amounts that it was admitted with.
    pub requests: Amounts,
}

/// A consumer that belongs on a load balancer, if there is room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Want {
    /// The consumer.
    pub consumer: ConsumerRef,
    /// When it was created: the older of two is admitted first.
    pub created: Timestamp,
    /// The load balancer.
    pub load_balancer: Arc<str>,
    /// How much it will use, or why that cannot be read.
    pub requests: Result<Amounts, Problem>,
    /// Load balancers on which it keeps its seats until the new one serves it.
    pub keeps: Vec<Arc<str>>,
}

/// An input of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A list of all objects of a kind begins; an object that it does not deliver is gone.
    Begin(Kind),
    /// The list of a kind has ended.
    Done(Kind),
    /// A load balancer as it is now.
    LoadBalancer(Box<LoadBalancer>),
    /// A load balancer is gone.
    LoadBalancerGone(Arc<str>),
    /// A load balancer counts no seats, at this version.
    Uncounted(Arc<str>, Version),
    /// The load balancer to which a consumer belongs now, and those on which it keeps its seats until the new one serves
    /// it.
    Wants(Want),
    /// A consumer belongs to no load balancer any more.
    Leaves(ConsumerRef),
    /// The result of a read that [`Changes::confirm`] asked for.
    Confirmed {
        /// The consumer.
        consumer: ConsumerRef,
        /// The load balancer.
        load_balancer: Arc<str>,
        /// Whether the consumer still belongs there.
        wants: bool,
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
    /// It was carried out; the object has this version.
    Ok(Version),
    /// The object is another one now, or is gone. Carries what the API has now.
    Conflict(Option<Box<LoadBalancer>>),
    /// It failed, or its result is unknown. It is repeated after a while.
    Failed,
}

/// What changed since the last [`Admission::take`], and what the controller has to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Seats to record, one write per load balancer at a time; sorted by name.
    pub writes: Vec<Write>,
    /// Consumers that seem to have left: read whether they still belong on this load balancer.
    pub confirm: Vec<(ConsumerRef, Arc<str>)>,
    /// Decisions that changed; sorted by consumer. None: there is no decision, because the consumer or its load
    /// balancer is gone, or because it has just moved.
    pub decisions: Vec<(ConsumerRef, Option<Decision>)>,
    /// Consumers that belong elsewhere and stay on a load balancer, with their amounts. None: it no longer stays
    /// there.
    pub stays: Vec<(ConsumerRef, Arc<str>, Option<Amounts>)>,
}

/// A write of the seats in the status of a load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Identifies the write in its answer.
    pub id: WriteId,
    /// The load balancer.
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

/// What was decided for a consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It has a seat.
    Admitted {
        /// The load balancer.
        load_balancer: Arc<str>,
        /// The amounts.
        requests: Amounts,
        /// Why it does not have what it requests now.
        short: Option<Problem>,
    },
    /// It has no seat.
    Waiting {
        /// The load balancer.
        load_balancer: Arc<str>,
        /// Why.
        problem: Problem,
    },
}
