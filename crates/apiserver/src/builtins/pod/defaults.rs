//! The defaults of Pods and pod templates. The rules call them; they do no I/O.

use super::super::fields::{
    child, default, default_text, has, items, member, omit_empty, set, text,
};
use super::super::quantity::canonical_containers;
use serde_json::{Value, json};

/// Defaults of any pod spec.
pub(in super::super) fn template_spec(spec: &mut Value) {
    omit_empty(spec, &["hostNetwork", "hostPID", "hostIPC", "nodeName", "tolerations", "volumes"]);
    default_text(spec, "dnsPolicy", "ClusterFirst");
    default_text(spec, "restartPolicy", "Always");
    default(spec, "securityContext", json!({}));
    default(spec, "terminationGracePeriodSeconds", 30);
    default_text(spec, "schedulerName", "default-scheduler");
    // The field's older name gets the same value.
    let account = match text(spec, "serviceAccountName") {
        "" => text(spec, "serviceAccount"),
        name => name,
    };
    let account = account.to_owned();
    if !account.is_empty() {
        set(spec, "serviceAccountName", json!(account));
        set(spec, "serviceAccount", json!(account));
    }
    for field in ["containers", "initContainers", "ephemeralContainers"] {
        items(spec, field).for_each(container);
    }
    items(spec, "volumes").for_each(volume);
    canonical_containers(spec);
}

/// Defaults of a Pod's own spec.
pub(super) fn pod_spec(spec: &mut Value) {
    template_spec(spec);
    default(spec, "enableServiceLinks", true);
    let host = spec["hostNetwork"] == true;
    for field in ["containers", "initContainers"] {
        for container in items(spec, field) {
            requests_from_limits(container);
            for port in items(container, "ports").filter(|_| host) {
                let number = port["containerPort"].clone();
                default(port, "hostPort", number);
            }
        }
    }
}

fn requests_from_limits(container: &mut Value) {
    let Some(resources) = member(container, "resources") else { return };
    let Some(limits) = resources["limits"].as_object().cloned() else { return };
    if let Some(requests) = child(resources, "requests") {
        for (name, amount) in limits {
            default(requests, &name, amount);
        }
    }
}

fn container(value: &mut Value) {
    let policy = pull_policy(text(value, "image"));
    default_text(value, "imagePullPolicy", policy);
    default_text(value, "terminationMessagePath", "/dev/termination-log");
    default_text(value, "terminationMessagePolicy", "File");
    default(value, "resources", json!({}));
    for port in items(value, "ports") {
        omit_empty(port, &["hostPort", "name", "hostIP"]);
        default_text(port, "protocol", "TCP");
    }
    for env in items(value, "env") {
        if let Some(field) = member(env, "valueFrom").and_then(|from| member(from, "fieldRef")) {
            default_text(field, "apiVersion", "v1");
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = member(value, name) else { continue };
        for (field, number) in [
            ("timeoutSeconds", 1),
            ("periodSeconds", 10),
            ("successThreshold", 1),
            ("failureThreshold", 3),
        ] {
            if !has(probe, field) || probe[field] == 0 {
                set(probe, field, json!(number));
            }
        }
        if let Some(get) = member(probe, "httpGet") {
            http_get(get);
        }
        if let Some(grpc) = member(probe, "grpc") {
            default(grpc, "service", "");
        }
    }
    for hook in ["postStart", "preStop"] {
        let hook = member(value, "lifecycle").and_then(|lifecycle| member(lifecycle, hook));
        if let Some(get) = hook.and_then(|hook| member(hook, "httpGet")) {
            http_get(get);
        }
    }
}

fn http_get(get: &mut Value) {
    default_text(get, "path", "/");
    default_text(get, "scheme", "HTTP");
}

/// `Always` if the image may change under the same name.
fn pull_policy(image: &str) -> &'static str {
    let (name, digest) = image.split_once('@').unwrap_or((image, ""));
    let last = name.rsplit('/').next().unwrap_or_default();
    match last.split_once(':') {
        Some((_, tag)) if tag != "latest" => "IfNotPresent",
        None if !digest.is_empty() => "IfNotPresent",
        _ => "Always",
    }
}

fn volume(value: &mut Value) {
    if !value.as_object().is_some_and(|volume| volume.keys().any(|key| key != "name")) {
        set(value, "emptyDir", json!({}));
    }
    for kind in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = member(value, kind) {
            default(source, "defaultMode", 0o644);
        }
    }
    if let Some(path) = member(value, "hostPath") {
        default(path, "type", "");
    }
    if let Some(downward) = member(value, "downwardAPI") {
        downward_items(downward);
    }
    let Some(projected) = member(value, "projected") else { return };
    for source in items(projected, "sources") {
        if let Some(token) = member(source, "serviceAccountToken") {
            default(token, "expirationSeconds", 3600);
        }
        if let Some(downward) = member(source, "downwardAPI") {
            downward_items(downward);
        }
    }
}

fn downward_items(downward: &mut Value) {
    for item in items(downward, "items") {
        if let Some(field) = member(item, "fieldRef") {
            default_text(field, "apiVersion", "v1");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_gets_the_real_servers_defaults() {
        let mut spec = json!({
            "containers": [{
                "name": "web", "image": "nginx", "ports": [{"containerPort": 80}],
                "resources": {"limits": {"cpu": 0.5}},
                "readinessProbe": {"httpGet": {"port": 80}},
            }],
            "volumes": [{"name": "tmp"}, {"name": "cfg", "configMap": {"name": "x"}}],
            "serviceAccountName": "robot",
        });
        pod_spec(&mut spec);
        assert_eq!(
            spec,
            json!({
                "containers": [{
                    "name": "web", "image": "nginx", "imagePullPolicy": "Always",
                    "ports": [{"containerPort": 80, "protocol": "TCP"}],
                    "resources": {"limits": {"cpu": "500m"}, "requests": {"cpu": "500m"}},
                    "readinessProbe": {
                        "httpGet": {"port": 80, "path": "/", "scheme": "HTTP"},
                        "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3,
                    },
                    "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                }],
                "volumes": [{"name": "tmp", "emptyDir": {}}, {"name": "cfg", "configMap": {"name": "x", "defaultMode": 420}}],
                "serviceAccountName": "robot", "serviceAccount": "robot",
                "dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "securityContext": {},
                "terminationGracePeriodSeconds": 30, "schedulerName": "default-scheduler", "enableServiceLinks": true,
            })
        );
    }

    #[test]
    fn images_without_a_fixed_tag_are_always_pulled() {
        for (image, policy) in [
            ("nginx", "Always"),
            ("nginx:latest", "Always"),
            ("nginx:1.27", "IfNotPresent"),
            ("registry:5000/nginx", "Always"),
            ("registry:5000/nginx:1", "IfNotPresent"),
            ("nginx@sha256:abc", "IfNotPresent"),
        ] {
            assert_eq!(pull_policy(image), policy, "{image}");
        }
    }

    #[test]
    fn values_of_the_wrong_type_are_left_for_the_schema_to_refuse() {
        for mut spec in [
            json!("x"),
            json!({"containers": 1, "volumes": ["x", null]}),
            json!({"containers": ["x", {"ports": 1, "env": [1], "livenessProbe": "x", "resources": []}]}),
        ] {
            pod_spec(&mut spec);
        }
    }
}
