//! CustomResourceDefinitions: their defaults, validation and status, and the kinds and OpenAPI
//! documents made from them. It does no I/O; the server decides when each is called and stores the
//! objects.

mod kinds;
mod openapi;
mod rules;
mod status;
mod validate;

pub use kinds::kinds;
pub use openapi::{definition_name, list_openapi, openapi};
pub use rules::DefinitionRules;
pub use status::{NameClaim, NameSpace, accepted_names, established, status};
pub use validate::{validate, warnings};

use crate::meta;
use serde_json::{Value, json};

/// Fills in absent fields: singular, listKind and the conversion strategy.
pub fn default(crd: &mut Value) {
    let kind = crd["spec"]["names"]["kind"].as_str().unwrap_or_default().to_owned();
    let spec = meta::child(crd, "spec");
    let is_empty = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or("").is_empty();
    if spec.get("conversion").is_none_or(Value::is_null) {
        spec.insert("conversion".into(), json!({"strategy": "None"}));
    }
    if let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut)
        && !kind.is_empty()
    {
        if is_empty(names.get("singular")) {
            names.insert("singular".into(), kind.to_lowercase().into());
        }
        if is_empty(names.get("listKind")) {
            names.insert("listKind".into(), format!("{kind}List").into());
        }
    }
}

/// The versions of a definition.
fn versions(crd: &Value) -> &[Value] {
    crd["spec"]["versions"].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The name of the version in which objects are stored.
fn storage_version(crd: &Value) -> &str {
    let storage = versions(crd).iter().find(|v| v["storage"] == Value::Bool(true));
    storage.and_then(|v| v["name"].as_str()).unwrap_or_default()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn texts(value: &Value) -> Vec<String> {
    let list = value.as_array().into_iter().flatten();
    list.filter_map(Value::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A valid definition. Each test breaks it in one place.
    pub(super) fn good() -> Value {
        let mut crd = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "foos.x.dev"},
            "spec": {
                "group": "x.dev", "scope": "Namespaced",
                "names": {"plural": "foos", "kind": "Foo"},
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                        "spec": {"type": "object", "properties": {
                            "x": {"type": "string"}, "replicas": {"type": "integer"},
                            "o": {"type": "object", "properties": {"b": {"type": "string"}}}}},
                        "status": {"type": "object", "properties": {"n": {"type": "integer"}}},
                    }}},
                }],
            },
        });
        default(&mut crd);
        crd
    }

    #[test]
    fn names_and_conversion_are_filled_in_once() {
        let crd = good();
        assert_eq!(
            crd["spec"]["names"],
            json!({"plural": "foos", "kind": "Foo", "singular": "foo", "listKind": "FooList"})
        );
        assert_eq!(crd["spec"]["conversion"], json!({"strategy": "None"}));
        let mut again = crd.clone();
        default(&mut again);
        assert_eq!(again, crd);
    }
}
