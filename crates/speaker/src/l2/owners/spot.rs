//! One address: what the members say of it, and what this speaker does about it.

use super::reach::Reach;
use super::{Candidate, Link, Owner};
use crate::l2::frame::Mac;
use crate::l2::member::{Hold, MemberId, Stance};
use bowline_core::clock::Uptime;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// A host that was heard to have the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// A member, which may be one that seems down.
    Member(MemberId),
    /// Any other host.
    Stranger(Mac),
}

/// What this speaker does about an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing.
    #[default]
    Idle,
    /// Another host has it. Whether it still has, is asked again at this time.
    Waiting(Uptime),
    /// It is to be asked whether a host has the address; the probes wait for their turn.
    Queued,
    /// It asked whether a host has the address.
    Asking { since: Uptime, probes: u8 },
    /// It asks so although it said to be the owner before its process stopped for a while.
    Verifying { since: Uptime, probes: u8 },
    /// The owner offers the address, and this node announced itself. It answers when the owner has stopped to.
    Taking { from: MemberId, until: Uptime },
    /// It answers.
    Owner {
        since: Uptime,
        /// How many announcements of the series are made.
        announced: usize,
        /// Whether another member says to be the owner, too.
        rival: bool,
    },
    /// It answers until another member takes over.
    Offering { to: Option<MemberId>, until: Option<Uptime> },
    /// It answers until this member stands in for it, while its speaker is replaced.
    Lending { to: MemberId, until: Uptime },
    /// The owner asks this node to stand in, and this node asks where the owner has the address.
    Learning { of: MemberId, since: Uptime, probes: u8 },
    /// It stands in: once the owner has stopped to answer, it tells who asks where the owner has the address.
    StandingIn { of: MemberId, since: Uptime, answers: bool },
}

impl State {
    /// Whether this node answers for the address that it has it.
    pub(super) fn owns(&self) -> bool {
        matches!(self, Self::Owner { .. } | Self::Offering { .. } | Self::Lending { .. })
    }

    /// Whether this node answers for the address, be it for another one.
    pub(super) fn answers(&self) -> bool {
        self.owns() || matches!(self, Self::StandingIn { answers: true, .. })
    }

    /// Whether this node needs the questions for an IPv6 address.
    pub(super) fn listens(&self) -> bool {
        !matches!(self, Self::Idle | Self::Waiting(_) | Self::Queued)
    }

    /// What the other members are told.
    pub(super) fn hold(&self) -> Hold {
        match self {
            Self::Idle
            | Self::Waiting(_)
            | Self::Queued
            | Self::Asking { .. }
            | Self::Learning { .. } => Hold::None,
            Self::Verifying { .. } => Hold::Verifies,
            Self::Taking { .. } | Self::Owner { .. } => Hold::Owns,
            Self::Offering { to, .. } => Hold::Offers(*to),
            Self::Lending { to, .. } => Hold::Lends(*to),
            Self::StandingIn { of, .. } => Hold::StandsIn(*of),
        }
    }
}

/// One address.
#[derive(Debug, Default)]
pub(super) struct Spot {
    pub(super) candidate: Option<Candidate>,
    /// What the other members say, by member. Nothing is not kept.
    pub(super) stances: Vec<(MemberId, Stance)>,
    /// What the other members were told last.
    pub(super) said: Stance,
    pub(super) state: State,
    pub(super) wake: Option<Uptime>,
    /// Which host answered the last probe, or claimed the address.
    pub(super) seen: Option<Seen>,
    /// Since when frames say, on the way to an owner, that members have the address which by gossip do not own it.
    pub(super) contradicted: Option<Uptime>,
    /// On which links the owner, for which this node stands in, has the address at which interface.
    pub(super) lent: Vec<(u32, Mac)>,
    /// When the address was last defended against a claim.
    pub(super) defended: Option<Uptime>,
    /// When a stranger was last told of that was not known before.
    pub(super) conflict: Option<Uptime>,
    /// What was reported last.
    pub(super) told: Owner,
}

impl Spot {
    /// What a member says.
    pub(super) fn stance(&self, member: MemberId) -> Stance {
        self.place(member).map_or(Stance::NOTHING, |at| self.stances[at].1)
    }

    fn place(&self, member: MemberId) -> Result<usize, usize> {
        self.stances.binary_search_by_key(&member, |it| it.0)
    }

    /// Keeps what a member says. Whether it is new.
    pub(super) fn note(&mut self, member: MemberId, stance: Stance) -> bool {
        match self.place(member) {
            Ok(at) if self.stances[at].1 == stance => return false,
            Ok(at) if stance == Stance::NOTHING => drop(self.stances.remove(at)),
            Ok(at) => self.stances[at].1 = stance,
            Err(_) if stance == Stance::NOTHING => return false,
            Err(at) => self.stances.insert(at, (member, stance)),
        }
        true
    }

    /// The links that the address belongs to. None without a candidate.
    pub(super) fn reach(&self, address: IpAddr, links: &BTreeMap<u32, Link>) -> Reach {
        let candidate = self.candidate.as_ref();
        candidate.map_or_else(Reach::default, |it| Reach::of(address, &it.interfaces, links))
    }

    /// Whether nothing is known of the address any more.
    pub(super) fn is_empty(&self) -> bool {
        self.candidate.is_none()
            && self.stances.is_empty()
            && self.state == State::Idle
            && self.said == Stance::NOTHING
            && self.told == Owner::Nobody
    }
}
