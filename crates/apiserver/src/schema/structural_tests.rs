//! Tests of the checks of structural schemas.

use super::*;
use serde_json::json;

fn said(spec: Value) -> Vec<String> {
    let root = json!({"type": "object", "properties": {"spec": spec}});
    match compile_crd(&root) {
        Ok(_) => Vec::new(),
        Err(errors) => errors
            .iter()
            .map(|e| e.to_string().replace("spec.validation.openAPIV3Schema.properties[spec]", "@"))
            .collect(),
    }
}

fn root(schema: Value) -> Vec<String> {
    match compile_crd(&schema) {
        Ok(_) => Vec::new(),
        Err(errors) => errors
            .iter()
            .map(|e| e.to_string().replace("spec.validation.openAPIV3Schema", "@"))
            .collect(),
    }
}

#[test]
fn keywords_that_are_not_implemented_are_refused_by_name() {
    for (schema, message) in [
        (json!({"$ref": "#/x"}), "@.$ref: Forbidden: $ref is not supported"),
        (
            json!({"type": "object", "definitions": {}}),
            "@.definitions: Forbidden: definitions is not supported",
        ),
        (
            json!({"type": "object", "patternProperties": {}}),
            "@.patternProperties: Forbidden: patternProperties is not supported",
        ),
        (
            json!({"type": "object", "dependencies": {}}),
            "@.dependencies: Forbidden: dependencies is not supported",
        ),
        (
            json!({"type": "array", "additionalItems": true}),
            "@.additionalItems: Forbidden: additionalItems is not supported",
        ),
        (json!({"type": "object", "id": "x"}), "@.id: Forbidden: id is not supported"),
        (json!({"type": "string", "const": "x"}), "@.const: Forbidden: const is not supported"),
        (
            json!({"type": "object", "x-kubernetes-unions": []}),
            "@.x-kubernetes-unions: Forbidden: x-kubernetes-unions is not supported",
        ),
        (
            json!({"type": "array", "items": [{"type": "string"}]}),
            "@.items: Forbidden: items must be a schema object and not an array",
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "string", "if": {}}}}),
            "@.properties[a].if: Forbidden: if is not supported",
        ),
        (
            json!({"type": "string", "maxLength": -1}),
            "@.maxLength: Invalid value: -1: is not of the type that maxLength takes",
        ),
    ] {
        assert_eq!(said(schema.clone()), [message], "{schema}");
    }
}

/// The messages are those of kube-apiserver.
#[test]
fn schemas_that_are_not_structural_are_refused() {
    for (schema, messages) in [
        (json!({}), vec!["@.type: Required value: must not be empty for specified object fields"]),
        (json!({"type": "array"}), vec!["@.items: Required value: must be specified"]),
        (
            json!({"type": "array", "items": {}}),
            vec!["@.items.type: Required value: must not be empty for specified array items"],
        ),
        (
            json!({"type": "object", "properties": {"b": {"type": "string"}},
                "additionalProperties": {"type": "string"}}),
            vec![
                "@.additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive",
            ],
        ),
        (
            json!({"type": "string", "allOf": [{"description": "d", "minLength": 1}]}),
            vec!["@.allOf[0].description: Forbidden: must be empty to be structural"],
        ),
        (
            json!({"type": "string", "anyOf": [{"type": "string"}], "oneOf": [{"default": 1}],
                "not": {"nullable": true}}),
            vec![
                "@.anyOf[0].type: Forbidden: must be empty to be structural",
                "@.not.nullable: Forbidden: must be false to be structural",
                "@.oneOf[0].default: Forbidden: must be undefined to be structural",
            ],
        ),
        (
            json!({"type": "object", "anyOf": [{"additionalProperties": {"minLength": 1}}]}),
            vec!["@.anyOf[0].additionalProperties: Forbidden: must be undefined to be structural"],
        ),
        (
            json!({"type": "string", "nullable": false, "uniqueItems": true}),
            vec![
                "@.uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity \
                  becomes quadratic",
            ],
        ),
        (
            json!({"type": "text"}),
            vec![
                "@.type: Unsupported value: \"text\": supported values: \"array\", \"boolean\", \
                  \"integer\", \"number\", \"object\", \"string\"",
            ],
        ),
        (
            json!({"type": "string", "x-kubernetes-embedded-resource": true}),
            vec![
                "@.properties: Required value: must not be empty if x-kubernetes-embedded-resource is true \
                 without x-kubernetes-preserve-unknown-fields",
                "@.type: Invalid value: \"string\": must be object if x-kubernetes-embedded-resource is true",
            ],
        ),
        (
            json!({"x-kubernetes-int-or-string": true, "x-kubernetes-preserve-unknown-fields": true}),
            vec![
                "@.x-kubernetes-preserve-unknown-fields: Invalid value: true: must be false if \
                  x-kubernetes-int-or-string is true",
            ],
        ),
        (
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": false}),
            vec![
                "@.x-kubernetes-preserve-unknown-fields: Invalid value: false: must be true or undefined",
            ],
        ),
    ] {
        assert_eq!(said(schema.clone()), messages, "{schema}");
    }
    let pattern = said(json!({"type": "string", "pattern": "("}));
    assert_eq!(pattern.len(), 1);
    assert!(
        pattern[0].starts_with(
            "@.pattern: Invalid value: \"(\": must be a valid regular expression, but isn't: error parsing \
             regexp: "
        ),
        "{pattern:?}"
    );
}

#[test]
fn the_root_is_an_object_whose_metadata_is_not_its_own() {
    assert_eq!(root(json!({})), ["@.type: Required value: must not be empty at the root"]);
    assert_eq!(
        root(json!({"type": "string"})),
        ["@.type: Invalid value: \"string\": must be object at the root"]
    );
    assert_eq!(
        root(json!({"type": "object", "additionalProperties": {"type": "string"}})),
        ["@.additionalProperties: Forbidden: must not be used at the root"]
    );
    assert_eq!(
        root(json!({"type": "object", "nullable": true})),
        ["@.nullable: Forbidden: nullable cannot be true at the root"]
    );
    let metadata = |m: Value| json!({"type": "object", "properties": {"metadata": m}});
    assert_eq!(
        root(metadata(json!({"type": "object", "properties": {"labels": {"type": "object"}}}))),
        [
            "@.properties[metadata]: Forbidden: must not specify anything other than name and generateName, \
          but metadata is implicitly specified"
        ]
    );
    assert_eq!(
        root(metadata(
            json!({"type": "object", "properties": {"name": {"type": "string", "default": "x"}}})
        )),
        [
            "@.properties[metadata].properties[name].default: Forbidden: must not be set in top-level metadata"
        ]
    );
    assert_eq!(
        root(metadata(
            json!({"type": "object", "properties": {"name": {"type": "string", "maxLength": 5}}})
        )),
        [""; 0]
    );
    assert_eq!(
        root(json!({"type": "object", "properties": {"kind": {"type": "integer"}}})),
        ["@.properties[kind].type: Invalid value: \"integer\": must be string"]
    );
    assert_eq!(
        root(json!({"type": "object", "anyOf": [{"properties": {"spec": {"required": ["a"]}}}]})),
        [
            "@.properties[spec]: Required value: because it is defined in @.anyOf[0].properties[spec]"
        ]
    );
}

#[test]
fn int_or_string_may_be_spelled_out() {
    let spelled = json!([{"type": "integer"}, {"type": "string"}]);
    for schema in [
        json!({"x-kubernetes-int-or-string": true, "anyOf": spelled, "pattern": "^[0-9]+$"}),
        json!({"x-kubernetes-int-or-string": true, "allOf": [{"anyOf": spelled}, {"maxLength": 5}]}),
    ] {
        assert_eq!(said(schema.clone()), [""; 0], "{schema}");
    }
}

#[test]
fn defaults_have_to_be_valid_and_pruned() {
    assert_eq!(
        said(json!({"type": "string", "default": 5})),
        ["@.default: Invalid value: \"integer\":  in body must be of type string: \"integer\""]
    );
    assert_eq!(
        said(json!({"type": "object", "default": {"a": 1, "b": 5},
            "properties": {"b": {"type": "string"}}})),
        [
            "@.default: Invalid value: {\"a\":1,\"b\":5}: must not have unknown fields",
            "@.default.b: Invalid value: \"integer\": b in body must be of type string: \"integer\"",
        ]
    );
}

#[test]
fn lists_of_type_map_need_keys_that_are_always_there() {
    let list = |keys: Value, items: Value| {
        said(json!({"type": "array", "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": keys, "items": items}))
    };
    let items = |required: Value, name: Value| json!({"type": "object", "required": required, "properties": {"name": name}});
    assert_eq!(list(json!(["name"]), items(json!(["name"]), json!({"type": "string"}))), [""; 0]);
    assert_eq!(
        list(json!(["name"]), items(json!([]), json!({"type": "string"}))),
        ["@.items.properties[name].default: Required value: this property is in \
          x-kubernetes-list-map-keys, so it must have a default or be a required property"]
    );
    assert_eq!(
        list(json!([]), items(json!([]), json!({"type": "string"}))),
        [
            "@.x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map"
        ]
    );
    assert_eq!(
        list(json!(["nope"]), items(json!([]), json!({"type": "string"}))),
        [
            "@.x-kubernetes-list-map-keys: Invalid value: [\"nope\"]: entries must all be names of item \
          properties"
        ]
    );
    assert_eq!(
        said(
            json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-map-keys": ["a"]})
        ),
        [
            "@.x-kubernetes-list-type: Required value: must be map if x-kubernetes-list-map-keys is non-empty"
        ]
    );
    assert_eq!(
        said(
            json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "heap"})
        ),
        [
            "@.x-kubernetes-list-type: Unsupported value: \"heap\": supported values: \"atomic\", \"set\", \
          \"map\""
        ]
    );
    assert_eq!(
        said(
            json!({"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "set"})
        ),
        [
            "@.items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list with \
          x-kubernetes-list-type=set"
        ]
    );
    assert_eq!(
        said(json!({"type": "string", "x-kubernetes-map-type": "odd"})),
        [
            "@.type: Invalid value: \"string\": must be object if x-kubernetes-map-type is specified",
            "@.x-kubernetes-map-type: Unsupported value: \"odd\": supported values: \"atomic\", \
             \"granular\"",
        ]
    );
}

#[test]
fn the_form_of_rules_is_checked() {
    let rule = |rule: Value| said(json!({"type": "string", "x-kubernetes-validations": [rule]}));
    const AT: &str = "@.x-kubernetes-validations[0]";
    assert_eq!(rule(json!({})), [format!("{AT}.rule: Required value: rule is not specified")]);
    assert_eq!(
        rule(json!({"rule": "true", "message": " "})),
        [format!("{AT}.message: Invalid value: \" \": must be non-empty if specified")]
    );
    assert_eq!(
        rule(json!({"rule": "true\n"})),
        [""; 0],
        "a trailing newline is trimmed before it is looked at"
    );
    assert_eq!(
        rule(json!({"rule": "true ||\nfalse"})),
        [format!(
            "{AT}.message: Required value: message must be specified if rule contains line breaks"
        )]
    );
    assert_eq!(
        rule(json!({"rule": "true", "reason": "Odd"})),
        [format!(
            "{AT}.reason: Unsupported value: \"Odd\": supported values: \"FieldValueDuplicate\", \
             \"FieldValueForbidden\", \"FieldValueInvalid\", \"FieldValueRequired\""
        )]
    );
    assert_eq!(
        rule(json!({"rule": "true", "odd": 1})),
        [format!("{AT}.odd: Forbidden: odd is not supported")]
    );
}

#[test]
fn formats_that_mean_nothing_are_told() {
    let schema = json!({"type": "object", "properties": {
        "a": {"type": "string", "format": "quantity"}, "b": {"type": "integer", "format": "int32"},
        "c": {"type": "array", "items": {"type": "integer", "format": "uint8"}}}});
    assert_eq!(unrecognized_formats(&schema), ["quantity", "uint8"]);
}
