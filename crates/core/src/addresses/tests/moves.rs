//! Moves from one address to another: the old one goes when the new one is in its place. And on
//! which load balancer a holder is recorded.

use super::make::*;
use crate::addresses::*;

fn on(load_balancer: &str, request: AddressRequest) -> AddressRequest {
    AddressRequest { load_balancer: Some(load_balancer.into()), ..request }
}

fn sharer(key: &str, at: i64, ports: &[u16]) -> AddressRequest {
    AddressRequest { created: at, sharing: sharing("k", ports), ..service(key) }
}

fn world() -> World {
    World::new([pool("p", &["192.0.2.0/24"]), pool("q", &["198.51.100.0/24"])])
}

/// A Service whose load balancer has been away since its status was written.
fn put_behind(world: &mut World, key: &str, shown: &str) {
    let holder = world.request(key).holder.clone();
    let mut request = world.request(key).clone();
    request.status = ips(&[shown]);
    world.put(request);
    world.tell(Event::Shown { holder, addresses: ips(&[shown]) });
}

/// Lets the machine and the API come to rest, without any status being written.
fn record_only(world: &mut World) {
    loop {
        let changes = world.machine.take(world.now);
        let quiet = changes.writes.is_empty() && changes.decisions.is_empty();
        for write in changes.writes {
            let result = world.perform(&write);
            world.tell(Event::Written { id: write.id, result });
            world.echo(write.address);
        }
        for (holder, decision) in changes.decisions {
            world.decisions.extend(decision.map(|it| (holder, it)));
        }
        if quiet {
            return;
        }
    }
}

fn draining(world: &World, key: &str) -> Vec<IpAddr> {
    world.decision(key).draining.iter().map(|it| it.address).collect()
}

#[test]
fn every_move_leaves_the_old_address_draining_for_the_grace() {
    let mut world = world();
    world.with([AddressRequest { ask: addresses(&["192.0.2.7"]), ..service("shop/web") }]);
    world.edit("shop/web", |request| request.ask = Ok(Ask::Pool("q".into())));
    assert_eq!(world.has("shop/web"), ips(&["198.51.100.0"]));
    assert_eq!(draining(&world, "shop/web"), ips(&["192.0.2.7"]));
    assert_eq!(
        world.records[&ip("192.0.2.7")].content.state,
        AddressState::Draining { until: 1_060 }
    );
    world.pass(GRACE);
    assert_eq!(world.held(), [("198.51.100.0".to_owned(), vec!["shop/web".to_owned()])]);

    world.put_pool(pool("q", &["198.51.100.8/29"]));
    assert_eq!(world.has("shop/web"), ips(&["198.51.100.8"]), "its address is in no pool");
    assert_eq!(draining(&world, "shop/web"), ips(&["198.51.100.0"]));
    world.restart();
    world.run();
    assert_eq!(draining(&world, "shop/web"), ips(&["198.51.100.0"]), "a grace outlasts a restart");
    world.pass(GRACE);
    assert_eq!(world.held(), [("198.51.100.8".to_owned(), vec!["shop/web".to_owned()])]);
}

#[test]
fn who_has_no_other_address_loses_one_that_is_in_no_pool_at_once() {
    let mut world = World::new([pool("p", &["192.0.2.0/24"])]);
    world.with([service("shop/web")]);
    world.remove_pool("p");
    assert_eq!((world.has("shop/web"), draining(&world, "shop/web")), (vec![], vec![]));
    assert_eq!(world.held(), []);
}

#[test]
fn an_old_address_stays_after_its_grace_until_the_new_one_is_shown() {
    let mut world = world();
    world.with([on("edge", service("shop/web"))]);
    let mut request = world.request("shop/web").clone();
    request.ask = Ok(Ask::Pool("q".into()));
    world.put(request);
    record_only(&mut world);
    world.now += 10 * GRACE;
    record_only(&mut world);
    assert_eq!(world.has("shop/web"), ips(&["198.51.100.0"]));
    assert_eq!(draining(&world, "shop/web"), ips(&["192.0.2.0"]), "the agent is away");
    put_behind(&mut world, "shop/web", "198.51.100.0");
    record_only(&mut world);
    assert_eq!(draining(&world, "shop/web"), ips(&["192.0.2.0"]), "its grace begins");
    let until = world.now + GRACE;
    let state = world.records[&ip("192.0.2.0")].content.state;
    assert_eq!(state, AddressState::Draining { until });
    world.now += GRACE - 1;
    put_behind(&mut world, "shop/web", "198.51.100.0");
    record_only(&mut world);
    assert_eq!(draining(&world, "shop/web"), ips(&["192.0.2.0"]), "it has one grace");
    world.now += 1;
    record_only(&mut world);
    assert_eq!(draining(&world, "shop/web"), ips(&[]));
    put_behind(&mut world, "shop/web", "198.51.100.0");
    record_only(&mut world);
    assert_eq!(world.held(), [("198.51.100.0".to_owned(), vec!["shop/web".to_owned()])]);
}

#[test]
fn a_pool_of_another_family_is_a_move_like_any_other() {
    let pools = [pool("p", &["192.0.2.0/24"]), pool("q", &["2001:db8::/64"]), pool("r", &[])];
    let game = AddressRequest {
        families: Families::OfPool,
        ask: Ok(Ask::Pool("p".into())),
        ..external_ip("shop/game")
    };
    for (key, request) in [("edge", load_balancer("edge", "p")), ("shop/game", game)] {
        let mut world = World::new(pools.clone());
        world.with([request]);
        world.edit(key, |request| request.ask = Ok(Ask::Pool("r".into())));
        assert_eq!(world.has(key), ips(&["192.0.2.0"]), "there is nothing in that pool");
        let mut request = world.request(key).clone();
        request.ask = Ok(Ask::Pool("q".into()));
        world.put(request);
        let changes = world.machine.take(world.now);
        assert_eq!(
            world.machine.decision(&world.request(key).holder).map(|it| it.addresses.len()),
            Some(1)
        );
        world.carry_out(changes);
        world.run();
        assert_eq!(world.has(key), ips(&["2001:db8::"]));
        assert_eq!(draining(&world, key), ips(&["192.0.2.0"]));
        world.pass(GRACE);
        assert_eq!(world.held().len(), 1);

        world.put_pool(pool("q", &["198.51.100.0/24"]));
        assert_eq!(world.has(key), ips(&["198.51.100.0"]), "its pool has another family");
        assert_eq!(draining(&world, key), ips(&["2001:db8::"]));
        world.pass(GRACE);
        assert_eq!(world.held().len(), 1);
    }
}

#[test]
fn an_old_address_that_nothing_shows_goes_when_its_grace_is_over() {
    let mut world = world();
    world.with([on("edge", service("shop/web"))]);
    let mut request = world.request("shop/web").clone();
    request.ask = Ok(Ask::Pool("q".into()));
    request.status = Vec::new();
    world.put(request);
    record_only(&mut world);
    assert_eq!(draining(&world, "shop/web"), ips(&["192.0.2.0"]));
    world.now += GRACE;
    record_only(&mut world);
    assert_eq!(draining(&world, "shop/web"), ips(&[]), "it cannot be served anywhere");
}

#[test]
fn a_draining_address_that_somebody_deletes_is_made_again_for_its_drain() {
    let mut world = world();
    world.with([service("shop/web")]);
    world.edit("shop/web", |request| request.ask = Ok(Ask::Pool("q".into())));
    let before = world.records[&ip("192.0.2.0")].content.clone();
    assert_eq!(before.state, AddressState::Draining { until: 1_060 });
    world.records.remove(&ip("192.0.2.0"));
    world.echo(ip("192.0.2.0"));
    world.run();
    assert_eq!(world.records.get(&ip("192.0.2.0")).map(|it| &it.content), Some(&before));
    world.pass(GRACE);
    assert_eq!(world.held(), [("198.51.100.0".to_owned(), vec!["shop/web".to_owned()])]);
}

#[test]
fn a_deleted_address_of_one_who_is_gone_is_made_again_while_something_serves_it() {
    let mut world = world();
    world.with([on("edge", service("shop/web"))]);
    let holder = world.request("shop/web").holder.clone();
    let places = served("edge", "192.0.2.0");
    world.tell(Event::Serving { holder: holder.clone(), places });
    world.remove("shop/web");
    world.run();
    world.records.remove(&ip("192.0.2.0"));
    world.echo(ip("192.0.2.0"));
    world.run();
    assert_eq!(world.held(), [("192.0.2.0".to_owned(), vec!["shop/web".to_owned()])]);
    world.tell(Event::Serving { holder: holder.clone(), places: Vec::new() });
    world.run();
    assert_eq!(world.held(), []);

    world.with([on("edge", service("shop/web"))]);
    world.remove("shop/web");
    world.records.remove(&ip("192.0.2.0"));
    world.echo(ip("192.0.2.0"));
    world.run();
    assert_eq!(world.held(), [], "nobody serves it");
    world.requests.clear();
    world.relist();
    world.run();
    assert!(world.machine.is_empty());
}

#[test]
fn only_those_on_one_load_balancer_or_on_none_share_an_address() {
    let mut world = world();
    world.with([on("edge", sharer("shop/a", 0, &[80]))]);
    let ask = || addresses(&["192.0.2.0"]);
    world.with([
        on("edge", AddressRequest { ask: ask(), ..sharer("shop/b", 1, &[81]) }),
        on("core", AddressRequest { ask: ask(), ..sharer("shop/c", 2, &[82]) }),
        AddressRequest { ask: ask(), ..sharer("shop/d", 3, &[83]) },
    ]);
    assert_eq!(world.has("shop/b"), ips(&["192.0.2.0"]));
    let message =
        "pool \"p\": 192.0.2.0 is held by Service shop/a, which has it on load balancer \"edge\"";
    for key in ["shop/c", "shop/d"] {
        assert_eq!((world.has(key), world.message(key)), (vec![], message));
    }
}

#[test]
fn who_goes_to_another_load_balancer_alone_loses_a_shared_address_and_two_together_keep_it() {
    let mut world = world();
    world.with([on("edge", sharer("shop/a", 0, &[80])), on("edge", sharer("shop/b", 1, &[81]))]);
    world.put(on("core", sharer("shop/a", 0, &[80])));
    world.put(on("core", sharer("shop/b", 1, &[81])));
    world.run();
    assert_eq!(world.held()[0], ("192.0.2.0".into(), vec!["shop/a".into(), "shop/b".into()]));
    world.edit("shop/a", |request| request.load_balancer = Some("edge".into()));
    assert_eq!(world.has("shop/a"), ips(&["192.0.2.1"]));
    assert_eq!(draining(&world, "shop/a"), ips(&[]), "it must not be served at both");
    assert_eq!(world.has("shop/b"), ips(&["192.0.2.0"]));
}

#[test]
fn who_is_on_a_load_balancer_is_recorded_with_it() {
    let mut world = world();
    world.with([
        on("edge", service("shop/web")),
        load_balancer("core", "q"),
        AddressRequest { created: 1, ..service("shop/alone") },
    ]);
    let places: Vec<_> = world.machine.places().collect();
    let (web, core) = (&world.request("shop/web").holder, &world.request("core").holder);
    let expected = [
        (web, &Arc::from("edge"), ip("192.0.2.0")),
        (core, &Arc::from("core"), ip("198.51.100.0")),
    ];
    assert_eq!(places, expected);
}

#[test]
fn who_changes_place_is_recorded_at_the_old_one_until_nothing_is_served_there() {
    let mut world = world();
    world.with([on("edge", service("shop/web"))]);
    let holder = world.request("shop/web").holder.clone();
    let serve = |world: &mut World, places: &[&str]| {
        let places = places.iter().flat_map(|it| served(it, "192.0.2.0")).collect();
        world.tell(Event::Serving { holder: holder.clone(), places });
        world.run();
    };
    let place = |world: &World| {
        world.records[&ip("192.0.2.0")].content.holders[0]
            .load_balancer
            .as_deref()
            .map(str::to_owned)
    };
    serve(&mut world, &["edge"]);
    world.edit("shop/web", |request| request.load_balancer = Some("core".into()));
    assert_eq!(place(&world).as_deref(), Some("edge"));
    serve(&mut world, &["core", "edge"]);
    world.edit("shop/web", |request| request.load_balancer = None);
    assert_eq!(place(&world).as_deref(), Some("edge"));
    serve(&mut world, &["core"]);
    assert_eq!(place(&world).as_deref(), Some("core"), "it was there meanwhile");
    serve(&mut world, &[]);
    assert_eq!((place(&world), world.has("shop/web")), (None, ips(&["192.0.2.0"])));
}

#[test]
fn of_two_who_were_recorded_without_their_places_only_the_later_one_loses() {
    let mut world = world();
    world.with([sharer("shop/a", 0, &[80]), sharer("shop/b", 1, &[81])]);
    world.pass(1);
    let [a, b] = [("edge", "shop/a"), ("core", "shop/b")]
        .map(|(place, key)| on(place, world.request(key).clone()));
    world.requests = [a, b].map(|it| ((it.holder.kind, it.holder.key.clone()), it)).into();
    world.restart();
    world.run();
    assert_eq!(world.has("shop/a"), ips(&["192.0.2.0"]));
    assert_eq!(world.has("shop/b"), ips(&["192.0.2.1"]));
}

#[test]
fn who_leaves_an_address_that_drains_for_another_has_a_grace_of_its_own() {
    let mut world = world();
    world.with([sharer("shop/a", 0, &[80]), sharer("shop/b", 1, &[81])]);
    world.edit("shop/a", |request| request.ask = Ok(Ask::Pool("q".into())));
    world.pass(GRACE - 1);
    world.edit("shop/b", |request| request.ask = Ok(Ask::Pool("q".into())));
    world.pass(GRACE - 1);
    assert_eq!(draining(&world, "shop/b"), ips(&["192.0.2.0"]));
    world.pass(1);
    assert_eq!(draining(&world, "shop/b"), ips(&[]));
}
