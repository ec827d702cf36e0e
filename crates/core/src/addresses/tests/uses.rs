//! What tenants use without a grant makes an address taken only if its pool would grant it to them.

use super::make::*;
use crate::addresses::uses::MOST_USES;
use crate::addresses::*;
use crate::objects::{LabelSelector, Namespace, Operator, Requirement};
use crate::outcome::Reason;

/// A Service that asks for no address and has these in `externalIPs`.
fn user(key: &str, uses: &[&str]) -> AddressRequest {
    AddressRequest { ask: Ok(Ask::Nothing), uses: ips(uses), ..service(key) }
}

fn quota(of: u32, entries: &[&str]) -> Pool {
    Pool { per_namespace_quota: Some(of), ..pool("p", entries) }
}

const FOUR: [&str; 4] = ["192.0.2.0", "192.0.2.1", "192.0.2.2", "192.0.2.3"];

#[test]
fn uses_beyond_the_quota_take_nothing_from_others() {
    let mut world = World::new([quota(2, &["192.0.2.0/30"])]);
    world.with([user("evil/all", &FOUR), service("shop/a"), service("shop/b")]);
    assert_eq!(world.has("shop/a"), ips(&["192.0.2.2"]));
    assert_eq!(world.has("shop/b"), ips(&["192.0.2.3"]));
    assert!(world.told().contains(
        &"evil/all AddressIgnored: 192.0.2.2, 192.0.2.3 in externalIPs or status is ignored and may be granted \
            to others, because no pool would grant it: pool \"p\": the namespace has 2 of the 2 addresses of \
            its quota"
            .to_owned()
    ));
    // Uses that count are part of the quota.
    world.with([service("evil/asks")]);
    assert_eq!(world.reason("evil/asks"), Reason::QuotaReached);
    world.remove("evil/all");
    world.run();
    assert_eq!(world.has("evil/asks"), ips(&["192.0.2.0"]));
}

#[test]
fn uses_of_a_pool_for_others_do_not_count() {
    let gold = Requirement { key: "tier".into(), operator: Operator::In(vec!["gold".into()]) };
    let mut to = AllocateTo {
        namespaces: vec!["shop".into()],
        namespace_selectors: vec![LabelSelector { requirements: vec![gold] }],
        ..AllocateTo::default()
    };
    let pinned = |to: &AllocateTo| Pool { allocate_to: to.clone(), ..pool("p", &["192.0.2.0/31"]) };
    let mut world = World::new([pinned(&to)]);
    world.with([user("bank/all", &FOUR[..2]), service("shop/a")]);
    assert_eq!(world.has("shop/a"), ips(&["192.0.2.0"]));
    assert_eq!(world.machine.ledger.uses.of("bank"), [].into());
    // The labels of the namespace allow it, and then no longer.
    let label = |tier: &str| Namespace {
        name: "bank".into(),
        labels: [("tier".into(), tier.into())].into(),
    };
    for (tier, counted) in [("gold", ips(&["192.0.2.1"])), ("tin", vec![])] {
        world.tell(Event::Apply(Box::new(Object::Namespace(label(tier)))));
        world.run();
        assert_eq!(world.machine.ledger.uses.of("bank"), counted.into_iter().collect());
    }
    to.namespaces.push("bank".into());
    world.put_pool(pinned(&to));
    assert_eq!(world.machine.ledger.uses.of("bank"), ips(&["192.0.2.1"]).into_iter().collect());
}

#[test]
fn a_service_must_fit_the_pools_service_selectors() {
    let web = Requirement { key: "app".into(), operator: Operator::In(vec!["web".into()]) };
    let to = AllocateTo {
        service_selectors: vec![LabelSelector { requirements: vec![web] }],
        ..AllocateTo::default()
    };
    let mut world = World::new([Pool { allocate_to: to, ..pool("p", &["192.0.2.0/31"]) }]);
    world.with([user("bank/all", &FOUR[..1])]);
    assert_eq!(world.machine.ledger.uses.of("bank"), [].into());
    world.edit("bank/all", |request| request.labels = [("app".into(), "web".into())].into());
    assert_eq!(world.machine.ledger.uses.of("bank"), [ip("192.0.2.0")].into());
}

#[test]
fn a_use_of_what_another_namespace_has_is_ignored_until_that_one_lets_go() {
    let mut world = World::new([pool("p", &["192.0.2.0/31"])]);
    let shares = |key, port| AddressRequest { sharing: sharing("k", &[port]), ..service(key) };
    world.with([shares("shop/a", 80)]);
    world.with([user("evil/all", &["192.0.2.0"])]);
    assert!(world.told().contains(
        &"evil/all AddressIgnored: 192.0.2.0 in externalIPs or status is ignored and may be granted to others, \
            because no pool would grant it: pool \
          \"p\": Service shop/a uses 192.0.2.0"
            .to_owned()
    ));
    // The use keeps no Service from sharing the address.
    world.with([shares("shop/b", 81)]);
    assert_eq!(world.has("shop/b"), ips(&["192.0.2.0"]));
    world.remove("shop/a");
    world.remove("shop/b");
    world.run();
    assert_eq!(world.machine.ledger.uses.of("evil"), [ip("192.0.2.0")].into());
    world.with([service("shop/c")]);
    assert_eq!(world.has("shop/c"), ips(&["192.0.2.1"]));
}

#[test]
fn of_a_freed_address_those_that_wait_come_before_uses_that_were_ignored() {
    for reuse_after in [0, 60] {
        let mut world = World::new([Pool { reuse_after, ..pool("p", &["192.0.2.0/31"]) }]);
        world.with([service("shop/a"), service("shop/b")]);
        world.with([user("evil/all", &FOUR[..2])]);
        world.with([AddressRequest { created: 5, ..service("shop/c") }]);
        assert_eq!(world.has("shop/c"), ips(&[]));
        world.remove("shop/a");
        world.run();
        // A use that begins while the address rests does not count either.
        world.with([user("evil/new", &FOUR[..2])]);
        world.pass(reuse_after);
        assert_eq!(world.has("shop/c"), ips(&["192.0.2.0"]), "after {reuse_after} s");
        assert_eq!(world.machine.ledger.uses.of("evil"), [].into());
        // No Service waits any more: now the uses count.
        world.remove("shop/b");
        world.run();
        world.pass(reuse_after);
        assert_eq!(world.machine.ledger.uses.of("evil"), [ip("192.0.2.1")].into());
    }
}

#[test]
fn holders_come_before_uses_after_a_restart() {
    let mut world = World::new([quota(1, &["192.0.2.0/30"])]);
    world.with([service("evil/a")]);
    world.with([user("evil/all", &FOUR)]);
    let counted = |world: &World| world.machine.ledger.uses.of("evil");
    // An address that its namespace has anyway takes no more of the quota.
    assert_eq!(counted(&world), [ip("192.0.2.0")].into());
    world.restart();
    world.run();
    assert_eq!(counted(&world), [ip("192.0.2.0")].into());
    world.remove("evil/a");
    world.run();
    assert_eq!(counted(&world), [ip("192.0.2.0")].into());
    world.with([service("shop/a")]);
    assert_eq!(world.has("shop/a"), ips(&["192.0.2.1"]));
}

#[test]
fn two_services_of_a_namespace_use_one_address_once() {
    let mut world = World::new([quota(1, &["192.0.2.0/30"])]);
    world.with([user("evil/a", &FOUR[..1]), user("evil/b", &FOUR[..2])]);
    assert_eq!(world.machine.ledger.uses.of("evil"), [ip("192.0.2.0")].into());
    world.remove("evil/a");
    world.run();
    assert_eq!(world.machine.ledger.uses.of("evil"), [ip("192.0.2.0")].into());
    world.remove("evil/b");
    world.run();
    assert!(world.machine.is_empty());
}

#[test]
fn load_balancers_and_nodes_use_what_they_have() {
    let mut world = World::new([quota(0, &["192.0.2.0/30"])]);
    let mut fixed = load_balancer("edge", "p");
    (fixed.ask, fixed.uses) = (Ok(Ask::Nothing), ips(&FOUR[..2]));
    let node = Object::Node { name: "worker".into(), addresses: ips(&["192.0.2.2"]) };
    world.tell(Event::Apply(Box::new(node)));
    world.with([fixed, load_balancer("inner", "p")]);
    assert_eq!(world.has("inner"), ips(&["192.0.2.3"]));
}

#[test]
fn a_service_is_told_once_of_what_is_ignored() {
    let mut world = World::new([quota(0, &["192.0.2.0/24"])]);
    let told =
        |world: &mut World| world.told().iter().filter(|it| it.contains("AddressIgnored")).count();
    let all: Vec<IpAddr> =
        (0..=255).map(|last| std::net::Ipv4Addr::new(192, 0, 2, last).into()).collect();
    world.with([AddressRequest { uses: all, ..user("evil/all", &[]) }]);
    let notices = world.told();
    assert_eq!(
        notices,
        [
            "evil/all AddressIgnored: 192.0.2.0, 192.0.2.1, 192.0.2.2 and 253 more in externalIPs or status is \
             ignored and may be granted to others, because no pool would grant it: pool \"p\": the namespace \
             has 0 of the 0 addresses of its quota"
        ]
    );
    world.relist();
    world.run();
    world.edit("evil/all", |request| _ = request.uses.pop());
    assert_eq!(told(&mut world), 0);
    world.edit("evil/all", |request| request.uses.push(ip("192.0.2.255")));
    assert_eq!(told(&mut world), 1);
}

#[test]
fn of_one_service_so_many_uses_are_looked_at() {
    let mut world = World::new([pool("p", &["192.0.2.0/23"])]);
    let all = (0..=1).flat_map(|third| {
        (0..=255).map(move |last| std::net::Ipv4Addr::new(192, 0, 2 + third, last).into())
    });
    world
        .with([AddressRequest { uses: all.collect(), ..user("evil/all", &[]) }, service("shop/a")]);
    assert_eq!(world.machine.ledger.uses.of("evil").len(), MOST_USES);
    assert_eq!(world.has("shop/a"), ips(&["192.0.3.0"]));
    let told = world.told();
    let ignored = "evil/all AddressIgnored: 192.0.3.0 in externalIPs or status is ignored and may be granted to \
        others, because no pool would grant it: pool \"p\": only the first 256 addresses that are used without \
        a grant are looked at";
    assert!(told.iter().any(|it| it == ignored), "{told:?}");
}

#[test]
fn a_grant_in_one_namespace_looks_at_no_uses_of_another() {
    let mut world = World::new([quota(2, &["192.0.0.0/16"])]);
    let users = (0..50).map(|at| user(&format!("bank/u{at}"), &FOUR));
    world.with(users);
    let before = world.machine.visited();
    world.with([service("shop/a")]);
    let one = world.machine.visited() - before;
    assert!(one < 10, "{one}");
}
