//! Pools with their members: what the driver has, and what it should have. It keeps the difference for the next update,
//! and leaves out members that the guard or a limit refuses.

use super::endpoints::Endpoints;
use super::members;
use super::nodes::Nodes;
use super::pace::MemberPace;
use super::pieces::Pieces;
use super::refused_members::Guard;
use super::rooms::Rooms;
use super::shards::Part;
use crate::key::ConsumerRef;
use crate::member_rules::{LeftOut, MOST_MEMBERS};
use crate::outcome::{Problem, Reason};
use crate::plan::{Backends, Pool, ServicePortRef};
use crate::update::{Change, Extent, ListenerKey, Member, MemberState, Refusal, Update};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// All pools by name, and those to visit.
#[derive(Debug, Default)]
pub(super) struct Pools {
    pools: BTreeMap<Arc<str>, Entry>,
    /// Pools to visit before the next update.
    pub(super) dirty: BTreeSet<Arc<str>>,
    /// The first pool that waits for the next update, so that the current one does not take too long.
    pub(super) behind: Option<Arc<str>>,
    /// The number of pools in fragments that have nodes as members.
    with_nodes: usize,
    nodes_changed: bool,
    /// The endpoints that are left out of each pool.
    left_out: BTreeMap<Arc<str>, (ConsumerRef, Arc<Pool>, LeftOut)>,
    /// Whether `left_out` changed since the last call.
    left_out_changed: bool,
    /// The pools that have another consumer than at the last call of [`Self::take_reassigned`], such as a Service that
    /// was created again within a burst. Drivers do not see it.
    reassigned: BTreeSet<Arc<str>>,
    pub(super) rooms: Rooms,
}

#[derive(Debug, Default)]
struct Entry {
    pieces: Pieces,
    /// The listeners that are held back while the pool is missing.
    listeners: Vec<ListenerKey>,
    given: Option<Given>,
}

/// The pool in the driver.
#[derive(Clone, Debug)]
struct Given {
    pool: Arc<Pool>,
    /// The consumer, for whose namespace the members count.
    consumer: ConsumerRef,
    members: Arc<[Member]>,
}

/// The eligible members of a Service port, and the endpoints that were left out.
type Resolved = (Arc<[Member]>, LeftOut);

/// The state of one call of [`Pools::take`].
struct Making<'a> {
    endpoints: &'a mut Endpoints,
    nodes: &'a Nodes,
    guard: &'a Guard,
    listeners: &'a mut BTreeSet<ListenerKey>,
    /// The possible members of each Service port, so that each is resolved once for all its pools.
    resolved: FxHashMap<(ServicePortRef, Backends), Resolved>,
    /// The visited pools, as the driver had them.
    before: BTreeMap<Arc<str>, Option<Given>>,
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

    /// Removes the pools of a fragment.
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

    /// Nodes changed: pools with nodes as members are visited again.
    pub(super) fn touch_nodes(&mut self) {
        self.nodes_changed = true;
    }

    /// Whether the driver has a pool.
    pub(super) fn is_given(&self, name: &str) -> bool {
        self.pools.get(name).is_some_and(|entry| entry.given.is_some())
    }

    /// From now on this listener is visited when the pool comes or goes.
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

    /// Brings dirty pools up to date and adds the changes to the update. Listeners that may come or go with the pools
    /// go into `listeners`. With `paced`, pools of which only the members change may wait for the next call. Returns
    /// how many pools it visited.
    pub(super) fn take(
        &mut self,
        endpoints: &mut Endpoints,
        nodes: &Nodes,
        guard: &mut Guard,
        listeners: &mut BTreeSet<ListenerKey>,
        paced: bool,
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
        let (resolved, before) = (FxHashMap::default(), BTreeMap::new());
        let mut making = Making { endpoints, nodes, guard, listeners, resolved, before };
        let (mut visited, mut pace) = (0, MemberPace::default());
        // Pools that wait since the last update come first.
        let rest = self.behind.take().map_or_else(BTreeSet::new, |first| dirty.split_off(&first));
        for name in rest.into_iter().chain(dirty) {
            let namespace = self.of_members(&name).filter(|_| paced).cloned();
            if namespace.as_ref().is_some_and(|namespace| pace.is_up(namespace)) {
                self.behind.get_or_insert_with(|| name.clone());
                self.dirty.insert(name);
                continue;
            }
            visited += 1;
            self.look_at(&name, &mut making);
            if let (Some(namespace), Some(Some(before))) = (namespace, making.before.get(&name))
                && let Some(now) = self.pools.get(&name).and_then(|entry| entry.given.as_ref())
            {
                pace.count(&namespace, &before.members, &now.members);
            }
        }
        while let Some(name) = self.rooms.admit() {
            visited += 1;
            self.look_at(&name, &mut making);
        }
        making.before.into_iter().for_each(|(name, before)| self.tell(&name, before, update));
        visited
    }

    /// The namespace of a pool that the driver has as planned, so that only its members can change.
    fn of_members(&self, name: &str) -> Option<&Arc<str>> {
        let entry = self.pools.get(name)?;
        let ((part, index), given) = (entry.pieces.first()?, entry.given.as_ref()?);
        let same =
            part.pools[index] == given.pool && part.key.0.namespace == given.consumer.namespace;
        same.then_some(&given.consumer.namespace)
    }

    /// Visits a pool: brings it up to date.
    fn look_at(&mut self, name: &Arc<str>, making: &mut Making<'_>) {
        let Some(entry) = self.pools.get_mut(name) else { return };
        let given = entry.given.take();
        making.before.entry(name.clone()).or_insert_with(|| given.clone());
        let first = entry.pieces.first();
        let wanted = first.map(|(part, index)| (part.pools[index].clone(), part.key.0.clone()));
        let claimed = first.is_some_and(|(part, _)| part.claimed);
        if given.is_some() != wanted.is_some() {
            making.listeners.extend(&entry.listeners);
        }
        let pools = (given.as_ref().map(|it| &it.pool), wanted.as_ref().map(|(pool, _)| pool));
        relink(making.endpoints, name, pools);
        let namespace = wanted.as_ref().map(|(_, consumer)| &consumer.namespace);
        if let Some(given) = given.as_ref().filter(|it| Some(&it.consumer.namespace) != namespace) {
            self.rooms.set(name, &given.consumer.namespace, (given.members.len(), 0), false);
        }
        let Some((pool, consumer)) = wanted else {
            self.left_out_changed |= self.left_out.remove(name).is_some();
            return;
        };
        let namespace = consumer.namespace.clone();
        let old = given.map(|it| (it.consumer.namespace, it.members));
        let held = old.as_ref().filter(|(it, _)| *it == namespace).map_or(0, |(_, it)| it.len());
        let old = old.map(|(_, members)| members).unwrap_or_default();
        let port = (pool.service.clone(), pool.backends.clone());
        let resolve = || members::resolve(&pool, making.endpoints, making.nodes, making.guard);
        let (all, mut left) = making.resolved.entry(port).or_insert_with(resolve).clone();
        // No other namespace uses a claimed load balancer.
        let room = if claimed { usize::MAX } else { self.rooms.left(&namespace, held) };
        let members = members::choose(&all, &old, room, &mut left);
        let short = members.len() < all.len().min(MOST_MEMBERS);
        self.rooms.set(name, &namespace, (held, members.len()), short);
        let left = (!left.is_nothing()).then(|| (consumer.clone(), pool.clone(), left));
        if self.left_out.get(name) != left.as_ref() {
            self.left_out_changed = true;
            match left {
                Some(left) => self.left_out.insert(name.clone(), left),
                None => self.left_out.remove(name),
            };
        }
        entry.given = Some(Given { pool, consumer, members });
    }

    /// Adds the changes of a pool to the update.
    fn tell(&mut self, name: &Arc<str>, before: Option<Given>, update: &mut Update) {
        let given = self.pools.get_mut(name).and_then(|entry| entry.given.as_mut());
        let Some(given) = given else {
            if before.is_some() {
                update.pools.push(Change::Remove(name.clone()));
            }
            return self.tidy(name);
        };
        let (same_pool, old) = match before {
            Some(before) => {
                if before.consumer != given.consumer {
                    self.reassigned.insert(name.clone());
                }
                (before.pool == given.pool, before.members)
            }
            None => (false, Arc::default()),
        };
        if !same_pool {
            update.pools.push(Change::Put(name.clone(), given.pool.clone()));
        }
        let same = old == given.members;
        // A pool that is put comes with its members, even if they did not change.
        let nothing = given.members.is_empty() && old.is_empty();
        if !nothing && (!same_pool || !same) {
            update.members.push(members::diff(name.clone(), &old, given.members.clone()));
        }
        if same {
            given.members = old;
        }
    }

    /// The pools with a member at one of these addresses.
    fn with_members_at(&self, addresses: &BTreeSet<IpAddr>) -> Vec<Arc<str>> {
        let there = |member: &Member| addresses.contains(&member.address.ip().to_canonical());
        let given = self.pools.iter().filter_map(|(name, it)| Some((name, it.given.as_ref()?)));
        given.filter(|(_, it)| it.members.iter().any(there)).map(|(name, _)| name.clone()).collect()
    }

    /// A pool of the driver: its consumer, the pool, and the number of its ready members. None: the driver does not have
    /// it, or all of its endpoints are left out.
    pub(super) fn given(&self, name: &str) -> Option<(&ConsumerRef, &Pool, usize)> {
        let entry = self.pools.get(name)?;
        let ((part, _), given) = (entry.pieces.first()?, entry.given.as_ref()?);
        let ready = given.members.iter().filter(|it| it.state == MemberState::Ready).count();
        // Endpoints that the agent itself leaves out are reported as such.
        let told = ready > 0 || !self.left_out.contains_key(name);
        told.then_some((&part.key.0, &given.pool, ready))
    }

    /// The pools that have another consumer than at the last call.
    pub(super) fn take_reassigned(&mut self) -> BTreeSet<Arc<str>> {
        std::mem::take(&mut self.reassigned)
    }

    /// Whether anything else is left out than at the last call.
    pub(super) fn take_left_out_changed(&mut self) -> bool {
        std::mem::take(&mut self.left_out_changed)
    }

    /// The endpoints that are left out, as refusals of the consumers of their pools.
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

    /// Adds all pools in the driver.
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
        self.pools.is_empty()
            && self.with_nodes == 0
            && self.left_out.is_empty()
            && self.rooms.is_empty()
    }
}

fn has_nodes(pool: &Pool) -> bool {
    matches!(pool.backends, Backends::Nodes(_))
}

/// Lets slices of the pool's Service touch the pool, and no others.
fn relink(
    endpoints: &mut Endpoints,
    name: &Arc<str>,
    (old, new): (Option<&Arc<Pool>>, Option<&Arc<Pool>>),
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
