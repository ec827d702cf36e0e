//! What these tests stand on: a cluster, a folder with a template, and agents that fill it.

use bowline_testing::objects::{self, Endpoint, path};
use bowline_testing::{Bowline, Cluster, Flavour, Scratch, Stack, eventually, net, unique};
use serde_json::{Value, json};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_bowline");

/// A line per Service with its endpoints.
pub(crate) const LINES: &str = "\
{{ range $s := .Services }}{{ $s.Name }} {{ $s.Port }}\
{{ range $s.Endpoints }} {{ . }}{{ end }}
{{ end }}";

/// Runs a test in the network of this binary.
pub(crate) fn play(test: impl AsyncFnOnce()) {
    if Cluster::is_out_of_reach() {
        return;
    }
    net::in_namespace(|| async { test().await });
}

pub(crate) fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy")
}

/// A cluster, and a folder with the template `t.tmpl`.
pub(crate) struct Site {
    pub(crate) cluster: Cluster,
    pub(crate) namespace: String,
    pub(crate) folder: PathBuf,
    /// Where other programs of the test run.
    pub(crate) scratch: Scratch,
}

impl Site {
    pub(crate) async fn new(template: &str) -> Self {
        let cluster = Cluster::own(Stack::Single).await;
        cluster.install(&deploy()).await;
        if cluster.flavour() != Flavour::Embedded {
            let rights = deploy().join("rbac/template.yaml").display().to_string();
            cluster.kubectl(&["apply", "-f", &rights], "").ok();
        }
        let namespace = cluster.namespace().await;
        let scratch = Scratch::new();
        let folder = scratch.path().to_owned();
        let site = Self { cluster, namespace, folder, scratch };
        site.put("t.tmpl", template);
        site
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    pub(crate) fn put(&self, name: &str, text: &str) {
        // As an editor does, so that nobody reads half of it.
        let beside = self.folder.join(format!("{name}-{}", unique()));
        std::fs::write(&beside, text).unwrap();
        std::fs::rename(beside, self.folder.join(name)).unwrap();
    }

    pub(crate) fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.join(name)).unwrap_or_default()
    }

    /// An agent from `t.tmpl` to `out`, with further arguments. Waits for nothing.
    pub(crate) async fn start(&self, args: &[&str]) -> Bowline {
        let kubeconfig = self.cluster.kubeconfig_of("bowline-template").await;
        let (template, output) = (self.path("t.tmpl"), self.path("out"));
        let mut all = vec!["--template", &template, "--output", &output];
        all.extend(args);
        Bowline::start(&self.cluster, Path::new(PROGRAM), &kubeconfig, "agent", &all)
    }

    /// The same, ready.
    pub(crate) async fn agent(&self, args: &[&str]) -> Bowline {
        let mut agent = self.start(args).await;
        agent.ready().await;
        agent
    }

    /// A notifier that counts in the file `count`.
    pub(crate) fn counter(&self) -> String {
        format!("command:echo x >> {}", self.path("count"))
    }

    pub(crate) fn count(&self) -> usize {
        self.text("count").lines().count()
    }

    /// A Service of nobody's class, without a selector, with port 80 called `http` at this address; at all
    /// addresses port 81, since programs of other tests may listen on port 80 of theirs.
    pub(crate) async fn service(&self, name: &str, address: &str, annotations: Value) {
        let port = if address == "0.0.0.0" { 81 } else { 80 };
        let service = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": name, "annotations": annotations},
            "spec": {
                "type": "LoadBalancer", "loadBalancerClass": "example.com/others",
                "loadBalancerIP": address,
                "ports": [{"name": "http", "port": port, "targetPort": 8080, "protocol": "TCP"}],
            },
        });
        self.cluster.apply(&self.namespace, &service).await;
    }

    /// Its endpoints, which listen on 8080.
    pub(crate) async fn endpoints(&self, service: &str, endpoints: &[IpAddr]) {
        let endpoints: Vec<_> = endpoints.iter().copied().map(Endpoint::ready).collect();
        let slice = objects::slice(service, ("http", 8080, "TCP"), &endpoints);
        self.cluster.apply(&self.namespace, &slice).await;
    }

    /// Waits until the output is this.
    pub(crate) async fn becomes(&self, expected: &str) {
        eventually(&format!("the output is {expected:?}"), || async {
            let text = self.text("out");
            if text == expected { Ok(()) } else { Err(text) }
        })
        .await;
    }

    /// Waits until an Event about a Service has this reason; returns its message and who said it.
    pub(crate) async fn told(&self, name: &str, reason: &str) -> (String, String) {
        eventually(&format!("{name} is told {reason}"), || async {
            let (_, list) = self.cluster.get(&path("Event", &self.namespace, "")).await;
            let events = list["items"].as_array().cloned().unwrap_or_default();
            let mut events = events.iter().filter(|it| it["involvedObject"]["name"] == name);
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            match events.find(|it| it["reason"] == reason) {
                Some(event) => Ok((text(&event["message"]), text(&event["source"]["component"]))),
                None => Err("nothing of the kind".to_owned()),
            }
        })
        .await
    }
}

/// Waits until the log of an agent has this.
pub(crate) async fn says(agent: &Bowline, text: &str) {
    eventually(&format!("the log has {text:?}"), || async {
        let log = agent.process.log();
        if log.contains(text) { Ok(()) } else { Err(log) }
    })
    .await;
}
