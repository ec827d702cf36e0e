//! The machine: what it knows, which addresses an event touches, and the effects of a burst. How it decides for an
//! address is in `decide`, which routes follow is in `routes`. The speaker's shell calls it.

use super::decide::{Decided, Entry};
use super::endpoints::Endpoints;
use super::event::{
    AnnouncedService, Announcing, Candidate, Effect, Event, Kind, Listening, Name, Object,
    SpeakerNode,
};
use super::routes::Routes;
use super::why::WhyNot;
use super::{Advertisement, Peer};
use crate::addresses::Labels;
use crate::key::ObjectKey;
use crate::outcome::Problem;
use crate::relist::{Epoch, Relist};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// Decides what one node announces.
///
/// It observes events in [`Announcements::handle`] and decides in [`Announcements::take`]: only for addresses that
/// events touched, however many events came in between and in whatever order. It announces nothing before all kinds
/// have been listed once.
#[derive(Debug)]
pub struct Announcements {
    pub(super) node: Arc<str>,
    pub(super) leaving: bool,
    relists: [Relist; Kind::ALL.len()],
    pub(super) addresses: FxHashMap<IpAddr, Entry>,
    pub(super) advertisements: BTreeMap<Arc<str>, Arc<Advertisement>>,
    advertisement_epochs: BTreeMap<Arc<str>, Epoch>,
    peers: BTreeMap<Arc<str>, (Arc<Peer>, Epoch)>,
    pub(super) pools: BTreeMap<Arc<str>, (Labels, Epoch)>,
    pub(super) nodes: BTreeMap<Arc<str>, (SpeakerNode, Epoch)>,
    without_object: SpeakerNode,
    pub(super) services: FxHashMap<ObjectKey, (AnnouncedService, Epoch)>,
    pub(super) endpoints: Endpoints,
    pub(super) agents: BTreeMap<Arc<str>, BTreeMap<IpAddr, Listening>>,
    /// The held addresses that are on the node.
    pub(super) present: BTreeSet<IpAddr>,
    pub(super) health: FxHashMap<ObjectKey, Option<bool>>,
    pub(super) speakers: BTreeSet<Arc<str>>,
    pub(super) served_at: FxHashMap<IpAddr, BTreeSet<Arc<str>>>,
    pub(super) routes: Routes,
    /// The addresses that a Service holds.
    by_service: FxHashMap<ObjectKey, FxHashSet<IpAddr>>,
    by_pool: FxHashMap<Arc<str>, FxHashSet<IpAddr>>,
    checks: FxHashMap<ObjectKey, u16>,
    dirty: BTreeSet<IpAddr>,
    dirty_services: BTreeSet<ObjectKey>,
    dirty_peers: BTreeSet<Arc<str>>,
    all_dirty: bool,
    complete: bool,
    visited: u64,
}

impl Announcements {
    /// The machine of this node.
    pub fn new(node: Arc<str>) -> Self {
        Self {
            without_object: SpeakerNode::without_object(node.clone()),
            node,
            leaving: false,
            relists: Default::default(),
            addresses: FxHashMap::default(),
            advertisements: BTreeMap::new(),
            advertisement_epochs: BTreeMap::new(),
            peers: BTreeMap::new(),
            pools: BTreeMap::new(),
            nodes: BTreeMap::new(),
            services: FxHashMap::default(),
            endpoints: Endpoints::default(),
            agents: BTreeMap::new(),
            present: BTreeSet::new(),
            health: FxHashMap::default(),
            speakers: BTreeSet::new(),
            served_at: FxHashMap::default(),
            routes: Routes::default(),
            by_service: FxHashMap::default(),
            by_pool: FxHashMap::default(),
            checks: FxHashMap::default(),
            dirty: BTreeSet::new(),
            dirty_services: BTreeSet::new(),
            dirty_peers: BTreeSet::new(),
            all_dirty: false,
            complete: false,
            visited: 0,
        }
    }

    /// Whether every kind has been listed once. Before that, nothing is announced.
    pub fn is_synced(&self) -> bool {
        self.relists.iter().all(Relist::is_listed)
    }

    /// How many addresses were decided for: the cost, for tests and benches.
    pub fn visited(&self) -> u64 {
        self.visited
    }

    /// This node. A machine without a Node object has nothing that speaks against it.
    pub(super) fn me(&self) -> &SpeakerNode {
        self.nodes.get(&self.node).map_or(&self.without_object, |(node, _)| node)
    }

    /// Takes in an event.
    pub fn handle(&mut self, event: Event) {
        match event {
            Event::Begin(kind) => self.relists[kind as usize].begin(),
            Event::Done(kind) => {
                for name in self.missed(kind) {
                    self.delete(&name);
                }
                self.relists[kind as usize].done();
            }
            Event::Apply(object) => self.apply(object),
            Event::Unreadable(name) => self.renew(&name),
            Event::Delete(name) => self.delete(&name),
            Event::Agent(load_balancer, addresses) => self.agent(load_balancer, addresses),
            Event::Present(addresses) => {
                let before = std::mem::replace(&mut self.present, addresses);
                self.dirty.extend(before.symmetric_difference(&self.present));
            }
            Event::Health(service, healthy) => {
                if self.health.insert(service.clone(), healthy) != Some(healthy) {
                    self.dirty_services.insert(service);
                }
            }
            Event::Speaker(node, runs) => {
                let changed = match runs {
                    true => self.speakers.insert(node),
                    false => self.speakers.remove(&node),
                };
                self.others_changed(changed);
            }
            Event::ServedAt(address, node, serves) => self.serve_at(address, node, serves),
            Event::Leave => self.all_dirty |= !std::mem::replace(&mut self.leaving, true),
        }
    }

    /// Another node counts only while this one announces nothing but what no other node does.
    fn others_changed(&mut self, changed: bool) {
        self.all_dirty |= changed && !self.me().is_sound();
    }

    fn agent(&mut self, load_balancer: Arc<str>, addresses: Option<BTreeMap<IpAddr, Listening>>) {
        let before = match addresses.clone() {
            Some(addresses) => self.agents.insert(load_balancer, addresses),
            None => self.agents.remove(&load_balancer),
        };
        let (before, now) = (before.unwrap_or_default(), addresses.unwrap_or_default());
        let all = before.keys().chain(now.keys());
        for address in all.filter(|address| before.get(address) != now.get(address)) {
            self.own(*address);
            self.dirty.insert(*address);
        }
    }

    /// Keeps an address that no Address object records while an agent has it: a load balancer's own address, which
    /// lies in no pool.
    fn own(&mut self, address: IpAddr) {
        let is_usable = !address.is_loopback() && !address.is_unspecified();
        if !is_usable || self.addresses.get(&address).is_some_and(|it| it.recorded) {
            return;
        }
        let agents = self.agents.iter().filter(|(_, all)| all.contains_key(&address));
        let mut entry = Entry::own(agents.map(|(name, _)| name));
        match self.addresses.get_mut(&address) {
            Some(known) => {
                entry.decided = std::mem::take(&mut known.decided);
                *known = entry;
            }
            None if entry.holders.is_empty() => {}
            None => _ = self.addresses.insert(address, entry),
        }
    }

    fn serve_at(&mut self, address: IpAddr, node: Arc<str>, serves: bool) {
        let nodes = self.served_at.entry(address).or_default();
        let changed = if serves { nodes.insert(node) } else { nodes.remove(&node) };
        if nodes.is_empty() {
            self.served_at.remove(&address);
        }
        if changed && !self.me().is_sound() {
            self.dirty.insert(address);
        }
    }

    /// An object is in the list, whatever it says. Only objects of these kinds can be unreadable.
    fn renew(&mut self, name: &Name) {
        let epoch = |kind: Kind| self.relists[kind as usize].epoch();
        let (now, known) = match name {
            Name::Address(address) => {
                let known = self.addresses.get_mut(address).map(|it| &mut it.epoch);
                (epoch(Kind::Address), known)
            }
            Name::Advertisement(name) => {
                (epoch(Kind::Advertisement), self.advertisement_epochs.get_mut(name))
            }
            Name::Peer(name) => (epoch(Kind::Peer), self.peers.get_mut(name).map(|it| &mut it.1)),
            Name::Pool(_) | Name::Node(_) | Name::Service(_) | Name::Slice(_) => return,
        };
        if let Some(known) = known {
            *known = now;
        }
    }

    fn missed(&self, kind: Kind) -> Vec<Name> {
        let relist = &self.relists[kind as usize];
        fn all<K: Clone, T>(keys: Vec<K>, name: impl Fn(K) -> T) -> Vec<T> {
            keys.into_iter().map(name).collect()
        }
        match kind {
            Kind::Address => {
                let mut missed = relist.missed(&self.addresses, |it| it.epoch);
                missed.retain(|it| self.addresses.get(it).is_some_and(|it| it.recorded));
                all(missed, Name::Address)
            }
            Kind::Advertisement => {
                all(relist.missed(&self.advertisement_epochs, |it| *it), Name::Advertisement)
            }
            Kind::Peer => all(relist.missed(&self.peers, |it| it.1), Name::Peer),
            Kind::Pool => all(relist.missed(&self.pools, |it| it.1), Name::Pool),
            Kind::Node => all(relist.missed(&self.nodes, |it| it.1), Name::Node),
            Kind::Service => all(relist.missed(&self.services, |it| it.1), Name::Service),
            Kind::Slice => all(self.endpoints.missed(relist), Name::Slice),
        }
    }

    fn apply(&mut self, object: Object) {
        match object {
            Object::Address(record, announcing) => {
                let address = record.address;
                let epoch = self.relists[Kind::Address as usize].epoch();
                let announcing = self.interned(announcing);
                let mut entry = Entry::of(record, announcing, epoch);
                // Other nodes count only while this one announces nothing but what no other node does.
                let counts = !self.me().is_sound();
                if let Some(known) = self.addresses.get_mut(&address) {
                    if known.says_the_same(&entry) {
                        known.epoch = epoch;
                        let before = std::mem::replace(&mut known.announcing, entry.announcing);
                        if counts && before != known.announcing {
                            self.dirty.insert(address);
                        }
                        return;
                    }
                    entry.decided = std::mem::take(&mut known.decided);
                    self.unlink(address);
                }
                self.link(address, &entry);
                self.addresses.insert(address, entry);
                self.dirty.insert(address);
            }
            Object::Advertisement(advertisement) => {
                let epoch = self.relists[Kind::Advertisement as usize].epoch();
                self.advertisement_epochs.insert(advertisement.name.clone(), epoch);
                let name = advertisement.name.clone();
                let before = self.advertisements.insert(name.clone(), advertisement.clone());
                match before {
                    Some(before) if before == advertisement => {}
                    Some(before) if before.differs_in_routes_only(&advertisement) => {
                        self.routes.touch(&name);
                    }
                    _ => {
                        // Addresses that it covered before and still covers have the same prefixes, and other routes.
                        self.routes.touch(&name);
                        self.all_dirty = true;
                    }
                }
            }
            Object::Peer(peer) => {
                let epoch = self.relists[Kind::Peer as usize].epoch();
                let name = peer.name.clone();
                let before = self.peers.insert(name.clone(), (peer.clone(), epoch));
                if before.is_none_or(|(before, _)| before != peer) {
                    self.dirty_peers.insert(name);
                }
            }
            Object::Pool(name, labels) => {
                let epoch = self.relists[Kind::Pool as usize].epoch();
                let before = self.pools.insert(name.clone(), (labels.clone(), epoch));
                if before.is_none_or(|(before, _)| before != labels) {
                    self.pool_changed(&name);
                }
            }
            Object::Node(node) => {
                let epoch = self.relists[Kind::Node as usize].epoch();
                let name = node.name.clone();
                let before = self.nodes.insert(name.clone(), (node.clone(), epoch));
                if before.is_none_or(|(before, _)| before != node) {
                    self.node_changed(&name);
                }
            }
            Object::Service(key, service) => {
                let epoch = self.relists[Kind::Service as usize].epoch();
                let before = self.services.insert(key.clone(), (service.clone(), epoch));
                if before.is_none_or(|(before, _)| before != service) {
                    self.dirty_services.insert(key);
                }
            }
            Object::Slice(slice) => {
                let epoch = self.relists[Kind::Slice as usize].epoch();
                let concerned = self.endpoints.apply(&slice, epoch);
                self.dirty_services.extend(concerned.into_iter().flatten());
            }
        }
    }

    /// The same with the names that the Nodes have, so that ten thousand addresses do not hold a copy each.
    fn interned(&self, mut announcing: Announcing) -> Announcing {
        for name in &mut announcing.first {
            if let Some((known, _)) = self.nodes.get_key_value(name) {
                *name = known.clone();
            }
        }
        announcing
    }

    fn delete(&mut self, name: &Name) {
        match name {
            Name::Address(address) => {
                self.unlink(*address);
                if let Some(entry) = self.addresses.get_mut(address) {
                    entry.recorded = false;
                    entry.holders.clear();
                    entry.announcing = Announcing::default();
                    self.dirty.insert(*address);
                }
                self.own(*address);
            }
            Name::Advertisement(name) => {
                self.advertisement_epochs.remove(name);
                self.all_dirty |= self.advertisements.remove(name).is_some();
            }
            Name::Peer(name) => {
                self.peers.remove(name);
                self.dirty_peers.insert(name.clone());
            }
            Name::Pool(name) => {
                self.pools.remove(name);
                self.pool_changed(name);
            }
            // It is taken out of the cluster, and its speaker runs until something ends it: as long, the node leaves. A machine
            // that never had an object is another thing.
            Name::Node(name) if *name == self.node => {
                if let Some((node, _)) = self.nodes.get_mut(name) {
                    node.leaving = true;
                    self.node_changed(name);
                }
            }
            Name::Node(name) => {
                self.nodes.remove(name);
                self.node_changed(name);
            }
            Name::Service(key) => {
                self.services.remove(key);
                self.health.remove(key);
                self.dirty_services.insert(key.clone());
            }
            Name::Slice(key) => {
                let service = self.endpoints.delete(key);
                self.dirty_services.extend(service);
            }
        }
    }

    fn pool_changed(&mut self, name: &Arc<str>) {
        self.dirty.extend(self.by_pool.get(name).into_iter().flatten());
    }

    fn node_changed(&mut self, name: &Arc<str>) {
        if *name == self.node {
            self.all_dirty = true;
            self.dirty_peers.extend(self.peers.keys().cloned());
        } else {
            self.others_changed(true);
        }
    }

    fn link(&mut self, address: IpAddr, entry: &Entry) {
        for held in &entry.holders {
            if let Some(service) = &held.service {
                self.by_service.entry(service.clone()).or_default().insert(address);
                self.dirty_services.insert(service.clone());
            }
        }
        if let Some(pool) = &entry.pool {
            self.by_pool.entry(pool.clone()).or_default().insert(address);
        }
    }

    fn unlink(&mut self, address: IpAddr) {
        let Some(entry) = self.addresses.get(&address) else { return };
        for service in entry.holders.iter().filter_map(|it| it.service.as_ref()) {
            self.dirty_services.insert(service.clone());
            if let Some(all) = self.by_service.get_mut(service) {
                all.remove(&address);
                if all.is_empty() {
                    self.by_service.remove(service);
                }
            }
        }
        if let Some(pool) = &entry.pool
            && let Some(all) = self.by_pool.get_mut(pool)
        {
            all.remove(&address);
            if all.is_empty() {
                self.by_pool.remove(pool);
            }
        }
    }

    /// Decides for everything that events touched, and returns what is to be done.
    pub fn take(&mut self) -> Vec<Effect> {
        if !self.is_synced() {
            return Vec::new();
        }
        let mut out = Vec::new();
        for name in std::mem::take(&mut self.dirty_peers) {
            let node = self.me();
            let here = self.peers.get(&name).map(|(peer, _)| peer).filter(|peer| {
                peer.nodes.as_ref().is_none_or(|selector| selector.matches(&node.labels))
            });
            self.routes.peer(&name, here.cloned(), &mut out);
        }
        for service in std::mem::take(&mut self.dirty_services) {
            self.check(&service, &mut out);
            self.dirty.extend(self.by_service.get(&service).into_iter().flatten());
        }
        if std::mem::take(&mut self.all_dirty) {
            self.dirty.extend(self.addresses.keys());
        }
        for address in std::mem::take(&mut self.dirty) {
            self.settle(address, &mut out);
        }
        self.routes.take(&self.advertisements, &mut out);
        if !std::mem::replace(&mut self.complete, true) {
            out.push(Effect::Complete);
        }
        // Within a kind of effect the order is that of the decisions, which is the same for the same state.
        out.sort_by_key(Effect::place);
        out
    }

    /// Whether kube-proxy is to be asked about a Service.
    fn check(&mut self, key: &ObjectKey, out: &mut Vec<Effect>) {
        let service = self.services.get(key).map(|(service, _)| service);
        let addresses = self.by_service.get(key).into_iter().flatten();
        let mut entries = addresses.filter_map(|address| self.addresses.get(address));
        let wanted = service
            .filter(|it| it.local_only)
            .and_then(|it| it.health_check_port)
            .filter(|_| entries.any(|entry| entry.alone().any(|it| it == key)));
        let before = match wanted {
            Some(port) => self.checks.insert(key.clone(), port),
            None => self.checks.remove(key),
        };
        if before != wanted {
            if wanted.is_none() {
                self.health.remove(key);
            }
            out.push(Effect::Check(key.clone(), wanted));
        }
    }

    fn settle(&mut self, address: IpAddr, out: &mut Vec<Effect>) {
        self.visited += 1;
        let Some(entry) = self.addresses.get(&address) else { return };
        let now = self.decide(address, entry);
        let is_gone = !entry.recorded && entry.holders.is_empty();
        let before = match self.addresses.get_mut(&address) {
            Some(entry) => std::mem::replace(&mut entry.decided, now.clone()),
            None => Decided::default(),
        };
        if is_gone {
            self.unlink(address);
            self.addresses.remove(&address);
        }
        for (advertisement, prefix) in now.routes.iter().filter(|it| !before.routes.contains(it)) {
            self.routes.add(advertisement, *prefix);
        }
        for (advertisement, prefix) in before.routes.iter().filter(|it| !now.routes.contains(it)) {
            self.routes.remove(advertisement, *prefix);
        }
        if before.hold != now.hold {
            out.push(match now.hold {
                Some(ports) => Effect::Hold(address, ports),
                None => Effect::Release(address),
            });
        }
        if before.offer != now.offer {
            out.push(match now.offer {
                Some(offer) => Effect::Offer(address, offer),
                None => Effect::Decline(address),
            });
        }
    }

    /// Whether the Node object says that the node leaves, or makes place for others.
    pub fn leaves(&self) -> bool {
        let node = self.me();
        node.leaving || node.excluded || node.cordoned
    }

    /// Where other nodes of the cluster reach this one. None: it has no Node object.
    pub fn reached_at(&self) -> Option<&[IpAddr]> {
        self.nodes.get(&self.node).map(|(node, _)| node.addresses.as_slice())
    }

    /// Where this node reaches the others.
    pub fn others(&self) -> impl Iterator<Item = IpAddr> {
        let others = self.nodes.iter().filter(|(name, _)| **name != self.node);
        others.flat_map(|(_, (node, _))| node.addresses.iter().copied())
    }

    /// The load balancers of which an agent on this node says what is open.
    pub fn agents(&self) -> impl Iterator<Item = &Arc<str>> {
        self.agents.keys()
    }

    /// The announced addresses, each with the peers that are told. O(n): for the report.
    pub fn told(&self) -> impl Iterator<Item = (IpAddr, BTreeSet<Arc<str>>)> {
        self.addresses.iter().filter(|(_, entry)| !entry.decided.routes.is_empty()).map(
            |(address, entry)| {
                let prefixes = entry.decided.routes.iter().map(|(_, prefix)| prefix);
                (*address, prefixes.flat_map(|prefix| self.routes.told(prefix)).cloned().collect())
            },
        )
    }

    /// Whether the address is recorded, and how this node announces it.
    pub fn announced(&self, address: IpAddr) -> Option<Announced<'_>> {
        let entry = self.addresses.get(&address)?;
        let prefixes = entry.decided.routes.iter().map(|(_, prefix)| prefix);
        let peers: BTreeSet<_> = prefixes.flat_map(|prefix| self.routes.told(prefix)).collect();
        let offer = entry.decided.offer.as_ref();
        let silent = (offer.is_none() && peers.is_empty()).then_some(WhyNot::NoPeer);
        let why = entry.decided.why.or(silent);
        let why = why.map(|why| (why, why.problem(address, &self.node, entry)));
        Some(Announced { offer, peers, why })
    }
}

/// How this node announces an address.
#[derive(Debug, PartialEq, Eq)]
pub struct Announced<'a> {
    /// It may own the address on its links.
    pub offer: Option<&'a Candidate>,
    /// The peers that are told.
    pub peers: BTreeSet<&'a Arc<str>>,
    /// Why it does not announce the address.
    pub why: Option<(WhyNot, Problem)>,
}

impl Advertisement {
    /// Whether the same addresses are announced by the same means in the same prefixes.
    fn differs_in_routes_only(&self, other: &Self) -> bool {
        let lengths = |it: &Self| it.bgp.as_ref().map(|bgp| bgp.lengths);
        let rest = |it: &Self| Self { bgp: None, ..it.clone() };
        rest(self) == rest(other) && lengths(self) == lengths(other)
    }
}
