//! The table of built-in kinds: their names, scope and field selectors. The server builds its
//! registry from it.

use super::service::{ServiceNetwork, ServiceRules};
use super::{apps, cluster, config, discovery, event, ingress, pod, rbac};
use crate::error::qualified;
use crate::kind::{Kind, NoRules, Rules, ScalePaths};
use crate::schema::Schema;
use std::sync::Arc;

/// The properties of one built-in kind.
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
    rules: fn(&ServiceNetwork) -> Arc<dyn Rules>,
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
    rules: |_| Arc::new(NoRules),
};
const CLUSTER: Entry = Entry { namespaced: false, ..NAMESPACED };

const NETWORKING: &str = "networking.k8s.io";
const RBAC: &str = "rbac.authorization.k8s.io";

/// All built-in kinds, in the order of discovery. `compile` makes the schema of a definition by its
/// name. The caller adds the rules of CustomResourceDefinitions.
pub fn all(network: &ServiceNetwork, compile: &dyn Fn(&str) -> Schema) -> Vec<Kind> {
    ENTRIES
        .iter()
        .map(|entry| entry.kind(compile(entry.definition), (entry.rules)(network)))
        .collect()
}

/// The definition of a built-in kind, by group and kind.
pub fn definition_name(group: &str, kind: &str) -> Option<&'static str> {
    let entry = ENTRIES.iter().find(|entry| (entry.group, entry.kind) == (group, kind));
    entry.map(|entry| entry.definition)
}

impl Entry {
    fn kind(&self, schema: Schema, rules: Arc<dyn Rules>) -> Kind {
        let scaled = self.group == "apps";
        // Both shapes of an Event are one stored object.
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

const ENTRIES: &[Entry] = &[
    Entry {
        definition: "io.k8s.api.core.v1.ConfigMap",
        kind: "ConfigMap",
        plural: "configmaps",
        short: &["cm"],
        rules: |_| Arc::new(config::ConfigMapRules),
        ..NAMESPACED
    },
    Entry {
        definition: "io.k8s.api.core.v1.Endpoints",
        kind: "Endpoints",
        plural: "endpoints",
        short: &["ep"],
        rules: |_| Arc::new(discovery::EndpointsRules),
        ..NAMESPACED
    },
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
        rules: |_| Arc::new(event::EventRules { new_shape: false }),
        ..NAMESPACED
    },
    Entry {
        definition: "io.k8s.api.core.v1.Namespace",
        kind: "Namespace",
        plural: "namespaces",
        short: &["ns"],
        status: true,
        selectable: &["status.phase"],
        rules: |_| Arc::new(cluster::NamespaceRules),
        ..CLUSTER
    },
    Entry {
        definition: "io.k8s.api.core.v1.Node",
        kind: "Node",
        plural: "nodes",
        short: &["no"],
        status: true,
        selectable: &["spec.unschedulable"],
        rules: |_| Arc::new(cluster::NodeRules),
        ..CLUSTER
    },
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
        rules: |_| Arc::new(pod::PodRules),
        ..NAMESPACED
    },
    Entry {
        definition: "io.k8s.api.core.v1.Secret",
        kind: "Secret",
        plural: "secrets",
        selectable: &["type"],
        rules: |_| Arc::new(config::SecretRules),
        ..NAMESPACED
    },
    Entry {
        definition: "io.k8s.api.core.v1.ServiceAccount",
        kind: "ServiceAccount",
        plural: "serviceaccounts",
        short: &["sa"],
        rules: |_| Arc::new(config::ServiceAccountRules),
        ..NAMESPACED
    },
    Entry {
        definition: "io.k8s.api.core.v1.Service",
        kind: "Service",
        plural: "services",
        short: &["svc"],
        category: "all",
        status: true,
        selectable: &["spec.clusterIP", "spec.type"],
        rules: |network| Arc::new(ServiceRules::new(network.clone())),
        ..NAMESPACED
    },
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
    Entry {
        definition: "io.k8s.api.apps.v1.Deployment",
        group: "apps",
        kind: "Deployment",
        plural: "deployments",
        short: &["deploy"],
        category: "all",
        status: true,
        rules: |_| Arc::new(apps::DeploymentRules),
        ..NAMESPACED
    },
    Entry {
        definition: "io.k8s.api.apps.v1.StatefulSet",
        group: "apps",
        kind: "StatefulSet",
        plural: "statefulsets",
        short: &["sts"],
        category: "all",
        status: true,
        rules: |_| Arc::new(apps::StatefulSetRules),
        ..NAMESPACED
    },
    Entry {
        definition: "io.k8s.api.coordination.v1.Lease",
        group: "coordination.k8s.io",
        kind: "Lease",
        plural: "leases",
        rules: |_| Arc::new(cluster::LeaseRules),
        ..NAMESPACED
    },
    Entry {
        definition: "io.k8s.api.discovery.v1.EndpointSlice",
        group: "discovery.k8s.io",
        kind: "EndpointSlice",
        plural: "endpointslices",
        rules: |network| {
            Arc::new(discovery::EndpointSliceRules { loopback: network.loopback_endpoints })
        },
        ..NAMESPACED
    },
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
        rules: |_| Arc::new(event::EventRules { new_shape: true }),
        ..NAMESPACED
    },
    Entry {
        definition: "io.k8s.api.networking.v1.IngressClass",
        group: NETWORKING,
        kind: "IngressClass",
        plural: "ingressclasses",
        rules: |_| Arc::new(ingress::IngressClassRules),
        ..CLUSTER
    },
    Entry {
        definition: "io.k8s.api.networking.v1.Ingress",
        group: NETWORKING,
        kind: "Ingress",
        plural: "ingresses",
        short: &["ing"],
        status: true,
        rules: |_| Arc::new(ingress::IngressRules),
        ..NAMESPACED
    },
    Entry {
        definition: "io.k8s.api.rbac.v1.ClusterRoleBinding",
        group: RBAC,
        kind: "ClusterRoleBinding",
        plural: "clusterrolebindings",
        rules: |_| Arc::new(rbac::BindingRules { namespaced: false }),
        ..CLUSTER
    },
    Entry {
        definition: "io.k8s.api.rbac.v1.ClusterRole",
        group: RBAC,
        kind: "ClusterRole",
        plural: "clusterroles",
        rules: |_| Arc::new(rbac::RoleRules { namespaced: false }),
        ..CLUSTER
    },
    Entry {
        definition: "io.k8s.api.rbac.v1.RoleBinding",
        group: RBAC,
        kind: "RoleBinding",
        plural: "rolebindings",
        rules: |_| Arc::new(rbac::BindingRules { namespaced: true }),
        ..NAMESPACED
    },
    Entry {
        definition: "io.k8s.api.rbac.v1.Role",
        group: RBAC,
        kind: "Role",
        plural: "roles",
        rules: |_| Arc::new(rbac::RoleRules { namespaced: true }),
        ..NAMESPACED
    },
];
