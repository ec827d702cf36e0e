//! Builds the nodes of a [`Schema`] from OpenAPI data: from definitions that refer to each other
//! (built-in kinds) and, for [`super::structural`], from a checked schema of a
//! CustomResourceDefinition. It does not check the structure itself.

use super::{Checks, ListType, Node, NodeId, Schema, Type, child, go};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

/// Why OpenAPI data cannot be compiled.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CompileError {
    /// A reference to an unknown definition.
    #[error("no definition named {0}")]
    Unresolved(String),
    /// A reference in an unsupported form.
    #[error("unsupported reference {0}")]
    Reference(String),
    /// A schema that is not an object.
    #[error("{0} is not a schema")]
    NotASchema(String),
    /// A pattern that does not compile.
    #[error("{path}: {why}")]
    Pattern {
        /// The path in the data.
        path: String,
        /// The error of the compiler.
        why: String,
    },
}

/// Compiles OpenAPI data. References (`#/components/schemas/NAME`, `#/$defs/NAME`,
/// `#/definitions/NAME`) are looked up in `definitions`. Recursion is allowed: every definition becomes
/// one node. Keywords that do not concern the structure are ignored.
pub fn compile(
    root: &Value,
    definitions: &dyn Fn(&str) -> Option<Value>,
) -> Result<Schema, CompileError> {
    build(root, Some(definitions))
}

/// Compiles a schema without references that has passed the structural checks.
pub(super) fn compile_plain(root: &Value) -> Result<Schema, CompileError> {
    build(root, None)
}

fn build(root: &Value, definitions: Option<Lookup<'_>>) -> Result<Schema, CompileError> {
    let mut builder =
        Builder { nodes: Vec::new(), known: HashMap::new(), overlays: Vec::new(), definitions };
    let at = builder.reserve();
    builder.build(at, root, "")?;
    Ok(builder.finish(at))
}

/// The schema of `metadata`, the same for every kind.
pub fn object_meta() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
        use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
        let root = schemars::schema_for!(ObjectMeta).to_value();
        let definitions = root["$defs"].clone();
        compile(&root, &|name| definitions.get(name).cloned())
            .unwrap_or_else(|_| Schema::new(Arc::from(vec![Node::default()]), 0))
    });
    &SCHEMA
}

/// Looks a definition up by its name.
type Lookup<'a> = &'a dyn Fn(&str) -> Option<Value>;

/// The name of a definition, and the keys beside the reference.
type Reference = (String, Map<String, Value>);

struct Builder<'a> {
    nodes: Vec<Node>,
    /// The node of each definition. It is inserted before its body is built, so that recursion ends.
    known: HashMap<String, NodeId>,
    /// Nodes that copy another node and change a few keys; completed when all nodes are built.
    overlays: Vec<(NodeId, NodeId, Map<String, Value>)>,
    definitions: Option<Lookup<'a>>,
}

impl Builder<'_> {
    fn reserve(&mut self) -> NodeId {
        self.nodes.push(Node::default());
        (self.nodes.len() - 1) as NodeId
    }

    fn finish(mut self, at: NodeId) -> Schema {
        for (target, source, keys) in std::mem::take(&mut self.overlays) {
            let mut node = self.nodes[source as usize].clone();
            overlay(&mut node, &keys);
            self.nodes[target as usize] = node;
        }
        Schema::new(self.nodes.into(), at)
    }

    fn add(&mut self, schema: &Value, path: String) -> Result<NodeId, CompileError> {
        if let Some((name, siblings)) = reference(schema)? {
            let definition = self.definition(&name)?;
            if siblings.keys().all(|key| !says_something(key)) {
                return Ok(definition);
            }
            let at = self.reserve();
            self.overlays.push((at, definition, siblings));
            return Ok(at);
        }
        let at = self.reserve();
        self.build(at, schema, &path)?;
        Ok(at)
    }

    fn definition(&mut self, name: &str) -> Result<NodeId, CompileError> {
        if let Some(&at) = self.known.get(name) {
            return Ok(at);
        }
        let body = self
            .definitions
            .and_then(|lookup| lookup(name))
            .ok_or_else(|| CompileError::Unresolved(name.to_owned()))?;
        let at = self.reserve();
        self.known.insert(name.to_owned(), at);
        self.build(at, &body, name)?;
        let node = &mut self.nodes[at as usize];
        node.definition = Some(name.into());
        if name.ends_with(".JSON") {
            // Any JSON value, although the data says object.
            node.type_ = None;
        }
        Ok(at)
    }

    fn build(&mut self, at: NodeId, schema: &Value, path: &str) -> Result<(), CompileError> {
        if let Some((name, siblings)) = reference(schema)? {
            let definition = self.definition(&name)?;
            self.overlays.push((at, definition, siblings));
            return Ok(());
        }
        let map = match schema {
            Value::Object(map) => map,
            Value::Bool(true) => {
                self.nodes[at as usize].preserve_unknown = true;
                return Ok(());
            }
            _ => return Err(CompileError::NotASchema(path.to_owned())),
        };
        let mut node = Node::default();
        overlay(&mut node, map);
        node.checks = checks(map, path)?;
        node.required = strings(map.get("required"));
        for (name, property) in
            map.get("properties").and_then(Value::as_object).into_iter().flatten()
        {
            let path = format!("{}.properties[{name}]", path);
            node.properties.insert(name.clone(), self.add(property, path)?);
        }
        match map.get("additionalProperties") {
            None => {}
            Some(Value::Bool(allowed)) => {
                node.additional = Some(self.reserve());
                node.no_additional = !allowed;
            }
            Some(schema) => {
                node.additional = Some(self.add(schema, child(path, "additionalProperties"))?);
            }
        }
        if let Some(items) = map.get("items") {
            node.items = Some(self.add(items, child(path, "items"))?);
        }
        if self.definitions.is_some() {
            // In the published data of built-in kinds, alternatives mean that Go has its own decoding,
            // and an object without members means that it accepts any.
            let open = node.properties.is_empty() && node.additional.is_none();
            let untyped = node.type_.is_none() && node.items.is_none() && !node.int_or_string;
            if open && (untyped || node.type_ == Some(Type::Object)) {
                node.preserve_unknown = true;
            }
        } else {
            node.all_of = self.all(map, "allOf", path)?;
            node.any_of = self.all(map, "anyOf", path)?;
            node.one_of = self.all(map, "oneOf", path)?;
            if let Some(not) = map.get("not") {
                node.not = Some(self.add(not, child(path, "not"))?);
            }
        }
        self.nodes[at as usize] = node;
        Ok(())
    }

    fn all(
        &mut self,
        map: &Map<String, Value>,
        key: &str,
        path: &str,
    ) -> Result<Vec<NodeId>, CompileError> {
        let list = map.get(key).and_then(Value::as_array).into_iter().flatten();
        list.enumerate()
            .map(|(i, schema)| self.add(schema, format!("{}[{i}]", child(path, key))))
            .collect()
    }
}

/// `{$ref}` or `{allOf: [{$ref}]}`, with the keys beside it.
fn reference(schema: &Value) -> Result<Option<Reference>, CompileError> {
    let Some(map) = schema.as_object() else { return Ok(None) };
    let mut siblings = map.clone();
    let target = match siblings.remove("$ref") {
        Some(target) => target,
        None => match map.get("allOf").and_then(Value::as_array).map(Vec::as_slice) {
            Some([one]) if one.get("$ref").is_some() && !map.contains_key("type") => {
                siblings.remove("allOf");
                one["$ref"].clone()
            }
            _ => return Ok(None),
        },
    };
    let text = target.as_str().unwrap_or_default();
    ["#/components/schemas/", "#/$defs/", "#/definitions/"]
        .iter()
        .find_map(|prefix| text.strip_prefix(prefix))
        .map(|name| Some((name.replace("~1", "/").replace("~0", "~"), siblings)))
        .ok_or_else(|| CompileError::Reference(target.to_string()))
}

fn says_something(key: &str) -> bool {
    matches!(key, "default" | "nullable") || key.starts_with("x-kubernetes-")
}

/// Applies the keys that may occur beside a reference as well as in a schema of its own.
fn overlay(node: &mut Node, map: &Map<String, Value>) {
    let flag = |key: &str| map.get(key).and_then(Value::as_bool);
    let text = |key: &str| map.get(key).and_then(Value::as_str).map(str::to_owned);
    match map.get("type") {
        Some(Value::String(name)) => node.type_ = Type::parse(name),
        Some(Value::Array(names)) => {
            let known: Vec<Type> =
                names.iter().filter_map(Value::as_str).filter_map(Type::parse).collect();
            node.type_ = if known.len() == 1 { known.first().copied() } else { None };
            node.nullable |= names.iter().any(|n| n == "null");
        }
        _ => {}
    }
    if let Some(format) = text("format") {
        node.format = format;
    }
    node.nullable |= flag("nullable").unwrap_or(false);
    if let Some(default) = map.get("default").filter(|d| !d.is_null()) {
        node.default = Some(default.clone());
    }
    node.int_or_string |= flag("x-kubernetes-int-or-string").unwrap_or(false)
        || matches!(node.format.as_str(), "int-or-string" | "quantity");
    if node.int_or_string {
        node.type_ = None;
    }
    node.preserve_unknown |= flag("x-kubernetes-preserve-unknown-fields").unwrap_or(false);
    node.embedded |= flag("x-kubernetes-embedded-resource").unwrap_or(false);
    node.map_atomic |= text("x-kubernetes-map-type").as_deref() == Some("atomic");
    match text("x-kubernetes-list-type").as_deref() {
        Some("atomic") => node.list_type = Some(ListType::Atomic),
        Some("set") => node.list_type = Some(ListType::Set),
        Some("map") => {
            let keys = strings(map.get("x-kubernetes-list-map-keys"));
            node.list_type = Some(ListType::Map(keys));
        }
        _ => {}
    }
    node.patch_merge_key = text("x-kubernetes-patch-merge-key").or(node.patch_merge_key.take());
    node.patch_strategy = text("x-kubernetes-patch-strategy").or(node.patch_strategy.take());
}

fn checks(map: &Map<String, Value>, path: &str) -> Result<Checks, CompileError> {
    let flag = |key: &str| map.get(key).and_then(Value::as_bool).unwrap_or(false);
    let count =
        |key: &str| map.get(key).and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok());
    let bound = |key: &str| map.get(key).and_then(Value::as_f64);
    let pattern_text = map.get("pattern").and_then(Value::as_str).unwrap_or_default().to_owned();
    let pattern = match pattern_text.as_str() {
        "" => None,
        text => Some(
            go::pattern(text)
                .map_err(|why| CompileError::Pattern { path: child(path, "pattern"), why })?,
        ),
    };
    Ok(Checks {
        enumeration: map.get("enum").and_then(Value::as_array).filter(|e| !e.is_empty()).cloned(),
        pattern,
        pattern_text,
        minimum: bound("minimum").map(|n| (n, flag("exclusiveMinimum"))),
        maximum: bound("maximum").map(|n| (n, flag("exclusiveMaximum"))),
        multiple_of: bound("multipleOf"),
        min_length: count("minLength"),
        max_length: count("maxLength"),
        min_items: count("minItems"),
        max_items: count("maxItems"),
        unique_items: flag("uniqueItems"),
        min_properties: count("minProperties"),
        max_properties: count("maxProperties"),
    })
}

/// The strings of a list. Empty for anything else.
pub(super) fn strings(list: Option<&Value>) -> Vec<String> {
    list.and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn definitions(name: &str) -> Option<Value> {
        Some(match name {
            "Tree" => json!({"type": "object", "properties": {
                "value": {"type": "integer"},
                "children": {"type": "array", "items": {"$ref": "#/components/schemas/Tree"}},
            }}),
            "Alias" => json!({"$ref": "#/$defs/Tree", "description": "the same"}),
            _ => return None,
        })
    }

    #[test]
    fn recursion_ends_in_one_node_per_definition() {
        let schema = compile(&json!({"$ref": "#/$defs/Tree"}), &definitions).unwrap();
        let deep = (0..5).fold(schema, |s, _| s.member("children").unwrap().items().unwrap());
        assert_eq!(deep.member("value").unwrap().node().type_, Some(Type::Integer));
        assert!(deep.nodes().len() < 6, "{}", deep.nodes().len());
        assert_eq!(deep.node().definition.as_deref(), Some("Tree"));
    }

    #[test]
    fn keys_beside_a_reference_apply_to_that_use_only() {
        let root = json!({"type": "object", "properties": {
            "a": {"allOf": [{"$ref": "#/$defs/Alias"}], "default": {}, "description": "d"},
            "b": {"$ref": "#/$defs/Tree", "x-kubernetes-map-type": "atomic"},
            "c": {"$ref": "#/$defs/Tree", "description": "only words"},
        }});
        let schema = compile(&root, &definitions).unwrap();
        let [a, b, c] = ["a", "b", "c"].map(|name| schema.member(name).unwrap());
        assert_eq!(a.node().default, Some(json!({})));
        assert!(a.member("value").is_some());
        assert!(b.node().map_atomic && !c.node().map_atomic);
        assert_eq!(c.node().default, None);
    }

    #[test]
    fn an_unknown_definition_is_an_error_that_names_it() {
        let error = compile(&json!({"$ref": "#/$defs/Nope"}), &definitions).unwrap_err();
        assert_eq!(error, CompileError::Unresolved("Nope".into()));
        let error = compile(&json!({"$ref": "http://x"}), &definitions).unwrap_err();
        assert_eq!(error.to_string(), "unsupported reference \"http://x\"");
    }

    #[test]
    fn the_metadata_schema_knows_its_fields() {
        let labels = object_meta().member("labels").unwrap();
        assert_eq!(labels.member("any").unwrap().node().type_, Some(Type::String));
        let owner = object_meta().member("ownerReferences").unwrap().items().unwrap();
        assert!(owner.member("blockOwnerDeletion").is_some());
        assert!(object_meta().member("nonsense").is_none());
    }

    #[test]
    fn real_definitions_compile_with_merge_keys_and_open_values() {
        use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as ext;
        let root = schemars::schema_for!(ext::CustomResourceDefinition).to_value();
        let schema = compile(&root, &|name| root["$defs"].get(name).cloned()).unwrap();
        let versions = schema.member("spec").unwrap().member("versions").unwrap().items().unwrap();
        let props = versions.member("schema").unwrap().member("openAPIV3Schema").unwrap();
        let nested = props.member("properties").unwrap().member("x").unwrap();
        assert!(nested.member("default").unwrap().node().preserve_unknown);
        assert_eq!(nested.member("default").unwrap().node().type_, None);
        assert!(nested.member("items").unwrap().node().preserve_unknown);
    }
}
