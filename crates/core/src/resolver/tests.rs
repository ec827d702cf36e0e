//! Tests of each rule of the resolver, on the smallest objects that show it.

mod crowded;
mod guarded;
mod held;
mod properties;
mod recalled;
mod refused;
mod sharing;
mod upgrades;

use super::*;
use crate::key::{ConsumerKind, ConsumerRef};
use crate::objects::{Endpoint, SlicePort};
use crate::plan::*;
use crate::update::*;
use MemberState::{Draining, Ready};

pub(super) fn consumer(kind: ConsumerKind, name: &str) -> ConsumerRef {
    ConsumerRef {
        kind,
        namespace: "shop".into(),
        name: name.into(),
        uid: format!("uid-{name}").into(),
    }
}

pub(super) fn pool(service: &str, backends: Backends) -> Pool {
    Pool {
        backends,
        ..Pool::new(
            service_pool("shop", service, "http"),
            ServicePortRef {
                namespace: "shop".into(),
                name: service.into(),
                port: "http".into(),
                protocol: Transport::Tcp,
            },
        )
    }
}

pub(super) fn listener(port: u16, service: &str) -> Listener {
    Listener {
        address: [192, 0, 2, 1].into(),
        port,
        protocol: ListenerProtocol::Tcp,
        serves: Serves::Pool(service_pool("shop", service, "http")),
    }
}

/// A Service's fragment: a listener and its pool.
pub(super) fn fragment(service: &str, port: u16, backends: Backends) -> Fragment {
    Fragment {
        consumer: consumer(ConsumerKind::Service, service),
        part: 0,
        claimed: false,
        listeners: vec![listener(port, service)],
        sites: Vec::new(),
        pools: vec![pool(service, backends)],
    }
}

pub(super) fn rule(path: &str, pool: &str) -> Rule {
    Rule {
        path: PathMatch { kind: PathKind::Prefix, value: path.into() },
        method: None,
        headers: Vec::new(),
        query: Vec::new(),
        action: Action::Forward(vec![WeightedPool { pool: pool.into(), weight: 1 }]),
    }
}

pub(super) fn tls(hash: Option<&str>) -> Option<SiteTls> {
    let certificate = hash.map(|hash| CertificateRef { hash: hash.into() });
    Some(SiteTls { certificate, redirect: true })
}

pub(super) fn site(host: &str, tls: Option<SiteTls>, rules: Vec<Rule>) -> Site {
    Site { entry: ENTRY_WEB.into(), host: host.parse().unwrap(), tls, rules }
}

/// An Ingress's fragment.
pub(super) fn web(name: &str, sites: Vec<Site>) -> Fragment {
    Fragment {
        consumer: consumer(ConsumerKind::Ingress, name),
        part: 0,
        claimed: false,
        listeners: Vec::new(),
        sites,
        pools: Vec::new(),
    }
}

/// An endpoint by its last octet, with conditions: `r`eady, `s`erving, `t`erminating.
pub(super) fn endpoint(last: u8, conditions: &str, node: &str) -> Endpoint {
    Endpoint {
        address: [10, 0, 0, last].into(),
        ready: conditions.contains('r'),
        serving: conditions.contains('s'),
        terminating: conditions.contains('t'),
        node: (!node.is_empty()).then(|| node.into()),
        target: None,
    }
}

pub(super) fn slice(name: &str, service: &str, endpoints: Vec<Endpoint>) -> Object {
    let port = SlicePort { name: "http".into(), number: 8080, transport: Transport::Tcp };
    Object::Slice(Slice {
        key: ObjectKey::new("shop", name),
        service: Some(service.into()),
        ports: vec![port],
        endpoints,
    })
}

pub(super) fn node(name: &str, last: u8, usable: bool) -> Object {
    let addresses = vec![[10, 9, 0, last].into(), [10, 9, 1, last].into()];
    Object::Node(Node { name: name.into(), addresses, usable })
}

/// A shard. Its number is the one in its name, or else its first letter.
pub(super) fn shard(name: &str, fragments: Vec<Fragment>) -> Object {
    let number = name.trim_start_matches(|letter: char| !letter.is_ascii_digit()).parse();
    let index = number.unwrap_or_else(|_| name.as_bytes()[0].into());
    Object::Shard(name.into(), index, fragments.into())
}

pub(super) fn secret(name: &str, hashes: &[&str]) -> Object {
    let certificates = hashes.iter().map(|hash| {
        let (chain, key) = (format!("chain {hash}").into(), format!("key {hash}").into());
        (Arc::from(*hash), Arc::new(Certificate { chain, key }))
    });
    Object::Certificates(name.into(), certificates.collect())
}

fn member(ip: [u8; 4], port: u16, state: MemberState) -> Member {
    Member { address: (ip, port).into(), weight: 1, state }
}

fn pod(last: u8, state: MemberState) -> Member {
    member([10, 0, 0, last], 8080, state)
}

fn resolver(objects: Vec<Object>) -> Resolver {
    let mut resolver = Resolver::new();
    objects.into_iter().for_each(|object| resolver.handle(Event::Apply(object)));
    resolver
}

fn pods() -> Vec<Object> {
    vec![shard("a", vec![fragment("web", 80, Backends::Pods)])]
}

fn nodes(local_only: bool) -> Backends {
    Backends::Nodes(NodeBackends { node_port: 30080, local_only })
}

/// All members of the only pool.
fn members(resolver: &Resolver) -> Vec<Member> {
    let update = resolver.snapshot();
    assert_eq!(update.pools.len(), 1);
    update.members.first().map(|change| change.members.to_vec()).unwrap_or_default()
}

fn members_of(objects: Vec<Object>) -> Vec<Member> {
    let mut resolver = resolver(objects);
    resolver.take();
    members(&resolver)
}

#[test]
fn the_first_update_is_everything_and_the_next_one_nothing() {
    let web = fragment("web", 80, Backends::Pods);
    let mut resolver = resolver(vec![
        slice("web-1", "web", vec![endpoint(1, "rs", "")]),
        shard("a", vec![web.clone()]),
    ]);
    let name = service_pool("shop", "web", "http");
    let members: Arc<[Member]> = vec![pod(1, Ready)].into();
    let listener =
        ResolvedListener { consumer: web.consumer.clone(), listener: web.listeners[0].clone() };
    let everything = Update {
        complete: true,
        pools: vec![Change::Put(name.clone(), web.pools[0].clone().into())],
        members: vec![MemberChange {
            pool: name,
            added: members.to_vec(),
            members,
            changed: Vec::new(),
            removed: Vec::new(),
        }],
        listeners: vec![Change::Put(ListenerKey::of(&web.listeners[0]), listener.into())],
        hash: PlanHash::of(&web),
        ..Update::default()
    };
    assert_eq!(resolver.take(), Some(everything.clone()));
    assert_eq!(resolver.take(), None);
    assert_eq!(resolver.snapshot(), everything);
}

#[test]
fn an_empty_plan_is_told_once() {
    let mut resolver = Resolver::new();
    let nothing = Update { complete: true, ..Update::default() };
    assert_eq!((resolver.take(), resolver.take()), (Some(nothing), None));
}

#[test]
fn a_member_that_comes_and_one_that_goes_are_all_that_changes() {
    let mut resolver = resolver(pods());
    let both = vec![endpoint(1, "rs", ""), endpoint(2, "rs", "")];
    resolver.handle(Event::Apply(slice("web-1", "web", both)));
    resolver.take();
    let now = vec![endpoint(2, "st", ""), endpoint(3, "rs", "")];
    resolver.handle(Event::Apply(slice("web-1", "web", now)));
    let change = MemberChange {
        pool: service_pool("shop", "web", "http"),
        members: vec![pod(2, Draining), pod(3, Ready)].into(),
        added: vec![pod(3, Ready)],
        changed: vec![pod(2, Draining)],
        removed: vec![pod(1, Ready)],
    };
    let hash = resolver.snapshot().hash;
    assert_eq!(resolver.take(), Some(Update { members: vec![change], hash, ..Update::default() }));
}

#[test]
fn a_consumer_that_is_created_again_within_a_burst_is_the_consumer_of_its_pools() {
    let mut resolver = resolver(pods());
    resolver.take();
    let mut again = fragment("web", 80, Backends::Pods);
    again.consumer.uid = "again".into();
    resolver.handle(Event::Apply(shard("a", vec![again])));
    let update = resolver.take().expect("another hash");
    assert!(update.pools.is_empty() && update.members.is_empty(), "{update:?}");
    let uids = |events: Vec<pool_health::Event>| {
        let uid = |event: &pool_health::Event| match event {
            pool_health::Event::Pool { consumer, .. } => Some(consumer.uid.to_string()),
            _ => None,
        };
        events.iter().filter_map(uid).collect::<Vec<_>>()
    };
    assert_eq!(uids(resolver.pools_of(&update)), ["again"]);
    assert_eq!(uids(resolver.pools_of(&update)), [""; 0]);
}

#[test]
fn an_endpoint_is_a_member_while_it_is_ready_and_drains_while_it_serves_and_ends() {
    let endpoints = vec![
        endpoint(1, "rs", ""),
        endpoint(2, "st", ""),
        endpoint(3, "", ""),
        endpoint(4, "s", ""),
        endpoint(5, "t", ""),
        endpoint(6, "rst", ""),
    ];
    let mut objects = pods();
    objects.push(slice("web-1", "web", endpoints));
    assert_eq!(members_of(objects), vec![pod(1, Ready), pod(2, Draining), pod(6, Ready)]);
}

#[test]
fn slices_of_a_service_are_joined_across_families_and_others_are_not() {
    let mut objects = pods();
    let v6 = Endpoint { address: "2001:db8::1".parse().unwrap(), ..endpoint(0, "rs", "") };
    objects.push(slice("web-v6", "web", vec![v6]));
    objects.push(slice("web-v4", "web", vec![endpoint(1, "rs", "")]));
    objects.push(slice("web-more", "web", vec![endpoint(1, "st", ""), endpoint(2, "rs", "")]));
    objects.push(slice("other", "other", vec![endpoint(3, "rs", "")]));
    let v6 = Member { address: "[2001:db8::1]:8080".parse().unwrap(), ..pod(0, Ready) };
    assert_eq!(members_of(objects), vec![pod(1, Ready), pod(2, Ready), v6]);
}

#[test]
fn ports_are_joined_by_name_and_protocol() {
    let port = |name: &str, number, transport| SlicePort { name: name.into(), number, transport };
    let mut objects = pods();
    objects.push(Object::Slice(Slice {
        key: ObjectKey::new("shop", "web-1"),
        service: Some("web".into()),
        ports: vec![
            port("http", 1, Transport::Udp),
            port("https", 2, Transport::Tcp),
            port("http", 3, Transport::Tcp),
            port("", 4, Transport::Tcp),
        ],
        endpoints: vec![endpoint(1, "rs", "")],
    }));
    assert_eq!(members_of(objects), vec![member([10, 0, 0, 1], 3, Ready)]);
}

#[test]
fn a_slice_that_moves_to_another_service_leaves_the_first() {
    let plan = vec![fragment("web", 80, Backends::Pods), fragment("api", 81, Backends::Pods)];
    let mut resolver = resolver(vec![shard("a", plan)]);
    resolver.handle(Event::Apply(slice("s", "web", vec![endpoint(1, "rs", "")])));
    resolver.take();
    resolver.handle(Event::Apply(slice("s", "api", vec![endpoint(1, "rs", "")])));
    let pools: Vec<(String, usize)> = resolver
        .take()
        .unwrap()
        .members
        .iter()
        .map(|change| (change.pool.to_string(), change.members.len()))
        .collect();
    let expected = [("service/shop/api/http", 1), ("service/shop/web/http", 0)];
    assert_eq!(pools, expected.map(|(name, count)| (name.to_owned(), count)));
}

#[test]
fn nodes_are_members_at_the_node_port_while_they_are_usable() {
    let objects = vec![
        shard("a", vec![fragment("web", 80, nodes(false))]),
        node("n1", 1, true),
        node("n2", 2, false),
        slice("web-1", "web", vec![endpoint(1, "rs", "n2")]),
    ];
    assert_eq!(members_of(objects), vec![member([10, 9, 0, 1], 30080, Ready)]);
}

#[test]
fn with_local_only_nodes_without_a_ready_pod_get_nothing_new() {
    let endpoints = vec![
        endpoint(1, "rs", "n1"),
        endpoint(2, "st", "n1"),
        endpoint(3, "st", "n2"),
        endpoint(4, "s", "n3"),
        endpoint(5, "rs", "unknown"),
        endpoint(6, "rs", ""),
    ];
    let objects = vec![
        node("n1", 1, true),
        node("n2", 2, true),
        node("n3", 3, true),
        slice("web-1", "web", endpoints),
        shard("a", vec![fragment("web", 80, nodes(true))]),
    ];
    let expected =
        vec![member([10, 9, 0, 1], 30080, Ready), member([10, 9, 0, 2], 30080, Draining)];
    assert_eq!(members_of(objects), expected);
}

#[test]
fn nodes_matter_only_while_a_pool_has_them() {
    let mut resolver = Resolver::new();
    for kind in [Kind::Shard, Kind::Slice, Kind::Certificates] {
        assert!(!resolver.synced());
        resolver.handle(Event::Begin(kind));
        resolver.handle(Event::Done(kind));
    }
    assert!(resolver.synced() && !resolver.needs_nodes());
    resolver.handle(Event::Apply(shard("a", vec![fragment("web", 80, nodes(false))])));
    assert!(!resolver.synced() && resolver.needs_nodes());
    resolver.handle(Event::Done(Kind::Node));
    assert!(resolver.synced());
    resolver.handle(Event::Delete(Kind::Shard, ObjectKey::new("bowline-system", "a")));
    assert!(!resolver.needs_nodes());
}

#[test]
fn a_listener_is_held_back_until_its_pool_is_there() {
    let mut first = fragment("web", 80, Backends::Pods);
    let second = Fragment { part: 1, listeners: Vec::new(), ..first.clone() };
    first.pools.clear();
    let key = ListenerKey::of(&first.listeners[0]);
    let mut resolver = resolver(vec![shard("a", vec![first])]);
    assert_eq!(resolver.take().unwrap().listeners, vec![]);
    resolver.handle(Event::Apply(shard("b", vec![second])));
    assert!(
        matches!(&resolver.take().unwrap().listeners[..], [Change::Put(put, _)] if *put == key)
    );
    resolver.handle(Event::Delete(Kind::Shard, ObjectKey::new("", "b")));
    assert_eq!(resolver.take().unwrap().listeners, vec![Change::Remove(key)]);
}

#[test]
fn rules_of_one_host_are_merged_the_specific_first_then_by_consumer() {
    let one = web("one", vec![site("shop.example", None, vec![rule("/", "p1"), rule("/a", "p2")])]);
    let two = web("two", vec![site("shop.example", tls(None), vec![rule("/a", "p3")])]);
    let three = web("three", vec![site("shop.example", tls(Some("h")), vec![rule("/a/b", "p4")])]);
    let mut resolver = resolver(vec![shard("a", vec![two, one]), shard("b", vec![three])]);
    let merged = ResolvedSite {
        owner: consumer(ConsumerKind::Ingress, "one").namespace,
        tls: tls(Some("h")),
        rules: [
            ("/a/b", "p4", "three"),
            ("/a", "p2", "one"),
            ("/a", "p3", "two"),
            ("/", "p1", "one"),
        ]
        .map(|(path, pool, name)| (rule(path, pool), consumer(ConsumerKind::Ingress, name)))
        .into(),
    };
    let key = SiteKey { entry: ENTRY_WEB.into(), host: "shop.example".parse().unwrap() };
    assert_eq!(resolver.take().unwrap().sites, vec![Change::Put(key, merged.into())]);
}

#[test]
fn the_cookie_secret_is_given_once_and_in_every_snapshot_until_there_is_another() {
    let mut resolver = Resolver::new();
    let one = CookieSecret([1; 32]);
    resolver.handle(Event::Apply(Object::CookieSecret(one.clone())));
    assert_eq!(resolver.take().unwrap().cookie_secret, Some(one.clone()));
    resolver.handle(Event::Apply(Object::CookieSecret(one.clone())));
    resolver.handle(Event::Begin(Kind::Certificates));
    resolver.handle(Event::Done(Kind::Certificates));
    assert_eq!(resolver.take(), None);
    assert_eq!(resolver.snapshot().cookie_secret, Some(one));
    let two = CookieSecret([2; 32]);
    resolver.handle(Event::Apply(Object::CookieSecret(two.clone())));
    let update = Update { cookie_secret: Some(two), ..Update::default() };
    assert_eq!(resolver.take(), Some(update));
}

#[test]
fn a_cookie_secret_is_not_printed() {
    let object = Object::CookieSecret(CookieSecret([171; 32]));
    assert_eq!(format!("{object:?}"), "CookieSecret(CookieSecret { .. })");
}

/// The certificates that are put (true) or removed (false).
fn certificates(update: &Update) -> Vec<(&str, bool)> {
    let told = update.certificates.iter().map(|change| match change {
        Change::Put(hash, _) => (&**hash, true),
        Change::Remove(hash) => (&**hash, false),
    });
    told.collect()
}

fn certificate_of_only_site(update: &Update) -> Option<&str> {
    let [Change::Put(_, site)] = &update.sites[..] else { panic!("{:?}", update.sites) };
    site.tls.as_ref()?.certificate.as_ref().map(|certificate| &*certificate.hash)
}

fn site_with(hash: &str) -> Object {
    shard("a", vec![web("one", vec![site("shop.example", tls(Some(hash)), vec![rule("/", "p")])])])
}

#[test]
fn certificates_are_put_while_a_site_refers_to_them() {
    let mut resolver = resolver(vec![secret("s", &["h1", "h2"]), site_with("h1")]);
    assert_eq!(certificates(&resolver.take().unwrap()), [("h1", true)]);
    resolver.handle(Event::Apply(site_with("h2")));
    assert_eq!(certificates(&resolver.take().unwrap()), [("h1", false), ("h2", true)]);
    resolver.handle(Event::Delete(Kind::Shard, ObjectKey::new("", "a")));
    assert_eq!(certificates(&resolver.take().unwrap()), [("h2", false)]);
}

#[test]
fn a_host_keeps_its_certificate_until_the_new_one_has_come() {
    let mut resolver = resolver(vec![secret("s", &["h1"]), site_with("h1")]);
    resolver.take();
    let missing = |resolver: &Resolver| -> Vec<String> {
        resolver.missing_certificates().map(|hash| hash.to_string()).collect()
    };
    resolver.handle(Event::Apply(site_with("h2")));
    let update = resolver.take().unwrap();
    assert!(update.is_empty(), "{update:?}");
    assert_eq!(missing(&resolver), ["h2"]);
    resolver.handle(Event::Apply(secret("s", &["h1", "h2"])));
    let update = resolver.take().unwrap();
    assert_eq!(missing(&resolver), [""; 0]);
    assert_eq!(certificates(&update), [("h1", false), ("h2", true)]);
    assert_eq!(certificate_of_only_site(&update), Some("h2"));
}

#[test]
fn a_certificate_in_use_stays_although_its_secret_lost_it() {
    let mut resolver = resolver(vec![secret("s", &["h1"]), site_with("h1")]);
    resolver.take();
    resolver.handle(Event::Apply(secret("s", &["h2"])));
    assert_eq!(resolver.take(), None);
    resolver.handle(Event::Apply(site_with("h2")));
    assert_eq!(certificates(&resolver.take().unwrap()), [("h1", false), ("h2", true)]);
}

#[test]
fn a_host_without_its_certificate_is_told_all_the_same() {
    let mut resolver = resolver(vec![site_with("h1")]);
    let update = resolver.take().unwrap();
    assert_eq!((certificate_of_only_site(&update), certificates(&update)), (Some("h1"), vec![]));
    resolver.handle(Event::Apply(secret("s", &["h1"])));
    let update = resolver.take().unwrap();
    assert_eq!((update.sites.len(), certificates(&update)), (0, vec![("h1", true)]));
}

#[test]
fn a_fragment_in_two_shards_counts_once_from_the_lower_name() {
    let (low, high) = (fragment("web", 80, Backends::Pods), fragment("web", 81, Backends::Pods));
    let mut resolver =
        resolver(vec![shard("b", vec![high.clone()]), shard("a", vec![low.clone()])]);
    let keys = |update: &Update| {
        update
            .listeners
            .iter()
            .map(|change| match change {
                Change::Put(key, _) => (key.port, true),
                Change::Remove(key) => (key.port, false),
            })
            .collect::<Vec<_>>()
    };
    let update = resolver.take().unwrap();
    assert_eq!((keys(&update), update.hash), (vec![(80, true)], PlanHash::of(&low)));
    resolver.handle(Event::Delete(Kind::Shard, ObjectKey::new("", "a")));
    let update = resolver.take().unwrap();
    assert_eq!((keys(&update), update.hash), (vec![(80, false), (81, true)], PlanHash::of(&high)));
}

#[test]
fn shards_are_told_apart_by_number_as_the_leader_does() {
    let (second, tenth) =
        (fragment("web", 80, Backends::Pods), fragment("web", 81, Backends::Pods));
    let objects = [shard("edge-10", vec![tenth.clone()]), shard("edge-2", vec![second.clone()])];
    for objects in [objects.clone().to_vec(), objects.into_iter().rev().collect()] {
        assert_eq!(resolver(objects).take().unwrap().hash, PlanHash::of(&second));
    }
}

#[test]
fn a_shard_that_gets_another_number_is_not_there_twice() {
    let (one, two) = (fragment("web", 80, Backends::Pods), fragment("web", 81, Backends::Pods));
    let all =
        vec![shard("b", vec![one.clone()]), Object::Shard("a".into(), 1, vec![two.clone()].into())];
    let mut resolver = resolver(all);
    assert_eq!(resolver.take().unwrap().hash, PlanHash::of(&two));
    resolver.handle(Event::Apply(Object::Shard("a".into(), 1000, vec![two].into())));
    assert_eq!(resolver.take().unwrap().hash, PlanHash::of(&one));
}

#[test]
fn a_fragment_that_moves_to_another_shard_changes_nothing() {
    let web = fragment("web", 80, Backends::Pods);
    let mut resolver = resolver(vec![shard("b", vec![web.clone()])]);
    resolver.take();
    resolver.handle(Event::Apply(shard("a", vec![web])));
    resolver.handle(Event::Apply(shard("b", vec![])));
    assert_eq!(resolver.take(), None);
}

#[test]
fn what_is_not_told_again_in_a_relist_is_gone() {
    let endpoints = |last| vec![endpoint(last, "rs", "")];
    let mut objects = pods();
    objects.extend([slice("s1", "web", endpoints(1)), slice("s2", "web", endpoints(2))]);
    let mut resolver = resolver(objects);
    resolver.take();
    resolver.handle(Event::Begin(Kind::Slice));
    resolver.handle(Event::Apply(slice("s2", "web", endpoints(2))));
    assert_eq!(resolver.take(), None);
    resolver.handle(Event::Done(Kind::Slice));
    resolver.take();
    assert_eq!(members(&resolver), vec![pod(2, Ready)]);
}

#[test]
fn nothing_is_kept_of_what_is_gone() {
    let mut resolver = resolver(vec![
        shard(
            "a",
            vec![
                fragment("web", 80, nodes(true)),
                web("one", vec![site("", tls(Some("h")), vec![rule("/", "p")])]),
            ],
        ),
        slice("s1", "web", vec![endpoint(1, "rs", "n1")]),
        node("n1", 1, true),
        secret("s", &["h"]),
    ]);
    resolver.take();
    for kind in [Kind::Shard, Kind::Slice, Kind::Node, Kind::Certificates] {
        resolver.handle(Event::Begin(kind));
        resolver.handle(Event::Done(kind));
    }
    resolver.take();
    assert!(resolver.is_empty(), "{resolver:?}");
    assert_eq!(resolver.snapshot(), Update { complete: true, ..Update::default() });
}

#[test]
fn an_endpoint_costs_the_same_work_however_many_services_there_are() {
    let work = |services: usize| {
        let name = |i: usize| format!("web-{i}");
        let mut resolver = Resolver::new();
        for i in 0..services {
            let (port, service) = (i as u16, name(i));
            let fragment = fragment(&service, port, Backends::Pods);
            resolver.handle(Event::Apply(shard(&service, vec![fragment])));
            resolver.handle(Event::Apply(slice(&service, &service, vec![endpoint(1, "rs", "")])));
        }
        resolver.take();
        let before = resolver.visited();
        resolver.handle(Event::Apply(slice(&name(7), &name(7), vec![endpoint(2, "rs", "")])));
        resolver.take();
        (before, resolver.visited() - before)
    };
    assert_eq!((work(1_000), work(10_000)), ((1_000, 1), (10_000, 1)));
}
