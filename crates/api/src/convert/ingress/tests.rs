//! Tests of Ingresses as the planner gets them.

use super::*;
use crate::convert::testing::{annotated, bad_tuning, bad_value, object};
use bowline_core::ObjectKey;
use bowline_core::objects::{IngressPath, IngressRule, IngressTls, Placement, Tuning};
use bowline_core::plan::{Algorithm, HealthCheck, Persistence, PersistenceKey};

const EMPTY: &str = "
metadata: {namespace: shop, name: web, uid: u1, creationTimestamp: '1970-01-01T00:01:00Z'}
spec: {ingressClassName: bowline}
";

fn empty() -> objects::Ingress {
    objects::Ingress {
        key: ObjectKey::new("shop", "web"),
        uid: "u1".into(),
        created: 60,
        deleting: false,
        class: Some("bowline".into()),
        placement: Ok(Placement::Default),
        tuning: Tuning::default(),
        redirect: true,
        default_backend: None,
        rules: vec![],
        tls: vec![],
        requests: Ok(<_>::default()),
        problems: vec![],
    }
}

fn with(spec: &str) -> objects::Ingress {
    ingress(&object(&EMPTY.replace("bowline}", &format!("bowline, {spec}}}"))))
}

fn noted(pairs: &[(&str, &str)]) -> objects::Ingress {
    ingress(&annotated(EMPTY, pairs))
}

fn to(service: &str, port: BackendPort) -> Backend {
    Backend { service: Some(service.into()), port }
}

fn path(kind: PathKind, value: &str) -> IngressPath {
    let path = PathMatch { kind, value: value.into() };
    IngressPath { path, backend: to("api", BackendPort::Number(80)) }
}

#[test]
fn an_ingress_without_rules_is_read() {
    assert_eq!(ingress(&object(EMPTY)), empty());
    let nobody = objects::Ingress {
        key: ObjectKey::new("", ""),
        uid: "".into(),
        created: i64::MAX,
        class: None,
        ..empty()
    };
    assert_eq!(ingress(&Ingress::default()), nobody);
}

#[test]
fn everything_an_ingress_says_is_read() {
    let read = ingress(&object(
        "
metadata:
  namespace: shop
  name: web
  uid: u1
  creationTimestamp: '1970-01-01T00:01:00Z'
  deletionTimestamp: '1970-01-01T00:02:00Z'
  annotations:
    bowline.dev/load-balancer-claim: public
    lb.zcloud.cn/method: hash
    bowline.dev/persistence: cookie
    bowline.dev/proxy-protocol: v2
    bowline.dev/health-check: tcp
    bowline.dev/https-redirect: 'false'
    bowline.dev/snat: 'false'
spec:
  ingressClassName: bowline
  defaultBackend: {service: {name: fallback, port: {name: http}}}
  tls: [{hosts: [Shop.Example], secretName: cert}, {}]
  rules:
    - host: Shop.Example
      http:
        paths:
          - {path: /api, pathType: Prefix, backend: {service: {name: api, port: {number: 80}}}}
          - {path: /one, pathType: Exact, backend: {service: {name: api, port: {number: 80}}}}
          - {path: /x, pathType: ImplementationSpecific, backend: {service: {name: api, port: {number: 80}}}}
          - {pathType: ImplementationSpecific, backend: {resource: {kind: Bucket, name: b}}}
    - host: '*.shop.example'
",
    ));
    let nothing = Backend { service: None, port: BackendPort::Number(0) };
    let root = PathMatch { kind: PathKind::Prefix, value: "/".into() };
    let expected = objects::Ingress {
        deleting: true,
        placement: Ok(Placement::Claim("public".into())),
        tuning: Tuning {
            algorithm: Some(Algorithm::SourceIp),
            persistence: Some(Some(Persistence {
                by: PersistenceKey::Cookie,
                timeout_seconds: 3600,
            })),
            // Members of an Ingress always see the proxy: the annotation is for Services.
            snat: None,
            proxy_protocol: Some(true),
            health_check: Some(HealthCheck {
                http_path: None,
                interval_ms: 5000,
                fall: 3,
                rise: 2,
            }),
        },
        redirect: false,
        default_backend: Some(to("fallback", BackendPort::Name("http".into()))),
        rules: vec![
            IngressRule {
                host: Host::Exact("shop.example".into()),
                paths: vec![
                    path(PathKind::Prefix, "/api"),
                    path(PathKind::Exact, "/one"),
                    path(PathKind::Prefix, "/x"),
                    IngressPath { path: root, backend: nothing },
                ],
            },
            IngressRule { host: Host::Wildcard("shop.example".into()), paths: vec![] },
        ],
        tls: vec![
            IngressTls {
                hosts: vec![Host::Exact("shop.example".into())],
                secret: Some("cert".into()),
            },
            IngressTls { hosts: vec![], secret: None },
        ],
        ..empty()
    };
    assert_eq!(read, expected);
}

#[test]
fn a_source_is_read_in_the_one_spelling_by_which_sources_are_compared() {
    let key = "bowline.dev/load-balancer-source";
    let json = r#" {"bareMetalLoadBalancer": {"serviceName": "edge", "type": "Nginx"}}"#;
    let canonical = r#"{"bareMetalLoadBalancer":{"type":"Nginx","serviceName":"edge"}}"#;
    assert_eq!(noted(&[(key, json)]).placement, Ok(Placement::Source(canonical.into())));
    let why = "is not the source of a load balancer as JSON, such as {\"builtin\":{}}";
    for bad in ["", "{}", "[]", "{\"builtin\":{},\"template\":{}}", "{\"other\":{}}"] {
        let expected = Err(bad_value(&format!("{key}: {bad:?} {why}")));
        assert_eq!(noted(&[(key, bad)]).placement, expected);
    }
}

#[test]
fn a_redirect_that_cannot_be_read_stays_on() {
    let expected = objects::Ingress {
        problems: vec![bad_tuning(
            "bowline.dev/https-redirect: \"no\" is neither \"true\" nor \"false\"",
        )],
        ..empty()
    };
    assert_eq!(noted(&[("bowline.dev/https-redirect", "no")]), expected);
}

#[test]
fn tuning_that_cannot_be_read_is_quoted_under_the_key_where_it_was_found() {
    let cases = [
        ("bowline.dev/algorithm", "rr", "is not one of round-robin, least-connections, source-ip"),
        ("lb.zcloud.cn/method", "round-robin", "is not one of rr, lc, hash"),
        ("bowline.dev/persistence", "sticky", "is not one of none, source-ip, cookie"),
        (
            "bowline.dev/persistence-timeout",
            "0s",
            "is not a duration from 1s to 720h, such as 30s, 5m or 1h30m",
        ),
        (
            "bowline.dev/persistence-timeout",
            "721h",
            "is not a duration from 1s to 720h, such as 30s, 5m or 1h30m",
        ),
        ("bowline.dev/proxy-protocol", "v1", "is not v2, the only version that is supported"),
        (
            "bowline.dev/health-check",
            "http:healthz",
            "is neither tcp nor http:/path, such as http:/healthz",
        ),
        (
            "bowline.dev/health-check",
            "http:/a b",
            "is neither tcp nor http:/path, such as http:/healthz",
        ),
    ];
    for (key, value, why) in cases {
        let problems = vec![bad_tuning(&format!("{key}: {value:?} {why}"))];
        assert_eq!(noted(&[(key, value)]), objects::Ingress { problems, ..empty() });
    }
}

#[test]
fn a_host_that_cannot_be_read_is_left_out_and_the_others_are_served() {
    let read = with("rules: [{host: 'a b'}, {host: ok.example}]");
    let expected = objects::Ingress {
        rules: vec![IngressRule { host: Host::Exact("ok.example".into()), paths: vec![] }],
        problems: vec![bad_value(
            "spec.rules.host: \"a b\" is not a DNS name such as shop.example.com or *.example.com",
        )],
        ..empty()
    };
    assert_eq!(read, expected);
}

#[test]
fn a_regular_expression_may_not_be_endless() {
    let rule = |host: String| IngressRule { host: host.parse().unwrap(), paths: vec![] };
    let fits = format!("~{}", "a".repeat(1023));
    assert_eq!(with(&format!("rules: [{{host: '{fits}'}}]")).rules, [rule(fits)]);
    let long = with(&format!("rules: [{{host: '~{}'}}]", "a".repeat(1024)));
    let quoted = format!("\"~{}\"…", "a".repeat(99));
    let problem = bad_value(&format!("spec.rules.host: {quoted} is longer than 1024 bytes"));
    assert_eq!(long, objects::Ingress { problems: vec![problem], ..empty() });
}

#[test]
fn a_tls_entry_of_unreadable_hosts_is_not_one_for_all_hosts() {
    let read = with("tls: [{hosts: ['a b'], secretName: cert}]");
    let expected = objects::Ingress {
        problems: vec![bad_value(
            "spec.tls.hosts: \"a b\" is not a DNS name such as shop.example.com or *.example.com",
        )],
        ..empty()
    };
    assert_eq!(read, expected);
}

#[test]
fn a_secret_whose_name_cannot_be_is_no_certificate() {
    let read = with("tls: [{hosts: [a.example], secretName: 'x/y'}]");
    let expected = objects::Ingress {
        tls: vec![IngressTls { hosts: vec![Host::Exact("a.example".into())], secret: None }],
        problems: vec![bad_value(
            "spec.tls.secretName: \"x/y\" is not the name of an object: at most 253 lower-case \
             letters, digits, '-' and '.'",
        )],
        ..empty()
    };
    assert_eq!(read, expected);
}

#[test]
fn a_path_begins_with_a_slash_and_holds_what_a_request_can() {
    let backend = "backend: {service: {name: api, port: {number: 80}}}";
    for bad in ["api", "/a b", "/a\nb", "/a\tb"] {
        let bad_yaml = serde_json::to_string(bad).unwrap();
        let read = with(&format!(
            "rules: [{{http: {{paths: [{{pathType: Prefix, path: {bad_yaml}, {backend}}}]}}}}]"
        ));
        let quoted = bowline_core::outcome::quote(bad);
        let expected = objects::Ingress {
            rules: vec![IngressRule { host: Host::Any, paths: vec![] }],
            problems: vec![bad_value(&format!(
                "spec.rules.http.paths.path: {quoted} is not a path: write one that begins with '/' and has no \
                 spaces or control characters"
            ))],
            ..empty()
        };
        assert_eq!(read, expected);
    }
    let read =
        with(&format!("rules: [{{http: {{paths: [{{pathType: Glob, path: /, {backend}}}]}}}}]"));
    assert_eq!(
        read.problems,
        [bad_value(
            "spec.rules.http.paths.pathType: \"Glob\" is not Exact, Prefix or ImplementationSpecific"
        )]
    );
}

#[test]
fn a_backend_that_cannot_be_read_keeps_its_path() {
    let cases = [
        (
            "{name: 'a/b', port: {number: 80}}",
            Backend { service: None, port: BackendPort::Number(0) },
            "backend.service.name: \"a/b\" is not the name of a Service: at most 63 lower-case \
             letters, digits and '-'",
        ),
        (
            "{name: api, port: {number: 70000}}",
            to("api", BackendPort::Number(0)),
            "backend.service.port.number: \"70000\" is not a port: a number from 1 to 65535",
        ),
        (
            "{name: api}",
            to("api", BackendPort::Number(0)),
            "backend.service.port.number: \"0\" is not a port: a number from 1 to 65535",
        ),
        (
            "{name: api, port: {name: 'a;b'}}",
            to("api", BackendPort::Number(0)),
            "backend.service.port.name: \"a;b\" is not the name of a port: lower-case letters, \
             digits and '-'",
        ),
    ];
    for (service, backend, problem) in cases {
        let expected = objects::Ingress {
            default_backend: Some(backend),
            problems: vec![bad_value(problem)],
            ..empty()
        };
        assert_eq!(with(&format!("defaultBackend: {{service: {service}}}")), expected);
    }
}
