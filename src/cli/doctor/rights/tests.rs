//! Which rights are asked for, and how the API server is asked.

use super::*;
use http::{Request, Response};
use kube::client::Body;
use serde_json::json;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn asked(load_balancers: &[&str], account: &str) -> Vec<String> {
    let all = needed(load_balancers).expect("manifests");
    all[account].iter().map(ToString::to_string).collect()
}

#[test]
fn all_that_the_manifests_grant_is_asked_for() {
    let controller = asked(&[], "bowline-controller");
    for right in [
        "watch secrets",
        "patch loadbalancers.bowline.dev",
        "create loadbalancers.bowline.dev",
        "delete loadbalancers.bowline.dev",
        "patch loadbalancerclaims.bowline.dev",
        "patch addresspools.bowline.dev",
        "update addresses.bowline.dev",
        "delete addresses.bowline.dev",
        "update addresses/status.bowline.dev",
        "patch externalips.bowline.dev",
        "watch deployments.apps",
        "create rolebindings.rbac.authorization.k8s.io",
        "patch services",
    ] {
        assert!(controller.iter().any(|it| it == right), "{right}: {controller:#?}");
    }
    let agent = asked(&["blue"], "bowline-agent-blue");
    for right in [
        "watch nodes",
        "watch endpointslices.discovery.k8s.io",
        "list plans.bowline.dev",
        "create leases.coordination.k8s.io",
        "patch leases.coordination.k8s.io bowline-agent-blue",
        "watch secrets bowline-cookies-blue",
        "get secrets bowline-tls-blue-63",
        "get loadbalancers.bowline.dev blue",
    ] {
        assert!(agent.iter().any(|it| it == right), "{right}: {agent:#?}");
    }
    let speaker = asked(&[], "bowline-speaker");
    for right in [
        "watch addresses.bowline.dev",
        "watch secrets bowline-gossip",
        "list leases.coordination.k8s.io",
    ] {
        assert!(speaker.iter().any(|it| it == right), "{right}: {speaker:#?}");
    }
    // No rule of a role is left out: each binding finds its role.
    for (manifest, account, bindings) in [
        (CONTROLLER, "bowline-controller", 3),
        (SPEAKER, "bowline-speaker", 2),
        (AGENT, "bowline-agent-edge", 4),
    ] {
        let objects = serde_saphyr::from_multiple::<Value>(manifest).expect("YAML");
        let bound: Vec<&Value> = objects
            .iter()
            .filter(|it| it["subjects"][0]["name"] == account)
            .map(|it| &it["roleRef"])
            .collect();
        assert_eq!(bound.len(), bindings);
        let rules = |role: &Value| {
            let found = objects
                .iter()
                .find(|it| it["kind"] == role["kind"] && it["metadata"]["name"] == role["name"]);
            found.expect("a role")["rules"].as_array().expect("rules").clone()
        };
        let count = |rule: &Value, field: &str| rule[field].as_array().map_or(1, Vec::len);
        let expected: usize = bound
            .iter()
            .flat_map(|role| rules(role))
            .map(|rule| {
                let names = count(&rule, "resourceNames").min(2);
                ["apiGroups", "resources", "verbs"]
                    .map(|it| count(&rule, it))
                    .iter()
                    .product::<usize>()
                    * names
            })
            .sum();
        assert_eq!(granted(manifest, account).expect("YAML").len(), expected, "{account}");
    }
}

/// An API server with these accounts that refuses one right to all, and counts the lists of accounts.
fn server(accounts: &[&str], lists: Arc<AtomicUsize>) -> Client {
    let items: Vec<_> = accounts.iter().map(|it| json!({"metadata": {"name": it}})).collect();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (items, lists) = (items.clone(), lists.clone());
        async move {
            let answer = match request.uri().path() {
                "/api/v1/namespaces/bowline-system/serviceaccounts" => {
                    lists.fetch_add(1, Ordering::Relaxed);
                    json!({"apiVersion": "v1", "kind": "ServiceAccountList", "metadata": {}, "items": items})
                }
                _ => {
                    let review = request.into_body().collect_bytes().await.expect("a body");
                    let review: Value = serde_json::from_slice(&review).expect("JSON");
                    let of = &review["spec"]["resourceAttributes"];
                    let allowed = (&of["verb"], &of["resource"], &of["subresource"])
                        != (&json!("update"), &json!("addresses"), &json!("status"));
                    json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
                        "metadata": {}, "spec": {}, "status": {"allowed": allowed}})
                }
            };
            let answer = Response::new(Body::from(answer.to_string().into_bytes()));
            Ok::<_, Infallible>(answer)
        }
    });
    Client::new(service, "default")
}

#[tokio::test]
async fn accounts_are_listed_once_and_what_each_lacks_is_named() {
    let lists = Arc::new(AtomicUsize::new(0));
    let client = server(&["bowline-controller", "bowline-agent-blue", "default"], lists.clone());
    let known = lacking(&client, "bowline-system", &["blue", "green"]).await.expect("known");
    let lacks = vec!["update addresses/status.bowline.dev".to_owned()];
    let expected = BTreeMap::from([
        ("bowline-controller".to_owned(), lacks),
        ("bowline-agent-blue".to_owned(), Vec::new()),
    ]);
    assert_eq!((known, lists.load(Ordering::Relaxed)), (expected, 1));
}
