//! How many listeners each namespace has open on a load balancer. An agent can open a limited number, so namespaces
//! that share the load balancer share these. An open listener stays open, whatever comes later. A listener without room
//! waits, its consumer is told, and it is opened as soon as there is room: that of the namespace with the fewest open
//! listeners first. The listeners that Ingresses share belong to no namespace and never wait. It opens nothing;
//! `listeners` asks it.
//!
//! [`crate::quota`] limits the listeners of a namespace; each has a 64th of all to itself. The limits are for the
//! number of open listeners, not for the order in which they were opened. So where every listener has room, every one
//! has room again after a restart of the agent, in any order of the listeners.

use crate::outcome::quote;
use crate::quota::{Full, Quota, Taken};
use crate::update::ListenerKey;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The open and the waiting listeners.
#[derive(Debug, Default)]
pub(super) struct Shares {
    /// The limits for the agent and for each namespace.
    quota: Quota,
    tenants: BTreeMap<Arc<str>, Tenant>,
    /// The namespaces with waiting listeners, in the order in which they are served.
    queue: BTreeSet<Rank>,
    /// Listeners that were open before the restart and are not open yet, with the namespace of each.
    kept: BTreeMap<ListenerKey, Arc<str>>,
    /// The listeners in `kept` that are wanted.
    returning: BTreeSet<ListenerKey>,
    /// The number of open listeners, including those that Ingresses share.
    taken: Taken,
    /// Whether [`Self::waiting`] may have changed since the last call.
    changed: bool,
}

/// The listeners of a namespace.
#[derive(Debug, Default)]
struct Tenant {
    open: usize,
    waiting: BTreeSet<ListenerKey>,
    /// Whether the load balancer is claimed by the namespace: no other namespace uses it.
    claimed: bool,
}

/// The place of a namespace in the queue: the one that has claimed the load balancer first, then by open listeners.
type Rank = (bool, usize, Arc<str>);

impl Tenant {
    fn rank(&self, namespace: &Arc<str>) -> Option<Rank> {
        (!self.waiting.is_empty()).then(|| (!self.claimed, self.open, namespace.clone()))
    }
}

/// The message for the owner of a waiting listener.
pub(super) fn message(full: Full, key: &ListenerKey, namespace: &str) -> String {
    let (socket, namespace) = (key.socket(), quote(namespace));
    match full {
        Full::All(most) => {
            format!("{socket} is not open: all {most} listeners that the agent can open are in use")
        }
        Full::Namespace(quota) => format!(
            "{socket} is not open: namespace {namespace} has {quota} listeners here, the limit per namespace on \
             a load balancer that namespaces share"
        ),
        Full::Common(own) => format!(
            "{socket} is not open: namespace {namespace} uses its {own} reserved listeners, and the listeners \
             that all namespaces share are used up"
        ),
    }
}

impl Shares {
    /// Sets how many listeners the agent can open. None: no bound is known. Called before any listener is open.
    pub(super) fn bound(&mut self, most: Option<usize>) {
        self.quota = most.map_or_else(Quota::default, |most| Quota::of(most, (most / 64).max(1)));
    }

    /// Notes that this listener was open for a namespace before the restart. Called before any listener is open.
    pub(super) fn keep(&mut self, key: ListenerKey, namespace: Arc<str>) {
        self.kept.insert(key, namespace);
    }

    /// Changes the listeners of a namespace. An empty namespace stands for the listeners that Ingresses share.
    fn change(&mut self, namespace: &Arc<str>, change: impl FnOnce(&mut Tenant)) {
        let tenant = self.tenants.entry(namespace.clone()).or_default();
        let (open, rank) = (tenant.open, tenant.rank(namespace));
        change(tenant);
        let (now, then) = (tenant.open, tenant.rank(namespace));
        if tenant.open == 0 && tenant.waiting.is_empty() {
            self.tenants.remove(namespace);
        }
        self.changed |= !self.queue.is_empty() || then.is_some();
        if rank != then {
            if let Some(rank) = &rank {
                self.queue.remove(rank);
            }
            self.queue.extend(then);
        }
        match namespace.is_empty() {
            true => self.taken.change_of_none(open, now),
            false => self.taken.change(&self.quota, open, now),
        }
    }

    /// Sets whether a namespace has claimed the load balancer.
    pub(super) fn claim(&mut self, namespace: &Arc<str>, claimed: bool) {
        if self.tenants.get(namespace).is_some_and(|tenant| tenant.claimed != claimed) {
            self.change(namespace, |tenant| tenant.claimed = claimed);
        }
    }

    /// A listener waits for room.
    pub(super) fn wait(&mut self, key: ListenerKey, namespace: &Arc<str>, claimed: bool) {
        if self.kept.get(&key).is_some_and(|it| it == namespace) {
            self.returning.insert(key);
        }
        self.change(namespace, |tenant| {
            tenant.claimed = claimed;
            tenant.waiting.insert(key);
        });
    }

    /// A listener no longer waits.
    pub(super) fn leave(&mut self, key: ListenerKey, namespace: &Arc<str>) {
        self.returning.remove(&key);
        self.change(namespace, |tenant| _ = tenant.waiting.remove(&key));
    }

    /// A listener is closed.
    pub(super) fn close(&mut self, namespace: &Arc<str>) {
        self.change(namespace, |tenant| tenant.open -= 1);
    }

    /// The next listener with room: it no longer waits, and counts as open. Listeners that were open before the restart
    /// come first.
    pub(super) fn admit(&mut self) -> Option<ListenerKey> {
        let shared = self.tenants.get("").and_then(|tenant| tenant.waiting.first());
        let (key, namespace) = match shared {
            Some(key) => (*key, Arc::from("")),
            None => self.returns().or_else(|| self.first())?,
        };
        self.returning.remove(&key);
        self.change(&namespace, |tenant| {
            tenant.waiting.remove(&key);
            tenant.open += 1;
        });
        Some(key)
    }

    /// Every listener so far is admitted or waits. From now on it does not matter what was open before the restart.
    pub(super) fn settle(&mut self) {
        self.kept.clear();
        self.returning.clear();
    }

    fn returns(&self) -> Option<(ListenerKey, Arc<str>)> {
        let room = self.taken.all() < self.quota.most;
        self.returning
            .first()
            .filter(|_| room)
            .and_then(|key| Some((*key, self.kept.get(key)?.clone())))
    }

    /// The first in the queue. If it has no room, none has: the others have as many open listeners, or more.
    fn first(&self) -> Option<(ListenerKey, Arc<str>)> {
        let (_, _, namespace) = self.queue.first()?;
        let tenant = self.tenants.get(namespace).filter(|it| self.full(it).is_none())?;
        Some((*tenant.waiting.first()?, namespace.clone()))
    }

    /// Why a namespace may not open another listener. None: it may.
    fn full(&self, tenant: &Tenant) -> Option<Full> {
        self.quota.refuse(&self.taken, tenant.open, 1, tenant.claimed)
    }

    /// The waiting listeners, and why they wait.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (&ListenerKey, &Arc<str>, Full)> {
        let namespaces = self.queue.iter().filter_map(|(_, _, namespace)| {
            let tenant = self.tenants.get(namespace)?;
            Some((namespace, tenant, self.full(tenant)?))
        });
        namespaces.flat_map(|(namespace, tenant, why)| {
            tenant.waiting.iter().map(move |key| (key, namespace, why))
        })
    }

    /// Whether [`Self::waiting`] may have changed since the last call.
    pub(super) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.tenants.is_empty() && self.queue.is_empty() && self.taken == Taken::default()
    }
}
