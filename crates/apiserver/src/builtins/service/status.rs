//! The validation of a Service's status. Part of it is used for Ingresses too. It does no I/O.

use super::super::fields::{Findings, list, text};
use super::super::ip;
use super::{LOAD_BALANCER, kind};
use crate::error::FieldError;
use crate::names;
use serde_json::{Value, json};

pub(super) fn status(object: &Value, old: &Value) -> Vec<FieldError> {
    let mut found = Findings::default();
    let ingress = list(&object["status"]["loadBalancer"], "ingress");
    let at = "status.loadBalancer.ingress";
    if kind(object) != LOAD_BALANCER && !ingress.is_empty() {
        found.forbidden(at, "may only be used when `spec.type` is 'LoadBalancer'");
        return found.done();
    }
    let known = known_ips(old);
    for (i, entry) in ingress.iter().enumerate() {
        let at = format!("{at}[{i}]");
        let ip = text(entry, "ip");
        if !ip.is_empty() {
            found.extend(ip::check(&format!("{at}.ip"), ip, &known));
        }
        let field = format!("{at}.ipMode");
        match entry["ipMode"].as_str() {
            None if ip.is_empty() => {}
            None => found.required(field, "must be specified when `ip` is set"),
            Some(_) if ip.is_empty() => {
                found.forbidden(field, "may not be specified when `ip` is not set");
            }
            Some(mode) if !["Proxy", "VIP"].contains(&mode) => {
                found.push(FieldError::not_supported(field, &json!(mode), &["Proxy", "VIP"]));
            }
            Some(_) => {}
        }
        check_hostname(text(entry, "hostname"), &format!("{at}.hostname"), &mut found);
    }
    found.done()
}

/// The addresses in the old status.
pub(in super::super) fn known_ips(old: &Value) -> Vec<&str> {
    let entries = list(&old["status"]["loadBalancer"], "ingress").iter();
    entries.map(|entry| text(entry, "ip")).filter(|ip| !ip.is_empty()).collect()
}

/// Validates the hostname of a load balancer.
pub(in super::super) fn check_hostname(name: &str, field: &str, found: &mut Findings) {
    if name.is_empty() {
        return;
    }
    found.each(field, name, names::is_dns1123_subdomain(name));
    if ip::parse(name).is_some() {
        found.invalid(field, name, "must be a DNS name, not an IP address");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(errors: Vec<FieldError>) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_load_balancer_status_is_for_load_balancers_and_well_formed() {
        let status = |kind: &str, ingress: Value| {
            let object =
                json!({"spec": {"type": kind}, "status": {"loadBalancer": {"ingress": ingress}}});
            said(super::status(&object, &json!({})))
        };
        assert_eq!(status("ClusterIP", json!([])), Vec::<String>::new());
        assert_eq!(
            status("ClusterIP", json!([{"ip": "192.0.2.1"}])),
            [
                "status.loadBalancer.ingress: Forbidden: may only be used when `spec.type` is 'LoadBalancer'"
            ]
        );
        assert_eq!(
            status(
                "LoadBalancer",
                json!([{"ip": "192.0.2.1", "ipMode": "VIP"}, {"hostname": "a.example"}])
            ),
            Vec::<String>::new()
        );
        assert_eq!(
            status(
                "LoadBalancer",
                json!([
                {"ip": "192.0.2.1"}, {"hostname": "a", "ipMode": "VIP"}, {"ip": "192.0.2.1", "ipMode": "Other"},
                {"ip": "x", "ipMode": "VIP"}, {"hostname": "1.2.3.4"}, {"hostname": "A_b"}])
            ),
            [
                "status.loadBalancer.ingress[0].ipMode: Required value: must be specified when `ip` is set",
                "status.loadBalancer.ingress[1].ipMode: Forbidden: may not be specified when `ip` is not set",
                "status.loadBalancer.ingress[2].ipMode: Unsupported value: \"Other\": supported values: \"Proxy\", \"VIP\"",
                "status.loadBalancer.ingress[3].ip: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
                "status.loadBalancer.ingress[4].hostname: Invalid value: \"1.2.3.4\": must be a DNS name, not an IP address",
                "status.loadBalancer.ingress[5].hostname: Invalid value: \"A_b\": a lowercase RFC 1123 subdomain must \
                 consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric \
                 character (e.g. 'example.com', regex used for validation is \
                 '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
            ]
        );
    }
}
