//! Properties of patches that hold for any object and any patch.

use super::*;
use proptest::prelude::*;

/// Any JSON, whose keys are often fields of the schema or directives.
fn anything() -> impl Strategy<Value = Value> {
    values(FIELDS.iter().chain(&DIRECTIVES).copied().collect())
}

const FIELDS: [&str; 8] = ["a", "b", "metadata", "finalizers", "spec", "ports", "port", "name"];
const DIRECTIVES: [&str; 5] = [
    "$patch",
    "$retainKeys",
    "$setElementOrder/ports",
    "$setElementOrder/finalizers",
    "$deleteFromPrimitiveList/finalizers",
];

fn values(keys: Vec<&'static str>) -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0..4i64).prop_map(Value::from),
        prop_oneof![Just("delete"), Just("replace"), Just("a"), Just("name")].prop_map(Value::from),
    ];
    let key = prop::sample::select(keys).prop_map(str::to_owned);
    scalar.prop_recursive(5, 40, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key.clone(), inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn object(any: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    let port = (0..4i64, prop::option::of("[ab]")).prop_map(|(port, name)| match name {
        Some(name) => json!({"port": port, "name": name}),
        None => json!({"port": port}),
    });
    (prop::collection::vec(port, 0..4), prop::collection::vec("[abc]", 0..4), any).prop_map(
        |(ports, finalizers, any)| {
            json!({"metadata": {"finalizers": finalizers}, "spec": {"ports": ports}, "a": any})
        },
    )
}

/// Strategic patches as a client could write them, without order directives.
fn meant() -> impl Strategy<Value = Value> {
    let port = (0..4i64, 0..4, "[ab]").prop_map(|(port, what, name)| match what {
        0 => json!({"port": port, "$patch": "delete"}),
        1 => json!({"port": port, "name": null}),
        2 => json!({"$patch": "replace"}),
        _ => json!({"port": port, "name": name}),
    });
    (
        prop::collection::vec(port, 0..4),
        prop::collection::vec("[abc]", 0..4),
        prop::collection::vec("[xyz]", 0..4),
        any::<bool>(),
    )
        .prop_map(|(ports, finalizers, gone, replace)| {
            let mut patch = json!({
                "metadata": {"finalizers": finalizers, "$deleteFromPrimitiveList/finalizers": gone},
                "spec": {"ports": ports},
                "a": {"b": {"c": null}},
            });
            if replace {
                patch["a"]["$patch"] = json!("replace");
            }
            patch
        })
}

/// The number of directives in a value.
fn directives(value: &Value) -> usize {
    match value {
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| {
                let directive = key == "$patch"
                    || key == "$retainKeys"
                    || key.starts_with("$setElementOrder")
                    || key.starts_with("$deleteFromPrimitiveList");
                usize::from(directive) + directives(value)
            })
            .sum(),
        Value::Array(list) => list.iter().map(directives).sum(),
        _ => 0,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_body_makes_the_server_panic(object in anything(), body in anything()) {
        for content_type in [JSON, MERGE, STRATEGIC] {
            let _ = patch(content_type, &object, &body);
        }
    }

    #[test]
    fn no_json_patch_makes_the_server_panic(
        object in object(anything()),
        operations in prop::collection::vec(
            (
                prop_oneof![Just("add"), Just("remove"), Just("replace"), Just("move"), Just("copy"), Just("test")],
                "(/(a|b|spec|ports|0|1|-|~0|~2)){0,4}",
                "(/(a|b|spec|ports|0|1|-)){0,4}",
                anything(),
            ),
            0..6,
        ),
    ) {
        let operations: Vec<Value> = operations
            .into_iter()
            .map(|(op, path, from, value)| json!({"op": op, "path": path, "from": from, "value": value}))
            .collect();
        let _ = patch(JSON, &object, &json!(operations));
    }

    #[test]
    fn a_merge_patch_is_idempotent(object in object(anything()), change in anything()) {
        if let Ok(once) = patch(MERGE, &object, &change) {
            prop_assert_eq!(patch(MERGE, &once, &change), Ok(once));
        }
    }

    #[test]
    fn a_strategic_patch_is_idempotent(object in object(anything()), change in meant()) {
        let once = patch(STRATEGIC, &object, &change).unwrap();
        prop_assert_eq!(patch(STRATEGIC, &once, &change), Ok(once));
    }

    #[test]
    fn no_directive_is_ever_stored(object in object(values(FIELDS.to_vec())), change in anything()) {
        if let Ok(patched) = patch(STRATEGIC, &object, &change) {
            prop_assert_eq!(directives(&patched), 0, "{}", patched);
        }
    }

    #[test]
    fn without_merge_keys_it_is_a_merge_patch(object in object(anything()), change in values(FIELDS.to_vec())) {
        prop_assume!(change.is_object());
        let plain = schema(&json!({}));
        let strategic = Patch::Strategic(change.clone()).apply(&object, &plain).map(|mut v| {
            prune_nulls(&mut v);
            v
        });
        let merged = Patch::Merge(change).apply(&object, &plain).map(|mut v| {
            prune_nulls(&mut v);
            v
        });
        prop_assert_eq!(strategic, merged);
    }

    #[test]
    fn a_merge_patch_without_nulls_in_lists_is_that_of_the_rfc(
        object in object(anything()),
        change in prop::collection::btree_map("[ab]", prop::option::of("[ab]"), 0..3),
    ) {
        let change = json!({"a": change, "spec": {"ports": [1]}});
        let mut expected = object.clone();
        json_patch::merge(&mut expected, &change);
        prop_assert_eq!(patch(MERGE, &object, &change), Ok(expected));
    }
}
