//! Tests of an election, step by step.

use super::*;

/// Handles an event, and takes the effects that follow at once.
fn step(elector: &mut Elector, event: Event, now: Uptime, jitter: f64) -> Vec<Effect> {
    elector.handle(event, now, jitter);
    elector.take(now)
}

fn at(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

fn record(holder: &str, version: u32) -> Record {
    Record {
        holder: (!holder.is_empty()).then(|| holder.into()),
        renewed: format!("t{version}").into(),
        duration: at(15.0),
        transitions: 3,
        version: version.to_string().into(),
    }
}

fn wanted(transitions: u32, acquired: bool) -> Wanted {
    Wanted { holder: Some("me".into()), duration: at(15.0), transitions, acquired }
}

fn update(version: u32, transitions: u32, acquired: bool) -> Request {
    Request::Update(version.to_string().into(), wanted(transitions, acquired))
}

/// An elector that leads since a renewal sent at 0, under version 1.
fn leader() -> Elector {
    let mut elector = Elector::new(Config::new("me"));
    elector.take(at(0.0));
    step(&mut elector, Event::Answer(1, Answer::NotFound), at(0.0), 0.0);
    let effects =
        step(&mut elector, Event::Answer(2, Answer::Lease(record("me", 1))), at(0.1), 0.0);
    assert_eq!((effects, elector.wake()), (vec![Effect::StartLeading], Some(at(2.0))));
    elector
}

/// An elector that saw version 1 of another process's Lease at 0.
fn follower() -> Elector {
    let mut elector = Elector::new(Config::new("me"));
    assert_eq!(elector.take(at(0.0)), [Effect::Send(1, Request::Read)]);
    assert_eq!(
        step(&mut elector, Event::Answer(1, Answer::Lease(record("you", 1))), at(0.0), 0.0),
        []
    );
    elector
}

#[test]
fn who_finds_no_lease_creates_it_and_leads() {
    let mut elector = Elector::new(Config::new("me"));
    assert_eq!(elector.take(at(0.0)), [Effect::Send(1, Request::Read)]);
    let create = Effect::Send(2, Request::Create(wanted(0, true)));
    assert_eq!(step(&mut elector, Event::Answer(1, Answer::NotFound), at(0.0), 0.0), [create]);
    assert!(!elector.leads(at(0.1)));
    let answer = Event::Answer(2, Answer::Lease(record("me", 1)));
    assert_eq!(step(&mut elector, answer, at(0.1), 0.0), [Effect::StartLeading]);
    assert!(elector.leads(at(9.9)) && !elector.leads(at(10.0)));
}

#[test]
fn a_leader_renews_under_the_version_it_knows() {
    let mut elector = leader();
    assert_eq!(elector.take(at(1.9)), []);
    assert_eq!(elector.take(at(2.0)), [Effect::Send(3, update(1, 3, false))]);
    assert_eq!(
        step(&mut elector, Event::Answer(3, Answer::Lease(record("me", 2))), at(2.5), 0.0),
        []
    );
    // The time counts from when the renewal was sent, not from when it was answered.
    assert!(elector.leads(at(11.9)) && !elector.leads(at(12.0)));
    assert_eq!(elector.wake(), Some(at(4.0)));
}

#[test]
fn a_leader_that_cannot_renew_stops_at_the_deadline() {
    let mut elector = leader();
    let mut now = 2.0;
    let mut stopped = None;
    while stopped.is_none() && now < 20.0 {
        for effect in elector.take(at(now)) {
            match effect {
                Effect::StopLeading => stopped = Some(now),
                Effect::Send(id, _) => {
                    step(&mut elector, Event::Answer(id, Answer::Failed), at(now), 0.0);
                }
                other => panic!("{other:?}"),
            }
        }
        now = elector.wake().unwrap().as_secs_f64();
    }
    assert_eq!(stopped, Some(10.0));
}

#[test]
fn a_leader_that_was_stopped_stops_leading_before_anything_else() {
    let mut elector = leader();
    let effects = elector.take(at(3600.0));
    assert_eq!(effects, [Effect::StopLeading, Effect::Send(3, Request::Read)]);
    let mut elector = leader();
    elector.take(at(2.0));
    let late = Event::Answer(3, Answer::Lease(record("me", 2)));
    let effects = step(&mut elector, late, at(3600.0), 0.0);
    assert_eq!(effects, [Effect::StopLeading, Effect::Send(4, Request::Read)]);
    assert!(!elector.leads(at(3600.0)));
}

#[test]
fn a_conflict_is_read_again_and_another_holder_ends_the_lead() {
    let mut elector = leader();
    elector.take(at(2.0));
    let read = Effect::Send(4, Request::Read);
    assert_eq!(step(&mut elector, Event::Answer(3, Answer::Conflict), at(2.1), 0.0), [read]);
    let lost = Event::Answer(4, Answer::Lease(record("you", 7)));
    assert_eq!(step(&mut elector, lost, at(2.2), 0.0), [Effect::StopLeading]);
}

#[test]
fn a_conflict_with_somebody_who_only_touched_the_lease_is_renewed() {
    let mut elector = leader();
    elector.take(at(2.0));
    step(&mut elector, Event::Answer(3, Answer::Conflict), at(2.1), 0.0);
    let touched = Event::Answer(4, Answer::Lease(record("me", 7)));
    assert_eq!(step(&mut elector, touched, at(2.2), 0.0), [Effect::Send(5, update(7, 3, false))]);
}

#[test]
fn a_follower_takes_over_when_it_has_seen_no_change_for_the_whole_duration() {
    let mut elector = follower();
    let mut id = 1;
    for now in [2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0] {
        id += 1;
        assert_eq!(elector.take(at(now)), [Effect::Send(id, Request::Read)]);
        let answer = Event::Answer(id, Answer::Lease(record("you", 1)));
        assert_eq!(step(&mut elector, answer, at(now), 0.0), []);
    }
    assert_eq!(elector.wake(), Some(at(15.0)));
    assert_eq!(elector.take(at(15.0)), [Effect::Send(9, Request::Read)]);
    let answer = Event::Answer(9, Answer::Lease(record("you", 1)));
    assert_eq!(step(&mut elector, answer, at(15.0), 0.0), [Effect::Send(10, update(1, 4, true))]);
}

#[test]
fn a_sign_of_life_starts_the_wait_over() {
    let mut elector = follower();
    elector.take(at(14.0));
    step(&mut elector, Event::Answer(2, Answer::Lease(record("you", 2))), at(14.0), 0.0);
    elector.take(at(16.0));
    let answer = Event::Answer(3, Answer::Lease(record("you", 2)));
    assert_eq!(step(&mut elector, answer, at(16.0), 0.0), []);
}

#[test]
fn attempts_of_followers_are_spread() {
    let mut elector = Elector::new(Config::new("me"));
    elector.take(at(0.0));
    step(&mut elector, Event::Answer(1, Answer::Lease(record("you", 1))), at(0.0), 1.0);
    assert_eq!(elector.wake(), Some(at(2.4)));
}

#[test]
fn a_lease_that_was_let_go_is_taken_at_once() {
    let mut elector = follower();
    elector.take(at(2.0));
    let answer = Event::Answer(2, Answer::Lease(record("", 2)));
    assert_eq!(step(&mut elector, answer, at(2.0), 0.0), [Effect::Send(3, update(2, 4, true))]);
}

#[test]
fn a_lease_that_was_deleted_binds_those_who_saw_it() {
    let mut elector = follower();
    elector.take(at(2.0));
    assert_eq!(step(&mut elector, Event::Answer(2, Answer::NotFound), at(2.0), 0.0), []);
    elector.take(at(15.0));
    let create = Effect::Send(4, Request::Create(wanted(0, true)));
    assert_eq!(step(&mut elector, Event::Answer(3, Answer::NotFound), at(15.0), 0.0), [create]);
}

#[test]
fn an_answer_that_never_comes_is_given_up_and_an_old_one_ignored() {
    let mut elector = leader();
    elector.take(at(2.0));
    assert_eq!(elector.wake(), Some(at(7.0)));
    assert_eq!(elector.take(at(7.0)), [Effect::Send(4, Request::Read)]);
    let old = Event::Answer(3, Answer::Lease(record("me", 2)));
    assert_eq!(step(&mut elector, old, at(7.1), 0.0), []);
    assert!(!elector.leads(at(10.0)));
}

#[test]
fn who_lets_go_stops_first_and_then_says_so() {
    let mut elector = leader();
    let gone = Wanted { holder: None, ..wanted(3, false) };
    let send = Effect::Send(3, Request::Update("1".into(), gone));
    let effects = step(&mut elector, Event::Release, at(1.0), 0.0);
    assert_eq!(effects, [Effect::StopLeading, send, Effect::Ended]);
    assert_eq!((elector.take(at(20.0)), elector.wake()), (vec![], None));
}

#[test]
fn who_lets_go_waits_for_the_answer_that_is_under_way() {
    let mut elector = leader();
    elector.take(at(2.0));
    assert_eq!(step(&mut elector, Event::Release, at(2.1), 0.0), [Effect::StopLeading]);
    let gone = Wanted { holder: None, ..wanted(3, false) };
    let send = Effect::Send(4, Request::Update("2".into(), gone));
    let effects =
        step(&mut elector, Event::Answer(3, Answer::Lease(record("me", 2))), at(2.2), 0.0);
    assert_eq!(effects, [send, Effect::Ended]);
}

#[test]
fn a_follower_that_lets_go_just_ends() {
    assert_eq!(step(&mut follower(), Event::Release, at(1.0), 0.0), [Effect::Ended]);
}
