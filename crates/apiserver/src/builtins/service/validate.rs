//! What is wrong with a Service, in the real server's order and words.

use super::super::fields::{Findings, PROTOCOLS, has, int, list, text, texts};
use super::super::ip;
use super::super::metadata::check_labels;
use super::{
    EXTERNAL_NAME, LOAD_BALANCER, externally_accessible, is_headless, kind, needs_health_check,
};
use crate::error::{FieldError, FieldErrorKind};
use crate::names;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const TYPES: &[&str] = &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const ONLY_LOAD_BALANCER: &str = "may only be used when `type` is 'LoadBalancer'";
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
pub(super) const TOPOLOGY_MODE: &str = "service.kubernetes.io/topology-mode";
pub(super) const TOPOLOGY_HINTS: &str = "service.kubernetes.io/topology-aware-hints";

pub(super) fn service(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut found = Findings::default();
    if let Some(old) = old {
        changes(object, old, &mut found);
    }
    let spec = &object["spec"];
    let annotations = &object["metadata"]["annotations"];
    if has(annotations, TOPOLOGY_MODE)
        && has(annotations, TOPOLOGY_HINTS)
        && annotations[TOPOLOGY_MODE] != annotations[TOPOLOGY_HINTS]
    {
        found.invalid(
            format!("metadata.annotations[{TOPOLOGY_MODE}]"),
            annotations[TOPOLOGY_MODE].clone(),
            format!("must match annotations[{TOPOLOGY_HINTS}] when both are specified"),
        );
    }
    by_type(object, &mut found);
    let ports = list(spec, "ports");
    let mut port_names = BTreeSet::new();
    for (i, port) in ports.iter().enumerate() {
        service_port(
            port,
            &format!("spec.ports[{i}]"),
            ports.len() > 1,
            &mut port_names,
            &mut found,
        );
    }
    check_labels(&spec["selector"], "spec.selector", &mut found);
    session_affinity(spec, &mut found);
    found.extend(cluster_ips(object, old));
    let known = old.map(|old| texts(&old["spec"], "externalIPs")).unwrap_or_default();
    for (i, ip) in texts(spec, "externalIPs").into_iter().enumerate() {
        let field = format!("spec.externalIPs[{i}]");
        let wrong = ip::check(&field, ip, &known);
        let wrong = if wrong.is_empty() { ip::check_endpoint(&field, ip) } else { wrong };
        found.extend(wrong);
    }
    found.one_of("spec.type", kind(object), TYPES);
    port_numbers(object, &mut found);
    source_ranges(object, old, &mut found);
    let allocates = has(spec, "allocateLoadBalancerNodePorts");
    match kind(object) {
        LOAD_BALANCER if !allocates => found.required("allocateLoadBalancerNodePorts", ""),
        LOAD_BALANCER => {}
        _ if allocates => {
            found.forbidden("spec.allocateLoadBalancerNodePorts", ONLY_LOAD_BALANCER);
        }
        _ => {}
    }
    load_balancer_class(object, &mut found);
    traffic(object, &mut found);
    found.done()
}

fn by_type(object: &Value, found: &mut Findings) {
    let spec = &object["spec"];
    let headless = is_headless(object);
    if list(spec, "ports").is_empty() && !headless && kind(object) != EXTERNAL_NAME {
        found.required("spec.ports", "");
    }
    match kind(object) {
        LOAD_BALANCER | "NodePort" if headless => found.invalid(
            "spec.clusterIPs[0]",
            "None",
            format!("may not be set to 'None' for {} services", kind(object)),
        ),
        EXTERNAL_NAME => {
            let forbidden = "may not be set for ExternalName services";
            for field in ["clusterIPs", "ipFamilies"] {
                if !list(spec, field).is_empty() {
                    found.forbidden(format!("spec.{field}"), forbidden);
                }
            }
            if has(spec, "ipFamilyPolicy") {
                found.forbidden("spec.ipFamilyPolicy", forbidden);
            }
            let given = text(spec, "externalName");
            let name = given.strip_suffix('.').unwrap_or(given);
            if name.is_empty() {
                found.required("spec.externalName", "");
            } else {
                found.each("spec.externalName", name, names::is_dns1123_subdomain(name));
            }
        }
        _ => {}
    }
}

fn service_port<'a>(
    port: &'a Value,
    at: &str,
    name_required: bool,
    port_names: &mut BTreeSet<&'a str>,
    found: &mut Findings,
) {
    let name = text(port, "name");
    let field = format!("{at}.name");
    if name.is_empty() {
        if name_required {
            found.required(field, "");
        }
    } else {
        found.each(&field, name, names::is_dns1123_label(name));
        if !port_names.insert(name) {
            found.duplicate(field, name);
        }
    }
    let number = int(port, "port");
    found.each(&format!("{at}.port"), number, names::is_port_number(number));
    found.one_of(&format!("{at}.protocol"), text(port, "protocol"), PROTOCOLS);
    check_port(&port["targetPort"], &format!("{at}.targetPort"), found);
    if let Some(protocol) = port["appProtocol"].as_str() {
        found.each(&format!("{at}.appProtocol"), protocol, names::is_qualified_name(protocol));
    }
}

/// A port by number or by name.
pub(in super::super) fn check_port(port: &Value, field: &str, found: &mut Findings) {
    match port {
        Value::String(name) => found.each(field, name.as_str(), names::is_port_name(name)),
        other => {
            let number = other.as_i64().unwrap_or_default();
            found.each(field, number, names::is_port_number(number));
        }
    }
}

fn session_affinity(spec: &Value, found: &mut Findings) {
    let field = "spec.sessionAffinityConfig";
    let affinity = text(spec, "sessionAffinity");
    found.one_of("spec.sessionAffinity", affinity, &["ClientIP", "None"]);
    let config = &spec["sessionAffinityConfig"];
    if affinity == "None" && !config.is_null() {
        found.forbidden(field, "must not be set when session affinity is None");
    }
    if affinity != "ClientIP" {
        return;
    }
    let why = "when session affinity type is ClientIP";
    let timeout = &config["clientIP"]["timeoutSeconds"];
    if config.is_null() {
        found.required(field, why);
    } else if !has(config, "clientIP") {
        found.required(format!("{field}.clientIP"), why);
    } else if timeout.is_null() {
        found.required(format!("{field}.clientIP.timeoutSeconds"), why);
    } else if !timeout.as_i64().is_some_and(|t| (1..=86400).contains(&t)) {
        found.invalid(
            format!("{field}.clientIP.timeoutSeconds"),
            timeout.clone(),
            "must be greater than 0 and less than 86400",
        );
    }
}

/// `clusterIP`, `clusterIPs`, `ipFamilies` and `ipFamilyPolicy` by themselves and with each other.
pub(super) fn cluster_ips(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut found = Findings::default();
    if kind(object) == EXTERNAL_NAME {
        return found.done();
    }
    let spec = &object["spec"];
    let ips = texts(spec, "clusterIPs");
    let all = &spec["clusterIPs"];
    let first = text(spec, "clusterIP");
    match (first, ips.first()) {
        ("", None) => {}
        ("", Some(_)) => found.invalid(
            "spec.clusterIPs",
            all.clone(),
            "must be empty when `clusterIP` is not specified",
        ),
        (_, None) => found.required("spec.clusterIPs", ""),
        (first, Some(ip)) if first != *ip => {
            found.invalid("spec.clusterIPs", all.clone(), "first value must match `clusterIP`");
        }
        _ => {}
    }
    let families = texts(spec, "ipFamilies");
    for (i, family) in families.iter().enumerate() {
        let field = format!("spec.ipFamilies[{i}]");
        if !["IPv4", "IPv6"].contains(family) {
            found.push(FieldError::not_supported(&field, &json!(family), &["IPv4", "IPv6"]));
        }
        if families[..i].contains(family) {
            found.duplicate(field, *family);
        }
    }
    if let Some(policy) = spec["ipFamilyPolicy"].as_str() {
        let known = ["PreferDualStack", "RequireDualStack", "SingleStack"];
        if !known.contains(&policy) {
            found.push(FieldError::not_supported("spec.ipFamilyPolicy", &json!(policy), &known));
        }
    }
    let before = old.map(|old| texts(&old["spec"], "clusterIPs")).unwrap_or_default();
    let mut unreadable = false;
    for (i, ip) in ips.iter().enumerate() {
        if i == 0 && *ip == "None" {
            if ips.len() > 1 {
                unreadable = true;
                found.invalid(
                    "spec.clusterIPs",
                    all.clone(),
                    "'None' must be the first and only value",
                );
            }
            continue;
        }
        let wrong = ip::check(&format!("spec.clusterIPs[{i}]"), ip, &before);
        unreadable |= !wrong.is_empty();
        found.extend(wrong);
    }
    if ips.len() > 2 {
        found.invalid("spec.clusterIPs", all.clone(), "may only hold up to 2 values");
    }
    if unreadable {
        return found.done();
    }
    let v6 = ips.iter().filter(|ip| ip::is_v6(ip)).count();
    if ips.len() > 1 && (v6 == 0 || v6 == ips.len()) {
        found.invalid(
            "spec.clusterIPs",
            all.clone(),
            "may specify no more than one IP for each IP family",
        );
    }
    if !is_headless(object) {
        for (i, (ip, family)) in ips.iter().zip(&families).enumerate() {
            let fits = if ip::is_v6(ip) { "IPv6" } else { "IPv4" };
            if ["IPv4", "IPv6"].contains(family) && *family != fits {
                found.invalid(
                    format!("spec.clusterIPs[{i}]"),
                    *ip,
                    format!("expected an {family} value as indicated by `ipFamilies[{i}]`"),
                );
            }
        }
    }
    found.done()
}

fn port_numbers(object: &Value, found: &mut Findings) {
    let ports = list(&object["spec"], "ports");
    if kind(object) == "ClusterIP" {
        for (i, _) in ports.iter().enumerate().filter(|(_, port)| int(port, "nodePort") != 0) {
            found.forbidden(
                format!("spec.ports[{i}].nodePort"),
                "may not be used when `type` is 'ClusterIP'",
            );
        }
    }
    let mut seen = BTreeSet::new();
    for (i, port) in ports.iter().enumerate().filter(|(_, port)| int(port, "nodePort") != 0) {
        if !seen.insert((text(port, "protocol"), int(port, "nodePort"))) {
            found.duplicate(format!("spec.ports[{i}].nodePort"), int(port, "nodePort"));
        }
    }
    let mut seen = BTreeSet::new();
    for (i, port) in ports.iter().enumerate() {
        let (protocol, number) = (text(port, "protocol"), int(port, "port"));
        if !seen.insert((protocol, number)) {
            // The real server shows its internal form of a port here.
            let shown = format!(
                "{{\"Name\":\"\",\"Protocol\":{protocol:?},\"AppProtocol\":null,\"Port\":{number},\
                 \"TargetPort\":0,\"NodePort\":0}}"
            );
            found.push(FieldError {
                kind: FieldErrorKind::Duplicate,
                field: format!("spec.ports[{i}]"),
                value: Some(shown),
                detail: String::new(),
            });
        }
    }
}

fn source_ranges(object: &Value, old: Option<&Value>, found: &mut Findings) {
    let ranges = texts(&object["spec"], "loadBalancerSourceRanges");
    let annotation = |object: &Value| {
        object["metadata"]["annotations"][SOURCE_RANGES].as_str().map(str::to_owned)
    };
    let only_load_balancer = |field: &str, found: &mut Findings| {
        if kind(object) != LOAD_BALANCER {
            found.forbidden(field, ONLY_LOAD_BALANCER);
        }
    };
    if !ranges.is_empty() {
        let field = "spec.LoadBalancerSourceRanges";
        only_load_balancer(field, found);
        let known: Vec<&str> = old
            .map(|old| texts(&old["spec"], "loadBalancerSourceRanges"))
            .unwrap_or_default()
            .into_iter()
            .map(str::trim)
            .collect();
        for (i, range) in ranges.into_iter().enumerate() {
            found.extend(ip::check_cidr(&format!("{field}[{i}]"), range.trim(), &known));
        }
    } else if let Some(value) = annotation(object) {
        let field = format!("metadata.annotations[{SOURCE_RANGES}]");
        only_load_balancer(&field, found);
        if old.and_then(annotation).as_ref() != Some(&value) && !value.trim().is_empty() {
            for range in value.trim().split(',') {
                found.extend(ip::check_cidr(&field, range.trim(), &[]));
            }
        }
    }
}

fn load_balancer_class(object: &Value, found: &mut Findings) {
    let field = "spec.loadBalancerClass";
    let Some(class) = object["spec"]["loadBalancerClass"].as_str() else { return };
    if kind(object) == LOAD_BALANCER {
        found.each(field, class, names::is_qualified_name(class));
    } else {
        found.forbidden(field, ONLY_LOAD_BALANCER);
    }
}

fn traffic(object: &Value, found: &mut Findings) {
    let spec = &object["spec"];
    let external = text(spec, "externalTrafficPolicy");
    if externally_accessible(object) {
        found.one_of("spec.externalTrafficPolicy", external, &["Cluster", "Local"]);
    } else if !external.is_empty() {
        found.invalid(
            "spec.externalTrafficPolicy",
            external,
            "may only be set for externally-accessible services",
        );
    }
    let number = int(spec, "healthCheckNodePort");
    let field = "spec.healthCheckNodePort";
    if !needs_health_check(object) {
        if number != 0 {
            found.invalid(
                field,
                number,
                "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'",
            );
        }
    } else if number != 0 {
        // One that is not asked for is given out right after.
        found.each(field, number, names::is_port_number(number));
    }
    let field = "spec.internalTrafficPolicy";
    match spec["internalTrafficPolicy"].as_str() {
        None if matches!(kind(object), "ClusterIP" | "NodePort" | LOAD_BALANCER) => {
            found.required(field, "");
        }
        Some(policy) if !["Cluster", "Local"].contains(&policy) => {
            found.push(FieldError::not_supported(field, &json!(policy), &["Cluster", "Local"]));
        }
        _ => {}
    }
    if let Some(distribution) = spec["trafficDistribution"].as_str() {
        let known = ["PreferClose", "PreferSameZone", "PreferSameNode"];
        if !known.contains(&distribution) {
            let field = "spec.trafficDistribution";
            found.push(FieldError::not_supported(field, &json!(distribution), &known));
        }
    }
}

/// What may not change.
fn changes(object: &Value, old: &Value, found: &mut Findings) {
    let external = kind(object) == EXTERNAL_NAME || kind(old) == EXTERNAL_NAME;
    let headless = (is_headless(old), is_headless(object));
    if !external && headless != (true, true) {
        list_change(object, old, "clusterIPs", "clusterIP", found);
    }
    if !external && headless == (false, false) {
        list_change(object, old, "ipFamilies", "ipFamily", found);
    }
    if kind(old) == LOAD_BALANCER && kind(object) == LOAD_BALANCER {
        let class = &object["spec"]["loadBalancerClass"];
        if *class != old["spec"]["loadBalancerClass"] {
            found.invalid("spec.loadBalancerClass", class.clone(), "may not change once set");
        }
    }
    if needs_health_check(old)
        && needs_health_check(object)
        && int(&object["spec"], "healthCheckNodePort") != int(&old["spec"], "healthCheckNodePort")
    {
        found.forbidden("spec.healthCheckNodePort", "field is immutable");
    }
}

/// A list of at most one value per family: the first stays, the second may come, and may go with
/// `SingleStack`.
fn list_change(object: &Value, old: &Value, field: &str, one: &str, found: &mut Findings) {
    let spec = &object["spec"];
    let (now, before) = (list(spec, field), list(&old["spec"], field));
    let ips = list(spec, "clusterIPs");
    let shown = json!(now);
    let is_ips = field == "clusterIPs";
    let unchangeable = "may not change once set";
    if now.len() == before.len() {
        for i in (0..now.len()).filter(|i| now[*i] != before[*i]) {
            let i = if is_ips { i } else { 0 };
            found.invalid(format!("spec.{field}[{i}]"), shown.clone(), unchangeable);
        }
        return;
    }
    let first_differs = matches!((now.first(), before.first()), (Some(n), Some(b)) if n != b);
    // For families the real server shows the addresses.
    let first_shown = if is_ips { shown.clone() } else { json!(ips) };
    if now.len() < before.len() && ips.is_empty() {
        found.invalid(format!("spec.{field}[0]"), shown, format!("primary {one} can not be unset"));
    }
    if first_differs {
        found.invalid(format!("spec.{field}[0]"), first_shown, unchangeable);
    }
    if now.len() < before.len() && now.len() == 1 && spec["ipFamilyPolicy"] != "SingleStack" {
        found.invalid(
            "spec.ipFamilyPolicy",
            spec["ipFamilyPolicy"].clone(),
            format!("must be set to 'SingleStack' when releasing the secondary {one}"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A Service that is right, with these members of its spec replaced (null removes).
    fn with(changes: Value) -> Value {
        let mut service = json!({"spec": {
            "type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
            "clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9"], "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack",
            "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
        }});
        for (key, value) in changes.as_object().unwrap() {
            service["spec"][key] = value.clone();
        }
        service
    }

    fn said(errors: Vec<FieldError>) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    fn balancer(changes: Value) -> Value {
        let mut all = json!({
            "type": "LoadBalancer", "externalTrafficPolicy": "Cluster", "allocateLoadBalancerNodePorts": true,
        });
        for (key, value) in changes.as_object().unwrap() {
            all[key] = value.clone();
        }
        with(all)
    }

    #[test]
    fn each_rule_has_the_real_servers_words() {
        let port = |changes: Value| {
            let mut port = json!({"port": 80, "protocol": "TCP", "targetPort": 80});
            for (key, value) in changes.as_object().unwrap() {
                port[key] = value.clone();
            }
            with(json!({"ports": [port]}))
        };
        let cases: Vec<(Value, &[&str])> = vec![
            (with(json!({})), &[]),
            (balancer(json!({})), &[]),
            (with(json!({"ports": []})), &["spec.ports: Required value"]),
            (with(json!({"ports": [], "clusterIP": "None", "clusterIPs": ["None"]})), &[]),
            (
                port(json!({"port": 0})),
                &["spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive"],
            ),
            (
                port(json!({"port": 65536})),
                &[
                    "spec.ports[0].port: Invalid value: 65536: must be between 1 and 65535, inclusive",
                ],
            ),
            (
                port(json!({"port": -1})),
                &["spec.ports[0].port: Invalid value: -1: must be between 1 and 65535, inclusive"],
            ),
            (
                port(json!({"protocol": "tcp"})),
                &[
                    "spec.ports[0].protocol: Unsupported value: \"tcp\": supported values: \"SCTP\", \"TCP\", \"UDP\"",
                ],
            ),
            (
                port(json!({"targetPort": "a--b"})),
                &[
                    "spec.ports[0].targetPort: Invalid value: \"a--b\": must not contain consecutive hyphens",
                ],
            ),
            (
                port(json!({"targetPort": 70000})),
                &[
                    "spec.ports[0].targetPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
                ],
            ),
            (
                port(json!({"nodePort": 30000})),
                &["spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"],
            ),
            (
                with(json!({"ports": [
                {"port": 80, "protocol": "TCP", "targetPort": 80}, {"name": "b", "port": 80, "protocol": "TCP", "targetPort": 80}]})),
                &[
                    "spec.ports[0].name: Required value",
                    "spec.ports[1]: Duplicate value: {\"Name\":\"\",\"Protocol\":\"TCP\",\"AppProtocol\":null,\"Port\":80,\
                \"TargetPort\":0,\"NodePort\":0}",
                ],
            ),
            (
                with(json!({"ports": [
                {"name": "a", "port": 80, "protocol": "TCP", "targetPort": 80}, {"name": "a", "port": 81, "protocol": "TCP", "targetPort": 80}]})),
                &["spec.ports[1].name: Duplicate value: \"a\""],
            ),
            (
                with(json!({"type": "Weird"})),
                &[
                    "spec.type: Unsupported value: \"Weird\": supported values: \"ClusterIP\", \"ExternalName\", \
                \"LoadBalancer\", \"NodePort\"",
                ],
            ),
            (
                balancer(json!({"clusterIP": "None", "clusterIPs": ["None"]})),
                &[
                    "spec.clusterIPs[0]: Invalid value: \"None\": may not be set to 'None' for LoadBalancer services",
                ],
            ),
            (
                with(json!({"clusterIP": "10.96.0.8"})),
                &[
                    "spec.clusterIPs: Invalid value: [\"10.96.0.9\"]: first value must match `clusterIP`",
                ],
            ),
            (
                with(json!({"clusterIP": "nope", "clusterIPs": ["nope"]})),
                &[
                    "spec.clusterIPs[0]: Invalid value: \"nope\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
                ],
            ),
            (
                with(json!({"clusterIPs": ["10.96.0.9", "10.96.0.10"]})),
                &[
                    "spec.clusterIPs: Invalid value: [\"10.96.0.9\",\"10.96.0.10\"]: may specify no more than one IP for each IP family",
                ],
            ),
            (
                with(json!({"ipFamilies": ["IPv6"]})),
                &[
                    "spec.clusterIPs[0]: Invalid value: \"10.96.0.9\": expected an IPv6 value as indicated by `ipFamilies[0]`",
                ],
            ),
            (
                with(json!({"ipFamilies": ["IPv4", "IPv4"]})),
                &["spec.ipFamilies[1]: Duplicate value: \"IPv4\""],
            ),
            (
                with(json!({"externalIPs": ["127.0.0.1"], "externalTrafficPolicy": "Cluster"})),
                &[
                    "spec.externalIPs[0]: Invalid value: \"127.0.0.1\": may not be in the loopback range (127.0.0.0/8, ::1/128)",
                ],
            ),
            (
                with(json!({"loadBalancerSourceRanges": ["10.0.0.0/8"]})),
                &[
                    "spec.LoadBalancerSourceRanges: Forbidden: may only be used when `type` is 'LoadBalancer'",
                ],
            ),
            (
                balancer(json!({"loadBalancerSourceRanges": [" 10.0.0.0/8 ", "x"]})),
                &[
                    "spec.LoadBalancerSourceRanges[1]: Invalid value: \"x\": must be a valid CIDR value, (e.g. 10.9.8.0/24 \
                or 2001:db8::/64)",
                ],
            ),
            (
                with(json!({"loadBalancerClass": "a/b"})),
                &[
                    "spec.loadBalancerClass: Forbidden: may only be used when `type` is 'LoadBalancer'",
                ],
            ),
            (balancer(json!({"loadBalancerClass": "bowline.dev/lb"})), &[]),
            (
                with(json!({"allocateLoadBalancerNodePorts": true})),
                &[
                    "spec.allocateLoadBalancerNodePorts: Forbidden: may only be used when `type` is 'LoadBalancer'",
                ],
            ),
            (
                with(json!({"externalTrafficPolicy": "Local"})),
                &[
                    "spec.externalTrafficPolicy: Invalid value: \"Local\": may only be set for externally-accessible services",
                ],
            ),
            (balancer(json!({"externalTrafficPolicy": "Local"})), &[]),
            (
                balancer(json!({"externalTrafficPolicy": "Local", "healthCheckNodePort": 70000})),
                &[
                    "spec.healthCheckNodePort: Invalid value: 70000: must be between 1 and 65535, inclusive",
                ],
            ),
            (
                balancer(json!({"healthCheckNodePort": 31000})),
                &[
                    "spec.healthCheckNodePort: Invalid value: 31000: may only be set when `type` is 'LoadBalancer' and \
                `externalTrafficPolicy` is 'Local'",
                ],
            ),
            (
                with(
                    json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 0}}}),
                ),
                &[
                    "spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: 0: must be greater than 0 and less \
                than 86400",
                ],
            ),
            (
                with(json!({"trafficDistribution": "Far"})),
                &[
                    "spec.trafficDistribution: Unsupported value: \"Far\": supported values: \"PreferClose\", \
                \"PreferSameZone\", \"PreferSameNode\"",
                ],
            ),
            (
                json!({"spec": {"type": "ExternalName", "sessionAffinity": "None", "externalName": "a.example.",
                "clusterIPs": ["10.96.0.1"], "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack"}}),
                &[
                    "spec.clusterIPs: Forbidden: may not be set for ExternalName services",
                    "spec.ipFamilies: Forbidden: may not be set for ExternalName services",
                    "spec.ipFamilyPolicy: Forbidden: may not be set for ExternalName services",
                ],
            ),
            (
                json!({"spec": {"type": "ExternalName", "sessionAffinity": "None"}}),
                &["spec.externalName: Required value"],
            ),
        ];
        for (service, expected) in cases {
            assert_eq!(said(super::service(&service, None)), expected, "{service}");
        }
    }

    #[test]
    fn addresses_and_classes_may_not_change() {
        let old = balancer(json!({"loadBalancerClass": "a/b"}));
        let change = |changes: Value| said(service(&balancer(changes), Some(&old)));
        assert_eq!(change(json!({"loadBalancerClass": "a/b"})), Vec::<String>::new());
        assert_eq!(
            change(
                json!({"loadBalancerClass": "a/b", "clusterIP": "10.96.0.10", "clusterIPs": ["10.96.0.10"]})
            ),
            ["spec.clusterIPs[0]: Invalid value: [\"10.96.0.10\"]: may not change once set"]
        );
        assert_eq!(
            change(json!({"loadBalancerClass": "a/c"})),
            ["spec.loadBalancerClass: Invalid value: \"a/c\": may not change once set"]
        );
        assert_eq!(
            change(json!({})),
            ["spec.loadBalancerClass: Invalid value: null: may not change once set"]
        );
        assert_eq!(
            change(json!({"loadBalancerClass": "a/b", "clusterIP": null, "clusterIPs": null})),
            ["spec.clusterIPs[0]: Invalid value: []: primary clusterIP can not be unset",]
        );
    }

    #[test]
    fn nothing_panics_on_values_of_the_wrong_type() {
        for spec in [
            json!(null),
            json!(1),
            json!([]),
            json!({"ports": {"a": 1}, "type": [], "clusterIPs": "x"}),
        ] {
            let object = json!({"spec": spec, "status": []});
            service(&object, Some(&object));
        }
    }
}
