//! What only HAProxy does, and how it refuses what it does not.

use crate::play::play;
use crate::stage::{TARGET, annotate, http, serves};
use bowline_testing::objects;
use bowline_testing::{Backend, Dial, Preamble, eventually, net};
use std::collections::BTreeSet;

/// Waits until no request is answered by anybody but these, and each of them answers.
async fn answered_by(dial: &Dial, host: &str, names: &[&str]) {
    let want: BTreeSet<_> = names.iter().map(|&it| it.to_owned()).collect();
    eventually(&format!("{host} is answered by {names:?}"), || async {
        let mut seen = BTreeSet::new();
        for _ in 0..names.len() * 6 {
            seen.insert(dial.get(host, "/").await?.echo()?.name);
        }
        if seen == want { Ok(()) } else { Err(format!("{seen:?}")) }
    })
    .await;
}

#[test]
fn members_are_told_of_clients_in_version_two_and_udp_is_refused() {
    play(async |stage| {
        let told = Backend::tcp_with("told", net::pod4(), TARGET, Preamble::ProxyV2).await;
        let mut service = objects::service("told", &stage.lb, &[(6001, TARGET)]);
        annotate(&mut service, "bowline.dev/proxy-protocol", "v2");
        stage.apply(service).await;
        stage.served_by("told", &[&told]).await;
        eventually("a connection whose member is told of the client", || async {
            let name = stage.dial(6001).line().await?.name;
            if name.starts_with("told ") { Ok(()) } else { Err(name) }
        })
        .await;

        stage.apply(objects::udp_service("dns", &stage.lb, 53, TARGET)).await;
        let message = stage.told("Service", "dns", "NotSupported").await;
        assert!(message.contains("UDP"), "{message}");
    });
}

#[test]
fn without_snat_members_see_the_client_itself() {
    play(async |stage| {
        let a = http("a").await;
        for (name, port, snat) in [("hidden", 6002, "true"), ("seen", 6003, "false")] {
            let mut service = objects::service(name, &stage.lb, &[(port, TARGET)]);
            annotate(&mut service, "bowline.dev/snat", snat);
            stage.apply(service).await;
            stage.served_by(name, &[&a]).await;
        }
        let client = net::client4();
        for (port, seen) in [(6002, false), (6003, true)] {
            let dial = stage.dial(port).from(client);
            serves(&dial, "web.example", "/", "a").await;
            let echo = dial.get("web.example", "/").await.and_then(|it| it.echo());
            assert_eq!(echo.expect("an answer").client.ip() == client, seen, "port {port}");
        }
    });
}

#[test]
fn a_member_that_fails_its_health_check_gets_nothing_until_it_passes() {
    play(async |stage| {
        let (a, b) = (http("a").await, http("b").await);
        stage.behind("web", &[&a, &b]).await;
        let mut ingress =
            objects::ingress("web", &stage.lb, &[("web.example", "/", "Prefix", "web")]);
        annotate(&mut ingress, "bowline.dev/health-check", "http:/healthz");
        stage.apply(ingress).await;
        let dial = stage.dial(80);
        answered_by(&dial, "web.example", &["a", "b"]).await;
        b.feels(false);
        answered_by(&dial, "web.example", &["a"]).await;
        b.feels(true);
        answered_by(&dial, "web.example", &["a", "b"]).await;
    });
}
