//! How many members the pools of each namespace have on this load balancer: drivers keep something for each, such as
//! a line of HAProxy's configuration. One Service with many endpoints behind many Ingresses or ports asks for the
//! product of both, so a namespace has a bound. Members that a pool has stay. A pool that finds too little room gets
//! what is left, its consumer is told, and it gets the rest when pools of its namespace let go: the first by name
//! first. What one namespace has is no other's concern. A load balancer that is claimed is one namespace's, which has
//! no bound there.

use crate::members::MOST_OF_NAMESPACE;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The members of each namespace.
#[derive(Debug)]
pub(super) struct Rooms {
    /// What one namespace may have.
    pub(super) most: usize,
    rooms: BTreeMap<Arc<str>, Room>,
    /// Namespaces whose pools have let go of members.
    freed: BTreeSet<Arc<str>>,
}

#[derive(Debug, Default)]
struct Room {
    /// Members that its pools have.
    taken: usize,
    /// Pools that want more.
    short: BTreeSet<Arc<str>>,
}

impl Default for Rooms {
    fn default() -> Self {
        Self { most: MOST_OF_NAMESPACE, rooms: BTreeMap::new(), freed: BTreeSet::new() }
    }
}

impl Rooms {
    /// How many members a pool of this namespace may have, which has `held` of them already.
    pub(super) fn left(&self, namespace: &str, held: usize) -> usize {
        let taken = self.rooms.get(namespace).map_or(0, |room| room.taken);
        self.most.saturating_sub(taken - held)
    }

    /// A pool of a namespace had so many members, and has so many now; `short`: it wants more, and there is no room.
    pub(super) fn set(
        &mut self,
        pool: &Arc<str>,
        namespace: &Arc<str>,
        (held, has): (usize, usize),
        short: bool,
    ) {
        let room = self.rooms.entry(namespace.clone()).or_default();
        room.taken = room.taken - held + has;
        match short {
            true => _ = room.short.insert(pool.clone()),
            false => _ = room.short.remove(pool),
        }
        if room.taken == 0 && room.short.is_empty() {
            self.rooms.remove(namespace);
        }
        if has < held {
            self.freed.insert(namespace.clone());
        }
    }

    /// The next pool that wants more members and may find room now. It is looked at, and set again.
    pub(super) fn admit(&mut self) -> Option<Arc<str>> {
        while let Some(namespace) = self.freed.first() {
            let room = self.rooms.get(namespace).filter(|room| room.taken < self.most);
            if let Some(pool) = room.and_then(|room| room.short.first()) {
                return Some(pool.clone());
            }
            self.freed.pop_first();
        }
        None
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.rooms.is_empty() && self.freed.is_empty()
    }
}
