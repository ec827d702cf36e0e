//! What a program written with kube relies on: optimistic locking under contention, watches that miss
//! nothing, finalizers, subresources, metadata-only reads, collections.

use crate::differences::{DRY_RUN, FOREGROUND_DELETION, SERVER_SIDE_APPLY};
use crate::knots::{self, knot};
use bowline_testing::{Call, Cluster, eventually};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::api::{
    Api, DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams, Preconditions,
    WatchEvent, WatchParams,
};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Error, ResourceExt};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::pin::pin;

fn config_map(name: &str, data: &[(&str, &str)]) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() },
        data: Some(data.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()),
        ..ConfigMap::default()
    }
}

fn reason(error: Error) -> (u16, String) {
    match error {
        Error::Api(status) => (status.code, status.reason),
        other => panic!("not an answer of the API: {other}"),
    }
}

async fn config_maps(cluster: &Cluster) -> Api<ConfigMap> {
    let namespace = cluster.namespace().await;
    Api::namespaced(cluster.client(), &namespace)
}

#[tokio::test]
async fn errors_arrive_as_their_reason() {
    let cluster = Cluster::start().await;
    let api = config_maps(&cluster).await;
    let object = api.create(&PostParams::default(), &config_map("a", &[])).await.expect("create");
    let again = api.create(&PostParams::default(), &config_map("a", &[])).await;
    assert_eq!(reason(again.expect_err("twice")), (409, "AlreadyExists".into()));
    assert_eq!(reason(api.get("b").await.expect_err("missing")), (404, "NotFound".into()));
    assert_eq!(api.get_opt("b").await.expect("an answer"), None);
    api.patch("a", &PatchParams::default(), &Patch::Merge(json!({"data": {"k": "1"}})))
        .await
        .expect("patch");
    let stale = api.replace("a", &PostParams::default(), &object).await;
    assert_eq!(reason(stale.expect_err("stale")), (409, "Conflict".into()));
    let invalid = api.create(&PostParams::default(), &config_map("A", &[])).await;
    assert_eq!(reason(invalid.expect_err("invalid")), (422, "Invalid".into()));
}

#[tokio::test]
async fn of_two_writers_that_read_the_same_version_one_wins() {
    let cluster = Cluster::start().await;
    let api = config_maps(&cluster).await;
    api.create(&PostParams::default(), &config_map("counter", &[("n", "0")]))
        .await
        .expect("create");
    let writers = (0..4).map(|_| {
        let api = api.clone();
        async move {
            for _ in 0..5 {
                loop {
                    let mut object = api.get("counter").await.expect("read");
                    let data = object.data.get_or_insert_default();
                    let n: u32 = data["n"].parse().expect("a number");
                    data.insert("n".into(), (n + 1).to_string());
                    match api.replace("counter", &PostParams::default(), &object).await {
                        Ok(_) => break,
                        Err(error) => assert_eq!(reason(error), (409, "Conflict".into())),
                    }
                }
            }
        }
    });
    futures::future::join_all(writers).await;
    let data = api.get("counter").await.expect("read").data;
    assert_eq!(data, Some(BTreeMap::from([("n".to_owned(), "20".to_owned())])));
}

#[tokio::test]
async fn versions_grow_and_a_write_without_change_makes_none() {
    let cluster = Cluster::start().await;
    let api = config_maps(&cluster).await;
    let version = |object: &ConfigMap| -> u64 {
        object.resource_version().expect("a version").parse().expect("a number")
    };
    let first =
        api.create(&PostParams::default(), &config_map("a", &[("k", "1")])).await.expect("create");
    let same = api.replace("a", &PostParams::default(), &first).await.expect("replace");
    assert_eq!(first, same);
    let patch = Patch::Merge(json!({"data": {"k": "2"}}));
    let second = api.patch("a", &PatchParams::default(), &patch).await.expect("patch");
    let third = api.create(&PostParams::default(), &config_map("b", &[])).await.expect("create");
    assert!(version(&first) < version(&second) && version(&second) < version(&third));
}

/// All changes of a namespace's config maps as a watch tells them, until `last` is gone.
async fn story(config: watcher::Config, api: Api<ConfigMap>) -> Vec<String> {
    let mut stream = pin!(watcher(api.clone(), config));
    let mut lines = Vec::new();
    while let Some(event) = stream.try_next().await.expect("a watch") {
        let (what, object) = match event {
            Event::Init => continue,
            Event::InitDone => {
                // Only now is it certain that what follows is watched, not listed.
                api.create(&PostParams::default(), &config_map("later", &[]))
                    .await
                    .expect("create");
                api.patch(
                    "later",
                    &PatchParams::default(),
                    &Patch::Merge(json!({"data": {"k": "1"}})),
                )
                .await
                .expect("patch");
                api.delete("later", &DeleteParams::default()).await.expect("delete");
                continue;
            }
            // A streamed list may begin with what a cache knows, and tell the newest as changes.
            Event::InitApply(object) | Event::Apply(object) => ("apply", object),
            Event::Delete(object) => ("delete", object),
        };
        let name = object.name_any();
        if name == "kube-root-ca.crt" {
            continue;
        }
        lines.push(format!("{what} {name}"));
        if what == "delete" && name == "later" {
            break;
        }
    }
    lines
}

#[tokio::test]
async fn a_watcher_sees_what_is_there_and_then_every_change_whichever_way_it_lists() {
    let cluster = Cluster::start().await;
    let paged = watcher::Config { page_size: Some(1), ..watcher::Config::default() };
    for config in [watcher::Config::default(), watcher::Config::default().streaming_lists(), paged]
    {
        let api = config_maps(&cluster).await;
        for name in ["a", "b"] {
            api.create(&PostParams::default(), &config_map(name, &[])).await.expect("create");
        }
        let lines =
            tokio::time::timeout(std::time::Duration::from_secs(30), story(config.clone(), api));
        assert_eq!(
            lines.await.unwrap_or_else(|_| panic!("{config:?}: an event is missing")),
            ["apply a", "apply b", "apply later", "apply later", "delete later"],
            "{config:?}"
        );
    }
}

#[tokio::test]
async fn a_watch_resumed_at_a_version_tells_what_came_after_it_once() {
    let cluster = Cluster::start().await;
    let api = config_maps(&cluster).await;
    api.create(&PostParams::default(), &config_map("a", &[])).await.expect("create");
    let start = api.get("a").await.expect("get").resource_version().expect("a version");
    for n in 0..20 {
        let patch = Patch::Merge(json!({"data": {"n": n.to_string()}}));
        api.patch("a", &PatchParams::default(), &patch).await.expect("patch");
    }
    let mut from = start;
    let mut seen = Vec::new();
    // Each round reads three events and hangs up, as a client does whose connection breaks.
    while seen.len() < 20 {
        let params = WatchParams::default().fields("metadata.name=a").timeout(20);
        let mut stream = pin!(api.watch(&params, &from).await.expect("watch").take(3));
        while let Some(event) = stream.try_next().await.expect("an event") {
            match event {
                WatchEvent::Modified(object) => {
                    from = object.resource_version().expect("a version");
                    seen.push(object.data.expect("data")["n"].clone());
                }
                WatchEvent::Bookmark(_) => {}
                other => panic!("unexpected {other:?}"),
            }
            if seen.len() == 20 {
                break;
            }
        }
    }
    assert_eq!(seen, (0..20).map(|n| n.to_string()).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_watch_ends_after_its_timeout() {
    let cluster = Cluster::start().await;
    let namespace = cluster.namespace().await;
    let path = format!(
        "/api/v1/namespaces/{namespace}/configmaps?watch=1&timeoutSeconds=1&labelSelector=none"
    );
    let start = std::time::Instant::now();
    let reply = cluster.http(Call::new("GET", path)).await;
    assert_eq!((reply.status, reply.json_lines()), (200, vec![]));
    assert!((1..10).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
}

#[tokio::test]
async fn metadata_alone_can_be_read_and_watched() {
    let cluster = Cluster::start().await;
    let api = config_maps(&cluster).await;
    api.create(&PostParams::default(), &config_map("a", &[("k", "v")])).await.expect("create");
    let one = api.get_metadata("a").await.expect("metadata");
    assert_eq!(
        (one.name_any(), one.types.map(|t| t.kind)),
        ("a".into(), Some("PartialObjectMetadata".into()))
    );
    let list =
        api.list_metadata(&ListParams::default().fields("metadata.name=a")).await.expect("list");
    assert_eq!(list.items.len(), 1);
    let params = WatchParams::default().fields("metadata.name=a").timeout(1);
    let events: Vec<_> = api.watch_metadata(&params, "0").await.expect("watch").collect().await;
    assert!(
        matches!(&events[0], Ok(WatchEvent::Added(object)) if object.name_any() == "a"),
        "{events:?}"
    );
}

#[tokio::test]
async fn pages_join_to_the_whole_list() {
    let cluster = Cluster::start().await;
    let api = config_maps(&cluster).await;
    for n in 0..7 {
        api.create(&PostParams::default(), &config_map(&format!("c{n}"), &[]))
            .await
            .expect("create");
    }
    let mut params = ListParams::default().limit(3);
    let mut names = Vec::new();
    loop {
        let page = api.list(&params).await.expect("a page");
        names.extend(
            page.items.iter().map(ResourceExt::name_any).filter(|name| name != "kube-root-ca.crt"),
        );
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = ListParams::default().limit(3).continue_token(&token),
            None => break,
        }
    }
    assert_eq!(names, ["c0", "c1", "c2", "c3", "c4", "c5", "c6"]);
}

#[tokio::test]
async fn a_collection_is_deleted_by_selector_and_with_preconditions_one_by_one() {
    let cluster = Cluster::start().await;
    let api = config_maps(&cluster).await;
    for (name, label) in [("a", "x"), ("b", "x"), ("c", "y")] {
        let mut object = config_map(name, &[]);
        object.labels_mut().insert("app".into(), label.into());
        api.create(&PostParams::default(), &object).await.expect("create");
    }
    let selected = ListParams::default().labels("app=x");
    api.delete_collection(&DeleteParams::default(), &selected).await.expect("delete");
    let left = api.list(&ListParams::default().labels("app")).await.expect("list");
    assert_eq!(left.items.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["c"]);
    let wrong = Preconditions { uid: Some("nobody".into()), resource_version: None };
    let refused = api.delete("c", &DeleteParams::default().preconditions(wrong)).await;
    assert_eq!(reason(refused.expect_err("refused")), (409, "Conflict".into()));
    let right = Preconditions { uid: left.items[0].uid(), resource_version: None };
    api.delete("c", &DeleteParams::default().preconditions(right)).await.expect("delete");
}

#[tokio::test]
async fn status_and_scale_of_a_custom_kind_are_written_through_kube() {
    let cluster = Cluster::start().await;
    knots::serve(&cluster).await;
    let api = knots::api(&cluster, &cluster.namespace().await);
    let object =
        serde_json::from_value(knot("a", json!({"mode": "Tight", "strands": 1}))).expect("a knot");
    let made = api.create(&PostParams::default(), &object).await.expect("create");
    assert_eq!((made.data["spec"]["size"].clone(), made.metadata.generation), (json!(3), Some(1)));
    let patch = Patch::Merge(json!({"status": {"phase": "Held"}, "spec": {"size": 9}}));
    let held = api.patch_status("a", &PatchParams::default(), &patch).await.expect("status");
    assert_eq!(
        (&held.data["status"]["phase"], &held.data["spec"]["size"], held.metadata.generation),
        (&json!("Held"), &json!(3), Some(1))
    );
    let scale = api
        .patch_scale("a", &PatchParams::default(), &Patch::Merge(json!({"spec": {"replicas": 4}})))
        .await
        .expect("scale");
    assert_eq!(scale.spec.and_then(|spec| spec.replicas), Some(4));
    let scaled = api.get("a").await.expect("get");
    assert_eq!((&scaled.data["spec"]["strands"], scaled.metadata.generation), (&json!(4), Some(2)));
}

#[tokio::test]
async fn kubes_finalizer_holds_an_object_until_it_is_cleaned_up() {
    use kube::runtime::finalizer::{Event, finalizer};
    let cluster = Cluster::start().await;
    let api = config_maps(&cluster).await;
    api.create(&PostParams::default(), &config_map("a", &[])).await.expect("create");
    let mut log = Vec::new();
    for deleted in [false, false, true] {
        if deleted {
            api.delete("a", &DeleteParams::default()).await.expect("delete");
        }
        let object = std::sync::Arc::new(api.get("a").await.expect("get"));
        let result = finalizer(&api, "example.com/hold", object, async |event| {
            log.push(match event {
                Event::Apply(_) => "apply",
                Event::Cleanup(_) => "cleanup",
            });
            Ok::<_, std::io::Error>(kube::runtime::controller::Action::await_change())
        });
        result.await.expect("finalizer");
    }
    assert_eq!(log, ["apply", "cleanup"]);
    assert_eq!(api.get_opt("a").await.expect("an answer"), None);
}

#[tokio::test]
async fn services_created_at_once_never_share_an_address() {
    let cluster = Cluster::start().await;
    let api: Api<Service> = Api::namespaced(cluster.client(), &cluster.namespace().await);
    let creations = (0..20).map(|n| {
        let api = api.clone();
        async move {
            let service = serde_json::from_value(json!({
                "metadata": {"name": format!("s{n}")},
                "spec": {"type": "NodePort", "ports": [{"port": 80}]},
            }));
            api.create(&PostParams::default(), &service.expect("a service")).await.expect("create")
        }
    });
    let services = futures::future::join_all(creations).await;
    let mut taken: Vec<Value> = services
        .iter()
        .filter_map(|service| service.spec.as_ref())
        .flat_map(|spec| {
            [json!(spec.cluster_ip), json!(spec.ports.as_ref().expect("ports")[0].node_port)]
        })
        .collect();
    taken.sort_by_key(Value::to_string);
    taken.dedup();
    assert_eq!(taken.len(), 40);
}

#[tokio::test]
async fn what_is_not_implemented_is_refused_and_changes_nothing() {
    let cluster = Cluster::start().await;
    let namespace = cluster.namespace().await;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let call = Call::new("PATCH", format!("{path}/a?fieldManager=test"))
        .body("application/apply-patch+yaml", object.to_string());
    SERVER_SIDE_APPLY.check(&cluster, cluster.http(call).await.status);
    assert_eq!(
        cluster.get(&format!("{path}/a")).await.0 == 404,
        SERVER_SIDE_APPLY.applies(&cluster)
    );

    let dry = json!({"metadata": {"name": "dry"}});
    let call = Call::new("POST", format!("{path}?dryRun=All")).json(&dry);
    DRY_RUN.check(&cluster, cluster.http(call).await.status);
    assert_eq!(cluster.get(&format!("{path}/dry")).await.0, 404);

    cluster.create(&path, &json!({"metadata": {"name": "owner"}})).await;
    let call = Call::new("DELETE", format!("{path}/owner?propagationPolicy=Foreground"));
    FOREGROUND_DELETION.check(&cluster, cluster.http(call).await.status);
    if FOREGROUND_DELETION.applies(&cluster) {
        assert_eq!(cluster.get(&format!("{path}/owner")).await.0, 200);
    } else {
        eventually("the owner goes", || async {
            match cluster.get(&format!("{path}/owner")).await {
                (404, _) => Ok(()),
                (_, body) => Err(body.to_string()),
            }
        })
        .await;
    }
}
