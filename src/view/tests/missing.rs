//! Tests what `explain` says of an object that does not exist.

use super::*;
use crate::view::missing::sentence;

fn said(subject: Subject, namespace: &str, name: &str) -> String {
    sentence(&facts(settled()), subject, &ObjectKey::new(namespace, name))
}

#[test]
fn an_object_of_another_namespace_is_said_to_be_there() {
    let there = r#"there is no Service "hello" in namespace "default": there is one with -n demo"#;
    assert_eq!(said(Subject::Service, "default", "hello"), there);
}

#[test]
fn a_slip_in_a_name_is_answered_with_the_name_that_was_meant() {
    let ingress = r#"there is no Ingress "helo" in namespace "demo": did you mean "hello"?"#;
    assert_eq!(said(Subject::Ingress, "demo", "helo"), ingress);
    let lb = r#"there is no load balancer "locl": did you mean "local"?"#;
    assert_eq!(said(Subject::LoadBalancer, "", "locl"), lb);
}

#[test]
fn a_name_that_is_like_no_other_gets_advice_on_where_to_look() {
    let service =
        r#"there is no Service "web" in namespace "demo"; `kubectl get services -A` lists all"#;
    assert_eq!(said(Subject::Service, "demo", "web"), service);
    let claim = said(Subject::Claim, "demo", "web");
    assert!(
        claim.starts_with(r#"there is no claim "web" in namespace "demo"; `kubectl get lbc -A`"#),
        "{claim}"
    );
    assert!(
        claim.contains(r#""metadata":{"name":"web"},"spec":{}}' | kubectl apply -n demo -f -`"#),
        "{claim}"
    );
    let lb = r#"there is no load balancer "elsewhere"; see bowline status"#;
    assert_eq!(said(Subject::LoadBalancer, "", "elsewhere"), lb);
}
