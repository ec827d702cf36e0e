//! The result of planning for a Service or Ingress: placed or refused, with the problems that its owner is told about.
//! Reasons are one word for programs, messages are a sentence for people. The planner makes outcomes, `status` and the
//! leader's shell read them; nothing here decides one.

use crate::key::ConsumerRef;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// Why a consumer is refused, is not served as written, or has the addresses that it has. Each becomes the reason of a
/// condition, an Event or an entry of `LoadBalancer.status.refused`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Reason {
    /// The named load balancer does not exist.
    LoadBalancerNotFound,
    /// The load balancer is being deleted: it keeps its consumers and takes no new ones.
    LoadBalancerDeleting,
    /// The named claim is not bound to a load balancer.
    ClaimNotBound,
    /// The load balancer may not be used from this namespace.
    NotAllowed,
    /// The load balancer has no address yet, or none of the Service's families.
    NoAddress,
    /// The requested address is not one of the load balancer's.
    AddressNotAvailable,
    /// An older consumer has the address, protocol and port.
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
    /// An annotation of Bowline's domain that does not exist: it has no effect.
    UnknownAnnotation,
    /// The load balancer or its driver cannot do what is asked.
    NotSupported,
    /// The agent could not bind the address and port.
    BindFailed,
    /// The members are to be nodes, and the Service has no node port.
    NoNodePort,
    /// The port is in the range that this machine uses for its own outgoing connections.
    EphemeralPort,
    /// The proxy's own check refuses a configuration with this consumer.
    RefusedByCheck,
    /// A template fails with this consumer.
    TemplateFailed,
    /// The requested amounts are more than the load balancer has left.
    NoCapacity,
    /// The load balancer requires that a consumer requests amounts.
    RequestsRequired,
    /// No more seats can be recorded.
    TooManyConsumers,
    /// Its seat is being recorded. This takes a moment, and nobody has to be told.
    SeatPending,
    /// Its address is being recorded. This takes a moment, too.
    Recording,
    /// Its DNS name is being looked up. This takes a moment, too.
    NamePending,
    /// The named AddressPool does not exist.
    PoolNotFound,
    /// The AddressPool overlaps an older one, or is being deleted.
    PoolNotUsed,
    /// Its namespace has as many addresses of the AddressPool as a namespace may have.
    QuotaReached,
    /// The requested address is in no AddressPool, or not in the one that is named.
    NotInPool,
    /// Another holder has the requested address.
    AddressTaken,
    /// It requests an address of a family that it does not have.
    WrongFamily,
    /// No AddressPool allows automatic assignment.
    NoPool,
    /// No AddressPool that it may use has a free address.
    PoolsExhausted,
    /// Its DNS name could not be looked up.
    NameFailed,
    /// Its DNS name resolves to no address that it may have.
    NameUnusable,
    /// Some members get no traffic from any agent, such as loopback addresses.
    MemberRefused,
    /// It has more members than a pool may have.
    TooManyMembers,
    /// Its namespace has no room for the listener at the agent.
    TooManyListeners,
    /// Its namespace has no room for the certificate on the load balancer.
    TooManyCertificates,
    /// It has more external names than its namespace may have at one port.
    TooManyNames,
    /// The proxy may not open enough files for it.
    NoDescriptors,
    /// An agent of another version cannot read its plan.
    PlanUnread,
    /// A pool has no ready endpoint.
    NoEndpoints,
    /// No endpoint of a pool answers.
    EndpointsDown,
    /// Some endpoints of a pool do not answer.
    EndpointsFailing,
    /// No Advertisement covers the address: no node announces it.
    NotAdvertised,
    /// No Advertisement of the address selects a node that runs a speaker.
    NodeNotSelected,
    /// The nodes that could announce the address are excluded from load balancers.
    NodeExcluded,
    /// The nodes that could announce the address leave.
    NodeLeaving,
    /// No node serves the address, so none announces it.
    NotServed,
    /// The address is announced by BGP alone, and no BGPPeer is for the nodes that serve it.
    NoPeer,
    /// No session with a BGPPeer of the address is established.
    SessionsDown,
    /// No node runs a speaker.
    NoSpeaker,
    /// A host that is no speaker of this cluster claims the address on a link.
    AddressConflict,
    /// The requester has every address that it requests. No problem: the reason of a condition that is true.
    Assigned,
    /// The requester no longer requests an address, and the one that it had is being released. No problem either.
    Released,
    /// A reason of a newer agent that this version does not know.
    Unknown,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Self; 60] = [
        Self::LoadBalancerNotFound,
        Self::LoadBalancerDeleting,
        Self::ClaimNotBound,
        Self::NotAllowed,
        Self::NoAddress,
        Self::AddressNotAvailable,
        Self::PortTaken,
        Self::HostTaken,
        Self::PathTaken,
        Self::BackendNotFound,
        Self::BackendNotSupported,
        Self::SecretNotFound,
        Self::BadCertificate,
        Self::BadValue,
        Self::BadTuning,
        Self::UnknownAnnotation,
        Self::NotSupported,
        Self::BindFailed,
        Self::NoNodePort,
        Self::EphemeralPort,
        Self::RefusedByCheck,
        Self::TemplateFailed,
        Self::NoCapacity,
        Self::RequestsRequired,
        Self::TooManyConsumers,
        Self::SeatPending,
        Self::Recording,
        Self::NamePending,
        Self::PoolNotFound,
        Self::PoolNotUsed,
        Self::QuotaReached,
        Self::NotInPool,
        Self::AddressTaken,
        Self::WrongFamily,
        Self::NoPool,
        Self::PoolsExhausted,
        Self::NameFailed,
        Self::NameUnusable,
        Self::MemberRefused,
        Self::TooManyMembers,
        Self::TooManyListeners,
        Self::TooManyCertificates,
        Self::TooManyNames,
        Self::NoDescriptors,
        Self::PlanUnread,
        Self::NoEndpoints,
        Self::EndpointsDown,
        Self::EndpointsFailing,
        Self::NotAdvertised,
        Self::NodeNotSelected,
        Self::NodeExcluded,
        Self::NodeLeaving,
        Self::NotServed,
        Self::NoPeer,
        Self::SessionsDown,
        Self::NoSpeaker,
        Self::AddressConflict,
        Self::Assigned,
        Self::Released,
        Self::Unknown,
    ];

    /// Whether it concerns tuning only: the consumer is served all the same, with the default.
    pub fn is_warning(self) -> bool {
        matches!(self, Self::BadTuning | Self::UnknownAnnotation)
    }

    /// Whether it is about endpoints of a pool: what the consumer wants is in force, but its clients are not served, or by
    /// some endpoints only.
    pub fn is_health(self) -> bool {
        matches!(self, Self::NoEndpoints | Self::EndpointsDown | Self::EndpointsFailing)
    }

    /// Whether a pool has no endpoint that answers.
    pub fn is_outage(self) -> bool {
        matches!(self, Self::NoEndpoints | Self::EndpointsDown)
    }

    /// Whether it passes in a moment: it is neither told in an Event nor counted.
    pub fn is_passing(self) -> bool {
        matches!(self, Self::SeatPending | Self::Recording | Self::NamePending)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

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
        let parts = self.problems.iter().filter(|problem| !problem.reason.is_warning());
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
