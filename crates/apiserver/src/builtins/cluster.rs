//! The rules of Namespaces, Nodes and Leases: defaults and validation. The write path calls them;
//! they do no I/O.

use super::fields::{
    Findings, child, default, has, list, put, remove, set, text, texts, unset_times,
};
use super::ip;
use super::metadata::check_standard_finalizer;
use crate::error::{FieldError, FieldErrorKind};
use crate::kind::Rules;
use crate::meta;
use crate::names::{self, NameRule};
use serde_json::{Value, json};

/// The finalizer by which the server holds a Namespace until it is empty.
pub const NAMESPACE_FINALIZER: &str = "kubernetes";

const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// The rules of Namespaces.
pub struct NamespaceRules;

impl Rules for NamespaceRules {
    fn deletes_collections(&self) -> bool {
        false
    }

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
        // Set the defaults again: the name may have been generated after the first time.
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
                check_standard_finalizer(name, field, &mut found);
            }
        }
        found.done()
    }
}

/// Fields of a Node about itself that are always written.
const NODE_INFO: [&str; 10] = [
    "architecture",
    "bootID",
    "containerRuntimeVersion",
    "kernelVersion",
    "kubeProxyVersion",
    "kubeletVersion",
    "machineID",
    "operatingSystem",
    "osImage",
    "systemUUID",
];

/// The rules of Nodes.
pub struct NodeRules;

impl Rules for NodeRules {
    fn has_generation(&self) -> bool {
        false
    }

    fn default(&self, object: &mut Value) {
        child(object, "spec");
        let Some(status) = child(object, "status") else { return };
        if has(status, "capacity") {
            let capacity = status["capacity"].clone();
            default(status, "allocatable", capacity);
        }
        // kube-apiserver writes these fields even if they are absent.
        unset_times(status, &["lastHeartbeatTime", "lastTransitionTime"]);
        let kubelet = child(status, "daemonEndpoints").and_then(|e| child(e, "kubeletEndpoint"));
        if let Some(kubelet) = kubelet {
            default(kubelet, "Port", 0);
        }
        if let Some(info) = child(status, "nodeInfo") {
            NODE_INFO.iter().for_each(|field| default(info, field, ""));
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        let Some(spec) = child(object, "spec") else { return };
        let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
        let known =
            |other: &Value| other["key"] == taint["key"] && other["effect"] == taint["effect"];
        let mut taints = list(spec, "taints").to_vec();
        if !taints.iter().any(known) && (taints.is_empty() || spec["taints"].is_array()) {
            taints.push(taint);
            set(spec, "taints", json!(taints));
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
                // kube-apiserver shows its internal form of a taint here.
                let added = &taint["timeAdded"];
                found.push(FieldError {
                    kind: FieldErrorKind::Duplicate,
                    field: at,
                    value: Some(format!(
                        "{{\"Key\":{key:?},\"Value\":{value:?},\"Effect\":{effect:?},\"TimeAdded\":{added}}}"
                    )),
                    detail: "taints must be unique by key and effect pair".to_owned(),
                });
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
        if let Some(spec) = child(object, "spec") {
            // Fields of a feature gate that is off by default; kube-apiserver drops them.
            remove(spec, "strategy");
            remove(spec, "preferredHolder");
        }
    }

    fn validate(&self, object: &Value, _old: Option<&Value>) -> Vec<FieldError> {
        let mut found = Findings::default();
        let spec = &object["spec"];
        let seconds = &spec["leaseDurationSeconds"];
        if seconds.as_i64().is_some_and(|seconds| seconds <= 0) {
            found.invalid("spec.leaseDurationSeconds", seconds.clone(), "must be greater than 0");
        }
        found.not_negative("spec.leaseTransitions", &spec["leaseTransitions"]);
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
                "metadata.taints[1]: Duplicate value: {\"Key\":\"a\",\"Value\":\"\",\"Effect\":\"NoSchedule\",\"TimeAdded\":null}: taints must be unique \
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
    fn a_new_node_is_not_ready_until_somebody_says_so() {
        let mut node = json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}});
        NodeRules.prepare_create(&mut node);
        NodeRules.prepare_create(&mut node);
        assert_eq!(
            node["spec"]["taints"],
            json!([{"key": "a", "effect": "NoSchedule"}, {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}])
        );
    }

    #[test]
    fn what_a_node_does_not_tell_is_written_out_as_nothing() {
        let mut node = json!({"status": {"conditions": [{"type": "Ready"}]}});
        NodeRules.default(&mut node);
        let again = node.clone();
        NodeRules.default(&mut node);
        assert_eq!(node, again);
        let status = &node["status"];
        assert_eq!(status["daemonEndpoints"], json!({"kubeletEndpoint": {"Port": 0}}));
        assert_eq!(status["nodeInfo"]["kubeletVersion"], "");
        assert_eq!(
            status["conditions"],
            json!([{"type": "Ready", "lastHeartbeatTime": null, "lastTransitionTime": null}])
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
    }
}
