//! `ExternalIP`: the address of one Pod of a Service that has one address per Pod. It belongs to the Service and
//! outlives the Pod, so a Pod that comes back under its name finds its address. Only the leader writes ExternalIPs;
//! this file defines the kind.

use crate::condition::{Condition, conditions};
use crate::schema;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// Which Pod of which Service has an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "bowline.dev",
    version = "v1alpha1",
    kind = "ExternalIP",
    plural = "externalips",
    namespaced,
    shortname = "eip",
    category = "bowline",
    status = "ExternalIPStatus",
    derive = "PartialEq",
    doc = "An ExternalIP is the address of one Pod of a Service with one address per Pod. Bowline writes it. It stays while the Service has a place for that Pod, also while the Pod itself is away.",
    printcolumn(
        name = "Service",
        type_ = "string",
        json_path = ".spec.serviceName",
        description = "The Service it belongs to."
    ),
    printcolumn(
        name = "Pod",
        type_ = "string",
        json_path = ".spec.podName",
        description = "The Pod it leads to."
    ),
    printcolumn(
        name = "IP",
        type_ = "string",
        json_path = ".status.ips[0]",
        description = "Its first address."
    ),
    printcolumn(
        name = "Phase",
        type_ = "string",
        json_path = ".status.phase",
        description = "Pending, Assigned or Forwarding."
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Second-IP",
        type_ = "string",
        json_path = ".status.ips[1]",
        description = "Its address of the other family.",
        priority = 1
    ),
    printcolumn(
        name = "Pod-IP",
        type_ = "string",
        json_path = ".status.podIPs[0]",
        description = "The Pod's own address.",
        priority = 1
    ),
    printcolumn(
        name = "Pool",
        type_ = "string",
        json_path = ".spec.addressPool",
        description = "The pool that was asked for.",
        priority = 1
    )
)]
pub struct ExternalIPSpec {
    /// The Service, in the same namespace. It cannot be changed.
    #[schemars(schema_with = "schema::recorded_label")]
    #[x_kube(validation = Rule::new("self == oldSelf").message("serviceName cannot be changed"))]
    pub service_name: String,
    /// The Pod, in the same namespace. It cannot be changed: an address is never moved to another Pod.
    #[schemars(schema_with = "schema::recorded_name")]
    #[x_kube(validation = Rule::new("self == oldSelf").message("podName cannot be changed: an address is never moved to another Pod"))]
    pub pod_name: String,
    /// The AddressPool that the address comes from. Left out: any that fits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::recorded_name")]
    pub address_pool: Option<String>,
}

/// What Bowline reports about the address of a Pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExternalIPStatus {
    /// The addresses, one per family.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::ip_per_family")]
    pub ips: Vec<IpAddr>,
    /// The Pod's own addresses, one per family. Left out: the Pod is away.
    #[serde(default, rename = "podIPs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::ip_per_family")]
    pub pod_ips: Vec<IpAddr>,
    /// Pending: no address yet. Assigned: it has one, and the Pod is away or not ready. Forwarding: traffic
    /// to the address reaches the Pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ExternalIPPhase")]
    pub phase: Option<ExternalIPPhase>,
    /// Why it is in this phase.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions")]
    pub conditions: Vec<Condition>,
}

/// Phases of the address of a Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ExternalIPPhase {
    /// No address yet.
    Pending,
    /// Has an address; nothing is forwarded.
    Assigned,
    /// Traffic reaches the Pod.
    Forwarding,
}
