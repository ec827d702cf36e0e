//! The rules of EndpointSlices and of the older Endpoints: defaults and validation. The write path
//! calls them; they do no I/O.

use super::fields::{
    Findings, PROTOCOLS, default, default_text, has, int, items, list, text, texts,
};
use super::ip;
use super::metadata::check_labels;
use crate::error::FieldError;
use crate::kind::Rules;
use crate::names;
use serde_json::{Value, json};
use std::net::IpAddr;

/// The rules of EndpointSlices.
pub struct EndpointSliceRules {
    /// Whether endpoints may be on loopback. kube-apiserver never allows it.
    pub loopback: bool,
}

impl Rules for EndpointSliceRules {
    fn default(&self, object: &mut Value) {
        for port in items(object, "ports") {
            default(port, "name", "");
            default(port, "protocol", "TCP");
        }
        for endpoint in items(object, "endpoints") {
            default(endpoint, "conditions", json!({}));
        }
        // An absent or empty list is written as null.
        let Some(members) = object.as_object_mut() else { return };
        for list in ["endpoints", "ports"] {
            if members.get(list).and_then(Value::as_array).is_none_or(Vec::is_empty) {
                members.insert(list.to_owned(), Value::Null);
            }
        }
    }

    fn validate(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let mut found = Findings::default();
        let kind = text(object, "addressType");
        found.one_of("addressType", kind, &["FQDN", "IPv4", "IPv6"]);
        slice_ports(object, &mut found);
        if old.is_none_or(|old| old["endpoints"] != object["endpoints"]) {
            endpoints(object, kind, self.loopback, &mut found);
        }
        if let Some(old) = old {
            found.immutable("addressType", &object["addressType"], &old["addressType"]);
        }
        found.done()
    }

    fn generation_changes(&self, object: &Value, old: &Value) -> bool {
        let same = |field: &str| object[field] == old[field];
        !(same("addressType")
            && same("endpoints")
            && same("ports")
            && object["metadata"]["labels"] == old["metadata"]["labels"])
    }
}

fn slice_ports(object: &Value, found: &mut Findings) {
    let ports = list(object, "ports");
    if ports.len() > 20_000 {
        found.push(FieldError::too_many("ports", ports.len(), 20_000));
        return;
    }
    let mut seen = Vec::new();
    for (i, port) in ports.iter().enumerate() {
        let name = text(port, "name");
        let field = format!("ports[{i}].name");
        if !name.is_empty() {
            found.each(&field, name, names::is_dns1123_label(name));
        }
        if seen.contains(&name) {
            found.duplicate(field, name);
        }
        seen.push(name);
        found.one_of(&format!("ports[{i}].protocol"), text(port, "protocol"), PROTOCOLS);
        if let Some(protocol) = port["appProtocol"].as_str() {
            let field = format!("ports[{i}].appProtocol");
            found.each(&field, protocol, names::is_qualified_name(protocol));
        }
    }
}

fn endpoints(object: &Value, kind: &str, loopback: bool, found: &mut Findings) {
    let endpoints = list(object, "endpoints");
    if endpoints.len() > 1000 {
        found.push(FieldError::too_many("endpoints", endpoints.len(), 1000));
        return;
    }
    for (i, endpoint) in endpoints.iter().enumerate() {
        let at = format!("endpoints[{i}]");
        let field = format!("{at}.addresses");
        let addresses = texts(endpoint, "addresses");
        if addresses.is_empty() {
            found.required(field.as_str(), "must contain at least 1 address");
        } else if addresses.len() > 100 {
            found.push(FieldError::too_many(field.as_str(), addresses.len(), 100));
        }
        for (j, address) in addresses.into_iter().enumerate() {
            check_address(address, kind, loopback, &format!("{field}[{j}]"), &field, found);
        }
        if let Some(node) = endpoint["nodeName"].as_str() {
            found.each(&format!("{at}.nodeName"), node, names::is_dns1123_subdomain(node));
        }
        let topology = format!("{at}.deprecatedTopology");
        let labels = endpoint["deprecatedTopology"].as_object().map_or(0, |labels| labels.len());
        if labels > 16 {
            found.push(FieldError::too_many(topology.as_str(), labels, 16));
        }
        check_labels(&endpoint["deprecatedTopology"], &topology, found);
        if let Some(hostname) = endpoint["hostname"].as_str() {
            found.each(&format!("{at}.hostname"), hostname, names::is_dns1123_label(hostname));
        }
        hints(&endpoint["hints"], &format!("{at}.hints"), found);
    }
}

fn check_address(
    address: &str,
    kind: &str,
    loopback: bool,
    field: &str,
    at: &str,
    found: &mut Findings,
) {
    let mut wrong = match kind {
        "IPv4" => ip::check(field, address, &[]),
        "IPv6" => {
            let mut wrong = ip::check(field, address, &[]);
            let canonical = ip::parse(address).map(|ip| ip.to_string()).unwrap_or_default();
            if wrong.is_empty() && canonical != address {
                let words = format!("must be in canonical form (\"{canonical}\")");
                wrong.push(FieldError::invalid(field, &json!(address), words));
            }
            wrong
        }
        "FQDN" => {
            fully_qualified(address, field, found);
            return;
        }
        _ => return,
    };
    if wrong.is_empty() {
        if ip::parse(address).is_some_and(|ip| matches!(ip, IpAddr::V6(_)) != (kind == "IPv6")) {
            found.invalid(at, address, format!("must be an {kind} address"));
        }
        let here = || ip::parse(address).is_some_and(|ip| ip.is_loopback());
        if !(loopback && here()) {
            wrong = ip::check_endpoint(field, address);
        }
    }
    found.extend(wrong);
}

fn fully_qualified(name: &str, field: &str, found: &mut Findings) {
    if name.is_empty() {
        found.required(field, "");
        return;
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    let wrong = names::is_dns1123_subdomain(name);
    if !wrong.is_empty() {
        found.invalid(field, name, wrong.join(","));
    } else if !name.contains('.') {
        let words = "should be a domain with at least two segments separated by dots";
        found.invalid(field, name, words);
    } else if let Some(label) = name.split('.').find(|l| !names::is_dns1123_label(l).is_empty()) {
        found.invalid(field, label, names::is_dns1123_label(label).join(","));
    }
}

fn hints(hints: &Value, at: &str, found: &mut Findings) {
    type Check = fn(&str) -> Vec<String>;
    let kinds: [(&str, Check); 2] =
        [("forZones", names::is_label_value), ("forNodes", names::is_dns1123_subdomain)];
    for (kind, check) in kinds {
        let entries = list(hints, kind);
        if entries.len() > 8 {
            found.push(FieldError::too_many(format!("{at}.{kind}"), entries.len(), 8));
            return;
        }
        for (i, entry) in entries.iter().enumerate() {
            let name = text(entry, "name");
            let field = format!("{at}.{kind}[{i}].name");
            if entries[..i].iter().any(|other| text(other, "name") == name) {
                found.duplicate(field.as_str(), name);
            }
            found.each(&field, name, check(name));
        }
    }
}

/// The rules of Endpoints.
pub struct EndpointsRules;

impl Rules for EndpointsRules {
    fn has_generation(&self) -> bool {
        false
    }

    fn default(&self, object: &mut Value) {
        for subset in items(object, "subsets") {
            for port in items(subset, "ports") {
                default_text(port, "protocol", "TCP");
            }
        }
    }

    fn validate(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let mut found = Findings::default();
        if old.is_some_and(|old| old["subsets"] == object["subsets"]) {
            return found.done();
        }
        for (i, subset) in list(object, "subsets").iter().enumerate() {
            let at = format!("subsets[{i}]");
            if list(subset, "addresses").is_empty() && list(subset, "notReadyAddresses").is_empty()
            {
                found.required(at.as_str(), "must specify `addresses` or `notReadyAddresses`");
            }
            for kind in ["addresses", "notReadyAddresses"] {
                for (j, address) in list(subset, kind).iter().enumerate() {
                    subset_address(address, &format!("{at}.{kind}[{j}]"), &mut found);
                }
            }
            let ports = list(subset, "ports");
            for (j, port) in ports.iter().enumerate() {
                subset_port(port, ports.len() > 1, &format!("{at}.ports[{j}]"), &mut found);
            }
        }
        found.done()
    }

    fn warnings(&self, _object: &Value, _old: Option<&Value>) -> Vec<String> {
        vec![
            "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"
                .to_owned(),
        ]
    }
}

fn subset_address(address: &Value, at: &str, found: &mut Findings) {
    let ip = text(address, "ip");
    let field = format!("{at}.ip");
    found.extend(ip::check(&field, ip, &[]));
    let hostname = text(address, "hostname");
    if !hostname.is_empty() {
        found.each(&format!("{at}.hostname"), hostname, names::is_dns1123_label(hostname));
    }
    if let Some(node) = address["nodeName"].as_str() {
        found.each(&format!("{at}.nodeName"), node, names::is_dns1123_subdomain(node));
    }
    found.extend(ip::check_endpoint(&field, ip));
}

fn subset_port(port: &Value, name_required: bool, at: &str, found: &mut Findings) {
    let name = text(port, "name");
    if !name.is_empty() {
        found.each(&format!("{at}.name"), name, names::is_dns1123_label(name));
    } else if name_required {
        found.required(format!("{at}.name"), "");
    }
    let number = int(port, "port");
    found.each(&format!("{at}.port"), number, names::is_port_number(number));
    found.one_of(&format!("{at}.protocol"), text(port, "protocol"), PROTOCOLS);
    if has(port, "appProtocol") {
        let protocol = text(port, "appProtocol");
        found.each(&format!("{at}.appProtocol"), protocol, names::is_qualified_name(protocol));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rules of kube-apiserver.
    const REAL: EndpointSliceRules = EndpointSliceRules { loopback: false };

    fn said(object: Value, old: Option<&Value>) -> Vec<String> {
        let mut object = object;
        REAL.default(&mut object);
        REAL.validate(&object, old).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn ports_are_named_and_tcp_unless_said_otherwise() {
        let mut slice =
            json!({"ports": [{"port": 80}], "endpoints": [{"addresses": ["192.0.2.1"]}]});
        REAL.default(&mut slice);
        assert_eq!(
            slice,
            json!({"ports": [{"port": 80, "name": "", "protocol": "TCP"}],
                   "endpoints": [{"addresses": ["192.0.2.1"], "conditions": {}}]})
        );
    }

    #[test]
    fn addresses_are_of_the_slices_type() {
        let slice = |kind: &str, address: &str| {
            said(json!({"addressType": kind, "endpoints": [{"addresses": [address]}]}), None)
        };
        let fine = Vec::<String>::new();
        assert_eq!(slice("IPv4", "192.0.2.1"), fine);
        assert_eq!(slice("IPv6", "2001:db8::1"), fine);
        assert_eq!(slice("FQDN", "a.example."), fine);
        assert_eq!(
            slice("IPv4", "2001:db8::1"),
            ["endpoints[0].addresses: Invalid value: \"2001:db8::1\": must be an IPv4 address"]
        );
        assert_eq!(
            slice("IPv6", "192.0.2.1"),
            ["endpoints[0].addresses: Invalid value: \"192.0.2.1\": must be an IPv6 address"]
        );
        assert_eq!(
            slice("IPv6", "2001:DB8::1"),
            [
                "endpoints[0].addresses[0]: Invalid value: \"2001:DB8::1\": must be in canonical form (\"2001:db8::1\")"
            ]
        );
        assert_eq!(
            slice("IPv4", "127.0.0.1"),
            [
                "endpoints[0].addresses[0]: Invalid value: \"127.0.0.1\": may not be in the loopback range (127.0.0.0/8, ::1/128)"
            ]
        );
        assert_eq!(slice("FQDN", "single").len(), 1);
        assert_eq!(slice("FQDN", "").len(), 1);
        assert_eq!(
            slice("Carrier", "pigeon"),
            [
                "addressType: Unsupported value: \"Carrier\": supported values: \"FQDN\", \"IPv4\", \"IPv6\""
            ]
        );
        assert_eq!(slice("", "x"), ["addressType: Required value"]);
    }

    #[test]
    fn endpoints_on_loopback_need_a_server_that_was_told_to_take_them() {
        let rules = EndpointSliceRules { loopback: true };
        let said = |kind: &str, address: &str| {
            let slice = json!({"addressType": kind, "endpoints": [{"addresses": [address]}]});
            rules.validate(&slice, None).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(said("IPv4", "127.0.0.1"), Vec::<String>::new());
        assert_eq!(said("IPv6", "::1"), Vec::<String>::new());
        assert_eq!(said("IPv6", "127.0.0.1").len(), 1);
        assert_eq!(said("IPv4", "169.254.1.1").len(), 1);
    }

    #[test]
    fn a_slice_is_bounded_and_keeps_its_type() {
        let endpoint = json!({"addresses": ["192.0.2.1"]});
        let many = json!({"addressType": "IPv4", "endpoints": vec![endpoint; 1001]});
        assert_eq!(said(many, None), ["endpoints: Too many: 1001: must have at most 1000 items"]);
        let wide =
            json!({"addressType": "IPv4", "endpoints": [{"addresses": vec!["192.0.2.1"; 101]}]});
        assert_eq!(
            said(wide, None),
            ["endpoints[0].addresses: Too many: 101: must have at most 100 items"]
        );
        let none = json!({"addressType": "IPv4", "endpoints": [{"addresses": []}]});
        assert_eq!(
            said(none, None),
            ["endpoints[0].addresses: Required value: must contain at least 1 address"]
        );
        let old = json!({"addressType": "IPv6"});
        assert_eq!(
            said(json!({"addressType": "IPv4"}), Some(&old)),
            ["addressType: Invalid value: \"IPv4\": field is immutable"]
        );
        let twice = json!({"addressType": "IPv4", "ports": [{"name": "a"}, {"name": "a"}, {"name": "A", "protocol": "x"}]});
        assert_eq!(said(twice, None).len(), 3);
    }

    #[test]
    fn endpoints_name_addresses_and_ports() {
        let check = |subset: Value| {
            let mut object = json!({"subsets": [subset]});
            EndpointsRules.default(&mut object);
            EndpointsRules
                .validate(&object, None)
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            check(json!({"addresses": [{"ip": "192.0.2.1"}], "ports": [{"port": 80}]})),
            Vec::<String>::new()
        );
        assert_eq!(
            check(json!({"ports": [{"port": 0}]})),
            [
                "subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`",
                "subsets[0].ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
            ]
        );
        assert_eq!(check(json!({"addresses": [{"ip": "nope"}, {"ip": "127.0.0.1"}, {}]})).len(), 5);
        assert_eq!(
            check(json!({"addresses": [{"ip": "192.0.2.1"}], "ports": [{"port": 1}, {"port": 2}]}))
                .len(),
            2
        );
    }

    #[test]
    fn a_label_or_an_endpoint_makes_a_new_generation_and_an_annotation_does_not() {
        let old = json!({"metadata": {"labels": {"a": "b"}}, "endpoints": []});
        let mut new = old.clone();
        new["metadata"]["annotations"] = json!({"x": "y"});
        assert!(!REAL.generation_changes(&new, &old));
        new["endpoints"] = json!([{}]);
        assert!(REAL.generation_changes(&new, &old));
    }
}
