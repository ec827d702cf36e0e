//! Tests of strategic merge patches.

use super::*;

/// Name of the case, object, patch, result.
type Case = (&'static str, Value, Value, Value);

fn run(cases: Vec<Case>) {
    for (name, object, change, expected) in cases {
        assert_eq!(patch(STRATEGIC, &object, &change), Ok(expected), "{name}");
    }
}

fn ports(list: Value) -> Value {
    json!({"spec": {"ports": list}})
}

fn finalizers(list: Value) -> Value {
    json!({"metadata": {"finalizers": list}})
}

#[test]
fn maps_merge_and_null_deletes() {
    run(vec![
        (
            "labels are added, changed and deleted",
            json!({"metadata": {"labels": {"a": "1", "b": "2"}}}),
            json!({"metadata": {"labels": {"a": null, "b": "3", "c": "4"}}}),
            json!({"metadata": {"labels": {"b": "3", "c": "4"}}}),
        ),
        ("null for what is absent", json!({"a": 1}), json!({"b": null}), json!({"a": 1})),
        (
            "nulls in what is new are dropped",
            json!({}),
            json!({"a": {"b": null, "c": [{"d": null}]}}),
            json!({"a": {"c": [{}]}}),
        ),
        ("another type replaces", json!({"a": {"b": 1}}), json!({"a": [1]}), json!({"a": [1]})),
        (
            "a map with strategy replace is replaced",
            json!({"spec": {"whole": {"a": 1}}}),
            json!({"spec": {"whole": {"b": 1}}}),
            json!({"spec": {"whole": {"b": 1}}}),
        ),
    ]);
}

#[test]
fn lists_without_strategy_are_replaced() {
    run(vec![(
        "external IPs",
        json!({"spec": {"externalIPs": ["a", "b"]}}),
        json!({"spec": {"externalIPs": ["c"]}}),
        json!({"spec": {"externalIPs": ["c"]}}),
    )]);
}

#[test]
fn lists_with_a_key_merge_by_it() {
    run(vec![
        (
            "an item changes in its place",
            ports(json!([{"port": 80, "name": "a", "nodePort": 1}, {"port": 81}])),
            ports(json!([{"port": 80, "name": "b"}])),
            ports(json!([{"port": 80, "name": "b", "nodePort": 1}, {"port": 81}])),
        ),
        (
            "a new item comes before what only the server has",
            ports(json!([{"port": 80}, {"port": 81}])),
            ports(json!([{"port": 82}])),
            ports(json!([{"port": 82}, {"port": 80}, {"port": 81}])),
        ),
        (
            "the order of the patch wins over the order of the server",
            ports(json!([{"port": 1}, {"port": 2}, {"port": 3}])),
            ports(json!([{"port": 3}, {"port": 1}])),
            ports(json!([{"port": 2}, {"port": 3}, {"port": 1}])),
        ),
        (
            "an empty list changes nothing",
            ports(json!([{"port": 80}])),
            ports(json!([])),
            ports(json!([{"port": 80}])),
        ),
        (
            "of two items with one key the first is merged",
            ports(json!([{"port": 53, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}])),
            ports(json!([{"port": 53, "name": "dns"}])),
            ports(json!([
                {"port": 53, "protocol": "TCP", "name": "dns"}, {"port": 53, "protocol": "UDP"}
            ])),
        ),
        (
            "a member of an item is deleted by null",
            ports(json!([{"port": 80, "name": "a"}])),
            ports(json!([{"port": 80, "name": null}])),
            ports(json!([{"port": 80}])),
        ),
        (
            "lists in items of lists",
            json!({"spec": {"template": {"spec": {"containers": [
                {"name": "web", "args": ["a"], "env": [{"name": "A", "value": "1"}]}, {"name": "log"}
            ]}}}}),
            json!({"spec": {"template": {"spec": {"containers": [
                {"name": "web", "args": ["b"], "env": [{"name": "B", "value": "2"}]}
            ]}}}}),
            json!({"spec": {"template": {"spec": {"containers": [
                {"name": "web", "args": ["b"],
                 "env": [{"name": "B", "value": "2"}, {"name": "A", "value": "1"}]},
                {"name": "log"}
            ]}}}}),
        ),
        (
            "1 and \"1\" are different keys",
            ports(json!([{"port": 1}])),
            ports(json!([{"port": "1"}])),
            ports(json!([{"port": "1"}, {"port": 1}])),
        ),
    ]);
}

#[test]
fn primitive_lists_merge_as_sets() {
    run(vec![
        (
            "union",
            finalizers(json!(["a", "b"])),
            finalizers(json!(["b", "c"])),
            finalizers(json!(["a", "b", "c"])),
        ),
        (
            "duplicates of the patch disappear",
            finalizers(json!(["a"])),
            finalizers(json!(["c", "c"])),
            finalizers(json!(["c", "a"])),
        ),
        (
            "deletion",
            finalizers(json!(["a", "b", "c"])),
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["b", "x"]}}),
            finalizers(json!(["a", "c"])),
        ),
        (
            "deletion and addition in one patch, as kubectl sends them",
            finalizers(json!(["a", "b"])),
            json!({"metadata": {
                "$deleteFromPrimitiveList/finalizers": ["a"],
                "$setElementOrder/finalizers": ["c", "b"],
                "finalizers": ["c"]
            }}),
            finalizers(json!(["c", "b"])),
        ),
        (
            "deletion from a list that is not there",
            json!({"metadata": {}}),
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["b"]}}),
            json!({"metadata": {}}),
        ),
    ]);
}

#[test]
fn the_patch_directive_deletes_and_replaces() {
    run(vec![
        (
            "items are deleted by key",
            ports(json!([{"port": 80}, {"port": 81}])),
            ports(json!([{"port": 80, "$patch": "delete"}, {"port": 82, "$patch": "delete"}])),
            ports(json!([{"port": 81}])),
        ),
        (
            "a list is replaced",
            ports(json!([{"port": 80, "name": "a"}, {"port": 81}])),
            ports(json!([{"$patch": "replace"}, {"port": 80}])),
            ports(json!([{"port": 80}])),
        ),
        (
            "a list is emptied",
            ports(json!([{"port": 80}])),
            ports(json!([{"$patch": "replace"}])),
            ports(json!([])),
        ),
        (
            "a map is replaced",
            json!({"metadata": {"labels": {"a": "1"}}}),
            json!({"metadata": {"labels": {"$patch": "replace", "b": "2"}}}),
            json!({"metadata": {"labels": {"b": "2"}}}),
        ),
        (
            "a map is emptied",
            json!({"metadata": {"labels": {"a": "1"}}}),
            json!({"metadata": {"labels": {"$patch": "delete"}}}),
            json!({"metadata": {"labels": {}}}),
        ),
        (
            "deleting what is not there",
            json!({"spec": {}}),
            json!({"spec": {"gone": {"$patch": "delete"}, "ports": [{"$patch": "delete", "port": 1}]}}),
            json!({"spec": {"ports": []}}),
        ),
    ]);
}

#[test]
fn retain_keys_clears_the_rest() {
    run(vec![
        (
            "a Deployment goes from RollingUpdate to Recreate",
            json!({"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}}),
            json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}),
            json!({"spec": {"strategy": {"type": "Recreate"}}}),
        ),
        (
            "a volume changes its source",
            json!({"spec": {"template": {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}}}),
            json!({"spec": {"template": {"spec": {"volumes": [
                {"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/"}}
            ]}}}}),
            json!({"spec": {"template": {"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}}}}),
        ),
    ]);
}

#[test]
fn set_element_order_orders_what_the_client_knows() {
    run(vec![
        (
            "reordering alone",
            ports(json!([{"port": 1}, {"port": 2}, {"port": 3}])),
            json!({"spec": {"$setElementOrder/ports": [{"port": 3}, {"port": 1}]}}),
            ports(json!([{"port": 2}, {"port": 3}, {"port": 1}])),
        ),
        (
            "a new item at the end, one only of the server between",
            ports(json!([{"port": 1}, {"port": 5}, {"port": 2}])),
            json!({"spec": {
                "$setElementOrder/ports": [{"port": 1}, {"port": 2}, {"port": 3}],
                "ports": [{"port": 3}]
            }}),
            ports(json!([{"port": 1}, {"port": 5}, {"port": 2}, {"port": 3}])),
        ),
        (
            "with deletion",
            ports(json!([{"port": 1}, {"port": 2}])),
            json!({"spec": {
                "$setElementOrder/ports": [{"port": 2}],
                "ports": [{"port": 1, "$patch": "delete"}]
            }}),
            ports(json!([{"port": 2}])),
        ),
        (
            "what is deleted makes room at the end for what is new",
            ports(json!([{"port": 3}, {"port": 4}, {"port": 1}])),
            json!({"spec": {
                "$setElementOrder/ports": [{"port": 3}, {"port": 5}],
                "ports": [{"port": 5}, {"port": 1, "$patch": "delete"}]
            }}),
            ports(json!([{"port": 3}, {"port": 4}, {"port": 5}])),
        ),
        (
            "a list that is new",
            json!({"spec": {}}),
            json!({"spec": {
                "$setElementOrder/ports": [{"port": 2}, {"port": 1}],
                "ports": [{"port": 2}, {"port": 1}]
            }}),
            ports(json!([{"port": 2}, {"port": 1}])),
        ),
        (
            "a list that is nowhere",
            json!({"spec": {}}),
            json!({"spec": {"$setElementOrder/ports": [{"port": 2}]}}),
            json!({"spec": {}}),
        ),
        (
            "primitives",
            finalizers(json!(["a", "b", "c"])),
            json!({"metadata": {"$setElementOrder/finalizers": ["c", "a"]}}),
            finalizers(json!(["b", "c", "a"])),
        ),
        (
            "inside an item of another ordered list",
            json!({"spec": {"template": {"spec": {"containers": [
                {"name": "web", "env": [{"name": "A"}, {"name": "B"}]}
            ]}}}}),
            json!({"spec": {"template": {"spec": {
                "$setElementOrder/containers": [{"name": "web"}],
                "containers": [{
                    "name": "web",
                    "$setElementOrder/env": [{"name": "B"}, {"name": "A"}],
                    "env": [{"name": "A", "value": "x"}]
                }]
            }}}}),
            json!({"spec": {"template": {"spec": {"containers": [
                {"name": "web", "env": [{"name": "B"}, {"name": "A", "value": "x"}]}
            ]}}}}),
        ),
    ]);
}

#[test]
fn patches_that_break_the_rules_are_refused_in_the_words_of_the_real_server() {
    let object = json!({
        "metadata": {"finalizers": ["a"], "labels": {"a": "b"}},
        "spec": {"ports": [{"port": 80}], "nested": [{"a": 1}], "strategy": {"type": "x"}},
    });
    for (change, code, message) in [
        (
            ports(json!([{"name": "a", "x": [1, null]}])),
            500,
            "map: map[name:a x:[1 <nil>]] does not contain declared merge key: port",
        ),
        (
            ports(json!([{"$patch": "delete"}])),
            500,
            "map: map[$patch:delete] does not contain declared merge key: port",
        ),
        (ports(json!([80])), 500, "list element types are not identical: [[map[port:80]] [80]]"),
        (ports(json!([[]])), 500, "list element types are not identical: [[map[port:80]] [[]]]"),
        (
            ports(json!([{"port": 80, "$patch": "explode"}])),
            500,
            "unknown patch type: explode in map: map[$patch:explode port:80]",
        ),
        (
            ports(json!([{"port": 80, "$patch": "merge"}])),
            500,
            "merging lists cannot yet be specified in the patch",
        ),
        (
            json!({"metadata": {"labels": {"$patch": "merge"}}}),
            500,
            "unknown patch type: merge in map: map[$patch:merge]",
        ),
        (
            json!({"spec": {"nested": [{"b": 1}]}}),
            500,
            "cannot merge lists without merge key for slice",
        ),
        (
            json!({"spec": {"strategy": {"$retainKeys": ["type"], "other": 1}}}),
            400,
            "invalid patch format of retainKeys",
        ),
        (
            json!({"spec": {"strategy": {"$retainKeys": "type"}}}),
            400,
            "invalid patch format of retainKeys",
        ),
        (
            json!({"metadata": {"$deleteFromPrimitiveList": ["a"]}}),
            400,
            "invalid patch format of primitive list",
        ),
        (
            json!({"metadata": {"$setElementOrder": ["a"]}}),
            400,
            "invalid patch format of setElementOrder list",
        ),
        (
            json!({"metadata": {"$setElementOrder/finalizers": "a"}}),
            500,
            "expected a []interface {}, but received a string",
        ),
        (
            json!({"metadata": {"$setElementOrder/finalizers": ["b"], "finalizers": ["c"]}}),
            500,
            "The order in patch list:\n[c]\n doesn't match $setElementOrder list:\n[b]\n",
        ),
    ] {
        let error = refusal(STRATEGIC, &object, &change);
        assert_eq!((error.0, &*error.2), (code, message), "{change}");
    }
    let lists = refusal(STRATEGIC, &finalizers(json!([["a"]])), &finalizers(json!([["b"]])));
    assert_eq!((lists.0, lists.1), (422, "Invalid"));
}

/// Recorded from kube-apiserver v1.36.4: ConfigMaps and random strategic merge patches of their
/// metadata, with the result or the error.
#[test]
fn random_patches_end_as_they_did_on_a_real_server() {
    let schema = schema(&json!({"metadata": {
        "finalizers": {"$strategy": "merge", "$items": {}},
        "ownerReferences": {"$strategy": "merge", "$key": "uid", "$items": {}},
        "labels": {},
    }}));
    for line in include_str!("recorded.jsonl").lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let (code, result) =
            match Patch::Strategic(case["patch"].clone()).apply(&case["object"], &schema) {
                Ok(mut object) => {
                    // kube-apiserver does not store empty values.
                    let metadata = object["metadata"].as_object_mut().unwrap();
                    metadata.retain(|_, value| *value != json!([]) && *value != json!({}));
                    (200, object["metadata"].take())
                }
                Err(error) => (error.code, json!(error.message)),
            };
        assert_eq!(json!([code, result]), json!([case["code"], case["result"]]), "{case}");
    }
}
