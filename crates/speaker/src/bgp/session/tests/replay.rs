//! Whole sessions with FRR, BIRD and GoBGP, recorded by `BOWLINE_RECORD=1` with `tests/routers`, once more: the machine
//! answers as it did. Each recording has a session that comes up, announces, changes and withdraws, is asked for its
//! routes again, is ended by the router, comes back and leaves.

use super::*;
use crate::bgp::session::Record;

/// Plays a recording. Returns all effects and the session after it.
fn replay(recording: &str) -> (Vec<Effect>, Session) {
    let mut session = None;
    let mut all = Vec::new();
    for (number, line) in (1..).zip(recording.lines()) {
        let record = serde_json::from_str(line).unwrap_or_else(|e| panic!("line {number}: {e}"));
        match (record, &mut session) {
            (Record::Begin(config, seed), none) => *none = Some(Session::new(*config, seed)),
            (_, None) => panic!("a recording begins with the configuration"),
            (Record::Told(now, event), Some(session)) => session.handle(event, now),
            (Record::Asked(now, expected), Some(session)) => {
                let effects = session.take(now);
                assert_eq!(effects, expected, "line {number}");
                all.extend(effects);
            }
        }
    }
    (all, session.expect("a session"))
}

fn check(recording: &str) {
    let (effects, session) = replay(recording);
    let count = |wanted: fn(&Effect) -> bool| effects.iter().filter(|it| wanted(it)).count();
    assert_eq!(count(|it| matches!(it, Effect::Report(Report::Up(_)))), 2, "it came up twice");
    let down: Vec<_> = effects
        .iter()
        .filter_map(|it| match it {
            Effect::Report(Report::Down(why)) => Some(why.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(down.len(), 2);
    assert!(down[0].starts_with("the peer ended the session: "), "{down:?}");
    assert_eq!(down[1], "this node leaves");
    let counters = session.counters();
    assert_eq!((counters.flaps, counters.malformed_updates), (2, 0));
    assert_eq!(session.wake_at(), None);
}

#[test]
fn a_session_with_frr_goes_as_it_was_recorded() {
    check(include_str!("recordings/frr.jsonl"));
}

#[test]
fn a_session_with_bird_goes_as_it_was_recorded() {
    check(include_str!("recordings/bird.jsonl"));
}

#[test]
fn a_session_with_gobgp_goes_as_it_was_recorded() {
    check(include_str!("recordings/gobgp.jsonl"));
}
