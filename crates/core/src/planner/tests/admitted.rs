//! Seats on load balancers that count them.

use super::make::*;
use crate::admission::{Decision, Want};
use crate::key::ConsumerRef;
use crate::objects::{LoadBalancer, Placement, Service};
use crate::outcome::{Problem, Reason};
use crate::planner::{Config, Event, Object, Planner};
use crate::resources::Amounts;

const SOME: Amounts = Amounts { bandwidth: Some(7), iops: None };

fn counted(name: &str) -> LoadBalancer {
    LoadBalancer { counted: true, ..lb(name) }
}

fn asks() -> Service {
    Service { requests: Ok(SOME), ..service("a/x", &[80]) }
}

fn who() -> ConsumerRef {
    super::super::who::Who::service(&key("a/x")).with_uid(&asks().uid)
}

fn want() -> Want {
    Want { consumer: who(), created: 0, load_balancer: "lb".into(), requests: Ok(SOME) }
}

fn decide(planner: &mut Planner, decision: Option<Decision>) -> String {
    planner.handle(Event::Admitted(who(), decision));
    assert_eq!(planner.wants(), []);
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
    // Made anew, it is another one.
    apply(&mut planner, Service { uid: "new".into(), ..asks() });
    let new = ConsumerRef { uid: "new".into(), ..who() };
    let of_new = Want { consumer: new.clone(), ..want() };
    assert_eq!(planner.wants(), [(who(), None), (new.clone(), Some(of_new))]);
    planner.take();
    // And where nothing is counted nothing is told.
    apply(&mut planner, lb("lb"));
    assert_eq!(planner.wants(), [(new, None)]);
    planner.take();
    assert_eq!(service_state(&planner, "a/x"), "lb 192.0.2.1");
}

#[test]
fn a_read_says_whether_somebody_still_belongs_on_a_load_balancer() {
    let planner = planner(Config::default(), vec![counted("lb").into(), counted("q").into()]);
    let to = |placement| Object::from(Service { placement, ..asks() });
    assert!(planner.belongs(&asks().into(), "lb"));
    assert!(!planner.belongs(&asks().into(), "q"));
    assert!(planner.belongs(&to(Ok(Placement::LoadBalancer("q".into()))), "q"));
    assert!(!planner.belongs(&to(Ok(Placement::Default)), "lb"));
    let unreadable = Problem::new(Reason::BadValue, "cannot be read");
    assert!(planner.belongs(&to(Err(unreadable)), "lb"));
}
