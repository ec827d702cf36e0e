//! What people are told: which pool, why, and what to do; and what becomes an Event.

use super::make::*;
use crate::addresses::*;
use crate::objects::Family;
use crate::outcome::Reason;

/// The problem of a requester that does not have what it asks for.
fn told(world: &World, key: &str) -> String {
    world.decision(key).problem().unwrap().message.to_string()
}

fn of_pool(pool: &str, key: &str) -> AddressRequest {
    AddressRequest { ask: Ok(Ask::Pool(pool.into())), created: 1, ..service(key) }
}

fn asks(address: &str, key: &str) -> AddressRequest {
    AddressRequest { ask: addresses(&[address]), created: 1, ..service(key) }
}

fn only_for(namespace: &str, pool: Pool) -> Pool {
    let allocate_to = AllocateTo { namespaces: vec![namespace.into()], ..AllocateTo::default() };
    Pool { allocate_to, ..pool }
}

#[test]
fn every_refusal_says_which_pool_why_and_what_helps() {
    let mut world = World::new([
        pool("full", &["192.0.2.1/32"]),
        Pool { deleting: true, ..pool("going", &["192.0.2.2/32"]) },
        Pool { created: 9, ..pool("young", &["192.0.2.0/30"]) },
        only_for("bank", pool("banks", &["192.0.2.8/32"])),
        Pool { avoid_buggy: true, ..pool("avoids", &["198.51.100.0/24"]) },
        Pool { auto_assign: false, ..pool("six", &["2001:db8::/64"]) },
    ]);
    world.with([
        AddressRequest { created: 0, ..asks("192.0.2.1", "shop/has") },
        of_pool("full", "shop/full"),
        of_pool("none", "shop/none"),
        of_pool("going", "shop/going"),
        of_pool("young", "shop/young"),
        of_pool("banks", "shop/banks"),
        of_pool("six", "shop/six"),
        asks("198.51.100.0", "shop/avoided"),
        asks("203.0.113.1", "shop/outside"),
        asks("192.0.2.1", "shop/taken"),
        asks("2001:db8::1", "shop/family"),
    ]);
    let expected = [
        (
            "shop/full",
            "pool \"full\": no free IPv4 address; add addresses to a pool; the request that has waited longest \
             gets the first free one",
        ),
        (
            "shop/none",
            "pool \"none\": there is no such pool; create the AddressPool, or name another one",
        ),
        ("shop/going", "pool \"going\": is being deleted; use another AddressPool"),
        (
            "shop/young",
            "pool \"young\": not used, because it overlaps the older pool \"full\"; take the \
             addresses that both have out of one of them, or use another AddressPool",
        ),
        (
            "shop/banks",
            "pool \"banks\": not for this namespace; add the namespace to the pool's allocateTo, or \
             use another AddressPool",
        ),
        (
            "shop/six",
            "pool \"six\": has no IPv4 addresses; add IPv4 addresses to it, or use another AddressPool",
        ),
        (
            "shop/avoided",
            "pool \"avoids\": 198.51.100.0 is left out by avoidBuggyIPs; ask for another address",
        ),
        (
            "shop/outside",
            "203.0.113.1 is in no pool; ask for an address of a pool or of the load balancer, or \
             add it to a pool",
        ),
        (
            "shop/taken",
            "pool \"full\": 192.0.2.1 is held by Service shop/has, which does not share it under \
             the same key; ask for another address, or share it: give both Services the same \
             bowline.dev/allow-shared-ip and different ports",
        ),
        (
            "shop/family",
            "2001:db8::1 is IPv6, which the Service does not have; ask for an address of one of its \
             ipFamilies",
        ),
    ];
    for (key, expected) in expected {
        assert_eq!(told(&world, key), expected, "{key}");
    }
}

#[test]
fn an_address_that_rests_is_not_to_be_shared_but_waited_for() {
    let mut world = World::new([Pool { reuse_after: 100, ..pool("p", &["192.0.2.0/30"]) }]);
    world.with([asks("192.0.2.1", "shop/was")]);
    world.remove("shop/was");
    world.run();
    world.with([asks("192.0.2.1", "shop/web")]);
    assert_eq!(
        told(&world, "shop/web"),
        "pool \"p\": 192.0.2.1 rests after its last holder gave it up; wait until its rest is over, or ask for \
         another address"
    );
}

#[test]
fn a_namespace_that_has_its_quota_is_told_so_whatever_pools_of_others_say() {
    let mut world = World::new([
        only_for("bank", pool("banks", &["198.51.100.0/24"])),
        Pool { per_namespace_quota: Some(2), ..pool("p", &["192.0.2.0/24"]) },
    ]);
    let late = |key| AddressRequest { created: 5, ..service(key) };
    world.with([service("shop/a"), service("shop/b"), late("shop/c")]);
    assert_eq!(world.reason("shop/c"), Reason::QuotaReached);
    assert_eq!(
        told(&world, "shop/c"),
        "pool \"banks\": not for this namespace; pool \"p\": the namespace has 2 of the 2 addresses \
         of its quota; give up an address of this namespace, or raise the pool's perNamespaceQuota"
    );
}

#[test]
fn who_names_no_pool_where_none_is_for_all_is_told_of_those_there_are() {
    let mut world = World::new([]);
    world.with([service("shop/web")]);
    assert_eq!(world.reason("shop/web"), Reason::NoPool);
    let helps = "create an AddressPool with `autoAssign: true`, or name a pool or a load balancer";
    assert_eq!(told(&world, "shop/web"), format!("there is no AddressPool; {helps}"));
    world.put_pool(Pool { auto_assign: false, ..pool("own", &["192.0.2.0/30"]) });
    world.put_pool(Pool { deleting: true, ..pool("old", &["192.0.2.4/30"]) });
    assert_eq!(world.reason("shop/web"), Reason::NoPool);
    assert_eq!(
        told(&world, "shop/web"),
        format!(
            "no AddressPool allows automatic assignment: pool \"old\": is being deleted; pool \
             \"own\": is used only when it is named (autoAssign is off); {helps}"
        )
    );
}

#[test]
fn who_no_longer_asks_for_an_address_is_told_that_it_gave_it_up() {
    let mut world = World::new([pool("p", &["192.0.2.0/30"])]);
    world.with([service("shop/web")]);
    world.notices.clear();
    world.edit("shop/web", |request| request.ask = Ok(Ask::Nothing));
    assert_eq!(
        world.notices,
        [
            "shop/web AddressReleased: released 192.0.2.0: it no longer asks for an address of a pool"
        ]
    );
    assert_eq!(world.held(), []);
}

#[test]
fn who_showed_another_address_is_told_from_which_to_which_and_why() {
    let shows = |address: &str, request: AddressRequest| AddressRequest {
        status: ips(&[address]),
        ..request
    };
    let mut world = World::new([pool("p", &["192.0.2.0/30"])]);
    world.resolve("web.example.com", &["192.0.2.3"]);
    world.with([
        shows("203.0.113.7", service("shop/foreign")),
        shows("127.0.0.1", asks("192.0.2.2", "shop/asks")),
        shows(
            "192.0.2.0",
            AddressRequest { families: Families::Prefer(Family::V4), ..service("shop/same") },
        ),
    ]);
    let expected = [
        "shop/asks AddressChanged: changed from 127.0.0.1 to 192.0.2.2 of pool p: it asks for another address",
        "shop/foreign AddressChanged: changed from 203.0.113.7 to 192.0.2.1 of pool p: 203.0.113.7 \
         is in no pool",
        "shop/same AddressAssigned: assigned 192.0.2.0 of pool p",
    ];
    let mut told = world.notices.clone();
    told.sort();
    assert_eq!(told, expected);
}

#[test]
fn the_pools_before_the_one_that_somebody_has_are_told_with_the_reason() {
    let mut world = World::new([
        pool("a-full", &["192.0.2.1/32"]),
        only_for("bank", pool("b-banks", &["192.0.2.8/32"])),
        pool("c-good", &["198.51.100.0/31"]),
        Pool { auto_assign: false, ..pool("d-own", &["203.0.113.0/24"]) },
    ]);
    world.with([service("shop/first"), AddressRequest { created: 1, ..service("shop/web") }]);
    let passed = |world: &World, key: &str| -> Vec<String> {
        let holder = &world.request(key).holder;
        let passed = world.machine.passed_over(holder).into_iter();
        passed.map(|it| format!("{}: {}", it.pool, it.why)).collect()
    };
    let (full, banks) = ("a-full: no free IPv4 address", "b-banks: not for this namespace");
    assert_eq!(passed(&world, "shop/first"), [banks], "pools for somebody come first");
    assert_eq!(passed(&world, "shop/web"), [banks, full]);
    world.with([
        AddressRequest { created: 2, ..service("shop/next") },
        of_pool("a-full", "shop/named"),
    ]);
    world.with([
        AddressRequest { created: 3, ..service("shop/none") },
        asks("203.0.113.1", "shop/asks"),
        AddressRequest { ask: Ok(Ask::Nothing), ..service("shop/nothing") },
    ]);
    let good = "c-good: no free IPv4 address";
    let by_name = "d-own: is used only when it is named (autoAssign is off)";
    assert_eq!(passed(&world, "shop/none"), [banks, full, good, by_name]);
    let other = |pool: &str| format!("{pool}: another pool is asked for");
    assert_eq!(
        passed(&world, "shop/named"),
        [other("b-banks"), full.to_owned(), other("c-good"), other("d-own")]
    );
    let without = |pool: &str| format!("{pool}: does not have the address that is asked for");
    let before = ["b-banks", "a-full", "c-good"].map(without);
    assert_eq!(passed(&world, "shop/asks"), before, "it has one of the last");
    assert_eq!(passed(&world, "shop/nothing"), Vec::<String>::new());
}
