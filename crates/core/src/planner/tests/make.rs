//! Builders of small objects, and a planner with such objects.

use crate::addresses::Wish;
use crate::key::{ConsumerKind, ConsumerRef, ObjectKey};
use crate::objects::{
    AllowedNamespaces, Backend, BackendPort, Carrier, ClassParameters, Exposure, Family, Ingress,
    IngressClass, IngressPath, IngressRule, IngressTls, LoadBalancer, LoadBalancerClaim, Namespace,
    Placement, Service, ServiceClass, ServicePort, TlsContent, TlsSecret, Tuning,
};
use crate::outcome::{Outcome, Reason, State};
use crate::plan::{
    Action, ENTRY_WEB, Fragment, Listener, ListenerProtocol, PathKind, PathMatch, Serves, Transport,
};
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
        address: Wish::default(),
        tuning: Tuning::default(),
        affinity: None,
        timeouts: BTreeMap::new(),
        requests: Ok(<_>::default()),
        problems: Vec::new(),
    }
}

/// A fragment with a listener at each of these addresses, as a Plan has it.
pub(super) fn fragment_at(consumer: ConsumerRef, addresses: &[IpAddr]) -> Fragment {
    let listener = |address: &IpAddr| Listener {
        address: *address,
        port: 80,
        protocol: ListenerProtocol::Tcp,
        serves: Serves::Entry(ENTRY_WEB.into()),
    };
    let listeners = addresses.iter().map(listener).collect();
    Fragment { consumer, part: 0, claimed: false, listeners, sites: Vec::new(), pools: Vec::new() }
}

/// A load balancer for all namespaces, with one address.
pub(super) fn lb(name: &str) -> LoadBalancer {
    LoadBalancer {
        name: name.into(),
        uid: format!("uid-of-{name}").into(),
        created: 0,
        deleting: false,
        addresses: vec![ip("192.0.2.1")],
        address_pool: None,
        scope: None,
        http_port: 80,
        https_port: 443,
        allowed: AllowedNamespaces::All,
        claim: None,
        counted: false,
        regex_hosts: false,
        enforce_limits: false,
        nodes: false,
        external: false,
        carrier: Some(Carrier::Builtin),
        source: r#"{"builtin":{}}"#.into(),
        door: None,
    }
}

/// The path `/a`, or for `=/a` exactly that path.
pub(super) fn path(text: &str) -> PathMatch {
    match text.strip_prefix('=') {
        Some(text) => PathMatch { kind: PathKind::Exact, value: text.into() },
        None => PathMatch { kind: PathKind::Prefix, value: text.into() },
    }
}

/// A backend: the Service's name, and a port's name or number.
pub(super) fn backend(text: &str) -> Backend {
    let (service, port) = text.split_once(':').unwrap();
    let number = port.parse().map(BackendPort::Number);
    Backend {
        service: Some(service.into()),
        port: number.unwrap_or_else(|_| BackendPort::Name(port.into())),
    }
}

pub(super) fn rule(host: &str, paths: &[(&str, &str)]) -> IngressRule {
    let to = |(at, to): &(&str, &str)| IngressPath { path: path(at), backend: backend(to) };
    IngressRule { host: host.parse().unwrap(), paths: paths.iter().map(to).collect() }
}

/// An Ingress of our class `web` that names `lb`.
pub(super) fn ingress(name: &str, rules: Vec<IngressRule>) -> Ingress {
    Ingress {
        key: key(name),
        uid: format!("uid-of-{name}").into(),
        created: 0,
        deleting: false,
        class: Some("web".into()),
        placement: Ok(Placement::LoadBalancer("lb".into())),
        tuning: Tuning::default(),
        redirect: true,
        default_backend: None,
        rules,
        tls: Vec::new(),
        requests: Ok(<_>::default()),
        problems: Vec::new(),
    }
}

pub(super) fn tls(hosts: &[&str], secret: &str) -> IngressTls {
    IngressTls {
        hosts: hosts.iter().map(|host| host.parse().unwrap()).collect(),
        secret: Some(secret.into()),
    }
}

/// A Secret whose certificate has the hash `hash`.
pub(super) fn secret(name: &str, hash: &str) -> TlsSecret {
    TlsSecret { key: key(name), certificate: Ok(content(hash)) }
}

/// A certificate with this hash.
pub(super) fn content(hash: &str) -> TlsContent {
    TlsContent { hash: hash.into(), size: 5_000 }
}

/// Our IngressClass.
pub(super) fn class(name: &str) -> IngressClass {
    IngressClass { name: name.into(), ours: true, parameters: Ok(ClassParameters::None) }
}

/// A Namespace with one label, `label: VALUE`.
pub(super) fn namespace(name: &str, label: &str) -> Namespace {
    Namespace { name: name.into(), labels: [("label".into(), label.into())].into() }
}

macro_rules! objects {
    ($($kind:ident)*) => { $(
        impl From<$kind> for Object {
            fn from(it: $kind) -> Self {
                Self::$kind(it)
            }
        }
    )* };
}

objects! { Service Ingress IngressClass TlsSecret Namespace LoadBalancer }

impl From<LoadBalancerClaim> for Object {
    fn from(it: LoadBalancerClaim) -> Self {
        Self::Claim(it)
    }
}

/// A claim with a load balancer in its status.
pub(super) fn claim(name: &str, lb: Option<&str>) -> LoadBalancerClaim {
    let uid = format!("uid-of-{name}").into();
    LoadBalancerClaim { key: key(name), uid, load_balancer: lb.map(Into::into) }
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

/// The outcome of a consumer in one line: `lb 192.0.2.1`, `PortTaken by lb`, `not ours`.
pub(super) fn state(outcome: Option<&Outcome>) -> String {
    match outcome.map(|outcome| &outcome.state) {
        None => "not ours".to_owned(),
        Some(State::Planned { load_balancer, addresses, .. }) => {
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

pub(super) fn ingress_state(planner: &Planner, name: &str) -> String {
    state(planner.outcome(ConsumerKind::Ingress, &key(name)))
}

/// The rules of an Ingress, one per line: `shop.example /a -> ingress/a/x/shop/p80`.
pub(super) fn rules(planner: &Planner, name: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for site in planner.parts(ConsumerKind::Ingress, &key(name)).iter().flat_map(|it| &it.sites) {
        for rule in &site.rules {
            let equal = if rule.path.kind == PathKind::Exact { "=" } else { "" };
            let action = match &rule.action {
                Action::Forward(pools) => pools[0].pool.to_string(),
                Action::Respond(status) => status.to_string(),
                Action::Redirect(_) => unreachable!("Ingresses redirect by their sites"),
            };
            lines.push(format!("{} {equal}{} -> {action}", site.host, rule.path.value));
        }
    }
    lines
}

pub(super) fn reasons(planner: &Planner, kind: ConsumerKind, name: &str) -> Vec<Reason> {
    let outcome = planner.outcome(kind, &key(name)).unwrap();
    outcome.problems.iter().map(|problem| problem.reason).collect()
}
