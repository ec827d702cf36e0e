//! Services: who is ours, where it goes, which ports it has.

use super::make::*;
use crate::key::ConsumerKind;
use crate::objects::{Exposure, Placement, Service, ServiceClass};
use crate::plan::{Backends, Listener, ListenerProtocol, NodeBackends, Serves};
use crate::planner::{Config, Planner};

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
    assert_eq!(messages, ["port 80/TCP of 192.0.2.1 is taken by Service b/old, which is older"]);
    apply(&mut planner, Service { deleting: true, ..old });
    planner.take();
    assert_eq!(reasons(&planner, ConsumerKind::Service, "a/young"), []);
}

#[test]
fn nodes_are_reached_by_node_ports() {
    let nodes = crate::objects::LoadBalancer { nodes: true, ..lb("lb") };
    let mut x = Service { local_only: true, ..service("a/x", &[80, 81]) };
    x.ports[1].node_port = None;
    let mut y = service("a/y", &[82]);
    y.ports[0].node_port = None;
    let planner = planner(Config::default(), vec![nodes.into(), x.into(), y.into()]);
    let fragment = planner.fragments("lb").next().unwrap();
    let backends = Backends::Nodes(NodeBackends { node_port: 30080, local_only: true });
    assert_eq!(fragment.pools.iter().map(|pool| &pool.backends).collect::<Vec<_>>(), [&backends]);
    assert_eq!(
        reasons(&planner, ConsumerKind::Service, "a/x"),
        [crate::outcome::Reason::NoNodePort]
    );
    assert_eq!(service_state(&planner, "a/y"), "NoNodePort by lb");
}
