//! A small cluster for the tests of views: objects as a user writes them.

use super::facts::Facts;
use super::list::Lists;
use bowline_api::{Plan, PlanSpec, names};
use bowline_core::hash::PlanHash;
use k8s_openapi::jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub(super) fn now() -> Timestamp {
    "2030-01-01T00:00:10Z".parse().expect("a time")
}

pub(super) fn object<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object")
}

pub(super) fn service(name: &str, spec: Value) -> Value {
    json!({
        "metadata": {"namespace": "demo", "name": name, "uid": name, "creationTimestamp": "2029-01-01T00:00:00Z"},
        "spec": spec,
    })
}

/// A load balancer `local`, a Service and an Ingress `hello`, two Pods behind them, a leader; no agent,
/// and nothing recorded.
pub(super) fn lists() -> Lists {
    let slice = |name: &str, address: &str, port: u16, ready: bool| {
        object(json!({
            "metadata": {"namespace": "demo", "name": name, "labels": {"kubernetes.io/service-name": "hello"}},
            "addressType": "IPv4",
            "ports": [{"name": "http", "port": port, "protocol": "TCP"}],
            "endpoints": [{
                "addresses": [address],
                "conditions": {"ready": ready, "serving": true, "terminating": !ready},
                "targetRef": {"kind": "Pod", "name": format!("pod-{name}")},
            }],
        }))
    };
    Lists {
        services: vec![
            object(service(
                "hello",
                json!({"type": "LoadBalancer", "ipFamilies": ["IPv4"], "ports": [{"name": "http", "port": 8000, "protocol": "TCP"}]}),
            )),
            object(service("inside", json!({"type": "ClusterIP", "ports": [{"port": 80}]}))),
        ],
        ingresses: vec![object(json!({
            "metadata": {"namespace": "demo", "name": "hello", "uid": "i", "creationTimestamp": "2029-01-01T00:00:00Z"},
            "spec": {"ingressClassName": "bowline", "rules": [{"host": "hello.localhost", "http": {"paths": [
                {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "hello", "port": {"name": "http"}}}},
                {"path": "/gone", "pathType": "Exact", "backend": {"service": {"name": "gone", "port": {"number": 80}}}},
            ]}}]},
        }))],
        classes: vec![object(
            json!({"metadata": {"name": "bowline"}, "spec": {"controller": "bowline.dev/ingress"}}),
        )],
        secrets: Some(Vec::new()),
        namespaces: vec![object(json!({"metadata": {"name": "demo"}}))],
        load_balancers: vec![object(json!({
            "apiVersion": "bowline.dev/v1alpha1",
            "kind": "LoadBalancer",
            "metadata": {"name": "local", "uid": "l"},
            "spec": {"builtin": {}, "addresses": ["127.0.0.1"], "allowedNamespaces": {"from": "All"}, "httpPort": 8080, "httpsPort": 8443},
        }))],
        slices: vec![slice("a", "192.0.2.1", 18081, true), slice("b", "192.0.2.2", 18082, false)],
        leases: vec![object(json!({
            "metadata": {"name": names::LEASE_CONTROLLER, "annotations": {
                names::ANNOTATION_DEFAULT_CLASS: "true", names::ANNOTATION_DEFAULT_LOAD_BALANCER: "local",
            }},
            "spec": {"holderIdentity": "one", "leaseDurationSeconds": 15, "renewTime": "2030-01-01T00:00:08.000000Z"},
        }))],
        ..Lists::default()
    }
}

/// The same cluster after everything is recorded and an agent has applied it.
pub(super) fn settled() -> Lists {
    let mut lists = lists();
    let facts = Facts::new(lists.clone(), None, None, now());
    let fragments: Vec<_> = facts.planner.fragments("local").map(|it| (**it).clone()).collect();
    let hash: PlanHash = facts.planner.hash("local");
    let spec = PlanSpec { load_balancer: "local".into(), hash, fragments, unread: Vec::new() };
    lists.plans = vec![Plan::new("local-0", spec)];
    lists.leases.push(object(json!({
        "metadata": {"name": names::agent_lease("local"), "annotations": {names::ANNOTATION_PLAN_HASH: hash.to_string()}},
        "spec": {"holderIdentity": "two", "leaseDurationSeconds": 15, "renewTime": "2030-01-01T00:00:05.000000Z"},
    })));
    lists
}

/// The facts about such a cluster.
pub(super) fn facts(lists: Lists) -> Facts {
    Facts::new(lists, None, None, now())
}
