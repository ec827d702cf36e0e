//! The chart on a cluster: what it renders is applied by kubectl, or installed by Helm, and each role runs as
//! its Deployment says, under its ServiceAccount. On a real API server that is all the rights it has.

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
            let write = ["create", "secrets", "-n", "default"];
            assert!(!may(&cluster, "bowline-controller", &write));
        }
    });
}

/// A load balancer "edge" with this source, its controller, and an agent with these arguments; then a Service.
async fn outside(cluster: &Cluster, source: (&str, Value), args: &[String]) -> Bowline {
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
    let kubeconfig = cluster.agent_kubeconfig(&deploy, "edge").await;
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    let mut agent = Bowline::start(cluster, program, &kubeconfig, "agent", &args);
    controller.ready().await;
    agent.ready().await;
    let backend = Backend::http("a", net::pod4(), TARGET).await;
    is_served(cluster, &cluster.namespace().await, vip, &backend).await;
    agent
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
    play(async |cluster, _| {
        outside(&cluster, ("builtin", json!({})), &vms::arguments(vms::UNIT)).await;
    });
}

#[test]
fn with_haproxy_the_unit_of_a_machine_outside_serves_too() {
    play(async |cluster, scratch| {
        let folder = scratch.join("run").display().to_string();
        let args = vms::arguments(vms::HAPROXY).into_iter();
        let args: Vec<_> = args.map(|arg| arg.replace("/run/bowline-edge", &folder)).collect();
        let mut agent = outside(&cluster, haproxy(), &args).await;
        // It ends what it has started.
        assert_eq!(agent.stop(), Some(0));
    });
}

#[test]
fn haproxy_serves_with_the_agent_as_its_sidecar() {
    play(async |cluster, scratch| {
        let pod: Value =
            serde_saphyr::from_str(&text("examples/sidecar/haproxy.yaml")).expect("YAML");
        let pod = &pod["spec"]["template"]["spec"];
        let folder = scratch.join("run").display().to_string();
        let texts = |list: &Value| -> Vec<String> {
            let list = list.as_array().expect("a list").iter();
            list.map(|it| it.as_str().expect("a text").replace("/run/bowline", &folder)).collect()
        };
        let args = texts(&pod["initContainers"][0]["args"]).into_iter().skip(1);
        let args: Vec<_> = args.filter(|arg| !arg.starts_with("--admin")).collect();
        let args =
            [args, vec![format!("--haproxy-program={}", program("haproxy").display())]].concat();
        let command = texts(&pod["containers"][0]["command"]);
        let path = format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default());
        let process =
            std::process::Command::new(&command[0]).args(&command[1..]).env("PATH", path).spawn();
        let _running = Running(process.expect("start HAProxy"));
        outside(&cluster, haproxy(), &args).await;
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
        if cluster.flavour() == Flavour::Real {
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
