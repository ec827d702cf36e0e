//! Tests of the translation of `type: IPPerPod` and of `spec.loadBalancer`.

use super::*;
use proptest::prelude::*;
use serde_json::json;

const INGRESS: (&str, &str) = ("networking.k8s.io", "Ingress");
const SERVICE: (&str, &str) = ("", "Service");

/// Translates, and checks that an error leaves the object as it was.
fn run((group, kind): (&str, &str), object: Value) -> Result<Value, String> {
    let mut translated = object.clone();
    match translate(group, kind, &mut translated) {
        Ok(()) => Ok(translated),
        Err(error) => {
            assert_eq!(translated, object, "changed in spite of: {error}");
            Err(error)
        }
    }
}

/// An Ingress with this `spec.loadBalancer` and these annotations.
fn ingress_with(load_balancer: Value, annotations: Value) -> Value {
    json!({
        "metadata": { "name": "web", "annotations": annotations },
        "spec": { "ingressClassName": "bowline", "loadBalancer": load_balancer },
    })
}

/// How such an Ingress is stored.
fn stored(annotations: Value) -> Value {
    json!({
        "metadata": { "name": "web", "annotations": annotations },
        "spec": { "ingressClassName": "bowline" },
    })
}

#[test]
fn ip_per_pod_becomes_a_load_balancer_of_its_class() {
    let ports = json!([{ "port": 80 }]);
    assert_eq!(
        run(SERVICE, json!({ "spec": { "type": "IPPerPod", "ports": ports } })),
        Ok(json!({
            "spec": {
                "type": "LoadBalancer",
                "loadBalancerClass": "bowline.dev/ip-per-pod",
                "ports": ports,
            },
        }))
    );
}

#[test]
fn ip_per_pod_of_a_headless_service_becomes_an_annotation() {
    for (headless, class) in [
        (json!({ "clusterIP": "None" }), Value::Null),
        (json!({ "clusterIPs": ["None"] }), json!("bowline.dev/ip-per-pod")),
    ] {
        let mut object = json!({ "metadata": { "name": "game" }, "spec": headless });
        let mut expected = object.clone();
        object["spec"]["type"] = "IPPerPod".into();
        object["spec"]["loadBalancerClass"] = class;
        expected["spec"]["type"] = "ClusterIP".into();
        expected["metadata"]["annotations"] = json!({ "bowline.dev/ip-per-pod": "true" });
        assert_eq!(run(SERVICE, object), Ok(expected));
    }
}

#[test]
fn ip_per_pod_with_another_class_is_refused() {
    let error = run(
        SERVICE,
        json!({ "spec": { "type": "IPPerPod", "loadBalancerClass": "bowline.dev/lb" } }),
    );
    assert_eq!(
        error,
        Err("spec.loadBalancerClass: \"bowline.dev/lb\" contradicts type IPPerPod; leave it out"
            .into())
    );
    let error = run(
        SERVICE,
        json!({
            "metadata": { "annotations": { "bowline.dev/ip-per-pod": "false" } },
            "spec": { "type": "IPPerPod", "clusterIP": "None" },
        }),
    );
    assert_eq!(
        error,
        Err("metadata.annotations[bowline.dev/ip-per-pod]: \"false\" contradicts type IPPerPod; leave it out".into())
    );
}

#[test]
fn what_is_translated_once_is_translated_again_to_the_same() {
    let once = run(SERVICE, json!({ "spec": { "type": "IPPerPod" } })).unwrap();
    assert_eq!(run(SERVICE, once.clone()), Ok(once.clone()));
    // A client that applies the same file again patches the stored object.
    let mut patched = once.clone();
    patched["spec"]["type"] = "IPPerPod".into();
    assert_eq!(run(SERVICE, patched), Ok(once));
}

#[test]
fn a_claim_on_an_ingress_becomes_an_annotation() {
    assert_eq!(
        run(
            INGRESS,
            ingress_with(
                json!({ "loadBalancerClaim": { "claimName": "web" } }),
                json!({ "a": "b" })
            )
        ),
        Ok(stored(json!({ "a": "b", "bowline.dev/load-balancer-claim": "web" })))
    );
}

#[test]
fn an_inline_source_on_an_ingress_is_kept_as_json() {
    let cases = [
        (
            json!({ "bareMetalLoadBalancer": { "type": "Haproxy", "serviceName": "edge" } }),
            r#"{"bareMetalLoadBalancer":{"serviceName":"edge","type":"Haproxy"}}"#,
        ),
        (
            json!({ "gceLoadBalancer": { "lbName": "edge-1" }, "awsLoadBalancer": null }),
            r#"{"gceLoadBalancer":{"lbName":"edge-1"}}"#,
        ),
        (
            json!({ "awsLoadBalancer": { "lbName": "Edge1" } }),
            r#"{"awsLoadBalancer":{"lbName":"Edge1"}}"#,
        ),
    ];
    for (source, text) in cases {
        assert_eq!(
            run(INGRESS, ingress_with(source, Value::Null)),
            Ok(stored(json!({ "bowline.dev/load-balancer-source": text })))
        );
    }
}

#[test]
fn a_new_place_replaces_what_an_earlier_translation_left() {
    let object = ingress_with(
        json!({ "loadBalancerClaim": { "claimName": "new" } }),
        json!({
            "bowline.dev/load-balancer-claim": "old",
            "bowline.dev/load-balancer-source": r#"{"gceLoadBalancer":{"lbName":"old"}}"#,
        }),
    );
    assert_eq!(
        run(INGRESS, object),
        Ok(stored(json!({ "bowline.dev/load-balancer-claim": "new" })))
    );
}

#[test]
fn an_ingress_that_also_names_a_load_balancer_is_refused() {
    let object = ingress_with(
        json!({ "loadBalancerClaim": { "claimName": "web" } }),
        json!({ "bowline.dev/load-balancer": "edge" }),
    );
    assert_eq!(
        run(INGRESS, object),
        Err("spec.loadBalancer: contradicts the annotation bowline.dev/load-balancer; write one of them".into())
    );
}

#[test]
fn an_empty_place_is_dropped_and_changes_nothing_else() {
    for empty in [json!(null), json!({}), json!({ "gceLoadBalancer": null })] {
        let annotations = json!({ "bowline.dev/load-balancer": "edge" });
        assert_eq!(run(INGRESS, ingress_with(empty, annotations.clone())), Ok(stored(annotations)));
    }
}

#[test]
fn hostile_and_mistaken_places_are_refused_with_the_field() {
    let long = "a".repeat(254);
    let cases = [
        (json!("web"), "spec.loadBalancer: must be an object, not a string"),
        (json!([1]), "spec.loadBalancer: must be an object, not a list"),
        (json!({ "azureLoadBalancer": {} }), "spec.loadBalancer.azureLoadBalancer: unknown field"),
        (json!({ "a\nb": {} }), "spec.loadBalancer.a\\nb: unknown field"),
        (
            json!({ "gceLoadBalancer": { "lbName": "a" }, "awsLoadBalancer": { "lbName": "a" } }),
            "spec.loadBalancer: only one of awsLoadBalancer and gceLoadBalancer may be set",
        ),
        (
            json!({ "loadBalancerClaim": {} }),
            "spec.loadBalancer.loadBalancerClaim.claimName: is needed",
        ),
        (
            json!({ "loadBalancerClaim": "web" }),
            "spec.loadBalancer.loadBalancerClaim: must be an object",
        ),
        (
            json!({ "loadBalancerClaim": { "claimName": 5 } }),
            "spec.loadBalancer.loadBalancerClaim.claimName: must be a string, not a number",
        ),
        (
            json!({ "loadBalancerClaim": { "claimName": "" } }),
            "spec.loadBalancer.loadBalancerClaim.claimName: \"\" is not the name",
        ),
        (
            json!({ "loadBalancerClaim": { "claimName": "a\nb" } }),
            "spec.loadBalancer.loadBalancerClaim.claimName: \"a\\nb\" is not the name",
        ),
        (
            json!({ "loadBalancerClaim": { "claimName": "../secret" } }),
            "spec.loadBalancer.loadBalancerClaim.claimName: \"../secret\" is not the name",
        ),
        (
            json!({ "loadBalancerClaim": { "claimName": long } }),
            "spec.loadBalancer.loadBalancerClaim.claimName: ",
        ),
        (
            json!({ "loadBalancerClaim": { "claimName": "web", "namespace": "other" } }),
            "spec.loadBalancer.loadBalancerClaim.namespace: unknown field",
        ),
        (
            json!({ "gceLoadBalancer": { "lbName": "a\"}, \"awsLoadBalancer\": {" } }),
            "spec.loadBalancer.gceLoadBalancer.lbName: ",
        ),
        (
            json!({ "gceLoadBalancer": {} }),
            "spec.loadBalancer.gceLoadBalancer: missing field `lbName`",
        ),
        (
            json!({ "gceLoadBalancer": { "lbName": "a", "zone": "b" } }),
            "spec.loadBalancer.gceLoadBalancer.zone: unknown field",
        ),
        (
            json!({ "bareMetalLoadBalancer": { "type": "Apache", "serviceName": "edge" } }),
            "spec.loadBalancer.bareMetalLoadBalancer: unknown variant `Apache`",
        ),
        (
            json!({ "bareMetalLoadBalancer": { "type": "Nginx", "serviceName": "a.b" } }),
            "spec.loadBalancer.bareMetalLoadBalancer.serviceName: \"a.b\" is not a DNS label",
        ),
    ];
    for (place, expected) in cases {
        let error = run(INGRESS, ingress_with(place, json!({}))).unwrap_err();
        assert!(error.starts_with(expected), "expected {expected:?}, got {error:?}");
    }
}

#[test]
fn annotations_that_are_no_object_are_refused() {
    let claim = json!({ "loadBalancerClaim": { "claimName": "web" } });
    assert_eq!(
        run(INGRESS, ingress_with(claim, json!("x"))),
        Err("metadata.annotations: must be an object".into())
    );
}

#[test]
fn everything_else_stays_as_it_is() {
    let untouched = [
        (SERVICE, json!({ "spec": { "type": "LoadBalancer", "loadBalancer": {} } })),
        (SERVICE, json!({ "spec": { "type": 5 } })),
        (SERVICE, json!({ "spec": "IPPerPod" })),
        (SERVICE, json!(["IPPerPod"])),
        (SERVICE, json!(null)),
        (INGRESS, json!({ "spec": { "type": "IPPerPod" } })),
        (INGRESS, json!({ "spec": [] })),
        (("example.com", "Service"), json!({ "spec": { "type": "IPPerPod" } })),
        (("", "Ingress"), json!({ "spec": { "loadBalancer": {} } })),
        (("apps", "Deployment"), json!({ "spec": { "loadBalancer": 1 } })),
    ];
    for (kind, object) in untouched {
        assert_eq!(run(kind, object.clone()), Ok(object));
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let key = prop_oneof![
        "(spec|metadata|annotations|type|loadBalancer|loadBalancerClaim|claimName|gceLoadBalancer|lbName|clusterIP|loadBalancerClass)",
        "\\PC{0,3}",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "(IPPerPod|None|web|\\PC{0,6})".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map(key.clone(), inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_object_is_translated_for_good_or_left_alone(object in any_json()) {
        for kind in [SERVICE, INGRESS] {
            if let Ok(once) = run(kind, object.clone()) {
                prop_assert_eq!(run(kind, once.clone()), Ok(once));
            }
        }
    }
}
