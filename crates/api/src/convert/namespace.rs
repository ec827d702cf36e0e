//! Namespaces: their labels, by which load balancers say who may use them.

use super::read::name;
use bowline_core::objects;
use k8s_openapi::api::core::v1::Namespace;

/// What the planner knows of a Namespace.
pub fn namespace(namespace: &Namespace) -> objects::Namespace {
    let labels = namespace.metadata.labels.iter().flatten();
    objects::Namespace {
        name: name(&namespace.metadata),
        labels: labels.map(|(key, value)| (key.as_str().into(), value.as_str().into())).collect(),
    }
}
