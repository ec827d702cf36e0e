//! Which columns each built-in kind has, by name, type, priority and explanation.

use super::descriptions as about;
use super::{age, created_at, name, network, pod, workload};
use crate::kind::{Cell, Column};
use jiff::Timestamp;
use serde_json::Value;

type Function = fn(&Value, Timestamp) -> Value;

/// The columns of a built-in kind, without Name unless it stands elsewhere than first. Kinds that
/// have none of their own show when an object was made.
pub fn columns(group: &str, kind: &str) -> Vec<Column> {
    let age = || column("Age", about::CREATION_TIMESTAMP, age);
    let containers = || {
        [
            wide("Containers", "Names of each container in the template.", workload::containers),
            wide(
                "Images",
                "Images referenced by each container in the template.",
                workload::images,
            ),
        ]
    };
    let subjects = |of: &str| {
        [
            wide("Users", &format!("Users in the {of}"), workload::users),
            wide("Groups", &format!("Groups in the {of}"), workload::groups),
            wide("ServiceAccounts", &format!("ServiceAccounts in the {of}"), workload::accounts),
        ]
    };
    let ready = |function| column("Ready", "Number of the pod with ready state", function);
    match (group, kind) {
        ("", "Pod") => vec![
            column(
                "Ready",
                "The aggregate readiness state of this pod for accepting traffic.",
                pod::ready,
            ),
            column("Status", "The aggregate status of the containers in this pod.", pod::status),
            column("Restarts", about::RESTARTS, pod::restarts),
            age(),
            wide("IP", about::POD_IP, pod::ip),
            wide("Node", about::NODE_NAME, pod::node),
            wide("Nominated Node", about::NOMINATED_NODE_NAME, pod::nominated_node),
            wide("Readiness Gates", about::READINESS_GATES, pod::readiness_gates),
        ],
        ("", "Service") => vec![
            column("Type", about::SERVICE_TYPE, network::service_type),
            column("Cluster-IP", about::CLUSTER_IP, network::cluster_ip),
            column("External-IP", about::EXTERNAL_IPS, network::external_ip),
            column("Port(s)", about::SERVICE_PORTS, network::service_ports),
            age(),
            wide("Selector", about::SERVICE_SELECTOR, network::service_selector),
        ],
        ("apps", "Deployment") => [
            ready(workload::ready),
            column("Up-to-date", about::UPDATED_REPLICAS, workload::up_to_date),
            column("Available", about::AVAILABLE_REPLICAS, workload::available),
            age(),
        ]
        .into_iter()
        .chain(containers())
        .chain([wide("Selector", about::DEPLOYMENT_SELECTOR, workload::selector)])
        .collect(),
        ("apps", "StatefulSet") => {
            [ready(workload::ready), age()].into_iter().chain(containers()).collect()
        }
        ("networking.k8s.io", "Ingress") => vec![
            column("Class", about::INGRESS_CLASS, network::ingress_class),
            column("Hosts", about::INGRESS_HOSTS, network::ingress_hosts),
            column("Address", about::INGRESS_ADDRESS, network::ingress_address),
            column("Ports", "Ports of TLS configurations that open", network::ingress_ports),
            age(),
        ],
        ("networking.k8s.io", "IngressClass") => vec![
            Column { cell: Cell::Function(network::class_name), ..name_column() },
            column(
                "Controller",
                "Controller that is responsible for handling this class",
                network::class_controller,
            ),
            column(
                "Parameters",
                "A reference to a resource with additional parameters",
                network::class_parameters,
            ),
            age(),
        ],
        ("", "Endpoints") => {
            vec![column("Endpoints", about::SUBSETS, network::endpoints), age()]
        }
        ("discovery.k8s.io", "EndpointSlice") => vec![
            column("AddressType", about::ADDRESS_TYPE, network::address_type),
            column("Ports", about::SLICE_PORTS, network::slice_ports),
            column("Endpoints", about::SLICE_ENDPOINTS, network::slice_endpoints),
            age(),
        ],
        ("", "ConfigMap") => {
            vec![column("Data", about::CONFIG_MAP_DATA, workload::config_data), age()]
        }
        ("", "Secret") => vec![
            column("Type", about::SECRET_TYPE, workload::secret_type),
            column("Data", about::SECRET_DATA, workload::secret_data),
            age(),
        ],
        ("" | "events.k8s.io", "Event") => vec![
            column("Last Seen", about::EVENT_LAST, workload::event_last),
            column("Type", about::EVENT_TYPE, workload::event_type),
            column("Reason", about::EVENT_REASON, workload::event_reason),
            column("Object", "The object that this event is about.", workload::event_object),
            wide("Subobject", about::FIELD_PATH, workload::event_field_path),
            wide("Source", about::EVENT_SOURCE, workload::event_source),
            column("Message", about::EVENT_MESSAGE, workload::event_message),
            wide("First Seen", about::EVENT_FIRST, workload::event_first),
            wide("Count", "The number of times this event has occurred.", workload::event_count),
            Column { priority: 1, ..name_column() },
        ],
        ("coordination.k8s.io", "Lease") => {
            vec![column("Holder", about::HOLDER, workload::lease_holder), age()]
        }
        ("", "Namespace") => {
            vec![column("Status", "The status of the namespace", workload::phase), age()]
        }
        ("", "Node") => vec![
            column("Status", "The status of the node", workload::node_status),
            column("Roles", "The roles of the node", workload::node_roles),
            age(),
            column("Version", "Kubelet Version reported by the node.", workload::node_version),
            wide("Internal-IP", about::NODE_ADDRESSES, workload::node_internal_ip),
            wide("External-IP", about::NODE_ADDRESSES, workload::node_external_ip),
            wide("OS-Image", about::OS_IMAGE, workload::node_os),
            wide("Kernel-Version", about::KERNEL_VERSION, workload::node_kernel),
            wide("Container-Runtime", about::RUNTIME_VERSION, workload::node_runtime),
        ],
        ("", "ServiceAccount") => vec![age()],
        ("rbac.authorization.k8s.io", "RoleBinding") => {
            [column("Role", about::ROLE_REF, workload::role_ref), age()]
                .into_iter()
                .chain(subjects("roleBinding"))
                .collect()
        }
        ("rbac.authorization.k8s.io", "ClusterRoleBinding") => {
            [column("Role", about::CLUSTER_ROLE_REF, workload::role_ref), age()]
                .into_iter()
                .chain(subjects("clusterRoleBinding"))
                .collect()
        }
        _ => vec![Column {
            type_: "date".to_owned(),
            ..column("Created At", about::CREATION_TIMESTAMP, created_at)
        }],
    }
}

/// The column that a custom kind has when it names none.
pub fn age_column() -> Column {
    Column {
        type_: "date".to_owned(),
        cell: Cell::Path(".metadata.creationTimestamp".to_owned()),
        ..column("Age", about::CREATION_TIMESTAMP, age)
    }
}

/// The column that every table has.
pub(super) fn name_column() -> Column {
    Column { format: "name".to_owned(), ..column("Name", about::NAME, name) }
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
