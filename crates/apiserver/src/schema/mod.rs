//! The compiled structure of objects, for built-in kinds (from OpenAPI data) and for
//! CustomResourceDefinitions (from their structural schemas). Pruning, defaulting, validation and
//! strategic merge all walk this tree; none of them reads OpenAPI again. It does no I/O.

mod cel;
mod cel_check;
mod cel_cost;
mod cel_run;
mod cel_walk;
mod compile;
mod default;
mod extensions;
mod formats;
mod go;
mod lists;
mod paths;
mod prune;
mod structural;
mod types;
mod validate;

#[cfg(test)]
mod properties;

pub use cel::CelRules;
pub use compile::{CompileError, compile, object_meta};
pub use structural::{compile_crd, compile_crd_at, unrecognized_formats};
pub use types::{TypeError, Undecodable};
pub use validate::{blocking, unchecked_rules};

pub(crate) use paths::field_path;

use regex::Regex;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A compiled schema: an arena of nodes (schemas of the CRD kind itself are recursive) and a root.
#[derive(Clone, Debug)]
pub struct Schema {
    nodes: Arc<[Node]>,
    at: u32,
}

/// The index of a node in its arena.
pub type NodeId = u32;

/// The JSON types that a node may require.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// `object`
    Object,
    /// `array`
    Array,
    /// `string`
    String,
    /// `integer`
    Integer,
    /// `number`
    Number,
    /// `boolean`
    Boolean,
}

/// `x-kubernetes-list-type`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListType {
    /// The list is replaced as a whole.
    Atomic,
    /// No item occurs twice.
    Set,
    /// Items are identified by these fields.
    Map(Vec<String>),
}

/// One node: the keywords that a structural schema of Kubernetes may have.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// `type`. None: int-or-string, or preserved unknown values.
    pub type_: Option<Type>,
    /// `format`.
    pub format: String,
    /// `nullable`.
    pub nullable: bool,
    /// `default`.
    pub default: Option<Value>,
    /// `properties`.
    pub properties: BTreeMap<String, NodeId>,
    /// `additionalProperties` with a schema. An empty node means `true` or `false`.
    pub additional: Option<NodeId>,
    /// `additionalProperties: false`: an unknown member is an error, not only pruned.
    pub no_additional: bool,
    /// Whether it is the root of a custom object. It may not restrict `apiVersion`, `kind` and `metadata`.
    pub resource_root: bool,
    /// The OpenAPI definition of this node, such as `io.k8s.api.core.v1.ServicePort`.
    pub definition: Option<Arc<str>>,
    /// `items`.
    pub items: Option<NodeId>,
    /// `required`.
    pub required: Vec<String>,
    /// `x-kubernetes-int-or-string`.
    pub int_or_string: bool,
    /// `x-kubernetes-preserve-unknown-fields`.
    pub preserve_unknown: bool,
    /// `x-kubernetes-embedded-resource`.
    pub embedded: bool,
    /// `x-kubernetes-list-type` and `x-kubernetes-list-map-keys`.
    pub list_type: Option<ListType>,
    /// `x-kubernetes-map-type: atomic`.
    pub map_atomic: bool,
    /// `x-kubernetes-patch-merge-key`.
    pub patch_merge_key: Option<String>,
    /// `x-kubernetes-patch-strategy` (`merge`, `replace`, `retainKeys`, `merge,retainKeys`).
    pub patch_strategy: Option<String>,
    /// The value validations.
    pub checks: Checks,
    /// `allOf`, value validations only.
    pub all_of: Vec<NodeId>,
    /// `anyOf`, value validations only.
    pub any_of: Vec<NodeId>,
    /// `oneOf`, value validations only.
    pub one_of: Vec<NodeId>,
    /// `not`, value validations only.
    pub not: Option<NodeId>,
}

/// Value validations of a node.
#[derive(Clone, Debug, Default)]
pub struct Checks {
    /// `enum`.
    pub enumeration: Option<Vec<Value>>,
    /// `pattern`, compiled with RE2's meaning.
    pub pattern: Option<Regex>,
    /// `pattern` as written, for messages.
    pub pattern_text: String,
    /// `minimum` and whether it is exclusive.
    pub minimum: Option<(f64, bool)>,
    /// `maximum` and whether it is exclusive.
    pub maximum: Option<(f64, bool)>,
    /// `multipleOf`.
    pub multiple_of: Option<f64>,
    /// `minLength`.
    pub min_length: Option<usize>,
    /// `maxLength`.
    pub max_length: Option<usize>,
    /// `minItems`.
    pub min_items: Option<usize>,
    /// `maxItems`.
    pub max_items: Option<usize>,
    /// `uniqueItems`.
    pub unique_items: bool,
    /// `minProperties`.
    pub min_properties: Option<usize>,
    /// `maxProperties`.
    pub max_properties: Option<usize>,
}

impl Schema {
    /// A schema of these nodes with the root at `at`.
    pub fn new(nodes: Arc<[Node]>, at: NodeId) -> Self {
        Self { nodes, at }
    }

    /// The node of this schema.
    pub fn node(&self) -> &Node {
        &self.nodes[self.at as usize]
    }

    /// The schema of another node of the same arena.
    pub fn to(&self, at: NodeId) -> Schema {
        Schema { nodes: self.nodes.clone(), at }
    }

    /// The schema of a member: a named property, or else the additional one.
    pub fn member(&self, name: &str) -> Option<Schema> {
        let node = self.node();
        node.properties.get(name).copied().or(node.additional).map(|at| self.to(at))
    }

    /// The schema of the items of a list.
    pub fn items(&self) -> Option<Schema> {
        self.node().items.map(|at| self.to(at))
    }

    /// All nodes of the arena, by their [`NodeId`].
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The id of this schema's node.
    pub fn id(&self) -> NodeId {
        self.at
    }
}

impl Type {
    /// The type's name in a schema.
    pub fn name(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }

    fn parse(name: &str) -> Option<Self> {
        [Self::Object, Self::Array, Self::String, Self::Integer, Self::Number, Self::Boolean]
            .into_iter()
            .find(|t| t.name() == name)
    }
}

/// A path with a member added, as field paths are written.
pub(crate) fn child(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// A path with a map key added.
pub(crate) fn keyed(path: &str, key: &str) -> String {
    format!("{path}[{key}]")
}

/// A path with a list index added.
pub(crate) fn indexed(path: &str, index: usize) -> String {
    format!("{path}[{index}]")
}
