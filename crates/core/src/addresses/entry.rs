//! One address: what the API has recorded, what it is meant to say, and the write between the two that
//! is under way. What is meant counts as if it were recorded already, until a conflict says otherwise.

use super::WriteId;
use super::pool::Pool;
use super::record::{AddressState, Content, HolderKey};
use crate::objects::{Timestamp, Version};
use crate::relist::Epoch;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

/// A user of an address that was not granted from here.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum User {
    /// A load balancer, or what stands in front of one.
    Holder(HolderKey),
    /// A Service of a tenant, as far as its uses count.
    Tenant(HolderKey),
    Node(Arc<str>),
}

impl std::fmt::Display for User {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Holder(who) | Self::Tenant(who) => write!(f, "{who}"),
            Self::Node(name) => write!(f, "Node {name}"),
        }
    }
}

/// A write that has not been answered.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) id: WriteId,
    /// What the object will say. None: it will be gone.
    pub(super) wrote: Option<Content>,
    /// The version that it replaces or ends. None: it creates the object.
    pub(super) base: Option<Version>,
    /// The watch told meanwhile that the object is gone, at this version.
    pub(super) gone: Option<Version>,
    /// A list that came meanwhile did not have the object.
    pub(super) unseen: bool,
    /// It was sent in doubt whether the object is still there: if it is not, the watch may never tell.
    pub(super) unsure: bool,
}

#[derive(Debug, Default)]
pub(super) struct Entry {
    pub(super) recorded: Option<(Content, Version)>,
    /// What it is meant to say. None: nobody has it, and no object is needed.
    pub(super) held: Option<Content>,
    pub(super) sent: Option<Sent>,
    /// Whether the object may be gone without a word: a list and an answer came in an order that does not
    /// tell. It is written once more, as it is.
    pub(super) doubt: bool,
    /// Whether an answer came while a list was being told.
    pub(super) answered_in_list: bool,
    pub(super) failures: u32,
    /// A failed write is not repeated before.
    pub(super) retry_at: Timestamp,
    pub(super) users: BTreeSet<User>,
    /// The relist that has seen it.
    pub(super) epoch: Epoch,
    pub(super) mark: Mark,
}

/// What an address counts as, in its pool and in indexes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) pool: Option<Arc<str>>,
    pub(super) blocked: bool,
    pub(super) assigned: bool,
    pub(super) resting: bool,
    /// Those whose quota it counts for, where there is one.
    pub(super) namespaces: Vec<Arc<str>>,
    pub(super) key: Option<Arc<str>>,
}

impl Entry {
    pub(super) fn is_vacant(&self) -> bool {
        self.recorded.is_none()
            && self.held.is_none()
            && self.sent.is_none()
            && self.users.is_empty()
    }

    pub(super) fn mark(&self, pool: Option<&Pool>) -> Mark {
        // Nobody counts by namespace where there is no quota.
        let counts = pool.is_some_and(|pool| pool.per_namespace_quota.is_some());
        let holders = self.held.iter().flat_map(|held| &held.holders);
        let holders = holders.map(|it| &it.holder.key.namespace);
        let users = self.users.iter().filter_map(|user| match user {
            User::Tenant(who) => Some(&who.key.namespace),
            User::Holder(_) | User::Node(_) => None,
        });
        let mut namespaces: Vec<Arc<str>> = Vec::new();
        for namespace in holders.chain(users).filter(|_| counts) {
            if !namespace.is_empty() && !namespaces.contains(namespace) {
                namespaces.push(namespace.clone());
            }
        }
        let held = self.held.as_ref();
        Mark {
            pool: pool.map(|pool| pool.name.clone()),
            blocked: !self.is_vacant(),
            assigned: held.is_some_and(|held| !held.holders.is_empty()),
            resting: held.is_some_and(|it| matches!(it.state, AddressState::Resting { .. })),
            namespaces,
            key: held.and_then(Content::key).cloned(),
        }
    }

    /// Somebody other than this one who uses it without having it from here.
    pub(super) fn user_besides(&self, who: &HolderKey) -> Option<&User> {
        self.users.iter().find(|user| match user {
            User::Holder(other) | User::Tenant(other) => other != who,
            User::Node(_) => true,
        })
    }
}

/// What somebody has of an address.
#[derive(Clone, Debug)]
pub(super) struct Hold {
    pub(super) address: IpAddr,
    /// Whether it was recorded for it, and has not been recorded otherwise since.
    pub(super) confirmed: bool,
    /// Whether its owner has been told of it.
    pub(super) told: bool,
    /// It is being given up: from this time on it is not served.
    pub(super) leave: Option<Timestamp>,
    /// It must not be served from then on, whether or not its successor is.
    pub(super) at_once: bool,
    /// Its owner's status shows it, and not yet its successor.
    pub(super) awaits: bool,
}
