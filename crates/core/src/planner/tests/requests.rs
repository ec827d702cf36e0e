//! Tests of the address requests of Services and load balancers, and of what is planned with granted addresses.

use super::make::*;
use crate::addresses::{Ask, Families, HolderKind, Policy, Wish};
use crate::key::ConsumerKind;
use crate::objects::{Family, LoadBalancer, Placement, Service, ServiceClass};
use crate::outcome::{Problem, Reason, State};
use crate::planner::{Config, Event, Grant, Planner, Record};
use std::net::IpAddr;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A Service on no load balancer.
fn alone(name: &str) -> Service {
    Service { placement: Ok(Placement::Default), ..service(name, &[80]) }
}

fn from_pool(name: &str, pool: &str) -> Service {
    let address = Wish { pool: Some(pool.into()), ..Wish::default() };
    Service { address, ..service(name, &[80]) }
}

fn ask(planner: &Planner, name: &str) -> Result<Ask, Problem> {
    planner.service_request(&key(name), Vec::new()).unwrap().ask
}

fn granted(planner: &mut Planner, name: &str, grant: Grant) {
    planner.handle(Event::Granted(ConsumerKind::Service, key(name), grant));
    planner.take();
}

fn has(addresses: &[&str]) -> Grant {
    Grant { addresses: addresses.iter().map(|it| ip(it)).collect(), ..Grant::default() }
}

#[test]
fn a_service_asks_the_pools_where_its_load_balancer_has_not_what_it_wants() {
    let vip = |name, vip: &str| Service { vips: Ok(vec![ip(vip)]), ..service(name, &[80]) };
    let foreign = Service { class: ServiceClass::Foreign, ..alone("a/foreign") };
    let lost = Service {
        placement: Ok(Placement::LoadBalancer("none".into())),
        ..from_pool("a/lost", "p")
    };
    let objects = vec![
        lb("lb").into(),
        alone("a/alone").into(),
        Service { vips: Ok(vec![ip("192.0.2.9")]), ..alone("a/asks") }.into(),
        service("a/plain", &[80]).into(),
        vip("a/its", "192.0.2.1").into(),
        vip("a/own", "192.0.2.9").into(),
        from_pool("a/pool", "p").into(),
        foreign.into(),
        lost.into(),
    ];
    let planner = planner(Config::default(), objects);
    let nine = || Ok(Ask::Addresses { addresses: vec![ip("192.0.2.9")], pool: None });
    assert_eq!(ask(&planner, "a/alone"), Ok(Ask::Any));
    assert_eq!(ask(&planner, "a/asks"), nine());
    assert_eq!(ask(&planner, "a/plain"), Ok(Ask::Nothing));
    assert_eq!(ask(&planner, "a/its"), Ok(Ask::Nothing));
    assert_eq!(ask(&planner, "a/own"), nine());
    assert_eq!(ask(&planner, "a/pool"), Ok(Ask::Pool("p".into())));
    assert_eq!(ask(&planner, "a/foreign"), Ok(Ask::Nothing));
    assert_eq!(ask(&planner, "a/lost").unwrap_err().reason, Reason::LoadBalancerNotFound);
    let on = |name| planner.service_request(&key(name), Vec::new()).unwrap().load_balancer;
    let places = ["a/alone", "a/plain", "a/own", "a/pool", "a/lost"].map(on);
    assert_eq!(places, [None, None, Some("lb".into()), Some("lb".into()), None]);
    let alone = ["a/alone", "a/asks", "a/plain", "a/foreign"];
    assert_eq!(alone.map(|name| planner.is_alone(&key(name))), [true, true, false, false]);
}

#[test]
fn what_a_service_that_is_not_ours_shows_is_in_use() {
    let foreign = Service { class: ServiceClass::Foreign, ..alone("a/foreign") };
    let planner = planner(Config::default(), vec![foreign.into()]);
    let claim = planner.service_request(&key("a/foreign"), vec![ip("192.0.2.7")]).unwrap();
    assert_eq!((claim.ask, claim.uses), (Ok(Ask::Nothing), vec![ip("192.0.2.7")]));
}

#[test]
fn a_service_is_served_at_what_it_has_and_only_told_of_what_does_not_drain() {
    let objects = vec![lb("lb").into(), from_pool("a/x", "p").into()];
    let mut planner = planner(Config::default(), objects);
    assert_eq!(service_state(&planner, "a/x"), "Recording by lb");
    let outcome = planner.outcome(ConsumerKind::Service, &key("a/x")).unwrap();
    assert_eq!(crate::status::problems(outcome).count(), 0, "a moment is not told of");
    granted(&mut planner, "a/x", has(&["192.0.2.5"]));
    assert_eq!(service_state(&planner, "a/x"), "lb 192.0.2.5");
    let moved = Grant { draining: vec![ip("192.0.2.5")], ..has(&["192.0.2.6"]) };
    granted(&mut planner, "a/x", moved);
    let outcome = planner.outcome(ConsumerKind::Service, &key("a/x")).unwrap();
    let expected = State::Planned {
        load_balancer: "lb".into(),
        addresses: vec![ip("192.0.2.6")],
        draining: vec![ip("192.0.2.5")],
        before: Vec::new(),
    };
    assert_eq!(outcome.state, expected);
    let parts = planner.parts(ConsumerKind::Service, &key("a/x"));
    let listeners: Vec<_> = parts[0].listeners.iter().map(|it| it.address).collect();
    assert_eq!(listeners, [ip("192.0.2.5"), ip("192.0.2.6")]);
    let refused = Grant {
        problem: Some(Problem::new(Reason::PoolsExhausted, "pool \"p\": no free IPv4 address")),
        ..Grant::default()
    };
    granted(&mut planner, "a/x", refused);
    assert_eq!(service_state(&planner, "a/x"), "PoolsExhausted by lb");
}

#[test]
fn a_request_that_is_refused_leaves_a_service_where_it_is() {
    let asks = Service { vips: Ok(vec![ip("192.0.2.9")]), ..service("a/x", &[80]) };
    let mut planner = planner(Config::default(), vec![lb("lb").into(), asks.into()]);
    assert_eq!(service_state(&planner, "a/x"), "Recording by lb");
    let problem = Some(Problem::new(Reason::AddressTaken, "held by Service b/y"));
    granted(&mut planner, "a/x", Grant { problem, ..has(&["192.0.2.5"]) });
    assert_eq!(service_state(&planner, "a/x"), "lb 192.0.2.5");
    let reasons = reasons(&planner, ConsumerKind::Service, "a/x");
    assert_eq!(reasons, [Reason::AddressTaken]);
}

#[test]
fn a_load_balancer_with_a_pool_has_what_it_got_from_there_and_nothing_else() {
    let pooled = LoadBalancer { addresses: Vec::new(), address_pool: Some("p".into()), ..lb("lb") };
    let objects = vec![pooled.into(), service("a/x", &[80]).into(), lb("fixed").into()];
    let mut planner = planner(Config::default(), objects);
    let claim = planner.load_balancer_request("lb", Vec::new()).unwrap();
    assert_eq!(
        (claim.holder.kind, claim.ask),
        (HolderKind::LoadBalancer, Ok(Ask::Pool("p".into())))
    );
    let leaving = LoadBalancer {
        addresses: Vec::new(),
        address_pool: Some("p".into()),
        deleting: true,
        ..lb("leaving")
    };
    apply(&mut planner, leaving);
    let claim = planner.load_balancer_request("leaving", Vec::new()).unwrap();
    assert_eq!(claim.ask, Ok(Ask::Pool("p".into())), "it serves as long as it is there");
    let claim = planner.load_balancer_request("fixed", Vec::new()).unwrap();
    assert_eq!((claim.ask, claim.uses), (Ok(Ask::Nothing), vec![ip("192.0.2.1")]));
    planner.handle(Event::Reported("lb".into(), vec![ip("198.51.100.1")]));
    planner.take();
    assert_eq!(service_state(&planner, "a/x"), "NoAddress by lb");
    planner.handle(Event::Granted(ConsumerKind::LoadBalancer, key("lb"), has(&["192.0.2.5"])));
    planner.take();
    assert_eq!(service_state(&planner, "a/x"), "lb 192.0.2.5");
}

#[test]
fn what_drains_of_a_load_balancer_is_served_and_shown_by_nobody_who_has_something_else() {
    let pooled = LoadBalancer { addresses: Vec::new(), address_pool: Some("p".into()), ..lb("lb") };
    let stays = Service { vips: Ok(vec![ip("192.0.2.5")]), ..service("a/stays", &[81]) };
    let objects = vec![pooled.clone().into(), service("a/x", &[80]).into(), stays.into()];
    let mut planner = planner(Config::default(), objects);
    let grant = Grant { draining: vec![ip("192.0.2.5")], ..has(&["192.0.2.6"]) };
    planner.handle(Event::Granted(ConsumerKind::LoadBalancer, key("lb"), grant));
    planner.take();
    let planned = |addresses: &[&str], draining: &[&str]| State::Planned {
        load_balancer: "lb".into(),
        addresses: addresses.iter().map(|it| ip(it)).collect(),
        draining: draining.iter().map(|it| ip(it)).collect(),
        before: Vec::new(),
    };
    let state = |name| planner.outcome(ConsumerKind::Service, &key(name)).unwrap().state.clone();
    assert_eq!(state("a/x"), planned(&["192.0.2.6"], &["192.0.2.5"]));
    assert_eq!(state("a/stays"), planned(&["192.0.2.5"], &[]), "it asks for that one");
    let parts = planner.parts(ConsumerKind::Service, &key("a/x"));
    let listeners: Vec<_> = parts[0].listeners.iter().map(|it| it.address).collect();
    assert_eq!(listeners, [ip("192.0.2.5"), ip("192.0.2.6")]);
    assert_eq!(planner.addresses(&pooled), [ip("192.0.2.6")]);
}

#[test]
fn both_families_are_preferred_where_the_service_has_both() {
    let prefers = |name, families: &[Family]| Service {
        families: families.to_vec(),
        address: Wish { policy: Policy::Prefer, ..Wish::default() },
        ..alone(name)
    };
    let one = prefers("a/one", &[Family::V6]);
    let both = prefers("a/both", &[Family::V6, Family::V4]);
    let planner = planner(Config::default(), vec![one.into(), both.into()]);
    let families = |name| planner.service_request(&key(name), Vec::new()).unwrap().families;
    assert_eq!(families("a/one"), Families::One(Family::V6));
    assert_eq!(families("a/both"), Families::Prefer(Family::V6));
}

#[test]
fn a_service_alone_whose_wish_cannot_be_read_keeps_what_it_has() {
    let garbage = || Err(Problem::new(Reason::BadValue, "unreadable"));
    let bad = Service { vips: garbage(), ..alone("a/x") };
    let mut planner = planner(Config::default(), vec![bad.into()]);
    assert_eq!((planner.is_alone(&key("a/x")), ask(&planner, "a/x").is_err()), (false, true));
    granted(&mut planner, "a/x", has(&["192.0.2.5"]));
    assert!(planner.is_alone(&key("a/x")));
}

#[test]
fn a_service_stays_at_its_load_balancers_address_until_it_has_what_it_asks_for() {
    let mut planner =
        planner(Config::default(), vec![lb("lb").into(), service("a/x", &[80]).into()]);
    let fragments: Vec<_> = planner.fragments("lb").cloned().collect();
    let fragments = fragments.iter().map(|fragment| &**fragment);
    planner.handle(Event::Recorded(Record::new("lb", 0, fragments)));
    planner.take();
    let before = planner.hash("lb");
    let refused = Problem::new(Reason::PoolsExhausted, "pool \"p\": no free IPv4 address");
    let vip = Service { vips: Ok(vec![ip("192.0.2.9")]), ..service("a/x", &[80]) };
    for asks in [from_pool("a/x", "p"), vip] {
        apply(&mut planner, asks);
        planner.take();
        assert_eq!(service_state(&planner, "a/x"), "lb 192.0.2.1");
        let problem = Some(refused.clone());
        granted(&mut planner, "a/x", Grant { problem, ..Grant::default() });
        assert_eq!(
            (service_state(&planner, "a/x"), planner.hash("lb")),
            ("lb 192.0.2.1".into(), before)
        );
        let outcome = planner.outcome(ConsumerKind::Service, &key("a/x")).unwrap();
        assert_eq!(outcome.problems, std::slice::from_ref(&refused), "its owner is told");
    }
    granted(&mut planner, "a/x", has(&["192.0.2.9"]));
    assert_eq!(service_state(&planner, "a/x"), "lb 192.0.2.9");
    let another = Service { uid: "another".into(), ..from_pool("a/x", "p") };
    granted(&mut planner, "a/x", Grant::default());
    apply(&mut planner, another);
    planner.take();
    assert_eq!(service_state(&planner, "a/x"), "Recording by lb", "it has never been there");
}

#[test]
fn what_cannot_be_read_is_told_once_where_the_pools_say_it_too() {
    let objects = vec![lb("lb").into(), from_pool("a/x", "p").into()];
    let mut planner = planner(Config::default(), objects);
    granted(&mut planner, "a/x", has(&["192.0.2.5"]));
    let fragments: Vec<_> = planner.fragments("lb").cloned().collect();
    let fragments = fragments.iter().map(|fragment| &**fragment);
    planner.handle(Event::Recorded(Record::new("lb", 0, fragments)));
    let unreadable = Err(Problem::new(Reason::BadValue, "vip: \"x\" is no address"));
    apply(&mut planner, Service { vips: unreadable, ..from_pool("a/x", "p") });
    let told = Problem::new(Reason::BadValue, "vip: \"x\" is no address; correct the value");
    granted(&mut planner, "a/x", Grant { problem: Some(told.clone()), ..has(&["192.0.2.5"]) });
    assert_eq!(service_state(&planner, "a/x"), "lb 192.0.2.5");
    let outcome = planner.outcome(ConsumerKind::Service, &key("a/x")).unwrap();
    assert_eq!(outcome.problems, [told]);
}

#[test]
fn an_address_on_a_load_balancer_is_for_those_whom_the_load_balancer_is_for() {
    use crate::addresses::Scope;
    for scope in [Some(Scope::Intranet), Some(Scope::Internet), None] {
        let edge = LoadBalancer { scope, ..lb("lb") };
        let objects = vec![edge.into(), from_pool("a/pool", "p").into(), alone("a/alone").into()];
        let planner = planner(Config::default(), objects);
        let scope_of = |name| planner.service_request(&key(name), Vec::new()).unwrap().scope;
        assert_eq!((scope_of("a/pool"), scope_of("a/alone")), (scope, None));
    }
}

/// A load balancer that a class made, and its door, which requests an address of AddressPool `p`.
fn made() -> (LoadBalancer, Service) {
    let edge = LoadBalancer { addresses: Vec::new(), door: Some(key("ours/lb")), ..lb("lb") };
    let placement = Ok(Placement::Door(edge.uid.clone()));
    let door = Service { placement, ..from_pool("ours/lb", "p") };
    (edge, door)
}

#[test]
fn the_service_in_front_of_a_load_balancer_asks_for_those_whom_that_is_for() {
    use crate::addresses::Scope;
    let (edge, door) = made();
    let edge = LoadBalancer { scope: Some(Scope::Intranet), ..edge };
    let mut planner = planner(Config::default(), vec![door.clone().into()]);
    let claim = |planner: &Planner| planner.service_request(&key("ours/lb"), Vec::new()).unwrap();
    assert_eq!(claim(&planner).ask.unwrap_err().reason, Reason::LoadBalancerNotFound);
    apply(&mut planner, edge.clone());
    let asked = claim(&planner);
    assert_eq!((asked.ask, asked.door), (Ok(Ask::Pool("p".into())), true));
    assert_eq!((asked.scope, asked.load_balancer), (Some(Scope::Intranet), None));
    // A Service that only claims to be the door is not: it has another name, or names another load balancer.
    let placement = Ok(Placement::Door(edge.uid.clone()));
    let forged = Service { placement, ..from_pool("shop/lb", "p") };
    let another = Service { placement: Ok(Placement::Door("another".into())), ..door };
    for (name, service) in [("shop/lb", forged), ("ours/lb", another)] {
        apply(&mut planner, service);
        let asked = planner.service_request(&key(name), Vec::new()).unwrap();
        let refused = asked.ask.map_err(|problem| problem.reason);
        assert_eq!((refused, asked.door), (Err(Reason::LoadBalancerNotFound), false));
    }
}

#[test]
fn who_wants_an_address_of_its_own_is_told_that_one_behind_a_service_has_none_to_give() {
    let (edge, door) = made();
    let plain = service("a/x", &[80]);
    let objects =
        vec![edge.into(), door.into(), plain.clone().into(), from_pool("a/y", "p").into()];
    let mut planner = planner(Config::default(), objects);
    planner.handle(Event::Reported("lb".into(), vec![ip("192.0.2.7")]));
    planner.take();
    assert_eq!(service_state(&planner, "a/x"), "lb 192.0.2.7");
    assert_eq!(service_state(&planner, "a/y"), "NotSupported by lb");
    assert_eq!(ask(&planner, "a/y").unwrap_err().reason, Reason::NotSupported);
    granted(&mut planner, "a/y", has(&["192.0.2.9"]));
    assert_eq!(service_state(&planner, "a/y"), "NotSupported by lb", "what it had elsewhere");
    let vip = |vip: &str| Service { vips: Ok(vec![ip(vip)]), ..plain.clone() };
    apply(&mut planner, vip("192.0.2.7"));
    planner.take();
    assert_eq!(service_state(&planner, "a/x"), "lb 192.0.2.7", "that is its load balancer's");
    let fragments: Vec<_> = planner.fragments("lb").cloned().collect();
    let fragments = fragments.iter().map(|fragment| &**fragment);
    planner.handle(Event::Recorded(Record::new("lb", 0, fragments)));
    apply(&mut planner, vip("192.0.2.9"));
    planner.take();
    assert_eq!(service_state(&planner, "a/x"), "lb 192.0.2.7", "it stays where it was");
    assert_eq!(reasons(&planner, ConsumerKind::Service, "a/x"), [Reason::NotSupported]);
}
