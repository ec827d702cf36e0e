//! Removes the fields that a schema does not know, and returns them in the words of strict
//! decoding. It never looks at values. It is called after decoding and before defaulting.

use super::{Node, Schema, child, indexed, object_meta};
use serde_json::Value;

/// The members that every Kubernetes object has.
const META: [&str; 3] = ["apiVersion", "kind", "metadata"];

impl Schema {
    /// Removes unknown fields and returns their paths, sorted, such as `spec.ports[0].bar`.
    ///
    /// `apiVersion`, `kind` and `metadata` at the root of a custom object stay; the caller prunes
    /// that `metadata` with [`object_meta`]. In an embedded resource they stay too, and its
    /// `metadata` is pruned here.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        let mut dropped = Vec::new();
        prune(Some(self), object, "", &mut dropped);
        dropped.sort();
        dropped
    }
}

fn prune(schema: Option<&Schema>, value: &mut Value, path: &str, dropped: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            let node = schema.map(Schema::node);
            map.retain(|name, value| {
                let path = child(path, name);
                match node {
                    Some(node) if keeps_meta(node) && META.contains(&name.as_str()) => {
                        if node.embedded && name == "metadata" {
                            prune(Some(object_meta()), value, &path, dropped);
                        }
                        true
                    }
                    Some(node) if knows(node, name) => {
                        let member = schema.and_then(|s| s.member(name));
                        prune(member.as_ref(), value, &path, dropped);
                        true
                    }
                    Some(node) if node.preserve_unknown => true,
                    _ => {
                        dropped.push(path);
                        false
                    }
                }
            });
        }
        Value::Array(list) => {
            let items = schema.and_then(Schema::items);
            let open = schema.is_some_and(|s| s.node().preserve_unknown);
            for (i, value) in list.iter_mut().enumerate() {
                match &items {
                    None if open => {}
                    items => prune(items.as_ref(), value, &indexed(path, i), dropped),
                }
            }
        }
        _ => {}
    }
}

fn keeps_meta(node: &Node) -> bool {
    node.embedded || node.resource_root
}

fn knows(node: &Node, name: &str) -> bool {
    node.properties.contains_key(name) || node.additional.is_some()
}

#[cfg(test)]
mod tests {
    use crate::schema::{compile, compile_crd};
    use serde_json::{Value, json};

    fn crd(spec: Value) -> crate::schema::Schema {
        compile_crd(&json!({"type": "object", "properties": {"spec": spec}})).unwrap()
    }

    #[test]
    fn unknown_fields_go_and_their_paths_come_back() {
        let schema = crd(json!({"type": "object", "properties": {
            "a": {"type": "string"},
            "ports": {"type": "array", "items": {"type": "object",
                "properties": {"port": {"type": "integer"}}}},
            "labels": {"type": "object", "additionalProperties": {"type": "object",
                "properties": {"x": {"type": "string"}}}},
            "any": {"type": "object", "additionalProperties": true},
        }}));
        let mut object = json!({
            "apiVersion": "x/v1", "kind": "X", "metadata": {"name": "a", "odd": 1}, "extra": {},
            "spec": {"a": "1", "foo": 1, "ports": [{"port": 1, "bar": 2}],
                "labels": {"k": {"x": "1", "y": "2"}}, "any": {"scalar": 1, "object": {"in": 1}}},
        });
        let dropped = schema.prune(&mut object);
        assert_eq!(
            dropped,
            ["extra", "spec.any.object.in", "spec.foo", "spec.labels.k.y", "spec.ports[0].bar"]
        );
        assert_eq!(
            object,
            json!({
                "apiVersion": "x/v1", "kind": "X", "metadata": {"name": "a", "odd": 1},
                "spec": {"a": "1", "ports": [{"port": 1}], "labels": {"k": {"x": "1"}},
                    "any": {"scalar": 1, "object": {}}},
            })
        );
    }

    #[test]
    fn preserved_fields_stay_but_known_ones_inside_are_still_pruned() {
        let schema = crd(json!({
            "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            "properties": {"known": {"type": "object", "properties": {"a": {"type": "string"}}}},
        }));
        let mut object = json!({"spec": {"free": {"x": [{"y": 1}]}, "known": {"a": "1", "b": 1}}});
        assert_eq!(schema.prune(&mut object), ["spec.known.b"]);
        assert_eq!(object["spec"]["free"], json!({"x": [{"y": 1}]}));
    }

    #[test]
    fn an_embedded_resource_keeps_its_own_meta() {
        let schema = crd(json!({"type": "object", "properties": {"template": {
            "type": "object", "x-kubernetes-embedded-resource": true,
            "properties": {"spec": {"type": "object"}},
        }}}));
        let mut object = json!({"spec": {"template": {
            "apiVersion": "v1", "kind": "Pod", "spec": {"a": 1}, "odd": 1,
            "metadata": {"labels": {"a": "b"}, "nonsense": 1},
        }}});
        assert_eq!(
            schema.prune(&mut object),
            ["spec.template.metadata.nonsense", "spec.template.odd", "spec.template.spec.a"]
        );
        assert_eq!(object["spec"]["template"]["metadata"], json!({"labels": {"a": "b"}}));
    }

    #[test]
    fn a_built_in_kind_is_pruned_at_the_root_too() {
        use k8s_openapi::api::core::v1::Service;
        let root = schemars::schema_for!(Service).to_value();
        let schema = compile(&root, &|name| root["$defs"].get(name).cloned()).unwrap();
        let mut object = json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "a", "foo": 1},
            "spec": {"ports": [{"port": 80, "targetPort": "http", "bar": 1}]}});
        assert_eq!(schema.prune(&mut object), ["metadata.foo", "spec.ports[0].bar"]);
    }
}
