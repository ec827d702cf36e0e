//! Tests of JSON patches.

use super::*;

const REFUSED: &str = "the server rejected our request due to an error in our request";

fn too_large(operations: &Value, object: &Value) -> bool {
    let (code, reason, _) = refusal(JSON, object, operations);
    (code, reason) == (413, "RequestEntityTooLarge")
}

#[test]
fn operations_run_in_order() {
    let object = json!({"spec": {"ports": [{"port": 80}, {"port": 81}]}, "a": {"x/y": 1}});
    assert_eq!(
        patch(
            JSON,
            &object,
            &json!([
                {"op": "test", "path": "/spec/ports/0/port", "value": 80},
                {"op": "remove", "path": "/spec/ports/0"},
                {"op": "add", "path": "/spec/ports/-", "value": {"port": 82}},
                {"op": "add", "path": "/spec/ports/0", "value": {"port": 79}},
                {"op": "replace", "path": "/a/x~1y", "value": 2},
                {"op": "copy", "from": "/a", "path": "/b"},
                {"op": "move", "from": "/a/x~1y", "path": "/c"},
            ])
        ),
        Ok(json!({
            "spec": {"ports": [{"port": 79}, {"port": 81}, {"port": 82}]},
            "a": {}, "b": {"x/y": 2}, "c": 2,
        }))
    );
}

#[test]
fn what_does_not_fit_is_one_and_the_same_422() {
    let object = json!({"a": {"b": 1}, "l": [1]});
    for operation in [
        json!({"op": "test", "path": "/a/b", "value": 2}),
        json!({"op": "test", "path": "/x/y", "value": 2}),
        json!({"op": "remove", "path": "/a/c"}),
        json!({"op": "remove", "path": "/l/1"}),
        json!({"op": "remove", "path": ""}),
        json!({"op": "replace", "path": "/x/y", "value": 1}),
        json!({"op": "replace", "path": "/l/1", "value": 1}),
        json!({"op": "add", "path": "/x/y", "value": 1}),
        json!({"op": "add", "path": "/l/3", "value": 1}),
        json!({"op": "add", "path": "/l/x", "value": 1}),
        json!({"op": "add", "path": "nowhere", "value": 1}),
        json!({"op": "move", "from": "/x", "path": "/y"}),
        json!({"op": "move", "from": "/a", "path": "/a/b/c"}),
        json!({"op": "copy", "from": "/x", "path": "/y"}),
        json!({"op": "jump", "path": "/y"}),
        json!({}),
    ] {
        let operations = json!([operation]);
        assert_eq!(
            refusal(JSON, &object, &operations),
            (422, "Invalid", REFUSED.to_owned()),
            "{operations}"
        );
    }
}

#[test]
fn a_value_that_is_left_out_is_null() {
    let object = json!({"a": {}});
    let add = json!([{"op": "add", "path": "/a/b"}, {"op": "test", "path": "/a/b"}]);
    assert_eq!(patch(JSON, &object, &add), Ok(json!({"a": {"b": null}})));
}

#[test]
fn an_absent_member_that_is_replaced_is_added() {
    let replace = json!([{"op": "replace", "path": "/a/x~1y", "value": 1}]);
    assert_eq!(patch(JSON, &json!({"a": {}}), &replace), Ok(json!({"a": {"x/y": 1}})));
}

#[test]
fn an_absent_member_tests_as_null() {
    let object = json!({"a": {}});
    let absent = json!([{"op": "test", "path": "/a/b", "value": null}]);
    assert_eq!(patch(JSON, &object, &absent), Ok(object.clone()));
    let no_parent = json!([{"op": "test", "path": "/x/b", "value": null}]);
    assert_eq!(refusal(JSON, &object, &no_parent).0, 422);
}

#[test]
fn ten_thousand_operations_are_allowed_and_one_more_is_not() {
    let operations = |n: usize| json!(vec![json!({"op": "test", "path": "/a", "value": 1}); n]);
    assert_eq!(patch(JSON, &json!({"a": 1}), &operations(10_000)), Ok(json!({"a": 1})));
    let error = refusal(JSON, &json!({"a": 1}), &operations(10_001));
    assert_eq!(
        error,
        (
            413,
            "RequestEntityTooLarge",
            "Request entity too large: The allowed maximum operations in a JSON patch is 10000, \
             got 10001"
                .to_owned()
        )
    );
}

#[test]
fn copies_cannot_double_without_end() {
    let operations: Vec<Value> =
        (0..60).map(|i| json!({"op": "copy", "from": "/a", "path": format!("/a/{i}")})).collect();
    assert_eq!(refusal(JSON, &json!({"a": {}}), &json!(operations)).0, 422);
}

#[test]
fn patches_cannot_dig_deeper_than_the_store_can_read() {
    let mut chain = json!({});
    for _ in 0..60 {
        chain = json!({ "a": chain });
    }
    let bottom = "/a".repeat(59);
    let dig = json!([
        {"op": "add", "path": "/x", "value": chain},
        {"op": "add", "path": "/y", "value": chain},
        {"op": "move", "from": "/x", "path": format!("/y{bottom}/x")},
    ]);
    assert_eq!(refusal(JSON, &json!({}), &dig), (422, "Invalid", REFUSED.to_owned()));
    let copy = json!([
        {"op": "add", "path": "/x", "value": chain},
        {"op": "copy", "from": "/x", "path": format!("/x{bottom}/x")},
    ]);
    assert_eq!(refusal(JSON, &json!({}), &copy).0, 422);
    let add = json!([
        {"op": "add", "path": "/x", "value": chain},
        {"op": "add", "path": format!("/x{bottom}/x"), "value": chain},
    ]);
    assert_eq!(refusal(JSON, &json!({}), &add).0, 422);
}

#[test]
fn shifting_a_long_list_again_and_again_is_refused() {
    let object = json!({"l": vec![0; 200_000]});
    let operations = json!(vec![json!({"op": "add", "path": "/l/0", "value": 1}); 10_000]);
    assert!(too_large(&operations, &object));
}
