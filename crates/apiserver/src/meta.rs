//! Reads and writes `metadata` of an object held as JSON. It has no rules.

use serde_json::{Map, Value, json};

/// A string field of `metadata`, empty when absent.
pub fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

/// `metadata.name`, empty when absent.
pub fn name(object: &Value) -> &str {
    text(object, "name")
}

/// `metadata.namespace`, empty when absent.
pub fn namespace(object: &Value) -> &str {
    text(object, "namespace")
}

/// `metadata.uid`, empty when absent.
pub fn uid(object: &Value) -> &str {
    text(object, "uid")
}

/// Whether deletion has begun.
pub fn deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// `metadata.finalizers`.
pub fn finalizers(object: &Value) -> Vec<&str> {
    object["metadata"]["finalizers"]
        .as_array()
        .map(|list| list.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default()
}

/// `metadata` for writing. It is created if it is absent.
pub fn of(object: &mut Value) -> &mut Map<String, Value> {
    child(object, "metadata")
}

/// An object member for writing. It is created, and replaces a value that is not an object.
pub fn child<'a>(object: &'a mut Value, field: &str) -> &'a mut Map<String, Value> {
    if !object.is_object() {
        *object = json!({});
    }
    let slot = &mut object[field];
    if !slot.is_object() {
        *slot = json!({});
    }
    match slot {
        Value::Object(map) => map,
        _ => unreachable!("made an object above"),
    }
}
