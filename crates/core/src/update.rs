//! What a driver is given: the difference between what it has applied and what the plan and the
//! endpoints say now, and what it answers.
//!
//! A driver applies an [`Update`] so that traffic never meets something half there: first what is
//! added or changed, in the order certificates, cookie secret, pools, members, sites, listeners; then what is removed,
//! in the reverse order. An update whose hash is all that changed means "this is now applied".

use crate::hash::PlanHash;
use crate::key::ConsumerRef;
use crate::outcome::{Problem, Reason};
use crate::plan::{Host, Listener, ListenerProtocol, Pool, Rule, SiteTls};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Something that is now so, or is no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change<K, V> {
    /// It is added or changed.
    Put(K, V),
    /// It is removed.
    Remove(K),
}

/// The difference since the update before; on the first one, everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Update {
    /// Whether this is everything: what is not in it is gone, whatever the driver was given before.
    pub complete: bool,
    /// Certificates, by hash.
    pub certificates: Vec<Change<Arc<str>, Arc<Certificate>>>,
    /// What persistence cookies are signed with from now on. None: as before, or where nothing was given
    /// yet, as the driver likes.
    pub cookie_secret: Option<CookieSecret>,
    /// Pools, by name. A pool is given members in `members` in the same update, or has none.
    pub pools: Vec<Change<Arc<str>, Arc<Pool>>>,
    /// Members of pools that exist after this update.
    pub members: Vec<MemberChange>,
    /// Sites, by entry and host.
    pub sites: Vec<Change<SiteKey, Arc<ResolvedSite>>>,
    /// Listeners, by address, port and transport.
    pub listeners: Vec<Change<ListenerKey, Arc<ResolvedListener>>>,
    /// The hash of the plan that is in force once this is applied.
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

/// A certificate with its key. Its key is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Certificate {
    /// The chain, the host's own first, as PEM.
    pub chain: Arc<str>,
    /// The private key, as PEM.
    pub key: Arc<str>,
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate").finish_non_exhaustive()
    }
}

/// What the persistence cookies of a load balancer are signed with, by all its agents and over all their
/// restarts. It is never printed.
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
    /// Those that are new.
    pub added: Vec<Member>,
    /// Those that were there with another weight or state.
    pub changed: Vec<Member>,
    /// Those that are gone. Their connections drain for the pool's drain time.
    pub removed: Vec<Member>,
}

/// Where traffic of a pool goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member {
    /// Where it listens: what it is known by.
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
    /// It is going away: what it has goes on, and nothing new comes, except for clients that
    /// persistence ties to it.
    Draining,
}

/// What a listener is known by.
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

/// A listener and whom it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedListener {
    /// Whom to tell when it cannot be bound.
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

/// What a site is known by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SiteKey {
    /// Its entry.
    pub entry: Arc<str>,
    /// Its host.
    pub host: Host,
}

/// The rules of one host from all who have some, in the order in which they are tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedSite {
    /// The namespace that the host belongs to. A request that no rule here matches may go on to less
    /// specific sites of the same owner, and to no others.
    pub owner: Arc<str>,
    /// How it is served over TLS.
    pub tls: Option<SiteTls>,
    /// Rules, each with whom it is for; the first that matches counts.
    pub rules: Vec<(Rule, ConsumerRef)>,
}

/// What a driver answers: all that it could not do, each on the object that it concerns. An empty
/// report means that everything given so far is in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Refusals that stand after this update, not only those of this update.
    pub refused: Vec<Refusal>,
    /// Whether some of what was given is not in force yet though nothing is wrong with it, as while a
    /// reload waits its turn. The driver says by itself when it is.
    pub waiting: bool,
    /// Why it has been in vain so far to bring it into force; the driver tries again by itself.
    pub trouble: Option<String>,
}

impl Report {
    /// The plan that is in force when a driver says this of one that it was given: while it waits, the
    /// one before.
    pub fn in_force(&self, before: Option<PlanHash>, given: PlanHash) -> Option<PlanHash> {
        if self.waiting { before } else { Some(given) }
    }
}

/// That a driver cannot do something for somebody.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Refusal {
    /// For whom.
    #[serde(flatten)]
    pub consumer: ConsumerRef,
    /// Why.
    #[serde(flatten)]
    pub problem: Problem,
    /// How much of what it wants is not served.
    #[serde(default, skip_serializing_if = "Extent::is_all")]
    pub extent: Extent,
}

impl Refusal {
    /// What an agent does not serve for the consumer because it serves it for another; see
    /// [`crate::resolver::Resolver::unserved`].
    pub fn unserved(&self) -> Option<(ConsumerRef, Extent)> {
        let contested = matches!(
            (self.problem.reason, &self.extent),
            (Reason::PortTaken, Extent::Listener(_)) | (Reason::HostTaken, Extent::Host(_))
        );
        contested.then(|| (self.consumer.clone(), self.extent.clone()))
    }

    /// The consumer of which an agent serves nothing because it cannot read what is planned for it. A leader that cannot
    /// read that either plans the consumer anew; while agents serve what they could read last, or can read it, it stays.
    pub fn unread(&self) -> Option<&ConsumerRef> {
        let unread = self.problem.reason == Reason::PlanUnread && self.extent.is_all();
        unread.then_some(&self.consumer)
    }
}

/// How much of what a consumer wants a refusal takes away.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Extent {
    /// All of it. What does not say counts as this.
    #[default]
    All,
    /// This listener; the others are served.
    Listener(ListenerKey),
    /// No listener: a rule or a setting. The rest is served.
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
