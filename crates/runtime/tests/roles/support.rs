//! Support for the tests: a cluster, roles in it, and a driver that records what it was given.

use bowline_apiserver::cluster::Cluster;
use bowline_core::update::{Report, Update};
use bowline_drivers::{Driver, Error};
use bowline_runtime::embedded::{self, EmbeddedOptions};
use bowline_runtime::{AgentOptions, Context, ControllerOptions, agent, apply, controller};
use kube::Client;
use serde_json::{Value, json};
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

pub(crate) async fn cluster() -> Cluster {
    let options = EmbeddedOptions { loopback_endpoints: true, ..EmbeddedOptions::default() };
    embedded::start(options).await.expect("an embedded cluster")
}

/// Records what a driver was given; the test sets what it answers.
#[derive(Clone, Default)]
pub(crate) struct Recorder {
    pub(crate) updates: Arc<Mutex<Vec<Update>>>,
    pub(crate) report: Arc<Mutex<Report>>,
    /// This many calls fail first.
    pub(crate) failures: Arc<Mutex<u32>>,
    /// Notified when the report changes without an update.
    pub(crate) news: Arc<Notify>,
    /// Whether its proxy ends with the driver.
    pub(crate) ends: bool,
}

impl Driver for Recorder {
    async fn apply(&mut self, update: &Update) -> Result<Report, Error> {
        let mut failures = self.failures.lock().unwrap();
        if *failures > 0 {
            *failures -= 1;
            let doing = "writing".to_owned();
            return Err(Error { doing, cause: "disk full".to_owned(), retry: true });
        }
        self.updates.lock().unwrap().push(update.clone());
        Ok(self.report.lock().unwrap().clone())
    }

    async fn changed(&mut self) -> Result<Report, Error> {
        self.news.notified().await;
        Ok(self.report.lock().unwrap().clone())
    }

    async fn drain(&mut self, _grace: Duration) {}

    fn serves_on(&self) -> bool {
        !self.ends
    }
}

/// A running role.
pub(crate) struct Running {
    pub(crate) context: Context,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Running {
    pub(crate) async fn stop(self) {
        self.stop.send(true).expect("it listens");
        self.task.await.expect("it ends well");
    }

    /// Ends the role as kill -9 would.
    pub(crate) fn kill(self) {
        self.task.abort();
    }
}

pub(crate) fn controller_options(identity: &str) -> ControllerOptions {
    ControllerOptions {
        default_class: true,
        default_load_balancer: Some("edge".to_owned()),
        identity: identity.to_owned(),
        ..ControllerOptions::default()
    }
}

pub(crate) fn start_controller(client: Client, options: ControllerOptions) -> Running {
    let (context, stop) = Context::new();
    let shared = context.clone();
    let task = tokio::spawn(async move {
        controller::run(client, options, shared).await.expect("a controller");
    });
    Running { context, stop, task }
}

pub(crate) fn start_agent(
    client: Client,
    options: AgentOptions,
    driver: impl Driver + 'static,
) -> Running {
    let (context, stop) = Context::new();
    let shared = context.clone();
    let task = tokio::spawn(async move {
        agent::run(client, options, driver, shared).await.expect("an agent");
    });
    Running { context, stop, task }
}

pub(crate) async fn create(client: &Client, object: Value) {
    apply::object(client, &object).await.unwrap_or_else(|e| panic!("{object}: {e}"));
}

pub(crate) fn load_balancer(address: &str) -> Value {
    json!({
        "apiVersion": "bowline.dev/v1alpha1", "kind": "LoadBalancer",
        "metadata": {"name": "edge"},
        "spec": {"builtin": {}, "addresses": [address], "allowedNamespaces": {"from": "All"}},
    })
}

pub(crate) fn service(name: &str, port: u16) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"type": "LoadBalancer", "ports": [{"port": port, "targetPort": 8080}]},
    })
}

pub(crate) fn slice(service: &str, addresses: &[&str]) -> Value {
    let endpoints: Vec<_> = addresses
        .iter()
        .map(|a| json!({"addresses": [a], "conditions": {"ready": true}}))
        .collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": format!("{service}-1"), "namespace": "default",
            "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4",
        "ports": [{"name": "", "port": 8080, "protocol": "TCP"}],
        "endpoints": endpoints,
    })
}

/// Repeats a probe until it succeeds.
pub(crate) async fn eventually<T, F, Fut>(what: &str, mut probe: F) -> T
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, String>>,
{
    let begun = Instant::now();
    loop {
        match probe().await {
            Ok(value) => return value,
            Err(why) => {
                assert!(begun.elapsed() < Duration::from_secs(30), "{what}: {why}");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
}
