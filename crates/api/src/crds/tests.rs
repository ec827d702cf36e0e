//! Tests of the CustomResourceDefinitions: what a server accepts and refuses, and what `deploy` holds.

use super::check::Checker;
use super::*;
use crate::names::{CATEGORY, GROUP, VERSION};
use k8s_openapi::serde::de::DeserializeOwned;
use kube_cel::{CompiledSchema, compile_schema};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::path::{Path, PathBuf};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn schema_of(crd: &CustomResourceDefinition) -> Value {
    let crd = serde_json::to_value(crd).unwrap();
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

fn checker() -> Checker {
    Checker::new(all().iter().map(|crd| (crd.spec.names.kind.clone(), schema_of(crd))))
}

/// Calls `visit` with every node of every schema and its path.
fn every_node(visit: &mut dyn FnMut(&str, &Value)) {
    fn walk(at: &str, node: &Value, visit: &mut dyn FnMut(&str, &Value)) {
        visit(at, node);
        for (name, property) in node["properties"].as_object().into_iter().flatten() {
            walk(&format!("{at}.{name}"), property, visit);
        }
        for (part, sign) in [("items", "[]"), ("additionalProperties", "{}")] {
            if node[part].is_object() {
                walk(&format!("{at}{sign}"), &node[part], visit);
            }
        }
    }
    for crd in all() {
        walk(&crd.spec.names.kind, &schema_of(&crd), visit);
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    it: String,
    kind: String,
    #[serde(default = "any_name")]
    name: String,
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

fn any_name() -> String {
    "any".into()
}

impl Case {
    fn object(&self, spec: &Value) -> Value {
        let mut object = json!({
            "apiVersion": "bowline.dev/v1alpha1",
            "kind": self.kind,
            "metadata": { "name": self.name },
            "spec": spec,
        });
        if let Some(status) = &self.status {
            object["status"] = status.clone();
        }
        object
    }
}

fn cases() -> Vec<Case> {
    serde_saphyr::from_str(include_str!("../../testdata/objects.yaml")).unwrap()
}

#[test]
fn deploy_holds_what_the_code_makes() {
    let folder = repository().join("deploy/crds");
    let mut expected: Vec<_> = files();
    expected.sort();
    let mut found: Vec<_> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            (name, std::fs::read_to_string(entry.path()).unwrap())
        })
        .collect();
    found.sort();
    let names = |files: &[(String, String)]| files.iter().map(|f| f.0.clone()).collect::<Vec<_>>();
    let hint = "make it new with: bowline crds --dir deploy/crds";
    assert_eq!(names(&found), names(&expected), "{hint}");
    for (found, expected) in found.iter().zip(&expected) {
        assert!(found == expected, "deploy/crds/{} is out of date; {hint}", found.0);
    }
}

#[test]
fn what_is_printed_reads_back_as_the_same_definitions() {
    let read: Vec<CustomResourceDefinition> = serde_saphyr::from_multiple(&yaml()).unwrap();
    assert_eq!(read, all());
}

#[test]
fn all_kinds_are_of_our_group_and_category() {
    for crd in all() {
        assert_eq!(crd.spec.group, GROUP);
        assert_eq!(crd.spec.versions[0].name, VERSION);
        assert_eq!(crd.spec.names.categories, Some(vec![CATEGORY.to_owned()]));
        // The state of a Plan is reported on its load balancer, that of an Advertisement on the addresses.
        let status = crd.spec.versions[0].subresources.as_ref().and_then(|s| s.status.as_ref());
        let without = ["Plan", "Advertisement"].contains(&crd.spec.names.kind.as_str());
        assert_eq!(status.is_none(), without, "{}", crd.spec.names.kind);
    }
}

#[test]
fn every_rule_compiles() {
    fn rules(schema: &CompiledSchema) -> usize {
        assert_eq!(
            schema.compilation_errors().iter().map(|e| e.to_string()).collect::<Vec<_>>(),
            [""; 0]
        );
        let inner = schema.properties.values().chain(schema.items.as_deref());
        schema.validations.len()
            + inner.chain(schema.additional_properties.as_deref()).map(rules).sum::<usize>()
    }
    let mut written = 0;
    every_node(&mut |_, node| {
        written += node["x-kubernetes-validations"].as_array().map_or(0, Vec::len);
    });
    let compiled: usize = all().iter().map(|crd| rules(&compile_schema(&schema_of(crd)))).sum();
    assert!(written > 30, "{written} rules");
    assert_eq!(compiled, written);
}

#[test]
fn every_field_is_explained_in_sentences() {
    every_node(&mut |at, node| {
        let list_item = at.ends_with(['}', ']']);
        let text = node["description"].as_str().unwrap_or_default();
        assert!(list_item || text.ends_with('.'), "{at}: {text:?}");
        assert!(!text.contains('\n'), "{at}: {text:?}");
    });
}

#[test]
fn everything_is_bounded_so_that_servers_can_afford_the_rules() {
    every_node(&mut |at, node| {
        let bounded = match node["type"].as_str() {
            Some("string") => {
                node["maxLength"].is_u64()
                    || node["enum"].is_array()
                    || node["format"] == "date-time"
            }
            Some("array") => node["maxItems"].is_u64(),
            Some("object") => {
                node["additionalProperties"].is_null() || node["maxProperties"].is_u64()
            }
            _ => true,
        };
        assert!(bounded, "{at}: {node:#}");
    });
}

#[test]
fn no_field_may_be_null() {
    every_node(&mut |at, node| {
        assert!(node["nullable"].is_null(), "{at}: {node:#}");
        assert!(
            node["enum"].as_array().is_none_or(|e| !e.contains(&Value::Null)),
            "{at}: {node:#}"
        );
    });
}

#[test]
fn objects_are_accepted_or_refused_as_written_down() {
    let checker = checker();
    for case in cases() {
        let old = case.from.as_ref().map(|spec| case.object(spec));
        let wrong = checker.check(&case.object(&case.spec), old.as_ref());
        match &case.refused {
            None => assert_eq!(wrong, [], "{}", case.it),
            Some(Refused { field, says }) => assert!(
                wrong.iter().any(|(at, message)| at == field && message.contains(says)),
                "{}: expected {says:?} at {field:?}, got {wrong:?}",
                case.it
            ),
        }
    }
}

#[test]
fn what_a_server_accepts_reads_into_the_types_and_back_unchanged() {
    fn again<T: DeserializeOwned + Serialize>(object: Value) -> Value {
        serde_json::to_value(serde_json::from_value::<T>(object).unwrap()).unwrap()
    }
    let checker = checker();
    for case in cases().into_iter().filter(|case| case.refused.is_none()) {
        let stored = checker.defaulted(&case.object(&case.spec));
        let read = match case.kind.as_str() {
            "LoadBalancer" => again::<LoadBalancer>(stored.clone()),
            "LoadBalancerClaim" => again::<LoadBalancerClaim>(stored.clone()),
            "LoadBalancerClass" => again::<LoadBalancerClass>(stored.clone()),
            "AddressPool" => again::<AddressPool>(stored.clone()),
            "Address" => again::<Address>(stored.clone()),
            "ExternalIP" => again::<ExternalIP>(stored.clone()),
            "Advertisement" => again::<Advertisement>(stored.clone()),
            "BGPPeer" => again::<BGPPeer>(stored.clone()),
            "Plan" => again::<Plan>(stored.clone()),
            other => panic!("{}: no kind {other}", case.it),
        };
        // A quantity may be written as a number; it is read as text.
        let written = stored.to_string().replace(":5000}", ":\"5000\"}");
        assert_eq!(read.to_string(), written, "{}", case.it);
    }
}

#[test]
fn the_examples_are_valid() {
    let files = manifests(&repository().join("examples"));
    let mut kinds: Vec<_> = files
        .iter()
        .flat_map(|file| valid_kinds(&std::fs::read_to_string(file).unwrap()))
        .collect();
    kinds.sort();
    kinds.dedup();
    let ours = ["AddressPool", "Advertisement", "BGPPeer"];
    let all = [&ours[..], &["LoadBalancer", "LoadBalancerClaim", "LoadBalancerClass"]].concat();
    assert_eq!(kinds, all);
}

/// All manifests in a folder and below it.
fn manifests(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| if path.is_dir() { manifests(&path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .collect()
}

#[test]
fn what_the_page_on_kinds_shows_is_valid() {
    let page = std::fs::read_to_string(repository().join("docs/kinds.md")).unwrap();
    let mut kinds: Vec<_> = page
        .split("```yaml\n")
        .skip(1)
        .flat_map(|rest| valid_kinds(rest.split("```").next().unwrap()))
        .collect();
    kinds.dedup();
    assert_eq!(kinds, all().into_iter().map(|crd| crd.spec.names.kind).collect::<Vec<_>>());
}

/// Bowline's kinds in a manifest. Every object of them is valid.
fn valid_kinds(manifest: &str) -> Vec<String> {
    let checker = checker();
    let ours = serde_saphyr::from_multiple::<Value>(manifest)
        .unwrap()
        .into_iter()
        .filter(|object| object["apiVersion"] == "bowline.dev/v1alpha1");
    ours.map(|object| {
        assert_eq!(checker.check(&object, None), [], "{object:#}");
        object["kind"].as_str().unwrap().to_owned()
    })
    .collect()
}
