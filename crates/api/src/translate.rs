//! Translates two spellings that Kubernetes itself does not know into ones it does: `type: IPPerPod` on a Service and
//! `spec.loadBalancer` on an Ingress. The embedded API calls [`translate`] on every write, before any other check. A
//! translation is complete or an error; it never guesses.
//!
//! | written | stored |
//! |---|---|
//! | Service `type: IPPerPod` | `type: LoadBalancer`, `loadBalancerClass: bowline.dev/ip-per-pod` |
//! | the same with `clusterIP: None` | `type: ClusterIP`, annotation `bowline.dev/ip-per-pod: "true"` |
//! | Ingress `loadBalancer: {loadBalancerClaim: {claimName: X}}` | annotation `bowline.dev/load-balancer-claim: X` |
//! | Ingress `loadBalancer: {SOURCE: {…}}` | annotation `bowline.dev/load-balancer-source: {"SOURCE":{…}}` |

use crate::annotation_keys::{
    IP_PER_POD, LOAD_BALANCER, LOAD_BALANCER_CLAIM, LOAD_BALANCER_SOURCE,
};
use crate::names::CLASS_IP_PER_POD;
use crate::source::{BareMetalSource, CloudSource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Translates an object that is about to be written. Objects of other kinds, and objects without these
/// spellings, stay as they are. An error names the field and says what is wrong with it; the object is
/// then unchanged.
pub fn translate(group: &str, kind: &str, object: &mut Value) -> Result<(), String> {
    match (group, kind) {
        ("", "Service") => service(object),
        ("networking.k8s.io", "Ingress") => ingress(object),
        _ => Ok(()),
    }
}

fn service(object: &mut Value) -> Result<(), String> {
    let Some(spec) = object.get("spec").and_then(Value::as_object) else { return Ok(()) };
    if spec.get("type").and_then(Value::as_str) != Some("IPPerPod") {
        return Ok(());
    }
    match spec.get("loadBalancerClass") {
        None | Some(Value::Null) => {}
        Some(Value::String(class)) if class == CLASS_IP_PER_POD => {}
        Some(other) => {
            return Err(format!(
                "spec.loadBalancerClass: {other} contradicts type IPPerPod; leave it out"
            ));
        }
    }
    let headless = spec.get("clusterIP").and_then(Value::as_str) == Some("None")
        || spec.get("clusterIPs").and_then(|ips| ips.get(0)).and_then(Value::as_str)
            == Some("None");
    if !headless {
        let spec = member(object, "spec")?;
        spec.insert("type".into(), "LoadBalancer".into());
        spec.insert("loadBalancerClass".into(), CLASS_IP_PER_POD.into());
        return Ok(());
    }
    match annotation(object, IP_PER_POD.name) {
        None | Some("true") => {}
        Some(other) => {
            return Err(format!(
                "metadata.annotations[{}]: {other:?} contradicts type IPPerPod; leave it out",
                IP_PER_POD.name
            ));
        }
    }
    annotations(object)?.insert(IP_PER_POD.name.into(), "true".into());
    let spec = member(object, "spec")?;
    spec.insert("type".into(), "ClusterIP".into());
    spec.remove("loadBalancerClass");
    Ok(())
}

fn ingress(object: &mut Value) -> Result<(), String> {
    let Some(wanted) = object.get("spec").and_then(|spec| spec.get("loadBalancer")) else {
        return Ok(());
    };
    let found = place(wanted)?;
    if found.is_some() {
        // The two keys below may come from an earlier translation of this same field, so the field wins over them. Only
        // a person writes this key.
        if annotation(object, LOAD_BALANCER.name).is_some() {
            return Err(format!(
                "spec.loadBalancer: contradicts the annotation {}; write one of them",
                LOAD_BALANCER.name
            ));
        }
        let annotations = annotations(object)?;
        annotations.remove(LOAD_BALANCER_CLAIM.name);
        annotations.remove(LOAD_BALANCER_SOURCE.name);
        annotations.extend(found.map(|(key, value)| (key.to_owned(), Value::String(value))));
    }
    member(object, "spec")?.remove("loadBalancer");
    Ok(())
}

/// The annotation that stands for `spec.loadBalancer`. None: the field is not set.
fn place(wanted: &Value) -> Result<Option<(&'static str, String)>, String> {
    let members = match wanted {
        Value::Null => return Ok(None),
        Value::Object(members) => members,
        other => return Err(format!("spec.loadBalancer: must be an object, not {}", short(other))),
    };
    const KNOWN: [&str; 4] =
        ["loadBalancerClaim", "gceLoadBalancer", "awsLoadBalancer", "bareMetalLoadBalancer"];
    if let Some(unknown) = members.keys().find(|key| !KNOWN.contains(&key.as_str())) {
        return Err(format!(
            "spec.loadBalancer.{}: unknown field; use one of {}",
            unknown.escape_debug(),
            KNOWN.join(", ")
        ));
    }
    // Clients that know the field write an empty object or null if it is not set.
    let set: Vec<_> = members.iter().filter(|(_, value)| !value.is_null()).collect();
    let (name, value) = match set[..] {
        [] => return Ok(None),
        [one] => one,
        [..] => {
            let names: Vec<_> = set.iter().map(|(name, _)| name.as_str()).collect();
            return Err(format!(
                "spec.loadBalancer: only one of {} may be set",
                names.join(" and ")
            ));
        }
    };
    let field = format!("spec.loadBalancer.{name}");
    let source = match name.as_str() {
        "loadBalancerClaim" => {
            return Ok(Some((LOAD_BALANCER_CLAIM.name, claim_name(&field, value)?)));
        }
        "bareMetalLoadBalancer" => {
            let (source, value) = exactly::<BareMetalSource>(&field, value)?;
            if !is_dns_label(&source.service_name) {
                return Err(format!(
                    "{field}.serviceName: {:?} is not a DNS label",
                    source.service_name
                ));
            }
            value
        }
        _ => {
            let (source, value) = exactly::<CloudSource>(&field, value)?;
            if !is_cloud_name(&source.lb_name) {
                return Err(format!(
                    "{field}.lbName: {:?} is not a name of at most 63 letters, digits and hyphens",
                    source.lb_name
                ));
            }
            value
        }
    };
    let source = Value::Object(Map::from_iter([(name.clone(), source)]));
    Ok(Some((LOAD_BALANCER_SOURCE.name, source.to_string())))
}

fn claim_name(field: &str, value: &Value) -> Result<String, String> {
    let members = value
        .as_object()
        .ok_or_else(|| format!("{field}: must be an object, not {}", short(value)))?;
    if let Some(unknown) = members.keys().find(|key| *key != "claimName") {
        return Err(format!("{field}.{}: unknown field", unknown.escape_debug()));
    }
    match members.get("claimName") {
        Some(Value::String(name)) if is_object_name(name) => Ok(name.clone()),
        Some(Value::String(name)) => {
            Err(format!("{field}.claimName: {name:?} is not the name of an object"))
        }
        Some(other) => Err(format!("{field}.claimName: must be a string, not {}", short(other))),
        None => Err(format!("{field}.claimName: is needed")),
    }
}

/// Reads a source, and refuses fields that it does not have.
fn exactly<T: DeserializeOwned + Serialize>(
    field: &str,
    value: &Value,
) -> Result<(T, Value), String> {
    let read: T = serde_json::from_value(value.clone()).map_err(|e| format!("{field}: {e}"))?;
    let known = serde_json::to_value(&read).map_err(|e| format!("{field}: {e}"))?;
    let written = value.as_object().into_iter().flatten();
    if let Some((unknown, _)) = written.into_iter().find(|(key, _)| known.get(key).is_none()) {
        return Err(format!("{field}.{}: unknown field", unknown.escape_debug()));
    }
    Ok((read, known))
}

fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.get("metadata")?.get("annotations")?.get(key)?.as_str()
}

fn annotations(object: &mut Value) -> Result<&mut Map<String, Value>, String> {
    let slot = member(object, "metadata")?.entry("annotations").or_insert(Value::Null);
    as_object(slot, "metadata.annotations")
}

fn member<'a>(object: &'a mut Value, name: &str) -> Result<&'a mut Map<String, Value>, String> {
    let slot = as_object(object, "object")?.entry(name).or_insert(Value::Null);
    as_object(slot, name)
}

/// An object that can be written; null becomes an empty one.
fn as_object<'a>(slot: &'a mut Value, name: &str) -> Result<&'a mut Map<String, Value>, String> {
    if slot.is_null() {
        *slot = Value::Object(Map::new());
    }
    slot.as_object_mut().ok_or_else(|| format!("{name}: must be an object"))
}

/// The type of a value, for a message; a value may be too large to quote.
fn short(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// A DNS label: the name of a Service, or of a port.
pub(crate) fn is_dns_label(text: &str) -> bool {
    let ends = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    named(text, 63, |c| ends(c) || c == b'-', ends)
}

/// A DNS subdomain: the name of most objects.
pub(crate) fn is_object_name(text: &str) -> bool {
    text.len() <= 253
        && text.split('.').all(|label| {
            let ends = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
            named(label, 253, |c| ends(c) || c == b'-', ends)
        })
}

fn is_cloud_name(text: &str) -> bool {
    let ends = |c: u8| c.is_ascii_alphanumeric();
    named(text, 63, |c| ends(c) || c == b'-', ends)
}

fn named(text: &str, max: usize, middle: impl Fn(u8) -> bool, ends: impl Fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    bytes.len() <= max
        && bytes.iter().all(|c| middle(*c))
        && bytes.first().is_some_and(|c| ends(*c))
        && bytes.last().is_some_and(|c| ends(*c))
}

#[cfg(test)]
mod tests;
