//! The OpenAPI v3 documents, one for each group and version: `kubectl explain`, `apply` and
//! client-side validation read them. They are built from the definitions of built-in kinds and of
//! CRDs. It does no I/O.

use crate::kind::Kind;
use crate::registry::Kinds;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Looks up a definition by name.
pub type Definitions<'a> = dyn Fn(&str) -> Option<&'a Value> + 'a;

/// The document paths (`api/v1`, `apis/apps/v1`) of all served groups and versions.
pub fn paths(kinds: &Kinds) -> Vec<String> {
    let mut list = Vec::new();
    for (group, versions) in kinds.groups() {
        for version in versions {
            list.push(document_path(group, version));
        }
    }
    list
}

fn document_path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// `GET /openapi/v3`. The hash changes with the document, so that clients may cache it forever.
pub fn index(documents: &BTreeMap<String, String>) -> Value {
    let paths: Map<String, Value> = documents
        .iter()
        .map(|(path, hash)| {
            let url = format!("/openapi/v3/{path}?hash={hash}");
            (path.clone(), json!({"serverRelativeURL": url}))
        })
        .collect();
    json!({"paths": paths})
}

/// One document. None: the group and version are not served.
pub fn document(kinds: &Kinds, path: &str, builtin: &BTreeMap<String, Value>) -> Option<Value> {
    let (group, version) = match path.split('/').collect::<Vec<_>>().as_slice() {
        ["api", version] => (String::new(), (*version).to_owned()),
        ["apis", group, version] => ((*group).to_owned(), (*version).to_owned()),
        _ => return None,
    };
    let lookup = |name: &str| {
        builtin.get(name).or_else(|| kinds.custom_definitions.get(name).map(|(_, value)| &**value))
    };
    let names = definition_names(kinds, &group, &version, builtin);
    let mut operations = Map::new();
    let mut schemas = Map::new();
    let mut served = false;
    for kind in kinds.of(&group, &version) {
        served = true;
        let Some(name) = names.get(kind.kind.as_str()) else { continue };
        add_closure(name, &lookup, &mut schemas);
        add_operations(kind, name, &mut operations);
    }
    add_closure("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions", &lookup, &mut schemas);
    add_closure("io.k8s.apimachinery.pkg.apis.meta.v1.Status", &lookup, &mut schemas);
    served.then(|| {
        json!({
            "openapi": "3.0.0",
            "info": {"title": "Kubernetes", "version": crate::VERSION},
            "paths": operations,
            "components": {"schemas": schemas},
        })
    })
}

/// Definition names by kind, for one group-version.
fn definition_names<'a>(
    kinds: &'a Kinds,
    group: &str,
    version: &str,
    builtin: &'a BTreeMap<String, Value>,
) -> BTreeMap<&'a str, &'a str> {
    let custom = kinds.custom_definitions.iter().map(|(name, (_, value))| (name, &**value));
    let mut names = BTreeMap::new();
    for (name, definition) in builtin.iter().chain(custom) {
        let Some(kinds) = definition["x-kubernetes-group-version-kind"].as_array() else {
            continue;
        };
        for gvk in kinds {
            if gvk["group"] == group && gvk["version"] == version {
                names.insert(gvk["kind"].as_str().unwrap_or_default(), name.as_str());
            }
        }
    }
    names
}

fn add_closure<'a>(
    name: &str,
    lookup: &dyn Fn(&str) -> Option<&'a Value>,
    schemas: &mut Map<String, Value>,
) {
    if schemas.contains_key(name) {
        return;
    }
    let Some(definition) = lookup(name) else { return };
    schemas.insert(name.to_owned(), definition.clone());
    let mut found = Vec::new();
    references(definition, &mut found);
    for reference in found {
        add_closure(reference, lookup, schemas);
    }
}

fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(map) => {
            for (key, inner) in map {
                match inner.as_str() {
                    Some(text) if key == "$ref" => {
                        found.extend(text.strip_prefix("#/components/schemas/"));
                    }
                    _ => references(inner, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

fn add_operations(kind: &Kind, definition: &str, operations: &mut Map<String, Value>) {
    let prefix = format!("/{}", document_path(&kind.group, &kind.version));
    let collection = if kind.namespaced {
        format!("{prefix}/namespaces/{{namespace}}/{}", kind.plural)
    } else {
        format!("{prefix}/{}", kind.plural)
    };
    let schema = json!({"$ref": format!("#/components/schemas/{definition}")});
    let operation = |action: &str, body: bool, parameters: &[&str]| {
        let mut document = json!({
            "description": format!("{action} {}", kind.kind),
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind":
                {"group": kind.group, "version": kind.version, "kind": kind.kind},
            "parameters": parameters.iter().map(|name| query_parameter(name)).collect::<Value>(),
            "responses": {"200": {
                "description": "OK", "content": {"application/json": {"schema": schema}},
            }},
        });
        if body {
            document["requestBody"] =
                json!({"required": true, "content": {"application/json": {"schema": schema}}});
        }
        document
    };
    let write = ["dryRun", "fieldManager", "fieldValidation"];
    let list = ["labelSelector", "fieldSelector", "limit", "continue", "resourceVersion", "watch"];
    let mut path_parameters = Vec::new();
    if kind.namespaced {
        path_parameters.push(path_parameter("namespace"));
    }
    operations.insert(
        collection.clone(),
        json!({
            "get": operation("list", false, &list),
            "post": operation("post", true, &write),
            "delete": operation("deletecollection", false, &list),
            "parameters": path_parameters,
        }),
    );
    path_parameters.push(path_parameter("name"));
    operations.insert(
        format!("{collection}/{{name}}"),
        json!({
            "get": operation("get", false, &[]),
            "put": operation("put", true, &write),
            "patch": operation("patch", true, &write),
            "delete": operation("delete", false, &["gracePeriodSeconds", "propagationPolicy"]),
            "parameters": path_parameters,
        }),
    );
}

fn query_parameter(name: &str) -> Value {
    let type_ = match name {
        "limit" | "gracePeriodSeconds" => "integer",
        "watch" => "boolean",
        _ => "string",
    };
    json!({"name": name, "in": "query", "schema": {"type": type_, "uniqueItems": true}})
}

fn path_parameter(name: &str) -> Value {
    json!({
        "name": name, "in": "path", "required": true,
        "schema": {"type": "string", "uniqueItems": true},
    })
}
