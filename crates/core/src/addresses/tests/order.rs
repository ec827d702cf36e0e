//! The order of decisions for one holder, clause by clause.

use super::make::*;
use crate::addresses::*;
use crate::objects::{Family, LabelSelector, Namespace, Operator, Requirement};
use crate::outcome::{Problem, Reason};

const NONE: [IpAddr; 0] = [];

fn created(created: i64, request: AddressRequest) -> AddressRequest {
    AddressRequest { created, ..request }
}

#[test]
fn a_service_gets_the_lowest_free_address_and_is_told_once() {
    let mut world = World::new([pool("public", &["192.0.2.4-192.0.2.9"])]);
    world.with([service("shop/web"), created(1, service("shop/api"))]);
    assert_eq!(world.has("shop/web"), ips(&["192.0.2.4"]));
    assert_eq!(world.has("shop/api"), ips(&["192.0.2.5"]));
    assert_eq!(world.message("shop/web"), "192.0.2.4 of pool public");
    assert_eq!(world.reason("shop/web"), Reason::Assigned);
    assert_eq!(
        world.told(),
        [
            "shop/web AddressAssigned: assigned 192.0.2.4 of pool public",
            "shop/api AddressAssigned: assigned 192.0.2.5 of pool public",
        ]
    );
    world.relist();
    world.run();
    assert_eq!(world.told(), Vec::<String>::new());
}

#[test]
fn what_somebody_has_stays_when_others_come_and_go() {
    let mut world = World::new([pool("public", &["192.0.2.0/24"])]);
    world.with([service("shop/a"), created(1, service("shop/b")), created(2, service("shop/c"))]);
    world.remove("shop/a");
    world.run();
    world.with([created(-5, service("shop/older"))]);
    assert_eq!(world.has("shop/b"), ips(&["192.0.2.1"]));
    assert_eq!(world.has("shop/c"), ips(&["192.0.2.2"]));
    assert_eq!(world.has("shop/older"), ips(&["192.0.2.0"]));
}

#[test]
fn a_request_is_granted_also_from_a_pool_without_auto_assign() {
    let mut world = World::new([Pool { auto_assign: false, ..pool("vips", &["192.0.2.0/24"]) }]);
    world.with([
        AddressRequest { ask: addresses(&["192.0.2.7"]), ..service("shop/web") },
        service("shop/any"),
    ]);
    assert_eq!(world.has("shop/web"), ips(&["192.0.2.7"]));
    assert_eq!((world.has("shop/any"), world.reason("shop/any")), (vec![], Reason::NoPool));
}

#[test]
fn a_request_moves_a_service_once_its_new_address_is_recorded() {
    let mut world = World::new([pool("public", &["192.0.2.0/24"])]);
    world.with([service("shop/web")]);
    world.told();
    let mut moved = world.request("shop/web").clone();
    moved.ask = addresses(&["192.0.2.9"]);
    world.put(moved);
    let changes = world.machine.take(world.now);
    assert_eq!(changes.writes.len(), 1, "the old one is not released: {:?}", changes.writes);
    assert_eq!(changes.decisions, [], "and is shown meanwhile");
    world.carry_out(changes);
    world.run();
    assert_eq!(world.has("shop/web"), ips(&["192.0.2.9"]));
    world.pass(GRACE);
    assert_eq!(world.held(), [("192.0.2.9".into(), vec!["shop/web".into()])]);
    assert_eq!(
        world.told(),
        [
            "shop/web AddressChanged: changed from 192.0.2.0 to 192.0.2.9 of pool public: it asks for another address"
        ]
    );
}

#[test]
fn an_invalid_request_on_a_service_with_a_good_address_changes_nothing_but_the_condition() {
    let mut world = World::new([
        Pool { created: -1, ..pool("public", &["192.0.2.0/24"]) },
        pool("bad", &["192.0.2.128/25"]),
    ]);
    world.with([service("shop/web"), created(1, service("shop/other"))]);
    world.told();
    for (ask, reason, message) in [
        (addresses(&["198.51.100.1"]), Reason::NotInPool, "198.51.100.1 is in no pool"),
        (
            addresses(&["192.0.2.1"]),
            Reason::AddressTaken,
            "pool \"public\": 192.0.2.1 is held by Service shop/other, which does not share it under \
             the same key",
        ),
        (
            addresses(&["2001:db8::1"]),
            Reason::WrongFamily,
            "2001:db8::1 is IPv6, which the Service does not have",
        ),
        (
            Ok(Ask::Pool("nope".into())),
            Reason::PoolNotFound,
            "pool \"nope\": there is no such pool",
        ),
        (
            Ok(Ask::Pool("bad".into())),
            Reason::PoolNotUsed,
            "pool \"bad\": not used, because it overlaps the older pool \"public\"",
        ),
        (
            Err(Problem::new(Reason::BadValue, "bowline.dev/vip: \"x\" is no address")),
            Reason::BadValue,
            "bowline.dev/vip: \"x\" is no address",
        ),
    ] {
        world.edit("shop/web", |request| request.ask = ask);
        assert_eq!(world.has("shop/web"), ips(&["192.0.2.0"]), "{message}");
        assert_eq!((world.reason("shop/web"), world.message("shop/web")), (reason, message));
        assert!(world.decision("shop/web").verdict.remedy.is_some());
    }
    world.edit("shop/web", |request| request.ask = Ok(Ask::Any));
    assert_eq!(world.reason("shop/web"), Reason::Assigned);
    assert_eq!(world.told(), Vec::<String>::new());
}

#[test]
fn of_an_unreadable_request_nothing_new_is_given() {
    let mut world = World::new([pool("public", &["192.0.2.0/24"])]);
    let ask = Err(Problem::new(Reason::BadValue, "unreadable"));
    world.with([AddressRequest { ask, status: ips(&["192.0.2.3"]), ..service("shop/web") }]);
    assert_eq!(world.has("shop/web"), NONE);
    assert_eq!(world.held(), []);
}

#[test]
fn a_request_waits_for_its_address_and_gets_it_when_it_is_free() {
    let mut world = World::new([pool("public", &["192.0.2.0/24"])]);
    world.with([service("shop/a")]);
    world
        .with([AddressRequest { ask: addresses(&["192.0.2.0"]), ..created(1, service("shop/b")) }]);
    assert_eq!(world.has("shop/b"), NONE);
    world.remove("shop/a");
    world.run();
    assert_eq!(world.has("shop/b"), ips(&["192.0.2.0"]));
}

#[test]
fn a_named_pool_is_the_only_one_tried() {
    let small = Pool { auto_assign: false, ..pool("small", &["198.51.100.0/32"]) };
    let mut world = World::new([pool("public", &["192.0.2.0/24"]), small]);
    let ask = || Ok(Ask::Pool("small".into()));
    world.with([
        AddressRequest { ask: ask(), ..service("shop/a") },
        AddressRequest { ask: ask(), ..created(1, service("shop/b")) },
    ]);
    assert_eq!(world.has("shop/a"), ips(&["198.51.100.0"]));
    assert_eq!(world.has("shop/b"), NONE);
    assert_eq!(world.message("shop/b"), "pool \"small\": no free IPv4 address");
    assert_eq!(world.reason("shop/b"), Reason::PoolsExhausted);
}

#[test]
fn a_newly_named_pool_moves_the_service() {
    let mut world = World::new([pool("a", &["192.0.2.0/24"]), pool("b", &["198.51.100.0/24"])]);
    world.with([service("shop/web")]);
    assert_eq!(world.has("shop/web"), ips(&["192.0.2.0"]));
    world.edit("shop/web", |request| request.ask = Ok(Ask::Pool("b".into())));
    assert_eq!(world.has("shop/web"), ips(&["198.51.100.0"]));
    world.pass(GRACE);
    assert_eq!(world.held().len(), 1);
}

fn pinned(name: &str, entry: &str, priority: u32, namespaces: &[&str]) -> Pool {
    let namespaces = namespaces.iter().map(|it| (*it).into()).collect();
    let allocate_to = AllocateTo { priority, namespaces, ..AllocateTo::default() };
    Pool { allocate_to, ..pool(name, &[entry]) }
}

#[test]
fn pinned_pools_are_tried_by_priority_then_the_others_in_a_fixed_order() {
    let mut world = World::new([
        pinned("a-any", "10.0.0.0/32", 0, &[]),
        pinned("b-any-first", "10.0.0.1/32", 3, &[]),
        pinned("c-pinned-last", "10.0.0.2/32", 0, &["shop"]),
        pinned("d-pinned-first", "10.0.0.3/32", 1, &["shop"]),
        pinned("e-other", "10.0.0.4/32", 1, &["bank"]),
    ]);
    let names = ["shop/1", "shop/2", "shop/3", "shop/4", "shop/5"];
    world.with(names.iter().zip(0..).map(|(name, at)| created(at, service(name))));
    let got: Vec<_> = names.iter().flat_map(|name| world.has(name)).collect();
    assert_eq!(got, ips(&["10.0.0.3", "10.0.0.2", "10.0.0.1", "10.0.0.0"]));
    assert_eq!(
        world.message("shop/5"),
        "pool \"d-pinned-first\": no free IPv4 address; pool \"e-other\": not for this namespace; \
         pool \"c-pinned-last\": no free IPv4 address; pool \"b-any-first\": no free IPv4 address; \
         pool \"a-any\": no free IPv4 address"
    );
}

#[test]
fn labels_of_a_namespace_open_a_pool_to_those_who_wait() {
    let operator = Operator::In(vec!["gold".into()]);
    let gold = LabelSelector { requirements: vec![Requirement { key: "tier".into(), operator }] };
    let mut only = pool("gold", &["192.0.2.0/24"]);
    only.allocate_to.namespace_selectors = vec![gold];
    let mut world = World::new([only]);
    world.with([service("shop/web")]);
    assert_eq!(world.reason("shop/web"), Reason::NotAllowed);
    let labels: Labels = [("tier".into(), "gold".into())].into();
    let namespace = |labels| Object::Namespace(Namespace { name: "shop".into(), labels });
    world.tell(Event::Apply(Box::new(namespace(labels))));
    world.run();
    assert_eq!(world.has("shop/web"), ips(&["192.0.2.0"]));
    world.tell(Event::Apply(Box::new(namespace(Labels::new()))));
    world.run();
    assert_eq!(world.has("shop/web"), ips(&["192.0.2.0"]), "what was given stays");
}

#[test]
fn both_families_come_from_one_pool_if_one_has_both() {
    let mut world = World::new([
        pool("a", &["192.0.2.0/24"]),
        pool("b", &["198.51.100.0/24", "2001:db8::/64"]),
    ]);
    world.with([AddressRequest { families: Families::Prefer(Family::V6), ..service("shop/web") }]);
    assert_eq!(world.has("shop/web"), ips(&["2001:db8::", "198.51.100.0"]));
}

#[test]
fn both_families_come_from_two_pools_if_none_has_both() {
    let mut world = World::new([pool("a", &["192.0.2.0/24"]), pool("b", &["2001:db8::/64"])]);
    world.with([AddressRequest { families: Families::Require(Family::V4), ..service("shop/web") }]);
    assert_eq!(world.has("shop/web"), ips(&["192.0.2.0", "2001:db8::"]));
}

#[test]
fn one_who_prefers_both_takes_one_and_gets_the_other_when_it_can() {
    let mut world = World::new([pool("a", &["192.0.2.0/24"])]);
    world.with([AddressRequest { families: Families::Prefer(Family::V4), ..service("shop/web") }]);
    assert_eq!(world.has("shop/web"), ips(&["192.0.2.0"]));
    assert_eq!(
        (world.reason("shop/web"), world.message("shop/web")),
        (
            Reason::Assigned,
            "192.0.2.0 of pool a; no IPv6 address: pool \"a\": has no IPv6 addresses"
        )
    );
    world.put_pool(pool("b", &["2001:db8::/64"]));
    assert_eq!(world.has("shop/web"), ips(&["192.0.2.0", "2001:db8::"]));
}

#[test]
fn one_who_requires_both_gets_both_or_nothing() {
    let mut world = World::new([pool("a", &["192.0.2.0/24"])]);
    world.with([AddressRequest { families: Families::Require(Family::V4), ..service("shop/web") }]);
    assert_eq!(world.has("shop/web"), NONE);
    assert_eq!(world.held(), []);
    assert_eq!(world.message("shop/web"), "pool \"a\": has no IPv6 addresses");
    world.put_pool(pool("b", &["2001:db8::/64"]));
    assert_eq!(world.has("shop/web"), ips(&["192.0.2.0", "2001:db8::"]));
}

#[test]
fn one_who_comes_to_require_both_keeps_the_one_it_has() {
    let mut world = World::new([pool("a", &["192.0.2.0/24"])]);
    world.with([service("shop/web")]);
    world.edit("shop/web", |request| request.families = Families::Require(Family::V4));
    assert_eq!(world.has("shop/web"), ips(&["192.0.2.0"]));
    assert_eq!(world.reason("shop/web"), Reason::PoolsExhausted);
}

#[test]
fn a_family_that_is_no_longer_wanted_is_given_up() {
    let mut world = World::new([pool("a", &["192.0.2.0/24", "2001:db8::/64"])]);
    world.with([AddressRequest { families: Families::Require(Family::V4), ..service("shop/web") }]);
    world.told();
    world.edit("shop/web", |request| request.families = Families::One(Family::V6));
    assert_eq!(world.has("shop/web"), ips(&["2001:db8::"]));
    assert_eq!(world.held(), [("2001:db8::".into(), vec!["shop/web".into()])]);
    assert_eq!(
        world.told(),
        ["shop/web AddressLost: lost 192.0.2.0: it no longer asks for this IP family"]
    );
}

#[test]
fn a_request_for_one_family_leaves_the_other_to_the_pools() {
    let mut world = World::new([pool("a", &["192.0.2.0/24", "2001:db8::/64"])]);
    world.with([AddressRequest {
        ask: addresses(&["192.0.2.9"]),
        families: Families::Require(Family::V4),
        ..service("shop/web")
    }]);
    assert_eq!(world.has("shop/web"), ips(&["192.0.2.9", "2001:db8::"]));
}

#[test]
fn a_request_of_two_is_granted_whole_or_not_at_all() {
    let mut world = World::new([pool("a", &["192.0.2.0/24", "2001:db8::/64"])]);
    world.with([AddressRequest { ask: addresses(&["192.0.2.9"]), ..service("shop/first") }]);
    world.with([AddressRequest {
        ask: addresses(&["192.0.2.9", "2001:db8::9"]),
        families: Families::Prefer(Family::V4),
        ..created(1, service("shop/web"))
    }]);
    assert_eq!(world.has("shop/web"), NONE);
}

#[test]
fn a_load_balancer_gets_one_address_of_each_family_its_pool_has() {
    let mut world = World::new([
        pool("four", &["192.0.2.0/24"]),
        pool("both", &["198.51.100.0/24", "2001:db8::/64"]),
    ]);
    world.with([
        load_balancer("edge", "both"),
        load_balancer("old", "four"),
        load_balancer("lost", "none"),
    ]);
    assert_eq!(world.has("edge"), ips(&["198.51.100.0", "2001:db8::"]));
    assert_eq!(world.has("old"), ips(&["192.0.2.0"]));
    assert_eq!(world.reason("old"), Reason::Assigned);
    assert_eq!((world.has("lost"), world.reason("lost")), (vec![], Reason::PoolNotFound));
}

#[test]
fn each_external_ip_has_an_address_of_its_own() {
    let mut world = World::new([pool("public", &["192.0.2.0/24"])]);
    world.with([external_ip("shop/web-0"), external_ip("shop/web-1"), service("shop/web-0b")]);
    assert_eq!(world.has("shop/web-0"), ips(&["192.0.2.0"]));
    assert_eq!(world.has("shop/web-1"), ips(&["192.0.2.2"]));
    assert_eq!(world.has("shop/web-0b"), ips(&["192.0.2.1"]));
}
