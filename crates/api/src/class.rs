//! `LoadBalancerClass`: the template of load balancers for claims that no existing one matches. Administrators make
//! classes; the leader reads them and reports on them. This file defines the kind; `core::binder` decides what is made.

use crate::condition::{Condition, conditions};
use crate::duration::Duration;
use crate::load_balancer::{ReclaimPolicy, Scope};
use crate::quantity::ResourceList;
use crate::schema;
use crate::selector::AllowedNamespaces;
use crate::source::ClassSource;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a class makes load balancers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "bowline.dev",
    version = "v1alpha1",
    kind = "LoadBalancerClass",
    plural = "loadbalancerclasses",
    shortname = "lbclass",
    category = "bowline",
    status = "LoadBalancerClassStatus",
    derive = "PartialEq",
    doc = "A LoadBalancerClass says what to make for a LoadBalancerClaim that no existing LoadBalancer fits.",
    printcolumn(
        name = "Default",
        type_ = "boolean",
        json_path = ".spec.default",
        description = "Whether claims without a class use it."
    ),
    printcolumn(
        name = "Bandwidth",
        type_ = "string",
        json_path = ".spec.capacity.network-bandwidth",
        description = "Bits per second of each load balancer."
    ),
    printcolumn(
        name = "IOPS",
        type_ = "string",
        json_path = ".spec.capacity.network-iops",
        description = "Operations per second of each load balancer."
    ),
    printcolumn(
        name = "Replicas",
        type_ = "integer",
        json_path = ".spec.replicas",
        description = "Copies of the proxy for each load balancer."
    ),
    printcolumn(
        name = "Reclaim",
        type_ = "string",
        json_path = ".spec.reclaimPolicy",
        description = "What happens to a load balancer when its claim is deleted."
    ),
    printcolumn(
        name = "Namespaces",
        type_ = "string",
        json_path = ".spec.allowedNamespaces.from",
        description = "Which namespaces may use it."
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Idle-Timeout",
        type_ = "string",
        json_path = ".spec.idleTimeout",
        description = "How long a load balancer may be without consumers.",
        priority = 1
    ),
    printcolumn(
        name = "Namespace",
        type_ = "string",
        json_path = ".spec.namespace",
        description = "Where proxies run.",
        priority = 1
    )
)]
#[x_kube(
    validation = Rule::new("[has(self.builtin), has(self.bareMetalLoadBalancer), has(self.template), has(self.external), has(self.awsLoadBalancer), has(self.gceLoadBalancer)].filter(set, set).size() == 1")
        .message("exactly one source is needed: builtin, bareMetalLoadBalancer, template, external, awsLoadBalancer or gceLoadBalancer"),
    validation = Rule::new("has(self.builtin) == has(oldSelf.builtin) && has(self.template) == has(oldSelf.template) && has(self.awsLoadBalancer) == has(oldSelf.awsLoadBalancer) && has(self.gceLoadBalancer) == has(oldSelf.gceLoadBalancer) && has(self.bareMetalLoadBalancer) == has(oldSelf.bareMetalLoadBalancer) && (!has(self.bareMetalLoadBalancer) || self.bareMetalLoadBalancer == oldSelf.bareMetalLoadBalancer) && has(self.external) == has(oldSelf.external) && (!has(self.external) || self.external == oldSelf.external)")
        .message("the source of a class cannot be changed: make a new class"),
)]
pub struct LoadBalancerClassSpec {
    /// The capacity of each load balancer made. Left out: what the claim requests.
    /// `network-bandwidth` is in bits per second, `network-iops` in operations (requests or new connections)
    /// per second, as Kubernetes quantities: 500M is 500 million.
    /// Example: {network-bandwidth: 1G, network-iops: 10k}.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::quantity::countable")]
    pub capacity: Option<ResourceList>,
    /// How many copies of the proxy run for each load balancer, where the source is a proxy. Default: 2.
    #[serde(default = "two")]
    #[schemars(range(min = 1, max = 100))]
    pub replicas: i32,
    /// The namespace in which proxies run. Left out: Bowline's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_name")]
    pub namespace: Option<String>,
    /// The AddressPool that load balancers get their addresses from. Left out: the Service of the proxies
    /// gets an address from the controller that serves Services without a class in the cluster; in bowline
    /// up, the address is on loopback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object_name")]
    pub address_pool: Option<String>,
    /// Who can reach the load balancers of this class: Internet or Intranet. The class makes none for claims
    /// of the other scope. Left out: with addressPool the scope of the claim, as far as the pool allows it;
    /// without addressPool Internet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Scope")]
    pub scope: Option<Scope>,
    /// What happens to a load balancer when its claim is deleted. Delete (the default): it is deleted.
    /// Recycle: its configuration is wiped and it can be claimed again. Retain: it is kept until a person
    /// clears its claimRef or deletes it.
    #[serde(default = "delete")]
    pub reclaim_policy: ReclaimPolicy,
    /// How long a load balancer may have no consumers before it is removed. Left out: without limit. Example:
    /// 1h30m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::duration::written_duration")]
    pub idle_timeout: Option<Duration>,
    /// Which namespaces may have load balancers of this class made for their claims. Default: {from: All}.
    #[serde(default = "AllowedNamespaces::all")]
    pub allowed_namespaces: AllowedNamespaces,
    /// Whether claims that name no class use this one. Default: false. Of several, the oldest counts.
    #[serde(default)]
    pub default: bool,
    /// Exactly one source.
    #[serde(flatten)]
    pub source: ClassSource,
}

fn two() -> i32 {
    2
}

fn delete() -> ReclaimPolicy {
    ReclaimPolicy::Delete
}

/// What Bowline reports about a class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadBalancerClassStatus {
    /// What keeps the class from being used, if anything does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions")]
    pub conditions: Vec<Condition>,
}
