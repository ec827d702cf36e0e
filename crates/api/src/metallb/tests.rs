//! Tests of the AddressPools made from MetalLB's pools, as whole values.

use super::*;
use serde_json::{Value, json};

fn theirs(spec: &str) -> IPAddressPool {
    let text = format!(
        "{{apiVersion: metallb.io/v1beta1, kind: IPAddressPool, metadata: {{name: first, namespace: \
         metallb-system}}, spec: {spec}}}"
    );
    serde_saphyr::from_str(&text).unwrap()
}

/// The spec of the AddressPool for a pool of MetalLB, and what is lost.
fn becomes(spec: &str) -> (Option<Value>, Vec<String>) {
    let (pool, losses) = pool(&theirs(spec), &BTreeSet::new());
    let spec = pool.map(|it| serde_json::to_value(it.spec).unwrap());
    (spec, losses.iter().map(ToString::to_string).collect())
}

#[test]
fn a_plain_pool_keeps_its_name_and_says_where_it_is_from() {
    let (pool, losses) = pool(&theirs("{addresses: [203.0.113.0/24]}"), &BTreeSet::new());
    assert_eq!(losses, []);
    assert_eq!(
        serde_json::to_value(pool.unwrap()).unwrap(),
        json!({
            "apiVersion": "bowline.dev/v1alpha1", "kind": "AddressPool",
            "metadata": {
                "name": "first",
                "annotations": {"bowline.dev/imported-from": "metallb.io/metallb-system/first"},
            },
            "spec": {
                "addresses": ["203.0.113.0/24"], "autoAssign": true, "avoidBuggyIPs": false,
                "sharingAcrossNamespaces": true,
            },
        })
    );
}

#[test]
fn everything_that_a_pool_can_say_is_taken_over() {
    let (spec, losses) = becomes(
        "{addresses: [192.0.2.0/28, 2001:db8::1-2001:db8::f], autoAssign: false, avoidBuggyIPs: true,
          serviceAllocation: {priority: 50, namespaces: [shop, bank],
            namespaceSelectors: [{matchLabels: {tier: gold}}],
            serviceSelectors: [{matchExpressions: [{key: app, operator: In, values: [web]}]}]}}",
    );
    assert_eq!(losses, Vec::<String>::new());
    assert_eq!(
        spec.unwrap(),
        json!({
            "addresses": ["192.0.2.0/28", "2001:db8::1-2001:db8::f"],
            "autoAssign": false, "avoidBuggyIPs": true, "sharingAcrossNamespaces": true,
            "allocateTo": {
                "priority": 50, "namespaces": ["shop", "bank"],
                "namespaceSelectors": [{"matchLabels": {"tier": "gold"}}],
                "serviceSelectors": [
                    {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]},
                ],
            },
        })
    );
}

#[test]
fn what_metallb_reads_loosely_is_written_strictly() {
    let (spec, losses) = becomes(
        "{addresses: ['192.0.2.5/24', '192.0.2.0/24', ' 198.51.100.1 - 198.51.100.9 ', '2001:DB8::/64']}",
    );
    assert_eq!(losses, Vec::<String>::new());
    let addresses = ["192.0.2.0/24", "198.51.100.1-198.51.100.9", "2001:db8::/64"];
    assert_eq!(spec.unwrap()["addresses"], json!(addresses));
}

#[test]
fn what_cannot_be_read_is_left_out_and_told_and_the_rest_is_taken_over() {
    let (spec, losses) = becomes("{addresses: [nonsense, 192.0.2.9-192.0.2.1, 192.0.2.0/28]}");
    assert_eq!(spec.unwrap()["addresses"], json!(["192.0.2.0/28"]));
    assert_eq!(
        losses,
        [
            "first: \"nonsense\" is neither a network such as 203.0.113.0/24 nor a range such as \
             203.0.113.10-203.0.113.20; this entry is left out",
            "first: range 192.0.2.9-192.0.2.1 runs backwards: write 192.0.2.1-192.0.2.9; this entry is \
             left out",
        ]
    );
}

#[test]
fn a_pool_of_which_nothing_is_left_is_not_made() {
    let (pool, losses) = pool(&theirs("{addresses: []}"), &BTreeSet::new());
    assert_eq!((pool, losses), (None, vec![Loss::Whole { pool: "first".to_owned() }]));
}

#[test]
fn a_priority_that_has_no_place_here_is_told() {
    for priority in [-1, 1 << 31] {
        let (spec, losses) = becomes(&format!(
            "{{addresses: [192.0.2.0/28], serviceAllocation: {{priority: {priority}, namespaces: [a]}}}}"
        ));
        assert_eq!(spec.unwrap()["allocateTo"], json!({"priority": 0, "namespaces": ["a"]}));
        assert_eq!(
            losses,
            [format!("first: priority {priority} is not between 0 and 2147483647; 0 is used")]
        );
    }
}

#[test]
fn a_pool_for_everybody_in_particular_still_comes_before_the_others() {
    let (spec, _) = becomes("{addresses: [192.0.2.0/28], serviceAllocation: {}}");
    assert_eq!(spec.unwrap()["allocateTo"], json!({"priority": 0, "serviceSelectors": [{}]}));
}

fn pod(labels: Value, image: &str, phase: &str) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": "p", "labels": labels},
        "spec": {"containers": [{"name": "c", "image": image}]},
        "status": {"phase": phase},
    }))
    .unwrap()
}

#[test]
fn the_controller_of_metallb_is_known_by_labels_or_image_until_it_has_ended() {
    let manifests = json!({"app": "metallb", "component": "controller"});
    let chart =
        json!({"app.kubernetes.io/name": "metallb", "app.kubernetes.io/component": "controller"});
    let speaker = json!({"app": "metallb", "component": "speaker"});
    for (labels, image, phase, runs) in [
        (&manifests, "x", "Running", true),
        (&manifests, "x", "Pending", true),
        (&manifests, "x", "Succeeded", false),
        (&manifests, "x", "Failed", false),
        (&chart, "x", "Running", true),
        (&speaker, "quay.io/metallb/speaker:v0.15.2", "Running", false),
        (&json!({}), "quay.io/metallb/controller:v0.15.2", "Running", true),
        (&json!({}), "registry:5000/metallb/controller@sha256:00", "Running", true),
        (&json!({}), "bitnami/metallb-controller:0.15", "Running", true),
        (&json!({}), "example.com/controller:1", "Running", false),
        (&json!({}), "", "Running", false),
    ] {
        assert_eq!(
            is_running_controller(&pod(labels.clone(), image, phase)),
            runs,
            "{labels} {image}"
        );
    }
}
