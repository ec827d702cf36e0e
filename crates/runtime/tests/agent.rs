//! What an agent says of itself, and what the leader makes of it, over the embedded API.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use bowline_runtime::AgentOptions;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Service;
use kube::Client;
use kube::api::{Api, DeleteParams};
use serde_json::{Value, json};
use support::{
    Recorder, cluster, controller_options, create, eventually, service, start_agent,
    start_controller,
};

fn leases(client: &Client) -> Api<Lease> {
    Api::namespaced(client.clone(), "bowline-system")
}

/// A load balancer whose agent says where it is.
fn load_balancer() -> Value {
    json!({
        "apiVersion": "bowline.dev/v1alpha1", "kind": "LoadBalancer",
        "metadata": {"name": "edge"},
        "spec": {"builtin": {}, "allowedNamespaces": {"from": "All"}},
    })
}

fn at(address: &str) -> AgentOptions {
    AgentOptions { addresses: vec![address.parse().unwrap()], ..AgentOptions::new("edge") }
}

async fn status(client: &Client, name: &str) -> Value {
    let api: Api<Service> = Api::namespaced(client.clone(), "default");
    serde_json::to_value(api.get(name).await.unwrap().status.unwrap_or_default()).unwrap()
}

async fn addressed(client: &Client, name: &str, addresses: &[&str]) {
    let want: Vec<_> = addresses.iter().map(|ip| json!({"ip": ip, "ipMode": "Proxy"})).collect();
    eventually("the addresses in the status", || async {
        let status = status(client, name).await;
        let ingress = &status["loadBalancer"]["ingress"];
        let same = ingress.as_array().map_or(&[][..], Vec::as_slice) == want;
        if same { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_stops_takes_no_address_back_nor_does_a_deleted_lease() {
    let cluster = cluster().await;
    let client = cluster.client();
    let controller = start_controller(client.clone(), controller_options("a"));
    create(&client, load_balancer()).await;
    create(&client, service("web", 8080)).await;
    let agent = start_agent(client.clone(), at("127.0.0.1"), Recorder::default());
    addressed(&client, "web", &["127.0.0.1"]).await;

    agent.stop().await;
    let lease = leases(&client).get("bowline-agent-edge").await.unwrap();
    assert_eq!(lease.spec.unwrap().holder_identity.as_deref(), Some(""));
    // What is planned after that is planned with what is known.
    create(&client, service("late", 8081)).await;
    planned(&client, "late").await;
    leases(&client).delete("bowline-agent-edge", &DeleteParams::default()).await.unwrap();
    create(&client, service("later", 8082)).await;
    planned(&client, "later").await;
    assert_eq!(status(&client, "web").await["loadBalancer"]["ingress"][0]["ip"], "127.0.0.1");

    // Nor does a controller that knows only what is written.
    controller.stop().await;
    let controller = start_controller(client.clone(), controller_options("b"));
    create(&client, service("last", 8083)).await;
    planned(&client, "last").await;
    assert_eq!(status(&client, "web").await["loadBalancer"]["ingress"][0]["ip"], "127.0.0.1");

    // Another agent says something else: that counts.
    let agent = start_agent(client.clone(), at("127.0.0.9"), Recorder::default());
    addressed(&client, "web", &["127.0.0.9"]).await;
    agent.stop().await;
    controller.stop().await;
    cluster.shutdown().await;
}

/// The Service has been given a place and waits for an agent.
async fn planned(client: &Client, name: &str) {
    eventually("a place", || async {
        let status = status(client, name).await;
        if status["conditions"][0]["reason"] == "NoAgent" {
            Ok(())
        } else {
            Err(status.to_string())
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_lets_go_of_its_own_lease_only() {
    let cluster = cluster().await;
    let client = cluster.client();
    let ours =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "bowline-system"}});
    create(&client, ours).await;
    let agent = start_agent(client.clone(), at("127.0.0.1"), Recorder::default());
    let lease = leases(&client);
    eventually("the Lease", || async {
        lease.get("bowline-agent-edge").await.map_err(|error| error.to_string())
    })
    .await;
    let other = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "bowline-agent-edge", "namespace": "bowline-system"},
        "spec": {"holderIdentity": "another"},
    });
    create(&client, other).await;
    agent.stop().await;
    let after = lease.get("bowline-agent-edge").await.unwrap();
    assert_eq!(after.spec.unwrap().holder_identity.as_deref(), Some("another"));
    cluster.shutdown().await;
}
