//! For any input the readers answer: with a value, or with a problem that is short, on one line and names its key.

use super::super::testing::{HOSTILE, annotated};
use super::super::*;
use crate::annotation_keys::{ALL, Key};
use bowline_core::outcome::Problem;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Node, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::{Ingress, IngressClass};
use proptest::prelude::*;
use serde_json::json;

const SERVICE: &str = "
metadata: {namespace: shop, name: web}
spec: {type: LoadBalancer, ports: [{name: http, port: 80}]}
";
const INGRESS: &str = "metadata: {namespace: shop, name: web}";

/// All problems of a Service and of an Ingress with these annotations.
fn problems_of(pairs: &[(&str, &str)]) -> Vec<Problem> {
    let service = service(&annotated::<Service>(SERVICE, pairs));
    let ingress = ingress(&annotated::<Ingress>(INGRESS, pairs));
    let mut problems = [service.problems, ingress.problems].concat();
    problems.extend(service.placement.err());
    problems.extend(service.vips.err());
    problems.extend(service.source_ranges.err());
    problems.extend(ingress.placement.err());
    problems
}

fn spellings(key: &Key) -> impl Iterator<Item = &'static str> + use<> {
    std::iter::once(key.name).chain(key.alternatives.iter().copied())
}

fn tells(problem: &Problem, key: &str) -> bool {
    let message = &*problem.message;
    message.contains(key) && message.len() < 1500 && !message.chars().any(char::is_control)
}

#[test]
fn hostile_values_of_every_annotation_are_answered_with_their_key() {
    let huge = "x".repeat(1 << 20);
    for name in ALL.iter().flat_map(spellings) {
        for value in HOSTILE.iter().copied().chain([huge.as_str()]) {
            for problem in problems_of(&[(name, value)]) {
                assert!(tells(&problem, name), "{name}: {value:?}: {problem:?}");
            }
        }
    }
}

#[test]
fn hostile_texts_in_every_field_are_answered() {
    for text in HOSTILE {
        let backend = json!({ "service": { "name": text, "port": { "name": text } } });
        let read: Ingress = serde_json::from_value(json!({
            "metadata": { "namespace": "shop", "name": "web" },
            "spec": {
                "ingressClassName": text,
                "defaultBackend": backend,
                "tls": [{ "hosts": [text], "secretName": text }],
                "rules": [{ "host": text, "http": { "paths": [
                    { "path": text, "pathType": "Prefix", "backend": backend },
                    { "path": "/", "pathType": text, "backend": backend },
                ] } }],
            },
        }))
        .unwrap();
        for problem in ingress(&read).problems {
            assert!(tells(&problem, ""), "{text:?}: {problem:?}");
        }
        let read: Service = serde_json::from_value(json!({
            "metadata": { "namespace": "shop", "name": "web" },
            "spec": {
                "type": text, "loadBalancerClass": text, "loadBalancerIP": text,
                "loadBalancerSourceRanges": [text], "ipFamilies": [text], "clusterIP": text,
                "externalTrafficPolicy": text, "sessionAffinity": text,
                "ports": [{ "name": text, "port": 80, "protocol": text, "appProtocol": text }],
            },
        }))
        .unwrap();
        let read = service(&read);
        let closed = read.source_ranges.is_err() || *text == "0.0.0.0/0";
        assert!(closed, "{text:?} opens: {:?}", read.source_ranges);
    }
}

proptest! {
    #[test]
    fn no_annotation_makes_a_reader_fail_otherwise_than_by_a_problem(
        pairs in prop::collection::vec((0..ALL.len(), 0..3usize, "\\PC{0,40}|[ -~\n\t]{0,40}"), 0..6),
    ) {
        let pairs: Vec<_> = pairs
            .iter()
            .filter_map(|(key, spelling, value)| {
                Some((spellings(&ALL[*key]).nth(*spelling)?, value.as_str()))
            })
            .collect();
        for problem in problems_of(&pairs) {
            prop_assert!(pairs.iter().any(|(key, _)| tells(&problem, key)), "{:?}", problem);
        }
    }

    #[test]
    fn no_number_makes_a_reader_fail(port: i32, node_port: i32, seconds: i32) {
        let read: Service = serde_json::from_value(json!({
            "spec": {
                "type": "LoadBalancer",
                "sessionAffinity": "ClientIP",
                "sessionAffinityConfig": { "clientIP": { "timeoutSeconds": seconds } },
                "ports": [{ "port": port, "nodePort": node_port }],
            },
        }))
        .unwrap();
        let read = service(&read);
        prop_assert_eq!(read.ports.is_empty(), !(1..=65535).contains(&port));
        prop_assert_eq!(read.problems.is_empty(), (1..=65535).contains(&port));
        let persistence = read.tuning.persistence.flatten().unwrap();
        prop_assert!(persistence.timeout_seconds > 0);
        let slice_read: EndpointSlice = serde_json::from_value(json!({
            "addressType": "IPv4", "endpoints": [], "ports": [{ "port": port }],
        }))
        .unwrap();
        prop_assert_eq!(slice(&slice_read).ports.is_empty(), !(1..=65535).contains(&port));
    }

    #[test]
    fn no_bytes_in_a_secret_make_its_reader_fail(
        chain in prop::collection::vec(any::<u8>(), 0..200), text in "(-----(BEGIN|END) [A-Z ]{0,20}-----|[A-Za-z0-9+/=]{0,20}|\n){0,12}",
    ) {
        for (chain, key) in [(&chain[..], text.as_bytes()), (text.as_bytes(), &chain[..])] {
            let entry = |name: &str, bytes: &[u8]| (name.to_owned(), ByteString(bytes.to_vec()));
            let read = Secret {
                type_: Some(TYPE_TLS.into()),
                data: Some([entry("tls.crt", chain), entry("tls.key", key)].into()),
                ..Secret::default()
            };
            let (read, certificate) = tls_secret(&read);
            prop_assert!(read.certificate.is_err_and(|problem| tells(&problem, "tls.")));
            prop_assert_eq!(certificate, None);
        }
    }

    #[test]
    fn no_text_makes_the_readers_of_nodes_and_classes_fail(text in "\\PC{0,40}") {
        let read: Node = serde_json::from_value(json!({
            "metadata": { "name": text },
            "status": { "addresses": [{ "type": "InternalIP", "address": text }] },
        }))
        .unwrap();
        prop_assert!(!node(&read).usable);
        let read: IngressClass = serde_json::from_value(json!({
            "metadata": { "name": text },
            "spec": {
                "controller": "bowline.dev/ingress",
                "parameters": { "apiGroup": text, "kind": text, "name": text, "scope": text },
            },
        }))
        .unwrap();
        prop_assert!(ingress_class(&read).parameters.is_err());
    }
}
