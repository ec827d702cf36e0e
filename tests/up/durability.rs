//! What was acknowledged stays, whatever happens to the process.

use crate::bowline::{Bowline, Start};
use crate::storm::{self, Storm};
use bowline_apiserver::store::{Key, Limits, Store};
use bowline_testing::Scratch;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, ListParams, PostParams};
use serde_json::json;
use std::path::Path;
use std::time::Instant;

async fn clients(server: &Bowline) -> Vec<Client> {
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(server.client().await);
    }
    clients
}

fn note(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"note": name}})).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_acknowledged_write_survives_a_kill_in_the_middle_of_1000() {
    let scratch = Scratch::new();
    let mut server = Start::kept(&scratch).ready();
    let mut storm = Storm::new(1000, 1);
    for acknowledged in [500, 1, 900, 211] {
        let clients = clients(&server).await;
        let started = Instant::now();
        let mut took = None;
        let count = storm
            .blow(&clients, acknowledged, || {
                took = Some(started.elapsed());
                server.service.kill();
            })
            .await;
        server.assert_never_panicked();
        let restarting = Instant::now();
        server = Start::kept(&scratch).ready();
        println!(
            "killed after {acknowledged} of 1000 writes ({took:?}); {count} acknowledged; back after {:?}",
            restarting.elapsed()
        );
        let client = server.client().await;
        let late = storm.settle(&client).await;
        println!("{late} writes took place unanswered; revision {}", storm.revision);

        let api: Api<ConfigMap> = Api::namespaced(client, "kube-public");
        let after = note(&format!("after-{acknowledged}"));
        let after = api.create(&PostParams::default(), &after).await.expect("a write");
        let after = storm::revision(&after);
        assert!(after > storm.revision, "{after} was given out before: {}", storm.revision);
        storm.revision = after;
    }
    assert_eq!(server.stop(), Some(0));
}

/// Copies a file under the running process, whose controllers write now and then: a copy that met such
/// a write is made again.
fn copy_between_writes(file: &Path, copy: &Path) {
    let changed = || file.metadata().and_then(|data| data.modified()).expect("a file");
    loop {
        let before = changed();
        std::fs::copy(file, copy).expect("copy the file");
        if changed() == before {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_is_in_the_file_before_it_is_acknowledged() {
    let scratch = Scratch::new();
    let mut server = Start::kept(&scratch).ready();
    let api: Api<ConfigMap> = Api::namespaced(server.client().await, "kube-public");
    let file = scratch.path().join("data/store.redb");
    for index in 0..10 {
        let name = format!("note-{index}");
        let written = api.create(&PostParams::default(), &note(&name)).await.expect("a write");
        let copy = scratch.path().join(format!("copy-{index}.redb"));
        copy_between_writes(&file, &copy);
        let store = Store::open(&copy, Limits::default()).expect("the copy opens");
        let kept = store.get(&Key::new("configmaps", "kube-public", name.as_str()));
        let kept = kept.unwrap_or_else(|| panic!("{name} is acknowledged and not in the file"));
        assert_eq!(kept.revision, storm::revision(&written));
        let kept: ConfigMap = serde_json::from_slice(&kept.bytes).expect("an object");
        assert_eq!(kept.data, written.data);
    }
    assert_eq!(server.stop(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_start_that_is_killed_at_any_moment_can_be_done_again() {
    for sign in ["data/store.redb", "data/owner.json", "data/credentials.json", "kubeconfig"] {
        let scratch = Scratch::new();
        let mut service = Start::kept(&scratch).spawn();
        while !scratch.path().join(sign).exists() {
            service.assert_alive();
            std::thread::yield_now();
        }
        service.kill();
        let mut server = Start::kept(&scratch).ready();
        let definitions: Api<CustomResourceDefinition> = Api::all(server.client().await);
        let definitions = definitions.list(&ListParams::default()).await.expect("a list");
        assert_eq!(definitions.items.len(), 9, "killed at {sign}");
        assert_eq!(server.stop(), Some(0));
    }
}
