//! The columns of each built-in kind: name, type, priority and explanation. A column that shows a field has the
//! field's description from the published schemas, as in kube-apiserver. The explanations of the others differ
//! from kube-apiserver's.

use super::descriptions as about;
use super::{age, created_at, name, network, pod, workload};
use crate::kind::{Cell, Column};
use jiff::Timestamp;
use serde_json::Value;

type Function = fn(&Value, Timestamp) -> Value;

/// The columns of a built-in kind. Name is listed only if it is not the first. Kinds without columns of their
/// own show their creation time.
pub fn columns(group: &str, kind: &str) -> Vec<Column> {
    let age = || column("Age", about::metadata("creationTimestamp"), age);
    let containers = || {
        [
            wide("Containers", "Names of the containers of its template.", workload::containers),
            wide("Images", "Images of the containers of its template.", workload::images),
        ]
    };
    let subjects = || {
        [
            wide("Users", "Users that are given them.", workload::users),
            wide("Groups", "Groups that are given them.", workload::groups),
            wide("ServiceAccounts", "ServiceAccounts that are given them.", workload::accounts),
        ]
    };
    let ready =
        |function| column("Ready", "Pods that are ready, of those that are wanted.", function);
    match (group, kind) {
        ("", "Pod") => vec![
            column("Ready", "Containers that are ready, of all.", pod::ready),
            column(
                "Status",
                "Phase of the Pod, or why one of its containers waits or has ended.",
                pod::status,
            ),
            column(
                "Restarts",
                "How often its containers were restarted, and how long ago the last time was.",
                pod::restarts,
            ),
            age(),
            wide("IP", about::field("core.v1.PodStatus", "podIP"), pod::ip),
            wide("Node", about::field("core.v1.PodSpec", "nodeName"), pod::node),
            wide(
                "Nominated Node",
                about::field("core.v1.PodStatus", "nominatedNodeName"),
                pod::nominated_node,
            ),
            wide(
                "Readiness Gates",
                about::field("core.v1.PodSpec", "readinessGates"),
                pod::readiness_gates,
            ),
        ],
        ("", "Service") => vec![
            column("Type", about::field("core.v1.ServiceSpec", "type"), network::service_type),
            column(
                "Cluster-IP",
                about::field("core.v1.ServiceSpec", "clusterIP"),
                network::cluster_ip,
            ),
            column(
                "External-IP",
                about::field("core.v1.ServiceSpec", "externalIPs"),
                network::external_ip,
            ),
            column("Port(s)", about::field("core.v1.ServiceSpec", "ports"), network::service_ports),
            age(),
            wide(
                "Selector",
                about::field("core.v1.ServiceSpec", "selector"),
                network::service_selector,
            ),
        ],
        ("apps", "Deployment") => [
            ready(workload::ready),
            column(
                "Up-to-date",
                about::field("apps.v1.DeploymentStatus", "updatedReplicas"),
                workload::up_to_date,
            ),
            column(
                "Available",
                about::field("apps.v1.DeploymentStatus", "availableReplicas"),
                workload::available,
            ),
            age(),
        ]
        .into_iter()
        .chain(containers())
        .chain([wide(
            "Selector",
            about::field("apps.v1.DeploymentSpec", "selector"),
            workload::selector,
        )])
        .collect(),
        ("apps", "StatefulSet") => {
            [ready(workload::ready), age()].into_iter().chain(containers()).collect()
        }
        ("networking.k8s.io", "Ingress") => vec![
            column(
                "Class",
                "IngressClass by which a controller knows the Ingress as its own.",
                network::ingress_class,
            ),
            column("Hosts", "Hosts of its rules; * stands for every host.", network::ingress_hosts),
            column(
                "Address",
                "Addresses and host names at which its load balancer is reached.",
                network::ingress_address,
            ),
            column(
                "Ports",
                "Ports at which it is served: 80, and 443 where it has TLS.",
                network::ingress_ports,
            ),
            age(),
        ],
        ("networking.k8s.io", "IngressClass") => vec![
            Column { cell: Cell::Function(network::class_name), ..name_column() },
            column(
                "Controller",
                "Controller of the Ingresses of this class.",
                network::class_controller,
            ),
            column(
                "Parameters",
                "Object with more settings for the controller.",
                network::class_parameters,
            ),
            age(),
        ],
        ("", "Endpoints") => {
            vec![
                column(
                    "Endpoints",
                    about::field("core.v1.Endpoints", "subsets"),
                    network::endpoints,
                ),
                age(),
            ]
        }
        ("discovery.k8s.io", "EndpointSlice") => vec![
            column(
                "AddressType",
                about::field("discovery.v1.EndpointSlice", "addressType"),
                network::address_type,
            ),
            column(
                "Ports",
                about::field("discovery.v1.EndpointSlice", "ports"),
                network::slice_ports,
            ),
            column(
                "Endpoints",
                about::field("discovery.v1.EndpointSlice", "endpoints"),
                network::slice_endpoints,
            ),
            age(),
        ],
        ("", "ConfigMap") => {
            vec![
                column("Data", about::field("core.v1.ConfigMap", "data"), workload::config_data),
                age(),
            ]
        }
        ("", "Secret") => vec![
            column("Type", about::field("core.v1.Secret", "type"), workload::secret_type),
            column("Data", about::field("core.v1.Secret", "data"), workload::secret_data),
            age(),
        ],
        ("" | "events.k8s.io", "Event") => vec![
            column(
                "Last Seen",
                about::field("core.v1.Event", "lastTimestamp"),
                workload::event_last,
            ),
            column("Type", about::field("core.v1.Event", "type"), workload::event_type),
            column("Reason", about::field("core.v1.Event", "reason"), workload::event_reason),
            column(
                "Object",
                about::field("core.v1.Event", "involvedObject"),
                workload::event_object,
            ),
            wide(
                "Subobject",
                about::field("core.v1.ObjectReference", "fieldPath"),
                workload::event_field_path,
            ),
            wide("Source", about::field("core.v1.Event", "source"), workload::event_source),
            column("Message", about::field("core.v1.Event", "message"), workload::event_message),
            wide(
                "First Seen",
                about::field("core.v1.Event", "firstTimestamp"),
                workload::event_first,
            ),
            wide("Count", about::field("core.v1.Event", "count"), workload::event_count),
            Column { priority: 1, ..name_column() },
        ],
        ("coordination.k8s.io", "Lease") => {
            vec![
                column(
                    "Holder",
                    about::field("coordination.v1.LeaseSpec", "holderIdentity"),
                    workload::lease_holder,
                ),
                age(),
            ]
        }
        ("", "Namespace") => {
            vec![column("Status", "Phase of the namespace.", workload::phase), age()]
        }
        ("", "Node") => vec![
            column(
                "Status",
                "Whether the node is ready, and whether Pods may be scheduled to it.",
                workload::node_status,
            ),
            column("Roles", "Roles that labels of the node name.", workload::node_roles),
            age(),
            column(
                "Version",
                about::field("core.v1.NodeSystemInfo", "kubeletVersion"),
                workload::node_version,
            ),
            wide(
                "Internal-IP",
                about::field("core.v1.NodeStatus", "addresses"),
                workload::node_internal_ip,
            ),
            wide(
                "External-IP",
                about::field("core.v1.NodeStatus", "addresses"),
                workload::node_external_ip,
            ),
            wide("OS-Image", about::field("core.v1.NodeSystemInfo", "osImage"), workload::node_os),
            wide(
                "Kernel-Version",
                about::field("core.v1.NodeSystemInfo", "kernelVersion"),
                workload::node_kernel,
            ),
            wide(
                "Container-Runtime",
                about::field("core.v1.NodeSystemInfo", "containerRuntimeVersion"),
                workload::node_runtime,
            ),
        ],
        ("", "ServiceAccount") => vec![age()],
        ("rbac.authorization.k8s.io", "RoleBinding") => [
            column(
                "Role",
                "Role or ClusterRole whose rights are given in this namespace.",
                workload::role_ref,
            ),
            age(),
        ]
        .into_iter()
        .chain(subjects())
        .collect(),
        ("rbac.authorization.k8s.io", "ClusterRoleBinding") => [
            column(
                "Role",
                "ClusterRole whose rights are given in the whole cluster.",
                workload::role_ref,
            ),
            age(),
        ]
        .into_iter()
        .chain(subjects())
        .collect(),
        _ => vec![Column {
            type_: "date".to_owned(),
            ..column("Created At", about::metadata("creationTimestamp"), created_at)
        }],
    }
}

/// The default column of a custom kind.
pub fn age_column() -> Column {
    Column {
        type_: "date".to_owned(),
        cell: Cell::Path(".metadata.creationTimestamp".to_owned()),
        ..column("Age", about::metadata("creationTimestamp"), age)
    }
}

/// The column that every table has.
pub(super) fn name_column() -> Column {
    Column { format: "name".to_owned(), ..column("Name", about::metadata("name"), name) }
}

fn column(name: &str, description: &str, cell: Function) -> Column {
    Column {
        name: name.to_owned(),
        type_: "string".to_owned(),
        format: String::new(),
        description: description.to_owned(),
        priority: 0,
        cell: Cell::Function(cell),
    }
}

/// A column that is shown only with `-o wide`.
fn wide(name: &str, description: &str, cell: Function) -> Column {
    Column { priority: 1, ..column(name, description, cell) }
}
