//! What these tests stand on: a cluster for each, with a controller, and words for what it should show.

use bowline_testing::objects::{self, path};
use bowline_testing::{Bowline, Cluster, Stack, eventually, net};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const PROGRAM: &str = env!("CARGO_BIN_EXE_bowline");
pub(crate) const LB: &str = "LoadBalancer";
pub(crate) const CLAIM: &str = "LoadBalancerClaim";

/// A cluster with a controller.
pub(crate) struct Site {
    pub(crate) cluster: Cluster,
    pub(crate) namespace: String,
    pub(crate) controller: Bowline,
    args: Vec<&'static str>,
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

/// Starts a controller and does not wait for it.
pub(crate) async fn start(cluster: &Cluster, args: &[&str]) -> Bowline {
    start_elected(cluster, &[&["--leader-elect=false"], args].concat()).await
}

/// The same for one of several, of which one leads.
pub(crate) async fn start_elected(cluster: &Cluster, args: &[&str]) -> Bowline {
    let kubeconfig = cluster.kubeconfig_of("bowline-controller").await;
    Bowline::start(cluster, Path::new(PROGRAM), &kubeconfig, "controller", args)
}

impl Site {
    pub(crate) async fn new() -> Self {
        Self::with(&[]).await
    }

    /// The same with a controller that is given these arguments as well.
    pub(crate) async fn with(args: &[&'static str]) -> Self {
        let cluster = Cluster::own(Stack::Single).await;
        cluster.install(&deploy()).await;
        let controller = start(&cluster, args).await;
        Self::of(cluster, controller, args).await
    }

    /// The same with a controller that stands for election.
    pub(crate) async fn elected() -> Self {
        let cluster = Cluster::own(Stack::Single).await;
        cluster.install(&deploy()).await;
        let controller = start_elected(&cluster, &[]).await;
        Self::of(cluster, controller, &[]).await
    }

    async fn of(cluster: Cluster, mut controller: Bowline, args: &[&'static str]) -> Self {
        controller.ready().await;
        let namespace = cluster.namespace().await;
        Self { cluster, namespace, controller, args: args.to_vec() }
    }

    /// The controller is killed, wherever it is.
    pub(crate) fn kill(&mut self) {
        self.controller.process.end();
    }

    /// Another controller comes.
    pub(crate) async fn revive(&mut self) {
        self.controller = start(&self.cluster, &self.args).await;
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

    /// The agent of a load balancer that a class made, with the rights that were made for it, in a Pod with
    /// this address.
    pub(crate) async fn made_agent(&self, lb: &str, pod: &str) -> Bowline {
        let kubeconfig = self.cluster.kubeconfig_of(lb).await;
        let args = ["--load-balancer", lb, "--listen", pod];
        let program = Path::new(PROGRAM);
        let mut agent = Bowline::start(&self.cluster, program, &kubeconfig, "agent", &args);
        agent.ready().await;
        agent
    }

    pub(crate) async fn class(&self, name: &str, spec: Value) {
        let class = json!({
            "apiVersion": "bowline.dev/v1alpha1", "kind": "LoadBalancerClass",
            "metadata": {"name": name}, "spec": spec,
        });
        self.cluster.apply("", &class).await;
    }

    /// A load balancer with these fields beside a source.
    pub(crate) async fn lb(&self, name: &str, spec: Value) -> Value {
        let mut object = objects::load_balancer(name, &[]);
        object["spec"] = json!({"builtin": {}});
        merge(&mut object["spec"], spec);
        self.cluster.apply("", &object).await
    }

    pub(crate) async fn claim(&self, name: &str, spec: Value) -> Value {
        self.claim_in(&self.namespace, name, spec).await
    }

    pub(crate) async fn claim_in(&self, namespace: &str, name: &str, spec: Value) -> Value {
        let claim = json!({
            "apiVersion": "bowline.dev/v1alpha1", "kind": CLAIM,
            "metadata": {"name": name, "namespace": namespace}, "spec": spec,
        });
        self.cluster.apply(namespace, &claim).await
    }

    /// Waits until an object is as a question wants it; returns what is answered.
    pub(crate) async fn until<T>(
        &self,
        kind: &str,
        name: &str,
        what: &str,
        ask: impl Fn(&Value) -> Option<T>,
    ) -> T {
        let namespace = if kind == LB { "" } else { self.namespace.as_str() };
        eventually(&format!("{kind} {name} {what}"), || async {
            let (code, object) = self.cluster.get(&path(kind, namespace, name)).await;
            match ask(&object) {
                Some(answer) => Ok(answer),
                None => Err(format!("{code}: {object}")),
            }
        })
        .await
    }

    /// Waits until an object is gone.
    pub(crate) async fn gone(&self, kind: &str, name: &str) {
        let gone = |it: &Value| (it["kind"] == "Status" && it["code"] == 404).then_some(());
        self.until(kind, name, "is gone", gone).await;
    }

    /// Waits until a claim has this load balancer, and it the claim.
    pub(crate) async fn bound(&self, claim: &str, lb: &str) {
        let what = format!("is bound to {lb}");
        let uid = self
            .until(CLAIM, claim, &what, |it| {
                let bound = it["status"]["phase"] == "Bound"
                    && it["status"]["loadBalancerName"] == lb
                    && reason(it, "Bound") == Some("Bound");
                bound.then(|| it["metadata"]["uid"].clone())
            })
            .await;
        self.until(LB, lb, &format!("is bound to {claim}"), |it| {
            let claimed = it["spec"]["claimRef"]["uid"] == uid;
            (claimed && reason(it, "Bound") == Some("Bound")).then_some(())
        })
        .await;
    }

    /// Waits until a claim is in this phase for this reason; returns the message.
    pub(crate) async fn says(&self, claim: &str, phase: &str, why: &str) -> String {
        self.until(CLAIM, claim, &format!("is {phase}: {why}"), |it| {
            let so = it["status"]["phase"] == phase && reason(it, "Bound") == Some(why);
            so.then(|| message(it, "Bound"))
        })
        .await
    }

    /// Waits until a load balancer's binding is called so; returns the message.
    pub(crate) async fn stands(&self, lb: &str, why: &str) -> String {
        self.until(LB, lb, &format!("is {why}"), |it| {
            (reason(it, "Bound") == Some(why)).then(|| message(it, "Bound"))
        })
        .await
    }

    /// Waits until an Event about an object has this reason; returns its message.
    pub(crate) async fn told(&self, namespace: &str, name: &str, reason: &str) -> String {
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
}

impl Site {
    /// Waits until what is made is younger than this object. The age of objects is in seconds.
    pub(crate) async fn younger_than(&self, object: &Value) {
        let age = |it: &Value| it["metadata"]["creationTimestamp"].as_str().map(str::to_owned);
        let tick = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "tick"},
            "spec": {"ports": [{"port": 1}]},
        });
        eventually("another second", || async {
            let made = age(&self.cluster.apply(&self.namespace, &tick).await);
            self.cluster.delete("Service", &self.namespace, "tick").await;
            if made > age(object) { Ok(()) } else { Err(format!("{made:?}")) }
        })
        .await;
    }

    /// Waits until an Event about an object says this.
    pub(crate) async fn hears(&self, namespace: &str, name: &str, text: &str) {
        eventually(&format!("{name} is told {text:?}"), || async {
            let (_, list) = self.cluster.get(&path("Event", namespace, "")).await;
            let events = list["items"].as_array().cloned().unwrap_or_default();
            let events = events.iter().filter(|it| it["involvedObject"]["name"] == name);
            let said: Vec<_> = events.filter_map(|it| it["message"].as_str()).collect();
            match said.iter().any(|it| it.contains(text)) {
                true => Ok(()),
                false => Err(format!("{said:?}")),
            }
        })
        .await;
    }
}

fn merge(into: &mut Value, from: Value) {
    if let (Some(into), Value::Object(from)) = (into.as_object_mut(), from) {
        into.extend(from);
    }
}

fn condition<'a>(object: &'a Value, type_: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|it| it["type"] == type_)
}

pub(crate) fn reason<'a>(object: &'a Value, type_: &str) -> Option<&'a str> {
    condition(object, type_)?["reason"].as_str()
}

pub(crate) fn message(object: &Value, type_: &str) -> String {
    let message = condition(object, type_).and_then(|it| it["message"].as_str());
    message.unwrap_or_default().to_owned()
}

/// A request for this much bandwidth.
pub(crate) fn wants(bandwidth: &str) -> Value {
    json!({"resources": {"requests": {"network-bandwidth": bandwidth}}})
}

/// This much bandwidth.
pub(crate) fn has(bandwidth: &str) -> Value {
    json!({"capacity": {"network-bandwidth": bandwidth}})
}
