//! The values that the planner and the resolver get for cluster objects: small and already parsed. A text that cannot
//! be parsed is a [`Problem`] in place of the value. `bowline-api` makes them; nothing here knows how Kubernetes writes
//! them.

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
    /// Whether this version is certainly older than another. Since Kubernetes 1.35, versions of a kind can be compared
    /// as numbers. A version that is no number is never older, so that an event of a watch counts as news.
    pub fn is_older_than(&self, other: &Self) -> bool {
        match (self.0.parse::<u128>(), other.0.parse::<u128>()) {
            (Ok(this), Ok(other)) => this < other,
            _ => false,
        }
    }
}

/// The load balancer that a Service or Ingress asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// No particular one.
    #[default]
    Default,
    /// The load balancer of this name.
    LoadBalancer(Arc<str>),
    /// None: the Service says that it is the door of the load balancer with this uid.
    Door(Arc<str>),
    /// The load balancer to which this claim of its namespace is bound.
    Claim(Arc<str>),
    /// The load balancer with this source, as JSON (the older spelling in an Ingress).
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
    /// No class is set.
    Unset,
    /// `bowline.dev/lb`.
    LoadBalancer,
    /// `bowline.dev/ip-per-pod`.
    IpPerPod,
    /// A class of another controller.
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
    /// When it was created. Of two contenders the older one wins.
    pub created: Timestamp,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// How it is exposed.
    pub exposure: Exposure,
    /// Its class.
    pub class: ServiceClass,
    /// Its ports.
    pub ports: Vec<ServicePort>,
    /// Its families, the first one preferred.
    pub families: Vec<Family>,
    /// `externalTrafficPolicy: Local`.
    pub local_only: bool,
    /// Clients that may use it. Empty: all clients.
    pub source_ranges: Result<Vec<IpNet>, Problem>,
    /// The load balancer that it asks for.
    pub placement: Result<Placement, Problem>,
    /// The addresses that it asks for. Empty: any address.
    pub vips: Result<Vec<IpAddr>, Problem>,
    /// What else it says about addresses.
    pub address: Wish,
    /// How its traffic is treated.
    pub tuning: Tuning,
    /// How clients stay with members on ports that cannot have the persistence of `tuning`, such as a cookie.
    pub affinity: Option<Persistence>,
    /// Timeouts by port name, from `backend-timeout`.
    pub timeouts: BTreeMap<Arc<str>, Timeouts>,
    /// The amounts that it requests of its load balancer, or why they cannot be read.
    pub requests: Result<Amounts, Problem>,
    /// Tuning values that cannot be read.
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

/// How traffic is treated. A field without a value leaves the choice to the default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tuning {
    /// How connections or requests are spread.
    pub algorithm: Option<Algorithm>,
    /// How clients stay with members. `Some(None)`: explicitly not at all.
    pub persistence: Option<Option<Persistence>>,
    /// Whether members see the load balancer's address instead of the client's.
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
    /// When it was created. Of two contenders the older one wins.
    pub created: Timestamp,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Its IngressClass.
    pub class: Option<Arc<str>>,
    /// The load balancer that it asks for.
    pub placement: Result<Placement, Problem>,
    /// How its traffic is treated. For what it leaves out, the tuning of the Service behind it counts.
    pub tuning: Tuning,
    /// Whether clear-text requests for hosts with TLS are sent to HTTPS.
    pub redirect: bool,
    /// The backend of requests that match no rule of any Ingress.
    pub default_backend: Option<Backend>,
    /// Its rules. A host that cannot be read is left out and has a problem in `problems`.
    pub rules: Vec<IngressRule>,
    /// Its certificates.
    pub tls: Vec<IngressTls>,
    /// The amounts that it requests of its load balancer, or why they cannot be read.
    pub requests: Result<Amounts, Problem>,
    /// Values that cannot be read.
    pub problems: Vec<Problem>,
}

/// The rules of an Ingress for one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IngressRule {
    /// The host.
    pub host: Host,
    /// The paths, as written. A rule without paths sends everything to the default backend.
    pub paths: Vec<IngressPath>,
}

/// A path of an Ingress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IngressPath {
    /// The paths that match.
    pub path: PathMatch,
    /// The backend of requests for these paths.
    pub backend: Backend,
}

/// A Service port that an Ingress names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Backend {
    /// The Service, in the Ingress's namespace. None: a resource backend, which Bowline does not support.
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
    /// The Secret with the certificate, in the Ingress's namespace. None: TLS without a certificate of its own.
    pub secret: Option<Arc<str>>,
}

/// An IngressClass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IngressClass {
    /// Its name.
    pub name: Arc<str>,
    /// Whether its controller is Bowline.
    pub ours: bool,
    /// The load balancer that its parameters name.
    pub parameters: Result<ClassParameters, Problem>,
}

/// The object that the parameters of an IngressClass name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClassParameters {
    /// Nothing.
    #[default]
    None,
    /// A load balancer.
    LoadBalancer(Arc<str>),
    /// A claim. Only its namespace may use the class.
    Claim(ObjectKey),
}

/// A Secret of type `kubernetes.io/tls`. The planner knows its hash, never its private key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSecret {
    /// Namespace and name.
    pub key: ObjectKey,
    /// Its chain and private key, or why they cannot be used.
    pub certificate: Result<TlsContent, Problem>,
}

/// What the planner knows of a chain and its private key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsContent {
    /// The hash of both.
    pub hash: Arc<str>,
    /// The size of both as PEM, in bytes.
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

/// The namespaces that may use an unclaimed load balancer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AllowedNamespaces {
    /// None.
    #[default]
    None,
    /// All.
    All,
    /// Namespaces with these labels.
    Selector(LabelSelector),
}

/// A label selector. All requirements must hold; an empty selector matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    /// Conditions on single labels.
    pub requirements: Vec<Requirement>,
}

impl LabelSelector {
    /// Whether these labels match the selector.
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
    /// The condition.
    pub operator: Operator,
}

/// The condition of a requirement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operator {
    /// The label has one of these values.
    In(Vec<Arc<str>>),
    /// The label has none of these values, or is absent.
    NotIn(Vec<Arc<str>>),
    /// The label is present.
    Exists,
    /// The label is absent.
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
    /// The AddressPool of its addresses, where it has no fixed ones.
    pub address_pool: Option<Arc<str>>,
    /// The clients that must be able to reach it.
    pub scope: Option<Scope>,
    /// The port of its HTTP listeners.
    pub http_port: u16,
    /// The port of its HTTPS listeners.
    pub https_port: u16,
    /// The namespaces that may use it while it is unclaimed.
    pub allowed: AllowedNamespaces,
    /// The claim that holds it: namespace, name and, once bound, uid.
    pub claim: Option<(ObjectKey, Option<Arc<str>>)>,
    /// Whether it counts seats: it has a capacity, or requires that consumers request amounts.
    pub counted: bool,
    /// Whether rules may have regular expressions as hosts.
    pub regex_hosts: bool,
    /// Whether traffic of consumers is limited to what they requested.
    pub enforce_limits: bool,
    /// Whether its members are nodes instead of Pods.
    pub nodes: bool,
    /// Whether its source is `external`. `lb.zcloud.cn/vip` goes to the only such load balancer.
    pub external: bool,
    /// Its source as canonical JSON, for [`Placement::Source`].
    pub source: Arc<str>,
    /// What its agents run. None: no agent drives its source.
    pub carrier: Option<Carrier>,
    /// Its door, where a class made one in a cluster. Clients reach the load balancer only through it.
    pub door: Option<ObjectKey>,
}

/// What an agent runs for a load balancer, by its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// The built-in proxy.
    Builtin,
    /// HAProxy.
    Haproxy,
    /// nginx.
    Nginx,
    /// Whatever reads the files that templates make.
    Template,
}

impl Carrier {
    const ALL: [Self; 4] = [Self::Builtin, Self::Haproxy, Self::Nginx, Self::Template];

    /// One word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Builtin => "builtin",
            Self::Haproxy => "haproxy",
            Self::Nginx => "nginx",
            Self::Template => "template",
        }
    }

    /// Parses the word.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == text)
    }

    /// The flags of `bowline agent` for it.
    pub fn flags(self) -> &'static str {
        match self {
            Self::Builtin => "--driver builtin",
            Self::Haproxy => "--driver haproxy",
            Self::Nginx => "--driver nginx",
            Self::Template => "--template FILE --output FILE",
        }
    }

    /// The command that starts an agent of a load balancer. `carrier`: what its source needs; the built-in proxy needs
    /// no flag.
    pub fn command(carrier: Option<Self>, load_balancer: &str) -> String {
        let flags = carrier.filter(|it| *it != Self::Builtin).map(|it| format!(" {}", it.flags()));
        format!("bowline agent --load-balancer {load_balancer}{}", flags.unwrap_or_default())
    }

    /// Why an agent that runs this may not serve a load balancer that needs another one.
    pub fn refuses(self, needed: Self, load_balancer: &str) -> Option<String> {
        (self != needed).then(|| {
            format!(
                "the agent runs {}, and the source of load balancer {load_balancer} needs {}: start it with {}",
                self.flags(),
                needed.name(),
                needed.flags()
            )
        })
    }
}

/// A LoadBalancerClaim, as far as the planner needs it: to find the load balancer of consumers that name the claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadBalancerClaim {
    /// Namespace and name.
    pub key: ObjectKey,
    /// Its uid.
    pub uid: Arc<str>,
    /// The load balancer that its status names.
    pub load_balancer: Option<Arc<str>>,
}

/// An EndpointSlice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Namespace and name of the slice.
    pub key: ObjectKey,
    /// The Service of the slice, by its label. None: the slice belongs to no Service.
    pub service: Option<Arc<str>>,
    /// Its ports. A port without a number means all ports and is left out.
    pub ports: Vec<SlicePort>,
    /// Its endpoints. A slice with host names instead of addresses has none.
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
    /// Whether it still answers, ready or not (absent: the same as `ready`).
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
