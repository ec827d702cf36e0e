//! Tests of validation by a schema.

use super::*;
use crate::schema::compile_crd;
use serde_json::json;

fn schema(spec: Value) -> Schema {
    let root = json!({"type": "object", "properties": {"spec": spec}});
    compile_crd(&root).unwrap_or_else(|e| panic!("{}: {e:?}", root))
}

fn said(errors: Vec<FieldError>) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

fn messages(spec: Value, value: Value) -> Vec<String> {
    said(schema(spec).validate(&json!({ "spec": value })))
}

/// Each message comes from kube-apiserver, for the same schema and value.
#[test]
fn single_values_are_judged_in_the_words_of_the_real_server() {
    let rgb = json!({"type": "string", "enum": ["a", "b"]});
    for (schema, value, message) in [
        (
            json!({"type": "integer"}),
            json!("x"),
            "spec: Invalid value: \"string\": spec in body must be of type integer: \"string\"",
        ),
        (
            json!({"type": "string"}),
            json!(5),
            "spec: Invalid value: \"integer\": spec in body must be of type string: \"integer\"",
        ),
        (
            json!({"x-kubernetes-int-or-string": true}),
            json!(true),
            "spec: Invalid value: \"boolean\": spec in body must be of type integer,string: \"boolean\"",
        ),
        (
            json!({"type": "string", "maxLength": 1}),
            json!("bb"),
            "spec: Too long: may not be more than 1 byte",
        ),
        (
            json!({"type": "string", "maxLength": 3}),
            json!("bbbb"),
            "spec: Too long: may not be more than 3 bytes",
        ),
        (
            json!({"type": "string", "minLength": 1}),
            json!(""),
            "spec: Invalid value: \"\": spec in body should be at least 1 chars long",
        ),
        (
            json!({"type": "string", "pattern": "^a+$"}),
            json!("b"),
            "spec: Invalid value: \"b\": spec in body should match '^a+$'",
        ),
        (rgb, json!("c"), "spec: Unsupported value: \"c\": supported values: \"a\", \"b\""),
        (
            json!({"type": "object", "additionalProperties": false}),
            json!({"a": 1}),
            "spec: Invalid value: \"a\": spec.a in body is a forbidden property",
        ),
        (
            json!({"type": "string", "format": "date-time"}),
            json!(5),
            "spec: Invalid value: \"int64\": spec in body must be of type date-time: \"int64\"",
        ),
        (
            json!({"type": "string", "nullable": true, "enum": ["a"]}),
            json!(null),
            "spec: Unsupported value: null: supported values: \"a\"",
        ),
        (
            json!({"type": "integer", "enum": [1, 2]}),
            json!(3),
            "spec: Unsupported value: 3: supported values: \"1\", \"2\"",
        ),
        (
            json!({"type": "string", "format": "ipv4"}),
            json!("z"),
            "spec: Invalid value: \"z\": spec in body must be of type ipv4: \"z\"",
        ),
        (
            json!({"type": "integer", "maximum": 5}),
            json!(6),
            "spec: Invalid value: 6: spec in body should be less than or equal to 5",
        ),
        (
            json!({"type": "integer", "maximum": 5, "exclusiveMaximum": true}),
            json!(5),
            "spec: Invalid value: 5: spec in body should be less than 5",
        ),
        (
            json!({"type": "integer", "minimum": 1}),
            json!(0),
            "spec: Invalid value: 0: spec in body should be greater than or equal to 1",
        ),
        (
            json!({"type": "number", "minimum": 1e7}),
            json!(1.5),
            "spec: Invalid value: 1.5: spec in body should be greater than or equal to 1e+07",
        ),
        (
            json!({"type": "integer", "multipleOf": 5}),
            json!(7),
            "spec: Invalid value: 7: spec in body should be a multiple of 5",
        ),
        (
            json!({"type": "number", "multipleOf": 0.5}),
            json!(1),
            "spec: Invalid value: 1: factor MultipleOf declared for spec must be positive: 0",
        ),
        (
            json!({"type": "integer", "format": "int32"}),
            json!(3_000_000_000_u32),
            "<nil>: Invalid value: \"\": Checked value must be of type integer with format int32 in spec",
        ),
        (
            json!({"type": "array", "items": {"type": "string"}, "maxItems": 1}),
            json!(["a", "b"]),
            "spec: Too many: 2: must have at most 1 item",
        ),
        (
            json!({"type": "array", "items": {"type": "string"}, "minItems": 1}),
            json!([]),
            "spec: Invalid value: 0: spec in body should have at least 1 items",
        ),
        (
            json!({"type": "array", "items": {"type": "string"}}),
            json!(["a", 1]),
            "spec[1]: Invalid value: \"integer\": spec[1] in body must be of type string: \"integer\"",
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "string"}}),
            json!({"a": 5}),
            "spec.a: Invalid value: \"integer\": spec.a in body must be of type string: \"integer\"",
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "string"}, "minProperties": 1}),
            json!({}),
            "spec: Invalid value: 0: spec in body should have at least 1 properties",
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 1}),
            json!({"a": "", "b": ""}),
            "spec: Too many: 2: must have at most 1 item",
        ),
        (
            json!({"type": "object", "required": ["x"], "properties": {"x": {"type": "string"}}}),
            json!({}),
            "spec.x: Required value",
        ),
        (
            json!({"type": "string"}),
            json!(null),
            "spec: Invalid value: \"null\": spec in body must be of type string: \"null\"",
        ),
    ] {
        assert_eq!(messages(schema.clone(), value.clone()), [message], "{schema} {value}");
    }
}

#[test]
fn numbers_that_are_no_integers_are_named_twice() {
    for value in [json!(1.5), json!(1e30)] {
        assert_eq!(
            messages(json!({"type": "integer"}), value),
            [
                "spec: Invalid value: \"number\": spec in body must be of type integer: \"number\"",
                "<nil>: Invalid value: \"\": Checked value must be of type integer (default format) in spec",
            ]
        );
    }
}

#[test]
fn values_that_are_right_are_passed() {
    for (schema, value) in [
        (json!({"type": "integer"}), json!(1.0)),
        (json!({"type": "number"}), json!(1)),
        (json!({"type": "string", "nullable": true}), json!(null)),
        (json!({"type": "string", "format": "no-such-format"}), json!("anything")),
        (json!({"x-kubernetes-int-or-string": true}), json!("80%")),
        (json!({"x-kubernetes-preserve-unknown-fields": true}), json!([{"a": 1}])),
        (json!({"type": "string", "maxLength": 1}), json!("é")),
        (json!({"type": "integer", "enum": [1]}), json!(1.0)),
    ] {
        assert_eq!(messages(schema.clone(), value.clone()), [""; 0], "{schema} {value}");
    }
}

#[test]
fn alternatives_show_the_branch_with_most_in_its_favour() {
    let either = json!({"type": "object", "properties": {
        "a": {"type": "string"}, "b": {"type": "string"}},
        "oneOf": [{"required": ["a"]}, {"required": ["b"]}]});
    assert_eq!(
        messages(either.clone(), json!({})),
        [
            "<nil>: Invalid value: \"\": \"spec\" must validate one and only one schema (oneOf). Found none \
             valid",
            "spec.a: Required value",
        ]
    );
    assert_eq!(
        messages(either.clone(), json!({"a": "", "b": ""})),
        [
            "<nil>: Invalid value: \"\": \"spec\" must validate one and only one schema (oneOf). Found 2 valid \
          alternatives"
        ]
    );
    assert_eq!(messages(either, json!({"a": ""})), [""; 0]);
    let any = json!({"type": "integer", "anyOf": [{"minimum": 10}, {"maximum": 1}]});
    assert_eq!(
        messages(any, json!(5)),
        [
            "<nil>: Invalid value: \"\": \"spec\" must validate at least one schema (anyOf)",
            "spec: Invalid value: 5: spec in body should be greater than or equal to 10",
        ]
    );
    let all = json!({"type": "integer", "allOf": [{"minimum": 10}], "not": {"enum": [5]}});
    assert_eq!(
        messages(all, json!(5)),
        [
            "spec: Invalid value: 5: spec in body should be greater than or equal to 10",
            "<nil>: Invalid value: \"\": \"spec\" must validate all the schemas (allOf). None validated",
            "<nil>: Invalid value: \"\": \"spec\" must not validate the schema (not)",
        ]
    );
}

#[test]
fn what_was_wrong_before_and_was_not_touched_is_let_be() {
    let schema = schema(json!({"type": "object", "properties": {
        "a": {"type": "string", "maxLength": 1}, "b": {"type": "string", "maxLength": 1},
        "list": {"type": "array", "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "required": ["name"], "properties": {
                "name": {"type": "string"}, "v": {"type": "integer", "maximum": 1}}}},
    }}));
    let old = json!({"spec": {"a": "long", "b": "x", "list": [{"name": "a", "v": 5}]}});
    let new = json!({"spec": {"a": "long", "b": "yy",
        "list": [{"name": "b", "v": 6}, {"name": "a", "v": 5}]}});
    assert_eq!(
        said(schema.validate_update(&new, &old)),
        [
            "spec.b: Too long: may not be more than 1 byte",
            "spec.list[0].v: Invalid value: 6: spec.list[0].v in body should be less than or equal to 1",
        ]
    );
    assert_eq!(said(schema.validate_update(&old, &old)), [""; 0]);
}

#[test]
fn a_status_is_named_from_where_it_stands() {
    let schema = compile_crd(&json!({"type": "object", "properties": {
        "spec": {"type": "object", "required": ["x"], "properties": {"x": {"type": "string"}}},
        "status": {"type": "object", "properties": {"n": {"type": "integer"}}}}}))
    .unwrap();
    assert_eq!(
        said(
            schema
                .validate_status(&json!({"spec": {}, "status": {"n": "x"}}), &json!({"spec": {}}))
        ),
        ["status.n: Invalid value: \"string\": n in body must be of type integer: \"string\""]
    );
}

#[test]
fn errors_that_hide_others_block_the_rules() {
    let required = messages(
        json!({"type": "object", "required": ["x"], "properties": {"x": {"type": "string"}}}),
        json!({}),
    );
    assert_eq!(required.len(), 1);
    assert!(blocking(&[FieldError::required("x", "")]));
    assert!(!blocking(&[FieldError::invalid("x", &json!(1), "")]));
}
