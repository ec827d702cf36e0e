//! Pools: which are used, which requesters may have how much, and what an edit does to holders.

use super::make::*;
use crate::addresses::*;
use crate::key::ObjectKey;
use crate::objects::Family;
use crate::outcome::Reason;

const NONE: [IpAddr; 0] = [];

fn used(world: &World, pool: &str) -> PoolUse {
    world.reports[pool].used.clone()
}

#[test]
fn of_two_pools_that_overlap_the_younger_is_not_used() {
    let mut world = World::new([
        Pool { created: 2, ..pool("a-young", &["192.0.2.128/25", "198.51.100.0/24"]) },
        Pool { created: 1, ..pool("b-old", &["192.0.2.0/24"]) },
        Pool { created: 3, ..pool("c-on-young", &["198.51.100.7/32"]) },
    ]);
    world.with([service("shop/web")]);
    let range = Range::parse("192.0.2.128/25").unwrap();
    let overlaps = PoolUse::Overlaps { pool: "b-old".into(), range };
    assert_eq!(used(&world, "a-young"), overlaps);
    assert_eq!(world.reports["a-young"].ipv4.unwrap().available, 0);
    assert_eq!(used(&world, "b-old"), PoolUse::Used);
    assert_eq!(used(&world, "c-on-young"), PoolUse::Used, "what is not used is in nobody's way");
    world.remove_pool("b-old");
    assert_eq!(used(&world, "a-young"), PoolUse::Used);
    assert!(matches!(used(&world, "c-on-young"), PoolUse::Overlaps { .. }));
}

#[test]
fn of_two_pools_of_one_age_the_first_by_name_is_used() {
    let mut world = World::new([pool("b", &["192.0.2.0/24"]), pool("a", &["192.0.2.0/24"])]);
    world.run();
    assert_eq!(used(&world, "a"), PoolUse::Used);
    assert_ne!(used(&world, "b"), PoolUse::Used);
}

#[test]
fn entries_that_cannot_be_read_are_reported_and_the_rest_is_used() {
    let mut world = World::new([pool("p", &["192.0.2.9-192.0.2.1", "junk", "192.0.2.16/30"])]);
    world.with([service("shop/web")]);
    assert_eq!(world.has("shop/web"), ips(&["192.0.2.16"]));
    let refused: Vec<_> = world.reports["p"].refused.iter().map(|it| it.to_string()).collect();
    assert!(refused[0].contains("runs backwards") && refused[1].contains("\"junk\""));
}

#[test]
fn addresses_are_counted_by_family() {
    let mut world = World::new([Pool {
        reuse_after: 10,
        avoid_buggy: true,
        ..pool("p", &["192.0.2.0/24", "2001:db8::/126"])
    }]);
    world.tell(Event::Apply(Box::new(Object::Node {
        name: "worker".into(),
        addresses: ips(&["192.0.2.1", "10.0.0.1"]),
    })));
    world.with([service("shop/a"), service("shop/b")]);
    assert_eq!(world.has("shop/a"), ips(&["192.0.2.2"]), "that of a Node is taken");
    world.remove("shop/a");
    world.run();
    let counts = |assigned, resting, available| Some(Counts { assigned, resting, available });
    let report = &world.reports["p"];
    assert_eq!((report.ipv4, report.ipv6), (counts(1, 1, 251), counts(0, 0, 4)));
    assert!(report.in_use());
    world.pass(10);
    assert_eq!(world.reports["p"].ipv4, counts(1, 0, 252));
}

#[test]
fn addresses_that_end_in_0_and_255_are_left_out_where_the_pool_says_so() {
    let avoid = |name: &str, entry: &str| Pool { avoid_buggy: true, ..pool(name, &[entry]) };
    let mut world = World::new([avoid("p", "192.0.2.254-192.0.3.1")]);
    world.with([service("shop/a"), service("shop/b"), service("shop/c")]);
    assert_eq!(world.has("shop/a"), ips(&["192.0.2.254"]));
    assert_eq!(world.has("shop/b"), ips(&["192.0.3.1"]));
    assert_eq!(world.has("shop/c"), NONE);
    world.edit("shop/c", |request| request.ask = addresses(&["192.0.3.0"]));
    assert_eq!(world.message("shop/c"), "pool \"p\": 192.0.3.0 is left out by avoidBuggyIPs");
}

#[test]
fn a_namespace_gets_no_more_than_its_quota_until_it_gives_one_up() {
    let quota = Pool { per_namespace_quota: Some(1), ..pool("p", &["192.0.2.0/24"]) };
    let mut world = World::new([quota]);
    world.with([service("shop/a"), service("shop/b"), service("bank/a")]);
    assert_eq!(world.has("shop/a"), ips(&["192.0.2.1"]));
    assert_eq!(world.has("bank/a"), ips(&["192.0.2.0"]));
    assert_eq!(
        (world.reason("shop/b"), world.message("shop/b")),
        (Reason::QuotaReached, "pool \"p\": the namespace has 1 of the 1 addresses of its quota")
    );
    world.remove("shop/a");
    world.run();
    assert_eq!(world.has("shop/b"), ips(&["192.0.2.2"]), "that of the other is not free yet");
}

#[test]
fn one_whose_namespace_has_its_quota_can_move_within_the_pool() {
    let quota = Pool { per_namespace_quota: Some(2), ..pool("p", &["192.0.2.0/24"]) };
    let mut world = World::new([quota]);
    world.with([service("shop/a"), service("shop/b")]);
    for key in ["shop/a", "shop/b"] {
        let mut request = world.request(key).clone();
        request.ask = addresses(&[if key == "shop/a" { "192.0.2.8" } else { "192.0.2.9" }]);
        world.put(request);
    }
    world.run();
    assert_eq!(world.has("shop/a"), ips(&["192.0.2.8"]));
    world.pass(GRACE);
    assert_eq!(world.has("shop/b"), ips(&["192.0.2.9"]), "one after the other");
    world.pass(GRACE);
    assert_eq!(world.held().len(), 2);
    world.with([AddressRequest { ask: addresses(&["192.0.2.7"]), ..service("shop/c") }]);
    assert_eq!(world.reason("shop/c"), Reason::QuotaReached);
}

#[test]
fn an_exhausted_pool_gives_what_is_freed_to_the_oldest_who_waits() {
    let mut world = World::new([pool("p", &["192.0.2.0/32"])]);
    world.with([service("shop/has")]);
    world.with([
        AddressRequest { created: 3, ..service("shop/a-young") },
        AddressRequest { created: 1, ..service("shop/z-old") },
        AddressRequest { created: 2, ..service("shop/m-middle") },
    ]);
    assert_eq!(world.reason("shop/z-old"), Reason::PoolsExhausted);
    for (gone, next) in [("has", "z-old"), ("z-old", "m-middle"), ("m-middle", "a-young")] {
        world.remove(&format!("shop/{gone}"));
        world.run();
        assert_eq!(world.has(&format!("shop/{next}")), ips(&["192.0.2.0"]), "{next}");
    }
}

#[test]
fn one_who_waits_is_served_before_a_younger_newcomer_of_the_same_batch() {
    let mut world = World::new([pool("p", &["192.0.2.0/32"])]);
    world.with([AddressRequest { created: 0, ..service("shop/has") }]);
    world.with([AddressRequest { created: 1, ..service("shop/waits") }]);
    world.remove("shop/has");
    let changes = world.machine.take(world.now);
    world.put(AddressRequest { created: 2, ..service("shop/new") });
    world.carry_out(changes);
    world.run();
    assert_eq!(world.has("shop/waits"), ips(&["192.0.2.0"]));
    assert_eq!(world.has("shop/new"), NONE);
}

#[test]
fn a_pool_that_grows_serves_those_who_wait() {
    let mut world = World::new([pool("p", &["192.0.2.0/32"])]);
    world.with([service("shop/a"), AddressRequest { created: 1, ..service("shop/b") }]);
    world.put_pool(pool("p", &["192.0.2.0/31"]));
    assert_eq!(world.has("shop/b"), ips(&["192.0.2.1"]));
}

#[test]
fn addresses_that_are_still_in_some_pool_stay_over_rename_and_split() {
    let mut world = World::new([pool("p", &["192.0.2.0/24"])]);
    world.with([
        service("shop/a"),
        AddressRequest { ask: addresses(&["192.0.2.200"]), ..service("shop/b") },
    ]);
    world.told();
    world.put_pool(Pool { deleting: true, ..pool("p", &["192.0.2.0/24"]) });
    assert!(world.reports["p"].in_use(), "its finalizer must stay");
    world.put_pool(Pool { created: 5, ..pool("low", &["192.0.2.0/25"]) });
    world.put_pool(Pool { created: 5, ..pool("high", &["192.0.2.128/25"]) });
    assert!(!world.reports["p"].in_use());
    world.remove_pool("p");
    assert_eq!(world.has("shop/a"), ips(&["192.0.2.0"]));
    assert_eq!(world.has("shop/b"), ips(&["192.0.2.200"]));
    let pools: Vec<_> = world.records.values().map(|it| it.content.pool.clone()).collect();
    assert_eq!(pools, [Some("low".into()), Some("high".into())]);
    assert_eq!(world.told(), Vec::<String>::new());
}

#[test]
fn rules_of_a_pool_that_become_stricter_take_nothing_away() {
    let mut world = World::new([pool("p", &["192.0.2.0/24"])]);
    world.with([
        AddressRequest { sharing: sharing("k", &[80]), ..service("shop/a") },
        AddressRequest { sharing: sharing("k", &[81]), ..service("shop/b") },
    ]);
    let mut strict = Pool {
        auto_assign: false,
        avoid_buggy: true,
        per_namespace_quota: Some(0),
        scope: Some(Scope::Intranet),
        deleting: true,
        ..pool("p", &["192.0.2.0/24"])
    };
    strict.allocate_to.namespaces = vec!["bank".into()];
    world.put_pool(strict);
    assert_eq!(world.has("shop/a"), ips(&["192.0.2.0"]));
    assert_eq!(world.has("shop/b"), ips(&["192.0.2.0"]));
    assert_eq!(world.reason("shop/a"), Reason::Assigned);
}

#[test]
fn addresses_outside_all_pools_are_moved_with_one_event_each() {
    let mut world = World::new([pool("p", &["192.0.2.0/24"])]);
    world.with([service("shop/a"), service("shop/b")]);
    world.told();
    world.put_pool(pool("p", &["192.0.2.1/32", "198.51.100.0/24"]));
    assert_eq!(world.has("shop/a"), ips(&["198.51.100.0"]));
    assert_eq!(world.has("shop/b"), ips(&["192.0.2.1"]));
    assert_eq!(
        world.told(),
        ["shop/a AddressChanged: changed from 192.0.2.0 to 198.51.100.0 of pool p: no \
             AddressPool has the address any more"]
    );
    world.pass(GRACE);
    assert_eq!(world.held().len(), 2);
}

#[test]
fn an_address_outside_all_pools_is_lost_where_there_is_no_other() {
    let mut world = World::new([pool("p", &["192.0.2.0/24"])]);
    world.with([service("shop/a")]);
    world.told();
    world.remove_pool("p");
    assert_eq!((world.has("shop/a"), world.held()), (vec![], vec![]));
    assert_eq!(
        world.told(),
        ["shop/a AddressLost: lost 192.0.2.0: no AddressPool has the address any more"]
    );
    assert_eq!(world.reason("shop/a"), Reason::NoPool);
    assert!(!world.reports.contains_key("p"));
}

#[test]
fn what_nodes_and_others_use_is_taken_until_they_do_not() {
    let mut world = World::new([pool("p", &["192.0.2.0/31"])]);
    let mut foreign = AddressRequest { ask: Ok(Ask::Nothing), ..service("kube/foreign") };
    foreign.uses = ips(&["192.0.2.1"]);
    let node = Object::Node { name: "worker".into(), addresses: ips(&["192.0.2.0"]) };
    world.tell(Event::Apply(Box::new(node)));
    world.with([foreign, service("shop/a")]);
    assert_eq!(world.reason("shop/a"), Reason::PoolsExhausted);
    world.with([AddressRequest {
        ask: addresses(&["192.0.2.1"]),
        created: 1,
        ..service("shop/b")
    }]);
    assert_eq!(world.message("shop/b"), "pool \"p\": Service kube/foreign uses 192.0.2.1");
    world.tell(Event::Delete(Kind::Node, ObjectKey::new("", "worker")));
    world.remove("kube/foreign");
    world.run();
    assert_eq!(world.has("shop/a"), ips(&["192.0.2.0"]));
    assert_eq!(world.has("shop/b"), ips(&["192.0.2.1"]));
}

#[test]
fn somebody_elses_use_takes_nothing_from_one_who_has_it() {
    let mut world = World::new([pool("p", &["192.0.2.0/31"])]);
    world.with([service("shop/a")]);
    let node = Object::Node { name: "worker".into(), addresses: ips(&["192.0.2.0"]) };
    world.tell(Event::Apply(Box::new(node)));
    world.edit("shop/a", |request| request.created = 0);
    assert_eq!(world.has("shop/a"), ips(&["192.0.2.0"]));
}

#[test]
fn a_service_in_front_of_a_load_balancer_is_nobodys_of_its_namespace() {
    let mut full = Pool { per_namespace_quota: Some(1), ..pool("p", &["192.0.2.0/24"]) };
    full.allocate_to.namespaces = vec!["shop".into()];
    let mut world = World::new([full]);
    let door = |name| AddressRequest { door: true, ..service(name) };
    world.with([door("ours/a"), door("ours/b"), service("shop/a"), service("shop/b")]);
    let has = ["ours/a", "ours/b", "shop/a", "shop/b"].map(|name| world.has(name).len());
    assert_eq!(has, [1, 1, 1, 0]);
}

#[test]
fn two_families_count_as_two_however_they_are_asked_for() {
    let asks = [
        (addresses(&["192.0.2.1", "2001:db8::1"]), ""),
        (named("web.example.com"), ""),
        (Ok(Ask::Any), "shown"),
        (Ok(Ask::Any), ""),
    ];
    for (ask, shown) in asks {
        let two = ["192.0.2.0/24", "2001:db8::/120"];
        let mut world = World::new([Pool { per_namespace_quota: Some(1), ..pool("p", &two) }]);
        let status = if shown.is_empty() { vec![] } else { ips(&["192.0.2.1", "2001:db8::1"]) };
        let families = Families::Prefer(Family::V4);
        world.with([AddressRequest { ask: ask.clone(), status, families, ..service("shop/web") }]);
        world.resolve("web.example.com", &["192.0.2.1", "2001:db8::1"]);
        assert!(world.has("shop/web").len() <= 1, "{ask:?}: {:?}", world.has("shop/web"));
    }
}
