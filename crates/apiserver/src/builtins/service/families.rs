//! The IP families of a Service: makes its policy, its families and its requested cluster IPs agree
//! with each other and with the server's networks, before anything is allocated. It does no I/O.

use super::super::fields::{Findings, has, list, put, set, text, texts};
use super::super::ip;
use super::validate::cluster_ips;
use super::{EXTERNAL_NAME, ServiceNetwork, kind, same_list};
use crate::error::FieldError;
use serde_json::{Value, json};

const POLICY: &str = "spec.ipFamilyPolicy";

pub(super) const V4: &str = "IPv4";
pub(super) const V6: &str = "IPv6";

impl ServiceNetwork {
    fn families(&self) -> Vec<&'static str> {
        self.cluster_cidrs.iter().map(|net| if net.addr().is_ipv4() { V4 } else { V6 }).collect()
    }
}

/// Whether a Service that prefers dual stack is written unchanged. Then it neither gains nor loses an
/// address because the server's networks changed.
pub(super) fn unchanged_preference(object: &Value, old: Option<&Value>) -> bool {
    let Some(old) = old else { return false };
    let policy = text(&old["spec"], "ipFamilyPolicy");
    text(&object["spec"], "ipFamilyPolicy") == "PreferDualStack"
        && (policy == "PreferDualStack" || policy.is_empty())
        && kind(object) == kind(old)
        && matches!(kind(object), "ClusterIP" | "NodePort" | "LoadBalancer")
        && same_list(object, old, "clusterIPs")
        && same_list(object, old, "ipFamilies")
}

fn other(family: &str) -> &'static str {
    if family == V4 { V6 } else { V4 }
}

pub(super) fn settle(
    object: &mut Value,
    old: Option<&Value>,
    network: &ServiceNetwork,
) -> Result<(), Vec<FieldError>> {
    if kind(object) == EXTERNAL_NAME || unchanged_preference(object, old) {
        return Ok(());
    }
    let headless_without_selector = text(&object["spec"], "clusterIP") == "None"
        && object["spec"]["selector"].as_object().is_none_or(|s| s.is_empty());
    if !has(&object["spec"], "ipFamilyPolicy") {
        let inherited = old.map(|old| old["spec"]["ipFamilyPolicy"].clone()).unwrap_or_default();
        let policy = match inherited {
            Value::Null if headless_without_selector => json!("RequireDualStack"),
            Value::Null => json!("SingleStack"),
            inherited => inherited,
        };
        set(&mut object["spec"], "ipFamilyPolicy", policy);
    }
    let wrong = cluster_ips(object, old);
    if !wrong.is_empty() {
        return Err(wrong);
    }
    let policy = object["spec"]["ipFamilyPolicy"].clone();
    let single = policy == "SingleStack";
    let mut found = Findings::default();
    if let Some(old) = old {
        release_second(object, old, single, &policy, &mut found);
    }
    if single {
        for (field, what) in [("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families")] {
            if list(&object["spec"], field).len() == 2 {
                found.invalid(
                    POLICY,
                    policy.clone(),
                    format!(
                        "must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified"
                    ),
                );
            }
        }
    }
    let configured = network.families();
    infer_from_addresses(object, &configured, &mut found);
    if !found.none() {
        return Err(found.done());
    }

    let mut families: Vec<String> =
        texts(&object["spec"], "ipFamilies").into_iter().map(str::to_owned).collect();
    let default_family = configured.first().copied().unwrap_or(V4);
    if headless_without_selector {
        // Only the writer knows the endpoints of a headless Service without a selector.
        if families.is_empty() {
            families.push(default_family.to_owned());
        }
        if families.len() < 2 && !single {
            families.push(other(&families[0]).to_owned());
        }
        put(&mut object["spec"], "ipFamilies", json!(families));
        return Ok(());
    }
    if policy == "RequireDualStack" && configured.len() < 2 {
        found.invalid(POLICY, policy, "this cluster is not configured for dual-stack services");
    }
    for (i, family) in families.iter().enumerate() {
        if !configured.contains(&family.as_str()) {
            found.invalid(
                format!("spec.ipFamilies[{i}]"),
                family.as_str(),
                "not configured on this cluster",
            );
        }
    }
    if !found.none() {
        return Err(found.done());
    }
    if families.is_empty() {
        families.push(default_family.to_owned());
    }
    if !single && families.len() == 1 && configured.len() == 2 {
        families.push(other(&families[0]).to_owned());
    }
    put(&mut object["spec"], "ipFamilies", json!(families));
    Ok(())
}

/// A change to a single stack releases the second address. Any other removal is an error.
fn release_second(
    object: &mut Value,
    old: &Value,
    single: bool,
    policy: &Value,
    found: &mut Findings,
) {
    for (field, what) in [("clusterIPs", "cluster IP"), ("ipFamilies", "IP family")] {
        let (now, before) = (list(&object["spec"], field).len(), list(&old["spec"], field).len());
        if single {
            if same_list(object, old, field) && now > 1 {
                let first = json!([object["spec"][field][0]]);
                set(&mut object["spec"], field, first);
            }
        } else if now != 0 && now < before {
            found.invalid(
                POLICY,
                policy.clone(),
                format!("must be 'SingleStack' to release the secondary {what}"),
            );
        }
    }
}

fn infer_from_addresses(object: &mut Value, configured: &[&str], found: &mut Findings) {
    let ips = object["spec"]["clusterIPs"].clone();
    let mut families = list(&object["spec"], "ipFamilies").to_vec();
    for (i, ip) in ips.as_array().into_iter().flatten().filter_map(Value::as_str).enumerate() {
        if ip == "None" {
            break;
        }
        let family = if ip::is_v6(ip) { V6 } else { V4 };
        if i < families.len() {
            continue;
        }
        if configured.contains(&family) {
            families.push(json!(family));
        } else {
            found.invalid(
                format!("spec.clusterIPs[{i}]"),
                ips.clone(),
                format!("{family} is not configured on this cluster"),
            );
        }
    }
    if !families.is_empty() {
        set(&mut object["spec"], "ipFamilies", json!(families));
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::network;
    use super::*;

    fn settled(spec: Value, old: Option<Value>, cidrs: &[&str]) -> Result<Value, String> {
        let mut service = json!({"spec": spec});
        let old = old.map(|spec| json!({"spec": spec}));
        match settle(&mut service, old.as_ref(), &network(cidrs)) {
            Ok(()) => Ok(json!([service["spec"]["ipFamilyPolicy"], service["spec"]["ipFamilies"]])),
            Err(errors) => {
                Err(errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
            }
        }
    }

    const ONE: &[&str] = &["10.96.0.0/12"];
    const TWO: &[&str] = &["10.96.0.0/12", "fd00::/108"];

    #[test]
    fn a_service_is_single_stack_unless_it_asks() {
        for (spec, cidrs, expected) in [
            (json!({"type": "ClusterIP"}), ONE, json!(["SingleStack", ["IPv4"]])),
            (json!({"type": "ClusterIP"}), TWO, json!(["SingleStack", ["IPv4"]])),
            (
                json!({"type": "ClusterIP", "ipFamilies": ["IPv6"]}),
                TWO,
                json!(["SingleStack", ["IPv6"]]),
            ),
            (
                json!({"type": "ClusterIP", "ipFamilyPolicy": "PreferDualStack"}),
                ONE,
                json!(["PreferDualStack", ["IPv4"]]),
            ),
            (
                json!({"type": "ClusterIP", "ipFamilyPolicy": "PreferDualStack"}),
                TWO,
                json!(["PreferDualStack", ["IPv4", "IPv6"]]),
            ),
            (
                json!({"type": "ClusterIP", "clusterIP": "None", "clusterIPs": ["None"]}),
                ONE,
                json!(["RequireDualStack", ["IPv4", "IPv6"]]),
            ),
            (
                json!({"type": "ClusterIP", "clusterIP": "None", "clusterIPs": ["None"], "selector": {"a": "b"}}),
                ONE,
                json!(["SingleStack", ["IPv4"]]),
            ),
            (json!({"type": "ExternalName"}), ONE, json!([null, null])),
            (
                json!({"type": "ClusterIP", "clusterIP": "fd00::5", "clusterIPs": ["fd00::5"]}),
                TWO,
                json!(["SingleStack", ["IPv6"]]),
            ),
        ] {
            assert_eq!(settled(spec.clone(), None, cidrs), Ok(expected), "{spec}");
        }
    }

    #[test]
    fn what_this_server_has_no_network_for_is_refused() {
        for (spec, expected) in [
            (
                json!({"type": "ClusterIP", "ipFamilyPolicy": "RequireDualStack"}),
                "spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": this cluster is not configured for \
                 dual-stack services",
            ),
            (
                json!({"type": "ClusterIP", "ipFamilies": ["IPv6"]}),
                "spec.ipFamilies[0]: Invalid value: \"IPv6\": not configured on this cluster",
            ),
            (
                json!({"type": "ClusterIP", "clusterIP": "fd00::5", "clusterIPs": ["fd00::5"]}),
                "spec.clusterIPs[0]: Invalid value: [\"fd00::5\"]: IPv6 is not configured on this cluster",
            ),
            (
                json!({"type": "ClusterIP", "ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4", "IPv6"]}),
                "spec.ipFamilyPolicy: Invalid value: \"SingleStack\": must be 'RequireDualStack' or \
                 'PreferDualStack' when multiple IP families are specified",
            ),
        ] {
            assert_eq!(settled(spec, None, ONE), Err(expected.to_owned()));
        }
    }

    #[test]
    fn a_second_address_is_released_only_by_asking_for_a_single_stack() {
        let old = json!({
            "type": "ClusterIP", "ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"],
            "clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9", "fd00::9"],
        });
        let mut new = old.clone();
        new["ipFamilyPolicy"] = json!("SingleStack");
        assert_eq!(settled(new, Some(old.clone()), TWO), Ok(json!(["SingleStack", ["IPv4"]])));
        let mut new = old.clone();
        new["clusterIPs"] = json!(["10.96.0.9"]);
        assert_eq!(
            settled(new, Some(old), TWO),
            Err("spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": must be 'SingleStack' to release the \
                 secondary cluster IP"
                .to_owned())
        );
    }
}
