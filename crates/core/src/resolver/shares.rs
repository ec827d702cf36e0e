//! How many listeners each namespace has open on a load balancer. An agent can open only so many, so namespaces that
//! share the load balancer share these. A listener that is open stays open, whatever comes later. One that has no
//! room waits, its consumer is told, and it is opened as soon as there is room: of the namespace with the fewest open
//! listeners first. The listeners that Ingresses share belong to no namespace and never wait. Pure: `listeners` asks.
//!
//! How many a namespace may have is [`crate::quota`]'s to say; each has a 64th of all to itself. These are bounds on what is open, not on the order in which it was opened: where every listener has room, every
//! one has room again after a restart of the agent, in whatever order the listeners come.

use crate::outcome::quote;
use crate::quota::{Full, Quota, Taken};
use crate::update::ListenerKey;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What is open, and what waits.
#[derive(Debug, Default)]
pub(super) struct Shares {
    /// How many the agent can open, and each namespace.
    quota: Quota,
    tenants: BTreeMap<Arc<str>, Tenant>,
    /// The namespaces with listeners that wait, in the order in which they are served.
    queue: BTreeSet<Rank>,
    /// Listeners that were open before the agent started and are not open yet, with the namespace of each.
    kept: BTreeMap<ListenerKey, Arc<str>>,
    /// Those of them that are wanted.
    returning: BTreeSet<ListenerKey>,
    /// How many are open, those that Ingresses share included.
    taken: Taken,
    /// Whether [`Self::waiting`] may say something else than when it was last asked.
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

/// The place of a namespace in the queue: one that has claimed the load balancer first, then by open listeners.
type Rank = (bool, usize, Arc<str>);

impl Tenant {
    fn rank(&self, namespace: &Arc<str>) -> Option<Rank> {
        (!self.waiting.is_empty()).then(|| (!self.claimed, self.open, namespace.clone()))
    }
}

/// What the owner of a listener is told that waits.
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
    /// From now on the agent can open so many; None: no bound is known. Said before anything is open.
    pub(super) fn bound(&mut self, most: Option<usize>) {
        self.quota = most.map_or_else(Quota::default, |most| Quota::of(most, (most / 64).max(1)));
    }

    /// This listener was open for a namespace before the agent started. Said before anything is open.
    pub(super) fn keep(&mut self, key: ListenerKey, namespace: Arc<str>) {
        self.kept.insert(key, namespace);
    }

    /// Changes what a namespace has. An empty namespace stands for the listeners that Ingresses share.
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

    /// Whether a namespace has claimed the load balancer.
    pub(super) fn claim(&mut self, namespace: &Arc<str>, claimed: bool) {
        if self.tenants.get(namespace).is_some_and(|tenant| tenant.claimed != claimed) {
            self.change(namespace, |tenant| tenant.claimed = claimed);
        }
    }

    /// A listener is to be opened when there is room.
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

    /// The next listener that has room: it no longer waits, and counts as open. Those that were open before the
    /// agent started come first.
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

    /// Everything that was told so far has been admitted or waits: from now on all newcomers are alike.
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

    /// The first in the queue. Where it has no room, no other has: those after it have as many open, or more.
    fn first(&self) -> Option<(ListenerKey, Arc<str>)> {
        let (_, _, namespace) = self.queue.first()?;
        let tenant = self.tenants.get(namespace).filter(|it| self.full(it).is_none())?;
        Some((*tenant.waiting.first()?, namespace.clone()))
    }

    /// Why a namespace may not open another listener. None: it may.
    fn full(&self, tenant: &Tenant) -> Option<Full> {
        self.quota.refuse(&self.taken, tenant.open, 1, tenant.claimed)
    }

    /// The listeners that wait, and why.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (&ListenerKey, &Arc<str>, Full)> {
        let namespaces = self.queue.iter().filter_map(|(_, _, namespace)| {
            let tenant = self.tenants.get(namespace)?;
            Some((namespace, tenant, self.full(tenant)?))
        });
        namespaces.flat_map(|(namespace, tenant, why)| {
            tenant.waiting.iter().map(move |key| (key, namespace, why))
        })
    }

    /// Whether [`Self::waiting`] may say something else than when it was last asked.
    pub(super) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.tenants.is_empty() && self.queue.is_empty() && self.taken == Taken::default()
    }
}
