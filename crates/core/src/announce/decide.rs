//! The decision for one address on this node: whether the node holds it, announces it, and how. It reads the machine's
//! indexes and changes nothing.

use super::event::{Announcing, Candidate, Ports, SpeakerNode};
use super::machine::Announcements;
use super::why::WhyNot;
use super::{Advertisement, Covers};
use crate::addresses::{HolderKind, Record};
use crate::key::ObjectKey;
use crate::relist::Epoch;
use ipnet::IpNet;
use std::net::IpAddr;
use std::sync::Arc;

/// A holder of an address: what serves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held {
    /// The Service that holds it.
    pub(super) service: Option<ObjectKey>,
    /// The load balancer on which it is served. None: kube-proxy serves it.
    pub(super) load_balancer: Option<Arc<str>>,
}

/// An address that an Address object records, or one that only agents have: a load balancer's own.
#[derive(Debug)]
pub(super) struct Entry {
    /// Whether an Address object records it.
    pub(super) recorded: bool,
    pub(super) pool: Option<Arc<str>>,
    pub(super) holders: Vec<Held>,
    /// The nodes that announce it by BGP.
    pub(super) announcing: Announcing,
    pub(super) epoch: Epoch,
    pub(super) decided: Decided,
}

impl Entry {
    pub(super) fn of(record: Record, announcing: Announcing, epoch: Epoch) -> Self {
        let held = |holder: crate::addresses::Holder| match holder.holder.kind {
            HolderKind::Service => {
                Held { service: Some(holder.holder.key), load_balancer: holder.load_balancer }
            }
            HolderKind::LoadBalancer => {
                Held { service: None, load_balancer: Some(holder.holder.key.name) }
            }
            HolderKind::ExternalIp => Held { service: None, load_balancer: None },
        };
        Self {
            recorded: true,
            pool: record.content.pool,
            holders: record.content.holders.into_iter().map(held).collect(),
            announcing,
            epoch,
            decided: Decided::default(),
        }
    }

    /// An address that agents of these load balancers have in their Plans, and no Address object records.
    pub(super) fn own<'a>(load_balancers: impl Iterator<Item = &'a Arc<str>>) -> Self {
        let held = |name: &Arc<str>| Held { service: None, load_balancer: Some(name.clone()) };
        Self {
            recorded: false,
            pool: None,
            holders: load_balancers.map(held).collect(),
            announcing: Announcing::default(),
            epoch: Epoch::default(),
            decided: Decided::default(),
        }
    }

    pub(super) fn says_the_same(&self, other: &Self) -> bool {
        self.recorded == other.recorded && self.pool == other.pool && self.holders == other.holders
    }

    fn load_balancers(&self) -> impl Iterator<Item = &Arc<str>> {
        self.holders.iter().filter_map(|it| it.load_balancer.as_ref())
    }

    /// The Services that hold it alone, so that endpoints say where it is served.
    pub(super) fn alone(&self) -> impl Iterator<Item = &ObjectKey> {
        let alone = self.holders.iter().filter(|it| it.load_balancer.is_none());
        alone.filter_map(|it| it.service.as_ref())
    }
}

/// What was decided for an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Decided {
    pub(super) hold: Option<Ports>,
    pub(super) offer: Option<Candidate>,
    /// Advertisement and prefix.
    pub(super) routes: Vec<(Arc<str>, IpNet)>,
    pub(super) why: Option<WhyNot>,
}

/// How an address is served on this node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Served {
    No,
    /// Also on all other nodes, as far as this one knows.
    Everywhere,
    /// Not on every node.
    Here,
}

impl Announcements {
    /// Decides for an address.
    pub(super) fn decide(&self, address: IpAddr, entry: &Entry) -> Decided {
        let no = |why| Decided { why: Some(why), ..Decided::default() };
        if entry.holders.is_empty() {
            return no(WhyNot::NoHolder);
        }
        let covering = || self.advertisements.values().filter(|it| self.covers(&it.covers, entry));
        if covering().next().is_none() {
            return no(WhyNot::NotAdvertised);
        }
        let listening = self.agents.values().filter_map(|all| all.get(&address));
        let hold = listening.map(|it| it.ports.clone()).reduce(|sum, next| sum.and(&next));
        let node = self.me();
        let selecting = || covering().filter(|it| it.selects(node));
        let no = |why| Decided { hold: hold.clone(), why: Some(why), ..Decided::default() };
        if selecting().next().is_none() {
            return no(WhyNot::NodeNotSelected);
        }
        let served = self.served(address, entry);
        let offer = |draining| self.offer(selecting(), draining).filter(|_| served != Served::No);
        // Routers find another node at once. On links, a node that goes on answering until another one has taken the
        // address over loses no connection attempt.
        let drains = |why| Decided { offer: offer(true), ..no(why) };
        if self.leaving {
            return drains(WhyNot::NodeLeaving);
        }
        if node.excluded || node.leaving {
            let why = if node.excluded { WhyNot::NodeExcluded } else { WhyNot::NodeLeaving };
            let served = self.served_elsewhere(address, entry) || self.announced_elsewhere(entry);
            return if served { drains(why) } else { no(why) };
        }
        if served == Served::No {
            return no(if self.awaits_presence(address, entry) {
                WhyNot::NotPresent
            } else {
                WhyNot::NotServed
            });
        }
        // An unready node may be the only one that still works: the API server may be what is broken. Its routes stay until
        // another node has a session by which routers know the address; that a speaker there could own it on a link is no
        // such thing.
        let is_doubtful = node.is_doubtful();
        if is_doubtful && self.announced_elsewhere(entry) {
            return drains(WhyNot::NodeDoubtful);
        }
        let hands_over = is_doubtful && self.served_elsewhere(address, entry);
        let mut decided =
            Decided { offer: offer(hands_over), hold: hold.clone(), ..Decided::default() };
        for advertisement in selecting() {
            if let Some(bgp) = &advertisement.bgp {
                let prefix = bgp.lengths.prefix(address);
                decided.routes.push((advertisement.name.clone(), prefix));
                // An aggregate leads to any node that announces it; only a host route leads to this one.
                if served == Served::Here && prefix != IpNet::from(address) {
                    decided.routes.push((advertisement.name.clone(), address.into()));
                }
            }
        }
        if hands_over && decided.routes.is_empty() {
            decided.why = Some(WhyNot::NodeDoubtful);
        }
        decided
    }

    /// How this node offers itself as the owner on its links, by all these Advertisements together.
    fn offer<'a>(
        &self,
        selecting: impl Iterator<Item = &'a Arc<Advertisement>>,
        draining: bool,
    ) -> Option<Candidate> {
        let labels = &self.me().labels;
        selecting.filter_map(|it| it.l2.as_ref()).fold(None, |sum: Option<Candidate>, l2| {
            let preferred = l2.preferred.as_ref().is_some_and(|it| it.matches(labels));
            let Some(mut sum) = sum else {
                return Some(Candidate { interfaces: l2.interfaces.clone(), preferred, draining });
            };
            sum.preferred |= preferred;
            if l2.interfaces.is_empty() || sum.interfaces.is_empty() {
                sum.interfaces.clear();
            } else {
                sum.interfaces.extend(l2.interfaces.iter().cloned());
            }
            Some(sum)
        })
    }

    fn covers(&self, covers: &Covers, entry: &Entry) -> bool {
        let labels_match = |selector: &crate::objects::LabelSelector| {
            let pool = entry.pool.as_ref().and_then(|pool| self.pools.get(pool));
            pool.is_some_and(|(labels, _)| selector.matches(labels))
        };
        let by_pool = entry.pool.as_ref().is_some_and(|pool| covers.pools.contains(pool))
            || covers.pool_selector.as_ref().is_some_and(labels_match);
        let by_load_balancer =
            || entry.load_balancers().any(|name| covers.load_balancers.contains(name));
        let by_service = covers.services.as_ref().is_none_or(|selector| {
            let mut services = entry.holders.iter().filter_map(|it| it.service.as_ref());
            services.any(|key| {
                let service = self.services.get(key);
                service.is_some_and(|(service, _)| selector.matches(&service.labels))
            })
        });
        by_service && (covers.is_everything() || by_pool || by_load_balancer())
    }

    fn served(&self, address: IpAddr, entry: &Entry) -> Served {
        entry.holders.iter().fold(Served::No, |so_far, held| {
            match (so_far, self.holder_served(address, held)) {
                (Served::Everywhere, _) | (_, Served::Everywhere) => Served::Everywhere,
                (Served::Here, _) | (_, Served::Here) => Served::Here,
                (Served::No, Served::No) => Served::No,
            }
        })
    }

    fn holder_served(&self, address: IpAddr, held: &Held) -> Served {
        let here = |it: bool| if it { Served::Here } else { Served::No };
        match (&held.load_balancer, &held.service) {
            (Some(load_balancer), _) => {
                here(self.is_open(address, load_balancer) && self.present.contains(&address))
            }
            (None, Some(key)) => {
                let Some((service, _)) = self.services.get(key) else { return Served::No };
                if !service.local_only {
                    return if self.endpoints.any(key) { Served::Everywhere } else { Served::No };
                }
                let endpoint = self.endpoints.on(key, &self.node);
                here(match (service.health_check_port, self.health.get(key)) {
                    (None, _) => endpoint,
                    // kube-proxy says when its rules are in place; slices run ahead of that.
                    (Some(_), Some(Some(healthy))) => endpoint && *healthy,
                    // Something else than kube-proxy forwards here, or nothing that can be asked.
                    (Some(_), Some(None)) => endpoint,
                    (Some(_), None) => false,
                })
            }
            // An address of a single Pod is announced by what translates it.
            (None, None) => Served::No,
        }
    }

    /// Whether an agent of the load balancer on this node has its listeners at the address open.
    fn is_open(&self, address: IpAddr, load_balancer: &Arc<str>) -> bool {
        let agent = self.agents.get(load_balancer);
        agent.and_then(|all| all.get(&address)).is_some_and(|it| it.open)
    }

    /// Whether all is open, but the address is not on the node.
    fn awaits_presence(&self, address: IpAddr, entry: &Entry) -> bool {
        entry.load_balancers().any(|name| self.is_open(address, name))
    }

    /// Whether the leader records that a node announces the address by BGP against which nothing speaks. What announces
    /// an address serves it.
    fn announced_elsewhere(&self, entry: &Entry) -> bool {
        let Announcing { nodes, first } = &entry.announcing;
        let is_sound = |name: &Arc<str>| {
            *name != self.node && self.nodes.get(name).is_none_or(|(node, _)| node.is_sound())
        };
        // More nodes announce it than there are that should not: one that is not named is sound. This node is one of
        // those that should not.
        let should_not = || self.nodes.values().filter(|(node, _)| !node.is_sound()).count();
        first.iter().any(is_sound) || (*nodes > first.len() && *nodes > should_not().max(1))
    }

    /// Whether another node is certain to serve the address and may own it on its links.
    fn served_elsewhere(&self, address: IpAddr, entry: &Entry) -> bool {
        let may = |name: &Arc<str>| {
            let without_object;
            let node = match self.nodes.get(name) {
                Some((node, _)) => node,
                None => {
                    without_object = SpeakerNode::without_object(name.clone());
                    &without_object
                }
            };
            let mut all = self.advertisements.values();
            *name != self.node
                && self.speakers.contains(name)
                && node.is_sound()
                && all
                    .any(|it| it.l2.is_some() && self.covers(&it.covers, entry) && it.selects(node))
        };
        entry.holders.iter().any(|held| match (&held.load_balancer, &held.service) {
            (Some(_), _) => self.served_at.get(&address).is_some_and(|nodes| nodes.iter().any(may)),
            (None, Some(key)) => match self.services.get(key) {
                Some((service, _)) if service.local_only => self.endpoints.nodes(key).any(may),
                Some(_) => self.endpoints.any(key) && self.speakers.iter().any(may),
                None => false,
            },
            (None, None) => false,
        })
    }
}

impl Advertisement {
    /// Whether the node may announce.
    fn selects(&self, node: &SpeakerNode) -> bool {
        self.nodes.as_ref().is_none_or(|selector| selector.matches(&node.labels))
    }
}
