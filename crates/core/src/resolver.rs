//! The agent's machine that joins the plan of one load balancer with EndpointSlices, Nodes and certificates into
//! updates for a driver. It visits only pools whose members an event may have changed.
//!
//! Events only mark what they may change; [`Resolver::take`] resolves what is marked, so a burst of events is one
//! update. The runtime's agent feeds it; it does no I/O.

mod endpoints;
mod listeners;
mod members;
mod names;
mod nodes;
mod pace;
mod pieces;
mod pools;
mod refused_members;
mod refused_shards;
mod rooms;
mod shards;
mod shares;
mod sites;
#[cfg(test)]
mod tests;

use crate::hash::PlanHash;
use crate::key::{ConsumerRef, ObjectKey};
use crate::member_rules::MemberRules;
use crate::objects::{Node, Slice};
use crate::outcome::{Problem, Reason, quote};
use crate::plan::Host;
use crate::pool_health;
use crate::relist::Relist;
use crate::update::{
    Certificate, Change, CookieSecret, Extent, ListenerKey, Member, Refusal, Update,
};
use endpoints::Endpoints;
use listeners::Listeners;
use nodes::Nodes;
use pools::Pools;
use refused_members::Guard;
use refused_shards::RefusedShards;
pub use shards::Written;
use shards::{Shards, Swap};
use sites::Sites;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

/// The kinds of objects that the resolver gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Plan objects of the load balancer.
    Shard,
    /// EndpointSlice.
    Slice,
    /// Node.
    Node,
    /// Bowline's own Secrets with the certificates of the load balancer, and the one with its cookie secret.
    Certificates,
    /// Plan objects of other load balancers; only the addresses of their listeners count.
    Elsewhere,
}

/// An object that the resolver gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    /// A Plan object: its name, its number among the Plans of the load balancer, and its fragments. A fragment in two
    /// Plans counts once, from the Plan with the lower number. If a fragment cannot be read, the previous fragment of
    /// its consumer stays.
    Shard(Arc<str>, u32, Written),
    /// The name of a Plan object that the agent refuses as a whole, and why. Nothing of it is served.
    Refused(Arc<str>, Box<str>),
    /// An EndpointSlice.
    Slice(Slice),
    /// A Node.
    Node(Node),
    /// One of Bowline's Secrets: its name, and certificates by hash.
    Certificates(Arc<str>, Vec<(Arc<str>, Arc<Certificate>)>),
    /// The secret that signs persistence cookies. It stays until another one comes: clients still have its cookies when
    /// its Secret is gone.
    CookieSecret(CookieSecret),
    /// A Plan object of another load balancer: its name, and the addresses of its listeners.
    Elsewhere(Arc<str>, Vec<IpAddr>),
}

/// An event for the resolver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A list of all objects of a kind begins. Objects that it does not deliver are deleted.
    Begin(Kind),
    /// An object as it is now.
    Apply(Object),
    /// An object is deleted. For Plans and Secrets only the name counts.
    Delete(Kind, ObjectKey),
    /// The list of all objects of a kind has ended.
    Done(Kind),
    /// True: Plans that are deleted from now on count as before, those of other load balancers, too. False: they do not,
    /// and deleted Plans that still count are forgotten.
    Hold(bool),
}

/// A part that the plan has for two consumers, with the one for which it is served.
enum Contested<'a> {
    /// A listener, and the consumer for which it is open.
    Port(ListenerKey, &'a ConsumerRef),
    /// A host, and the namespace for which it is served.
    Host(&'a Host, &'a Arc<str>),
}

/// A part that the plan has for one consumer and the agent serves for another.
struct Unserved<'a> {
    consumer: &'a ConsumerRef,
    extent: Extent,
    by: Contested<'a>,
}

impl Unserved<'_> {
    fn refusal(self) -> Refusal {
        let (reason, message) = match self.by {
            Contested::Port(key, holder) => {
                let message = format!("{} is open for {holder}, which had it first", key.socket());
                (Reason::PortTaken, message)
            }
            Contested::Host(host, owner) => {
                let (host, owner) = (quote(&host.to_string()), quote(owner));
                let message =
                    format!("host {host} is served for namespace {owner}, which had it first");
                (Reason::HostTaken, message)
            }
        };
        let (consumer, problem) = (self.consumer.clone(), Problem::new(reason, message));
        Refusal { consumer, problem, extent: self.extent }
    }
}

/// Removes from a complete update the members that these rules and the update's own listeners refuse; the agent may
/// have kept it under other rules. Returns their number.
pub fn leave_out(update: &mut Update, rules: &MemberRules) -> usize {
    let mut guard = Guard::new(rules.clone());
    for change in &update.listeners {
        if let Change::Put(key, _) = change {
            guard.listen(key);
        }
    }
    let mut refused = 0;
    for pool in &mut update.members {
        let may = |member: &&Member| guard.refuse(member.address).is_none();
        let members: Arc<[Member]> = pool.members.iter().filter(may).copied().collect();
        refused += pool.members.len() - members.len();
        pool.added.retain(|member| may(&member));
        pool.members = members;
    }
    refused
}

/// Joins the objects that it gets, and returns the changes.
#[derive(Debug, Default)]
pub struct Resolver {
    shards: Shards,
    refused: RefusedShards,
    endpoints: Endpoints,
    nodes: Nodes,
    pools: Pools,
    sites: Sites,
    listeners: Listeners,
    guard: Guard,
    cookie_secret: Option<CookieSecret>,
    /// Whether the driver lacks the current cookie secret.
    new_cookie_secret: bool,
    /// The lists of each kind.
    relists: [Relist; 5],
    /// The hash of the last update. None: there was no update yet.
    given: Option<PlanHash>,
    visited: u64,
}

impl Resolver {
    /// A resolver without objects.
    pub fn new() -> Self {
        Self::default()
    }

    /// A resolver with these rules for members.
    pub fn with(rules: MemberRules) -> Self {
        Self { guard: Guard::new(rules), ..Self::default() }
    }

    /// Sets how many listeners the driver can open. Namespaces share them ([`shares`]). None: there is no bound.
    pub fn bounded(mut self, listeners: Option<usize>) -> Self {
        self.listeners.shares.bound(listeners);
        self
    }

    /// Takes what the agent served before a restart. At the first [`Self::take`], listeners that were open come before
    /// others, and only for the namespace for which they were open. Where the plan has a listener or a host for two
    /// consumers, as two leaders may record it for a moment, it stays with the one that had it.
    pub fn recall(&mut self, served: &Update) {
        for change in &served.listeners {
            if let Change::Put(key, it) = change {
                self.listeners.shares.keep(*key, it.consumer.namespace.clone());
                self.listeners.recall(*key, it.consumer.clone());
            }
        }
        for change in &served.sites {
            if let Change::Put(key, site) = change {
                self.sites.recall(key.clone(), site.owner.clone());
            }
        }
    }

    /// Takes an event. Nothing is resolved before [`Self::take`].
    pub fn handle(&mut self, event: Event) {
        match event {
            Event::Begin(kind) => self.relists[kind as usize].begin(),
            Event::Apply(object) => self.apply(object),
            Event::Delete(kind, key) => self.delete(kind, &key),
            Event::Done(kind) => self.done(kind),
            Event::Hold(holds) => {
                let swaps = self.shards.hold(holds);
                self.swap(swaps);
                self.guard.hold(holds);
            }
        }
    }

    fn apply(&mut self, object: Object) {
        match object {
            Object::Shard(name, index, written) => {
                let epoch = self.relists[Kind::Shard as usize].epoch();
                self.refused.forget(&name);
                let swaps = self.shards.apply(&name, index, written, epoch);
                self.swap(swaps);
            }
            Object::Refused(name, why) => {
                let epoch = self.relists[Kind::Shard as usize].epoch();
                let swaps = self.shards.refuse(&name);
                self.swap(swaps);
                self.refused.refuse(name, why, epoch);
            }
            Object::Slice(slice) => {
                let epoch = self.relists[Kind::Slice as usize].epoch();
                self.endpoints.apply(slice, epoch, &mut self.pools.dirty);
            }
            Object::Node(node) => {
                let epoch = self.relists[Kind::Node as usize].epoch();
                if self.nodes.apply(node, epoch) {
                    self.pools.touch_nodes();
                }
            }
            Object::Certificates(name, certificates) => {
                let epoch = self.relists[Kind::Certificates as usize].epoch();
                self.sites.apply_secret(&name, certificates, epoch);
            }
            Object::Elsewhere(plan, addresses) => {
                let epoch = self.relists[Kind::Elsewhere as usize].epoch();
                self.guard.apply_other(&plan, addresses, epoch);
            }
            Object::CookieSecret(secret) => {
                if self.cookie_secret.as_ref() != Some(&secret) {
                    self.cookie_secret = Some(secret);
                    self.new_cookie_secret = true;
                }
            }
        }
    }

    fn delete(&mut self, kind: Kind, key: &ObjectKey) {
        match kind {
            Kind::Shard => {
                self.refused.forget(&key.name);
                let swaps = self.shards.delete(&key.name);
                self.swap(swaps);
            }
            Kind::Slice => self.endpoints.delete(key, &mut self.pools.dirty),
            Kind::Node => {
                if self.nodes.delete(&key.name) {
                    self.pools.touch_nodes();
                }
            }
            Kind::Certificates => self.sites.delete_secret(&key.name),
            Kind::Elsewhere => self.guard.delete_other(&key.name),
        }
    }

    fn done(&mut self, kind: Kind) {
        self.relists[kind as usize].done();
        let relist = self.relists[kind as usize];
        match kind {
            Kind::Shard => {
                self.refused.sweep(relist);
                let swaps = self.shards.sweep(relist);
                self.swap(swaps);
            }
            Kind::Slice => self.endpoints.sweep(relist, &mut self.pools.dirty),
            Kind::Node => {
                if self.nodes.sweep(relist) {
                    self.pools.touch_nodes();
                }
            }
            Kind::Certificates => self.sites.sweep_secrets(relist),
            Kind::Elsewhere => self.guard.sweep_others(relist),
        }
    }

    fn swap(&mut self, swaps: Vec<Swap>) {
        for Swap { old, new } in swaps {
            if let Some(part) = old {
                self.pools.remove(&part);
                self.sites.remove(&part);
                self.listeners.remove(&part);
                self.guard.remove(&part);
            }
            if let Some(part) = new {
                self.pools.add(&part);
                self.sites.add(&part);
                self.listeners.add(&part);
                self.guard.add(&part);
            }
        }
    }

    /// Whether every needed kind has been listed once. Nodes are needed only while a pool has them as members. Before
    /// that an update may lack something that is served already.
    pub fn synced(&self) -> bool {
        let synced = |kind: Kind| self.relists[kind as usize].is_listed();
        synced(Kind::Shard)
            && synced(Kind::Slice)
            && synced(Kind::Certificates)
            && (synced(Kind::Node) || !self.needs_nodes())
    }

    /// Why a Plan is refused as a whole. None: no Plan is.
    pub fn refused(&self) -> Option<&str> {
        self.refused.why()
    }

    /// Whether some pool has nodes as members.
    pub fn needs_nodes(&self) -> bool {
        self.pools.with_nodes()
    }

    /// The changes since the last call; on the first call, everything. None: the driver has everything already.
    pub fn take(&mut self) -> Option<Update> {
        let mut update = Update { hash: self.shards.hash(), ..Update::default() };
        if std::mem::take(&mut self.new_cookie_secret) {
            update.cookie_secret.clone_from(&self.cookie_secret);
        }
        self.visited += self.pools.take(
            &mut self.endpoints,
            &self.nodes,
            &mut self.guard,
            &mut self.listeners.dirty,
            self.given.is_some(),
            &mut update,
        );
        self.sites.take(&mut update);
        self.listeners.take(&mut self.pools, &mut update);
        let before = self.given.replace(update.hash);
        update.complete = before.is_none();
        (before != Some(update.hash) || !update.is_empty()).then_some(update)
    }

    /// Whether [`Self::take`] has more to return without another event: members of a namespace that changes very many
    /// of them.
    pub fn is_behind(&self) -> bool {
        self.pools.behind.is_some()
    }

    /// Certificates that sites name and that have not come: handshakes for those hosts fail, or get the previous
    /// certificate. Plans and Secrets are watched separately, so this is common for a moment and a fault after that.
    pub fn missing_certificates(&self) -> impl Iterator<Item = &Arc<str>> {
        self.sites.missing_certificates()
    }

    /// The hosts whose certificate has not come, each with the consumers that have rules on it. See
    /// [`Self::missing_certificates`].
    pub fn uncertified(&self) -> impl Iterator<Item = (&Host, &ConsumerRef)> {
        self.sites.uncertified()
    }

    /// What updates have left out so far, for each consumer that it concerns: members, listeners without room, and
    /// fragments that cannot be read.
    pub fn left_out(&self) -> impl Iterator<Item = Refusal> {
        let unread = self.shards.unread().map(|(consumer, served)| {
            let (then, extent) = match served {
                true => ("it is served as it was before", Extent::Part),
                false => ("it is not served", Extent::All),
            };
            let message = format!(
                "the agent cannot read what is planned for it, which another version of Bowline has \
                 written; {then}. Update the agent"
            );
            let problem = Problem::new(Reason::PlanUnread, message);
            Refusal { consumer: consumer.clone(), problem, extent }
        });
        self.pools.left_out().chain(self.listeners.left_out()).chain(unread)
    }

    /// What the update says of pools, for the machine that reports pools without a member that answers.
    /// It includes pools of which only the consumer changed, which is no part of an update.
    pub fn pools_of(&mut self, update: &Update) -> Vec<pool_health::Event> {
        let reassigned = self.pools.take_reassigned();
        let put = update.pools.iter().map(|change| match change {
            Change::Put(name, _) | Change::Remove(name) => name,
        });
        let members = update.members.iter().map(|change| &change.pool);
        let names: BTreeSet<_> = put.chain(members).chain(&reassigned).collect();
        let event = |name: &Arc<str>| match self.pools.given(name) {
            Some((consumer, pool, ready)) => pool_health::Event::Pool {
                name: Arc::clone(name),
                consumer: consumer.clone(),
                service: pool.service.clone(),
                ready,
            },
            None => pool_health::Event::Removed(Arc::clone(name)),
        };
        names.into_iter().map(event).collect()
    }

    /// Whether [`Self::left_out`] changed since the last call. It may change without an update.
    pub fn take_left_out_changed(&mut self) -> bool {
        self.pools.take_left_out_changed()
            | self.listeners.shares.take_changed()
            | self.shards.take_unread_changed()
    }

    /// The refusals of listeners and sites that the plan has for two consumers, as two leaders may write it for a
    /// moment. The agent serves them for one; the leader removes them from the plan of the other, which is refused here.
    pub fn unserved(&self) -> impl Iterator<Item = Refusal> {
        self.listeners.unserved().chain(self.sites.unserved()).map(Unserved::refusal)
    }

    /// Everything that updates have contained so far, for a driver that has to start over.
    pub fn snapshot(&self) -> Update {
        let hash = self.given.unwrap_or_default();
        let mut update = Update { hash, complete: true, ..Update::default() };
        update.cookie_secret.clone_from(&self.cookie_secret);
        self.pools.snapshot(&mut update);
        self.sites.snapshot(&mut update);
        self.listeners.snapshot(&mut update);
        update
    }

    /// How many times pools were visited so far: the cost of events.
    pub fn visited(&self) -> u64 {
        self.visited
    }

    /// Whether nothing is stored any more.
    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.pools.is_empty()
            && self.sites.is_empty()
            && self.listeners.is_empty()
            && self.endpoints.is_empty()
            && self.guard.is_empty()
    }
}
