//! What a person sees with `kubectl`: get in its forms, describe, explain, wait, api-resources, events.

use crate::knots::{self, knot};
use bowline_testing::{Cluster, eventually};
use serde_json::json;

/// A table's rows as words, its heading first. What only the clock decides is cut off.
fn words(table: &str) -> Vec<Vec<&str>> {
    table.lines().map(|line| line.split_whitespace().collect()).collect()
}

async fn with_a_service(cluster: &Cluster) -> String {
    let namespace = cluster.namespace().await;
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "labels": {"app": "x"}},
        "spec": {
            "type": "LoadBalancer", "loadBalancerClass": "example.com/lb",
            "allocateLoadBalancerNodePorts": false, "clusterIP": null,
            "selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "targetPort": "web"}],
        },
    });
    cluster.kubectl(&["-n", &namespace, "create", "-f", "-"], &service.to_string()).ok();
    namespace
}

#[tokio::test]
async fn get_shows_tables_wide_tables_names_and_whole_objects() {
    let cluster = Cluster::start().await;
    let namespace = with_a_service(&cluster).await;
    let get =
        |args: &[&str]| cluster.kubectl(&[&["-n", &*namespace, "get"], args].concat(), "").ok();
    let ip = get(&["svc", "web", "-o", "jsonpath={.spec.clusterIP}"]);
    let table = get(&["svc"]);
    let rows = words(&table);
    assert_eq!(rows[0], ["NAME", "TYPE", "CLUSTER-IP", "EXTERNAL-IP", "PORT(S)", "AGE"]);
    assert_eq!(rows[1][..5], ["web", "LoadBalancer", &ip, "<pending>", "80/TCP"]);
    let table = get(&["svc", "web", "-o", "wide"]);
    let rows = words(&table);
    assert_eq!(rows[0][6], "SELECTOR");
    assert_eq!(rows[1][6], "app=web");
    let status = r#"{"status":{"loadBalancer":{"ingress":[{"ip":"203.0.113.7"}]}}}"#;
    cluster
        .kubectl(
            &[
                "-n",
                &namespace,
                "patch",
                "svc",
                "web",
                "--subresource=status",
                "--type=merge",
                "-p",
                status,
            ],
            "",
        )
        .ok();
    assert_eq!(words(&get(&["svc", "web", "--no-headers"]))[0][3], "203.0.113.7");
    assert_eq!(get(&["svc", "-o", "name"]), "service/web\n");
    assert_eq!(get(&["svc", "-l", "app=x", "-o", "name"]), "service/web\n");
    assert_eq!(get(&["svc", "-l", "app!=x", "-o", "name"]), "");
    assert_eq!(get(&["svc", "--field-selector=metadata.name=web", "-o", "name"]), "service/web\n");
    assert_eq!(words(&get(&["svc", "--show-labels"]))[1][6], "app=x");
    assert_eq!(words(&get(&["svc", "-L", "app"]))[1][6], "x");
    let yaml = get(&["svc", "web", "-o", "yaml"]);
    assert!(yaml.starts_with("apiVersion: v1\nkind: Service\nmetadata:\n"), "{yaml}");
    let all = cluster.kubectl(&["get", "svc", "-A", "--field-selector=metadata.name=web"], "").ok();
    assert_eq!(words(&all)[0][..2], ["NAMESPACE", "NAME"]);
    assert!(words(&all).iter().any(|row| row[..2] == [&*namespace, "web"]), "{all}");
    let sorted = get(&["svc", "--sort-by=.metadata.name", "-o", "name"]);
    assert_eq!(sorted, "service/web\n");
    let raw = cluster
        .kubectl(&["get", "--raw", &format!("/api/v1/namespaces/{namespace}/services")], "")
        .ok();
    assert!(raw.contains("ServiceList"));
}

#[tokio::test]
async fn every_built_in_kind_has_its_usual_columns() {
    let cluster = Cluster::start().await;
    let namespace = cluster.namespace().await;
    let manifest = include_str!("columns.yaml").replace("NODE", &namespace);
    cluster.owns("node", &namespace);
    cluster.kubectl(&["-n", &namespace, "create", "-f", "-"], &manifest).ok();
    let expected = [
        ("namespace", &*namespace, "NAME STATUS AGE"),
        ("node", &namespace, "NAME STATUS ROLES AGE VERSION"),
        ("pod", "p", "NAME READY STATUS RESTARTS AGE"),
        ("configmap", "c", "NAME DATA AGE"),
        ("secret", "s", "NAME TYPE DATA AGE"),
        ("endpointslice", "e", "NAME ADDRESSTYPE PORTS ENDPOINTS AGE"),
        ("lease", "l", "NAME HOLDER AGE"),
        ("ingress", "i", "NAME CLASS HOSTS ADDRESS PORTS AGE"),
        ("deployment", "d", "NAME READY UP-TO-DATE AVAILABLE AGE"),
        ("statefulset", "t", "NAME READY AGE"),
        ("serviceaccount", "a", "NAME AGE"),
        ("role", "r", "NAME CREATED AT"),
        ("rolebinding", "b", "NAME ROLE AGE"),
    ];
    let tables: Vec<_> = expected
        .iter()
        .map(|(kind, name, _)| {
            let table = cluster.kubectl(&["-n", &namespace, "get", kind, name], "").ok();
            let heading = words(&table)[0].join(" ");
            (*kind, *name, heading)
        })
        .collect();
    assert_eq!(tables, expected.map(|(kind, name, heading)| (kind, name, heading.to_owned())));
    let get = |kind: &str, name: &str| {
        cluster.kubectl(&["-n", &namespace, "get", kind, name, "--no-headers"], "").ok()
    };
    assert_eq!(words(&get("pod", "p"))[0][..4], ["p", "0/1", "Pending", "0"]);
    assert_eq!(words(&get("ingress", "i"))[0][..4], ["i", "none", "example.com", "80"]);
    assert_eq!(words(&get("deployment", "d"))[0][..4], ["d", "0/0", "0", "0"]);
    assert_eq!(words(&get("secret", "s"))[0][..3], ["s", "Opaque", "1"]);
    assert_eq!(words(&get("node", &namespace))[0][1..3], ["Unknown", "<none>"]);
    assert_eq!(words(&get("rolebinding", "b"))[0][1], "Role/r");
    assert_eq!(words(&get("endpointslice", "e"))[0][1..4], ["IPv4", "80", "10.1.2.3"]);
}

#[tokio::test]
async fn custom_objects_show_their_own_columns_under_all_their_names() {
    let cluster = Cluster::start().await;
    knots::serve(&cluster).await;
    let namespace = cluster.namespace().await;
    let run = |args: &[&str], stdin: &str| {
        cluster.kubectl(&[&["-n", &*namespace], args].concat(), stdin).ok()
    };
    run(&["create", "-f", "-"], &knot("a", json!({"mode": "Tight"})).to_string());
    for name in [
        "knots",
        "knot",
        "kn",
        "knots.conformance.example.com",
        "knots.v1.conformance.example.com",
        "rigging",
    ] {
        let table = run(&["get", name], "");
        let rows = words(&table);
        assert_eq!(
            (&rows[0][..], &rows[1][..3]),
            (&["NAME", "MODE", "SIZE", "AGE"][..], &["a", "Tight", "3"][..])
        );
    }
    let table = run(&["get", "kn", "-o", "wide"], "");
    assert_eq!(words(&table)[0], ["NAME", "MODE", "SIZE", "PHASE", "AGE"]);
}

#[tokio::test]
async fn describe_tells_the_story_with_events() {
    let cluster = Cluster::start().await;
    knots::serve(&cluster).await;
    let namespace = with_a_service(&cluster).await;
    let run = |args: &[&str], stdin: &str| {
        cluster.kubectl(&[&["-n", &*namespace], args].concat(), stdin).ok()
    };
    let uid = run(&["get", "svc", "web", "-o", "jsonpath={.metadata.uid}"], "");
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "web.1"},
        "involvedObject": {"kind": "Service", "name": "web", "namespace": namespace, "uid": uid, "apiVersion": "v1"},
        "reason": "Knotted", "message": "it holds", "type": "Normal", "count": 1,
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z",
        "source": {"component": "bowline"},
    });
    run(&["create", "-f", "-"], &event.to_string());
    let text = run(&["describe", "svc", "web"], "");
    let lines: Vec<_> = words(&text);
    let line = |head: &[&str]| {
        lines.iter().find(|line| line.starts_with(head)).cloned().unwrap_or_default()
    };
    assert_eq!(line(&["Name:"]), ["Name:", "web"]);
    assert_eq!(line(&["Namespace:"]), ["Namespace:", &namespace]);
    assert_eq!(line(&["Selector:"]), ["Selector:", "app=web"]);
    assert_eq!(line(&["TargetPort:"]), ["TargetPort:", "web/TCP"]);
    assert_eq!(line(&["Normal", "Knotted"])[3..], ["bowline", "it", "holds"], "{text}");
    run(&["create", "-f", "-"], &knot("a", json!({"mode": "Tight"})).to_string());
    let text = run(&["describe", "knot", "a"], "");
    assert!(text.contains("Kind:         Knot") && text.contains("Mode:  Tight"), "{text}");
    let text = cluster.kubectl(&["describe", "namespace", &namespace], "").ok();
    assert!(text.contains("Status:       Active"), "{text}");
    run(&["create", "deployment", "d", "--image=nginx", "--replicas=0"], "");
    let text = run(&["describe", "deployment", "d"], "");
    assert!(text.contains("StrategyType:           RollingUpdate"), "{text}");
    let listed = run(&["get", "events", "--field-selector=involvedObject.name=web"], "");
    assert_eq!(words(&listed)[1][1..], ["Normal", "Knotted", "service/web", "it", "holds"]);
}

#[tokio::test]
async fn explain_knows_built_in_and_custom_fields() {
    let cluster = Cluster::start().await;
    knots::serve(&cluster).await;
    let explain = |args: &[&str]| cluster.kubectl(&[&["explain"], args].concat(), "").ok();
    let text = explain(&["service.spec.ports"]);
    assert!(
        text.contains("KIND:       Service") && text.contains("targetPort\t<IntOrString>"),
        "{text}"
    );
    let text = explain(&["deployment.spec.template.spec.containers.image"]);
    assert!(text.contains("GROUP:      apps") && text.contains("FIELD: image <string>"), "{text}");
    let text = explain(&["knot"]);
    assert!(text.contains("A knot holds fast and unties easily."), "{text}");
    let text = explain(&["kn.spec"]);
    assert!(
        text.contains(
            "mode\t<string> -required-\n  enum: Tight, Loose\n    How hard it is pulled."
        ),
        "{text}"
    );
    let text = explain(&["knots", "--recursive"]);
    assert!(
        text.contains(
            "    ends\t<[]Object>\n      length\t<integer>\n      name\t<string> -required-"
        ),
        "{text}"
    );
    let refused = cluster.kubectl(&["explain", "knot.spec.none"], "").fails();
    assert!(refused.contains("field \"none\" does not exist"), "{refused}");
}

#[tokio::test]
async fn wait_sees_conditions_fields_and_deletions_when_they_come() {
    let cluster = Cluster::start().await;
    knots::serve(&cluster).await;
    let namespace = cluster.namespace().await;
    let run =
        |args: &[&str], stdin: &str| cluster.kubectl(&[&["-n", &*namespace], args].concat(), stdin);
    run(&["create", "-f", "-"], &knot("a", json!({"mode": "Tight"})).to_string()).ok();
    let crd = "crd/knots.conformance.example.com";
    let established =
        cluster.kubectl(&["wait", "--for=condition=established", crd, "--timeout=30s"], "");
    assert!(established.ok().ends_with("condition met\n"));
    let late =
        run(&["wait", "--for=jsonpath={.status.phase}=Held", "knot/a", "--timeout=1s"], "").fails();
    assert!(late.contains("timed out waiting for the condition"), "{late}");
    std::thread::scope(|threads| {
        let waiting = threads.spawn(|| {
            run(&["wait", "--for=jsonpath={.status.phase}=Held", "knot/a", "--timeout=60s"], "")
        });
        let patch = r#"{"status":{"phase":"Held"}}"#;
        run(&["patch", "knot", "a", "--subresource=status", "--type=merge", "-p", patch], "").ok();
        assert!(waiting.join().expect("a thread").ok().ends_with("condition met\n"));
        let waiting =
            threads.spawn(|| run(&["wait", "--for=delete", "knot/a", "--timeout=60s"], ""));
        run(&["delete", "knot", "a"], "").ok();
        waiting.join().expect("a thread").ok();
    });
}

#[tokio::test]
async fn api_resources_versions_and_rights_are_listed() {
    let cluster = Cluster::start().await;
    knots::serve(&cluster).await;
    let table = cluster.kubectl(&["api-resources", "--no-headers"], "").ok();
    let rows = words(&table);
    for row in [
        &["services", "svc", "v1", "true", "Service"][..],
        &["ingresses", "ing", "networking.k8s.io/v1", "true", "Ingress"],
        &["knots", "kn", "conformance.example.com/v1", "true", "Knot"],
        &["namespaces", "ns", "v1", "false", "Namespace"],
        &[
            "customresourcedefinitions",
            "crd,crds",
            "apiextensions.k8s.io/v1",
            "false",
            "CustomResourceDefinition",
        ],
    ] {
        assert!(rows.iter().any(|found| found == row), "{row:?} in\n{table}");
    }
    let all = cluster.kubectl(&["api-resources", "--categories=all", "-o", "name"], "").ok();
    for name in ["pods", "services", "deployments.apps", "statefulsets.apps"] {
        assert!(all.lines().any(|line| line == name), "{name} is one of all:\n{all}");
    }
    let versions = cluster.kubectl(&["api-versions"], "").ok();
    for version in ["v1", "apps/v1", "conformance.example.com/v1"] {
        assert!(versions.lines().any(|line| line == version), "{versions}");
    }
    assert!(cluster.kubectl(&["version"], "").ok().contains("Server Version: v1."));
    assert_eq!(cluster.kubectl(&["auth", "can-i", "create", "pods"], "").ok(), "yes\n");
}

#[tokio::test]
async fn a_watch_of_kubectl_prints_changes_as_they_come() {
    let cluster = Cluster::start().await;
    let namespace = cluster.namespace().await;
    let run = |args: &[&str]| cluster.kubectl(&[&["-n", &*namespace], args].concat(), "");
    run(&["create", "configmap", "a"]).ok();
    let output = std::thread::scope(|threads| {
        let watch = threads.spawn(|| {
            run(&[
                "get",
                "cm",
                "-l",
                "app=x",
                "--watch",
                "--output-watch-events",
                "-o",
                "name",
                "--request-timeout=6s",
            ])
        });
        run(&["label", "cm", "a", "app=x"]).ok();
        run(&["annotate", "cm", "a", "b=c"]).ok();
        run(&["delete", "cm", "a"]).ok();
        watch.join().expect("a thread")
    });
    // How much had happened before the watch began is not certain; the end is.
    assert!(output.stdout.ends_with("configmap/a\n"), "{output:?}");
    eventually("gone", || async {
        run(&["get", "cm", "a"]).success().map_or(Ok(()), |_| Err("there".into()))
    })
    .await;
}
