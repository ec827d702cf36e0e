//! Validates lists that are sets or maps, and embedded resources. It is a part of validation and
//! walks the structure only, never the branches of `allOf`, `anyOf`, `oneOf` and `not`. It does no
//! I/O.

use super::{ListType, Schema, child, go, indexed, keyed, types};
use crate::error::{FieldError, FieldErrorKind};
use serde_json::{Map, Value};
use std::collections::HashMap;

/// Errors about duplicate items in lists of type set and map.
pub(super) fn duplicates(schema: &Schema, value: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let (Value::Array(list), Some(list_type)) = (value, &schema.node().list_type) {
        match list_type {
            ListType::Atomic => {}
            ListType::Set => {
                for i in repeated(list.iter().map(ToString::to_string)) {
                    errors.push(duplicate(indexed(path, i), &list[i]));
                }
            }
            ListType::Map(keys) => errors.extend(map_duplicates(keys, list, path)),
        }
    }
    walk(schema, value, path, &mut |schema, value, path| {
        errors.extend(duplicates(schema, value, path));
    });
    errors
}

fn map_duplicates(keys: &[String], list: &[Value], path: &str) -> Vec<FieldError> {
    for (i, item) in list.iter().enumerate() {
        if !item.is_null() && !item.is_object() {
            return vec![FieldError {
                kind: FieldErrorKind::Invalid,
                field: indexed(path, i),
                value: Some(go::quote(item)),
                detail: "must be an object for an array of list-type map".into(),
            }];
        }
    }
    let key_of = |item: &Value| -> Value {
        let given = |key: &String| item.get(key).map(|value| (key.clone(), value.clone()));
        Value::Object(keys.iter().filter_map(given).collect::<Map<_, _>>())
    };
    let all: Vec<Value> = list.iter().map(key_of).collect();
    repeated(all.iter().map(ToString::to_string))
        .into_iter()
        .map(|i| duplicate(indexed(path, i), &all[i]))
        .collect()
}

/// The indexes of items that already occurred before.
fn repeated(items: impl Iterator<Item = String>) -> Vec<usize> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut found = Vec::new();
    for (i, item) in items.enumerate() {
        let times = seen.entry(item).or_insert(0);
        *times += 1;
        if *times == 2 {
            found.push(i);
        }
    }
    found
}

fn duplicate(field: String, value: &Value) -> FieldError {
    FieldError {
        kind: FieldErrorKind::Duplicate,
        field,
        value: Some(go::quote(value)),
        detail: String::new(),
    }
}

/// The errors of `apiVersion`, `kind` and `metadata` of embedded resources.
pub(super) fn embedded(schema: &Schema, value: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let (Value::Object(map), true) = (value, schema.node().embedded) {
        errors.extend(resource(map, path));
    }
    walk(schema, value, path, &mut |schema, value, path| {
        errors.extend(embedded(schema, value, path));
    });
    errors
}

fn resource(map: &Map<String, Value>, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let invalid = |name: &str, value: &Value, detail: String| FieldError {
        kind: FieldErrorKind::Invalid,
        field: child(path, name),
        value: Some(go::quote(value)),
        detail,
    };
    for name in ["apiVersion", "kind"] {
        match map.get(name) {
            None => errors.push(FieldError::required(child(path, name), "")),
            Some(value) => match value.as_str() {
                None => errors.push(invalid(name, value, "must be a string".into())),
                Some("") => errors.push(invalid(name, value, "must not be empty".into())),
                Some(text) if name == "apiVersion" && text.matches('/').count() > 1 => {
                    let detail = format!("unexpected GroupVersion string: {text}");
                    errors.push(invalid(name, value, detail));
                }
                Some(text) if name == "kind" => {
                    let wrong = crate::names::is_dns1035_label(&text.to_lowercase());
                    if !wrong.is_empty() {
                        let detail = "may have mixed case, but should otherwise match: ".to_owned();
                        errors.push(invalid(name, value, detail + &wrong.join(",")));
                    }
                }
                Some(_) => {}
            },
        }
    }
    if let Some(metadata) = map.get("metadata") {
        let wrong = types::mismatches(super::object_meta(), metadata, "ObjectMeta");
        if let Some(first) = wrong.first() {
            errors.push(invalid("metadata", metadata, first.to_string()));
        }
    }
    errors
}

/// Calls `each` for the members and items that the schema describes.
fn walk(schema: &Schema, value: &Value, path: &str, each: &mut dyn FnMut(&Schema, &Value, &str)) {
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                let known = schema.node().properties.contains_key(name);
                if let Some(member) = schema.member(name) {
                    let path = if known { child(path, name) } else { keyed(path, name) };
                    each(&member, value, &path);
                }
            }
        }
        Value::Array(list) => {
            if let Some(items) = schema.items() {
                for (i, value) in list.iter().enumerate() {
                    each(&items, value, &indexed(path, i));
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use crate::schema::compile_crd;
    use serde_json::{Value, json};

    fn messages(spec: Value, value: Value) -> Vec<String> {
        let schema = compile_crd(&json!({"type": "object", "properties": {"spec": spec}})).unwrap();
        let errors = schema.validate(&json!({"spec": value}));
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn sets_and_maps_name_the_second_of_each_item() {
        let set = json!({"type": "array", "x-kubernetes-list-type": "set",
            "items": {"type": "string"}});
        assert_eq!(messages(set, json!(["a", "b", "a", "a"])), ["spec[2]: Duplicate value: \"a\""]);
        let map = json!({"type": "array", "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["port", "protocol"],
            "items": {"type": "object", "required": ["port"], "properties": {
                "port": {"type": "integer"}, "protocol": {"type": "string", "default": "TCP"}}}});
        assert_eq!(
            messages(map, json!([{"port": 1, "protocol": "TCP"}, {"port": 1, "protocol": "TCP"}])),
            ["spec[1]: Duplicate value: {\"port\":1,\"protocol\":\"TCP\"}"]
        );
    }

    #[test]
    fn embedded_resources_need_a_version_and_a_kind() {
        let schema = json!({"type": "object", "x-kubernetes-embedded-resource": true,
            "x-kubernetes-preserve-unknown-fields": true});
        assert_eq!(
            messages(schema.clone(), json!({"kind": "a b"})),
            [
                "spec.apiVersion: Required value",
                "spec.kind: Invalid value: \"a b\": may have mixed case, but should otherwise match: \
                 a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
                 alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or \
                 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')",
            ]
        );
        let good = json!({"apiVersion": "a/v1", "kind": "Pod", "metadata": {"labels": {"a": "b"}}});
        assert_eq!(messages(schema.clone(), good), Vec::<String>::new());
        let bad = json!({"apiVersion": "a/v1", "kind": "Pod", "metadata": {"labels": 5}});
        assert_eq!(
            messages(schema, bad),
            [
                "spec.metadata: Invalid value: {\"labels\":5}: json: cannot unmarshal number into Go struct \
              field ObjectMeta.labels of type map[string]string"
            ]
        );
    }
}
