//! Names that lead nowhere, and what others have already.

use crate::patient::{Wrong, all_tell, is_well, words};
use crate::printed::{Shell, command};
use crate::stage::{annotate, answers, http, is_closed, leads_to, play, serves, tcp};
use bowline_core::outcome::Reason;
use bowline_testing::{Authority, objects};
use serde_json::json;
use std::time::Instant;

#[test]
fn a_service_that_names_no_load_balancer_that_exists_is_told_and_served_once_it_does() {
    play(async |stage| {
        let a = tcp("a").await;
        let mut service = objects::service("web", "nosuch", &[(5000, 8080)]);
        // A slip of one letter: what is meant is named, and the test takes it from there.
        let slip = format!("{}x", stage.lb);
        annotate(&mut service, "bowline.dev/load-balancer", &slip);
        let broken = Instant::now();
        stage.apply(service).await;
        stage.served_by("web", &[&a]).await;
        is_closed(&stage.dial(5000)).await;
        let nowhere = Wrong {
            kind: "Service",
            name: "web",
            reason: Reason::LoadBalancerNotFound,
            helps: "name a load balancer that exists",
        };
        let told = all_tell(stage, nowhere, broken).await;
        let meant = told.split("did you mean ").nth(1).expect("a name");
        let meant = meant.trim_matches(['"', '?']);
        assert!(told.contains(&format!("{slip:?}")), "{told}");
        assert_eq!(meant, stage.lb);
        let printed = command(stage, "service/web", "kubectl annotate").await;
        assert!(printed.ends_with(&format!("bowline.dev/load-balancer={meant}")), "{printed}");
        Shell::new(stage, &[]).follow(&printed, &[]).await;
        leads_to(&stage.dial(5000), "a").await;
        is_well(stage, "service/web").await;
    });
}

#[test]
fn a_service_with_the_port_of_another_is_told_and_served_at_another_port() {
    play(async |stage| {
        let (a, b) = (tcp("a").await, tcp("b").await);
        stage.service("first", 5000, &[&a]).await;
        leads_to(&stage.dial(5000), "a").await;
        let broken = Instant::now();
        stage.service("second", 5000, &[&b]).await;
        let taken = Wrong {
            kind: "Service",
            name: "second",
            reason: Reason::PortTaken,
            helps: "use another port",
        };
        let told = all_tell(stage, taken, broken).await;
        assert!(told.contains(&format!("{}/first", stage.namespace)), "{told}");
        leads_to(&stage.dial(5000), "a").await;
        is_well(stage, "service/first").await;
        let printed = words(stage, "service/second").await;
        assert!(
            printed.contains(&format!("no consumer of {} has 5001/TCP", stage.lb)),
            "{printed}"
        );
        let patch = command(stage, "service/second", "kubectl patch service").await;
        Shell::new(stage, &[]).follow(&patch, &[]).await;
        leads_to(&stage.dial(5001), "b").await;
        is_well(stage, "service/second").await;
    });
}

#[test]
fn an_ingress_with_a_backend_that_does_not_exist_is_told_and_served_once_it_does() {
    play(async |stage| {
        let web = http("web").await;
        let broken = Instant::now();
        stage.ingress("web", &[("web.example", "/", "Prefix", "web")]).await;
        answers(&stage.dial(80), "web.example", "/", 503).await;
        let missing = Wrong {
            kind: "Ingress",
            name: "web",
            reason: Reason::BackendNotFound,
            helps: "create the Service",
        };
        all_tell(stage, missing, broken).await;
        // What helps: create the Service. Those that exist are printed on demand.
        let list = command(stage, "ingress/web", "kubectl get services").await;
        assert_eq!(Shell::new(stage, &[]).follow(&list, &[]).await, "");
        stage.behind("web", &[&web]).await;
        serves(&stage.dial(80), "web.example", "/", "web").await;
        is_well(stage, "ingress/web").await;
    });
}

#[test]
fn an_ingress_with_a_broken_certificate_is_told_and_served_over_tls_once_it_is_whole() {
    play(async |stage| {
        let web = http("web").await;
        stage.behind("web", &[&web]).await;
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "web"}, "type": "kubernetes.io/tls",
            "stringData": {"tls.crt": "no certificate", "tls.key": "no key"},
        });
        stage.apply(secret).await;
        let mut ingress =
            objects::ingress("web", &stage.lb, &[("web.example", "/", "Prefix", "web")]);
        ingress["spec"]["tls"] = json!([{"hosts": ["web.example"], "secretName": "web"}]);
        let broken = Instant::now();
        stage.apply(ingress).await;
        let authority = Authority::new();
        let secure = stage.dial(443).tls(&authority.trusted(&[]), "web.example");
        let bad = Wrong {
            kind: "Ingress",
            name: "web",
            reason: Reason::BadCertificate,
            helps: "put a PEM certificate",
        };
        all_tell(stage, bad, broken).await;
        secure.get("web.example", "/").await.expect_err("no handshake");
        let issued = authority.issue(&["web.example"]);
        let files = [("tls.crt", &*issued.certificate), ("tls.key", &*issued.key)];
        let shell = Shell::new(stage, &files);
        let put = command(stage, "ingress/web", "kubectl create secret tls").await;
        shell.follow(&put, &[]).await;
        serves(&secure, "web.example", "/", "web").await;
        is_well(stage, "ingress/web").await;
        stage.delete("Secret", "web").await;
        let broken = Instant::now();
        let missing = Wrong {
            kind: "Ingress",
            name: "web",
            reason: Reason::SecretNotFound,
            helps: "create the Secret",
        };
        all_tell(stage, missing, broken).await;
        secure.get("web.example", "/").await.expect_err("no handshake");
        let create = command(stage, "ingress/web", "kubectl create secret tls").await;
        shell.follow(&create, &[]).await;
        serves(&secure, "web.example", "/", "web").await;
        is_well(stage, "ingress/web").await;
    });
}
