//! What only nginx does, and what it does otherwise.

use crate::edge::workers;
use crate::play::{master, play, try_signal};
use crate::stage::{TARGET, annotate, http, serves, tcp};
use bowline_testing::objects::{self, Endpoint};
use bowline_testing::{Backend, eventually, net};

#[test]
fn members_are_told_of_clients_in_version_one_and_udp_is_carried() {
    play(async |stage| {
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
fn a_worker_that_is_killed_is_its_masters_to_replace() {
    play(async |stage| {
        let a = http("a").await;
        stage.behind("web", &[&a]).await;
        stage.ingress("web", &[("web.example", "/", "Prefix", "web")]).await;
        serves(&stage.dial(80), "web.example", "/", "a").await;
        let before = master(&stage.lb);
        // One may just end because of a reload.
        eventually("a worker is killed", || async {
            let killed = workers(&stage.lb).first().is_some_and(|it| try_signal(*it, "KILL"));
            if killed { Ok(()) } else { Err("none".to_owned()) }
        })
        .await;
        let b = http("b").await;
        stage.served_by("web", &[&b]).await;
        serves(&stage.dial(80), "web.example", "/", "b").await;
        assert_eq!(master(&stage.lb), before);
    });
}
