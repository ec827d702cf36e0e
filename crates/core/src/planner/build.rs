//! The result of planning one consumer, before the output compares it with the previous one. It
//! decides nothing about other consumers; `service`, `ingress` and `web` make it.

use super::certificates;
use super::consumer::ConsumerKey;
use crate::objects::LoadBalancer;
use crate::outcome::{Outcome, Problem, Reason, State};
use crate::plan::Fragment;
use crate::resources::Amounts;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

/// The most problems of one consumer that are told; more do not help its owner.
const MOST_PROBLEMS: usize = 32;

/// A load balancer on which a consumer is placed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target<'a> {
    pub(super) lb: &'a LoadBalancer,
    /// Its addresses, sorted.
    pub(super) addresses: &'a [IpAddr],
    /// Whether the addresses are the consumer's own, whatever else it asks for.
    pub(super) own: bool,
    /// What the consumer was admitted with, where seats are counted.
    pub(super) seat: Option<Amounts>,
}

impl<'a> Target<'a> {
    /// A load balancer at these addresses of its own, without a seat.
    pub(super) fn new(lb: &'a LoadBalancer, addresses: &'a [IpAddr]) -> Self {
        Self { lb, addresses, own: false, seat: None }
    }

    /// Whether the load balancer is claimed by this namespace, so that no other namespace uses it.
    pub(super) fn is_claimed_by(&self, namespace: &str) -> bool {
        self.lb.claim.as_ref().is_some_and(|(claim, _)| &*claim.namespace == namespace)
    }

    pub(super) fn problem(&self, reason: Reason, what: impl std::fmt::Display) -> Problem {
        let message = format!("load balancer {} {what}", crate::outcome::quote(&self.lb.name));
        Problem::new(reason, message)
    }
}

/// What a consumer has on its load balancer.
#[derive(Debug)]
pub(super) struct Built {
    /// The addresses at which it can be reached, sorted; or why there are none.
    pub(super) addresses: Result<Vec<IpAddr>, Problem>,
    /// The addresses at which it can still be reached for a while, sorted.
    pub(super) draining: Vec<IpAddr>,
    /// Its fragment, in parts. A refused consumer has none, or one that only records hosts.
    pub(super) parts: Vec<Fragment>,
    /// What is not served as written.
    pub(super) problems: Vec<Problem>,
    /// The certificates that its sites need.
    pub(super) certificates: BTreeSet<certificates::Use>,
}

impl Built {
    pub(super) fn refused(problem: Problem, problems: Vec<Problem>) -> Self {
        Self {
            addresses: Err(problem),
            draining: Vec::new(),
            parts: Vec::new(),
            problems,
            certificates: BTreeSet::new(),
        }
    }

    /// Hides draining addresses: they are served and not shown, unless no other address can be
    /// shown.
    pub(super) fn hiding(mut self, draining: &[IpAddr]) -> Self {
        if let Ok(addresses) = &mut self.addresses
            && addresses.iter().any(|address| !draining.contains(address))
        {
            let drains = |address: &mut IpAddr| draining.contains(address);
            self.draining = addresses.extract_if(.., drains).collect();
        }
        self
    }
}

/// The outcome of a consumer. Its problems are sorted, each occurs once, and their number is
/// limited.
pub(super) fn outcome(
    who: &ConsumerKey,
    uid: &Arc<str>,
    state: State,
    problems: Vec<Problem>,
) -> Outcome {
    let mut problems = problems;
    problems.sort_unstable();
    problems.dedup();
    if let State::Refused { problem, .. } = &state {
        problems.retain(|other| other != problem);
    }
    if problems.len() > MOST_PROBLEMS {
        let more = problems.len() - MOST_PROBLEMS;
        let reason = problems[MOST_PROBLEMS].reason;
        problems.truncate(MOST_PROBLEMS);
        problems.push(Problem::new(reason, format!("and {more} more")));
    }
    Outcome { consumer: who.with_uid(uid), state, problems, unmet: None }
}
