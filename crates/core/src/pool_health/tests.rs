//! When a pool that serves nobody is reported, and with which words.

use super::*;
use crate::key::ConsumerKind;
use crate::plan::Transport;
use proptest::prelude::*;

fn seconds(seconds: u64) -> Uptime {
    Duration::from_secs(seconds)
}

fn pool(ready: usize) -> Event {
    pool_of("web", ready)
}

fn pool_of(name: &str, ready: usize) -> Event {
    let (namespace, name): (Arc<str>, Arc<str>) = ("shop".into(), name.into());
    let kind = ConsumerKind::Service;
    let (uid, port) = ("u".into(), "http".into());
    Event::Pool {
        name: Arc::clone(&name),
        consumer: ConsumerRef {
            kind,
            namespace: Arc::clone(&namespace),
            name: Arc::clone(&name),
            uid,
        },
        service: ServicePortRef { namespace, name, port, protocol: Transport::Tcp },
        ready,
    }
}

fn failing(count: u32) -> Event {
    let address = |last: u32| format!("10.0.0.{last}:80").parse().unwrap();
    let named = (1..=count.min(3)).map(address).collect();
    let failing = FailingPool { pool: "web".into(), count, named };
    Event::Failing(if count == 0 { Vec::new() } else { vec![failing] })
}

fn reasons(health: &Health) -> Vec<Reason> {
    health.refusals().map(|it| it.problem.reason).collect()
}

#[test]
fn a_pool_without_a_ready_member_is_reported_after_a_moment_and_no_longer_once_it_has_one() {
    let mut health = Health::default();
    health.handle(pool(2), seconds(0));
    health.handle(pool(0), seconds(1));
    assert!(!health.take(seconds(2)));
    assert_eq!(health.wake_at(), Some(seconds(3)));
    assert!(health.take(seconds(3)));
    let told: Vec<_> = health.refusals().map(|it| it.problem.message.to_string()).collect();
    assert_eq!(
        told,
        ["Service shop/web port http has no ready endpoint, so clients get no answer"]
    );
    health.handle(pool(1), seconds(20));
    assert!(health.take(seconds(22)));
    assert_eq!((reasons(&health), health.wake_at()), (vec![], None));
}

#[test]
fn a_pool_that_never_had_a_ready_member_is_reported_later() {
    let mut health = Health::default();
    health.handle(pool(0), seconds(0));
    assert_eq!(health.wake_at(), Some(START));
    assert!(health.take(START));
    assert_eq!(reasons(&health), [Reason::NoEndpoints]);
}

#[test]
fn a_pool_that_fails_for_a_moment_is_not_reported() {
    let mut health = Health::default();
    health.handle(pool(2), seconds(0));
    for second in 0..10 {
        health.handle(failing(2 * (second as u32 % 2)), seconds(second));
        assert!(!health.take(seconds(second)));
    }
}

#[test]
fn a_pool_is_told_apart_by_whether_any_member_answers() {
    let mut health = Health::default();
    health.handle(pool(4), seconds(0));
    health.handle(failing(1), seconds(0));
    assert!(health.take(seconds(2)));
    let told: Vec<_> = health.refusals().map(|it| it.problem.message.to_string()).collect();
    assert_eq!(told, ["1 of 4 endpoints of Service shop/web port http do not answer: 10.0.0.1:80"]);
    health.handle(failing(4), seconds(3));
    assert!(!health.take(seconds(6)), "two reports of one pool are some time apart");
    assert!(health.take(seconds(7)));
    let told: Vec<_> = health.refusals().map(|it| it.problem.message.to_string()).collect();
    assert_eq!(
        told,
        [
            "no endpoint of Service shop/web port http answers (10.0.0.1:80, 10.0.0.2:80, 10.0.0.3:80, …)"
        ]
    );
}

#[test]
fn a_pool_that_fails_in_changing_ways_is_reported() {
    let mut health = Health::default();
    health.handle(pool(2), seconds(0));
    health.handle(failing(2), seconds(1));
    health.handle(pool(0), seconds(2));
    health.handle(pool(2), seconds(3));
    assert!(health.take(seconds(3)));
    assert_eq!(reasons(&health), [Reason::EndpointsDown]);
}

#[test]
fn endpoints_that_come_and_go_beside_one_that_fails_are_seldom_reported() {
    let mut health = Health::default();
    health.handle(pool(3), seconds(0));
    health.handle(failing(1), seconds(0));
    assert!(health.take(seconds(2)));
    health.handle(pool(4), seconds(3));
    assert_eq!(health.wake_at(), Some(seconds(2) + LONG_GAP));
}

fn pool_in(namespace: &str, name: &str, ready: usize) -> Event {
    let Event::Pool { mut name, mut consumer, mut service, .. } = pool_of(name, ready) else {
        unreachable!()
    };
    name = format!("{namespace}/{name}").into();
    (consumer.namespace, service.namespace) = (namespace.into(), namespace.into());
    Event::Pool { name, consumer, service, ready }
}

#[test]
fn a_namespace_with_pools_that_change_all_the_time_is_reported_seldom_and_another_one_at_once() {
    const POOLS: u32 = 40;
    let (mut health, mut reports) = (Health::default(), 0);
    let names: Vec<_> = (0..POOLS).map(|n| format!("web-{n}")).collect();
    let all = |health: &mut Health, ready, now| {
        names.iter().for_each(|name| health.handle(pool_in("evil", name, ready), now));
    };
    all(&mut health, 1, seconds(0));
    health.handle(pool_in("shop", "web", 1), seconds(0));
    let told = |health: &Health| health.refusals().cloned().collect::<BTreeSet<_>>();
    // Each change lasts long enough to be reported.
    for round in 0..120 {
        let begin = seconds(5 * round);
        all(&mut health, usize::from(round % 2 == 1), begin);
        for step in 0..50 {
            let now = begin + step * Duration::from_millis(100);
            let before = told(&health);
            health.take(now);
            reports += before.symmetric_difference(&told(&health)).count();
        }
    }
    let most = AT_ONCE + POOLS * AT_ONCE_PER_POOL + 2 * 600;
    assert!(reports <= most as usize, "{reports} reports of at most {most}");
    assert!(reports > 1_000, "{reports} reports are too few");
    health.handle(pool_in("shop", "web", 0), seconds(600));
    health.take(seconds(602));
    assert!(told(&health).iter().any(|it| &*it.consumer.namespace == "shop"));
    // What is reported in the end is what is so.
    all(&mut health, 1, seconds(600));
    while let Some(at) = health.wake_at() {
        health.take(at);
    }
    assert!(told(&health).iter().all(|it| &*it.consumer.namespace == "shop"));
    names.iter().for_each(|name| {
        health.handle(Event::Removed(format!("evil/{name}").into()), seconds(9_000));
    });
    assert_eq!(health.budgets.len(), 1);
}

#[test]
fn an_outage_of_a_whole_namespace_and_its_end_are_reported_at_once() {
    let mut health = Health::default();
    let names: Vec<_> = (0..1000).map(|n| format!("web-{n}")).collect();
    let mut set = |ready, at: u64, count| {
        names.iter().for_each(|name| health.handle(pool_in("shop", name, ready), seconds(at)));
        health.take(seconds(at + 5));
        assert_eq!(health.refusals().count(), count);
    };
    set(1, 0, 0);
    set(0, 10, 1000);
    set(1, 20, 0);
}

#[test]
fn a_pool_that_is_removed_is_reported_no_longer() {
    let mut health = Health::default();
    health.handle(pool(0), seconds(0));
    assert!(health.take(START));
    health.handle(Event::Removed("web".into()), START);
    assert!(health.take(START));
    assert_eq!((reasons(&health), health.wake_at()), (vec![], None));
}

#[test]
fn failures_that_the_driver_finds_before_the_pool_is_known_count() {
    let mut health = Health::default();
    health.handle(failing(1), seconds(0));
    health.handle(pool(1), seconds(1));
    assert!(health.take(seconds(3)));
    assert_eq!(reasons(&health), [Reason::EndpointsDown]);
}

proptest! {
    #[test]
    fn whatever_happens_it_ends_with_what_is_so_and_reports_seldom(
        steps in prop::collection::vec((0u64..4, prop_oneof![
            (0usize..3).prop_map(pool),
            (0u32..3).prop_map(failing),
            Just(Event::Removed("web".into())),
            (0usize..2).prop_map(|ready| pool_of("api", ready)),
        ]), 0..40)
    ) {
        let (mut health, mut now, mut reports) = (Health::default(), seconds(0), 0);
        let (mut ready, mut bad) = (None, 0);
        for (wait, event) in steps {
            now += seconds(wait);
            match &event {
                Event::Pool { name, ready: count, .. } if **name == *"web" => ready = Some(*count),
                Event::Removed(_) => ready = None,
                Event::Failing(all) => bad = all.first().map_or(0, |it| it.count),
                Event::Pool { .. } => {}
            }
            let removed = matches!(event, Event::Removed(_));
            health.handle(event, now);
            reports += usize::from(health.take(now) && !removed);
        }
        let most = 2 * (usize::try_from(now.as_secs()).unwrap() / 5 + 2);
        prop_assert!(reports <= most, "{reports} of at most {most}");
        while let Some(at) = health.wake_at() {
            now = now.max(at);
            health.take(now);
        }
        let web: Vec<_> = health.refusals().filter(|it| *it.consumer.name == *"web").collect();
        let expected = match (ready, bad) {
            (Some(0), _) => Some(Reason::NoEndpoints),
            (Some(count), 1..) if count <= bad as usize => Some(Reason::EndpointsDown),
            (Some(_), 1..) => Some(Reason::EndpointsFailing),
            _ => None,
        };
        prop_assert_eq!(web.first().map(|it| it.problem.reason), expected);
    }
}
