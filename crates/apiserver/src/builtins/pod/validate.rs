//! The validation of Pods and pod templates. The rules call it; it does no I/O.

use super::super::fields::{Findings, PROTOCOLS, has, int, list, set, text};
use super::super::metadata::check_labels;
use super::super::quantity::Quantity;
use super::super::service::check_port;
use crate::error::{FieldError, FieldErrorKind};
use crate::names;
use serde_json::{Value, json};

const UPDATABLE: &str = "pod updates may not change fields other than `spec.containers[*].image`,\
    `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing \
    tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

pub(super) fn pod(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut found = Findings::default();
    pod_spec(&object["spec"], "spec", &[], &mut found);
    for field in ["containers", "initContainers"] {
        for (i, container) in list(&object["spec"], field).iter().enumerate() {
            let image = text(container, "image");
            if image.trim() != image {
                let words = "must not have leading or trailing whitespace";
                found.invalid(format!("spec.{field}[{i}].image"), image, words);
            }
        }
    }
    if let Some(old) = old {
        changes(&object["spec"], &old["spec"], &mut found);
    }
    found.done()
}

/// Validates a pod spec. `claims` are the names of volumes from elsewhere.
pub(in super::super) fn pod_spec(spec: &Value, at: &str, claims: &[&str], found: &mut Findings) {
    if !has(spec, "terminationGracePeriodSeconds") {
        found.required(format!("{at}.terminationGracePeriodSeconds"), "");
    }
    let mut volumes = claims.to_vec();
    check_volumes(spec, at, &mut volumes, found);
    containers(list(spec, "containers"), &format!("{at}.containers"), &[], &volumes, found);
    let main: Vec<&str> = list(spec, "containers").iter().map(|c| text(c, "name")).collect();
    if !list(spec, "initContainers").is_empty() {
        let at = format!("{at}.initContainers");
        containers(list(spec, "initContainers"), &at, &main, &volumes, found);
    }
    host_ports(list(spec, "containers"), at, found);
    let policies = ["Always", "OnFailure", "Never"];
    found.one_of(&format!("{at}.restartPolicy"), text(spec, "restartPolicy"), &policies);
    let policies = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    found.one_of(&format!("{at}.dnsPolicy"), text(spec, "dnsPolicy"), &policies);
    check_labels(&spec["nodeSelector"], &format!("{at}.nodeSelector"), found);
    type Check = fn(&str) -> Vec<String>;
    let check_names = |fields: &[(&str, Check)], found: &mut Findings| {
        for (field, check) in fields {
            let name = text(spec, field);
            if !name.is_empty() {
                found.each(&format!("{at}.{field}"), name, check(name));
            }
        }
    };
    let subdomain: Check = names::is_dns1123_subdomain;
    let label: Check = names::is_dns1123_label;
    check_names(&[("serviceAccountName", subdomain), ("nodeName", subdomain)], found);
    if let Some(seconds) = spec["activeDeadlineSeconds"].as_i64() {
        let limit = i64::from(i32::MAX);
        if !(1..=limit).contains(&seconds) {
            found.invalid(format!("{at}.activeDeadlineSeconds"), seconds, names::between(1, limit));
        }
    }
    check_names(&[("hostname", label), ("subdomain", label)], found);
    tolerations(spec, &format!("{at}.tolerations"), found);
    check_names(&[("priorityClassName", subdomain)], found);
}

fn check_volumes<'a>(spec: &'a Value, at: &str, volumes: &mut Vec<&'a str>, found: &mut Findings) {
    let mut seen: Vec<&str> = Vec::new();
    for (i, volume) in list(spec, "volumes").iter().enumerate() {
        let at = format!("{at}.volumes[{i}]");
        let sources = volume.as_object().into_iter().flatten();
        let sources: Vec<&String> =
            sources.filter(|(key, v)| *key != "name" && !v.is_null()).map(|(key, _)| key).collect();
        if sources.is_empty() {
            found.required(at.as_str(), "must specify a volume type");
        }
        for extra in sources.iter().skip(1) {
            found.forbidden(format!("{at}.{extra}"), "may not specify more than 1 volume type");
        }
        let name = text(volume, "name");
        let field = format!("{at}.name");
        if name.is_empty() {
            found.required(field, "");
        } else if seen.contains(&name) {
            found.duplicate(field, name);
        } else {
            found.each(&field, name, names::is_dns1123_label(name));
            seen.push(name);
        }
    }
    volumes.extend(seen);
}

fn containers(all: &[Value], at: &str, taken: &[&str], volumes: &[&str], found: &mut Findings) {
    if all.is_empty() {
        found.required(at, "");
    }
    let mut seen: Vec<&str> = taken.to_vec();
    for (i, container) in all.iter().enumerate() {
        let at = format!("{at}[{i}]");
        let name = text(container, "name");
        let field = format!("{at}.name");
        if name.is_empty() {
            found.required(field.as_str(), "");
        } else {
            found.each(&field, name, names::is_dns1123_label(name));
        }
        let image = text(container, "image");
        if image.is_empty() {
            found.required(format!("{at}.image"), "");
        }
        let policies = ["File", "FallbackToLogsOnError"];
        let policy = text(container, "terminationMessagePolicy");
        found.one_of(&format!("{at}.terminationMessagePolicy"), policy, &policies);
        ports(container, &format!("{at}.ports"), found);
        env(container, &format!("{at}.env"), found);
        mounts(container, &format!("{at}.volumeMounts"), volumes, found);
        let policies = ["Always", "IfNotPresent", "Never"];
        let policy = text(container, "imagePullPolicy");
        found.one_of(&format!("{at}.imagePullPolicy"), policy, &policies);
        resources(&container["resources"], &format!("{at}.resources"), found);
        if seen.contains(&name) {
            found.duplicate(field, name);
        }
        seen.push(name);
        for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
            if has(container, probe) {
                check_probe(&container[probe], &format!("{at}.{probe}"), found);
            }
        }
    }
}

fn ports(container: &Value, at: &str, found: &mut Findings) {
    let mut seen: Vec<&str> = Vec::new();
    for (i, port) in list(container, "ports").iter().enumerate() {
        let at = format!("{at}[{i}]");
        let name = text(port, "name");
        if !name.is_empty() {
            let wrong = names::is_port_name(name);
            if wrong.is_empty() && seen.contains(&name) {
                found.duplicate(format!("{at}.name"), name);
            }
            if wrong.is_empty() {
                seen.push(name);
            }
            found.each(&format!("{at}.name"), name, wrong);
        }
        let number = int(port, "containerPort");
        let field = format!("{at}.containerPort");
        if number == 0 {
            found.required(field, "");
        } else {
            found.each(&field, number, names::is_port_number(number));
        }
        let number = int(port, "hostPort");
        if number != 0 {
            found.each(&format!("{at}.hostPort"), number, names::is_port_number(number));
        }
        found.one_of(&format!("{at}.protocol"), text(port, "protocol"), PROTOCOLS);
    }
}

fn host_ports(containers: &[Value], at: &str, found: &mut Findings) {
    let mut seen: Vec<String> = Vec::new();
    for (i, container) in containers.iter().enumerate() {
        for (j, port) in list(container, "ports").iter().enumerate() {
            let number = int(port, "hostPort");
            if number == 0 {
                continue;
            }
            let key = format!("{}/{}/{number}", text(port, "protocol"), text(port, "hostIP"));
            if seen.contains(&key) {
                found.duplicate(format!("{at}.containers[{i}].ports[{j}].hostPort"), key.as_str());
            }
            seen.push(key);
        }
    }
}

fn env(container: &Value, at: &str, found: &mut Findings) {
    for (i, variable) in list(container, "env").iter().enumerate() {
        let field = format!("{at}[{i}].name");
        let name = text(variable, "name");
        if name.is_empty() {
            found.required(field, "");
        } else {
            found.each(&field, name, names::is_env_var_name(name));
        }
        if !has(variable, "valueFrom") {
            continue;
        }
        let from = &variable["valueFrom"];
        let kinds =
            ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"];
        let sources = kinds.iter().filter(|kind| has(from, kind)).count();
        let field = format!("{at}[{i}].valueFrom");
        if sources == 0 {
            found.invalid(
                field,
                "",
                "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or \
                 `fileKeyRef`",
            );
        } else if !text(variable, "value").is_empty() {
            found.invalid(field, "", "may not be specified when `value` is not empty");
        } else if sources > 1 {
            found.invalid(field, "", "may not have more than one field specified at a time");
        }
    }
}

fn mounts(container: &Value, at: &str, volumes: &[&str], found: &mut Findings) {
    let mut seen: Vec<&str> = Vec::new();
    for (i, mount) in list(container, "volumeMounts").iter().enumerate() {
        let name = text(mount, "name");
        let field = format!("{at}[{i}].name");
        if name.is_empty() {
            found.required(field.as_str(), "");
        }
        if !volumes.contains(&name) {
            found.push(FieldError {
                kind: FieldErrorKind::NotFound,
                field,
                value: Some(format!("{name:?}")),
                detail: String::new(),
            });
        }
        let path = text(mount, "mountPath");
        let field = format!("{at}[{i}].mountPath");
        if path.is_empty() {
            found.required(field.as_str(), "");
        }
        if seen.contains(&path) {
            found.invalid(field, path, "must be unique");
        }
        seen.push(path);
    }
}

fn resources(resources: &Value, at: &str, found: &mut Findings) {
    let words = "quantities must match the regular expression \
         '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
    for list in ["limits", "requests"] {
        for (name, value) in resources[list].as_object().into_iter().flatten() {
            let field = format!("{at}.{list}[{name}]");
            match Quantity::read(value) {
                None => found.invalid(field, value.clone(), words),
                Some(quantity) if quantity.amount() < 0 => {
                    found.invalid(field, value.clone(), "must be greater than or equal to 0");
                }
                Some(_) => {}
            }
        }
    }
    for (name, request) in resources["requests"].as_object().into_iter().flatten() {
        let limit = &resources["limits"][name];
        if let (Some(request_amount), Some(limit_amount)) =
            (Quantity::read(request), Quantity::read(limit))
            && request_amount.amount() > limit_amount.amount()
        {
            let limit = limit.as_str().unwrap_or_default();
            found.invalid(
                format!("{at}.requests"),
                request.clone(),
                format!("must be less than or equal to {name} limit of {limit}"),
            );
        }
    }
}

fn check_probe(probe: &Value, at: &str, found: &mut Findings) {
    let kinds = ["exec", "httpGet", "tcpSocket", "grpc"];
    let handlers: Vec<&&str> = kinds.iter().filter(|kind| has(probe, kind)).collect();
    if handlers.is_empty() {
        found.required(at, "must specify a handler type");
    }
    for extra in handlers.iter().skip(1) {
        found.forbidden(format!("{at}.{extra}"), "may not specify more than 1 handler type");
    }
    for kind in ["httpGet", "tcpSocket"] {
        if has(probe, kind) {
            check_port(&probe[kind]["port"], &format!("{at}.{kind}.port"), found);
        }
    }
    for field in [
        "initialDelaySeconds",
        "timeoutSeconds",
        "periodSeconds",
        "successThreshold",
        "failureThreshold",
    ] {
        found.not_negative(&format!("{at}.{field}"), &probe[field]);
    }
    if !at.ends_with("readinessProbe") && int(probe, "successThreshold") > 1 {
        let given = probe["successThreshold"].clone();
        found.invalid(format!("{at}.successThreshold"), given, "must be 1");
    }
}

fn tolerations(spec: &Value, at: &str, found: &mut Findings) {
    for (i, toleration) in list(spec, "tolerations").iter().enumerate() {
        let at = format!("{at}[{i}]");
        let (key, operator) = (text(toleration, "key"), text(toleration, "operator"));
        let (value, effect) = (text(toleration, "value"), text(toleration, "effect"));
        if !key.is_empty() {
            found.each(&format!("{at}.key"), key, names::is_qualified_name(key));
        } else if operator != "Exists" {
            found.invalid(
                format!("{at}.operator"),
                operator,
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
            );
        }
        if has(toleration, "tolerationSeconds") && effect != "NoExecute" {
            let words = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            found.invalid(format!("{at}.effect"), effect, words);
        }
        let field = format!("{at}.operator");
        match operator {
            "" | "Equal" => {
                let wrong = names::is_label_value(value);
                if !wrong.is_empty() {
                    found.invalid(field, value, wrong.join(";"));
                }
            }
            "Exists" if !value.is_empty() => {
                found.invalid(field, value, "value must be empty when `operator` is 'Exists'");
            }
            "Exists" => {}
            other => {
                let known = ["Equal", "Exists"];
                found.push(FieldError::not_supported(field, &json!(other), &known));
            }
        }
        let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
        found.one_of_if_given(&format!("{at}.effect"), effect, &effects);
    }
}

/// Validates the changes of an existing Pod: images, a shorter deadline and more tolerations are
/// allowed.
fn changes(spec: &Value, old: &Value, found: &mut Findings) {
    for field in ["containers", "initContainers"] {
        if list(spec, field).len() != list(old, field).len() {
            let words = "pod updates may not add or remove containers";
            found.forbidden(format!("spec.{field}"), words);
            return;
        }
    }
    let (now, before) = (&spec["activeDeadlineSeconds"], &old["activeDeadlineSeconds"]);
    match (now.as_i64(), before.as_i64()) {
        (Some(now), Some(before)) if now > before => found.invalid(
            "spec.activeDeadlineSeconds",
            now,
            "must be less than or equal to previous value",
        ),
        (None, Some(_)) => found.invalid(
            "spec.activeDeadlineSeconds",
            now.clone(),
            "must not update from a positive integer to nil value",
        ),
        _ => {}
    }
    let without_seconds = |toleration: &Value| {
        let mut toleration = toleration.clone();
        super::super::fields::remove(&mut toleration, "tolerationSeconds");
        toleration
    };
    let kept: Vec<Value> = list(spec, "tolerations").iter().map(without_seconds).collect();
    if !list(old, "tolerations").iter().map(without_seconds).all(|old| kept.contains(&old)) {
        let words = "existing toleration can not be modified except its tolerationSeconds";
        found.forbidden("spec.tolerations", words);
    }
    let mut allowed = spec.clone();
    for field in ["containers", "initContainers"] {
        for (i, container) in list(old, field).iter().enumerate() {
            if let Some(new) = allowed.get_mut(field).and_then(|all| all.get_mut(i)) {
                super::super::fields::put(new, "image", container["image"].clone());
            }
        }
    }
    for field in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        super::super::fields::put(&mut allowed, field, old[field].clone());
    }
    let grace = "terminationGracePeriodSeconds";
    if int(old, grace) < 0 && int(spec, grace) == 1 {
        set(&mut allowed, grace, old[grace].clone());
    }
    if allowed != *old {
        found.forbidden("spec", UPDATABLE);
    }
}

#[cfg(test)]
mod tests {
    use super::super::PodRules;
    use super::*;
    use crate::kind::Rules;

    fn made(changes: Value) -> Value {
        let mut pod = json!({"spec": {"containers": [{"name": "web", "image": "nginx:1"}]}});
        for (key, value) in changes.as_object().unwrap() {
            pod["spec"][key] = value.clone();
        }
        PodRules.default(&mut pod);
        pod
    }

    fn said(pod: &Value, old: Option<&Value>) -> Vec<String> {
        super::pod(pod, old).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn containers_are_named_and_have_images() {
        let cases: Vec<(Value, &[&str])> = vec![
            (json!({}), &[]),
            (json!({"containers": []}), &["spec.containers: Required value"]),
            (
                json!({"containers": [{}]}),
                &[
                    "spec.containers[0].name: Required value",
                    "spec.containers[0].image: Required value",
                ],
            ),
            (
                json!({"containers": [{"name": "a", "image": "x"}, {"name": "a", "image": "x"}]}),
                &["spec.containers[1].name: Duplicate value: \"a\""],
            ),
            (
                json!({"containers": [{"name": "a", "image": "x", "ports": [
                {"containerPort": 0}, {"containerPort": 65536, "name": "p"}, {"containerPort": 1, "name": "p", "protocol": "ICMP"}]}]}),
                &[
                    "spec.containers[0].ports[0].containerPort: Required value",
                    "spec.containers[0].ports[1].containerPort: Invalid value: 65536: must be between 1 and 65535, inclusive",
                    "spec.containers[0].ports[2].name: Duplicate value: \"p\"",
                    "spec.containers[0].ports[2].protocol: Unsupported value: \"ICMP\": supported values: \"SCTP\", \"TCP\", \"UDP\"",
                ],
            ),
            (
                json!({"containers": [{"name": "a", "image": "x", "env": [{"name": ""}, {"name": "A", "value": "b", "valueFrom": {"fieldRef": {}}}]}]}),
                &[
                    "spec.containers[0].env[0].name: Required value",
                    "spec.containers[0].env[1].valueFrom: Invalid value: \"\": may not be specified when `value` is not empty",
                ],
            ),
            (
                json!({"containers": [{"name": "a", "image": "x", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]}),
                &["spec.containers[0].volumeMounts[0].name: Not found: \"v\""],
            ),
            (
                json!({"volumes": [{"name": "v"}, {"name": "v"}]}),
                &["spec.volumes[1].name: Duplicate value: \"v\""],
            ),
            (
                json!({"restartPolicy": "Sometimes"}),
                &[
                    "spec.restartPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"OnFailure\", \"Never\"",
                ],
            ),
            (
                json!({"dnsPolicy": "Mine"}),
                &[
                    "spec.dnsPolicy: Unsupported value: \"Mine\": supported values: \"ClusterFirstWithHostNet\", \
                \"ClusterFirst\", \"Default\", \"None\"",
                ],
            ),
            (
                json!({"tolerations": [{"operator": "Equal"}]}),
                &[
                    "spec.tolerations[0].operator: Invalid value: \"Equal\": operator must be Exists when `key` is empty, which \
                means \"match all values and all keys\"",
                ],
            ),
            (
                json!({"containers": [{"name": "a", "image": "x", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}]}),
                &[
                    "spec.containers[0].resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1",
                ],
            ),
            (
                json!({"containers": [{"name": "a", "image": "x", "livenessProbe": {"tcpSocket": {"port": 0}}}]}),
                &[
                    "spec.containers[0].livenessProbe.tcpSocket.port: Invalid value: 0: must be between 1 and 65535, inclusive",
                ],
            ),
        ];
        for (changes, expected) in cases {
            let pod = made(changes);
            assert_eq!(said(&pod, None), expected, "{pod}");
        }
    }

    #[test]
    fn little_of_a_pod_may_change() {
        let old = made(
            json!({"tolerations": [{"key": "a", "operator": "Exists"}], "activeDeadlineSeconds": 10}),
        );
        assert_eq!(said(&old, Some(&old)), Vec::<String>::new());
        let mut new = old.clone();
        new["spec"]["containers"][0]["image"] = json!("nginx:2");
        new["spec"]["activeDeadlineSeconds"] = json!(5);
        new["spec"]["tolerations"] =
            json!([{"key": "a", "operator": "Exists"}, {"key": "b", "operator": "Exists"}]);
        assert_eq!(said(&new, Some(&old)), Vec::<String>::new());
        new["spec"]["nodeName"] = json!("n");
        assert_eq!(said(&new, Some(&old)), [format!("spec: Forbidden: {UPDATABLE}")]);
        let mut new = old.clone();
        new["spec"]["tolerations"] = json!([]);
        assert_eq!(
            said(&new, Some(&old)),
            [
                "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"
            ]
        );
        let new =
            made(json!({"containers": [{"name": "a", "image": "x"}, {"name": "b", "image": "x"}]}));
        assert_eq!(
            said(&new, Some(&old)),
            ["spec.containers: Forbidden: pod updates may not add or remove containers"]
        );
    }
}
