//! The kinds that every Kubernetes API has: their names, OpenAPI definitions and rules. They are
//! functions of values and do no I/O; the write path and discovery call them.

pub mod apps;
pub mod cluster;
pub mod config;
mod default_class;
pub mod definitions;
pub mod discovery;
pub mod event;
mod fields;
pub mod ingress;
mod ip;
mod kinds;
mod merge_keys;
pub mod metadata;
pub mod pod;
mod quantity;
pub mod rbac;
pub mod service;
mod tls;

pub use kinds::{all, definition_name};
pub use service::ServiceNetwork;

use crate::schema::Schema;
use serde_json::Value;

/// Removes fields that are null, which a typed server reads as absent. Free-form values keep their
/// nulls.
pub fn drop_nulls(value: &mut Value, schema: &Schema) {
    if schema.node().preserve_unknown {
        return;
    }
    match value {
        Value::Object(map) => {
            map.retain(|_, member| !member.is_null());
            for (name, member) in map.iter_mut() {
                if let Some(schema) = schema.member(name) {
                    drop_nulls(member, &schema);
                }
            }
        }
        Value::Array(list) => {
            if let Some(schema) = schema.items() {
                list.iter_mut().for_each(|item| drop_nulls(item, &schema));
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::Kind;
    use crate::schema::Node;
    use serde_json::json;
    use std::collections::BTreeSet;
    use std::sync::Arc;

    fn stub(_: &str) -> Schema {
        Schema::new(Arc::from([Node::default()]), 0)
    }

    fn kinds() -> Vec<Kind> {
        all(&ServiceNetwork::default(), &stub)
    }

    #[test]
    fn every_kind_has_a_definition_that_names_it() {
        let asked = std::cell::RefCell::new(Vec::new());
        let kinds = all(&ServiceNetwork::default(), &|name| {
            asked.borrow_mut().push(name.to_owned());
            stub(name)
        });
        for (kind, name) in kinds.iter().zip(asked.into_inner()) {
            assert_eq!(definition_name(&kind.group, &kind.kind), Some(name.as_str()));
            assert!(definitions::definitions().contains_key(&name), "{name}");
            assert!(definitions::definitions().contains_key(&format!("{name}List")), "{name}");
        }
        assert_eq!(kinds.len(), 21);
    }

    #[test]
    fn names_are_unique_in_their_group() {
        let mut seen = BTreeSet::new();
        for kind in kinds() {
            for name in kind.short_names.iter().chain([&kind.plural]) {
                assert!(seen.insert((kind.group.clone(), name.clone())), "{name}");
            }
        }
    }

    #[test]
    fn both_shapes_of_an_event_share_a_storage_and_one_is_converted() {
        let events: Vec<Kind> =
            kinds().into_iter().filter(|kind| kind.plural == "events").collect();
        let told: Vec<_> =
            events.iter().map(|k| (k.api_version(), k.storage.to_string(), k.converts())).collect();
        assert_eq!(
            told,
            [
                ("v1".to_owned(), "events".to_owned(), false),
                ("events.k8s.io/v1".to_owned(), "events".to_owned(), true),
            ]
        );
    }

    #[test]
    fn generations_are_counted_where_a_real_server_counts_them() {
        let counted: Vec<String> =
            kinds().iter().filter(|k| k.rules.has_generation()).map(|k| k.kind.clone()).collect();
        assert_eq!(
            counted,
            [
                "Pod",
                "CustomResourceDefinition",
                "Deployment",
                "StatefulSet",
                "EndpointSlice",
                "IngressClass",
                "Ingress"
            ]
        );
    }

    #[test]
    fn no_rule_panics_on_any_shape() {
        let shapes = [
            json!(null),
            json!(3),
            json!([]),
            json!({"metadata": 1, "spec": 2, "status": 3, "data": 4, "rules": 5, "subjects": 6}),
            json!({"metadata": {}, "spec": {"ports": [[]], "rules": [1], "taints": "x"}, "rules": [1], "subjects": [2],
                   "endpoints": [3], "subsets": [4], "ports": [5], "roleRef": 6, "series": 7, "stringData": 8}),
        ];
        for kind in kinds() {
            for shape in &shapes {
                let mut object = shape.clone();
                kind.rules.default(&mut object);
                kind.rules.prepare_create(&mut object);
                kind.rules.prepare_update(&mut object, shape);
                let _ = kind.rules.allocate(&mut object, Some(shape), &|_| false);
                let _ = kind.rules.allocate(&mut object, None, &|_| false);
                kind.rules.claims(&object);
                kind.rules.validate(&object, Some(shape));
                kind.rules.validate(&object, None);
                kind.rules.validate_status(&object, shape);
                kind.rules.warnings(&object, None);
                kind.rules.to_storage(&mut object);
                kind.rules.to_served(&mut object);
                kind.rules.generation_changes(&object, shape);
                metadata::validate_meta(&object, Some(shape), kind.rules.name_rule(), true);
            }
        }
    }

    #[test]
    fn nulls_are_dropped_where_fields_are_known() {
        let node = Node::default;
        let free = Node { preserve_unknown: true, ..node() };
        let root = Node {
            properties: [("a".to_owned(), 1), ("free".to_owned(), 2), ("list".to_owned(), 3)]
                .into(),
            ..node()
        };
        let list = Node { items: Some(1), ..node() };
        let schema = Schema::new(Arc::from([root, node(), free, list]), 0);
        let mut value =
            json!({"a": {"x": null}, "b": null, "free": {"x": null}, "list": [{"y": null}]});
        drop_nulls(&mut value, &schema);
        assert_eq!(value, json!({"a": {}, "free": {"x": null}, "list": [{}]}));
    }
}
