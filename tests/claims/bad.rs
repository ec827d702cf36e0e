//! Bad input: refused by the API with the field that is wrong, or told; nobody else is affected.

use crate::stage::{CLAIM, LB, Site, has, play, wants};
use bowline_testing::Call;
use bowline_testing::objects::path;
use serde_json::{Value, json};

impl Site {
    /// Tries to make an object that makes no sense; returns what the API says.
    async fn refuses(&self, kind: &str, spec: Value) -> String {
        let namespace = if kind == CLAIM { self.namespace.as_str() } else { "" };
        let object = json!({
            "apiVersion": "bowline.dev/v1alpha1", "kind": kind,
            "metadata": {"name": "bad"}, "spec": spec,
        });
        let call = Call::new("POST", path(kind, namespace, "")).json(&object);
        let answer = self.cluster.http(call).await;
        let text = answer.text();
        assert!([400, 422].contains(&answer.status), "{spec}: {} {text}", answer.status);
        text
    }
}

/// Whether a refusal names a field in words. A rule names the key of a map in brackets, a bound after a dot.
fn names(said: &str, map: &str, key: &str) -> bool {
    let named = [format!("{map}[{key}]"), format!("{map}.{key}")];
    named.iter().any(|it| said.contains(it)) && !said.contains("should match")
}

#[test]
fn quantities_sources_and_selectors_that_make_no_sense_are_refused_by_field() {
    play(async || {
        let site = Site::new().await;
        site.lb("good", has("5G")).await;
        for bad in
            ["-1", "-5G", "99999999999999999999P", "1e30", "lots", "", "5 G", "NaN", "0.5", "2Gbit"]
        {
            let capacity = json!({"builtin": {}, "capacity": {"network-bandwidth": bad}});
            let said = site.refuses(LB, capacity).await;
            assert!(names(&said, "spec.capacity", "network-bandwidth"), "{bad}: {said}");
            let requests = json!({"resources": {"requests": {"network-iops": bad}}});
            let said = site.refuses(CLAIM, requests).await;
            assert!(names(&said, "spec.resources.requests", "network-iops"), "{bad}: {said}");
            let class = json!({"builtin": {}, "capacity": {"network-iops": bad}});
            let said = site.refuses("LoadBalancerClass", class).await;
            assert!(names(&said, "spec.capacity", "network-iops"), "{bad}: {said}");
        }
        // A resource that nobody counts is not taken for one that nobody asked for.
        for (kind, spec, field) in [
            (LB, json!({"builtin": {}, "capacity": {"network-bandwith": "1G"}}), "capacity"),
            (CLAIM, json!({"resources": {"requests": {"cpu": "1"}}}), "requests"),
            (CLAIM, json!({"resources": {"limits": {"memory": "1"}}}), "limits"),
            ("LoadBalancerClass", json!({"builtin": {}, "capacity": {"cpu": "1"}}), "capacity"),
        ] {
            let said = site.refuses(kind, spec).await;
            assert!(said.contains(field) && said.contains("network-bandwidth"), "{said}");
        }
        for spec in [
            json!({"builtin": {}, "template": {}}),
            json!({}),
            json!({"bareMetalLoadBalancer": {"type": "Haproxy", "serviceName": "a"}, "builtin": {}}),
        ] {
            let said = site.refuses(LB, spec).await;
            assert!(said.contains("exactly one"), "{said}");
        }
        for selector in [
            json!({"matchExpressions": [{"key": "tier", "operator": "Near", "values": ["a"]}]}),
            json!({"matchExpressions": [{"operator": "Exists"}]}),
            json!({"matchExpressions": "tier=gold"}),
            json!({"matchLabels": {"tier": 5}}),
            json!({"matchExpressions": [{"key": "tier", "operator": "In", "values": []}]}),
            json!({"matchExpressions": [{"key": "tier", "operator": "Exists", "values": ["a"]}]}),
        ] {
            let said = site.refuses(CLAIM, json!({"selector": selector})).await;
            assert!(said.contains("spec.selector"), "{said}");
        }
        site.refuses(CLAIM, json!({"scope": "Moon"})).await;
        site.claim("web", wants("2G")).await;
        site.bound("web", "good").await;
    });
}

#[test]
fn what_only_makes_no_sense_together_is_told_and_holds_up_nobody() {
    play(async || {
        let site = Site::new().await;
        site.lb("good", has("5G")).await;
        for (name, spec, phase, why, told) in [
            (
                "limits",
                json!({"resources": {
                    "requests": {"network-bandwidth": "2G"}, "limits": {"network-bandwidth": "1G"},
                }}),
                "Pending",
                "Invalid",
                "limit",
            ),
            (
                "class",
                json!({"className": "no-such", "scope": "Intranet"}),
                "Pending",
                "NoMatch",
                "class no-such does not exist",
            ),
        ] {
            site.claim(name, spec).await;
            let message = site.says(name, phase, why).await;
            assert!(message.contains(told), "{name}: {message}");
        }
        site.claim("web", wants("2G")).await;
        site.bound("web", "good").await;
    });
}
