//! The suite's own custom kind: small, with everything a definition can say that tests rely on.

use bowline_testing::{Call, Cluster, eventually};
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};

pub(crate) const GROUP: &str = "conformance.example.com";

const DEFINITION: &str = include_str!("knots.yaml");

/// Makes sure that knots are served and that kubectl finds them.
pub(crate) async fn serve(cluster: &Cluster) {
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let reply = cluster.http(Call::new("POST", path).body("application/yaml", DEFINITION)).await;
    assert!([201, 409].contains(&reply.status), "{}", reply.text());
    eventually("knots are served and discovered", || async {
        let list = cluster.http(Call::new("GET", format!("/apis/{GROUP}/v1/knots?limit=1"))).await;
        let document = cluster.http(Call::new("GET", format!("/openapi/v3/apis/{GROUP}/v1"))).await;
        let described = document.text().contains("How hard it is pulled.");
        match (list.status, document.status, described) {
            (200, 200, true) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

/// A client for the knots of a namespace.
pub(crate) fn api(cluster: &Cluster, namespace: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(GROUP, "v1", "Knot");
    let resource = ApiResource::from_gvk_with_plural(&kind, "knots");
    Api::namespaced_with(cluster.client(), namespace, &resource)
}

/// A knot.
pub(crate) fn knot(name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "Knot",
        "metadata": {"name": name}, "spec": spec,
    })
}
