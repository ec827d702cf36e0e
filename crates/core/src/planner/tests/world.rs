//! Small worlds of objects that collide as much as possible: few namespaces, names, ages, addresses, ports, hosts and
//! paths. And the steps that change such a world.

use super::make::*;
use crate::key::{ConsumerKind, ConsumerRef, ObjectKey};
use crate::objects::{
    AllowedNamespaces, Backend, BackendPort, ClassParameters, Exposure, Family, Ingress,
    IngressClass, IngressPath, IngressRule, IngressTls, LabelSelector, LoadBalancer,
    LoadBalancerClaim, Operator, Placement, Requirement, Service, ServiceClass, ServicePort,
    TlsSecret, Tuning,
};
use crate::outcome::{Problem, Reason};
use crate::plan::{Algorithm, ENTRY_WEB, Fragment, Host, Site, Transport};
use crate::planner::{Config, Event, Kind, Object, Planner, Record};
use crate::update::{Extent, ListenerKey};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

pub(super) const KINDS: [Kind; 7] = [
    Kind::Service,
    Kind::Ingress,
    Kind::IngressClass,
    Kind::TlsSecret,
    Kind::Namespace,
    Kind::LoadBalancer,
    Kind::Claim,
];

pub(super) const LOAD_BALANCERS: [&str; 2] = ["p", "q"];

/// A step that changes a world.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Apply(Box<Object>),
    Delete(Kind, ObjectKey),
    /// An existing object changes in one field: an effect of the smallest change is the easiest to miss.
    Tweak(usize, u8),
    /// A kind is listed again, perhaps after a list that was cut off.
    Relist(Kind, bool),
    Report(Arc<str>, Vec<IpAddr>),
    /// A Plan object is observed. It has fragments of some of the existing consumers, with listeners at these
    /// addresses, and these hosts.
    Record {
        lb: Arc<str>,
        shard: u32,
        whose: u16,
        addresses: Vec<IpAddr>,
        hosts: Vec<Host>,
    },
    /// Agents do not serve what some of the consumers have, because they serve it for others.
    Unserve(Arc<str>, u16),
    /// The planner's plan is recorded.
    Settle,
    /// A load balancer has served some of the existing consumers for long enough, or no load balancer has any more.
    Arrive(Option<Arc<str>>, u16),
    /// The planner plans.
    Take,
}

/// A consumer, and the load balancer on which it has arrived.
type Arrival = (ConsumerRef, Option<Arc<str>>);

/// The objects after some steps.
#[derive(Clone, Debug, Default)]
pub(super) struct World {
    pub(super) objects: BTreeMap<(Kind, ObjectKey), Object>,
    pub(super) reported: BTreeMap<Arc<str>, Vec<IpAddr>>,
    pub(super) recorded: BTreeMap<(Arc<str>, u32), Vec<Fragment>>,
    unserved: BTreeMap<Arc<str>, Vec<(ConsumerRef, Extent)>>,
    arrived: BTreeMap<(ConsumerKind, ObjectKey), Arrival>,
}

pub(super) fn id(object: &Object) -> (Kind, ObjectKey) {
    match object {
        Object::Service(it) => (Kind::Service, it.key.clone()),
        Object::Ingress(it) => (Kind::Ingress, it.key.clone()),
        Object::IngressClass(it) => (Kind::IngressClass, key(&it.name)),
        Object::TlsSecret(it) => (Kind::TlsSecret, it.key.clone()),
        Object::Namespace(it) => (Kind::Namespace, key(&it.name)),
        Object::LoadBalancer(it) => (Kind::LoadBalancer, key(&it.name)),
        Object::Claim(it) => (Kind::Claim, it.key.clone()),
    }
}

fn consumer(object: &Object) -> Option<ConsumerRef> {
    let (kind, key, uid) = match object {
        Object::Service(it) => (ConsumerKind::Service, &it.key, &it.uid),
        Object::Ingress(it) => (ConsumerKind::Ingress, &it.key, &it.uid),
        _ => return None,
    };
    let ObjectKey { namespace, name } = key.clone();
    Some(ConsumerRef { kind, namespace, name, uid: uid.clone() })
}

impl World {
    /// Takes a step, and returns the events for the planner.
    pub(super) fn step(&mut self, step: Step) -> Vec<Event> {
        match step {
            Step::Apply(object) => {
                self.objects.insert(id(&object), (*object).clone());
                vec![Event::Apply(object)]
            }
            Step::Delete(kind, key) => {
                self.objects.remove(&(kind, key.clone()));
                vec![Event::Delete(kind, key)]
            }
            Step::Tweak(which, how) => {
                let Some(which) = which.checked_rem(self.objects.len()) else { return Vec::new() };
                let Some(((kind, key), object)) = self.objects.iter().nth(which) else {
                    return Vec::new();
                };
                let step = match tweaked(object.clone(), how) {
                    Some(object) => Step::Apply(Box::new(object)),
                    None => Step::Delete(*kind, key.clone()),
                };
                self.step(step)
            }
            Step::Relist(kind, breaks_off) => {
                let mut events = vec![Event::Begin(kind)];
                if breaks_off {
                    events.extend(self.all(kind).take(1));
                    events.push(Event::Begin(kind));
                }
                events.extend(self.all(kind));
                events.push(Event::Done(kind));
                events
            }
            Step::Report(lb, addresses) => {
                self.reported.insert(lb.clone(), addresses.clone());
                vec![Event::Reported(lb, addresses)]
            }
            Step::Record { lb, shard, whose, addresses, hosts } => {
                let consumers = self.objects.values().filter_map(consumer).enumerate();
                let fragments: Vec<_> = consumers
                    .filter(|(i, _)| whose >> (i % 16) & 1 == 1)
                    .map(|(_, consumer)| fragment_with(consumer, &addresses, &hosts))
                    .collect();
                self.recorded.insert((lb.clone(), shard), fragments.clone());
                vec![Event::Recorded(Record::new(lb, shard, &fragments))]
            }
            Step::Unserve(lb, whose) => {
                let consumers = self.objects.values().filter_map(consumer).enumerate();
                let some = consumers.filter(|(i, _)| whose >> (i % 16) & 1 == 1);
                let unserved: Vec<_> = some.flat_map(|(_, consumer)| extents(&consumer)).collect();
                self.unserved.insert(lb.clone(), unserved.clone());
                vec![Event::Unserved(lb, unserved)]
            }
            Step::Arrive(lb, whose) => {
                let consumers = self.objects.values().filter_map(consumer).enumerate();
                let some = consumers.filter(|(i, _)| whose >> (i % 16) & 1 == 1);
                let some: Vec<_> = some.map(|(_, consumer)| consumer).collect();
                let mut events = Vec::new();
                for consumer in some {
                    let key = ObjectKey::new(consumer.namespace.clone(), consumer.name.clone());
                    let arrived = (consumer.clone(), lb.clone());
                    self.arrived.insert((consumer.kind, key), arrived);
                    events.push(Event::Arrived(consumer, lb.clone()));
                }
                events
            }
            Step::Take | Step::Settle => Vec::new(),
        }
    }

    /// The events that apply all objects of a kind.
    pub(super) fn all(&self, kind: Kind) -> impl Iterator<Item = Event> {
        let of_kind = self.objects.iter().filter(move |((of, _), _)| *of == kind);
        of_kind.map(|(_, object)| Event::Apply(Box::new(object.clone())))
    }

    /// A new planner with this world.
    pub(super) fn planned(&self, config: Config) -> Planner {
        let mut planner = Planner::new(config);
        for kind in KINDS {
            planner.handle(Event::Begin(kind));
            self.all(kind).for_each(|event| planner.handle(event));
            planner.handle(Event::Done(kind));
        }
        self.beside().for_each(|event| planner.handle(event));
        planner.take();
        planner
    }

    /// The events that are not about objects.
    pub(super) fn beside(&self) -> impl Iterator<Item = Event> {
        let reported = self.reported.iter();
        let reported = reported.map(|(lb, at)| Event::Reported(lb.clone(), at.clone()));
        let recorded = self.recorded.iter().map(|((lb, shard), fragments)| {
            Event::Recorded(Record::new(lb.clone(), *shard, fragments))
        });
        let arrived = self.arrived.values();
        let arrived = arrived.map(|(consumer, lb)| Event::Arrived(consumer.clone(), lb.clone()));
        let unserved = self.unserved.iter();
        let unserved = unserved.map(|(lb, all)| Event::Unserved(lb.clone(), all.clone()));
        reported.chain(recorded).chain(arrived).chain(unserved)
    }

    /// Records these fragments for a load balancer, and returns the events.
    pub(super) fn settle(&mut self, lb: &str, fragments: Vec<Fragment>) -> Vec<Event> {
        let lb: Arc<str> = lb.into();
        let mut events = vec![Event::Recorded(Record::new(lb.clone(), 0, &fragments))];
        if self.recorded.remove(&(lb.clone(), 1)).is_some() {
            events.push(Event::Recorded(Record::new(lb.clone(), 1, [])));
        }
        self.recorded.insert((lb, 0), fragments);
        events
    }
}

const HOSTS: [&str; 3] = ["h.example", "*.example", ""];

fn fragment_with(consumer: ConsumerRef, addresses: &[IpAddr], hosts: &[Host]) -> Fragment {
    let site = |host: &Host| Site {
        entry: ENTRY_WEB.into(),
        host: host.clone(),
        tls: None,
        rules: Vec::new(),
    };
    let sites = hosts.iter().filter(|_| consumer.kind == ConsumerKind::Ingress).map(site);
    Fragment { sites: sites.collect(), ..fragment_at(consumer, addresses) }
}

/// Everything that a consumer may have in a record.
fn extents(consumer: &ConsumerRef) -> Vec<(ConsumerRef, Extent)> {
    let port = |address: &str| {
        let (address, transport) = (ip(address), Transport::Tcp);
        Extent::Listener(ListenerKey { address, port: 80, transport })
    };
    let ports = ["192.0.2.1", "192.0.2.2", "2001:db8::1"].map(port);
    let hosts = HOSTS.map(|host| Extent::Host(host.parse().unwrap()));
    ports.into_iter().chain(hosts).map(|extent| (consumer.clone(), extent)).collect()
}

/// An object with one changed field. None: it is deleted.
fn tweaked(mut object: Object, how: u8) -> Option<Object> {
    match (&mut object, how) {
        (Object::Service(it), 0) => it.local_only = !it.local_only,
        (Object::Service(it), 1) => it.created = 3 - it.created,
        (Object::Service(it), 2) => it.tuning.snat = Some(it.tuning.snat != Some(true)),
        (Object::Service(it), 3) => it.placement = Err(cannot_be_read()),
        (Object::Service(it), 4) => it.vips = Err(cannot_be_read()),
        (Object::Ingress(it), 0) => it.redirect = !it.redirect,
        (Object::Ingress(it), 1) => it.created = 3 - it.created,
        (Object::Ingress(it), 2) => _ = it.rules.pop(),
        (Object::Ingress(it), 3) => it.placement = Err(cannot_be_read()),
        (Object::IngressClass(it), 0) => it.ours = !it.ours,
        (Object::IngressClass(it), 1) => it.parameters = Err(cannot_be_read()),
        (Object::TlsSecret(it), 0) => it.certificate = Ok(content("h3")),
        (Object::Namespace(it), 0) => it.labels = namespace("", "2").labels,
        (Object::LoadBalancer(it), 0) => it.nodes = !it.nodes,
        (Object::LoadBalancer(it), 1) => it.regex_hosts = !it.regex_hosts,
        (Object::LoadBalancer(it), 2) => it.uid = "3".into(),
        (Object::LoadBalancer(it), 3) => it.addresses = vec![ip("192.0.2.9")],
        _ => return None,
    }
    Some(object)
}

pub(super) fn config() -> impl Strategy<Value = Config> {
    (any::<bool>(), option::of(select(&LOAD_BALANCERS[..]))).prop_map(|(default_class, name)| {
        Config { default_class, default_load_balancer: name.map(Into::into) }
    })
}

pub(super) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let kind = || select(&KINDS[..]);
    let step = prop_oneof![
        12 => object().prop_map(|object| Step::Apply(Box::new(object))),
        1 => object().prop_map(|object| { let (kind, key) = id(&object); Step::Delete(kind, key) }),
        6 => (0..20usize, 0..6u8).prop_map(|(which, how)| Step::Tweak(which, how)),
        1 => (kind(), any::<bool>()).prop_map(|(kind, breaks)| Step::Relist(kind, breaks)),
        1 => (lb_name(), addresses()).prop_map(|(lb, addresses)| Step::Report(lb, addresses)),
        3 => a_record(),
        1 => (lb_name(), any::<u16>()).prop_map(|(lb, whose)| Step::Unserve(lb, whose)),
        2 => Just(Step::Settle),
        1 => (option::of(lb_name()), any::<u16>()).prop_map(|(lb, whose)| Step::Arrive(lb, whose)),
        3 => Just(Step::Take),
    ];
    // Most failures need a load balancer that can be used first.
    let by_label = LoadBalancer { allowed: for_label_1(), ..lb("p") };
    let ground = [
        by_label.into(),
        class("web").into(),
        namespace("a", "1").into(),
        namespace("b", "1").into(),
        secret("a/s", "h1").into(),
    ];
    let ground = ground.map(|object: Object| Step::Apply(Box::new(object)));
    prop::collection::vec(step, 0..40).prop_map(move |steps| {
        let ground = ground.clone().into_iter();
        ground.chain(steps).collect()
    })
}

/// Steps of a world in which one leader records everything that it plans.
pub(super) fn settled_steps() -> impl Strategy<Value = Vec<Step>> {
    steps().prop_map(|mut steps| {
        steps.retain(|step| !matches!(step, Step::Record { .. } | Step::Unserve(..)));
        steps
    })
}

/// The namespace of the tenant that writes such an object. None: an administrator writes it.
pub(super) fn writer(object: &Object) -> Option<Arc<str>> {
    match object {
        Object::Service(_) | Object::Ingress(_) | Object::TlsSecret(_) | Object::Claim(_) => {
            Some(id(object).1.namespace)
        }
        Object::IngressClass(_) | Object::Namespace(_) | Object::LoadBalancer(_) => None,
    }
}

pub(super) fn object() -> impl Strategy<Value = Object> {
    prop_oneof![
        5 => a_service().prop_map(Object::from),
        6 => an_ingress().prop_map(Object::from),
        1 => a_load_balancer().prop_map(Object::from),
        1 => a_claim().prop_map(Object::from),
        1 => a_class().prop_map(Object::from),
        1 => a_secret().prop_map(Object::from),
        1 => (select(&["a", "b"][..]), select(&["1", "2"][..]))
            .prop_map(|(name, label)| namespace(name, label).into()),
    ]
}

fn lb_name() -> impl Strategy<Value = Arc<str>> {
    select(&["p", "p", "p", "q"][..]).prop_map(Into::into)
}

fn addresses() -> impl Strategy<Value = Vec<IpAddr>> {
    let all = ["192.0.2.1", "192.0.2.2", "2001:db8::1"].map(ip);
    subsequence(all.to_vec(), 0..=3)
}

fn cannot_be_read() -> Problem {
    Problem::new(Reason::BadValue, "cannot be read")
}

fn a_record() -> impl Strategy<Value = Step> {
    let whose = prop_oneof![1 => Just(0), 6 => any::<u16>()];
    let hosts = subsequence(HOSTS.map(|host| host.parse().unwrap()).to_vec(), 0..=3);
    (lb_name(), 0..2u32, whose, addresses(), hosts).prop_map(
        |(lb, shard, whose, addresses, hosts)| Step::Record { lb, shard, whose, addresses, hosts },
    )
}

fn bad<T: Clone + std::fmt::Debug>(
    good: impl Strategy<Value = T>,
) -> impl Strategy<Value = Result<T, Problem>> {
    good.prop_flat_map(|good| prop_oneof![15 => Just(Ok(good)), 1 => Just(Err(cannot_be_read()))])
}

fn placement() -> impl Strategy<Value = Result<Placement, Problem>> {
    bad(prop_oneof![
        2 => Just(Placement::Default),
        6 => lb_name().prop_map(Placement::LoadBalancer),
        1 => Just(Placement::Claim("c".into())),
        1 => select(&["1", "2"][..]).prop_map(|source| Placement::Source(source.into())),
    ])
}

fn consumer_key() -> impl Strategy<Value = ObjectKey> {
    (select(&["a", "b"][..]), select(&["x", "y", "z"][..]))
        .prop_map(|(namespace, name)| ObjectKey::new(namespace, name))
}

fn uid() -> impl Strategy<Value = Arc<str>> {
    select(&["1", "1", "1", "2"][..]).prop_map(Into::into)
}

fn ports() -> impl Strategy<Value = Vec<ServicePort>> {
    let all: Vec<ServicePort> = [(80, "web"), (80, "udp"), (443, "tls"), (53, "dns")]
        .into_iter()
        .map(|(number, name)| ServicePort { name: name.into(), ..port(number) })
        .collect();
    (subsequence(all, 1..=3), any::<bool>()).prop_map(|(mut ports, nodes)| {
        for port in &mut ports {
            let udp = &*port.name == "udp";
            port.transport = if udp { Transport::Udp } else { Transport::Tcp };
            port.node_port = port.node_port.filter(|_| nodes || udp);
        }
        ports
    })
}

fn tuning() -> impl Strategy<Value = Tuning> {
    option::of(select(&[Algorithm::RoundRobin, Algorithm::SourceIp][..]))
        .prop_map(|algorithm| Tuning { algorithm, ..Tuning::default() })
}

prop_compose! {
    fn a_service()(
        key in consumer_key(),
        uid in uid(),
        created in 0..3i64,
        deleting in prop::bool::weighted(0.1),
        exposure in select(&[
            Exposure::LoadBalancer, Exposure::LoadBalancer, Exposure::NodePort,
            Exposure::ClusterIp, Exposure::ExternalName,
        ][..]),
        class in select(&[
            ServiceClass::LoadBalancer, ServiceClass::LoadBalancer, ServiceClass::Unset,
            ServiceClass::Foreign,
        ][..]),
        ports in ports(),
        families in subsequence(vec![Family::V4, Family::V6], 1..=2),
        source_ranges in bad(Just(Vec::new())),
        placement in placement(),
        vips in bad(prop_oneof![3 => Just(Vec::new()), 1 => addresses()]),
        tuning in tuning(),
    ) -> Service {
        Service {
            key, uid, created, deleting, exposure, class, ports, families, source_ranges,
            placement, vips, tuning, ..service("a/x", &[])
        }
    }
}

fn a_backend() -> impl Strategy<Value = Backend> {
    let service = option::weighted(0.9, select(&["x", "x", "y", "none"][..]));
    let by = prop_oneof![
        select(&[80, 443, 53][..]).prop_map(BackendPort::Number),
        select(&["web", "udp"][..]).prop_map(|name| BackendPort::Name(name.into())),
    ];
    (service, by).prop_map(|(service, port)| Backend { service: service.map(Into::into), port })
}

fn a_host() -> impl Strategy<Value = crate::plan::Host> {
    select(&["", "h.example", "h.example", "*.example", "~^a+$"][..])
        .prop_map(|host| host.parse().unwrap())
}

fn a_rule() -> impl Strategy<Value = IngressRule> {
    let path = (select(&["/", "/a", "/a/", "=/a"][..]), a_backend())
        .prop_map(|(at, backend)| IngressPath { path: path(at), backend });
    (a_host(), prop::collection::vec(path, 0..4))
        .prop_map(|(host, paths)| IngressRule { host, paths })
}

fn a_tls() -> impl Strategy<Value = IngressTls> {
    let secret = option::weighted(0.9, select(&["s", "s", "t"][..]));
    (prop::collection::vec(a_host(), 0..2), secret)
        .prop_map(|(hosts, secret)| IngressTls { hosts, secret: secret.map(Into::into) })
}

prop_compose! {
    fn an_ingress()(
        key in consumer_key(),
        uid in uid(),
        created in 0..3i64,
        deleting in prop::bool::weighted(0.1),
        class in option::weighted(0.95, select(&["web", "web", "web", "other"][..])),
        placement in placement(),
        tuning in tuning(),
        redirect in any::<bool>(),
        default_backend in option::weighted(0.3, a_backend()),
        rules in prop::collection::vec(a_rule(), 1..3),
        tls in prop::collection::vec(a_tls(), 0..3),
    ) -> Ingress {
        let class = class.map(Into::into);
        Ingress {
            key, uid, created, deleting, class, placement, tuning, redirect, default_backend,
            rules, tls, requests: Ok(<_>::default()), problems: Vec::new(),
        }
    }
}

fn a_class() -> impl Strategy<Value = IngressClass> {
    let parameters = prop_oneof![
        3 => Just(ClassParameters::None),
        1 => lb_name().prop_map(ClassParameters::LoadBalancer),
        1 => Just(ClassParameters::Claim(key("a/c"))),
    ];
    (select(&["web", "web", "web", "other"][..]), prop::bool::weighted(0.9), bad(parameters))
        .prop_map(|(name, ours, parameters)| IngressClass { name: name.into(), ours, parameters })
}

fn a_secret() -> impl Strategy<Value = TlsSecret> {
    (select(&["a/s", "a/s", "a/t", "b/s"][..]), bad(select(&["h1", "h2"][..]))).prop_map(
        |(name, certificate)| TlsSecret { key: key(name), certificate: certificate.map(content) },
    )
}

fn for_label_1() -> AllowedNamespaces {
    let requirements =
        vec![Requirement { key: "label".into(), operator: Operator::In(vec!["1".into()]) }];
    AllowedNamespaces::Selector(LabelSelector { requirements })
}

fn allowed() -> impl Strategy<Value = AllowedNamespaces> {
    prop_oneof![
        3 => Just(AllowedNamespaces::All),
        1 => Just(AllowedNamespaces::None),
        3 => Just(for_label_1()),
    ]
}

prop_compose! {
    fn a_claim()(
        name in select(&["a/c", "b/c"][..]),
        uid in uid(),
        load_balancer in option::weighted(0.8, lb_name()),
    ) -> LoadBalancerClaim {
        LoadBalancerClaim { key: key(name), uid, load_balancer }
    }
}

prop_compose! {
    fn a_load_balancer()(
        name in lb_name(),
        uid in uid(),
        deleting in prop::bool::weighted(0.1),
        addresses in addresses(),
        http_port in select(&[80, 80, 443][..]),
        allowed in allowed(),
        claim in option::weighted(0.3, (select(&["a/c", "b/c"][..]), option::weighted(0.8, uid()))),
        regex_hosts in any::<bool>(),
        nodes in prop::bool::weighted(0.3),
        external in prop::bool::weighted(0.3),
        source in select(&["1", "2"][..]),
    ) -> LoadBalancer {
        LoadBalancer {
            name, uid, deleting, addresses, http_port, https_port: 443, allowed,
            claim: claim.map(|(claim, uid)| (key(claim), uid)), counted: false, regex_hosts, enforce_limits: regex_hosts, nodes, external,
            source: source.into(), carrier: None, door: None, created: 0, address_pool: None, scope: None,
        }
    }
}
