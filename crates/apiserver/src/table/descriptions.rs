//! The descriptions of fields that columns show, from the schemas of the `k8s-openapi` crate. kube-apiserver
//! sends the same. An unknown field gives an empty text; a test excludes it.

use crate::builtins::definitions;

/// The description of a field of `metadata`.
pub(super) fn metadata(field: &str) -> &'static str {
    description("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta", field)
}

/// The description of a field of a type, such as `core.v1.PodSpec`.
pub(super) fn field(type_: &str, field: &str) -> &'static str {
    description(&format!("io.k8s.api.{type_}"), field)
}

fn description(definition: &str, field: &str) -> &'static str {
    let schema = definitions::definitions().get(definition);
    let words = schema.and_then(|it| it["properties"][field]["description"].as_str());
    words.unwrap_or_default()
}
