//! Tests the import of MetalLB's pools, over the embedded API with MetalLB's own definition of
//! their kind.

use crate::support::{cluster, create};
use bowline_api::AddressPool;
use bowline_runtime::metallb::{Import, ImportError, Kept, import};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

const NAMESPACE: &str = "metallb-system";

/// MetalLB's definition, of a release with the fields that matter here.
fn definition() -> Value {
    let selectors = json!({
        "type": "array",
        "items": {
            "type": "object",
            "x-kubernetes-map-type": "atomic",
            "properties": {
                "matchLabels": {"type": "object", "additionalProperties": {"type": "string"}},
                "matchExpressions": {
                    "type": "array",
                    "x-kubernetes-list-type": "atomic",
                    "items": {
                        "type": "object",
                        "required": ["key", "operator"],
                        "properties": {
                            "key": {"type": "string"},
                            "operator": {"type": "string"},
                            "values": {
                                "type": "array", "items": {"type": "string"},
                                "x-kubernetes-list-type": "atomic",
                            },
                        },
                    },
                },
            },
        },
    });
    let names = json!({"type": "array", "items": {"type": "string"}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "ipaddresspools.metallb.io"},
        "spec": {
            "group": "metallb.io", "scope": "Namespaced",
            "names": {
                "kind": "IPAddressPool", "listKind": "IPAddressPoolList",
                "plural": "ipaddresspools", "singular": "ipaddresspool",
            },
            "versions": [{
                "name": "v1beta1", "served": true, "storage": true,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "required": ["spec"],
                    "properties": {
                        "apiVersion": {"type": "string"},
                        "kind": {"type": "string"},
                        "metadata": {"type": "object"},
                        "spec": {
                            "type": "object",
                            "required": ["addresses"],
                            "properties": {
                                "addresses": &names,
                                "autoAssign": {"type": "boolean", "default": true},
                                "avoidBuggyIPs": {"type": "boolean", "default": false},
                                "serviceAllocation": {
                                    "type": "object",
                                    "properties": {
                                        "priority": {"type": "integer"},
                                        "namespaces": &names,
                                        "namespaceSelectors": &selectors,
                                        "serviceSelectors": &selectors,
                                    },
                                },
                            },
                        },
                        "status": {
                            "type": "object",
                            "required":
                                ["assignedIPv4", "assignedIPv6", "availableIPv4", "availableIPv6"],
                            "properties": {
                                "assignedIPv4": {"type": "integer", "format": "int64"},
                                "assignedIPv6": {"type": "integer", "format": "int64"},
                                "availableIPv4": {"type": "integer", "format": "int64"},
                                "availableIPv6": {"type": "integer", "format": "int64"},
                            },
                        },
                    },
                }},
            }],
        },
    })
}

fn theirs(name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "metallb.io/v1beta1", "kind": "IPAddressPool",
        "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec,
    })
}

/// MetalLB with two pools, as its users write them.
async fn install(client: &Client) {
    create(
        client,
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
    )
    .await;
    create(client, definition()).await;
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
    assert_eq!(first.created, ["first", "shop"]);
    assert_eq!(first.kept, []);
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
    assert_eq!(again, Import { created: vec![], kept, losses: first.losses });
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
    assert_eq!(done.created, ["shop"]);
    assert_eq!(done.kept, [("first".to_owned(), Kept::Differs)]);
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
    assert_eq!(import(&client, NAMESPACE).await.unwrap().unwrap().created, ["first", "shop"]);
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
