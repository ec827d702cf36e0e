//! The cells of Pods. The status of a Pod is one word, which depends on its containers in a certain
//! order.

use super::{list, number, or, since, text};
use crate::kind::Kind;
use jiff::Timestamp;
use serde_json::{Value, json};

/// The values of the columns Ready, Status and Restarts.
struct Summary {
    ready: usize,
    total: usize,
    reason: String,
    restarts: Restarts,
}

/// How often containers restarted, and when the last of them had ended.
#[derive(Clone, Default)]
struct Restarts {
    count: i64,
    last: String,
}

impl Restarts {
    fn add(&mut self, container: &Value) {
        self.count = self.count.saturating_add(number(&container["restartCount"]));
        let ended = text(&container["lastState"]["terminated"]["finishedAt"]);
        let time = |text: &str| text.parse::<Timestamp>().ok();
        if time(&self.last) < time(ended) {
            self.last = ended.to_owned();
        }
    }
}

fn summary(pod: &Value) -> Summary {
    let (spec, status) = (&pod["spec"], &pod["status"]);
    let phase = text(&status["phase"]);
    let conditions = list(&status["conditions"]);
    let gated = |c: &Value| c["type"] == "PodScheduled" && c["reason"] == "SchedulingGated";
    let sidecars: Vec<&str> = list(&spec["initContainers"])
        .iter()
        .filter(|container| container["restartPolicy"] == "Always")
        .map(|container| text(&container["name"]))
        .collect();
    let mut summary = Summary {
        ready: 0,
        total: list(&spec["containers"]).len() + sidecars.len(),
        reason: or(text(&status["reason"]), phase).to_owned(),
        restarts: Restarts::default(),
    };
    if conditions.iter().any(gated) {
        summary.reason = "SchedulingGated".to_owned();
    }
    let (initializing, of_sidecars) = initialize(&mut summary, pod, &sidecars);
    if !initializing || is_true(conditions, "Initialized") {
        summary.restarts = of_sidecars;
        run(&mut summary, pod);
    }
    if pod["metadata"]["deletionTimestamp"].is_string() {
        if status["reason"] == "NodeLost" {
            summary.reason = "Unknown".to_owned();
        } else if !matches!(phase, "Succeeded" | "Failed") {
            summary.reason = "Terminating".to_owned();
        }
    }
    summary
}

/// Reads the init containers up to the first that is not done. Returns whether there is one, and the
/// restarts of sidecars.
fn initialize(summary: &mut Summary, pod: &Value, sidecars: &[&str]) -> (bool, Restarts) {
    let mut of_sidecars = Restarts::default();
    for (at, container) in list(&pod["status"]["initContainerStatuses"]).iter().enumerate() {
        let sidecar = sidecars.contains(&text(&container["name"]));
        summary.restarts.add(container);
        if sidecar {
            of_sidecars.add(container);
        }
        let terminated = container["state"].get("terminated").filter(|t| t.is_object());
        let waiting = text(&container["state"]["waiting"]["reason"]);
        summary.reason = match terminated {
            Some(end) if number(&end["exitCode"]) == 0 => continue,
            _ if sidecar && container["started"] == true => {
                summary.ready += usize::from(container["ready"] == true);
                continue;
            }
            Some(end) => format!("Init:{}", ending(end)),
            None if !matches!(waiting, "" | "PodInitializing") => format!("Init:{waiting}"),
            None => format!("Init:{at}/{}", list(&pod["spec"]["initContainers"]).len()),
        };
        return (true, of_sidecars);
    }
    (false, of_sidecars)
}

/// Reads the containers, the last one first.
fn run(summary: &mut Summary, pod: &Value) {
    let (mut running, mut error) = (false, String::new());
    for container in list(&pod["status"]["containerStatuses"]).iter().rev() {
        summary.restarts.add(container);
        let state = &container["state"];
        let waiting = text(&state["waiting"]["reason"]);
        if !waiting.is_empty() {
            summary.reason = waiting.to_owned();
        } else if state["terminated"].is_object() {
            summary.reason = ending(&state["terminated"]);
            if number(&state["terminated"]["exitCode"]) != 0 {
                error.clone_from(&summary.reason);
            }
        } else if container["ready"] == true && state["running"].is_object() {
            running = true;
            summary.ready += 1;
        }
    }
    if summary.reason == "Completed" {
        if running && is_true(list(&pod["status"]["conditions"]), "Ready") {
            summary.reason = "Running".to_owned();
        } else if !error.is_empty() {
            summary.reason = error;
        } else if running {
            summary.reason = "NotReady".to_owned();
        }
    }
}

/// The reason why a container ended.
fn ending(terminated: &Value) -> String {
    match (text(&terminated["reason"]), number(&terminated["signal"])) {
        ("", 0) => format!("ExitCode:{}", number(&terminated["exitCode"])),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn is_true(conditions: &[Value], type_: &str) -> bool {
    conditions.iter().find(|c| c["type"] == type_).is_some_and(|c| c["status"] == "True")
}

pub(super) fn ready(pod: &Value, _now: Timestamp) -> Value {
    let summary = summary(pod);
    json!(format!("{}/{}", summary.ready, summary.total))
}

pub(super) fn status(pod: &Value, _now: Timestamp) -> Value {
    json!(summary(pod).reason)
}

pub(super) fn restarts(pod: &Value, now: Timestamp) -> Value {
    match summary(pod).restarts {
        Restarts { count, last } if count != 0 && !last.is_empty() => {
            json!(format!("{count} ({} ago)", since(&json!(last), now)))
        }
        Restarts { count, .. } => json!(count.to_string()),
    }
}

pub(super) fn ip(pod: &Value, _now: Timestamp) -> Value {
    json!(or(text(&pod["status"]["podIPs"][0]["ip"]), "<none>"))
}

pub(super) fn node(pod: &Value, _now: Timestamp) -> Value {
    json!(or(text(&pod["spec"]["nodeName"]), "<none>"))
}

pub(super) fn nominated_node(pod: &Value, _now: Timestamp) -> Value {
    json!(or(text(&pod["status"]["nominatedNodeName"]), "<none>"))
}

pub(super) fn readiness_gates(pod: &Value, _now: Timestamp) -> Value {
    let gates = list(&pod["spec"]["readinessGates"]);
    if gates.is_empty() {
        return json!("<none>");
    }
    let conditions = list(&pod["status"]["conditions"]);
    let open =
        gates.iter().filter(|gate| is_true(conditions, text(&gate["conditionType"]))).count();
    json!(format!("{open}/{}", gates.len()))
}

/// The condition of a row whose Pod has ended, by which clients can hide it.
pub(super) fn row_condition(kind: &Kind, pod: &Value) -> Option<Value> {
    if (kind.group.as_str(), kind.kind.as_str()) != ("", "Pod") {
        return None;
    }
    let (reason, message) = match text(&pod["status"]["phase"]) {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!({"type": "Completed", "status": "True", "reason": reason, "message": message}))
}
