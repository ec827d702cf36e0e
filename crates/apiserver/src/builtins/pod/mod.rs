//! The rules of Pods and of the pod templates of workloads: defaults, the initial status of a Pod, and
//! the validation that people meet when they write Pods. Fields that only a kubelet uses are not
//! checked. The write path calls the rules; they do no I/O.

mod defaults;
mod validate;

pub(super) use defaults::template_spec;
pub(super) use validate::pod_spec;

use super::fields::{child, default, default_text, has, list, put, set, text, unset_times};
use super::quantity::Quantity;
use crate::error::FieldError;
use crate::kind::Rules;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The rules of Pods.
pub struct PodRules;

/// The longest grace period: longer than anything runs. Times beyond it could not be written.
const LONGEST_GRACE: i64 = 100 * 365 * 86_400;

impl Rules for PodRules {
    /// A Pod on a node gets a grace period.
    fn grace(&self, object: &Value, asked: Option<i64>) -> i64 {
        let node = object["spec"]["nodeName"].as_str().unwrap_or_default();
        let ended = matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        if node.is_empty() || ended {
            return 0;
        }
        let own = object["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(30);
        asked.unwrap_or(own).clamp(0, LONGEST_GRACE)
    }

    fn answers_with_deleted(&self) -> bool {
        true
    }

    fn default(&self, object: &mut Value) {
        if let Some(spec) = child(object, "spec") {
            defaults::pod_spec(spec);
        }
        if let Some(status) = object.get_mut("status") {
            unset_times(status, &["lastProbeTime", "lastTransitionTime"]);
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        if let Some(spec) = child(object, "spec") {
            default(spec, "priority", 0);
            default_text(spec, "preemptionPolicy", "PreemptLowerPriority");
            tolerate_lost_nodes(spec);
        }
        let status = json!({"phase": "Pending", "qosClass": qos_class(&object["spec"])});
        set(object, "status", status);
    }

    fn prepare_update(&self, object: &mut Value, old: &Value) {
        if let Some(spec) = child(object, "spec") {
            tolerate_lost_nodes(spec);
            for field in ["priority", "preemptionPolicy"] {
                if !has(spec, field) {
                    put(spec, field, old["spec"][field].clone());
                }
            }
        }
    }

    fn validate(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        validate::pod(object, old)
    }

    fn selectable_value(&self, object: &Value, field: &str) -> Option<String> {
        (field == "spec.hostNetwork").then(|| (object["spec"]["hostNetwork"] == true).to_string())
    }
}

/// A Pod stays on a lost node for five minutes, unless it says otherwise.
fn tolerate_lost_nodes(spec: &mut Value) {
    let mut all = list(spec, "tolerations").to_vec();
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let covers = |toleration: &Value| {
            ["", key].contains(&text(toleration, "key"))
                && ["", "NoExecute"].contains(&text(toleration, "effect"))
        };
        if !all.iter().any(covers) {
            all.push(json!({
                "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300,
            }));
        }
    }
    if !has(spec, "tolerations") || spec["tolerations"].is_array() {
        set(spec, "tolerations", json!(all));
    }
}

fn qos_class(spec: &Value) -> &'static str {
    let mut requests: BTreeMap<&str, i128> = BTreeMap::new();
    let mut limits: BTreeMap<&str, i128> = BTreeMap::new();
    let mut all_limited = true;
    for container in list(spec, "containers").iter().chain(list(spec, "initContainers")) {
        for (field, sums) in [("requests", &mut requests), ("limits", &mut limits)] {
            let mut counted = 0;
            for name in ["cpu", "memory"] {
                let given = Quantity::read(&container["resources"][field][name]);
                if let Some(quantity) = given.filter(|quantity| quantity.positive()) {
                    *sums.entry(name).or_default() += quantity.amount();
                    counted += 1;
                }
            }
            all_limited &= field == "requests" || counted == 2;
        }
    }
    if requests.is_empty() && limits.is_empty() {
        "BestEffort"
    } else if all_limited && requests == limits {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_pod_is_pending() {
        let mut pod = json!({
            "spec": {"containers": [{"name": "a", "image": "x"}], "tolerations": [{"key": "node.kubernetes.io/not-ready"}]},
            "status": {"phase": "Running"},
        });
        PodRules.default(&mut pod);
        PodRules.prepare_create(&mut pod);
        assert_eq!(pod["status"], json!({"phase": "Pending", "qosClass": "BestEffort"}));
        assert_eq!(pod["spec"]["priority"], 0);
        assert_eq!(
            pod["spec"]["tolerations"],
            json!([
                {"key": "node.kubernetes.io/not-ready"},
                {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
            ])
        );
        assert_eq!(PodRules.selectable_value(&pod, "spec.hostNetwork"), Some("false".to_owned()));
    }

    #[test]
    fn times_of_conditions_that_are_not_there_are_written_out() {
        let mut pod = json!({"spec": {}, "status": {"conditions": [{"type": "Ready", "lastProbeTime": "t"}]}});
        PodRules.default(&mut pod);
        assert_eq!(
            pod["status"]["conditions"],
            json!([{"type": "Ready", "lastProbeTime": "t", "lastTransitionTime": null}])
        );
    }

    #[test]
    fn quality_of_service_follows_from_the_resources() {
        let class =
            |resources: Value| qos_class(&json!({"containers": [{"resources": resources}]}));
        assert_eq!(class(json!({})), "BestEffort");
        assert_eq!(class(json!({"requests": {"cpu": "1"}})), "Burstable");
        let both = json!({"cpu": "1", "memory": "1Gi"});
        assert_eq!(
            class(json!({"requests": both, "limits": {"cpu": "1000m", "memory": "1024Mi"}})),
            "Guaranteed"
        );
        assert_eq!(class(json!({"requests": {"cpu": "1"}, "limits": both})), "Burstable");
    }
}
