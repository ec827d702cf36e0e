//! The first five minutes: `bowline up --demo` carries traffic, follows what kubectl does, says why things
//! are as they are, and has everything back after a restart. Each test has the demo's fixed ports in the
//! network of this test binary, so they take turns.

use crate::bowline::{Bowline, PROGRAM, Start, said};
use bowline_testing::{Dial, Scratch, eventually, net, until};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

static TURN: Mutex<()> = Mutex::new(());

/// The demo's ports are taken by one test at a time.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

const SERVICE: u16 = 8000;
const HTTP: u16 = 8080;

/// Who answers a request.
async fn asked(address: IpAddr, port: u16) -> Result<String, String> {
    let text = Dial::to(address, port).get("hello.localhost", "/").await?.text();
    let name = text.strip_prefix("Hello from ").and_then(|rest| rest.split(' ').next());
    name.map(str::to_owned).ok_or(text)
}

/// Who answers some requests in a row, each on a connection of its own.
async fn answers(port: u16, times: usize) -> Vec<String> {
    let mut all = Vec::new();
    for _ in 0..times {
        all.push(asked(Ipv4Addr::LOCALHOST.into(), port).await.expect("an answer"));
    }
    all
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Runs the program with the kubeconfig of a running one.
fn look(server: &Bowline, args: &[&str]) -> String {
    let output = Command::new(PROGRAM)
        .args(args)
        .env("KUBECONFIG", &server.kubeconfig)
        .output()
        .expect("run bowline");
    assert!(output.status.success(), "{args:?}: {}", said(&output));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn the_backends_that_are_promised_take_turns_from_the_first_request_on() {
    let _turn = turn();
    net::in_namespace(|| async {
        let scratch = Scratch::new();
        let mut server = Start::new(&scratch).arg("--demo").ready();
        let six = [answers(SERVICE, 6).await, answers(HTTP, 6).await];
        let log = server.service.log();
        for line in ["curl http://127.0.0.1:8000/", "curl http://hello.localhost:8080/"] {
            assert!(log.contains(line), "{log}");
        }
        let all = set(&["hello-1", "hello-2", "hello-3"]);
        for six in six {
            assert_eq!(six[..3].iter().cloned().collect::<BTreeSet<_>>(), all, "in turn: {six:?}");
            assert_eq!(six[..3], six[3..], "in the same order again");
        }
        asked(Ipv6Addr::LOCALHOST.into(), SERVICE).await.expect("an answer by IPv6");
        assert_eq!(server.stop(), Some(0));
        for port in [SERVICE, HTTP, 18081] {
            TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("the port is free again");
        }
    });
}

#[test]
fn a_pod_that_kubectl_deleted_is_out_before_the_next_request_and_none_fails_meanwhile() {
    let _turn = turn();
    net::in_namespace(|| async {
        let scratch = Scratch::new();
        let mut server = Start::new(&scratch).arg("--demo").ready();
        let kubeconfig = server.kubeconfig.clone();
        let deletion = tokio::task::spawn_blocking(move || {
            let deleted =
                scratch.kubectl(&kubeconfig, &["-n", "demo", "delete", "pod", "hello-2"]).ok();
            (deleted, scratch)
        });
        let mut meanwhile = Vec::new();
        while !deletion.is_finished() {
            meanwhile.extend(answers(SERVICE, 1).await);
        }
        // kubectl has returned: no waiting from here on.
        let four = answers(SERVICE, 4).await;
        let (deleted, _scratch) = deletion.await.expect("kubectl");
        assert!(deleted.contains("deleted"), "{deleted}");
        assert!(meanwhile.contains(&"hello-2".to_owned()), "it took part: {meanwhile:?}");
        let two = set(&["hello-1", "hello-3"]);
        assert_eq!(four[..2].iter().cloned().collect::<BTreeSet<_>>(), two, "in turn: {four:?}");
        assert_eq!(four[..2], four[2..], "in the same order again");
        until("a line tells it", || {
            let log = server.service.log();
            if log.contains("demo/hello: 3 → 2 members") { Ok(()) } else { Err(log) }
        });

        let pods: Api<Pod> = Api::namespaced(server.client().await, "demo");
        let new = json!({
            "metadata": {"name": "hello-4", "labels": {"app": "hello"}},
            "spec": {"nodeName": "demo", "containers": [{
                "name": "web", "image": "x", "ports": [{"name": "http", "containerPort": 18084}],
            }]},
        });
        let new = serde_json::from_value(new).expect("a Pod");
        pods.create(&PostParams::default(), &new).await.expect("a Pod");
        eventually("hello-4 takes part", || async {
            let now: BTreeSet<_> = answers(HTTP, 3).await.into_iter().collect();
            if now == set(&["hello-1", "hello-3", "hello-4"]) {
                Ok(())
            } else {
                Err(format!("{now:?}"))
            }
        })
        .await;
        assert_eq!(server.stop(), Some(0));
        TcpListener::bind((Ipv4Addr::LOCALHOST, 18084)).expect("the port is free again");
    });
}

#[test]
fn after_kill_9_kept_data_is_served_again_and_what_was_deleted_stays_deleted() {
    let _turn = turn();
    net::in_namespace(|| async {
        let scratch = Scratch::new();
        let mut server = Start::kept(&scratch).arg("--demo").ready();
        let pods: Api<Pod> = Api::namespaced(server.client().await, "demo");
        let now = DeleteParams::default().grace_period(0);
        pods.delete("hello-1", &now).await.expect("a deletion");
        server.service.kill();

        let mut server = Start::kept(&scratch).arg("--demo").ready();
        let now: BTreeSet<_> = answers(SERVICE, 4).await.into_iter().collect();
        assert_eq!(now, set(&["hello-2", "hello-3"]));
        let web: BTreeSet<_> = answers(HTTP, 4).await.into_iter().collect();
        assert_eq!(web, set(&["hello-2", "hello-3"]));
        assert_eq!(server.stop(), Some(0));
    });
}

#[test]
fn explain_status_and_plan_read_a_running_cluster_also_with_the_right_to_read_alone() {
    let _turn = turn();
    net::in_namespace(|| async {
        let scratch = Scratch::new();
        let mut server = Start::new(&scratch).arg("--demo").ready();
        let explained = look(&server, &["explain", "service/hello", "-n", "demo"]);
        for part in [
            "Service demo/hello is on load balancer local\n",
            "it names no load balancer; the default is local",
            "127.0.0.1:8000/TCP → demo/hello port http",
            "[::1]:8000/TCP",
            "3 members, round-robin",
            "127.0.0.1:18082  Ready  hello-2",
            "Problems     none",
        ] {
            assert!(explained.contains(part), "{part}: {explained}");
        }
        let json = look(&server, &["explain", "ing/hello", "-n", "demo", "-o", "json"]);
        let json: Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(json["kind"], "ConsumerExplanation");
        assert_eq!(json["state"], "Planned");
        assert_eq!(json["hosts"][0]["host"], "hello.localhost");
        assert_eq!(json["pools"][0]["members"].as_array().map(Vec::len), Some(3));

        until("all is in force", || {
            let status = look(&server, &["status"]);
            if status.contains("Running") && status.contains("applied") {
                Ok(())
            } else {
                Err(status)
            }
        });
        until("what is recorded is what is planned", || {
            let plan = look(&server, &["plan"]);
            if plan.starts_with("Nothing would change") { Ok(()) } else { Err(plan) }
        });
        let other = look(&server, &["plan", "--default-class=false"]);
        assert!(other.contains("- Service demo/hello"), "{other}");
        let typo = look(&server, &["plan", "--default-load-balancer", "nowhere"]);
        assert!(typo.starts_with("Nothing would change"), "{typo}");
        assert!(typo.contains("There is no load balancer \"nowhere\""), "{typo}");

        let read_only = look(&server, &["status", "--context", "bowline-read-only"]);
        assert!(read_only.contains("Note: You may not list secrets"), "{read_only}");
        assert!(read_only.contains("local  builtin"), "{read_only}");

        let missing = Command::new(PROGRAM)
            .args(["explain", "svc/none"])
            .env("KUBECONFIG", &server.kubeconfig)
            .output()
            .expect("run bowline");
        assert_eq!(missing.status.code(), Some(1));
        assert!(
            said(&missing).contains("there is no Service \"none\" in namespace \"default\""),
            "{}",
            said(&missing)
        );
        assert_eq!(server.stop(), Some(0));
    });
}

#[test]
fn a_taken_port_is_told_on_the_pod_that_wants_it_and_taken_when_it_is_free() {
    let _turn = turn();
    net::in_namespace(|| async {
        let scratch = Scratch::new();
        let taken = TcpListener::bind("127.0.0.1:18083").expect("a port");
        let mut server = Start::new(&scratch).arg("--demo").ready();
        let two: BTreeSet<_> = answers(SERVICE, 4).await.into_iter().collect();
        assert_eq!(two, set(&["hello-1", "hello-2"]));
        let pods: Api<Pod> = Api::namespaced(server.client().await, "demo");
        let condition = async || {
            let status = pods.get("hello-3").await.expect("the Pod").status.unwrap_or_default();
            let ready = status.conditions.into_iter().flatten().find(|it| it.type_ == "Ready");
            ready.map(|it| (it.status, it.reason, it.message.unwrap_or_default()))
        };
        let (status, reason, message) = condition().await.expect("a condition");
        assert_eq!((status.as_str(), reason.as_deref()), ("False", Some("PortTaken")));
        assert!(message.contains("127.0.0.1:18083"), "{message}");
        let get = scratch.kubectl(&server.kubeconfig, &["-n", "demo", "get", "pod", "hello-3"]);
        assert!(get.ok().contains("0/1"), "kubectl shows it");
        drop(taken);
        eventually("hello-3 takes part", || async {
            let now: BTreeSet<_> = answers(SERVICE, 3).await.into_iter().collect();
            if now.contains("hello-3") { Ok(()) } else { Err(format!("{now:?}")) }
        })
        .await;
        let (status, reason, _) = condition().await.expect("a condition");
        assert_eq!((status.as_str(), reason), ("True", None));
        assert_eq!(server.stop(), Some(0));
    });
}
