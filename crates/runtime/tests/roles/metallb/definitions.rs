//! MetalLB's definitions of its kinds, of a release with the fields that matter here.

use serde_json::{Value, json};

fn selectors() -> Value {
    json!({
        "type": "array",
        "items": {
            "type": "object",
            "x-kubernetes-map-type": "atomic",
            "properties": {
                "matchLabels": {"type": "object", "additionalProperties": {"type": "string"}},
                "matchExpressions": {
                    "type": "array",
                    "x-kubernetes-list-type": "atomic",
                    "items": {
                        "type": "object",
                        "required": ["key", "operator"],
                        "properties": {
                            "key": {"type": "string"},
                            "operator": {"type": "string"},
                            "values": {
                                "type": "array", "items": {"type": "string"},
                                "x-kubernetes-list-type": "atomic",
                            },
                        },
                    },
                },
            },
        },
    })
}

/// Its pools.
pub(crate) fn ip_address_pool() -> Value {
    let selectors = selectors();
    let names = json!({"type": "array", "items": {"type": "string"}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "ipaddresspools.metallb.io"},
        "spec": {
            "group": "metallb.io", "scope": "Namespaced",
            "names": {
                "kind": "IPAddressPool", "listKind": "IPAddressPoolList",
                "plural": "ipaddresspools", "singular": "ipaddresspool",
            },
            "versions": [{
                "name": "v1beta1", "served": true, "storage": true,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "required": ["spec"],
                    "properties": {
                        "apiVersion": {"type": "string"},
                        "kind": {"type": "string"},
                        "metadata": {"type": "object"},
                        "spec": {
                            "type": "object",
                            "required": ["addresses"],
                            "properties": {
                                "addresses": &names,
                                "autoAssign": {"type": "boolean", "default": true},
                                "avoidBuggyIPs": {"type": "boolean", "default": false},
                                "serviceAllocation": {
                                    "type": "object",
                                    "properties": {
                                        "priority": {"type": "integer"},
                                        "namespaces": &names,
                                        "namespaceSelectors": &selectors,
                                        "serviceSelectors": &selectors,
                                    },
                                },
                            },
                        },
                        "status": {
                            "type": "object",
                            "required":
                                ["assignedIPv4", "assignedIPv6", "availableIPv4", "availableIPv6"],
                            "properties": {
                                "assignedIPv4": {"type": "integer", "format": "int64"},
                                "assignedIPv6": {"type": "integer", "format": "int64"},
                                "availableIPv4": {"type": "integer", "format": "int64"},
                                "availableIPv6": {"type": "integer", "format": "int64"},
                            },
                        },
                    },
                }},
            }],
        },
    })
}

/// A definition with one version.
fn kind(kind: &str, plural: &str, version: &str, required: &[&str], fields: &Value) -> Value {
    let singular = kind.to_lowercase();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.metallb.io")},
        "spec": {
            "group": "metallb.io", "scope": "Namespaced",
            "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": singular},
            "versions": [{
                "name": version, "served": true, "storage": true,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "properties": {
                        "apiVersion": {"type": "string"},
                        "kind": {"type": "string"},
                        "metadata": {"type": "object"},
                        "spec": {"type": "object", "required": required, "properties": fields},
                        "status": {"type": "object"},
                    },
                }},
            }],
        },
    })
}

fn names() -> Value {
    json!({"type": "array", "items": {"type": "string"}})
}

pub(crate) fn l2_advertisement() -> Value {
    let fields = json!({
        "ipAddressPools": names(), "ipAddressPoolSelectors": selectors(),
        "nodeSelectors": selectors(), "serviceSelectors": selectors(), "interfaces": names(),
    });
    kind("L2Advertisement", "l2advertisements", "v1beta1", &[], &fields)
}

pub(crate) fn bgp_advertisement() -> Value {
    let fields = json!({
        "aggregationLength": {"type": "integer", "format": "int32", "minimum": 1, "default": 32},
        "aggregationLengthV6": {"type": "integer", "format": "int32", "default": 128},
        "localPref": {"type": "integer", "format": "int32"},
        "communities": names(), "ipAddressPools": names(), "ipAddressPoolSelectors": selectors(),
        "nodeSelectors": selectors(), "serviceSelectors": selectors(), "peers": names(),
    });
    kind("BGPAdvertisement", "bgpadvertisements", "v1beta1", &[], &fields)
}

/// `version` is v1beta2, or v1beta1 as very old releases have it alone.
pub(crate) fn bgp_peer(version: &str) -> Value {
    let asn =
        json!({"type": "integer", "format": "int32", "minimum": 0, "maximum": 4294967295_u32});
    let text = json!({"type": "string"});
    let mut fields = json!({
        "myASN": &asn, "peerASN": &asn, "peerAddress": &text, "sourceAddress": &text,
        "peerPort": {"type": "integer", "minimum": 0, "maximum": 16384},
        "holdTime": &text, "keepaliveTime": &text, "routerID": &text, "password": &text,
        "bfdProfile": &text, "ebgpMultiHop": {"type": "boolean"}, "nodeSelectors": selectors(),
    });
    if version == "v1beta1" {
        return kind("BGPPeer", "bgppeers", version, &["myASN", "peerASN", "peerAddress"], &fields);
    }
    let more = json!({
        "localASN": &asn, "dynamicASN": {"type": "string", "enum": ["internal", "external"]},
        "interface": &text, "connectTime": &text, "vrf": &text,
        "peerPort": {"type": "integer", "minimum": 1, "maximum": 16384, "default": 179},
        "passwordSecret": {
            "type": "object", "x-kubernetes-map-type": "atomic",
            "properties": {"name": &text, "namespace": &text},
        },
        "enableGracefulRestart": {"type": "boolean"},
        "disableMP": {"type": "boolean", "default": false},
        "dualStackAddressFamily": {"type": "boolean", "default": false},
    });
    if let (Value::Object(fields), Value::Object(more)) = (&mut fields, more) {
        fields.extend(more);
    }
    kind("BGPPeer", "bgppeers", version, &["myASN"], &fields)
}

pub(crate) fn community() -> Value {
    let alias = json!({"name": {"type": "string"}, "value": {"type": "string"}});
    let fields = json!({
        "communities": {"type": "array", "items": {"type": "object", "properties": alias}},
    });
    kind("Community", "communities", "v1beta1", &[], &fields)
}

pub(crate) fn bfd_profile() -> Value {
    let number = |least: u32, most: u32| json!({"type": "integer", "format": "int32", "minimum": least, "maximum": most});
    let fields = json!({
        "receiveInterval": number(10, 60_000), "transmitInterval": number(10, 60_000),
        "detectMultiplier": number(2, 255), "echoInterval": number(10, 60_000),
        "echoMode": {"type": "boolean"}, "passiveMode": {"type": "boolean"}, "minimumTtl": number(1, 254),
    });
    kind("BFDProfile", "bfdprofiles", "v1beta1", &[], &fields)
}
