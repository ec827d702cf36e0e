//! Tests what programs read: every field of the JSON.

use super::*;

fn as_json(view: &impl View) -> Value {
    serde_json::from_str(&view.json().expect("JSON")).expect("JSON")
}

const HOLDER: &str = "two";

fn holder(identity: &str, seconds: i64) -> Value {
    json!({"identity": identity, "silentSeconds": seconds, "overdue": false})
}

/// The JSON for a plan that the only agent has applied.
fn applied() -> Value {
    let mut agent = holder(HOLDER, 5);
    agent["state"] = json!("Yes");
    json!({"state": "Yes", "agent": holder(HOLDER, 5), "agents": [agent]})
}

/// The JSON of the settled cluster's load balancer.
fn local() -> Value {
    let listener = |port: u16, protocol: &str, serves: Value| json!({"address": "127.0.0.1", "port": port, "protocol": protocol, "serves": serves});
    json!({
        "name": "local", "source": "builtin", "degraded": false, "addresses": ["127.0.0.1"],
        "httpPort": 8080, "httpsPort": 8443, "allowedNamespaces": {"from": "All"},
        "listeners": [
            listener(8000, "TCP", json!({"pool": "service/demo/hello/http"})),
            listener(8080, "HTTP", json!({"entry": "web"})),
            listener(8443, "HTTPS", json!({"entry": "web"})),
        ],
        "consumers": [
            {"kind": "Service", "namespace": "demo", "name": "hello"},
            {"kind": "Ingress", "namespace": "demo", "name": "hello"},
        ],
        "refused": [{
            "kind": "Ingress", "namespace": "demo", "name": "hello",
            "reason": "BackendNotFound", "message": "Service \"gone\" does not exist",
            "remedy": "create the Service, or correct its name or port in the rule (`kubectl get services -n demo`)",
        }],
        "applied": applied(),
        "notes": [],
    })
}

#[test]
fn the_status_for_programs_has_these_fields() {
    assert_eq!(
        as_json(&Status::of(&facts(settled()))),
        json!({
            "apiVersion": "view.bowline.dev/v1alpha1", "kind": "Status",
            "controller": holder("one", 2), "loadBalancers": [local()], "nowhere": [], "notes": [],
        })
    );
}

#[test]
fn an_explanation_for_programs_has_these_fields() {
    let facts = facts(settled());
    let explained = |subject, namespace: &str, name: &str| {
        let key = ObjectKey::new(namespace, name);
        as_json(&Explanation::of(&facts, subject, &key).expect("it exists"))
    };
    let mut expected = local();
    expected["apiVersion"] = json!("view.bowline.dev/v1alpha1");
    expected["kind"] = json!("LoadBalancerExplanation");
    assert_eq!(explained(Subject::LoadBalancer, "", "local"), expected);

    let hello = ObjectKey::new("demo", "hello");
    let members = json!([
        {"address": "192.0.2.1:18081", "state": "Ready", "target": "pod-a"},
        {"address": "192.0.2.2:18082", "state": "Draining", "target": "pod-b"},
    ]);
    assert_eq!(
        explained(Subject::Service, "demo", "hello"),
        json!({
            "apiVersion": "view.bowline.dev/v1alpha1", "kind": "ConsumerExplanation",
            "object": {"kind": "Service", "namespace": "demo", "name": "hello"},
            "state": "Planned", "loadBalancer": "local",
            "why": "it names no load balancer; the default is local",
            "addresses": ["127.0.0.1"],
            "listeners": [local()["listeners"][0]],
            "hosts": [],
            "pools": [{"name": "service/demo/hello/http", "members": members}],
            "fragments": facts.planner.parts(ConsumerKind::Service, &hello),
            "problems": [], "recorded": "Yes", "applied": applied(), "notes": [],
        })
    );
    assert_eq!(
        explained(Subject::Ingress, "demo", "hello")["hosts"],
        json!([{"host": "hello.localhost"}])
    );
    assert_eq!(
        explained(Subject::Service, "demo", "inside"),
        json!({
            "apiVersion": "view.bowline.dev/v1alpha1", "kind": "ConsumerExplanation",
            "object": {"kind": "Service", "namespace": "demo", "name": "inside"},
            "state": "NotOurs",
            "why": "its type is ClusterIP, which is reached from inside the cluster only",
            "remedy": "make it type LoadBalancer, or let an Ingress send requests to it",
            "addresses": [], "listeners": [], "hosts": [], "pools": [], "fragments": [],
            "problems": [], "notes": [],
        })
    );
}

#[test]
fn certificates_for_programs_are_known_unusable_or_unknown() {
    let (with, blind) = with_tls();
    let state = |lists| {
        let key = ObjectKey::new("demo", "hello");
        let explanation = Explanation::of(&facts(lists), Subject::Ingress, &key);
        as_json(&explanation.expect("it exists"))["hosts"][0]["certificate"].clone()
    };
    assert_eq!(state(with), json!({"state": "Unusable"}));
    assert_eq!(state(blind), json!({"state": "Unknown"}));
}

#[test]
fn a_difference_for_programs_has_these_fields() {
    let mut lists = settled();
    let before = facts(lists.clone());
    lists.services[0].metadata.uid = Some("another".into());
    let after = facts(lists);
    let hello = ObjectKey::new("demo", "hello");
    let consumer = json!({"kind": "Service", "namespace": "demo", "name": "hello"});
    let parts = |facts: &Facts| json!(facts.planner.parts(ConsumerKind::Service, &hello));
    assert_eq!(
        as_json(&Difference::of(&after)),
        json!({
            "apiVersion": "view.bowline.dev/v1alpha1", "kind": "Difference",
            "loadBalancers": [{"name": "local", "consumers": [
                {"consumer": consumer, "change": "Add", "before": [], "after": parts(&after)},
                {"consumer": consumer, "change": "Remove", "before": parts(&before), "after": []},
            ]}],
            "notes": [],
        })
    );
}
