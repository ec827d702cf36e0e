//! What is in `deploy/` is what it looks like: every object reads as its kind with no field too many,
//! what is referred to is there, and nobody may do more than is written down here.

#![allow(clippy::expect_used, reason = "helpers of tests fail as tests do")]

use bowline_api::names;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

fn manifests(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a file"));
    entries
        .map(|entry| entry.path())
        .flat_map(|path| if path.is_dir() { manifests(&path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .collect()
}

/// All objects, each with the file it is in.
fn objects() -> Vec<(String, Value)> {
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).expect("a text");
        let objects = serde_saphyr::from_multiple::<Value>(&text).expect("YAML");
        objects.into_iter().map(move |object| (path.display().to_string(), object))
    };
    manifests(&deploy()).into_iter().flat_map(read).collect()
}

/// The objects of a kind.
fn all<T: DeserializeOwned>(kind: &str) -> Vec<T> {
    let of_kind = objects().into_iter().filter(|(_, object)| object["kind"] == kind);
    of_kind.map(|(_, object)| serde_json::from_value(object).expect("its kind")).collect()
}

/// An object as its type writes it again.
fn again<T: DeserializeOwned + Serialize>(object: &Value) -> Value {
    let read: T = serde_json::from_value(object.clone()).expect("its kind");
    serde_json::to_value(read).expect("JSON")
}

#[test]
fn every_object_reads_as_its_kind_with_no_field_too_many() {
    for (file, object) in objects() {
        let read = match (object["apiVersion"].as_str(), object["kind"].as_str()) {
            (Some("v1"), Some("Namespace")) => again::<Namespace>(&object),
            (Some("v1"), Some("ServiceAccount")) => again::<ServiceAccount>(&object),
            (Some("apps/v1"), Some("Deployment")) => again::<Deployment>(&object),
            (Some("rbac.authorization.k8s.io/v1"), Some(kind)) => match kind {
                "ClusterRole" => again::<ClusterRole>(&object),
                "ClusterRoleBinding" => again::<ClusterRoleBinding>(&object),
                "Role" => again::<Role>(&object),
                "RoleBinding" => again::<RoleBinding>(&object),
                other => panic!("{file}: {other}"),
            },
            // Bounds are floating point in the type; that the text is right is proved where it is made.
            (Some("apiextensions.k8s.io/v1"), Some("CustomResourceDefinition")) => {
                again::<CustomResourceDefinition>(&object);
                continue;
            }
            other => panic!("{file}: {other:?}"),
        };
        assert_eq!(read, object, "{file}");
    }
}

#[test]
fn everything_is_in_our_namespace_or_in_none() {
    for (file, object) in objects() {
        let metadata = &object["metadata"];
        match object["kind"].as_str() {
            Some("Namespace") => assert_eq!(metadata["name"], names::NAMESPACE),
            Some("ClusterRole" | "ClusterRoleBinding" | "CustomResourceDefinition") => {
                assert_eq!(metadata["namespace"], Value::Null, "{file}");
            }
            _ => assert_eq!(metadata["namespace"], names::NAMESPACE, "{file}: {object:#}"),
        }
    }
}

#[test]
fn whoever_is_referred_to_is_there() {
    let name = |name: &Option<String>| name.clone().expect("a name");
    let accounts: BTreeSet<_> =
        all::<ServiceAccount>("ServiceAccount").iter().map(|it| name(&it.metadata.name)).collect();
    let mut roles: BTreeSet<(String, String)> = BTreeSet::new();
    roles.extend(all::<Role>("Role").iter().map(|it| ("Role".to_owned(), name(&it.metadata.name))));
    roles.extend(
        all::<ClusterRole>("ClusterRole")
            .iter()
            .map(|it| ("ClusterRole".to_owned(), name(&it.metadata.name))),
    );
    let mut bindings: Vec<(RoleRef, Option<Vec<Subject>>)> = Vec::new();
    bindings
        .extend(all::<RoleBinding>("RoleBinding").into_iter().map(|it| (it.role_ref, it.subjects)));
    bindings.extend(
        all::<ClusterRoleBinding>("ClusterRoleBinding")
            .into_iter()
            .map(|it| (it.role_ref, it.subjects)),
    );
    let mut bound = BTreeSet::new();
    for (role, subjects) in bindings {
        bound.insert((role.kind, role.name));
        for subject in subjects.into_iter().flatten() {
            assert_eq!(subject.namespace.as_deref(), Some(names::NAMESPACE));
            assert!(accounts.contains(&subject.name), "{subject:?}");
        }
    }
    assert_eq!(bound, roles);
    for deployment in all::<Deployment>("Deployment") {
        let spec = deployment.spec.template.spec.expect("a spec");
        assert!(accounts.contains(&name(&spec.service_account_name)));
    }
}

/// The rules of a role, one line a rule: verbs, resources, names.
fn rights(rules: Option<Vec<PolicyRule>>) -> Vec<String> {
    let line = |rule: PolicyRule| {
        let groups = rule.api_groups.unwrap_or_default().join(",");
        let what = rule.resources.unwrap_or_default().join(",");
        let names = rule.resource_names.unwrap_or_default().join(",");
        let line = format!("{} {what}.{groups} {names}", rule.verbs.join(","));
        line.trim_end_matches([' ', '.']).to_owned()
    };
    rules.into_iter().flatten().map(line).collect()
}

#[test]
fn nobody_may_do_more_than_this() {
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    for role in all::<ClusterRole>("ClusterRole") {
        found
            .push((format!("cluster {}", role.metadata.name.expect("a name")), rights(role.rules)));
    }
    for role in all::<Role>("Role") {
        found.push((role.metadata.name.expect("a name"), rights(role.rules)));
    }
    found.sort();
    let secrets: Vec<_> = (0..8).map(|index| names::certificates_secret("edge", index)).collect();
    let expected = [
        (
            "bowline-agent",
            vec![
                "get,list,watch plans.bowline.dev".to_owned(),
                "create leases.coordination.k8s.io".to_owned(),
            ],
        ),
        (
            "bowline-agent-edge",
            vec![
                format!(
                    "get,update,patch leases.coordination.k8s.io {}",
                    names::agent_lease("edge")
                ),
                format!("get,list,watch secrets. {}", secrets.join(",")),
            ],
        ),
        (
            "bowline-controller",
            vec![
                "get,list,watch,create,update,patch,delete plans.bowline.dev".to_owned(),
                "create,update,patch,delete secrets".to_owned(),
                "get,list,watch,create leases.coordination.k8s.io".to_owned(),
                format!("update,patch leases.coordination.k8s.io {}", names::LEASE_CONTROLLER),
            ],
        ),
        (
            "cluster bowline-agent",
            vec![
                "get,list,watch endpointslices.discovery.k8s.io".to_owned(),
                "get,list,watch nodes".to_owned(),
            ],
        ),
        (
            "cluster bowline-controller",
            vec![
                "get,list,watch services,namespaces,secrets".to_owned(),
                "get,list,watch ingresses,ingressclasses.networking.k8s.io".to_owned(),
                "get,list,watch loadbalancers.bowline.dev".to_owned(),
                "patch services/status".to_owned(),
                "patch ingresses/status.networking.k8s.io".to_owned(),
                "patch loadbalancers/status.bowline.dev".to_owned(),
                "create,patch events".to_owned(),
            ],
        ),
    ]
    .map(|(role, rights)| (role.to_owned(), rights));
    assert_eq!(found, expected);
}

#[test]
fn no_container_can_gain_rights_or_write_to_its_image() {
    for deployment in all::<Deployment>("Deployment") {
        let pod = deployment.spec.template.spec.expect("a spec");
        let profile = pod.security_context.expect("a context").seccomp_profile.expect("a profile");
        assert_eq!(profile.type_, "RuntimeDefault");
        for container in pod.containers {
            let context = container.security_context.expect("a context");
            assert_eq!(context.allow_privilege_escalation, Some(false));
            assert_eq!(context.read_only_root_filesystem, Some(true));
            let drop = context.capabilities.expect("capabilities").drop;
            assert_eq!(drop, Some(vec!["ALL".to_owned()]));
            assert!(container.liveness_probe.is_some() && container.readiness_probe.is_some());
        }
    }
}
