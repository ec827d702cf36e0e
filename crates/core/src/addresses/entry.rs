//! One address: its recorded content, its wanted content, and the write in flight between the two. The wanted content
//! counts as recorded until a conflict says otherwise. Data only: [`super::ledger`] owns the entries.

use super::WriteId;
use super::pool::Pool;
use super::record::{AddressState, Content, HolderKey};
use crate::objects::{Timestamp, Version};
use crate::relist::Epoch;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

/// An object that uses an address without a grant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum User {
    /// A load balancer, or its door.
    Holder(HolderKey),
    /// A Service of a tenant, for the uses that count.
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
    /// The content that it writes. None: it deletes the object.
    pub(super) wrote: Option<Content>,
    /// The version that it replaces or deletes. None: it creates the object.
    pub(super) base: Option<Version>,
    /// The version of a deletion that the watch delivered meanwhile.
    pub(super) gone: Option<Version>,
    /// Whether a list that ended meanwhile did not have the object.
    pub(super) unseen: bool,
    /// Whether the object may already have been deleted when this write was sent, by a deletion that the watch may never
    /// deliver.
    pub(super) unsure: bool,
}

#[derive(Debug, Default)]
pub(super) struct Entry {
    pub(super) recorded: Option<(Content, Version)>,
    /// The wanted content. None: it has no holder, and no object is needed.
    pub(super) held: Option<Content>,
    pub(super) sent: Option<Sent>,
    /// Whether the object may be gone unnoticed: the order of a list and an answer is unknown. It is then written
    /// once more, unchanged.
    pub(super) doubt: bool,
    /// Whether a write was answered while a list was being delivered.
    pub(super) answered_in_list: bool,
    pub(super) failures: u32,
    /// A failed write is not repeated before this time.
    pub(super) retry_at: Timestamp,
    pub(super) users: BTreeSet<User>,
    /// The epoch in which a list delivered it or a write of it was answered.
    pub(super) epoch: Epoch,
    pub(super) mark: Mark,
}

/// How an address counts in its pool and in the indexes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) pool: Option<Arc<str>>,
    pub(super) blocked: bool,
    pub(super) assigned: bool,
    pub(super) resting: bool,
    /// The namespaces whose quota it counts for. Empty if its pool has no quota.
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
        // Without a quota nothing is counted by namespace.
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

    /// Another object that uses the address without a grant.
    pub(super) fn user_besides(&self, who: &HolderKey) -> Option<&User> {
        self.users.iter().find(|user| match user {
            User::Holder(other) | User::Tenant(other) => other != who,
            User::Node(_) => true,
        })
    }
}

/// A holder's part in an address.
#[derive(Clone, Debug)]
pub(super) struct Hold {
    pub(super) address: IpAddr,
    /// Whether the API recorded the address for the holder, and no record has denied it since.
    pub(super) confirmed: bool,
    /// Whether the holder has been told of it.
    pub(super) told: bool,
    /// The time from which it is not served. None: it is not being given up.
    pub(super) leave: Option<Timestamp>,
    /// Whether it must not be served from then on even if its successor is not shown yet.
    pub(super) at_once: bool,
    /// Whether the holder's status shows it and does not show its successor yet.
    pub(super) awaits: bool,
}
