//! `make bench`: the cost of the embedded API. Prints numbers; asserts nothing about time.
//!
//! Everything goes through real sockets and TLS with the store on disk, as `bowline up` runs it, except
//! where a line says otherwise.

use anyhow::{Context as _, Result};
use bowline_apiserver::cluster::{Cluster, ClusterOptions};
use bowline_apiserver::store::{Change, Expect, Key, Limits, Store, Write};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, ListParams, PostParams, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const SERVICES: usize = 10_000;
const WRITERS: usize = 64;
const WATCHERS: usize = 100;
const WATCHED_EVENTS: usize = 500;

#[tokio::main]
async fn main() -> Result<()> {
    // First, while the process holds no memory that could be freed and used again.
    memory().await?;
    let folder = tempfile::tempdir()?;
    let cluster = Cluster::start(ClusterOptions {
        data: Some(folder.path().join("data")),
        ..ClusterOptions::default()
    })
    .await?;
    let client = socket_client(&cluster).await?;
    let services: Api<Service> = Api::namespaced(client.clone(), "default");

    writes(&services).await?;
    lists(&services).await?;
    watchers(&cluster, &services).await?;
    cluster.shutdown().await;
    Ok(())
}

async fn socket_client(cluster: &Cluster) -> Result<kube::Client> {
    let config = Kubeconfig::from_yaml(&cluster.kubeconfig())?;
    let config =
        kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
    Ok(kube::Client::try_from(config)?)
}

fn service(index: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": format!("service-{index:05}"), "labels": {"app": "bench"}},
        "spec": {
            "selector": {"app": format!("app-{index}")},
            "ports": [{"name": "http", "port": 80, "targetPort": 8080}],
        },
    })
}

async fn writes(services: &Api<Service>) -> Result<()> {
    let started = Instant::now();
    let waits: Vec<Duration> = futures::stream::iter(0..SERVICES)
        .map(|index| async move {
            let object = serde_json::from_value(service(index))?;
            let begun = Instant::now();
            services.create(&PostParams::default(), &object).await?;
            anyhow::Ok(begun.elapsed())
        })
        .buffer_unordered(WRITERS)
        .try_collect()
        .await?;
    let took = started.elapsed();
    println!(
        "durable creates   {:>8.0} /s   {SERVICES} Services, {WRITERS} at a time; median {:.1} ms, p99 {:.1} ms",
        SERVICES as f64 / took.as_secs_f64(),
        percentile(&waits, 50) * 1e3,
        percentile(&waits, 99) * 1e3,
    );
    Ok(())
}

async fn lists(services: &Api<Service>) -> Result<()> {
    let mut whole = Vec::new();
    let mut selected = Vec::new();
    for _ in 0..10 {
        let begun = Instant::now();
        let list = services.list(&ListParams::default()).await?;
        anyhow::ensure!(list.items.len() == SERVICES, "all Services are listed");
        whole.push(begun.elapsed());
        let begun = Instant::now();
        let list = services.list(&ListParams::default().labels("app=nobody")).await?;
        anyhow::ensure!(list.items.is_empty(), "nothing matches");
        selected.push(begun.elapsed());
    }
    println!(
        "list              {:>8.1} ms   {SERVICES} Services, decoded by the client (median of 10)",
        percentile(&whole, 50) * 1e3
    );
    println!(
        "list, none match  {:>8.1} ms   a label selector over {SERVICES} Services (median of 10)",
        percentile(&selected, 50) * 1e3
    );
    Ok(())
}

async fn watchers(cluster: &Cluster, services: &Api<Service>) -> Result<()> {
    let version = services
        .list_metadata(&ListParams::default().limit(1))
        .await?
        .metadata
        .resource_version
        .context("a list has a version")?;
    let mut tasks = Vec::new();
    for _ in 0..WATCHERS {
        let api: Api<Service> = Api::namespaced(socket_client(cluster).await?, "default");
        let version = version.clone();
        tasks.push(tokio::spawn(async move {
            let stream = api.watch_metadata(&WatchParams::default(), &version).await?;
            futures::pin_mut!(stream);
            let mut seen = 0;
            while seen < WATCHED_EVENTS {
                match stream.try_next().await?.context("the watch ended early")? {
                    WatchEvent::Modified(_) => seen += 1,
                    WatchEvent::Bookmark(_) => {}
                    other => anyhow::bail!("unexpected event {other:?}"),
                }
            }
            Ok(())
        }));
    }
    let started = Instant::now();
    futures::stream::iter(0..WATCHED_EVENTS)
        .map(|index| async move {
            let name = format!("service-{index:05}");
            let patch = json!({"metadata": {"annotations": {"bench": index.to_string()}}});
            let params = kube::api::PatchParams::default();
            services.patch(&name, &params, &kube::api::Patch::Merge(patch)).await?;
            anyhow::Ok(())
        })
        .buffer_unordered(WRITERS)
        .try_collect::<Vec<()>>()
        .await?;
    let written = started.elapsed();
    for task in tasks {
        task.await??;
    }
    let took = started.elapsed();
    println!(
        "watch fan-out     {:>8.0} /s   {WATCHERS} watchers × {WATCHED_EVENTS} events; last one {:.0} ms after the last write",
        (WATCHERS * WATCHED_EVENTS) as f64 / took.as_secs_f64(),
        (took.saturating_sub(written)).as_secs_f64() * 1e3,
    );
    Ok(())
}

/// Resident memory of a store in memory, compared with the JSON that it holds. History is limited
/// separately from the objects; with one write per object there is almost none.
async fn memory() -> Result<()> {
    const OBJECTS: usize = 100_000;
    let limits = Limits { history_events: 100, ..Limits::default() };
    let store = Store::memory(limits);
    let before = resident()?;
    let mut json_bytes = 0;
    for index in 0..OBJECTS {
        let mut object = service(index);
        object["metadata"]["namespace"] = json!("default");
        object["metadata"]["annotations"] = json!({"filler": "x".repeat(600)});
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let write = Write {
            key: Key::new("services", "default", name),
            expect: Expect::Absent,
            change: Change::Put { object, claims: Vec::new() },
            guards: Vec::new(),
        };
        let committed = store.write(write).await.map_err(|error| anyhow::anyhow!("{error:?}"))?;
        json_bytes += committed.entry.bytes.len();
    }
    let after = resident()?;
    println!(
        "memory            {:>8.2} ×    resident against JSON, {OBJECTS} objects of {} bytes (in memory)",
        (after - before) as f64 / json_bytes as f64,
        json_bytes / OBJECTS,
    );
    Ok(())
}

fn resident() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).context("VmRSS")?;
    let kilobytes: u64 = line.split_whitespace().nth(1).context("VmRSS value")?.parse()?;
    Ok(kilobytes * 1024)
}

fn percentile(samples: &[Duration], percent: usize) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort();
    let index = (sorted.len() * percent / 100).min(sorted.len() - 1);
    sorted[index].as_secs_f64()
}
