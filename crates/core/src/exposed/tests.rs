//! Builders for the tests in the modules below, one for each subject.

mod endpoints;
mod entries;
mod holders;
mod names;
mod ports;
mod telling;

use super::held::Held;
use super::view::{Entry, Machine, Settings, View};
use super::*;
use crate::member_rules::{MOST_MEMBERS, MemberRules};
use crate::objects::{Endpoint, SlicePort};
use crate::outcome::Reason;

fn key(text: &str) -> ObjectKey {
    let (namespace, name) = text.split_once('/').unwrap();
    ObjectKey::new(namespace, name)
}

/// A Service with port 80, called `http`, created at 0.
fn service(name: &str) -> Service {
    Service {
        key: key(name),
        uid: format!("uid-of-{name}").into(),
        created: 0,
        address: None,
        family: Family::V4,
        ports: vec![port("http", 80)],
        external: Vec::new(),
        source_ranges: Vec::new(),
        refused: None,
        problems: Vec::new(),
    }
}

fn port(name: &str, number: u16) -> Port {
    Port {
        name: name.into(),
        number,
        transport: Transport::Tcp,
        node_port: Some(number ^ 30_000),
        mode: None,
        timeout_ms: None,
    }
}

fn endpoint(address: &str, target: Option<&str>) -> Endpoint {
    Endpoint {
        address: address.parse().unwrap(),
        ready: true,
        serving: true,
        terminating: false,
        node: None,
        target: target.map(Into::into),
    }
}

/// A slice `NAME-1` of a Service with port 8080 called `http`.
fn slice(service: &str, endpoints: Vec<Endpoint>) -> Slice {
    let key = key(service);
    Slice {
        key: ObjectKey::new(key.namespace, format!("{}-1", key.name)),
        service: Some(key.name),
        ports: vec![SlicePort { name: "http".into(), number: 8080, transport: Transport::Tcp }],
        endpoints,
    }
}

fn settings() -> Settings {
    Settings {
        domain: "local".into(),
        default_mode: "http".into(),
        default_address: "0.0.0.0".parse().unwrap(),
        source_ranges: false,
        machine: Machine::default(),
        members: MemberRules::default(),
    }
}

fn told(objects: impl IntoIterator<Item = Object>) -> Exposed {
    let mut exposed = Exposed::new();
    for kind in [Kind::Service, Kind::Slice, Kind::Node] {
        exposed.handle(Event::Begin(kind));
    }
    objects.into_iter().for_each(|object| exposed.handle(Event::Apply(object)));
    for kind in [Kind::Service, Kind::Slice, Kind::Node] {
        exposed.handle(Event::Done(kind));
    }
    exposed
}

fn generated(entry: &Entry) -> Vec<String> {
    vec![format!("{}.{}.svc.local", entry.name(), entry.namespace())]
}

fn view(exposed: &mut Exposed, settings: &Settings) -> View {
    exposed.view(settings, generated)
}

/// Services, each with one ready Pod, as a template sees them: label, endpoints, external names.
fn seen(services: Vec<Service>, settings: &Settings) -> (Vec<String>, Vec<(String, Reason)>) {
    let slices: Vec<_> = services
        .iter()
        .map(|s| Object::Slice(slice(&s.key.to_string(), vec![endpoint("10.0.0.1", None)])))
        .collect();
    let mut exposed = told(services.into_iter().map(Object::Service).chain(slices));
    let View { cluster, told, .. } = view(&mut exposed, settings);
    let labels = cluster.services.iter().map(|entry| {
        let names: Vec<_> = entry.external.iter().map(ToString::to_string).collect();
        format!("{entry} {} {}", entry.port, names.join(","))
    });
    let told = told.iter().map(|t| (t.consumer.name.to_string(), t.problem.reason));
    (labels.collect(), told.collect())
}

/// The endpoints of a Service that has these, and what its owner is told.
fn members(
    exposed: &mut Exposed,
    settings: &Settings,
    addresses: &[String],
) -> (Vec<String>, Vec<(Reason, String)>) {
    let endpoints = addresses.iter().map(|address| endpoint(address, None)).collect();
    exposed.handle(Event::Apply(Object::Slice(slice("a/web", endpoints))));
    let View { cluster, told, .. } = exposed.view(settings, |_| Vec::new());
    let endpoints = cluster.services.iter().flat_map(|entry| &entry.endpoints);
    let told = told.into_iter().map(|it| (it.problem.reason, it.problem.message.to_string()));
    (endpoints.map(|it| it.ip.to_string()).collect(), told.collect())
}

/// What a template agent does: it takes a view, stores what Services have in it, and writes.
fn publish(exposed: &mut Exposed) -> (Vec<String>, Vec<(String, Reason)>) {
    publish_with(exposed, generated)
}

/// The same with other rules for generated names.
fn publish_with(
    exposed: &mut Exposed,
    generated: impl Fn(&Entry) -> Vec<String>,
) -> (Vec<String>, Vec<(String, Reason)>) {
    let View { cluster, told, held } = exposed.view(&settings(), generated);
    exposed.hold(Held::from_json(&held.to_json()).unwrap());
    let entries = cluster.services.iter().map(|entry| {
        let names: Vec<_> = entry.external.iter().map(ToString::to_string).collect();
        format!("{}/{} {}", entry.namespace(), entry.name(), names.join(","))
    });
    let told = told.iter().map(|t| (t.consumer.namespace.to_string(), t.problem.reason));
    (entries.map(|it| it.trim().to_owned()).collect(), told.collect())
}

fn with_pod(service: &Service) -> [Object; 2] {
    let pod = vec![endpoint("10.0.0.1", None)];
    [Object::Service(service.clone()), Object::Slice(slice(&service.key.to_string(), pod))]
}

fn edit(exposed: &mut Exposed, service: &Service) {
    with_pod(service).into_iter().for_each(|object| exposed.handle(Event::Apply(object)));
}
