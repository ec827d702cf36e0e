//! The validation of fields of a Service that must not change once they are set. It does no I/O.

use super::super::super::fields::{Findings, int, list};
use super::super::{EXTERNAL_NAME, LOAD_BALANCER, is_headless, kind, needs_health_check};
use serde_json::{Value, json};

/// Validates the changes of a Service.
pub(super) fn changes(object: &Value, old: &Value, found: &mut Findings) {
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

/// Validates a list of at most one value per family: the first must stay; a second may be added,
/// and removed with `SingleStack`.
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
    // For families, kube-apiserver's message shows the addresses.
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
