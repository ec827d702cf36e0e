//! The schema that templates are given, as kube2lb has it, and who is left out of it. A view is a function
//! of the objects and the settings: in whatever order they were told, it is the same, sorted.

use super::text::{ServerName, is_name};
use super::{Exposed, Port, Service};
use crate::key::{ConsumerKind, ConsumerRef};
use crate::objects::{Endpoint as SliceEndpoint, Family, Slice};
use crate::outcome::{Problem, Reason, quote};
use crate::plan::Transport;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// What the one who runs it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The domain of the cluster.
    pub domain: Arc<str>,
    /// The mode of ports whose Service says none.
    pub default_mode: Arc<str>,
    /// The address of Services that ask for none.
    pub default_address: IpAddr,
    /// Whether the templates know of source ranges. Where they do not, a Service with some is left out
    /// rather than opened to all.
    pub source_ranges: bool,
    /// What is known of the machine that the load balancer runs on.
    pub machine: Machine,
}

/// What a load balancer on this machine cannot bind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Ports that the kernel gives to outgoing connections. None: not known.
    pub ephemeral: Option<RangeInclusive<u16>>,
    /// The addresses that can be bound. None: all of them.
    pub addresses: Option<BTreeSet<IpAddr>>,
}

/// What a template is given, and what owners of objects are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// What a template is given.
    pub cluster: Cluster,
    /// Who is left out, wholly or in part, and why; sorted.
    pub told: Vec<Told>,
}

/// Something to tell about an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Told {
    /// About which.
    pub consumer: ConsumerRef,
    /// What.
    pub problem: Problem,
}

/// kube2lb's `ClusterInformation`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// One entry per port of each Service, by namespace, name and position.
    pub services: Vec<Entry>,
    /// The ports of the entries, each once, sorted.
    pub ports: Vec<PortSpec>,
    /// The names of the nodes, sorted.
    pub nodes: Vec<Arc<str>>,
    /// The domain of the cluster.
    pub domain: Arc<str>,
}

/// kube2lb's `ServiceInformation`: a port of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Whose it is.
    pub consumer: ConsumerRef,
    /// Where it is to be reached.
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
    /// The same without those who are not to be in it.
    pub fn only(&self, keep: impl Fn(&ConsumerRef) -> bool) -> Self {
        let services = self.services.iter().filter(|entry| keep(&entry.consumer)).cloned();
        let services: Vec<Entry> = services.collect();
        let ports = ports(&services);
        Self { services, ports, nodes: self.nodes.clone(), domain: self.domain.clone() }
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
        let PortSpec { port, mode, .. } = &self.port;
        let (name, namespace, protocol) = (self.name(), self.namespace(), self.port.protocol());
        write!(f, "{name}_{namespace}_{port}_{protocol}_{mode}")
    }
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
    /// What templates are given now. `generated` are the names that a Service has by the rules of the one
    /// who runs it.
    pub fn view(&mut self, settings: &Settings, generated: impl Fn(&Entry) -> Vec<String>) -> View {
        self.dirty = false;
        let mut told = Vec::new();
        let mut entries = Vec::new();
        for (_, service) in self.services.values() {
            let consumer = consumer(service);
            let mut tell =
                |problem: Problem| told.push(Told { consumer: consumer.clone(), problem });
            service.problems.iter().cloned().for_each(&mut tell);
            if let Some(problem) = unfit(service, settings) {
                tell(problem);
                continue;
            }
            let slices: Vec<&Slice> = self.slices(&service.key).collect();
            // As kube2lb: a Service without any Pod has no entry, one whose Pods are not ready has.
            if slices.iter().all(|slice| slice.endpoints.is_empty()) {
                continue;
            }
            for port in &service.ports {
                let (endpoints, unnamed) = endpoints(service, port, &slices);
                unnamed.into_iter().for_each(&mut tell);
                let entry = entry(service, port, &consumer, endpoints, settings);
                entries.push((service.created, entry));
            }
        }
        let services = contend(entries, generated, &mut told);
        told.sort();
        told.dedup();
        let nodes = self.nodes.keys().map(|key| key.name.clone()).filter(|name| is_name(name));
        let cluster = Cluster {
            nodes: nodes.collect(),
            ports: ports(&services),
            services,
            domain: settings.domain.clone(),
        };
        View { cluster, told }
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

/// What keeps a Service out altogether.
fn unfit(service: &Service, settings: &Settings) -> Option<Problem> {
    if service.refused.is_some() {
        return service.refused.clone();
    }
    for text in [&service.key.name, &service.key.namespace] {
        if !is_name(text) {
            let message = format!("{} is not a name that a template may see", quote(text));
            return Some(Problem::new(Reason::BadValue, message));
        }
    }
    if !service.source_ranges.is_empty() && !settings.source_ranges {
        return Some(Problem::new(
            Reason::NotSupported,
            "it is for some clients only, and no template here knows of SourceRanges; it is left out \
             rather than opened to all",
        ));
    }
    let Machine { ephemeral, addresses } = &settings.machine;
    if let Some(range) = ephemeral
        && let Some(port) = service.ports.iter().find(|port| range.contains(&port.number))
    {
        let (first, last) = (range.start(), range.end());
        let message = format!(
            "port {} is one that the load balancer's machine gives to outgoing connections ({first} to \
             {last}, net.ipv4.ip_local_port_range); the Service is left out",
            port.number
        );
        return Some(Problem::new(Reason::EphemeralPort, message));
    }
    match (service.address, addresses) {
        (Some(ip), Some(addresses)) if !addresses.contains(&ip) => {
            let message = format!(
                "{ip} is not an address of the load balancer's machine, and net.ipv4.ip_nonlocal_bind is \
                 off; the Service is left out"
            );
            Some(Problem::new(Reason::AddressNotAvailable, message))
        }
        _ => None,
    }
}

fn entry(
    service: &Service,
    port: &Port,
    consumer: &ConsumerRef,
    endpoints: Vec<Endpoint>,
    settings: &Settings,
) -> Entry {
    Entry {
        consumer: consumer.clone(),
        port: PortSpec {
            ip: service.address.unwrap_or(settings.default_address),
            port: port.number,
            transport: port.transport,
            mode: port.mode.as_ref().unwrap_or(&settings.default_mode).clone(),
        },
        endpoints,
        node_port: port.node_port.unwrap_or_default(),
        external: service.external.clone(),
        timeout_ms: port.timeout_ms.unwrap_or_default(),
        source_ranges: service.source_ranges.clone(),
    }
}

/// The endpoints of a port, and what keeps some out. Where nobody is ready, those that still serve take
/// new traffic: better than nothing, as kube-proxy does.
fn endpoints(service: &Service, port: &Port, slices: &[&Slice]) -> (Vec<Endpoint>, Vec<Problem>) {
    let mut ready: BTreeMap<(IpAddr, u16), Option<&Arc<str>>> = BTreeMap::new();
    let mut leaving = BTreeMap::new();
    for slice in slices {
        let ports =
            slice.ports.iter().filter(|p| *p.name == *port.name && p.transport == port.transport);
        for number in ports.map(|port| port.number) {
            for endpoint in &slice.endpoints {
                let SliceEndpoint { address, target, .. } = endpoint;
                if Family::of(*address) != service.family {
                    continue;
                }
                if endpoint.ready {
                    ready.insert((*address, number), target.as_ref());
                } else if endpoint.serving && endpoint.terminating {
                    leaving.insert((*address, number), target.as_ref());
                }
            }
        }
    }
    let chosen = if ready.is_empty() { leaving } else { ready };
    let (mut endpoints, mut problems) = (Vec::new(), Vec::new());
    let mut names = BTreeSet::new();
    for ((ip, port), target) in chosen {
        if let Some(target) = target.filter(|target| !is_name(target)) {
            let message = format!("endpoint {ip} is left out: {} is no name", quote(target));
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

type Place = (IpAddr, u16, Transport);

/// Who has which place and which name: the older of two. Names make room for many on a port; whatever
/// takes all traffic of a port has it alone. Keeps the order by namespace and name.
fn contend(
    entries: Vec<(i64, Entry)>,
    generated: impl Fn(&Entry) -> Vec<String>,
    told: &mut Vec<Told>,
) -> Vec<Entry> {
    let mut order: Vec<usize> = (0..entries.len()).collect();
    order.sort_by_key(|at| {
        entries.get(*at).map(|(created, entry)| (*created, entry.consumer.clone(), *at))
    });
    let mut entries: Vec<Option<Entry>> = entries.into_iter().map(|(_, e)| Some(e)).collect();
    let mut places: BTreeMap<Place, (ConsumerRef, Arc<str>)> = BTreeMap::new();
    let mut names: BTreeMap<(Place, String), ConsumerRef> = BTreeMap::new();
    let mut tell = |entry: &Entry, reason, message: String| {
        let problem = Problem::new(reason, message);
        told.push(Told { consumer: entry.consumer.clone(), problem });
    };
    for at in &order {
        let Some(slot) = entries.get_mut(*at) else { continue };
        let Some(entry) = slot.as_ref() else { continue };
        let (place, mode) = (place(entry), entry.port.mode.clone());
        if let Some((owner, has)) = places.get(&place)
            && (*has != mode || is_alone(entry))
        {
            let at = format!("{} port {} ({has})", entry.port.ip, entry.port.port);
            tell(entry, Reason::PortTaken, format!("{at} belongs to {owner}, which is older"));
            *slot = None;
            continue;
        }
        // Names that are made belong to those that they are made of.
        let made: Vec<String> = if is_alone(entry) { Vec::new() } else { generated(entry) };
        let key = |name: &str| (place, name.to_ascii_lowercase());
        let others = |owner: &ConsumerRef| owner.namespace != entry.consumer.namespace;
        let taken =
            made.iter().find_map(|name| Some((name, names.get(&key(name)).filter(|o| others(o))?)));
        if let Some((name, owner)) = taken {
            let message = format!("{} belongs to {owner}, which is older", quote(name));
            tell(entry, Reason::HostTaken, message);
            *slot = None;
            continue;
        }
        places.entry(place).or_insert_with(|| (entry.consumer.clone(), mode));
        for name in made {
            names.entry(key(&name)).or_insert_with(|| entry.consumer.clone());
        }
    }
    for at in order {
        let Some(Some(entry)) = entries.get_mut(at) else { continue };
        if is_alone(entry) {
            continue;
        }
        let place = place(entry);
        let mut kept = Vec::new();
        for name in &entry.external {
            let key = (place, name.as_str().to_ascii_lowercase());
            let owner = names.entry(key).or_insert_with(|| entry.consumer.clone());
            if owner.namespace == entry.consumer.namespace {
                kept.push(name.clone());
            } else {
                let name = quote(name.as_str());
                let message = format!("{name} belongs to {owner} and is left out here");
                tell(entry, Reason::HostTaken, message);
            }
        }
        entry.external = kept;
    }
    entries.into_iter().flatten().collect()
}

fn place(entry: &Entry) -> Place {
    (entry.port.ip, entry.port.port, entry.port.transport)
}

/// Whether all traffic of its port goes to it: nothing but TCP carries names.
fn is_alone(entry: &Entry) -> bool {
    entry.port.transport != Transport::Tcp || *entry.port.mode == *"tcp"
}
