//! What became of a Service or Ingress: placed, refused, or none of ours; and what its owner should be
//! told. Reasons are one word for programs, messages a sentence for people.

use crate::key::ConsumerRef;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// Why a consumer is refused, is not served as written, or has the addresses that it has. Each becomes the reason of a
/// condition, an Event or an entry of `LoadBalancer.status.refused`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Reason {
    /// The load balancer that was named does not exist.
    LoadBalancerNotFound,
    /// The claim that was named is not bound to a load balancer.
    ClaimNotBound,
    /// The load balancer may not be used from this namespace.
    NotAllowed,
    /// The load balancer has no address yet, or none of the Service's families.
    NoAddress,
    /// The address that was asked for is not one of the load balancer's.
    AddressNotAvailable,
    /// Somebody older has the address, protocol and port.
    PortTaken,
    /// The host belongs to another namespace on this load balancer.
    HostTaken,
    /// An older Ingress has the same host and path.
    PathTaken,
    /// A Service, or a port of it, that a backend names does not exist.
    BackendNotFound,
    /// A backend that cannot be used, such as an ExternalName Service.
    BackendNotSupported,
    /// A TLS Secret does not exist.
    SecretNotFound,
    /// A TLS Secret holds no usable certificate.
    BadCertificate,
    /// A placement, address or host that cannot be read.
    BadValue,
    /// A tuning value that cannot be read: the default is used.
    BadTuning,
    /// The load balancer or its driver cannot do what is asked.
    NotSupported,
    /// The agent could not bind the address and port.
    BindFailed,
    /// Nodes are to be members, and the Service has no node port.
    NoNodePort,
    /// The port is one that this machine gives to connections of its own.
    EphemeralPort,
    /// The proxy's own check refuses a configuration with it.
    RefusedByCheck,
    /// A template cannot be filled with it.
    TemplateFailed,
    /// What it requests does not fit into what is left of the load balancer.
    NoCapacity,
    /// The load balancer wants to be told what a consumer will use.
    RequestsRequired,
    /// As many consumers as can be recorded have a seat.
    TooManyConsumers,
    /// Its seat is being recorded: a moment, and nothing that anybody has to be told of.
    SeatPending,
    /// Its address is being recorded: likewise.
    Recording,
    /// Its DNS name is being looked up: likewise.
    NamePending,
    /// The AddressPool that it names does not exist.
    PoolNotFound,
    /// The AddressPool overlaps an older one, or is being deleted.
    PoolNotUsed,
    /// Its namespace has as many addresses of the AddressPool as it may have.
    QuotaReached,
    /// The address that it asks for is in no AddressPool, or not in the one that it names.
    NotInPool,
    /// Somebody else has the address that it asks for.
    AddressTaken,
    /// It asks for an address of a family that it does not have.
    WrongFamily,
    /// There is no AddressPool for those who name none.
    NoPool,
    /// No AddressPool that it may use has a free address.
    PoolsExhausted,
    /// Its DNS name could not be looked up.
    NameFailed,
    /// Its DNS name resolves to no address that it may have.
    NameUnusable,
    /// Members that no agent sends traffic to, such as loopback addresses.
    MemberRefused,
    /// More members than a pool may have.
    TooManyMembers,
    /// A listener for which its namespace has no room at the agent.
    TooManyListeners,
    /// A certificate for which its namespace has no room on the load balancer.
    TooManyCertificates,
    /// More external names than its namespace may have at one port.
    TooManyNames,
    /// The proxy may open too few files for it.
    NoDescriptors,
    /// What is planned for it cannot be read by an agent of another version.
    PlanUnread,
    /// The requester has every address that it asks for. No problem: the reason of a condition that is true.
    Assigned,
    /// The requester no longer asks for an address, and what it had is being released. No problem, likewise.
    Released,
    /// A reason of a newer agent that this version does not know.
    Unknown,
}

impl Reason {
    /// Whether it is about tuning only: what it concerns is served all the same, with the default.
    pub fn is_warning(self) -> bool {
        matches!(self, Self::BadTuning)
    }

    /// Whether it is over in a moment: nobody is told of it by an Event, nor is it counted.
    pub fn is_passing(self) -> bool {
        matches!(self, Self::SeatPending | Self::Recording | Self::NamePending)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A reason and a sentence that quotes what it is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Problem {
    /// For programs.
    pub reason: Reason,
    /// For people.
    pub message: Arc<str>,
}

impl Problem {
    /// A problem; the message should quote foreign text by [`quote`].
    pub fn new(reason: Reason, message: impl Into<Arc<str>>) -> Self {
        Self { reason, message: message.into() }
    }
}

/// What a user wrote, as it may stand in a message: in quotation marks, control characters escaped,
/// cut after 100 characters.
pub fn quote(text: &str) -> String {
    const LONGEST: usize = 100;
    let mut chars = text.chars();
    let head: String = chars.by_ref().take(LONGEST).collect();
    let more = if chars.next().is_some() { "…" } else { "" };
    format!("{head:?}{more}")
}

/// What became of a consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Whose.
    pub consumer: ConsumerRef,
    /// Where it is, or why not.
    pub state: State,
    /// What is not done as written although it is placed: refused hosts and paths, unreadable tuning.
    pub problems: Vec<Problem>,
    /// Why it stays where it is and does not go where it asks to be. It is among its problems, too.
    pub unmet: Option<Unmet>,
}

/// A wish that changes nothing for as long as it is not met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmet {
    /// The load balancer that refused it, when it got that far.
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

    /// All that it was refused, in whole or in part.
    pub fn refusals(&self) -> impl Iterator<Item = &Problem> {
        let whole = match &self.state {
            State::Refused { problem, .. } => Some(problem),
            State::Planned { .. } => None,
        };
        let parts = self.problems.iter().filter(|problem| !problem.reason.is_warning());
        whole.into_iter().chain(parts)
    }

    /// What a load balancer refused it: where it is, all but what keeps it from going elsewhere; where it
    /// would go, that alone.
    pub fn refusals_by(&self, lb: &str) -> impl Iterator<Item = &Problem> {
        let named = |name: Option<&Arc<str>>| name.is_some_and(|it| **it == *lb);
        let unmet = self.unmet.as_ref();
        let here = named(self.load_balancer());
        let there = unmet.filter(|it| named(it.load_balancer.as_ref())).map(|it| &it.problem);
        let own =
            self.refusals().filter(move |it| here && unmet.is_none_or(|not| **it != not.problem));
        own.chain(there)
    }

    /// Whether it waits for nothing but an address that is about to be recorded: its status is written
    /// when it is. Where that takes long, whoever records addresses has said so.
    pub fn is_in_passing(&self, said: bool) -> bool {
        match &self.state {
            State::Refused { problem, .. } => problem.reason == Reason::Recording && !said,
            State::Planned { .. } => false,
        }
    }
}

/// Where a consumer is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// On a load balancer.
    Planned {
        /// Which.
        load_balancer: Arc<str>,
        /// Where it can be reached once the load balancer has applied it; sorted.
        addresses: Vec<IpAddr>,
        /// Where it can still be reached for a while, and is not told of anew; sorted.
        draining: Vec<IpAddr>,
        /// Those from which it moves, and which serve it until it has arrived; by name.
        before: Vec<Origin>,
    },
    /// Nowhere.
    Refused {
        /// The load balancer that refused it, when it got that far.
        load_balancer: Option<Arc<str>>,
        /// Why.
        problem: Problem,
    },
}

/// A load balancer from which somebody moves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Which.
    pub load_balancer: Arc<str>,
    /// Where it serves it; sorted.
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
