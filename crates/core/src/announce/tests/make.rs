//! Objects for the tests, and the network that the effects of a machine make.

use crate::addresses::{AddressState, Content, Holder, HolderKind, HolderRef, Record};
use crate::announce::*;
use crate::key::ObjectKey;
use crate::objects::{Endpoint, LabelSelector, Operator, Requirement, Slice, Version};
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::num::NonZeroU8;
use std::sync::Arc;
use std::time::Duration;

pub(super) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(super) fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

pub(super) fn labels(pairs: &[(&str, &str)]) -> crate::addresses::Labels {
    pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
}

pub(super) fn selector(key: &str, value: &str) -> LabelSelector {
    let operator = Operator::In(vec![value.into()]);
    LabelSelector { requirements: vec![Requirement { key: key.into(), operator }] }
}

fn record(address: &str, kind: HolderKind, name: &str, load_balancer: Option<&str>) -> Object {
    let namespace = if kind == HolderKind::LoadBalancer { "" } else { "shop" };
    let holder = Holder {
        holder: HolderRef { key: ObjectKey::new(namespace, name), kind, uid: name.into() },
        ports: Vec::new(),
        key: None,
        load_balancer: load_balancer.map(Into::into),
        since: 0,
    };
    let content =
        Content { pool: Some("public".into()), holders: vec![holder], state: AddressState::Active };
    let record = Record { address: ip(address), version: Version("1".into()), content };
    Object::Address(record, Announcing::default())
}

/// An address that a Service has alone.
pub(super) fn alone(address: &str, service: &str) -> Object {
    record(address, HolderKind::Service, service, None)
}

/// The same address with what the leader records of nodes that announce it: how many, and the first ones.
pub(super) fn recorded(object: Object, nodes: usize, first: &[&str]) -> Object {
    let Object::Address(record, _) = object else { return object };
    let first = first.iter().map(|it| (*it).into()).collect();
    Object::Address(record, Announcing { nodes, first })
}

/// An address of a Service on a load balancer.
pub(super) fn behind(address: &str, service: &str, load_balancer: &str) -> Object {
    record(address, HolderKind::Service, service, Some(load_balancer))
}

pub(super) fn key(name: &str) -> ObjectKey {
    ObjectKey::new("shop", name)
}

pub(super) fn service(name: &str) -> Object {
    Object::Service(key(name), AnnouncedService::default())
}

pub(super) fn local(name: &str, health_check_port: Option<u16>) -> Object {
    let service = AnnouncedService { labels: labels(&[]), local_only: true, health_check_port };
    Object::Service(key(name), service)
}

/// A slice of a Service with a ready endpoint on each of these nodes.
pub(super) fn slice(service: &str, nodes: &[&str]) -> Object {
    slice_of(service, nodes.iter().map(|node| (*node, true, false)))
}

/// Node, ready, terminating.
pub(super) fn slice_of<'a>(
    service: &str,
    endpoints: impl Iterator<Item = (&'a str, bool, bool)>,
) -> Object {
    let endpoint = |(index, (node, ready, terminating)): (usize, (&str, bool, bool))| Endpoint {
        address: IpAddr::from([10, 0, 0, index as u8]),
        ready,
        serving: ready || terminating,
        terminating,
        node: Some(node.into()),
        target: None,
    };
    Object::Slice(Slice {
        key: ObjectKey::new("shop", format!("{service}-1")),
        service: Some(service.into()),
        ports: Vec::new(),
        endpoints: endpoints.enumerate().map(endpoint).collect(),
    })
}

/// What an agent says that does not tell its ports.
pub(super) fn listening(open: bool) -> Listening {
    Listening { open, ..Listening::default() }
}

pub(super) fn node(name: &str) -> SpeakerNode {
    let labels = labels(&[("name", name)]);
    SpeakerNode { labels, ..SpeakerNode::without_object(name.into()) }
}

pub(super) fn peer(name: &str) -> Peer {
    Peer {
        name: name.into(),
        target: PeerTarget::Address(ip("192.0.2.1")),
        port: 179,
        asn: PeerAsn::External,
        my_asn: 64512,
        router_id: None,
        source: None,
        next_hop: None,
        vrf: None,
        ttl_security: false,
        listen: false,
        nodes: None,
        hold_time: 90,
        keepalive_time: None,
        connect_time: Duration::from_secs(10),
        multi_hop: false,
        password_secret: None,
        graceful_restart: Some(120),
        bfd: Some(Bfd {
            receive_interval: Duration::from_millis(300),
            transmit_interval: Duration::from_millis(300),
            detect_multiplier: NonZeroU8::MIN,
            minimum_ttl: NonZeroU8::MAX,
        }),
    }
}

/// An Advertisement of everything by BGP.
pub(super) fn by_bgp(name: &str) -> Advertisement {
    Advertisement {
        name: name.into(),
        covers: Covers::default(),
        nodes: None,
        l2: None,
        bgp: Some(ByBgp::default()),
    }
}

/// The same by ARP and neighbour discovery.
pub(super) fn by_l2(name: &str) -> Advertisement {
    Advertisement { bgp: None, l2: Some(ByL2::default()), ..by_bgp(name) }
}

pub(super) fn told(object: Advertisement) -> Object {
    Object::Advertisement(Arc::new(object))
}

pub(super) fn router(object: Peer) -> Object {
    Object::Peer(Arc::new(object))
}

/// The routes that a peer is told.
type Told = BTreeMap<IpNet, Route>;

/// What the effects so far have made of the network, which checks that each effect makes sense.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Network {
    pub(super) peers: BTreeMap<Arc<str>, (Arc<Peer>, Told)>,
    pub(super) offers: BTreeMap<IpAddr, Candidate>,
    pub(super) held: BTreeMap<IpAddr, Ports>,
    pub(super) refused: BTreeSet<IpNet>,
    pub(super) checks: BTreeMap<ObjectKey, u16>,
    pub(super) complete: bool,
}

impl Network {
    pub(super) fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            let news = match effect.clone() {
                Effect::Peer(peer) => {
                    let routes = self.peers.get(&peer.name).map(|it| it.1.clone());
                    let new = (peer.clone(), routes.unwrap_or_default());
                    self.peers.insert(peer.name.clone(), new.clone()).as_ref() != Some(&new)
                }
                Effect::Forget(name) => self.peers.remove(&name).is_some(),
                Effect::Announce(name, prefix, route) => {
                    let (_, routes) = self.peers.get_mut(&name).expect("a session");
                    routes.insert(prefix, (*route).clone()).as_ref() != Some(&*route)
                }
                Effect::Withdraw(name, prefix) => {
                    let (_, routes) = self.peers.get_mut(&name).expect("a session");
                    routes.remove(&prefix).is_some()
                }
                Effect::Offer(address, offer) => {
                    self.offers.insert(address, offer.clone()) != Some(offer)
                }
                Effect::Decline(address) => self.offers.remove(&address).is_some(),
                Effect::Hold(address, ports) => {
                    self.held.insert(address, ports.clone()) != Some(ports)
                }
                Effect::Release(address) => self.held.remove(&address).is_some(),
                Effect::Refuse(prefix) => self.refused.insert(prefix),
                Effect::Accept(prefix) => self.refused.remove(&prefix),
                Effect::Check(key, Some(port)) => self.checks.insert(key, port) != Some(port),
                Effect::Check(key, None) => self.checks.remove(&key).is_some(),
                Effect::Complete => !std::mem::replace(&mut self.complete, true),
            };
            assert!(news, "{effect:?} changes nothing");
        }
    }

    /// The prefixes that a peer is told.
    pub(super) fn prefixes(&self, peer: &str) -> Vec<String> {
        let routes = self.peers.get(peer).map(|it| it.1.keys());
        routes.into_iter().flatten().map(ToString::to_string).collect()
    }
}

/// A machine of node `a` with its network.
#[derive(Debug)]
pub(super) struct World {
    pub(super) machine: Announcements,
    pub(super) network: Network,
}

impl World {
    /// Node `a` with these objects, all kinds listed.
    pub(super) fn new(objects: impl IntoIterator<Item = Object>) -> Self {
        let machine = Announcements::new("a".into());
        let mut world = Self { machine, network: Network::default() };
        objects.into_iter().for_each(|object| world.machine.handle(Event::Apply(object)));
        Kind::ALL.into_iter().for_each(|kind| world.machine.handle(Event::Done(kind)));
        world.take();
        world
    }

    /// The effects, with the addresses that are to be held on the node at once.
    pub(super) fn take(&mut self) -> Vec<Effect> {
        let mut effects = self.machine.take();
        self.network.carry_out(effects.clone());
        if effects.iter().any(|it| matches!(it, Effect::Hold(..) | Effect::Release(_))) {
            let held = self.network.held.keys().copied().collect();
            self.machine.handle(Event::Present(held));
            effects.extend(self.take());
        }
        effects
    }

    /// The effects of an event.
    pub(super) fn after(&mut self, event: Event) -> Vec<Effect> {
        self.machine.handle(event);
        self.take()
    }

    pub(super) fn apply(&mut self, object: Object) -> Vec<Effect> {
        self.after(Event::Apply(object))
    }

    /// What an agent of a load balancer says about one address.
    pub(super) fn agent(&mut self, load_balancer: &str, address: &str, open: bool) -> Vec<Effect> {
        let addresses = [(ip(address), listening(open))].into();
        self.after(Event::Agent(load_balancer.into(), Some(addresses)))
    }

    pub(super) fn why(&self, address: &str) -> Option<WhyNot> {
        self.machine.announced(ip(address)).and_then(|it| it.why).map(|(why, _)| why)
    }
}
