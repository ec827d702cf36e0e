//! The kinds that every Kubernetes API has: their names, OpenAPI definitions and rules. Everything here
//! is a function of values; the store, the clock and the network are elsewhere.

pub mod apps;
pub mod cluster;
pub mod config;
pub mod definitions;
pub mod discovery;
pub mod event;
mod fields;
pub mod ingress;
mod ip;
mod merge_keys;
pub mod metadata;
pub mod pod;
mod quantity;
pub mod rbac;
pub mod service;

pub use service::ServiceNetwork;

use crate::error::qualified;
use crate::kind::{Kind, NoRules, Rules, ScalePaths};
use crate::schema::Schema;
use serde_json::Value;
use std::sync::Arc;

/// What is peculiar to a built-in kind, besides its rules.
struct Entry {
    definition: &'static str,
    group: &'static str,
    kind: &'static str,
    plural: &'static str,
    short: &'static [&'static str],
    category: &'static str,
    namespaced: bool,
    status: bool,
    selectable: &'static [&'static str],
}

const NAMESPACED: Entry = Entry {
    definition: "",
    group: "",
    kind: "",
    plural: "",
    short: &[],
    category: "",
    namespaced: true,
    status: false,
    selectable: &[],
};
const CLUSTER: Entry = Entry { namespaced: false, ..NAMESPACED };

const NETWORKING: &str = "networking.k8s.io";
const RBAC: &str = "rbac.authorization.k8s.io";

/// All built-in kinds, in the order in which discovery lists them. `compile` makes the schema of a
/// definition, by its name. The rules of CustomResourceDefinitions are the caller's to put in.
pub fn all(network: ServiceNetwork, compile: &dyn Fn(&str) -> Schema) -> Vec<Kind> {
    let mut kinds = Vec::new();
    let mut add = |entry: Entry, rules: Arc<dyn Rules>| {
        kinds.push(entry.kind(compile(entry.definition), rules));
    };
    add(
        Entry {
            definition: "io.k8s.api.core.v1.ConfigMap",
            kind: "ConfigMap",
            plural: "configmaps",
            short: &["cm"],
            ..NAMESPACED
        },
        Arc::new(config::ConfigMapRules),
    );
    add(
        Entry {
            definition: "io.k8s.api.core.v1.Endpoints",
            kind: "Endpoints",
            plural: "endpoints",
            short: &["ep"],
            ..NAMESPACED
        },
        Arc::new(discovery::EndpointsRules),
    );
    add(
        Entry {
            definition: "io.k8s.api.core.v1.Event",
            kind: "Event",
            plural: "events",
            short: &["ev"],
            selectable: &[
                "involvedObject.kind",
                "involvedObject.namespace",
                "involvedObject.name",
                "involvedObject.uid",
                "involvedObject.apiVersion",
                "involvedObject.resourceVersion",
                "involvedObject.fieldPath",
                "reason",
                "reportingComponent",
                "source",
                "type",
            ],
            ..NAMESPACED
        },
        Arc::new(event::EventRules { new_shape: false }),
    );
    add(
        Entry {
            definition: "io.k8s.api.core.v1.Namespace",
            kind: "Namespace",
            plural: "namespaces",
            short: &["ns"],
            status: true,
            selectable: &["status.phase"],
            ..CLUSTER
        },
        Arc::new(cluster::NamespaceRules),
    );
    add(
        Entry {
            definition: "io.k8s.api.core.v1.Node",
            kind: "Node",
            plural: "nodes",
            short: &["no"],
            status: true,
            selectable: &["spec.unschedulable"],
            ..CLUSTER
        },
        Arc::new(cluster::NodeRules),
    );
    add(
        Entry {
            definition: "io.k8s.api.core.v1.Pod",
            kind: "Pod",
            plural: "pods",
            short: &["po"],
            category: "all",
            status: true,
            selectable: &[
                "spec.nodeName",
                "spec.restartPolicy",
                "spec.schedulerName",
                "spec.serviceAccountName",
                "spec.hostNetwork",
                "status.phase",
                "status.podIP",
                "status.nominatedNodeName",
            ],
            ..NAMESPACED
        },
        Arc::new(pod::PodRules),
    );
    add(
        Entry {
            definition: "io.k8s.api.core.v1.Secret",
            kind: "Secret",
            plural: "secrets",
            selectable: &["type"],
            ..NAMESPACED
        },
        Arc::new(config::SecretRules),
    );
    add(
        Entry {
            definition: "io.k8s.api.core.v1.ServiceAccount",
            kind: "ServiceAccount",
            plural: "serviceaccounts",
            short: &["sa"],
            ..NAMESPACED
        },
        Arc::new(config::ServiceAccountRules),
    );
    add(
        Entry {
            definition: "io.k8s.api.core.v1.Service",
            kind: "Service",
            plural: "services",
            short: &["svc"],
            category: "all",
            status: true,
            selectable: &["spec.clusterIP", "spec.type"],
            ..NAMESPACED
        },
        Arc::new(service::ServiceRules::new(network)),
    );
    add(
        Entry {
            definition: "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition",
            group: "apiextensions.k8s.io",
            kind: "CustomResourceDefinition",
            plural: "customresourcedefinitions",
            short: &["crd", "crds"],
            category: "api-extensions",
            status: true,
            ..CLUSTER
        },
        Arc::new(NoRules),
    );
    add(
        Entry {
            definition: "io.k8s.api.apps.v1.Deployment",
            group: "apps",
            kind: "Deployment",
            plural: "deployments",
            short: &["deploy"],
            category: "all",
            status: true,
            ..NAMESPACED
        },
        Arc::new(apps::DeploymentRules),
    );
    add(
        Entry {
            definition: "io.k8s.api.apps.v1.StatefulSet",
            group: "apps",
            kind: "StatefulSet",
            plural: "statefulsets",
            short: &["sts"],
            category: "all",
            status: true,
            ..NAMESPACED
        },
        Arc::new(apps::StatefulSetRules),
    );
    add(
        Entry {
            definition: "io.k8s.api.coordination.v1.Lease",
            group: "coordination.k8s.io",
            kind: "Lease",
            plural: "leases",
            ..NAMESPACED
        },
        Arc::new(cluster::LeaseRules),
    );
    add(
        Entry {
            definition: "io.k8s.api.discovery.v1.EndpointSlice",
            group: "discovery.k8s.io",
            kind: "EndpointSlice",
            plural: "endpointslices",
            ..NAMESPACED
        },
        Arc::new(discovery::EndpointSliceRules),
    );
    add(
        Entry {
            definition: "io.k8s.api.events.v1.Event",
            group: "events.k8s.io",
            kind: "Event",
            plural: "events",
            short: &["ev"],
            selectable: &[
                "reason",
                "regarding.kind",
                "regarding.namespace",
                "regarding.name",
                "regarding.uid",
                "regarding.apiVersion",
                "regarding.resourceVersion",
                "regarding.fieldPath",
                "reportingController",
                "type",
            ],
            ..NAMESPACED
        },
        Arc::new(event::EventRules { new_shape: true }),
    );
    add(
        Entry {
            definition: "io.k8s.api.networking.v1.IngressClass",
            group: NETWORKING,
            kind: "IngressClass",
            plural: "ingressclasses",
            ..CLUSTER
        },
        Arc::new(ingress::IngressClassRules),
    );
    add(
        Entry {
            definition: "io.k8s.api.networking.v1.Ingress",
            group: NETWORKING,
            kind: "Ingress",
            plural: "ingresses",
            short: &["ing"],
            status: true,
            ..NAMESPACED
        },
        Arc::new(ingress::IngressRules),
    );
    for (namespaced, role, binding) in
        [(false, "ClusterRole", "ClusterRoleBinding"), (true, "Role", "RoleBinding")]
    {
        let scope = if namespaced { NAMESPACED } else { CLUSTER };
        let (binding_definition, role_definition, bindings, roles) = if namespaced {
            ("io.k8s.api.rbac.v1.RoleBinding", "io.k8s.api.rbac.v1.Role", "rolebindings", "roles")
        } else {
            (
                "io.k8s.api.rbac.v1.ClusterRoleBinding",
                "io.k8s.api.rbac.v1.ClusterRole",
                "clusterrolebindings",
                "clusterroles",
            )
        };
        add(
            Entry {
                definition: binding_definition,
                group: RBAC,
                kind: binding,
                plural: bindings,
                ..scope
            },
            Arc::new(rbac::BindingRules { namespaced }),
        );
        let scope = if namespaced { NAMESPACED } else { CLUSTER };
        add(
            Entry { definition: role_definition, group: RBAC, kind: role, plural: roles, ..scope },
            Arc::new(rbac::RoleRules { namespaced }),
        );
    }
    kinds
}

impl Entry {
    fn kind(&self, schema: Schema, rules: Arc<dyn Rules>) -> Kind {
        let scaled = self.group == "apps";
        // Both shapes of an Event are one object.
        let storage = if self.plural == "events" { "" } else { self.group };
        Kind {
            group: self.group.to_owned(),
            version: "v1".to_owned(),
            kind: self.kind.to_owned(),
            list_kind: format!("{}List", self.kind),
            plural: self.plural.to_owned(),
            singular: self.kind.to_lowercase(),
            short_names: self.short.iter().map(|name| (*name).to_owned()).collect(),
            categories: [self.category]
                .iter()
                .filter(|category| !category.is_empty())
                .map(|category| (*category).to_owned())
                .collect(),
            namespaced: self.namespaced,
            status: self.status,
            scale: scaled.then(|| ScalePaths {
                spec_replicas: ".spec.replicas".to_owned(),
                status_replicas: ".status.replicas".to_owned(),
                label_selector: Some(".spec.selector".to_owned()),
            }),
            storage: qualified(storage, self.plural).into(),
            storage_version: "v1".to_owned(),
            schema,
            strategic: true,
            columns: Vec::new(),
            selectable: self.selectable.iter().map(|field| (*field).to_owned()).collect(),
            rules,
        }
    }
}

/// The definition of a built-in kind, by group and kind.
pub fn definition_name(group: &str, kind: &str) -> Option<&'static str> {
    definitions::TOP_LEVEL
        .iter()
        .find(|(_, g, _, k, _)| (*g, *k) == (group, kind))
        .map(|(name, ..)| *name)
}

/// Drops members that are null, which a typed server takes for absent. Free-form values keep theirs.
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
    use crate::schema::Node;
    use serde_json::json;
    use std::collections::BTreeSet;

    fn stub(_: &str) -> Schema {
        Schema::new(Arc::from([Node::default()]), 0)
    }

    fn kinds() -> Vec<Kind> {
        all(ServiceNetwork::default(), &stub)
    }

    #[test]
    fn every_kind_has_a_definition_that_names_it() {
        let asked = std::cell::RefCell::new(Vec::new());
        let kinds = all(ServiceNetwork::default(), &|name| {
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
                kind.rules.from_storage(&mut object);
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
