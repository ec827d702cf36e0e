//! Each kind of rule and listener, as clients of the program meet it.

use crate::edge::steady;
use crate::play::play;
use crate::stage::{TARGET, answers, http, is_closed, lead_to, leads_to, serves, tcp};
use bowline_testing::objects::{self, Endpoint};
use bowline_testing::{Authority, Request, eventually, net};
use serde_json::json;

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

        // One more host on a pool that is known.
        let before = steady(&stage.lb);
        let rules = [("web.example", "/", "Prefix", "a"), ("more.example", "/m", "Prefix", "a")];
        stage.ingress("web", &rules).await;
        serves(&dial, "more.example", "/m", "a").await;
        answers(&dial, "x.wild.example", "/w", 404).await;
        assert_eq!(steady(&stage.lb), before);
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

        let before = (steady(&stage.lb), dial("one.example").certificate().await.expect("one"));
        stage.apply(objects::tls_secret("one", &authority.issue(&["one.example"]))).await;
        eventually("the new certificate", || async {
            let shown = dial("one.example").certificate().await?;
            if shown != before.1 { Ok(()) } else { Err("the old one".to_owned()) }
        })
        .await;
        assert_eq!(steady(&stage.lb), before.0);
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
    });
}

#[test]
fn a_member_that_ends_keeps_what_it_has_and_gets_nothing_new() {
    play(async |stage| {
        let (a, b) = (tcp("a").await, tcp("b").await);
        stage.service("db", 5432, &[&a, &b]).await;
        lead_to(&stage.dial(5432), &["a", "b"]).await;
        let before = steady(&stage.lb);
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
        assert_eq!(steady(&stage.lb), before);
    });
}
