//! Nodes: the addresses of their node ports, and whether traffic may be sent there.

use super::read::{deleting, name};
use bowline_core::objects;
use k8s_openapi::api::core::v1::Node;

/// The label of nodes that load balancers must not use.
const LABEL_EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// The taint of nodes that the autoscaler is about to remove.
const TAINT_LEAVING: &str = "ToBeDeletedByClusterAutoscaler";

/// A Node as the resolver gets it.
pub fn node(node: &Node) -> objects::Node {
    let status = node.status.as_ref();
    let addresses = status.and_then(|status| status.addresses.as_ref()).into_iter().flatten();
    let mut conditions = status.and_then(|status| status.conditions.as_ref()).into_iter().flatten();
    let mut taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref()).into_iter().flatten();
    let labels = node.metadata.labels.as_ref();
    objects::Node {
        name: name(&node.metadata),
        addresses: addresses
            .filter(|address| address.type_ == "InternalIP")
            .filter_map(|address| address.address.parse().ok())
            .collect(),
        usable: conditions.any(|c| c.type_ == "Ready" && c.status == "True")
            && !labels.is_some_and(|labels| labels.contains_key(LABEL_EXCLUDED))
            && !deleting(&node.metadata)
            && !taints.any(|taint| taint.key == TAINT_LEAVING),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::testing::object;

    const READY: &str = "
metadata: {name: n1}
status:
  conditions: [{type: DiskPressure, status: 'True'}, {type: Ready, status: 'True'}]
  addresses: [{type: Hostname, address: n1}, {type: InternalIP, address: 192.0.2.1}, {type: InternalIP, address: '2001:db8::1'}, {type: ExternalIP, address: 203.0.113.1}]
";

    #[test]
    fn a_node_is_where_its_internal_addresses_are() {
        let expected = objects::Node {
            name: "n1".into(),
            addresses: vec!["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()],
            usable: true,
        };
        assert_eq!(node(&object(READY)), expected);
    }

    #[test]
    fn a_node_that_is_not_ready_excluded_or_leaving_is_not_used() {
        let cases = [
            ("status: 'True'}]", "status: 'Unknown'}]"),
            (
                "{name: n1}",
                "{name: n1, labels: {node.kubernetes.io/exclude-from-external-load-balancers: ''}}",
            ),
            ("{name: n1}", "{name: n1, deletionTimestamp: '2026-01-01T00:00:00Z'}"),
            (
                "status:\n",
                "spec: {taints: [{key: ToBeDeletedByClusterAutoscaler, effect: NoSchedule}]}\nstatus:\n",
            ),
            (READY, "metadata: {name: n1}"),
        ];
        for (from, to) in cases {
            let yaml = READY.replacen(from, to, 1);
            assert!(!node(&object(&yaml)).usable, "{yaml}");
        }
    }
}
