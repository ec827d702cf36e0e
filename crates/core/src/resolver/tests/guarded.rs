//! Tests of the members that are left out of pools, and of the consumers that are told.

use super::*;
use crate::key::ConsumerKind;
use crate::member_rules::MOST_MEMBERS;
use crate::objects::{Endpoint, SlicePort};
use crate::outcome::Reason;
use crate::plan::{Backends, Transport};
use crate::update::Change;
use std::net::SocketAddr;

fn slice(name: &str, port: u16, addresses: &[IpAddr]) -> Object {
    let endpoint = |address: &IpAddr| Endpoint {
        address: *address,
        ready: true,
        serving: true,
        terminating: false,
        node: None,
        target: None,
    };
    Object::Slice(Slice {
        key: ObjectKey::new("shop", name),
        service: Some("web".into()),
        ports: vec![SlicePort { name: "http".into(), number: port, transport: Transport::Tcp }],
        endpoints: addresses.iter().map(endpoint).collect(),
    })
}

fn ips(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// A resolver with these rules, and the Service `web` with a listener at 192.0.2.1:80.
fn resolver(rules: MemberRules) -> Resolver {
    let mut resolver = Resolver::with(rules);
    resolver.handle(Event::Apply(shard("a", vec![fragment("web", 80, Backends::Pods)])));
    resolver
}

fn apply(resolver: &mut Resolver, object: Object) -> Option<Vec<SocketAddr>> {
    resolver.handle(Event::Apply(object));
    taken(resolver)
}

/// The members of the pool after an update. None: they did not change.
fn taken(resolver: &mut Resolver) -> Option<Vec<SocketAddr>> {
    let update = resolver.take()?;
    let change = update.members.into_iter().next()?;
    Some(change.members.iter().map(|member| member.address).collect())
}

fn told(resolver: &Resolver) -> Vec<(ConsumerRef, Reason, String)> {
    let told = resolver.left_out();
    told.map(|it| (it.consumer, it.problem.reason, it.problem.message.to_string())).collect()
}

fn at(texts: &[&str]) -> Option<Vec<SocketAddr>> {
    Some(texts.iter().map(|text| text.parse().unwrap()).collect())
}

#[test]
fn a_member_that_may_be_none_gets_no_traffic_and_its_consumer_is_told() {
    let mut resolver = resolver(MemberRules::default());
    let mixed = ips(&["10.0.0.1", "127.0.0.1", "169.254.169.254", "192.0.2.1"]);
    assert_eq!(apply(&mut resolver, slice("s", 8080, &mixed)), at(&["10.0.0.1:8080"]));
    let message = "members of Service shop/web get no traffic: 127.0.0.1:8080 (a loopback address), \
                   169.254.169.254:8080 (a link-local address), 192.0.2.1:8080 (an address of a load \
                   balancer)";
    let web = consumer(ConsumerKind::Service, "web");
    assert_eq!(told(&resolver), [(web, Reason::MemberRefused, message.to_owned())]);
    assert!(resolver.take_left_out_changed());
    assert!(!resolver.take_left_out_changed());
    // More unfit members change only the message.
    let more = slice("t", 8080, &ips(&["127.0.0.2"]));
    assert_eq!(apply(&mut resolver, more), None);
    assert!(resolver.take_left_out_changed());
    resolver.handle(Event::Delete(Kind::Slice, ObjectKey::new("shop", "t")));
    assert_eq!(apply(&mut resolver, slice("s", 8080, &mixed[..1])), None);
    assert_eq!(told(&resolver), []);
    assert!(resolver.take_left_out_changed());
}

#[test]
fn an_address_that_becomes_a_load_balancers_is_left_out_and_comes_back() {
    let mut resolver = resolver(MemberRules::default());
    let both = slice("s", 8080, &ips(&["10.0.0.1", "203.0.113.9"]));
    let all = at(&["10.0.0.1:8080", "203.0.113.9:8080"]);
    assert_eq!(apply(&mut resolver, both), all);
    let other = |addresses: &[&str]| Object::Elsewhere("other-0".into(), ips(addresses));
    assert_eq!(apply(&mut resolver, other(&["::ffff:203.0.113.9"])), at(&["10.0.0.1:8080"]));
    assert_eq!(apply(&mut resolver, other(&["203.0.113.10"])), all);
    assert_eq!(apply(&mut resolver, other(&["203.0.113.9"])), at(&["10.0.0.1:8080"]));
    // The list does not deliver that Plan: it is deleted.
    resolver.handle(Event::Begin(Kind::Elsewhere));
    resolver.handle(Event::Done(Kind::Elsewhere));
    assert_eq!(taken(&mut resolver), all);
}

#[test]
fn a_listener_that_is_opened_here_is_no_member_at_its_port_alone() {
    let here = ips(&["10.0.0.7"]);
    let mut resolver = resolver(MemberRules { here, ..MemberRules::default() });
    let own = ips(&["10.0.0.7"]);
    resolver.handle(Event::Apply(slice("s", 80, &own)));
    assert_eq!(apply(&mut resolver, slice("t", 8080, &own)), at(&["10.0.0.7:8080"]));
    let (_, reason, message) = told(&resolver).remove(0);
    assert_eq!(reason, Reason::MemberRefused);
    assert!(message.ends_with("10.0.0.7:80 (where the agent itself listens)"), "{message}");
}

#[test]
fn a_listener_at_every_address_is_one_at_each_of_the_machine() {
    let (here, machine) = (ips(&["0.0.0.0"]), ips(&["10.0.0.7"]).into_iter().collect());
    let mut resolver = resolver(MemberRules { here, machine, ..MemberRules::default() });
    resolver.handle(Event::Apply(slice("s", 80, &ips(&["10.0.0.7"]))));
    assert_eq!(apply(&mut resolver, slice("t", 8080, &ips(&["10.0.0.7"]))), at(&["10.0.0.7:8080"]));
}

#[test]
fn a_load_balancer_behind_a_translator_is_no_member() {
    let mut resolver = resolver(MemberRules::default());
    let both = ips(&["64:ff9b::c000:201", "64:ff9b::c000:202"]);
    assert_eq!(
        apply(&mut resolver, slice("s", 8080, &both)),
        at(&["[64:ff9b::c000:202]:8080"]),
        "192.0.2.1 is the load balancer's"
    );
}

#[test]
fn on_loopback_a_load_balancer_and_its_members_are_told_apart_by_their_ports() {
    let mut resolver = Resolver::with(MemberRules { loopback: true, ..MemberRules::default() });
    let mut local = fragment("web", 8080, Backends::Pods);
    local.listeners[0].address = [127, 0, 0, 1].into();
    resolver.handle(Event::Apply(shard("a", vec![local])));
    let home = ips(&["127.0.0.1"]);
    resolver.handle(Event::Apply(slice("s", 8080, &home)));
    assert_eq!(apply(&mut resolver, slice("t", 9000, &home)), at(&["127.0.0.1:9000"]));
}

#[test]
fn a_pool_has_no_more_members_than_it_may_and_keeps_those_that_it_has() {
    let mut resolver = resolver(MemberRules::default());
    let numbers = |range: std::ops::Range<usize>| -> Vec<IpAddr> {
        range.map(|n| IpAddr::from([10, 1, (n / 250) as u8, (n % 250) as u8])).collect()
    };
    let first = apply(&mut resolver, slice("s", 80, &numbers(500..MOST_MEMBERS + 500))).unwrap();
    assert_eq!((first.len(), told(&resolver)), (MOST_MEMBERS, vec![]));
    // Lower addresses that come later take no place of existing members.
    assert_eq!(apply(&mut resolver, slice("t", 80, &numbers(0..500))), None);
    let message = "500 members of Service shop/web get no traffic: a pool can have at most 2000";
    let web = consumer(ConsumerKind::Service, "web");
    assert_eq!(told(&resolver), [(web, Reason::TooManyMembers, message.to_owned())]);
    let fewer = apply(&mut resolver, slice("s", 80, &numbers(600..MOST_MEMBERS + 500))).unwrap();
    assert_eq!(fewer.len(), MOST_MEMBERS);
    assert!(first[100..].iter().all(|member| fewer.contains(member)));
}

#[test]
fn what_is_left_out_is_forgotten_with_its_consumer() {
    let mut resolver = resolver(MemberRules::default());
    apply(&mut resolver, slice("s", 80, &ips(&["127.0.0.1"])));
    resolver.handle(Event::Delete(Kind::Shard, ObjectKey::new("", "a")));
    resolver.handle(Event::Delete(Kind::Slice, ObjectKey::new("shop", "s")));
    let update = resolver.take().unwrap();
    assert!(update.pools.iter().all(|change| matches!(change, Change::Remove(_))));
    assert_eq!(told(&resolver), []);
    assert!(resolver.is_empty());
}

#[test]
fn kept_members_that_the_rules_in_force_refuse_are_left_out() {
    let mut before = resolver(MemberRules { loopback: true, ..MemberRules::default() });
    let all = ips(&["10.0.0.1", "10.9.0.1", "127.0.0.1", "192.0.2.2"]);
    assert_eq!(apply(&mut before, slice("s", 80, &all)).map(|it| it.len()), Some(4));
    let mut kept = before.snapshot();
    let denied = vec!["10.9.0.0/16".parse().unwrap()];
    let rules = MemberRules { denied, ..MemberRules::default() };
    assert_eq!(leave_out(&mut kept, &rules), 2);
    let members: Vec<_> = kept.members[0].members.iter().map(|it| it.address).collect();
    assert_eq!(Some(members), at(&["10.0.0.1:80", "192.0.2.2:80"]));
    // An update kept by an older version without these rules: the load balancer is not a member of itself.
    let itself = Member { address: "192.0.2.1:80".parse().unwrap(), ..kept.members[0].members[0] };
    kept.members[0].members = [itself].into();
    assert_eq!((leave_out(&mut kept, &rules), kept.members[0].members.len()), (1, 0));
}
