//! The shape of MetalLB's kinds that say what is announced. They are read loosely: an unknown field is skipped, a number
//! may be of any size, and nothing is written back. The text of a password is never kept.

use crate::selector::LabelSelector;
use kube::CustomResource;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The spec of an L2Advertisement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, CustomResource)]
#[serde(rename_all = "camelCase", default)]
#[kube(
    group = "metallb.io",
    version = "v1beta1",
    kind = "L2Advertisement",
    plural = "l2advertisements",
    namespaced,
    schema = "disabled",
    derive = "PartialEq"
)]
pub struct L2AdvertisementSpec {
    /// What it is about, and from where.
    #[serde(flatten)]
    pub covers: Covers,
    /// The interfaces that answer.
    pub interfaces: Vec<String>,
    /// The nodes that are preferred, with weights.
    pub preferred_node_selectors: Vec<PreferredNodeSelector>,
}

/// The spec of a BGPAdvertisement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, CustomResource)]
#[serde(rename_all = "camelCase", default)]
#[kube(
    group = "metallb.io",
    version = "v1beta1",
    kind = "BGPAdvertisement",
    plural = "bgpadvertisements",
    namespaced,
    schema = "disabled",
    derive = "PartialEq"
)]
pub struct BGPAdvertisementSpec {
    /// What it is about, and from where.
    #[serde(flatten)]
    pub covers: Covers,
    /// The length of IPv4 prefixes.
    pub aggregation_length: Option<i64>,
    /// The length of IPv6 prefixes.
    pub aggregation_length_v6: Option<i64>,
    /// The preference; 0 for none.
    pub local_pref: Option<i64>,
    /// Communities by value, or by a name of a Community object.
    pub communities: Vec<String>,
    /// BGPPeers by name.
    pub peers: Vec<String>,
}

/// The fields that both kinds of advertisement have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Covers {
    /// Pools by name.
    pub ip_address_pools: Vec<String>,
    /// Pools by their labels.
    pub ip_address_pool_selectors: Vec<LabelSelector>,
    /// Services by their labels.
    pub service_selectors: Vec<LabelSelector>,
    /// Nodes by their labels.
    pub node_selectors: Vec<LabelSelector>,
}

/// Nodes that are preferred, and how much.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PreferredNodeSelector {
    /// How much.
    pub weight: i64,
    /// The nodes.
    pub preference: LabelSelector,
}

/// The spec of a BGPPeer, of both of its versions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, CustomResource)]
#[serde(rename_all = "camelCase", default)]
#[kube(
    group = "metallb.io",
    version = "v1beta2",
    kind = "BGPPeer",
    plural = "bgppeers",
    namespaced,
    schema = "disabled",
    derive = "PartialEq"
)]
pub struct BGPPeerSpec {
    /// The own AS number.
    #[serde(rename = "myASN")]
    pub my_asn: i64,
    /// The AS number of the router; 0 for none.
    #[serde(rename = "peerASN")]
    pub peer_asn: i64,
    /// The AS number that the router sees instead of the own one; 0 for none.
    #[serde(rename = "localASN")]
    pub local_asn: i64,
    /// internal or external.
    #[serde(rename = "dynamicASN")]
    pub dynamic_asn: String,
    /// The address of the router.
    pub peer_address: String,
    /// The interface at which the router is.
    pub interface: String,
    /// Its TCP port; 0 for 179.
    pub peer_port: i64,
    /// The own address of connections.
    pub source_address: String,
    /// The hold time, as Go writes durations.
    pub hold_time: Option<String>,
    /// How often a sign of life is sent.
    pub keepalive_time: Option<String>,
    /// The pause between two attempts to connect.
    pub connect_time: Option<String>,
    /// The own BGP identifier.
    #[serde(rename = "routerID")]
    pub router_id: String,
    /// Nodes by their labels.
    pub node_selectors: Vec<LabelSelector>,
    /// Whether it has a password.
    pub password: Hidden,
    /// The Secret with the password.
    pub password_secret: PasswordSecret,
    /// The BFDProfile by name.
    pub bfd_profile: String,
    /// Whether the router may be behind others.
    pub ebgp_multi_hop: bool,
    /// The VRF of connections.
    pub vrf: String,
    /// Whether a session has the routes of one family only.
    #[serde(rename = "disableMP")]
    pub disable_mp: bool,
}

/// The Secret of a password, in MetalLB's namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PasswordSecret {
    /// Its name.
    pub name: String,
}

/// Whether there is a text, without the text: it is dropped while it is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hidden(pub bool);

impl<'de> Deserialize<'de> for Hidden {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        Ok(Self(text.is_some_and(|text| !text.is_empty())))
    }
}

impl Serialize for Hidden {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("")
    }
}

/// The spec of a Community: names for communities.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, CustomResource)]
#[serde(default)]
#[kube(
    group = "metallb.io",
    version = "v1beta1",
    kind = "Community",
    plural = "communities",
    namespaced,
    schema = "disabled",
    derive = "PartialEq"
)]
pub struct CommunitySpec {
    /// The names.
    pub communities: Vec<CommunityAlias>,
}

/// A name for a community.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CommunityAlias {
    /// The name.
    pub name: String,
    /// The community.
    pub value: String,
}

/// The spec of a BFDProfile. Times are in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, CustomResource)]
#[serde(rename_all = "camelCase", default)]
#[kube(
    group = "metallb.io",
    version = "v1beta1",
    kind = "BFDProfile",
    plural = "bfdprofiles",
    namespaced,
    schema = "disabled",
    derive = "PartialEq"
)]
pub struct BFDProfileSpec {
    /// The shortest interval of packets of the router.
    pub receive_interval: Option<i64>,
    /// The interval of own packets.
    pub transmit_interval: Option<i64>,
    /// This many lost packets mean that the router is away.
    pub detect_multiplier: Option<i64>,
    /// Whether the echo function is used.
    pub echo_mode: bool,
    /// Whether it waits for the router.
    pub passive_mode: bool,
    /// The lowest TTL of packets of a router behind others.
    #[serde(rename = "minimumTtl")]
    pub minimum_ttl: Option<i64>,
}
