//! Watchers that outlive the server: nothing lost, nothing twice, and 410 instead of a hole.

use crate::bowline::Start;
use crate::storm::{self, Storm};
use bowline_apiserver::cluster::{Cluster, ClusterOptions};
use bowline_apiserver::store::Limits;
use bowline_testing::{Scratch, eventually};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, PostParams, WatchEvent, WatchParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, ResourceExt as _};
use serde_json::json;
use std::collections::BTreeMap;
use std::pin::pin;

/// An event: revision, name, what happened, and the write that its content comes from.
type Seen = (u64, String, &'static str, u64);

const END: &str = "the-end";

fn seen(kind: &'static str, object: &ConfigMap) -> Seen {
    (storm::revision(object), object.name_any(), kind, storm::number(object))
}

fn end() -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": END}})).unwrap()
}

/// Follows with bare watches, each from where the last one ended, until the end is announced.
async fn follow_by_hand(client: Client, mut revision: u64) -> Vec<Seen> {
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    let mut all = Vec::new();
    loop {
        let events = eventually("the server answers", async || {
            let watch = api.watch(&WatchParams::default(), &revision.to_string()).await;
            watch.map_err(|error| error.to_string())
        });
        let mut events = pin!(events.await);
        // A broken connection ends the stream with an error; that is the accident, not the test.
        while let Ok(Some(event)) = events.try_next().await {
            let (kind, object) = match event {
                WatchEvent::Added(object) => ("ADDED", object),
                WatchEvent::Modified(object) => ("MODIFIED", object),
                WatchEvent::Deleted(object) => ("DELETED", object),
                WatchEvent::Bookmark(_) => continue,
                WatchEvent::Error(status) => panic!("{status:?}"),
            };
            if object.name_any() == END {
                return all;
            }
            revision = storm::revision(&object);
            all.push(seen(kind, &object));
        }
    }
}

/// Follows with kube's watcher, which resumes by itself. It does not tell ADDED from MODIFIED.
async fn follow_with_kube(client: Client, ready: tokio::sync::oneshot::Sender<()>) -> Vec<Seen> {
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    let mut ready = Some(ready);
    let mut all = Vec::new();
    let mut events = pin!(watcher(api, watcher::Config::default()).default_backoff());
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::Apply(object)) if object.name_any() == END => break,
            Ok(watcher::Event::Apply(object)) => all.push(seen("APPLIED", &object)),
            Ok(watcher::Event::Delete(object)) => all.push(seen("DELETED", &object)),
            Ok(watcher::Event::InitDone) => {
                ready.take().expect("it lists once only").send(()).expect("somebody waits");
            }
            Ok(watcher::Event::Init | watcher::Event::InitApply(_)) => {}
            // The server is away; the backoff is its own.
            Err(_) => {}
        }
    }
    all
}

/// Every write that took place is there, once and in order, with the revision that was acknowledged.
fn assert_complete(storm: &Storm, all: &[Seen], word: impl Fn(&'static str) -> &'static str) {
    for pair in all.windows(2) {
        assert!(pair[0].0 < pair[1].0, "twice or out of order: {pair:?}");
    }
    let mut by_name = BTreeMap::<&str, Vec<_>>::new();
    for (revision, name, kind, number) in all {
        by_name.entry(name).or_default().push((*kind, *number, *revision));
    }
    let mut expected_count = 0;
    for object in &storm.objects {
        let events = by_name.remove(object.name.as_str()).unwrap_or_default();
        expected_count += object.history.len();
        let expected: Vec<_> = object
            .history
            .iter()
            .zip(events.iter().map(Some).chain(std::iter::repeat(None)))
            .map(|(write, event)| {
                // A deletion's revision is known from its event alone.
                let revision = write.revision.or(event.map(|event| event.2)).unwrap_or(0);
                (word(write.kind), write.number, revision)
            })
            .collect();
        assert_eq!(events, expected, "{}", object.name);
    }
    assert!(by_name.is_empty(), "nobody wrote these: {by_name:?}");
    assert_eq!(all.len(), expected_count);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watchers_that_live_through_kills_see_every_write_once_and_in_order() {
    let scratch = Scratch::new();
    let mut server = Start::kept(&scratch).ready();
    let address = server.address.to_string();
    let mut storm = Storm::new(200, 2);

    let client = server.client().await;
    let (ready, listed) = tokio::sync::oneshot::channel();
    let kube = tokio::spawn(follow_with_kube(server.client().await, ready));
    listed.await.expect("kube's watcher has listed");
    storm.settle(&client).await;
    let mut by_hand = Vec::new();
    for _ in 0..3 {
        by_hand.push(tokio::spawn(follow_by_hand(server.client().await, storm.revision)));
    }
    for acknowledged in [120, 40, 199] {
        storm.blow(&[server.client().await], acknowledged, || server.service.kill()).await;
        server = Start::kept(&scratch).listen(&address).ready();
        storm.settle(&client).await;
    }
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    api.create(&PostParams::default(), &end()).await.expect("the end");
    for follower in by_hand {
        assert_complete(&storm, &follower.await.expect("it follows"), |kind| kind);
    }
    assert_complete(&storm, &kube.await.expect("it follows"), |kind| match kind {
        "DELETED" => "DELETED",
        _ => "APPLIED",
    });
    assert_eq!(server.stop(), Some(0));
}

fn note(index: usize) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": format!("note-{index}")}})).unwrap()
}

async fn socket_client(cluster: &Cluster) -> Client {
    use kube::config::{KubeConfigOptions, Kubeconfig};
    let config = Kubeconfig::from_yaml(&cluster.kubeconfig()).expect("a kubeconfig");
    let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await;
    Client::try_from(config.expect("a kubeconfig")).expect("a client")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watcher_that_was_away_too_long_is_told_and_kubes_recovers_by_itself() {
    let scratch = Scratch::new();
    let mut options = ClusterOptions {
        data: Some(scratch.path().join("data")),
        limits: Limits { history_events: 5, ..Limits::default() },
        ..ClusterOptions::default()
    };
    let cluster = Cluster::start(options.clone()).await.expect("a cluster");
    options.listen = cluster.address();
    let api: Api<ConfigMap> = Api::default_namespaced(socket_client(&cluster).await);
    let mut events = pin!(watcher(api.clone(), watcher::Config::default()).default_backoff());
    while !matches!(events.next().await, Some(Ok(watcher::Event::InitDone))) {}
    let listed = api.list(&ListParams::default()).await.expect("a list");
    let listed = listed.metadata.resource_version.expect("a resourceVersion");
    cluster.shutdown().await;

    // Nobody asks the watcher while this goes on, so it comes back to a history that has moved on.
    let cluster = Cluster::start(options).await.expect("a cluster");
    let inside: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    for index in 0..20 {
        inside.create(&PostParams::default(), &note(index)).await.expect("a write");
    }

    let code = match api.watch(&WatchParams::default(), &listed).await {
        Err(kube::Error::Api(status)) => status.code,
        Err(error) => panic!("{error}"),
        Ok(events) => match pin!(events).next().await {
            Some(Ok(WatchEvent::Error(status))) => status.code,
            other => panic!("{other:?}"),
        },
    };
    assert_eq!(code, 410);

    let mut known = Vec::new();
    loop {
        match events.next().await.expect("a watcher does not end") {
            Ok(watcher::Event::Init) => known.clear(),
            Ok(watcher::Event::InitApply(object)) => known.push(object.name_any()),
            Ok(watcher::Event::InitDone) => break,
            Ok(other) => panic!("an event before the list: {other:?}"),
            Err(_) => {}
        }
    }
    let expected: Vec<_> = inside.list(&ListParams::default()).await.expect("a list").items;
    let expected: Vec<_> = expected.iter().map(|object| object.name_any()).collect();
    assert_eq!(known, expected);
    inside.create(&PostParams::default(), &note(99)).await.expect("a write");
    match events.next().await {
        Some(Ok(watcher::Event::Apply(object))) => assert_eq!(object.name_any(), "note-99"),
        other => panic!("{other:?}"),
    }
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watcher_that_reads_too_slowly_is_told_instead_of_missing_an_event() {
    let options = ClusterOptions {
        limits: Limits { history_events: 5, ..Limits::default() },
        ..ClusterOptions::default()
    };
    let cluster = Cluster::start(options).await.expect("a cluster");
    let outside: Api<ConfigMap> = Api::default_namespaced(socket_client(&cluster).await);
    let inside: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    let first = inside.create(&PostParams::default(), &note(0)).await.expect("a write");
    let from = first.resource_version().expect("a resourceVersion");
    let events = outside.watch(&WatchParams::default(), &from).await.expect("a watch");

    // Nobody reads the watch while more is written than any socket holds.
    let mut written = Vec::new();
    for index in 1..=150 {
        let mut large = note(index);
        large.data = Some(BTreeMap::from([("filler".to_owned(), "x".repeat(300_000))]));
        let large = inside.create(&PostParams::default(), &large).await.expect("a write");
        written.push(storm::revision(&large));
    }
    let mut read = Vec::new();
    let mut events = pin!(events);
    let told = loop {
        match events.next().await {
            Some(Ok(WatchEvent::Added(object))) => read.push(storm::revision(&object)),
            Some(Ok(WatchEvent::Bookmark(_))) => {}
            Some(Ok(WatchEvent::Error(status))) => break status.code,
            other => panic!("after {} events: {other:?}", read.len()),
        }
    };
    assert_eq!(told, 410);
    assert!(read.len() < written.len(), "it was not slow");
    assert_eq!(read, written[..read.len()], "no hole before it was told");
    cluster.shutdown().await;
}
