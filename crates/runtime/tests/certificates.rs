//! The way of a certificate from a user's Secret to the agent of the load balancer, and out again.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use bowline_core::update::Change;
use bowline_runtime::AgentOptions;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::networking::v1::Ingress;
use kube::Client;
use kube::api::{Api, DeleteParams};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use support::{
    Recorder, cluster, controller_options, create, eventually, load_balancer, service, start_agent,
    start_controller,
};

fn certificate() -> Value {
    let made = rcgen::generate_simple_self_signed(["shop.example".to_owned()]).unwrap();
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"name": "shop", "namespace": "default"},
        "data": {
            "tls.crt": ByteString(made.cert.pem().into_bytes()),
            "tls.key": ByteString(made.signing_key.serialize_pem().into_bytes()),
        },
    })
}

/// The hashes that the agent's Secret holds; None: there is no Secret.
async fn held(client: &Client) -> Option<BTreeSet<String>> {
    let api: Api<Secret> = Api::namespaced(client.clone(), "bowline-system");
    let secret = api.get_opt("bowline-tls-edge-0").await.unwrap()?;
    Some(secret.data.unwrap_or_default().into_keys().collect())
}

/// The hashes that a driver has been given and still has.
fn given(driver: &Recorder) -> BTreeSet<String> {
    let mut given = BTreeSet::new();
    for update in driver.updates.lock().unwrap().iter() {
        for change in &update.certificates {
            match change {
                Change::Put(hash, _) => given.insert(hash.to_string()),
                Change::Remove(hash) => given.remove(&**hash),
            };
        }
    }
    given
}

/// Waits until agent and Secret have the same single certificate, other than `before`.
async fn arrives(client: &Client, driver: &Recorder, before: Option<&str>) -> String {
    eventually("the certificate", || async {
        let (held, given) = (held(client).await.unwrap_or_default(), given(driver));
        let one = held.first().filter(|hash| held.len() == 1 && Some(hash.as_str()) != before);
        match one {
            Some(hash) if held == given => Ok(hash.clone()),
            _ => Err(format!("in the Secret {held:?}, at the driver {given:?}")),
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_reaches_the_agent_is_exchanged_and_is_not_kept() {
    let cluster = cluster().await;
    let client = cluster.client();
    create(&client, load_balancer("127.0.0.1")).await;
    create(&client, service("web", 8080)).await;
    create(&client, certificate()).await;
    create(
        &client,
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "IngressClass",
            "metadata": {"name": "bowline"}, "spec": {"controller": "bowline.dev/ingress"}}),
    )
    .await;
    let backend = json!({"service": {"name": "web", "port": {"number": 8080}}});
    create(
        &client,
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
            "metadata": {"name": "shop", "namespace": "default"},
            "spec": {
                "ingressClassName": "bowline",
                "tls": [{"hosts": ["shop.example"], "secretName": "shop"}],
                "rules": [{"host": "shop.example", "http":
                    {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}],
            },
        }),
    )
    .await;
    let controller = start_controller(client.clone(), controller_options("a"));
    let driver = Recorder::default();
    let agent = start_agent(client.clone(), AgentOptions::new("edge"), driver.clone());
    let first = arrives(&client, &driver, None).await;
    // No update had a site that refers to a certificate which was not there.
    for update in driver.updates.lock().unwrap().iter() {
        for change in &update.sites {
            let Change::Put(_, site) = change else { continue };
            let wanted = site.tls.as_ref().and_then(|tls| tls.certificate.as_ref());
            let wanted = wanted.map(|it| it.hash.to_string());
            assert_eq!(wanted.as_deref(), Some(first.as_str()));
        }
    }
    create(&client, certificate()).await;
    let second = arrives(&client, &driver, Some(&first)).await;
    assert_ne!(first, second);
    let ingresses: Api<Ingress> = Api::namespaced(client.clone(), "default");
    ingresses.delete("shop", &DeleteParams::default()).await.unwrap();
    eventually("nothing kept", || async {
        match (held(&client).await, given(&driver)) {
            (None, given) if given.is_empty() => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    agent.stop().await;
    controller.stop().await;
    cluster.shutdown().await;
}
