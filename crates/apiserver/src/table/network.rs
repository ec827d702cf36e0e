//! The cells of Services, Endpoints, EndpointSlices, Ingresses and their classes.

use super::{first_three, list, number, or, text};
use crate::meta;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeSet;

pub(super) fn service_type(service: &Value, _now: Timestamp) -> Value {
    json!(text(&service["spec"]["type"]))
}

pub(super) fn cluster_ip(service: &Value, _now: Timestamp) -> Value {
    let first = text(&service["spec"]["clusterIPs"][0]);
    json!(or(or(first, text(&service["spec"]["clusterIP"])), "<none>"))
}

pub(super) fn external_ip(service: &Value, _now: Timestamp) -> Value {
    let spec = &service["spec"];
    let external: Vec<&str> = list(&spec["externalIPs"]).iter().map(text).collect();
    json!(match text(&spec["type"]) {
        "ClusterIP" | "NodePort" => or(&external.join(","), "<none>").to_owned(),
        "LoadBalancer" => {
            let balanced = ingress_points(service);
            let all: Vec<&str> = balanced.iter().copied().chain(external).collect();
            or(&all.join(","), "<pending>").to_owned()
        }
        "ExternalName" => text(&spec["externalName"]).to_owned(),
        _ => "<unknown>".to_owned(),
    })
}

/// The addresses and hostnames of a load balancer status, sorted, without duplicates.
fn ingress_points(object: &Value) -> BTreeSet<&str> {
    list(&object["status"]["loadBalancer"]["ingress"])
        .iter()
        .map(|point| or(text(&point["ip"]), text(&point["hostname"])))
        .filter(|point| !point.is_empty())
        .collect()
}

pub(super) fn service_ports(service: &Value, _now: Timestamp) -> Value {
    let port = |port: &Value| {
        let (number_, protocol) = (number(&port["port"]), or(text(&port["protocol"]), "TCP"));
        match number(&port["nodePort"]) {
            0 => format!("{number_}/{protocol}"),
            node => format!("{number_}:{node}/{protocol}"),
        }
    };
    let ports: Vec<String> = list(&service["spec"]["ports"]).iter().map(port).collect();
    json!(or(&ports.join(","), "<none>"))
}

pub(super) fn service_selector(service: &Value, _now: Timestamp) -> Value {
    let selector = service["spec"]["selector"].as_object();
    let mut labels: Vec<String> = selector
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", text(value)))
        .collect();
    labels.sort();
    json!(or(&labels.join(","), "<none>"))
}

pub(super) fn endpoints(endpoints: &Value, _now: Timestamp) -> Value {
    let subsets = list(&endpoints["subsets"]);
    if subsets.is_empty() {
        return json!("<none>");
    }
    let mut all = Vec::new();
    for subset in subsets {
        let addresses = || list(&subset["addresses"]).iter().map(|address| text(&address["ip"]));
        let ports = list(&subset["ports"]);
        if ports.is_empty() {
            all.extend(addresses().map(str::to_owned));
        }
        for port in ports {
            let port = number(&port["port"]);
            all.extend(addresses().map(|ip| match ip.contains(':') {
                true => format!("[{ip}]:{port}"),
                false => format!("{ip}:{port}"),
            }));
        }
    }
    json!(first_three(&all, ""))
}

pub(super) fn address_type(slice: &Value, _now: Timestamp) -> Value {
    json!(text(&slice["addressType"]))
}

pub(super) fn slice_ports(slice: &Value, _now: Timestamp) -> Value {
    let port = |port: &Value| match (&port["port"], &port["name"]) {
        (Value::Number(number), _) => number.to_string(),
        (_, Value::String(name)) => name.clone(),
        _ => "*".to_owned(),
    };
    let ports: Vec<String> = list(&slice["ports"]).iter().map(port).collect();
    json!(or(&first_three(&ports, ""), "<unset>"))
}

pub(super) fn slice_endpoints(slice: &Value, _now: Timestamp) -> Value {
    let addresses: Vec<String> = list(&slice["endpoints"])
        .iter()
        .flat_map(|endpoint| list(&endpoint["addresses"]))
        .map(|address| text(address).to_owned())
        .collect();
    json!(first_three(&addresses, "<unset>"))
}

pub(super) fn ingress_class(ingress: &Value, _now: Timestamp) -> Value {
    json!(ingress["spec"]["ingressClassName"].as_str().unwrap_or("<none>"))
}

/// The first three hosts. As in kube-apiserver, rules without a host count among the others.
pub(super) fn ingress_hosts(ingress: &Value, _now: Timestamp) -> Value {
    let rules = list(&ingress["spec"]["rules"]);
    let mut hosts = Vec::new();
    for rule in rules {
        if hosts.len() == 3 {
            return json!(format!("{} + {} more...", hosts.join(","), rules.len() - 3));
        }
        hosts.extend(Some(text(&rule["host"])).filter(|host| !host.is_empty()));
    }
    json!(or(&hosts.join(","), "*"))
}

pub(super) fn ingress_address(ingress: &Value, _now: Timestamp) -> Value {
    json!(ingress_points(ingress).into_iter().collect::<Vec<_>>().join(","))
}

pub(super) fn ingress_ports(ingress: &Value, _now: Timestamp) -> Value {
    json!(if list(&ingress["spec"]["tls"]).is_empty() { "80" } else { "80, 443" })
}

pub(super) fn class_name(class: &Value, _now: Timestamp) -> Value {
    let annotation = "ingressclass.kubernetes.io/is-default-class";
    let default = class["metadata"]["annotations"][annotation] == "true";
    json!(format!("{}{}", meta::name(class), if default { " (default)" } else { "" }))
}

pub(super) fn class_controller(class: &Value, _now: Timestamp) -> Value {
    json!(text(&class["spec"]["controller"]))
}

pub(super) fn class_parameters(class: &Value, _now: Timestamp) -> Value {
    let parameters = &class["spec"]["parameters"];
    if !parameters.is_object() {
        return json!("<none>");
    }
    let (kind, name) = (text(&parameters["kind"]), text(&parameters["name"]));
    json!(match parameters["apiGroup"].as_str() {
        Some(group) => format!("{kind}.{group}/{name}"),
        None => format!("{kind}/{name}"),
    })
}
