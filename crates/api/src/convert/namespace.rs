//! Namespaces: their labels, by which load balancers select the namespaces that may use them.

use super::read::name;
use bowline_core::objects;
use k8s_openapi::api::core::v1::Namespace;

/// A Namespace as the planner gets it.
pub fn namespace(namespace: &Namespace) -> objects::Namespace {
    let labels = namespace.metadata.labels.iter().flatten();
    objects::Namespace {
        name: name(&namespace.metadata),
        labels: labels.map(|(key, value)| (key.as_str().into(), value.as_str().into())).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::testing::object;

    #[test]
    fn a_namespace_has_its_labels() {
        let read = namespace(&object("metadata: {name: shop, labels: {team: web}}"));
        let labels = [("team".into(), "web".into())].into();
        assert_eq!(read, objects::Namespace { name: "shop".into(), labels });
    }
}
