//! What these tests stand on: a cluster with a controller, a speaker, and a router that it tells.

use crate::router::Bird;
use bowline_testing::objects::{self, Endpoint, path};
use bowline_testing::{Bowline, Call, Cluster, Flavour, Link, Machine, Scratch, Stack, net};
use serde_json::{Value, json};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_bowline");

/// A cluster, the speaker of node `a`, and a router; or only some of them.
pub(crate) struct Site {
    pub(crate) cluster: Cluster,
    pub(crate) namespace: String,
    controller: Option<Bowline>,
    /// The way of the controller to the API.
    api: Option<Link>,
    router: Option<Bird>,
    scratch: Scratch,
}

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

/// An object of a kind of Bowline's that is in no namespace.
pub(crate) fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "bowline.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec,
    })
}

impl Site {
    /// A cluster without a controller.
    pub(crate) async fn bare() -> Self {
        let cluster = Cluster::own(Stack::Dual).await;
        cluster.install(&deploy()).await;
        let namespace = cluster.namespace().await;
        let scratch = Scratch::new();
        Self { cluster, namespace, controller: None, api: None, router: None, scratch }
    }

    /// Everything but the speaker. The BGPPeer `tor` is the router.
    pub(crate) async fn new() -> Self {
        let mut site = Self::bare().await;
        site.start_controller(&["--default-class"]).await;
        let (tor, node) = (net::vip4(), net::vip4());
        site.router = Some(Bird::start(&site.scratch, tor, node));
        let peer = json!({
            "peerAddress": tor, "peerASN": 64513, "myASN": 64512, "sourceAddress": node,
            "ebgpMultiHop": true, "connectTime": "1s",
        });
        site.cluster.apply("", &object("BGPPeer", "tor", peer)).await;
        site
    }

    pub(crate) fn router(&self) -> &Bird {
        self.router.as_ref().expect("a router")
    }

    /// Ends the controller, if there is one, and starts one.
    pub(crate) async fn start_controller(&mut self, args: &[&str]) {
        drop(self.controller.take());
        if args.contains(&"--import-metallb") && self.cluster.flavour() != Flavour::Embedded {
            let file = deploy().join("rbac/import-metallb.yaml").display().to_string();
            self.cluster.kubectl(&["apply", "-f", &file], "").ok();
        }
        let kubeconfig = self.cluster.kubeconfig_of("bowline-controller").await;
        let mut args = args.to_vec();
        args.push("--leader-elect=false");
        let program = Path::new(PROGRAM);
        let api = Link::new(&self.cluster, &kubeconfig).await;
        let mut controller =
            Bowline::start(&self.cluster, program, &api.kubeconfig, "controller", &args);
        controller.ready().await;
        self.controller = Some(controller);
        self.api = Some(api);
    }

    /// The way of the controller to the API.
    pub(crate) fn api(&self) -> &Link {
        self.api.as_ref().expect("a controller")
    }

    /// A node that is ready, with the label of its name.
    pub(crate) async fn node(&self, name: &str) {
        let labels = json!({"kubernetes.io/hostname": name});
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}});
        self.cluster.apply("", &node).await;
        let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        let call = Call::new("PATCH", path("Node", "", name) + "/status")
            .body("application/merge-patch+json", ready.to_string());
        self.cluster.http(call).await.expect(200);
    }

    /// No new Pods may be placed on a node, or they may.
    pub(crate) async fn cordon(&self, name: &str, cordoned: bool) {
        let spec = json!({"spec": {"unschedulable": cordoned}}).to_string();
        let call = Call::new("PATCH", path("Node", "", name));
        self.cluster.http(call.body("application/merge-patch+json", spec)).await.expect(200);
    }

    /// Waits until the leader records that these nodes announce an address by BGP.
    pub(crate) async fn recorded(&self, address: &str, nodes: &[&str]) {
        self.shows("Address", "", address, "the leader records the nodes", |it| {
            it["status"]["announcedBy"]["firstBGPNodes"] == json!(nodes)
        })
        .await;
    }

    /// The speaker of a node that is a machine of its own. It is not waited for: its endpoint is on that machine.
    pub(crate) fn speaker_on(&self, machine: &Machine, node: &str, kubeconfig: &Path) -> Bowline {
        let sockets = self.scratch.path().join(node);
        std::fs::create_dir_all(&sockets).expect("make a folder");
        let sockets = sockets.display().to_string();
        let args = ["--node-name", node, "--grace", "0", "--sockets", &sockets];
        machine
            .on(|| Bowline::start(&self.cluster, Path::new(PROGRAM), kubeconfig, "speaker", &args))
    }

    /// The speaker of a node.
    pub(crate) async fn speaker(&self, args: &[&str]) -> Bowline {
        let kubeconfig = self.cluster.speaker_kubeconfig(&deploy()).await;
        let sockets = self.scratch.path().display().to_string();
        let mut all = vec!["--node-name", "a", "--grace", "0", "--sockets", &sockets];
        all.extend(args);
        let program = Path::new(PROGRAM);
        let mut speaker = Bowline::start(&self.cluster, program, &kubeconfig, "speaker", &all);
        speaker.ready().await;
        speaker
    }

    /// A pool of one fresh address.
    pub(crate) async fn pool(&self, name: &str) -> IpAddr {
        let address = net::vip4();
        let spec = json!({"addresses": [format!("{address}/32")]});
        self.cluster.apply("", &object("AddressPool", name, spec)).await;
        address
    }

    pub(crate) async fn advertise(&self, name: &str, spec: Value) {
        self.cluster.apply("", &object("Advertisement", name, spec)).await;
    }

    /// A Service that has an address of this pool alone.
    pub(crate) async fn service(&self, name: &str, pool: &str) {
        let mut service = objects::service(name, "", &[(80, 8080)]);
        service["metadata"]["annotations"] = json!({"bowline.dev/address-pool": pool});
        self.cluster.apply(&self.namespace, &service).await;
    }

    /// Its endpoint, ready or not.
    pub(crate) async fn endpoint(&self, service: &str, ready: bool) {
        let mut endpoint = Endpoint::ready(net::pod4());
        endpoint.ready = ready;
        let slice = objects::slice(service, ("", 8080, "TCP"), &[endpoint]);
        self.cluster.apply(&self.namespace, &slice).await;
    }

    /// The BGPPeer has BFD from now on.
    pub(crate) async fn bfd(&self) {
        let patch = json!({"spec": {"bfd": {"minimumTTL": 1}}});
        self.cluster
            .kubectl(&["patch", "bgppeer", "tor", "--type=merge", "-p", &patch.to_string()], "")
            .ok();
    }

    /// Waits until an object is as it should be.
    pub(crate) async fn shows(
        &self,
        kind: &str,
        namespace: &str,
        name: &str,
        what: &str,
        is: impl Fn(&Value) -> bool,
    ) {
        bowline_testing::eventually(what, || async {
            let (_, object) = self.cluster.get(&objects::path(kind, namespace, name)).await;
            if is(&object) { Ok(()) } else { Err(format!("{:#}", object["status"])) }
        })
        .await;
    }

    /// What a command prints, on one line of single spaces where it is wrapped.
    pub(crate) fn bowline(&self, args: &[&str]) -> String {
        let output = std::process::Command::new(PROGRAM)
            .args(args)
            .env("KUBECONFIG", self.cluster.kubeconfig())
            .output()
            .expect("bowline runs");
        let error = String::from_utf8_lossy(&output.stderr);
        let text = String::from_utf8_lossy(&output.stdout);
        text.replace("\n               ", " ") + &error
    }
}
