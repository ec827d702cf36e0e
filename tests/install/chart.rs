//! The chart, as Helm itself reads it: the plain manifests are made from it, its values are checked, and each
//! does what its comment says.

use crate::tools::{repository, run, run_in, text};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// What the chart renders with these values.
fn render(values: &Value) -> Result<Vec<Value>, String> {
    let scratch = tempfile::tempdir().expect("a folder");
    let file = scratch.path().join("values.json");
    std::fs::write(&file, values.to_string()).expect("write");
    let file = file.display().to_string();
    let args = [
        "template",
        "bowline",
        "deploy/chart",
        "--namespace",
        "own",
        "--values",
        &file,
        "--include-crds",
    ];
    let text = run_in(&repository(""), "helm", &args)?;
    let objects = serde_saphyr::from_multiple::<Value>(&text).map_err(|e| e.to_string())?;
    Ok(objects.into_iter().filter(|object| !object.is_null()).collect())
}

fn rendered(values: Value) -> Vec<Value> {
    render(&values).unwrap_or_else(|why| panic!("{why}"))
}

/// The only object of this kind and name.
fn one<'a>(objects: &'a [Value], kind: &str, name: &str) -> Option<&'a Value> {
    let mut found =
        objects.iter().filter(|it| it["kind"] == kind && it["metadata"]["name"] == name);
    let first = found.next();
    assert!(found.next().is_none(), "two of {kind} {name}");
    first
}

/// What each object is called, without the CustomResourceDefinitions.
fn names(objects: &[Value]) -> Vec<String> {
    let ours = objects.iter().filter(|it| it["kind"] != "CustomResourceDefinition");
    let name = |it: &Value| format!("{} {}", it["kind"], it["metadata"]["name"]).replace('"', "");
    let mut names: Vec<_> = ours.map(name).collect();
    names.sort();
    names
}

fn container<'a>(objects: &'a [Value], deployment: &str) -> &'a Value {
    let deployment = one(objects, "Deployment", deployment).expect("a Deployment");
    &deployment["spec"]["template"]["spec"]["containers"][0]
}

/// The manifests of a folder and of `rbac` in it, by path.
fn manifests(folder: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for sub in ["", "rbac/"] {
        for entry in std::fs::read_dir(folder.join(sub)).expect("a folder") {
            let path = entry.expect("a file").path();
            if path.extension().is_some_and(|it| it == "yaml") {
                let name = path.file_name().expect("a name").to_string_lossy();
                let text = std::fs::read_to_string(&path).expect("a text");
                found.insert(format!("{sub}{name}"), text);
            }
        }
    }
    found
}

#[test]
fn the_plain_manifests_are_what_the_chart_makes() {
    let scratch = tempfile::tempdir().expect("a folder");
    let folder = scratch.path().display().to_string();
    run("bash", &["scripts/manifests", &folder]);
    let (made, kept) = (manifests(scratch.path()), manifests(&repository("deploy")));
    assert_eq!(made.keys().collect::<Vec<_>>(), kept.keys().collect::<Vec<_>>());
    for (file, made) in &made {
        assert!(
            kept[file] == *made,
            "deploy/{file} is out of date; make it new with: make manifests"
        );
    }
}

#[test]
fn helm_finds_no_fault_and_the_chart_is_of_this_version() {
    let versions = ["--values", "deploy/chart/manifests.yaml", "--strict"];
    for args in [&[][..], &versions[..]] {
        run("helm", &[&["lint", "deploy/chart"], args].concat());
    }
    let chart: Value = serde_saphyr::from_str(&text("deploy/chart/Chart.yaml")).expect("YAML");
    let version = json!(env!("CARGO_PKG_VERSION"));
    assert_eq!([&chart["version"], &chart["appVersion"]], [&version, &version]);
}

#[test]
fn by_default_there_are_controllers_and_no_load_balancer() {
    let objects = rendered(json!({}));
    let expected = [
        "ClusterRole bowline-controller",
        "ClusterRole bowline-proxy",
        "ClusterRoleBinding bowline-controller",
        "ClusterRoleBinding bowline-proxy",
        "Deployment bowline-controller",
        "NetworkPolicy bowline-controller",
        "PodDisruptionBudget bowline-controller",
        "Role bowline-controller",
        "Role bowline-provisioner",
        "RoleBinding bowline-controller",
        "RoleBinding bowline-provisioner",
        "ServiceAccount bowline-controller",
    ];
    assert_eq!(names(&objects), expected);
    let kinds = objects.iter().filter(|it| it["kind"] == "CustomResourceDefinition").count();
    assert_eq!(kinds, std::fs::read_dir(repository("deploy/crds")).expect("a folder").count());
    let image = format!("bowline:{}", env!("CARGO_PKG_VERSION"));
    assert_eq!(container(&objects, "bowline-controller")["image"], json!(image));
}

#[test]
fn everything_is_in_the_namespace_of_the_release() {
    let objects = rendered(json!({
        "namespace": {"create": true, "labels": {"a": "b"}},
        "loadBalancers": [{"name": "edge", "spec": {"builtin": {}}}],
    }));
    let namespace = one(&objects, "Namespace", "own").expect("a namespace");
    assert_eq!(namespace["metadata"]["labels"], json!({"a": "b"}));
    for object in &objects {
        if let Some(namespace) = object["metadata"]["namespace"].as_str() {
            assert_eq!(namespace, "own", "{object:#}");
        }
        for subject in object["subjects"].as_array().into_iter().flatten() {
            // A group of accounts has its namespace in its name.
            let group =
                subject["kind"] == "Group" && subject["name"] == "system:serviceaccounts:own";
            assert!(group || subject["namespace"] == "own", "{object:#}");
        }
    }
    for name in ["bowline-controller", "bowline-agent-edge"] {
        let args = container(&objects, name)["args"].as_array().expect("arguments").clone();
        assert!(args.contains(&json!("--system-namespace=own")), "{args:?}");
    }
}

#[test]
fn values_of_the_controllers_reach_them() {
    let objects = rendered(json!({
        "image": {"repository": "registry.example/bowline", "digest": format!("sha256:{}", "0".repeat(64))},
        "imagePullSecrets": [{"name": "pull"}],
        "controller": {
            "replicas": 3, "defaultClass": true, "defaultLoadBalancer": "edge", "clusterId": "east: 1",
            "importMetallb": "metallb-system", "logLevel": "debug",
            "extraArgs": ["--dns-server", "192.0.2.53"],
            "priorityClassName": "system-cluster-critical",
            "nodeSelector": {"node-role.kubernetes.io/control-plane": ""},
            "podAnnotations": {"a": "b"}, "podDisruptionBudget": false,
            "networkPolicy": {
                "scrapeFrom": [{"podSelector": {"matchLabels": {"app": "prometheus"}}}],
                "apiPorts": [8443], "extraEgress": [{"ports": [{"port": 5353, "protocol": "UDP"}]}],
            },
        },
        "monitoring": {"annotations": false},
    }));
    let deployment = one(&objects, "Deployment", "bowline-controller").expect("controllers");
    let pod = &deployment["spec"]["template"];
    assert_eq!(deployment["spec"]["replicas"], 3);
    assert_eq!(pod["metadata"]["annotations"], json!({"a": "b"}));
    assert_eq!(pod["spec"]["imagePullSecrets"], json!([{"name": "pull"}]));
    assert_eq!(pod["spec"]["priorityClassName"], "system-cluster-critical");
    assert_eq!(pod["spec"]["nodeSelector"], json!({"node-role.kubernetes.io/control-plane": ""}));
    let container = container(&objects, "bowline-controller");
    let image = format!("registry.example/bowline@sha256:{}", "0".repeat(64));
    assert_eq!(container["image"], json!(image));
    let args = [
        "controller",
        "--system-namespace=own",
        "--admin=[::]:9180",
        "--log-format=json",
        "--log-level=debug",
        "--default-class",
        "--default-load-balancer=edge",
        "--cluster-id=east: 1",
        "--import-metallb=metallb-system",
        &format!("--proxy-image={image}"),
        "--dns-server",
        "192.0.2.53",
    ];
    assert_eq!(container["args"], json!(args));
    assert!(one(&objects, "PodDisruptionBudget", "bowline-controller").is_none());
    assert!(one(&objects, "Role", "bowline-import-metallb").is_some());
    let policy = &one(&objects, "NetworkPolicy", "bowline-controller").expect("a policy")["spec"];
    let expected = json!([{
        "ports": [{"protocol": "TCP", "port": 9180}],
        "from": [{"podSelector": {"matchLabels": {"app": "prometheus"}}}],
    }]);
    assert_eq!(policy["ingress"], expected);
    assert_eq!(policy["egress"][1], json!({"ports": [{"protocol": "TCP", "port": 8443}]}));
    assert_eq!(policy["egress"][2], json!({"ports": [{"protocol": "UDP", "port": 5353}]}));
}

#[test]
fn a_policy_that_names_nobody_opens_to_nobody() {
    let values = json!({"controller": {"networkPolicy": {"scrapeFrom": []}}});
    let objects = rendered(values);
    let policy = &one(&objects, "NetworkPolicy", "bowline-controller").expect("a policy")["spec"];
    assert_eq!(policy["ingress"], json!([]));
}

#[test]
fn each_load_balancer_has_an_agent_or_only_the_rights_for_one() {
    let objects = rendered(json!({"loadBalancers": [
        {"name": "one", "spec": {"builtin": {}, "addressPool": "public"}, "extraArgs": ["--access-log"]},
        {"name": "two", "ingressClass": false, "adminPort": 9181, "scrape": true},
        {"name": "three", "agent": false},
    ]}));
    let others = ["controller", "proxy", "provisioner"];
    let agents = names(&objects).into_iter();
    let agents = agents.filter(|name| !others.iter().any(|other| name.ends_with(other)));
    let expected = [
        "ClusterRole bowline-agent",
        "ClusterRole bowline-agent-one",
        "ClusterRole bowline-agent-three",
        "ClusterRole bowline-agent-two",
        "ClusterRoleBinding bowline-agent-one",
        "ClusterRoleBinding bowline-agent-one-load-balancer",
        "ClusterRoleBinding bowline-agent-three",
        "ClusterRoleBinding bowline-agent-three-load-balancer",
        "ClusterRoleBinding bowline-agent-two",
        "ClusterRoleBinding bowline-agent-two-load-balancer",
        "Deployment bowline-agent-one",
        "Deployment bowline-agent-two",
        "IngressClass one",
        "IngressClass three",
        "LoadBalancer one",
        "Role bowline-agent",
        "Role bowline-agent-one",
        "Role bowline-agent-three",
        "Role bowline-agent-two",
        "RoleBinding bowline-agent-one",
        "RoleBinding bowline-agent-one-common",
        "RoleBinding bowline-agent-three",
        "RoleBinding bowline-agent-three-common",
        "RoleBinding bowline-agent-two",
        "RoleBinding bowline-agent-two-common",
        "ServiceAccount bowline-agent-one",
        "ServiceAccount bowline-agent-three",
        "ServiceAccount bowline-agent-two",
    ];
    assert_eq!(agents.collect::<Vec<_>>(), expected);
    // An agent reads its own load balancer and no other.
    let rights = &one(&objects, "ClusterRole", "bowline-agent-two").expect("a role")["rules"];
    let expected = json!([{
        "apiGroups": ["bowline.dev"], "resources": ["loadbalancers"], "resourceNames": ["two"],
        "verbs": ["get"],
    }]);
    assert_eq!(*rights, expected);
    let grant = one(&objects, "ClusterRoleBinding", "bowline-agent-two-load-balancer");
    let grant = grant.expect("a binding");
    assert_eq!(grant["roleRef"]["name"], "bowline-agent-two");
    assert_eq!(grant["subjects"][0]["name"], "bowline-agent-two");
    let balancer = one(&objects, "LoadBalancer", "one").expect("a load balancer");
    assert_eq!(balancer["spec"], json!({"builtin": {}, "addressPool": "public"}));
    let probe = |name: &str| container(&objects, name)["readinessProbe"]["httpGet"].clone();
    let args =
        |name: &str| container(&objects, name)["args"].as_array().expect("arguments").clone();
    // One is asked on the loopback of its node, the other at the node's address.
    assert_eq!(
        probe("bowline-agent-one"),
        json!({"host": "127.0.0.1", "path": "/readyz", "port": 9180})
    );
    assert_eq!(probe("bowline-agent-two"), json!({"path": "/readyz", "port": 9181}));
    assert!(args("bowline-agent-one").ends_with(&[json!("--access-log")]));
    assert!(args("bowline-agent-two").contains(&json!("--admin=[$(NODE_IP)]:9181")));
    let scraped = |name: &str| {
        let pod = &one(&objects, "Deployment", name).expect("an agent")["spec"]["template"];
        pod["metadata"]["annotations"]["prometheus.io/port"].clone()
    };
    let ports = ["bowline-controller", "bowline-agent-one", "bowline-agent-two"].map(scraped);
    assert_eq!(ports, [json!("9180"), Value::Null, json!("9181")]);
}

#[test]
fn a_pod_monitor_is_there_for_who_asks() {
    let values =
        json!({"monitoring": {"podMonitor": true, "podMonitorLabels": {"release": "prometheus"}}});
    let objects = rendered(values);
    let monitor = one(&objects, "PodMonitor", "bowline").expect("a monitor");
    assert_eq!(monitor["metadata"]["labels"], json!({"release": "prometheus"}));
    assert_eq!(
        monitor["spec"]["podMetricsEndpoints"],
        json!([{"port": "admin", "path": "/metrics"}])
    );
}

#[test]
fn a_value_that_means_nothing_is_refused_by_its_name() {
    for (values, word) in [
        (json!({"controller": {"replica": 3}}), "replica"),
        (json!({"controller": {"logLevel": "loud"}}), "logLevel"),
        (json!({"loadBalancers": [{"name": "Edge"}]}), "name"),
        (json!({"loadBalancers": [{"name": "edge", "adress": "192.0.2.1"}]}), "adress"),
        (json!({"image": {"digest": "latest"}}), "digest"),
    ] {
        let why = render(&values).expect_err("a refusal");
        assert!(why.contains(word), "{values}: {why}");
    }
}

#[test]
fn with_speakers_each_agent_shares_a_folder_with_that_of_its_node() {
    let balancers = json!([{"name": "edge", "spec": {"builtin": {}}}]);
    let without = rendered(json!({"loadBalancers": balancers}));
    assert_eq!(one(&without, "DaemonSet", "bowline-speaker"), None);
    assert_eq!(container(&without, "bowline-agent-edge")["env"], Value::Null);
    let speaker = json!({"enabled": true, "image": "own/speaker:1", "grace": 25, "scrape": true,
        "extraArgs": ["--withdraw-at-end"], "adminPort": 9999});
    let objects = rendered(json!({"loadBalancers": balancers, "speaker": speaker}));
    let set = one(&objects, "DaemonSet", "bowline-speaker").expect("a DaemonSet");
    let pod = &set["spec"]["template"]["spec"];
    let speaker = &pod["containers"][0];
    assert_eq!(speaker["image"], json!("own/speaker:1"));
    assert_eq!(pod["terminationGracePeriodSeconds"], json!(45));
    for arg in
        ["--grace=25", "--withdraw-at-end", "--admin=[$(NODE_IP)]:9999", "--system-namespace=own"]
    {
        assert!(
            speaker["args"].as_array().expect("arguments").contains(&json!(arg)),
            "{speaker:#}"
        );
    }
    let agent = one(&objects, "Deployment", "bowline-agent-edge").expect("an agent");
    let agent = &agent["spec"]["template"]["spec"];
    let folder = |pod: &Value| {
        let volumes = pod["volumes"].as_array().expect("volumes");
        let found = volumes.iter().find(|it| it["name"] == "sockets").expect("a volume").clone();
        let mounts = pod["containers"][0]["volumeMounts"].as_array().expect("mounts");
        let mount = mounts.iter().find(|it| it["name"] == "sockets").expect("a mount").clone();
        (found, mount)
    };
    assert_eq!(folder(pod), folder(agent));
    assert_eq!(agent["containers"][0]["env"][0]["name"], json!("NODE_NAME"));
    for kind in ["ServiceAccount", "ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding"] {
        assert!(one(&objects, kind, "bowline-speaker").is_some(), "{kind}");
        assert!(one(&without, kind, "bowline-speaker").is_none(), "{kind}");
    }
    assert!(render(&json!({"speakerRights": true})).is_err());
}
