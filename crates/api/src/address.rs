//! `Address`: one address is held, and by which objects. Creating the object is the allocation, so its name is the
//! address itself. Only the leader writes Addresses; this file defines the kind and the name.

use crate::schema;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The name of the `Address` object of an address: an IPv4 address as it is, an IPv6 address as eight groups of four
/// digits joined by `-`, because a name may not contain a colon.
pub fn address_name(address: IpAddr) -> String {
    match address {
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(v6) => v6.segments().map(|group| format!("{group:04x}")).join("-"),
    }
}

/// The address for which an `Address` object of this name stands. None: [`address_name`] does not make this name.
pub fn address_of_name(name: &str) -> Option<IpAddr> {
    let address = if name.contains('-') {
        let mut groups = [0u16; 8];
        let mut parts = name.split('-');
        for group in &mut groups {
            *group = u16::from_str_radix(parts.next()?, 16).ok()?;
        }
        IpAddr::V6(Ipv6Addr::from(groups))
    } else {
        IpAddr::V4(name.parse::<Ipv4Addr>().ok()?)
    };
    // An address has one name only: +0ab, 0AB0 or a ninth group is not part of it.
    (address_name(address) == name).then_some(address)
}

/// The holders of an address.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "bowline.dev",
    version = "v1alpha1",
    kind = "Address",
    plural = "addresses",
    shortname = "addr",
    category = "bowline",
    status = "AddressStatus",
    derive = "PartialEq",
    doc = "An Address records one address and its holders. Bowline writes it; its name is the address (IPv6 as \
        eight groups of four digits joined by -). Deleting it by hand does not free the address: while the \
        address has a holder, Bowline creates the object again.",
    printcolumn(name = "Pool", type_ = "string", json_path = ".spec.pool", description = "The AddressPool of the address."),
    printcolumn(name = "Held-By", type_ = "string", json_path = ".spec.heldBy", description = "The holders of the address."),
    printcolumn(name = "State", type_ = "string", json_path = ".status.state", description = "Active, Draining or Resting."),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Key", type_ = "string", json_path = ".spec.holders[0].key", description = "The key under which its holders share it.", priority = 1),
    printcolumn(name = "Until", type_ = "string", json_path = ".status.until", description = "When draining or resting ends.", priority = 1),
    validation = Rule::new("isIP(self.metadata.name) ? ip(self.metadata.name).family() == 4 : self.metadata.name.matches('^([0-9a-f]{4}-){7}[0-9a-f]{4}$')")
        .message("the name must be the address: 203.0.113.10, or 2001-0db8-0000-0000-0000-0000-0000-0001 for 2001:db8::1"),
)]
pub struct AddressSpec {
    /// The AddressPool that the address is from. Left out: it lies in no pool (a load balancer's own address).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::recorded_name")]
    pub pool: Option<String>,
    /// The objects that hold the address. Several share it under one key. None: the address rests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["uid"]))]
    pub holders: Vec<Holder>,
    /// The holders in words, for tables: the first of them, and how many more there are. Only `holders` counts.
    #[serde(default, rename = "heldBy", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(max = 1024))]
    pub held_by: Option<String>,
}

/// An object that holds an address.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Holder {
    /// Service, LoadBalancer or ExternalIP.
    pub kind: HolderKind,
    /// Its namespace; left out for a LoadBalancer, which has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::recorded_label")]
    pub namespace: Option<String>,
    /// Its name.
    #[schemars(schema_with = "schema::recorded_name")]
    pub name: String,
    /// Its uid.
    #[schemars(schema_with = "schema::uid")]
    pub uid: String,
    /// The ports it uses on the address. Left out: all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["protocol", "port"]))]
    pub ports: Vec<HeldPort>,
    /// The key under which it shares the address. Left out: it does not share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 1024))]
    pub key: Option<String>,
    /// The LoadBalancer that serves the holder at this address. Left out: none does, or the holder is a
    /// LoadBalancer itself.
    #[serde(default, rename = "loadBalancer", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::recorded_name")]
    pub load_balancer: Option<String>,
    /// Since when the object holds the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub since: Option<Time>,
}

/// Kinds that can have an address.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum HolderKind {
    /// A Service.
    Service,
    /// A load balancer.
    LoadBalancer,
    /// One Pod of a Service, by its ExternalIP.
    ExternalIP,
}

/// A port in use on an address.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub struct HeldPort {
    /// TCP, UDP or SCTP.
    pub protocol: Protocol,
    /// The number of the port.
    #[schemars(range(min = 1, max = 65535))]
    pub port: u16,
}

/// Protocols with ports.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "UPPERCASE")]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

/// What Bowline reports about an address.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AddressStatus {
    /// Active: in use. Draining: still served, but its holder is moving to another address. Resting: it has
    /// no holder and is not granted yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "AddressState", extend("default" = "Active"))]
    pub state: Option<AddressState>,
    /// When draining or resting ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub until: Option<Time>,
    /// Where it is announced to the network. Left out: nowhere.
    #[serde(default, rename = "announcedBy", skip_serializing_if = "Option::is_none")]
    pub announced_by: Option<AnnouncedBy>,
}

/// The most nodes that [`AnnouncedBy`] names.
pub const MOST_ANNOUNCING: usize = 5;

/// Where an address is announced to the network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AnnouncedBy {
    /// The node that owns it on its links (layer 2). Left out: none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::recorded_name")]
    pub owner: Option<String>,
    /// How many nodes announce it by BGP.
    #[serde(default, rename = "bgpNodes")]
    #[schemars(range(min = 0))]
    pub bgp_nodes: i32,
    /// The first of these, by name.
    #[serde(default, rename = "firstBGPNodes", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::recorded_names")]
    pub first_bgp_nodes: Vec<String>,
}

/// States of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AddressState {
    /// In use.
    Active,
    /// About to be released.
    Draining,
    /// Released, and not free yet.
    Resting,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_name_is_the_address_in_one_spelling_only() {
        let v6 = "2001-0db8-0000-0000-0000-0000-0000-0001";
        assert_eq!(address_name("203.0.113.10".parse().unwrap()), "203.0.113.10");
        assert_eq!(address_name("2001:db8::1".parse().unwrap()), v6);
        assert_eq!(address_of_name("203.0.113.10"), Some("203.0.113.10".parse().unwrap()));
        assert_eq!(address_of_name(v6), Some("2001:db8::1".parse().unwrap()));
        for other in [
            "",
            "-",
            "edge",
            "203.0.113.010",
            "203.0.113",
            "2001:db8::1",
            "2001-db8-0-0-0-0-0-1",
            "2001-0DB8-0000-0000-0000-0000-0000-0001",
            "+001-0db8-0000-0000-0000-0000-0000-0001",
            "2001-0db8-0000-0000-0000-0000-0000-0001-0000",
            "2001-0db8-0000-0000-0000-0000-0000",
        ] {
            assert_eq!(address_of_name(other), None, "{other:?}");
        }
    }

    proptest! {
        #[test]
        fn every_address_is_found_again_by_its_name(address: IpAddr) {
            prop_assert_eq!(address_of_name(&address_name(address)), Some(address));
        }

        #[test]
        fn no_name_makes_the_reader_fail_otherwise_than_by_none(name in "\\PC{0,45}") {
            let _ = address_of_name(&name);
        }
    }
}
