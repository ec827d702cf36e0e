//! `BGPPeer`: a router that nodes tell the routes to announced addresses. Administrators make BGPPeers, speakers hold
//! the sessions, and the leader writes into the status which of them are up. Routes of a peer are never installed.

use crate::duration::{Duration, Interval, bounded_duration, bounded_interval};
use crate::schema;
use crate::selector::{LabelSelector, label_selector};
use crate::source::SecretRef;
use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr};

/// Where the router is, and how the session with it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "bowline.dev",
    version = "v1alpha1",
    kind = "BGPPeer",
    plural = "bgppeers",
    category = "bowline",
    status = "BGPPeerStatus",
    derive = "PartialEq",
    doc = "A BGPPeer is a router to which nodes announce addresses by BGP. Which addresses is said by Advertisements. \
        Routes that the router sends are never installed.",
    printcolumn(
        name = "Address",
        type_ = "string",
        json_path = ".spec.peerAddress",
        description = "The address of the router."
    ),
    printcolumn(
        name = "Interface",
        type_ = "string",
        json_path = ".spec.interface",
        description = "The interface at which the router is."
    ),
    printcolumn(
        name = "ASN",
        type_ = "string",
        json_path = ".spec.peerASN",
        description = "The AS number of the router, external or internal."
    ),
    printcolumn(
        name = "Up",
        type_ = "integer",
        json_path = ".status.up",
        description = "Nodes with an established session."
    ),
    printcolumn(
        name = "Down",
        type_ = "integer",
        json_path = ".status.down",
        description = "Nodes whose session is not established."
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "My-ASN",
        type_ = "integer",
        json_path = ".spec.myASN",
        description = "The own AS number.",
        priority = 1
    ),
    printcolumn(
        name = "Down-Nodes",
        type_ = "string",
        json_path = ".status.downNodes[*].node",
        description = "The first nodes whose session is not established.",
        priority = 1
    )
)]
#[x_kube(validation = Rule::new("has(self.peerAddress) != has(self.interface)")
    .message("exactly one of peerAddress and interface is needed"))]
#[x_kube(validation = Rule::new("!(self.ttlSecurity && self.ebgpMultiHop)")
    .message("ttlSecurity and ebgpMultiHop contradict each other: write one of them"))]
#[x_kube(validation = Rule::new("!(has(self.interface) && self.ebgpMultiHop)")
    .message("a peer at an interface is on its link: remove ebgpMultiHop"))]
#[x_kube(validation = Rule::new("!(has(self.sourceAddress) && has(self.peerAddress)) || !isIP(self.sourceAddress) || !isIP(self.peerAddress) || ip(self.sourceAddress).family() == ip(self.peerAddress).family()")
    .message("sourceAddress must have the family of peerAddress"))]
#[x_kube(validation = Rule::new("!(has(self.sourceAddress) && has(self.interface))")
    .message("a peer at an interface is reached from the link-local address of the interface: remove sourceAddress"))]
#[x_kube(validation = Rule::new("!has(self.keepaliveTime) || duration(self.holdTime) == duration('0s') || duration(self.keepaliveTime) + duration(self.keepaliveTime) + duration(self.keepaliveTime) <= duration(self.holdTime)")
    .message("keepaliveTime must be at most a third of holdTime"))]
pub struct BGPPeerSpec {
    /// The address of the router. Exactly one of peerAddress and interface is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::ip")]
    pub peer_address: Option<IpAddr>,
    /// The interface at whose other end the router is (unnumbered). Its address is learned from its router
    /// advertisements. Example: eth1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::interface")]
    pub interface: Option<String>,
    /// The TCP port of the router. Default: 179.
    #[serde(default = "bgp_port")]
    #[schemars(range(min = 1, max = 65535))]
    pub peer_port: u16,
    /// The AS number of the router; external for any but the own one, internal for the own one.
    #[serde(rename = "peerASN")]
    #[schemars(schema_with = "peer_asn")]
    pub peer_asn: PeerAsn,
    /// The own AS number.
    #[serde(rename = "myASN")]
    #[schemars(range(min = 1, max = 4294967295_u32))]
    pub my_asn: u32,
    /// The own BGP identifier, written as an IPv4 address. Left out: the first IPv4 address of the node.
    #[serde(default, rename = "routerID", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "router_id")]
    pub router_id: Option<Ipv4Addr>,
    /// The node's address from which connections are made. Left out: the kernel chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::ip")]
    pub source_address: Option<IpAddr>,
    /// Where routes of its family lead. Left out: to the node's address of the connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::ip")]
    pub next_hop: Option<IpAddr>,
    /// The device of the VRF in which connections are made. Left out: none. Example: vrf-blue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::interface")]
    pub vrf: Option<String>,
    /// Whether only packets count that crossed no router (GTSM); the router must have the same setting. Default:
    /// false.
    #[serde(default)]
    pub ttl_security: bool,
    /// Whether connections of the router are accepted, too. Default: false, so that another BGP program on the node
    /// keeps port 179.
    #[serde(default)]
    pub listen: bool,
    /// The nodes that have the session, by their labels. Left out: every node that runs a speaker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "label_selector")]
    pub node_selector: Option<LabelSelector>,
    /// How long the router waits for a sign of life. 0s: forever. Default: 90s.
    #[serde(default = "hold_time")]
    #[schemars(schema_with = "hold_time_schema")]
    pub hold_time: Duration,
    /// How often a sign of life is sent. Left out: a third of the hold time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "keepalive_schema")]
    pub keepalive_time: Option<Duration>,
    /// The longest pause between two attempts to connect. Default: 10s.
    #[serde(default = "connect_time")]
    #[schemars(schema_with = "connect_schema")]
    pub connect_time: Duration,
    /// Whether a router of another AS may be more than one hop away. Default: false.
    #[serde(default)]
    pub ebgp_multi_hop: bool,
    /// The Secret in Bowline's namespace whose key password protects the connection (TCP-MD5).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_secret_ref: Option<SecretRef>,
    /// Whether the router keeps the routes while the speaker of a node restarts. Default: it does, for 2m.
    #[serde(default)]
    pub graceful_restart: GracefulRestart,
    /// Failure detection by BFD. Left out: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bfd: Option<BfdSpec>,
}

fn bgp_port() -> u16 {
    179
}

fn hold_time() -> Duration {
    Duration::from_secs(90)
}

fn connect_time() -> Duration {
    Duration::from_secs(10)
}

/// The AS number of a peer: a number, external or internal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PeerAsn {
    /// This one.
    Number(u32),
    /// One that is told by the own one.
    Kind(PeerKind),
}

/// How an AS number is told by the own one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PeerKind {
    /// Any but the own one.
    External,
    /// The own one.
    Internal,
}

fn peer_asn(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "minimum": 1,
        "maximum": 4294967295_u32,
        "maxLength": 8,
        "x-kubernetes-validations": [{
            // Of a number, `string(self)` is another value than `self`.
            "rule": "string(self) != self || self in ['external', 'internal']",
            "message": "must be an AS number, external or internal",
        }],
    })
}

fn router_id(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": 15,
        "x-kubernetes-validations": [{
            "rule": "isIP(self) && ip(self).family() == 4 && self != '0.0.0.0'",
            "message": "must be written as an IPv4 address other than 0.0.0.0, such as 192.0.2.1",
        }],
    })
}

fn hold_time_schema(generator: &mut SchemaGenerator) -> Schema {
    let rule = "duration(self) == duration('0s') || (duration(self) >= duration('3s') && duration(self) <= duration('65535s'))";
    bounded_duration(generator, rule, "must be 0s, or from 3s to 65535s")
}

fn keepalive_schema(generator: &mut SchemaGenerator) -> Schema {
    let rule = "duration(self) >= duration('1s') && duration(self) <= duration('21845s')";
    bounded_duration(generator, rule, "must be from 1s to 21845s")
}

fn connect_schema(generator: &mut SchemaGenerator) -> Schema {
    let rule = "duration(self) >= duration('1s') && duration(self) <= duration('65535s')";
    bounded_duration(generator, rule, "must be from 1s to 65535s")
}

/// Whether the router keeps routes over a restart of the speaker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GracefulRestart {
    /// Whether the router is asked to. Default: true.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// How long it keeps the routes. Default: 2m.
    #[serde(default = "restart_time")]
    #[schemars(schema_with = "restart_schema")]
    pub restart_time: Duration,
}

impl Default for GracefulRestart {
    fn default() -> Self {
        Self { enabled: yes(), restart_time: restart_time() }
    }
}

fn yes() -> bool {
    true
}

fn restart_time() -> Duration {
    Duration::from_secs(120)
}

fn restart_schema(generator: &mut SchemaGenerator) -> Schema {
    let rule = "duration(self) >= duration('1s') && duration(self) <= duration('4095s')";
    bounded_duration(generator, rule, "must be from 1s to 4095s")
}

/// How BFD watches the router.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct BfdSpec {
    /// The shortest interval at which packets of the router are wanted. Default: 300ms.
    #[serde(default = "bfd_interval")]
    #[schemars(schema_with = "interval_schema")]
    pub receive_interval: Interval,
    /// The interval of own packets. Default: 300ms.
    #[serde(default = "bfd_interval")]
    #[schemars(schema_with = "interval_schema")]
    pub transmit_interval: Interval,
    /// This many lost packets mean that the router is away. Default: 3.
    #[serde(default = "detect_multiplier")]
    #[schemars(range(min = 2, max = 255))]
    pub detect_multiplier: u8,
    /// The echo function. It is not supported: leave it out.
    #[serde(default)]
    #[x_kube(validation = Rule::new("!self").message("the echo function of BFD is not supported: remove echo"))]
    pub echo: bool,
    /// Packets of a router that is more than one hop away are dropped below this TTL. Default: 254.
    #[serde(default = "minimum_ttl", rename = "minimumTTL")]
    #[schemars(range(min = 1, max = 255))]
    pub minimum_ttl: u8,
}

fn bfd_interval() -> Interval {
    Interval::from_millis(300)
}

fn detect_multiplier() -> u8 {
    3
}

fn minimum_ttl() -> u8 {
    254
}

fn interval_schema(_: &mut SchemaGenerator) -> Schema {
    let bounds = "duration(self) >= duration('10ms') && duration(self) <= duration('60s')";
    bounded_interval(bounds, "must be from 10ms to 60s")
}

/// What Bowline reports about a peer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BGPPeerStatus {
    /// How many nodes have an established session.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub up: i32,
    /// How many nodes have a session that is not established.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub down: i32,
    /// The first of the nodes with an established session, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 5), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["node"]))]
    pub up_nodes: Vec<PeerNode>,
    /// The first of the nodes whose session is not established, by name, with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 5), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["node"]))]
    pub down_nodes: Vec<PeerNode>,
}

/// The session of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PeerNode {
    /// The node.
    #[schemars(schema_with = "schema::recorded_name")]
    pub node: String,
    /// How many routes the router was told.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub routes: i32,
    /// Why the session is not established.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(max = 1024))]
    pub message: Option<String>,
}
