//! Endpoints that are gone, or do not answer.

use crate::patient::{Wrong, all_tell, explain, is_well, load_balancer_is, says};
use crate::printed::{Shell, command};
use crate::stage::{TARGET, answers, http, is_closed, lead_to, leads_to, play, serves, tcp};
use bowline_core::outcome::Reason;
use bowline_core::pool_health::GAP;
use bowline_testing::Backend;
use std::collections::BTreeSet;
use std::time::Instant;

const DEGRADED: &str = "bowline.dev/Degraded";

#[test]
fn a_service_is_told_that_none_of_its_endpoints_answers_and_that_they_do_again() {
    play(async |stage| {
        let a = tcp("a").await;
        let at = a.at;
        stage.service("web", 5000, &[&a]).await;
        leads_to(&stage.dial(5000), "a").await;
        is_well(stage, "service/web").await;
        load_balancer_is(stage, "Running", false).await;
        a.kill().await;
        let broken = Instant::now();
        // The proxy learns of it from connections of clients.
        let dial = stage.dial(5000);
        for _ in 0..10 {
            assert!(dial.line().await.is_err(), "nobody answers");
        }
        let down = Wrong {
            kind: "Service",
            name: "web",
            reason: Reason::EndpointsDown,
            helps: "see that the Pods listen at the target port",
        };
        let told = all_tell(stage, down, broken).await;
        assert!(told.contains(&at.to_string()) && told.contains(&stage.namespace), "{told}");
        says(stage, "Service", "web", DEGRADED, Some(("True", "EndpointsDown"))).await;
        says(stage, "Service", "web", "bowline.dev/Programmed", Some(("True", "Programmed"))).await;
        load_balancer_is(stage, "Running", true).await;
        // What helps: the Pods listen again.
        let _a = Backend::tcp("a", at.ip(), TARGET).await;
        leads_to(&stage.dial(5000), "a").await;
        is_well(stage, "service/web").await;
        says(stage, "Service", "web", DEGRADED, None).await;
        load_balancer_is(stage, "Running", false).await;
    });
}

#[test]
fn a_service_is_told_which_of_its_endpoints_does_not_answer_and_the_load_balancer_is_not_degraded()
{
    play(async |stage| {
        let (a, b) = (tcp("a").await, tcp("b").await);
        let at = b.at;
        stage.service("web", 5000, &[&a, &b]).await;
        lead_to(&stage.dial(5000), &["a", "b"]).await;
        b.kill().await;
        let broken = Instant::now();
        let dial = stage.dial(5000);
        for _ in 0..20 {
            assert_eq!(dial.line().await.expect("an answer").name, "a");
        }
        let failing = Wrong {
            kind: "Service",
            name: "web",
            reason: Reason::EndpointsFailing,
            helps: "see that the Pods listen at the target port",
        };
        let told = all_tell(stage, failing, broken).await;
        assert!(told.starts_with("1 of 2") && told.contains(&at.to_string()), "{told}");
        says(stage, "Service", "web", DEGRADED, Some(("True", "EndpointsFailing"))).await;
        load_balancer_is(stage, "Running", false).await;
        let _b = Backend::tcp("b", at.ip(), TARGET).await;
        lead_to(&stage.dial(5000), &["a", "b"]).await;
        is_well(stage, "service/web").await;
    });
}

#[test]
fn a_service_without_a_ready_endpoint_is_told_so_until_it_has_one() {
    play(async |stage| {
        let a = tcp("a").await;
        stage.service("web", 5000, &[&a]).await;
        leads_to(&stage.dial(5000), "a").await;
        stage.endpoints("web", &[]).await;
        let broken = Instant::now();
        is_closed(&stage.dial(5000)).await;
        let empty = Wrong {
            kind: "Service",
            name: "web",
            reason: Reason::NoEndpoints,
            helps: "see why no Pod is ready",
        };
        all_tell(stage, empty, broken).await;
        says(stage, "Service", "web", DEGRADED, Some(("True", "NoEndpoints"))).await;
        load_balancer_is(stage, "Running", true).await;
        // What helps: see why no Pod is ready.
        let list = command(stage, "service/web", "kubectl get pods,endpointslices").await;
        let listed = Shell::new(stage, &[]).follow(&list, &[]).await;
        assert!(listed.contains("endpointslice.discovery.k8s.io/web"), "{listed}");
        stage.served_by("web", &[&a]).await;
        leads_to(&stage.dial(5000), "a").await;
        is_well(stage, "service/web").await;
        load_balancer_is(stage, "Running", false).await;
    });
}

/// The Pods of a new Service need time to start, so statuses and Events wait some seconds. A person who asks is not
/// kept waiting.
#[test]
fn a_new_service_without_endpoints_is_explained_at_once() {
    play(async |stage| {
        stage.service("web", 5000, &[]).await;
        stage.has_addresses("Service", "web", &[stage.vip]).await;
        is_closed(&stage.dial(5000)).await;
        let explained = explain(stage, "service/web").await;
        assert_eq!(explained["problems"][0]["reason"], "NoEndpoints", "{explained}");
        let a = tcp("a").await;
        stage.served_by("web", &[&a]).await;
        leads_to(&stage.dial(5000), "a").await;
        is_well(stage, "service/web").await;
    });
}

#[test]
fn an_ingress_that_answers_503_is_told_that_its_backend_has_no_ready_endpoint() {
    play(async |stage| {
        let web = http("web").await;
        stage.behind("web", &[&web]).await;
        stage.ingress("web", &[("web.example", "/", "Prefix", "web")]).await;
        let dial = stage.dial(80);
        serves(&dial, "web.example", "/", "web").await;
        is_well(stage, "ingress/web").await;
        stage.endpoints("web", &[]).await;
        let broken = Instant::now();
        answers(&dial, "web.example", "/", 503).await;
        let empty = Wrong {
            kind: "Ingress",
            name: "web",
            reason: Reason::NoEndpoints,
            helps: "see why no Pod is ready",
        };
        let told = all_tell(stage, empty, broken).await;
        assert!(told.contains(&format!("Service {}/web", stage.namespace)), "{told}");
        stage.served_by("web", &[&web]).await;
        serves(&dial, "web.example", "/", "web").await;
        is_well(stage, "ingress/web").await;
    });
}

#[test]
fn a_service_with_endpoints_that_come_and_go_causes_few_writes() {
    play(async |stage| {
        let a = tcp("a").await;
        stage.service("web", 5000, &[&a]).await;
        leads_to(&stage.dial(5000), "a").await;
        is_well(stage, "service/web").await;
        let (begin, mut versions) = (Instant::now(), BTreeSet::new());
        for _ in 0..20 {
            stage.endpoints("web", &[]).await;
            is_closed(&stage.dial(5000)).await;
            stage.served_by("web", &[&a]).await;
            leads_to(&stage.dial(5000), "a").await;
            let service = stage.read("Service", "web").await;
            versions.insert(service["metadata"]["resourceVersion"].to_string());
        }
        is_well(stage, "service/web").await;
        // A round that takes more than two seconds is an outage worth a report: one per GAP at most.
        let reports = begin.elapsed().as_secs() / GAP.as_secs();
        let most = usize::try_from(2 + reports).expect("few");
        assert!(versions.len() <= most, "{versions:?} are more than {most}");
    });
}
