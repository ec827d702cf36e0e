//! Tests what a user without access to Secrets sees.

use super::*;

#[test]
fn without_secrets_certificates_are_neither_compared_nor_complained_about() {
    let (with, blind) = with_tls();
    let with = explained(with, Subject::Ingress, "demo", "hello");
    assert!(with.contains("SecretNotFound"), "{with}");
    assert!(with.contains("(TLS: no usable certificate: handshakes fail;"), "{with}");
    let text = explained(blind.clone(), Subject::Ingress, "demo", "hello");
    assert!(!text.contains("SecretNotFound"), "{text}");
    assert!(text.ends_with(&format!("\nNote: {NO_SECRETS}\n")), "{text}");
    let unknown = "hello.localhost (TLS: certificate not known: you may not read Secrets; clear";
    assert!(text.contains(unknown), "{text}");
    let plan = Difference::of(&facts(blind)).text();
    let unknown = "TLS: certificate not known: you may not read Secrets";
    assert!(joined(&plan).contains(unknown), "{plan}");
}

#[test]
fn without_secrets_the_certificate_is_the_one_that_the_leader_recorded() {
    let (_, mut blind) = with_tls();
    let planned = facts(blind.clone());
    let mut fragments: Vec<_> =
        planned.planner.fragments("local").map(|it| (**it).clone()).collect();
    for tls in fragments.iter_mut().flat_map(|it| &mut it.sites).filter_map(|it| it.tls.as_mut()) {
        tls.certificate = Some(CertificateRef { hash: "0123456789abcdef".into() });
    }
    let hash = PlanHash::default();
    let spec = PlanSpec { load_balancer: "local".into(), hash, fragments, unread: Vec::new() };
    blind.plans = vec![Plan::new("local-0", spec)];
    let text = explained(blind, Subject::Ingress, "demo", "hello");
    let told = "hello.localhost (TLS: certificate 0123456789ab; clear text is redirected)";
    assert!(text.contains(told), "{text}");
}
