//! The rules of Deployments and StatefulSets: defaults and validation. These objects are stored and
//! scaled, not run. The write path calls the rules; they do no I/O.

use super::fields::{
    Findings, child, default, default_text, entries, has, int, items, list, set, text, texts,
    unset_times,
};
use super::metadata::{check_labels, check_selector};
use super::pod::{pod_spec, template_spec};
use crate::error::FieldError;
use crate::kind::Rules;
use crate::names::{self, NameRule};
use serde_json::{Value, json};

/// The rules of Deployments.
pub struct DeploymentRules;

impl Rules for DeploymentRules {
    fn default(&self, object: &mut Value) {
        if let Some(status) = object.get_mut("status") {
            unset_times(status, &["lastUpdateTime", "lastTransitionTime"]);
        }
        let Some(spec) = child(object, "spec") else { return };
        default(spec, "replicas", 1);
        default(spec, "revisionHistoryLimit", 10);
        default(spec, "progressDeadlineSeconds", 600);
        if let Some(strategy) = child(spec, "strategy") {
            default_text(strategy, "type", "RollingUpdate");
            if text(strategy, "type") == "RollingUpdate"
                && let Some(rolling) = child(strategy, "rollingUpdate")
            {
                default(rolling, "maxUnavailable", "25%");
                default(rolling, "maxSurge", "25%");
            }
        }
        template(spec);
    }

    fn prepare_create(&self, object: &mut Value) {
        set(object, "status", json!({}));
    }

    fn validate(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let mut found = Findings::default();
        let spec = &object["spec"];
        found.not_negative("spec.replicas", &spec["replicas"]);
        if selector(spec, "deployment", &mut found) {
            check_template(spec, "ReplicaSet", &[], &mut found);
        }
        strategy(&spec["strategy"], &mut found);
        for field in ["minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"] {
            found.not_negative(&format!("spec.{field}"), &spec[field]);
        }
        if int(spec, "progressDeadlineSeconds") <= int(spec, "minReadySeconds") {
            found.invalid(
                "spec.progressDeadlineSeconds",
                spec["progressDeadlineSeconds"].clone(),
                "must be greater than minReadySeconds",
            );
        }
        if let Some(old) = old {
            found.immutable("spec.selector", &spec["selector"], &old["spec"]["selector"]);
        }
        found.done()
    }

    fn generation_changes(&self, object: &Value, old: &Value) -> bool {
        object["spec"] != old["spec"]
            || object["metadata"]["annotations"] != old["metadata"]["annotations"]
    }
}

fn template(spec: &mut Value) {
    let template = child(spec, "template");
    let Some(template) = template else { return };
    child(template, "metadata");
    if let Some(pod) = child(template, "spec") {
        template_spec(pod);
    }
}

/// Validates a selector. Returns whether it can be read.
fn selector(spec: &Value, kind: &str, found: &mut Findings) -> bool {
    let field = "spec.selector";
    let selector = &spec["selector"];
    if selector.is_null() {
        found.required(field, "");
        return true;
    }
    let mut wrong = Findings::default();
    check_selector(selector, field, &mut wrong);
    let readable = wrong.none();
    found.extend(wrong.done());
    if entries(selector, "matchLabels").next().is_none()
        && list(selector, "matchExpressions").is_empty()
    {
        found.invalid(field, selector.clone(), format!("empty selector is invalid for {kind}"));
    }
    if !readable {
        let words = if kind == "deployment" { "invalid label selector" } else { "" };
        found.invalid(field, selector.clone(), words);
    }
    readable
}

fn check_template(spec: &Value, kind: &str, claims: &[&str], found: &mut Findings) {
    let template = &spec["template"];
    let labels = &template["metadata"]["labels"];
    // No selector matches nothing; an empty selector matches everything.
    if !has(spec, "selector") || !matches(&spec["selector"], labels) {
        found.invalid(
            "spec.template.metadata.labels",
            labels.clone(),
            "`selector` does not match template `labels`",
        );
    }
    check_labels(labels, "spec.template.labels", found);
    let at = "spec.template.spec";
    pod_spec(&template["spec"], at, claims, found);
    let policy = text(&template["spec"], "restartPolicy");
    if policy != "Always" {
        let field = format!("{at}.restartPolicy");
        found.push(FieldError::not_supported(field, &json!(policy), &["Always"]));
    }
    if has(&template["spec"], "activeDeadlineSeconds") {
        found.forbidden(
            format!("{at}.activeDeadlineSeconds"),
            format!("activeDeadlineSeconds in {kind} is not Supported"),
        );
    }
}

/// Whether labels match a selector.
fn matches(selector: &Value, labels: &Value) -> bool {
    entries(selector, "matchLabels").all(|(key, value)| labels[key] == *value)
        && list(selector, "matchExpressions").iter().all(|requirement| {
            let value = labels[text(requirement, "key")].as_str();
            let values = texts(requirement, "values");
            match text(requirement, "operator") {
                "In" => value.is_some_and(|value| values.contains(&value)),
                "NotIn" => !value.is_some_and(|value| values.contains(&value)),
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => true,
            }
        })
}

fn strategy(strategy: &Value, found: &mut Findings) {
    let at = "spec.strategy.rollingUpdate";
    match text(strategy, "type") {
        "Recreate" => {
            if has(strategy, "rollingUpdate") {
                found.forbidden(at, "may not be specified when strategy `type` is 'Recreate'");
            }
        }
        "RollingUpdate" => {
            let rolling = &strategy["rollingUpdate"];
            let (unavailable, surge) = (&rolling["maxUnavailable"], &rolling["maxSurge"]);
            int_or_percent(unavailable, &format!("{at}.maxUnavailable"), found);
            int_or_percent(surge, &format!("{at}.maxSurge"), found);
            let field = format!("{at}.maxUnavailable");
            if amount(unavailable) == 0 && amount(surge) == 0 {
                let words = "may not be 0 when `maxSurge` is 0";
                found.invalid(field.as_str(), unavailable.clone(), words);
            }
            if unavailable.is_string() && amount(unavailable) > 100 {
                found.invalid(field, unavailable.clone(), "must not be greater than 100%");
            }
        }
        _ => {
            let known = ["Recreate", "RollingUpdate"];
            let mut error = FieldError::not_supported("spec.strategy", strategy, &known);
            error.value = Some(shown_strategy(strategy));
            found.push(error);
        }
    }
}

/// A strategy of an unknown type, in kube-apiserver's internal form, as its messages show it.
fn shown_strategy(strategy: &Value) -> String {
    let kind = json!(text(strategy, "type"));
    format!("{{\"Type\":{kind},\"RollingUpdate\":{}}}", strategy["rollingUpdate"])
}

fn int_or_percent(value: &Value, field: &str, found: &mut Findings) {
    match value {
        Value::String(percent) => found.each(field, percent.as_str(), names::is_percent(percent)),
        other => found.not_negative(field, other),
    }
}

fn amount(value: &Value) -> i64 {
    match value {
        Value::String(percent) => percent.trim_end_matches('%').parse().unwrap_or_default(),
        other => other.as_i64().unwrap_or_default(),
    }
}

/// The rules of StatefulSets.
pub struct StatefulSetRules;

impl Rules for StatefulSetRules {
    fn name_rule(&self) -> NameRule {
        names::name_is_label
    }

    fn default(&self, object: &mut Value) {
        if let Some(status) = object.get_mut("status") {
            unset_times(status, &["lastTransitionTime"]);
        }
        let Some(spec) = child(object, "spec") else { return };
        default_text(spec, "podManagementPolicy", "OrderedReady");
        default(spec, "replicas", 1);
        default(spec, "revisionHistoryLimit", 10);
        if let Some(strategy) = child(spec, "updateStrategy") {
            if text(strategy, "type").is_empty() {
                set(strategy, "type", json!("RollingUpdate"));
                default(strategy, "rollingUpdate", json!({}));
            }
            if text(strategy, "type") == "RollingUpdate"
                && let Some(rolling) = strategy.get_mut("rollingUpdate")
            {
                default(rolling, "partition", 0);
            }
        }
        if let Some(policy) = child(spec, "persistentVolumeClaimRetentionPolicy") {
            default_text(policy, "whenDeleted", "Retain");
            default_text(policy, "whenScaled", "Retain");
        }
        for claim in items(spec, "volumeClaimTemplates") {
            set(claim, "apiVersion", json!("v1"));
            set(claim, "kind", json!("PersistentVolumeClaim"));
            if let Some(spec) = child(claim, "spec") {
                default(spec, "volumeMode", "Filesystem");
            }
            if let Some(status) = child(claim, "status") {
                default_text(status, "phase", "Pending");
            }
        }
        template(spec);
    }

    fn prepare_create(&self, object: &mut Value) {
        set(object, "status", json!({"replicas": 0, "availableReplicas": 0}));
    }

    fn validate(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let mut found = Findings::default();
        let spec = &object["spec"];
        let policy = text(spec, "podManagementPolicy");
        if !["OrderedReady", "Parallel"].contains(&policy) {
            let words = "must be 'OrderedReady' or 'Parallel'";
            found.invalid("spec.podManagementPolicy", policy, words);
        }
        update_strategy(&spec["updateStrategy"], &mut found);
        for field in ["whenDeleted", "whenScaled"] {
            let at = "spec.persistentVolumeClaimRetentionPolicy";
            let policy = text(&spec["persistentVolumeClaimRetentionPolicy"], field);
            found.one_of(&format!("{at}.{field}"), policy, &["Delete", "Retain"]);
        }
        found.not_negative("spec.replicas", &spec["replicas"]);
        found.not_negative("spec.minReadySeconds", &spec["minReadySeconds"]);
        found.not_negative("spec.ordinals.start", &spec["ordinals"]["start"]);
        let service = text(spec, "serviceName");
        if old.is_none() && !service.is_empty() {
            found.each("spec.serviceName", service, names::is_dns1123_label(service));
        }
        let readable = selector(spec, "statefulset", &mut found);
        let claims: Vec<&str> = list(spec, "volumeClaimTemplates")
            .iter()
            .map(|claim| text(&claim["metadata"], "name"))
            .collect();
        if readable {
            check_template(spec, "StatefulSet", &claims, &mut found);
        }
        if let Some(old) = old {
            changes(spec, &old["spec"], &mut found);
        }
        found.done()
    }
}

fn update_strategy(strategy: &Value, found: &mut Findings) {
    let at = "spec.updateStrategy";
    let rolling = &strategy["rollingUpdate"];
    match text(strategy, "type") {
        "" => found.required(at, ""),
        "OnDelete" if !rolling.is_null() => found.invalid(
            format!("{at}.rollingUpdate"),
            rolling.clone(),
            "only allowed for updateStrategy 'RollingUpdate'",
        ),
        "OnDelete" => {}
        "RollingUpdate" => {
            found.not_negative(&format!("{at}.rollingUpdate.partition"), &rolling["partition"]);
            let field = format!("{at}.rollingUpdate.maxUnavailable");
            int_or_percent(&rolling["maxUnavailable"], &field, found);
        }
        _ => {
            let words = "must be 'RollingUpdate' or 'OnDelete'";
            let mut error = FieldError::invalid(at, strategy, words);
            error.value = Some(shown_strategy(strategy));
            found.push(error);
        }
    }
}

fn changes(spec: &Value, old: &Value, found: &mut Findings) {
    let mut allowed = spec.clone();
    for field in [
        "replicas",
        "template",
        "updateStrategy",
        "minReadySeconds",
        "ordinals",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
    ] {
        super::fields::put(&mut allowed, field, old[field].clone());
    }
    if allowed != *old {
        found.forbidden(
            "spec",
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
             'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and \
             'minReadySeconds' are forbidden",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(rules: &dyn Rules, changes: Value) -> Value {
        let mut object = json!({"spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "a", "image": "x"}]}},
        }});
        for (key, value) in changes.as_object().unwrap() {
            object["spec"][key] = value.clone();
        }
        rules.default(&mut object);
        object
    }

    fn said(rules: &dyn Rules, changes: Value, old: Option<&Value>) -> Vec<String> {
        let object = workload(rules, changes);
        rules.validate(&object, old).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_deployment_rolls_by_a_quarter() {
        let deployment = workload(&DeploymentRules, json!({}));
        let spec = &deployment["spec"];
        assert_eq!(spec["replicas"], 1);
        assert_eq!(spec["revisionHistoryLimit"], 10);
        assert_eq!(spec["progressDeadlineSeconds"], 600);
        assert_eq!(
            spec["strategy"],
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}})
        );
        assert_eq!(spec["template"]["spec"]["restartPolicy"], "Always");
        assert_eq!(
            spec["template"]["spec"].get("enableServiceLinks"),
            None,
            "that is for Pods only"
        );
    }

    #[test]
    fn a_deployment_selects_its_own_template() {
        let check = |changes: Value| said(&DeploymentRules, changes, None);
        assert_eq!(check(json!({})), Vec::<String>::new());
        assert_eq!(
            check(json!({"selector": null})),
            [
                "spec.selector: Required value",
                "spec.template.metadata.labels: Invalid value: {\"app\":\"web\"}: `selector` does not match template `labels`"
            ]
        );
        assert_eq!(
            check(json!({"selector": {}})),
            ["spec.selector: Invalid value: {}: empty selector is invalid for deployment"]
        );
        assert_eq!(
            check(json!({"selector": {"matchLabels": {"app": "other"}}})),
            [
                "spec.template.metadata.labels: Invalid value: {\"app\":\"web\"}: `selector` does not match template `labels`"
            ]
        );
        assert_eq!(
            check(
                json!({"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": "0%"}}})
            ),
            [
                "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: \"0%\": may not be 0 when `maxSurge` is 0"
            ]
        );
        assert_eq!(
            check(json!({"replicas": -1})),
            ["spec.replicas: Invalid value: -1: must be greater than or equal to 0"]
        );
        assert_eq!(
            check(json!({"strategy": {"type": "Recreate", "rollingUpdate": {}}})),
            [
                "spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'"
            ]
        );
        let old = workload(&DeploymentRules, json!({}));
        let changed =
            json!({"selector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}});
        assert_eq!(said(&DeploymentRules, changed, Some(&old)).len(), 1);
        assert!(
            DeploymentRules
                .generation_changes(&json!({"metadata": {"annotations": {"a": "b"}}}), &json!({}))
        );
    }

    #[test]
    fn a_stateful_set_keeps_most_of_its_spec() {
        let old = workload(&StatefulSetRules, json!({"serviceName": "web"}));
        assert_eq!(
            old["spec"]["updateStrategy"],
            json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}})
        );
        assert_eq!(old["spec"]["podManagementPolicy"], "OrderedReady");
        let check = |changes: Value| said(&StatefulSetRules, changes, Some(&old));
        assert_eq!(check(json!({"serviceName": "web", "replicas": 3})), Vec::<String>::new());
        assert_eq!(
            check(json!({"serviceName": "other"})),
            [
                "spec: Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
              'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are \
              forbidden"
            ]
        );
        let mounted = json!({
            "volumeClaimTemplates": [{"metadata": {"name": "data"}}],
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [
                {"name": "a", "image": "x", "volumeMounts": [{"name": "data", "mountPath": "/d"}]}]}},
        });
        assert_eq!(said(&StatefulSetRules, mounted, None), Vec::<String>::new());
    }

    #[test]
    fn nothing_panics_on_values_of_the_wrong_type() {
        for mut object in [
            json!(1),
            json!({"spec": []}),
            json!({"spec": {"strategy": 1, "template": "x", "selector": 3}}),
        ] {
            let old = object.clone();
            for rules in [&DeploymentRules as &dyn Rules, &StatefulSetRules] {
                rules.default(&mut object);
                rules.validate(&object, Some(&old));
            }
        }
    }
}
