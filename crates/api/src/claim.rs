//! `LoadBalancerClaim`: a namespace's request for a load balancer, bound to the best match. Users make claims; the
//! leader writes the status. This file defines the kind; `core::binder` binds.

use crate::condition::{Condition, conditions};
use crate::load_balancer::{IngressPoint, Scope};
use crate::quantity::ResourceList;
use crate::schema;
use crate::selector::{LabelSelector, label_selector};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a claim asks of a load balancer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "bowline.dev",
    version = "v1alpha1",
    kind = "LoadBalancerClaim",
    plural = "loadbalancerclaims",
    namespaced,
    shortname = "lbc",
    category = "bowline",
    status = "LoadBalancerClaimStatus",
    derive = "PartialEq",
    doc = "A LoadBalancerClaim asks for a load balancer and keeps it for its namespace. It is bound to the LoadBalancer that fits best, or one is made by its class. Services and Ingresses of the namespace use it by the annotation bowline.dev/load-balancer-claim.",
    printcolumn(
        name = "Phase",
        type_ = "string",
        json_path = ".status.phase",
        description = "Pending, Bound or Lost."
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Bound")].reason"#,
        description = "Why it is bound or not."
    ),
    printcolumn(
        name = "LoadBalancer",
        type_ = "string",
        json_path = ".status.loadBalancerName",
        description = "The load balancer it is bound to."
    ),
    printcolumn(
        name = "Bandwidth",
        type_ = "string",
        json_path = ".status.capacity.network-bandwidth",
        description = "Bits per second of that load balancer."
    ),
    printcolumn(
        name = "IOPS",
        type_ = "string",
        json_path = ".status.capacity.network-iops",
        description = "Operations per second of that load balancer."
    ),
    printcolumn(
        name = "Address",
        type_ = "string",
        json_path = ".status.ingress[0].ip",
        description = "The first address of that load balancer."
    ),
    printcolumn(
        name = "Class",
        type_ = "string",
        json_path = ".spec.className",
        description = "The class that was asked for."
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Scope",
        type_ = "string",
        json_path = ".spec.scope",
        description = "The scope that was asked for.",
        priority = 1
    ),
    printcolumn(
        name = "Hostname",
        type_ = "string",
        json_path = ".status.ingress[0].hostname",
        description = "The first host name of that load balancer.",
        priority = 1
    )
)]
#[x_kube(
    validation = Rule::new("has(self.selector) == has(oldSelf.selector) && (!has(self.selector) || self.selector == oldSelf.selector)")
        .message("selector cannot be changed: make a new claim"),
    validation = Rule::new("has(self.scope) == has(oldSelf.scope) && (!has(self.scope) || self.scope == oldSelf.scope)")
        .message("scope cannot be changed: make a new claim"),
    validation = Rule::new("has(self.className) == has(oldSelf.className) && (!has(self.className) || self.className == oldSelf.className)")
        .message("className cannot be changed: make a new claim"),
    validation = Rule::new("!has(oldSelf.loadBalancerName) || (has(self.loadBalancerName) && self.loadBalancerName == oldSelf.loadBalancerName)")
        .message("loadBalancerName cannot be changed once it is set: make a new claim"),
)]
pub struct LoadBalancerClaimSpec {
    /// Which load balancers are considered, by their labels. Left out: all. Ignored when loadBalancerName
    /// is set. It cannot be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "label_selector")]
    pub selector: Option<LabelSelector>,
    /// How much is needed. Only a load balancer whose capacity covers every request matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// This load balancer and no other. May be set once, and not changed then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object_name")]
    pub load_balancer_name: Option<String>,
    /// Internet or Intranet: only load balancers of this scope match. Left out: either. It cannot be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Scope")]
    pub scope: Option<Scope>,
    /// Only load balancers of this LoadBalancerClass match; when none does, the class makes one. Left out:
    /// any existing load balancer matches, and the default class, if there is one, makes one. Empty (""): any
    /// existing load balancer matches, and none is ever made. It cannot be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object_name_or_empty")]
    pub class_name: Option<String>,
}

/// How much of a load balancer is needed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ResourceRequirements {
    /// The least that will do. `network-bandwidth` is in bits per second, `network-iops` in operations (requests
    /// or new connections) per second, as Kubernetes quantities: 500M is 500 million.
    /// Example: {network-bandwidth: 1G, network-iops: 10k}.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::quantity::countable")]
    pub requests: Option<ResourceList>,
    /// The most that will be used, and no less than what is requested. `network-bandwidth` is in bits per second,
    /// `network-iops` in operations (requests or new connections) per second, as Kubernetes quantities: 500M is
    /// 500 million. Example: {network-bandwidth: 2G, network-iops: 20k}.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::quantity::countable")]
    pub limits: Option<ResourceList>,
}

/// What Bowline reports about a claim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancerClaimStatus {
    /// Pending: no load balancer yet. Bound: it has one. Lost: the one it had is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ClaimPhase")]
    pub phase: Option<ClaimPhase>,
    /// The load balancer it is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::recorded_name")]
    pub load_balancer_name: Option<String>,
    /// The capacity of that load balancer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<ResourceList>,
    /// Where traffic for that load balancer should be sent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub ingress: Vec<IngressPoint>,
    /// Bound and others. While it is Pending, the message says why each load balancer was passed over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions")]
    pub conditions: Vec<Condition>,
}

/// Phases of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ClaimPhase {
    /// No load balancer yet.
    Pending,
    /// Has a load balancer.
    Bound,
    /// Its load balancer is gone.
    Lost,
}
