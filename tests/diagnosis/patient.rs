//! The system under examination: what a client meets, and what the tools say about it.

use crate::stage::{PROGRAM, Stage};
use bowline_core::diagnosis::RoleProblem;
use bowline_core::outcome::Reason;
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

/// What is wrong with a Service or Ingress of the stage, and the words of the printed remedy that the test follows.
pub(crate) struct Wrong<'a> {
    pub(crate) kind: &'a str,
    pub(crate) name: &'a str,
    pub(crate) reason: Reason,
    pub(crate) helps: &'a str,
}

/// Waits until `explain`, the status, an Event and, of a Service, a condition agree on what is wrong, no longer than ten
/// seconds after it was broken. Returns the message. What is wrong with the load balancer of several consumers is said of it
/// once by the status.
pub(crate) async fn all_tell(stage: &Stage, wrong: Wrong<'_>, broken: Instant) -> String {
    let Wrong { kind, name, reason, helps } = wrong;
    let object = format!("{}/{name}", kind.to_lowercase());
    let found = finds(stage, &object, &reason.to_string(), SOON).await;
    let printed = words(stage, &object).await;
    assert!(printed.contains("What helps") && printed.contains(helps), "{helps:?}: {printed}");
    stage.told(kind, name, &reason.to_string()).await;
    if kind == "Service" {
        has_condition(stage, name, reason, &found.message).await;
    }
    let who = format!("{kind} {}/{name}", stage.namespace);
    eventually(&format!("the status names {reason} of {who}"), || async {
        let status = run(stage, &["status"]).await;
        let line = status.split_whitespace().collect::<Vec<_>>().join(" ");
        let lb = &stage.lb;
        let said = match reason {
            Reason::LoadBalancerDeleting => {
                format!("{lb}: it is being deleted; consumers in {} still use it", stage.namespace)
            }
            Reason::BindFailed if kind == "Ingress" => {
                format!("LoadBalancer {lb} on {lb}: {reason}: ")
            }
            _ => format!("{who} on {lb}: {reason}: "),
        };
        let said = [said, format!("{who}: {reason}: ")];
        if said.iter().any(|it| line.contains(it)) { Ok(()) } else { Err(status) }
    })
    .await;
    assert!(broken.elapsed() <= SOON, "{reason} was told everywhere after {:?}", broken.elapsed());
    found.message
}

/// Waits until a condition of a Service has this reason, or its message this sentence.
async fn has_condition(stage: &Stage, name: &str, reason: Reason, message: &str) {
    eventually(&format!("a condition of Service {name} tells {reason}"), || async {
        let service = stage.read("Service", name).await;
        let all = service["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let tells = |it: &Value| {
            let said = it["message"].as_str().unwrap_or_default();
            it["reason"] == reason.to_string() || said.contains(message)
        };
        if all.iter().any(tells) { Ok(()) } else { Err(service["status"].to_string()) }
    })
    .await;
}

/// Waits until `explain` names a problem of the leader or the agents, some of which only an ended Lease tells, with its
/// remedy. Returns its message.
pub(crate) async fn suffers_from_role(stage: &Stage, object: &str, problem: RoleProblem) -> String {
    let within = match problem {
        RoleProblem::NoLeader | RoleProblem::AgentSilent => LEASE + SOON,
        _ => SOON,
    };
    let found = finds(stage, object, &problem.to_string(), within).await;
    assert_eq!(found.remedy.as_deref(), problem.remedy().map(|it| it.what), "{problem}");
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

/// Waits until `explain`, the status and the conditions find nothing wrong with a Service or Ingress of the stage.
pub(crate) async fn is_well(stage: &Stage, object: &str) {
    let (kind, name) = object.split_once('/').expect("a kind and a name");
    let kind = if kind == "service" { "Service" } else { "Ingress" };
    let who = format!("{kind} {}/{name}", stage.namespace);
    eventually(&format!("{object} is well"), || async {
        let found = problems(stage, object).await;
        if !found.is_empty() {
            return Err(format!("{found:?}"));
        }
        let status = run(stage, &["status"]).await;
        let line = status.split_whitespace().collect::<Vec<_>>().join(" ");
        if line.contains(&format!("- {who}: ")) || line.contains(&format!("- {who} on ")) {
            return Err(status);
        }
        let object = stage.read(kind, name).await;
        let of = |type_| condition(&object, type_).map(|(status, _)| status);
        let (programmed, degraded) = (of("bowline.dev/Programmed"), of("bowline.dev/Degraded"));
        let good = programmed.as_deref() == Some("True") && degraded.is_none();
        if good || kind == "Ingress" { Ok(()) } else { Err(object["status"].to_string()) }
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

/// Waits until the load balancer of the stage has this phase, and is degraded or not, and the status says so.
pub(crate) async fn load_balancer_is(stage: &Stage, phase: &str, degraded: bool) {
    eventually(&format!("the status says {phase}, degraded: {degraded}"), || async {
        let text = run(stage, &["status", "-o", "json"]).await;
        let status: Value = serde_json::from_str(&text).expect("JSON");
        let all = status["loadBalancers"].as_array().cloned().unwrap_or_default();
        let same = |it: &Value| {
            it["name"] == *stage.lb && it["phase"] == phase && it["degraded"] == degraded
        };
        if all.iter().any(same) { Ok(()) } else { Err(text) }
    })
    .await;
    let degraded = if degraded { "True" } else { "False" };
    eventually(&format!("the load balancer is {phase}, degraded: {degraded}"), || async {
        let object = stage.cluster.read("LoadBalancer", "", &stage.lb).await;
        let found = condition(&object, "Degraded").map(|(status, _)| status);
        let same = object["status"]["phase"] == phase && found.as_deref() == Some(degraded);
        if same { Ok(()) } else { Err(object["status"].to_string()) }
    })
    .await;
}
