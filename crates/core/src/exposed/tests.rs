use super::held::Held;
use super::view::{Entry, Machine, Settings, View};
use super::*;
use crate::members::{MOST_MEMBERS, MemberRules};
use crate::objects::{Endpoint, SlicePort};
use crate::outcome::Reason;
use proptest::prelude::*;

fn key(text: &str) -> ObjectKey {
    let (namespace, name) = text.split_once('/').unwrap();
    ObjectKey::new(namespace, name)
}

/// A Service with port 80, called `http`, created at 0.
fn service(name: &str) -> Service {
    Service {
        key: key(name),
        uid: format!("uid-of-{name}").into(),
        created: 0,
        address: None,
        family: Family::V4,
        ports: vec![port("http", 80)],
        external: Vec::new(),
        source_ranges: Vec::new(),
        refused: None,
        problems: Vec::new(),
    }
}

fn port(name: &str, number: u16) -> Port {
    Port {
        name: name.into(),
        number,
        transport: Transport::Tcp,
        node_port: Some(number ^ 30_000),
        mode: None,
        timeout_ms: None,
    }
}

fn endpoint(address: &str, target: Option<&str>) -> Endpoint {
    Endpoint {
        address: address.parse().unwrap(),
        ready: true,
        serving: true,
        terminating: false,
        node: None,
        target: target.map(Into::into),
    }
}

/// A slice `NAME-1` of a Service with port 8080 called `http`.
fn slice(service: &str, endpoints: Vec<Endpoint>) -> Slice {
    let key = key(service);
    Slice {
        key: ObjectKey::new(key.namespace, format!("{}-1", key.name)),
        service: Some(key.name),
        ports: vec![SlicePort { name: "http".into(), number: 8080, transport: Transport::Tcp }],
        endpoints,
    }
}

fn settings() -> Settings {
    Settings {
        domain: "local".into(),
        default_mode: "http".into(),
        default_address: "0.0.0.0".parse().unwrap(),
        source_ranges: false,
        machine: Machine::default(),
        members: MemberRules::default(),
    }
}

fn told(objects: impl IntoIterator<Item = Object>) -> Exposed {
    let mut exposed = Exposed::new();
    for kind in [Kind::Service, Kind::Slice, Kind::Node] {
        exposed.handle(Event::Begin(kind));
    }
    objects.into_iter().for_each(|object| exposed.handle(Event::Apply(object)));
    for kind in [Kind::Service, Kind::Slice, Kind::Node] {
        exposed.handle(Event::Done(kind));
    }
    exposed
}

fn generated(entry: &Entry) -> Vec<String> {
    vec![format!("{}.{}.svc.local", entry.name(), entry.namespace())]
}

fn view(exposed: &mut Exposed, settings: &Settings) -> View {
    exposed.view(settings, generated)
}

/// Services, each with one ready Pod, as a template sees them: label, endpoints, external names.
fn seen(services: Vec<Service>, settings: &Settings) -> (Vec<String>, Vec<(String, Reason)>) {
    let slices: Vec<_> = services
        .iter()
        .map(|s| Object::Slice(slice(&s.key.to_string(), vec![endpoint("10.0.0.1", None)])))
        .collect();
    let mut exposed = told(services.into_iter().map(Object::Service).chain(slices));
    let View { cluster, told, .. } = view(&mut exposed, settings);
    let labels = cluster.services.iter().map(|entry| {
        let names: Vec<_> = entry.external.iter().map(ToString::to_string).collect();
        format!("{entry} {} {}", entry.port, names.join(","))
    });
    let told = told.iter().map(|t| (t.consumer.name.to_string(), t.problem.reason));
    (labels.collect(), told.collect())
}

/// The endpoints of a Service that has these, and what its owner is told.
fn members(
    exposed: &mut Exposed,
    settings: &Settings,
    addresses: &[String],
) -> (Vec<String>, Vec<(Reason, String)>) {
    let endpoints = addresses.iter().map(|address| endpoint(address, None)).collect();
    exposed.handle(Event::Apply(Object::Slice(slice("a/web", endpoints))));
    let View { cluster, told, .. } = exposed.view(settings, |_| Vec::new());
    let endpoints = cluster.services.iter().flat_map(|entry| &entry.endpoints);
    let told = told.into_iter().map(|it| (it.problem.reason, it.problem.message.to_string()));
    (endpoints.map(|it| it.ip.to_string()).collect(), told.collect())
}

#[test]
fn endpoints_that_may_be_no_members_are_left_out_and_told() {
    let mut web = service("a/web");
    web.address = Some("192.0.2.7".parse().unwrap());
    // It asks for the address of a Pod, which is none of this machine's.
    let mut greedy = service("b/greedy");
    greedy.address = Some("10.0.0.1".parse().unwrap());
    let mut exposed = told([Object::Service(web), Object::Service(greedy)]);
    let machine = Machine {
        addresses: Some(["192.0.2.7".parse().unwrap()].into()),
        nonlocal_v4: true,
        ..Machine::default()
    };
    let rules = MemberRules {
        denied: vec!["10.9.0.0/16".parse().unwrap()],
        listening: vec!["10.0.0.2:8080".parse().unwrap()],
        ..MemberRules::default()
    };
    let settings = Settings { machine, members: rules, ..settings() };
    let all = ["10.0.0.1", "10.0.0.2", "10.9.0.1", "127.0.0.1", "192.0.2.7"].map(str::to_owned);
    let (endpoints, told) = members(&mut exposed, &settings, &all);
    assert_eq!(endpoints, ["10.0.0.1"]);
    let message = "members of Service a/web get no traffic: 10.0.0.2:8080 (where the agent itself \
                   listens), 10.9.0.1:8080 (in 10.9.0.0/16, which --deny-members lists), \
                   127.0.0.1:8080 (a loopback address) and 1 more";
    assert_eq!(told, [(Reason::MemberRefused, message.to_owned())]);
}

#[test]
fn of_too_many_endpoints_those_stay_that_the_last_view_had() {
    let mut exposed = told([Object::Service(service("a/web"))]);
    let numbers = |range: std::ops::Range<usize>| -> Vec<String> {
        range.map(|n| format!("10.1.{}.{}", n / 250, n % 250)).collect()
    };
    let (first, told) = members(&mut exposed, &settings(), &numbers(500..500 + MOST_MEMBERS));
    assert_eq!((first.len(), told), (MOST_MEMBERS, vec![]));
    let (then, told) = members(&mut exposed, &settings(), &numbers(0..500 + MOST_MEMBERS));
    assert_eq!(then, first);
    let message = "500 members of Service a/web get no traffic: a pool has 2000 at most";
    assert_eq!(told, [(Reason::TooManyMembers, message.to_owned())]);
}

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
fn a_service_without_pods_has_no_entry_and_one_whose_pods_are_not_ready_has() {
    let absent = Endpoint { ready: false, serving: false, ..endpoint("10.0.0.9", None) };
    let mut exposed = told([
        Object::Service(service("a/none")),
        Object::Service(service("a/unready")),
        Object::Slice(slice("a/none", Vec::new())),
        Object::Slice(slice("a/unready", vec![absent])),
    ]);
    let entries = view(&mut exposed, &settings()).cluster.services;
    let entries: Vec<_> = entries.iter().map(|e| (e.to_string(), e.endpoints.len())).collect();
    assert_eq!(entries, [("unready_a_80_tcp_http".to_owned(), 0)]);
}

#[test]
fn pods_that_leave_take_traffic_only_where_nobody_is_ready() {
    let leaving =
        Endpoint { ready: false, serving: true, terminating: true, ..endpoint("10.0.0.9", None) };
    let of = |endpoints| {
        let mut exposed =
            told([Object::Service(service("a/x")), Object::Slice(slice("a/x", endpoints))]);
        let endpoints = view(&mut exposed, &settings()).cluster.services.remove(0).endpoints;
        endpoints.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(of(vec![leaving.clone()]), ["10.0.0.9:8080"]);
    assert_eq!(of(vec![leaving, endpoint("10.0.0.1", None)]), ["10.0.0.1:8080"]);
}

#[test]
fn endpoints_of_an_entry_have_names_of_their_own_and_bad_ones_are_left_out_and_told() {
    let pods = vec![
        endpoint("10.0.0.1", Some("same")),
        endpoint("10.0.0.2", Some("same")),
        endpoint("10.0.0.3", Some("10.0.0.2")),
        endpoint("10.0.0.4", Some("x\n  server evil 203.0.113.1:80")),
    ];
    let mut exposed = told([Object::Service(service("a/x")), Object::Slice(slice("a/x", pods))]);
    let View { cluster, told, .. } = view(&mut exposed, &settings());
    let names: Vec<_> = cluster.services[0].endpoints.iter().map(|e| e.name.to_string()).collect();
    assert_eq!(names, ["same", "10.0.0.2", "10.0.0.3"]);
    let told: Vec<_> = told.iter().map(|t| t.problem.message.to_string()).collect();
    let why = r#"endpoint 10.0.0.4 is left out: "x\n  server evil 203.0.113.1:80" is no name"#;
    assert_eq!(told, [why]);
}

#[test]
fn what_the_machine_cannot_bind_is_left_out_and_told() {
    let machine = Machine {
        ephemeral: Some(32_768..=60_999),
        addresses: Some(["192.0.2.1".parse().unwrap()].into()),
        nonlocal_v6: true,
        ..Machine::default()
    };
    let with = |name: &str, number, address: &str| Service {
        ports: vec![port("http", number)],
        address: Some(address.parse().unwrap()),
        ..service(name)
    };
    let services = vec![
        with("a/fits", 80, "192.0.2.1"),
        with("a/high", 40_000, "192.0.2.1"),
        with("a/elsewhere", 80, "192.0.2.2"),
        with("a/six", 80, "2001:db8::1"),
    ];
    let (labels, told) = seen(services, &Settings { machine, ..settings() });
    let expected = [
        "fits_a_80_tcp_http c0000201_80_tcp_http ",
        "six_a_80_tcp_http 20010db8000000000000000000000001_80_tcp_http ",
    ];
    assert_eq!(labels, expected);
    let expected = [("elsewhere", Reason::AddressNotAvailable), ("high", Reason::EphemeralPort)];
    assert_eq!(told, expected.map(|(name, reason)| (name.to_owned(), reason)));
}

#[test]
fn a_port_on_which_another_program_listens_is_left_out_and_told() {
    let listening = [("127.0.0.1".parse().unwrap(), 9180), ("192.0.2.9".parse().unwrap(), 80)];
    let machine = Machine { listening: listening.into(), ..Machine::default() };
    let mut web = service("a/web");
    web.ports = vec![port("http", 8080), port("admin", 9180)];
    let mut other = service("a/other");
    other.address = Some("192.0.2.1".parse().unwrap());
    let (labels, told) = seen(vec![web, other], &Settings { machine, ..settings() });
    let expected = [
        "other_a_80_tcp_http c0000201_80_tcp_http ",
        "web_a_8080_tcp_http 00000000_8080_tcp_http ",
    ];
    assert_eq!(labels, expected);
    assert_eq!(told, [("web".to_owned(), Reason::BindFailed)]);
}

#[test]
fn addresses_that_overlap_are_one_place_whose_port_the_older_has() {
    let at = |name: &str, created, address: &str| Service {
        created,
        address: Some(address.parse().unwrap()),
        ..service(name)
    };
    for (old, young, both) in [
        ("0.0.0.0", "192.0.2.10", false),
        ("192.0.2.10", "0.0.0.0", false),
        ("::", "192.0.2.10", false),
        ("192.0.2.10", "::", false),
        ("2001:db8::1", "::", false),
        ("2001:db8::1", "0.0.0.0", true),
        ("192.0.2.10", "192.0.2.11", true),
        ("0.0.0.0", "0.0.0.0", true),
    ] {
        let services = vec![at("a/young", 2, young), at("b/old", 1, old)];
        let (labels, told) = seen(services, &settings());
        let names: Vec<_> = labels.iter().filter_map(|label| label.split('_').next()).collect();
        let taken = ("young".to_owned(), Reason::PortTaken);
        let expected =
            if both { (vec!["young", "old"], vec![]) } else { (vec!["old"], vec![taken]) };
        assert_eq!((names, told), expected, "{old} {young}");
    }
}

#[test]
fn an_address_that_every_machine_has_is_nobodys_but_the_administrators() {
    let at = |address: &str| Service { address: Some(address.parse().unwrap()), ..service("a/x") };
    for own in ["127.0.0.1", "169.254.1.1", "::1", "fe80::1", "::ffff:127.0.0.1", "224.0.0.1"] {
        let (labels, told) = seen(vec![at(own)], &settings());
        assert_eq!((labels.len(), told), (0, vec![("x".to_owned(), Reason::BadValue)]), "{own}");
        let default = Settings { default_address: own.parse().unwrap(), ..settings() };
        assert_eq!(seen(vec![at(own)], &default).0.len(), 1, "{own}");
    }
}

#[test]
fn a_wildcard_does_not_cover_older_or_made_names_of_another_namespace() {
    let named = |name: &str, created, external: &[&str]| Service {
        created,
        external: external.iter().map(|name| name.parse().unwrap()).collect(),
        ..service(name)
    };
    let services = vec![
        named("a/young", 2, &["*.Example", "*.local", "*.xample", "*.own.example"]),
        named("a/mate", 3, &["*.own.example", "b.own.example"]),
        named("b/old", 1, &["shop.example"]),
        named("b/late", 4, &["x.own.example", "*.deep.own.example"]),
    ];
    let (labels, told) = seen(services, &settings());
    let expected = [
        "mate_a_80_tcp_http 00000000_80_tcp_http *.own.example,b.own.example",
        "young_a_80_tcp_http 00000000_80_tcp_http *.xample,*.own.example",
        "late_b_80_tcp_http 00000000_80_tcp_http x.own.example,*.deep.own.example",
        "old_b_80_tcp_http 00000000_80_tcp_http shop.example",
    ];
    assert_eq!(labels, expected);
    let taken = ("young".to_owned(), Reason::HostTaken);
    assert_eq!(told, [taken.clone(), taken]);
}

#[test]
fn what_an_owner_has_stays_its_own_while_nobody_serves_it() {
    let tcp = |name: &str, created| Service {
        created,
        ports: vec![Port { mode: Some("tcp".into()), ..port("http", 81) }, port("web", 80)],
        external: vec!["shop.example".parse().unwrap()],
        ..service(name)
    };
    let mut exposed = told([
        Object::Service(tcp("a/young", 2)),
        Object::Service(tcp("b/owner", 1)),
        Object::Slice(slice("a/young", vec![endpoint("10.0.0.1", None)])),
    ]);
    let View { cluster, told, .. } = view(&mut exposed, &settings());
    let labels = cluster.services.iter().map(|entry| format!("{entry} {}", entry.external.len()));
    assert_eq!(labels.collect::<Vec<_>>(), ["young_a_80_tcp_http 0"]);
    let told: Vec<_> = told.iter().map(|t| (&*t.consumer.name, t.problem.reason)).collect();
    assert_eq!(told, [("young", Reason::PortTaken), ("young", Reason::HostTaken)]);
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

#[test]
fn the_older_of_two_has_a_port_that_only_one_can_have() {
    let tcp = |name: &str, created| Service {
        created,
        ports: vec![Port { mode: Some("tcp".into()), ..port("http", 80) }],
        ..service(name)
    };
    let http = |name: &str, created| Service { created, ..service(name) };
    let (labels, told) =
        seen(vec![tcp("a/young", 2), tcp("b/old", 1), http("c/web", 3)], &settings());
    assert_eq!(labels, ["old_b_80_tcp_tcp 00000000_80_tcp_tcp "]);
    let expected = [("young", Reason::PortTaken), ("web", Reason::PortTaken)];
    assert_eq!(told, expected.map(|(name, reason)| (name.to_owned(), reason)));
    let (labels, told) = seen(vec![http("a/x", 1), http("b/y", 2)], &settings());
    assert_eq!((labels.len(), told), (2, vec![]));
}

#[test]
fn a_name_belongs_to_the_namespace_that_had_it_first_and_made_names_to_their_own() {
    let named = |name: &str, created, external: &[&str]| Service {
        created,
        external: external.iter().map(|name| name.parse().unwrap()).collect(),
        ..service(name)
    };
    let services = vec![
        named("a/late", 3, &["shop.example", "Own.example"]),
        named("b/first", 1, &["shop.example", "late.a.svc.local"]),
        named("b/same", 2, &["shop.example"]),
    ];
    let (labels, told) = seen(services, &settings());
    let expected = [
        "late_a_80_tcp_http 00000000_80_tcp_http Own.example",
        "first_b_80_tcp_http 00000000_80_tcp_http shop.example",
        "same_b_80_tcp_http 00000000_80_tcp_http shop.example",
    ];
    assert_eq!(labels, expected);
    let expected = [("late", Reason::HostTaken), ("first", Reason::HostTaken)];
    assert_eq!(told, expected.map(|(name, reason)| (name.to_owned(), reason)));
}

#[test]
fn two_namespaces_with_one_made_name_do_not_share_it() {
    let services = vec![Service { created: 2, ..service("a/x") }, service("b/x")];
    let slices: Vec<_> = services
        .iter()
        .map(|s| Object::Slice(slice(&s.key.to_string(), vec![endpoint("10.0.0.1", None)])))
        .collect();
    let mut exposed = told(services.into_iter().map(Object::Service).chain(slices));
    let view = exposed.view(&settings(), |entry| vec![format!("{}.example", entry.name())]);
    let labels: Vec<_> = view.cluster.services.iter().map(ToString::to_string).collect();
    assert_eq!(labels, ["x_b_80_tcp_http"]);
    assert_eq!(view.told[0].problem.reason, Reason::HostTaken);
}

#[test]
fn what_changes_nothing_makes_nothing_dirty() {
    let pods = vec![endpoint("10.0.0.1", None)];
    let mut exposed =
        told([Object::Service(service("a/x")), Object::Slice(slice("a/x", pods.clone()))]);
    view(&mut exposed, &settings());
    exposed.handle(Event::Apply(Object::Service(service("a/x"))));
    exposed.handle(Event::Apply(Object::Slice(slice("a/x", pods))));
    exposed.handle(Event::Apply(Object::Slice(slice("a/unseen", Vec::new()))));
    exposed.handle(Event::Delete(Kind::Slice, key("a/unseen-1")));
    exposed.handle(Event::Delete(Kind::Service, key("a/none")));
    assert!(!exposed.is_dirty());
    exposed.handle(Event::Apply(Object::Slice(slice("a/x", Vec::new()))));
    assert!(exposed.is_dirty());
}

#[test]
fn a_list_takes_away_what_it_does_not_have() {
    let mut exposed = told([Object::Service(service("a/x")), Object::Node("n".into())]);
    exposed.handle(Event::Apply(Object::Slice(slice("a/x", vec![endpoint("10.0.0.1", None)]))));
    view(&mut exposed, &settings());
    exposed.handle(Event::Begin(Kind::Service));
    exposed.handle(Event::Begin(Kind::Node));
    exposed.handle(Event::Apply(Object::Node("m".into())));
    exposed.handle(Event::Done(Kind::Service));
    exposed.handle(Event::Done(Kind::Node));
    assert!(exposed.is_dirty());
    let cluster = view(&mut exposed, &settings()).cluster;
    assert_eq!((cluster.services, cluster.nodes), (vec![], vec!["m".into()]));
}

proptest! {
    #[test]
    fn the_order_of_telling_does_not_matter(
        ages in prop::collection::vec(0i64..3, 6),
        order in Just((0..12usize).collect::<Vec<_>>()).prop_shuffle(),
        shared in prop::collection::vec(any::<bool>(), 6),
    ) {
        let services = ages.iter().enumerate().map(|(i, created)| {
            let name = format!("n{}/s{i}", i % 2);
            let external = if shared[i] { vec!["a.example".parse().unwrap()] } else { vec![] };
            let mode = (i % 3 == 0).then(|| "tcp".into());
            let ports = vec![Port { mode, ..port("http", 80 + (i % 2) as u16) }];
            Service { created: *created, external, ports, ..service(&name) }
        });
        let objects: Vec<Object> = services
            .flat_map(|s| {
                let slice = slice(&s.key.to_string(), vec![endpoint("10.0.0.1", None)]);
                [Object::Service(s), Object::Slice(slice)]
            })
            .collect();
        let mut straight = told(objects.clone());
        let mut shuffled = told(order.iter().map(|at| objects[*at].clone()));
        prop_assert_eq!(view(&mut straight, &settings()), view(&mut shuffled, &settings()));
    }
}

/// What a template agent does: it looks, keeps who has what, and writes.
fn publish(exposed: &mut Exposed) -> (Vec<String>, Vec<(String, Reason)>) {
    let View { cluster, told, held } = view(exposed, &settings());
    exposed.hold(Held::from_json(&held.to_json()).unwrap());
    let entries = cluster.services.iter().map(|entry| {
        let names: Vec<_> = entry.external.iter().map(ToString::to_string).collect();
        format!("{}/{} {}", entry.namespace(), entry.name(), names.join(","))
    });
    let told = told.iter().map(|t| (t.consumer.namespace.to_string(), t.problem.reason));
    (entries.map(|it| it.trim().to_owned()).collect(), told.collect())
}

fn with_pod(service: &Service) -> [Object; 2] {
    let pod = vec![endpoint("10.0.0.1", None)];
    [Object::Service(service.clone()), Object::Slice(slice(&service.key.to_string(), pod))]
}

fn edit(exposed: &mut Exposed, service: &Service) {
    with_pod(service).into_iter().for_each(|object| exposed.handle(Event::Apply(object)));
}

#[test]
fn an_older_service_that_asks_later_takes_neither_port_nor_name() {
    let tcp = |name: &str, number: u16, created| {
        let port = Port { mode: Some("tcp".into()), ..port("", number) };
        Service { created, ports: vec![port], ..service(name) }
    };
    let named = |name: &str, names: &[&str], created| Service {
        created,
        external: names.iter().map(|name| name.parse().unwrap()).collect(),
        ..service(name)
    };
    let shop = [tcp("shop/db", 5432, 5), named("shop/web", &["shop.example", "*.old.example"], 6)];
    let mut exposed = told(shop.iter().flat_map(with_pod));
    edit(&mut exposed, &tcp("evil/db", 1, 0));
    edit(&mut exposed, &named("evil/web", &[], 0));
    publish(&mut exposed);
    edit(&mut exposed, &tcp("evil/db", 5432, 0));
    edit(&mut exposed, &named("evil/web", &["shop.example", "a.old.example"], 0));
    let expected = ["evil/web a.old.example", "shop/db", "shop/web shop.example,*.old.example"];
    let refused = [Reason::HostTaken, Reason::PortTaken];
    for _ in 0..2 {
        let (entries, told) = publish(&mut exposed);
        assert_eq!(entries, expected);
        let reasons: Vec<_> = told.iter().map(|(_, reason)| *reason).collect();
        assert!(told.iter().all(|(namespace, _)| namespace == "evil"), "{told:?}");
        assert!(refused.iter().all(|it| reasons.contains(it)), "{told:?}");
    }

    // A process that begins anew has what was kept beside the files.
    let mut again = told(
        [tcp("evil/db", 5432, 0), named("evil/web", &["shop.example", "a.old.example"], 0)]
            .iter()
            .chain(&shop)
            .flat_map(with_pod),
    );
    again.hold(exposed.held().clone());
    assert_eq!(publish(&mut again).0, expected);

    // What the holder lets go of goes to the one that waits.
    edit(&mut again, &tcp("shop/db", 5433, 5));
    edit(&mut again, &named("shop/web", &[], 6));
    let (entries, told) = publish(&mut again);
    let expected = ["evil/db", "evil/web shop.example,a.old.example", "shop/db", "shop/web"];
    assert_eq!((entries, told), (expected.map(str::to_owned).to_vec(), Vec::new()));
}

#[test]
fn a_service_that_shares_a_port_does_not_get_it_alone_by_another_mode() {
    let mode = |name: &str, mode: Option<&str>, created| {
        let port = Port { mode: mode.map(Into::into), ..port("", 80) };
        Service { created, ports: vec![port], ..service(name) }
    };
    let mut exposed =
        told([mode("evil/web", None, 0), mode("shop/web", None, 5)].iter().flat_map(with_pod));
    publish(&mut exposed);
    edit(&mut exposed, &mode("evil/web", Some("tcp"), 0));
    let (entries, told) = publish(&mut exposed);
    assert_eq!(entries, ["shop/web"]);
    assert_eq!(told, [("evil".to_owned(), Reason::PortTaken)]);
}

#[test]
fn a_generated_name_belongs_to_its_service_also_where_another_had_it_first() {
    let squatter =
        Service { external: vec!["web.shop.svc.local".parse().unwrap()], ..service("evil/web") };
    let mut exposed = told(with_pod(&squatter));
    assert_eq!(publish(&mut exposed).0, ["evil/web web.shop.svc.local"]);
    edit(&mut exposed, &Service { created: 5, ..service("shop/web") });
    for _ in 0..2 {
        let (entries, told) = publish(&mut exposed);
        assert_eq!(entries, ["evil/web", "shop/web"]);
        assert_eq!(told, [("evil".to_owned(), Reason::HostTaken)]);
    }
}
