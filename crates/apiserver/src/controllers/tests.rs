//! The controllers with the embedded server in one process. They use only the API.

use super::*;
use crate::server::{Options, Server};
use crate::store::{Limits, Store};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams,
};
use kube::{Api, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

/// A server in memory with all controllers running and a namespace `shop`.
struct World {
    client: Client,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

impl World {
    async fn new() -> Self {
        let store = Store::memory(Limits::default());
        let server = Arc::new(Server::new(store, Options::default()).unwrap());
        server.bootstrap().await.unwrap();
        let client = server.client();
        let (stop, stopped) = watch::channel(false);
        let tasks = spawn(client.clone(), &stopped);
        let world = Self { client, stop, tasks };
        let namespace = json!({"metadata": {"name": "shop"}});
        create(&Api::<Namespace>::all(world.client.clone()), namespace).await;
        world
    }

    fn shop<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), "shop")
    }

    /// A ConfigMap, owned by these ConfigMaps.
    async fn config_map(&self, name: &str, owners: &[&ConfigMap]) -> ConfigMap {
        let owners: Vec<Value> = owners
            .iter()
            .map(|owner| {
                let (name, uid) = (owner.name_any(), owner.uid());
                json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid})
            })
            .collect();
        let object = json!({"metadata": {"name": name, "ownerReferences": owners}});
        create(&self.shop(), object).await
    }

    async fn pod(&self, name: &str, grace: i64) {
        let object = json!({
            "metadata": {"name": name, "labels": {"app": "web"}},
            "spec": {
                "nodeName": "n1", "terminationGracePeriodSeconds": grace,
                "containers": [{"name": "main", "image": "x"}],
            },
        });
        let api = self.shop::<Pod>();
        create(&api, object).await;
        let status = json!({"status": {
            "phase": "Running", "podIP": "10.9.0.1", "podIPs": [{"ip": "10.9.0.1"}],
            "conditions": [{"type": "Ready", "status": "True"}],
        }});
        api.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    }
}

async fn create<K>(api: &Api<K>, object: Value) -> K
where
    K: Clone + Debug + DeserializeOwned + Serialize,
{
    let object = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap()
}

async fn gone<K: Clone + Debug + DeserializeOwned>(api: &Api<K>, name: &str) {
    let what = format!("{name} to be gone");
    eventually(&what, async || api.get_opt(name).await.unwrap().is_none()).await;
}

async fn eventually(what: &str, holds: impl AsyncFn() -> bool) {
    let holds = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    if tokio::time::timeout(Duration::from_secs(20), holds).await.is_err() {
        panic!("waited in vain for {what}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_has_its_pods_in_a_slice_that_goes_with_it() {
    let world = World::new().await;
    let services = world.shop::<Service>();
    let spec = json!({"selector": {"app": "web"}, "ports": [{"port": 80}]});
    create(&services, json!({"metadata": {"name": "web"}, "spec": spec})).await;
    world.pod("web-1", 0).await;

    let slices = world.shop::<EndpointSlice>();
    let ours = ListParams::default().labels("kubernetes.io/service-name=web");
    eventually("an endpoint", async || {
        let slices = slices.list(&ours).await.unwrap().items;
        let mut endpoints = slices.into_iter().flat_map(|slice| slice.endpoints).flatten();
        endpoints.any(|endpoint| endpoint.addresses == ["10.9.0.1"])
    })
    .await;

    services.delete("web", &DeleteParams::default()).await.unwrap();
    eventually("no slice", async || slices.list(&ours).await.unwrap().items.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dependents_follow_their_last_owner() {
    let world = World::new().await;
    let a = world.config_map("a", &[]).await;
    let b = world.config_map("b", &[]).await;
    let c = world.config_map("c", &[&a, &b]).await;
    world.config_map("d", &[&c]).await;
    let api = world.shop::<ConfigMap>();

    api.delete("a", &DeleteParams::default()).await.unwrap();
    eventually("the reference to a to be cut", async || {
        let references = api.get("c").await.unwrap().owner_references().to_vec();
        references.iter().map(|it| it.name.as_str()).eq(["b"])
    })
    .await;
    api.delete("b", &DeleteParams::default()).await.unwrap();
    gone(&api, "c").await;
    gone(&api, "d").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dependents_survive_an_owner_that_orphans_them() {
    let world = World::new().await;
    let a = world.config_map("a", &[]).await;
    world.config_map("b", &[&a]).await;
    let api = world.shop::<ConfigMap>();
    api.delete("a", &DeleteParams::orphan()).await.unwrap();
    gone(&api, "a").await;
    assert_eq!(api.get("b").await.unwrap().owner_references(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_goes_when_all_in_it_is_gone_and_says_what_is_not() {
    let world = World::new().await;
    world.config_map("plain", &[]).await;
    let api = world.shop::<ConfigMap>();
    let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"]}});
    create(&api, held).await;

    let namespaces: Api<Namespace> = Api::all(world.client.clone());
    namespaces.delete("shop", &DeleteParams::default()).await.unwrap();
    eventually("the namespace to say what it waits for", async || {
        let status = namespaces.get("shop").await.unwrap().status.unwrap_or_default();
        let mut conditions = status.conditions.into_iter().flatten();
        conditions.any(|it| it.type_ == "NamespaceFinalizersRemaining" && it.status == "True")
    })
    .await;
    gone(&api, "plain").await;

    let release = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    api.patch("held", &PatchParams::default(), &release).await.unwrap();
    gone(&namespaces, "shop").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_takes_its_objects_and_their_dependents_along() {
    let world = World::new().await;
    let definitions: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema},
            }],
        },
    });
    create(&definitions, definition).await;
    let resource = ApiResource {
        group: "example.com".into(),
        version: "v1".into(),
        api_version: "example.com/v1".into(),
        kind: "Thing".into(),
        plural: "things".into(),
    };
    let things: Api<DynamicObject> = Api::namespaced_with(world.client.clone(), "shop", &resource);
    eventually("things to be served", async || things.list(&ListParams::default()).await.is_ok())
        .await;
    let api = world.shop::<ConfigMap>();
    let family = async |name: &str| {
        let thing = json!({
            "apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": name},
        });
        let owner = json!({
            "apiVersion": "example.com/v1", "kind": "Thing", "name": name,
            "uid": create(&things, thing).await.uid(),
        });
        create(&api, json!({"metadata": {"name": name, "ownerReferences": [owner]}})).await;
    };
    // The collector cannot judge an owner of a kind that it never observed, so it must observe this
    // one first.
    family("first").await;
    things.delete("first", &DeleteParams::default()).await.unwrap();
    gone(&api, "first").await;

    family("second").await;
    definitions.delete("things.example.com", &DeleteParams::default()).await.unwrap();
    gone(&definitions, "things.example.com").await;
    gone(&api, "second").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_serves_goes_with_its_namespace_and_its_definition() {
    let world = World::new().await;
    let definitions: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    let version = |served| {
        json!([{
            "name": "v1", "served": served, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object"}},
        }])
    };
    let definition = json!({
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "versions": version(true),
            "names": {"plural": "things", "kind": "Thing"},
        },
    });
    create(&definitions, definition).await;
    let resource = ApiResource {
        group: "example.com".into(),
        version: "v1".into(),
        api_version: "example.com/v1".into(),
        kind: "Thing".into(),
        plural: "things".into(),
    };
    let things = |namespace| {
        Api::<DynamicObject>::namespaced_with(world.client.clone(), namespace, &resource)
    };
    let thing = |finalizers: &[&str]| {
        let metadata = json!({"name": "a", "finalizers": finalizers});
        json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": metadata})
    };
    create(&things("shop"), thing(&["example.com/hold"])).await;
    create(&things("default"), thing(&[])).await;
    let serve = async |served| {
        let patch = Patch::Merge(json!({"spec": {"versions": version(served)}}));
        definitions.patch("things.example.com", &PatchParams::default(), &patch).await.unwrap();
    };
    serve(false).await;

    let namespaces: Api<Namespace> = Api::all(world.client.clone());
    namespaces.delete("shop", &DeleteParams::default()).await.unwrap();
    eventually("the namespace to say what it waits for", async || {
        let status = namespaces.get("shop").await.unwrap().status.unwrap_or_default();
        status.conditions.into_iter().flatten().any(|it| {
            it.status == "True"
                && it.message.unwrap_or_default().contains("things.example.com has 1")
        })
    })
    .await;
    definitions.delete("things.example.com", &DeleteParams::default()).await.unwrap();
    eventually("the definition to say what it waits for", async || {
        let status = definitions.get("things.example.com").await.unwrap().status;
        let conditions = status.and_then(|status| status.conditions).unwrap_or_default();
        conditions.iter().any(|it| it.reason.as_deref() == Some("InstanceDeletionCheck"))
    })
    .await;

    serve(true).await;
    assert!(things("default").get_opt("a").await.unwrap().is_none());
    let release = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    things("shop").patch("a", &PatchParams::default(), &release).await.unwrap();
    gone(&namespaces, "shop").await;
    gone(&definitions, "things.example.com").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_goes_when_its_grace_is_over() {
    let world = World::new().await;
    world.pod("web-1", 1).await;
    let api = world.shop::<Pod>();
    api.delete("web-1", &DeleteParams::default()).await.unwrap();
    assert!(api.get("web-1").await.unwrap().metadata.deletion_timestamp.is_some());
    gone(&api, "web-1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_controllers_end_when_told_to() {
    let world = World::new().await;
    world.stop.send(true).unwrap();
    for task in world.tasks {
        tokio::time::timeout(Duration::from_secs(5), task).await.unwrap().unwrap();
    }
}
