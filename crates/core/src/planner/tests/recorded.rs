//! Tests of consumers whose placement or address cannot be read: what is recorded stays, nothing new is given.

use super::make::*;
use crate::key::{ConsumerKind, ObjectKey};
use crate::objects::{
    AllowedNamespaces, ClassParameters, Ingress, IngressClass, LoadBalancer, Placement, Service,
};
use crate::outcome::{Problem, Reason};
use crate::planner::{Changes, Config, Event, Kind, Object, Planner, Record};

fn bad() -> Problem {
    Problem::new(Reason::BadValue, "cannot be read")
}

fn two_addresses(name: &str) -> LoadBalancer {
    LoadBalancer { addresses: vec![ip("192.0.2.1"), ip("192.0.2.2")], ..lb(name) }
}

/// A planner with its own plan as record, as the controller reads it back from the API.
fn recorded(objects: Vec<Object>) -> Planner {
    let mut planner = planner(Config::default(), objects);
    record(&mut planner);
    planner
}

fn record(planner: &mut Planner) {
    for name in ["lb", "other"] {
        let fragments: Vec<_> = planner.fragments(name).cloned().collect();
        let fragments = fragments.iter().map(|fragment| &**fragment);
        planner.handle(Event::Recorded(Record::new(name, 0, fragments)));
    }
    assert_eq!(planner.take(), Changes::default());
}

/// The outcome of `a/x` after its owner writes this object.
fn then(planner: &mut Planner, object: impl Into<Object>) -> String {
    apply(planner, object);
    planner.take();
    service_state(planner, "a/x")
}

fn at_one_address() -> Service {
    Service { vips: Ok(vec![ip("192.0.2.2")]), ..service("a/x", &[80]) }
}

fn unreadable() -> [Service; 3] {
    let placement = Service { placement: Err(bad()), vips: Ok(Vec::new()), ..at_one_address() };
    let mut address = Service { vips: Ok(Vec::new()), ..at_one_address() };
    address.address.problem = Some(bad());
    [placement, Service { vips: Err(bad()), ..at_one_address() }, address]
}

#[test]
fn a_service_stays_where_it_is_recorded_and_its_owner_is_told() {
    for unreadable in unreadable() {
        let mut planner = recorded(vec![two_addresses("lb").into(), at_one_address().into()]);
        let before = planner.hash("lb");
        assert_eq!(then(&mut planner, unreadable), "lb 192.0.2.2");
        assert_eq!(planner.hash("lb"), before);
        let outcome = planner.outcome(ConsumerKind::Service, &key("a/x"));
        assert_eq!(outcome.unwrap().problems, [bad()]);
        assert_eq!(planner.refused("lb").count(), 1);
        record(&mut planner);
        assert_eq!(then(&mut planner, service("a/x", &[80])), "lb 192.0.2.1 192.0.2.2");
    }
}

#[test]
fn of_what_is_not_recorded_nothing_is_given() {
    for unreadable in unreadable() {
        let mut planner = planner(Config::default(), vec![two_addresses("lb").into()]);
        apply(&mut planner, at_one_address());
        planner.take();
        let said = then(&mut planner, unreadable);
        assert!(said.starts_with("BadValue"), "planned, but not recorded: {said}");
    }
}

#[test]
fn another_object_of_the_same_name_gets_nothing() {
    for unreadable in unreadable() {
        let mut planner = recorded(vec![two_addresses("lb").into(), at_one_address().into()]);
        let another = Service { uid: "another".into(), ..unreadable };
        assert!(then(&mut planner, another).starts_with("BadValue"));
    }
}

#[test]
fn it_moves_nowhere_before_its_address_can_be_read() {
    let there = Ok(Placement::LoadBalancer("other".into()));
    let moved = Service { placement: there, vips: Err(bad()), ..at_one_address() };
    let objects = vec![two_addresses("lb").into(), lb("other").into(), at_one_address().into()];
    let mut planner = recorded(objects);
    assert_eq!(then(&mut planner, moved), "lb 192.0.2.2");
}

#[test]
fn what_administrators_say_counts_more_than_what_is_recorded() {
    let nobodys = LoadBalancer { allowed: AllowedNamespaces::None, ..two_addresses("lb") };
    let leaving = LoadBalancer { deleting: true, ..two_addresses("lb") };
    let cases = [
        (two_addresses("lb"), "lb 192.0.2.2"),
        (nobodys, "NotAllowed by lb"),
        (leaving, "lb 192.0.2.2"),
        (lb("lb"), "Recording by lb"),
    ];
    for (now, expected) in cases {
        let mut planner = recorded(vec![two_addresses("lb").into(), at_one_address().into()]);
        let [unreadable, ..] = unreadable();
        apply(&mut planner, unreadable);
        assert_eq!(then(&mut planner, now.clone()), expected, "{now:?}");
        assert_eq!(then(&mut planner, two_addresses("lb")), "lb 192.0.2.2");
    }
}

#[test]
fn of_several_recorded_addresses_those_stay_that_the_load_balancer_still_has() {
    let x = || service("a/x", &[80]);
    let mut planner = recorded(vec![two_addresses("lb").into(), x().into()]);
    apply(&mut planner, Service { vips: Err(bad()), ..x() });
    assert_eq!(then(&mut planner, lb("lb")), "lb 192.0.2.1");
    let none_recorded = Record::new("lb", 0, []);
    planner.handle(Event::Recorded(none_recorded));
    planner.take();
    assert_eq!(service_state(&planner, "a/x"), "BadValue");
}

#[test]
fn a_record_that_comes_later_counts() {
    let [unreadable, ..] = unreadable();
    let mut planner = planner(Config::default(), vec![lb("lb").into(), unreadable.into()]);
    assert_eq!(service_state(&planner, "a/x"), "BadValue");
    let outcome = planner.outcome(ConsumerKind::Service, &key("a/x"));
    let consumer = outcome.unwrap().consumer.clone();
    let fragments = [fragment_at(consumer, &[ip("192.0.2.1")])];
    planner.handle(Event::Recorded(Record::new("lb", 3, &fragments)));
    planner.take();
    assert_eq!(service_state(&planner, "a/x"), "lb 192.0.2.1");
}

#[test]
fn an_ingress_stays_where_it_is_recorded_whoever_cannot_be_read() {
    let by_class = |parameters| IngressClass { parameters, ..class("web") };
    let to_lb = || by_class(Ok(ClassParameters::LoadBalancer("lb".into())));
    let x = || Ingress {
        placement: Ok(Placement::Default),
        ..ingress("a/x", vec![rule("", &[("/", "x:80")])])
    };
    let typos: [Object; 2] =
        [Ingress { placement: Err(bad()), ..x() }.into(), by_class(Err(bad())).into()];
    for typo in typos {
        let mut planner = recorded(vec![lb("lb").into(), to_lb().into(), x().into()]);
        let before = planner.hash("lb");
        then(&mut planner, typo);
        assert_eq!(ingress_state(&planner, "a/x"), "lb 192.0.2.1");
        assert!(reasons(&planner, ConsumerKind::Ingress, "a/x").contains(&Reason::BadValue));
        assert_eq!(planner.hash("lb"), before);
        planner.handle(Event::Delete(Kind::Ingress, ObjectKey::new("a", "x")));
        planner.take();
        assert_eq!(ingress_state(&planner, "a/x"), "not ours");
    }
}

#[test]
fn records_of_those_who_can_be_read_cost_nothing() {
    let mut planner = recorded(vec![lb("lb").into(), service("a/x", &[80]).into()]);
    let visited = planner.visited();
    planner.handle(Event::Recorded(Record::new("lb", 0, [])));
    planner.take();
    assert_eq!(planner.visited(), visited);
}
