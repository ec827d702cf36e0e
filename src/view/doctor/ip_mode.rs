//! Checks that the nodes heed `ipMode: Proxy`. Addresses behind a load balancer are written so: connections of the cluster's
//! own Pods and nodes shall go through the proxy, too. Older kube-proxies, and some networks that replace it, lead such
//! connections past the proxy. What is read is in the Nodes, so it takes no more rights. Pure.

use super::{Check, Checked, some};
use crate::view::facts::Facts;
use bowline_api::address::HolderKind;
use k8s_openapi::api::core::v1::Node;

/// Kubernetes 1.30 is the first whose API server keeps the field and whose kube-proxy heeds it.
const HEEDS: (u32, u32) = (1, 30);

/// What carries connections to addresses on a node, as far as its Node tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::view) struct Carriers {
    /// Nodes whose kube-proxy is too old.
    pub(in crate::view) old: Vec<String>,
    /// Nodes with Cilium, which may replace kube-proxy.
    pub(in crate::view) cilium: Vec<String>,
}

impl Carriers {
    pub(in crate::view) fn of(nodes: &[Node]) -> Self {
        let mut carriers = Self::default();
        for node in nodes {
            let name = node.metadata.name.clone().unwrap_or_default();
            let status = node.status.as_ref();
            let info = status.and_then(|it| it.node_info.as_ref());
            // kube-proxy is of the kubelet's version as a rule. Where the Node does not tell its own, that is the nearest.
            let told = info.map(|it| match it.kube_proxy_version.as_str() {
                "" => it.kubelet_version.as_str(),
                version => version,
            });
            if told.and_then(version).is_some_and(|it| it < HEEDS) {
                carriers.old.push(name.clone());
            }
            let conditions = status.and_then(|it| it.conditions.as_ref());
            if conditions.into_iter().flatten().any(|it| it.reason.as_deref() == Some("CiliumIsUp"))
            {
                carriers.cilium.push(name);
            }
        }
        carriers
    }
}

/// Major and minor number of `v1.29.4+k3s1`.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.strip_prefix('v')?.split('.');
    let mut next = || parts.next()?.parse().ok();
    Some((next()?, next()?))
}

pub(super) fn ip_mode(facts: &Facts) -> Vec<Checked> {
    let holders = facts.addresses.iter().flat_map(|it| &it.spec.holders);
    let behind = holders
        .filter(|it| it.load_balancer.is_some() || it.kind == HolderKind::LoadBalancer)
        .count();
    if behind == 0 {
        return Check::IpMode.ok("no address is behind a load balancer");
    }
    let Carriers { old, cilium } = &facts.carriers;
    if !old.is_empty() {
        return vec![Check::IpMode.wrong(
            format!("kube-proxy before 1.30 does not know ipMode: Proxy, on node {}", some(old)),
            "connections of Pods and nodes there to addresses of load balancers go past the proxy (no TLS, limits or \
             persistence), and with kube-proxy's mode ipvs the address is on kube-ipvs0, so the speaker leaves it \
             alone: upgrade Kubernetes to 1.30 or later, or let such clients use the Service's own address",
        )];
    }
    if !cilium.is_empty() {
        return Check::IpMode.unknown(format!(
            "Cilium runs on node {}: if it replaces kube-proxy (kubeProxyReplacement), see that its version heeds \
             ipMode: Proxy; else connections of Pods to addresses of load balancers go past the proxy",
            some(cilium)
        ));
    }
    Check::IpMode.ok("the kube-proxies are of 1.30 or later, as far as Nodes tell")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn versions_of_kube_proxy_are_read_from_nodes() {
        let node = |name: &str, proxy: &str, kubelet: &str, reason: &str| -> Node {
            serde_json::from_value(json!({
                "metadata": {"name": name},
                "status": {
                    "nodeInfo": {
                        "architecture": "amd64", "bootID": "", "containerRuntimeVersion": "", "kernelVersion": "",
                        "kubeProxyVersion": proxy, "kubeletVersion": kubelet, "machineID": "",
                        "operatingSystem": "linux", "osImage": "", "systemUUID": "",
                    },
                    "conditions": [{"type": "NetworkUnavailable", "status": "False", "reason": reason}],
                },
            }))
            .expect("a Node")
        };
        let bare: Node = serde_json::from_value(json!({"metadata": {"name": "vm"}})).expect("one");
        let nodes = [
            node("new", "v1.30.0", "v1.30.0", ""),
            node("old", "v1.29.4+k3s1", "v1.30.0", ""),
            node("quiet", "", "v1.28.15-eks-1", "CiliumIsUp"),
            node("strange", "main", "v2.0", ""),
            bare,
        ];
        let carriers = Carriers::of(&nodes);
        let expected =
            Carriers { old: vec!["old".into(), "quiet".into()], cilium: vec!["quiet".into()] };
        assert_eq!(carriers, expected);
    }
}
