//! Builders of small objects, and a planner that has been told of them.

use crate::key::{ConsumerKind, ObjectKey};
use crate::objects::{
    AllowedNamespaces, Exposure, Family, LoadBalancer, Placement, Service, ServiceClass,
    ServicePort, Tuning,
};
use crate::outcome::{Outcome, Reason, State};
use crate::plan::Transport;
use crate::planner::{Config, Event, Object, Planner};
use std::collections::BTreeMap;
use std::net::IpAddr;

pub(super) fn key(text: &str) -> ObjectKey {
    match text.split_once('/') {
        Some((namespace, name)) => ObjectKey::new(namespace, name),
        None => ObjectKey::new("", text),
    }
}

pub(super) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(super) fn port(number: u16) -> ServicePort {
    ServicePort {
        name: format!("p{number}").into(),
        number,
        transport: Transport::Tcp,
        node_port: Some(30000 + number),
        h2c: false,
    }
}

/// A Service of type LoadBalancer and our class, with these TCP ports, that names `lb`.
pub(super) fn service(name: &str, ports: &[u16]) -> Service {
    Service {
        key: key(name),
        uid: format!("uid-of-{name}").into(),
        created: 0,
        deleting: false,
        exposure: Exposure::LoadBalancer,
        class: ServiceClass::LoadBalancer,
        ports: ports.iter().copied().map(port).collect(),
        families: vec![Family::V4],
        local_only: false,
        source_ranges: Ok(Vec::new()),
        placement: Ok(Placement::LoadBalancer("lb".into())),
        vips: Ok(Vec::new()),
        tuning: Tuning::default(),
        timeouts: BTreeMap::new(),
        problems: Vec::new(),
    }
}

/// A load balancer for everybody, with one address.
pub(super) fn lb(name: &str) -> LoadBalancer {
    LoadBalancer {
        name: name.into(),
        uid: format!("uid-of-{name}").into(),
        deleting: false,
        addresses: vec![ip("192.0.2.1")],
        http_port: 80,
        https_port: 443,
        allowed: AllowedNamespaces::All,
        claim: None,
        regex_hosts: false,
        nodes: false,
        external: false,
        source: r#"{"builtin":{}}"#.into(),
    }
}

impl From<Service> for Object {
    fn from(it: Service) -> Self {
        Self::Service(it)
    }
}

impl From<LoadBalancer> for Object {
    fn from(it: LoadBalancer) -> Self {
        Self::LoadBalancer(it)
    }
}

pub(super) fn apply(planner: &mut Planner, object: impl Into<Object>) {
    planner.handle(Event::Apply(Box::new(object.into())));
}

pub(super) fn planner(config: Config, objects: Vec<Object>) -> Planner {
    let mut planner = Planner::new(config);
    for object in objects {
        planner.handle(Event::Apply(Box::new(object)));
    }
    planner.take();
    planner
}

/// Says in a line what became of a consumer: `lb 192.0.2.1`, `PortTaken by lb`, `not ours`.
pub(super) fn state(outcome: Option<&Outcome>) -> String {
    match outcome.map(|outcome| &outcome.state) {
        None => "not ours".to_owned(),
        Some(State::Planned { load_balancer, addresses }) => {
            let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
            format!("{load_balancer} {}", addresses.join(" "))
        }
        Some(State::Refused { load_balancer: Some(lb), problem }) => {
            format!("{} by {lb}", problem.reason)
        }
        Some(State::Refused { load_balancer: None, problem }) => problem.reason.to_string(),
    }
}

pub(super) fn service_state(planner: &Planner, name: &str) -> String {
    state(planner.outcome(ConsumerKind::Service, &key(name)))
}

pub(super) fn reasons(planner: &Planner, kind: ConsumerKind, name: &str) -> Vec<Reason> {
    let outcome = planner.outcome(kind, &key(name)).unwrap();
    outcome.problems.iter().map(|problem| problem.reason).collect()
}
