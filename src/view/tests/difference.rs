//! Tests what `plan` shows to people.

use super::*;

#[test]
fn a_plan_that_is_recorded_and_the_same_would_change_nothing() {
    let nothing = Difference::of(&facts(settled()));
    assert!(nothing.is_empty());
    assert_eq!(
        nothing.text(),
        "Nothing would change: what is recorded is what would be planned.\n"
    );
}

#[test]
fn a_plan_shows_what_comes_goes_and_changes() {
    let mut lists = settled();
    lists.ingresses.clear();
    let ports = json!([{"name": "http", "port": 8001, "protocol": "TCP"}]);
    let spec = json!({"type": "LoadBalancer", "ipFamilies": ["IPv4"], "ports": ports});
    lists.services[0] = object(service("hello", spec));
    assert_eq!(
        Difference::of(&facts(lists)).text(),
        "\
local: 0 to add, 1 to change, 2 to remove
  ~ Service demo/hello
      - listener 127.0.0.1:8000/TCP → demo/hello port http
      + listener 127.0.0.1:8001/TCP → demo/hello port http
  - Ingress demo/hello
      - host hello.localhost path / → demo/hello port http
      - host hello.localhost path /gone exactly → status 503
      - pool demo/hello port http: round-robin
  - LoadBalancer local
      - listener 127.0.0.1:8080/HTTP → the rules of its Ingresses
      - listener 127.0.0.1:8443/HTTPS → the rules of its Ingresses
"
    );
}

#[test]
fn a_plan_of_one_namespace_has_only_its_consumers() {
    let mut lists = settled();
    lists.ingresses.clear();
    let of = |namespace| Difference::of(&facts(lists.clone())).in_namespace(namespace);
    let text = of("demo").text();
    assert!(text.starts_with("local: 0 to add, 0 to change, 1 to remove\n"), "{text}");
    assert!(!text.contains("LoadBalancer local"), "{text}");
    assert!(of("other").is_empty());
}
