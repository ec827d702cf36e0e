//! The system under examination: what a client meets, and what the tools say about it.

use crate::stage::{PROGRAM, Stage};
use bowline_core::outcome::Reason;
use bowline_core::remedy;
use bowline_testing::eventually;
use serde_json::Value;
use tokio::process::Command;

/// A problem as `bowline explain -o json` shows it.
#[derive(Debug, PartialEq)]
pub(crate) struct Found {
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) remedy: Option<String>,
}

/// What `bowline explain -o json` says about an object.
pub(crate) async fn explain(stage: &Stage, object: &str) -> Value {
    let output = Command::new(PROGRAM)
        .args(["explain", object, "-n", &stage.namespace, "-o", "json"])
        .env("KUBECONFIG", stage.cluster.kubeconfig())
        .output()
        .await
        .expect("run bowline");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    serde_json::from_slice(&output.stdout).expect("JSON")
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
    eventually(&format!("{object} suffers from {reason}"), || async {
        let found = problems(stage, object).await;
        match found.iter().find(|it| it.reason == reason.to_string()) {
            Some(it) if it.remedy == what => Ok(it.message.clone()),
            _ => Err(format!("{found:?}")),
        }
    })
    .await
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
