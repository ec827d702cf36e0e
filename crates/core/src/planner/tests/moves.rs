//! Tests of a consumer that moves from one load balancer to another and stays until it has arrived.

use super::make::*;
use crate::admission::{Decision, Want};
use crate::key::{ConsumerKind, ConsumerRef};
use crate::objects::{Ingress, LoadBalancer, LoadBalancerClaim, Placement, Service};
use crate::outcome::{Problem, Reason, State};
use crate::planner::{Config, Event, Object, Planner, Record};
use crate::resources::Amounts;

const SOME: Amounts = Amounts { bandwidth: Some(7), iops: None };
const KIND: ConsumerKind = ConsumerKind::Service;

fn asks(placement: Placement) -> Service {
    let placement = Ok(placement);
    Service { requests: Ok(SOME), placement, ..service("a/x", &[80]) }
}

fn on(lb: &str) -> Service {
    asks(Placement::LoadBalancer(lb.into()))
}

fn at(name: &str, address: &str) -> LoadBalancer {
    LoadBalancer { addresses: vec![ip(address)], ..lb(name) }
}

fn counted(name: &str, address: &str) -> LoadBalancer {
    LoadBalancer { counted: true, ..at(name, address) }
}

fn who() -> ConsumerRef {
    ConsumerRef {
        kind: KIND,
        namespace: "a".into(),
        name: "x".into(),
        uid: service("a/x", &[]).uid,
    }
}

fn want(lb: &str, keeps: &[&str]) -> Want {
    let (load_balancer, requests) = (lb.into(), Ok(SOME));
    let keeps = keeps.iter().map(|it| (*it).into()).collect();
    Want { consumer: who(), created: 0, load_balancer, requests, keeps }
}

fn admitted(lb: &str) -> Option<Decision> {
    Some(Decision::Admitted { load_balancer: lb.into(), requests: SOME, short: None })
}

/// Records what is planned.
fn record(planner: &mut Planner, lb: &str) {
    let fragments: Vec<_> = planner.fragments(lb).map(|it| (**it).clone()).collect();
    planner.handle(Event::Recorded(Record::new(lb, 0, &fragments)));
    planner.take();
}

/// The consumers that have fragments on a load balancer.
fn served(planner: &Planner, lb: &str) -> Vec<String> {
    let fragments =
        planner.fragments(lb).filter(|it| it.consumer.kind != ConsumerKind::LoadBalancer);
    fragments.map(|it| it.consumer.name.to_string()).collect()
}

/// The number of refusals by a load balancer.
fn refused(planner: &Planner, lb: &str) -> usize {
    planner.refused(lb).flat_map(|it| it.refusals_by(lb)).count()
}

fn arrive(planner: &mut Planner, lb: &str) {
    planner.handle(Event::Arrived(who(), Some(lb.into())));
    planner.take();
}

fn state(planner: &Planner) -> (String, Vec<std::net::IpAddr>) {
    let before = match &planner.outcome(KIND, &key("a/x")).unwrap().state {
        State::Planned { before, .. } => {
            before.iter().flat_map(|it| it.addresses.clone()).collect()
        }
        State::Refused { .. } => Vec::new(),
    };
    (service_state(planner, "a/x"), before)
}

/// A consumer that Plans record on `lb`, and load balancer `q` beside.
fn settled(objects: Vec<Object>) -> Planner {
    let mut all = vec![on("lb").into(), at("lb", "192.0.2.1").into(), at("q", "192.0.2.9").into()];
    all.extend(objects);
    let mut planner = planner(Config::default(), all);
    record(&mut planner, "lb");
    planner
}

#[test]
fn who_moves_stays_where_it_is_until_it_has_a_seat_where_it_goes() {
    let mut planner = Planner::new(Config::default());
    for object in [on("lb").into(), Object::from(counted("lb", "192.0.2.1"))] {
        apply(&mut planner, object);
    }
    apply(&mut planner, counted("q", "192.0.2.9"));
    assert_eq!(planner.wants(), [(who(), Some(want("lb", &[])))]);
    planner.handle(Event::Admitted(who(), admitted("lb")));
    planner.take();
    record(&mut planner, "lb");
    let stays = ("lb 192.0.2.1".to_owned(), vec![]);
    assert_eq!(state(&planner), stays);
    // The claim has no load balancer yet.
    apply(&mut planner, asks(Placement::Claim("c".into())));
    assert_eq!(planner.wants(), []);
    planner.take();
    assert_eq!(state(&planner), stays);
    assert_eq!(reasons(&planner, KIND, "a/x"), [Reason::ClaimNotFound]);
    // The new load balancer has no room.
    apply(&mut planner, on("q"));
    assert_eq!(planner.wants(), [(who(), Some(want("q", &["lb"])))]);
    let problem = Problem::new(Reason::NoCapacity, "full");
    let waiting = Decision::Waiting { load_balancer: "q".into(), problem };
    planner.handle(Event::Admitted(who(), Some(waiting)));
    planner.wants();
    planner.take();
    assert_eq!(state(&planner), stays);
    assert_eq!(reasons(&planner, KIND, "a/x"), [Reason::NoCapacity]);
    assert!(planner.keeps(&who(), "lb") && planner.keeps(&who(), "q"));
    // The new load balancer has room.
    planner.handle(Event::Admitted(who(), admitted("q")));
    assert_eq!(planner.wants(), []);
    planner.take();
    assert_eq!(state(&planner), ("q 192.0.2.9".to_owned(), vec![ip("192.0.2.1")]));
    planner.handle(Event::Arrived(who(), Some("q".into())));
    assert_eq!(planner.wants(), [(who(), Some(want("q", &[])))]);
    assert!(!planner.keeps(&who(), "lb"));
}

#[test]
fn who_moves_is_served_where_it_comes_from_until_it_has_arrived() {
    let mut planner = settled(vec![]);
    apply(&mut planner, on("q"));
    let changes = planner.take();
    assert_eq!(changes.fragments.len(), 1, "{changes:?}");
    assert_eq!(state(&planner), ("q 192.0.2.9".to_owned(), vec![ip("192.0.2.1")]));
    assert_eq!(
        (served(&planner, "lb"), served(&planner, "q")),
        (vec!["x".into()], vec!["x".into()])
    );
    let moving: Vec<_> = planner.moving().map(|it| it.consumer.clone()).collect();
    assert_eq!(moving, [who()]);
    record(&mut planner, "q");
    // A change of the consumer changes both places.
    apply(&mut planner, Service { ports: vec![port(81)], ..on("q") });
    assert_eq!(planner.take().fragments.len(), 2);
    arrive(&mut planner, "lb");
    assert_eq!(served(&planner, "lb"), ["x"], "that is where it was");
    arrive(&mut planner, "q");
    assert_eq!((served(&planner, "lb"), served(&planner, "q")), (vec![], vec!["x".into()]));
    assert_eq!(planner.moving().count(), 0);
    record(&mut planner, "lb");
    // The consumer moves back.
    apply(&mut planner, on("lb"));
    planner.take();
    assert_eq!(state(&planner), ("lb 192.0.2.1".to_owned(), vec![ip("192.0.2.9")]));
}

#[test]
fn the_rules_of_an_ingress_stay_with_the_listeners_where_it_comes_from() {
    let web = |lb: &str| Ingress {
        placement: Ok(Placement::LoadBalancer(lb.into())),
        ..ingress("a/web", vec![rule("h.example", &[("/", "x:81")])])
    };
    let beside = Service { ports: vec![port(81)], ..on("lb") };
    let mut planner = settled(vec![beside.into(), class("web").into(), web("lb").into()]);
    record(&mut planner, "lb");
    apply(&mut planner, web("q"));
    planner.take();
    assert_eq!((served(&planner, "lb").len(), served(&planner, "q").len()), (2, 1));
    let listens = |lb: &str| planner.fragments(lb).flat_map(|it| &it.listeners).count();
    assert_eq!((listens("lb"), listens("q")), (3, 2), "for both protocols, and one of a Service");
}

#[test]
fn a_load_balancer_that_is_deleted_keeps_its_consumers_until_they_are_gone_or_have_moved() {
    let leaving = || LoadBalancer { deleting: true, ..at("lb", "192.0.2.1") };
    let by_source = || asks(Placement::Source(lb("lb").source));
    for service in [on("lb"), by_source()] {
        let beside = LoadBalancer { source: "another".into(), ..at("q", "192.0.2.9") };
        let mut planner = settled(vec![beside.into()]);
        apply(&mut planner, service);
        apply(&mut planner, leaving());
        planner.take();
        let new =
            Service { key: key("a/new"), uid: "new".into(), ports: vec![port(81)], ..on("lb") };
        apply(&mut planner, new);
        planner.take();
        assert_eq!(state(&planner), ("lb 192.0.2.1".to_owned(), vec![]));
        assert_eq!(service_state(&planner, "a/new"), "LoadBalancerDeleting");
        record(&mut planner, "lb");
        assert_eq!(state(&planner), ("lb 192.0.2.1".to_owned(), vec![]));
        // It moves, and the old one serves until it has arrived.
        apply(&mut planner, on("q"));
        planner.take();
        assert_eq!(state(&planner), ("q 192.0.2.9".to_owned(), vec![ip("192.0.2.1")]));
        record(&mut planner, "q");
        arrive(&mut planner, "q");
        assert_eq!(served(&planner, "lb"), Vec::<String>::new());
    }
    // Its consumer is told.
    let mut planner = settled(vec![]);
    apply(&mut planner, leaving());
    planner.take();
    let unmet = planner.outcome(KIND, &key("a/x")).unwrap().unmet.clone().unwrap();
    assert_eq!(unmet.problem, Problem::leaving("lb"));
    apply(&mut planner, Service { deleting: true, ..on("lb") });
    planner.take();
    assert_eq!(served(&planner, "lb"), Vec::<String>::new());
}

#[test]
fn the_consumers_of_a_load_balancer_that_is_deleted_are_told_however_they_found_it() {
    let external = || LoadBalancer { external: true, ..at("lb", "192.0.2.1") };
    let vip = || Service {
        address: crate::addresses::Wish { of_device: true, ..Default::default() },
        ..asks(Placement::Default)
    };
    for (default, service, told) in [
        (None, asks(Placement::Source(lb("lb").source)), Problem::leaving("lb")),
        (None, vip(), Problem::leaving("lb")),
        (Some("lb"), asks(Placement::Default), Problem::default_leaving("lb")),
    ] {
        let mut planner = Planner::new(Config {
            default_load_balancer: default.map(Into::into),
            ..Config::default()
        });
        apply(&mut planner, external());
        apply(&mut planner, service);
        planner.take();
        record(&mut planner, "lb");
        apply(&mut planner, LoadBalancer { deleting: true, ..external() });
        planner.take();
        assert_eq!(state(&planner), ("lb 192.0.2.1".to_owned(), vec![]));
        let unmet = planner.outcome(KIND, &key("a/x")).unwrap().unmet.clone().unwrap();
        assert_eq!(unmet.problem, told);
    }
    assert_eq!(
        &*Problem::default_leaving("lb").message,
        "load balancer \"lb\", the default one, is being deleted and takes no new consumers: name another one by \
         bowline.dev/load-balancer"
    );
}

#[test]
fn where_it_may_not_be_any_more_or_has_nothing_nobody_stays() {
    for gone in [
        LoadBalancer { allowed: crate::objects::AllowedNamespaces::None, ..at("lb", "192.0.2.1") },
        LoadBalancer { claim: Some((key("b/c"), Some("u".into()))), ..at("lb", "192.0.2.1") },
        // Two load balancers with a common address would take connections from each other.
        at("lb", "192.0.2.9"),
    ] {
        let mut planner = settled(vec![]);
        apply(&mut planner, on("q"));
        planner.take();
        assert_eq!(served(&planner, "lb"), ["x"]);
        apply(&mut planner, gone);
        planner.take();
        assert_eq!((served(&planner, "lb"), served(&planner, "q")), (vec![], vec!["x".into()]));
    }
    // A consumer that asks for no load balancer, or is deleted, does not stay either.
    let mut planner = settled(vec![]);
    apply(&mut planner, asks(Placement::Door("another".into())));
    planner.take();
    assert_eq!(served(&planner, "lb"), Vec::<String>::new());
}

#[test]
fn who_names_what_is_not_there_or_not_for_it_stays_and_is_told() {
    let theirs = LoadBalancer {
        allowed: crate::objects::AllowedNamespaces::None,
        ..at("theirs", "192.0.2.8")
    };
    for (name, reason, by) in [
        ("egde", Reason::LoadBalancerNotFound, None),
        ("theirs", Reason::NotAllowed, Some("theirs")),
    ] {
        let mut planner = settled(vec![theirs.clone().into()]);
        apply(&mut planner, on(name));
        planner.take();
        assert_eq!(state(&planner), ("lb 192.0.2.1".to_owned(), vec![]));
        assert_eq!(reasons(&planner, KIND, "a/x"), [reason]);
        assert_eq!((refused(&planner, "lb"), refused(&planner, "theirs")), (0, by.iter().count()));
        // A new consumer is served nowhere.
        apply(&mut planner, Service { placement: on(name).placement, ..service("a/new", &[81]) });
        planner.take();
        assert_eq!(served(&planner, "lb"), ["x"]);
        // When the load balancer exists after all, the consumer goes there.
        apply(&mut planner, at(name, "192.0.2.8"));
        planner.take();
        assert_eq!(state(&planner), (format!("{name} 192.0.2.8"), vec![ip("192.0.2.1")]));
        assert_eq!(refused(&planner, name), 0);
    }
}

#[test]
fn a_default_that_is_not_there_closes_nobody_and_none_at_all_does() {
    let config = |name: Option<&str>| Config {
        default_class: true,
        default_load_balancer: name.map(Into::into),
    };
    let any = || Service { placement: Ok(Placement::Default), ..on("lb") };
    let settled = settled(vec![]);
    let fragments: Vec<_> = settled.fragments("lb").map(|it| (**it).clone()).collect();
    for (default, stays) in [(Some("egde"), 1), (None, 0)] {
        let mut planner = Planner::new(config(default));
        planner.handle(Event::Recorded(Record::new("lb", 0, &fragments)));
        apply(&mut planner, at("lb", "192.0.2.1"));
        apply(&mut planner, any());
        planner.take();
        assert_eq!(served(&planner, "lb").len(), stays, "{default:?}");
    }
}

#[test]
fn two_that_are_reached_by_a_name_have_no_address_in_common() {
    let named = |name: &str| LoadBalancer { addresses: vec![crate::plan::BY_NAME], ..lb(name) };
    let mut planner = settled(vec![]);
    apply(&mut planner, named("lb"));
    apply(&mut planner, named("q"));
    planner.take();
    record(&mut planner, "lb");
    apply(&mut planner, on("q"));
    planner.take();
    assert_eq!(
        (served(&planner, "lb"), served(&planner, "q")),
        (vec!["x".into()], vec!["x".into()])
    );
}

#[test]
fn who_is_refused_where_it_goes_goes_on_where_it_was_and_is_told() {
    let older = Service {
        created: -1,
        placement: Ok(Placement::LoadBalancer("q".into())),
        ..service("a/older", &[80])
    };
    let mut planner = settled(vec![older.into()]);
    apply(&mut planner, on("q"));
    planner.take();
    assert_eq!(state(&planner), ("lb 192.0.2.1".to_owned(), vec![]));
    assert_eq!(reasons(&planner, KIND, "a/x"), [Reason::PortTaken]);
    assert_eq!((refused(&planner, "lb"), refused(&planner, "q")), (0, 1), "q refused it");
    apply(&mut planner, on("lb"));
    planner.take();
    assert_eq!((refused(&planner, "lb"), refused(&planner, "q")), (0, 0));
}

#[test]
fn the_claim_through_which_somebody_stays_is_in_use() {
    let bound = |name: &str, claim: &str, address: &str| LoadBalancer {
        claim: Some((key(claim), Some(format!("uid-of-{claim}").into()))),
        ..at(name, address)
    };
    let claim = |name: &str, lb: &str| LoadBalancerClaim {
        key: key(name),
        uid: format!("uid-of-{name}").into(),
        load_balancer: Some(lb.into()),
    };
    let mut planner = planner(
        Config::default(),
        vec![
            asks(Placement::Claim("one".into())).into(),
            bound("lb", "a/one", "192.0.2.1").into(),
            bound("q", "a/two", "192.0.2.9").into(),
            claim("a/one", "lb").into(),
            claim("a/two", "q").into(),
        ],
    );
    record(&mut planner, "lb");
    apply(&mut planner, asks(Placement::Claim("two".into())));
    let (one, two) = (key("a/one"), key("a/two"));
    assert_eq!(planner.take().wanted, [(two.clone(), 1)]);
    planner.handle(Event::Arrived(who(), Some("q".into())));
    assert_eq!(planner.take().wanted, [(one, 0)]);
    record(&mut planner, "q");
    record(&mut planner, "lb");
    // A consumer that stays because its new claim does not exist still counts for the old claim.
    apply(&mut planner, asks(Placement::Claim("none".into())));
    assert_eq!(planner.take().wanted, [(key("a/none"), 1)]);
    planner.handle(Event::Delete(crate::planner::Kind::LoadBalancer, key("q")));
    assert_eq!(planner.take().wanted, [(two, 0)]);
}

#[test]
fn an_address_of_its_own_is_in_one_place_at_a_time() {
    let own = |lb: &str| Service { vips: Ok(vec![ip("192.0.2.7")]), ..on(lb) };
    let mut planner = settled(vec![own("lb").into()]);
    let grant = crate::planner::Grant { addresses: vec![ip("192.0.2.7")], ..<_>::default() };
    planner.handle(Event::Granted(KIND, key("a/x"), grant));
    planner.take();
    record(&mut planner, "lb");
    apply(&mut planner, own("q"));
    planner.take();
    assert_eq!((served(&planner, "lb"), served(&planner, "q")), (vec![], vec!["x".into()]));
}

#[test]
fn a_new_leader_lets_who_moves_stay_where_a_plan_has_it() {
    let mut before = settled(vec![]);
    let fragments: Vec<_> = before.fragments("lb").map(|it| (**it).clone()).collect();
    before.take();
    let mut planner = Planner::new(Config::default());
    planner.handle(Event::Recorded(Record::new("lb", 0, &fragments)));
    apply(&mut planner, counted("lb", "192.0.2.1"));
    apply(&mut planner, asks(Placement::Claim("c".into())));
    assert_eq!(planner.wants(), [(who(), Some(want("lb", &[])))]);
    planner.take();
    assert_eq!(state(&planner), ("lb 192.0.2.1".to_owned(), vec![]));
}

#[test]
fn what_cannot_be_read_holds_a_seat_only_where_a_plan_has_it() {
    let planner = settled(vec![]);
    let unreadable = Err(Problem::new(Reason::BadValue, "cannot be read"));
    let read = crate::planner::Read {
        consumer: Service { placement: unreadable, ..on("lb") }.into(),
        namespace: None,
        class: None,
        claim: None,
    };
    assert!(planner.belongs(&read, "lb"));
    assert!(!planner.belongs(&read, "q"));
}

#[test]
fn who_stays_is_held_to_the_seat_that_it_has_there() {
    let limited =
        |name: &str, address: &str| LoadBalancer { enforce_limits: true, ..counted(name, address) };
    let mut planner = settled(vec![]);
    apply(&mut planner, limited("lb", "192.0.2.1"));
    apply(&mut planner, limited("q", "192.0.2.9"));
    let greedy = Service { requests: Ok(Amounts { bandwidth: Some(900), iops: None }), ..on("q") };
    apply(&mut planner, greedy);
    let problem = Problem::new(Reason::NoCapacity, "full");
    let waiting = Decision::Waiting { load_balancer: "q".into(), problem };
    planner.handle(Event::Admitted(who(), Some(waiting)));
    planner.handle(Event::Stays(who(), "lb".into(), Some(SOME)));
    planner.take();
    let held: Vec<_> =
        planner.fragments("lb").flat_map(|it| &it.pools).map(|it| &it.limits).collect();
    let limits: Vec<_> = held.iter().filter_map(|it| it.as_ref()?.bits_per_second).collect();
    assert_eq!(limits, [7], "{held:?}");
}
