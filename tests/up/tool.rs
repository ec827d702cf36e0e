//! What people expect of a tool: a version, completion, manual pages, kubectl's flags and its way to call plugins, a
//! configuration file, and a doctor.

use crate::bowline::{Bowline, PROGRAM, Start, run, said};
use bowline_api::names;
use bowline_testing::{Dial, Scratch, until};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Service};
use kube::Api;
use kube::api::PostParams;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, Output};

fn look(server: &Bowline, args: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(args).env("KUBECONFIG", &server.kubeconfig).output().expect("run bowline")
}

fn parse(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", said(output)))
}

fn object<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object")
}

/// Creates Service `web` of namespace `shop`.
async fn shop(server: &Bowline) {
    let client = server.client().await;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let shop = object(json!({"metadata": {"name": "shop"}}));
    namespaces.create(&PostParams::default(), &shop).await.expect("a namespace");
    let services: Api<Service> = Api::namespaced(client, "shop");
    let spec = json!({"type": "LoadBalancer", "ports": [{"port": 18997}]});
    let web = object(json!({"metadata": {"name": "web"}, "spec": spec}));
    services.create(&PostParams::default(), &web).await.expect("a Service");
}

#[test]
fn the_version_is_told_with_commit_api_versions_and_features() {
    let version = env!("CARGO_PKG_VERSION");
    let short = said(&run(&["-V"]));
    assert!(short.starts_with(&format!("bowline {version} (commit ")), "{short}");
    assert_eq!(said(&run(&["--version"])), short);
    let text = said(&run(&["version"]));
    for line in ["Version       ", "Commit        ", "API versions  bowline.dev/v1alpha1\n"] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let json = parse(&run(&["version", "-o", "json"]));
    assert_eq!(json["kind"], "Version");
    assert_eq!(json["version"], version);
    assert_eq!(json["apiVersions"], json!(["bowline.dev/v1alpha1"]));
    assert_eq!(json["features"], json!(["apiserver", "proxy", "speaker"]));
}

#[tokio::test]
async fn leases_and_a_metric_tell_the_version_of_each_process() {
    let scratch = Scratch::new();
    let mut server = Start::new(&scratch).ready();
    let version = env!("CARGO_PKG_VERSION");
    let (json, text) = until("the agent has reported", || {
        let json = parse(&look(&server, &["status", "-o", "json"]));
        let agents = json["loadBalancers"][0]["applied"]["agents"].as_array().map_or(0, Vec::len);
        let text = said(&look(&server, &["status"]));
        if agents == 1 && text.contains("agent of") { Ok((json, text)) } else { Err(text) }
    });
    let told = |holder: &Value| holder["version"].as_str().unwrap_or_default().to_owned();
    assert!(told(&json["controller"]).starts_with(version), "{json:#}");
    let agent = &json["loadBalancers"][0]["applied"]["agents"][0];
    assert_eq!(told(agent), told(&json["controller"]), "{json:#}");
    assert!(text.contains(&format!("\nVersions: controller {version}")), "{text}");

    let log = server.service.log();
    let at = log.lines().find_map(|line| line.strip_prefix("Metrics         http://"));
    let at = at.and_then(|at| at.strip_suffix("/metrics")).expect("an address");
    let at: SocketAddr = at.parse().expect("an address");
    let page =
        Dial::to(at.ip(), at.port()).get("localhost", "/metrics").await.map(|answer| answer.text());
    let page = page.expect("metrics");
    let line = page.lines().find(|line| line.starts_with("bowline_build_info{"));
    let line = line.unwrap_or_else(|| panic!("{page}"));
    assert!(line.contains(&format!("version=\"{version}\"")) && line.ends_with("} 1"), "{line}");
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn completion_scripts_are_scripts_and_manual_pages_are_files() {
    let scratch = Scratch::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = run(&["completion", shell]);
        assert!(script.status.success() && script.stdout.len() > 1000, "{shell}");
    }
    let script = scratch.write("bowline.bash", &said(&run(&["completion", "bash"])));
    let line = format!("source {} && complete -p bowline", script.display());
    let bash = Command::new("bash").args(["-c", &line]).output().expect("run bash");
    assert!(bash.status.success() && said(&bash).contains("-F _bowline"), "{}", said(&bash));
    let unknown = run(&["completion", "tcsh"]);
    assert_eq!(unknown.status.code(), Some(2), "{}", said(&unknown));

    let pages = scratch.path().join("man1");
    let made = run(&["man", "--dir", pages.to_str().expect("a path")]);
    assert!(made.status.success(), "{}", said(&made));
    let page = std::fs::read_to_string(pages.join("bowline-agent.1")).expect("a page");
    assert!(page.contains(".TH bowline-agent 1"), "{page}");
}

#[tokio::test]
async fn a_namespace_is_that_of_the_object_in_every_command_that_looks() {
    let scratch = Scratch::new();
    let mut server = Start::new(&scratch).ready();
    shop(&server).await;
    for flags in [&["-n", "shop"][..], &["--namespace", "shop"], &["--object-namespace", "shop"]] {
        until("the Service is explained", || {
            let told = said(&look(&server, &[&["explain", "svc/web"], flags].concat()));
            if told.starts_with("Service shop/web") { Ok(()) } else { Err(told) }
        });
    }
    let status = until("the Service has its place", || {
        let status = look(&server, &["status", "-n", "shop", "-o", "json"]);
        let consumers = parse(&status)["loadBalancers"][0]["consumers"].clone();
        let web = json!([{"kind": "Service", "namespace": "shop", "name": "web"}]);
        if consumers == web { Ok(parse(&status)) } else { Err(said(&status)) }
    });
    assert_eq!(status["namespace"], "shop");
    let other = said(&look(&server, &["status", "--namespace", "default"]));
    assert!(other.contains("No load balancer serves namespace \"default\"."), "{other}");
    for command in [&["status"][..], &["plan"], &["explain", "svc/web"]] {
        let none = look(&server, &[command, &["-n", "nowhere"]].concat());
        assert_eq!(none.status.code(), Some(1));
        assert!(said(&none).contains("there is no namespace \"nowhere\""), "{}", said(&none));
    }
    let plan = look(&server, &["plan", "--exit-code", "-n", "default"]);
    assert_eq!(plan.status.code(), Some(0), "{}", said(&plan));
    assert_eq!(server.stop(), Some(0));
}

/// Starts a controller on the cluster of a server, and waits until it leads in this namespace. Returns its log.
async fn controller(scratch: &Scratch, server: &Bowline, namespace: &str, args: &[&str]) -> String {
    let args: Vec<String> =
        ["controller"].iter().chain(args).map(|arg| (*arg).to_owned()).collect();
    let mut role = scratch.spawn(&format!("controller-{namespace}"), Path::new(PROGRAM), &args);
    let leases: Api<Lease> = Api::namespaced(server.client().await, namespace);
    bowline_testing::eventually("it leads", || async {
        let lease = leases.get(names::LEASE_CONTROLLER).await;
        let lease = lease.map_err(|error| format!("{error}: {}", role.log()))?;
        let version =
            lease.metadata.annotations.and_then(|it| it.get("bowline.dev/version").cloned());
        version.filter(|it| it.starts_with(env!("CARGO_PKG_VERSION"))).ok_or(role.log())
    })
    .await;
    role.signal("TERM");
    assert_eq!(role.wait(), Some(0), "{}", role.log());
    role.log()
}

#[tokio::test]
async fn a_role_takes_its_own_namespace_by_the_new_flag_the_old_one_or_a_file() {
    let scratch = Scratch::new();
    let mut server = Start::new(&scratch).ready();
    let kubeconfig = server.kubeconfig.display().to_string();
    let common = ["--kubeconfig", &kubeconfig, "--admin", "127.0.0.1:0"];
    let old = [&common[..], &["--namespace", "old-flag"]].concat();
    let log = controller(&scratch, &server, "old-flag", &old).await;
    assert!(log.contains("write --system-namespace=old-flag"), "{log}");
    let new = [&common[..], &["--system-namespace", "new-flag"]].concat();
    let log = controller(&scratch, &server, "new-flag", &new).await;
    assert!(!log.contains("old name"), "{log}");

    let text = format!("kubeconfig: {kubeconfig}\nadmin: 127.0.0.1:0\nsystem-namespace: by-file\n");
    let file = scratch.write("config.yaml", &text).display().to_string();
    controller(&scratch, &server, "by-file", &["--config", &file]).await;
    let wins = ["--config", &file, "--system-namespace", "by-line"];
    controller(&scratch, &server, "by-line", &wins).await;
    assert_eq!(server.stop(), Some(0));
}

#[tokio::test]
async fn an_agent_that_fills_templates_once_needs_no_admin_port() {
    let scratch = Scratch::new();
    let mut server = Start::new(&scratch).ready();
    // Where this fails, somebody else has the port, which is as good.
    let _taken = TcpListener::bind("127.0.0.1:9180");
    let template = scratch.write("services.tmpl", "{{ len .Services }} Services\n");
    let output = scratch.path().join("services");
    let (template, output) = (template.display().to_string(), output.display().to_string());
    let files = ["agent", "--template", &template, "--output", &output];
    let once = look(&server, &[&files[..], &["--once"]].concat());
    assert!(once.status.success(), "{}", said(&once));
    let text = std::fs::read_to_string(&output).expect("the output");
    assert!(text.ends_with(" Services\n"), "{text}");
    let served = look(&server, &[&files[..], &["--once", "--admin", "127.0.0.1:9180"]].concat());
    assert!(said(&served).contains("127.0.0.1:9180"), "{}", said(&served));
    assert_eq!(served.status.code(), Some(1));
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn a_configuration_file_that_is_wrong_is_refused_by_name() {
    let scratch = Scratch::new();
    let refused = |text: &str| {
        let file = scratch.write("config.yaml", text).display().to_string();
        let output = run(&["agent", "--config", &file]);
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        said(&output).replace(&file, "FILE")
    };
    let unknown =
        "bowline: --config FILE: unknown flag \"load-balanser\"; did you mean \"load-balancer\"?\n";
    assert_eq!(refused("load-balanser: edge\n"), unknown);
    let value = refused("load-balancer: edge\ngrace: soon\n");
    assert!(value.contains("--grace") && value.contains("soon"), "{value}");
    assert!(value.ends_with("bowline: FILE gives --grace, --load-balancer\n"), "{value}");
    assert!(refused("grace: 5\n").contains("--load-balancer"), "it is still required");
    let file =
        scratch.write("log.yaml", "log-level: '=['\nkubeconfig: /nowhere\nadmin: 127.0.0.1:0\n");
    let mut command = Command::new(PROGRAM);
    command.args(["controller", "--config"]).arg(file).env_remove("BOWLINE_LOG");
    let told = said(&command.output().expect("run bowline"));
    assert!(told.contains("--log-level \"=[\""), "{told}");
    let told = said(&command.env("BOWLINE_LOG", "error").output().expect("run bowline"));
    assert!(told.contains("--kubeconfig /nowhere"), "the environment wins: {told}");
    let both = refused("load-balancer: edge\nexec: true\n");
    assert!(both.contains("--exec cannot be used with --driver builtin"), "{both}");
}

#[tokio::test]
async fn kubectl_finds_the_plugin_and_passes_its_flags() {
    let scratch = Scratch::new();
    let mut server = Start::new(&scratch).ready();
    shop(&server).await;
    let bin = scratch.path().join("bin");
    std::fs::create_dir(&bin).expect("a folder");
    std::os::unix::fs::symlink(PROGRAM, bin.join("kubectl-bowline")).expect("a link");
    let path = std::env::var("PATH").unwrap_or_default();
    let kubectl = |args: &[&str]| {
        let program = std::env::var("KUBECTL").unwrap_or_else(|_| "kubectl".to_owned());
        let mut command = Command::new(program);
        command.arg("bowline").args(args).env("PATH", format!("{}:{path}", bin.display()));
        command.env("KUBECONFIG", &server.kubeconfig).output().expect("run kubectl")
    };
    until("the Service is explained", || {
        let told = said(&kubectl(&["explain", "svc/web", "-n", "shop"]));
        if told.starts_with("Service shop/web") { Ok(()) } else { Err(told) }
    });
    let kubeconfig = server.kubeconfig.display().to_string();
    let status =
        kubectl(&["status", "--kubeconfig", &kubeconfig, "--context", "bowline-read-only"]);
    assert!(status.status.success() && said(&status).contains("local "), "{}", said(&status));
    let plan = kubectl(&["plan", "--namespace", "default"]);
    assert!(said(&plan).starts_with("Nothing would change"), "{}", said(&plan));
    let help = said(&kubectl(&["--help"]));
    assert!(help.contains("Usage: kubectl bowline"), "{help}");
    for word in ["status", "explain", "plan"] {
        assert!(help.contains(&format!("  {word} ")), "{help}");
    }
    let help = said(&kubectl(&["explain", "--help"]));
    assert!(help.contains("  kubectl bowline explain service/web -n shop"), "{help}");
    let role = kubectl(&["up"]);
    assert_eq!(role.status.code(), Some(2), "{}", said(&role));
    assert_eq!(server.stop(), Some(0));
}

#[tokio::test]
async fn the_doctor_finds_nothing_in_what_runs_and_then_what_is_broken() {
    let scratch = Scratch::new();
    let mut server = Start::new(&scratch).ready();
    let well = until("nothing is wrong", || {
        let doctor = look(&server, &["doctor"]);
        if doctor.status.success() { Ok(said(&doctor)) } else { Err(said(&doctor)) }
    });
    for line in
        ["ok     Kinds ", "ok     Leader ", "ok     Agents ", "ok     Clocks ", "Nothing is wrong."]
    {
        assert!(well.contains(line), "{line}: {well}");
    }
    let pools: Api<bowline_api::AddressPool> = Api::all(server.client().await);
    for name in ["one", "two"] {
        let spec = json!({"addresses": ["192.0.2.0/28"]});
        let pool = object(json!({
            "apiVersion": "bowline.dev/v1alpha1", "kind": "AddressPool",
            "metadata": {"name": name}, "spec": spec,
        }));
        pools.create(&PostParams::default(), &pool).await.expect("a pool");
    }
    let edge = object(json!({
        "apiVersion": "bowline.dev/v1alpha1", "kind": "LoadBalancer", "metadata": {"name": "edge"},
        "spec": {"template": {}},
    }));
    let balancers: Api<bowline_api::LoadBalancer> = Api::all(server.client().await);
    balancers.create(&PostParams::default(), &edge).await.expect("a load balancer");
    until("kubectl shows the state of pools", || {
        let shown = scratch.kubectl(&server.kubeconfig, &["get", "apool"]).success()?;
        let rows: Vec<Vec<&str>> =
            shown.lines().map(|line| line.split_whitespace().collect()).collect();
        let (one, two) = (["one", "Used"], ["two", "Overlaps"]);
        let state = |row: &[&str], of: [&str; 2]| row[0] == of[0] && row.contains(&of[1]);
        let shows = rows.len() == 3 && rows[0].contains(&"STATE");
        // Of two that were created in the same second the leader keeps one, by name.
        if shows && state(&rows[1], one) && state(&rows[2], two) { Ok(()) } else { Err(shown) }
    });
    let doctor = look(&server, &["doctor"]);
    assert_eq!(doctor.status.code(), Some(1));
    let text = said(&doctor);
    for line in [
        "overlap in 192.0.2.0",
        "WRONG  Agents     load balancer edge has no agent",
        "--template FILE",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(text.ends_with("2 things are wrong.\n"), "{text}");
    let json = parse(&look(&server, &["doctor", "-o", "json"]));
    let wrong = |check: &str| {
        let mut all = json["checks"].as_array().into_iter().flatten();
        all.any(|it| it["check"] == check && it["state"] == "Wrong" && it["remedy"].is_string())
    };
    assert!(wrong("Pools") && wrong("Agents"), "{json:#}");
    assert_eq!(server.stop(), Some(0));
}
