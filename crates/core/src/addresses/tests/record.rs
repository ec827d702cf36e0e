//! Address objects: the order of writes, what other writers do to them, and what a restart finds.

use super::make::*;
use crate::addresses::*;
use crate::outcome::Reason;

const NONE: [IpAddr; 0] = [];

pub(super) fn world() -> World {
    World::new([pool("p", &["192.0.2.0/24"])])
}

fn shown(changes: &Changes) -> Vec<IpAddr> {
    changes.decisions.iter().flat_map(|(_, it)| it.as_deref()).flat_map(shown_by).collect()
}

#[test]
fn nothing_is_decided_before_every_kind_has_been_told() {
    for missing in Kind::ALL {
        let mut machine = Addresses::new(Config { grace: GRACE });
        let apply = |object| Event::Apply(Box::new(object));
        machine.handle(apply(Object::Pool(pool("p", &["192.0.2.0/24"]))), 0);
        machine.handle(apply(Object::Request(service("shop/web"))), 0);
        for kind in Kind::ALL.into_iter().filter(|kind| *kind != missing) {
            machine.handle(Event::Done(kind), 0);
        }
        assert_eq!(machine.take(0), Changes::default(), "without {missing:?}");
        machine.handle(Event::Done(missing), 0);
        assert_eq!(machine.take(0).writes.len(), 1);
    }
}

#[test]
fn an_address_is_shown_only_when_it_is_recorded() {
    let mut world = world();
    world.put(service("shop/web"));
    let changes = world.machine.take(world.now);
    assert_eq!((changes.writes.len(), shown(&changes)), (1, vec![]));
    assert_eq!(changes.decisions, [], "nor is a word said that costs a write");
    let write = &changes.writes[0];
    let result = world.perform(write);
    world.tell(Event::Written { id: write.id, result });
    assert_eq!(shown(&world.machine.take(world.now)), ips(&["192.0.2.0"]));
}

#[test]
fn the_echo_of_a_write_is_as_good_as_its_answer() {
    let mut world = world();
    world.put(service("shop/web"));
    let changes = world.machine.take(world.now);
    let result = world.perform(&changes.writes[0]);
    world.echo(changes.writes[0].address);
    assert_eq!(shown(&world.machine.take(world.now)), ips(&["192.0.2.0"]));
    world.tell(Event::Written { id: changes.writes[0].id, result });
    assert_eq!(world.machine.take(world.now).writes, []);
}

#[test]
fn an_address_is_released_only_when_the_status_no_longer_shows_it() {
    let mut world = world();
    world.with([service("shop/web")]);
    let mut request = world.request("shop/web").clone();
    request.ask = Ok(Ask::Nothing);
    world.put(request.clone());
    let changes = world.machine.take(world.now);
    assert_eq!((changes.writes.as_slice(), shown(&changes)), (&[][..], vec![]));
    let (holder, decision) = changes.decisions[0].clone();
    assert_eq!(decision.unwrap().verdict.reason, Reason::Released);
    // The status is written, but the watch has not delivered it yet.
    world.tell(Event::Shown { holder, addresses: Vec::new() });
    assert_eq!(world.machine.take(world.now).writes, []);
    request.status = Vec::new();
    world.put(request);
    assert!(matches!(world.machine.take(world.now).writes[0].op, Op::Delete { .. }));
}

#[test]
fn a_status_that_was_just_decided_and_may_yet_be_written_holds_an_address_back() {
    let mut world = world();
    world.put(service("shop/web"));
    let changes = world.machine.take(world.now);
    let result = world.perform(&changes.writes[0]);
    world.tell(Event::Written { id: changes.writes[0].id, result });
    assert_eq!(shown(&world.machine.take(world.now)), ips(&["192.0.2.0"]));
    world.put(AddressRequest { ask: Ok(Ask::Nothing), ..service("shop/web") });
    assert_eq!(world.machine.take(world.now).writes, []);
    let holder = service("shop/web").holder;
    world.tell(Event::Shown { holder: holder.clone(), addresses: ips(&["192.0.2.0"]) });
    assert_eq!(world.machine.take(world.now).writes, []);
    world.tell(Event::Shown { holder, addresses: Vec::new() });
    assert_eq!(world.machine.take(world.now).writes.len(), 1);
}

#[test]
fn what_a_driver_still_serves_is_not_released_though_the_holder_is_gone() {
    let mut world = world();
    world.with([service("shop/web")]);
    let holder = world.request("shop/web").holder.clone();
    let serving = |places| Event::Serving { holder: holder.clone(), places };
    world.tell(serving(served("edge", "192.0.2.0")));
    world.remove("shop/web");
    world.run();
    assert_eq!(world.held().len(), 1);
    world.tell(serving(Vec::new()));
    world.run();
    assert_eq!(world.held(), []);
}

#[test]
fn a_conflict_is_decided_again_on_what_is_there() {
    let mut world = world();
    world.put(service("shop/web"));
    let changes = world.machine.take(world.now);
    // Another leader grants the same address to another Service meanwhile.
    let mut other = World::new([pool("p", &["192.0.2.0/24"])]);
    other.with([AddressRequest { created: -1, ..service("bank/web") }]);
    world.records = other.records;
    world.put(AddressRequest { created: -1, ..service("bank/web") });
    world.carry_out(changes);
    world.run();
    assert_eq!(world.has("bank/web"), ips(&["192.0.2.0"]));
    assert_eq!(world.has("shop/web"), ips(&["192.0.2.1"]));
}

#[test]
fn a_failed_write_is_repeated_after_a_while_and_nobody_else_gets_the_address() {
    let mut world = world();
    world.put(service("shop/web"));
    let mut delays = Vec::new();
    for _ in 0..7 {
        let changes = world.machine.take(world.now);
        let [write] = &changes.writes[..] else { panic!("{changes:?}") };
        assert_eq!(write.address, ip("192.0.2.0"));
        world.tell(Event::Written { id: write.id, result: Written::Failed });
        let Changes { writes, decisions, .. } = world.machine.take(world.now);
        assert_eq!(writes, []);
        if delays.is_empty() {
            let decision = decisions[0].1.as_ref().unwrap();
            assert_eq!(decision.verdict.message, "192.0.2.0 is being recorded");
        }
        let at = world.machine.wake_at().unwrap();
        delays.push(at - world.now);
        world.now = at;
    }
    assert_eq!(delays, [1, 2, 4, 8, 16, 32, 32]);
    world.with([AddressRequest { created: -1, ..service("bank/older") }]);
    assert_eq!(world.has("bank/older"), ips(&["192.0.2.1"]));
    assert_eq!(world.has("shop/web"), ips(&["192.0.2.0"]));
}

#[test]
fn a_write_that_failed_but_was_carried_out_is_found_by_the_next_one() {
    let mut world = world();
    world.put(service("shop/web"));
    let changes = world.machine.take(world.now);
    world.perform(&changes.writes[0]);
    world.tell(Event::Written { id: changes.writes[0].id, result: Written::Failed });
    world.run();
    world.pass(1);
    assert_eq!(world.has("shop/web"), ips(&["192.0.2.0"]));
    assert_eq!(world.held().len(), 1);
}

#[test]
fn a_failed_write_is_not_repeated_over_what_the_watch_told_meanwhile() {
    let mut world = world();
    world.put(service("shop/web"));
    let changes = world.machine.take(world.now);
    let mut other = World::new([pool("p", &["192.0.2.0/24"])]);
    other.with([service("bank/web")]);
    world.records = other.records;
    world.put(service("bank/web"));
    world.echo(ip("192.0.2.0"));
    world.tell(Event::Written { id: changes.writes[0].id, result: Written::Failed });
    world.run();
    world.pass(1);
    assert_eq!(world.has("bank/web"), ips(&["192.0.2.0"]));
    assert_eq!(world.has("shop/web"), ips(&["192.0.2.1"]));
}

#[test]
fn of_two_addresses_the_one_is_kept_that_is_still_recorded() {
    let mut world = world();
    world.with([service("shop/web")]);
    // Another leader granted it a second one, and gives up the first.
    let mut second = world.records[&ip("192.0.2.0")].clone();
    (second.address, second.version) = (ip("192.0.2.1"), Version("90".into()));
    world.records = [(second.address, second.clone())].into();
    world.tell(Event::Recorded(second));
    let version = Some(Version("91".into()));
    world.tell(Event::Unrecorded { address: ip("192.0.2.0"), version });
    world.run();
    assert_eq!(world.held(), [("192.0.2.1".into(), vec!["shop/web".into()])]);
    assert_eq!(world.has("shop/web"), ips(&["192.0.2.1"]));
}

#[test]
fn an_address_object_that_somebody_deletes_is_made_again_for_its_holder() {
    let mut world = world();
    world.with([service("shop/web"), service("shop/z")]);
    world.told();
    world.records.remove(&ip("192.0.2.0"));
    world.tell(Event::Unrecorded { address: ip("192.0.2.0"), version: None });
    let changes = world.machine.take(world.now);
    assert!(matches!(changes.writes[0].op, Op::Create(_)));
    assert_eq!(changes.decisions, [], "its status does not flicker");
    world.carry_out(changes);
    world.run();
    assert_eq!(world.held().len(), 2);
    assert_eq!(world.told(), Vec::<String>::new());
}

#[test]
fn one_whose_address_object_is_given_to_another_is_told_and_gets_another_address() {
    let mut world = world();
    world.with([service("shop/web")]);
    world.told();
    let address = ip("192.0.2.0");
    let mut record = world.records[&address].clone();
    record.version = Version("99".into());
    record.content.holders[0].holder = service("bank/new").holder;
    world.records.insert(address, record.clone());
    world.put(service("bank/new"));
    world.tell(Event::Recorded(record));
    world.run();
    assert_eq!(world.has("bank/new"), ips(&["192.0.2.0"]));
    assert_eq!(world.has("shop/web"), ips(&["192.0.2.1"]));
    assert_eq!(
        world.told()[0],
        "shop/web AddressLost: lost 192.0.2.0: its Address object no longer lists this holder"
    );
}

#[test]
fn old_news_of_the_watch_changes_nothing() {
    let mut world = world();
    world.with([service("shop/web")]);
    let address = ip("192.0.2.0");
    let old = world.records[&address].clone();
    world.edit("shop/web", |request| request.sharing = sharing("k", &[80]));
    world.tell(Event::Recorded(old.clone()));
    assert_eq!(world.machine.take(world.now), Changes::default());
    let version = Some(old.version.clone());
    world.tell(Event::Unrecorded { address, version });
    assert_eq!(world.machine.take(world.now), Changes::default());
    world.remove("shop/web");
    let changes = world.machine.take(world.now);
    let result = world.perform(&changes.writes[0]);
    world.tell(Event::Written { id: changes.writes[0].id, result });
    world.run();
    world.tell(Event::Recorded(old));
    assert_eq!(world.machine.take(world.now), Changes::default(), "of what is deleted, too");
}

#[test]
fn a_restart_finds_everybody_where_it_was() {
    let mut world = world();
    world.with([service("shop/a"), service("shop/b"), service("shop/c")]);
    world.remove("shop/a");
    world.run();
    let before = (world.has("shop/b"), world.has("shop/c"), world.records.clone());
    world.told();
    world.restart();
    world.run();
    assert_eq!((world.has("shop/b"), world.has("shop/c"), world.records.clone()), before);
    assert_eq!(world.told(), Vec::<String>::new());
}

#[test]
fn what_holders_have_who_went_during_a_restart_is_released_after_a_read() {
    let mut world = world();
    world.with([service("shop/a"), service("shop/b")]);
    world.requests.retain(|_, request| &*request.holder.key.name == "b");
    world.restart();
    let changes = world.machine.take(world.now);
    assert_eq!(changes.confirm, [service("shop/a").holder]);
    assert_eq!(changes.writes, [], "not before somebody looked");
    world.carry_out(changes);
    world.run();
    assert_eq!(world.held(), [("192.0.2.1".into(), vec!["shop/b".into()])]);
}

#[test]
fn a_holder_that_the_watch_has_not_told_of_yet_keeps_its_address() {
    let mut world = world();
    world.with([service("shop/a")]);
    let request = world.requests.pop_first().unwrap().1;
    world.restart();
    let changes = world.machine.take(world.now);
    let holder = changes.confirm[0].clone();
    world.tell(Event::Confirmed { holder: holder.clone(), exists: true });
    assert_eq!(world.machine.take(world.now), Changes::default());
    world.now += 30;
    assert_eq!(world.machine.take(world.now).confirm, [holder], "and is asked for again");
    world.with([request]);
    assert_eq!(world.has("shop/a"), ips(&["192.0.2.0"]));
}

#[test]
fn another_object_of_the_same_name_is_another_holder() {
    let mut world = World::new([Pool { reuse_after: 60, ..pool("p", &["192.0.2.0/24"]) }]);
    world.with([service("shop/web")]);
    let mut anew = service("shop/web");
    anew.holder.uid = "another".into();
    world.with([anew]);
    assert_eq!(world.has("shop/web"), ips(&["192.0.2.1"]), "the old one rests");
}

#[test]
fn an_address_rests_before_somebody_else_gets_it_also_over_a_restart() {
    let mut world = World::new([Pool { reuse_after: 60, ..pool("p", &["192.0.2.0/32"]) }]);
    world.with([service("shop/a")]);
    world.with([AddressRequest { created: 1, ..service("shop/b") }]);
    world.remove("shop/a");
    world.run();
    let until = world.now + 60;
    assert_eq!(world.records[&ip("192.0.2.0")].content.state, AddressState::Resting { until });
    assert_eq!(world.reports["p"].ipv4.unwrap().resting, 1);
    world.edit("shop/b", |request| request.ask = addresses(&["192.0.2.0"]));
    assert_eq!(
        world.message("shop/b"),
        "pool \"p\": 192.0.2.0 rests after its last holder gave it up"
    );
    world.pass(30);
    world.restart();
    world.run();
    assert_eq!(world.machine.wake_at(), Some(until));
    world.pass(29);
    assert_eq!(world.has("shop/b"), NONE);
    world.pass(1);
    assert_eq!(world.has("shop/b"), ips(&["192.0.2.0"]));
}

#[test]
fn an_object_without_holders_that_a_crash_left_behind_rests_from_now_on() {
    let mut world = World::new([Pool { reuse_after: 60, ..pool("p", &["192.0.2.0/32"]) }]);
    world.with([service("shop/a")]);
    world.requests.clear();
    world.records.get_mut(&ip("192.0.2.0")).unwrap().content.holders.clear();
    world.restart();
    world.run();
    let until = world.now + 60;
    assert_eq!(world.records[&ip("192.0.2.0")].content.state, AddressState::Resting { until });
    world.pass(60);
    assert_eq!(world.held(), []);
}

#[test]
fn an_unrecorded_address_on_a_service_of_ours_is_adopted_before_others_are_served() {
    let mut world = world();
    world.with([
        service("shop/older"),
        AddressRequest { created: 5, status: ips(&["192.0.2.0"]), ..service("shop/migrated") },
        AddressRequest { created: 6, status: ips(&["198.51.100.1"]), ..service("shop/foreign") },
    ]);
    assert_eq!(world.has("shop/migrated"), ips(&["192.0.2.0"]));
    assert_eq!(world.has("shop/older"), ips(&["192.0.2.1"]));
    assert_eq!(world.has("shop/foreign"), ips(&["192.0.2.2"]), "no pool has what it shows");
}

#[test]
fn services_that_shared_before_are_adopted_together() {
    let mut world = world();
    let shows = |key, at, port| AddressRequest {
        created: at,
        sharing: sharing("k", &[port]),
        status: ips(&["192.0.2.7"]),
        ..service(key)
    };
    world.with([shows("shop/a", 0, 80), shows("shop/b", 1, 443), shows("shop/c", 2, 80)]);
    assert_eq!(world.has("shop/a"), ips(&["192.0.2.7"]));
    assert_eq!(world.has("shop/b"), ips(&["192.0.2.7"]));
    assert_eq!(world.has("shop/c"), ips(&["192.0.2.0"]));
}

#[test]
fn a_status_that_somebody_edits_changes_nothing_of_what_is_recorded() {
    let mut world = world();
    world.with([service("shop/web")]);
    let mut edited = world.request("shop/web").clone();
    edited.status = ips(&["192.0.2.200"]);
    world.put(edited);
    assert_eq!(world.machine.take(world.now), Changes::default());
    assert_eq!(world.has("shop/web"), ips(&["192.0.2.0"]));
}

#[test]
fn a_relist_without_an_address_object_makes_it_again() {
    let mut world = world();
    world.with([service("shop/web")]);
    world.records.clear();
    world.relist();
    world.run();
    assert_eq!(world.has("shop/web"), ips(&["192.0.2.0"]));
    assert_eq!(world.held().len(), 1);
}

#[test]
fn when_everything_is_deleted_nothing_is_left() {
    let mut world = World::new([pool("p", &["192.0.2.0/24", "2001:db8::/64"])]);
    world.with([
        AddressRequest { sharing: sharing("k", &[80]), ..service("shop/a") },
        AddressRequest { sharing: sharing("k", &[81]), ..service("shop/b") },
        load_balancer("edge", "p"),
        external_ip("shop/web-0"),
    ]);
    for key in ["shop/a", "shop/b", "edge", "shop/web-0"] {
        world.remove(key);
    }
    world.run();
    assert_eq!((world.held(), world.decisions.len()), (vec![], 0));
    assert!(!world.reports["p"].in_use());
}
