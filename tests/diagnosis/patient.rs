//! The system under examination: what a client meets, and what the tools say about it.

use crate::stage::{PROGRAM, Stage};
use bowline_core::outcome::Reason;
use bowline_core::remedy::{self, RoleProblem};
use bowline_testing::eventually;
use serde_json::Value;
use std::time::{Duration, Instant};
use tokio::process::Command;

/// How soon what is wrong is told.
const SOON: Duration = Duration::from_secs(10);
/// How long a Lease lasts. Where only its end can tell what is wrong, it is told this much later.
const LEASE: Duration = Duration::from_secs(15);

/// A problem as `bowline explain -o json` shows it.
#[derive(Debug, PartialEq)]
pub(crate) struct Found {
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) remedy: Option<String>,
}

/// What the program prints.
pub(crate) async fn run(stage: &Stage, args: &[&str]) -> String {
    let mut command = Command::new(PROGRAM);
    let command = command.args(args).env("KUBECONFIG", stage.cluster.kubeconfig());
    let output = command.output().await.expect("run bowline");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {error}");
    String::from_utf8(output.stdout).expect("a text")
}

/// What the program prints about an object, in one line.
pub(crate) async fn words(stage: &Stage, object: &str) -> String {
    let text = run(stage, &["explain", object, "-n", &stage.namespace]).await;
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What `bowline explain -o json` says about an object.
pub(crate) async fn explain(stage: &Stage, object: &str) -> Value {
    let text = run(stage, &["explain", object, "-n", &stage.namespace, "-o", "json"]).await;
    serde_json::from_str(&text).expect("JSON")
}

/// Waits until `bowline status` prints this.
pub(crate) async fn status_says(stage: &Stage, text: &str) {
    eventually(&format!("the status says {text:?}"), || async {
        let status = run(stage, &["status"]).await;
        let line = status.split_whitespace().collect::<Vec<_>>().join(" ");
        if line.contains(text) { Ok(()) } else { Err(status) }
    })
    .await;
}

/// The problems of an object.
pub(crate) async fn problems(stage: &Stage, object: &str) -> Vec<Found> {
    let text = |it: &Value| it.as_str().map(str::to_owned);
    let explained = explain(stage, object).await;
    let all = explained["problems"].as_array().cloned().unwrap_or_default();
    let found = |it: &Value| Found {
        reason: text(&it["reason"]).unwrap_or_default(),
        message: text(&it["message"]).unwrap_or_default(),
        remedy: text(&it["remedy"]),
    };
    all.iter().map(found).collect()
}

/// Waits until `explain` names this problem of an object with its remedy, and returns its message.
pub(crate) async fn suffers(stage: &Stage, object: &str, reason: Reason) -> String {
    let what = remedy::of(reason).map(|it| it.what.to_owned());
    assert!(what.is_some(), "{reason} has no remedy");
    let found = finds(stage, object, &reason.to_string(), SOON).await;
    assert_eq!(found.remedy, what, "{reason}");
    found.message
}

/// The same for a problem of the leader or the agents that an ended Lease tells.
pub(crate) async fn suffers_from_role(stage: &Stage, object: &str, problem: RoleProblem) -> String {
    let within = match problem {
        RoleProblem::NoLeader | RoleProblem::AgentSilent => LEASE + SOON,
        _ => SOON,
    };
    let found = finds(stage, object, &problem.to_string(), within).await;
    assert_eq!(found.remedy.as_deref(), Some(problem.remedy().what), "{problem}");
    found.message
}

/// Waits until `explain` names a problem of an object, no longer than this.
pub(crate) async fn finds(stage: &Stage, object: &str, reason: &str, within: Duration) -> Found {
    let begun = Instant::now();
    let found = eventually(&format!("{object} suffers from {reason}"), || async {
        let mut found = problems(stage, object).await;
        match found.iter().position(|it| it.reason == reason) {
            Some(at) => Ok(found.swap_remove(at)),
            None => Err(format!("{found:?}")),
        }
    })
    .await;
    assert!(begun.elapsed() <= within, "{reason} was told after {:?}", begun.elapsed());
    found
}

/// The same, with some remedy: of addresses, it depends on what each pool says.
pub(crate) async fn lacks_an_address(stage: &Stage, object: &str, reason: Reason) -> Found {
    let found = finds(stage, object, &reason.to_string(), SOON).await;
    assert!(found.remedy.is_some(), "{found:?}");
    found
}

/// Waits until `explain` finds nothing wrong with an object.
pub(crate) async fn is_well(stage: &Stage, object: &str) {
    eventually(&format!("{object} is well"), || async {
        let found = problems(stage, object).await;
        if found.is_empty() { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;
}

/// A condition of an object: its status and reason. None: the object does not have it.
pub(crate) fn condition(object: &Value, type_: &str) -> Option<(String, String)> {
    let all = object["status"]["conditions"].as_array()?;
    let found = all.iter().find(|it| it["type"] == type_)?;
    let text = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
    Some((text("status"), text("reason")))
}

/// Waits until the condition of an object of the stage's namespace has this status and reason.
pub(crate) async fn says(
    stage: &Stage,
    kind: &str,
    name: &str,
    type_: &str,
    want: Option<(&str, &str)>,
) {
    let want = want.map(|(status, reason)| (status.to_owned(), reason.to_owned()));
    eventually(&format!("{kind} {name} says {type_} {want:?}"), || async {
        let object = match kind {
            "LoadBalancer" => stage.cluster.read(kind, "", name).await,
            _ => stage.read(kind, name).await,
        };
        let found = condition(&object, type_);
        if found == want { Ok(()) } else { Err(object["status"].to_string()) }
    })
    .await;
}

/// Waits until the load balancer of the stage has this phase, and is degraded or not.
pub(crate) async fn load_balancer_is(stage: &Stage, phase: &str, degraded: bool) {
    let degraded = if degraded { "True" } else { "False" };
    eventually(&format!("the load balancer is {phase}, degraded: {degraded}"), || async {
        let object = stage.cluster.read("LoadBalancer", "", &stage.lb).await;
        let found = condition(&object, "Degraded").map(|(status, _)| status);
        let same = object["status"]["phase"] == phase && found.as_deref() == Some(degraded);
        if same { Ok(()) } else { Err(object["status"].to_string()) }
    })
    .await;
}
