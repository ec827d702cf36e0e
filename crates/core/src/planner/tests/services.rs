//! Tests of Services: which are ours, where they go, which ports they have.

use super::make::*;
use crate::key::{ConsumerKind, ConsumerRef};
use crate::objects::{Exposure, Family, LoadBalancer, Placement, Service, ServiceClass, Tuning};
use crate::outcome::{Problem, Reason};
use crate::plan::{
    Algorithm, Backends, HealthCheck, Limits, Listener, ListenerProtocol, NodeBackends,
    Persistence, PersistenceKey, Pool, Serves, ServicePortRef, Speaks, Timeouts, Transport,
};
use crate::planner::{Config, Event, Planner};
use crate::resources::Amounts;

fn with(config: Config, service: Service) -> Planner {
    planner(config, vec![lb("lb").into(), service.into()])
}

fn defaults(default_class: bool, default_load_balancer: Option<&str>) -> Config {
    Config { default_class, default_load_balancer: default_load_balancer.map(Into::into) }
}

#[test]
fn a_service_has_a_listener_per_address_and_port_and_a_pool_per_port() {
    let planner = with(Config::default(), service("a/x", &[80, 443]));
    assert_eq!(service_state(&planner, "a/x"), "lb 192.0.2.1");
    let fragments: Vec<_> = planner.fragments("lb").collect();
    assert_eq!(fragments.len(), 1);
    let listener = |port: u16| Listener {
        address: ip("192.0.2.1"),
        port,
        protocol: ListenerProtocol::Tcp,
        serves: Serves::Pool(format!("service/a/x/p{port}").into()),
    };
    assert_eq!(fragments[0].listeners, [listener(80), listener(443)]);
    let pools: Vec<_> =
        fragments[0].pools.iter().map(|pool| (&*pool.name, &pool.backends)).collect();
    let pods = Backends::Pods;
    assert_eq!(pools, [("service/a/x/p443", &pods), ("service/a/x/p80", &pods)]);
}

#[test]
fn who_is_ours() {
    let exposed = |exposure, class, placement: Placement| Service {
        exposure,
        class,
        placement: Ok(placement),
        ..service("a/x", &[80])
    };
    let named = || Placement::LoadBalancer("lb".into());
    use Exposure::{ClusterIp, ExternalName, LoadBalancer, NodePort};
    use ServiceClass::{Foreign, IpPerPod, Unset};
    let none = || defaults(false, None);
    for (case, config, service, expected) in [
        (
            "our class",
            none(),
            exposed(LoadBalancer, ServiceClass::LoadBalancer, named()),
            "lb 192.0.2.1",
        ),
        ("no class", none(), exposed(LoadBalancer, Unset, named()), "not ours"),
        (
            "no class, default",
            defaults(true, None),
            exposed(LoadBalancer, Unset, named()),
            "lb 192.0.2.1",
        ),
        (
            "another class",
            defaults(true, None),
            exposed(LoadBalancer, Foreign, named()),
            "not ours",
        ),
        (
            "an address per Pod",
            defaults(true, None),
            exposed(LoadBalancer, IpPerPod, named()),
            "not ours",
        ),
        ("node port, named", none(), exposed(NodePort, Unset, named()), "lb 192.0.2.1"),
        (
            "node port",
            defaults(true, None),
            exposed(NodePort, Unset, Placement::Default),
            "not ours",
        ),
        (
            "node port, default",
            defaults(true, Some("lb")),
            exposed(NodePort, Unset, Placement::Default),
            "lb 192.0.2.1",
        ),
        (
            "node port, only the class",
            defaults(false, Some("lb")),
            exposed(NodePort, Unset, Placement::Default),
            "not ours",
        ),
        ("cluster IP", defaults(true, Some("lb")), exposed(ClusterIp, Unset, named()), "not ours"),
        (
            "external name",
            defaults(true, Some("lb")),
            exposed(ExternalName, Unset, named()),
            "not ours",
        ),
    ] {
        assert_eq!(service_state(&with(config, service), "a/x"), expected, "{case}");
    }
}

#[test]
fn of_two_that_want_a_port_the_older_has_it_and_the_younger_is_told() {
    let old = Service { created: 1, ..service("b/old", &[80]) };
    let young = Service { created: 2, ..service("a/young", &[80, 81]) };
    let mut planner =
        planner(Config::default(), vec![lb("lb").into(), young.into(), old.clone().into()]);
    assert_eq!(service_state(&planner, "b/old"), "lb 192.0.2.1");
    let outcome = planner.outcome(ConsumerKind::Service, &key("a/young")).unwrap();
    let messages: Vec<_> = outcome.problems.iter().map(|problem| &*problem.message).collect();
    assert_eq!(messages, ["port 80/TCP of 192.0.2.1 belongs to Service b/old, which had it first"]);
    apply(&mut planner, Service { deleting: true, ..old });
    planner.take();
    assert_eq!(reasons(&planner, ConsumerKind::Service, "a/young"), []);
}

#[test]
fn nodes_are_reached_by_node_ports() {
    let nodes = LoadBalancer { nodes: true, ..lb("lb") };
    let mut x = Service { local_only: true, ..service("a/x", &[80, 81]) };
    x.ports[1].node_port = None;
    let mut y = service("a/y", &[82]);
    y.ports[0].node_port = None;
    let planner = planner(Config::default(), vec![nodes.into(), x.into(), y.into()]);
    let fragment = planner.fragments("lb").next().unwrap();
    let backends = Backends::Nodes(NodeBackends { node_port: 30080, local_only: true });
    assert_eq!(fragment.pools.iter().map(|pool| &pool.backends).collect::<Vec<_>>(), [&backends]);
    assert_eq!(reasons(&planner, ConsumerKind::Service, "a/x"), [Reason::NoNodePort]);
    assert_eq!(service_state(&planner, "a/y"), "NoNodePort by lb");
}

fn dual() -> LoadBalancer {
    LoadBalancer {
        addresses: vec![ip("2001:db8::1"), ip("192.0.2.2"), ip("192.0.2.1")],
        ..lb("lb")
    }
}

#[test]
fn a_service_is_on_the_addresses_of_its_families_or_on_those_it_asks_for() {
    let x = |families: &[Family], vips: &[&str]| Service {
        families: families.to_vec(),
        vips: Ok(vips.iter().copied().map(ip).collect()),
        ..service("a/x", &[80])
    };
    use Family::{V4, V6};
    let no_v6 = || LoadBalancer { addresses: vec![ip("192.0.2.1")], ..lb("lb") };
    let none = || LoadBalancer { addresses: Vec::new(), ..lb("lb") };
    for (case, lb, service, expected) in [
        ("v4", dual(), x(&[V4], &[]), "lb 192.0.2.1 192.0.2.2"),
        ("v6", dual(), x(&[V6], &[]), "lb 2001:db8::1"),
        ("both", dual(), x(&[V6, V4], &[]), "lb 192.0.2.1 192.0.2.2 2001:db8::1"),
        ("one asked for", dual(), x(&[V4], &["192.0.2.2"]), "lb 192.0.2.2"),
        (
            "one per family",
            dual(),
            x(&[V4, V6], &["2001:db8::1", "192.0.2.1"]),
            "lb 192.0.2.1 2001:db8::1",
        ),
        ("not its own", dual(), x(&[V4], &["192.0.2.1", "192.0.2.9"]), "Recording by lb"),
        ("half dual-stack", no_v6(), x(&[V4, V6], &[]), "lb 192.0.2.1"),
        ("none of the family", no_v6(), x(&[V6], &[]), "NoAddress by lb"),
        ("none yet", none(), x(&[V4], &[]), "NoAddress by lb"),
        ("none yet, asked for", none(), x(&[V4], &["192.0.2.1"]), "Recording by lb"),
    ] {
        let planner = planner(Config::default(), vec![lb.into(), service.into()]);
        assert_eq!(service_state(&planner, "a/x"), expected, "{case}");
    }
}

#[test]
fn addresses_that_an_agent_reports_count_where_none_are_fixed() {
    let bare = LoadBalancer { addresses: Vec::new(), ..lb("bare") };
    let x = |name, lb: &str| Service {
        placement: Ok(Placement::LoadBalancer(lb.into())),
        ..service(name, &[80])
    };
    let mut planner = Planner::new(Config::default());
    planner.handle(Event::Reported("bare".into(), vec![ip("192.0.2.8"), ip("192.0.2.7")]));
    planner.handle(Event::Reported("lb".into(), vec![ip("192.0.2.9")]));
    for object in [bare.into(), lb("lb").into(), x("a/bare", "bare").into(), x("a/x", "lb").into()]
    {
        planner.handle(Event::Apply(Box::new(object)));
    }
    planner.take();
    assert_eq!(service_state(&planner, "a/bare"), "bare 192.0.2.7 192.0.2.8");
    assert_eq!(service_state(&planner, "a/x"), "lb 192.0.2.1");
    planner.handle(Event::Reported("bare".into(), vec![ip("192.0.2.8")]));
    planner.handle(Event::Reported("lb".into(), vec![]));
    let changes = planner.take();
    assert_eq!((changes.fragments.len(), changes.outcomes.len()), (1, 1));
    assert_eq!(service_state(&planner, "a/bare"), "bare 192.0.2.8");
}

#[test]
fn one_port_for_tcp_and_for_udp_is_two_ports() {
    let mut x = service("a/x", &[53]);
    x.ports[0].transport = Transport::Udp;
    let y = Service { created: 1, ..service("a/y", &[53]) };
    let z = Service { created: 2, ..x.clone() };
    let z = Service { key: key("a/z"), ..z };
    let planner = planner(Config::default(), vec![lb("lb").into(), x.into(), y.into(), z.into()]);
    assert_eq!(service_state(&planner, "a/x"), "lb 192.0.2.1");
    assert_eq!(service_state(&planner, "a/y"), "lb 192.0.2.1");
    assert_eq!(service_state(&planner, "a/z"), "PortTaken by lb");
    let protocols: Vec<_> =
        planner.fragments("lb").map(|fragment| fragment.listeners[0].protocol).collect();
    assert_eq!(protocols, [ListenerProtocol::Udp, ListenerProtocol::Tcp]);
}

#[test]
fn source_ranges_that_cannot_be_read_refuse_the_service_rather_than_open_it() {
    let problem = Problem::new(Reason::BadValue, "range");
    let planner =
        with(Config::default(), Service { source_ranges: Err(problem), ..service("a/x", &[80]) });
    assert_eq!(service_state(&planner, "a/x"), "BadValue by lb");
    assert_eq!(planner.fragments("lb").count(), 0);
}

fn tuned() -> Service {
    let persistence = Persistence { by: PersistenceKey::SourceIp, timeout_seconds: 60 };
    let check = HealthCheck { http_path: Some("/up".into()), interval_ms: 1000, fall: 3, rise: 2 };
    let timeouts = Timeouts { backend_ms: Some(500), ..Timeouts::default() };
    let mut service = Service {
        source_ranges: Ok(vec!["10.2.0.0/16".parse().unwrap(), "10.1.0.0/16".parse().unwrap()]),
        tuning: Tuning {
            algorithm: Some(Algorithm::LeastConnections),
            persistence: Some(Some(persistence)),
            snat: Some(false),
            proxy_protocol: Some(true),
            health_check: Some(check),
        },
        timeouts: [("p80".into(), timeouts)].into(),
        ..service("a/x", &[80, 53])
    };
    service.ports[1].transport = Transport::Udp;
    service
}

#[test]
fn a_pool_is_as_its_service_is_tuned() {
    let x = tuned();
    let planner = with(Config::default(), x.clone());
    let pools = &planner.fragments("lb").next().unwrap().pools;
    let service = |port: &str, protocol| ServicePortRef {
        namespace: "a".into(),
        name: "x".into(),
        port: port.into(),
        protocol,
    };
    let tcp = Pool {
        name: "service/a/x/p80".into(),
        service: service("p80", Transport::Tcp),
        backends: Backends::Pods,
        algorithm: Algorithm::LeastConnections,
        persistence: x.tuning.persistence.unwrap(),
        snat: false,
        proxy_protocol: true,
        speaks: Speaks::Http1,
        source_ranges: vec!["10.1.0.0/16".parse().unwrap(), "10.2.0.0/16".parse().unwrap()],
        timeouts: Timeouts { backend_ms: Some(500), ..Timeouts::default() },
        health_check: x.tuning.health_check,
        limits: None,
    };
    let udp = Pool {
        name: "service/a/x/p53".into(),
        service: service("p53", Transport::Udp),
        proxy_protocol: false,
        timeouts: Timeouts::default(),
        health_check: None,
        ..tcp.clone()
    };
    assert_eq!(*pools, [udp, tcp]);
    assert_eq!(reasons(&planner, ConsumerKind::Service, "a/x"), []);
}

#[test]
fn consumers_are_held_to_their_requests_where_the_load_balancer_does_so() {
    let requests = Amounts { bandwidth: Some(8_000), iops: Some(20) };
    let x = Service { requests: Ok(requests), ..service("a/x", &[80, 81]) };
    let uid = x.uid.clone();
    let mut planner = with(Config::default(), x);
    let limits = |planner: &mut Planner| -> Vec<_> {
        planner.take();
        let pools = planner.fragments("lb").flat_map(|it| it.pools.clone());
        pools.map(|pool| pool.limits).collect()
    };
    assert_eq!(limits(&mut planner), [None, None]);
    apply(&mut planner, LoadBalancer { enforce_limits: true, ..lb("lb") });
    let (namespace, name) = ("a".into(), "x".into());
    let held = Limits {
        consumer: ConsumerRef { kind: ConsumerKind::Service, namespace, name, uid },
        requests_per_second: Some(20),
        bits_per_second: Some(8_000),
    };
    assert_eq!(limits(&mut planner), [Some(held.clone()), Some(held)]);
    apply(&mut planner, LoadBalancer { enforce_limits: false, ..lb("lb") });
    assert_eq!(limits(&mut planner), [None, None]);
}

#[test]
fn tuning_that_no_port_of_a_service_can_have_is_told() {
    let mut x = tuned();
    x.ports.remove(0);
    let cookie = Persistence { by: PersistenceKey::Cookie, timeout_seconds: 60 };
    x.tuning.persistence = Some(Some(cookie));
    let by_address = Persistence { by: PersistenceKey::SourceIp, timeout_seconds: 90 };
    for affinity in [None, Some(by_address)] {
        let planner = with(Config::default(), Service { affinity, ..x.clone() });
        assert_eq!(reasons(&planner, ConsumerKind::Service, "a/x"), [Reason::BadTuning; 3]);
        assert_eq!(planner.fragments("lb").next().unwrap().pools[0].persistence, affinity);
    }
}

#[test]
fn a_service_has_so_many_listeners_and_no_more() {
    let ports: Vec<u16> = (1..=2_000).collect();
    let addresses = vec![ip("192.0.2.1"), ip("192.0.2.2")];
    let two = LoadBalancer { addresses, ..lb("lb") };
    let other = Service { created: 1, ..service("a/y", &[501]) };
    let objects = vec![two.into(), service("a/x", &ports).into(), other.into()];
    let planner = planner(Config::default(), objects);
    let parts = planner.parts(ConsumerKind::Service, &key("a/x"));
    let mut had: Vec<u16> = parts.iter().flat_map(|it| &it.listeners).map(|it| it.port).collect();
    had.sort_unstable();
    assert_eq!(had, (1..=500).flat_map(|port| [port, port]).collect::<Vec<_>>());
    let outcome = planner.outcome(ConsumerKind::Service, &key("a/x")).unwrap();
    let message = "load balancer \"lb\" can have at most 1000 listeners for one Service: its last 1500 \
                   ports are left out";
    assert_eq!(outcome.problems, [Problem::new(Reason::NotSupported, message)]);
    assert_eq!(service_state(&planner, "a/y"), "lb 192.0.2.1 192.0.2.2");
}

#[test]
fn only_load_balancer_services_have_an_address_in_their_status() {
    let node_port = Service { exposure: Exposure::NodePort, ..service("a/y", &[81]) };
    let objects = vec![lb("lb").into(), service("a/x", &[80]).into(), node_port.into()];
    let planner = planner(Config::default(), objects);
    let has = |name| planner.has_status_address(ConsumerKind::Service, &key(name));
    assert_eq!([has("a/x"), has("a/y"), has("a/none")], [true, false, false]);
}

#[test]
fn a_service_made_anew_under_its_name_is_another_consumer() {
    let mut planner = with(Config::default(), service("a/x", &[80]));
    apply(&mut planner, Service { uid: "2".into(), ..service("a/x", &[80]) });
    let changes = planner.take();
    let outcomes: Vec<_> =
        changes.outcomes.iter().map(|(who, outcome)| (&*who.uid, outcome.is_some())).collect();
    assert_eq!(outcomes, [("2", true), ("uid-of-a/x", false)]);
    let fragments: Vec<_> =
        changes.fragments.iter().map(|it| (&*it.consumer.uid, it.parts.len())).collect();
    assert_eq!(fragments, [("2", 1), ("uid-of-a/x", 0)]);
}

#[test]
fn a_service_with_more_source_ranges_than_a_plan_takes_is_refused() {
    let ranges = (0..20_000u32).map(|i| ipnet::Ipv4Net::new((i << 8).into(), 24).unwrap().into());
    let x = Service { source_ranges: Ok(ranges.collect()), ..service("a/x", &[80]) };
    let planner = with(Config::default(), x);
    assert_eq!(service_state(&planner, "a/x"), "NotSupported by lb");
    assert_eq!(planner.fragments("lb").count(), 0);
}
