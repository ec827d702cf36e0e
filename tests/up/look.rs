//! `bowline plan`, `explain` and `status` against a running cluster: how they end, and what they say when they
//! cannot know.

use crate::bowline::{Bowline, PROGRAM, Start, run, said};
use bowline_testing::{Scratch, until};
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};

/// Runs the program with the kubeconfig of a running one.
fn look(server: &Bowline, args: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(args).env("KUBECONFIG", &server.kubeconfig).output().expect("run bowline")
}

#[tokio::test]
async fn a_plan_ends_with_0_1_or_2_when_asked_to_and_says_what_it_guesses() {
    let scratch = Scratch::new();
    let mut server = Start::new(&scratch).ready();
    let nothing = until("all is recorded", || {
        let plan = look(&server, &["plan", "--exit-code"]);
        if plan.status.code() == Some(0) { Ok(plan) } else { Err(said(&plan)) }
    });
    assert!(said(&nothing).starts_with("Nothing would change"), "{}", said(&nothing));

    let web = json!({"metadata": {"name": "web"}, "spec": {"type": "LoadBalancer", "ports": [{"port": 18999}]}});
    let web = serde_json::from_value(web).expect("a Service");
    let services: Api<Service> = Api::default_namespaced(server.client().await);
    services.create(&PostParams::default(), &web).await.expect("a Service");
    until("the Service is recorded", || {
        let plan = look(&server, &["plan", "--exit-code", "-o", "json"]);
        let recorded = said(&look(&server, &["explain", "svc/web"])).contains("Recorded     yes");
        if recorded && plan.status.code() == Some(0) { Ok(()) } else { Err(said(&plan)) }
    });
    let differs = ["plan", "--exit-code", "--default-class=false"];
    assert_eq!(look(&server, &differs).status.code(), Some(1));
    assert_eq!(look(&server, &differs[..1]).status.code(), Some(0), "only when asked to");
    let unknown = look(&server, &["plan", "--exit-code", "--system-namespace", "nowhere"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(said(&unknown).contains("there is no namespace \"nowhere\""), "{}", said(&unknown));
    assert_eq!(look(&server, &["status", "--system-namespace", "nowhere"]).status.code(), Some(1));

    let guessed = look(&server, &["plan", "-o", "json", "--system-namespace", "default"]);
    let guessed: Value = serde_json::from_slice(&guessed.stdout).expect("JSON");
    let note = guessed["notes"][0].as_str().expect("a note");
    assert!(note.starts_with("The settings of the controllers are not known"), "{note}");
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn a_context_that_is_not_there_is_named_with_those_that_are() {
    let scratch = Scratch::new();
    let mut server = Start::new(&scratch).ready();
    let output = look(&server, &["status", "--context", "nope"]);
    assert_eq!(output.status.code(), Some(1));
    let text = said(&output);
    assert!(text.contains("\"nope\"") && text.contains("bowline-read-only"), "{text}");
    assert_eq!(server.stop(), Some(0));
    let empty = scratch.write("empty", "");
    let output = Command::new(PROGRAM)
        .args(["status", "--context", "a"])
        .env("KUBECONFIG", scratch.path().join("missing"))
        .env("HOME", empty.parent().expect("a folder"))
        .output()
        .expect("run bowline");
    assert!(said(&output).contains("--kubeconfig"), "{}", said(&output));
}

#[test]
fn whoever_waits_for_a_silent_cluster_is_told() {
    let scratch = Scratch::new();
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let server = format!("https://{}", silent.local_addr().expect("an address"));
    let kubeconfig = json!({
        "clusters": [{"name": "a", "cluster": {"server": server}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "users": [{"name": "a", "user": {}}], "current-context": "a",
    });
    let file = scratch.write("kubeconfig", &kubeconfig.to_string());
    let args = ["status", "--kubeconfig", file.to_str().expect("a path")].map(str::to_owned);
    let mut status = scratch.spawn("status", Path::new(PROGRAM), &args);
    until("it says that it waits", || {
        status.assert_alive();
        let log = status.log();
        if log.contains("still waiting") { Ok(()) } else { Err(log) }
    });
    status.kill();
}

#[test]
fn help_says_what_a_command_does_and_fits_into_80_columns() {
    for (command, sentence) in [
        ("up", "Serves the Kubernetes API over TLS on loopback"),
        ("controller", "Run two or more"),
        ("agent", "While the API is away, the agent serves what it knows"),
        ("plan", "Changes nothing."),
        ("explain", "Shows how its load balancer was found"),
        ("status", "their consumers, and whether everything is in force"),
        ("doctor", "say for each finding what helps"),
        ("top", "Requests and connections per second come from the metrics"),
        ("version", "its commit, and the API versions"),
        ("completion", "the completion script of a shell"),
        ("man", "the manual pages of all commands"),
        ("crds", "ready for `kubectl apply -f -`"),
    ] {
        let help = run(&[command, "--help"]);
        assert!(help.status.success());
        let words = said(&help).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(sentence), "{command}: {}", said(&help));
        for line in said(&help).lines() {
            assert!(line.chars().count() <= 80, "{command}: {line}");
        }
    }
    let words = said(&run(&["plan", "--help"])).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("0 if nothing would change, 1 if something would, and 2"), "{words}");
    for command in ["up", "controller", "plan", "explain", "status"] {
        let help = said(&run(&[command, "--help"]));
        assert!(help.contains("--default-class[=<BOOL>]"), "{command}: {help}");
    }
}
