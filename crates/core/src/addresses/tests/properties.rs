//! What holds whatever happens: users and administrators that edit, leaders that are killed between
//! any two writes, watches that lag, answers that are lost, and two leaders at once.

use super::cloud::{Cloud, World, list};
use super::make::*;
use super::steps::{Step, contest, edit, step};
use crate::addresses::*;
use crate::cases::cases;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

/// Takes all steps, comes to rest, then deletes everything and checks that nothing is left.
fn live(cloud: &mut Cloud, steps: Vec<Step>) -> Result<(), TestCaseError> {
    for step in steps {
        cloud.step(step)?;
        cloud.check()?;
    }
    cloud.settle()?;
    cloud.check_at_rest()?;
    cloud.check_leaks()
}

proptest! {
    #![proptest_config(cases(80))]

    #[test]
    fn with_two_leaders_no_address_has_two_who_may_not_share_it_and_nothing_leaks(
        steps in prop::collection::vec(step(2), 1..120),
    ) {
        live(&mut Cloud::new(2), steps)?;
    }

    #[test]
    fn two_leaders_who_each_give_somebody_an_address_leave_it_one(
        steps in prop::collection::vec(contest(), 1..120),
    ) {
        let mut cloud = Cloud::new(2);
        cloud.settle()?;
        live(&mut cloud, steps)?;
    }

    #[test]
    fn an_address_changes_only_for_a_cause_that_is_listed(
        steps in prop::collection::vec(step(1), 1..150),
    ) {
        live(&mut Cloud::new(1), steps)?;
    }

    #[test]
    fn an_address_once_given_stays_whatever_happens_to_others_and_to_the_leader(
        steps in prop::collection::vec(step(1), 1..150),
    ) {
        let mut cloud = Cloud::new(1);
        let bystander = service("shop/bystander");
        cloud.put(bystander.clone());
        cloud.settle()?;
        let before = cloud.held_by(&bystander.holder.uid);
        prop_assert_eq!(before.len(), 1);
        for step in steps.into_iter().filter(|it| !matches!(it, Step::Vandal(_))) {
            cloud.step(step)?;
            cloud.check()?;
            prop_assert_eq!(&cloud.held_by(&bystander.holder.uid), &before);
            prop_assert_eq!(&cloud.world.requests[&bystander.holder.key].status, &before);
        }
        cloud.settle()?;
        prop_assert_eq!(&cloud.world.requests[&bystander.holder.key].status, &before);
        cloud.check_at_rest()?;
        cloud.check_leaks()?;
    }
}

fn shuffle(events: &mut [Event], seed: u64) {
    let mut seed = seed;
    for at in 1..events.len() {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        events.swap(at, (seed >> 33) as usize % (at + 1));
    }
}

/// The changes of a new machine that observes all objects in some order.
fn answers(cloud: &Cloud, seed: u64) -> Changes {
    let mut events = list(&cloud.world, &cloud.records);
    // An answer is kept only once a requester asks for the name: answers stay behind the objects.
    let (first, last) = (Kind::ALL.len(), events.len() - Kind::ALL.len() - 2);
    shuffle(&mut events[first..last], seed);
    let mut machine = Addresses::new(Config { grace: GRACE });
    events.into_iter().for_each(|event| machine.handle(event, cloud.now));
    machine.take(cloud.now)
}

/// The events between two looks at the API, one for each object that differs.
fn difference(before: (&World, &Records), after: (&World, &Records)) -> Vec<Event> {
    let mut events = Vec::new();
    let apply = |object| Event::Apply(Box::new(object));
    for (name, pool) in &after.0.pools {
        if before.0.pools.get(name) != Some(pool) {
            events.push(apply(Object::Pool(pool.clone())));
        }
    }
    let gone = before.0.pools.keys().filter(|name| !after.0.pools.contains_key(*name));
    events.extend(gone.map(|it| Event::Delete(Kind::Pool, crate::key::ObjectKey::new("", &**it))));
    for (key, request) in &after.0.requests {
        if before.0.requests.get(key) != Some(request) {
            events.push(apply(Object::Request(request.clone())));
        }
    }
    for (key, request) in &before.0.requests {
        if !after.0.requests.contains_key(key) {
            let kind = match request.holder.kind {
                HolderKind::Service => Kind::Service,
                HolderKind::LoadBalancer => Kind::LoadBalancer,
                HolderKind::ExternalIp => Kind::ExternalIp,
            };
            events.push(Event::Delete(kind, key.clone()));
        }
    }
    if before.0.node != after.0.node {
        let addresses = after.0.node.into_iter().collect();
        events.push(apply(Object::Node { name: "n".into(), addresses }));
    }
    let gone = before.1.keys().filter(|address| !after.1.contains_key(*address));
    events.extend(gone.map(|it| Event::Unrecorded { address: *it, version: None }));
    events
}

type Records = std::collections::BTreeMap<IpAddr, Record>;

proptest! {
    #![proptest_config(cases(40))]

    #[test]
    fn from_what_is_recorded_the_order_of_delivery_does_not_matter(
        steps in prop::collection::vec(step(1), 1..80),
        seed: u64,
    ) {
        let mut cloud = Cloud::new(1);
        steps.into_iter().try_for_each(|step| cloud.step(step))?;
        let expected = answers(&cloud, seed);
        for turn in 0..100 {
            prop_assert_eq!(&answers(&cloud, seed.wrapping_add(turn)), &expected);
        }
    }

    #[test]
    fn the_order_of_delivery_within_a_batch_does_not_matter(
        steps in prop::collection::vec(step(1), 1..80),
        batch in prop::collection::vec(edit(), 1..16),
        seed: u64,
    ) {
        let mut cloud = Cloud::new(1);
        steps.into_iter().try_for_each(|step| cloud.step(step))?;
        cloud.settle()?;
        let (world, records) = (cloud.world.clone(), cloud.records.clone());
        batch.into_iter().try_for_each(|step| cloud.step(step))?;
        let batch = difference((&world, &records), (&cloud.world, &cloud.records));
        let names = list(&cloud.world, &cloud.records);
        let names = names.into_iter().filter(|it| matches!(it, Event::Resolved { .. }));
        let names: Vec<Event> = names.collect();
        let outcome = |seed| {
            let mut machine = Addresses::new(Config { grace: GRACE });
            let before = list(&world, &records);
            before.into_iter().for_each(|event| machine.handle(event, cloud.now));
            machine.take(cloud.now);
            let mut batch = batch.clone();
            shuffle(&mut batch, seed);
            batch.into_iter().chain(names.clone()).for_each(|event| machine.handle(event, cloud.now));
            machine.take(cloud.now)
        };
        let expected = outcome(seed);
        for turn in 0..100 {
            prop_assert_eq!(&outcome(seed.wrapping_add(turn)), &expected);
        }
    }
}
