//! The warnings for the writer of a Service that is accepted. It does no I/O.

use super::super::fields::{has, text, texts};
use super::super::ip;
use super::validate::{TOPOLOGY_HINTS, TOPOLOGY_MODE};
use super::{EXTERNAL_NAME, kind};
use serde_json::Value;

pub(super) fn warnings(object: &Value) -> Vec<String> {
    let spec = &object["spec"];
    let mut out = Vec::new();
    if has(&object["metadata"]["annotations"], TOPOLOGY_HINTS) {
        out.push(format!(
            "annotation {TOPOLOGY_HINTS} is deprecated, please use {TOPOLOGY_MODE} instead"
        ));
    }
    let headless = kind(object) == "ClusterIP" && text(spec, "clusterIP") == "None";
    if !headless {
        for (i, ip) in texts(spec, "clusterIPs").into_iter().enumerate() {
            out.extend(ip::warnings(&format!("spec.clusterIPs[{i}]"), ip));
        }
    }
    let external_ips = texts(spec, "externalIPs");
    if headless {
        if !text(spec, "loadBalancerIP").is_empty() {
            out.push("spec.loadBalancerIP is ignored for headless services".to_owned());
        }
        if !external_ips.is_empty() {
            out.push("spec.externalIPs is ignored for headless services".to_owned());
        }
        if text(spec, "sessionAffinity") != "None" {
            out.push("spec.SessionAffinity is ignored for headless services".to_owned());
        }
    }
    for (i, ip) in external_ips.iter().enumerate() {
        out.extend(ip::warnings(&format!("spec.externalIPs[{i}]"), ip));
    }
    if !external_ips.is_empty() && !headless && kind(object) != EXTERNAL_NAME {
        out.push(
            "spec.externalIPs is deprecated and may no longer be implemented in some clusters"
                .to_owned(),
        );
    }
    out.extend(ip::warnings("spec.loadBalancerIP", text(spec, "loadBalancerIP")));
    for (i, range) in texts(spec, "loadBalancerSourceRanges").into_iter().enumerate() {
        out.extend(ip::cidr_warnings(&format!("spec.loadBalancerSourceRanges[{i}]"), range));
    }
    if kind(object) == EXTERNAL_NAME && !external_ips.is_empty() {
        out.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".to_owned());
    }
    if kind(object) != EXTERNAL_NAME && !text(spec, "externalName").is_empty() {
        out.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned());
    }
    if spec["trafficDistribution"] == "PreferClose" {
        out.push(
            "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\""
                .to_owned(),
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn odd_services_are_warned_about() {
        assert_eq!(
            warnings(
                &json!({"spec": {"type": "ClusterIP", "clusterIP": "None", "sessionAffinity": "ClientIP",
                "externalIPs": ["192.0.2.1"], "trafficDistribution": "PreferClose"}})
            ),
            [
                "spec.externalIPs is ignored for headless services",
                "spec.SessionAffinity is ignored for headless services",
                "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"",
            ]
        );
    }
}
