//! The data that templates get, in kube2lb's schema, and which Services are left out of it. A view is a function of
//! the objects, the settings and what Services had in the last view. It is sorted, and the order of events does not
//! matter.

use super::contend::{Asked, Contended, contend, overlap};
use super::crowd::{Addresses, Crowds};
use super::held::Held;
use super::text::{ServerName, is_name};
use super::{Exposed, Port, Service};
use crate::key::{ConsumerKind, ConsumerRef};
use crate::member_rules::{LeftOut, MOST_MEMBERS, MOST_OF_NAMESPACE, MemberRules, Unfit};
use crate::objects::{self, Family, Slice};
use crate::outcome::{Problem, Reason, quote};
use crate::plan::Transport;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// The administrator's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The domain of the cluster.
    pub domain: Arc<str>,
    /// The mode of ports that have none of their own.
    pub default_mode: Arc<str>,
    /// The address of Services that ask for none.
    pub default_address: IpAddr,
    /// Whether the templates use source ranges. If they do not, a Service with some is left out rather than opened to
    /// all.
    pub source_ranges: bool,
    /// What is known of the machine that the load balancer runs on.
    pub machine: Machine,
    /// Which endpoints are left out.
    pub members: MemberRules,
}

/// What is known of the load balancer's machine: which ports and addresses cannot be bound there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Ports that the kernel gives to outgoing connections. None: not known.
    pub ephemeral: Option<RangeInclusive<u16>>,
    /// The addresses that it has. None: not known.
    pub addresses: Option<BTreeSet<IpAddr>>,
    /// Whether addresses of version 4 that it does not have can be bound too.
    pub nonlocal_v4: bool,
    /// Whether such addresses of version 6 can.
    pub nonlocal_v6: bool,
    /// Where programs other than the load balancer listen, by TCP.
    pub listening: BTreeSet<(IpAddr, u16)>,
}

impl Machine {
    /// Why an address cannot be bound.
    fn lacks(&self, ip: IpAddr) -> Option<Problem> {
        let (family, nonlocal) = match ip {
            IpAddr::V4(_) => ("ipv4", self.nonlocal_v4),
            IpAddr::V6(_) => ("ipv6", self.nonlocal_v6),
        };
        let lacks = !nonlocal && self.addresses.as_ref().is_some_and(|has| !has.contains(&ip));
        let message = || {
            format!(
                "{ip} is not an address of the load balancer's machine, and net.{family}.ip_nonlocal_bind \
                 is off; the Service is left out"
            )
        };
        lacks.then(|| Problem::new(Reason::AddressNotAvailable, message()))
    }

    /// Why a port cannot be bound.
    fn has_taken(&self, port: &PortSpec) -> Option<Problem> {
        let mut listening = self.listening.iter().filter(|(_, number)| *number == port.port);
        let taken =
            port.transport == Transport::Tcp && listening.any(|(ip, _)| overlap(*ip, port.ip));
        let message = || {
            format!(
                "another program on the load balancer's machine listens on port {}; the port is left out",
                port.port
            )
        };
        taken.then(|| Problem::new(Reason::BindFailed, message()))
    }
}

/// What a template is given, and what owners of objects are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// What a template is given.
    pub cluster: Cluster,
    /// What is left out of which Service, and why; sorted.
    pub told: Vec<Told>,
    /// What Services have in it; see [`Exposed::hold`].
    pub held: Held,
}

/// A problem to tell the owner of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Told {
    /// The object.
    pub consumer: ConsumerRef,
    /// The problem.
    pub problem: Problem,
}

/// kube2lb's `ClusterInformation`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// One entry per port of each Service, by namespace, name and position.
    pub services: Vec<Entry>,
    /// The ports of the entries, each once, sorted.
    pub ports: Vec<PortSpec>,
    /// The names of all entries that are regular expressions, in the order in which namespaces got them: of two that
    /// match, the first is to count.
    pub expressions: Vec<Expression>,
    /// The names of the nodes, sorted.
    pub nodes: Vec<Arc<str>>,
    /// The domain of the cluster.
    pub domain: Arc<str>,
}

/// A name of an entry that is a regular expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expression {
    /// The Service that has it.
    pub consumer: ConsumerRef,
    /// The port of the entry.
    pub port: PortSpec,
    /// As written, with its `~`.
    pub name: Arc<str>,
}

impl Expression {
    /// What the entry prints as.
    pub fn entry(&self) -> String {
        label(&self.consumer, &self.port)
    }
}

/// kube2lb's `ServiceInformation`: a port of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The Service that has it.
    pub consumer: ConsumerRef,
    /// Where clients reach it.
    pub port: PortSpec,
    /// The Pods behind it that take traffic, sorted by address.
    pub endpoints: Vec<Endpoint>,
    /// Its node port; 0: none.
    pub node_port: u16,
    /// Further names.
    pub external: Vec<ServerName>,
    /// Milliseconds that an endpoint may be silent; 0: the default.
    pub timeout_ms: u32,
    /// Clients that may use it; empty: all.
    pub source_ranges: Vec<ipnet::IpNet>,
}

/// kube2lb's `PortSpec`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PortSpec {
    /// The address.
    pub ip: IpAddr,
    /// The number.
    pub port: u16,
    /// `tcp`, `udp` or `sctp`.
    pub transport: Transport,
    /// `http`, `tcp`, or what a Service says.
    pub mode: Arc<str>,
}

/// kube2lb's `ServiceEndpoint`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The name of the Pod, or the address; no other endpoint of the entry has it.
    pub name: Arc<str>,
    /// The address.
    pub ip: IpAddr,
    /// The port.
    pub port: u16,
}

impl Cluster {
    /// The same with only the consumers that `keep` accepts.
    pub fn only(&self, keep: impl Fn(&ConsumerRef) -> bool) -> Self {
        let services = self.services.iter().filter(|entry| keep(&entry.consumer)).cloned();
        let services: Vec<Entry> = services.collect();
        let expressions = self.expressions.iter().filter(|it| keep(&it.consumer));
        Self {
            ports: ports(&services),
            expressions: expressions.cloned().collect(),
            services,
            nodes: self.nodes.clone(),
            domain: self.domain.clone(),
        }
    }
}

fn ports(services: &[Entry]) -> Vec<PortSpec> {
    let ports: BTreeSet<&PortSpec> = services.iter().map(|entry| &entry.port).collect();
    ports.into_iter().cloned().collect()
}

impl Entry {
    /// The name of the Service.
    pub fn name(&self) -> &Arc<str> {
        &self.consumer.name
    }

    /// Its namespace.
    pub fn namespace(&self) -> &Arc<str> {
        &self.consumer.namespace
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&label(&self.consumer, &self.port))
    }
}

fn label(consumer: &ConsumerRef, spec: &PortSpec) -> String {
    let (ConsumerRef { name, namespace, .. }, PortSpec { port, mode, .. }) = (consumer, spec);
    format!("{name}_{namespace}_{port}_{}_{mode}", spec.protocol())
}

impl PortSpec {
    /// The protocol as templates have it.
    pub fn protocol(&self) -> &'static str {
        match self.transport {
            Transport::Tcp => "tcp",
            Transport::Udp => "udp",
            Transport::Sctp => "sctp",
        }
    }
}

impl fmt::Display for PortSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ip {
            IpAddr::V4(ip) => ip.octets().iter().try_for_each(|byte| write!(f, "{byte:02x}"))?,
            IpAddr::V6(ip) => ip.octets().iter().try_for_each(|byte| write!(f, "{byte:02x}"))?,
        }
        write!(f, "_{}_{}_{}", self.port, self.protocol(), self.mode)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.ip, self.port)
    }
}

impl Exposed {
    /// The view as of now. `generated` returns the names that a Service has by the administrator's rules.
    pub fn view(&mut self, settings: &Settings, generated: impl Fn(&Entry) -> Vec<String>) -> View {
        self.dirty = false;
        let mut told = Vec::new();
        let mut asked = Vec::new();
        let guard = Guard::new(self, settings);
        for (_, service) in self.services.values() {
            let consumer = consumer(service);
            let mut tell =
                |problem: Problem| told.push(Told { consumer: consumer.clone(), problem });
            service.problems.iter().cloned().for_each(&mut tell);
            if let Some(problem) = unreadable(service, settings) {
                tell(problem);
                continue;
            }
            let unfit = unfit(service, settings);
            let slices: Vec<&Slice> = self.slices(&service.key).collect();
            // As in kube2lb, a Service without any Pod has no entry; one with Pods that are not ready has.
            let served = unfit.is_none() && slices.iter().any(|slice| !slice.endpoints.is_empty());
            unfit.into_iter().for_each(&mut tell);
            for port in &service.ports {
                let mut entry = entry(service, port, &consumer, settings);
                let before = self.crowds.had(&consumer, &entry.port);
                let (endpoints, unnamed) = endpoints(service, port, &slices, &guard, before);
                unnamed.into_iter().for_each(&mut tell);
                entry.endpoints = endpoints;
                asked.push(Asked { created: service.created, served, entry });
            }
        }
        let Contended { entries: mut services, mut expressions, held } =
            contend(asked, &self.held, generated, &mut told);
        services.retain(|entry| match settings.machine.has_taken(&entry.port) {
            Some(problem) => {
                told.push(Told { consumer: entry.consumer.clone(), problem });
                false
            }
            None => true,
        });
        self.crowds.bound(&mut services, MOST_OF_NAMESPACE, &mut told);
        self.crowds = Crowds::of(&services);
        let served: BTreeSet<_> = services.iter().map(|it| (&it.consumer, &it.port)).collect();
        expressions.retain(|it| served.contains(&(&it.consumer, &it.port)));
        told.sort();
        told.dedup();
        let nodes = self.nodes.keys().map(|key| key.name.clone()).filter(|name| is_name(name));
        let cluster = Cluster {
            nodes: nodes.collect(),
            ports: ports(&services),
            expressions,
            services,
            domain: settings.domain.clone(),
        };
        View { cluster, told, held }
    }
}

fn consumer(service: &Service) -> ConsumerRef {
    ConsumerRef {
        kind: ConsumerKind::Service,
        namespace: service.key.namespace.clone(),
        name: service.key.name.clone(),
        uid: service.uid.clone(),
    }
}

/// Why a Service must not be seen: it is treated as if it did not exist.
fn unreadable(service: &Service, settings: &Settings) -> Option<Problem> {
    if service.refused.is_some() {
        return service.refused.clone();
    }
    for text in [&service.key.name, &service.key.namespace] {
        if !is_name(text) {
            let message = format!("{} is not a name that a template may see", quote(text));
            return Some(Problem::new(Reason::BadValue, message));
        }
    }
    let ip = service.address.filter(|ip| *ip != settings.default_address && is_own(*ip))?;
    let message = format!(
        "{ip} is a loopback, link-local, multicast or broadcast address; the Service is left out until it asks \
         for another address"
    );
    Some(Problem::new(Reason::BadValue, message))
}

/// Whether an address means the machine itself, or its link, on any machine.
fn is_own(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => {
            ip.is_loopback() || ip.is_link_local() || ip.is_multicast() || ip.is_broadcast()
        }
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unicast_link_local() || ip.is_multicast(),
    }
}

/// Why a Service is left out although it may ask for what it asks for.
fn unfit(service: &Service, settings: &Settings) -> Option<Problem> {
    if !service.source_ranges.is_empty() && !settings.source_ranges {
        return Some(Problem::new(
            Reason::NotSupported,
            "it limits its clients by source ranges, and not all templates here use SourceRanges; the Service \
             is left out rather than opened to all clients",
        ));
    }
    if let Some(range) = &settings.machine.ephemeral
        && let Some(port) = service.ports.iter().find(|port| range.contains(&port.number))
    {
        let (first, last) = (range.start(), range.end());
        let message = format!(
            "port {} is in the range that the load balancer's machine uses for outgoing connections ({first} to \
             {last}, net.ipv4.ip_local_port_range); the Service is left out: use another port",
            port.number
        );
        return Some(Problem::new(Reason::EphemeralPort, message));
    }
    settings.machine.lacks(service.address?)
}

/// The entry of a port, without endpoints.
fn entry(service: &Service, port: &Port, consumer: &ConsumerRef, settings: &Settings) -> Entry {
    Entry {
        consumer: consumer.clone(),
        port: PortSpec {
            ip: service.address.unwrap_or(settings.default_address),
            port: port.number,
            transport: port.transport,
            mode: port.mode.as_ref().unwrap_or(&settings.default_mode).clone(),
        },
        endpoints: Vec::new(),
        node_port: port.node_port.unwrap_or_default(),
        external: service.external.clone(),
        timeout_ms: port.timeout_ms.unwrap_or_default(),
        source_ranges: service.source_ranges.clone(),
    }
}

/// Decides which endpoints are left out: those that the rules refuse, and addresses of the load balancer's machine at
/// which a Service is reached, which would be a loop. Services may ask for any address: one that the machine does not
/// have leaves out no endpoint.
struct Guard<'a> {
    rules: &'a MemberRules,
    addresses: BTreeSet<IpAddr>,
}

impl<'a> Guard<'a> {
    fn new(exposed: &Exposed, settings: &'a Settings) -> Self {
        let has =
            |ip: &IpAddr| settings.machine.addresses.as_ref().is_some_and(|it| it.contains(ip));
        let asked = exposed.services.values().filter_map(|(_, service)| service.address);
        let asked = asked.filter(has).chain([settings.default_address]);
        let addresses = asked.map(|ip| ip.to_canonical()).filter(|ip| !ip.is_loopback());
        Self { rules: &settings.members, addresses: addresses.collect() }
    }

    fn refuse(&self, at: SocketAddr) -> Option<Unfit> {
        let loops = || self.addresses.contains(&at.ip().to_canonical());
        self.rules.refuse(at).or_else(|| loops().then_some(Unfit::LoadBalancer))
    }
}

/// The endpoints of a port, and why some are left out. If none is ready, terminating ones that still serve take new
/// traffic, as in kube-proxy. Of too many, those stay that the port had before.
fn endpoints(
    service: &Service,
    port: &Port,
    slices: &[&Slice],
    guard: &Guard<'_>,
    before: Option<&Addresses>,
) -> (Vec<Endpoint>, Vec<Problem>) {
    let mut refused = BTreeMap::new();
    let mut ready: BTreeMap<(IpAddr, u16), Option<&Arc<str>>> = BTreeMap::new();
    let mut leaving = BTreeMap::new();
    for slice in slices {
        let ports =
            slice.ports.iter().filter(|p| *p.name == *port.name && p.transport == port.transport);
        for number in ports.map(|port| port.number) {
            for endpoint in &slice.endpoints {
                let objects::Endpoint { address, target, .. } = endpoint;
                if Family::of(*address) != service.family {
                    continue;
                }
                if let Some(why) = guard.refuse(SocketAddr::new(*address, number)) {
                    refused.insert(SocketAddr::new(*address, number), why);
                } else if endpoint.ready {
                    ready.insert((*address, number), target.as_ref());
                } else if endpoint.serving && endpoint.terminating {
                    leaving.insert((*address, number), target.as_ref());
                }
            }
        }
    }
    let mut chosen = if ready.is_empty() { leaving } else { ready };
    let (mut endpoints, mut problems) = (Vec::new(), Vec::new());
    let mut left = LeftOut::default();
    refused.into_iter().for_each(|(at, why)| left.note(at, why));
    if chosen.len() > MOST_MEMBERS {
        left.note_over(chosen.len() - MOST_MEMBERS);
        let had = |at: &(IpAddr, u16)| before.is_some_and(|before| before.contains(at));
        let mut order: Vec<_> = chosen.keys().copied().collect();
        order.sort_unstable_by_key(|at| (!had(at), *at));
        for at in order.drain(MOST_MEMBERS..) {
            chosen.remove(&at);
        }
    }
    let name = service.key.to_string();
    let unfit = left.unfit(&name).map(|message| Problem::new(Reason::MemberRefused, message));
    let over = left.over(&name).map(|message| Problem::new(Reason::TooManyMembers, message));
    problems.extend(unfit.into_iter().chain(over));
    let mut names = BTreeSet::new();
    for ((ip, port), target) in chosen {
        if let Some(target) = target.filter(|target| !is_name(target)) {
            let message =
                format!("endpoint {ip} is left out: {} is not a valid name", quote(target));
            problems.push(Problem::new(Reason::BadValue, message));
            continue;
        }
        let named: [Arc<str>; 3] = [
            target.cloned().unwrap_or_else(|| ip.to_string().into()),
            ip.to_string().into(),
            format!("{ip}:{port}").into(),
        ];
        if let Some(name) = named.into_iter().find(|name| names.insert(name.clone())) {
            endpoints.push(Endpoint { name, ip, port });
        }
    }
    (endpoints, problems)
}
