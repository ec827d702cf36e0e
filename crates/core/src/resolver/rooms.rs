//! How many members the pools of each namespace have on this load balancer. Drivers keep something for each member,
//! such as a line of HAProxy's configuration. One Service with many endpoints behind many Ingresses or ports needs the
//! product of both, so each namespace has a bound. Members that a pool has stay. A pool without enough room gets what
//! is left, its consumer is told, and it gets the rest when pools of its namespace release members: the first by name
//! first. Namespaces do not affect each other. On a claimed load balancer the only namespace has no bound. `pools` asks
//! it.

use crate::member_rules::MOST_OF_NAMESPACE;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The numbers of members, by namespace.
#[derive(Debug)]
pub(super) struct Rooms {
    /// The most members of one namespace.
    pub(super) most: usize,
    rooms: BTreeMap<Arc<str>, Room>,
    /// Namespaces with pools that have released members.
    freed: BTreeSet<Arc<str>>,
}

#[derive(Debug, Default)]
struct Room {
    /// The number of members that its pools have.
    taken: usize,
    /// The pools that want more members.
    short: BTreeSet<Arc<str>>,
}

impl Default for Rooms {
    fn default() -> Self {
        Self { most: MOST_OF_NAMESPACE, rooms: BTreeMap::new(), freed: BTreeSet::new() }
    }
}

impl Rooms {
    /// How many members a pool of this namespace may have. It has `held` of the namespace's members already.
    pub(super) fn left(&self, namespace: &str, held: usize) -> usize {
        let taken = self.rooms.get(namespace).map_or(0, |room| room.taken);
        self.most.saturating_sub(taken - held)
    }

    /// Notes that a pool of a namespace had `held` members and now has `has`. `short`: it wants more, without room.
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

    /// The next pool that wants more members and may have room now. The caller visits it and calls [`Self::set`].
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
