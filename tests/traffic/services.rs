//! Services: which ports lead where, and which endpoints are taken, as Kubernetes documents it.

use crate::stage::{Stage, TARGET, http, is_closed, lead_to, leads_to, play, serves, tcp};
use bowline_testing::objects::{self, Endpoint};
use bowline_testing::{Backend, eventually, net};
use serde_json::json;

#[test]
fn connections_to_a_service_reach_its_endpoints_in_turn() {
    play(async |stage| {
        let (a, b, c) = (tcp("a").await, tcp("b").await, tcp("c").await);
        stage.service("web", 5000, &[&a, &b, &c]).await;
        let dial = stage.dial(5000);
        lead_to(&dial, &["a", "b", "c"]).await;
        let mut found = Vec::new();
        for _ in 0..6 {
            found.push(dial.line().await.expect("a connection").name);
        }
        assert_eq!(found[..3], found[3..], "in turn");
        found.truncate(3);
        found.sort();
        assert_eq!(found, ["a", "b", "c"]);
    });
}

#[test]
fn what_is_sent_over_tcp_comes_back_unchanged() {
    play(async |stage| {
        let a = tcp("a").await;
        stage.service("echo", 5000, &[&a]).await;
        leads_to(&stage.dial(5000), "a").await;
        let mut line = stage.dial(5000).line().await.expect("a connection");
        let long = "x".repeat(300_000);
        assert_eq!(line.ask(&long).await.as_deref(), Ok(long.as_str()));
        assert_eq!(line.ask("end").await.as_deref(), Ok("end"));
    });
}

#[test]
fn http_over_a_plain_service_passes_through() {
    play(async |stage| {
        let a = http("a").await;
        stage.service("web", 80, &[&a]).await;
        serves(&stage.dial(80), "any.example", "/", "a").await;
        let echo = stage.dial(80).http2().get("any.example", "/").await;
        assert_eq!(echo.and_then(|it| it.echo()).map(|it| it.version).as_deref(), Ok("HTTP/2.0"));
        let mut socket = stage.dial(80).websocket("any.example", "/ws").await.expect("WebSocket");
        assert_eq!(socket.ask("hello").await.as_deref(), Ok("a:hello"));
    });
}

#[test]
fn each_port_of_a_service_leads_to_its_own_target_port() {
    play(async |stage| {
        let pod = net::pod4();
        let _one = Backend::tcp("one", pod, 7001).await;
        let _two = Backend::tcp("two", pod, 7002).await;
        stage.apply(objects::service("ports", &stage.lb, &[(5001, 7001), (5002, 7002)])).await;
        let mut slice = objects::slice("ports", ("p5001", 7001, "TCP"), &[Endpoint::ready(pod)]);
        let second = json!({"name": "p5002", "port": 7002, "protocol": "TCP"});
        slice["ports"].as_array_mut().expect("ports").push(second);
        stage.apply(slice).await;
        leads_to(&stage.dial(5001), "one").await;
        leads_to(&stage.dial(5002), "two").await;
    });
}

#[test]
fn a_named_target_port_is_looked_up_in_each_pod() {
    play(async |stage| {
        let (a, b) = (net::pod4(), net::pod4());
        let _a = Backend::tcp("a", a, 7001).await;
        let _b = Backend::tcp("b", b, 7002).await;
        let mut service = objects::service("named", &stage.lb, &[(5000, TARGET)]);
        service["spec"]["ports"][0]["targetPort"] = json!("web");
        service["spec"]["selector"] = json!({"app": "named"});
        stage.apply(service).await;
        run_pod(stage, "a", &json!({"app": "named"}), a, ("web", 7001), true).await;
        run_pod(stage, "b", &json!({"app": "named"}), b, ("web", 7002), true).await;
        lead_to(&stage.dial(5000), &["a", "b"]).await;
    });
}

#[test]
fn pods_that_are_not_ready_get_no_traffic_until_they_are() {
    play(async |stage| {
        let (a, b) = (tcp("a").await, tcp("b").await);
        let labels = json!({"app": "web"});
        let mut service = objects::service("web", &stage.lb, &[(5000, TARGET)]);
        service["spec"]["selector"] = labels.clone();
        stage.apply(service).await;
        run_pod(stage, "a", &labels, a.at.ip(), ("web", TARGET), true).await;
        run_pod(stage, "b", &labels, b.at.ip(), ("web", TARGET), false).await;
        lead_to(&stage.dial(5000), &["a"]).await;
        assert_eq!(b.connections(), 0);
        pod_is(stage, "b", b.at.ip(), true).await;
        lead_to(&stage.dial(5000), &["a", "b"]).await;
        pod_is(stage, "a", a.at.ip(), false).await;
        lead_to(&stage.dial(5000), &["b"]).await;
    });
}

#[test]
fn a_service_may_ask_for_pods_that_are_not_ready() {
    play(async |stage| {
        let a = tcp("a").await;
        let labels = json!({"app": "web"});
        let mut service = objects::service("web", &stage.lb, &[(5000, TARGET)]);
        service["spec"]["selector"] = labels.clone();
        service["spec"]["publishNotReadyAddresses"] = json!(true);
        stage.apply(service).await;
        run_pod(stage, "a", &labels, a.at.ip(), ("web", TARGET), false).await;
        leads_to(&stage.dial(5000), "a").await;
    });
}

#[test]
fn an_endpoint_that_ends_keeps_its_connections_and_gets_no_new_ones() {
    play(async |stage| {
        let (a, b) = (tcp("a").await, tcp("b").await);
        stage.service("web", 5000, &[&a]).await;
        leads_to(&stage.dial(5000), "a").await;
        let mut old = stage.dial(5000).line().await.expect("a connection");
        let [at_a, at_b] = [a.at.ip(), b.at.ip()];
        stage.endpoints("web", &[Endpoint::terminating(at_a), Endpoint::ready(at_b)]).await;
        lead_to(&stage.dial(5000), &["b"]).await;
        assert_eq!(old.ask("still here").await.as_deref(), Ok("still here"));
        stage.endpoints("web", &[Endpoint::ready(at_b)]).await;
        lead_to(&stage.dial(5000), &["b"]).await;
        assert_eq!(old.ask("and after it is gone").await.as_deref(), Ok("and after it is gone"));
    });
}

#[test]
fn endpoints_that_end_are_used_when_there_are_no_others() {
    play(async |stage| {
        let (a, b) = (tcp("a").await, tcp("b").await);
        stage.apply(objects::service("web", &stage.lb, &[(5000, TARGET)])).await;
        stage
            .endpoints("web", &[Endpoint::terminating(a.at.ip()), Endpoint::not_ready(b.at.ip())])
            .await;
        lead_to(&stage.dial(5000), &["a"]).await;
    });
}

#[test]
fn a_service_without_endpoints_accepts_nothing_that_it_could_not_pass_on() {
    play(async |stage| {
        let a = tcp("a").await;
        stage.service("web", 5000, &[&a]).await;
        leads_to(&stage.dial(5000), "a").await;
        stage.endpoints("web", &[]).await;
        is_closed(&stage.dial(5000)).await;
        stage.served_by("web", &[&a]).await;
        leads_to(&stage.dial(5000), "a").await;
    });
}

#[test]
fn datagrams_reach_the_endpoints_and_answers_find_the_way_back() {
    play(async |stage| {
        let (a, b) = (net::pod4(), net::pod4());
        let (_a, _b) = (Backend::udp("a", a, 5353).await, Backend::udp("b", b, 5353).await);
        stage.apply(objects::udp_service("dns", &stage.lb, 53, 5353)).await;
        let ready = [Endpoint::ready(a), Endpoint::ready(b)];
        stage.apply(objects::slice("dns", ("", 5353, "UDP"), &ready)).await;
        for name in ["a", "b"] {
            eventually(&format!("an answer of {name}"), || async {
                let answer = stage.dial(53).datagram("hello").await?;
                if answer == format!("{name}:hello") { Ok(()) } else { Err(answer) }
            })
            .await;
        }
        let socket = stage.dial(53).udp().await.expect("a socket");
        let mut first = None;
        for number in 0..5 {
            let answer =
                bowline_testing::ask(&socket, &number.to_string()).await.expect("an answer");
            let (name, text) = answer.split_once(':').expect("name and text");
            assert_eq!(text, number.to_string());
            assert_eq!(*first.get_or_insert(name.to_owned()), name, "one client, one member");
        }
    });
}

#[test]
fn tcp_and_udp_may_share_a_port_number() {
    play(async |stage| {
        let pod = net::pod4();
        let _tcp = Backend::tcp("t", pod, 5353).await;
        let _udp = Backend::udp("u", pod, 5353).await;
        stage.apply(objects::service("over-tcp", &stage.lb, &[(53, 5353)])).await;
        stage.apply(objects::slice("over-tcp", ("", 5353, "TCP"), &[Endpoint::ready(pod)])).await;
        stage.apply(objects::udp_service("over-udp", &stage.lb, 53, 5353)).await;
        stage.apply(objects::slice("over-udp", ("", 5353, "UDP"), &[Endpoint::ready(pod)])).await;
        leads_to(&stage.dial(53), "t").await;
        eventually("an answer over UDP", || async {
            match stage.dial(53).datagram("x").await?.as_str() {
                "u:x" => Ok(()),
                other => Err(other.to_owned()),
            }
        })
        .await;
    });
}

#[test]
fn a_node_port_service_is_served_when_it_names_a_load_balancer_and_gets_no_address() {
    play(async |stage| {
        let a = tcp("a").await;
        let mut service = objects::service("web", &stage.lb, &[(5000, TARGET)]);
        service["spec"]["type"] = json!("NodePort");
        service["spec"].as_object_mut().expect("a spec").remove("loadBalancerClass");
        stage.apply(service).await;
        stage.served_by("web", &[&a]).await;
        leads_to(&stage.dial(5000), "a").await;
        assert_eq!(stage.read("Service", "web").await["status"]["loadBalancer"], json!({}));
    });
}

#[test]
fn a_service_needs_no_node_ports() {
    play(async |stage| {
        let a = tcp("a").await;
        let mut service = objects::service("web", &stage.lb, &[(5000, TARGET)]);
        service["spec"]["allocateLoadBalancerNodePorts"] = json!(false);
        stage.apply(service).await;
        stage.served_by("web", &[&a]).await;
        leads_to(&stage.dial(5000), "a").await;
        assert_eq!(stage.read("Service", "web").await["spec"]["ports"][0]["nodePort"], json!(null));
    });
}

#[test]
fn a_port_that_changes_moves_and_a_service_that_goes_frees_it() {
    play(async |stage| {
        let (a, b) = (tcp("a").await, tcp("b").await);
        stage.service("web", 5000, &[&a]).await;
        leads_to(&stage.dial(5000), "a").await;
        let ports = json!([{"port": 5001, "targetPort": TARGET, "protocol": "TCP"}]);
        stage.patch("Service", "web", json!({"spec": {"ports": ports}})).await;
        leads_to(&stage.dial(5001), "a").await;
        is_closed(&stage.dial(5000)).await;
        stage.delete("Service", "web").await;
        is_closed(&stage.dial(5001)).await;
        stage.service("other", 5001, &[&b]).await;
        leads_to(&stage.dial(5001), "b").await;
    });
}

#[test]
fn the_older_of_two_services_has_the_port_and_the_younger_is_told() {
    play(async |stage| {
        let (a, b) = (tcp("a").await, tcp("b").await);
        stage.service("a-first", 5000, &[&a]).await;
        leads_to(&stage.dial(5000), "a").await;
        stage.service("b-second", 5000, &[&b]).await;
        let message = stage.told("Service", "b-second", "PortTaken").await;
        assert!(message.contains("a-first"), "{message}");
        lead_to(&stage.dial(5000), &["a"]).await;
        assert_eq!(stage.read("Service", "b-second").await["status"]["loadBalancer"], json!({}));
        stage.delete("Service", "a-first").await;
        leads_to(&stage.dial(5000), "b").await;
    });
}

#[test]
fn services_of_other_classes_and_types_are_left_alone() {
    play(async |stage| {
        let (a, b) = (tcp("a").await, tcp("b").await);
        let mut foreign = objects::service("foreign", &stage.lb, &[(5000, TARGET)]);
        foreign["spec"]["loadBalancerClass"] = json!("example.com/other");
        stage.apply(foreign).await;
        stage.served_by("foreign", &[&a]).await;
        let mut inside = objects::cluster_service("inside", 5001, TARGET);
        inside["metadata"]["annotations"] = json!({"bowline.dev/load-balancer": stage.lb});
        stage.apply(inside).await;
        stage.served_by("inside", &[&a]).await;
        // Once this one is served, the others have been seen.
        stage.service("ours", 5002, &[&b]).await;
        leads_to(&stage.dial(5002), "b").await;
        is_closed(&stage.dial(5000)).await;
        is_closed(&stage.dial(5001)).await;
        assert_eq!(stage.read("Service", "foreign").await["status"]["loadBalancer"], json!({}));
    });
}

#[test]
fn external_traffic_policy_local_is_served_by_pods_wherever_they_are() {
    play(async |stage| {
        let a = tcp("a").await;
        let mut service = objects::service("web", &stage.lb, &[(5000, TARGET)]);
        service["spec"]["externalTrafficPolicy"] = json!("Local");
        stage.apply(service).await;
        stage.served_by("web", &[&a]).await;
        leads_to(&stage.dial(5000), "a").await;
    });
}

#[test]
fn what_goes_well_makes_no_events() {
    play(async |stage| {
        let (a, b) = (tcp("a").await, http("b").await);
        stage.service("web", 5000, &[&a]).await;
        stage.behind("inside", &[&b]).await;
        stage.ingress("web", &[("web.example", "/", "Prefix", "inside")]).await;
        stage.has_addresses("Service", "web", &[stage.vip]).await;
        stage.has_addresses("Ingress", "web", &[stage.vip, stage.vip6]).await;
        stage.endpoints("web", &[]).await;
        is_closed(&stage.dial(5000)).await;
        // Events are written one after another: once this one is there, all before it are.
        stage.service("z-refused", 5000, &[&a]).await;
        stage.told("Service", "z-refused", "PortTaken").await;
        let (_, list) = stage.cluster.get(&objects::path("Event", &stage.namespace, "")).await;
        let ours = |event: &&serde_json::Value| {
            event["source"]["component"] != "endpoint-slice-controller"
        };
        let all = list["items"].as_array().expect("a list").iter().filter(ours);
        let said: Vec<_> = all.map(|it| (&it["involvedObject"]["name"], &it["reason"])).collect();
        assert_eq!(said, [(&json!("z-refused"), &json!("PortTaken"))]);
    });
}

/// Makes a Pod that runs.
async fn run_pod(
    stage: &Stage,
    name: &str,
    labels: &serde_json::Value,
    address: std::net::IpAddr,
    port: (&str, u16),
    ready: bool,
) {
    // Kubernetes leaves out Pods on nodes that it does not know.
    stage.cluster.owns("node", &stage.lb);
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": stage.lb}});
    stage.cluster.apply("", &node).await;
    stage.apply(objects::pod(name, &stage.lb, labels, address, &[port])).await;
    pod_is(stage, name, address, ready).await;
}

async fn pod_is(stage: &Stage, name: &str, address: std::net::IpAddr, ready: bool) {
    let path = objects::path("Pod", &stage.namespace, name) + "/status";
    let call = bowline_testing::Call::new("PATCH", path)
        .body("application/merge-patch+json", objects::pod_status(address, ready).to_string());
    stage.cluster.http(call).await.expect(200);
}

#[test]
fn an_annotation_with_a_slip_is_told_with_the_one_that_was_meant_and_a_name_with_one_too() {
    play(async |stage| {
        let a = tcp("a").await;
        let mut service = objects::service("web", &stage.lb, &[(5000, TARGET)]);
        service["metadata"]["annotations"]["bowline.dev/persistance"] = json!("source-ip");
        stage.apply(service).await;
        stage.served_by("web", &[&a]).await;
        leads_to(&stage.dial(5000), "a").await;
        let told = stage.told("Service", "web", "UnknownAnnotation").await;
        let expected = "annotation \"bowline.dev/persistance\" does not exist and has no effect: did you mean \
                        bowline.dev/persistence?";
        assert_eq!(told, expected);
        eventually("the status says so, too", || async {
            let object = stage.read("Service", "web").await;
            let conditions = object["status"]["conditions"].to_string();
            if conditions.contains("bowline.dev/persistence?") { Ok(()) } else { Err(conditions) }
        })
        .await;
        // The last digit of the name of the load balancer is doubled.
        let slip = format!("{}{}", stage.lb, stage.lb.chars().last().expect("a name"));
        stage.apply(objects::service("lost", &slip, &[(5001, TARGET)])).await;
        let told = stage.told("Service", "lost", "LoadBalancerNotFound").await;
        assert!(told.contains("does not exist: did you mean \"lb-"), "{told}");
    });
}
