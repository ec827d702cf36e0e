//! The result of planning for a Service or Ingress: placed or refused, with the problems that its owner is told about.
//! Reasons are one word for programs, messages are a sentence for people; `diagnosis` has the table of reasons. The planner makes outcomes, `status` and the
//! leader's shell read them; nothing here decides one.

use crate::diagnosis::Place;
pub use crate::diagnosis::Reason;
use crate::event_correlator::{EventDraft, Severity};
use crate::key::ConsumerRef;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::sync::Arc;

/// A reason, and a sentence that quotes what the problem is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Problem {
    /// For programs.
    pub reason: Reason,
    /// For people.
    pub message: Arc<str>,
}

impl Problem {
    /// A problem. The message should quote foreign text with [`quote`].
    pub fn new(reason: Reason, message: impl Into<Arc<str>>) -> Self {
        Self { reason, message: message.into() }
    }

    /// The Event that tells the owner of an object. None: the table has no Event for its reason.
    pub fn event(&self, object: &ConsumerRef) -> Option<EventDraft> {
        self.reason.is_told(Place::Event).then(|| EventDraft {
            object: object.clone().into(),
            severity: Severity::Warning,
            reason: self.reason.to_string().into(),
            message: self.message.clone(),
        })
    }

    /// Why a load balancer that is being deleted takes no new consumer, and why its consumers should move.
    pub fn leaving(load_balancer: &str) -> Self {
        let message = format!(
            "load balancer {} is being deleted and takes no new consumers: name another one",
            quote(load_balancer)
        );
        Self::new(Reason::LoadBalancerDeleting, message)
    }

    /// The same for consumers that name no load balancer and so have the default one.
    pub fn default_leaving(load_balancer: &str) -> Self {
        let message = format!(
            "load balancer {}, the default one, is being deleted and takes no new consumers: name another one by \
             bowline.dev/load-balancer",
            quote(load_balancer)
        );
        Self::new(Reason::LoadBalancerDeleting, message)
    }
}

/// User text, fit for a message: in quotation marks, control characters escaped, cut after 100 characters.
pub fn quote(text: &str) -> String {
    const LONGEST: usize = 100;
    let mut chars = text.chars();
    let head: String = chars.by_ref().take(LONGEST).collect();
    let more = if chars.next().is_some() { "…" } else { "" };
    format!("{head:?}{more}")
}

/// The result of planning for a consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The consumer.
    pub consumer: ConsumerRef,
    /// Where it is placed, or why not.
    pub state: State,
    /// What is not served as written although it is placed: refused hosts and paths, unreadable tuning.
    pub problems: Vec<Problem>,
    /// Why it stays where it is and does not move to where it asks to be. It is in `problems`, too.
    pub unmet: Option<Unmet>,
}

/// A request for another load balancer that changes nothing as long as it is not met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmet {
    /// The load balancer that refused it, if one did.
    pub load_balancer: Option<Arc<str>>,
    /// Why.
    pub problem: Problem,
}

impl Outcome {
    /// The load balancer that it is on, or that refused it.
    pub fn load_balancer(&self) -> Option<&Arc<str>> {
        match &self.state {
            State::Planned { load_balancer, .. } => Some(load_balancer),
            State::Refused { load_balancer, .. } => load_balancer.as_ref(),
        }
    }

    /// All refusals of the consumer, in whole or in part.
    pub fn refusals(&self) -> impl Iterator<Item = &Problem> {
        let whole = match &self.state {
            State::Refused { problem, .. } => Some(problem),
            State::Planned { .. } => None,
        };
        let parts = self.problems.iter().filter(|problem| problem.reason.is_told(Place::Refused));
        whole.into_iter().chain(parts)
    }

    /// The refusals by one load balancer. The one that the consumer is on: all but the problem that keeps it from
    /// moving. The one to which it asks to move: that problem alone.
    pub fn refusals_by(&self, lb: &str) -> impl Iterator<Item = &Problem> {
        let named = |name: Option<&Arc<str>>| name.is_some_and(|it| **it == *lb);
        let unmet = self.unmet.as_ref();
        let here = named(self.load_balancer());
        let there = unmet.filter(|it| named(it.load_balancer.as_ref())).map(|it| &it.problem);
        let own =
            self.refusals().filter(move |it| here && unmet.is_none_or(|not| **it != not.problem));
        own.chain(there)
    }

    /// Whether it waits only for an address that is about to be recorded. Its status is written when the address is.
    /// `said`: the address allocator has said that this takes long.
    pub fn is_in_passing(&self, said: bool) -> bool {
        match &self.state {
            State::Refused { problem, .. } => problem.reason == Reason::Recording && !said,
            State::Planned { .. } => false,
        }
    }
}

/// Where a consumer is placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// On a load balancer.
    Planned {
        /// Its name.
        load_balancer: Arc<str>,
        /// The addresses at which it can be reached once the load balancer has applied its plan; sorted.
        addresses: Vec<IpAddr>,
        /// The addresses at which it can still be reached for a while, and which are not announced anew; sorted.
        draining: Vec<IpAddr>,
        /// The load balancers from which it moves. They serve it until it has arrived; by name.
        before: Vec<Origin>,
    },
    /// Nowhere.
    Refused {
        /// The load balancer that refused it, if one did.
        load_balancer: Option<Arc<str>>,
        /// Why.
        problem: Problem,
    },
}

/// A load balancer from which a consumer moves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Its name.
    pub load_balancer: Arc<str>,
    /// The addresses at which it serves the consumer; sorted.
    pub addresses: Vec<IpAddr>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_text_is_short_and_on_one_line() {
        assert_eq!(quote("a\nb"), r#""a\nb""#);
        assert_eq!(quote(""), r#""""#);
        assert_eq!(quote(&"x".repeat(200)), format!("\"{}\"…", "x".repeat(100)));
    }
}
