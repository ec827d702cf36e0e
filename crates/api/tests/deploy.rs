//! What is in `deploy/` is what it looks like: every object reads as its kind with no field too many,
//! what is referred to is there, and nobody may do more than is written down here.

#![allow(clippy::expect_used, reason = "helpers of tests fail as tests do")]

use bowline_api::selector::NamespacesFrom;
use bowline_api::{LoadBalancer, metallb, names};
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::api::networking::v1::{IngressClass, NetworkPolicy};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeSet;
use std::iter;
use std::path::{Path, PathBuf};

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

/// The plain manifests. The chart has templates, and what is for Prometheus is no object.
fn manifests(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a file"));
    entries
        .map(|entry| entry.path())
        .filter(|path| !path.ends_with("deploy/chart") && !path.ends_with("deploy/monitoring"))
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

/// Whether everything of one value is in another, which may have more; else what is not.
fn has(all: &Value, some: &Value) -> Result<(), String> {
    match (all, some) {
        (Value::Object(all), Value::Object(some)) => some
            .iter()
            .try_for_each(|(key, value)| has(all.get(key).unwrap_or(&Value::Null), value)),
        _ if all == some => Ok(()),
        _ => Err(format!("{some} is read as {all}")),
    }
}

#[test]
fn every_object_reads_as_its_kind_with_no_field_too_many() {
    for (file, object) in objects() {
        let read = match (object["apiVersion"].as_str(), object["kind"].as_str()) {
            (Some("v1"), Some("Namespace")) => again::<Namespace>(&object),
            (Some("v1"), Some("ServiceAccount")) => again::<ServiceAccount>(&object),
            (Some("apps/v1"), Some("Deployment")) => again::<Deployment>(&object),
            (Some("apps/v1"), Some("DaemonSet")) => again::<DaemonSet>(&object),
            (Some("networking.k8s.io/v1"), Some("IngressClass")) => again::<IngressClass>(&object),
            (Some("networking.k8s.io/v1"), Some("NetworkPolicy")) => {
                again::<NetworkPolicy>(&object)
            }
            (Some("policy/v1"), Some("PodDisruptionBudget")) => {
                again::<PodDisruptionBudget>(&object)
            }
            // Defaults are filled in by the type; fields too many it refuses.
            (Some("bowline.dev/v1alpha1"), Some("LoadBalancer")) => {
                let written = again::<LoadBalancer>(&object);
                assert_eq!(has(&written, &object), Ok(()), "{file}");
                continue;
            }
            (Some("rbac.authorization.k8s.io/v1"), Some(kind)) => match kind {
                "ClusterRole" => again::<ClusterRole>(&object),
                "ClusterRoleBinding" => again::<ClusterRoleBinding>(&object),
                "Role" => again::<Role>(&object),
                "RoleBinding" => again::<RoleBinding>(&object),
                other => panic!("{file}: {other}"),
            },
            (Some("admissionregistration.k8s.io/v1"), Some(kind)) => match kind {
                "ValidatingAdmissionPolicy" => again::<ValidatingAdmissionPolicy>(&object),
                "ValidatingAdmissionPolicyBinding" => {
                    again::<ValidatingAdmissionPolicyBinding>(&object)
                }
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
            Some(
                "ClusterRole"
                | "ClusterRoleBinding"
                | "CustomResourceDefinition"
                | "LoadBalancer"
                | "IngressClass"
                | "ValidatingAdmissionPolicy"
                | "ValidatingAdmissionPolicyBinding",
            ) => {
                assert_eq!(metadata["namespace"], Value::Null, "{file}");
            }
            // What is read there is MetalLB's.
            _ if metadata["name"] == "bowline-import-metallb" => {
                assert_eq!(metadata["namespace"], metallb::NAMESPACE, "{file}");
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
            if subject.kind == "Group" {
                let ours = format!("system:serviceaccounts:{}", names::NAMESPACE);
                assert_eq!(subject.name, ours, "all who run in our namespace");
                continue;
            }
            assert_eq!(subject.namespace.as_deref(), Some(names::NAMESPACE));
            assert!(accounts.contains(&subject.name), "{subject:?}");
        }
    }
    assert_eq!(bound, roles);
    for deployment in all::<Deployment>("Deployment") {
        let spec = deployment.spec.template.spec.expect("a spec");
        assert!(accounts.contains(&name(&spec.service_account_name)));
    }
    let speaker = speaker().spec.template.spec.expect("a spec");
    assert!(accounts.contains(&name(&speaker.service_account_name)));
}

/// The DaemonSet of the speakers.
fn speaker() -> DaemonSet {
    let mut all = all::<DaemonSet>("DaemonSet");
    assert_eq!(all.len(), 1);
    all.pop().expect("a DaemonSet")
}

#[test]
fn a_speaker_has_three_capabilities_and_ends_after_its_grace() {
    let spec = speaker().spec;
    let labels = spec.template.metadata.expect("metadata").labels;
    assert_eq!(spec.selector.match_labels, labels);
    let strategy = spec.update_strategy.expect("a strategy");
    assert_eq!(strategy.type_.as_deref(), Some("RollingUpdate"));
    let pod = spec.template.spec.expect("a spec");
    assert_eq!(pod.host_network, Some(true));
    assert_eq!(pod.priority_class_name.as_deref(), Some("system-node-critical"));
    assert_eq!(
        pod.security_context.expect("a context").seccomp_profile.expect("a profile").type_,
        "RuntimeDefault"
    );
    let [container] = &pod.containers[..] else { panic!("one container: {:?}", pod.containers) };
    let context = container.security_context.clone().expect("a context");
    assert_eq!(context.allow_privilege_escalation, Some(false));
    assert_eq!(context.read_only_root_filesystem, Some(true));
    assert_eq!((context.privileged, context.run_as_user), (None, Some(0)));
    let capabilities = context.capabilities.expect("capabilities");
    assert_eq!(capabilities.drop, Some(vec!["ALL".to_owned()]));
    let needed = ["NET_ADMIN", "NET_BIND_SERVICE", "NET_RAW"].map(str::to_owned);
    assert_eq!(capabilities.add, Some(needed.to_vec()));
    assert!(container.liveness_probe.is_some() && container.readiness_probe.is_some());
    let args = container.args.clone().expect("arguments");
    let grace = args.iter().find_map(|it| it.strip_prefix("--grace="));
    let grace: i64 = grace.expect("a grace").parse().expect("seconds");
    assert!(pod.termination_grace_period_seconds.expect("a period") > grace);
    let node = container.env.iter().flatten().find(|it| it.name == "NODE_NAME").expect("its node");
    let source = node.value_from.clone().and_then(|it| it.field_ref).expect("a field");
    assert_eq!(source.field_path, "spec.nodeName");
    let [volume] = &pod.volumes.expect("volumes")[..] else { panic!("one volume") };
    assert_eq!(volume.host_path.as_ref().expect("of the node").path, "/run/bowline");
    let mounts = container.volume_mounts.clone().expect("mounts");
    assert_eq!(mounts[0].mount_path, "/run/bowline");
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
    let certificates = (0..bowline_core::certificate_rooms::SECRETS)
        .map(|index| names::certificates_secret("edge", index));
    let secrets: Vec<_> = iter::once(names::cookies_secret("edge")).chain(certificates).collect();
    let expected = [
        (
            "bowline-agent",
            vec![
                "list,watch plans.bowline.dev".to_owned(),
                "create leases.coordination.k8s.io".to_owned(),
            ],
        ),
        (
            "bowline-agent-edge",
            vec![
                format!("get,patch leases.coordination.k8s.io {}", names::agent_lease("edge")),
                format!("get,list,watch secrets. {}", secrets.join(",")),
            ],
        ),
        (
            "bowline-controller",
            vec![
                "list,watch,create,update,delete plans.bowline.dev".to_owned(),
                "create,patch,delete secrets".to_owned(),
                "get,list,watch,create,patch,delete leases.coordination.k8s.io".to_owned(),
                "get,create,patch,delete roles,rolebindings.rbac.authorization.k8s.io".to_owned(),
            ],
        ),
        (
            "bowline-import-metallb",
            vec![
                "list ipaddresspools,l2advertisements,bgpadvertisements,bgppeers,bfdprofiles,communities.metallb.io"
                    .to_owned(),
                "list pods".to_owned(),
            ],
        ),
        (
            "bowline-provisioner",
            vec![
                "get,create,patch,delete serviceaccounts,services".to_owned(),
                "get,create,patch,delete deployments.apps".to_owned(),
                "get,create,patch,delete poddisruptionbudgets.policy".to_owned(),
                "get,create,patch,delete networkpolicies.networking.k8s.io".to_owned(),
            ],
        ),
        (
            "bowline-speaker",
            vec![
                "get,list,watch,create,patch leases.coordination.k8s.io".to_owned(),
                "list,watch secrets. bowline-gossip".to_owned(),
            ],
        ),
        (
            "cluster bowline-agent",
            vec![
                "list,watch endpointslices.discovery.k8s.io".to_owned(),
                "list,watch nodes".to_owned(),
            ],
        ),
        ("cluster bowline-agent-edge", vec!["get loadbalancers.bowline.dev edge".to_owned()]),
        (
            "cluster bowline-controller",
            vec![
                "get,list,watch services".to_owned(),
                "list,watch nodes".to_owned(),
                "get,list,watch namespaces,secrets".to_owned(),
                "get,list,watch ingresses,ingressclasses.networking.k8s.io".to_owned(),
                "get,list,watch,create,patch,delete loadbalancers.bowline.dev".to_owned(),
                "get,list,watch,patch loadbalancerclaims.bowline.dev".to_owned(),
                "list,watch loadbalancerclasses.bowline.dev".to_owned(),
                "list,watch,patch addresspools.bowline.dev".to_owned(),
                "patch addresspools/status.bowline.dev".to_owned(),
                "get,list,watch,create,update,delete addresses.bowline.dev".to_owned(),
                "update,patch addresses/status.bowline.dev".to_owned(),
                "get,list,watch,patch externalips.bowline.dev".to_owned(),
                "patch externalips/status.bowline.dev".to_owned(),
                "list,watch bgppeers.bowline.dev".to_owned(),
                "patch bgppeers/status.bowline.dev".to_owned(),
                "patch services/status".to_owned(),
                "patch ingresses/status.networking.k8s.io".to_owned(),
                "patch loadbalancers/status,loadbalancerclaims/status.bowline.dev".to_owned(),
                "list,watch deployments.apps".to_owned(),
                "create,patch events".to_owned(),
            ],
        ),
        (
            "cluster bowline-import-metallb",
            vec!["get,create addresspools,advertisements,bgppeers.bowline.dev".to_owned()],
        ),
        (
            "cluster bowline-proxy",
            vec![
                "list,watch endpointslices.discovery.k8s.io".to_owned(),
                "list,watch nodes".to_owned(),
            ],
        ),
        (
            "cluster bowline-speaker",
            vec![
                "list,watch addresses,addresspools,advertisements,bgppeers.bowline.dev".to_owned(),
                "list,watch services,nodes".to_owned(),
                "list,watch endpointslices.discovery.k8s.io".to_owned(),
            ],
        ),
        (
            "cluster bowline-template",
            vec![
                "list,watch services,nodes".to_owned(),
                "list,watch endpointslices.discovery.k8s.io".to_owned(),
                "create,patch events".to_owned(),
            ],
        ),
    ]
    .map(|(role, rights)| (role.to_owned(), rights));
    assert_eq!(found, expected);
}

#[test]
fn agents_of_several_load_balancers_fit_on_one_node() {
    let text = std::fs::read_to_string(deploy().join("agent.yaml")).expect("a text");
    let agent = |name: &str, port: &str| -> Deployment {
        let text = text.replace("edge", name).replace("9180", port);
        serde_saphyr::from_str(&text).expect("a Deployment")
    };
    let [one, two] = [agent("one", "9180"), agent("two", "9181")].map(|it| {
        let pod = it.spec.template.spec.expect("a spec");
        let container = pod.containers.into_iter().next().expect("a container");
        let port = container.liveness_probe.and_then(|it| it.http_get).expect("a probe").port;
        (pod.node_selector.expect("a selector"), port, container.args.expect("arguments"))
    });
    // A node can have both labels, and each agent an admin port of its own.
    assert!(one.0.keys().all(|key| !two.0.contains_key(key)), "{:?} {:?}", one.0, two.0);
    assert_ne!(one.1, two.1);
    assert!(two.2.contains(&"--admin=127.0.0.1:9181".to_owned()), "{:?}", two.2);
}

#[test]
fn a_load_balancer_and_its_ingress_class_are_there_and_open_to_somebody() {
    let balancers = all::<LoadBalancer>("LoadBalancer");
    let classes = all::<IngressClass>("IngressClass");
    let [balancer] = &balancers[..] else { panic!("one load balancer: {balancers:?}") };
    let [class] = &classes[..] else { panic!("one class: {classes:?}") };
    assert!(!balancer.spec.addresses.is_empty());
    assert_ne!(balancer.spec.allowed_namespaces.from, NamespacesFrom::None);
    let class = class.spec.as_ref().expect("a spec");
    assert_eq!(class.controller.as_deref(), Some(names::INGRESS_CONTROLLER));
    let parameters = class.parameters.as_ref().expect("parameters");
    assert_eq!(
        (Some(parameters.name.as_str()), "LoadBalancer"),
        (balancer.metadata.name.as_deref(), &*parameters.kind)
    );
    for deployment in all::<Deployment>("Deployment") {
        let spec = deployment.spec.template.spec.expect("a spec");
        let args = spec.containers[0].args.clone().unwrap_or_default();
        if args.contains(&"agent".to_owned()) {
            let flag = format!("--load-balancer={}", parameters.name);
            assert!(args.contains(&flag), "{args:?}");
        }
    }
}

#[test]
fn no_container_can_gain_rights_or_write_to_its_image() {
    for deployment in all::<Deployment>("Deployment") {
        let pod = deployment.spec.template.spec.expect("a spec");
        let common = pod.security_context.expect("a context");
        assert_eq!(common.seccomp_profile.expect("a profile").type_, "RuntimeDefault");
        let user = |own: Option<i64>| own.or(common.run_as_user).expect("a user");
        for container in pod.containers {
            let context = container.security_context.expect("a context");
            assert_eq!(context.allow_privilege_escalation, Some(false));
            assert_eq!(context.read_only_root_filesystem, Some(true));
            let capabilities = context.capabilities.expect("capabilities");
            assert_eq!(capabilities.drop, Some(vec!["ALL".to_owned()]));
            // Port 80 is what the agent's proxy is there for; nobody else may do more than a user.
            let root = pod.host_network == Some(true);
            assert_eq!(capabilities.add, root.then(|| vec!["NET_BIND_SERVICE".to_owned()]));
            assert_eq!(user(context.run_as_user) == 0, root);
            assert!(container.liveness_probe.is_some() && container.readiness_probe.is_some());
        }
    }
}

#[test]
fn controllers_are_apart_and_a_drain_takes_one_of_them() {
    let controller = all::<Deployment>("Deployment")
        .into_iter()
        .find(|it| it.metadata.name.as_deref() == Some("bowline-controller"))
        .expect("a controller");
    assert_eq!(controller.spec.replicas, Some(2));
    let labels = controller.spec.template.metadata.expect("metadata").labels.expect("labels");
    let pod = controller.spec.template.spec.expect("a spec");
    let apart = pod.affinity.and_then(|it| it.pod_anti_affinity).expect("anti-affinity");
    let terms = apart.preferred_during_scheduling_ignored_during_execution.unwrap_or_default();
    let keys: Vec<_> = terms.iter().map(|it| &*it.pod_affinity_term.topology_key).collect();
    assert_eq!(keys, ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]);
    let budgets = all::<PodDisruptionBudget>("PodDisruptionBudget");
    let policies = all::<NetworkPolicy>("NetworkPolicy");
    let budget = budgets[0].spec.clone().expect("a spec");
    let policy = policies[0].spec.clone().expect("a spec");
    let selected = terms.iter().map(|it| it.pod_affinity_term.label_selector.clone());
    for selector in selected.chain([budget.selector, policy.pod_selector]) {
        assert_eq!(selector.and_then(|it| it.match_labels).as_ref(), Some(&labels));
    }
}
