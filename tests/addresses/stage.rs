//! What these tests stand on: a cluster for each, with a controller, and words for what it should show.

use bowline_testing::objects::{self, path};
use bowline_testing::{Bowline, Call, Cluster, Stack, eventually, net};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const PROGRAM: &str = env!("CARGO_BIN_EXE_bowline");

/// A cluster with a controller.
pub(crate) struct Site {
    pub(crate) cluster: Cluster,
    pub(crate) namespace: String,
    pub(crate) controller: Bowline,
}

/// Runs a test in the network of this binary.
pub(crate) fn play(test: impl AsyncFnOnce()) {
    if Cluster::is_out_of_reach() {
        return;
    }
    net::in_namespace(|| async { test().await });
}

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy")
}

/// A controller that is ready.
pub(crate) async fn start(cluster: &Cluster, args: &[&str]) -> Bowline {
    let mut controller = start_only(cluster, args).await;
    controller.ready().await;
    controller
}

/// A controller that has just begun.
pub(crate) async fn start_only(cluster: &Cluster, args: &[&str]) -> Bowline {
    let kubeconfig = cluster.kubeconfig_of("bowline-controller").await;
    Bowline::start(cluster, Path::new(PROGRAM), &kubeconfig, "controller", args)
}

impl Site {
    /// A cluster of its own, with a controller that is started with these arguments.
    pub(crate) async fn new(args: &[&str]) -> Self {
        let cluster = Cluster::own(Stack::Dual).await;
        cluster.install(&deploy()).await;
        let controller = start(&cluster, args).await;
        let namespace = cluster.namespace().await;
        Self { cluster, namespace, controller }
    }

    /// The controller is killed, and another one comes.
    pub(crate) async fn restart(&mut self) {
        self.controller.process.end();
        self.controller = start(&self.cluster, &["--leader-elect=false"]).await;
    }

    /// The same, with these arguments and with the rights that one of these files gives it beside.
    pub(crate) async fn restart_with(&mut self, args: &[&str], rights: &str) {
        self.controller.process.end();
        let file = deploy().join(rights).display().to_string();
        self.cluster.kubectl(&["apply", "-f", &file], "").ok();
        self.controller = start(&self.cluster, args).await;
    }

    /// The agent of a load balancer.
    pub(crate) async fn agent(&self, lb: &str) -> Bowline {
        let kubeconfig = self.cluster.agent_kubeconfig(&deploy(), lb).await;
        let args = ["--load-balancer", lb];
        let program = Path::new(PROGRAM);
        let mut agent = Bowline::start(&self.cluster, program, &kubeconfig, "agent", &args);
        agent.ready().await;
        agent
    }

    pub(crate) async fn pool(&self, name: &str, spec: Value) {
        let pool = json!({
            "apiVersion": "bowline.dev/v1alpha1", "kind": "AddressPool",
            "metadata": {"name": name}, "spec": spec,
        });
        self.cluster.apply("", &pool).await;
    }

    /// A Service of ours with these annotations, on no load balancer.
    pub(crate) async fn service(&self, name: &str, annotations: Value) -> Value {
        let mut service = objects::service(name, "", &[(80, 8080)]);
        service["metadata"]["annotations"] = annotations;
        self.cluster.apply(&self.namespace, &service).await
    }

    pub(crate) async fn read(&self, name: &str) -> Value {
        self.cluster.read("Service", &self.namespace, name).await
    }

    pub(crate) async fn patch(&self, name: &str, patch: Value) {
        self.cluster.patch("Service", &self.namespace, name, &patch).await;
    }

    /// Waits until the status of a Service shows these addresses and nothing else; returns its points.
    pub(crate) async fn shows(&self, name: &str, addresses: &[&str]) -> Value {
        eventually(&format!("{name} shows {addresses:?}"), || async {
            let service = self.read(name).await;
            let points = service["status"]["loadBalancer"]["ingress"].clone();
            let found = points.as_array().into_iter().flatten();
            let found: Vec<_> = found.filter_map(|point| point["ip"].as_str()).collect();
            if found == addresses { Ok(points.clone()) } else { Err(service.to_string()) }
        })
        .await
    }

    /// The version of a Service, from which [`Site::has_shown`] tells what happened.
    pub(crate) async fn version(&self, name: &str) -> String {
        let service = self.read(name).await;
        service["metadata"]["resourceVersion"].as_str().expect("a version").to_owned()
    }

    /// All that the statuses of Services have shown since a version, in order, as a watch tells it.
    pub(crate) async fn has_shown(&self, version: &str) -> Vec<Vec<String>> {
        let services = path("Service", &self.namespace, "");
        let watch = format!("{services}?watch=1&timeoutSeconds=1&resourceVersion={version}");
        let events = self.cluster.http(Call::new("GET", watch)).await.json_lines();
        let shown = events.iter().map(|event| {
            assert!(event["type"] != "ERROR", "{event}");
            let points = event["object"]["status"]["loadBalancer"]["ingress"].as_array();
            let ips = points.into_iter().flatten().filter_map(|it| it["ip"].as_str());
            ips.map(str::to_owned).collect()
        });
        let mut shown: Vec<Vec<String>> = shown.collect();
        shown.dedup();
        shown
    }

    /// Waits until a condition of a Service has this reason; returns its message.
    pub(crate) async fn says(&self, name: &str, condition: &str, reason: &str) -> String {
        eventually(&format!("{condition} of {name} is {reason}"), || async {
            let service = self.read(name).await;
            let all = service["status"]["conditions"].clone();
            let mut all = all.as_array().into_iter().flatten();
            match all.find(|it| it["type"] == condition && it["reason"] == reason) {
                Some(found) => Ok(found["message"].as_str().unwrap_or_default().to_owned()),
                None => Err(service["status"].to_string()),
            }
        })
        .await
    }

    /// Waits until these Addresses are all there are, each with the names of its holders.
    pub(crate) async fn records(&self, expected: &[(&str, &[&str])]) {
        eventually(&format!("the Addresses are {expected:?}"), || async {
            let (_, list) = self.cluster.get(&path("Address", "", "")).await;
            let items = list["items"].as_array().cloned().unwrap_or_default();
            let found: Vec<(String, Vec<String>)> = items
                .iter()
                .map(|it| {
                    let holders = it["spec"]["holders"].as_array().into_iter().flatten();
                    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                    (text(&it["metadata"]["name"]), holders.map(|it| text(&it["name"])).collect())
                })
                .collect();
            let same = found.len() == expected.len()
                && found.iter().zip(expected).all(|(found, expected)| {
                    found.0 == expected.0 && found.1.iter().eq(expected.1.iter())
                });
            if same { Ok(()) } else { Err(format!("{found:?}")) }
        })
        .await;
    }

    /// Waits until an Event about a Service has this reason; returns its message.
    pub(crate) async fn told(&self, name: &str, reason: &str) -> String {
        self.told_in(&self.namespace, name, reason).await
    }

    /// The same of a pool. What is in no namespace is spoken of in this one.
    pub(crate) async fn told_of_pool(&self, name: &str, reason: &str) -> String {
        self.told_in("default", name, reason).await
    }

    /// The same of an object in this namespace.
    pub(crate) async fn told_in(&self, namespace: &str, name: &str, reason: &str) -> String {
        eventually(&format!("{name} is told {reason}"), || async {
            let (_, list) = self.cluster.get(&path("Event", namespace, "")).await;
            let events = list["items"].as_array().cloned().unwrap_or_default();
            let mut events = events.iter().filter(|it| it["involvedObject"]["name"] == name);
            match events.find(|it| it["reason"] == reason) {
                Some(event) => Ok(event["message"].as_str().unwrap_or_default().to_owned()),
                None => Err("nothing of the kind".to_owned()),
            }
        })
        .await
    }

    /// The reasons of all warnings about a Service.
    pub(crate) async fn warnings(&self, name: &str) -> Vec<String> {
        let (_, list) = self.cluster.get(&path("Event", &self.namespace, "")).await;
        let events = list["items"].as_array().cloned().unwrap_or_default();
        let about = |it: &&Value| it["involvedObject"]["name"] == name && it["type"] == "Warning";
        let reasons = events.iter().filter(about).map(|it| it["reason"].to_string());
        reasons.collect()
    }

    /// Writes something wrong into the status of a Service.
    pub(crate) async fn spoil(&self, name: &str, address: &str) {
        let wrong = json!({"status": {"loadBalancer": {"ingress": [{"ip": address}]}}});
        let path = path("Service", &self.namespace, name) + "/status";
        let call = Call::new("PATCH", path).body("application/merge-patch+json", wrong.to_string());
        self.cluster.http(call).await.expect(200);
    }
}
