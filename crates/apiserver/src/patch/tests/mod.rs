//! Tests of content types, bodies and merge patches, and the helpers of the other files.

mod json;
mod properties;
mod strategic;

use super::*;
use crate::schema::Node;
use serde_json::json;

const JSON: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

/// A schema from `{"field": {…}, "list[]": {…}}`: members by name; `merge`, `key` and `items` are
/// extensions of the member.
fn schema(shape: &Value) -> Schema {
    fn add(shape: &Value, nodes: &mut Vec<Node>) -> u32 {
        let at = nodes.len();
        nodes.push(Node::default());
        let mut node = Node::default();
        for (name, value) in shape.as_object().into_iter().flatten() {
            match name.as_str() {
                "$strategy" => node.patch_strategy = value.as_str().map(str::to_owned),
                "$key" => node.patch_merge_key = value.as_str().map(str::to_owned),
                "$items" => node.items = Some(add(value, nodes)),
                _ => {
                    let member = add(value, nodes);
                    node.properties.insert(name.clone(), member);
                }
            }
        }
        nodes[at] = node;
        u32::try_from(at).unwrap()
    }
    let mut nodes = Vec::new();
    let root = add(shape, &mut nodes);
    Schema::new(nodes.into(), root)
}

/// The relevant fields of a Deployment and a Service together.
fn workload() -> Schema {
    let containers = json!({"$strategy": "merge", "$key": "name", "$items": {
        "args": {},
        "env": {"$strategy": "merge", "$key": "name", "$items": {}},
        "ports": {"$strategy": "merge", "$key": "containerPort", "$items": {}},
    }});
    schema(&json!({
        "metadata": {"labels": {}, "finalizers": {"$strategy": "merge", "$items": {}}},
        "spec": {
            "ports": {"$strategy": "merge", "$key": "port", "$items": {}},
            "strategy": {"$strategy": "retainKeys"},
            "whole": {"$strategy": "replace"},
            "externalIPs": {"$items": {}},
            "nested": {"$strategy": "merge", "$items": {}},
            "template": {"spec": {
                "containers": containers,
                "volumes": {"$strategy": "merge,retainKeys", "$key": "name", "$items": {}},
            }},
        },
    }))
}

fn patch(content_type: &str, object: &Value, patch: &Value) -> Result<Value, ApiError> {
    Patch::parse(content_type, patch.to_string().as_bytes())?.apply(object, &workload())
}

fn refusal(content_type: &str, object: &Value, body: &Value) -> (u16, &'static str, String) {
    let error = patch(content_type, object, body).unwrap_err();
    (error.code, error.reason, error.message)
}

#[test]
fn the_content_type_decides_and_its_parameters_do_not() {
    for (content_type, expected) in [
        (JSON, Patch::Json(json_patch::Patch(vec![]))),
        ("application/json-patch+json; charset=utf-8", Patch::Json(json_patch::Patch(vec![]))),
    ] {
        assert_eq!(Patch::parse(content_type, b"[]"), Ok(expected));
    }
    assert_eq!(
        Patch::parse("application/merge-patch+json;a=b", b"{}"),
        Ok(Patch::Merge(json!({})))
    );
    assert_eq!(Patch::parse(STRATEGIC, b"{}"), Ok(Patch::Strategic(json!({}))));
    assert_eq!(Patch::parse(STRATEGIC, b"null"), Ok(Patch::Strategic(json!({}))));
}

#[test]
fn other_content_types_are_refused_with_those_that_are_read() {
    for content_type in ["", "application/json", "text/plain", "application/merge-patch+jso"] {
        let error = Patch::parse(content_type, b"{}").unwrap_err();
        assert_eq!(
            (error.code, error.reason, error.message.as_str()),
            (
                415,
                "UnsupportedMediaType",
                "the body of the request was in an unknown format - accepted media types include: \
                 application/json-patch+json, application/merge-patch+json, \
                 application/strategic-merge-patch+json"
            )
        );
    }
}

#[test]
fn custom_and_built_in_kinds_refuse_foreign_types_in_their_own_words() {
    let mut kind = Kind {
        group: String::new(),
        version: "v1".to_owned(),
        kind: "Service".to_owned(),
        list_kind: "ServiceList".to_owned(),
        plural: "services".to_owned(),
        singular: "service".to_owned(),
        short_names: Vec::new(),
        categories: Vec::new(),
        namespaced: true,
        status: true,
        scale: None,
        storage: "services".into(),
        storage_version: "v1".to_owned(),
        schema: workload(),
        strategic: true,
        columns: Vec::new(),
        selectable: Vec::new(),
        rules: std::sync::Arc::new(crate::kind::NoRules),
    };
    let answer = |kind: &Kind, content_type| {
        Patch::parse_for(kind, content_type, b"{}").map_err(|error| error.message)
    };
    assert_eq!(answer(&kind, STRATEGIC), Ok(Patch::Strategic(json!({}))));
    assert_eq!(answer(&kind, "application/json"), Err("415: Unsupported Media Type".to_owned()));
    kind.strategic = false;
    let unknown = "the body of the request was in an unknown format - accepted media types include: \
                   application/json-patch+json, application/merge-patch+json";
    assert_eq!(answer(&kind, STRATEGIC), Err(unknown.to_owned()));
    assert_eq!(answer(&kind, "application/json"), Err(unknown.to_owned()));
    assert_eq!(answer(&kind, MERGE), Ok(Patch::Merge(json!({}))));
    assert!(
        answer(&kind, "application/apply-patch+yaml").unwrap_err().contains("server-side apply")
    );
}

#[test]
fn server_side_apply_is_refused_by_name() {
    let error = Patch::parse("application/apply-patch+yaml", b"a: b").unwrap_err();
    assert_eq!((error.code, error.reason), (415, "UnsupportedMediaType"));
    assert!(error.message.contains("server-side apply is not implemented"), "{error}");
}

#[test]
fn bodies_that_are_not_of_the_right_shape_are_bad_requests() {
    for (content_type, body, message) in [
        (
            JSON,
            "{}",
            "error decoding patch: json: cannot unmarshal object into Go value of type \
             []handlers.jsonPatchOp",
        ),
        (
            MERGE,
            "[]",
            "error decoding patch: json: cannot unmarshal array into Go value of type \
             map[string]interface {}",
        ),
        (MERGE, "null", "Invalid JSON Patch"),
        (
            STRATEGIC,
            "7",
            "json: cannot unmarshal number into Go value of type map[string]interface {}",
        ),
    ] {
        let error = Patch::parse(content_type, body.as_bytes()).unwrap_err();
        assert_eq!((error.code, error.reason, &*error.message), (400, "BadRequest", message));
    }
    for body in [&b""[..], b"{", b"{\"a\":}", b"\xff\xfe", b"[{}"] {
        for content_type in [JSON, MERGE, STRATEGIC] {
            let error = Patch::parse(content_type, body).unwrap_err();
            assert_eq!((error.code, error.reason), (400, "BadRequest"), "{content_type} {body:?}");
        }
    }
}

#[test]
fn merge_patches_follow_the_table_of_rfc_7386() {
    for (object, change, expected) in [
        (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
        (json!({"a": "b"}), json!({"a": null}), json!({})),
        (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
        (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
        (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
        (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
        (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
        (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
    ] {
        assert_eq!(patch(MERGE, &object, &change), Ok(expected), "{object} {change}");
    }
}

#[test]
fn nulls_in_new_list_items_disappear_as_on_the_real_server() {
    assert_eq!(
        patch(
            MERGE,
            &json!({"a": []}),
            &json!({"a": [{"b": null, "c": 1}, null], "d": [{"e": null}]})
        ),
        Ok(json!({"a": [{"c": 1}, null], "d": [{}]}))
    );
}

#[test]
fn a_patch_that_makes_something_else_of_the_object_is_invalid() {
    let error = refusal(JSON, &json!({}), &json!([{"op": "replace", "path": "", "value": [1]}]));
    assert_eq!((error.0, error.1), (422, "Invalid"));
    assert!(error.2.contains("patch: Invalid value: \"[1]\""), "{}", error.2);
}

#[test]
fn no_patch_makes_what_no_body_may_hold() {
    let schema = Schema::new(std::sync::Arc::from([crate::schema::Node::default()]), 0);
    let nested = |depth| "{\"a\":".repeat(depth) + "{}" + &"}".repeat(depth);
    for type_ in ["application/merge-patch+json", "application/strategic-merge-patch+json"] {
        let deepest = Patch::parse(type_, nested(crate::decode::MAX_DEPTH - 1).as_bytes()).unwrap();
        assert!(deepest.apply(&serde_json::json!({}), &schema).is_ok(), "{type_}");
        let deeper = Patch::parse(type_, nested(crate::decode::MAX_DEPTH).as_bytes()).unwrap();
        let error = deeper.apply(&serde_json::json!({}), &schema).unwrap_err();
        assert_eq!((error.code, error.message.as_str()), (400, "exceeded max depth of 100"));
    }
}
