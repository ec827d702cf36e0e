//! How `bowline up` ends: nobody reads what it prints, somebody does not want to wait, a role cannot go on.

use crate::bowline::{PROGRAM, Start};
use crate::demo::turn;
use bowline_testing::{Dial, Scratch, net, until};
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_reads_what_up_prints_may_go() {
    let scratch = Scratch::new();
    let kubeconfig = scratch.path().join("kubeconfig");
    let mut child = Command::new(PROGRAM)
        .args(["up", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--kubeconfig"])
        .arg(&kubeconfig)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("run bowline");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    assert!(lines.any(|line| line.is_ok_and(|line| line == "Ctrl-C stops it.")));
    drop(lines);
    let config = kube::config::Kubeconfig::read_from(&kubeconfig).expect("a kubeconfig");
    let config = kube::Config::from_custom_kubeconfig(config, &Default::default()).await;
    let client = kube::Client::try_from(config.expect("a kubeconfig")).expect("a client");
    let services: Api<Service> = Api::default_namespaced(client);
    // Refused, which is a line each time; a pipe without a reader is noticed at the second at the latest.
    for name in ["one", "two", "three"] {
        let lost = json!({
            "metadata": {"name": name, "annotations": {"bowline.dev/load-balancer": "nowhere"}},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
        });
        let lost = serde_json::from_value(lost).expect("a Service");
        services.create(&PostParams::default(), &lost).await.expect("it still serves");
        bowline_testing::eventually("it is refused", || async {
            let service = services.get(name).await.map_err(|error| error.to_string())?;
            let conditions = service.status.and_then(|status| status.conditions);
            if conditions.is_some() { Ok(()) } else { Err("no condition".to_owned()) }
        })
        .await;
        services.delete(name, &DeleteParams::default()).await.expect("it still serves");
    }
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().expect("kill").success());
    let ended =
        until("it ends", || child.try_wait().ok().flatten().ok_or("still there".to_owned()));
    let mut errors = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut errors).expect("text");
    assert!(!errors.contains("panicked"), "{errors}");
    assert_eq!(ended.code(), Some(0), "{errors}");
    assert!(!kubeconfig.exists(), "a kubeconfig that leads nowhere is left");
}

#[test]
fn it_says_what_it_waits_for_and_a_second_signal_ends_it_at_once() {
    let _turn = turn();
    net::in_namespace(|| async {
        let scratch = Scratch::new();
        let mut server = Start::new(&scratch).arg("--demo").arg("--grace").arg("50").ready();
        Dial::to([127, 0, 0, 1].into(), 8000).get("a", "/").await.expect("an answer");
        let open = TcpStream::connect("127.0.0.1:8000").expect("a connection");
        server.service.signal("INT");
        until("it says what it waits for", || {
            let log = server.service.log();
            let said = "Stopping: requests under way have 50 s. Ctrl-C again ends them.";
            if log.contains(said) { Ok(()) } else { Err(log) }
        });
        let again = Instant::now();
        server.service.signal("INT");
        assert_eq!(server.service.wait(), Some(130), "{}", server.service.log());
        assert!(again.elapsed() < Duration::from_secs(10), "{:?}", again.elapsed());
        server.assert_never_panicked();
        assert!(!server.kubeconfig.exists(), "a kubeconfig that leads nowhere is left");
        drop(open);
    });
}

#[test]
fn without_its_controller_it_ends_and_says_why() {
    let scratch = Scratch::new();
    let mut service = Start::new(&scratch).arg("--system-namespace").arg("No_Name").spawn();
    assert_eq!(service.wait(), Some(1), "{}", service.log());
    let log = service.log();
    assert!(log.contains("bowline: the controller ended: cannot make namespace No_Name"), "{log}");
    assert!(!scratch.path().join("kubeconfig").exists(), "a kubeconfig that leads nowhere is left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_counted_for_a_load_balancer_that_is_gone_and_nothing_twice() {
    let scratch = Scratch::new();
    let mut server = Start::new(&scratch).ready();
    let log = server.service.log();
    let metrics = log.lines().find_map(|line| line.strip_prefix("Metrics         http://"));
    let at = metrics.and_then(|at| at.strip_suffix("/metrics")).expect("an address");
    let at: SocketAddr = at.parse().expect("an address");
    let balancers: Api<bowline_api::LoadBalancer> = Api::all(server.client().await);
    let edge = json!({
        "apiVersion": "bowline.dev/v1alpha1", "kind": "LoadBalancer", "metadata": {"name": "edge"},
        "spec": {"builtin": {}, "addresses": ["127.0.0.2"], "allowedNamespaces": {"from": "All"}},
    });
    let edge: bowline_api::LoadBalancer = serde_json::from_value(edge).expect("one");
    let metrics = async || {
        let dial = Dial::to(at.ip(), at.port());
        dial.get("localhost", "/metrics").await.map(|answer| answer.text())
    };
    let shown = async |there: bool| {
        bowline_testing::eventually("the load balancer is shown, or is not", || async {
            let text = metrics().await?;
            if text.contains("load_balancer=\"edge\"") == there { Ok(()) } else { Err(text) }
        })
        .await;
    };
    for _ in 0..2 {
        balancers.create(&PostParams::default(), &edge).await.expect("a load balancer");
        shown(true).await;
        balancers.delete("edge", &DeleteParams::default()).await.expect("a deletion");
        shown(false).await;
    }
    balancers.create(&PostParams::default(), &edge).await.expect("a load balancer");
    shown(true).await;
    let text = metrics().await.expect("metrics");
    let mut lines: Vec<_> =
        text.lines().map(|line| line.rsplit_once(' ').map_or(line, |(name, _)| name)).collect();
    let all = lines.len();
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), all, "{text}");
    assert_eq!(server.stop(), Some(0));
}
