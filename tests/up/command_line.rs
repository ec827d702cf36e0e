//! The command line: what it says, what it leaves on disk, and how it ends.

use crate::bowline::{Bowline, Start, run, said};
use bowline_testing::{Scratch, until};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams, PostParams, WatchParams};
use serde_json::json;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap_or_else(|e| panic!("{}: {e}", path.display())).mode() & 0o777
}

/// Every file below a folder, with what is in it; but for those that are being written beside the ones that they
/// replace.
fn contents(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            all.extend(contents(&path));
        } else if path.extension().is_none_or(|it| it != "new") {
            let text = std::fs::read(&path).expect("a file");
            all.push((path.display().to_string(), text));
        }
    }
    all.sort();
    all
}

#[test]
fn help_names_every_command_and_flag() {
    let help = run(&["--help"]);
    assert!(help.status.success());
    for word in [
        "up",
        "plan",
        "explain",
        "status",
        "doctor",
        "crds",
        "completion",
        "man",
        "version",
        "--log-level",
        "--log-format",
        "--version",
        "BOWLINE_LOG",
        "--demo",
    ] {
        assert!(said(&help).contains(word), "{word}: {}", said(&help));
    }
    let help = run(&["up", "--help"]);
    assert!(help.status.success());
    let flags = ["--demo", "--data", "--listen", "--kubeconfig", "-f", "--filename", "--address"];
    let more = ["--admin", "--default-class", "--default-load-balancer", "--access-log"];
    for word in flags.into_iter().chain(more).chain(["--http-port", "127.0.0.1:6443", "Examples:"])
    {
        assert!(said(&help).contains(word), "{word}: {}", said(&help));
    }
    let looks = ["-o", "-n, --namespace", "--kubeconfig", "--context", "--system-namespace"];
    for command in ["plan", "explain", "status"] {
        let help = run(&[command, "--help"]);
        assert!(help.status.success());
        let more = ["--default-class", "--default-load-balancer", "bowline-system", "Examples:"];
        for word in looks.into_iter().chain(more) {
            assert!(said(&help).contains(word), "{command} {word}: {}", said(&help));
        }
    }
    for command in ["controller", "agent"] {
        let help = run(&[command, "--help"]);
        assert!(help.status.success());
        let flags = ["--kubeconfig", "--system-namespace", "--admin", "--config"];
        for word in flags.into_iter().chain(["127.0.0.1:9180", "Examples:"]) {
            assert!(said(&help).contains(word), "{command} {word}: {}", said(&help));
        }
    }
    let help = run(&["crds", "--help"]);
    assert!(help.status.success() && said(&help).contains("--dir"), "{}", said(&help));
}

#[test]
fn a_command_line_that_makes_no_sense_is_refused_with_help() {
    for args in [
        &["sideways"][..],
        &["up", "--listen", "nonsense"],
        &["up", "--listen", "127.0.0.1"],
        &["up", "--sideways"],
        &["up", "extra"],
        &["up", "--http-port", "0"],
        &["up", "--default-load-balancer", "edge", "--address", "127.0.0.1"],
        &["up", "--default-load-balancer", "edge", "--no-default-load-balancer"],
        &["up", "--no-default-load-balancer", "--http-port", "8081"],
        &["up", "--no-default-load-balancer", "--demo"],
        &["agent"],
        &["agent", "--template", "file"],
        &["agent", "--load-balancer", "edge", "--exec"],
        &["agent", "--load-balancer", "edge", "--once"],
        &["agent", "--template", "a", "--output", "b", "--address", "192.0.2.1"],
        &["agent", "--template", "a", "--output", "b", "--driver", "nginx"],
        &["controller", "--default-class=perhaps"],
        &["explain"],
        &["explain", "web"],
        &["explain", "pod/web"],
        &["status", "-o", "yaml"],
        &["--log", "=[", "crds"],
        &["crds", "--log-level", "=["],
        &["crds", "--log-format", "sideways"],
        &["controller", "--namespace", "a", "--system-namespace", "b"],
        &["completion", "tcsh"],
        &["man"],
        &["status", "--config", "file"],
    ] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", said(&output));
        assert!(!output.stderr.is_empty(), "{args:?}");
    }
}

#[test]
fn a_cluster_that_cannot_be_reached_is_named_with_what_to_do() {
    let scratch = Scratch::new();
    let missing = run(&["status", "--kubeconfig", "/nowhere"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(said(&missing).contains("--kubeconfig /nowhere"), "{}", said(&missing));
    let silent = scratch.write(
        "kubeconfig",
        r#"{"clusters": [{"name": "a", "cluster": {"server": "https://127.0.0.1:1"}}],
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
            "users": [{"name": "a", "user": {}}], "current-context": "a"}"#,
    );
    for command in [&["status"][..], &["plan"], &["explain", "svc/a"]] {
        let mut args = command.to_vec();
        args.extend(["--kubeconfig", silent.to_str().unwrap()]);
        let output = run(&args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(output.stdout.is_empty());
        let text = said(&output);
        assert!(text.starts_with("bowline: the cluster does not answer"), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
}

#[test]
fn crds_prints_what_deploy_holds_and_writes_it_where_told() {
    let printed = run(&["crds"]);
    assert!(printed.status.success(), "{}", said(&printed));
    let printed = String::from_utf8(printed.stdout).expect("text");
    let parse = |text: &str| -> Vec<CustomResourceDefinition> {
        let documents = bowline_apiserver::yaml::documents(text).expect("YAML");
        documents.into_iter().map(|one| serde_json::from_value(one).expect("a CRD")).collect()
    };
    let by_name = |mut all: Vec<CustomResourceDefinition>| {
        all.sort_by_key(|one| one.metadata.name.clone());
        all
    };
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/crds");
    let kept = contents(&deploy);
    let deployed = kept.iter().flat_map(|(_, text)| parse(&String::from_utf8_lossy(text)));
    let printed = by_name(parse(&printed));
    assert_eq!(printed.len(), 9);
    assert_eq!(printed, by_name(deployed.collect()));

    let scratch = Scratch::new();
    let dir = scratch.path().join("a/b");
    let written = run(&["crds", "--dir", dir.to_str().unwrap()]);
    assert!(written.status.success(), "{}", said(&written));
    let names = |all: &[(String, Vec<u8>)], folder: &Path| {
        let folder = format!("{}/", folder.display());
        let short = |(name, text): &(String, Vec<u8>)| {
            (name.replace(&folder, ""), String::from_utf8_lossy(text).into_owned())
        };
        all.iter().map(short).collect::<Vec<_>>()
    };
    assert_eq!(names(&contents(&dir), &dir), names(&kept, &deploy));
    assert_eq!(String::from_utf8_lossy(&written.stdout).lines().count(), printed.len());
}

#[test]
fn crds_says_where_it_cannot_write() {
    let output = run(&["crds", "--dir", "/proc/nowhere"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("/proc/nowhere"), "{}", said(&output));
}

#[tokio::test]
async fn credentials_are_the_owners_alone_and_stay_good_over_a_restart() {
    let scratch = Scratch::new();
    let data = scratch.path().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut server = Start::kept(&scratch).ready();
    let address = server.address.to_string();
    let kubeconfig = scratch.path().join("kubeconfig");
    assert_eq!(mode(&data), 0o700, "a folder that others could enter is closed");
    for (file, _) in contents(&data) {
        assert_eq!(mode(Path::new(&file)), 0o600, "{file}");
    }
    assert_eq!(mode(&kubeconfig), 0o600);
    assert!(data.join("credentials.json").exists());

    let identity =
        |server: &Bowline| (server.token("admin"), server.token("read-only"), server.authority());
    let before = identity(&server);
    let client = server.client().await;
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let note = serde_json::from_value(json!({"metadata": {"name": "a"}, "data": {"b": "c"}}));
    let note = api.create(&PostParams::default(), &note.unwrap()).await.expect("a write");
    let revision = async || {
        let list = api.list(&ListParams::default()).await.expect("a list");
        list.metadata.resource_version.expect("a resourceVersion").parse::<u64>().expect("a number")
    };
    let last = revision().await;
    assert_eq!(server.stop(), Some(0));
    assert!(kubeconfig.exists(), "the kubeconfig of kept data is kept");

    server = Start::kept(&scratch).listen(&address).ready();
    assert_eq!(identity(&server), before);
    assert_eq!(api.get("a").await.expect("the client of before is served"), note);
    assert!(revision().await >= last);
    assert_eq!(server.stop(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signal_ends_it_within_seconds_even_with_watchers() {
    let scratch = Scratch::new();
    let mut server = Start::new(&scratch).ready();
    assert_eq!(mode(&server.kubeconfig), 0o600);
    let api: Api<ConfigMap> = Api::all(server.client().await);
    let watching = api.watch(&WatchParams::default(), "0").await.expect("a watch");
    let asked = Instant::now();
    server.service.signal("TERM");
    assert_eq!(server.service.wait(), Some(0), "{}", server.service.log());
    // Two seconds are given to requests under way.
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
    server.assert_never_panicked();
    assert!(!server.kubeconfig.exists(), "a kubeconfig that leads nowhere is left");
    drop(watching);
}

#[test]
fn the_second_on_the_same_data_says_who_has_it_and_touches_nothing() {
    let scratch = Scratch::new();
    let mut server = Start::kept(&scratch).ready();
    let data = scratch.path().join("data");
    // The first goes on: its Leases are renewed in the store, and its agents keep what they serve.
    let files = || {
        let mut files = contents(&data);
        files.retain(|(name, _)| !name.ends_with("store.redb") && !name.ends_with("/state"));
        files
    };
    let before = files();
    let kubeconfig = std::fs::read(&server.kubeconfig).unwrap();

    let second = Start::kept(&scratch).output();
    assert_eq!(second.status.code(), Some(1));
    let text = said(&second);
    for part in [
        &data.display().to_string(),
        &format!("process {}", server.service.id()),
        &format!("https://{}", server.address),
        "stop it, or work with it by its kubeconfig",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(files(), before);
    assert_eq!(std::fs::read(&server.kubeconfig).unwrap(), kubeconfig);
    TcpStream::connect(server.address).expect("the first goes on");
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn a_taken_port_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().unwrap().to_string();
    let scratch = Scratch::new();
    for start in [Start::new(&scratch), Start::kept(&scratch)] {
        let output = start.listen(&address).output();
        assert_eq!(output.status.code(), Some(1));
        assert!(said(&output).contains(&address), "{}", said(&output));
        assert!(said(&output).contains("--listen"), "{}", said(&output));
        assert!(!scratch.path().join("kubeconfig").exists());
    }
}

#[test]
fn data_that_cannot_be_used_is_named() {
    let scratch = Scratch::new();
    let cases =
        [("not-a-folder", None), ("torn", Some("store.redb")), ("odd", Some("credentials.json"))];
    for (name, damaged) in cases {
        let data = scratch.path().join(name);
        match damaged {
            None => std::fs::write(&data, "a file").unwrap(),
            Some(file) => {
                std::fs::create_dir(&data).unwrap();
                std::fs::write(data.join(file), "nonsense".repeat(2000)).unwrap();
            }
        }
        let output = Start::new(&scratch).arg("--data").arg(data.to_str().unwrap()).output();
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        assert!(said(&output).contains(data.to_str().unwrap()), "{name}: {}", said(&output));
        assert!(!said(&output).contains("panicked"), "{}", said(&output));
        if let Some(file) = damaged {
            let left = std::fs::read(data.join(file)).unwrap();
            assert_eq!(left, "nonsense".repeat(2000).as_bytes(), "{file} is left as it was");
        }
    }
}

#[tokio::test]
async fn it_listens_on_ipv6_and_clients_trust_it_there() {
    let scratch = Scratch::new();
    let mut server = Start::new(&scratch).listen("[::1]:0").ready();
    let SocketAddr::V6(address) = server.address else { panic!("{}", server.address) };
    assert!(address.ip().is_loopback());
    let api: Api<ConfigMap> = Api::all(server.client().await);
    api.list(&ListParams::default()).await.expect("a list");
    assert_eq!(server.stop(), Some(0));
    assert!(!server.kubeconfig.exists(), "a kubeconfig that leads nowhere is left");
}

#[test]
fn a_signal_before_it_is_ready_ends_it_too() {
    let scratch = Scratch::new();
    let data = scratch.path().join("data");
    let mut service = Start::kept(&scratch).spawn();
    until("it has begun", || {
        data.join("store.redb").exists().then_some(()).ok_or_else(|| service.log())
    });
    service.signal("TERM");
    assert_eq!(service.wait(), Some(0), "{}", service.log());
    assert!(!service.log().contains("panicked"), "{}", service.log());
}

#[test]
fn a_kubeconfig_that_leads_elsewhere_is_not_written_over() {
    let scratch = Scratch::new();
    let production = "clusters: [{name: production, cluster: {server: https://a}}]\n";
    // Without clusters it is still not ours.
    for text in [production, "my notes\n", "apiVersion: v1\nkind: Config\nclusters: []\n", "{}\n"] {
        let file = scratch.write("kubeconfig", text);
        let output = Start::kept(&scratch).output();
        assert_eq!(output.status.code(), Some(1));
        assert!(said(&output).contains(file.to_str().unwrap()), "{}", said(&output));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
        assert!(!scratch.path().join("data").exists(), "nothing was started");
    }
}
