//! The discovery documents of the served kinds, in the legacy and the aggregated form
//! (`apidiscovery.k8s.io/v2`). It does no I/O; the HTTP shell calls it.

use crate::kind::Kind;
use crate::registry::Kinds;
use serde_json::{Value, json};

const OBJECT_VERBS: [&str; 8] =
    ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
/// The verbs of custom kinds, in kube-apiserver's order.
const CUSTOM_VERBS: [&str; 8] =
    ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
const VERBS_ON_ONE: [&str; 7] = ["create", "delete", "get", "list", "patch", "update", "watch"];
const SUBRESOURCE_VERBS: [&str; 3] = ["get", "patch", "update"];

fn verbs(kind: &Kind) -> &'static [&'static str] {
    match (kind.strategic, kind.rules.deletes_collections()) {
        (false, _) => &CUSTOM_VERBS,
        (true, true) => &OBJECT_VERBS,
        (true, false) => &VERBS_ON_ONE,
    }
}

/// A subresource as discovery shows it.
struct Subresource {
    name: &'static str,
    group: String,
    version: String,
    kind: String,
    verbs: &'static [&'static str],
}

fn subresources(kind: &Kind) -> Vec<Subresource> {
    let own = |name, verbs| Subresource {
        name,
        group: kind.group.clone(),
        version: kind.version.clone(),
        kind: kind.kind.clone(),
        verbs,
    };
    let mut list = Vec::new();
    if kind.group.is_empty() && kind.plural == "namespaces" {
        list.push(own("finalize", &["update"]));
    }
    if kind.scale.is_some() {
        list.push(Subresource {
            name: "scale",
            group: "autoscaling".to_owned(),
            version: "v1".to_owned(),
            kind: "Scale".to_owned(),
            verbs: &SUBRESOURCE_VERBS,
        });
    }
    if kind.status {
        list.push(own("status", &SUBRESOURCE_VERBS));
    }
    list
}

/// Reviews are created and answered, never stored, so they have no [`Kind`].
const REVIEWS: [(&str, &str, &str); 3] = [
    ("authentication.k8s.io", "selfsubjectreviews", "SelfSubjectReview"),
    ("authorization.k8s.io", "selfsubjectaccessreviews", "SelfSubjectAccessReview"),
    ("authorization.k8s.io", "selfsubjectrulesreviews", "SelfSubjectRulesReview"),
];

/// `GET /api`.
pub fn core_versions(address: &str) -> Value {
    json!({
        "kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    })
}

/// All groups and their versions, with the review groups, without the core group.
fn groups(kinds: &Kinds) -> Vec<(String, Vec<String>)> {
    let mut list: Vec<(String, Vec<String>)> = kinds
        .groups()
        .into_iter()
        .filter(|(group, _)| !group.is_empty())
        .map(|(group, versions)| {
            (group.to_owned(), versions.into_iter().map(str::to_owned).collect())
        })
        .collect();
    for (group, _, _) in REVIEWS {
        if !list.iter().any(|(name, _)| name == group) {
            list.push((group.to_owned(), vec!["v1".to_owned()]));
        }
    }
    list.sort();
    list
}

fn group_document(group: &str, versions: &[String]) -> Value {
    let all: Vec<Value> = versions
        .iter()
        .map(|version| json!({"groupVersion": format!("{group}/{version}"), "version": version}))
        .collect();
    json!({"name": group, "versions": all, "preferredVersion": all.first()})
}

/// `GET /apis`.
pub fn group_list(kinds: &Kinds) -> Value {
    let all: Vec<Value> = groups(kinds).iter().map(|(g, v)| group_document(g, v)).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": all})
}

/// `GET /apis/GROUP`.
pub fn group(kinds: &Kinds, name: &str) -> Option<Value> {
    let all = groups(kinds);
    let (group, versions) = all.iter().find(|(group, _)| group == name)?;
    let mut document = group_document(group, versions);
    document["kind"] = json!("APIGroup");
    document["apiVersion"] = json!("v1");
    Some(document)
}

/// `GET /api/v1` and `GET /apis/GROUP/VERSION`.
pub fn resources(kinds: &Kinds, group: &str, version: &str) -> Option<Value> {
    let mut list = Vec::new();
    for kind in kinds.of(group, version) {
        let mut entry = json!({
            "name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced,
            "kind": kind.kind, "verbs": verbs(kind),
        });
        if !kind.short_names.is_empty() {
            entry["shortNames"] = json!(kind.short_names);
        }
        if !kind.categories.is_empty() {
            entry["categories"] = json!(kind.categories);
        }
        list.push(entry);
        for sub in subresources(kind) {
            let mut entry = json!({
                "name": format!("{}/{}", kind.plural, sub.name), "singularName": "",
                "namespaced": kind.namespaced, "kind": sub.kind, "verbs": sub.verbs,
            });
            if sub.group != kind.group {
                entry["group"] = json!(sub.group);
                entry["version"] = json!(sub.version);
            }
            list.push(entry);
        }
    }
    for (_, plural, kind) in REVIEWS.iter().filter(|(g, _, _)| *g == group && version == "v1") {
        list.push(json!({
            "name": plural, "singularName": kind.to_lowercase(), "namespaced": false, "kind": kind,
            "verbs": ["create"],
        }));
    }
    if list.is_empty() {
        return None;
    }
    let group_version =
        if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    Some(json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version,
        "resources": list,
    }))
}

/// The aggregated form of `GET /api` (`core`) or `GET /apis`.
pub fn aggregated(kinds: &Kinds, core: bool) -> Value {
    let groups = if core { vec![(String::new(), vec!["v1".to_owned()])] } else { groups(kinds) };
    let items: Vec<Value> = groups
        .iter()
        .map(|(group, versions)| {
            let versions: Vec<Value> = versions
                .iter()
                .map(|version| {
                    json!({
                        "version": version, "freshness": "Current",
                        "resources": aggregated_resources(kinds, group, version),
                    })
                })
                .collect();
            let mut metadata = json!({"creationTimestamp": null});
            if !group.is_empty() {
                metadata["name"] = json!(group);
            }
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {},
        "items": items,
    })
}

fn aggregated_resources(kinds: &Kinds, group: &str, version: &str) -> Vec<Value> {
    let mut list: Vec<Value> = kinds
        .of(group, version)
        .map(|kind| {
            let mut entry = json!({
                "resource": kind.plural,
                "responseKind": {"group": group, "version": version, "kind": kind.kind},
                "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
                "singularResource": kind.singular, "verbs": verbs(kind),
            });
            if !kind.short_names.is_empty() {
                entry["shortNames"] = json!(kind.short_names);
            }
            if !kind.categories.is_empty() {
                entry["categories"] = json!(kind.categories);
            }
            let subs: Vec<Value> = subresources(kind)
                .into_iter()
                .map(|sub| {
                    json!({
                        "subresource": sub.name, "verbs": sub.verbs,
                        "responseKind":
                            {"group": sub.group, "version": sub.version, "kind": sub.kind},
                    })
                })
                .collect();
            if !subs.is_empty() {
                entry["subresources"] = json!(subs);
            }
            entry
        })
        .collect();
    for (_, plural, kind) in REVIEWS.iter().filter(|(g, _, _)| *g == group && version == "v1") {
        list.push(json!({
            "resource": plural, "scope": "Cluster", "singularResource": kind.to_lowercase(),
            "responseKind": {"group": group, "version": version, "kind": kind},
            "verbs": ["create"],
        }));
    }
    list
}
