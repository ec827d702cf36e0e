//! Who gets which request: each algorithm's distribution and each persistence, by real traffic.

use crate::edge::workers;
use crate::play::{counts, in_force, play};
use crate::stage::{TARGET, annotate, http, lead_to, serves, tcp};
use bowline_testing::{Backend, Dial, Request, eventually, net, objects};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

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
        for algorithm in ["round-robin", "least-connections"] {
            let host = format!("{algorithm}.example");
            let counts = counts(&dial, &host, 60).await;
            assert!(
                counts.len() == 3 && counts.values().all(|it| (15..=25).contains(it)),
                "{counts:?}"
            );
        }
        let by_hash = counts(&dial, "source-ip.example", 30).await;
        assert_eq!(by_hash.len(), 1, "{by_hash:?}");

        for by in ["cookie", "source-ip"] {
            let mut service = objects::cluster_service(&format!("by-{by}"), 80, TARGET);
            annotate(&mut service, "bowline.dev/persistence", by);
            stage.apply(service).await;
            stage.served_by(&format!("by-{by}"), &[&a, &b, &c]).await;
            let host = format!("by-{by}.example");
            stage
                .ingress(&format!("by-{by}"), &[(&host, "/", "Prefix", &format!("by-{by}"))])
                .await;
            in_force(stage, &format!("by-{by}")).await;
        }
        let without = counts(&dial, "by-cookie.example", 12).await;
        assert_eq!(without.len(), 3, "who brings no cookie goes anywhere: {without:?}");
        let first = dial.get("by-cookie.example", "/").await.expect("an answer");
        let cookie = first.header("set-cookie").split(';').next().expect("a cookie").to_owned();
        let name = first.echo().expect("an echo").name;
        for _ in 0..10 {
            let again = Request::get("by-cookie.example", "/").header("cookie", &cookie);
            let echo = dial.send(again).await.and_then(|it| it.echo()).expect("an answer");
            assert_eq!(echo.name, name);
        }
        let by_source = counts(&dial, "by-source-ip.example", 12).await;
        assert_eq!(by_source.len(), 1, "{by_source:?}");
    });
}

#[test]
fn what_the_status_says_holds_for_every_request_from_then_on() {
    play(async |stage| {
        let a = http("a").await;
        stage.behind("web", &[&a]).await;
        stage.ingress("first", &[("first.example", "/", "Prefix", "web")]).await;
        // Its members are known from here on, so nothing but a plan changes.
        serves(&stage.dial(80), "first.example", "/", "a").await;
        for round in 0..8 {
            let (name, host) = (format!("next-{round}"), format!("next-{round}.example"));
            stage.ingress(&name, &[(&host, "/", "Prefix", "web")]).await;
            in_force(stage, &name).await;
            let mut answers = Vec::new();
            for _ in 0..30 {
                let answer = stage.dial(80).get(&host, "/").await.and_then(|it| it.echo());
                answers.push(answer.map_or_else(|why| why, |echo| echo.name));
            }
            assert_eq!(answers, vec!["a"; 30], "{host}");
        }
    });
}

#[test]
fn a_connection_goes_where_the_fewest_are() {
    play(async |stage| {
        let (a, b) = (tcp("a").await, tcp("b").await);
        let mut service = objects::service("db", &stage.lb, &[(5432, TARGET)]);
        annotate(&mut service, "bowline.dev/algorithm", "least-connections");
        stage.apply(service).await;
        stage.served_by("db", &[&a, &b]).await;
        let dial = stage.dial(5432);
        lead_to(&dial, &["a", "b"]).await;
        let is_idle = async |backend: &Backend| {
            eventually("no connection is left", || async {
                if backend.open() == 0 { Ok(()) } else { Err(backend.open().to_string()) }
            })
            .await;
        };
        is_idle(&a).await;
        is_idle(&b).await;
        let mut lines = Vec::new();
        for _ in 0..10 {
            lines.push(dial.line().await.expect("a connection"));
        }
        assert_eq!((a.open(), b.open()), (5, 5));
        lines.retain(|line| line.name == "b");
        is_idle(&a).await;
        for _ in 0..5 {
            lines.push(dial.line().await.expect("a connection"));
        }
        assert_eq!((a.open(), b.open()), (5, 5));
    });
}

/// Who answers each of these clients.
async fn who_serves(dial: &Dial, clients: &[IpAddr], host: &str) -> BTreeMap<IpAddr, String> {
    let mut served = BTreeMap::new();
    for client in clients {
        let answer = dial.clone().from(*client).get(host, "/").await.and_then(|it| it.echo());
        served.insert(*client, answer.expect("an answer").name);
    }
    served
}

#[test]
fn clients_keep_their_member_over_a_reload_and_when_others_leave() {
    play(async |stage| {
        let (a, b, c) = (http("a").await, http("b").await, http("c").await);
        let clients: Vec<_> = (0..24).map(|_| net::client4()).collect();
        for (name, key) in [("hashed", "algorithm"), ("tied", "persistence")] {
            let mut service = objects::cluster_service(name, 80, TARGET);
            annotate(&mut service, &format!("bowline.dev/{key}"), "source-ip");
            stage.apply(service).await;
            stage.served_by(name, &[&a, &b, &c]).await;
            stage.ingress(name, &[(&format!("{name}.example"), "/", "Prefix", name)]).await;
            in_force(stage, name).await;
        }
        let dial = stage.dial(80);
        for host in ["hashed.example", "tied.example"] {
            counts(&dial, host, 12).await;
        }
        let hashed = who_serves(&dial, &clients, "hashed.example").await;
        let tied = who_serves(&dial, &clients, "tied.example").await;
        for served in [&hashed, &tied] {
            let names: BTreeSet<_> = served.values().collect();
            assert!(names.len() > 1, "all go to one: {served:?}");
        }

        let before = workers(&stage.lb);
        stage.behind("more", &[&a]).await;
        stage.ingress("more", &[("more.example", "/", "Prefix", "more")]).await;
        serves(&dial, "more.example", "/", "a").await;
        assert_ne!(workers(&stage.lb), before, "a pool is a reload");
        assert_eq!(who_serves(&dial, &clients, "hashed.example").await, hashed);
        assert_eq!(who_serves(&dial, &clients, "tied.example").await, tied);

        for name in ["hashed", "tied"] {
            stage.served_by(name, &[&a, &b]).await;
        }
        for (host, before) in [("hashed.example", &hashed), ("tied.example", &tied)] {
            eventually("the member that left gets nothing", || async {
                let now = who_serves(&dial, &clients, host).await;
                if now.values().any(|name| name == "c") {
                    return Err(format!("{now:?}"));
                }
                let stayed = before.iter().filter(|(_, name)| *name != "c");
                let moved: Vec<_> =
                    stayed.filter(|(client, name)| now[*client] != **name).collect();
                assert_eq!(moved, Vec::new(), "{host}");
                Ok(())
            })
            .await;
        }
    });
}
