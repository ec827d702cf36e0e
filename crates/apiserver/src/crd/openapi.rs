//! The OpenAPI definitions of a CustomResourceDefinition: its kind and its list, with the fields
//! that every Kubernetes object has. `kubectl explain` and client-side validation read them. It does
//! no I/O.

use super::{text, versions};
use serde_json::{Map, Value, json};

const META: &str = "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const LIST_META: &str = "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";
const CONVENTIONS: &str =
    "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md";

/// The name of a definition, such as `dev.bowline.v1alpha1.LoadBalancer`.
pub fn definition_name(group: &str, version: &str, kind: &str) -> String {
    let reversed: Vec<&str> = group.split('.').rev().collect();
    format!("{}.{version}.{kind}", reversed.join("."))
}

/// The definition of the kind in one version, for `/openapi/v3/apis/GROUP/VERSION`.
pub fn openapi(crd: &Value, version: &str) -> Value {
    let found = versions(crd).iter().find(|v| text(v, "name") == version);
    let mut schema = found.map(|v| v["schema"]["openAPIV3Schema"].clone()).unwrap_or_default();
    if !schema.is_object() {
        schema = json!({"type": "object"});
    }
    complete(&mut schema);
    let kind = text(&crd["spec"]["names"], "kind");
    if let Some(map) = schema.as_object_mut() {
        type_meta(map);
        property(map, "metadata", reference(META, &metadata_words("object")));
        map.insert(
            "x-kubernetes-group-version-kind".into(),
            group_version_kind(crd, version, kind),
        );
        let fields = found.and_then(|v| v["selectableFields"].as_array()).filter(|f| !f.is_empty());
        if let Some(fields) = fields {
            let path = |field: &Value| text(field, "jsonPath").trim_start_matches('.').to_owned();
            let list: Vec<Value> = fields.iter().map(|f| json!({"fieldPath": path(f)})).collect();
            map.insert("x-kubernetes-selectable-fields".into(), list.into());
        }
    }
    schema
}

/// The definition of the list of the kind in one version.
pub fn list_openapi(crd: &Value, version: &str) -> Value {
    let names = &crd["spec"]["names"];
    let (kind, list_kind) = (text(names, "kind"), text(names, "listKind"));
    let item = definition_name(text(&crd["spec"], "group"), version, kind);
    let mut schema = json!({
        "description": format!("{list_kind} is a list of {kind}"),
        "type": "object",
        "required": ["items"],
        "properties": {"items": {
            "description": format!("List of {}. More info: {CONVENTIONS}", text(names, "plural")),
            "type": "array",
            "items": {"$ref": format!("#/components/schemas/{item}")},
        }},
    });
    if let Some(map) = schema.as_object_mut() {
        type_meta(map);
        property(map, "metadata", reference(LIST_META, &metadata_words("list")));
        let gvk = group_version_kind(crd, version, list_kind);
        map.insert("x-kubernetes-group-version-kind".into(), gvk);
    }
    schema
}

fn metadata_words(what: &str) -> String {
    let anchor = if what == "list" { "types-kinds" } else { "metadata" };
    format!("Standard {what}'s metadata. More info: {CONVENTIONS}#{anchor}")
        .replace("Standard list's", "Standard list")
}

fn group_version_kind(crd: &Value, version: &str, kind: &str) -> Value {
    json!([{"group": text(&crd["spec"], "group"), "kind": kind, "version": version}])
}

fn reference(target: &str, description: &str) -> Value {
    json!({"description": description, "allOf": [{"$ref": target}]})
}

fn property(schema: &mut Map<String, Value>, name: &str, value: Value) {
    let properties = schema.entry("properties").or_insert_with(|| json!({}));
    if let Some(map) = properties.as_object_mut() {
        map.insert(name.to_owned(), value);
    }
}

fn type_meta(schema: &mut Map<String, Value>) {
    let version = format!(
        "APIVersion defines the versioned schema of this representation of an object. Servers should \
         convert recognized schemas to the latest internal value, and may reject unrecognized values. \
         More info: {CONVENTIONS}#resources"
    );
    let kind = format!(
        "Kind is a string value representing the REST resource this object represents. Servers may infer \
         this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More \
         info: {CONVENTIONS}#types-kinds"
    );
    property(schema, "apiVersion", json!({"description": version, "type": "string"}));
    property(schema, "kind", json!({"description": kind, "type": "string"}));
}

/// Writes int-or-string as `anyOf`, and adds the fields of every object to embedded resources.
fn complete(schema: &mut Value) {
    let Some(map) = schema.as_object_mut() else { return };
    for key in ["additionalProperties", "items"] {
        if let Some(part) = map.get_mut(key) {
            complete(part);
        }
    }
    if let Some(Value::Object(properties)) = map.get_mut("properties") {
        properties.values_mut().for_each(complete);
    }
    let set = |map: &Map<String, Value>, key: &str| map.get(key) == Some(&Value::Bool(true));
    let either = json!([{"type": "integer"}, {"type": "string"}]);
    if set(map, "x-kubernetes-int-or-string") {
        let nested = map.get("allOf").is_some_and(|all| all[0]["anyOf"] == either);
        match map.get("anyOf") {
            None if !nested => drop(map.insert("anyOf".into(), either)),
            Some(any) if *any != either && !nested => {
                let all = map.entry("allOf").or_insert_with(|| json!([]));
                if let Some(all) = all.as_array_mut() {
                    all.insert(0, json!({"anyOf": either}));
                }
            }
            _ => {}
        }
    }
    if set(map, "x-kubernetes-embedded-resource") {
        type_meta(map);
        property(map, "metadata", reference(META, &metadata_words("object")));
        let required = map.entry("required").or_insert_with(|| json!([]));
        if let Some(required) = required.as_array_mut() {
            for name in ["kind", "apiVersion"] {
                if !required.iter().any(|r| r == name) {
                    required.push(name.into());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::good;
    use super::*;

    #[test]
    fn the_definition_has_what_every_object_has_and_keeps_the_rest() {
        let mut crd = good();
        let schema = &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        schema["properties"]["spec"]["properties"]["port"] =
            json!({"x-kubernetes-int-or-string": true});
        schema["properties"]["spec"]["properties"]["template"] = json!({"type": "object", "x-kubernetes-embedded-resource": true,
                "x-kubernetes-preserve-unknown-fields": true});
        schema["properties"]["spec"]["x-kubernetes-validations"] = json!([{"rule": "true"}]);
        let made = openapi(&crd, "v1");
        assert_eq!(made["properties"]["metadata"]["allOf"], json!([{"$ref": META}]));
        assert_eq!(made["properties"]["kind"]["type"], "string");
        assert_eq!(
            made["x-kubernetes-group-version-kind"],
            json!([{"group": "x.dev", "kind": "Foo", "version": "v1"}])
        );
        let spec = &made["properties"]["spec"];
        assert_eq!(spec["x-kubernetes-validations"], json!([{"rule": "true"}]));
        assert_eq!(
            spec["properties"]["port"],
            json!({"x-kubernetes-int-or-string": true,
                "anyOf": [{"type": "integer"}, {"type": "string"}]})
        );
        let template = &spec["properties"]["template"];
        assert_eq!(template["required"], json!(["kind", "apiVersion"]));
        assert_eq!(template["properties"]["metadata"]["allOf"], json!([{"$ref": META}]));
    }

    #[test]
    fn definitions_are_named_by_the_reversed_group() {
        assert_eq!(
            definition_name("bowline.dev", "v1alpha1", "LoadBalancer"),
            "dev.bowline.v1alpha1.LoadBalancer"
        );
        let list = list_openapi(&good(), "v1");
        assert_eq!(
            list["properties"]["items"]["items"],
            json!({"$ref": "#/components/schemas/dev.x.v1.Foo"})
        );
    }
}
