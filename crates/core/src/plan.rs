//! The structure of what one load balancer must do: listeners, sites with rules, pools. The leader records it in Plan
//! objects and agents read it back. It never holds members or private keys.
//!
//! The unit is the [`Fragment`]: all that one Service or Ingress wants on the load balancer. A fragment is written
//! whole, so a rule never arrives without its pool. Fragments of several consumers meet only in sites: rules of the
//! same host, merged by [`Rule::precedence`].

mod host;
mod names;
mod order;
mod redirect;

pub(crate) use host::is_dns_name;
pub use host::{BadHost, Host};
pub use names::{ingress_pool, service_pool};
pub use order::Precedence;

use crate::key::ConsumerRef;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// The entry that Ingresses of a load balancer share: its HTTP and HTTPS listeners.
pub const ENTRY_WEB: &str = "web";

/// The address of listeners on a load balancer that clients reach by a host name, so that its addresses are not known.
/// No object has this address; the process that opens such a listener knows where.
pub const BY_NAME: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// What one consumer wants on one load balancer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Fragment {
    /// The consumer.
    pub consumer: ConsumerRef,
    /// A consumer with very many rules has several parts, each with the pools that its rules need.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub part: u32,
    /// Whether the load balancer is claimed by the consumer's namespace, so that no other namespace uses it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub claimed: bool,
    /// Where connections are accepted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub listeners: Vec<Listener>,
    /// Rules for requests, by host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sites: Vec<Site>,
    /// The destinations of traffic.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<Pool>,
}

fn is_zero(part: &u32) -> bool {
    *part == 0
}

/// An address and port where connections are accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Listener {
    /// The address.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub address: IpAddr,
    /// The port.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 65535)))]
    pub port: u16,
    /// The protocol that is spoken there.
    pub protocol: ListenerProtocol,
    /// The destination of traffic there.
    pub serves: Serves,
}

/// What a listener speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "UPPERCASE")]
pub enum ListenerProtocol {
    /// TCP connections, passed through.
    Tcp,
    /// UDP datagrams.
    Udp,
    /// SCTP associations; few drivers can.
    Sctp,
    /// HTTP/1.1 and, on request, HTTP/2 in clear text.
    Http,
    /// HTTP/1.1 and HTTP/2 in TLS, the certificate chosen by SNI.
    Https,
}

impl ListenerProtocol {
    /// The protocol of its port.
    pub fn transport(self) -> Transport {
        match self {
            Self::Tcp | Self::Http | Self::Https => Transport::Tcp,
            Self::Udp => Transport::Udp,
            Self::Sctp => Transport::Sctp,
        }
    }
}

/// Protocols with ports, as Kubernetes spells them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "UPPERCASE")]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

/// The destination of traffic at a listener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum Serves {
    /// All of it goes to this pool (TCP, UDP, SCTP).
    Pool(Arc<str>),
    /// Requests go through the sites of this entry (HTTP, HTTPS).
    Entry(Arc<str>),
}

/// The rules of one host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Site {
    /// The entry. Listeners that serve it use these rules.
    pub entry: Arc<str>,
    /// The host.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub host: Host,
    /// How the host is served over TLS. Left out: not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<SiteTls>,
    /// The rules, the first to be tried first.
    pub rules: Vec<Rule>,
}

/// How a host is served over TLS.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SiteTls {
    /// The certificate. Left out: none can be used, and handshakes for the host fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<CertificateRef>,
    /// Whether requests in clear text are sent to HTTPS instead of being served.
    pub redirect: bool,
}

/// A certificate by its hash, never by its key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CertificateRef {
    /// The SHA-256 of chain and key, in hexadecimal: another certificate is another hash.
    pub hash: Arc<str>,
}

/// What happens to the requests that match.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Rule {
    /// The path.
    pub path: PathMatch,
    /// The method. Left out: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<Arc<str>>,
    /// Headers that must be there; names in lower case.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<ValueMatch>,
    /// Query parameters that must be there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub query: Vec<ValueMatch>,
    /// What happens to these requests.
    pub action: Action,
}

/// A condition on the path of a request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PathMatch {
    /// How it is compared.
    pub kind: PathKind,
    /// The value to compare with.
    pub value: Arc<str>,
}

/// How a path is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum PathKind {
    /// The whole path, byte for byte.
    Exact,
    /// Element by element: `/a` matches `/a` and `/a/b`, not `/ab`.
    Prefix,
    /// A regular expression over the whole path.
    Regex,
}

/// A condition on a header or query parameter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ValueMatch {
    /// Its name.
    pub name: Arc<str>,
    /// How it is compared.
    pub kind: ValueKind,
    /// The value to compare with.
    pub value: Arc<str>,
}

/// How a header or query parameter is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum ValueKind {
    /// The whole value.
    Exact,
    /// A regular expression over the whole value.
    Regex,
}

/// What happens to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum Action {
    /// It goes to one of these pools, by weight.
    Forward(Vec<WeightedPool>),
    /// The client is redirected.
    Redirect(Redirect),
    /// It is answered with this status.
    Respond(u16),
}

/// A pool and its share of the requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WeightedPool {
    /// The pool's name.
    pub pool: Arc<str>,
    /// Its share, relative to the others'.
    pub weight: u32,
}

/// Where a client is sent; what is left out stays as in the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Redirect {
    /// `http` or `https`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheme: Option<Arc<str>>,
    /// The host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Arc<str>>,
    /// The port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<Arc<str>>,
    /// The status: 301, 302, 303, 307 or 308.
    pub status: u16,
}

/// A Service port as a destination, and how its members are treated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Pool {
    /// Its name, unique on the load balancer.
    pub name: Arc<str>,
    /// The Service port that has the members.
    pub service: ServicePortRef,
    /// Pods, or the nodes they run on.
    pub backends: Backends,
    /// How connections or requests are spread.
    pub algorithm: Algorithm,
    /// How a client stays with a member. Left out: it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistence: Option<Persistence>,
    /// Whether members see the load balancer's address instead of the client's.
    pub snat: bool,
    /// Whether members are told the client's address in a PROXY protocol v2 header.
    #[serde(default, skip_serializing_if = "is_false")]
    pub proxy_protocol: bool,
    /// What members of an HTTP rule speak.
    pub speaks: Speaks,
    /// Clients that may use it. Left out: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<String>"))]
    pub source_ranges: Vec<IpNet>,
    /// How long things may take.
    #[serde(default, skip_serializing_if = "Timeouts::is_default")]
    pub timeouts: Timeouts,
    /// How members are checked in addition to their readiness. Left out: only members that failed are
    /// checked, until they answer again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_check: Option<HealthCheck>,
    /// The limits of its traffic. Left out: no limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
}

impl Pool {
    /// The pool of a Service port without any tuning: its Pods in turn, with the defaults.
    pub fn new(name: impl Into<Arc<str>>, service: ServicePortRef) -> Self {
        Self {
            name: name.into(),
            service,
            backends: Backends::Pods,
            algorithm: Algorithm::default(),
            persistence: None,
            snat: true,
            proxy_protocol: false,
            speaks: Speaks::default(),
            source_ranges: Vec::new(),
            timeouts: Timeouts::default(),
            health_check: None,
            limits: None,
        }
    }
}

/// The limits of a consumer, over all pools with these limits together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Limits {
    /// The consumer.
    pub consumer: ConsumerRef,
    /// Requests per second, or connections where requests are not parsed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_per_second: Option<u64>,
    /// Bits per second towards clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bits_per_second: Option<u64>,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// A port of a Service. Members are found by the name that EndpointSlices give the port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ServicePortRef {
    /// The Service's namespace.
    pub namespace: Arc<str>,
    /// The Service's name.
    pub name: Arc<str>,
    /// The port's name; empty for the only port of a Service.
    pub port: Arc<str>,
    /// The port's protocol.
    pub protocol: Transport,
}

/// What the members of a pool are. Written as `{pods: {}}` or `{nodes: {…}}`: a field of a Kubernetes
/// object has one type.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(from = "WrittenBackends", into = "WrittenBackends")]
pub enum Backends {
    /// Pods at their own addresses.
    Pods,
    /// Nodes at this node port.
    Nodes(NodeBackends),
}

/// What the members are: Pods, or the nodes they run on.
#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
enum WrittenBackends {
    /// Pods at their own addresses. It has no fields.
    Pods {},
    /// Nodes at this node port.
    Nodes(NodeBackends),
}

impl From<WrittenBackends> for Backends {
    fn from(written: WrittenBackends) -> Self {
        match written {
            WrittenBackends::Pods {} => Self::Pods,
            WrittenBackends::Nodes(nodes) => Self::Nodes(nodes),
        }
    }
}

impl From<Backends> for WrittenBackends {
    fn from(backends: Backends) -> Self {
        match backends {
            Backends::Pods => Self::Pods {},
            Backends::Nodes(nodes) => Self::Nodes(nodes),
        }
    }
}

/// Nodes as members.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NodeBackends {
    /// The node port.
    pub node_port: u16,
    /// Only nodes with a ready Pod of the Service: `externalTrafficPolicy: Local`.
    pub local_only: bool,
}

/// How connections or requests are spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Algorithm {
    /// In turn, by weight.
    #[default]
    RoundRobin,
    /// To the member with the fewest connections for its weight.
    LeastConnections,
    /// By the client's address, so that a lost member moves only its own clients.
    SourceIp,
}

/// How a client stays with a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Persistence {
    /// What identifies a client.
    pub by: PersistenceKey,
    /// For how many seconds after its last connection or request.
    pub timeout_seconds: u32,
}

/// What identifies a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum PersistenceKey {
    /// Its address.
    SourceIp,
    /// A cookie (HTTP only).
    Cookie,
}

/// What members of an HTTP rule speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Speaks {
    /// HTTP/1.1, and WebSocket by upgrade.
    #[default]
    Http1,
    /// HTTP/2 in clear text: `appProtocol: kubernetes.io/h2c`.
    H2c,
}

/// How long things may take; what is left out is the driver's default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Timeouts {
    /// Milliseconds to connect to a member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connect_ms: Option<u32>,
    /// Milliseconds that a member may be silent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend_ms: Option<u32>,
    /// Seconds that connections of a removed member live on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_seconds: Option<u32>,
}

impl Timeouts {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// How members are checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct HealthCheck {
    /// The path of an HTTP check. Left out: a TCP connection is enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http_path: Option<Arc<str>>,
    /// Milliseconds between checks.
    pub interval_ms: u32,
    /// Failures in a row after which a member gets no traffic.
    pub fall: u8,
    /// Successes in a row after which it gets traffic again.
    pub rise: u8,
}
