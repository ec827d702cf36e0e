//! What a driver gets and what it answers: the difference between what it has applied and what the plan and the
//! endpoints say now. The resolver makes updates; nothing here applies one.
//!
//! A driver applies an [`Update`] so that traffic never meets a half-applied state: first additions and changes, in the
//! order certificates, cookie secret, pools, members, sites, listeners; then removals, in the reverse order. An update
//! that changes only the hash means "this plan is now applied".

use crate::hash::PlanHash;
use crate::key::ConsumerRef;
use crate::outcome::{Problem, Reason};
use crate::plan::{Host, Listener, ListenerProtocol, Pool, Rule, SiteTls};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// A change of one item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change<K, V> {
    /// The item is added or changed.
    Put(K, V),
    /// The item is removed.
    Remove(K),
}

/// The difference since the previous update; the first update holds everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Update {
    /// Whether it holds everything: an item that is not in it is removed, whatever the driver was given before.
    pub complete: bool,
    /// Certificates, by hash.
    pub certificates: Vec<Change<Arc<str>, Arc<Certificate>>>,
    /// The secret that signs persistence cookies from now on. None: the one before stays; without one before, the
    /// driver chooses.
    pub cookie_secret: Option<CookieSecret>,
    /// Pools, by name. The members of a new pool are in `members` of the same update; otherwise it has none.
    pub pools: Vec<Change<Arc<str>, Arc<Pool>>>,
    /// Members of pools that exist after this update.
    pub members: Vec<MemberChange>,
    /// Sites, by entry and host.
    pub sites: Vec<Change<SiteKey, Arc<ResolvedSite>>>,
    /// Listeners, by address, port and transport.
    pub listeners: Vec<Change<ListenerKey, Arc<ResolvedListener>>>,
    /// The hash of the plan that is in force once this update is applied.
    pub hash: crate::hash::PlanHash,
}

impl Update {
    /// Whether it changes nothing but perhaps the hash.
    pub fn is_empty(&self) -> bool {
        self.certificates.is_empty()
            && self.cookie_secret.is_none()
            && self.pools.is_empty()
            && self.members.is_empty()
            && self.sites.is_empty()
            && self.listeners.is_empty()
    }
}

/// A certificate with its private key, which is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Certificate {
    /// The chain as PEM, the host's own certificate first.
    pub chain: Arc<str>,
    /// The private key, as PEM.
    pub key: Arc<str>,
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate").finish_non_exhaustive()
    }
}

/// The secret with which all agents of a load balancer sign persistence cookies, also after restarts. It is never
/// printed.
#[derive(Clone, PartialEq, Eq)]
pub struct CookieSecret(pub [u8; 32]);

impl fmt::Debug for CookieSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CookieSecret").finish_non_exhaustive()
    }
}

/// The members of a pool after a change, and the change itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberChange {
    /// The pool.
    pub pool: Arc<str>,
    /// All its members, sorted by address.
    pub members: Arc<[Member]>,
    /// The new members.
    pub added: Vec<Member>,
    /// The members with a new weight or state.
    pub changed: Vec<Member>,
    /// The removed members. Their connections drain for the pool's drain time.
    pub removed: Vec<Member>,
}

/// A destination of a pool's traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member {
    /// Its address and port, which identify it.
    pub address: SocketAddr,
    /// Its share, relative to the others'.
    pub weight: u16,
    /// Whether it takes new traffic.
    pub state: MemberState,
}

/// Whether a member takes new traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemberState {
    /// It does.
    Ready,
    /// It is going away: its connections go on, and no new ones come, except from clients that persistence ties to it.
    Draining,
}

/// Identifies a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ListenerKey {
    /// Its address.
    pub address: IpAddr,
    /// Its port.
    pub port: u16,
    /// The protocol whose port it takes.
    pub transport: crate::plan::Transport,
}

impl ListenerKey {
    /// The key of a listener.
    pub fn of(listener: &Listener) -> Self {
        Self {
            address: listener.address,
            port: listener.port,
            transport: listener.protocol.transport(),
        }
    }

    /// The address to bind.
    pub fn socket(&self) -> SocketAddr {
        SocketAddr::new(self.address, self.port)
    }
}

/// A listener and its consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedListener {
    /// The consumer to tell when the listener cannot be bound.
    pub consumer: ConsumerRef,
    /// The listener.
    pub listener: Listener,
}

impl ResolvedListener {
    /// What it speaks.
    pub fn protocol(&self) -> ListenerProtocol {
        self.listener.protocol
    }
}

/// Identifies a site.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SiteKey {
    /// Its entry.
    pub entry: Arc<str>,
    /// Its host.
    pub host: Host,
}

/// The rules of all consumers for one host, in the order in which they are tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedSite {
    /// The namespace that owns the host. A request that no rule here matches may go on to less specific sites of the
    /// same owner, and to no others.
    pub owner: Arc<str>,
    /// How the host is served over TLS.
    pub tls: Option<SiteTls>,
    /// Rules, each with its consumer. The first rule that matches counts.
    pub rules: Vec<(Rule, ConsumerRef)>,
}

/// A driver's answer: all that it cannot do, for each object that it concerns. An empty report means that everything
/// given so far is in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Refusals that stand after this update, not only those of this update.
    pub refused: Vec<Refusal>,
    /// Whether a part of the update is not in force yet without an error, such as while a reload waits for its turn.
    /// The driver reports again when it is in force.
    pub waiting: bool,
    /// Why the driver has failed so far to bring the update into force. It tries again by itself.
    pub trouble: Option<String>,
    /// The pools with members that do not answer, as far as the driver finds out; by name.
    pub failing: Vec<FailingPool>,
}

/// A pool with ready members that do not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailingPool {
    /// The pool.
    pub pool: Arc<str>,
    /// The number of its ready members that do not answer.
    pub count: u32,
    /// Some of them, at most [`FailingPool::NAMED`].
    pub named: Vec<SocketAddr>,
}

impl FailingPool {
    /// How many members are named.
    pub const NAMED: usize = 3;
}

impl Report {
    /// The plan in force, given a driver's report on the plan `given`: while the report waits, it is the plan before.
    pub fn in_force(&self, before: Option<PlanHash>, given: PlanHash) -> Option<PlanHash> {
        if self.waiting { before } else { Some(given) }
    }
}

/// A driver or resolver cannot do something for a consumer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Refusal {
    /// The consumer.
    #[serde(flatten)]
    pub consumer: ConsumerRef,
    /// Why.
    #[serde(flatten)]
    pub problem: Problem,
    /// How much of what the consumer wants is not served.
    #[serde(default, skip_serializing_if = "Extent::is_all")]
    pub extent: Extent,
}

impl Refusal {
    /// The listener or host that an agent does not serve for the consumer because it serves it for another; see
    /// [`crate::resolver::Resolver::unserved`].
    pub fn unserved(&self) -> Option<(ConsumerRef, Extent)> {
        let contested = matches!(
            (self.problem.reason, &self.extent),
            (Reason::PortTaken, Extent::Listener(_)) | (Reason::HostTaken, Extent::Host(_))
        );
        contested.then(|| (self.consumer.clone(), self.extent.clone()))
    }

    /// The listener that an agent could not open. One that it serves for another consumer is open.
    pub fn closes(&self) -> Option<ListenerKey> {
        match self.extent {
            Extent::Listener(key) if self.unserved().is_none() => Some(key),
            _ => None,
        }
    }

    /// The consumer of which an agent serves nothing because it cannot read its fragment. A leader that cannot read the
    /// fragment either plans the consumer anew. While an agent serves what it could read last, or can read the
    /// fragment, the fragment stays.
    pub fn unread(&self) -> Option<&ConsumerRef> {
        let unread = self.problem.reason == Reason::PlanUnread && self.extent.is_all();
        unread.then_some(&self.consumer)
    }
}

/// How much of what a consumer wants a refusal takes away.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Extent {
    /// All of it. This is the default.
    #[default]
    All,
    /// This listener; the others are served.
    Listener(ListenerKey),
    /// A rule or a setting; every listener is open.
    Part,
    /// This host: the agent serves it for another namespace. The rest is served.
    Host(Host),
}

impl Extent {
    fn is_all(&self) -> bool {
        *self == Self::All
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn while_a_driver_waits_the_plan_before_is_in_force() {
        let [before, given] = [1, 2].map(|n| format!("{n:064x}").parse::<PlanHash>().unwrap());
        let said = |waiting| Report { waiting, ..Report::default() };
        assert_eq!(said(true).in_force(Some(before), given), Some(before));
        assert_eq!(said(true).in_force(None, given), None, "nothing was in force before");
        assert_eq!(said(false).in_force(Some(before), given), Some(given));
    }
}
