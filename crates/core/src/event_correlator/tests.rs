//! Tests of the correlator: counts, budgets, and turns of namespaces.

use super::*;
use crate::key::ConsumerKind;
use proptest::prelude::*;

fn about(object: &str, message: &str) -> EventDraft {
    told("shop", object, message)
}

/// A warning about a Service of a namespace.
fn told(namespace: &str, object: &str, message: &str) -> EventDraft {
    EventDraft {
        object: About::Consumer(ConsumerRef {
            kind: ConsumerKind::Service,
            namespace: namespace.into(),
            name: object.into(),
            uid: "u".into(),
        }),
        severity: Severity::Warning,
        reason: "PortTaken".into(),
        message: message.into(),
    }
}

/// Says a message, and takes what may be written then.
fn step(correlator: &mut EventCorrelator, draft: EventDraft, now: Duration) -> Option<Write> {
    correlator.add(draft, now);
    correlator.take(now).map(|(_, write)| write)
}

/// The namespaces of all Events that may be written now.
fn taken(correlator: &mut EventCorrelator, now: Duration) -> Vec<Arc<str>> {
    let all = std::iter::from_fn(|| correlator.take(now));
    all.map(|(it, _)| Arc::clone(it.object.namespace())).collect()
}

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn the_same_again_raises_the_count_and_something_else_is_new() {
    let mut correlator = EventCorrelator::new(Limits::default());
    assert_eq!(
        step(&mut correlator, about("a", "m"), at(0)),
        Some(Write::Create { id: 1, count: 1 })
    );
    assert_eq!(
        step(&mut correlator, about("a", "m"), at(1)),
        Some(Write::Update { id: 1, count: 2 })
    );
    assert_eq!(
        step(&mut correlator, about("a", "n"), at(2)),
        Some(Write::Create { id: 2, count: 1 })
    );
    assert_eq!(
        step(&mut correlator, about("b", "m"), at(2)),
        Some(Write::Create { id: 3, count: 1 })
    );
}

#[test]
fn the_same_after_the_window_is_new() {
    let mut correlator = EventCorrelator::new(Limits::default());
    step(&mut correlator, about("a", "m"), at(0));
    assert_eq!(
        step(&mut correlator, about("a", "m"), at(600)),
        Some(Write::Update { id: 1, count: 2 })
    );
    assert_eq!(
        step(&mut correlator, about("a", "m"), at(1201)),
        Some(Write::Create { id: 2, count: 1 })
    );
}

#[test]
fn an_object_has_a_burst_and_then_one_write_in_five_minutes_and_others_have_theirs() {
    let mut correlator = EventCorrelator::new(Limits::default());
    let writes = |correlator: &mut EventCorrelator, seconds| {
        (0..100).filter(|_| step(correlator, about("a", "m"), at(seconds)).is_some()).count()
    };
    assert_eq!(writes(&mut correlator, 0), 25);
    assert_eq!(writes(&mut correlator, 299), 0);
    assert_eq!(
        step(&mut correlator, about("a", "m"), at(300)),
        Some(Write::Update { id: 1, count: 201 })
    );
    assert_eq!(writes(&mut correlator, 301), 0);
    assert_eq!(writes(&mut correlator, 900), 2);
    assert_eq!(
        step(&mut correlator, about("b", "m"), at(301)),
        Some(Write::Create { id: 2, count: 1 })
    );
    assert_eq!(writes(&mut correlator, 1_000_000), 25);
}

#[test]
fn a_namespace_has_a_burst_and_then_five_writes_in_two_seconds_and_all_together_twice_as_many() {
    let writes = |namespaces: usize| {
        let mut correlator = EventCorrelator::new(Limits::default());
        for i in 0..1000 {
            correlator.add(told(&format!("ns-{}", i % namespaces), &i.to_string(), "m"), at(0));
        }
        [0, 2, 4].map(|seconds| taken(&mut correlator, at(seconds)).len())
    };
    assert_eq!(writes(1), [100, 5, 5]);
    assert_eq!(writes(2), [200, 10, 10]);
    assert_eq!(writes(10), [200, 10, 10]);
}

#[test]
fn what_could_not_be_said_at_first_is_created_when_it_can() {
    let limits = Limits { burst: 1, ..Limits::default() };
    let mut correlator = EventCorrelator::new(limits);
    step(&mut correlator, about("a", "m"), at(0));
    assert_eq!(step(&mut correlator, about("a", "n"), at(1)), None);
    let said = step(&mut correlator, about("a", "n"), at(300));
    assert_eq!(said, Some(Write::Create { id: 2, count: 2 }));
}

#[test]
fn an_event_that_was_lost_is_created_again() {
    let mut correlator = EventCorrelator::new(Limits::default());
    step(&mut correlator, about("a", "m"), at(0));
    correlator.lost(1);
    assert_eq!(
        step(&mut correlator, about("a", "m"), at(1)),
        Some(Write::Create { id: 2, count: 1 })
    );
}

#[test]
fn memory_is_bounded_and_the_oldest_goes_first() {
    let (total_burst, namespace_burst) = (5000, 5000);
    let limits = Limits { remembered: 10, total_burst, namespace_burst, ..Limits::default() };
    let mut correlator = EventCorrelator::new(limits);
    for i in 0..1000 {
        step(&mut correlator, about(&i.to_string(), "m"), at(0));
    }
    assert_eq!((correlator.said.entries.len(), correlator.said.order.len()), (10, 10));
    assert_eq!((correlator.objects.entries.len(), correlator.objects.order.len()), (10, 10));
    let again = step(&mut correlator, about("999", "m"), at(1));
    assert_eq!(again, Some(Write::Update { id: 1000, count: 2 }));
    assert_eq!(
        step(&mut correlator, about("0", "m"), at(1)),
        Some(Write::Create { id: 1001, count: 1 })
    );
}

#[test]
fn what_could_not_be_said_waits_until_it_can_without_being_said_again() {
    let limits = Limits { burst: 1, ..Limits::default() };
    let mut correlator = EventCorrelator::new(limits);
    for message in ["m", "n", "o"] {
        correlator.add(about("a", message), at(0));
    }
    assert_eq!(taken(&mut correlator, at(0)).len(), 1);
    assert_eq!(correlator.take(at(299)), None);
    assert!(correlator.again().is_some());
    let later = |correlator: &mut EventCorrelator, seconds, message, id| {
        let write = Write::Create { id, count: 1 };
        assert_eq!(correlator.take(at(seconds)), Some((about("a", message), write)));
    };
    later(&mut correlator, 300, "n", 2);
    later(&mut correlator, 600, "o", 3);
    assert_eq!((correlator.take(at(9000)), correlator.again()), (None, None));
}

#[test]
fn a_namespace_about_which_much_is_said_silences_no_other() {
    let mut correlator = EventCorrelator::new(Limits::default());
    let flood = |correlator: &mut EventCorrelator, namespace: &str, message: &str, seconds| {
        for i in 0..300 {
            correlator.add(told(namespace, &i.to_string(), message), at(seconds));
        }
    };
    flood(&mut correlator, "evil", "m", 0);
    assert_eq!(taken(&mut correlator, at(0)).len(), 100);
    correlator.add(about("web", "m"), at(0));
    assert_eq!(taken(&mut correlator, at(0)), ["shop".into()]);
    // Two namespaces use up the budget of all: then a third one is among the next to be written.
    flood(&mut correlator, "more", "m", 0);
    flood(&mut correlator, "evil", "n", 0);
    assert_eq!(taken(&mut correlator, at(0)).len(), 99);
    correlator.add(about("web", "n"), at(0));
    assert_eq!(correlator.take(at(0)), None);
    let all = taken(&mut correlator, at(1));
    assert_eq!(all.len(), 5);
    assert!(all[..3].contains(&"shop".into()), "{all:?}");
}

#[test]
fn what_waits_is_bounded_for_each_namespace_and_of_one_reason_the_latest_stays() {
    let mut correlator = EventCorrelator::new(Limits::default());
    let kept = (0..5000).filter(|i| correlator.add(told("evil", &i.to_string(), "m"), at(0)));
    assert_eq!(kept.count(), 1024);
    assert!(correlator.add(about("web", "m"), at(0)));
    for i in 0..100 {
        assert!(correlator.add(told("evil", "0", &i.to_string()), at(0)));
    }
    assert_eq!((correlator.messages.len(), correlator.waiting.len()), (1025, 1025));
    let (first, _) = correlator.take(at(0)).unwrap();
    assert_eq!(first, told("evil", "0", "92"));
    correlator.clear();
    assert_eq!((correlator.take(at(0)), correlator.again()), (None, None));
    // Many namespaces share equally what may wait.
    for i in 0..50_000 {
        correlator.add(told(&format!("ns-{}", i % 100), &i.to_string(), "m"), at(0));
    }
    assert!(correlator.waiting.len() <= 2 * 16 * 1024, "{}", correlator.waiting.len());
    assert!(correlator.waiting.waiting(&"ns-99".into()) >= 163);
}

#[test]
fn warnings_come_before_what_is_said_for_information() {
    let mut correlator = EventCorrelator::new(Limits::default());
    let normal = EventDraft { severity: Severity::Normal, ..about("a", "assigned") };
    correlator.add(EventDraft { reason: "AddressAssigned".into(), ..normal }, at(0));
    correlator.add(about("b", "m"), at(0));
    assert_eq!(correlator.take(at(0)).unwrap().0, about("b", "m"));
}

proptest! {
    /// Other namespaces say messages between any two writes.
    #[test]
    fn what_is_said_once_is_written_after_one_write_of_each_other_namespace(
        crowd in prop::collection::vec(prop::collection::vec((0..5u8, 0..40u8, 0..3u8), 0..60), 1..30),
    ) {
        let mut correlator = EventCorrelator::new(Limits { total_burst: 1, ..Limits::default() });
        let mut writes = 0;
        for (turn, said) in crowd.iter().chain(std::iter::repeat(&Vec::new())).enumerate() {
            let now = Duration::from_millis(200 * turn as u64);
            for (namespace, object, message) in said {
                correlator.add(
                    told(&format!("evil-{namespace}"), &object.to_string(), &message.to_string()), now,
                );
            }
            if turn == 0 {
                correlator.add(about("web", "m"), now);
            }
            let (write, _) = correlator.take(now).unwrap();
            prop_assert_eq!(correlator.take(now), None);
            if *write.object.namespace() == "shop".into() {
                break;
            }
            writes += 1;
            prop_assert!(writes <= 5);
        }
    }
}
