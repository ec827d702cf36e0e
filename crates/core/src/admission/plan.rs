//! Decides the seats of one load balancer: a function of its recorded seats, of the consumers that want one, and of
//! those that have left for sure. It gives out no more than there is and takes no seat away. [`super::machine`] calls
//! it.

use super::{LoadBalancer, Seat, Want};
use crate::key::ConsumerRef;
use crate::objects::Timestamp;
use crate::outcome::{Problem, Reason};
use crate::resources::{Amounts, Quantity, Resource, Totals};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The most seats that a load balancer records.
pub const MOST_SEATS: usize = 1_000;

/// The order of consumers that want a seat: the oldest first, then by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Age {
    pub(super) created: Timestamp,
    pub(super) consumer: ConsumerRef,
}

/// The consumers that want a seat on a load balancer, the oldest first.
pub(super) type Wants = BTreeMap<Age, Want>;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) seats: Vec<Seat>,
    pub(super) allocated: Totals,
    /// Consumers that have a seat and seem to have left.
    pub(super) strangers: Vec<ConsumerRef>,
    /// Why consumers do not have all that they want, by uid.
    pub(super) problems: FxHashMap<Arc<str>, Problem>,
    /// Consumers that are admitted although no seat is recorded for them.
    pub(super) unrecorded: FxHashSet<Arc<str>>,
    /// The resources that waiting consumers lack: no consumer behind them gets any.
    kept: [bool; Resource::ALL.len()],
}

/// Decides for one load balancer. `kept` are the uids of consumers that stay for now, `left` of those that have left
/// it for sure.
pub(super) fn plan(
    lb: &LoadBalancer,
    wants: &Wants,
    kept: &FxHashSet<Arc<str>>,
    left: &FxHashSet<Arc<str>>,
) -> Plan {
    let mut plan = Plan::default();
    let present: FxHashSet<&str> = wants.keys().map(|age| &*age.consumer.uid).collect();
    for seat in &lb.seats {
        let uid = &seat.consumer.uid;
        if !present.contains(&**uid) && !kept.contains(uid) {
            if left.contains(uid) {
                continue;
            }
            plan.strangers.push(seat.consumer.clone());
        }
        plan.allocated.add(&seat.requests);
        plan.seats.push(seat.clone());
    }
    let mut sits: FxHashMap<Arc<str>, usize> = FxHashMap::default();
    sits.extend(plan.seats.iter().enumerate().map(|(at, seat)| (seat.consumer.uid.clone(), at)));
    // First what consumers give back: it is there for those that want more.
    for want in wants.values() {
        if let Some(at) = sits.get(&want.consumer.uid)
            && let Ok(requests) = &want.requests
            && no_more(requests, &plan.seats[*at].requests)
            && silence(lb, requests).is_none()
        {
            plan.resize(*at, *requests);
        }
    }
    for want in wants.values() {
        match sits.get(&want.consumer.uid) {
            Some(at) => plan.raise(lb, want, *at),
            None => plan.admit(lb, want),
        }
    }
    plan
}

/// Whether no amount is larger than before.
fn no_more(new: &Amounts, old: &Amounts) -> bool {
    Resource::ALL.into_iter().all(|it| new.amount(it) <= old.amount(it))
}

/// Why a consumer must request something, if the load balancer demands that.
fn silence(lb: &LoadBalancer, requests: &Amounts) -> Option<Problem> {
    (lb.require_requests && requests.is_empty()).then(|| {
        let message = format!(
            "load balancer {} admits only consumers that request capacity: set the annotation bowline.dev/{} or \
             bowline.dev/{}",
            lb.name,
            Resource::Bandwidth,
            Resource::Iops
        );
        Problem::new(Reason::RequestsRequired, message)
    })
}

impl Plan {
    fn resize(&mut self, at: usize, requests: Amounts) {
        let seat = &mut self.seats[at];
        self.allocated.remove(&seat.requests);
        self.allocated.add(&requests);
        seat.requests = requests;
    }

    /// A consumer with a seat wants other amounts: it gets all of them, or keeps what it has.
    fn raise(&mut self, lb: &LoadBalancer, want: &Want, at: usize) {
        let old = self.seats[at].requests;
        let problem = match &want.requests {
            Ok(new) if *new == old => return,
            Ok(new) => match (silence(lb, new), self.lacks(lb, new, &old)) {
                // A consumer that removes a required request keeps the amounts that it had.
                (Some(problem), _) => problem,
                (None, None) => return self.resize(at, *new),
                (None, Some(problem)) => {
                    self.keep(lb, new, &old);
                    problem
                }
            },
            Err(problem) => problem.clone(),
        };
        self.problems.insert(want.consumer.uid.clone(), problem);
    }

    fn admit(&mut self, lb: &LoadBalancer, want: &Want) {
        let uid = want.consumer.uid.clone();
        match self.admissible(lb, want) {
            Err(problem) => {
                if let (Reason::NoCapacity, Ok(requests)) = (problem.reason, &want.requests) {
                    self.keep(lb, requests, &Amounts::default());
                }
                self.problems.insert(uid, problem);
            }
            // Only without a capacity is a consumer admitted without a recorded seat.
            Ok(_) if self.seats.len() >= MOST_SEATS => _ = self.unrecorded.insert(uid),
            Ok(requests) => {
                self.allocated.add(&requests);
                self.seats.push(Seat { consumer: want.consumer.clone(), requests });
            }
        }
    }

    fn admissible(&self, lb: &LoadBalancer, want: &Want) -> Result<Amounts, Problem> {
        let requests = *want.requests.as_ref().map_err(Clone::clone)?;
        if lb.deleting {
            return Err(Problem::leaving(&lb.name));
        }
        if let Some(problem) = silence(lb, &requests) {
            return Err(problem);
        }
        if !lb.capacity.is_empty() && self.seats.len() >= MOST_SEATS {
            let message = format!(
                "load balancer {} has {MOST_SEATS} consumers already, the most that it can have",
                lb.name
            );
            return Err(Problem::new(Reason::TooManyConsumers, message));
        }
        match self.lacks(lb, &requests, &Amounts::default()) {
            Some(problem) => Err(problem),
            None => Ok(requests),
        }
    }

    /// Why a consumer that has `old` cannot have `new`. A resource of which it wants no more is never the reason,
    /// even where an administrator left less than is given out.
    fn lacks(&self, lb: &LoadBalancer, new: &Amounts, old: &Amounts) -> Option<Problem> {
        for resource in Resource::ALL {
            let Some(capacity) = lb.capacity.of(resource) else { continue };
            let (want, has) = (u128::from(new.amount(resource)), u128::from(old.amount(resource)));
            let others = self.allocated.of(resource) - has;
            let free = u128::from(capacity).saturating_sub(others);
            if want <= has {
                continue;
            }
            let (left, most) = (Quantity(free), Quantity::from(capacity));
            let message = if want > free {
                let want = Quantity(want);
                format!(
                    "load balancer {} has {left} of {most} {resource} left, and {want} is requested",
                    lb.name
                )
            } else if self.kept[resource as usize] {
                format!(
                    "load balancer {} has {left} of {most} {resource} left, kept for a consumer that has \
                     waited longer",
                    lb.name
                )
            } else {
                continue;
            };
            return Some(Problem::new(Reason::NoCapacity, message));
        }
        None
    }

    /// Keeps what a waiting consumer lacks from those behind it, if the load balancer could ever give it.
    fn keep(&mut self, lb: &LoadBalancer, new: &Amounts, old: &Amounts) {
        let ever = |it: Resource| lb.capacity.of(it).is_none_or(|most| new.amount(it) <= most);
        if !Resource::ALL.into_iter().all(ever) {
            return;
        }
        for it in Resource::ALL {
            let (want, has) = (u128::from(new.amount(it)), u128::from(old.amount(it)));
            let Some(capacity) = lb.capacity.of(it) else { continue };
            let lacks = want > has && self.allocated.of(it) - has + want > u128::from(capacity);
            self.kept[it as usize] |= lacks;
        }
    }
}
