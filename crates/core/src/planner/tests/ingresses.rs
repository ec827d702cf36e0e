//! Tests of Ingresses: which rules, pools and certificates they have on a load balancer.

use super::make::*;
use crate::key::ConsumerKind;
use crate::objects::{
    Backend, BackendPort, Exposure, Ingress, IngressPath, IngressRule, LoadBalancer, Service,
    TlsSecret, Tuning,
};
use crate::outcome::{Problem, Reason};
use crate::plan::{
    Algorithm, Backends, CertificateRef, Fragment, Host, ListenerProtocol, NodeBackends, SiteTls,
    Speaks, Transport,
};
use crate::planner::{Config, Object, Planner};
use std::sync::Arc;

/// A Service that is only a backend.
fn backend_service(name: &str, ports: &[u16]) -> Service {
    Service { exposure: Exposure::ClusterIp, ..service(name, ports) }
}

/// A planner with a load balancer, our class, Service `a/s` with ports 80 and 81, and these
/// objects.
fn world(objects: Vec<Object>) -> Planner {
    let around: Vec<Object> =
        vec![lb("lb").into(), class("web").into(), backend_service("a/s", &[80, 81]).into()];
    planner(Config::default(), around.into_iter().chain(objects).collect())
}

fn parts<'a>(planner: &'a Planner, name: &str) -> &'a [Arc<Fragment>] {
    planner.parts(ConsumerKind::Ingress, &key(name))
}

fn messages(planner: &Planner, name: &str) -> Vec<String> {
    let outcome = planner.outcome(ConsumerKind::Ingress, &key(name)).unwrap();
    outcome.problems.iter().map(|problem| problem.message.to_string()).collect()
}

#[test]
fn rules_are_in_the_order_in_which_they_are_tried_and_pools_are_there_once() {
    let rules_of_x = vec![
        rule("shop.example", &[("/", "s:80"), ("/a", "s:p80"), ("=/a", "s:81"), ("/a/b/", "s:81")]),
        rule("*.example", &[("/", "s:80")]),
    ];
    let planner = world(vec![ingress("a/x", rules_of_x).into()]);
    assert_eq!(ingress_state(&planner, "a/x"), "lb 192.0.2.1");
    assert_eq!(
        rules(&planner, "a/x"),
        [
            "shop.example =/a -> ingress/a/x/s/p81",
            "shop.example /a/b -> ingress/a/x/s/p81",
            "shop.example /a -> ingress/a/x/s/p80",
            "shop.example / -> ingress/a/x/s/p80",
            "*.example / -> ingress/a/x/s/p80",
        ]
    );
    let pools: Vec<_> = parts(&planner, "a/x")[0].pools.iter().map(|pool| &*pool.name).collect();
    assert_eq!(pools, ["ingress/a/x/s/p80", "ingress/a/x/s/p81"]);
}

#[test]
fn the_load_balancer_listens_for_http_while_it_has_an_ingress() {
    let at = LoadBalancer {
        addresses: vec![ip("192.0.2.1"), ip("2001:db8::1")],
        http_port: 8080,
        https_port: 8443,
        ..lb("lb")
    };
    let x = ingress("a/x", vec![rule("", &[("/", "s:80")])]);
    let mut planner = world(vec![at.into()]);
    assert_eq!(planner.fragments("lb").count(), 0);
    apply(&mut planner, x.clone());
    planner.take();
    assert_eq!(ingress_state(&planner, "a/x"), "lb 192.0.2.1 2001:db8::1");
    let own = planner.parts(ConsumerKind::LoadBalancer, &key("lb"));
    let listeners: Vec<_> = own[0]
        .listeners
        .iter()
        .map(|listener| (listener.address.to_string(), listener.port, listener.protocol))
        .collect();
    let (http, https) = (ListenerProtocol::Http, ListenerProtocol::Https);
    assert_eq!(
        listeners,
        [
            ("192.0.2.1".to_owned(), 8080, http),
            ("192.0.2.1".to_owned(), 8443, https),
            ("2001:db8::1".to_owned(), 8080, http),
            ("2001:db8::1".to_owned(), 8443, https),
        ]
    );
    apply(&mut planner, Ingress { deleting: true, ..x });
    planner.take();
    assert_eq!(planner.fragments("lb").count(), 0);
    assert_eq!(planner.outcomes().count(), 0);
}

#[test]
fn its_listeners_are_as_old_as_its_oldest_ingress() {
    let x = |created| Ingress { created, ..ingress("a/x", vec![rule("", &[("/", "s:80")])]) };
    let svc = Service { created: 5, ..service("b/svc", &[80]) };
    let mut planner = world(vec![svc.into(), x(6).into()]);
    assert_eq!(service_state(&planner, "b/svc"), "lb 192.0.2.1");
    assert_eq!(ingress_state(&planner, "a/x"), "lb 192.0.2.1");
    assert_eq!(
        messages(&planner, "a/x"),
        ["port 80/TCP of 192.0.2.1 belongs to Service b/svc, which had it first"]
    );
    assert_eq!(reasons(&planner, ConsumerKind::LoadBalancer, "lb"), [Reason::PortTaken]);
    apply(
        &mut planner,
        Ingress { created: 4, ..ingress("a/y", vec![rule("y", &[("/", "s:80")])]) },
    );
    planner.take();
    assert_eq!(service_state(&planner, "b/svc"), "PortTaken by lb");
    assert_eq!(messages(&planner, "a/x"), [""; 0]);
}

#[test]
fn an_ingress_without_any_listener_is_refused() {
    let both = service("b/svc", &[80, 443]);
    let x = Ingress { created: 1, ..ingress("a/x", vec![rule("", &[("/", "s:80")])]) };
    let mut planner = world(vec![both.into(), x.into()]);
    assert_eq!(ingress_state(&planner, "a/x"), "PortTaken by lb");
    assert_eq!(planner.fragments("lb").count(), 1);
    apply(&mut planner, LoadBalancer { addresses: Vec::new(), ..lb("lb") });
    planner.take();
    assert_eq!(ingress_state(&planner, "a/x"), "NoAddress by lb");
}

#[test]
fn the_default_backend_serves_hosts_without_rules_and_rules_without_paths() {
    let x = Ingress {
        default_backend: Some(backend("s:81")),
        ..ingress("a/x", vec![rule("a.example", &[]), rule("b.example", &[("/b", "s:80")])])
    };
    let planner = world(vec![x.into()]);
    assert_eq!(
        rules(&planner, "a/x"),
        [
            "a.example / -> ingress/a/x/s/p81",
            "b.example /b -> ingress/a/x/s/p80",
            "* / -> ingress/a/x/s/p81",
        ]
    );
}

#[test]
fn a_rule_for_everything_goes_before_the_default_backend_of_its_ingress() {
    let x = Ingress {
        default_backend: Some(backend("s:81")),
        ..ingress("a/x", vec![rule("", &[("/", "s:80")])])
    };
    let planner = world(vec![x.into()]);
    assert_eq!(rules(&planner, "a/x"), ["* / -> ingress/a/x/s/p80"]);
    assert_eq!(messages(&planner, "a/x"), [""; 0]);
}

#[test]
fn an_ingress_with_nothing_to_serve_is_refused() {
    let planner = world(vec![ingress("a/x", vec![rule("a.example", &[])]).into()]);
    assert_eq!(ingress_state(&planner, "a/x"), "BackendNotFound by lb");
    assert_eq!(planner.fragments("lb").count(), 0);
}

#[test]
fn a_backend_that_cannot_be_used_is_answered_503_and_its_owner_is_told() {
    let name = Service { exposure: Exposure::ExternalName, ..service("a/name", &[80]) };
    let mut udp = backend_service("a/udp", &[80]);
    udp.ports[0].transport = Transport::Udp;
    let unread = Problem::new(Reason::BadValue, "source range");
    let ranges = Service { source_ranges: Err(unread), ..service("a/ranges", &[80]) };
    let rules_of_x = vec![rule(
        "",
        &[
            ("/name", "name:80"),
            ("/none", "none:80"),
            ("/port", "s:82"),
            ("/portname", "s:http"),
            ("/ranges", "ranges:80"),
            ("/udp", "udp:80"),
            ("/ok", "s:80"),
        ],
    )];
    let mut x = ingress("a/x", rules_of_x);
    let resource = Backend { service: None, port: BackendPort::Number(80) };
    x.rules[0].paths.push(IngressPath { path: path("/resource"), backend: resource });
    let planner = world(vec![name.into(), udp.into(), ranges.into(), x.into()]);
    assert_eq!(
        rules(&planner, "a/x"),
        [
            "* /portname -> 503",
            "* /resource -> 503",
            "* /ranges -> 503",
            "* /name -> 503",
            "* /none -> 503",
            "* /port -> 503",
            "* /udp -> 503",
            "* /ok -> ingress/a/x/s/p80",
        ]
    );
    assert_eq!(
        messages(&planner, "a/x"),
        [
            r#"Service "none" does not exist"#,
            r#"Service "s" has no port "http""#,
            r#"Service "s" has no port 82"#,
            r#"Service "name" is of type ExternalName and has no endpoints"#,
            "a resource as backend is not supported; name a Service",
            r#"port 80 of Service "udp" is not TCP"#,
            "source range",
        ]
    );
}

#[test]
fn a_service_that_comes_later_is_found() {
    let mut planner = world(vec![ingress("a/x", vec![rule("", &[("/", "t:80")])]).into()]);
    assert_eq!(rules(&planner, "a/x"), ["* / -> 503"]);
    apply(&mut planner, backend_service("a/t", &[80]));
    planner.take();
    assert_eq!(rules(&planner, "a/x"), ["* / -> ingress/a/x/t/p80"]);
}

#[test]
fn a_host_belongs_to_the_namespace_of_its_oldest_ingress() {
    let of = |name, created, host, at| Ingress {
        created,
        ..ingress(name, vec![rule(host, &[(at, "s:80")])])
    };
    let first = of("b/first", 1, "h.example", "/first");
    let second = Ingress {
        rules: vec![rule("h.example", &[("/", "s:80")]), rule("own.example", &[("/", "s:80")])],
        ..of("a/second", 2, "", "/")
    };
    let third = of("b/third", 3, "h.example", "/third");
    let objects = vec![
        backend_service("b/s", &[80]).into(),
        second.into(),
        third.into(),
        first.clone().into(),
    ];
    let mut planner = world(objects);
    assert_eq!(rules(&planner, "b/first"), ["h.example /first -> ingress/b/first/s/p80"]);
    assert_eq!(rules(&planner, "b/third"), ["h.example /third -> ingress/b/third/s/p80"]);
    assert_eq!(rules(&planner, "a/second"), ["own.example / -> ingress/a/second/s/p80"]);
    assert_eq!(
        messages(&planner, "a/second"),
        [r#"host "h.example" belongs to namespace "b", which had it first"#]
    );
    apply(&mut planner, Ingress { deleting: true, ..first });
    planner.take();
    assert_eq!(rules(&planner, "a/second").len(), 2);
    assert_eq!(ingress_state(&planner, "b/third"), "HostTaken by lb");
}

#[test]
fn of_two_with_one_host_and_path_the_older_has_it_and_the_younger_is_told() {
    let of = |name, created, paths: &[(&str, &str)]| Ingress {
        created,
        ..ingress(name, vec![rule("h.example", paths)])
    };
    let old = of("a/old", 1, &[("/a", "s:80")]);
    let young = of("a/young", 2, &[("/a/", "s:81"), ("=/a", "s:81"), ("=/a", "s:80")]);
    let mut planner = world(vec![young.into(), old.clone().into()]);
    assert_eq!(rules(&planner, "a/old"), ["h.example /a -> ingress/a/old/s/p80"]);
    assert_eq!(rules(&planner, "a/young"), ["h.example =/a -> ingress/a/young/s/p81"]);
    assert_eq!(
        messages(&planner, "a/young"),
        [
            r#"path "/a" of host "h.example" belongs to Ingress a/old, which is older"#,
            r#"path "/a" of host "h.example" is there twice: the first counts"#,
        ]
    );
    apply(&mut planner, Ingress { deleting: true, ..old });
    planner.take();
    assert_eq!(
        rules(&planner, "a/young"),
        ["h.example =/a -> ingress/a/young/s/p81", "h.example /a -> ingress/a/young/s/p81"]
    );
}

#[test]
fn regular_expressions_as_hosts_are_for_load_balancers_that_take_them() {
    let x = ingress("a/x", vec![rule("~^a+$", &[("/", "s:80")]), rule("b", &[("/", "s:80")])]);
    let mut planner = world(vec![x.into()]);
    assert_eq!(rules(&planner, "a/x"), ["b / -> ingress/a/x/s/p80"]);
    assert_eq!(reasons(&planner, ConsumerKind::Ingress, "a/x"), [Reason::NotSupported]);
    apply(&mut planner, LoadBalancer { regex_hosts: true, ..lb("lb") });
    planner.take();
    assert_eq!(rules(&planner, "a/x").len(), 2);
}

fn site_tls(planner: &Planner, name: &str) -> Vec<(Host, Option<SiteTls>)> {
    let sites = parts(planner, name).iter().flat_map(|part| &part.sites);
    sites.map(|site| (site.host.clone(), site.tls.clone())).collect()
}

fn host(text: &str) -> Host {
    text.parse().unwrap()
}

fn served(hash: Option<&str>, redirect: bool) -> Option<SiteTls> {
    let certificate = hash.map(|hash| CertificateRef { hash: hash.into() });
    Some(SiteTls { certificate, redirect })
}

#[test]
fn a_certificate_is_for_its_hosts_or_those_under_its_wildcard_or_all() {
    let hosts = ["a.example", "b.example", "c.test"];
    let x = Ingress {
        tls: vec![tls(&["*.example"], "wild"), tls(&[], "all"), tls(&["a.example"], "one")],
        ..ingress("a/x", hosts.iter().map(|host| rule(host, &[("/", "s:80")])).collect())
    };
    let secrets = ["wild", "all", "one"].map(|it| secret(&format!("a/{it}"), it).into());
    let mut planner = world(secrets.into_iter().chain([x.into()]).collect());
    assert_eq!(
        site_tls(&planner, "a/x"),
        [
            (host("a.example"), served(Some("one"), true)),
            (host("b.example"), served(Some("wild"), true)),
            (host("c.test"), served(Some("all"), true)),
        ]
    );
    let certificates = planner.certificates("lb");
    let certificates: Vec<_> =
        certificates.iter().map(|(hash, it)| (&**hash, it.secrets())).collect();
    assert_eq!(
        certificates,
        [("all", &[key("a/all")][..]), ("one", &[key("a/one")]), ("wild", &[key("a/wild")])]
    );
    apply(&mut planner, secret("a/one", "renewed"));
    planner.take();
    assert_eq!(site_tls(&planner, "a/x")[0], (host("a.example"), served(Some("renewed"), true)));
}

#[test]
fn without_a_usable_certificate_a_host_keeps_its_tls_and_its_owner_is_told() {
    let bad = Problem::new(Reason::BadCertificate, "no certificate");
    let bad = TlsSecret { key: key("a/bad"), certificate: Err(bad) };
    let x = Ingress {
        redirect: false,
        tls: vec![tls(&["a.example"], "bad"), tls(&["b.example"], "none"), tls(&["c"], "unused")],
        ..ingress(
            "a/x",
            vec![rule("a.example", &[("/", "s:80")]), rule("b.example", &[("/", "s:80")])],
        )
    };
    let planner = world(vec![bad.into(), x.into()]);
    assert_eq!(
        site_tls(&planner, "a/x"),
        [(host("a.example"), served(None, false)), (host("b.example"), served(None, false)),]
    );
    assert_eq!(
        messages(&planner, "a/x"),
        [
            r#"TLS Secret "none" does not exist"#,
            "no certificate",
            r#"TLS with Secret "unused" names no host of a rule"#,
        ]
    );
    assert!(planner.certificates("lb").is_empty());
}

#[test]
fn all_ingresses_of_a_host_get_the_tls_of_the_oldest_that_has_a_certificate() {
    let of = |name, created, at, secret: Option<&str>| Ingress {
        created,
        tls: secret.map(|secret| tls(&["h"], secret)).into_iter().collect(),
        ..ingress(name, vec![rule("h", &[(at, "s:80")])])
    };
    let planner = world(vec![
        of("a/plain", 1, "/1", None).into(),
        of("a/broken", 2, "/2", Some("none")).into(),
        of("a/good", 3, "/3", Some("good")).into(),
        of("a/other", 4, "/4", Some("other")).into(),
        secret("a/good", "good").into(),
        secret("a/other", "other").into(),
    ]);
    for name in ["a/plain", "a/broken", "a/good", "a/other"] {
        assert_eq!(site_tls(&planner, name), [(host("h"), served(Some("good"), true))], "{name}");
    }
    assert_eq!(
        messages(&planner, "a/other"),
        [r#"host "h" uses the TLS settings of Ingress a/good, which comes first"#]
    );
    assert_eq!(planner.certificates("lb").keys().cloned().collect::<Vec<_>>(), ["good".into()]);
}

#[test]
fn tuning_is_the_ingresss_then_the_services() {
    let tuned = |algorithm, snat| Tuning { algorithm, snat, ..Tuning::default() };
    let mut s = Service {
        tuning: tuned(Some(Algorithm::SourceIp), Some(false)),
        ..backend_service("a/s", &[80])
    };
    s.ports[0].h2c = true;
    let x = Ingress {
        tuning: tuned(Some(Algorithm::LeastConnections), None),
        ..ingress("a/x", vec![rule("", &[("/", "s:80")])])
    };
    let planner = world(vec![s.into(), x.into()]);
    let pool = &parts(&planner, "a/x")[0].pools[0];
    assert_eq!(
        (pool.algorithm, pool.snat, pool.speaks),
        (Algorithm::LeastConnections, false, Speaks::H2c)
    );
}

#[test]
fn nodes_are_reached_by_node_ports() {
    let mut s = backend_service("a/s", &[80, 81]);
    s.ports[1].node_port = None;
    let nodes = LoadBalancer { nodes: true, ..lb("lb") };
    let x = ingress("a/x", vec![rule("", &[("/", "s:80"), ("/b", "s:81")])]);
    let planner = world(vec![nodes.into(), s.into(), x.into()]);
    assert_eq!(rules(&planner, "a/x"), ["* /b -> 503", "* / -> ingress/a/x/s/p80"]);
    assert_eq!(
        parts(&planner, "a/x")[0].pools[0].backends,
        Backends::Nodes(NodeBackends { node_port: 30080, local_only: false })
    );
    assert_eq!(reasons(&planner, ConsumerKind::Ingress, "a/x"), [Reason::NoNodePort]);
}

#[test]
fn an_ingress_with_very_many_rules_is_in_parts_that_fit() {
    let rules_of_x: Vec<IngressRule> = (0..2_000)
        .map(|i| rule(&format!("h{i}.example"), &[("/", "s:80"), ("/b", "s:81")]))
        .collect();
    let planner = world(vec![ingress("a/x", rules_of_x).into()]);
    let parts = parts(&planner, "a/x");
    let sizes: Vec<_> = parts.iter().map(|part| crate::shard::json_size(&**part)).collect();
    assert!(parts.len() > 1 && sizes.iter().all(|size| *size < 256 * 1024), "{sizes:?}");
    assert_eq!(rules(&planner, "a/x").len(), 4_000);
    for (number, part) in parts.iter().enumerate() {
        assert_eq!((part.part as usize, part.pools.len()), (number, 2));
    }
}

#[test]
fn ten_thousand_rules_of_one_host_are_in_parts_one_after_the_other() {
    let paths: Vec<_> = (0..10_000).map(|i| format!("/p{i:05}")).collect();
    let all: Vec<_> = paths.iter().map(|path| (&**path, "s:80")).collect();
    let x = ingress("a/x", vec![rule("h.example", &all)]);
    let x = Ingress { tls: vec![tls(&[], "t")], ..x };
    let planner = world(vec![secret("a/t", "hash").into(), x.into()]);
    let expected: Vec<_> =
        paths.iter().map(|path| format!("h.example {path} -> ingress/a/x/s/p80")).collect();
    assert_eq!(rules(&planner, "a/x"), expected);
    let certificate = Some(CertificateRef { hash: "hash".into() });
    let tls = Some(SiteTls { certificate, redirect: true });
    for (number, part) in parts(&planner, "a/x").iter().enumerate() {
        let [site] = &part.sites[..] else { panic!("{} sites in a part", part.sites.len()) };
        assert_eq!((part.part as usize, &site.tls, part.pools.len()), (number, &tls, 1));
    }
}

#[test]
fn what_is_too_large_is_left_out_and_told() {
    let long = format!("/{}", "x".repeat(5_000));
    let x = ingress("a/x", vec![rule("", &[(&long, "s:80"), ("/", "s:80")])]);
    let planner = world(vec![x.into()]);
    assert_eq!(rules(&planner, "a/x"), ["* / -> ingress/a/x/s/p80"]);
    assert_eq!(reasons(&planner, ConsumerKind::Ingress, "a/x"), [Reason::NotSupported]);
}

#[test]
fn not_more_problems_are_told_than_anybody_reads() {
    let paths: Vec<_> = (0..100).map(|i| (format!("/{i}"), format!("none{i}:80"))).collect();
    let paths: Vec<_> = paths.iter().map(|(path, to)| (&**path, &**to)).collect();
    let planner = world(vec![ingress("a/x", vec![rule("", &paths)]).into()]);
    let messages = messages(&planner, "a/x");
    assert_eq!((messages.len(), &*messages[32]), (33, "and 68 more"));
}
