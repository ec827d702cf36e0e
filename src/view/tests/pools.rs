//! Tests what `explain` and `status` show of a consumer that requests an address of a pool: the whole chain,
//! with the reason and the remedy.

use super::addresses::{address, alone, holder, pool};
use super::*;
use bowline_api::AddressPool;

fn of_pool(name: &str, entry: &str) -> AddressPool {
    pool(name, json!({"addresses": [entry]}), json!({}))
}

/// A holder: a Service beside `hello` that has an address.
fn has(name: &str) -> Value {
    let mut holder = holder(name, None);
    holder["uid"] = json!(name);
    holder
}

/// The Service `hello` with these annotations, served on its load balancer.
fn served(annotations: Value) -> Lists {
    let mut lists = settled();
    lists.services[0].metadata.annotations = object(annotations);
    lists.pools = Some(vec![of_pool("public", "203.0.113.1/32")]);
    lists.addresses = vec![address("203.0.113.1", "public", json!([has("inside")]), json!({}))];
    lists
}

#[test]
fn one_who_waits_for_an_address_is_told_what_was_passed_over_why_and_what_helps() {
    let mut lists = alone(json!({}), json!([]), Vec::new());
    let banks = json!({"addresses": ["192.0.2.0/24"], "allocateTo": {"namespaces": ["bank"]}});
    let by_name = json!({"addresses": ["198.51.100.0/24"], "autoAssign": false});
    lists.pools = Some(vec![
        of_pool("public", "203.0.113.1/32"),
        pool("banks", banks, json!({})),
        pool("own", by_name, json!({})),
    ]);
    lists.addresses = vec![address("203.0.113.1", "public", json!([has("inside")]), json!({}))];
    let text = explained(lists.clone(), Subject::Service, "demo", "hello");
    assert_eq!(
        text,
        "\
Service demo/hello waits for an address

  Why          it names no load balancer, and the controller has no
               --default-load-balancer
  What helps   add addresses to a pool; the request that has waited longest gets
               the first free one
  Asks for     any address
  Passed over  pool banks: not for this namespace
               pool public: no free IPv4 address
               pool own: is used only when it is named (autoAssign is off)
  Has          none of a pool: no Address object names it

  Problems
    - PoolsExhausted: pool \"banks\": not for this namespace; pool \"public\": no
      free IPv4 address
"
    );
    let status = joined(&Status::of(&facts(lists)).text());
    let told = "Service demo/hello: PoolsExhausted: pool \"banks\": not for this namespace; pool \
                \"public\": no free IPv4 address; add addresses to a pool; the request that has waited longest \
                gets the first free one";
    assert!(status.contains(told), "{status}");
}

#[test]
fn where_there_is_no_pool_that_is_the_reason() {
    let mut lists = alone(json!({}), json!([]), Vec::new());
    lists.pools = Some(Vec::new());
    let text = explained(lists.clone(), Subject::Service, "demo", "hello");
    assert!(text.contains("    - NoPool: there is no AddressPool\n"), "{text}");
    assert!(
        text.contains("  What helps   create an AddressPool with `autoAssign: true`"),
        "{text}"
    );
    let status = Status::of(&facts(lists)).text();
    assert!(status.contains("Service demo/hello: NoPool: there is no AddressPool"), "{status}");
}

#[test]
fn one_who_has_its_address_alone_is_refused_nothing() {
    let held = vec![address("203.0.113.1", "public", json!([has("hello")]), json!({}))];
    let mut lists = alone(json!({}), json!([]), held);
    lists.pools = Some(vec![of_pool("public", "203.0.113.0/24")]);
    let status = Status::of(&facts(lists.clone())).text();
    assert!(!status.contains("Service demo/hello"), "{status}");
    let text = explained(lists, Subject::Service, "demo", "hello");
    assert!(
        text.starts_with("Service demo/hello has an address, and no load balancer\n"),
        "{text}"
    );
    assert!(text.contains("  Problems     none\n"), "{text}");
}

#[test]
fn a_wish_that_is_not_met_is_a_problem_of_one_who_is_served() {
    let unmet = [
        (
            json!({"bowline.dev/address-pool": "public"}),
            "PoolsExhausted: pool \"public\": no free IPv4 address",
            "add addresses to a pool",
        ),
        (
            json!({"bowline.dev/address-pool": "nope"}),
            "PoolNotFound: pool \"nope\": there is no such pool",
            "create the AddressPool, or name another one",
        ),
        (
            json!({"bowline.dev/vip": "203.0.113.1"}),
            "AddressTaken: pool \"public\": 203.0.113.1 is held by Service demo/inside",
            "ask for another address",
        ),
        (
            json!({"bowline.dev/vip": "192.0.2.77"}),
            "NotInPool: 192.0.2.77 is in no pool",
            "ask for an address of a pool or of the load balancer",
        ),
    ];
    for (annotations, problem, helps) in unmet {
        let served =
            joined(&explained(served(annotations.clone()), Subject::Service, "demo", "hello"));
        assert!(served.starts_with("Service demo/hello is on load balancer local"), "{served}");
        assert!(served.contains(&format!("Problems - {problem}")), "{served}");
        assert!(served.contains(&format!("What helps {helps}")), "{served}");
        assert!(!served.contains("spec.addresses"), "{served}");
        // A Service that was never served waits, for the same reason.
        let mut lists = self::served(annotations);
        lists.plans.clear();
        let text = joined(&explained(lists.clone(), Subject::Service, "demo", "hello"));
        let waits = "Service demo/hello waits for an address on load balancer local";
        assert!(text.starts_with(waits), "{text}");
        assert!(text.contains(&format!("Problems - {problem}")), "{text}");
        assert!(text.contains(&format!("What helps {helps}")), "{text}");
        let status = joined(&Status::of(&facts(lists)).text());
        assert!(status.contains(&format!("Service demo/hello on local: {problem}")), "{status}");
    }
}

#[test]
fn of_a_name_counts_what_the_leader_says() {
    let mut lists = served(json!({"bowline.dev/assign-from-fqdn": "web.example.com"}));
    let condition = json!({
        "type": "AddressFromDNS", "status": "False", "reason": "NameFailed",
        "message": "web.example.com cannot be looked up: NXDOMAIN",
        "lastTransitionTime": "2030-01-01T00:00:00Z",
    });
    lists.services[0].status = object(json!({"conditions": [condition]}));
    let text = joined(&explained(lists, Subject::Service, "demo", "hello"));
    let problem = "Problems - NameFailed: web.example.com cannot be looked up: NXDOMAIN";
    assert!(text.contains(problem), "{text}");
}

#[test]
fn an_address_that_one_holder_leaves_is_still_had_by_the_other() {
    let mut lists = settled();
    let shared = |name: &str| {
        let mut service = lists.services[0].clone();
        service.metadata.name = Some(name.to_owned());
        service.metadata.uid = Some(name.to_owned());
        let port = if name == "hello" { 8000 } else { 8001 };
        service.spec.as_mut().expect("a spec").ports.as_mut().expect("ports")[0].port = port;
        let annotations =
            json!({"bowline.dev/address-pool": "public", "bowline.dev/allow-shared-ip": "k"});
        service.metadata.annotations = object(annotations);
        service
    };
    let (mut leaves, stays) = (shared("hello"), shared("stays"));
    leaves.metadata.annotations = object(json!({"bowline.dev/vip": "203.0.113.2"}));
    lists.services = vec![leaves, stays];
    lists.pools = Some(vec![of_pool("public", "203.0.113.0/29")]);
    let on_local = |name: &str, port: u16| {
        json!({"kind": "Service", "namespace": "demo", "name": name, "uid": name, "key": "k",
            "loadBalancer": "local", "ports": [{"protocol": "TCP", "port": port}]})
    };
    let mut moved = on_local("hello", 8000);
    moved["key"] = json!(null);
    lists.addresses = vec![
        address(
            "203.0.113.1",
            "public",
            json!([on_local("hello", 8000), on_local("stays", 8001)]),
            json!({"state": "Draining", "until": "2030-01-01T00:01:00Z"}),
        ),
        address("203.0.113.2", "public", json!([moved]), json!({})),
    ];
    let text = explained(lists.clone(), Subject::Service, "demo", "stays");
    assert!(text.starts_with("Service demo/stays is on load balancer local\n"), "{text}");
    assert!(text.contains("Planned at   203.0.113.1:8001/TCP"), "{text}");
    assert!(joined(&text).contains(", on load balancer local, shared with"), "{text}");
    let key = ObjectKey::new("demo", "stays");
    let view = Explanation::of(&facts(lists), Subject::Service, &key).expect("it exists");
    let json: Value = serde_json::from_str(&view.json().expect("JSON")).expect("JSON");
    assert_eq!(json["addresses"], json!(["203.0.113.1"]), "it does not drain for this one");
}

#[test]
fn what_cannot_be_read_is_quoted_once() {
    let lists = alone(json!({"bowline.dev/vip": "nowhere"}), json!([]), Vec::new());
    let lists = Lists { pools: Some(vec![of_pool("public", "203.0.113.0/24")]), ..lists };
    let text = explained(lists, Subject::Service, "demo", "hello");
    let told = text.matches("is not an address").count();
    assert_eq!(told, 1, "{text}");
    assert!(text.contains("What helps   correct the value"), "{text}");
}

#[test]
fn what_an_agent_may_still_serve_is_held_until_the_leader_gives_it_up() {
    let mut lists = served(json!({"bowline.dev/address-pool": "public"}));
    let one_each = json!({"addresses": ["203.0.113.0/24"], "perNamespaceQuota": 1});
    lists.pools = Some(vec![pool("public", one_each, json!({}))]);
    // This Service has changed to IPv6, and should release the only address of its namespace at once.
    let mut turned = lists.services[0].clone();
    turned.metadata.name = Some("turned".into());
    turned.metadata.uid = Some("turned".into());
    turned.spec.as_mut().unwrap().ip_families = Some(vec!["IPv6".into()]);
    lists.services.push(turned);
    let held = |by: Value| vec![address("203.0.113.9", "public", json!([by]), json!({}))];
    let mut by = has("turned");
    by["loadBalancer"] = json!("local");
    lists.addresses = held(by);
    let text = joined(&explained(lists.clone(), Subject::Service, "demo", "hello"));
    assert!(text.contains("Problems - QuotaReached"), "{text}");
    // On no load balancer, nothing delays the release.
    lists.addresses = held(has("turned"));
    let text = joined(&explained(lists, Subject::Service, "demo", "hello"));
    assert!(text.contains("Problems - Recording"), "{text}");
}

#[test]
fn a_load_balancer_without_the_address_of_its_pool_is_told_why() {
    let mut lists = lists();
    let spec = &mut lists.load_balancers[0].spec;
    (spec.addresses, spec.address_pool) = (Vec::new(), Some("nope".to_owned()));
    lists.pools = Some(vec![of_pool("public", "203.0.113.0/24")]);
    let text = explained(lists, Subject::LoadBalancer, "", "local");
    let rows = "  Addresses    none yet
  Waits        PoolNotFound: pool \"nope\": there is no such pool
  What helps   create the AddressPool, or name another one
";
    assert!(text.contains(rows), "{text}");
}
