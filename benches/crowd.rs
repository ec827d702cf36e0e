//! `make bench`: how soon Services have addresses. It creates a thousand, and compares the time until the
//! last one shows its address with the time for creating them, in the same run. It uses the embedded API;
//! with `KUBEBUILDER_ASSETS` a real one, with the rights of `deploy`. Asserts nothing about time.
#![allow(clippy::expect_used, clippy::panic, reason = "a benchmark fails by panicking")]

use bowline_testing::{Bowline, Cluster, Stack, net, objects};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, PostParams, WatchEvent, WatchParams};
use serde_json::json;
use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_bowline");
const SERVICES: usize = 1_000;
/// One after another, as `kubectl apply` does, and many at a time.
const WRITERS: [usize; 2] = [1, 20];
/// The goal: all have addresses within this many times the time for creating them.
const HOLD: f64 = 1.2;

fn main() {
    let only = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    if only.is_none_or(|only| "addresses-1000".contains(&only)) {
        net::in_namespace(|| async {
            for writers in WRITERS {
                crowd(writers).await;
            }
        });
    }
}

/// Creates a thousand Services, this many at a time.
async fn crowd(writers: usize) {
    let cluster = Cluster::own(Stack::Single).await;
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy");
    cluster.install(&deploy).await;
    let pool = json!({
        "apiVersion": "bowline.dev/v1alpha1", "kind": "AddressPool",
        "metadata": {"name": "public"}, "spec": {"addresses": ["10.9.0.0/16"]},
    });
    cluster.apply("", &pool).await;
    let kubeconfig = cluster.kubeconfig_of("bowline-controller").await;
    let mut controller =
        Bowline::start(&cluster, Path::new(PROGRAM), &kubeconfig, "controller", &[]);
    controller.ready().await;
    let namespace = cluster.namespace().await;
    let services: Api<Service> = Api::namespaced(cluster.client(), &namespace);

    let begun = Instant::now();
    let (created, shown) =
        futures::join!(create(&services, writers, begun), addressed(&services, begun));
    let last = |times: &HashMap<String, Duration>| times.values().max().copied().expect("some");
    let mut waits: Vec<Duration> =
        shown.iter().map(|(name, at)| at.saturating_sub(created[name])).collect();
    waits.sort_unstable();
    let (created, shown) = (last(&created), last(&shown));
    println!(
        "addresses-{SERVICES}   {:?}, {writers} at a time: created in {:.2} s, all addressed after {:.2} s: {:.2} × \
         (to hold {HOLD} ×); median wait {:.0} ms, longest {:.0} ms",
        cluster.flavour(),
        created.as_secs_f64(),
        shown.as_secs_f64(),
        shown.as_secs_f64() / created.as_secs_f64(),
        waits[waits.len() / 2].as_secs_f64() * 1e3,
        waits[waits.len() - 1].as_secs_f64() * 1e3,
    );
}

/// When each Service was created.
async fn create(
    services: &Api<Service>,
    writers: usize,
    begun: Instant,
) -> HashMap<String, Duration> {
    let create = |at: usize| async move {
        let name = format!("service-{at:04}");
        let mut service = objects::service(&name, "", &[(80, 8080)]);
        service["metadata"]["annotations"] = json!({});
        let service = serde_json::from_value(service).expect("a Service");
        services.create(&PostParams::default(), &service).await.expect("create a Service");
        (name, begun.elapsed())
    };
    futures::stream::iter(0..SERVICES).map(create).buffer_unordered(writers).collect().await
}

/// When each Service showed an address.
async fn addressed(services: &Api<Service>, begun: Instant) -> HashMap<String, Duration> {
    let mut shown = HashMap::new();
    let mut version = "0".to_owned();
    while shown.len() < SERVICES {
        let events = services.watch(&WatchParams::default(), &version).await.expect("watch");
        let mut events = events.boxed();
        while let Some(event) = events.try_next().await.expect("an event") {
            let (WatchEvent::Added(service) | WatchEvent::Modified(service)) = event else {
                continue;
            };
            version = service.metadata.resource_version.unwrap_or_default();
            let status = service.status.and_then(|it| it.load_balancer);
            if status.and_then(|it| it.ingress).is_some_and(|it| !it.is_empty()) {
                let name = service.metadata.name.unwrap_or_default();
                shown.entry(name).or_insert_with(|| begun.elapsed());
            }
            if shown.len() == SERVICES {
                break;
            }
        }
    }
    shown
}
