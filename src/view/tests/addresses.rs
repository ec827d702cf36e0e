//! Tests what `status --addresses` shows, and the address chain of `explain`.

use super::*;
use crate::view::addresses::Addresses;
use bowline_api::{Address, AddressPool};

pub(super) fn pool(name: &str, spec: Value, status: Value) -> AddressPool {
    object(json!({
        "apiVersion": "bowline.dev/v1alpha1", "kind": "AddressPool",
        "metadata": {"name": name}, "spec": spec, "status": status,
    }))
}

pub(super) fn address(name: &str, pool: &str, holders: Value, status: Value) -> Address {
    object(json!({
        "apiVersion": "bowline.dev/v1alpha1", "kind": "Address", "metadata": {"name": name},
        "spec": {"pool": pool, "holders": holders}, "status": status,
    }))
}

pub(super) fn holder(name: &str, key: Option<&str>) -> Value {
    json!({"kind": "Service", "namespace": "demo", "name": name, "uid": name, "key": key})
}

fn condition(type_: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": type_, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": "2030-01-01T00:00:00Z"})
}

fn on(load_balancer: &str, mut holder: Value) -> Value {
    holder["loadBalancer"] = json!(load_balancer);
    holder
}

/// A pool that is fine, one that overlaps it, one that no leader has processed; addresses in every
/// state.
fn some() -> (Vec<AddressPool>, Vec<Address>) {
    let fine =
        [condition("Used", "True", "Used", ""), condition("Readable", "True", "Readable", "")];
    let counts = |assigned: i64, resting: i64, available: i64| json!({"assigned": assigned, "resting": resting, "available": available});
    let pools = vec![
        pool(
            "young",
            json!({"addresses": ["203.0.113.0/25"], "autoAssign": false}),
            json!({
                "ipv4": counts(0, 0, 0),
                "conditions": [condition("Used", "False", "Overlaps", "overlaps the older pool \"public\"")],
            }),
        ),
        pool(
            "public",
            json!({"addresses": ["203.0.113.0/24", "2001:db8::/64"]}),
            json!({
                "ipv4": counts(3, 1, 252), "ipv6": counts(1, 0, 9_007_199_254_740_991),
                "conditions": fine,
            }),
        ),
        pool("unseen", json!({"addresses": ["192.0.2.0/24"], "scope": "Intranet"}), json!({})),
    ];
    let addresses = vec![
        address(
            "2001-0db8-0000-0000-0000-0000-0000-0001",
            "public",
            json!([holder("hello", None)]),
            json!({}),
        ),
        address(
            "203.0.113.12",
            "public",
            json!([]),
            json!({"state": "Resting", "until": "2030-01-01T00:05:10Z"}),
        ),
        address(
            "203.0.113.2",
            "public",
            json!([holder("hello", Some("k")), on("edge", holder("other", Some("k")))]),
            json!({"state": "Active"}),
        ),
        address(
            "203.0.113.11",
            "public",
            json!([holder("hello", None)]),
            json!({"state": "Draining", "until": "2030-01-01T00:01:00Z"}),
        ),
        address("edge", "public", json!([]), json!({})),
    ];
    (pools, addresses)
}

fn view(notes: &[&str]) -> Addresses {
    let (pools, addresses) = some();
    let notes = notes.iter().map(|note| note.to_string()).collect();
    Addresses::of(&pools, &addresses, notes, now())
}

#[test]
fn pools_and_addresses_are_two_tables_and_what_is_wrong_comes_after() {
    assert_eq!(
        view(&[]).text(),
        "\
POOL    ASSIGN   FAMILY  USED  FREE    RESTING  STATE
public  auto     IPv4    3     252     1        ok
                 IPv6    1     plenty  0
unseen  auto     -       -     -       -        -
young   by name  IPv4    0     0       0        Overlaps

ADDRESS       POOL    STATE     UNTIL     HELD BY
203.0.113.2   public  Active    -         Service demo/hello (key \"k\"), Service
                                          demo/other (key \"k\", on edge)
203.0.113.11  public  Draining  in 50 s   Service demo/hello
203.0.113.12  public  Resting   in 5 min  -
2001:db8::1   public  Active    -         Service demo/hello

Problems:
  - AddressPool young: Overlaps: overlaps the older pool \"public\"
"
    );
    let nothing = Addresses::of(&[], &[], vec!["You may not.".to_owned()], now()).text();
    assert_eq!(nothing, "No address pools.\n\nNo address is held.\n\nNote: You may not.\n");
}

#[test]
fn addresses_for_programs_have_these_fields() {
    let json: Value = serde_json::from_str(&view(&[]).json().expect("JSON")).expect("JSON");
    let holder = |name: &str, key: Option<&str>| {
        let mut holder = json!({"kind": "Service", "namespace": "demo", "name": name, "ports": []});
        if let Some(key) = key {
            holder["key"] = json!(key);
        }
        holder
    };
    let condition = |type_: &str, status: &str, reason: &str, message: &str| json!({"type": type_, "status": status, "reason": reason, "message": message});
    assert_eq!(
        json,
        json!({
            "apiVersion": "view.bowline.dev/v1alpha1", "kind": "Addresses",
            "pools": [
                {
                    "name": "public", "addresses": ["203.0.113.0/24", "2001:db8::/64"], "autoAssign": true,
                    "ipv4": {"assigned": 3, "resting": 1, "available": 252},
                    "ipv6": {"assigned": 1, "resting": 0, "available": 9_007_199_254_740_991_i64},
                    "conditions": [
                        condition("Used", "True", "Used", ""),
                        condition("Readable", "True", "Readable", ""),
                    ],
                },
                {
                    "name": "unseen", "addresses": ["192.0.2.0/24"], "autoAssign": true,
                    "scope": "Intranet", "conditions": [],
                },
                {
                    "name": "young", "addresses": ["203.0.113.0/25"], "autoAssign": false,
                    "ipv4": {"assigned": 0, "resting": 0, "available": 0},
                    "conditions": [
                        condition("Used", "False", "Overlaps", "overlaps the older pool \"public\""),
                    ],
                },
            ],
            "addresses": [
                {
                    "address": "203.0.113.2", "pool": "public", "state": "Active",
                    "holders": [
                        holder("hello", Some("k")), on("edge", holder("other", Some("k"))),
                    ],
                },
                {
                    "address": "203.0.113.11", "pool": "public", "state": "Draining",
                    "until": "2030-01-01T00:01:00Z", "holders": [holder("hello", None)],
                },
                {
                    "address": "203.0.113.12", "pool": "public", "state": "Resting",
                    "until": "2030-01-01T00:05:10Z", "holders": [],
                },
                {
                    "address": "2001:db8::1", "pool": "public", "state": "Active",
                    "holders": [holder("hello", None)],
                },
            ],
            "notes": [],
        })
    );
}

#[test]
fn no_line_of_addresses_is_wider_than_a_terminal_nor_commands_it() {
    let evil = format!("\u{1b}[31m{}\nforged", "long-".repeat(40));
    let (mut pools, mut addresses) = some();
    for pool in &mut pools {
        pool.metadata.name = Some(evil.clone());
        for condition in pool.status.iter_mut().flat_map(|it| &mut it.conditions) {
            (condition.status, condition.reason) = ("False".to_owned(), evil.clone());
            condition.message = evil.clone();
        }
    }
    for holder in addresses.iter_mut().flat_map(|it| &mut it.spec.holders) {
        (holder.name, holder.key) = (evil.clone(), Some(evil.clone()));
    }
    let text = Addresses::of(&pools, &addresses, vec![evil], now()).text();
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}\n{text}");
        assert!(!line.chars().any(char::is_control), "{line}");
        assert!(!line.starts_with("forged"), "{text}");
    }
}

/// A cluster without a default load balancer, whose Service `hello` has these annotations, conditions
/// and addresses.
pub(super) fn alone(annotations: Value, conditions: Value, addresses: Vec<Address>) -> Lists {
    let mut lists = lists();
    annotate(&mut lists.leases[0], names::ANNOTATION_DEFAULT_LOAD_BALANCER, "");
    lists.services[0].metadata.annotations = object(annotations);
    lists.services[0].status = object(json!({"conditions": conditions}));
    lists.addresses = addresses;
    lists
}

#[test]
fn a_service_with_an_address_alone_is_explained_from_its_wish_to_its_address() {
    let addresses = some().1;
    let lists = alone(
        json!({"metallb.io/address-pool": "public", "bowline.dev/allow-shared-ip": "k"}),
        json!([condition("bowline.dev/Programmed", "True", "Assigned", "")]),
        addresses,
    );
    assert_eq!(
        explained(lists, Subject::Service, "demo", "hello"),
        "\
Service demo/hello has an address, and no load balancer

  Why          it names no load balancer, and the controller has no
               --default-load-balancer
  Asks for     pool \"public\" (metallb.io/address-pool); sharing under \"k\"
               (bowline.dev/allow-shared-ip)
  Has          203.0.113.2 of pool public: Active, shared with Service
               demo/other
               203.0.113.11 of pool public: Draining, ends in 50 s
               2001:db8::1 of pool public: Active
  Announced by no speaker runs

  Problems     none
"
    );
}

#[test]
fn a_service_that_waits_for_its_name_says_what_the_leader_says() {
    let lists = alone(
        json!({"bowline.dev/assign-from-fqdn": "web.example.com"}),
        json!([
            condition("AddressFromDNS", "False", "NameFailed", "web.example.com: NXDOMAIN"),
            condition("bowline.dev/Programmed", "False", "NameFailed", "web.example.com: NXDOMAIN"),
            condition("example.com/Other", "True", "Other", "not ours"),
        ]),
        Vec::new(),
    );
    let text = explained(lists, Subject::Service, "demo", "hello");
    assert!(text.starts_with("Service demo/hello waits for an address\n"), "{text}");
    let rows = "  Asks for     what \"web.example.com\" resolves to (bowline.dev/assign-from-fqdn)
  Has          none of a pool: no Address object names it
  From DNS     False, NameFailed: web.example.com: NXDOMAIN
  Leader says  NameFailed: web.example.com: NXDOMAIN
";
    assert!(text.contains(rows), "{text}");
    assert!(!text.contains("not ours"), "{text}");
}

#[test]
fn the_chain_for_programs_has_these_fields() {
    let mut lists = alone(
        json!({"metallb.io/loadBalancerIPs": "203.0.113.9"}),
        json!([condition("AddressFromDNS", "True", "Assigned", "m")]),
        vec![address("203.0.113.9", "public", json!([holder("hello", None)]), json!({}))],
    );
    lists.services[0].spec.as_mut().expect("a spec").load_balancer_ip = Some("203.0.113.9".into());
    let key = ObjectKey::new("demo", "hello");
    let view = Explanation::of(&facts(lists), Subject::Service, &key).expect("it exists");
    let json: Value = serde_json::from_str(&view.json().expect("JSON")).expect("JSON");
    assert_eq!((&json["state"], &json["addresses"]), (&json!("Alone"), &json!(["203.0.113.9"])));
    assert_eq!(
        json["address"],
        json!({
            "asks": [
                {"what": "Address", "key": "metallb.io/loadBalancerIPs", "value": "203.0.113.9"},
                {"what": "Address", "key": "spec.loadBalancerIP", "value": "203.0.113.9"},
            ],
            "passed": [],
            "held": [{
                "address": "203.0.113.9", "pool": "public", "state": "Active",
                "holders": [{"kind": "Service", "namespace": "demo", "name": "hello", "ports": []}],
            }],
            "conditions": [
                {"type": "AddressFromDNS", "status": "True", "reason": "Assigned", "message": "m"},
            ],
            "alone": true,
        })
    );
}

#[test]
fn an_address_of_one_who_had_the_same_name_before_is_not_shown_as_its_own() {
    let mut old = holder("hello", None);
    old["uid"] = json!("another");
    let addresses = vec![address("203.0.113.9", "public", json!([old]), json!({}))];
    let lists = alone(json!({}), json!([]), addresses);
    let text = explained(lists, Subject::Service, "demo", "hello");
    assert!(text.contains("  Has          none of a pool: no Address object names it\n"), "{text}");
}

#[test]
fn a_service_with_an_address_of_its_own_on_a_load_balancer_listens_there() {
    let mut lists = lists();
    lists.services[0].metadata.annotations = object(json!({"bowline.dev/address-pool": "public"}));
    let waiting = explained(lists.clone(), Subject::Service, "demo", "hello");
    assert!(
        waiting.contains("  Has          none of a pool: no Address object names it\n"),
        "{waiting}"
    );
    lists.addresses = some().1;
    let text = explained(lists, Subject::Service, "demo", "hello");
    assert!(text.starts_with("Service demo/hello is on load balancer local\n"), "{text}");
    assert!(
        text.contains("  Planned at   203.0.113.2:8000/TCP → demo/hello port http\n"),
        "{text}"
    );
    // A draining address is still served.
    assert!(
        text.contains("               203.0.113.11:8000/TCP → demo/hello port http\n"),
        "{text}"
    );
}
