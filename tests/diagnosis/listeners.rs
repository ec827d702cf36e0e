//! Listeners that an agent cannot open.

use crate::patient::{Wrong, all_tell, explain, is_well, load_balancer_is, says};
use crate::stage::{Stage, http, leads_to, play, serves, tcp};
use bowline_core::outcome::Reason;
use std::net::TcpListener;
use std::time::Instant;

/// A client connects, and what it reaches is the process that has the port.
async fn reaches(stage: &Stage, port: u16, process: &TcpListener) {
    let connection = stage.dial(port).tcp().await.expect("a connection");
    process.accept().expect("the connection of the client");
    drop(connection);
}

#[test]
fn a_service_with_a_port_that_another_process_has_is_told_and_served_once_the_port_is_free() {
    play(async |stage| {
        let (a, b) = (tcp("a").await, tcp("b").await);
        stage.service("other", 6000, &[&b]).await;
        leads_to(&stage.dial(6000), "b").await;
        let taken = TcpListener::bind((stage.vip, 5000)).expect("take the port");
        let broken = Instant::now();
        stage.service("web", 5000, &[&a]).await;
        reaches(stage, 5000, &taken).await;
        let shut = Wrong {
            kind: "Service",
            name: "web",
            reason: Reason::BindFailed,
            helps: "stop the process that has the port",
        };
        let told = all_tell(stage, shut, broken).await;
        assert!(told.contains(":5000"), "{told}");
        says(stage, "Service", "web", "bowline.dev/Programmed", Some(("False", "BindFailed")))
            .await;
        // The other tenant is served, and the load balancer is one that runs.
        load_balancer_is(stage, "Running", true).await;
        is_well(stage, "service/other").await;
        let explained = explain(stage, "service/web").await;
        let closed: Vec<_> = explained["listeners"].as_array().unwrap().iter().collect();
        let here = closed.iter().find(|it| it["address"] == stage.vip.to_string()).unwrap();
        assert_eq!(here["closed"], true, "{explained}");
        assert_eq!(explained["applied"]["state"], "NotOpen", "{explained}");
        // What helps: stop the process that has the port.
        drop(taken);
        leads_to(&stage.dial(5000), "a").await;
        is_well(stage, "service/web").await;
        load_balancer_is(stage, "Running", false).await;
    });
}

#[test]
fn an_ingress_is_told_that_the_port_it_shares_is_not_open() {
    play(async |stage| {
        let web = http("web").await;
        let ports = [stage.vip, stage.vip6].map(|vip| [(vip, 80), (vip, 443)]);
        let taken: Vec<_> =
            ports.as_flattened().iter().map(|at| TcpListener::bind(at).expect("take it")).collect();
        stage.behind("web", &[&web]).await;
        let broken = Instant::now();
        stage.ingress("web", &[("web.example", "/", "Prefix", "web")]).await;
        reaches(stage, 80, &taken[0]).await;
        let shut = Wrong {
            kind: "Ingress",
            name: "web",
            reason: Reason::BindFailed,
            helps: "stop the process that has the port",
        };
        all_tell(stage, shut, broken).await;
        let told = stage.told("Ingress", "web", "BindFailed").await;
        assert!(told.contains("cannot be bound"), "{told}");
        // One that comes later is told, too.
        stage.ingress("late", &[("late.example", "/", "Prefix", "web")]).await;
        stage.told("Ingress", "late", "BindFailed").await;
        // Nothing else is on the load balancer.
        load_balancer_is(stage, "Failed", true).await;
        drop(taken);
        serves(&stage.dial(80), "web.example", "/", "web").await;
        is_well(stage, "ingress/web").await;
        load_balancer_is(stage, "Running", false).await;
    });
}
