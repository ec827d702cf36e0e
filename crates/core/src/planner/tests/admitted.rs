//! Tests of seats on load balancers that count them.

use super::make::*;
use crate::admission::{Decision, Want};
use crate::key::ConsumerRef;
use crate::objects::{
    AllowedNamespaces, ClassParameters, Ingress, IngressClass, LabelSelector, LoadBalancer,
    LoadBalancerClaim, Operator, Placement, Requirement, Service,
};
use crate::outcome::{Problem, Reason};
use crate::plan::Limits;
use crate::planner::{Config, Event, Object, Planner, Read};
use crate::resources::Amounts;

const SOME: Amounts = Amounts { bandwidth: Some(7), iops: None };

fn counted(name: &str) -> LoadBalancer {
    LoadBalancer { counted: true, ..lb(name) }
}

fn asks() -> Service {
    Service { requests: Ok(SOME), ..service("a/x", &[80]) }
}

fn who() -> ConsumerRef {
    super::super::consumer::ConsumerKey::service(&key("a/x")).with_uid(&asks().uid)
}

fn want() -> Want {
    let load_balancer = "lb".into();
    Want { consumer: who(), created: 0, load_balancer, requests: Ok(SOME), keeps: Vec::new() }
}

fn read(service: Service) -> Read {
    Read { consumer: service.into(), namespace: None, class: None, claim: None }
}

fn decide(planner: &mut Planner, decision: Option<Decision>) -> String {
    planner.handle(Event::Admitted(who(), decision));
    planner.wants();
    planner.take();
    service_state(planner, "a/x")
}

#[test]
fn where_seats_are_counted_only_who_has_one_is_planned() {
    let mut planner = Planner::new(Config::default());
    apply(&mut planner, asks());
    apply(&mut planner, counted("lb"));
    assert_eq!(planner.wants(), [(who(), Some(want()))]);
    planner.take();
    assert_eq!(service_state(&planner, "a/x"), "SeatPending by lb");
    let full = Problem::new(Reason::NoCapacity, "full");
    let waiting = Decision::Waiting { load_balancer: "lb".into(), problem: full.clone() };
    assert_eq!(decide(&mut planner, Some(waiting)), "NoCapacity by lb");
    let admitted =
        |short| Some(Decision::Admitted { load_balancer: "lb".into(), requests: SOME, short });
    assert_eq!(decide(&mut planner, admitted(None)), "lb 192.0.2.1");
    assert_eq!(decide(&mut planner, admitted(Some(full))), "lb 192.0.2.1");
    let reasons = reasons(&planner, crate::key::ConsumerKind::Service, "a/x");
    assert_eq!(reasons, [Reason::NoCapacity]);
    assert_eq!(decide(&mut planner, None), "SeatPending by lb");
}

#[test]
fn a_consumer_is_held_to_what_it_was_admitted_with_whatever_it_asks_for_now() {
    let mut planner = Planner::new(Config::default());
    apply(&mut planner, LoadBalancer { enforce_limits: true, ..counted("lb") });
    let short = Some(Problem::new(Reason::NoCapacity, "full"));
    let admitted = Decision::Admitted { load_balancer: "lb".into(), requests: SOME, short };
    let web = || ingress("a/x", vec![rule("shop.example", &[("/", "x:80")])]);
    apply(&mut planner, class("web"));
    let more = Ok(Amounts { bandwidth: Some(1_000), iops: Some(9) });
    let unreadable = Err(Problem::new(Reason::BadValue, "\"lots\" is not a quantity"));
    for requests in [Ok(SOME), more, unreadable, Ok(Amounts::default())] {
        apply(&mut planner, Service { requests: requests.clone(), ..asks() });
        apply(&mut planner, Ingress { requests: requests.clone(), ..web() });
        let both =
            [who(), super::super::consumer::ConsumerKey::ingress(&key("a/x")).with_uid(&web().uid)];
        for consumer in &both {
            planner.handle(Event::Admitted(consumer.clone(), Some(admitted.clone())));
        }
        planner.take();
        let pools: Vec<_> = planner.fragments("lb").flat_map(|it| it.pools.clone()).collect();
        let mut held: Vec<_> = pools.into_iter().map(|pool| pool.limits).collect();
        held.sort_by_key(|it| it.as_ref().map(|it| it.consumer.kind));
        let limits = |consumer: ConsumerRef| Limits {
            consumer,
            requests_per_second: SOME.iops,
            bits_per_second: SOME.bandwidth,
        };
        assert_eq!(held, both.map(limits).map(Some), "{requests:?}");
    }
}

#[test]
fn who_belongs_on_a_load_balancer_is_told_when_that_changes() {
    let mut planner = Planner::new(Config::default());
    apply(&mut planner, counted("lb"));
    apply(&mut planner, asks());
    planner.wants();
    planner.take();
    apply(&mut planner, Service { requests: Ok(Amounts::default()), ..asks() });
    let less = Want { requests: Ok(Amounts::default()), ..want() };
    assert_eq!(planner.wants(), [(who(), Some(less))]);
    planner.take();
    // An object that is created again is another consumer.
    apply(&mut planner, Service { uid: "new".into(), ..asks() });
    let new = ConsumerRef { uid: "new".into(), ..who() };
    let of_new = Want { consumer: new.clone(), ..want() };
    assert_eq!(planner.wants(), [(who(), None), (new.clone(), Some(of_new))]);
    planner.take();
    // A load balancer that counts no seats is not reported.
    apply(&mut planner, lb("lb"));
    assert_eq!(planner.wants(), [(new, None)]);
    planner.take();
    assert_eq!(service_state(&planner, "a/x"), "lb 192.0.2.1");
}

#[test]
fn a_read_says_whether_somebody_still_belongs_on_a_load_balancer() {
    let planner = planner(Config::default(), vec![counted("lb").into(), counted("q").into()]);
    let to = |placement| read(Service { placement, ..asks() });
    assert!(planner.belongs(&read(asks()), "lb"));
    assert!(!planner.belongs(&read(asks()), "q"));
    assert!(planner.belongs(&to(Ok(Placement::LoadBalancer("q".into()))), "q"));
    assert!(!planner.belongs(&to(Ok(Placement::Default)), "lb"));
    let unreadable = Problem::new(Reason::BadValue, "cannot be read");
    assert!(planner.belongs(&to(Err(unreadable)), "lb"));
}

#[test]
fn what_a_watch_has_not_told_of_claims_namespaces_and_classes_costs_nobody_a_seat() {
    let claimed = LoadBalancer {
        claim: Some((key("a/c"), Some("uid-of-a/c".into()))),
        ..counted("of-claim")
    };
    let requirements = vec![Requirement { key: "label".into(), operator: Operator::Exists }];
    let selects = LoadBalancer {
        allowed: AllowedNamespaces::Selector(LabelSelector { requirements }),
        ..counted("selects")
    };
    let planner = planner(Config::default(), vec![claimed.into(), selects.into()]);
    let to = |placement| Service { placement: Ok(placement), ..asks() };
    let by_claim =
        Read { claim: Some(claim("a/c", None)), ..read(to(Placement::Claim("c".into()))) };
    assert!(planner.belongs(&by_claim, "of-claim"));
    let by_name = to(Placement::LoadBalancer("of-claim".into()));
    assert!(planner.belongs(&Read { claim: by_claim.claim.clone(), ..read(by_name) }, "of-claim"));
    let another = LoadBalancerClaim { uid: "another".into(), ..claim("a/c", None) };
    assert!(!planner.belongs(&Read { claim: Some(another), ..by_claim.clone() }, "of-claim"));
    assert!(!planner.belongs(&Read { claim: None, ..by_claim }, "of-claim"));
    let labelled = Read {
        namespace: Some(namespace("a", "1")),
        ..read(to(Placement::LoadBalancer("selects".into())))
    };
    assert!(planner.belongs(&labelled, "selects"));
    assert!(!planner.belongs(&Read { namespace: None, ..labelled }, "selects"));
    let of_class = Ingress { placement: Ok(Placement::Default), ..ingress("a/x", Vec::new()) };
    let parameters = Ok(ClassParameters::Claim(key("a/c")));
    let by_class = Read {
        consumer: of_class.into(),
        namespace: None,
        class: Some(IngressClass { parameters, ..class("web") }),
        claim: Some(claim("a/c", None)),
    };
    assert!(planner.belongs(&by_class, "of-claim"));
    assert!(!planner.belongs(&Read { class: None, ..by_class }, "of-claim"));
}

#[test]
fn the_namespaces_that_use_a_load_balancer_are_told_when_they_change() {
    let mut planner = Planner::new(Config::default());
    let mut users = |objects: Vec<Object>| {
        objects.into_iter().for_each(|it| apply(&mut planner, it));
        planner.take().users
    };
    let both = vec![service("a/x", &[80]).into(), service("b/x", &[81]).into()];
    assert_eq!(users(both), []);
    assert_eq!(users(vec![lb("lb").into()]), [("lb".into(), vec!["a".into(), "b".into()])]);
    assert_eq!(users(vec![service("a/y", &[82]).into()]), []);
    let elsewhere = Service { placement: Ok(Placement::Default), ..service("b/x", &[81]) };
    assert_eq!(users(vec![elsewhere.into()]), [("lb".into(), vec!["a".into()])]);
}
