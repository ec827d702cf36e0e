//! The validation of Services, in kube-apiserver's order and words. It does no I/O.

mod addresses;
mod changes;
mod ports;

pub(super) use addresses::cluster_ips;
pub(in super::super) use ports::check_port;

use super::super::fields::{Findings, has, int, list, text, texts};
use super::super::ip;
use super::super::metadata::check_labels;
use super::{
    EXTERNAL_NAME, LOAD_BALANCER, externally_accessible, is_headless, kind, needs_health_check,
};
use crate::error::FieldError;
use crate::names;
use changes::changes;
use ports::{port_numbers, service_port};
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
        // A node port that is not requested is allocated after validation.
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

#[cfg(test)]
mod tests;
