//! The rules of Namespaces, Nodes and Leases.

use super::fields::{Findings, child, default, has, list, put, set, text, texts};
use super::ip;
use crate::error::FieldError;
use crate::kind::Rules;
use crate::meta;
use crate::names::{self, NameRule};
use serde_json::{Value, json};

/// The finalizer by which the server itself holds a Namespace until it is empty.
pub const NAMESPACE_FINALIZER: &str = "kubernetes";

const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// The rules of Namespaces.
pub struct NamespaceRules;

impl Rules for NamespaceRules {
    fn name_rule(&self) -> NameRule {
        names::name_is_label
    }

    fn has_generation(&self) -> bool {
        false
    }

    fn default(&self, object: &mut Value) {
        let name = meta::name(object).to_owned();
        if !name.is_empty()
            && let Some(labels) = child(object, "metadata").and_then(|meta| child(meta, "labels"))
        {
            set(labels, NAME_LABEL, json!(name));
        }
        child(object, "spec");
        if let Some(status) = child(object, "status") {
            default(status, "phase", "Active");
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        set(object, "status", json!({"phase": "Active"}));
        if let Some(spec) = child(object, "spec")
            && !texts(spec, "finalizers").contains(&NAMESPACE_FINALIZER)
        {
            let mut all = list(spec, "finalizers").to_vec();
            all.push(json!(NAMESPACE_FINALIZER));
            set(spec, "finalizers", json!(all));
        }
        // Once more, for a name that was generated after the defaults.
        self.default(object);
    }

    fn prepare_update(&self, object: &mut Value, old: &Value) {
        if let Some(spec) = child(object, "spec") {
            put(spec, "finalizers", old["spec"]["finalizers"].clone());
        }
    }

    fn validate(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let mut found = Findings::default();
        if old.is_none() {
            let field = "spec.finalizers";
            for name in texts(&object["spec"], "finalizers") {
                found.each(field, name, names::is_qualified_name(name));
                if !name.contains('/')
                    && !["kubernetes", "orphan", "foregroundDeletion"].contains(&name)
                {
                    found.invalid(
                        field,
                        name,
                        "name is neither a standard finalizer name nor is it fully qualified",
                    );
                }
            }
        }
        found.done()
    }
}

/// The rules of Nodes.
pub struct NodeRules;

impl Rules for NodeRules {
    fn has_generation(&self) -> bool {
        false
    }

    fn default(&self, object: &mut Value) {
        child(object, "spec");
        if let Some(status) = object.get_mut("status")
            && has(status, "capacity")
        {
            let capacity = status["capacity"].clone();
            default(status, "allocatable", capacity);
        }
    }

    fn validate(&self, object: &Value, _old: Option<&Value>) -> Vec<FieldError> {
        let mut found = Findings::default();
        let spec = &object["spec"];
        let taints = list(spec, "taints");
        for (i, taint) in taints.iter().enumerate() {
            let at = format!("metadata.taints[{i}]");
            let (key, value, effect) =
                (text(taint, "key"), text(taint, "value"), text(taint, "effect"));
            found.each(&format!("{at}.key"), key, names::is_qualified_name(key));
            let wrong = names::is_label_value(value);
            if !wrong.is_empty() {
                found.invalid(format!("{at}.value"), value, wrong.join(";"));
            }
            let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
            found.one_of(&format!("{at}.effect"), effect, &effects);
            let same = |other: &Value| text(other, "key") == key && text(other, "effect") == effect;
            if taints[..i].iter().any(same) {
                let mut error = FieldError::duplicate(at, taint);
                error.detail = "taints must be unique by key and effect pair".to_owned();
                found.push(error);
            }
        }
        let cidrs = texts(spec, "podCIDRs");
        for (i, cidr) in cidrs.iter().enumerate() {
            found.extend(ip::check_cidr(&format!("spec.podCIDRs[{i}]"), cidr, &[]));
        }
        let v6 = cidrs.iter().filter(|cidr| cidr.contains(':')).count();
        if cidrs.len() > 2 || (cidrs.len() == 2 && v6 != 1) {
            let words = "may specify no more than one CIDR for each IP family";
            found.invalid("spec.podCIDRs", spec["podCIDRs"].clone(), words);
        }
        found.done()
    }

    fn validate_status(&self, object: &Value, _old: &Value) -> Vec<FieldError> {
        let mut found = Findings::default();
        let addresses = list(&object["status"], "addresses");
        for (i, address) in addresses.iter().enumerate() {
            if addresses[..i].contains(address) {
                found.duplicate(format!("status.addresses[{i}]"), address.clone());
            }
        }
        found.done()
    }

    fn selectable_value(&self, object: &Value, field: &str) -> Option<String> {
        (field == "spec.unschedulable")
            .then(|| (object["spec"]["unschedulable"] == true).to_string())
    }
}

/// The rules of Leases.
pub struct LeaseRules;

impl Rules for LeaseRules {
    fn has_generation(&self) -> bool {
        false
    }

    fn default(&self, object: &mut Value) {
        child(object, "spec");
    }

    fn validate(&self, object: &Value, _old: Option<&Value>) -> Vec<FieldError> {
        let mut found = Findings::default();
        let spec = &object["spec"];
        let seconds = &spec["leaseDurationSeconds"];
        if seconds.as_i64().is_some_and(|seconds| seconds <= 0) {
            found.invalid("spec.leaseDurationSeconds", seconds.clone(), "must be greater than 0");
        }
        found.not_negative("spec.leaseTransitions", &spec["leaseTransitions"]);
        let strategy = text(spec, "strategy");
        if let Some(strategy) = spec["strategy"].as_str() {
            let known = ["OldestEmulationVersion"];
            if !strategy.contains('/') && !known.contains(&strategy) {
                let error = FieldError::not_supported("spec.strategy", &json!(strategy), &known);
                found.push(error);
            }
        }
        if !text(spec, "preferredHolder").is_empty() && strategy.is_empty() {
            let words = "may only be specified if `strategy` is defined";
            found.forbidden("spec.preferredHolder", words);
        }
        found.done()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(errors: Vec<FieldError>) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_namespace_is_active_named_and_held() {
        let mut namespace =
            json!({"metadata": {"name": "shop"}, "status": {"phase": "Terminating"}});
        NamespaceRules.default(&mut namespace);
        NamespaceRules.prepare_create(&mut namespace);
        assert_eq!(
            namespace,
            json!({
                "metadata": {"name": "shop", "labels": {"kubernetes.io/metadata.name": "shop"}},
                "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
            })
        );
        let mut changed = namespace.clone();
        changed["spec"] = json!({});
        NamespaceRules.prepare_update(&mut changed, &namespace);
        assert_eq!(changed, namespace, "finalizers are not for writers of the main resource");
        let odd = json!({"spec": {"finalizers": ["mine"]}});
        assert_eq!(
            said(NamespaceRules.validate(&odd, None)),
            [
                "spec.finalizers: Invalid value: \"mine\": name is neither a standard finalizer name nor is it fully qualified"
            ]
        );
    }

    #[test]
    fn taints_of_a_node_are_unique() {
        let taint = json!({"key": "a", "effect": "NoSchedule"});
        let node =
            json!({"spec": {"taints": [taint, taint], "podCIDRs": ["10.0.0.0/24", "10.0.1.0/24"]}});
        assert_eq!(
            said(NodeRules.validate(&node, None)),
            [
                "metadata.taints[1]: Duplicate value: {\"effect\":\"NoSchedule\",\"key\":\"a\"}: taints must be unique \
                 by key and effect pair",
                "spec.podCIDRs: Invalid value: [\"10.0.0.0/24\",\"10.0.1.0/24\"]: may specify no more than one CIDR for \
                 each IP family",
            ]
        );
        assert_eq!(
            NodeRules.selectable_value(&json!({}), "spec.unschedulable"),
            Some("false".to_owned())
        );
    }

    #[test]
    fn a_lease_lasts_a_while() {
        let lease = |spec: Value| said(LeaseRules.validate(&json!({"spec": spec}), None));
        assert_eq!(
            lease(json!({"leaseDurationSeconds": 15, "leaseTransitions": 0})),
            Vec::<String>::new()
        );
        assert_eq!(
            lease(json!({"leaseDurationSeconds": 0, "leaseTransitions": -1})),
            [
                "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
                "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0",
            ]
        );
        assert_eq!(lease(json!({"preferredHolder": "me"})).len(), 1);
    }
}
