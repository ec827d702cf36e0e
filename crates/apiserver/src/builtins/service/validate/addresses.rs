//! The validation of a Service's cluster addresses and IP families. It does no I/O.

use super::super::super::fields::{Findings, text, texts};
use super::super::super::ip;
use super::super::{EXTERNAL_NAME, is_headless, kind};
use crate::error::FieldError;
use serde_json::{Value, json};

/// Validates `clusterIP`, `clusterIPs`, `ipFamilies` and `ipFamilyPolicy`, alone and together.
pub(in crate::builtins::service) fn cluster_ips(
    object: &Value,
    old: Option<&Value>,
) -> Vec<FieldError> {
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
