//! Tests of Services as the planner gets them.

use super::*;
use crate::convert::testing::{annotated, bad_tuning, bad_value, object};
use bowline_core::ObjectKey;
use bowline_core::addresses::Wish;
use bowline_core::objects::{Placement, Tuning};
use bowline_core::plan::{Algorithm, HealthCheck, Transport};

const PLAIN: &str = "
metadata: {namespace: shop, name: web, uid: u1, creationTimestamp: '1970-01-01T00:01:00Z'}
spec:
  type: LoadBalancer
  ipFamilies: [IPv4]
  ports: [{name: http, port: 80}]
";

fn plain() -> objects::Service {
    objects::Service {
        key: ObjectKey::new("shop", "web"),
        uid: "u1".into(),
        created: 60,
        deleting: false,
        exposure: Exposure::LoadBalancer,
        class: ServiceClass::Unset,
        ports: vec![http()],
        families: vec![Family::V4],
        local_only: false,
        source_ranges: Ok(vec![]),
        placement: Ok(Placement::Default),
        vips: Ok(vec![]),
        address: Wish::default(),
        tuning: Tuning::default(),
        affinity: None,
        timeouts: BTreeMap::new(),
        requests: Ok(<_>::default()),
        problems: vec![],
    }
}

fn http() -> objects::ServicePort {
    objects::ServicePort {
        name: "http".into(),
        number: 80,
        transport: Transport::Tcp,
        node_port: None,
        h2c: false,
    }
}

/// The plain Service with other fields in its spec.
fn with(fields: &str) -> objects::Service {
    service(&object(&PLAIN.replacen("spec:", &format!("spec:\n  {fields}"), 1)))
}

/// The plain Service with annotations.
fn noted(pairs: &[(&str, &str)]) -> objects::Service {
    service(&annotated(PLAIN, pairs))
}

#[test]
fn a_service_without_wishes_has_none() {
    assert_eq!(service(&object(PLAIN)), plain());
}

#[test]
fn everything_a_service_says_is_read() {
    let read = service(&object(
        "
metadata:
  namespace: shop
  name: web
  uid: u1
  creationTimestamp: '1970-01-01T00:01:00Z'
  deletionTimestamp: '1970-01-01T00:02:00Z'
  annotations:
    bowline.dev/load-balancer: edge
    bowline.dev/vip: 203.0.113.10, 2001:db8::1
    bowline.dev/algorithm: least-connections
    bowline.dev/snat: 'false'
    bowline.dev/proxy-protocol: v2
    bowline.dev/persistence: source-ip
    bowline.dev/persistence-timeout: 5m
    bowline.dev/health-check: http:/healthz?deep=1
    bowline.dev/backend-timeout: '{\"http\": 5000}'
spec:
  type: LoadBalancer
  loadBalancerClass: bowline.dev/lb
  loadBalancerIP: 203.0.113.10
  loadBalancerSourceRanges: [10.1.2.3/8, '2001:db8::/32']
  externalTrafficPolicy: Local
  ipFamilies: [IPv6, IPv4]
  ports:
    - {name: http, port: 80, nodePort: 30080, appProtocol: kubernetes.io/h2c, targetPort: web}
    - {name: dns, port: 53, protocol: UDP}
    - {name: sig, port: 2905, protocol: SCTP, nodePort: 0}
",
    ));
    let port = |name: &str, number, transport| objects::ServicePort {
        name: name.into(),
        number,
        transport,
        ..http()
    };
    let expected = objects::Service {
        deleting: true,
        class: ServiceClass::LoadBalancer,
        ports: vec![
            objects::ServicePort { node_port: Some(30080), h2c: true, ..http() },
            port("dns", 53, Transport::Udp),
            port("sig", 2905, Transport::Sctp),
        ],
        families: vec![Family::V6, Family::V4],
        local_only: true,
        source_ranges: Ok(vec!["10.0.0.0/8".parse().unwrap(), "2001:db8::/32".parse().unwrap()]),
        placement: Ok(Placement::LoadBalancer("edge".into())),
        vips: Ok(vec!["203.0.113.10".parse().unwrap(), "2001:db8::1".parse().unwrap()]),
        tuning: Tuning {
            algorithm: Some(Algorithm::LeastConnections),
            persistence: Some(source_ip(300)),
            snat: Some(false),
            proxy_protocol: Some(true),
            health_check: Some(HealthCheck {
                http_path: Some("/healthz?deep=1".into()),
                interval_ms: 5000,
                fall: 3,
                rise: 2,
            }),
        },
        timeouts: [("http".into(), Timeouts { backend_ms: Some(5000), ..Timeouts::default() })]
            .into(),
        ..plain()
    };
    assert_eq!(read, expected);
}

fn source_ip(timeout_seconds: u32) -> Option<Persistence> {
    Some(Persistence { by: PersistenceKey::SourceIp, timeout_seconds })
}

#[test]
fn an_object_with_nothing_in_it_is_a_service_of_nobody() {
    let expected = objects::Service {
        key: ObjectKey::new("", ""),
        uid: "".into(),
        created: i64::MAX,
        exposure: Exposure::ClusterIp,
        ports: vec![],
        ..plain()
    };
    assert_eq!(service(&Service::default()), expected);
}

#[test]
fn a_service_is_ours_by_type_and_class() {
    for (type_, exposure) in [
        ("LoadBalancer", Exposure::LoadBalancer),
        ("NodePort", Exposure::NodePort),
        ("ClusterIP", Exposure::ClusterIp),
        ("ExternalName", Exposure::ExternalName),
    ] {
        let yaml = PLAIN.replace("type: LoadBalancer", &format!("type: {type_}"));
        assert_eq!(service(&object(&yaml)).exposure, exposure);
    }
    for (class, expected) in [
        ("bowline.dev/lb", ServiceClass::LoadBalancer),
        ("bowline.dev/ip-per-pod", ServiceClass::IpPerPod),
        ("example.com/other", ServiceClass::Foreign),
    ] {
        assert_eq!(with(&format!("loadBalancerClass: {class}")).class, expected);
    }
}

#[test]
fn one_address_per_pod_may_be_asked_for_by_an_annotation() {
    let key = "bowline.dev/ip-per-pod";
    assert_eq!(noted(&[(key, "true")]).class, ServiceClass::IpPerPod);
    assert_eq!(noted(&[(key, "false")]), plain());
    let unclear = objects::Service {
        placement: Err(bad_value(
            "bowline.dev/ip-per-pod: \"yes\" is neither \"true\" nor \"false\"",
        )),
        ..plain()
    };
    assert_eq!(noted(&[(key, "yes")]), unclear);
}

#[test]
fn families_are_those_that_the_server_gave_or_those_of_the_addresses() {
    let yaml = |fields: &str| PLAIN.replace("ipFamilies: [IPv4]", fields);
    for (fields, expected) in [
        ("ipFamilies: [IPv6]", vec![Family::V6]),
        ("clusterIP: '2001:db8::1'", vec![Family::V6]),
        ("clusterIPs: ['2001:db8::1', 10.0.0.1]", vec![Family::V6, Family::V4]),
        ("clusterIP: None", vec![Family::V4]),
        ("ipFamilies: [IPv4, IPv4, IPv5]", vec![Family::V4]),
    ] {
        assert_eq!(service(&object(&yaml(fields))).families, expected, "{fields}");
    }
}

#[test]
fn a_place_is_named_in_one_way() {
    let place = |pairs: &[(&str, &str)]| noted(pairs).placement;
    let (lb, claim) = ("bowline.dev/load-balancer", "bowline.dev/load-balancer-claim");
    assert_eq!(place(&[(lb, "edge.a")]), Ok(Placement::LoadBalancer("edge.a".into())));
    assert_eq!(place(&[(claim, "web")]), Ok(Placement::Claim("web".into())));
    assert_eq!(
        place(&[(claim, "web"), (lb, "edge")]),
        Err(bad_value(
            "bowline.dev/load-balancer-claim: \"web\" contradicts bowline.dev/load-balancer: \
             \"edge\"; write one of them"
        ))
    );
    for (key, value, quoted) in
        [(lb, "", "\"\""), (lb, "Edge", "\"Edge\""), (claim, "a\nb", r#""a\nb""#)]
    {
        let why =
            "is not the name of an object: at most 253 lower-case letters, digits, '-' and '.'";
        let expected = Err(bad_value(&format!("{key}: {quoted} {why}")));
        assert_eq!(place(&[(key, value)]), expected);
    }
    // Only an Ingress can name a source.
    assert_eq!(place(&[("bowline.dev/load-balancer-source", "{")]), Ok(Placement::Default));
}

#[test]
fn an_address_is_asked_for_in_any_spelling_one_of_each_family() {
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    for key in ["bowline.dev/vip", "metallb.io/loadBalancerIPs", "lb.zcloud.cn/vip"] {
        assert_eq!(noted(&[(key, "203.0.113.10")]).vips, Ok(vec![ip("203.0.113.10")]));
        let both = noted(&[(key, " 2001:db8::1 ,203.0.113.10")]);
        assert_eq!(both.vips, Ok(vec![ip("2001:db8::1"), ip("203.0.113.10")]));
        for bad in ["", "here", "203.0.113.10,", "203.0.113.010", "203.0.113.0/24", "fe80::1%eth0"]
        {
            let why = "is not an address such as 203.0.113.10, nor one IPv4 and one IPv6 address with a comma \
                between";
            let expected = Err(bad_value(&format!("{key}: {bad:?} {why}")));
            assert_eq!(noted(&[(key, bad)]).vips, expected);
        }
        let why = "has two addresses of one family: write one of each";
        let two = "203.0.113.10,203.0.113.11";
        let expected = Err(bad_value(&format!("{key}: {two:?} {why}")));
        assert_eq!(noted(&[(key, two)]).vips, expected);
    }
    let field = with("loadBalancerIP: 203.0.113.10").vips;
    assert_eq!(field, Ok(vec![ip("203.0.113.10")]));
    assert_eq!(with("loadBalancerIP: ''").vips, Ok(vec![]));
    assert!(
        with("loadBalancerIP: nowhere").vips.is_err_and(|p| p.message.starts_with("spec.loadB"))
    );
}

#[test]
fn addresses_in_several_spellings_must_be_the_same() {
    let (ours, theirs) = ("bowline.dev/vip", "metallb.io/loadBalancerIPs");
    let both = |one: &str, other: &str| noted(&[(ours, one), (theirs, other)]).vips;
    let asked = Ok(vec!["203.0.113.10".parse().unwrap(), "2001:db8::1".parse().unwrap()]);
    assert_eq!(both("203.0.113.10,2001:db8::1", "2001:db8::1, 203.0.113.10"), asked);
    let why = "contradicts bowline.dev/vip: \"203.0.113.10\"; write one of them";
    let expected = Err(bad_value(&format!("{theirs}: \"203.0.113.11\" {why}")));
    assert_eq!(both("203.0.113.10", "203.0.113.11"), expected);
}

#[test]
fn source_ranges_that_cannot_be_read_close_the_service() {
    let key = "service.beta.kubernetes.io/load-balancer-source-ranges";
    let why = "is not a network such as 203.0.113.0/24";
    let net = |text: &str| text.parse::<IpNet>().unwrap();
    assert_eq!(
        noted(&[(key, "10.0.0.0/8, 192.0.2.7/32")]).source_ranges,
        Ok(vec![net("10.0.0.0/8"), net("192.0.2.7/32")])
    );
    assert_eq!(noted(&[(key, " ")]).source_ranges, Ok(vec![]));
    let expected = Err(bad_value(&format!("{key}: \"\" {why}")));
    assert_eq!(noted(&[(key, "10.0.0.0/8,")]).source_ranges, expected);
    for bad in ["10.0.0.0", "10.0.0.0/33", "all", ""] {
        let expected = Err(bad_value(&format!("spec.loadBalancerSourceRanges: {bad:?} {why}")));
        let read = with(&format!("loadBalancerSourceRanges: [10.0.0.0/8, {bad:?}]"));
        assert_eq!(read.source_ranges, expected);
    }
    let many = vec!["10.0.0.0/8"; 1001].join(",");
    let expected = Err(bad_value("1001 source ranges are more than 1000"));
    assert_eq!(noted(&[(key, &many)]).source_ranges, expected);
}

#[test]
fn the_field_for_source_ranges_counts_before_the_annotation() {
    let yaml = PLAIN.replacen("spec:", "spec:\n  loadBalancerSourceRanges: [10.0.0.0/8]", 1);
    let both = annotated(
        &yaml,
        &[("service.beta.kubernetes.io/load-balancer-source-ranges", "0.0.0.0/0")],
    );
    assert_eq!(service(&both).source_ranges, Ok(vec!["10.0.0.0/8".parse().unwrap()]));
}

#[test]
fn session_affinity_is_persistence_unless_the_annotation_says_otherwise() {
    let affine = "sessionAffinity: ClientIP";
    let timed =
        "sessionAffinity: ClientIP\n  sessionAffinityConfig: {clientIP: {timeoutSeconds: 90}}";
    let (by, time) = ("bowline.dev/persistence", "bowline.dev/persistence-timeout");
    let read = |fields: &str, pairs: &[(&str, &str)]| {
        let yaml = PLAIN.replacen("spec:", &format!("spec:\n  {fields}"), 1);
        let read = service(&annotated(&yaml, pairs));
        assert_eq!(read.problems, [], "{fields} {pairs:?}");
        read.tuning.persistence
    };
    assert_eq!(read("sessionAffinity: None", &[]), None);
    assert_eq!(read(affine, &[]), Some(source_ip(10800)));
    assert_eq!(read(timed, &[]), Some(source_ip(90)));
    assert_eq!(read(timed, &[(time, "1m")]), Some(source_ip(60)));
    assert_eq!(read(timed, &[(by, "source-ip")]), Some(source_ip(90)));
    assert_eq!(read(timed, &[(by, "none")]), Some(None));
    assert_eq!(read("sessionAffinity: None", &[(by, "source-ip")]), Some(source_ip(10800)));
    assert_eq!(read("sessionAffinity: None", &[(by, "none"), (time, "1m")]), Some(None));
}

#[test]
fn a_service_may_ask_for_a_cookie_and_keeps_its_affinity_for_ports_that_have_none() {
    let cookie = [("bowline.dev/persistence", "cookie")];
    let affine = PLAIN.replacen("spec:", "spec:\n  sessionAffinity: ClientIP", 1);
    let asks = service(&annotated(&affine, &cookie));
    let by = |by, timeout_seconds| Persistence { by, timeout_seconds };
    let expected = by(PersistenceKey::Cookie, 3600);
    assert_eq!(asks.tuning.persistence, Some(Some(expected)));
    assert_eq!(asks.affinity, Some(by(PersistenceKey::SourceIp, 10800)));
    assert_eq!(asks.problems, []);
}

#[test]
fn a_timeout_of_nothing_is_reported() {
    let expected = objects::Service {
        problems: vec![bad_tuning(
            "bowline.dev/persistence-timeout: \"5m\" has no effect without bowline.dev/persistence",
        )],
        ..plain()
    };
    assert_eq!(noted(&[("bowline.dev/persistence-timeout", "5m")]), expected);
}

#[test]
fn backend_timeouts_are_for_the_ports_that_exist() {
    for key in ["bowline.dev/backend-timeout", "kube2lb/backend-timeout"] {
        let read = noted(&[(key, r#"{"http": 86400000, "ftp": 1}"#)]);
        let timeouts = Timeouts { backend_ms: Some(86_400_000), ..Timeouts::default() };
        let expected = objects::Service {
            timeouts: [("http".into(), timeouts)].into(),
            problems: vec![bad_tuning(&format!(
                "{key}: {:?} names \"ftp\", which is not a port of the Service",
                r#"{"http": 86400000, "ftp": 1}"#
            ))],
            ..plain()
        };
        assert_eq!(read, expected);
        for bad in [
            "",
            "5000",
            "[5000]",
            r#"{"http": "5000"}"#,
            r#"{"http": -1}"#,
            r#"{"http": 0}"#,
            r#"{"http": 1.5}"#,
            r#"{"http": 86400001}"#,
            r#"{"http": 1e30}"#,
            "{",
        ] {
            let why = "is not a JSON map of port names to milliseconds from 1 to 86400000, such as \
                       {\"http\":5000}";
            let problems = vec![bad_tuning(&format!("{key}: {bad:?} {why}"))];
            assert_eq!(noted(&[(key, bad)]), objects::Service { problems, ..plain() });
        }
    }
}

#[test]
fn ports_that_no_server_would_take_are_left_out_and_reported() {
    let yaml = PLAIN.replace(
        "[{name: http, port: 80}]",
        "[{name: http, port: 80}, {port: 0}, {port: 70000}, {port: -1}, {port: 1, protocol: 'tcp\n'}]",
    );
    let number =
        |n| bad_value(&format!("spec.ports.port: \"{n}\" is not a port: a number from 1 to 65535"));
    let expected = objects::Service {
        problems: vec![
            number(0),
            number(70000),
            number(-1),
            bad_value("spec.ports.protocol: \"tcp \" is not TCP, UDP or SCTP"),
        ],
        ..plain()
    };
    assert_eq!(service(&object(&yaml)), expected);
}
