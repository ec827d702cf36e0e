//! Properties that hold for every schema that the structural checks accept, and for every JSON
//! value.

use super::{CelRules, Schema, compile_crd};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-3i64..3).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-c]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-d]", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

fn schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        (0usize..3, 0usize..4).prop_map(|(min, max)| {
            json!({"type": "string", "minLength": min, "maxLength": max, "default": "ab"})
        }),
        Just(json!({"type": "string", "enum": ["a", "b"], "default": "a"})),
        Just(json!({"type": "string", "pattern": "^[a-c]+$", "nullable": true})),
        (-2i64..3).prop_map(|n| json!({"type": "integer", "minimum": n, "default": n})),
        Just(json!({"type": "integer", "format": "int32", "multipleOf": 2})),
        Just(json!({"type": "number", "maximum": 1.5, "exclusiveMaximum": true})),
        Just(json!({"type": "boolean", "default": true})),
        Just(json!({"x-kubernetes-int-or-string": true})),
        Just(json!({"x-kubernetes-preserve-unknown-fields": true})),
        Just(json!({"type": "object", "additionalProperties": true})),
        Just(json!({"type": "string", "format": "date-time"})),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            (prop::collection::btree_map("[a-d]", inner.clone(), 1..4), any::<bool>()).prop_map(
                |(map, preserve)| {
                    let mut schema = json!({"type": "object", "properties": map, "default": {}});
                    if preserve {
                        schema["x-kubernetes-preserve-unknown-fields"] = json!(true);
                    }
                    schema
                }
            ),
            (inner.clone(), prop::option::of(Just("set"))).prop_map(|(items, kind)| {
                let mut schema = json!({"type": "array", "items": items, "maxItems": 2});
                if let Some(kind) = kind {
                    schema["x-kubernetes-list-type"] = json!(kind);
                }
                schema
            }),
            inner.clone().prop_map(|v| json!({"type": "object", "additionalProperties": v})),
            Just(json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                "oneOf": [{"required": ["a"]}, {"required": ["b"], "not": {"required": ["c"]}}],
                "x-kubernetes-validations": [{"rule": "has(self.a) || self.b.size() > 1"}]})),
        ]
    })
}

/// A schema that the structural checks accept, alone or in a property.
fn accepted() -> impl Strategy<Value = (Value, Schema)> {
    schema().prop_filter_map("not structural", |spec| {
        let root = json!({"type": "object", "properties": {"a": spec}});
        compile_crd(&root).ok().map(|schema| (root, schema))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn pruning_and_defaulting_again_changes_nothing((_, schema) in accepted(), mut object in value()) {
        schema.prune(&mut object);
        schema.default(&mut object);
        let once = object.clone();
        prop_assert_eq!(schema.prune(&mut object), Vec::<String>::new());
        schema.default(&mut object);
        prop_assert_eq!(object, once);
    }

    #[test]
    fn nothing_panics_on_any_value((root, schema) in accepted(), object in value(), old in value()) {
        schema.validate(&object);
        schema.validate_update(&object, &old);
        schema.validate_status(&object, &old);
        schema.type_errors(&object, "Kind");
        if let Ok(rules) = CelRules::compile(&root) {
            rules.validate(&object, None);
            rules.validate(&object, Some(&old));
        }
    }

    #[test]
    fn what_was_valid_is_valid_unchanged((_, schema) in accepted(), object in value()) {
        if schema.validate(&object).is_empty() {
            prop_assert_eq!(schema.validate_update(&object, &object), vec![]);
        }
    }

    #[test]
    fn an_object_made_of_defaults_alone_is_valid((_, schema) in accepted()) {
        let mut object = json!({});
        schema.default(&mut object);
        // A default may lack a field that is required, but its types are right.
        let wrong = schema.type_errors(&object, "Kind");
        prop_assert_eq!(wrong, vec![]);
    }

    #[test]
    fn any_value_as_a_schema_is_judged_without_panic(schema in value()) {
        let _ = compile_crd(&schema);
        let _ = compile_crd(&json!({"type": "object", "properties": {"a": schema}}));
    }
}
