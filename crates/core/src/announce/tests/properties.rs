//! Over random histories: what is announced is a function of the objects, an event that changes nothing yields
//! nothing, and what no Advertisement covers is never announced.

use super::make::*;
use crate::announce::*;
use crate::cases::cases;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, subsequence};
use std::collections::{BTreeMap, BTreeSet};

const NODES: [&str; 3] = ["a", "b", "c"];
const SERVICES: [&str; 3] = ["web", "api", "mail"];

fn address() -> impl Strategy<Value = String> {
    (0..6_u8, any::<bool>())
        .prop_map(|(n, v6)| if v6 { format!("2001:db8::{n}") } else { format!("192.0.2.{n}") })
}

fn name(all: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    any::<Index>().prop_map(move |it| all[it.index(all.len())])
}

fn advertisement() -> impl Strategy<Value = Object> {
    let switches = any::<[bool; 8]>();
    (name(&["x", "y", "z"]), switches, 0..3_u8).prop_map(|(name, on, prepend)| {
        let mut it = by_bgp(name);
        if on[0] {
            it.covers.pools = ["other".into()].into();
        }
        if on[1] {
            it.covers.load_balancers = ["edge".into()].into();
        }
        it.covers.services = on[2].then(|| selector("public", "true"));
        it.nodes = on[3].then(|| selector("name", "a"));
        it.l2 = on[4].then(ByL2::default);
        let lengths = if on[5] { Lengths::new(24, 64).unwrap() } else { Lengths::default() };
        let peers = if on[6] { ["tor".into()].into() } else { Default::default() };
        let route = Route { prepend, ..Route::default() };
        it.bgp = on[7].then_some(ByBgp { peers, lengths, route });
        if it.bgp.is_none() && it.l2.is_none() {
            it.l2 = Some(ByL2::default());
        }
        told(it)
    })
}

fn object() -> impl Strategy<Value = Object> {
    prop_oneof![
        3 => (address(), name(&SERVICES)).prop_map(|(address, name)| alone(&address, name)),
        3 => (address(), name(&SERVICES)).prop_map(|(it, name)| behind(&it, name, "edge")),
        2 => (address(), name(&SERVICES), 0..4_usize, subsequence(NODES.to_vec(), 0..=3))
            .prop_map(|(it, name, more, first)| {
                recorded(behind(&it, name, "edge"), first.len() + more, &first)
            }),
        2 => advertisement(),
        1 => (name(&["tor", "spine"]), any::<bool>()).prop_map(|(name, some)| {
            let nodes = some.then(|| selector("name", "a"));
            router(Peer { nodes, ..peer(name) })
        }),
        1 => any::<bool>().prop_map(|it| {
            Object::Pool("public".into(), labels(&[("zone", if it { "a" } else { "b" })]))
        }),
        2 => (name(&NODES), any::<[bool; 4]>()).prop_map(|(name, on)| Object::Node(SpeakerNode {
            ready: on[0], cordoned: on[1], excluded: on[2] && on[3], leaving: on[2] && !on[3],
            ..node(name)
        })),
        2 => (name(&SERVICES), any::<[bool; 3]>()).prop_map(|(name, on)| {
            let labels = labels(&[("public", if on[0] { "true" } else { "false" })]);
            let health_check_port = (on[1] && on[2]).then_some(30_000);
            Object::Service(
                key(name),
                AnnouncedService { labels, local_only: on[1], health_check_port },
            )
        }),
        3 => (name(&SERVICES), subsequence(NODES.to_vec(), 0..=3))
            .prop_map(|(name, nodes)| slice(name, &nodes)),
    ]
}

fn removal() -> impl Strategy<Value = Name> {
    prop_oneof![
        address().prop_map(|it| Name::Address(ip(&it))),
        name(&["x", "y", "z"]).prop_map(|it| Name::Advertisement(it.into())),
        name(&["tor", "spine"]).prop_map(|it| Name::Peer(it.into())),
        Just(Name::Pool("public".into())),
        name(&NODES).prop_map(|it| Name::Node(it.into())),
        name(&SERVICES).prop_map(|it| Name::Service(key(it))),
        name(&SERVICES).prop_map(|it| Name::Slice(key(&format!("{it}-1")))),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        10 => object().prop_map(Event::Apply),
        3 => removal().prop_map(Event::Delete),
        2 => vec((address(), any::<bool>()), 0..4).prop_map(|all| {
            let all = all.into_iter().map(|(address, open)| (ip(&address), listening(open)));
            let all = all.collect();
            Event::Agent("edge".into(), Some(all))
        }),
        1 => Just(Event::Agent("edge".into(), None)),
        1 => (name(&SERVICES), any::<Option<bool>>())
            .prop_map(|(name, healthy)| Event::Health(key(name), healthy)),
        1 => (name(&["b", "c"]), any::<bool>())
            .prop_map(|(name, runs)| Event::Speaker(name.into(), runs)),
        1 => (address(), name(&["b", "c"]), any::<bool>())
            .prop_map(|(address, name, serves)| Event::ServedAt(ip(&address), name.into(), serves)),
    ]
}

/// What an event is about: of two events about the same, the last one counts.
fn about(event: &Event) -> String {
    match event {
        Event::Apply(object) => match object {
            Object::Address(record, _) => format!("address {}", record.address),
            Object::Advertisement(it) => format!("advertisement {}", it.name),
            Object::Peer(it) => format!("peer {}", it.name),
            Object::Pool(name, _) => format!("pool {name}"),
            Object::Node(it) => format!("node {}", it.name),
            Object::Service(key, _) => format!("service {key}"),
            Object::Slice(it) => format!("slice {}", it.key),
        },
        Event::Delete(name) => match name {
            Name::Address(address) => format!("address {address}"),
            Name::Advertisement(name) => format!("advertisement {name}"),
            Name::Peer(name) => format!("peer {name}"),
            Name::Pool(name) => format!("pool {name}"),
            Name::Node(name) => format!("node {name}"),
            Name::Service(key) => format!("service {key}"),
            Name::Slice(key) => format!("slice {key}"),
        },
        Event::Agent(name, _) => format!("agent {name}"),
        Event::Health(key, _) => format!("health {key}"),
        Event::Speaker(name, _) => format!("speaker {name}"),
        Event::ServedAt(address, name, _) => format!("served {address} {name}"),
        Event::Present(_) => "present".to_owned(),
        Event::Begin(_) | Event::Done(_) | Event::Unreadable(_) | Event::Leave => String::new(),
    }
}

/// The last event about each thing, without health: an answer counts only while it is asked for.
fn last(events: &[Event]) -> Vec<Event> {
    let mut kept: Vec<Event> = Vec::new();
    for event in events.iter().filter(|it| !matches!(it, Event::Health(..))) {
        let before = kept.iter().position(|it| about(it) == about(event));
        let event = match (before.map(|at| kept.remove(at)), event) {
            (Some(Event::Apply(Object::Node(it))), Event::Delete(_)) if it.name == own().name => {
                Event::Apply(left(it))
            }
            (_, event) => event.clone(),
        };
        kept.push(event);
    }
    kept
}

/// The speaker's own node, after its object was deleted.
fn left(node: SpeakerNode) -> Object {
    Object::Node(SpeakerNode { leaving: true, ..node })
}

fn own() -> SpeakerNode {
    node("a")
}

fn world_of(events: &[Event]) -> World {
    let mut world = World::new([]);
    events.iter().for_each(|event| world.machine.handle(event.clone()));
    world.take();
    world
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn what_is_announced_does_not_depend_on_history(
        events in vec((event(), any::<bool>()), 0..40),
        order in any::<u64>(),
    ) {
        let mut world = World::new([]);
        for (event, take) in events.iter().filter(|it| !matches!(it.0, Event::Health(..))) {
            world.machine.handle(event.clone());
            if *take {
                world.take();
            }
        }
        world.take();
        let events: Vec<_> = events.into_iter().map(|it| it.0).collect();
        let mut kept = last(&events);
        prop_assert_eq!(&world.network, &world_of(&kept).network);
        // Any order of the last events.
        let mut seed = order;
        for at in (1..kept.len()).rev() {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            kept.swap(at, (seed >> 33) as usize % (at + 1));
        }
        prop_assert_eq!(&world.network, &world_of(&kept).network);
        // The same once more changes nothing.
        for event in kept {
            prop_assert_eq!(world.after(event.clone()), vec![], "{:?}", event);
        }
    }

    #[test]
    fn a_relist_removes_exactly_what_it_does_not_deliver(
        before in vec(object(), 0..20), after in vec(object(), 0..20),
    ) {
        let before_own = before.iter().rev().find_map(|it| match it {
            Object::Node(it) if it.name == own().name => Some(it.clone()),
            _ => None,
        });
        let mut world = World::new(before);
        Kind::ALL.into_iter().for_each(|kind| world.machine.handle(Event::Begin(kind)));
        after.iter().for_each(|it| world.machine.handle(Event::Apply(it.clone())));
        Kind::ALL.into_iter().for_each(|kind| world.machine.handle(Event::Done(kind)));
        world.take();
        // All but the own node, which leaves.
        let is_own = |it: &Object| matches!(it, Object::Node(it) if it.name == own().name);
        let gone = before_own.filter(|_| !after.iter().any(is_own)).map(left);
        prop_assert_eq!(world.network, World::new(after.into_iter().chain(gone)).network);
    }

    #[test]
    fn what_is_not_covered_or_not_served_is_never_announced(events in vec(event(), 0..40)) {
        let mut world = World::new([]);
        for event in events {
            world.after(event);
            let network = &world.network;
            let all = network.peers.values().flat_map(|(_, routes)| routes.keys());
            let hosts = all.filter(|it| it.prefix_len() == it.max_prefix_len()).map(|it| it.addr());
            let offers = network.offers.iter().filter(|(_, offer)| !offer.draining);
            for address in hosts.chain(offers.map(|(address, _)| *address)) {
                let announced = world.machine.announced(address).expect("a recorded address");
                prop_assert_eq!(announced.why, None, "{}", address);
            }
            for address in network.held.keys() {
                let why = world.machine.announced(*address).and_then(|it| it.why);
                prop_assert!(!matches!(why, Some((WhyNot::NotAdvertised, _))), "{}", address);
            }
        }
    }
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn what_only_agents_serve_is_never_announced_before_it_is_on_the_node(
        events in vec(prop_oneof![
            4 => event(),
            1 => vec(address(), 0..5)
                .prop_map(|all| Event::Present(all.iter().map(|it| ip(it)).collect())),
        ], 0..40),
    ) {
        let mut world = World::new([]);
        let (mut agents_only, mut present) = (BTreeMap::new(), BTreeSet::new());
        for event in events {
            match &event {
                Event::Apply(Object::Address(record, _)) => {
                    let holder = record.content.holders.first();
                    let is_behind = holder.is_some_and(|it| it.load_balancer.is_some());
                    agents_only.insert(record.address, is_behind);
                }
                Event::Present(addresses) => present = addresses.clone(),
                _ => {}
            }
            world.machine.handle(event);
            world.network.carry_out(world.machine.take());
            let routes = world.network.peers.values().flat_map(|(_, routes)| routes.keys());
            let hosts = routes.filter(|it| it.prefix_len() == it.max_prefix_len());
            let announced = hosts.map(|it| it.addr()).chain(world.network.offers.keys().copied());
            for address in announced.filter(|it| agents_only.get(it) == Some(&true)) {
                prop_assert!(present.contains(&address), "{} is not on the node", address);
            }
        }
    }
}

#[test]
fn the_cost_of_an_event_does_not_depend_on_the_number_of_addresses() {
    let visited = |count: u32| {
        let name = |n: u32| format!("s{n}");
        let address = |n: u32| std::net::Ipv4Addr::from(0x0a00_0000 + n).to_string();
        let objects = (0..count).flat_map(|n| {
            [alone(&address(n), &name(n)), service(&name(n)), slice(&name(n), &["b"])]
        });
        let base = [told(by_bgp("all")), router(peer("tor"))];
        let mut world = World::new(base.into_iter().chain(objects));
        assert_eq!(world.machine.visited(), u64::from(count));
        let before = world.machine.visited();
        assert_eq!(world.apply(slice("s7", &[])).len(), 1);
        assert_eq!(world.apply(local("s8", None)).len(), 1);
        assert_eq!(world.apply(alone("192.0.2.1", "s9")).len(), 1);
        assert_eq!(world.after(Event::Delete(Name::Address(ip("192.0.2.1")))).len(), 1);
        world.machine.visited() - before
    };
    assert_eq!(visited(100), visited(1_000));
}

/// Three nodes behind an agent each, and what the leader records of them.
struct Cluster {
    nodes: BTreeMap<&'static str, (World, SpeakerNode)>,
    /// Whether the session of a node is established.
    sessions: BTreeMap<&'static str, bool>,
}

impl Cluster {
    fn new() -> Self {
        let base = || {
            let nodes = NODES.map(|name| Object::Node(node(name)));
            let objects = [told(by_bgp("all")), told(by_l2("links")), router(peer("tor"))];
            objects.into_iter().chain(nodes).chain([behind("192.0.2.7", "web", "edge")])
        };
        let world = |name: &'static str| {
            let machine = Announcements::new(name.into());
            let mut world = World { machine, network: Network::default() };
            base().for_each(|object| world.machine.handle(Event::Apply(object)));
            Kind::ALL.into_iter().for_each(|kind| world.machine.handle(Event::Done(kind)));
            for other in NODES.into_iter().filter(|it| *it != name) {
                world.machine.handle(Event::Speaker(other.into(), true));
                world.machine.handle(Event::ServedAt(ip("192.0.2.7"), other.into(), true));
            }
            world.agent("edge", "192.0.2.7", true);
            (name, (world, node(name)))
        };
        let sessions = NODES.map(|name| (name, true)).into();
        Self { nodes: NODES.map(world).into(), sessions }
    }

    /// The nodes by which a router knows the address.
    fn announce(&self) -> Vec<&'static str> {
        let tells = |name: &&str| !self.nodes[name].0.network.prefixes("tor").is_empty();
        NODES.into_iter().filter(|name| self.sessions[name] && tells(name)).collect()
    }

    /// The nodes that could: nothing but doubt speaks against them.
    fn could(&self) -> Vec<&'static str> {
        NODES.into_iter().filter(|name| self.sessions[name]).collect()
    }

    fn change(&mut self, name: &'static str, node: SpeakerNode) {
        for (world, _) in self.nodes.values_mut() {
            world.apply(Object::Node(node.clone()));
        }
        self.nodes.get_mut(name).expect("a node").1 = node;
    }

    /// The leader records until nothing changes. How often it did.
    fn settle(&mut self) -> usize {
        for round in 0..8 {
            let now = self.announce();
            let record = recorded(behind("192.0.2.7", "web", "edge"), now.len(), &now);
            for (world, _) in self.nodes.values_mut() {
                world.apply(record.clone());
            }
            if self.announce() == now {
                return round;
            }
        }
        panic!("it does not come to rest: {:?}", self.announce());
    }
}

proptest! {
    #![proptest_config(cases(200))]

    /// Whatever nodes are cordoned or unready and whichever sessions are up: while a session is, routers know the address,
    /// and sound nodes have it to themselves.
    #[test]
    fn doubt_never_takes_the_last_route(
        changes in vec((name(&NODES), any::<[bool; 3]>()), 0..12),
    ) {
        let mut cluster = Cluster::new();
        cluster.settle();
        for (name, [cordoned, ready, session]) in changes {
            cluster.change(name, SpeakerNode { cordoned, ready, ..node(name) });
            cluster.sessions.insert(name, session);
            cluster.settle();
            let could = cluster.could();
            let sound = |it: &&&str| cluster.nodes[**it].1.is_sound();
            let sound: Vec<_> = could.iter().filter(sound).copied().collect();
            let expected = if sound.is_empty() { could } else { sound };
            prop_assert_eq!(cluster.announce(), expected);
        }
    }
}
