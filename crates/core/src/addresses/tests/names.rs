//! Addresses from DNS names: only free addresses that a pool allows, and the new one is in place
//! before the old one goes.

use super::make::*;
use crate::addresses::*;
use crate::objects::Family;
use crate::outcome::Reason;

const NONE: [IpAddr; 0] = [];
const NAME: &str = "web.example.com";

fn global(key: &str) -> AddressRequest {
    AddressRequest { ask: named(NAME), ..service(key) }
}

fn world() -> World {
    World::new([Pool { auto_assign: false, ..pool("global", &["192.0.2.0/24", "2001:db8::/64"]) }])
}

#[test]
fn a_service_gets_the_lowest_usable_address_of_its_name_once_it_is_looked_up() {
    let mut world = world();
    world.with([global("shop/web")]);
    assert_eq!((world.has("shop/web"), world.reason("shop/web")), (vec![], Reason::NamePending));
    world.resolve(NAME, &["192.0.2.9", "192.0.2.7", "198.51.100.1", "2001:db8::1"]);
    assert_eq!(world.has("shop/web"), ips(&["192.0.2.7"]));
    assert_eq!(world.message("shop/web"), "192.0.2.7 of pool global, from web.example.com");
}

#[test]
fn an_address_outside_the_pools_or_held_by_another_is_not_assigned() {
    let mut world = world();
    world.with([
        AddressRequest { ask: addresses(&["192.0.2.7"]), ..service("shop/has") },
        AddressRequest { created: 1, ..global("shop/web") },
    ]);
    world.resolve(NAME, &["192.0.2.7", "198.51.100.1"]);
    assert_eq!((world.has("shop/web"), world.reason("shop/web")), (vec![], Reason::NameUnusable));
    assert_eq!(
        world.message("shop/web"),
        "\"web.example.com\" resolves to no usable address: pool \"global\": 192.0.2.7 is held by \
         Service shop/has, which does not share it under the same key; 198.51.100.1 is in no pool"
    );
    world.remove("shop/has");
    world.run();
    assert_eq!(world.has("shop/web"), ips(&["192.0.2.7"]), "the moment it is free");
}

#[test]
fn the_named_pool_and_the_allowed_domains_of_a_pool_must_fit() {
    let domains = vec!["example.org".into()];
    let mut world = World::new([
        Pool { allowed_domains: domains, ..pool("org", &["192.0.2.0/25"]) },
        pool("any", &["192.0.2.128/25"]),
    ]);
    world.with([global("shop/web")]);
    world.resolve(NAME, &["192.0.2.1"]);
    assert_eq!(
        world.message("shop/web"),
        "\"web.example.com\" resolves to no usable address: pool \"org\": does not allow names of this \
         domain"
    );
    world.resolve(NAME, &["192.0.2.1", "192.0.2.200"]);
    assert_eq!(world.has("shop/web"), ips(&["192.0.2.200"]));
    let ask = Ok(Ask::Name { name: "other.example.com".into(), pool: Some("org".into()) });
    world.with([AddressRequest { ask, ..service("shop/other") }]);
    world.resolve("other.example.com", &["192.0.2.201"]);
    assert_eq!(
        world.message("shop/other"),
        "\"other.example.com\" resolves to no usable address: pool \"org\": 192.0.2.201 is not in it"
    );
}

#[test]
fn the_current_address_stays_while_it_is_listed() {
    let mut world = world();
    world.with([global("shop/web")]);
    world.resolve(NAME, &["192.0.2.9"]);
    world.resolve(NAME, &["192.0.2.1", "192.0.2.9"]);
    assert_eq!(world.has("shop/web"), ips(&["192.0.2.9"]));
    assert_eq!(world.held().len(), 1);
}

#[test]
fn a_failure_keeps_what_is_assigned_and_assigns_nothing() {
    let mut world = world();
    world.with([global("shop/web")]);
    world.resolve(NAME, &["192.0.2.9"]);
    for name in [NAME, "new.example.com"] {
        let answer = Answer::Failed { reason: "SERVFAIL".into() };
        world.with([AddressRequest { ask: named("new.example.com"), ..service("shop/new") }]);
        world.tell(Event::Resolved { name: name.into(), answer });
        world.run();
    }
    assert_eq!(world.has("shop/web"), ips(&["192.0.2.9"]));
    assert_eq!(world.has("shop/new"), NONE);
    for key in ["shop/web", "shop/new"] {
        assert_eq!(world.reason(key), Reason::NameFailed);
        assert!(world.message(key).ends_with("cannot be looked up: SERVFAIL"));
    }
    world.resolve(NAME, &["198.51.100.1"]);
    assert_eq!(world.has("shop/web"), ips(&["192.0.2.9"]), "so does an unusable answer");
    world.resolve(NAME, &[]);
    assert_eq!(world.has("shop/web"), ips(&["192.0.2.9"]), "and an empty one");
}

#[test]
fn a_change_is_made_before_it_breaks_and_the_old_address_drains_for_the_grace() {
    let mut world = world();
    world.with([global("shop/web")]);
    world.resolve(NAME, &["192.0.2.1"]);
    world.told();
    let answer = Answer::Addresses(ips(&["192.0.2.2"]));
    world.tell(Event::Resolved { name: NAME.into(), answer });
    let changes = world.machine.take(world.now);
    assert_eq!(changes.writes.len(), 1, "only the new one is created: {:?}", changes.writes);
    assert_eq!(changes.decisions, [], "the old one is served meanwhile");
    world.carry_out(changes);
    world.run();
    let until = world.now + GRACE;
    assert_eq!(world.has("shop/web"), ips(&["192.0.2.2"]));
    let draining = Draining { address: ip("192.0.2.1"), until };
    assert_eq!(world.decision("shop/web").draining, [draining]);
    assert_eq!(world.records[&ip("192.0.2.1")].content.state, AddressState::Draining { until });
    assert_eq!(
        world.told(),
        ["shop/web AddressChanged: changed from 192.0.2.1 to 192.0.2.2 of pool global: \
             \"web.example.com\" resolves to another address"]
    );
    assert_eq!(world.machine.wake_at(), Some(until));
    world.pass(GRACE - 1);
    assert_eq!(world.held().len(), 2);
    world.pass(1);
    assert_eq!(world.decision("shop/web").draining, []);
    assert_eq!(world.held(), [("192.0.2.2".into(), vec!["shop/web".into()])]);
}

#[test]
fn a_grace_survives_a_restart() {
    let mut world = world();
    world.with([global("shop/web")]);
    world.resolve(NAME, &["192.0.2.1"]);
    world.resolve(NAME, &["192.0.2.2"]);
    let until = world.now + GRACE;
    world.pass(20);
    world.restart();
    world.run();
    assert_eq!(world.has("shop/web"), ips(&["192.0.2.2"]), "also while nothing is looked up");
    let draining = Draining { address: ip("192.0.2.1"), until };
    assert_eq!(world.decision("shop/web").draining, [draining]);
    world.resolve(NAME, &["192.0.2.2"]);
    world.pass(40);
    assert_eq!(world.held(), [("192.0.2.2".into(), vec!["shop/web".into()])]);
}

#[test]
fn a_name_that_goes_back_takes_the_draining_address_back() {
    let mut world = world();
    world.with([global("shop/web")]);
    world.resolve(NAME, &["192.0.2.1"]);
    world.resolve(NAME, &["192.0.2.2"]);
    world.told();
    world.resolve(NAME, &["192.0.2.1"]);
    assert_eq!(
        world.told(),
        ["shop/web AddressChanged: changed from 192.0.2.2 to 192.0.2.1 of pool global: \
             \"web.example.com\" resolves to another address"]
    );
    assert_eq!(world.has("shop/web"), ips(&["192.0.2.1"]));
    assert_eq!(world.decision("shop/web").draining[0].address, ip("192.0.2.2"));
    assert_eq!(world.records[&ip("192.0.2.1")].content.state, AddressState::Active);
    world.pass(GRACE);
    assert_eq!(world.held(), [("192.0.2.1".into(), vec!["shop/web".into()])]);
}

#[test]
fn a_grace_ends_with_the_wish_for_an_address() {
    let mut world = world();
    world.with([global("shop/web")]);
    world.resolve(NAME, &["192.0.2.1"]);
    world.resolve(NAME, &["192.0.2.2"]);
    world.edit("shop/web", |request| request.ask = Ok(Ask::Nothing));
    assert_eq!(world.held(), []);
}

#[test]
fn one_of_two_who_share_can_drain_alone() {
    let mut world = world();
    let shares = |request: AddressRequest, at, port| AddressRequest {
        created: at,
        sharing: sharing("k", &[port]),
        ..request
    };
    world.with([
        shares(global("shop/web"), 0, 80),
        shares(AddressRequest { ask: addresses(&["192.0.2.1"]), ..service("shop/stays") }, 1, 443),
    ]);
    world.resolve(NAME, &["192.0.2.1"]);
    world.resolve(NAME, &["192.0.2.2"]);
    assert_eq!(world.decision("shop/stays").draining, []);
    world.restart();
    world.resolve(NAME, &["192.0.2.2"]);
    assert_eq!(world.has("shop/stays"), ips(&["192.0.2.1"]));
    assert_eq!(world.decision("shop/web").draining[0].address, ip("192.0.2.1"));
    world.pass(GRACE);
    assert_eq!(world.records[&ip("192.0.2.1")].content.state, AddressState::Active);
    assert_eq!(world.records[&ip("192.0.2.1")].content.holders.len(), 1);
}

#[test]
fn each_family_follows_its_own_records() {
    let mut world = world();
    world.with([AddressRequest { families: Families::Require(Family::V4), ..global("shop/web") }]);
    world.resolve(NAME, &["192.0.2.1"]);
    assert_eq!(world.has("shop/web"), NONE, "both or nothing");
    world.resolve(NAME, &["192.0.2.1", "2001:db8::1"]);
    assert_eq!(world.has("shop/web"), ips(&["192.0.2.1", "2001:db8::1"]));
    world.resolve(NAME, &["192.0.2.1", "2001:db8::2"]);
    assert_eq!(world.has("shop/web"), ips(&["192.0.2.1", "2001:db8::2"]));
    world.edit("shop/web", |request| request.families = Families::Prefer(Family::V4));
    world.resolve(NAME, &["192.0.2.1"]);
    assert_eq!(
        world.has("shop/web"),
        ips(&["192.0.2.1", "2001:db8::2"]),
        "nothing better is known"
    );
    assert_eq!(world.reason("shop/web"), Reason::NameUnusable);
}

#[test]
fn a_service_that_turns_to_a_name_keeps_its_address_until_the_name_gives_another() {
    let mut world = World::new([pool("p", &["192.0.2.0/24"])]);
    world.with([service("shop/web")]);
    world.edit("shop/web", |request| request.ask = named(NAME));
    assert_eq!(world.has("shop/web"), ips(&["192.0.2.0"]));
    world.resolve(NAME, &["192.0.2.5"]);
    assert_eq!(world.has("shop/web"), ips(&["192.0.2.5"]));
}

#[test]
fn an_address_that_a_status_shows_is_taken_over_while_the_name_does_not_answer() {
    let mut world = world();
    let shows = |key: &str, status| AddressRequest { status: ips(status), ..global(key) };
    world.with([
        shows("shop/web", &["192.0.2.9"]),
        shows("shop/foreign", &["198.51.100.1"]),
        AddressRequest {
            families: Families::Require(Family::V4),
            created: 1,
            ..shows("shop/half", &["192.0.2.10"])
        },
    ]);
    for reason in [Reason::NamePending, Reason::NameFailed] {
        assert_eq!(
            (world.has("shop/web"), world.reason("shop/web")),
            (ips(&["192.0.2.9"]), reason)
        );
        assert_eq!(world.has("shop/foreign"), NONE);
        assert_eq!(world.has("shop/half"), NONE);
        let answer = Answer::Failed { reason: "SERVFAIL".into() };
        world.tell(Event::Resolved { name: NAME.into(), answer });
        world.run();
    }
    let failed = world.request("shop/web").clone();
    world.with([AddressRequest {
        status: ips(&["192.0.2.11"]),
        holder: service("shop/new").holder,
        ..failed
    }]);
    assert_eq!(world.has("shop/new"), ips(&["192.0.2.11"]));
}

#[test]
fn a_failure_of_one_family_is_told_beside_the_answer_of_the_other() {
    use crate::dns::{Answers, Failure, FailureKind, Found, Report};
    use std::time::Duration;
    let v4 = Found::new(Family::V4, ips(&["192.0.2.9"]), Duration::from_secs(300)).unwrap();
    let v6 = Failure::new(FailureKind::ServFail, "");
    let answers = Answers { v4: Some(Ok(v4)), v6: Some(Err(v6)) };
    let (next_check, retried_within) = (Duration::from_secs(30), Duration::from_secs(66));
    let report = Report { answers, next_check, retried_within };
    assert_eq!(
        &*from_name(NAME, Some(&report), None, None).message,
        "web.example.com is 192.0.2.9 (TTL 300s, looked up again after 30s); IPv6: the DNS server \
         failed (SERVFAIL)"
    );
}

#[test]
fn an_address_that_the_named_pool_or_its_domains_no_longer_allow_is_left_for_one_that_they_do() {
    let mut world = World::new([pool("x", &["192.0.2.0/25"]), pool("y", &["192.0.2.128/25"])]);
    world.with([global("shop/web")]);
    world.resolve(NAME, &["192.0.2.1", "192.0.2.200"]);
    assert_eq!(world.has("shop/web"), ips(&["192.0.2.1"]));
    let of = |pool: &str| Ok(Ask::Name { name: NAME.into(), pool: Some(pool.into()) });
    world.edit("shop/web", |request| request.ask = of("y"));
    assert_eq!(world.has("shop/web"), ips(&["192.0.2.200"]));
    world.resolve(NAME, &["192.0.2.200"]);
    world.edit("shop/web", |request| request.ask = of("x"));
    assert_eq!(world.has("shop/web"), ips(&["192.0.2.200"]), "there is nothing better");
    assert_eq!(world.reason("shop/web"), Reason::NameUnusable);
}

#[test]
fn another_object_of_the_same_name_and_dns_name_needs_no_new_answer() {
    let mut world = world();
    world.with([global("shop/web")]);
    world.resolve(NAME, &["192.0.2.9"]);
    let mut again = global("shop/web");
    again.holder.uid = "another".into();
    world.with([again]);
    world.pass(0);
    assert_ne!(world.reason("shop/web"), Reason::NamePending);
}

#[test]
fn of_many_addresses_that_cannot_be_had_only_some_are_told() {
    let mut world = world();
    world.with([global("shop/web")]);
    let many: Vec<String> = (1..=50).map(|at| format!("198.51.100.{at}")).collect();
    world.resolve(NAME, &many.iter().map(String::as_str).collect::<Vec<_>>());
    let message = world.message("shop/web");
    assert!(message.ends_with("198.51.100.8 is in no pool; and 42 more"), "{message}");
}
