//! Sharing one address, and how it ends.

use super::make::*;
use crate::addresses::*;
use crate::outcome::{Problem, Reason};

const NONE: [IpAddr; 0] = [];

fn sharer(key: &str, at: i64, ports: &[u16]) -> AddressRequest {
    AddressRequest { created: at, sharing: sharing("k", ports), ..service(key) }
}

fn world() -> World {
    World::new([pool("p", &["192.0.2.0/24"])])
}

#[test]
fn services_with_one_key_and_other_ports_share_an_address() {
    let mut world = world();
    world.with([
        sharer("shop/a", 0, &[80]),
        sharer("shop/b", 1, &[443]),
        sharer("shop/c", 2, &[80]),
    ]);
    assert_eq!(world.has("shop/a"), ips(&["192.0.2.0"]));
    assert_eq!(world.has("shop/b"), ips(&["192.0.2.0"]));
    assert_eq!(world.has("shop/c"), ips(&["192.0.2.1"]), "its port is taken on the first");
    world.with([sharer("shop/d", 3, &[443])]);
    assert_eq!(world.has("shop/d"), ips(&["192.0.2.1"]));
}

#[test]
fn a_request_shares_only_what_may_be_shared() {
    let mut world = world();
    world.with([sharer("shop/a", 0, &[80])]);
    let ask = || addresses(&["192.0.2.0"]);
    world.with([
        AddressRequest { ask: ask(), ..sharer("shop/b", 1, &[80]) },
        AddressRequest { ask: ask(), ..sharer("bank/c", 1, &[81]) },
        AddressRequest { ask: ask(), ..service("shop/d") },
        AddressRequest { ask: ask(), ..sharer("shop/e", 2, &[82]) },
    ]);
    for (key, why) in [
        ("shop/b", ", which also has port TCP 80"),
        ("bank/c", " of another namespace, and the pool does not allow sharing across namespaces"),
        ("shop/d", ", which does not share it under the same key"),
    ] {
        let message = format!("pool \"p\": 192.0.2.0 is held by Service shop/a{why}");
        assert_eq!((world.has(key), world.message(key)), (vec![], &*message));
    }
    assert_eq!(world.has("shop/e"), ips(&["192.0.2.0"]));
}

#[test]
fn namespaces_share_where_the_pool_allows_it() {
    let across = Pool { sharing_across_namespaces: true, ..pool("p", &["192.0.2.0/24"]) };
    let mut world = World::new([across]);
    world.with([sharer("shop/a", 0, &[80]), sharer("bank/b", 1, &[81])]);
    assert_eq!(world.has("bank/b"), world.has("shop/a"));
}

#[test]
fn an_address_that_is_shared_counts_once_for_the_quota() {
    let quota = Pool { per_namespace_quota: Some(1), ..pool("p", &["192.0.2.0/24"]) };
    let mut world = World::new([quota]);
    world.with([
        sharer("shop/a", 0, &[80]),
        sharer("shop/b", 1, &[81]),
        sharer("shop/c", 2, &[81]),
    ]);
    assert_eq!(world.has("shop/b"), ips(&["192.0.2.0"]));
    assert_eq!(world.reason("shop/c"), Reason::QuotaReached);
}

#[test]
fn the_service_whose_own_edit_breaks_the_sharing_loses() {
    for edit in [
        (|request| request.sharing = sharing("k", &[443])) as fn(&mut AddressRequest),
        |request| request.sharing = sharing("other", &[80]),
        |request| request.sharing = None,
        |request| {
            let one = ("app".into(), "a".into());
            request.sharing.as_mut().unwrap().selector = [one].into();
            request.sharing.as_mut().unwrap().local_only = true;
        },
    ] {
        let mut world = world();
        world.with([sharer("shop/a", 0, &[80]), sharer("shop/b", 1, &[443])]);
        world.told();
        // The older one edits: it loses the address all the same.
        world.edit("shop/a", edit);
        assert_eq!(world.has("shop/b"), ips(&["192.0.2.0"]));
        assert_eq!(world.has("shop/a"), ips(&["192.0.2.1"]));
        let told = world.told();
        assert!(told[0].starts_with(
            "shop/a AddressLost: lost 192.0.2.0: it can no longer share the address with Service shop/b"
        ));
        assert_eq!(told[1], "shop/a AddressAssigned: assigned 192.0.2.1 of pool p");
    }
}

#[test]
fn an_edit_that_keeps_the_sharing_valid_is_recorded() {
    let mut world = world();
    world.with([sharer("shop/a", 0, &[80]), sharer("shop/b", 1, &[443])]);
    world.edit("shop/a", |request| request.sharing = sharing("k", &[80, 8080]));
    assert_eq!(world.has("shop/a"), ips(&["192.0.2.0"]));
    let ports = &world.records[&ip("192.0.2.0")].content.holders[0].ports;
    assert_eq!(ports.iter().map(|it| it.number).collect::<Vec<_>>(), [80, 8080]);
}

#[test]
fn of_two_edits_in_one_batch_that_clash_the_younger_service_loses() {
    let mut world = world();
    world.with([sharer("shop/a", 0, &[80]), sharer("shop/b", 1, &[443])]);
    for key in ["shop/b", "shop/a"] {
        let mut request = world.request(key).clone();
        request.sharing = sharing("k", &[8080]);
        world.put(request);
    }
    world.run();
    assert_eq!(world.has("shop/a"), ips(&["192.0.2.0"]));
    assert_eq!(world.has("shop/b"), ips(&["192.0.2.1"]));
}

#[test]
fn where_nobody_knows_whose_edit_it_was_the_later_holder_loses() {
    let mut world = world();
    world.with([sharer("shop/b", 1, &[443])]);
    world.now += 1;
    world.with([sharer("shop/a", 0, &[80])]);
    for key in ["shop/a", "shop/b"] {
        let key = (HolderKind::Service, world.request(key).holder.key.clone());
        let request = world.requests.get_mut(&key).unwrap();
        let sharing = request.sharing.as_mut().unwrap();
        sharing.local_only = true;
        sharing.selector = [("app".into(), key.1.name.clone())].into();
    }
    world.restart();
    world.run();
    assert_eq!(world.has("shop/b"), ips(&["192.0.2.0"]), "it had the address first");
    assert_eq!(world.has("shop/a"), ips(&["192.0.2.1"]));
}

#[test]
fn an_edit_is_not_recorded_over_one_who_shares_and_is_not_known_yet() {
    let mut world = world();
    world.with([sharer("shop/a", 0, &[80]), sharer("shop/b", 1, &[443])]);
    let key = (HolderKind::Service, world.request("shop/a").holder.key.clone());
    let unknown = world.requests.remove(&key).unwrap();
    let mut edited = world.request("shop/b").clone();
    edited.sharing = None;
    world.requests.insert((HolderKind::Service, edited.holder.key.clone()), edited);
    world.restart();
    let changes = world.machine.take(world.now);
    assert_eq!(changes.writes, []);
    let exists = true;
    world.tell(Event::Confirmed { holder: changes.confirm[0].clone(), exists });
    world.with([unknown]);
    assert_eq!(world.has("shop/a"), ips(&["192.0.2.0"]));
    assert_eq!(world.has("shop/b"), ips(&["192.0.2.1"]), "its edit");
}

#[test]
fn an_edit_is_recorded_when_those_who_shared_are_gone() {
    let mut world = world();
    world.with([sharer("shop/a", 0, &[80]), sharer("shop/b", 1, &[443])]);
    let key = (HolderKind::Service, world.request("shop/a").holder.key.clone());
    world.requests.remove(&key);
    let mut edited = world.request("shop/b").clone();
    edited.sharing = None;
    world.requests.insert((HolderKind::Service, edited.holder.key.clone()), edited);
    world.restart();
    world.run();
    assert_eq!(world.has("shop/b"), ips(&["192.0.2.0"]));
    let holders = &world.records[&ip("192.0.2.0")].content.holders;
    assert_eq!((holders.len(), &holders[0].key), (1, &None));
}

#[test]
fn a_request_whose_sharing_broke_is_not_granted_again() {
    let mut world = world();
    let ask = || addresses(&["192.0.2.0"]);
    world.with([
        AddressRequest { ask: ask(), ..sharer("shop/a", 0, &[80]) },
        AddressRequest { ask: ask(), ..sharer("shop/b", 1, &[443]) },
    ]);
    world.edit("shop/b", |request| request.sharing = sharing("k", &[80]));
    assert_eq!((world.has("shop/b"), world.reason("shop/b")), (vec![], Reason::AddressTaken));
    world.edit("shop/b", |request| request.sharing = sharing("k", &[443]));
    assert_eq!(world.has("shop/b"), ips(&["192.0.2.0"]));
}

#[test]
fn room_on_a_shared_address_goes_to_one_who_waits_for_it() {
    let mut world = World::new([pool("p", &["192.0.2.0/32"])]);
    world.with([
        sharer("shop/a", 0, &[80]),
        sharer("shop/b", 1, &[443]),
        sharer("shop/c", 2, &[80]),
    ]);
    assert_eq!(world.has("shop/c"), NONE);
    world.remove("shop/a");
    world.run();
    assert_eq!(world.has("shop/c"), ips(&["192.0.2.0"]));
    world.with([sharer("shop/d", 3, &[443])]);
    world.edit("shop/b", |request| request.sharing = sharing("k", &[444]));
    assert_eq!(world.has("shop/d"), ips(&["192.0.2.0"]));
}

#[test]
fn one_of_several_who_share_leaves_without_a_rest() {
    let mut world = World::new([Pool { reuse_after: 30, ..pool("p", &["192.0.2.0/32"]) }]);
    world.with([sharer("shop/a", 0, &[80]), sharer("shop/b", 1, &[443])]);
    world.remove("shop/a");
    world.run();
    assert_eq!(world.held(), [("192.0.2.0".into(), vec!["shop/b".into()])]);
    assert_eq!(world.records[&ip("192.0.2.0")].content.state, AddressState::Active);
}

#[test]
fn what_is_shared_stays_with_both_while_one_key_cannot_be_read() {
    let mut world = world();
    world.with([sharer("shop/a", 0, &[80]), sharer("shop/b", 1, &[443])]);
    let unreadable = |request: &mut AddressRequest| {
        let problem = Problem::new(Reason::BadValue, "too long");
        (request.ask, request.sharing) = (Err(problem), None);
    };
    for key in ["shop/a", "shop/b"] {
        let readable = world.request(key).clone();
        world.edit(key, unreadable);
        for _ in 0..2 {
            assert_eq!(world.has("shop/a"), ips(&["192.0.2.0"]), "{key}");
            assert_eq!(world.has("shop/b"), ips(&["192.0.2.0"]), "{key}");
            assert_eq!(world.reason(key), Reason::BadValue);
            world.restart();
            world.run();
        }
        world.with([readable]);
    }
}

#[test]
fn no_more_share_an_address_than_its_object_can_name() {
    let mut world = world();
    let many = (0..257).map(|at| sharer(&format!("shop/s{at:03}"), at, &[at as u16 + 1]));
    world.with(many);
    assert_eq!(world.has("shop/s255"), ips(&["192.0.2.0"]));
    assert_eq!(world.has("shop/s256"), ips(&["192.0.2.1"]));
    world.edit("shop/s256", |request| request.ask = addresses(&["192.0.2.0"]));
    assert_eq!(
        world.message("shop/s256"),
        "pool \"p\": 192.0.2.0 is held by Service shop/s000 and others, and at most 256 Services can share an address"
    );
}

#[test]
fn one_with_more_ports_than_its_object_can_name_has_all_of_them() {
    let mut world = world();
    let ports: Vec<u16> = (1..=1025).collect();
    world.with([sharer("shop/a", 0, &ports), sharer("shop/b", 1, &[2000])]);
    assert_eq!(world.records[&ip("192.0.2.0")].content.holders[0].ports, []);
    assert_eq!(world.has("shop/b"), ips(&["192.0.2.1"]));
}

#[test]
fn addresses_of_other_namespaces_do_not_hide_one_that_can_be_shared() {
    let mut world = World::new([pool("p", &["192.0.2.0/24"])]);
    world.with((0..64).map(|at| sharer(&format!("n{at}/a"), at, &[80])));
    world.with([sharer("shop/a", 100, &[80])]);
    world.with([sharer("shop/b", 101, &[81])]);
    assert_eq!(world.has("shop/b"), world.has("shop/a"));
}

#[test]
fn one_who_gave_a_shared_address_up_has_it_again_only_when_that_is_recorded() {
    let mut world = World::new([pool("one", &["192.0.2.0/31"])]);
    world.with([80, 81].map(|port| AddressRequest {
        sharing: sharing("k", &[port]),
        ..service(&format!("shop/s{port}"))
    }));
    assert_eq!(world.has("shop/s81"), ips(&["192.0.2.0"]));
    let ask = |world: &mut World, ask| {
        let request = AddressRequest { ask, ..world.request("shop/s81").clone() };
        world.put(request);
        world.machine.take(world.now)
    };
    let shown = ask(&mut world, Ok(Ask::Nothing));
    shown.decisions.into_iter().for_each(|(holder, decision)| world.show(holder, decision));
    // The write is in flight when it asks again.
    let released = world.machine.take(world.now);
    assert_eq!(released.writes.len(), 1, "{released:?}");
    let again = ask(&mut world, addresses(&["192.0.2.0"]));
    let [(_, Some(decision))] = &again.decisions[..] else { panic!("{again:?}") };
    assert_eq!(decision.addresses, []);
    assert_eq!(decision.verdict.message, "pool \"one\": 192.0.2.0 is being given up");
    world.carry_out(again);
    world.carry_out(released);
    world.run();
    assert_eq!(world.has("shop/s81"), ips(&["192.0.2.0"]));
    assert_eq!(world.held(), [("192.0.2.0".into(), vec!["shop/s80".into(), "shop/s81".into()])]);
}

#[test]
fn one_who_has_edited_itself_away_is_not_joined_on_its_old_terms() {
    let mut world = World::new([pool("one", &["192.0.2.0/31"])]);
    let sharing = |port| sharing("k", &[port]);
    world.with([AddressRequest { created: 5, sharing: sharing(80), ..service("shop/leaves") }]);
    let gone = AddressRequest {
        ask: Ok(Ask::Nothing),
        sharing: None,
        ..world.request("shop/leaves").clone()
    };
    world.pass(1);
    world.told();
    // The older one is decided for first.
    world.with([gone, AddressRequest { sharing: sharing(81), ..service("shop/joins") }]);
    let told = [
        "shop/leaves AddressReleased: released 192.0.2.0: it no longer asks for an address of a pool",
        "shop/joins AddressAssigned: assigned 192.0.2.1 of pool one",
    ];
    assert_eq!(world.told(), told);
    assert_eq!(world.held(), [("192.0.2.1".into(), vec!["shop/joins".into()])]);
}

#[test]
fn one_who_edits_its_key_keeps_the_address_though_another_would_have_joined() {
    let mut world = World::new([pool("one", &["192.0.2.0/31"])]);
    world.with([AddressRequest { sharing: sharing("k", &[80]), ..service("shop/edits") }]);
    let edited =
        AddressRequest { sharing: sharing("l", &[80]), ..world.request("shop/edits").clone() };
    // A Service that shows the address in its status is decided for first.
    let shows = AddressRequest {
        sharing: sharing("k", &[81]),
        status: ips(&["192.0.2.0"]),
        ..service("shop/shows")
    };
    world.with([edited, shows]);
    assert_eq!(world.has("shop/edits"), ips(&["192.0.2.0"]));
    assert_eq!(world.has("shop/shows"), ips(&["192.0.2.1"]));
}

#[test]
fn the_edit_of_one_takes_nothing_from_the_other_when_it_is_heard_of_late_that_they_share() {
    let mut world = world();
    let one = sharer("shop/a", 1, &[80]);
    world.put(sharer("shop/b", 0, &[81]));
    world.put(one.clone());
    let write = world.machine.take(world.now).writes.remove(0);
    world.perform(&write);
    world.tell(Event::Written { id: write.id, result: Written::Failed });
    world.put(AddressRequest { sharing: None, ..one });
    let changes = world.machine.take(world.now);
    world.carry_out(changes);
    world.echo(write.address);
    world.pass(1);
    assert_eq!(world.has("shop/b"), ips(&["192.0.2.0"]));
    assert_eq!(world.has("shop/a"), ips(&["192.0.2.1"]));
}

#[test]
fn one_that_cannot_be_read_takes_nothing_from_others_after_a_restart() {
    let mut world = world();
    world.with([sharer("shop/a", 0, &[80]), sharer("shop/b", 1, &[81])]);
    let problem = Problem::new(Reason::BadValue, "unreadable");
    let mut unreadable = AddressRequest { ask: Err(problem), ..world.request("shop/a").clone() };
    if let Some(sharing) = &mut unreadable.sharing {
        sharing.local_only = true;
        sharing.selector = [("app".into(), "a".into())].into();
    }
    world.put(unreadable);
    world.restart();
    world.run();
    assert_eq!(world.has("shop/b"), ips(&["192.0.2.0"]));
    assert_eq!(world.has("shop/a"), ips(&["192.0.2.0"]));
}

#[test]
fn who_waits_under_a_key_is_served_when_somebody_comes_to_have_that_key() {
    let mut world = World::new([pool("p", &["192.0.2.0/32"])]);
    world.with([service("shop/a"), sharer("shop/b", 1, &[443])]);
    assert_eq!(world.reason("shop/b"), Reason::PoolsExhausted);
    world.edit("shop/a", |request| request.sharing = sharing("k", &[80]));
    assert_eq!(world.has("shop/b"), ips(&["192.0.2.0"]), "the holder says that it shares");
    let mut world = World::new([pool("p", &["192.0.2.0/32"])]);
    world.with([service("shop/a"), sharer("shop/b", 1, &[443]), sharer("shop/c", 2, &[80])]);
    world.remove("shop/a");
    world.run();
    assert_eq!(world.has("shop/b"), ips(&["192.0.2.0"]));
    assert_eq!(world.has("shop/c"), ips(&["192.0.2.0"]), "who has it by now shares");
}

#[test]
fn who_waits_for_the_traffic_of_a_holder_is_served_when_that_is_edited() {
    let local = |request: &mut AddressRequest, local_only: bool, selector: &str| {
        let sharing = request.sharing.as_mut().expect("it shares");
        (sharing.local_only, sharing.selector) =
            (local_only, [("app".into(), selector.into())].into());
    };
    let mut world = World::new([pool("p", &["192.0.2.0/32"])]);
    let (mut a, mut b) = (sharer("shop/a", 0, &[80]), sharer("shop/b", 1, &[443]));
    local(&mut a, true, "a");
    local(&mut b, false, "b");
    world.with([a, b]);
    assert_eq!(world.has("shop/b"), NONE);
    world.edit("shop/a", |request| local(request, false, "a"));
    assert_eq!(world.has("shop/b"), ips(&["192.0.2.0"]), "as its remedy said");
}
