//! What clients ask before they ask for anything: versions, discovery in both forms, OpenAPI, access
//! reviews. A real server serves more kinds; every kind that Bowline relies on must be in both.

use crate::knots;
use bowline_testing::{Call, Cluster, eventually};
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use kube::api::{Api, PostParams};
use kube::discovery::{Discovery, verbs};
use serde_json::{Value, json};

/// Group version, plural, kind, namespaced, short names, subresources.
type Served = (
    &'static str,
    &'static str,
    &'static str,
    bool,
    &'static [&'static str],
    &'static [&'static str],
);

const KINDS: &[Served] = &[
    ("v1", "namespaces", "Namespace", false, &["ns"], &["status"]),
    ("v1", "nodes", "Node", false, &["no"], &["status"]),
    ("v1", "pods", "Pod", true, &["po"], &["status"]),
    ("v1", "services", "Service", true, &["svc"], &["status"]),
    ("v1", "endpoints", "Endpoints", true, &["ep"], &[]),
    ("v1", "configmaps", "ConfigMap", true, &["cm"], &[]),
    ("v1", "secrets", "Secret", true, &[], &[]),
    ("v1", "events", "Event", true, &["ev"], &[]),
    ("v1", "serviceaccounts", "ServiceAccount", true, &["sa"], &[]),
    ("events.k8s.io/v1", "events", "Event", true, &["ev"], &[]),
    ("discovery.k8s.io/v1", "endpointslices", "EndpointSlice", true, &[], &[]),
    ("coordination.k8s.io/v1", "leases", "Lease", true, &[], &[]),
    ("networking.k8s.io/v1", "ingresses", "Ingress", true, &["ing"], &["status"]),
    ("networking.k8s.io/v1", "ingressclasses", "IngressClass", false, &[], &[]),
    ("apps/v1", "deployments", "Deployment", true, &["deploy"], &["status", "scale"]),
    ("apps/v1", "statefulsets", "StatefulSet", true, &["sts"], &["status", "scale"]),
    ("rbac.authorization.k8s.io/v1", "roles", "Role", true, &[], &[]),
    ("rbac.authorization.k8s.io/v1", "rolebindings", "RoleBinding", true, &[], &[]),
    ("rbac.authorization.k8s.io/v1", "clusterroles", "ClusterRole", false, &[], &[]),
    ("rbac.authorization.k8s.io/v1", "clusterrolebindings", "ClusterRoleBinding", false, &[], &[]),
    (
        "apiextensions.k8s.io/v1",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        false,
        &["crd", "crds"],
        &["status"],
    ),
];

const VERBS: [&str; 7] = ["create", "delete", "get", "list", "patch", "update", "watch"];

fn path(version: &str) -> String {
    if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") }
}

fn named<'a>(list: &'a Value, name: &str) -> &'a Value {
    list.as_array()
        .into_iter()
        .flatten()
        .find(|entry| entry["name"] == name)
        .unwrap_or(&Value::Null)
}

#[tokio::test]
async fn every_kind_is_in_legacy_discovery() {
    let cluster = Cluster::start().await;
    for (version, plural, kind, namespaced, short_names, subresources) in KINDS {
        let (status, list) = cluster.get(&path(version)).await;
        assert_eq!((status, &list["kind"]), (200, &json!("APIResourceList")), "{version}");
        let resource = named(&list["resources"], plural);
        assert_eq!(
            (&resource["kind"], &resource["namespaced"]),
            (&json!(kind), &json!(namespaced)),
            "{version} {plural}"
        );
        let shorts = resource.get("shortNames").cloned().unwrap_or(json!([]));
        assert_eq!(shorts, json!(short_names), "{version} {plural}");
        for verb in VERBS {
            let verbs = resource["verbs"].as_array().expect("verbs");
            assert!(verbs.contains(&json!(verb)), "{version} {plural} can {verb}: {verbs:?}");
        }
        for subresource in *subresources {
            let name = format!("{plural}/{subresource}");
            assert!(named(&list["resources"], &name).is_object(), "{version} {name}");
        }
    }
}

#[tokio::test]
async fn every_kind_is_in_aggregated_discovery() {
    let cluster = Cluster::start().await;
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let mut groups = Vec::new();
    for root in ["/api", "/apis"] {
        let reply = cluster.http(Call::new("GET", root).header("accept", accept)).await;
        assert_eq!(reply.headers["content-type"], accept);
        let list = reply.expect(200);
        assert_eq!(list["kind"], "APIGroupDiscoveryList");
        assert_eq!(list["apiVersion"], "apidiscovery.k8s.io/v2");
        groups.extend(list["items"].as_array().expect("items").clone());
    }
    for (version, plural, kind, namespaced, short_names, subresources) in KINDS {
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let group = groups
            .iter()
            .find(|item| item["metadata"]["name"].as_str().unwrap_or_default() == group)
            .unwrap_or_else(|| panic!("group {group:?}"));
        let versions = group["versions"].as_array().expect("versions");
        let found = versions.iter().find(|item| item["version"] == *version).expect("version");
        let resources = found["resources"].as_array().expect("resources");
        let resource = resources.iter().find(|item| item["resource"] == *plural).expect("resource");
        let scope = if *namespaced { "Namespaced" } else { "Cluster" };
        assert_eq!(
            (&resource["responseKind"]["kind"], &resource["scope"]),
            (&json!(kind), &json!(scope)),
            "{plural}"
        );
        let shorts = resource.get("shortNames").cloned().unwrap_or(json!([]));
        assert_eq!(shorts, json!(short_names), "{plural}");
        for subresource in *subresources {
            let list = resource["subresources"].as_array().expect("subresources");
            assert!(list.iter().any(|item| item["subresource"] == *subresource), "{plural}");
        }
    }
}

#[tokio::test]
async fn the_groups_are_listed_in_the_old_form_too() {
    let cluster = Cluster::start().await;
    let (status, versions) = cluster.get("/api").await;
    assert_eq!(
        (status, &versions["kind"], &versions["versions"]),
        (200, &json!("APIVersions"), &json!(["v1"]))
    );
    let (status, list) = cluster.get("/apis").await;
    assert_eq!((status, &list["kind"]), (200, &json!("APIGroupList")));
    let apps = named(&list["groups"], "apps");
    assert_eq!(apps["preferredVersion"], json!({"groupVersion": "apps/v1", "version": "v1"}));
    let (status, group) = cluster.get("/apis/apps").await;
    assert_eq!((status, &group["kind"], &group["name"]), (200, &json!("APIGroup"), &json!("apps")));
}

#[tokio::test]
async fn a_custom_kind_is_discovered_by_kube_in_both_ways() {
    let cluster = Cluster::start().await;
    knots::serve(&cluster).await;
    for aggregated in [true, false] {
        eventually("knots are discovered", || async {
            let discovery = Discovery::new(cluster.client()).filter(&[knots::GROUP]);
            let discovery =
                if aggregated { discovery.run_aggregated().await } else { discovery.run().await };
            let discovery = discovery.map_err(|e| e.to_string())?;
            let group = discovery.get(knots::GROUP).ok_or("no group")?;
            let (resource, capabilities) = group.recommended_kind("Knot").ok_or("no kind")?;
            assert_eq!(
                (
                    &*resource.plural,
                    &*resource.api_version,
                    capabilities.supports_operation(verbs::WATCH)
                ),
                ("knots", "conformance.example.com/v1", true)
            );
            let mut names: Vec<_> =
                capabilities.subresources.iter().map(|(sub, _)| sub.plural.clone()).collect();
            names.sort();
            assert!(names.iter().all(|name| name.ends_with("scale") || name.ends_with("status")));
            assert_eq!(names.len(), 2, "{names:?}");
            Ok::<_, String>(())
        })
        .await;
    }
}

#[tokio::test]
async fn openapi_describes_every_group_version_so_that_apply_and_explain_work() {
    let cluster = Cluster::start().await;
    let (status, index) = cluster.get("/openapi/v3").await;
    assert_eq!(status, 200);
    for (version, plural, kind, namespaced, _, _) in KINDS {
        let key = path(version);
        let url =
            index["paths"][&key[1..]]["serverRelativeURL"].as_str().expect("a link to a document");
        let (status, document) = cluster.get(url).await;
        assert_eq!(
            (status, document["openapi"].as_str().is_some_and(|v| v.starts_with("3."))),
            (200, true)
        );
        let place = if *namespaced { "/namespaces/{namespace}" } else { "" };
        let patch = &document["paths"][format!("{key}{place}/{plural}/{{name}}")]["patch"];
        assert_eq!(patch["x-kubernetes-group-version-kind"]["kind"], *kind, "{version} {plural}");
        let parameters: Vec<_> = patch["parameters"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|parameter| parameter["name"].as_str())
            .collect();
        assert!(parameters.contains(&"fieldValidation"), "{plural}: {parameters:?}");
        let schemas = document["components"]["schemas"].as_object().expect("schemas");
        let described = schemas.values().any(|schema| {
            schema["x-kubernetes-group-version-kind"]
                .as_array()
                .is_some_and(|list| list.iter().any(|gvk| gvk["kind"] == *kind))
        });
        assert!(described, "{version} {kind} has a schema");
    }
}

#[tokio::test]
async fn the_server_says_its_version_and_health() {
    let cluster = Cluster::start().await;
    let (status, version) = cluster.get("/version").await;
    assert_eq!((status, &version["major"]), (200, &json!("1")));
    assert!(version["gitVersion"].as_str().is_some_and(|text| text.starts_with("v1.")));
    cluster.client().apiserver_version().await.expect("kube reads the version");
    for path in ["/livez", "/readyz", "/healthz"] {
        let reply = cluster.http(Call::new("GET", path)).await;
        assert_eq!((reply.status, &*reply.text()), (200, "ok"), "{path}");
    }
    let reply = cluster.http(Call::new("GET", "/readyz?verbose=1")).await;
    assert!(reply.text().ends_with("readyz check passed\n"), "{}", reply.text());
}

#[tokio::test]
async fn the_administrator_may_do_everything_and_is_told_so() {
    let cluster = Cluster::start().await;
    let review: SelfSubjectAccessReview = serde_json::from_value(json!({
        "spec": {"resourceAttributes": {"verb": "delete", "group": "apps", "resource": "deployments"}},
    }))
    .expect("a review");
    let answer = Api::all(cluster.client()).create(&PostParams::default(), &review).await;
    let answer: SelfSubjectAccessReview = answer.expect("an answer");
    assert!(answer.status.expect("a status").allowed);
}
