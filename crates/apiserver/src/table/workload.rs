//! The cells of the other built-in kinds: Deployments, StatefulSets, Nodes, Namespaces, Leases,
//! Events, ConfigMaps, Secrets and role bindings.

use super::{list, number, or, since, text};
use crate::selector::LabelSelector;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeSet;

pub(super) fn ready(object: &Value, _now: Timestamp) -> Value {
    let ready = number(&object["status"]["readyReplicas"]);
    json!(format!("{ready}/{}", number(&object["spec"]["replicas"])))
}

pub(super) fn up_to_date(deployment: &Value, _now: Timestamp) -> Value {
    json!(number(&deployment["status"]["updatedReplicas"]))
}

pub(super) fn available(deployment: &Value, _now: Timestamp) -> Value {
    json!(number(&deployment["status"]["availableReplicas"]))
}

pub(super) fn containers(object: &Value, _now: Timestamp) -> Value {
    of_containers(object, "name")
}

pub(super) fn images(object: &Value, _now: Timestamp) -> Value {
    of_containers(object, "image")
}

fn of_containers(object: &Value, field: &str) -> Value {
    let containers = list(&object["spec"]["template"]["spec"]["containers"]);
    json!(containers.iter().map(|container| text(&container[field])).collect::<Vec<_>>().join(","))
}

pub(super) fn selector(deployment: &Value, _now: Timestamp) -> Value {
    let selector = LabelSelector::from_label_selector(&deployment["spec"]["selector"]);
    json!(selector.map_or_else(|_| "<invalid>".to_owned(), |selector| selector.to_string()))
}

pub(super) fn phase(object: &Value, _now: Timestamp) -> Value {
    json!(text(&object["status"]["phase"]))
}

pub(super) fn lease_holder(lease: &Value, _now: Timestamp) -> Value {
    json!(text(&lease["spec"]["holderIdentity"]))
}

pub(super) fn config_data(config: &Value, _now: Timestamp) -> Value {
    json!(members(&config["data"]) + members(&config["binaryData"]))
}

pub(super) fn secret_type(secret: &Value, _now: Timestamp) -> Value {
    json!(text(&secret["type"]))
}

pub(super) fn secret_data(secret: &Value, _now: Timestamp) -> Value {
    json!(members(&secret["data"]))
}

fn members(map: &Value) -> usize {
    map.as_object().map_or(0, serde_json::Map::len)
}

pub(super) fn role_ref(binding: &Value, _now: Timestamp) -> Value {
    let role = &binding["roleRef"];
    json!(format!("{}/{}", text(&role["kind"]), text(&role["name"])))
}

pub(super) fn users(binding: &Value, _now: Timestamp) -> Value {
    subjects(binding, "User")
}

pub(super) fn groups(binding: &Value, _now: Timestamp) -> Value {
    subjects(binding, "Group")
}

pub(super) fn accounts(binding: &Value, _now: Timestamp) -> Value {
    subjects(binding, "ServiceAccount")
}

fn subjects(binding: &Value, kind: &str) -> Value {
    let subject = |subject: &Value| match kind {
        "ServiceAccount" => {
            format!("{}/{}", text(&subject["namespace"]), text(&subject["name"]))
        }
        _ => text(&subject["name"]).to_owned(),
    };
    let all = list(&binding["subjects"]).iter().filter(|s| s["kind"] == kind).map(subject);
    json!(all.collect::<Vec<_>>().join(", "))
}

pub(super) fn node_status(node: &Value, _now: Timestamp) -> Value {
    let ready = list(&node["status"]["conditions"]).iter().rfind(|c| c["type"] == "Ready");
    let mut status = match ready {
        Some(condition) if condition["status"] == "True" => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if node["spec"]["unschedulable"] == true {
        status.push_str(",SchedulingDisabled");
    }
    json!(status)
}

pub(super) fn node_roles(node: &Value, _now: Timestamp) -> Value {
    let labels = node["metadata"]["labels"].as_object().into_iter().flatten();
    let roles: BTreeSet<&str> = labels
        .filter_map(|(key, value)| match key.as_str() {
            "kubernetes.io/role" => Some(text(value)),
            key => key.strip_prefix("node-role.kubernetes.io/"),
        })
        .filter(|role| !role.is_empty())
        .collect();
    json!(or(&roles.into_iter().collect::<Vec<_>>().join(","), "<none>"))
}

pub(super) fn node_version(node: &Value, _now: Timestamp) -> Value {
    json!(text(&node["status"]["nodeInfo"]["kubeletVersion"]))
}

pub(super) fn node_internal_ip(node: &Value, _now: Timestamp) -> Value {
    node_address(node, "InternalIP")
}

pub(super) fn node_external_ip(node: &Value, _now: Timestamp) -> Value {
    node_address(node, "ExternalIP")
}

fn node_address(node: &Value, type_: &str) -> Value {
    let address = list(&node["status"]["addresses"]).iter().find(|a| a["type"] == type_);
    json!(address.map_or("<none>", |address| text(&address["address"])))
}

pub(super) fn node_os(node: &Value, _now: Timestamp) -> Value {
    json!(or(text(&node["status"]["nodeInfo"]["osImage"]), "<unknown>"))
}

pub(super) fn node_kernel(node: &Value, _now: Timestamp) -> Value {
    let info = &node["status"]["nodeInfo"];
    let version = or(text(&info["kernelVersion"]), "<unknown>");
    json!(match text(&info["architecture"]) {
        "" => version.to_owned(),
        architecture => format!("{version} ({architecture})"),
    })
}

pub(super) fn node_runtime(node: &Value, _now: Timestamp) -> Value {
    json!(or(text(&node["status"]["nodeInfo"]["containerRuntimeVersion"]), "<unknown>"))
}

/// A field of an Event, which has another name in `events.k8s.io`.
fn either<'a>(event: &'a Value, core: &str, new: &str) -> &'a Value {
    if event[core].is_null() { &event[new] } else { &event[core] }
}

pub(super) fn event_first(event: &Value, now: Timestamp) -> Value {
    let first = either(event, "firstTimestamp", "deprecatedFirstTimestamp");
    json!(since(if first.is_null() { &event["eventTime"] } else { first }, now))
}

pub(super) fn event_last(event: &Value, now: Timestamp) -> Value {
    if event["series"].is_object() {
        return json!(since(&event["series"]["lastObservedTime"], now));
    }
    let last = either(event, "lastTimestamp", "deprecatedLastTimestamp");
    if last.is_null() { event_first(event, now) } else { json!(since(last, now)) }
}

pub(super) fn event_type(event: &Value, _now: Timestamp) -> Value {
    json!(text(&event["type"]))
}

pub(super) fn event_reason(event: &Value, _now: Timestamp) -> Value {
    json!(text(&event["reason"]))
}

pub(super) fn event_object(event: &Value, _now: Timestamp) -> Value {
    let object = either(event, "involvedObject", "regarding");
    let kind = text(&object["kind"]).to_lowercase();
    json!(match text(&object["name"]) {
        "" => kind,
        name => format!("{kind}/{name}"),
    })
}

pub(super) fn event_field_path(event: &Value, _now: Timestamp) -> Value {
    json!(text(&either(event, "involvedObject", "regarding")["fieldPath"]))
}

pub(super) fn event_source(event: &Value, _now: Timestamp) -> Value {
    let source = either(event, "source", "deprecatedSource");
    let controller = text(either(event, "reportingComponent", "reportingController"));
    let component = or(text(&source["component"]), controller);
    json!(match or(text(&source["host"]), text(&event["reportingInstance"])) {
        "" => component.to_owned(),
        instance => format!("{component}, {instance}"),
    })
}

pub(super) fn event_message(event: &Value, _now: Timestamp) -> Value {
    json!(text(either(event, "message", "note")).trim())
}

pub(super) fn event_count(event: &Value, _now: Timestamp) -> Value {
    if event["series"].is_object() {
        return json!(number(&event["series"]["count"]));
    }
    json!(number(either(event, "count", "deprecatedCount")).max(1))
}
