//! What a person changes with `kubectl`: create, apply, patch, label, annotate, scale, edit, delete,
//! and what they are told when it is refused.

use crate::differences::{DRY_RUN, FOREGROUND_DELETION, SERVER_SIDE_APPLY};
use crate::knots::{self, knot};
use bowline_testing::Cluster;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;

/// `kubectl -n NAMESPACE`.
struct Kubectl<'a>(&'a Cluster, String);

impl<'a> Kubectl<'a> {
    async fn new(cluster: &'a Cluster) -> Self {
        Self(cluster, cluster.namespace().await)
    }

    fn run(&self, args: &[&str], stdin: &str) -> bowline_testing::Output {
        self.0.kubectl(&[&["-n", &self.1], args].concat(), stdin)
    }

    fn ok(&self, args: &[&str]) -> String {
        self.run(args, "").ok()
    }

    fn fails(&self, args: &[&str]) -> String {
        self.run(args, "").fails()
    }

    fn apply(&self, object: &Value) -> String {
        self.run(&["apply", "-f", "-"], &object.to_string()).ok()
    }

    fn json(&self, name: &str) -> Value {
        serde_json::from_str(&self.ok(&["get", name, "-o", "json"])).expect("JSON")
    }
}

fn service(ports: Value, labels: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "labels": labels},
        "spec": {"selector": {"app": "web"}, "ports": ports},
    })
}

#[tokio::test]
async fn applying_twice_removes_what_was_removed() {
    let cluster = Cluster::start().await;
    let kubectl = Kubectl::new(&cluster).await;
    let both = json!([{"name": "http", "port": 80}, {"name": "https", "port": 443}]);
    let first = service(both, json!({"a": "1", "b": "2"}));
    assert_eq!(kubectl.apply(&first), "service/web created\n");
    assert_eq!(kubectl.apply(&first), "service/web unchanged\n");
    kubectl.ok(&["label", "service/web", "kept=yes"]);
    let second =
        service(json!([{"name": "http", "port": 80, "targetPort": 8080}]), json!({"a": "1"}));
    assert_eq!(kubectl.apply(&second), "service/web configured\n");
    let object = kubectl.json("service/web");
    assert_eq!(
        (&object["spec"]["ports"], &object["metadata"]["labels"]),
        (
            &json!([{"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080}]),
            &json!({"a": "1", "kept": "yes"})
        )
    );
}

#[tokio::test]
async fn applying_a_custom_object_twice_removes_what_was_removed() {
    let cluster = Cluster::start().await;
    knots::serve(&cluster).await;
    let kubectl = Kubectl::new(&cluster).await;
    let first =
        knot("a", json!({"mode": "Tight", "size": 7, "ends": [{"name": "x"}, {"name": "y"}]}));
    assert_eq!(kubectl.apply(&first), "knot.conformance.example.com/a created\n");
    assert_eq!(kubectl.apply(&first), "knot.conformance.example.com/a unchanged\n");
    let second = knot("a", json!({"mode": "Tight", "ends": [{"name": "y"}]}));
    assert_eq!(kubectl.apply(&second), "knot.conformance.example.com/a configured\n");
    assert_eq!(
        kubectl.json("knot/a")["spec"],
        json!({"mode": "Tight", "size": 3, "ends": [{"name": "y"}]})
    );
}

#[tokio::test]
async fn apply_prunes_and_takes_many_objects_from_yaml() {
    let cluster = Cluster::start().await;
    let kubectl = Kubectl::new(&cluster).await;
    let map = |name: &str| {
        format!(
            "---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n  labels: {{app: x}}\n"
        )
    };
    let out = kubectl.run(&["apply", "-f", "-"], &(map("a") + &map("b"))).ok();
    assert_eq!(out, "configmap/a created\nconfigmap/b created\n");
    let args =
        ["apply", "--prune", "-l", "app=x", "--prune-allowlist=core/v1/ConfigMap", "-f", "-"];
    let out = kubectl.run(&args, &map("a")).ok();
    assert_eq!(out, "configmap/a unchanged\nconfigmap/b pruned\n");
    let out = kubectl.run(&["replace", "-f", "-"], &(map("a") + "data: {k: v}\n")).ok();
    assert_eq!(out, "configmap/a replaced\n");
    assert_eq!(kubectl.json("cm/a")["data"], json!({"k": "v"}));
}

/// What a server adds when a kind has CEL rules and an object does not even fit the schema.
const UNCHECKED: &str = "* <nil>: Invalid value: null: some validation rules were not checked because \
    the object was invalid; correct the existing errors to complete validation\n";

#[tokio::test]
async fn what_may_not_be_is_told_as_the_field_and_the_reason() {
    let cluster = Cluster::start().await;
    knots::serve(&cluster).await;
    let kubectl = Kubectl::new(&cluster).await;
    let refused = |object: Value| kubectl.run(&["apply", "-f", "-"], &object.to_string()).fails();
    assert_eq!(
        refused(knot("bad", json!({"mode": "Slack"}))),
        format!(
            "The Knot \"bad\" is invalid: \n* spec.mode: Unsupported value: \"Slack\": supported \
             values: \"Tight\", \"Loose\"\n{UNCHECKED}"
        )
    );
    assert_eq!(
        refused(knot("bad", json!({"mode": "Tight", "size": 10}))),
        "The Knot \"bad\" is invalid: spec.size: Invalid value: 10: spec.size in body should be less \
         than or equal to 9\n"
    );
    let unknown = refused(knot("bad", json!({"mode": "Tight", "colour": "red"})));
    assert!(unknown.contains("strict decoding error: unknown field \"spec.colour\""), "{unknown}");
    kubectl.apply(&knot("a", json!({"mode": "Loose"})));
    assert_eq!(
        refused(knot("a", json!({"mode": "Tight"}))),
        "The Knot \"a\" is invalid: spec: Invalid value: a loose knot cannot be tightened\n"
    );
    assert_eq!(
        refused(service(json!([{"port": 0}]), json!({}))),
        "The Service \"web\" is invalid: \n* spec.ports[0].port: Invalid value: 0: must be between 1 \
         and 65535, inclusive\n* spec.ports[0].targetPort: Invalid value: 0: must be between 1 and \
         65535, inclusive\n"
    );
    assert_eq!(
        kubectl.fails(&["get", "configmap", "none"]),
        "Error from server (NotFound): configmaps \"none\" not found\n"
    );
    assert_eq!(
        kubectl.fails(&["create", "configmap", "Bad"]),
        "error: failed to create configmap: ConfigMap \"Bad\" is invalid: metadata.name: Invalid value: \"Bad\": a lowercase RFC 1123 \
         subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and \
         end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
         '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')\n"
    );
    kubectl.ok(&["create", "configmap", "a"]);
    assert_eq!(
        kubectl.fails(&["create", "configmap", "a"]),
        "error: failed to create configmap: configmaps \"a\" already exists\n"
    );
}

#[tokio::test]
async fn ports_of_a_service_are_patched_by_key() {
    let cluster = Cluster::start().await;
    let kubectl = Kubectl::new(&cluster).await;
    kubectl.apply(&service(
        json!([{"name": "http", "port": 80}, {"name": "https", "port": 443}]),
        json!({}),
    ));
    let ports = || {
        let list = kubectl.json("service/web")["spec"]["ports"].clone();
        list.as_array()
            .expect("ports")
            .iter()
            .map(|p| json!([p["port"], p["targetPort"]]))
            .collect::<Value>()
    };
    let out = kubectl.ok(&[
        "patch",
        "svc",
        "web",
        "-p",
        r#"{"spec":{"ports":[{"port":443,"targetPort":8443}]}}"#,
    ]);
    assert_eq!(out, "service/web patched\n");
    assert_eq!(ports(), json!([[80, 80], [443, 8443]]));
    let delete = r#"{"spec":{"ports":[{"port":443,"$patch":"delete"}]}}"#;
    kubectl.ok(&["patch", "svc", "web", "-p", delete]);
    assert_eq!(ports(), json!([[80, 80]]));
    let add = r#"[{"op":"add","path":"/spec/ports/-","value":{"name":"x","port":90}}]"#;
    kubectl.ok(&["patch", "svc", "web", "--type=json", "-p", add]);
    assert_eq!(ports(), json!([[80, 80], [90, 90]]));
    kubectl.ok(&[
        "patch",
        "svc",
        "web",
        "--type=merge",
        "-p",
        r#"{"spec":{"ports":[{"port":70}]}}"#,
    ]);
    assert_eq!(ports(), json!([[70, 70]]));
    let same = r#"{"spec":{"ports":[{"port":70}]}}"#;
    assert_eq!(
        kubectl.ok(&["patch", "svc", "web", "-p", same]),
        "service/web patched (no change)\n"
    );
}

#[tokio::test]
async fn kubectl_creates_namespaces_and_the_built_in_kinds_by_its_generators() {
    let cluster = Cluster::start().await;
    let kubectl = Kubectl::new(&cluster).await;
    let name = format!("t-{}", bowline_testing::unique());
    cluster.owns("namespace", &name);
    assert_eq!(kubectl.ok(&["create", "namespace", &name]), format!("namespace/{name} created\n"));
    let made: &[(&[&str], &str)] = &[
        (&["configmap", "c", "--from-literal=k=v"], "configmap/c created\n"),
        (&["secret", "generic", "s", "--from-literal=k=v"], "secret/s created\n"),
        (&["service", "clusterip", "svc", "--tcp=80:8080"], "service/svc created\n"),
        (&["service", "loadbalancer", "lb", "--tcp=80"], "service/lb created\n"),
        (&["deployment", "d", "--image=nginx", "--replicas=0"], "deployment.apps/d created\n"),
        (
            &["ingress", "i", "--rule=example.com/*=svc:80", "--class=none"],
            "ingress.networking.k8s.io/i created\n",
        ),
        (&["serviceaccount", "sa"], "serviceaccount/sa created\n"),
        (
            &["role", "r", "--verb=get", "--resource=pods"],
            "role.rbac.authorization.k8s.io/r created\n",
        ),
        (
            &["rolebinding", "rb", "--role=r", "--user=u"],
            "rolebinding.rbac.authorization.k8s.io/rb created\n",
        ),
    ];
    for (args, said) in made {
        assert_eq!(kubectl.ok(&[&["create"], *args].concat()), *said);
    }
    let path = &kubectl.json("ingress/i")["spec"]["rules"][0]["http"]["paths"][0];
    assert_eq!((&path["path"], &path["pathType"]), (&json!("/"), &json!("Prefix")));
    assert_eq!(kubectl.json("secret/s")["data"], json!({"k": "dg=="}));
    let ports = json!([{"name": "80-8080", "port": 80, "protocol": "TCP", "targetPort": 8080}]);
    assert_eq!(kubectl.json("service/svc")["spec"]["ports"], ports);
    assert_eq!(kubectl.ok(&["run", "p", "--image=nginx"]), "pod/p created\n");
    assert_eq!(
        kubectl.ok(&["set", "image", "deployment/d", "nginx=nginx:2"]),
        "deployment.apps/d image updated\n"
    );
    assert_eq!(kubectl.ok(&["expose", "pod", "p", "--port=80"]), "service/p exposed\n");
}

#[tokio::test]
async fn labels_and_annotations_are_set_changed_and_removed() {
    let cluster = Cluster::start().await;
    let kubectl = Kubectl::new(&cluster).await;
    kubectl.ok(&["create", "configmap", "a"]);
    for word in ["label", "annotate"] {
        let field = if word == "label" { "labels" } else { "annotations" };
        let done = if word == "label" { "labeled" } else { "annotated" };
        assert_eq!(kubectl.ok(&[word, "cm", "a", "x=1", "y=2"]), format!("configmap/a {done}\n"));
        let refused = kubectl.fails(&[word, "cm", "a", "x=3"]);
        assert!(refused.contains("--overwrite is false"), "{refused}");
        kubectl.ok(&[word, "cm", "a", "x=3", "--overwrite"]);
        kubectl.ok(&[word, "cm", "a", "y-"]);
        assert_eq!(kubectl.json("cm/a")["metadata"][field], json!({"x": "3"}));
    }
    assert_eq!(kubectl.ok(&["label", "cm", "-l", "x=3", "z=1"]), "configmap/a labeled\n");
}

#[tokio::test]
async fn deployments_and_custom_objects_are_scaled() {
    let cluster = Cluster::start().await;
    knots::serve(&cluster).await;
    let kubectl = Kubectl::new(&cluster).await;
    kubectl.ok(&["create", "deployment", "d", "--image=nginx", "--replicas=0"]);
    assert_eq!(
        kubectl.ok(&["scale", "deployment/d", "--replicas=2"]),
        "deployment.apps/d scaled\n"
    );
    assert_eq!(kubectl.json("deploy/d")["spec"]["replicas"], 2);
    let refused = kubectl.fails(&["scale", "deployment/d", "--replicas=3", "--current-replicas=9"]);
    assert_eq!(refused, "error: Expected replicas to be 9, was 2\n");
    kubectl.apply(&knot("a", json!({"mode": "Tight", "strands": 1})));
    assert_eq!(
        kubectl.ok(&["scale", "knot/a", "--replicas=5"]),
        "knot.conformance.example.com/a scaled\n"
    );
    assert_eq!(kubectl.json("knot/a")["spec"]["strands"], 5);
}

#[tokio::test]
async fn an_editor_changes_an_object() {
    let cluster = Cluster::start().await;
    let kubectl = Kubectl::new(&cluster).await;
    kubectl.ok(&["create", "configmap", "a", "--from-literal=k=old"]);
    let script = cluster.scratch().join("editor");
    std::fs::write(&script, "#!/bin/sh\nsed -i s/old/new/ \"$1\"\n").expect("write the editor");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).expect("make it run");
    let script = script.display().to_string();
    let edit = |object: &str| {
        let args = ["-n", &kubectl.1, "edit", object];
        cluster.kubectl_with(&args, "", &[("KUBE_EDITOR", script.as_str())])
    };
    assert_eq!(edit("cm/a").ok(), "configmap/a edited\n");
    assert_eq!(kubectl.json("cm/a")["data"], json!({"k": "new"}));
    assert!(edit("cm/a").stderr.contains("no changes made"));
}

#[tokio::test]
async fn objects_are_deleted_by_name_label_and_file_and_kubectl_waits_until_they_are_gone() {
    let cluster = Cluster::start().await;
    let kubectl = Kubectl::new(&cluster).await;
    // Newer ones also say from which namespace.
    let place = format!(" from {} namespace", kubectl.1);
    let delete = |args: &[&str], input: &str| {
        let args: Vec<&str> = ["delete"].iter().chain(args).copied().collect();
        kubectl.run(&args, input).ok().replace(&place, "")
    };
    for name in ["a", "b", "c", "d"] {
        kubectl.ok(&["create", "configmap", name]);
        kubectl.ok(&["label", "cm", name, "app=x"]);
    }
    assert_eq!(delete(&["cm", "a"], ""), "configmap \"a\" deleted\n");
    assert_eq!(delete(&["cm/b", "cm/c"], ""), "configmap \"b\" deleted\nconfigmap \"c\" deleted\n");
    assert_eq!(delete(&["cm", "-l", "app=x"], ""), "configmap \"d\" deleted\n");
    assert_eq!(kubectl.ok(&["delete", "cm", "a", "--ignore-not-found"]), "");
    let manifest = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"f"}}"#;
    kubectl.run(&["create", "-f", "-"], manifest).ok();
    assert_eq!(delete(&["-f", "-"], manifest), "configmap \"f\" deleted\n");
    kubectl.ok(&["run", "p", "--image=nginx"]);
    assert!(kubectl.ok(&["delete", "pod", "p", "--grace-period=0"]).starts_with("pod \"p\""));
    kubectl.ok(&["create", "configmap", "e"]);
    assert_eq!(delete(&["cm", "e", "--cascade=orphan"], ""), "configmap \"e\" deleted\n");
    let name = &kubectl.1;
    assert_eq!(
        cluster.kubectl(&["delete", "namespace", name], "").ok(),
        format!("namespace \"{name}\" deleted\n")
    );
    let gone = cluster.kubectl(&["get", "namespace", name], "").fails();
    assert_eq!(gone, format!("Error from server (NotFound): namespaces \"{name}\" not found\n"));
}

#[tokio::test]
async fn what_is_not_implemented_is_refused_to_kubectl_by_name() {
    let cluster = Cluster::start().await;
    let kubectl = Kubectl::new(&cluster).await;
    let manifest = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}"#;
    let output = kubectl.run(&["apply", "--server-side", "-f", "-"], manifest);
    assert_eq!(output.status != 0, SERVER_SIDE_APPLY.applies(&cluster), "{output:?}");
    let output = kubectl
        .run(&["create", "--dry-run=server", "-f", "-"], &manifest.replace("\"a\"", "\"dry\""));
    assert_eq!(output.status != 0, DRY_RUN.applies(&cluster), "{output:?}");
    kubectl.fails(&["get", "cm", "dry"]);
    kubectl.ok(&["create", "configmap", "owner"]);
    let output = kubectl.run(&["delete", "cm", "owner", "--cascade=foreground"], "");
    assert_eq!(output.status != 0, FOREGROUND_DELETION.applies(&cluster), "{output:?}");
}
