//! Tests of the cost of events: it depends on what changes, not on the size of the cluster.

use super::make::*;
use crate::objects::{Exposure, Ingress, Placement, Service};
use crate::planner::{Config, Event, Kind, Object, Planner};

/// This many Services with one port each, and a tenth as many Ingresses with one host each. There
/// are two load balancers, so that no port is wanted twice.
fn crowd(services: usize) -> Planner {
    let mut objects: Vec<Object> = vec![lb("lb").into(), lb("other").into(), class("web").into()];
    objects.push(Service { exposure: Exposure::ClusterIp, ..service("a/s", &[80]) }.into());
    for i in 0..services {
        objects.push(service(&format!("a/s{i}"), &[1000 + i as u16]).into());
        if i % 10 == 0 {
            let host = rule(&format!("h{i}.example"), &[("/", &format!("s{i}:80"))]);
            let tls = vec![tls(&[], &format!("t{i}"))];
            objects.push(Ingress { tls, ..ingress(&format!("a/i{i}"), vec![host]) }.into());
        }
    }
    planner(Config::default(), objects)
}

/// How many consumers each of these events visits.
fn costs(planner: &mut Planner) -> Vec<(&'static str, u64)> {
    let changed = Service { local_only: true, ..service("a/s500", &[1500]) };
    let moved =
        Service { placement: Ok(Placement::LoadBalancer("other".into())), ..changed.clone() };
    let contender = Service { created: 1, ..service("b/new", &[1500]) };
    let host = |host: &str, at: &str| Ingress {
        created: 1,
        ..ingress("a/new", vec![rule(host, &[(at, "s:80")])])
    };
    let events = [
        ("an equal object", Event::Apply(Box::new(service("a/s7", &[1007]).into()))),
        ("a changed Service behind an Ingress", Event::Apply(Box::new(changed.into()))),
        ("a Service that moves", Event::Apply(Box::new(moved.into()))),
        ("a Service alone", Event::Delete(Kind::Service, key("a/s501"))),
        ("a new Service", Event::Apply(Box::new(service("b/alone", &[30000]).into()))),
        ("a second for a port", Event::Apply(Box::new(service("b/new", &[1502]).into()))),
        ("a younger one for a port", Event::Apply(Box::new(contender.into()))),
        ("a new host", Event::Apply(Box::new(host("new.example", "/").into()))),
        ("a path of a host", Event::Apply(Box::new(host("h510.example", "/a").into()))),
        ("a taken path", Event::Apply(Box::new(host("h510.example", "/").into()))),
        ("a certificate", Event::Apply(Box::new(secret("a/t500", "hash").into()))),
        ("an Ingress gone", Event::Delete(Kind::Ingress, key("a/i520"))),
    ];
    let cost = |(name, event)| {
        let before = planner.visited();
        planner.handle(event);
        planner.take();
        (name, planner.visited() - before)
    };
    events.into_iter().map(cost).collect()
}

#[test]
fn an_event_costs_the_same_among_1_000_and_10_000_services() {
    let (few, many) = (costs(&mut crowd(1_000)), costs(&mut crowd(10_000)));
    assert_eq!(few, many);
    assert!(few.iter().all(|(_, cost)| *cost <= 6), "{few:?}");
}
