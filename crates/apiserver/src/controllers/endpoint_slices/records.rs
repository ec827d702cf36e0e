//! What is kept of Services, Pods, Nodes and EndpointSlices to plan slices, and the conversion from
//! the objects. It decides nothing.

use super::super::table::Record;
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::PartialObjectMeta;
use kube::core::ObjectMeta;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Namespace and name.
pub(super) type Name = (String, String);

pub(super) const SERVICE_NAME: &str = "kubernetes.io/service-name";
pub(super) const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
pub(super) const HEADLESS: &str = "service.kubernetes.io/headless";
/// The manager name of kube-controller-manager, so that clients treat these slices alike.
pub(super) const MANAGER: &str = "endpointslice-controller.k8s.io";
const ZONE: &str = "topology.kubernetes.io/zone";

/// An address family, named as in slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Family {
    V4,
    V6,
}

impl Family {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::V4, Self::V6].into_iter().find(|family| family.as_str() == text)
    }

    fn of(address: &IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }
}

/// What is kept of a Service.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Wanted {
    pub(super) uid: String,
    pub(super) labels: BTreeMap<String, String>,
    /// Selects its Pods. Empty: it has no selector, or it is an ExternalName and has no endpoints.
    pub(super) selector: BTreeMap<String, String>,
    pub(super) families: Vec<Family>,
    pub(super) headless: bool,
    pub(super) publish_not_ready: bool,
    pub(super) ports: Vec<Wish>,
    pub(super) deleting: bool,
}

/// A port of a Service.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Wish {
    pub(super) name: String,
    pub(super) protocol: String,
    pub(super) app_protocol: Option<String>,
    pub(super) target: IntOrString,
}

/// What is kept of a Pod.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Offer {
    pub(super) uid: String,
    pub(super) labels: BTreeMap<String, String>,
    /// Empty: the Pod has ended or has not started.
    pub(super) addresses: Vec<IpAddr>,
    /// Its named ports: name, protocol, number.
    pub(super) ports: Vec<(String, String, i32)>,
    pub(super) node: String,
    pub(super) hostname: String,
    pub(super) subdomain: String,
    pub(super) ready: bool,
    pub(super) deleting: bool,
}

/// The zone of a Node. Empty: it has none.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Zone(pub(super) String);

/// A port of a slice.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Port {
    pub(super) name: String,
    pub(super) protocol: String,
    pub(super) port: Option<i32>,
    pub(super) app_protocol: Option<String>,
}

/// The identity of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Identity {
    pub(super) addresses: Vec<String>,
    pub(super) hostname: Option<String>,
    /// The Pod. None: the target is not a Pod.
    pub(super) target: Option<Name>,
}

/// The part of an endpoint that may change.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Condition {
    pub(super) uid: String,
    pub(super) ready: Option<bool>,
    pub(super) serving: Option<bool>,
    pub(super) terminating: Option<bool>,
    pub(super) node: Option<String>,
    pub(super) zone: Option<String>,
}

/// What is kept of a slice that this controller manages.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Slice {
    pub(super) uid: String,
    pub(super) version: u64,
    pub(super) labels: BTreeMap<String, String>,
    /// The uids of the Services that own it.
    pub(super) owners: Vec<String>,
    /// None: the slice holds FQDNs.
    pub(super) family: Option<Family>,
    /// Sorted.
    pub(super) ports: Vec<Port>,
    pub(super) endpoints: Vec<(Identity, Condition)>,
    pub(super) deleting: bool,
}

impl Record for Wanted {}
impl Record for Offer {}
impl Record for Zone {}
impl Record for Slice {
    fn supersedes(&self, known: &Self) -> bool {
        self.version >= known.version
    }
}

fn name(meta: &mut ObjectMeta) -> Name {
    (meta.namespace.take().unwrap_or_default(), meta.name.take().unwrap_or_default())
}

pub(super) fn service(service: Service) -> (Name, Wanted) {
    let (mut meta, spec) = (service.metadata, service.spec.unwrap_or_default());
    let cluster_ip = spec.cluster_ip.unwrap_or_default();
    let families: Vec<Family> =
        spec.ip_families.iter().flatten().filter_map(|family| Family::parse(family)).collect();
    let external = spec.type_.as_deref() == Some("ExternalName");
    let ports = spec.ports.unwrap_or_default().into_iter().map(|port| Wish {
        name: port.name.unwrap_or_default(),
        protocol: port.protocol.unwrap_or_else(|| "TCP".into()),
        app_protocol: port.app_protocol,
        target: port.target_port.unwrap_or(IntOrString::Int(port.port)),
    });
    let wanted = Wanted {
        families: if families.is_empty() { guess(&cluster_ip) } else { families },
        headless: cluster_ip.is_empty() || cluster_ip == "None",
        selector: if external { BTreeMap::new() } else { spec.selector.unwrap_or_default() },
        publish_not_ready: spec.publish_not_ready_addresses.unwrap_or_default(),
        ports: ports.collect(),
        deleting: meta.deletion_timestamp.is_some(),
        labels: meta.labels.take().unwrap_or_default(),
        uid: meta.uid.take().unwrap_or_default(),
    };
    (name(&mut meta), wanted)
}

/// The families of a Service that does not name them: the family of its address, or both if it has
/// none.
fn guess(cluster_ip: &str) -> Vec<Family> {
    match cluster_ip.parse::<IpAddr>() {
        Ok(address) => vec![Family::of(&address)],
        Err(_) => vec![Family::V4, Family::V6],
    }
}

pub(super) fn pod(pod: Pod) -> (Name, Offer) {
    let mut meta = pod.metadata;
    let spec = pod.spec.unwrap_or_default();
    let status = pod.status.unwrap_or_default();
    let over = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
    let mut addresses: Vec<String> =
        status.pod_ips.into_iter().flatten().map(|address| address.ip).collect();
    if addresses.is_empty() {
        addresses.extend(status.pod_ip);
    }
    if over {
        addresses.clear();
    }
    let sidecars = spec.init_containers.into_iter().flatten();
    let sidecars = sidecars.filter(|one| one.restart_policy.as_deref() == Some("Always"));
    let ports = spec.containers.into_iter().chain(sidecars).flat_map(|one| one.ports).flatten();
    let ports = ports.filter_map(|port| {
        Some((port.name?, port.protocol.unwrap_or_else(|| "TCP".into()), port.container_port))
    });
    let ready = |conditions: &[k8s_openapi::api::core::v1::PodCondition]| {
        conditions.iter().any(|one| one.type_ == "Ready" && one.status == "True")
    };
    let offer = Offer {
        addresses: addresses.iter().filter_map(|address| address.parse().ok()).collect(),
        ports: ports.collect(),
        node: spec.node_name.unwrap_or_default(),
        hostname: spec.hostname.unwrap_or_default(),
        subdomain: spec.subdomain.unwrap_or_default(),
        ready: status.conditions.as_deref().is_some_and(ready),
        deleting: meta.deletion_timestamp.is_some(),
        labels: meta.labels.take().unwrap_or_default(),
        uid: meta.uid.take().unwrap_or_default(),
    };
    (name(&mut meta), offer)
}

impl Offer {
    /// Its addresses in one family, as text.
    pub(super) fn addresses(&self, family: Family) -> Vec<String> {
        let ours = self.addresses.iter().filter(|address| Family::of(address) == family);
        ours.map(IpAddr::to_string).collect()
    }
}

pub(super) fn node(node: PartialObjectMeta<Node>) -> (String, Zone) {
    let mut labels = node.metadata.labels.unwrap_or_default();
    (node.metadata.name.unwrap_or_default(), Zone(labels.remove(ZONE).unwrap_or_default()))
}

pub(super) fn slice(slice: EndpointSlice) -> (Name, Slice) {
    let mut meta = slice.metadata;
    let owners = meta.owner_references.take().into_iter().flatten();
    let owners = owners.filter(|owner| owner.kind == "Service" && owner.api_version == "v1");
    let mut ports: Vec<Port> = slice.ports.into_iter().flatten().map(port).collect();
    ports.sort();
    let record = Slice {
        version: meta.resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or(0),
        owners: owners.map(|owner| owner.uid).collect(),
        family: Family::parse(&slice.address_type),
        ports,
        endpoints: slice.endpoints.into_iter().flatten().map(endpoint).collect(),
        deleting: meta.deletion_timestamp.is_some(),
        labels: meta.labels.take().unwrap_or_default(),
        uid: meta.uid.take().unwrap_or_default(),
    };
    (name(&mut meta), record)
}

fn port(port: EndpointPort) -> Port {
    Port {
        name: port.name.unwrap_or_default(),
        protocol: port.protocol.unwrap_or_else(|| "TCP".into()),
        port: port.port,
        app_protocol: port.app_protocol,
    }
}

fn endpoint(endpoint: Endpoint) -> (Identity, Condition) {
    let target = endpoint.target_ref.unwrap_or_default();
    let conditions = endpoint.conditions.unwrap_or_default();
    let condition = Condition {
        uid: target.uid.unwrap_or_default(),
        ready: conditions.ready,
        serving: conditions.serving,
        terminating: conditions.terminating,
        node: endpoint.node_name,
        zone: endpoint.zone,
    };
    let identity = Identity {
        addresses: endpoint.addresses,
        hostname: endpoint.hostname,
        target: target.namespace.zip(target.name),
    };
    (identity, condition)
}
