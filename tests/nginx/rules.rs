//! Each kind of rule, algorithm and persistence, as clients of nginx meet it.

use crate::edge::{answered_by, master, play};
use crate::stage::{
    TARGET, annotate, answers, http, is_closed, lead_to, leads_to, names, serves, tcp,
};
use bowline_testing::objects::{self, Endpoint};
use bowline_testing::{Authority, Backend, Request, eventually, net};
use serde_json::json;
use std::collections::BTreeMap;

#[test]
fn requests_go_by_host_and_path_as_an_ingress_says() {
    play(async |stage| {
        let (a, b, c) = (http("a").await, http("b").await, http("c").await);
        for (name, backend) in [("a", &a), ("b", &b), ("c", &c)] {
            stage.behind(name, &[backend]).await;
        }
        stage
            .ingress(
                "web",
                &[
                    ("web.example", "/", "Prefix", "a"),
                    ("web.example", "/b", "Prefix", "b"),
                    ("web.example", "/b/c", "Exact", "c"),
                    ("*.wild.example", "/w", "Prefix", "b"),
                    ("*.wild.example", "/odd;x'$", "Prefix", "c"),
                ],
            )
            .await;
        let dial = stage.dial(80);
        serves(&dial, "web.example", "/", "a").await;
        for (host, path, name) in [
            ("web.example", "/bc", "a"),
            ("web.example", "/b", "b"),
            ("WEB.example:80", "/b/", "b"),
            ("web.example", "/b/c", "c"),
            ("web.example", "/b/c/", "b"),
            ("web.example", "/b/c?d=1", "c"),
            ("x.wild.example", "/w/x", "b"),
            ("x.wild.example", "/odd;x'$/y", "c"),
        ] {
            serves(&dial, host, path, name).await;
        }
        serves(&stage.dial6(80), "web.example", "/b", "b").await;
        for (host, path, status) in [
            ("x.wild.example", "/other", 404),
            ("x.y.wild.example", "/w", 404),
            ("wild.example", "/w", 404),
            ("other.example", "/", 404),
            ("web.example", "/b/../c", 400),
            ("web.example", "/b/%2e%2E/c", 400),
        ] {
            answers(&dial, host, path, status).await;
        }
        let forged = Request::get("web.example", "/")
            .header("X-Forwarded-For", "192.0.2.9")
            .header("X-Forwarded-Proto", "https")
            .header("X_Real_IP", "192.0.2.9");
        let echo = dial.send(forged).await.and_then(|it| it.echo()).expect("an answer");
        assert_eq!(echo.header("x-forwarded-proto"), "http");
        assert_ne!(echo.header("x-real-ip"), "192.0.2.9");
        let mut socket = dial.websocket("web.example", "/").await.expect("a WebSocket");
        assert_eq!(socket.ask("hello").await.as_deref(), Ok("a:hello"));

        let log = stage.agent.process.log();
        assert!(log.contains("\"host\":\"web.example\""), "{log}");
    });
}

#[test]
fn each_host_shows_its_own_certificate_and_the_newest_one() {
    play(async |stage| {
        let authority = Authority::new();
        let a = http("a").await;
        stage.behind("web", &[&a]).await;
        for (name, host) in [("one", "one.example"), ("two", "*.two.example")] {
            stage.apply(objects::tls_secret(name, &authority.issue(&[host]))).await;
            let mut ingress = objects::ingress(name, &stage.lb, &[(host, "/", "Prefix", "web")]);
            ingress["spec"]["tls"] = json!([{"hosts": [host], "secretName": name}]);
            stage.apply(ingress).await;
        }
        let trusted = authority.trusted(&[]);
        let dial = |name: &str| stage.dial(443).tls(&trusted, name);
        serves(&dial("one.example"), "one.example", "/", "a").await;
        serves(&dial("x.two.example"), "x.two.example", "/", "a").await;
        let h2 = stage.dial(443).tls(&authority.trusted(&["h2"]), "one.example").http2();
        serves(&h2, "one.example", "/", "a").await;
        answers(&dial("one.example"), "x.two.example", "/", 421).await;
        dial("unknown.example").certificate().await.expect_err("no certificate for strangers");
        let answer = stage.dial(80).get("one.example", "/p?q=1").await.expect("an answer");
        assert_eq!((answer.status, answer.header("location")), (308, "https://one.example/p?q=1"));

        let before = dial("one.example").certificate().await.expect("one");
        stage.apply(objects::tls_secret("one", &authority.issue(&["one.example"]))).await;
        eventually("the new certificate", || async {
            let shown = dial("one.example").certificate().await?;
            if shown != before { Ok(()) } else { Err("the old one".to_owned()) }
        })
        .await;
    });
}

#[test]
fn connections_are_passed_through_to_who_may_have_them() {
    play(async |stage| {
        let (a, b) = (tcp("a").await, tcp("b").await);
        stage.service("db", 5432, &[&a, &b]).await;
        lead_to(&stage.dial(5432), &["a", "b"]).await;

        let (inside, outside) = (net::client4(), net::client4());
        let mut service = objects::service("closed", &stage.lb, &[(6000, TARGET)]);
        service["spec"]["loadBalancerSourceRanges"] = json!([format!("{inside}/32")]);
        stage.apply(service).await;
        stage.served_by("closed", &[&a]).await;
        leads_to(&stage.dial(6000).from(inside), "a").await;
        is_closed(&stage.dial(6000).from(outside)).await;

        // nginx has another version of it only: members are told in that one, and so is the Service.
        let told = tcp("told").await;
        let mut service = objects::service("told", &stage.lb, &[(6001, TARGET)]);
        annotate(&mut service, "bowline.dev/proxy-protocol", "v2");
        stage.apply(service).await;
        stage.served_by("told", &[&told]).await;
        let message = stage.told("Service", "told", "NotSupported").await;
        assert!(message.contains("version 1"), "{message}");
        eventually("a member that is told of the client", || async {
            let line = stage.dial(6001).line().await;
            let said = line?.ask("x").await?;
            if said.starts_with("PROXY TCP4 ") { Ok(()) } else { Err(said) }
        })
        .await;

        let pod = net::pod4();
        let _udp = Backend::udp("u", pod, 5353).await;
        stage.apply(objects::udp_service("dns", &stage.lb, 53, 5353)).await;
        stage.apply(objects::slice("dns", ("", 5353, "UDP"), &[Endpoint::ready(pod)])).await;
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
fn algorithms_spread_and_persistence_keeps() {
    play(async |stage| {
        let (a, b, c) = (http("a").await, http("b").await, http("c").await);
        for algorithm in ["round-robin", "least-connections", "source-ip"] {
            let mut service = objects::cluster_service(algorithm, 80, TARGET);
            annotate(&mut service, "bowline.dev/algorithm", algorithm);
            stage.apply(service).await;
            stage.served_by(algorithm, &[&a, &b, &c]).await;
            let host = format!("{algorithm}.example");
            stage.ingress(algorithm, &[(&host, "/", "Prefix", algorithm)]).await;
        }
        let dial = stage.dial(80);
        let count = |names: Vec<String>| {
            let mut counts = BTreeMap::new();
            names.into_iter().for_each(|name| *counts.entry(name).or_insert(0) += 1);
            counts
        };
        for algorithm in ["round-robin", "least-connections"] {
            let host = format!("{algorithm}.example");
            answered_by(&dial, &host, &["a", "b", "c"]).await;
            let counts = count(names(&dial, &host, 60).await);
            assert!(
                counts.len() == 3 && counts.values().all(|it| (15..=25).contains(it)),
                "{counts:?}"
            );
        }
        serves_somebody(stage, "source-ip.example").await;
        let counts = count(names(&dial, "source-ip.example", 30).await);
        assert_eq!(counts.len(), 1, "{counts:?}");

        for by in ["cookie", "source-ip"] {
            let mut service = objects::cluster_service(&format!("by-{by}"), 80, TARGET);
            annotate(&mut service, "bowline.dev/persistence", by);
            stage.apply(service).await;
            stage.served_by(&format!("by-{by}"), &[&a, &b, &c]).await;
            let host = format!("by-{by}.example");
            stage
                .ingress(&format!("by-{by}"), &[(&host, "/", "Prefix", &format!("by-{by}"))])
                .await;
            serves_somebody(stage, &host).await;
        }
        let first = dial.get("by-cookie.example", "/").await.expect("an answer");
        let cookie = first.header("set-cookie").split(';').next().expect("a cookie").to_owned();
        let name = first.echo().expect("an echo").name;
        for _ in 0..10 {
            let again = Request::get("by-cookie.example", "/").header("cookie", &cookie);
            let echo = dial.send(again).await.and_then(|it| it.echo()).expect("an answer");
            assert_eq!(echo.name, name);
        }
        let counts = count(names(&dial, "by-cookie.example", 12).await);
        assert_eq!(counts.len(), 3, "who brings no cookie goes anywhere: {counts:?}");
        let counts = count(names(&dial, "by-source-ip.example", 12).await);
        assert_eq!(counts.len(), 1, "{counts:?}");
    });
}

/// Waits until a host is served by anybody.
async fn serves_somebody(stage: &crate::stage::Stage, host: &str) {
    eventually(&format!("{host} is served"), || async {
        stage.dial(80).get(host, "/").await?.echo().map(drop)
    })
    .await;
}

#[test]
fn a_member_that_ends_keeps_what_it_has_and_gets_nothing_new() {
    play(async |stage| {
        let (a, b) = (tcp("a").await, tcp("b").await);
        stage.service("db", 5432, &[&a, &b]).await;
        lead_to(&stage.dial(5432), &["a", "b"]).await;
        let before = master(&stage.lb);
        let mut line = stage.dial(5432).line().await.expect("a connection");
        let (held, other) = if line.name == "a" { (&a, &b) } else { (&b, &a) };
        let ending = [Endpoint::ready(other.at.ip()), Endpoint::terminating(held.at.ip())];
        stage.endpoints("db", &ending).await;
        lead_to(&stage.dial(5432), &[&other.name]).await;
        assert_eq!(line.ask("still").await.as_deref(), Ok("still"));
        stage.served_by("db", &[other]).await;
        lead_to(&stage.dial(5432), &[&other.name]).await;
        assert_eq!(line.ask("drains").await.as_deref(), Ok("drains"));
        stage.served_by("db", &[&a, &b]).await;
        lead_to(&stage.dial(5432), &["a", "b"]).await;
        assert_eq!(master(&stage.lb), before);
    });
}
