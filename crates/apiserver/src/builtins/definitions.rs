//! The OpenAPI definitions of all built-in kinds, by their Kubernetes names. They come from
//! k8s-openapi's types and are brought into the form that kube-apiserver publishes. Schema compilation
//! and the OpenAPI documents read them; nothing here depends on a request.

use super::merge_keys::{MERGE_KEYS, Row};
use k8s_openapi::api::{
    apps::v1 as apps, authorization::v1 as authorization, autoscaling::v1 as autoscaling,
    coordination::v1 as coordination, core::v1 as core, discovery::v1 as discovery,
    events::v1 as events, networking::v1 as networking, rbac::v1 as rbac,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as apiextensions;
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The path of a definition in an OpenAPI v3 document.
pub const REFERENCE: &str = "#/components/schemas/";

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// Definitions of objects: name, group, version, kind, and whether there is a list kind.
const TOP_LEVEL: &[(&str, &str, &str, &str, bool)] = &[
    ("io.k8s.api.core.v1.ConfigMap", "", "v1", "ConfigMap", true),
    ("io.k8s.api.core.v1.Endpoints", "", "v1", "Endpoints", true),
    ("io.k8s.api.core.v1.Event", "", "v1", "Event", true),
    ("io.k8s.api.core.v1.Namespace", "", "v1", "Namespace", true),
    ("io.k8s.api.core.v1.Node", "", "v1", "Node", true),
    ("io.k8s.api.core.v1.Pod", "", "v1", "Pod", true),
    ("io.k8s.api.core.v1.Secret", "", "v1", "Secret", true),
    ("io.k8s.api.core.v1.Service", "", "v1", "Service", true),
    ("io.k8s.api.core.v1.ServiceAccount", "", "v1", "ServiceAccount", true),
    ("io.k8s.api.apps.v1.Deployment", "apps", "v1", "Deployment", true),
    ("io.k8s.api.apps.v1.StatefulSet", "apps", "v1", "StatefulSet", true),
    ("io.k8s.api.autoscaling.v1.Scale", "autoscaling", "v1", "Scale", false),
    (
        "io.k8s.api.authorization.v1.SelfSubjectAccessReview",
        "authorization.k8s.io",
        "v1",
        "SelfSubjectAccessReview",
        false,
    ),
    ("io.k8s.api.coordination.v1.Lease", "coordination.k8s.io", "v1", "Lease", true),
    ("io.k8s.api.discovery.v1.EndpointSlice", "discovery.k8s.io", "v1", "EndpointSlice", true),
    ("io.k8s.api.events.v1.Event", "events.k8s.io", "v1", "Event", true),
    ("io.k8s.api.networking.v1.Ingress", "networking.k8s.io", "v1", "Ingress", true),
    ("io.k8s.api.networking.v1.IngressClass", "networking.k8s.io", "v1", "IngressClass", true),
    ("io.k8s.api.rbac.v1.ClusterRole", "rbac.authorization.k8s.io", "v1", "ClusterRole", true),
    (
        "io.k8s.api.rbac.v1.ClusterRoleBinding",
        "rbac.authorization.k8s.io",
        "v1",
        "ClusterRoleBinding",
        true,
    ),
    ("io.k8s.api.rbac.v1.Role", "rbac.authorization.k8s.io", "v1", "Role", true),
    ("io.k8s.api.rbac.v1.RoleBinding", "rbac.authorization.k8s.io", "v1", "RoleBinding", true),
    (
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition",
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        true,
    ),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.Status", "", "v1", "Status", false),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions", "", "v1", "DeleteOptions", false),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent", "", "v1", "WatchEvent", false),
];

/// Fields that the Rust types always have and that may be absent on the wire.
const OPTIONAL: &[(&str, &str)] = &[
    ("io.k8s.api.apps.v1.Deployment", "spec"),
    ("io.k8s.api.apps.v1.StatefulSet", "spec"),
    ("io.k8s.api.core.v1.ConfigMapEnvSource", "name"),
    ("io.k8s.api.core.v1.ConfigMapKeySelector", "name"),
    ("io.k8s.api.core.v1.ConfigMapProjection", "name"),
    ("io.k8s.api.core.v1.ConfigMapVolumeSource", "name"),
    ("io.k8s.api.core.v1.LocalObjectReference", "name"),
    ("io.k8s.api.core.v1.PersistentVolumeClaim", "metadata"),
    ("io.k8s.api.core.v1.SecretEnvSource", "name"),
    ("io.k8s.api.core.v1.SecretKeySelector", "name"),
    ("io.k8s.api.core.v1.SecretProjection", "name"),
];

/// Definitions that accept any JSON.
const FREE_FORM: &[&str] = &[
    "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1",
    "io.k8s.apimachinery.pkg.runtime.RawExtension",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray",
];

/// All definitions that the built-in kinds refer to, by name.
pub fn definitions() -> &'static BTreeMap<String, Value> {
    static ALL: LazyLock<BTreeMap<String, Value>> = LazyLock::new(build);
    &ALL
}

/// A definition as the server enforces it: the types only. kube-apiserver decodes built-in kinds into
/// types in which every field may be absent; the rules of the kind report required fields in their own
/// words.
pub fn enforced(name: &str) -> Option<Value> {
    let mut schema = definitions().get(name)?.clone();
    require_nothing(&mut schema);
    Some(schema)
}

fn require_nothing(schema: &mut Value) {
    let Value::Object(map) = schema else { return };
    map.remove("required");
    for (key, value) in map.iter_mut() {
        match (key.as_str(), value) {
            ("properties", Value::Object(properties)) => {
                properties.values_mut().for_each(require_nothing);
            }
            ("items" | "additionalProperties", value) => require_nothing(value),
            _ => {}
        }
    }
}

/// A reference to a definition.
pub fn reference(name: &str) -> Value {
    json!({"$ref": format!("{REFERENCE}{name}")})
}

fn build() -> BTreeMap<String, Value> {
    let mut all = generate();
    all.insert(format!("{META}.WatchEvent"), watch_event());
    for schema in all.values_mut() {
        publish(schema);
    }
    for name in FREE_FORM {
        if let Some(Value::Object(schema)) = all.get_mut(*name) {
            let object = name.starts_with("io.k8s.apimachinery.");
            schema.retain(|key, _| key == "description" || (object && key == "type"));
            schema.insert("x-kubernetes-preserve-unknown-fields".into(), json!(true));
        }
    }
    choices(&mut all, "io.k8s.apimachinery.pkg.util.intstr.IntOrString", "integer");
    choices(&mut all, "io.k8s.apimachinery.pkg.api.resource.Quantity", "number");
    for (name, group, version, kind, list) in TOP_LEVEL {
        if let Some(Value::Object(schema)) = all.get_mut(*name) {
            name_kind(schema, group, version, kind);
        }
        if *list {
            all.insert(format!("{name}List"), list_of(name, group, version, kind));
        }
    }
    for (name, field) in OPTIONAL {
        if let Some(Value::Object(schema)) = all.get_mut(*name) {
            optional(schema, field);
        }
    }
    for (name, rows) in MERGE_KEYS {
        if let Some(schema) = all.get_mut(*name) {
            rows.iter().for_each(|row| merge_key(schema, row));
        }
    }
    all
}

fn generate() -> BTreeMap<String, Value> {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut generator = SchemaGenerator::new(settings);
    macro_rules! reach {
        ($($type:ty),* $(,)?) => { $(generator.subschema_for::<$type>();)* };
    }
    reach!(
        core::ConfigMap,
        core::Endpoints,
        core::Event,
        core::Namespace,
        core::Node,
        core::Pod,
        core::Secret,
        core::Service,
        core::ServiceAccount,
        apps::Deployment,
        apps::StatefulSet,
        autoscaling::Scale,
        authorization::SelfSubjectAccessReview,
        coordination::Lease,
        discovery::EndpointSlice,
        events::Event,
        networking::Ingress,
        networking::IngressClass,
        rbac::ClusterRole,
        rbac::ClusterRoleBinding,
        rbac::Role,
        rbac::RoleBinding,
        apiextensions::CustomResourceDefinition,
        meta::Status,
        meta::DeleteOptions,
        meta::ListMeta,
        RawExtension,
    );
    generator.take_definitions(true).into_iter().collect()
}

/// Converts a schema of schemars, and everything in it, into the published form.
fn publish(schema: &mut Value) {
    let Value::Object(map) = schema else { return };
    map.remove("$schema");
    map.remove("title");
    if map.len() > 1
        && let Some(reference) = map.remove("$ref")
    {
        map.insert("allOf".into(), json!([{"$ref": reference}]));
    }
    for (key, value) in map.iter_mut() {
        match (key.as_str(), value) {
            ("properties", Value::Object(properties)) => {
                properties.values_mut().for_each(publish);
            }
            ("allOf" | "anyOf" | "oneOf", Value::Array(list)) => {
                list.iter_mut().for_each(publish);
            }
            ("items" | "additionalProperties" | "not", value) => publish(value),
            _ => {}
        }
    }
}

/// A definition that is a string or a number.
fn choices(all: &mut BTreeMap<String, Value>, name: &str, other: &str) {
    let Some(Value::Object(schema)) = all.get_mut(name) else { return };
    if other == "integer" {
        schema.insert("format".into(), json!("int-or-string"));
    } else {
        // A structural schema cannot express "string or any number". Without a type, only this keeps
        // the value.
        schema.remove("x-kubernetes-int-or-string");
        schema.insert("x-kubernetes-preserve-unknown-fields".into(), json!(true));
    }
    schema.insert("oneOf".into(), json!([{"type": "string"}, {"type": other}]));
}

fn name_kind(schema: &mut Map<String, Value>, group: &str, version: &str, kind: &str) {
    schema.insert(
        "x-kubernetes-group-version-kind".into(),
        json!([{"group": group, "version": version, "kind": kind}]),
    );
    optional(schema, "metadata");
}

fn optional(schema: &mut Map<String, Value>, name: &str) {
    let Some(Value::Array(required)) = schema.get_mut("required") else { return };
    required.retain(|field| field != name);
    if required.is_empty() {
        schema.remove("required");
    }
}

fn list_of(name: &str, group: &str, version: &str, kind: &str) -> Value {
    let text = |words: &str| json!({"type": "string", "description": words});
    json!({
        "description": format!("{kind}List is a list of {kind} objects."),
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": text("APIVersion defines the versioned schema of this representation of an object."),
            "kind": text("Kind is a string value representing the REST resource this object represents."),
            "metadata": {
                "allOf": [reference(&format!("{META}.ListMeta"))],
                "description": "Standard list metadata.",
            },
            "items": {
                "type": "array",
                "description": format!("Items is the list of {kind} objects."),
                "items": reference(name),
            },
        },
        "x-kubernetes-group-version-kind":
            [{"group": group, "version": version, "kind": format!("{kind}List")}],
    })
}

fn watch_event() -> Value {
    json!({
        "description": "Event represents a single event to a watched resource.",
        "type": "object",
        "required": ["type", "object"],
        "properties": {
            "type": {"type": "string"},
            "object": {
                "$ref": format!("{REFERENCE}io.k8s.apimachinery.pkg.runtime.RawExtension"),
                "description": "The object as it is after the event, as it was before a deletion, or a Status.",
            },
        },
    })
}

fn merge_key(schema: &mut Value, (field, key, strategy, ownership): &Row) {
    let at = if field.is_empty() { Some(schema) } else { schema["properties"].get_mut(*field) };
    let Some(Value::Object(at)) = at else { return };
    let mut say = |name: &str, value: Value| {
        at.insert(format!("x-kubernetes-{name}"), value);
    };
    if !key.is_empty() {
        say("patch-merge-key", json!(key));
    }
    if !strategy.is_empty() {
        say("patch-strategy", json!(strategy));
    }
    match ownership.strip_prefix("map:") {
        Some(keys) => {
            say("list-type", json!("map"));
            say("list-map-keys", keys.split(',').collect());
        }
        None if *ownership == "map-atomic" => say("map-type", json!("atomic")),
        None if !ownership.is_empty() => say("list-type", json!(ownership)),
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CRD: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1";

    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                if let Some(Value::String(name)) = map.get("$ref") {
                    found.push(name.clone());
                }
                map.values().for_each(|v| references(v, found));
            }
            Value::Array(list) => list.iter().for_each(|v| references(v, found)),
            _ => {}
        }
    }

    #[test]
    fn every_row_of_the_table_names_a_field_that_exists() {
        for (name, rows) in MERGE_KEYS {
            let schema = definitions().get(*name).unwrap_or_else(|| panic!("no {name}"));
            for (field, ..) in *rows {
                assert!(
                    field.is_empty() || schema["properties"].get(*field).is_some(),
                    "{name}.{field}"
                );
            }
        }
    }

    #[test]
    fn every_reference_leads_to_a_definition() {
        for (name, schema) in definitions() {
            let mut found = Vec::new();
            references(schema, &mut found);
            for reference in found {
                let target = reference.strip_prefix(REFERENCE).unwrap_or_default();
                assert!(definitions().contains_key(target), "{name} refers to {reference}");
            }
        }
    }

    #[test]
    fn a_reference_with_siblings_is_wrapped() {
        let service = &definitions()["io.k8s.api.core.v1.Service"];
        assert_eq!(
            service["properties"]["spec"]["allOf"],
            json!([{"$ref": "#/components/schemas/io.k8s.api.core.v1.ServiceSpec"}])
        );
        assert_eq!(service["properties"]["spec"].get("$ref"), None);
        let items = &definitions()["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"];
        assert_eq!(items["items"], reference("io.k8s.api.core.v1.Container"));
    }

    #[test]
    fn top_level_kinds_and_lists_say_which_they_are_and_need_no_metadata() {
        for (name, group, version, kind, list) in TOP_LEVEL {
            let schema = &definitions()[*name];
            let said = &schema["x-kubernetes-group-version-kind"][0];
            assert_eq!(*said, json!({"group": group, "version": version, "kind": kind}));
            let required = schema["required"].as_array().cloned().unwrap_or_default();
            assert!(!required.contains(&json!("metadata")), "{name}");
            assert_eq!(definitions().contains_key(&format!("{name}List")), *list);
        }
    }

    #[test]
    fn merge_keys_reach_the_published_fields() {
        let spec = &definitions()["io.k8s.api.core.v1.ServiceSpec"]["properties"];
        assert_eq!(spec["ports"]["x-kubernetes-patch-merge-key"], "port");
        assert_eq!(spec["ports"]["x-kubernetes-patch-strategy"], "merge");
        assert_eq!(spec["ports"]["x-kubernetes-list-map-keys"], json!(["port", "protocol"]));
        assert_eq!(spec["selector"]["x-kubernetes-map-type"], "atomic");
        let meta = &definitions()[&format!("{META}.ObjectMeta")]["properties"];
        assert_eq!(meta["finalizers"]["x-kubernetes-patch-strategy"], "merge");
        assert_eq!(meta["finalizers"]["x-kubernetes-list-type"], "set");
        let deployment = &definitions()["io.k8s.api.apps.v1.DeploymentSpec"]["properties"];
        assert_eq!(deployment["strategy"]["x-kubernetes-patch-strategy"], "retainKeys");
    }

    #[test]
    fn what_is_enforced_requires_nothing() {
        let port = enforced("io.k8s.api.core.v1.ServicePort").unwrap();
        assert_eq!(port.get("required"), None);
        assert_eq!(port["properties"]["port"]["format"], "int32");
        let crd = enforced(&format!("{CRD}.JSONSchemaProps")).unwrap();
        assert_eq!(crd["properties"]["required"]["type"], "array");
    }

    #[test]
    fn free_form_values_are_kept() {
        for name in FREE_FORM {
            let schema = &definitions()[*name];
            assert_eq!(schema["x-kubernetes-preserve-unknown-fields"], true, "{name}");
            assert_eq!(schema.get("oneOf"), None, "{name}");
        }
        let any = &definitions()[&format!("{CRD}.JSON")];
        assert_eq!(any.get("type"), None, "a default may be a number");
        let props = &definitions()[&format!("{CRD}.JSONSchemaProps")]["properties"];
        assert_eq!(props["$ref"]["type"], "string");
        assert_eq!(props["title"]["type"], "string");
    }
}
