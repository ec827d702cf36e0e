//! Names that lead nowhere, and what others have already.

use crate::patient::{is_well, suffers};
use crate::stage::{annotate, http, leads_to, play, serves, tcp};
use bowline_core::outcome::Reason;
use bowline_testing::objects;
use serde_json::json;

#[test]
fn a_service_that_names_no_load_balancer_that_exists_is_told_and_served_once_it_does() {
    play(async |stage| {
        let a = tcp("a").await;
        let mut service = objects::service("web", "nosuch", &[(5000, 8080)]);
        annotate(&mut service, "bowline.dev/load-balancer", "nosuch");
        stage.apply(service).await;
        stage.served_by("web", &[&a]).await;
        let told = suffers(stage, "service/web", Reason::LoadBalancerNotFound).await;
        assert!(told.contains("\"nosuch\""), "{told}");
        stage.told("Service", "web", "LoadBalancerNotFound").await;
        let right = json!({"metadata": {"annotations": {"bowline.dev/load-balancer": stage.lb}}});
        stage.patch("Service", "web", right).await;
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
        stage.service("second", 5000, &[&b]).await;
        suffers(stage, "service/second", Reason::PortTaken).await;
        stage.told("Service", "second", "PortTaken").await;
        is_well(stage, "service/first").await;
        stage.service("second", 5001, &[&b]).await;
        leads_to(&stage.dial(5001), "b").await;
        is_well(stage, "service/second").await;
    });
}

#[test]
fn an_ingress_with_a_backend_that_does_not_exist_is_told_and_served_once_it_does() {
    play(async |stage| {
        let web = http("web").await;
        stage.ingress("web", &[("web.example", "/", "Prefix", "web")]).await;
        suffers(stage, "ingress/web", Reason::BackendNotFound).await;
        stage.told("Ingress", "web", "BackendNotFound").await;
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
        stage.apply(ingress).await;
        suffers(stage, "ingress/web", Reason::BadCertificate).await;
        stage.told("Ingress", "web", "BadCertificate").await;
        stage.delete("Secret", "web").await;
        suffers(stage, "ingress/web", Reason::SecretNotFound).await;
        let made = bowline_testing::Authority::new().issue(&["web.example"]);
        stage.apply(objects::tls_secret("web", &made)).await;
        is_well(stage, "ingress/web").await;
    });
}
