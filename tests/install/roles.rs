//! The chart on a cluster: what it renders is applied by kubectl, or installed by Helm, and each role runs as
//! its Deployment says, under its ServiceAccount. On a real API server that is all the rights it has.

use crate::confined::Rights;
use crate::tools::{program, repository, run_in, text};
use crate::vms;
use bowline_testing::objects::{self, Endpoint};
use bowline_testing::{
    Backend, Bowline, Cluster, Dial, Flavour, SYSTEM, Stack, eventually, net, until,
};
use serde_json::{Value, json};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

const TARGET: u16 = 8080;

/// Runs a test on a cluster of its own: what is installed has fixed names.
fn play(test: impl AsyncFnOnce(Cluster, &Path)) {
    if Cluster::is_out_of_reach() {
        return;
    }
    let scratch = tempfile::tempdir().expect("a folder");
    net::in_namespace(|| async { test(Cluster::own(Stack::Dual).await, scratch.path()).await });
}

/// Values for a load balancer at an address of the test's network.
fn values(cluster: &Cluster, scratch: &Path, vip: IpAddr) -> PathBuf {
    // The embedded API has neither kind, and says so; see the test below.
    let all = cluster.flavour() == Flavour::Real;
    let values = json!({
        "controller": {"podDisruptionBudget": all, "networkPolicy": {"enabled": all}},
        "loadBalancers": [{"name": "edge", "spec": {
            "builtin": {}, "addresses": [vip], "allowedNamespaces": {"from": "All"},
        }}],
    });
    let file = scratch.join("values.json");
    std::fs::write(&file, values.to_string()).expect("write");
    file
}

fn helm(cluster: &Cluster, args: &[&str]) -> Result<String, String> {
    let kubeconfig = cluster.kubeconfig().display().to_string();
    let ends = ["--namespace", SYSTEM, "--kubeconfig", &kubeconfig];
    run_in(&repository(""), "helm", &[args, &ends[..]].concat())
}

async fn read(cluster: &Cluster, deployment: &str) -> Value {
    let path = format!("/apis/apps/v1/namespaces/{SYSTEM}/deployments/{deployment}");
    let (status, found) = cluster.get(&path).await;
    assert_eq!(status, 200, "{found}");
    found
}

/// Runs what a Deployment runs: its arguments, with the rights of its ServiceAccount.
async fn start(cluster: &Cluster, deployment: &str) -> Bowline {
    let found = read(cluster, deployment).await;
    let pod = &found["spec"]["template"]["spec"];
    let account = pod["serviceAccountName"].as_str().expect("an account");
    let args: Vec<_> = pod["containers"][0]["args"].as_array().expect("arguments").iter().collect();
    let args: Vec<_> = args.iter().map(|arg| arg.as_str().expect("a text")).collect();
    let (role, args) = args.split_first().expect("a role");
    // Tests run beside each other, each with a port of its own.
    let args: Vec<_> = args.iter().copied().filter(|arg| !arg.starts_with("--admin")).collect();
    let kubeconfig = cluster.kubeconfig_of(account).await;
    Bowline::start(cluster, Path::new(env!("CARGO_BIN_EXE_bowline")), &kubeconfig, role, &args)
}

/// Makes a Service on "edge", and waits until it has its address and is served there.
async fn is_served(cluster: &Cluster, namespace: &str, vip: IpAddr, backend: &Backend) {
    cluster.apply(namespace, &objects::service("web", "edge", &[(80, TARGET)])).await;
    let endpoints = [Endpoint::ready(backend.at.ip())];
    cluster.apply(namespace, &objects::slice("web", ("", TARGET, "TCP"), &endpoints)).await;
    eventually("the Service has its address", || async {
        let service = cluster.read("Service", namespace, "web").await;
        let ingress = &service["status"]["loadBalancer"]["ingress"];
        if ingress[0]["ip"] == json!(vip) { Ok(()) } else { Err(service.to_string()) }
    })
    .await;
    let answer = Dial::to(vip, 80).get("web.example", "/").await.and_then(|it| it.echo());
    assert_eq!(answer.map(|it| it.name).as_deref(), Ok("a"));
}

/// Starts both roles, and waits until a Service has an address at which it is served.
async fn serves(cluster: &Cluster, vip: IpAddr) {
    let mut controllers =
        [start(cluster, "bowline-controller").await, start(cluster, "bowline-controller").await];
    let mut agent = start(cluster, "bowline-agent-edge").await;
    for role in controllers.iter_mut().chain([&mut agent]) {
        role.ready().await;
    }
    let namespace = cluster.namespace().await;
    let backend = Backend::http("a", net::pod4(), TARGET).await;
    is_served(cluster, &namespace, vip, &backend).await;
    // What a role may not do it says in its log.
    for role in controllers.iter().chain([&agent]) {
        let log = role.process.log();
        assert!(!log.to_lowercase().contains("forbidden"), "{log}");
    }
    for role in controllers.iter_mut().chain([&mut agent]) {
        assert_eq!(role.stop(), Some(0));
    }
    cluster.delete("Service", &namespace, "web").await;
}

/// Whether an account of ours may do something.
fn may(cluster: &Cluster, account: &str, what: &[&str]) -> bool {
    let account = format!("--as=system:serviceaccount:{SYSTEM}:{account}");
    let said = cluster.kubectl(&[&["auth", "can-i", &account], what].concat(), "");
    said.stdout.trim() == "yes"
}

#[test]
fn what_the_chart_renders_is_applied_and_each_role_does_its_work_with_its_own_rights() {
    play(async |cluster, scratch| {
        let vip = net::vip4();
        let values = values(&cluster, scratch, vip).display().to_string();
        let args = [
            "template",
            "bowline",
            "deploy/chart",
            "--values",
            &values,
            "--set",
            "namespace.create=true",
        ];
        let rendered = helm(&cluster, &args).unwrap_or_else(|why| panic!("{why}"));
        let crds = repository("deploy/crds").display().to_string();
        cluster.kubectl(&["apply", "-f", &crds], "").ok();
        cluster
            .kubectl(&["wait", "--for=condition=Established", "--timeout=60s", "-f", &crds], "")
            .ok();
        // Kinds are known a moment after they are established.
        until("the manifests are applied", || {
            cluster.kubectl(&["apply", "-f", "-"], &rendered).success()
        });
        serves(&cluster, vip).await;
        if cluster.flavour() == Flavour::Real {
            let of_edge = ["get", "secret/bowline-tls-edge-0", "-n", SYSTEM];
            let elsewhere = ["get", "secrets", "-n", "default"];
            let ours = ["get", "secrets", "-n", SYSTEM];
            let agent = |what| may(&cluster, "bowline-agent-edge", what);
            assert_eq!(
                [&of_edge, &elsewhere, &ours].map(|what| agent(&what[..])),
                [true, false, false]
            );
            let own = ["get", "loadbalancer.bowline.dev/edge"];
            let other = ["get", "loadbalancer.bowline.dev/other"];
            let all = ["list", "loadbalancers.bowline.dev"];
            assert_eq!([&own[..], &other, &all].map(agent), [true, false, false]);
            let write = ["create", "secrets", "-n", "default"];
            assert!(!may(&cluster, "bowline-controller", &write));
        }
    });
}

/// A load balancer "edge" with an agent outside.
struct Outside {
    vip: IpAddr,
    namespace: String,
    backend: Backend,
    _controller: Bowline,
    agent: Bowline,
}

/// Where an agent is, and as whom.
struct Agent<'a> {
    program: PathBuf,
    folder: &'a Path,
    rights: Option<Rights>,
}

impl<'a> Agent<'a> {
    fn anyhow(folder: &'a Path) -> Self {
        Self { program: env!("CARGO_BIN_EXE_bowline").into(), folder, rights: None }
    }

    fn with(rights: Rights, folder: &'a Path) -> Self {
        let program = Path::new(env!("CARGO_BIN_EXE_bowline"));
        let program = rights.confine(folder, "bowline", program);
        Self { program, folder, rights: Some(rights) }
    }

    /// Its kubeconfig is its own.
    fn kubeconfig(&self, given: &Path) -> PathBuf {
        let own = self.folder.join("kubeconfig");
        std::fs::copy(given, &own).expect("copied");
        if let Some(rights) = &self.rights {
            rights.give(&own);
        }
        own
    }
}

/// A load balancer "edge" with this source, its controller, and an agent with these arguments; then a Service.
async fn outside(
    cluster: &Cluster,
    source: (&str, Value),
    args: &[String],
    how: Agent<'_>,
) -> Outside {
    let deploy = repository("deploy");
    cluster.install(&deploy).await;
    let vip = net::vip4();
    let mut balancer = objects::load_balancer("edge", &[vip]);
    balancer["spec"].as_object_mut().expect("a spec").remove("builtin");
    balancer["spec"][source.0] = source.1;
    cluster.apply("", &balancer).await;
    let program = Path::new(env!("CARGO_BIN_EXE_bowline"));
    let kubeconfig = cluster.kubeconfig_of("bowline-controller").await;
    let mut controller = Bowline::start(cluster, program, &kubeconfig, "controller", &[]);
    let kubeconfig = how.kubeconfig(&cluster.agent_kubeconfig(&deploy, "edge").await);
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    let mut agent = Bowline::start(cluster, &how.program, &kubeconfig, "agent", &args);
    controller.ready().await;
    agent.ready().await;
    let backend = Backend::http("a", net::pod4(), TARGET).await;
    let namespace = cluster.namespace().await;
    is_served(cluster, &namespace, vip, &backend).await;
    if let Some(rights) = &how.rights {
        rights.are_of(agent.process.id());
    }
    Outside { vip, namespace, backend, _controller: controller, agent }
}

impl Outside {
    /// Another Service, on another port below 1024, for which HAProxy is loaded anew.
    async fn serves_more(&self, cluster: &Cluster) {
        let reloads = "bowline_haproxy_reloads_total";
        let before = self.agent.metric(reloads).await;
        cluster.apply(&self.namespace, &objects::service("more", "edge", &[(81, TARGET)])).await;
        let endpoints = [Endpoint::ready(self.backend.at.ip())];
        let slice = objects::slice("more", ("", TARGET, "TCP"), &endpoints);
        cluster.apply(&self.namespace, &slice).await;
        eventually("the other port is served", || async {
            Dial::to(self.vip, 81).get("web.example", "/").await?.echo().map(drop)
        })
        .await;
        eventually("a reload is counted", || async {
            let now = self.agent.metric(reloads).await;
            if now > before { Ok(()) } else { Err(now.to_string()) }
        })
        .await;
    }
}

/// A program that is asked to end with the test.
struct Running(std::process::Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = run_in(Path::new("/"), "kill", &["-TERM", &self.0.id().to_string()]);
        let _ = self.0.wait();
    }
}

/// The source of a load balancer that HAProxy carries.
fn haproxy() -> (&'static str, Value) {
    ("bareMetalLoadBalancer", json!({"type": "Haproxy", "serviceName": "edge"}))
}

#[test]
fn the_unit_of_a_machine_outside_serves_with_the_rights_of_its_account() {
    play(async |cluster, scratch| {
        let args = vms::arguments(vms::UNIT);
        outside(&cluster, ("builtin", json!({})), &args, Agent::anyhow(scratch)).await;
    });
}

#[test]
fn with_haproxy_the_unit_of_a_machine_outside_serves_with_one_capability() {
    play(async |cluster, scratch| {
        let rights = Rights::of_unit(vms::UNIT, vms::HAPROXY);
        let folder = scratch.join("run");
        std::fs::create_dir(&folder).expect("a folder");
        [scratch, &folder].iter().for_each(|folder| rights.give(folder));
        let path = folder.display().to_string();
        let args = vms::arguments(vms::HAPROXY).into_iter();
        let args: Vec<_> = args.map(|arg| arg.replace("/run/bowline-edge", &path)).collect();
        let agent = Agent::with(rights, scratch);
        let mut outside = outside(&cluster, haproxy(), &args, agent).await;
        outside.serves_more(&cluster).await;
        for pid in children(outside.agent.process.id()) {
            rights.are_of(pid);
        }
        // It ends what it has started.
        assert_eq!(outside.agent.stop(), Some(0));
    });
}

/// The processes that a process started, of which there must be some.
fn children(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("a process");
    let tasks = tasks.map(|task| task.expect("a task").path().join("children"));
    let texts = tasks.map(|file| std::fs::read_to_string(file).expect("a list"));
    let texts: Vec<_> = texts.collect();
    let pids = texts.iter().flat_map(|text| text.split_whitespace());
    let pids: Vec<u32> = pids.map(|pid| pid.parse().expect("a pid")).collect();
    assert!(!pids.is_empty());
    pids
}

#[test]
fn haproxy_serves_with_the_agent_as_its_sidecar_and_one_capability_each() {
    play(async |cluster, scratch| {
        let pod: Value =
            serde_saphyr::from_str(&text("examples/sidecar/haproxy.yaml")).expect("YAML");
        let pod = &pod["spec"]["template"]["spec"];
        let folder = scratch.join("run").display().to_string();
        let texts = |list: &Value| -> Vec<String> {
            let list = list.as_array().expect("a list").iter();
            list.map(|it| it.as_str().expect("a text").replace("/run/bowline", &folder)).collect()
        };
        let [sidecar, container] = [&pod["initContainers"][0], &pod["containers"][0]];
        let args = texts(&sidecar["args"]).into_iter().skip(1);
        let args: Vec<_> = args.filter(|arg| !arg.starts_with("--admin")).collect();
        let args =
            [args, vec![format!("--haproxy-program={}", program("haproxy").display())]].concat();
        let command = texts(&container["command"]);
        let path = format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default());
        let rights = Rights::of_container(container);
        let shell = rights.confine(scratch, "shell", Path::new(&command[0]));
        let mut process = std::process::Command::new(shell);
        let process = process.args(&command[1..]).env("PATH", path).spawn();
        let running = Running(process.expect("start HAProxy"));
        let agent = Agent::with(Rights::of_container(sidecar), scratch);
        let outside = outside(&cluster, haproxy(), &args, agent).await;
        outside.serves_more(&cluster).await;
        rights.are_of(running.0.id());
        children(running.0.id()).into_iter().for_each(|pid| rights.are_of(pid));
    });
}

#[test]
fn helm_installs_upgrades_and_removes_it() {
    play(async |cluster, scratch| {
        let vip = net::vip4();
        let values = values(&cluster, scratch, vip).display().to_string();
        let install = ["upgrade", "--install", "bowline", "deploy/chart", "--values", &values];
        // The embedded API has the kinds, and applies on the client's side only.
        let also: &[&str] = match cluster.flavour() {
            Flavour::Real => &["--create-namespace"],
            Flavour::Embedded => &["--create-namespace", "--skip-crds", "--server-side=false"],
        };
        let install = [&install[..], also].concat();
        let said = helm(&cluster, &install).unwrap_or_else(|why| panic!("{why}"));
        assert!(said.contains("kubectl label node NODE lb.bowline.dev/edge="), "{said}");
        serves(&cluster, vip).await;
        let upgrade = [&install[..], &["--set", "controller.replicas=3"]].concat();
        helm(&cluster, &upgrade).unwrap_or_else(|why| panic!("{why}"));
        let controller = read(&cluster, "bowline-controller").await;
        assert_eq!(controller["spec"]["replicas"], 3);
        helm(&cluster, &["uninstall", "bowline"]).unwrap_or_else(|why| panic!("{why}"));
        let left = cluster
            .kubectl(&["get", "deployments,roles,serviceaccounts", "-n", SYSTEM, "-o", "name"], "");
        assert_eq!(
            left.ok().lines().filter(|line| line.contains("bowline")).collect::<Vec<_>>(),
            [""; 0]
        );
        // The kinds stay, and with them whatever people have made of them.
        cluster.kubectl(&["get", "crd", "loadbalancers.bowline.dev"], "").ok();
    });
}

#[test]
fn what_the_embedded_api_does_not_enforce_it_refuses() {
    play(async |cluster, _| {
        if cluster.leaves_out(Flavour::Real, "these kinds exist and are enforced") {
            return;
        }
        for (file, kind) in [
            ("deploy/network-policy.yaml", "NetworkPolicy"),
            ("deploy/pod-disruption-budget.yaml", "PodDisruptionBudget"),
        ] {
            let file = repository(file).display().to_string();
            let said = cluster.kubectl(&["apply", "--validate=false", "-f", &file], "").fails();
            assert!(said.contains(kind), "{said}");
        }
    });
}
