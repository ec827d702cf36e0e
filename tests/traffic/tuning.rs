//! How traffic is treated when somebody asks: affinity, source ranges, algorithms, PROXY protocol,
//! health checks; and what becomes of values that cannot be read.

use crate::stage::{
    Stage, TARGET, agent_kubeconfig, annotate, is_closed, lead_to, leads_to, names, play, serves,
    start_agent, tcp,
};
use bowline_testing::objects;
use bowline_testing::{Backend, Preamble, Request, eventually, net};
use serde_json::json;
use std::collections::BTreeSet;

#[test]
fn a_client_stays_with_one_endpoint_when_the_service_has_session_affinity() {
    play(async |stage| {
        let pods = [tcp("a").await, tcp("b").await, tcp("c").await];
        let mut service = objects::service("web", &stage.lb, &[(5000, TARGET)]);
        service["spec"]["sessionAffinity"] = json!("ClientIP");
        stage.apply(service).await;
        stage.served_by("web", &pods.each_ref()).await;
        let mut used = BTreeSet::new();
        for _ in 0..12 {
            let dial = stage.dial(5000).from(net::client4());
            let first =
                eventually("a connection", || async { dial.line().await }).await.name.clone();
            for _ in 0..4 {
                assert_eq!(dial.line().await.expect("a connection").name, first);
            }
            used.insert(first);
        }
        assert_eq!(used.len(), 3, "different clients have different endpoints");
    });
}

#[test]
fn session_affinity_ends_when_its_time_is_over() {
    play(async |stage| {
        let pods = [tcp("a").await, tcp("b").await];
        let mut service = objects::service("web", &stage.lb, &[(5000, TARGET)]);
        service["spec"]["sessionAffinity"] = json!("ClientIP");
        service["spec"]["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": 1}});
        stage.apply(service).await;
        stage.served_by("web", &pods.each_ref()).await;
        let dial = stage.dial(5000).from(net::client4());
        let first = eventually("a connection", || async { dial.line().await }).await.name.clone();
        // Asking renews it, so each wait is longer than the one before it need be.
        eventually("another endpoint", || async {
            tokio::time::sleep(std::time::Duration::from_millis(1200)).await;
            let now = dial.line().await?.name.clone();
            if now == first { Err(now) } else { Ok(()) }
        })
        .await;
    });
}

#[test]
fn clients_outside_the_source_ranges_are_turned_away() {
    play(async |stage| {
        let a = tcp("a").await;
        let (friend, stranger) = (net::client4(), net::client4());
        let mut service = objects::service("web", &stage.lb, &[(5000, TARGET)]);
        service["spec"]["loadBalancerSourceRanges"] = json!([format!("{friend}/32")]);
        stage.apply(service).await;
        stage.served_by("web", &[&a]).await;
        leads_to(&stage.dial(5000).from(friend), "a").await;
        let before = a.connections();
        stage.dial(5000).from(stranger).line().await.err().expect("no word from the other side");
        assert_eq!(a.connections(), before);
        let both = json!([format!("{friend}/32"), format!("{stranger}/32")]);
        stage.patch("Service", "web", json!({"spec": {"loadBalancerSourceRanges": both}})).await;
        leads_to(&stage.dial(5000).from(stranger), "a").await;
    });
}

#[test]
fn datagrams_from_outside_the_source_ranges_are_dropped() {
    play(async |stage| {
        let pod = net::pod4();
        let a = Backend::udp("a", pod, 5353).await;
        let (friend, stranger) = (net::client4(), net::client4());
        let mut service = objects::udp_service("dns", &stage.lb, 53, 5353);
        service["spec"]["loadBalancerSourceRanges"] = json!([format!("{friend}/32")]);
        stage.apply(service).await;
        let ready = [objects::Endpoint::ready(pod)];
        stage.apply(objects::slice("dns", ("", 5353, "UDP"), &ready)).await;
        eventually("an answer", || async { stage.dial(53).from(friend).datagram("x").await }).await;
        let before = a.requests();
        stage.dial(53).from(stranger).datagram("x").await.expect_err("no answer");
        assert_eq!(a.requests(), before);
    });
}

#[test]
fn a_source_range_that_cannot_be_read_opens_nothing() {
    play(async |stage| {
        let (a, b) = (tcp("a").await, tcp("b").await);
        let mut service = objects::service("web", &stage.lb, &[(5000, TARGET)]);
        annotate(
            &mut service,
            "service.beta.kubernetes.io/load-balancer-source-ranges",
            "nonsense",
        );
        let path = objects::path("Service", &stage.namespace, "");
        let call = bowline_testing::Call::new("POST", path).json(&service);
        let created = stage.cluster.http(call).await;
        if created.status == 201 {
            stage.served_by("web", &[&a]).await;
            stage.service("other", 5001, &[&b]).await;
            leads_to(&stage.dial(5001), "b").await;
            is_closed(&stage.dial(5000)).await;
        } else {
            assert_eq!(created.status, 422, "{}", created.text());
        }
    });
}

#[test]
fn source_ip_balancing_sends_a_client_to_the_same_endpoint() {
    play(async |stage| {
        let pods = [tcp("a").await, tcp("b").await, tcp("c").await];
        let mut service = objects::service("web", &stage.lb, &[(5000, TARGET)]);
        annotate(&mut service, "bowline.dev/algorithm", "source-ip");
        stage.apply(service).await;
        stage.served_by("web", &pods.each_ref()).await;
        leads_somewhere(&stage.dial(5000)).await;
        for _ in 0..6 {
            let dial = stage.dial(5000).from(net::client4());
            let first = dial.line().await.expect("a connection").name.clone();
            for _ in 0..3 {
                assert_eq!(dial.line().await.expect("a connection").name, first);
            }
        }
    });
}

#[test]
fn least_connections_prefers_the_endpoint_that_has_the_fewest() {
    play(async |stage| {
        let pods = [tcp("a").await, tcp("b").await];
        let mut service = objects::service("web", &stage.lb, &[(5000, TARGET)]);
        annotate(&mut service, "bowline.dev/algorithm", "least-connections");
        stage.apply(service).await;
        stage.served_by("web", &pods.each_ref()).await;
        lead_to(&stage.dial(5000), &["a", "b"]).await;
        // Ended connections are counted off once the proxy has heard of it.
        eventually("no connection is open", || async {
            let open: usize = pods.iter().map(Backend::open).sum();
            if open == 0 { Ok(()) } else { Err(format!("{open} open")) }
        })
        .await;
        let held = stage.dial(5000).line().await.expect("a connection");
        for _ in 0..3 {
            let next = stage.dial(5000).line().await.expect("a connection");
            assert_ne!(next.name, held.name, "the one that is idle");
            drop(next);
            let busy = pods.iter().find(|it| it.name == held.name).expect("it is one of them");
            eventually("it has ended", || async {
                let open: usize = pods.iter().map(Backend::open).sum();
                if open == busy.open() { Ok(()) } else { Err(format!("{open} open")) }
            })
            .await;
        }
    });
}

#[test]
fn endpoints_of_a_service_are_told_the_clients_address_on_request() {
    play(async |stage| {
        let a = Backend::tcp_with("a", net::pod4(), TARGET, Preamble::ProxyV2).await;
        let mut service = objects::service("web", &stage.lb, &[(5000, TARGET)]);
        annotate(&mut service, "bowline.dev/proxy-protocol", "v2");
        stage.apply(service).await;
        stage.served_by("web", &[&a]).await;
        let client = net::client4();
        let dial = stage.dial(5000).from(client);
        let line = eventually("a connection", || async { dial.line().await }).await;
        let (from, to) = line.name.split_once(" -> ").expect("a PROXY header");
        assert!(from.starts_with(&format!("a {client}:")), "{}", line.name);
        assert_eq!(to, format!("{}:5000", stage.vip));
    });
}

#[test]
fn endpoints_of_an_ingress_are_told_the_clients_address_on_request() {
    play(async |stage| {
        let a = Backend::http_with("a", net::pod4(), TARGET, Preamble::ProxyV2).await;
        stage.behind("web", &[&a]).await;
        let mut ingress =
            objects::ingress("web", &stage.lb, &[("web.example", "/", "Prefix", "web")]);
        annotate(&mut ingress, "bowline.dev/proxy-protocol", "v2");
        stage.apply(ingress).await;
        for client in [net::client4(), net::client4()] {
            let dial = stage.dial(80).from(client);
            serves(&dial, "web.example", "/", "a").await;
            let echo =
                dial.get("web.example", "/").await.and_then(|it| it.echo()).expect("an echo");
            let proxy = echo.proxy.expect("a PROXY header");
            assert!(proxy.starts_with(&format!("{client}:")), "{proxy}");
        }
    });
}

#[test]
fn a_cookie_keeps_a_client_with_its_endpoint_and_tells_nothing() {
    play(async |stage| {
        let pods = [crate::stage::http("a").await, crate::stage::http("b").await];
        stage.behind("web", &pods.each_ref()).await;
        let mut ingress =
            objects::ingress("web", &stage.lb, &[("web.example", "/", "Prefix", "web")]);
        annotate(&mut ingress, "bowline.dev/persistence", "cookie");
        stage.apply(ingress).await;
        serves(&stage.dial(80), "web.example", "/", "a").await;
        let answer = stage.dial(80).get("web.example", "/").await.expect("an answer");
        let name = answer.echo().expect("an echo").name;
        let cookie = answer.header("set-cookie").split(';').next().unwrap_or_default().to_owned();
        assert!(cookie.contains('='), "a cookie: {:?}", answer.headers);
        for pod in &pods {
            assert!(!cookie.contains(&pod.at.ip().to_string()), "{cookie}");
        }
        for _ in 0..6 {
            let request = Request::get("web.example", "/").header("cookie", &cookie);
            let echo = stage.dial(80).send(request).await.and_then(|it| it.echo());
            assert_eq!(echo.map(|it| it.name).as_deref(), Ok(name.as_str()));
        }
        let forged = Request::get("web.example", "/").header("cookie", &format!("{cookie}x"));
        assert_eq!(stage.dial(80).send(forged).await.expect("an answer").status, 200);
    });
}

async fn restart_agent(stage: &mut Stage) {
    stage.agent.process.kill();
    let kubeconfig = agent_kubeconfig(&stage.cluster, &stage.lb).await;
    stage.agent = start_agent(&stage.cluster, &kubeconfig, &stage.lb);
    stage.agent.ready().await;
}

#[test]
fn a_client_stays_with_its_endpoint_by_cookie_when_the_agent_is_another() {
    play(async |stage| {
        let names: Vec<_> = (0..5).map(|index| format!("pod-{index}")).collect();
        let mut pods = Vec::new();
        for name in &names {
            pods.push(crate::stage::http(name).await);
        }
        stage.behind("web", &pods.iter().collect::<Vec<_>>()).await;
        let mut ingress =
            objects::ingress("web", &stage.lb, &[("web.example", "/", "Prefix", "web")]);
        annotate(&mut ingress, "bowline.dev/persistence", "cookie");
        stage.apply(ingress).await;
        let dial = stage.dial(80);
        serves(&dial, "web.example", "/", "pod-0").await;
        // An agent that is older than its load balancer's secret may have begun with one of its own.
        let secret = format!("bowline-cookies-{}", stage.lb);
        let path = objects::path("Secret", "bowline-system", &secret);
        eventually("the Secret", || async {
            let (status, found) = stage.cluster.get(&path).await;
            if status == 200 { Ok(()) } else { Err(format!("{status}: {found}")) }
        })
        .await;
        restart_agent(stage).await;
        let mut tied = Vec::new();
        for _ in &names {
            let answer = dial.get("web.example", "/").await.expect("an answer");
            let cookie = answer.header("set-cookie").split(';').next().unwrap_or_default();
            tied.push((cookie.to_owned(), answer.echo().expect("an echo").name));
        }
        restart_agent(stage).await;
        for (cookie, name) in &tied {
            let request = Request::get("web.example", "/").header("cookie", cookie);
            let answer = dial.send(request).await.expect("an answer");
            assert_eq!(&answer.echo().expect("an echo").name, name);
            assert_eq!(answer.header("set-cookie"), "", "it is as good as before");
        }
    });
}

#[test]
fn an_endpoint_that_fails_its_health_check_gets_no_traffic_until_it_passes() {
    play(async |stage| {
        let (a, b) = (crate::stage::http("a").await, crate::stage::http("b").await);
        stage.behind("web", &[&a, &b]).await;
        let mut ingress =
            objects::ingress("web", &stage.lb, &[("web.example", "/", "Prefix", "web")]);
        annotate(&mut ingress, "bowline.dev/health-check", "http:/healthz");
        stage.apply(ingress).await;
        let dial = stage.dial(80);
        served_by(&dial, &["a", "b"]).await;
        // It answers every request as before: only who asks for its health can know.
        b.feels(false);
        served_by(&dial, &["a"]).await;
        b.feels(true);
        served_by(&dial, &["a", "b"]).await;
    });
}

/// Waits until requests are answered by these endpoints and by no others.
async fn served_by(dial: &bowline_testing::Dial, wanted: &[&str]) {
    let wanted: BTreeSet<_> = wanted.iter().map(|&name| name.to_owned()).collect();
    eventually(&format!("requests are answered by {wanted:?}"), || async {
        let found: BTreeSet<_> = names(dial, "web.example", 6).await.into_iter().collect();
        if found == wanted { Ok(()) } else { Err(format!("they are answered by {found:?}")) }
    })
    .await;
}

#[test]
fn tuning_that_cannot_be_read_is_quoted_and_the_default_is_used() {
    play(async |stage| {
        let a = tcp("a").await;
        let mut service = objects::service("web", &stage.lb, &[(5000, TARGET)]);
        annotate(&mut service, "bowline.dev/algorithm", "by-the-moon");
        stage.apply(service).await;
        stage.served_by("web", &[&a]).await;
        leads_to(&stage.dial(5000), "a").await;
        let message = stage.told("Service", "web", "BadTuning").await;
        assert!(message.contains("by-the-moon") && message.contains("round-robin"), "{message}");
    });
}

#[test]
fn requests_of_an_ingress_take_turns() {
    play(async |stage| {
        let pods = [crate::stage::http("a").await, crate::stage::http("b").await];
        stage.behind("web", &pods.each_ref()).await;
        stage.ingress("web", &[("web.example", "/", "Prefix", "web")]).await;
        serves(&stage.dial(80), "web.example", "/", "b").await;
        let found = names(&stage.dial(80), "web.example", 4).await;
        assert_eq!((&found[0], &found[1]), (&found[2], &found[3]));
        assert_eq!(found[..2].iter().collect::<BTreeSet<_>>().len(), 2, "{found:?}");
    });
}

async fn leads_somewhere(dial: &bowline_testing::Dial) {
    eventually("a connection", || async { dial.line().await.map(|_| ()) }).await;
}
