//! `-f`: what is applied, what is said about it, and that a slip in a file leaves nothing running.

use crate::bowline::{Start, said};
use bowline_testing::{Scratch, eventually, net};
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::api::networking::v1::Ingress;
use kube::api::{Api, ListParams};
use std::path::Path;

const NAMESPACE: &str = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n";
const DEPLOYMENT: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: nginx}]}
"#;

#[test]
fn the_examples_are_served_as_they_are() {
    net::in_namespace(|| async {
        net::add([203, 0, 113, 10].into());
        let scratch = Scratch::new();
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
        let mut server = Start::new(&scratch).arg("-f").arg(examples.to_str().unwrap()).ready();
        let client = server.client().await;
        let services: Api<Service> = Api::namespaced(client.clone(), "shop");
        let ingresses: Api<Ingress> = Api::namespaced(client, "shop");
        eventually("both have their address", || async {
            let mail = services.get("mail").await.map_err(|e| e.to_string())?.status;
            let web = ingresses.get("web").await.map_err(|e| e.to_string())?.status;
            let mail = serde_json::to_value(mail).unwrap()["loadBalancer"]["ingress"][0].clone();
            let web = serde_json::to_value(web).unwrap()["loadBalancer"]["ingress"][0].clone();
            let both = [&mail["ip"], &web["ip"]];
            if both == ["203.0.113.10"; 2] { Ok(()) } else { Err(format!("{both:?}")) }
        })
        .await;
        assert_eq!(server.stop(), Some(0));
    });
}

#[tokio::test]
async fn a_folder_is_applied_in_order_and_a_second_time_nothing_changes() {
    let scratch = Scratch::new();
    let folder = scratch.path().join("manifests");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("1.yaml"), NAMESPACE).unwrap();
    std::fs::write(folder.join("2.yml"), DEPLOYMENT).unwrap();
    std::fs::write(
        folder.join("3.json"),
        r#"{"apiVersion": "v1", "kind": "List", "items": [
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "shop"}},
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b"}, "data": {"k": "v"}}]}"#,
    )
    .unwrap();
    std::fs::write(folder.join("notes.txt"), "not: [a manifest").unwrap();
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let start = || {
        Start::kept(&scratch)
            .arg("-f")
            .arg(folder.to_str().unwrap())
            .arg("--filename")
            .arg(examples.to_str().unwrap())
    };
    let applied = |log: &str| {
        let lines = log.lines().take_while(|line| !line.starts_with("Kubernetes API"));
        // What changes meanwhile is told with a time: a host that has rules, an address that cannot be bound.
        let lines = lines.filter(|line| !line.starts_with(|first: char| first.is_ascii_digit()));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let mut server = start().ready();
    let first = applied(&server.service.log());
    assert_eq!(
        first[..5],
        [
            "Namespace/shop created",
            "Deployment/web created",
            "  (stored only: nothing here runs Deployments)",
            "ConfigMap/a created",
            "ConfigMap/b created",
        ]
    );
    assert!(first.contains(&"LoadBalancer/edge created".to_owned()), "{first:?}");
    assert!(server.service.log().contains("Deployments and StatefulSets are stored, not run"));
    let api: Api<Namespace> = Api::all(server.client().await);
    let written = async |api: &Api<Namespace>| {
        let list = api.list(&ListParams::default()).await.expect("a list");
        let version = |one: Namespace| (one.metadata.name, one.metadata.resource_version);
        list.items.into_iter().map(version).collect::<Vec<_>>()
    };
    let before = written(&api).await;
    assert_eq!(server.stop(), Some(0));

    let mut server = start().ready();
    let second: Vec<_> = applied(&server.service.log());
    // `shop` is in the examples too.
    let expected: Vec<_> = first
        .iter()
        .map(|line| line.replace(" created", " unchanged").replace(" configured", " unchanged"))
        .collect();
    assert_eq!(second, expected);
    let api: Api<Namespace> = Api::all(server.client().await);
    assert_eq!(written(&api).await, before, "nothing was written");
    assert_eq!(server.stop(), Some(0));
}

/// What is said about a manifest that cannot be applied.
fn refusal(name: &str, text: &[u8]) -> (i32, String) {
    let scratch = Scratch::new();
    let file = scratch.path().join(name);
    std::fs::write(&file, text).unwrap();
    let output = Start::new(&scratch).arg("-f").arg(file.to_str().unwrap()).output();
    let text = said(&output);
    assert!(!text.contains("panicked"), "{text}");
    assert!(!text.contains("Kubernetes API  https"), "it went on: {text}");
    assert!(text.contains(file.to_str().unwrap()), "the file is not named: {text}");
    assert!(!scratch.path().join("kubeconfig").exists(), "a kubeconfig is left");
    (output.status.code().unwrap_or(-1), text)
}

#[test]
fn a_slip_in_a_file_is_named_with_its_place_and_nothing_is_left_running() {
    let after = |text: &str| format!("{NAMESPACE}---\n{text}").into_bytes();
    let cases: [(&str, Vec<u8>, &str); 12] = [
        (
            "field.yaml",
            after(
                "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {type: LoadBalancer, prots: []}\n",
            ),
            "unknown field \"spec.prots\"",
        ),
        (
            "own.yaml",
            after(
                "apiVersion: bowline.dev/v1alpha1\nkind: LoadBalancer\nmetadata: {name: a}\nspec: {builtin: {}, adresses: []}\n",
            ),
            "LoadBalancer a: ",
        ),
        (
            "metadata.yaml",
            after("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, lables: {a: b}}\n"),
            "unknown field \"metadata.lables\"",
        ),
        ("syntax.yaml", after("kind: [unclosed\n"), "line"),
        ("scalar.yaml", after("just words\n"), "document 2"),
        ("nameless.yaml", after("apiVersion: v1\nkind: ConfigMap\n"), "document 2"),
        ("kindless.yaml", after("apiVersion: v1\nmetadata: {name: a}\n"), "document 2"),
        (
            "unknown.yaml",
            after("apiVersion: example.com/v1\nkind: Unheard\nmetadata: {name: a}\n"),
            "document 2",
        ),
        (
            "invalid.yaml",
            after(
                "apiVersion: bowline.dev/v1alpha1\nkind: LoadBalancer\nmetadata: {name: a}\nspec: {}\n",
            ),
            "document 2",
        ),
        (
            "name.yaml",
            after("apiVersion: v1\nkind: Namespace\nmetadata: {name: Not_A_Name}\n"),
            "document 2",
        ),
        ("bytes.yaml", vec![0xff, 0xfe, 0x00, 0x80], "UTF-8"),
        ("twice.yaml", b"apiVersion: v1\nkind: Namespace\nkind: Pod\n".to_vec(), "kind"),
    ];
    for (name, text, place) in cases {
        let (code, said) = refusal(name, &text);
        assert_eq!(code, 1, "{name}: {said}");
        assert!(said.contains(place), "{name}: {place:?} is missing in {said}");
        assert!(!said.contains("Status {") && !said.contains("ApiError"), "{name}: {said}");
    }
}

#[tokio::test]
async fn a_field_that_is_unknown_is_refused_in_an_object_that_is_there_already() {
    let scratch = Scratch::new();
    let file = scratch.path().join("shop.yaml");
    let service =
        "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {ports: [{port: 80}]}\n";
    std::fs::write(&file, service).unwrap();
    let start = || Start::kept(&scratch).arg("-f").arg(file.to_str().unwrap());
    assert_eq!(start().ready().stop(), Some(0));
    std::fs::write(&file, service.replace("{port: 80}", "{port: 80, nodeprot: 1}")).unwrap();
    let output = start().output();
    let text = said(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    let expected = [
        "shop.yaml, document 1",
        "Service default/web",
        "unknown field \"spec.ports[0].nodeprot\"",
    ];
    for part in expected {
        assert!(text.contains(part), "{part:?} is missing in {text}");
    }
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let scratch = Scratch::new();
    let missing = scratch.path().join("missing.yaml");
    let output = Start::kept(&scratch).arg("-f").arg(missing.to_str().unwrap()).output();
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains(missing.to_str().unwrap()), "{}", said(&output));
    assert!(!scratch.path().join("data").exists(), "nothing was started");
}
