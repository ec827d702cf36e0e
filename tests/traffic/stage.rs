//! What a traffic test stands on: a cluster with a controller, and for itself a load balancer with an
//! agent, a namespace, and words for what it wants to see. Asserts nothing of its own accord.

use bowline_testing::objects::{self, Endpoint};
use bowline_testing::{Backend, Bowline, Cluster, Dial, Stack, eventually, net, unique};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use tokio::sync::OnceCell;

/// The program.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_bowline");

/// The port that every backend listens on.
pub(crate) const TARGET: u16 = 8080;

/// One test's part of the world.
pub(crate) struct Stage {
    pub(crate) cluster: Cluster,
    pub(crate) namespace: String,
    /// The load balancer, and the IngressClass that leads to it.
    pub(crate) lb: String,
    pub(crate) vip: IpAddr,
    pub(crate) vip6: IpAddr,
    pub(crate) agent: Bowline,
}

/// Runs a test on a stage of its own.
pub(crate) fn play(test: impl AsyncFnOnce(&mut Stage)) {
    play_with(&|_| Vec::new(), test);
}

/// The same with an agent that is given these arguments as well, by the name of its load balancer.
pub(crate) fn play_with(args: &dyn Fn(&str) -> Vec<String>, test: impl AsyncFnOnce(&mut Stage)) {
    if Cluster::is_out_of_reach() {
        return;
    }
    net::in_namespace(|| async {
        let cluster = Cluster::shared(Stack::Dual).await;
        with_controller(&cluster).await;
        let mut stage = Stage::with(cluster, &format!("lb-{}", unique()), args).await;
        test(&mut stage).await;
        stage.leave().await;
    });
}

/// Runs a test with a cluster for itself, without any controller: for who disturbs what others share.
pub(crate) fn play_alone(test: impl AsyncFnOnce(Cluster)) {
    if Cluster::is_out_of_reach() {
        return;
    }
    net::in_namespace(|| async {
        let cluster = Cluster::own(Stack::Dual).await;
        cluster.install(&deploy()).await;
        test(cluster).await;
    });
}

/// The controller that the tests of this binary share; it ends with the binary.
async fn with_controller(cluster: &Cluster) {
    static CONTROLLER: OnceCell<std::sync::Mutex<Bowline>> = OnceCell::const_new();
    CONTROLLER
        .get_or_init(|| async {
            cluster.install(&deploy()).await;
            let mut controller = start_controller(cluster, &[]).await;
            controller.ready().await;
            std::sync::Mutex::new(controller)
        })
        .await;
}

/// Starts a controller and does not wait for it.
pub(crate) async fn start_controller(cluster: &Cluster, args: &[&str]) -> Bowline {
    let kubeconfig = cluster.kubeconfig_of("bowline-controller").await;
    Bowline::start(cluster, Path::new(PROGRAM), &kubeconfig, "controller", args)
}

/// Starts the agent of a load balancer and does not wait for it.
pub(crate) fn start_agent(cluster: &Cluster, kubeconfig: &Path, lb: &str) -> Bowline {
    start_agent_with(cluster, kubeconfig, lb, &[])
}

/// The same with these arguments as well.
pub(crate) fn start_agent_with(
    cluster: &Cluster,
    kubeconfig: &Path,
    lb: &str,
    args: &[&str],
) -> Bowline {
    let args = [&["--load-balancer", lb], args].concat();
    Bowline::start(cluster, Path::new(PROGRAM), kubeconfig, "agent", &args)
}

pub(crate) fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy")
}

impl Stage {
    /// A stage on a cluster that has, or will have, a controller.
    pub(crate) async fn on(cluster: Cluster) -> Self {
        Self::named(cluster, &format!("lb-{}", unique())).await
    }

    /// The same, with a load balancer of this name.
    pub(crate) async fn named(cluster: Cluster, lb: &str) -> Self {
        Self::with(cluster, lb, &|_| Vec::new()).await
    }

    async fn with(cluster: Cluster, lb: &str, args: &dyn Fn(&str) -> Vec<String>) -> Self {
        let (vip, vip6) = (net::vip4(), net::vip6());
        let namespace = cluster.namespace().await;
        let lb = lb.to_owned();
        cluster.owns("loadbalancer", &lb);
        let args = args(&lb);
        let mut object = objects::load_balancer(&lb, &[vip, vip6]);
        let driver = args.iter().position(|arg| arg == "--driver").and_then(|at| args.get(at + 1));
        let proxy = match driver.map(String::as_str) {
            Some("haproxy") => Some("Haproxy"),
            Some("nginx") => Some("Nginx"),
            _ => None,
        };
        if let (Some(type_), Some(spec)) = (proxy, object["spec"].as_object_mut()) {
            spec.remove("builtin");
            let source = json!({"type": type_, "serviceName": "edge"});
            spec.insert("bareMetalLoadBalancer".to_owned(), source);
        }
        cluster.apply("", &object).await;
        cluster.owns("ingressclass", &lb);
        cluster.apply("", &objects::ingress_class(&lb, &lb)).await;
        let kubeconfig = agent_kubeconfig(&cluster, &lb).await;
        let args: Vec<_> = args.iter().map(String::as_str).collect();
        let mut agent = start_agent_with(&cluster, &kubeconfig, &lb, &args);
        agent.ready().await;
        Self { cluster, namespace, lb, vip, vip6, agent }
    }

    /// Takes the stage down: what is left would be work for the controller.
    async fn leave(&mut self) {
        self.agent.process.assert_alive();
        let log = self.agent.process.log();
        assert!(!log.contains("panicked"), "{log}");
        self.agent.process.end();
        self.cluster.delete("LoadBalancer", "", &self.lb).await;
    }

    /// A client of the load balancer.
    pub(crate) fn dial(&self, port: u16) -> Dial {
        Dial::to(self.vip, port)
    }

    /// The same over IPv6.
    pub(crate) fn dial6(&self, port: u16) -> Dial {
        Dial::to(self.vip6, port)
    }

    /// Creates or changes an object in the test's namespace.
    pub(crate) async fn apply(&self, object: Value) -> Value {
        self.cluster.apply(&self.namespace, &object).await
    }

    /// Merges this into an object of the test's namespace.
    pub(crate) async fn patch(&self, kind: &str, name: &str, patch: Value) -> Value {
        self.cluster.patch(kind, &self.namespace, name, &patch).await
    }

    pub(crate) async fn read(&self, kind: &str, name: &str) -> Value {
        self.cluster.read(kind, &self.namespace, name).await
    }

    pub(crate) async fn delete(&self, kind: &str, name: &str) {
        self.cluster.delete(kind, &self.namespace, name).await;
    }

    /// Says where the only, unnamed TCP port of a Service is served.
    pub(crate) async fn endpoints(&self, service: &str, endpoints: &[Endpoint]) {
        self.apply(objects::slice(service, ("", TARGET, "TCP"), endpoints)).await;
    }

    /// The same, all of them ready.
    pub(crate) async fn served_by(&self, service: &str, backends: &[&Backend]) {
        let ready: Vec<_> = backends.iter().map(|it| Endpoint::ready(it.at.ip())).collect();
        self.endpoints(service, &ready).await;
    }

    /// A Service on one port of the load balancer, with its endpoints.
    pub(crate) async fn service(&self, name: &str, port: u16, backends: &[&Backend]) {
        self.apply(objects::service(name, &self.lb, &[(port, TARGET)])).await;
        self.served_by(name, backends).await;
    }

    /// A Service for an Ingress, with its endpoints.
    pub(crate) async fn behind(&self, name: &str, backends: &[&Backend]) {
        self.apply(objects::cluster_service(name, 80, TARGET)).await;
        self.served_by(name, backends).await;
    }

    /// An Ingress on the load balancer; rules are (host, path, path type, Service).
    pub(crate) async fn ingress(&self, name: &str, rules: &[(&str, &str, &str, &str)]) {
        self.apply(objects::ingress(name, &self.lb, rules)).await;
    }

    /// Waits until the API tells a reason about an object of the test's namespace, in an Event.
    pub(crate) async fn told(&self, kind: &str, name: &str, reason: &str) -> String {
        self.told_in(&self.namespace, kind, name, reason).await
    }

    /// The same in another namespace.
    pub(crate) async fn told_in(
        &self,
        namespace: &str,
        kind: &str,
        name: &str,
        reason: &str,
    ) -> String {
        eventually(&format!("{kind} {name} is told {reason}"), || async {
            let (_, list) = self.cluster.get(&objects::path("Event", namespace, "")).await;
            let events = list["items"].as_array().cloned().unwrap_or_default();
            let about = |event: &&Value| {
                let object = &event["involvedObject"];
                object["kind"] == kind && object["name"] == name
            };
            let found: Vec<_> = events.iter().filter(about).collect();
            let told = found.iter().find(|event| event["reason"] == reason);
            let said = || found.iter().map(|it| format!("{}: {}", it["reason"], it["message"]));
            told.map(|event| event["message"].as_str().unwrap_or_default().to_owned())
                .ok_or_else(|| said().collect::<Vec<_>>().join("; "))
        })
        .await
    }

    /// Waits until the status of an object lists these addresses.
    pub(crate) async fn has_addresses(
        &self,
        kind: &str,
        name: &str,
        addresses: &[IpAddr],
    ) -> Value {
        let want: BTreeSet<_> = addresses.iter().map(ToString::to_string).collect();
        eventually(&format!("the addresses of {kind} {name}"), || async {
            let object = self.read(kind, name).await;
            let ingress = object["status"]["loadBalancer"]["ingress"].clone();
            let found: BTreeSet<_> = ingress
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|it| it["ip"].as_str().map(str::to_owned))
                .collect();
            if found == want { Ok(ingress) } else { Err(format!("{object}")) }
        })
        .await
    }
}

/// A kubeconfig with the rights of the agent of one load balancer.
pub(crate) async fn agent_kubeconfig(cluster: &Cluster, lb: &str) -> PathBuf {
    cluster.agent_kubeconfig(&deploy(), lb).await
}

/// An HTTP backend on a fresh Pod address.
pub(crate) async fn http(name: &str) -> Backend {
    Backend::http(name, net::pod4(), TARGET).await
}

/// A TCP backend on a fresh Pod address.
pub(crate) async fn tcp(name: &str) -> Backend {
    Backend::tcp(name, net::pod4(), TARGET).await
}

/// Waits until a new TCP connection leads to the backend of this name.
pub(crate) async fn leads_to(dial: &Dial, name: &str) {
    eventually(&format!("a connection to {name}"), || async {
        let line = dial.line().await?;
        if line.name == name { Ok(()) } else { Err(format!("it leads to {}", line.name)) }
    })
    .await;
}

/// Waits until new TCP connections lead to these backends and to no others.
pub(crate) async fn lead_to(dial: &Dial, names: &[&str]) {
    let want: BTreeSet<_> = names.iter().map(|&name| name.to_owned()).collect();
    eventually(&format!("connections to {names:?}"), || async {
        let mut found = BTreeSet::new();
        for _ in 0..3 * names.len().max(1) {
            found.insert(dial.line().await?.name);
        }
        if found == want { Ok(()) } else { Err(format!("they lead to {found:?}")) }
    })
    .await;
}

/// Waits until new TCP connections are refused, or end without a word.
pub(crate) async fn is_closed(dial: &Dial) {
    eventually("no connection", || async {
        match dial.line().await {
            Ok(line) => Err(format!("it leads to {}", line.name)),
            Err(_) => Ok(()),
        }
    })
    .await;
}

/// Waits until requests for a host and path lead to the backend of this name.
pub(crate) async fn serves(dial: &Dial, host: &str, path: &str, name: &str) {
    eventually(&format!("{host}{path} is served by {name}"), || async {
        let echo = dial.get(host, path).await?.echo()?;
        if echo.name == name { Ok(()) } else { Err(format!("it is served by {}", echo.name)) }
    })
    .await;
}

/// Waits until requests for a host and path are answered with this status.
pub(crate) async fn answers(dial: &Dial, host: &str, path: &str, status: u16) {
    eventually(&format!("{host}{path} is answered with {status}"), || async {
        let answer = dial.get(host, path).await?;
        if answer.status == status {
            Ok(())
        } else {
            Err(format!("{}: {}", answer.status, answer.text()))
        }
    })
    .await;
}

/// The names that this many requests are answered by, in order.
pub(crate) async fn names(dial: &Dial, host: &str, count: usize) -> Vec<String> {
    let mut names = Vec::new();
    for _ in 0..count {
        let answer = dial.get(host, "/").await.and_then(|it| it.echo());
        names.push(answer.map_or_else(|why| why, |echo| echo.name));
    }
    names
}

/// An annotation on the metadata of an object.
pub(crate) fn annotate(object: &mut Value, key: &str, value: &str) {
    object["metadata"]["annotations"][key] = json!(value);
}
