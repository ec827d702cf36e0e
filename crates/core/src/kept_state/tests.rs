//! Tests of when an agent saves its state, and when it serves kept state.

use super::*;
use proptest::prelude::*;

const START: Duration = Duration::from_secs(1000);

fn origin() -> Origin {
    Origin {
        load_balancer: "edge".into(),
        namespace: "bowline-system".into(),
        cluster: marks(&["c1"]),
        uid: None,
    }
}

fn marks(all: &[&str]) -> BTreeSet<String> {
    all.iter().map(|it| (*it).to_owned()).collect()
}

fn of(uid: &str) -> Origin {
    Origin { uid: Some(uid.into()), ..origin() }
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// An agent of `origin` that found state of `kept` in its folder.
fn found(kept: Origin, age: Duration) -> KeptState {
    let mut kept_state = KeptState::new(origin());
    kept_state.handle(Event::Found(kept, age), START);
    kept_state
}

/// The effects that are due by `until`, each with its time.
fn run(kept_state: &mut KeptState, until: Duration) -> Vec<(Duration, Effect)> {
    let mut done = Vec::new();
    while let Some(at) = kept_state.wake().filter(|at| *at <= until) {
        let at = at.max(START);
        for effect in kept_state.take(at) {
            if effect == Effect::Save {
                kept_state.handle(Event::Written(true, Duration::ZERO), at);
            }
            done.push((at, effect));
        }
    }
    done
}

#[test]
fn kept_state_is_served_when_the_api_does_not_answer() {
    let mut kept_state = found(of("u1"), secs(5));
    assert_eq!(kept_state.take(START + PATIENCE - secs(1)), []);
    assert_eq!(run(&mut kept_state, START + PATIENCE), [(START + PATIENCE, Effect::Serve)]);
}

#[test]
fn an_api_that_answers_slowly_is_waited_for_but_not_for_ever() {
    let mut kept_state = found(of("u1"), secs(5));
    let mut now = START;
    while now < START + secs(30) {
        now += secs(3);
        assert_eq!(kept_state.take(now), []);
        kept_state.handle(Event::Answered, now);
    }
    assert_eq!(kept_state.wake(), Some(now + PATIENCE), "it went silent");
    while kept_state.take(now).is_empty() {
        kept_state.handle(Event::Answered, now);
        now += secs(1);
    }
    assert_eq!(now, START + LONGEST);
}

#[test]
fn kept_state_is_served_at_once_where_the_api_lacks_what_is_served() {
    let mut kept_state = found(of("u1"), secs(5));
    let now = START + secs(1);
    kept_state.handle(Event::Answered, now);
    kept_state.handle(Event::Incomplete, now);
    kept_state.handle(Event::Answered, now);
    assert_eq!(kept_state.take(now), [Effect::Serve]);
}

#[test]
fn an_api_that_tells_everything_in_time_leaves_nothing_to_serve() {
    let mut kept_state = found(of("u1"), secs(5));
    kept_state.handle(Event::Answered, START + secs(1));
    kept_state.handle(Event::Followed, START + secs(2));
    let done = run(&mut kept_state, START + secs(30));
    assert_eq!(done, [(START + secs(2), Effect::Save)]);
}

#[test]
fn state_that_is_too_old_is_refused() {
    let mut young = found(of("u1"), MAX_AGE);
    assert_eq!(young.take(START + PATIENCE), [Effect::Serve]);
    let age = MAX_AGE + secs(1);
    let mut old = found(of("u1"), age);
    let refused = Effect::Forget(Unusable::Age(age));
    assert_eq!(run(&mut old, START + LONGEST), [(START, refused)]);
}

#[test]
fn state_of_another_load_balancer_or_cluster_is_refused() {
    let name = Origin { load_balancer: "other".into(), ..of("u1") };
    let cluster = Origin { cluster: marks(&["c2"]), ..of("u1") };
    let why = Unusable::Name("other".into(), "bowline-system".into());
    for (kept, why) in [(name, why), (cluster, Unusable::Cluster)] {
        let mut kept_state = found(kept, secs(5));
        assert_eq!(run(&mut kept_state, START + LONGEST), [(START, Effect::Forget(why))]);
    }
}

#[test]
fn state_of_an_earlier_load_balancer_of_the_same_name_is_refused_as_soon_as_its_uid_is_known() {
    let mut kept_state = found(of("u1"), secs(5));
    kept_state.handle(Event::Owner("u2".into()), START + secs(1));
    let done = run(&mut kept_state, START + LONGEST);
    assert_eq!(done, [(START, Effect::Forget(Unusable::Uid))]);
    assert_eq!(kept_state.origin(), &of("u2"), "what is kept next is of this one");

    let mut known = KeptState::new(of("u2"));
    known.handle(Event::Found(of("u1"), secs(5)), START);
    assert_eq!(known.take(START), [Effect::Forget(Unusable::Uid)]);
    let mut same = found(of("u1"), secs(5));
    same.handle(Event::Owner("u1".into()), START + secs(1));
    assert_eq!(same.take(START + PATIENCE), [Effect::Serve]);
}

#[test]
fn kept_state_that_is_served_is_withdrawn_as_soon_as_the_load_balancer_is_seen_to_be_another() {
    let serving = || {
        let mut kept_state = found(of("u1"), secs(5));
        assert_eq!(kept_state.take(START + PATIENCE), [Effect::Serve]);
        kept_state.handle(Event::Serves, START + PATIENCE);
        kept_state
    };
    let now = START + secs(9);
    let mut kept_state = serving();
    kept_state.handle(Event::Owner("u1".into()), now);
    assert_eq!(kept_state.take(now), []);
    kept_state.handle(Event::Owner("u2".into()), now);
    // A second Plan changes nothing.
    kept_state.handle(Event::Owner("u2".into()), now);
    assert_eq!(kept_state.take(now), [Effect::Forget(Unusable::Uid), Effect::Withdraw]);
    assert!(kept_state.serves(), "until the driver has withdrawn it");
    kept_state.handle(Event::WithdrawFailed(secs(1)), now);
    assert_eq!((kept_state.take(now), kept_state.wake()), (vec![], Some(now + secs(1))));
    assert_eq!(kept_state.take(now + secs(1)), [Effect::Withdraw]);
    kept_state.handle(Event::Withdrawn, now + secs(1));
    assert!(!kept_state.serves());
    assert_eq!(kept_state.take(now + secs(30)), [], "it is not served again");

    // The API has delivered everything before the driver has withdrawn kept state.
    let mut kept_state = serving();
    kept_state.handle(Event::Owner("u2".into()), now);
    kept_state.handle(Event::Followed, now);
    assert_eq!(kept_state.take(now), [Effect::Forget(Unusable::Uid), Effect::Save]);
    assert_eq!(kept_state.origin(), &of("u2"));
}

#[test]
fn state_survives_the_rotation_of_a_ca_by_way_of_both() {
    let with = |all: &[&str]| Origin { cluster: marks(all), ..of("u1") };
    let serves = |kept: Origin, now: &[&str]| {
        let mut kept_state = KeptState::new(with(now));
        kept_state.handle(Event::Found(kept, secs(5)), START);
        kept_state.take(START + PATIENCE) == [Effect::Serve]
    };
    assert!(serves(with(&["old"]), &["old", "new"]));
    assert!(serves(with(&["old", "new"]), &["new"]));
    assert!(!serves(with(&["old"]), &["new"]));
    assert!(serves(with(&[]), &[]) && !serves(with(&["old"]), &[]) && !serves(with(&[]), &["old"]));
}

#[test]
fn an_agent_that_runs_notes_a_new_ca_beside_a_known_one_and_no_other() {
    let mut kept_state = KeptState::new(origin());
    kept_state.handle(Event::Opened, START);
    let known = |kept_state: &KeptState| kept_state.origin().cluster.clone();
    // Nothing is written yet, and the agent's state is not complete.
    kept_state.handle(Event::Configured(marks(&["c1", "c2"])), START);
    assert_eq!((known(&kept_state), kept_state.take(START)), (marks(&["c1", "c2"]), vec![]));
    kept_state.handle(Event::Followed, START);
    assert_eq!(run(&mut kept_state, START), [(START, Effect::Save)]);
    let now = START + secs(9);
    kept_state.handle(Event::Configured(marks(&["c1", "c2"])), now);
    assert_eq!(kept_state.take(now), [], "it is written");
    kept_state.handle(Event::Configured(marks(&["c2", "c3"])), now);
    assert_eq!(
        (known(&kept_state), kept_state.take(now)),
        (marks(&["c1", "c2", "c3"]), vec![Effect::Save])
    );
    // The marks come during a write, which does not contain them.
    kept_state.handle(Event::Configured(marks(&["c3", "c4"])), now);
    kept_state.handle(Event::Written(true, Duration::ZERO), now);
    assert_eq!(run(&mut kept_state, now + GAP), [(now + GAP, Effect::Save)]);
    // A kubeconfig for another cluster.
    kept_state.handle(Event::Configured(marks(&["other"])), now);
    assert_eq!(
        (known(&kept_state), kept_state.take(now + secs(9))),
        (marks(&["c1", "c3", "c4"]), vec![])
    );
}

#[test]
fn a_driver_that_fails_gets_kept_state_again() {
    let mut kept_state = found(of("u1"), secs(5));
    let now = START + PATIENCE;
    assert_eq!(kept_state.take(now), [Effect::Serve]);
    kept_state.handle(Event::ServeFailed(secs(1)), now);
    assert_eq!(kept_state.take(now), []);
    assert_eq!(kept_state.take(now + secs(1)), [Effect::Serve]);
    kept_state.handle(Event::Serves, now + secs(1));
    assert!(kept_state.serves());
    kept_state.handle(Event::Followed, now + secs(2));
    assert!(!kept_state.serves());
    kept_state.handle(Event::ServeFailed(secs(1)), now + secs(2));
    assert_eq!(kept_state.take(now + secs(9)), [Effect::Save], "there is nothing to serve");
}

#[test]
fn a_slow_disk_is_written_a_twentieth_of_the_time_and_tried_again_when_it_fails() {
    let mut kept_state = KeptState::new(origin());
    kept_state.handle(Event::Opened, START);
    kept_state.handle(Event::Followed, START);
    assert_eq!(kept_state.take(START), [Effect::Save]);
    kept_state.handle(Event::Followed, START);
    assert_eq!(
        (kept_state.take(START + secs(2)), kept_state.wake()),
        (vec![], None),
        "one is under way"
    );
    kept_state.handle(Event::Written(true, secs(2)), START + secs(2));
    assert_eq!(kept_state.take(START + secs(41)), []);
    let now = START + secs(42);
    assert_eq!(kept_state.take(now), [Effect::Save]);
    kept_state.handle(Event::Written(false, secs(2)), now);
    assert_eq!(kept_state.take(now + AGAIN - secs(1)), []);
    assert_eq!(kept_state.take(now + AGAIN).first(), Some(&Effect::Save));
}

#[test]
fn kept_state_is_confirmed_only_while_the_api_answers_and_all_watches_work() {
    let mut kept_state = KeptState::new(origin());
    kept_state.handle(Event::Opened, START);
    kept_state.handle(Event::Followed, START);
    assert_eq!(run(&mut kept_state, START), [(START, Effect::Save)]);
    let mut at = START;
    let mut asked = |kept_state: &mut KeptState, silent: Duration| {
        at += CONFIRM;
        kept_state.handle(Event::Answered, at - silent);
        kept_state.take(at)
    };
    assert_eq!(asked(&mut kept_state, secs(1)), [Effect::Confirm]);
    assert_eq!(asked(&mut kept_state, RECENT + secs(1)), []);
    kept_state.handle(Event::Watching(false), START);
    assert_eq!(asked(&mut kept_state, secs(1)), []);
}

#[test]
fn without_a_folder_nothing_is_ever_due() {
    let mut kept_state = KeptState::new(origin());
    kept_state.handle(Event::Answered, START);
    kept_state.handle(Event::Followed, START);
    assert_eq!(
        (kept_state.wake(), kept_state.take(START + LONGEST), kept_state.end()),
        (None, vec![], false)
    );
}

proptest! {
    #[test]
    fn however_often_it_changes_it_is_kept_once_a_second(changes in prop::collection::vec(0u64..3000, 1..60)) {
        let mut kept_state = KeptState::new(origin());
        kept_state.handle(Event::Opened, START);
        let (mut now, mut saves) = (START, Vec::new());
        for after in changes {
            let next = now + Duration::from_millis(after);
            saves.extend(run(&mut kept_state, next));
            now = next;
            kept_state.handle(Event::Followed, now);
        }
        saves.extend(run(&mut kept_state, now + GAP));
        let saves: Vec<_> = saves.iter().filter(|(_, it)| *it == Effect::Save).map(|(at, _)| *at).collect();
        prop_assert!(saves.windows(2).all(|two| two[1] - two[0] >= GAP), "{saves:?}");
        prop_assert!(saves.last().is_some_and(|last| *last >= now), "the last change is kept: {saves:?} {now:?}");
    }
}
