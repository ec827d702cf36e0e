//! Fills in the defaults of a schema. As in structural defaulting, a default is set only if its parent
//! exists. It is called after pruning and before validation.

use super::{Node, Schema, Type};
use serde_json::Value;

impl Schema {
    /// Removes nulls that are not allowed and have no default. Then sets defaults for members that are
    /// absent, or null although null is not allowed.
    pub fn default(&self, object: &mut Value) {
        drop_nulls(Some(self), object);
        fill(self, object);
        whole_numbers(Some(self), object);
    }
}

/// Stores a whole number that was written as a fraction without the fraction, as Go's encoder does.
/// Values of type `number` keep their form, because bounds compare fractions and integers differently.
fn whole_numbers(schema: Option<&Schema>, value: &mut Value) {
    /// Up to this value a float represents every integer exactly.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                whole_numbers(schema.and_then(|s| s.member(name)).as_ref(), value);
            }
        }
        Value::Array(list) => {
            let items = schema.and_then(Schema::items);
            list.iter_mut().for_each(|value| whole_numbers(items.as_ref(), value));
        }
        Value::Number(number) if number.is_f64() => {
            let of_type_number = schema.is_some_and(|s| s.node().type_ == Some(Type::Number));
            let fraction = number.as_f64().unwrap_or(f64::NAN);
            if !of_type_number && fraction.fract() == 0.0 && fraction.abs() <= EXACT {
                #[allow(clippy::cast_possible_truncation)]
                let whole = fraction as i64;
                *value = Value::from(whole);
            }
        }
        _ => {}
    }
}

fn unwanted_null(value: &Value, node: &Node) -> bool {
    value.is_null() && !node.nullable
}

fn drop_nulls(schema: Option<&Schema>, value: &mut Value) {
    match value {
        Value::Object(map) => map.retain(|name, value| {
            let member = schema.and_then(|s| s.member(name));
            if let Some(member) = &member
                && unwanted_null(value, member.node())
                && member.node().default.is_none()
                && !is_open(member.node())
            {
                return false;
            }
            drop_nulls(member.as_ref(), value);
            true
        }),
        Value::Array(list) => {
            let items = schema.and_then(Schema::items);
            for value in list {
                drop_nulls(items.as_ref(), value);
            }
        }
        _ => {}
    }
}

/// Whether the node stands for `additionalProperties: true`. It has no schema that forbids null.
fn is_open(node: &Node) -> bool {
    node.type_.is_none()
        && !node.int_or_string
        && !node.preserve_unknown
        && node.properties.is_empty()
}

fn fill(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (name, &at) in &schema.node().properties {
                let node = &schema.nodes()[at as usize];
                if let Some(default) = &node.default
                    && map.get(name).is_none_or(|value| unwanted_null(value, node))
                {
                    map.insert(name.clone(), default.clone());
                }
            }
            for (name, value) in map {
                let Some(member) = schema.member(name) else { continue };
                replace_null(&member, value);
                fill(&member, value);
            }
        }
        Value::Array(list) => {
            let Some(items) = schema.items() else { return };
            for value in list {
                replace_null(&items, value);
                fill(&items, value);
            }
        }
        _ => {}
    }
}

fn replace_null(schema: &Schema, value: &mut Value) {
    let node = schema.node();
    if unwanted_null(value, node)
        && let Some(default) = &node.default
    {
        *value = default.clone();
    }
}

#[cfg(test)]
mod tests {
    use crate::schema::compile_crd;
    use serde_json::json;

    #[test]
    fn defaults_appear_only_under_parents_that_are_there() {
        let schema = compile_crd(&json!({"type": "object", "properties": {"spec": {
        "type": "object", "properties": {
            "replicas": {"type": "integer", "default": 1},
            "nested": {"type": "object", "default": {}, "properties": {
                "mode": {"type": "string", "default": "fast"}}},
            "absent": {"type": "object", "properties": {
                "x": {"type": "string", "default": "y"}}},
            "list": {"type": "array", "items": {"type": "object", "properties": {
                "proto": {"type": "string", "default": "TCP"}}}},
            "map": {"type": "object", "additionalProperties": {"type": "object",
                "properties": {"v": {"type": "string", "default": "w"}}}},
            "maybe": {"type": "string", "nullable": true, "default": "z"},
            "gone": {"type": "string"},
        }}}}))
        .unwrap();
        let mut object = json!({"spec": {
            "replicas": null, "list": [{}, {"proto": "UDP"}], "map": {"k": {}},
            "maybe": null, "gone": null}});
        schema.default(&mut object);
        let expected = json!({"spec": {
            "replicas": 1, "nested": {"mode": "fast"}, "list": [{"proto": "TCP"}, {"proto": "UDP"}],
            "map": {"k": {"v": "w"}}, "maybe": null}});
        assert_eq!(object, expected);
        schema.default(&mut object);
        assert_eq!(object, expected);
        let mut empty = json!({});
        schema.default(&mut empty);
        assert_eq!(empty, json!({}));
    }

    #[test]
    fn a_whole_number_loses_its_fraction_unless_fractions_are_its_type() {
        let schema = compile_crd(&json!({"type": "object", "properties": {
            "count": {"type": "integer"}, "share": {"type": "number"},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}))
        .unwrap();
        let mut object = json!({"count": 2.0, "share": 2.0, "free": {"a": [-3.0, 0.5, 1e300]}});
        schema.default(&mut object);
        let expected = json!({"count": 2, "share": 2.0, "free": {"a": [-3, 0.5, 1e300]}});
        assert_eq!(object, expected);
    }
}
