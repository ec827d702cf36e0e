//! `LoadBalancer`: a proxy, appliance or cloud load balancer that carries traffic into the cluster, with its capacity
//! and its claim. Administrators or a class make LoadBalancers; the leader writes `claimRef` and the status. This file
//! defines the kind.

use crate::condition::{Condition, conditions};
use crate::quantity::ResourceList;
use crate::schema;
use crate::selector::AllowedNamespaces;
use crate::source::LoadBalancerSource;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// The settings of a load balancer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "bowline.dev",
    version = "v1alpha1",
    kind = "LoadBalancer",
    plural = "loadbalancers",
    shortname = "lb",
    category = "bowline",
    status = "LoadBalancerStatus",
    derive = "PartialEq",
    doc = "A LoadBalancer carries traffic into the cluster: a proxy, an appliance or a cloud's load balancer, with the capacity it has. Services and Ingresses use it by name or by a LoadBalancerClaim.",
    printcolumn(
        name = "Bandwidth",
        type_ = "string",
        json_path = ".spec.capacity.network-bandwidth",
        description = "Bits per second that it can carry."
    ),
    printcolumn(
        name = "IOPS",
        type_ = "string",
        json_path = ".spec.capacity.network-iops",
        description = "Operations per second that it can carry."
    ),
    printcolumn(
        name = "Phase",
        type_ = "string",
        json_path = ".status.phase",
        description = "Running: an agent or driver has applied its plan."
    ),
    printcolumn(
        name = "Binding",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Bound")].reason"#,
        description = "Available, Bound or Released."
    ),
    printcolumn(
        name = "Claim",
        type_ = "string",
        json_path = ".spec.claimRef.name",
        description = "The claim that has it."
    ),
    printcolumn(
        name = "Address",
        type_ = "string",
        json_path = ".status.ingress[0].ip",
        description = "Its first address."
    ),
    printcolumn(
        name = "Class",
        type_ = "string",
        json_path = ".spec.className",
        description = "Its LoadBalancerClass."
    ),
    printcolumn(
        name = "Scope",
        type_ = "string",
        json_path = ".spec.scope",
        description = "Who can reach it: Internet or Intranet."
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Bandwidth-Used",
        type_ = "string",
        json_path = ".status.used.network-bandwidth",
        description = "How much of its bandwidth its consumers requested.",
        priority = 1
    ),
    printcolumn(
        name = "IOPS-Used",
        type_ = "string",
        json_path = ".status.used.network-iops",
        description = "How many of its operations its consumers requested.",
        priority = 1
    ),
    printcolumn(
        name = "Claim-Namespace",
        type_ = "string",
        json_path = ".spec.claimRef.namespace",
        description = "The namespace of the claim that has it.",
        priority = 1
    ),
    printcolumn(
        name = "Hostname",
        type_ = "string",
        json_path = ".status.ingress[0].hostname",
        description = "Its first host name.",
        priority = 1
    ),
    printcolumn(
        name = "Reclaim",
        type_ = "string",
        json_path = ".spec.reclaimPolicy",
        description = "What happens when its claim is deleted.",
        priority = 1
    ),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.message",
        description = "Why it is in this phase.",
        priority = 1
    )
)]
#[x_kube(
    validation = Rule::new("[has(self.builtin), has(self.bareMetalLoadBalancer), has(self.template), has(self.external), has(self.awsLoadBalancer), has(self.gceLoadBalancer)].filter(set, set).size() == 1")
        .message("exactly one source is needed: builtin, bareMetalLoadBalancer, template, external, awsLoadBalancer or gceLoadBalancer"),
    validation = Rule::new("has(self.builtin) == has(oldSelf.builtin) && has(self.bareMetalLoadBalancer) == has(oldSelf.bareMetalLoadBalancer) && has(self.template) == has(oldSelf.template) && has(self.external) == has(oldSelf.external) && has(self.awsLoadBalancer) == has(oldSelf.awsLoadBalancer) && has(self.gceLoadBalancer) == has(oldSelf.gceLoadBalancer)")
        .message("the source cannot be changed: make a new LoadBalancer"),
    validation = Rule::new("self.httpPort != self.httpsPort").message("httpPort and httpsPort must differ"),
)]
pub struct LoadBalancerSpec {
    /// What it can carry. Consumers are admitted until their requests fill it. Left out: no limit.
    /// `network-bandwidth` is in bits per second, `network-iops` in operations (requests or new connections)
    /// per second, as Kubernetes quantities: 500M is 500 million.
    /// Example: {network-bandwidth: 10G, network-iops: 100k}.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::quantity::countable")]
    pub capacity: Option<ResourceList>,
    /// The clients that can reach it: Internet (the default) or Intranet.
    #[serde(default)]
    pub scope: Scope,
    /// The LoadBalancerClass it belongs to. A claim with a class matches only load balancers of that class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object_name")]
    pub class_name: Option<String>,
    /// The addresses it always has. Left out: one from addressPool; without that, what the driver reports.
    /// Example: [203.0.113.10].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::ips")]
    pub addresses: Vec<IpAddr>,
    /// The AddressPool it gets an address from when addresses is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object_name")]
    pub address_pool: Option<String>,
    /// The port at which Ingresses on it are served in clear text. Default: 80.
    #[serde(default = "http")]
    #[schemars(range(min = 1, max = 65535))]
    pub http_port: u16,
    /// The port at which Ingresses on it are served over TLS. Default: 443.
    #[serde(default = "https")]
    #[schemars(range(min = 1, max = 65535))]
    pub https_port: u16,
    /// What happens when its claim is deleted. Retain (the default): it is kept until a person clears its
    /// claimRef or deletes it. Recycle: its configuration is wiped and it can be claimed again. Delete: it is
    /// deleted.
    #[serde(default)]
    pub reclaim_policy: ReclaimPolicy,
    /// Which namespaces may use it by its name while no claim has it. Default: {from: None}.
    #[serde(default)]
    pub allowed_namespaces: AllowedNamespaces,
    /// Whether rules on it may have regular expressions as hosts. Rules of an Ingress cannot, because the
    /// Kubernetes API refuses such hosts; the field is for future kinds. Default: false.
    #[serde(default)]
    pub regex_hosts: bool,
    /// Whether a consumer that requests no capacity is refused. Default: false.
    #[serde(default)]
    pub require_requests: bool,
    /// Whether the traffic of a consumer is limited to what it requested, where the driver can do so.
    /// Default: false.
    #[serde(default)]
    pub enforce_limits: bool,
    /// The claim that has it. Bowline writes this; an administrator may reserve it for a claim by
    /// namespace and name, without uid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim_ref: Option<ClaimRef>,
    /// Exactly one source.
    #[serde(flatten)]
    pub source: LoadBalancerSource,
}

fn http() -> u16 {
    80
}

fn https() -> u16 {
    443
}

/// The clients that can reach a load balancer or an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Scope {
    /// All clients.
    #[default]
    Internet,
    /// The organisation's own network.
    Intranet,
}

/// What happens to a load balancer when its claim is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ReclaimPolicy {
    /// It is kept until a person clears its claimRef or deletes it.
    #[default]
    Retain,
    /// It is wiped and can be claimed again.
    Recycle,
    /// It is deleted.
    Delete,
}

/// The claim that has a load balancer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = Rule::new("!has(oldSelf.uid) || !has(self.uid) || self == oldSelf")
    .message("a bound load balancer cannot be given to another claim: clear claimRef first"))]
pub struct ClaimRef {
    /// The claim's namespace.
    #[schemars(schema_with = "schema::label_name")]
    pub namespace: String,
    /// The claim's name.
    #[schemars(schema_with = "schema::object_name")]
    pub name: String,
    /// The claim's uid once it is bound. Left out: reserved for the claim of this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::uid")]
    pub uid: Option<String>,
}

/// What Bowline reports about a load balancer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancerStatus {
    /// Pending: not ready. Running: a live driver or agent has applied the present plan. Failed:
    /// reclaiming it did not work, see message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "LoadBalancerPhase")]
    pub phase: Option<LoadBalancerPhase>,
    /// Why it is in this phase, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::message")]
    pub message: Option<String>,
    /// Where traffic should be sent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub ingress: Vec<IngressPoint>,
    /// How much of the capacity is taken by consumers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::quantity::sums")]
    pub allocated: Option<ResourceList>,
    /// The same in percent of the capacity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<Used>,
    /// The Services and Ingresses that use it: at most 1,000, in the order of their admission.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["uid"]))]
    pub consumers: Vec<Consumer>,
    /// Services and Ingresses that asked for it and were refused: at most 20, and of each namespace its
    /// share.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20), extend("x-kubernetes-list-type" = "atomic"))]
    pub refused: Vec<Refusal>,
    /// Bound (reason Available, Bound or Released), Programmed and others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions")]
    pub conditions: Vec<Condition>,
}

/// How much of a capacity is taken, such as 30%.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Used {
    /// Of network-bandwidth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub network_bandwidth: Option<String>,
    /// Of network-iops.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub network_iops: Option<String>,
}

/// Phases of a load balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LoadBalancerPhase {
    /// Not ready.
    Pending,
    /// Carries the present plan.
    Running,
    /// Could not be recycled or deleted.
    Failed,
}

/// Where traffic for a load balancer should be sent: an address or a host name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IngressPoint {
    /// An IPv4 or IPv6 address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::ip")]
    pub ip: Option<IpAddr>,
    /// A DNS name, where the load balancer is known by one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::recorded_name")]
    pub hostname: Option<String>,
}

/// A Service or Ingress that has a seat on a load balancer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Consumer {
    /// Service or Ingress.
    pub kind: ConsumerKind,
    /// Its namespace.
    #[schemars(schema_with = "schema::recorded_label")]
    pub namespace: String,
    /// Its name.
    #[schemars(schema_with = "schema::recorded_name")]
    pub name: String,
    /// Its uid.
    #[schemars(schema_with = "schema::uid")]
    pub uid: String,
    /// The amounts with which it was admitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<ResourceList>,
}

/// Kinds that can use a load balancer.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum ConsumerKind {
    /// A Service.
    Service,
    /// An Ingress.
    Ingress,
}

/// A Service or Ingress that a load balancer refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Refusal {
    /// Service or Ingress.
    pub kind: ConsumerKind,
    /// Its namespace.
    #[schemars(schema_with = "schema::recorded_label")]
    pub namespace: String,
    /// Its name.
    #[schemars(schema_with = "schema::recorded_name")]
    pub name: String,
    /// Why, as one word for programs.
    #[schemars(schema_with = "schema::reason")]
    pub reason: String,
    /// Why, as a sentence for people.
    #[schemars(schema_with = "schema::message")]
    pub message: String,
}
