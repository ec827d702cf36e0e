//! Which entries a template sees, and how they are written.

use super::*;

#[test]
fn a_service_is_an_entry_per_port_with_labels_as_kube2lb_has_them() {
    let mut web = service("shop/web");
    web.ports.push(Port {
        mode: Some("tcp".into()),
        timeout_ms: Some(20_000),
        ..port("mysql", 3306)
    });
    web.address = Some("192.0.2.7".parse().unwrap());
    let pods = vec![endpoint("10.0.0.2", Some("web-b")), endpoint("10.0.0.1", None)];
    let mut exposed = told([
        Object::Service(web),
        Object::Slice(slice("shop/web", pods)),
        Object::Node("n2".into()),
        Object::Node("n1".into()),
    ]);
    assert!(exposed.synced() && exposed.is_dirty());
    let View { cluster, told, .. } = view(&mut exposed, &settings());
    assert!(!exposed.is_dirty());
    assert_eq!(told, []);
    let entries: Vec<_> = cluster.services.iter().map(ToString::to_string).collect();
    assert_eq!(entries, ["web_shop_80_tcp_http", "web_shop_3306_tcp_tcp"]);
    let ports: Vec<_> = cluster.ports.iter().map(ToString::to_string).collect();
    assert_eq!(ports, ["c0000207_80_tcp_http", "c0000207_3306_tcp_tcp"]);
    let endpoints = &cluster.services[0].endpoints;
    let endpoints: Vec<_> = endpoints.iter().map(|e| (e.to_string(), e.name.to_string())).collect();
    let expected = [("10.0.0.1:8080", "10.0.0.1"), ("10.0.0.2:8080", "web-b")];
    assert_eq!(endpoints, expected.map(|(at, name)| (at.to_owned(), name.to_owned())));
    let second = &cluster.services[1];
    assert_eq!(
        (second.node_port, second.timeout_ms, second.endpoints.len()),
        (3306 ^ 30_000, 20_000, 0)
    );
    assert_eq!((cluster.nodes, &*cluster.domain), (vec!["n1".into(), "n2".into()], "local"));
}

#[test]
fn an_address_of_version_6_is_written_with_all_its_bytes() {
    let mut web = service("a/x");
    web.address = Some("2001:db8::1".parse().unwrap());
    let (labels, _) = seen(vec![web], &settings());
    assert_eq!(labels, ["x_a_80_tcp_http 20010db8000000000000000000000001_80_tcp_http "]);
}

#[test]
fn a_mode_that_is_not_http_has_its_port_alone() {
    let other = |name: &str, created| Service {
        created,
        ports: vec![Port { mode: Some("tls-pass".into()), ..port("http", 443) }],
        ..service(name)
    };
    let (labels, told) = seen(vec![other("a/young", 2), other("b/old", 1)], &settings());
    assert_eq!(labels, ["old_b_443_tcp_tls-pass 00000000_443_tcp_tls-pass "]);
    assert_eq!(told, [("young".to_owned(), Reason::PortTaken)]);
}

#[test]
fn a_service_for_some_clients_is_left_out_where_no_template_asks_which() {
    let closed =
        Service { source_ranges: vec!["192.0.2.0/24".parse().unwrap()], ..service("a/closed") };
    let (labels, told) = seen(vec![closed.clone()], &settings());
    assert_eq!((labels, told), (vec![], vec![("closed".to_owned(), Reason::NotSupported)]));
    let knows = Settings { source_ranges: true, ..settings() };
    assert_eq!(seen(vec![closed], &knows).0.len(), 1);
}
