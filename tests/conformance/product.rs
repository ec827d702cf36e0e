//! Bowline's own kinds on the cluster at hand: the definitions in `deploy/crds` are accepted,
//! established and served, by kubectl as a user would do it. They stay: on an existing cluster somebody
//! may have objects of these kinds.

use bowline_testing::{Call, Cluster, Flavour, objects, unique};
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::Path;
use tokio::sync::Mutex;

/// One test at a time defines the kinds: kubectl does not expect that another one does.
static DEFINING: Mutex<()> = Mutex::const_new(());

/// Defines Bowline's kinds, and waits until they are served. Returns the folder of the definitions.
async fn define(cluster: &Cluster) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/crds");
    assert!(folder.is_dir(), "{} is missing; make it with\n  bowline crds", folder.display());
    let folder = folder.display().to_string();
    let _only = DEFINING.lock().await;
    cluster.kubectl(&["apply", "-f", &folder], "").ok();
    cluster
        .kubectl(&["wait", "--for=condition=Established", "--timeout=60s", "-f", &folder], "")
        .ok();
    folder
}

/// An object that servers accept or refuse, as the tests of the kinds have them.
#[derive(Deserialize)]
struct Case {
    it: String,
    kind: String,
    name: Option<String>,
    from: Option<Value>,
    spec: Value,
    status: Option<Value>,
    refused: Option<Refused>,
}

#[derive(Deserialize)]
struct Refused {
    field: String,
    says: String,
}

/// What the tests of the kinds say for a bound; servers have words of their own for it.
const BOUND: &str = "wrong length";

/// What is wrong with the answer to a case. None: it is as written down.
fn differs(case: &Case, status: u16, answer: &Value) -> Option<String> {
    let wrong = |what: &str| Some(format!("{}: {what}: {status} {answer}", case.it));
    let Some(Refused { field, says }) = &case.refused else {
        return (status >= 300).then(|| wrong("was refused")).flatten();
    };
    if status != 422 {
        return wrong("was not refused");
    }
    let causes = answer["details"]["causes"].as_array().cloned().unwrap_or_default();
    let text = |it: &Value, key: &str| it[key].as_str().unwrap_or_default().to_owned();
    // Servers have a word for the object itself, and brackets around the keys of maps.
    let at = |it: &Value| text(it, "field").replace("<nil>", "").replace('[', ".").replace(']', "");
    let field = field.replace('[', ".").replace(']', "");
    let here: Vec<_> = causes.iter().filter(|it| at(it) == field).collect();
    let told = here.iter().any(|it| says == BOUND || text(it, "message").contains(says));
    if told { None } else { wrong(&format!("says not {says:?} of {field}")) }
}

#[tokio::test]
async fn objects_are_accepted_or_refused_in_the_words_that_are_written_down() {
    let cluster = Cluster::start().await;
    define(&cluster).await;
    let namespace = cluster.namespace().await;
    let cases: Vec<Case> =
        serde_saphyr::from_str(include_str!("../../crates/api/testdata/objects.yaml"))
            .expect("cases");
    // Objects of an existing cluster are left alone. The embedded server has no dry run.
    let dry = if cluster.flavour() == Flavour::Real { "?dryRun=All" } else { "" };
    let mut wrong = Vec::new();
    // A status is written through another path, by the leader alone.
    for case in cases.iter().filter(|it| it.status.is_none()) {
        let name = case.name.clone().unwrap_or_else(|| format!("case-{}", unique()));
        let object = |spec: &Value| {
            json!({
                "apiVersion": "bowline.dev/v1alpha1", "kind": case.kind,
                "metadata": {"name": name}, "spec": spec,
            })
        };
        let all = objects::path(&case.kind, &namespace, "");
        let one = objects::path(&case.kind, &namespace, &name);
        let answer = match &case.from {
            None => {
                let call = Call::new("POST", format!("{all}{dry}")).json(&object(&case.spec));
                cluster.http(call).await
            }
            Some(from) => {
                let mut new = object(&case.spec);
                let made = cluster.create(&all, &object(from)).await;
                new["metadata"]["resourceVersion"] = made["metadata"]["resourceVersion"].clone();
                cluster.http(Call::new("PUT", format!("{one}{dry}")).json(&new)).await
            }
        };
        if case.from.is_some() || answer.status == 201 && dry.is_empty() {
            cluster.http(Call::new("DELETE", one)).await;
        }
        wrong.extend(differs(case, answer.status, &answer.json()));
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

#[tokio::test]
async fn bowlines_definitions_are_accepted_and_served() {
    let cluster = Cluster::start().await;
    let folder = define(&cluster).await;
    let again = cluster.kubectl(&["apply", "-f", &folder], "").ok();
    assert!(again.lines().all(|line| line.ends_with(" unchanged")), "{again}");
    let names = cluster.kubectl(&["get", "-f", &folder, "-o", "name"], "").ok();
    assert!(names.lines().count() >= 6, "{names}");
    for name in names.lines() {
        let plural = name.split_once('/').expect("kind/name").1;
        cluster.kubectl(&["get", plural, "-A"], "").ok();
        let text = cluster
            .kubectl(
                &["explain", &format!("{}.spec", plural.split('.').next().unwrap_or_default())],
                "",
            )
            .ok();
        assert!(text.contains("DESCRIPTION:"), "{text}");
    }
}
