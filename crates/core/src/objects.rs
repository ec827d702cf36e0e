//! What the planner and the resolver know of cluster objects: small values, already read into types.
//! Text that could not be read arrives as a [`Problem`] in place of the value. `bowline-api` makes
//! them; nothing here knows how Kubernetes spells anything.

use crate::addresses::{Scope, Wish};
use crate::key::ObjectKey;
use crate::outcome::Problem;
use crate::plan::{Algorithm, HealthCheck, Host, PathMatch, Persistence, Timeouts, Transport};
use crate::resources::Amounts;
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

pub use crate::clock::Timestamp;

/// A resourceVersion.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Version(pub Arc<str>);

impl Version {
    /// Whether it is surely older than another. Since Kubernetes 1.35 versions of a kind can be
    /// compared as numbers; where they are none, a watch is believed to tell news.
    pub fn is_older_than(&self, other: &Self) -> bool {
        match (self.0.parse::<u128>(), other.0.parse::<u128>()) {
            (Ok(this), Ok(other)) => this < other,
            _ => false,
        }
    }
}

/// Which load balancer a Service or Ingress asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// None in particular.
    #[default]
    Default,
    /// The one of this name.
    LoadBalancer(Arc<str>),
    /// None: it says that it stands in front of the load balancer of this uid.
    Door(Arc<str>),
    /// The one that this claim of its namespace is bound to.
    Claim(Arc<str>),
    /// The one with this source, as JSON (the older spelling of an Ingress).
    Source(Arc<str>),
}

/// How a Service is exposed, by its `spec.type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exposure {
    /// `LoadBalancer`.
    LoadBalancer,
    /// `NodePort`.
    NodePort,
    /// `ClusterIP`, headless or not.
    ClusterIp,
    /// `ExternalName`.
    ExternalName,
}

/// The class of a Service of type LoadBalancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceClass {
    /// None is set.
    Unset,
    /// `bowline.dev/lb`.
    LoadBalancer,
    /// `bowline.dev/ip-per-pod`.
    IpPerPod,
    /// Somebody else's.
    Foreign,
}

/// Address families.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// The family of an address.
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }
}

/// A Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Namespace and name.
    pub key: ObjectKey,
    /// Its uid.
    pub uid: Arc<str>,
    /// When it was created: the older of two wins.
    pub created: Timestamp,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// How it is exposed.
    pub exposure: Exposure,
    /// Whose it is.
    pub class: ServiceClass,
    /// Its ports.
    pub ports: Vec<ServicePort>,
    /// Its families, the first one preferred.
    pub families: Vec<Family>,
    /// `externalTrafficPolicy: Local`.
    pub local_only: bool,
    /// Clients that may use it; empty: all.
    pub source_ranges: Result<Vec<IpNet>, Problem>,
    /// Where it asks to be.
    pub placement: Result<Placement, Problem>,
    /// The addresses it asks for; empty: any.
    pub vips: Result<Vec<IpAddr>, Problem>,
    /// What else it says of addresses.
    pub address: Wish,
    /// How its traffic is to be treated.
    pub tuning: Tuning,
    /// How clients stay with members where `tuning` asks for what its own ports cannot have.
    pub affinity: Option<Persistence>,
    /// Timeouts by port name, from `backend-timeout`.
    pub timeouts: BTreeMap<Arc<str>, Timeouts>,
    /// How much of its load balancer it will use, or why that cannot be read.
    pub requests: Result<Amounts, Problem>,
    /// Tuning that could not be read.
    pub problems: Vec<Problem>,
}

/// A port of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePort {
    /// Its name; empty for the only port.
    pub name: Arc<str>,
    /// Its number.
    pub number: u16,
    /// Its protocol.
    pub transport: Transport,
    /// Its node port.
    pub node_port: Option<u16>,
    /// `appProtocol: kubernetes.io/h2c`.
    pub h2c: bool,
}

/// How traffic is to be treated, as far as somebody said so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tuning {
    /// How it is spread.
    pub algorithm: Option<Algorithm>,
    /// How clients stay with members. `Some(None)`: explicitly not at all.
    pub persistence: Option<Option<Persistence>>,
    /// Whether members see the load balancer's address.
    pub snat: Option<bool>,
    /// Whether members get a PROXY protocol v2 header.
    pub proxy_protocol: Option<bool>,
    /// How members are checked.
    pub health_check: Option<HealthCheck>,
}

/// An Ingress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ingress {
    /// Namespace and name.
    pub key: ObjectKey,
    /// Its uid.
    pub uid: Arc<str>,
    /// When it was created: the older of two wins.
    pub created: Timestamp,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Its IngressClass.
    pub class: Option<Arc<str>>,
    /// Where it asks to be.
    pub placement: Result<Placement, Problem>,
    /// How its traffic is to be treated; what it does not say, the Service behind it does.
    pub tuning: Tuning,
    /// Whether clear-text requests for hosts with TLS are sent to HTTPS.
    pub redirect: bool,
    /// Where requests go that match no rule of any Ingress.
    pub default_backend: Option<Backend>,
    /// Its rules. A host that cannot be read is left out here and is in `problems`.
    pub rules: Vec<IngressRule>,
    /// Its certificates.
    pub tls: Vec<IngressTls>,
    /// How much of its load balancer it will use, or why that cannot be read.
    pub requests: Result<Amounts, Problem>,
    /// What could not be read.
    pub problems: Vec<Problem>,
}

/// The rules of an Ingress for one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IngressRule {
    /// The host.
    pub host: Host,
    /// Paths, as written. A rule without paths sends everything to the default backend.
    pub paths: Vec<IngressPath>,
}

/// A path of an Ingress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IngressPath {
    /// Which paths.
    pub path: PathMatch,
    /// Where they go.
    pub backend: Backend,
}

/// A Service port that an Ingress names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Backend {
    /// The Service, in the Ingress's namespace. None: a resource backend, which Bowline does not have.
    pub service: Option<Arc<str>>,
    /// The port.
    pub port: BackendPort,
}

/// How a port is named.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BackendPort {
    /// By its name.
    Name(Arc<str>),
    /// By its number.
    Number(u16),
}

/// A certificate of an Ingress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IngressTls {
    /// For these hosts; empty: all hosts of the Ingress.
    pub hosts: Vec<Host>,
    /// In this Secret of its namespace. None: TLS without a certificate of one's own.
    pub secret: Option<Arc<str>>,
}

/// An IngressClass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IngressClass {
    /// Its name.
    pub name: Arc<str>,
    /// Whether its controller is ours.
    pub ours: bool,
    /// The load balancer that its parameters name.
    pub parameters: Result<ClassParameters, Problem>,
}

/// What the parameters of an IngressClass name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClassParameters {
    /// Nothing.
    #[default]
    None,
    /// A load balancer.
    LoadBalancer(Arc<str>),
    /// A claim; its namespace only may use the class.
    Claim(ObjectKey),
}

/// A Secret of type `kubernetes.io/tls`. The planner knows its hash, never its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSecret {
    /// Namespace and name.
    pub key: ObjectKey,
    /// Its chain and key, or why they cannot be used.
    pub certificate: Result<TlsContent, Problem>,
}

/// What the planner knows of a chain and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsContent {
    /// The hash of both.
    pub hash: Arc<str>,
    /// The bytes of both as PEM.
    pub size: usize,
}

/// A Namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// Its name.
    pub name: Arc<str>,
    /// Its labels.
    pub labels: BTreeMap<Arc<str>, Arc<str>>,
}

/// Who may use a load balancer that nobody has claimed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AllowedNamespaces {
    /// Nobody.
    #[default]
    None,
    /// Everybody.
    All,
    /// Namespaces with these labels.
    Selector(LabelSelector),
}

/// A label selector. All of it must hold; an empty one matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    /// Conditions on single labels.
    pub requirements: Vec<Requirement>,
}

impl LabelSelector {
    /// Whether these labels fulfil it.
    pub fn matches(&self, labels: &BTreeMap<Arc<str>, Arc<str>>) -> bool {
        self.requirements.iter().all(|requirement| {
            let value = labels.get(&requirement.key);
            match &requirement.operator {
                Operator::In(values) => value.is_some_and(|value| values.contains(value)),
                Operator::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
                Operator::Exists => value.is_some(),
                Operator::DoesNotExist => value.is_none(),
            }
        })
    }
}

/// A condition on a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// The label's key.
    pub key: Arc<str>,
    /// What must hold.
    pub operator: Operator,
}

/// What must hold of a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operator {
    /// It has one of these values.
    In(Vec<Arc<str>>),
    /// It has none of these values, or is not there.
    NotIn(Vec<Arc<str>>),
    /// It is there.
    Exists,
    /// It is not there.
    DoesNotExist,
}

/// A LoadBalancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadBalancer {
    /// Its name.
    pub name: Arc<str>,
    /// Its uid.
    pub uid: Arc<str>,
    /// When it was created.
    pub created: Timestamp,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Its fixed addresses.
    pub addresses: Vec<IpAddr>,
    /// The pool that it has its addresses from where it has no fixed ones.
    pub address_pool: Option<Arc<str>>,
    /// Who must be able to reach it.
    pub scope: Option<Scope>,
    /// The port of its HTTP listeners.
    pub http_port: u16,
    /// The port of its HTTPS listeners.
    pub https_port: u16,
    /// Who may use it while it is unclaimed.
    pub allowed: AllowedNamespaces,
    /// The claim that has it: namespace, name and, once bound, uid.
    pub claim: Option<(ObjectKey, Option<Arc<str>>)>,
    /// Whether it counts seats: it has a capacity, or wants to be told what consumers will use.
    pub counted: bool,
    /// Whether rules may have regular expressions as hosts.
    pub regex_hosts: bool,
    /// Whether consumers are held to what they requested.
    pub enforce_limits: bool,
    /// Whether its members are nodes instead of Pods.
    pub nodes: bool,
    /// Whether it is an `external` one: `lb.zcloud.cn/vip` goes to the only one.
    pub external: bool,
    /// Its source as canonical JSON, for [`Placement::Source`].
    pub source: Arc<str>,
    /// The Service in front of it, where a class made it in a cluster: it is reached there and nowhere else.
    pub door: Option<ObjectKey>,
}

/// A LoadBalancerClaim, as far as those go to its load balancer who name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadBalancerClaim {
    /// Namespace and name.
    pub key: ObjectKey,
    /// Its uid.
    pub uid: Arc<str>,
    /// The load balancer that its status says it has.
    pub load_balancer: Option<Arc<str>>,
}

/// An EndpointSlice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Namespace and name of the slice.
    pub key: ObjectKey,
    /// The Service it belongs to, by its label. None: nobody's.
    pub service: Option<Arc<str>>,
    /// Its ports. A port without a number stands for all ports and is left out.
    pub ports: Vec<SlicePort>,
    /// Its endpoints. Slices with host names instead of addresses have none.
    pub endpoints: Vec<Endpoint>,
}

/// A port of an EndpointSlice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlicePort {
    /// Its name.
    pub name: Arc<str>,
    /// Its number.
    pub number: u16,
    /// Its protocol.
    pub transport: Transport,
}

/// An endpoint of an EndpointSlice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Its address.
    pub address: IpAddr,
    /// Whether it takes new traffic (absent counts as true).
    pub ready: bool,
    /// Whether it still answers, ready or not (absent: as `ready`).
    pub serving: bool,
    /// Whether it is going away.
    pub terminating: bool,
    /// The node it runs on.
    pub node: Option<Arc<str>>,
    /// The name of the object behind it, mostly a Pod.
    pub target: Option<Arc<str>>,
}

/// A Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: Arc<str>,
    /// Its internal addresses.
    pub addresses: Vec<IpAddr>,
    /// Whether it is ready and not excluded from load balancers.
    pub usable: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers_and_others_not_at_all() {
        let version = |text: &str| Version(text.into());
        assert!(version("9").is_older_than(&version("10")));
        assert!(!version("10").is_older_than(&version("9")));
        assert!(!version("9").is_older_than(&version("9")));
        assert!(!version("a").is_older_than(&version("b")));
    }
}
