//! `Advertisement`: which addresses are announced to the network, from which nodes, and by which protocol.
//! Administrators make Advertisements; speakers follow them. An address that none covers is announced by no node.

use crate::schema;
use crate::selector::{LabelSelector, label_selector};
use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Which addresses are announced, from where, and how.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "bowline.dev",
    version = "v1alpha1",
    kind = "Advertisement",
    plural = "advertisements",
    shortname = "adv",
    category = "bowline",
    derive = "PartialEq",
    doc = "An Advertisement says which addresses are announced to the network, from which nodes and how: by ARP \
        and neighbour discovery (l2), by BGP (bgp), or both. An address that no Advertisement covers is announced \
        by no node.",
    printcolumn(
        name = "Pools",
        type_ = "string",
        json_path = ".spec.addressPools",
        description = "AddressPools whose addresses are announced."
    ),
    printcolumn(
        name = "Load-Balancers",
        type_ = "string",
        json_path = ".spec.loadBalancers",
        description = "LoadBalancers whose addresses are announced."
    ),
    printcolumn(
        name = "Interfaces",
        type_ = "string",
        json_path = ".spec.l2.interfaces",
        description = "Interfaces that answer ARP and neighbour discovery."
    ),
    printcolumn(
        name = "Peers",
        type_ = "string",
        json_path = ".spec.bgp.peers",
        description = "BGPPeers that are told."
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[x_kube(validation = Rule::new("has(self.l2) || has(self.bgp)")
    .message("l2, bgp or both are needed: write l2: {} to announce by ARP and neighbour discovery, bgp: {} to announce to all BGPPeers"))]
pub struct AdvertisementSpec {
    /// AddressPools by name. Without pools and load balancers, the addresses of all of them are announced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::object_names")]
    pub address_pools: Vec<String>,
    /// AddressPools by their labels, beside those named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "label_selector")]
    pub address_pool_selector: Option<LabelSelector>,
    /// Announces only addresses that a Service with these labels holds. Left out: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "label_selector")]
    pub service_selector: Option<LabelSelector>,
    /// LoadBalancers by name, beside the pools. Their addresses, and those of Services on them, are announced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::object_names")]
    pub load_balancers: Vec<String>,
    /// The nodes that announce, by their labels. Left out: every node that runs a speaker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "label_selector")]
    pub node_selector: Option<LabelSelector>,
    /// Announces by ARP and neighbour discovery: one node answers for each address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub l2: Option<L2Advertisement>,
    /// Announces by BGP: every node that serves an address tells its peers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bgp: Option<BgpAdvertisement>,
}

/// How addresses are announced by ARP and neighbour discovery.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct L2Advertisement {
    /// The interfaces that answer. Left out: those in the network of the address. Example: [eth1].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "interfaces")]
    pub interfaces: Vec<String>,
    /// Nodes that own an address before others, by their labels. A preference: without such a node, another one
    /// owns the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "label_selector")]
    pub preferred_node_selector: Option<LabelSelector>,
}

/// How addresses are announced by BGP.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BgpAdvertisement {
    /// BGPPeers by name. Left out: all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::object_names")]
    pub peers: Vec<String>,
    /// The length of the announced IPv4 prefixes. Default: 32, each address by itself.
    #[serde(default = "longest_v4")]
    #[schemars(range(min = 1, max = 32))]
    pub aggregation_length: u8,
    /// The length of the announced IPv6 prefixes. Default: 128, each address by itself.
    #[serde(default = "longest_v6")]
    #[schemars(range(min = 1, max = 128))]
    pub aggregation_length_v6: u8,
    /// The preference inside the AS. Told only to peers of the same AS. Left out: 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32")]
    pub local_pref: Option<u32>,
    /// The multi-exit discriminator. Left out: none is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32")]
    pub med: Option<u32>,
    /// How many more times the own AS number stands in the path. Default: 0.
    #[serde(default)]
    #[schemars(range(min = 0, max = 100))]
    pub prepend: u8,
    /// Communities: ASN:NUMBER, large:ASN:NUMBER:NUMBER, or the name of a well-known one such as no-export or
    /// graceful-shutdown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "communities")]
    pub communities: Vec<String>,
}

fn longest_v4() -> u8 {
    32
}

fn longest_v6() -> u8 {
    128
}

fn interfaces(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 32,
        "items": schema::interface(generator),
        "x-kubernetes-list-type": "set",
    })
}

/// The rules accept what `bowline_core::announce::Community` reads.
fn communities(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 64,
        "x-kubernetes-list-type": "set",
        "items": {
            "type": "string",
            "minLength": 1,
            "maxLength": 40,
            "x-kubernetes-validations": [
                {
                    "rule": "self in ['graceful-shutdown', 'accept-own', 'blackhole', 'no-export', 'no-advertise', 'no-export-subconfed', 'no-peer'] || self.matches('^(large:[0-9]{1,10}:[0-9]{1,10}:[0-9]{1,10}|[0-9]{1,5}:[0-9]{1,5})$')",
                    "message": "must be ASN:NUMBER such as 65000:100, large:ASN:NUMBER:NUMBER, or a well-known community such as no-export or graceful-shutdown",
                },
                {
                    "rule": "!self.matches('^[0-9]{1,5}:[0-9]{1,5}$') || self.split(':').all(part, int(part) <= 65535)",
                    "message": "the numbers of a standard community are at most 65535; a large one (large:ASN:NUMBER:NUMBER) has room for more",
                },
                {
                    "rule": "!self.matches('^large:[0-9]{1,10}:[0-9]{1,10}:[0-9]{1,10}$') || self.split(':').all(part, part == 'large' || int(part) <= 4294967295)",
                    "message": "the numbers of a large community are at most 4294967295",
                },
            ],
        },
    })
}
