//! Tests the import of MetalLB's pools, over the embedded API with MetalLB's own definitions of its
//! kinds. What announces their addresses is in `announcing`.

mod announcing;
mod definitions;

use crate::support::{cluster, create};
use bowline_api::AddressPool;
use bowline_runtime::metallb::{self, Import, ImportError, Kept, Taken};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

const NAMESPACE: &str = "metallb-system";

fn theirs(name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "metallb.io/v1beta1", "kind": "IPAddressPool",
        "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec,
    })
}

/// The import, with Bowline in its usual namespace.
async fn import(client: &Client, namespace: &str) -> Result<Option<Import>, ImportError> {
    metallb::import(client, namespace, "bowline-system").await
}

/// MetalLB with two pools, as its users write them.
async fn install(client: &Client) {
    create(
        client,
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
    )
    .await;
    create(client, definitions::ip_address_pool()).await;
    create(client, theirs("first", json!({"addresses": ["192.0.2.5/24", "2001:db8::/64"]}))).await;
    let shop = json!({
        "addresses": ["198.51.100.1 - 198.51.100.9", "backwards"],
        "autoAssign": false, "avoidBuggyIPs": true,
        "serviceAllocation": {
            "priority": 20, "namespaces": ["shop"],
            "serviceSelectors": [{"matchLabels": {"app": "web"}}],
        },
    });
    create(client, theirs("shop", shop)).await;
}

fn controller_pod() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "controller-7d5f", "namespace": NAMESPACE,
            "labels": {"app": "metallb", "component": "controller"},
        },
        "spec": {"containers": [{"name": "controller", "image": "quay.io/metallb/controller:v0.15.2"}]},
    })
}

async fn pools(client: &Client) -> Value {
    let api: Api<AddressPool> = Api::all(client.clone());
    let all = api.list(&ListParams::default()).await.unwrap();
    let spec = |pool: &AddressPool| (pool.name_any(), json!(pool.spec));
    Value::Object(all.items.iter().map(spec).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn pools_of_metallb_become_address_pools_and_again_changes_nothing() {
    let cluster = cluster().await;
    let client = cluster.client();
    install(&client).await;
    let first = import(&client, NAMESPACE).await.unwrap().unwrap();
    assert_eq!(first.pools.created, ["first", "shop"]);
    assert_eq!(first.pools.kept, []);
    let losses: Vec<_> = first.losses.iter().map(ToString::to_string).collect();
    assert!(
        matches!(&losses[..], [one] if one.starts_with("shop: \"backwards\" is neither")),
        "{losses:?}"
    );
    let made = pools(&client).await;
    assert_eq!(
        made,
        json!({
            "first": {
                "addresses": ["192.0.2.0/24", "2001:db8::/64"],
                "autoAssign": true, "avoidBuggyIPs": false, "sharingAcrossNamespaces": true,
            },
            "shop": {
                "addresses": ["198.51.100.1-198.51.100.9"],
                "autoAssign": false, "avoidBuggyIPs": true, "sharingAcrossNamespaces": true,
                "allocateTo": {
                    "priority": 20, "namespaces": ["shop"],
                    "serviceSelectors": [{"matchLabels": {"app": "web"}}],
                },
            },
        })
    );
    let again = import(&client, NAMESPACE).await.unwrap().unwrap();
    let kept = ["first", "shop"].map(|name| (name.to_owned(), Kept::Same)).to_vec();
    let pools_again = Taken { created: vec![], kept };
    assert_eq!(again, Import { pools: pools_again, losses: first.losses, ..Import::default() });
    assert_eq!(pools(&client).await, made);
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_an_administrator_made_is_never_overwritten() {
    let cluster = cluster().await;
    let client = cluster.client();
    install(&client).await;
    let own = json!({
        "apiVersion": "bowline.dev/v1alpha1", "kind": "AddressPool",
        "metadata": {"name": "first"}, "spec": {"addresses": ["203.0.113.0/24"]},
    });
    create(&client, own).await;
    let done = import(&client, NAMESPACE).await.unwrap().unwrap();
    assert_eq!(done.pools.created, ["shop"]);
    assert_eq!(done.pools.kept, [("first".to_owned(), Kept::Differs)]);
    assert_eq!(pools(&client).await["first"]["addresses"], json!(["203.0.113.0/24"]));
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_taken_over_while_the_controller_of_metallb_runs() {
    let cluster = cluster().await;
    let client = cluster.client();
    install(&client).await;
    create(&client, controller_pod()).await;
    let refused = import(&client, NAMESPACE).await.unwrap_err();
    assert!(
        matches!(&refused, ImportError::Running(pod) if pod == "metallb-system/controller-7d5f"),
        "{refused}"
    );
    assert_eq!(pools(&client).await, json!({}));
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    pods.delete("controller-7d5f", &DeleteParams::default().grace_period(0)).await.unwrap();
    crate::support::eventually("the Pod gone", || async {
        let left = pods.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
        if left.items.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
    assert_eq!(import(&client, NAMESPACE).await.unwrap().unwrap().pools.created, ["first", "shop"]);
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_metallb_was_never_installed_there_is_nothing_to_take_over() {
    let cluster = cluster().await;
    let client = cluster.client();
    assert_eq!(import(&client, NAMESPACE).await.unwrap(), None);
    assert_eq!(pools(&client).await, json!({}));
    cluster.shutdown().await;
}
