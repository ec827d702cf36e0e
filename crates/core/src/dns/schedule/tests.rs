//! Tests of the schedule with exact times: lateness is off, except where it is tested.

mod properties;

use super::*;
use crate::dns::{Answer, Failure, FailureKind, Found};
use crate::objects::Family;

pub(super) fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Handles an event, or none, and takes the effects that follow at once.
pub(super) fn step(
    schedule: &mut Schedule,
    event: impl Into<Option<Event>>,
    now: Uptime,
) -> Vec<Effect> {
    event.into().into_iter().for_each(|event| schedule.handle(event, now));
    schedule.take(now)
}

pub(super) fn name(text: &str) -> Name {
    text.parse().expect(text)
}

pub(super) fn found(family: Family, ttl: u64) -> Answer {
    let address = match family {
        Family::V4 => "192.0.2.1",
        Family::V6 => "2001:db8::1",
    };
    Found::new(family, [address.parse().expect("an address")], secs(ttl))
}

pub(super) fn failed(kind: FailureKind) -> Answer {
    Err(Failure::new(kind, ""))
}

fn v4(answer: Answer) -> Answers {
    Answers { v4: Some(answer), v6: None }
}

fn ok(ttl: u64) -> Answers {
    v4(found(Family::V4, ttl))
}

/// 5 s to 1 h, retries after a minute at most, never late.
fn punctual() -> Config {
    Config { most_late: Duration::ZERO, ..Config::default() }
}

fn namespaces(all: &[&str]) -> Arc<[Arc<str>]> {
    all.iter().map(|it| Arc::from(*it)).collect()
}

fn want(text: &str, families: Families) -> Event {
    want_by(&["shop"], text, families)
}

fn want_by(by: &[&str], text: &str, families: Families) -> Event {
    Event::Want { name: name(text), families, namespaces: namespaces(by) }
}

fn look(id: u64, text: &str, families: Families) -> Effect {
    Effect::Look { id, name: name(text), families }
}

fn answered(id: u64, text: &str, answers: Answers) -> Event {
    Event::Answered { name: name(text), id, answers }
}

fn report(text: &str, answers: Answers, next_check: u64) -> Effect {
    report_within(60, text, answers, next_check)
}

fn report_within(within: u64, text: &str, answers: Answers, next_check: u64) -> Effect {
    let (next_check, retried_within) = (secs(next_check), secs(within));
    let report = Report { answers, next_check, retried_within };
    Effect::Report { name: name(text), report }
}

/// A schedule on which `a.example` is being looked up at 0 s, as id 1.
fn one(config: Config, families: Families) -> Schedule {
    let mut schedule = Schedule::new(config);
    assert_eq!(
        step(&mut schedule, want("a.example", families), secs(0)),
        [look(1, "a.example", families)]
    );
    schedule
}

#[test]
fn a_name_is_looked_up_at_once_and_again_when_its_ttl_ends() {
    let mut schedule = one(punctual(), Families::V4);
    assert_eq!(schedule.next_wake(), None);
    let answer = answered(1, "a.example", ok(30));
    assert_eq!(step(&mut schedule, answer, secs(1)), [report("a.example", ok(30), 30)]);
    assert_eq!(schedule.next_wake(), Some(secs(31)));
    assert_eq!(schedule.take(secs(31) - Duration::from_nanos(1)), []);
    assert_eq!(schedule.take(secs(31)), [look(2, "a.example", Families::V4)]);
}

#[test]
fn a_ttl_is_never_taken_for_shorter_than_5_seconds_nor_longer_than_an_hour() {
    for (ttl, next) in [(0, 5), (4, 5), (5, 5), (6, 6), (3600, 3600), (86_400, 3600)] {
        let mut schedule = one(punctual(), Families::V4);
        let effects = step(&mut schedule, answered(1, "a.example", ok(ttl)), secs(0));
        assert_eq!(effects, [report("a.example", ok(ttl), next)]);
    }
}

#[test]
fn limits_can_be_set_and_must_make_sense() {
    let config = Config::new(secs(2), secs(10)).unwrap();
    for (ttl, next) in [(0, 2), (9, 9), (11, 10)] {
        let config = Config { most_late: Duration::ZERO, ..config.clone() };
        let mut schedule = one(config, Families::V4);
        let effects = step(&mut schedule, answered(1, "a.example", ok(ttl)), secs(0));
        assert_eq!(effects, [report_within(10, "a.example", ok(ttl), next)]);
    }
    assert_eq!(Config::new(secs(0), secs(10)), Err(BadLimits));
    assert_eq!(Config::new(secs(11), secs(10)), Err(BadLimits));
}

#[test]
fn failures_are_retried_later_each_time_up_to_a_minute_until_one_look_up_works() {
    let mut schedule = one(punctual(), Families::V4);
    let mut now = secs(0);
    let kinds = [FailureKind::Timeout, FailureKind::NxDomain, FailureKind::ServFail];
    let answers = kinds.iter().cycle().map(|kind| v4(failed(*kind)));
    for (id, (answers, next)) in (1..).zip(answers.zip([5, 10, 20, 40, 60, 60])) {
        let effects = step(&mut schedule, answered(id, "a.example", answers.clone()), now);
        assert_eq!(effects, [report("a.example", answers, next)]);
        now += secs(next);
        assert_eq!(schedule.take(now), [look(id + 1, "a.example", Families::V4)]);
    }
    step(&mut schedule, answered(7, "a.example", ok(30)), now);
    schedule.take(now + secs(30));
    let timeout = v4(failed(FailureKind::Timeout));
    let effects = step(&mut schedule, answered(8, "a.example", timeout.clone()), now + secs(30));
    assert_eq!(effects, [report("a.example", timeout, 5)]);
}

#[test]
fn retries_keep_within_the_limits_of_ttls() {
    let config = Config::new(secs(20), secs(30)).unwrap();
    let mut schedule = one(Config { most_late: Duration::ZERO, ..config }, Families::V4);
    let timeout = v4(failed(FailureKind::Timeout));
    let mut now = secs(0);
    for (id, next) in (1..).zip([20, 30, 30]) {
        let effects = step(&mut schedule, answered(id, "a.example", timeout.clone()), now);
        assert_eq!(effects, [report_within(30, "a.example", timeout.clone(), next)]);
        now += secs(next);
        schedule.take(now);
    }
}

#[test]
fn of_two_families_the_shorter_ttl_counts() {
    let mut schedule = one(punctual(), Families::BOTH);
    let both = Answers { v4: Some(found(Family::V4, 30)), v6: Some(found(Family::V6, 20)) };
    let effects = step(&mut schedule, answered(1, "a.example", both.clone()), secs(0));
    assert_eq!(effects, [report("a.example", both, 20)]);
}

#[test]
fn when_one_family_fails_both_are_told_and_the_retry_comes_before_the_ttl_ends() {
    let answers = |kind, ttl| Answers { v4: Some(found(Family::V4, ttl)), v6: Some(failed(kind)) };
    let mut schedule = one(punctual(), Families::BOTH);
    let mut now = secs(0);
    for (id, next) in (1..).zip([5, 10, 15, 15]) {
        let timeout = answers(FailureKind::Timeout, 15);
        let effects = step(&mut schedule, answered(id, "a.example", timeout.clone()), now);
        assert_eq!(effects, [report("a.example", timeout, next)]);
        now += secs(next);
        schedule.take(now);
    }
}

#[test]
fn a_name_with_one_family_only_is_no_failure() {
    let mut schedule = one(punctual(), Families::BOTH);
    let answers =
        Answers { v4: Some(found(Family::V4, 300)), v6: Some(failed(FailureKind::NoData)) };
    let effects = step(&mut schedule, answered(1, "a.example", answers.clone()), secs(0));
    assert_eq!(effects, [report("a.example", answers, 300)]);
}

#[test]
fn wanting_a_name_again_changes_nothing() {
    let mut schedule = one(punctual(), Families::V4);
    assert_eq!(step(&mut schedule, want("A.example.", Families::V4), secs(0)), []);
    step(&mut schedule, answered(1, "a.example", ok(30)), secs(0));
    assert_eq!(step(&mut schedule, want("a.example", Families::V4), secs(10)), []);
    assert_eq!(schedule.next_wake(), Some(secs(30)));
}

#[test]
fn a_family_added_while_waiting_is_looked_up_at_once() {
    let mut schedule = one(punctual(), Families::V4);
    step(&mut schedule, answered(1, "a.example", ok(300)), secs(0));
    let effects = step(&mut schedule, want("a.example", Families::BOTH), secs(7));
    assert_eq!(effects, [look(2, "a.example", Families::BOTH)]);
}

#[test]
fn a_family_that_is_wanted_again_is_looked_up_at_once() {
    let mut schedule = one(punctual(), Families::BOTH);
    let both = Answers { v4: Some(found(Family::V4, 300)), v6: Some(found(Family::V6, 300)) };
    step(&mut schedule, answered(1, "a.example", both), secs(0));
    assert_eq!(step(&mut schedule, want("a.example", Families::V4), secs(1)), []);
    let effects = step(&mut schedule, want("a.example", Families::BOTH), secs(2));
    assert_eq!(effects, [look(2, "a.example", Families::BOTH)]);
}

#[test]
fn a_family_added_during_a_look_up_is_looked_up_right_after_it() {
    let mut schedule = one(punctual(), Families::V4);
    assert_eq!(step(&mut schedule, want("a.example", Families::BOTH), secs(1)), []);
    let effects = step(&mut schedule, answered(1, "a.example", ok(300)), secs(2));
    assert_eq!(effects, [report("a.example", ok(300), 0), look(2, "a.example", Families::BOTH)]);
}

#[test]
fn a_family_that_nobody_wants_any_more_is_neither_told_nor_looked_up() {
    let mut schedule = one(punctual(), Families::BOTH);
    assert_eq!(step(&mut schedule, want("a.example", Families::V4), secs(0)), []);
    let both = Answers { v4: Some(found(Family::V4, 30)), v6: Some(failed(FailureKind::Timeout)) };
    let effects = step(&mut schedule, answered(1, "a.example", both), secs(0));
    assert_eq!(effects, [report("a.example", ok(30), 30)]);
    assert_eq!(schedule.take(secs(30)), [look(2, "a.example", Families::V4)]);
    assert_eq!(
        step(&mut schedule, answered(2, "a.example", ok(300)), secs(30)),
        [report("a.example", ok(300), 300)]
    );
    let effects = step(&mut schedule, want("a.example", Families::V6), secs(40));
    assert_eq!(effects, [look(3, "a.example", Families::V6)]);
}

#[test]
fn an_unwanted_name_is_forgotten() {
    let mut schedule = one(punctual(), Families::V4);
    step(&mut schedule, answered(1, "a.example", ok(30)), secs(0));
    assert_eq!(step(&mut schedule, Event::Unwant { name: name("a.example") }, secs(1)), []);
    assert_eq!(schedule.next_wake(), None);
    assert_eq!(step(&mut schedule, Event::Unwant { name: name("a.example") }, secs(1)), []);
    let effects = step(&mut schedule, want("a.example", Families::V4), secs(2));
    assert_eq!(effects, [look(2, "a.example", Families::V4)]);
}

#[test]
fn a_look_up_that_nobody_waits_for_is_cancelled_and_its_answer_ignored() {
    let mut schedule = one(punctual(), Families::V4);
    let effects = step(&mut schedule, want("a.example", Families::NONE), secs(1));
    assert_eq!(effects, [Effect::Cancel { id: 1 }]);
    assert_eq!(step(&mut schedule, answered(1, "a.example", ok(30)), secs(1)), []);
    let effects = step(&mut schedule, want("a.example", Families::V4), secs(2));
    assert_eq!(effects, [look(2, "a.example", Families::V4)]);
    assert_eq!(step(&mut schedule, answered(1, "a.example", ok(30)), secs(2)), []);
    let effects = step(&mut schedule, answered(2, "a.example", ok(40)), secs(3));
    assert_eq!(effects, [report("a.example", ok(40), 40)]);
    assert_eq!(step(&mut schedule, answered(2, "a.example", ok(50)), secs(3)), []);
    assert_eq!(schedule.next_wake(), Some(secs(43)));
}

#[test]
fn an_answer_without_a_family_that_was_asked_for_is_a_failure() {
    let mut schedule = one(punctual(), Families::V4);
    let none = v4(Err(Failure::new(FailureKind::Unusable, "no answer for this IP family")));
    let effects = step(&mut schedule, answered(1, "a.example", Answers::default()), secs(0));
    assert_eq!(effects, [report("a.example", none, 5)]);
}

#[test]
fn a_namespace_has_half_of_all_look_ups_and_the_name_that_was_due_first_comes_first() {
    let mut schedule = Schedule::new(Config { at_once: 4, ..punctual() });
    let wants = ["d.example", "c.example", "b.example", "a.example"];
    let looks: Vec<_> = (0..)
        .zip(wants)
        .map(|(at, name)| step(&mut schedule, want(name, Families::V4), secs(at)))
        .collect();
    let [first, second] = [look(1, "d.example", Families::V4), look(2, "c.example", Families::V4)];
    assert_eq!(looks, [vec![first], vec![second], vec![], vec![]]);
    assert_eq!(schedule.next_wake(), None);
    assert_eq!(
        step(&mut schedule, answered(2, "c.example", ok(30)), secs(4)),
        [report("c.example", ok(30), 30), look(3, "b.example", Families::V4)]
    );
    // A look-up that is cancelled makes room too.
    assert_eq!(
        step(&mut schedule, Event::Unwant { name: name("d.example") }, secs(4)),
        [Effect::Cancel { id: 1 }, look(4, "a.example", Families::V4)]
    );
}

#[test]
fn five_thousand_names_that_are_never_answered_delay_no_name_of_another_namespace() {
    let mut schedule = Schedule::new(punctual());
    // Look-ups that end only by their timeout, by when that is.
    let mut ends: BTreeSet<(Duration, u64, Name)> = BTreeSet::new();
    let silent = |effects: Vec<Effect>, now: Duration, ends: &mut BTreeSet<_>| {
        for effect in effects {
            match effect {
                Effect::Look { id, name, .. } => _ = ends.insert((now + secs(5), id, name)),
                Effect::Report { .. } => {}
                Effect::Cancel { id } => panic!("{id}"),
            }
        }
    };
    for number in 0..5_000 {
        let event = want_by(&["evil"], &format!("n{number}.silent.example"), Families::V4);
        silent(step(&mut schedule, event, secs(0)), secs(0), &mut ends);
    }
    let shop = [look(ends.len() as u64 + 1, "shop.example", Families::V4)];
    assert_eq!(step(&mut schedule, want("shop.example", Families::V4), secs(0)), shop);
    let (mut id, mut looked) = (ends.len() as u64 + 1, vec![secs(0)]);
    let mut now = secs(0);
    while now < secs(600) {
        // The answer to the shop comes at once, with a TTL of ten seconds.
        let event = answered(id, "shop.example", ok(10));
        silent(step(&mut schedule, event, now)[1..].to_vec(), now, &mut ends);
        let again = now + secs(10);
        while now < again {
            let ended = ends.first().map_or(again, |(at, ..)| *at);
            now = again.min(ended).min(schedule.next_wake().unwrap_or(again));
            let event = match ends.first().filter(|(at, ..)| *at <= now).cloned() {
                Some(first) => {
                    ends.remove(&first);
                    let answers = v4(failed(FailureKind::Timeout));
                    Some(Event::Answered { name: first.2, id: first.1, answers })
                }
                None => None,
            };
            let mut effects = step(&mut schedule, event, now);
            effects.retain(|effect| match effect {
                Effect::Look { id: ours, name, .. } if name.as_str() == "shop.example" => {
                    (id, looked) = (*ours, [&looked[..], &[now]].concat());
                    false
                }
                _ => true,
            });
            silent(effects, now, &mut ends);
        }
    }
    let punctually: Vec<_> = (0..=60).map(|turn| secs(10) * turn).collect();
    assert_eq!(looked, punctually);
}

#[test]
fn a_name_of_two_namespaces_is_looked_up_once_with_the_share_of_the_idle_one() {
    let mut schedule = Schedule::new(Config { at_once: 4, ..punctual() });
    for text in ["a.example", "b.example", "c.example"] {
        step(&mut schedule, want_by(&["evil"], text, Families::V4), secs(0));
    }
    assert_eq!(step(&mut schedule, want_by(&["evil"], "d.example", Families::V4), secs(0)), []);
    // Another namespace wants a name that waits in the first namespace's line.
    let effects =
        step(&mut schedule, want_by(&["evil", "shop"], "d.example", Families::V4), secs(0));
    assert_eq!(effects, [look(3, "d.example", Families::V4)]);
    // The name waits in no namespace's line any more.
    let effects = step(&mut schedule, answered(1, "a.example", ok(30)), secs(1));
    assert_eq!(effects, [report("a.example", ok(30), 30), look(4, "c.example", Families::V4)]);
    // The namespace that its look-up counts for does not want it any more, and the look-up goes on.
    assert_eq!(step(&mut schedule, want_by(&["evil"], "d.example", Families::V4), secs(1)), []);
    let effects = step(&mut schedule, answered(3, "d.example", ok(30)), secs(2));
    assert_eq!(effects, [report("d.example", ok(30), 30)]);
}

#[test]
fn a_thousand_names_with_one_ttl_do_not_ask_at_the_same_time() {
    let spread = |seed| {
        let mut schedule = Schedule::new(Config { at_once: 1_000, seed, ..Config::default() });
        let mut due = Vec::new();
        for i in 0..1_000 {
            let text = format!("n{i}.example");
            let looks = step(&mut schedule, want(&text, Families::V4), secs(0));
            let [Effect::Look { id, .. }] = looks[..] else { panic!("{looks:?}") };
            let effects = step(&mut schedule, answered(id, &text, ok(60)), secs(0));
            let [Effect::Report { report, .. }] = &effects[..] else { panic!("{effects:?}") };
            due.push(report.next_check);
        }
        due
    };
    let due = spread(1);
    // A tenth of the TTL, in six parts: about as many names in each.
    for second in 60..66 {
        let within = secs(second)..secs(second + 1);
        let count = due.iter().filter(|due| within.contains(due)).count();
        assert!((100..=240).contains(&count), "{count} in second {second}");
    }
    assert!(due.iter().all(|due| (secs(60)..secs(66)).contains(due)));
    assert_eq!(due, spread(1));
    assert_ne!(due, spread(2));
}

#[test]
fn an_event_costs_the_same_among_1_000_and_10_000_names() {
    let cost = |names: u64| {
        let mut schedule = Schedule::new(Config { at_once: 1, ..punctual() });
        for i in 0..names {
            step(&mut schedule, want(&format!("n{i}.example"), Families::V4), secs(0));
        }
        let first = "n0.example";
        let events = [
            Some(answered(1, first, ok(30))),
            Some(want("new.example", Families::V4)),
            Some(want("new.example", Families::BOTH)),
            Some(Event::Unwant { name: name("new.example") }),
            None,
            Some(answered(1, first, ok(30))),
        ];
        let mut cost = |event: Option<Event>| {
            let before = schedule.visited();
            step(&mut schedule, event, secs(1));
            schedule.visited() - before
        };
        events.map(&mut cost)
    };
    assert_eq!(cost(1_000), cost(10_000));
    assert_eq!(cost(1_000), [2, 1, 1, 1, 0, 1]);
}

#[test]
fn a_name_that_fails_is_looked_up_again_within_the_time_that_its_report_says() {
    let long = Config::new(secs(120), secs(3600)).unwrap();
    let short = Config::new(secs(1), secs(20)).unwrap();
    for (config, within) in [(Config::default(), 66), (long, 130), (short, 22)] {
        let mut schedule = one(config, Families::V4);
        let (mut now, mut id, mut longest) = (Duration::ZERO, 1, Duration::ZERO);
        for _ in 0..20 {
            let failed =
                Answers { v4: Some(Err(Failure::new(FailureKind::NxDomain, ""))), v6: None };
            let effects = step(&mut schedule, answered(id, "a.example", failed), now);
            let Some(Effect::Report { report, .. }) = effects.first() else {
                panic!("{effects:?}")
            };
            assert_eq!(report.retried_within, secs(within));
            longest = longest.max(report.next_check);
            now = schedule.next_wake().unwrap();
            schedule.take(now);
            id += 1;
        }
        assert!(longest <= secs(within) && longest * 2 > secs(within), "{longest:?} {within}");
    }
}
