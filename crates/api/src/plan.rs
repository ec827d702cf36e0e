//! `Plan`: a part of what one load balancer must do. The leader writes them in our own namespace, the
//! load balancer's agent reads them; they hold references to Services and hashes of certificates,
//! never members or keys. What a fragment is belongs to `bowline-core`; here is its schema.

use crate::schema;
use bowline_core::hash::PlanHash;
use bowline_core::plan::Fragment;
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a load balancer must do for some of its consumers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, CustomResource, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "bowline.dev",
    version = "v1alpha1",
    kind = "Plan",
    plural = "plans",
    namespaced,
    category = "bowline",
    derive = "PartialEq",
    doc = "A Plan holds a part of what one load balancer must do: where it listens, which requests go where. Bowline writes Plans in its own namespace and agents follow them; a change by hand is undone.",
    printcolumn(
        name = "Load-Balancer",
        type_ = "string",
        json_path = ".spec.loadBalancer",
        description = "The load balancer that it is for."
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Hash",
        type_ = "string",
        json_path = ".spec.hash",
        description = "The hash of its fragments.",
        priority = 1
    )
)]
pub struct PlanSpec {
    /// The load balancer that it is for.
    #[schemars(schema_with = "schema::object_name")]
    pub load_balancer: String,
    /// The hash of the fragments here. The sum over all Plans of a load balancer is what its agent
    /// reports as applied.
    #[schemars(schema_with = "hash")]
    pub hash: PlanHash,
    /// What each Service or Ingress wants on the load balancer.
    #[schemars(schema_with = "fragments")]
    pub fragments: Vec<Fragment>,
}

fn hash(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "maxLength": 64, "pattern": "^[0-9a-f]{64}$" })
}

/// More than fits into an object, so that no plan fails for it.
const MOST_ITEMS: u64 = 65_536;
/// Longer than any text that is read into a fragment.
const LONGEST_TEXT: u64 = 8192;

/// The schema that core derives, with bounds.
fn fragments(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = <Vec<Fragment>>::json_schema(generator);
    bound(schema.ensure_object());
    for definition in generator.definitions_mut().values_mut() {
        bound_value(definition);
    }
    schema
}

fn bound(node: &mut serde_json::Map<String, Value>) {
    // What may be left out is derived as a list of its type and null.
    let type_ = node.get("type").map(|type_| type_.get(0).unwrap_or(type_));
    match type_.and_then(Value::as_str) {
        Some("string") if !node.contains_key("enum") && !node.contains_key("const") => {
            node.insert("maxLength".into(), LONGEST_TEXT.into());
        }
        Some("array") => {
            node.insert("maxItems".into(), MOST_ITEMS.into());
        }
        _ => {}
    }
    node.values_mut().for_each(bound_value);
}

fn bound_value(value: &mut Value) {
    match value {
        Value::Object(node) => bound(node),
        Value::Array(items) => items.iter_mut().for_each(bound_value),
        _ => {}
    }
}
