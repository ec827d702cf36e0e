//! Address objects again: what lists, watches and answers deliver late or out of order, and what another leader wrote
//! meanwhile.

use super::make::*;
use super::record::world;
use crate::addresses::*;
use crate::outcome::Reason;

/// A Service that has an address, edited and edited back, with the write of the first edit in flight.
fn edited_and_back() -> (World, Write) {
    let mut world = world();
    world.with([service("shop/web")]);
    let before = world.request("shop/web").clone();
    world.put(AddressRequest { sharing: sharing("k", &[80]), ..before.clone() });
    let write = world.machine.take(world.now).writes.remove(0);
    world.put(before);
    (world, write)
}

#[test]
fn what_a_list_no_longer_has_is_made_again_although_a_write_of_it_was_under_way() {
    let (mut world, write) = edited_and_back();
    world.records.clear();
    world.relist();
    world.tell(Event::Written { id: write.id, result: Written::Failed });
    world.pass(1);
    assert_eq!(world.held(), [("192.0.2.0".into(), vec!["shop/web".into()])]);
}

#[test]
fn what_a_list_no_longer_has_is_made_again_although_a_write_of_it_was_carried_out_before() {
    let (mut world, write) = edited_and_back();
    let result = world.perform(&write);
    world.records.clear();
    world.relist();
    world.put(AddressRequest { sharing: sharing("k", &[80]), ..world.request("shop/web").clone() });
    world.tell(Event::Written { id: write.id, result });
    world.run();
    assert_eq!(world.held(), [("192.0.2.0".into(), vec!["shop/web".into()])]);
}

#[test]
fn what_a_watch_tells_late_of_an_object_that_is_gone_does_not_count() {
    let mut world = world();
    world.with([service("shop/web")]);
    let (address, record) = world.records.pop_first().unwrap();
    world.remove("shop/web");
    // The Address was deleted, and the answer was lost.
    for result in [Written::Failed, Written::Conflict(None)] {
        let write = world.machine.take(world.now).writes.remove(0);
        world.tell(Event::Written { id: write.id, result });
        world.now += 1;
    }
    world.tell(Event::Recorded(record));
    assert_eq!(world.machine.address(address), None);
    world.echo(address);
    assert_eq!(world.machine.take(world.now).writes, []);
}

#[test]
fn an_answer_that_comes_while_a_list_is_told_is_looked_at_again_once_and_at_its_end() {
    let (mut world, write) = edited_and_back();
    world.put(AddressRequest { sharing: sharing("k", &[80]), ..world.request("shop/web").clone() });
    let result = world.perform(&write);
    world.tell(Event::Begin(Kind::Address));
    world.tell(Event::Written { id: write.id, result });
    assert_eq!(world.machine.take(world.now).writes, [], "the list goes on");
    world.tell(Event::Done(Kind::Address));
    let again = world.machine.take(world.now).writes.remove(0);
    let result = world.perform(&again);
    world.tell(Event::Written { id: again.id, result });
    assert_eq!(world.machine.take(world.now).writes, []);
}

#[test]
fn an_answer_that_comes_before_its_object_in_a_list_needs_no_second_look() {
    let (mut world, write) = edited_and_back();
    world.put(AddressRequest { sharing: sharing("k", &[80]), ..world.request("shop/web").clone() });
    let result = world.perform(&write);
    world.tell(Event::Begin(Kind::Address));
    world.tell(Event::Written { id: write.id, result });
    world.tell(Event::Recorded(world.records[&write.address].clone()));
    world.tell(Event::Done(Kind::Address));
    assert_eq!(world.machine.take(world.now).writes, []);
}

#[test]
fn nothing_is_left_of_an_object_whose_end_was_before_a_list_and_is_never_told() {
    let mut world = world();
    world.put(service("shop/web"));
    let write = world.machine.take(world.now).writes.remove(0);
    let result = world.perform(&write);
    world.records.clear();
    world.relist();
    world.tell(Event::Written { id: write.id, result });
    world.remove("shop/web");
    let write = world.machine.take(world.now).writes.remove(0);
    let result = world.perform(&write);
    assert_eq!(result, Written::Conflict(None));
    world.tell(Event::Written { id: write.id, result });
    world.run();
    assert!(world.machine.is_empty(), "{:?}", world.machine);
}

#[test]
fn an_answer_does_not_end_what_somebody_else_made_after_the_object_that_it_speaks_of() {
    let mut world = world();
    world.put(service("shop/web"));
    let write = world.machine.take(world.now).writes.remove(0);
    let address = write.address;
    let result = world.perform(&write);
    world.tell(Event::Recorded(world.records[&address].clone()));
    let mut record = world.records.remove(&address).unwrap();
    world.tell(Event::Unrecorded { address, version: Some(Version("7".into())) });
    record.version = Version("8".into());
    record.content.holders[0].holder = service("shop/other").holder;
    world.tell(Event::Recorded(record.clone()));
    world.tell(Event::Written { id: write.id, result });
    assert_eq!(world.machine.address(address), Some(&record.content));
}

#[test]
fn what_was_in_the_way_and_is_gone_as_the_watch_has_told_is_not_believed() {
    let mut world = world();
    world.put(service("shop/web"));
    let create = world.machine.take(world.now).writes.remove(0);
    // The write is carried out, and its answer is lost.
    world.perform(&create);
    world.tell(Event::Written { id: create.id, result: Written::Failed });
    world.now += 1;
    let again = world.machine.take(world.now).writes.remove(0);
    let result = world.perform(&again);
    assert_eq!(result, Written::Conflict(Some(world.records[&again.address].clone())));
    world.tell(Event::Recorded(world.records[&again.address].clone()));
    world.records.clear();
    world.tell(Event::Unrecorded { address: again.address, version: Some(Version("7".into())) });
    world.tell(Event::Written { id: again.id, result });
    world.run();
    assert_eq!(world.held(), [("192.0.2.0".into(), vec!["shop/web".into()])]);
}

/// An Address that another leader made for a Service.
fn recorded_for(holder: &HolderRef, address: &str, since: i64, version: &str) -> Record {
    let holder =
        Holder { holder: holder.clone(), ports: Vec::new(), key: None, load_balancer: None, since };
    let (pool, state) = (Some("p".into()), AddressState::Active);
    let content = Content { pool, holders: vec![holder], state };
    Record { address: ip(address), version: Version(version.into()), content }
}

#[test]
fn who_is_given_two_by_two_leaders_keeps_the_one_that_both_choose_though_a_write_was_under_way() {
    let mut world = world();
    world.put(service("shop/web"));
    let create = world.machine.take(world.now).writes.remove(0);
    assert_eq!(create.address, ip("192.0.2.0"));
    // The other leader has created another Address. Which of the two stays depends on the result of our write.
    let holder = service("shop/web").holder;
    let theirs = recorded_for(&holder, "192.0.2.1", world.now, "7");
    world.records.insert(theirs.address, theirs.clone());
    world.tell(Event::Recorded(theirs.clone()));
    assert_eq!(world.machine.take(world.now).writes, []);
    let result = world.perform(&create);
    world.tell(Event::Written { id: create.id, result });
    // Both leaders keep the same one: the lower of two of one age.
    world.run();
    assert_eq!(world.held(), [("192.0.2.0".into(), vec!["shop/web".into()])]);
    assert_eq!(world.has("shop/web"), ips(&["192.0.2.0"]));
}

#[test]
fn of_several_that_are_recorded_the_oldest_is_kept_whatever_the_status_shows() {
    let mut world = world();
    world.with([service("shop/web")]);
    let holder = service("shop/web").holder;
    // Another leader granted it one a second earlier. Its status shows neither that one nor one made by hand, which
    // has no time.
    for (address, since, version) in [("192.0.2.1", world.now - 1, "7"), ("192.0.2.2", 0, "8")] {
        let other = recorded_for(&holder, address, since, version);
        world.records.insert(other.address, other);
    }
    world.restart();
    world.run();
    assert_eq!(world.held(), [("192.0.2.1".into(), vec!["shop/web".into()])]);
}

#[test]
fn what_somebody_gave_up_and_an_agent_still_serves_does_not_draw_it_back() {
    let mut world = world();
    let on =
        |lb: &str, key: &str| AddressRequest { load_balancer: Some(lb.into()), ..service(key) };
    let shared = |lb: &str, key: &str, port| AddressRequest {
        sharing: sharing("k", &[port]),
        ..on(lb, key)
    };
    world.with([shared("edge", "shop/a", 80), shared("edge", "shop/b", 81)]);
    let a = service("shop/a").holder;
    world.tell(Event::Serving { holder: a.clone(), places: served("edge", "192.0.2.0") });
    // It moves elsewhere, alone, while the agent there is away; then the Service that it shared with goes.
    world.pass(1);
    world.put(shared("core", "shop/a", 80));
    world.run();
    let beside: Vec<_> =
        world.has("shop/a").into_iter().filter(|it| *it != ip("192.0.2.0")).collect();
    assert_eq!(beside, ips(&["192.0.2.1"]));
    world.remove("shop/b");
    world.run();
    world.restart();
    world.tell(Event::Serving { holder: a.clone(), places: served("edge", "192.0.2.0") });
    world.run();
    world.tell(Event::Serving { holder: a, places: served("core", "192.0.2.1") });
    world.run();
    assert_eq!(world.has("shop/a"), ips(&["192.0.2.1"]));
    assert_eq!(world.held(), [("192.0.2.1".into(), vec!["shop/a".into()])]);
}

#[test]
fn an_answer_that_there_is_nothing_is_older_than_what_the_watch_told_meanwhile() {
    let mut world = world();
    world.with([service("shop/web")]);
    world.remove("shop/web");
    let delete = world.machine.take(world.now).writes.remove(0);
    // Another leader deleted it first, and gave the address to another Service.
    let other = service("shop/other");
    world.records.clear();
    let theirs = recorded_for(&other.holder, "192.0.2.0", world.now, "99");
    world.records.insert(theirs.address, theirs.clone());
    world.tell(Event::Unrecorded { address: theirs.address, version: Some(Version("98".into())) });
    world.tell(Event::Recorded(theirs));
    world.tell(Event::Written { id: delete.id, result: Written::Conflict(None) });
    world.put(other);
    world.run();
    assert_eq!(world.has("shop/other"), ips(&["192.0.2.0"]));
    assert_eq!(world.held(), [("192.0.2.0".into(), vec!["shop/other".into()])]);
}

#[test]
fn a_list_that_is_older_than_a_deletion_does_not_bring_back_what_was_deleted() {
    let mut world = world();
    // The list was asked for before anything was recorded, and ends after it is gone again.
    world.tell(Event::Begin(Kind::Address));
    world.with([service("shop/web")]);
    let record = world.records.values().next().cloned().unwrap();
    world.remove("shop/web");
    let delete = world.machine.take(world.now).writes.remove(0);
    let result = world.perform(&delete);
    world.tell(Event::Written { id: delete.id, result });
    world.tell(Event::Done(Kind::Address));
    world.tell(Event::Recorded(record));
    let changes = world.machine.take(world.now);
    assert_eq!((changes.writes, changes.confirm), (vec![], vec![]));
}

#[test]
fn one_who_is_gone_keeps_nobody_from_what_its_status_shows() {
    let mut world =
        World::new([Pool { per_namespace_quota: Some(1), ..pool("p", &["192.0.2.0/29"]) }]);
    world.with([service("shop/old")]);
    // Observed together: the Service with the only address of its namespace goes, and two come.
    world.remove("shop/old");
    world.put(AddressRequest { created: 1, ..service("shop/a") });
    world.put(AddressRequest { created: 2, status: ips(&["192.0.2.5"]), ..service("shop/z") });
    world.run();
    assert_eq!(world.has("shop/z"), ips(&["192.0.2.5"]));
    assert_eq!(world.reason("shop/a"), Reason::QuotaReached);
}

#[test]
fn a_leader_that_begins_counts_as_served_what_addresses_and_plans_say() {
    let mut world = world();
    let on_edge = AddressRequest { load_balancer: Some("edge".into()), ..service("shop/a") };
    world.with([on_edge, service("shop/b")]);
    let [a, b] = ["shop/a", "shop/b"].map(|key| service(key).holder);
    let (edge, core) = (Arc::<str>::from("edge"), Arc::<str>::from("core"));
    // Of a Plan, only an address counts that is recorded for the same Service.
    let (some, none) = (ips(&["192.0.2.1", "192.0.2.9"]), ips(&["192.0.2.9"]));
    let plans = [(b.clone(), &core, some), (a.clone(), &core, none)];
    let mut serving = Serving::default();
    let found = serving.inherit_all(&world.machine, plans, 1);
    let places = vec![(a.clone(), edge), (b.clone(), core.clone())];
    assert_eq!(found, Inherited { places, planned: [(core, [b.clone()].into())].into() });
    assert_eq!(serving.of(&a), served("edge", "192.0.2.0"));
    assert_eq!(serving.of(&b), served("core", "192.0.2.1"));
}

#[test]
fn a_second_look_that_failed_is_taken_again() {
    let mut world = world();
    world.put(service("shop/web"));
    let write = world.machine.take(world.now).writes.remove(0);
    let result = world.perform(&write);
    world.records.clear();
    world.relist();
    world.tell(Event::Written { id: write.id, result });
    let look = world.machine.take(world.now).writes.remove(0);
    world.tell(Event::Written { id: look.id, result: Written::Failed });
    world.pass(1);
    assert_eq!(world.held(), [("192.0.2.0".into(), vec!["shop/web".into()])]);
}

#[test]
fn a_load_balancer_is_not_recorded_as_being_on_itself() {
    let mut world = world();
    world.with([load_balancer("edge", "p")]);
    let holder = world.request("edge").holder.clone();
    world.tell(Event::Serving { holder, places: served("edge", "192.0.2.0") });
    assert_eq!(world.machine.take(world.now).writes, []);
}

#[test]
fn an_older_end_that_a_watch_tells_does_not_bring_back_what_is_gone() {
    let mut world = world();
    world.with([service("shop/web")]);
    let (address, record) = world.records.pop_first().unwrap();
    let at = |version: &str| Version(version.into());
    world.tell(Event::Recorded(Record { version: at("7"), ..record.clone() }));
    world.remove("shop/web");
    let write = world.machine.take(world.now).writes.remove(0);
    world.tell(Event::Written { id: write.id, result: Written::Conflict(None) });
    world.tell(Event::Unrecorded { address, version: Some(at("6")) });
    world.tell(Event::Recorded(Record { version: at("7"), ..record }));
    assert_eq!(world.machine.address(address), None);
}
