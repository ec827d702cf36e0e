//! Pools with their members, as the driver has them and as they should be.

use super::endpoints::Endpoints;
use super::guard::Guard;
use super::members;
use super::nodes::Nodes;
use super::pieces::Pieces;
use super::shards::Part;
use crate::key::ConsumerRef;
use crate::members::LeftOut;
use crate::outcome::{Problem, Reason};
use crate::plan::{Backends, Pool};
use crate::update::{Change, Extent, ListenerKey, Member, Refusal, Update};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// All pools by name, and those that have to be looked at.
#[derive(Debug, Default)]
pub(super) struct Pools {
    pools: BTreeMap<Arc<str>, Entry>,
    /// Pools to look at before the next update.
    pub(super) dirty: BTreeSet<Arc<str>>,
    /// How often a fragment asks for nodes as members.
    with_nodes: usize,
    nodes_changed: bool,
    /// What is left out of pools, by their names.
    left_out: BTreeMap<Arc<str>, (ConsumerRef, Arc<Pool>, LeftOut)>,
    /// Whether something else is left out than when it was last asked.
    left_out_changed: bool,
}

#[derive(Debug, Default)]
struct Entry {
    pieces: Pieces,
    /// Listeners that are held back while there is no pool.
    listeners: Vec<ListenerKey>,
    given: Option<Given>,
}

/// What the driver has.
#[derive(Debug)]
struct Given {
    pool: Arc<Pool>,
    members: Arc<[Member]>,
}

impl Pools {
    /// Adds the pools of a fragment.
    pub(super) fn add(&mut self, part: &Arc<Part>) {
        for (index, pool) in part.pools.iter().enumerate() {
            self.pools.entry(pool.name.clone()).or_default().pieces.add(part, index);
            self.dirty.insert(pool.name.clone());
            self.with_nodes += usize::from(has_nodes(pool));
        }
    }

    /// Takes out the pools of a fragment.
    pub(super) fn remove(&mut self, part: &Arc<Part>) {
        for pool in &part.pools {
            if let Some(entry) = self.pools.get_mut(&pool.name) {
                entry.pieces.remove(part);
            }
            self.dirty.insert(pool.name.clone());
            self.with_nodes -= usize::from(has_nodes(pool));
        }
    }

    /// Whether some pool has nodes as members.
    pub(super) fn with_nodes(&self) -> bool {
        self.with_nodes > 0
    }

    /// Nodes are different: pools that have them as members are looked at again.
    pub(super) fn touch_nodes(&mut self) {
        self.nodes_changed = true;
    }

    /// Whether the driver has a pool.
    pub(super) fn is_given(&self, name: &str) -> bool {
        self.pools.get(name).is_some_and(|entry| entry.given.is_some())
    }

    /// From now on a listener has to be looked at when the pool comes or goes.
    pub(super) fn watch(&mut self, name: Arc<str>, listener: ListenerKey) {
        self.pools.entry(name).or_default().listeners.push(listener);
    }

    /// Undoes [`Self::watch`].
    pub(super) fn unwatch(&mut self, name: &str, listener: ListenerKey) {
        if let Some(entry) = self.pools.get_mut(name) {
            entry.listeners.retain(|other| *other != listener);
            self.tidy(name);
        }
    }

    /// Brings dirty pools up to date and says what is different; listeners that may come or go with
    /// them go into `listeners`. Returns how many pools it looked at.
    pub(super) fn take(
        &mut self,
        endpoints: &mut Endpoints,
        nodes: &Nodes,
        guard: &mut Guard,
        listeners: &mut BTreeSet<ListenerKey>,
        update: &mut Update,
    ) -> u64 {
        let mut dirty = std::mem::take(&mut self.dirty);
        let changed = guard.take_changed();
        if !changed.is_empty() {
            dirty.extend(self.with_members_at(&changed));
            dirty.extend(self.left_out.keys().cloned());
        }
        if std::mem::take(&mut self.nodes_changed) && self.with_nodes > 0 {
            let given = |entry: &Entry| entry.given.as_ref().is_some_and(|g| has_nodes(&g.pool));
            let pools = self.pools.iter().filter(|(_, entry)| given(entry));
            dirty.extend(pools.map(|(name, _)| name.clone()));
        }
        let visited = dirty.len() as u64;
        for name in dirty {
            let Some(entry) = self.pools.get_mut(&name) else { continue };
            let before = entry.given.take();
            let first = entry.pieces.first();
            let wanted = first.map(|(part, index)| part.pools[index].clone());
            let consumer = first.map(|(part, _)| part.key.0.clone());
            if before.is_some() != wanted.is_some() {
                listeners.extend(&entry.listeners);
            }
            relink(endpoints, &name, before.as_ref().map(|given| &given.pool), wanted.as_ref());
            let Some(pool) = wanted else {
                if before.is_some() {
                    update.pools.push(Change::Remove(name.clone()));
                }
                self.left_out_changed |= self.left_out.remove(&name).is_some();
                self.tidy(&name);
                continue;
            };
            let (same_pool, old) = match before {
                Some(before) => (before.pool == pool, before.members),
                None => (false, Arc::default()),
            };
            let (mut members, left) = members::resolve(&pool, endpoints, nodes, guard, &old);
            let left = consumer.filter(|_| !left.is_nothing()).map(|it| (it, pool.clone(), left));
            if self.left_out.get(&name) != left.as_ref() {
                self.left_out_changed = true;
                match left {
                    Some(left) => self.left_out.insert(name.clone(), left),
                    None => self.left_out.remove(&name),
                };
            }
            if !same_pool {
                update.pools.push(Change::Put(name.clone(), pool.clone()));
            }
            if old == members {
                members = old.clone();
            }
            // A pool that is put is given its members along with it, the same ones too.
            let nothing = members.is_empty() && old.is_empty();
            if !nothing && (!same_pool || !Arc::ptr_eq(&old, &members)) {
                update.members.push(members::diff(name.clone(), &old, members.clone()));
            }
            entry.given = Some(Given { pool, members });
        }
        visited
    }

    /// Pools that have a member at one of these addresses.
    fn with_members_at(&self, addresses: &BTreeSet<IpAddr>) -> Vec<Arc<str>> {
        let there = |member: &Member| addresses.contains(&member.address.ip().to_canonical());
        let given = self.pools.iter().filter_map(|(name, it)| Some((name, it.given.as_ref()?)));
        given.filter(|(_, it)| it.members.iter().any(there)).map(|(name, _)| name.clone()).collect()
    }

    /// Whether something else is left out than when it was last asked.
    pub(super) fn take_left_out_changed(&mut self) -> bool {
        std::mem::take(&mut self.left_out_changed)
    }

    /// What is left out, each on the consumer that it concerns.
    pub(super) fn left_out(&self) -> impl Iterator<Item = Refusal> {
        self.left_out.values().flat_map(|(consumer, pool, left)| {
            let service = format!("{}/{}", pool.service.namespace, pool.service.name);
            let told = [
                (Reason::MemberRefused, left.unfit(&service)),
                (Reason::TooManyMembers, left.over(&service)),
            ];
            told.into_iter().filter_map(|(reason, message)| {
                let problem = Problem::new(reason, message?);
                Some(Refusal { consumer: consumer.clone(), problem, extent: Extent::Part })
            })
        })
    }

    /// All that the driver has.
    pub(super) fn snapshot(&self, update: &mut Update) {
        for (name, given) in self.pools.iter().filter_map(|(n, e)| Some((n, e.given.as_ref()?))) {
            update.pools.push(Change::Put(name.clone(), given.pool.clone()));
            if !given.members.is_empty() {
                update.members.push(members::diff(name.clone(), &[], given.members.clone()));
            }
        }
    }

    fn tidy(&mut self, name: &str) {
        let unused = |entry: &Entry| {
            entry.pieces.is_empty() && entry.listeners.is_empty() && entry.given.is_none()
        };
        if self.pools.get(name).is_some_and(unused) {
            self.pools.remove(name);
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.pools.is_empty() && self.with_nodes == 0 && self.left_out.is_empty()
    }
}

fn has_nodes(pool: &Pool) -> bool {
    matches!(pool.backends, Backends::Nodes(_))
}

/// Lets slices of the pool's Service, and of no other, touch the pool.
fn relink(
    endpoints: &mut Endpoints,
    name: &Arc<str>,
    old: Option<&Arc<Pool>>,
    new: Option<&Arc<Pool>>,
) {
    let (old, new) = (old.map(|pool| &pool.service), new.map(|pool| &pool.service));
    if old == new {
        return;
    }
    if let Some(port) = new {
        endpoints.link(port, name.clone());
    }
    if let Some(port) = old {
        endpoints.unlink(port, name);
    }
}
