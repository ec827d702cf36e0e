//! Nodes, Services and AddressPools, as far as announcing depends on them.

use super::read::{deleting, key, name};
use crate::address::Address;
use crate::address_pool::AddressPool;
use bowline_core::ObjectKey;
use bowline_core::addresses::Labels;
use bowline_core::announce::{AnnouncedService, Announcing, SpeakerNode};
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::net::IpAddr;
use std::sync::Arc;

/// The label of nodes that load balancers must not use.
const LABEL_EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// Taints of nodes that are about to be removed, or are shut down.
const TAINTS_LEAVING: [&str; 3] = [
    "ToBeDeletedByClusterAutoscaler",
    "karpenter.sh/disrupted",
    "node.cloudprovider.kubernetes.io/shutdown",
];

fn labels(meta: &ObjectMeta) -> Labels {
    let all = meta.labels.iter().flatten();
    all.map(|(key, value)| (key.as_str().into(), value.as_str().into())).collect()
}

/// A Node, as the speaker gets it.
pub fn speaker_node(node: &Node) -> SpeakerNode {
    let spec = node.spec.as_ref();
    let status = node.status.as_ref();
    let mut conditions = status.and_then(|status| status.conditions.as_ref()).into_iter().flatten();
    let mut taints = spec.and_then(|spec| spec.taints.as_ref()).into_iter().flatten();
    let labels = labels(&node.metadata);
    SpeakerNode {
        name: name(&node.metadata),
        ready: conditions.any(|it| it.type_ == "Ready" && it.status == "True"),
        cordoned: spec.and_then(|spec| spec.unschedulable).unwrap_or_default(),
        excluded: labels.contains_key(LABEL_EXCLUDED),
        leaving: deleting(&node.metadata)
            || taints.any(|taint| TAINTS_LEAVING.contains(&taint.key.as_str())),
        labels,
        addresses: internal_addresses(node),
    }
}

/// Where the cluster reaches a Node.
fn internal_addresses(node: &Node) -> Vec<IpAddr> {
    let status = node.status.as_ref();
    let all = status.and_then(|status| status.addresses.as_ref()).into_iter().flatten();
    all.filter(|it| it.type_ == "InternalIP").filter_map(|it| it.address.parse().ok()).collect()
}

/// Where the status of an Address says that it is announced.
pub fn announcing(address: &Address) -> Announcing {
    let by = address.status.as_ref().and_then(|it| it.announced_by.as_ref());
    by.map_or_else(Announcing::default, |by| Announcing {
        nodes: usize::try_from(by.bgp_nodes).unwrap_or(0),
        first: by.first_bgp_nodes.iter().map(|it| it.as_str().into()).collect(),
    })
}

/// A Service, as the speaker gets it.
pub fn announced_service(service: &Service) -> (ObjectKey, AnnouncedService) {
    let spec = service.spec.as_ref();
    let policy = spec.and_then(|spec| spec.external_traffic_policy.as_deref());
    let port = spec.and_then(|spec| spec.health_check_node_port);
    let announced = AnnouncedService {
        labels: labels(&service.metadata),
        local_only: policy == Some("Local"),
        health_check_port: port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0),
    };
    (key(&service.metadata), announced)
}

/// The name and the labels of an AddressPool.
pub fn pool_labels(pool: &AddressPool) -> (Arc<str>, Labels) {
    (name(&pool.metadata), labels(&pool.metadata))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::testing::object;

    const READY: &str = "
metadata: {name: n1, labels: {rack: a}}
status:
  addresses:
    - {type: Hostname, address: n1}
    - {type: ExternalIP, address: 203.0.113.1}
    - {type: InternalIP, address: 192.0.2.1}
  conditions: [{type: DiskPressure, status: 'False'}, {type: Ready, status: 'True'}]
";

    #[test]
    fn a_node_announces_unless_something_speaks_against_it() {
        let sound = SpeakerNode {
            name: "n1".into(),
            labels: [("rack".into(), "a".into())].into(),
            ready: true,
            addresses: vec![[192, 0, 2, 1].into()],
            ..SpeakerNode::default()
        };
        assert_eq!(speaker_node(&object(READY)), sound);
        let excluded = "node.kubernetes.io/exclude-from-external-load-balancers";
        for (from, to, expected) in [
            ("'True'", "Unknown", SpeakerNode { ready: false, ..sound.clone() }),
            (
                "status:",
                "spec: {unschedulable: true}\nstatus:",
                SpeakerNode { cordoned: true, ..sound.clone() },
            ),
            (
                "rack: a",
                &*format!("rack: a, {excluded}: ''"),
                SpeakerNode {
                    excluded: true,
                    labels: [("rack".into(), "a".into()), (excluded.into(), "".into())].into(),
                    ..sound.clone()
                },
            ),
            (
                "status:",
                "spec: {taints: [{key: karpenter.sh/disrupted, effect: NoSchedule}]}\nstatus:",
                SpeakerNode { leaving: true, ..sound.clone() },
            ),
            (
                "name: n1,",
                "name: n1, deletionTimestamp: '2026-01-01T00:00:00Z',",
                SpeakerNode { leaving: true, ..sound.clone() },
            ),
        ] {
            let yaml = READY.replacen(from, to, 1);
            assert_eq!(speaker_node(&object(&yaml)), expected, "{yaml}");
        }
    }

    #[test]
    fn a_service_says_whether_every_node_serves_it() {
        let read = |spec: &str| {
            announced_service(&object(&format!(
                "metadata: {{namespace: shop, name: web, labels: {{a: b}}}}\nspec: {spec}"
            )))
        };
        let service = AnnouncedService {
            labels: [("a".into(), "b".into())].into(),
            ..AnnouncedService::default()
        };
        let key = ObjectKey::new("shop", "web");
        assert_eq!(read("{externalTrafficPolicy: Cluster}"), (key.clone(), service.clone()));
        let local = "{externalTrafficPolicy: Local, healthCheckNodePort: 30000}";
        let local_only =
            AnnouncedService { local_only: true, health_check_port: Some(30_000), ..service };
        assert_eq!(read(local), (key.clone(), local_only.clone()));
        for port in ["0", "-1", "65536"] {
            let spec = format!("{{externalTrafficPolicy: Local, healthCheckNodePort: {port}}}");
            let expected = AnnouncedService { health_check_port: None, ..local_only.clone() };
            assert_eq!(read(&spec), (key.clone(), expected));
        }
    }
}
