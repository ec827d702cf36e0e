//! Which changes `bowline up` and agents print, one line each: every change once, and the last line on an object is true.
//! It compares what was printed with what is, and keeps nothing; the controller and the agents keep what they printed.

use crate::clock::Uptime;
use crate::outcome::{Problem, Reason};
use crate::point::Point;
use std::sync::Arc;
use std::time::Duration;

/// What the status of a consumer shows now, and did not before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// It is reached, or reached elsewhere.
    Live,
    /// It is reached no more, and no problem says why.
    Left,
}

/// The line to print when a consumer is now reached at the points `now`. None: nothing is printed. `wrong`: its last
/// line names a problem.
pub fn reached(told: &[Point], now: &[Point], wrong: bool) -> Option<Reached> {
    match (told.is_empty(), now.is_empty()) {
        (_, false) => (told != now).then_some(Reached::Live),
        (false, true) => (!wrong).then_some(Reached::Left),
        (true, true) => None,
    }
}

/// The reasons that were told, and that no problem has any more.
pub fn solved<'a>(
    told: impl IntoIterator<Item = &'a Problem>,
    now: impl Iterator<Item = &'a Problem> + Clone,
) -> Vec<Reason> {
    let gone = told.into_iter().filter(|old| now.clone().all(|it| it.reason != old.reason));
    let mut gone: Vec<_> = gone.map(|old| old.reason).collect();
    gone.sort_unstable();
    gone.dedup();
    gone
}

/// What is printed of an object that is no consumer: one line whenever its state changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// What follows the name of the object.
    pub text: String,
    /// Whether all is well.
    pub well: bool,
}

/// The state of a claim: the load balancer to which it is bound, or the reason and message of why it is not. None: nothing is
/// decided yet.
pub fn claim(load_balancer: Option<&str>, waits: Option<(&str, &str)>) -> Option<State> {
    match (load_balancer, waits) {
        (Some(name), _) => {
            Some(State { text: format!(" is bound to load balancer {name}"), well: true })
        }
        (None, Some((reason, message))) => {
            Some(State { text: format!(": {reason}: {message}"), well: false })
        }
        (None, None) => None,
    }
}

/// The state of a pool: what is wrong with it (reason and message), and whether it has an address left. Counts are no
/// state: they change with each Service.
pub fn pool<'a>(mut wrong: impl Iterator<Item = (&'a str, &'a str)>, available: i64) -> State {
    match wrong.next() {
        Some((reason, message)) => State { text: format!(": {reason}: {message}"), well: false },
        None if available == 0 => State { text: " has no address left".to_owned(), well: false },
        None => State { text: " grants addresses".to_owned(), well: true },
    }
}

/// The state of a claim or pool that is deleted.
pub fn deleted() -> State {
    State { text: " is deleted".to_owned(), well: true }
}

/// Says something again only when it is something else, or after a long time.
#[derive(Clone, Debug)]
pub struct Reminder {
    every: Duration,
    said: Option<(Arc<str>, Uptime)>,
}

impl Reminder {
    /// Repeats the same after this time.
    pub fn new(every: Duration) -> Self {
        Self { every, said: None }
    }

    /// Whether this is to be said now.
    pub fn says(&mut self, what: &Arc<str>, now: Uptime) -> bool {
        let fresh = |(said, at): &(Arc<str>, Uptime)| said == what && now < *at + self.every;
        if self.said.as_ref().is_some_and(fresh) {
            return false;
        }
        self.said = Some((Arc::clone(what), now));
        true
    }

    /// There is nothing to say: what comes next is said at once.
    pub fn rests(&mut self) {
        self.said = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(last: u8) -> Vec<Point> {
        vec![Point::At([192, 0, 2, last].into())]
    }

    #[test]
    fn a_consumer_is_live_once_for_each_place_and_leaves_once() {
        assert_eq!(reached(&[], &[], false), None);
        assert_eq!(reached(&[], &at(1), false), Some(Reached::Live));
        assert_eq!(reached(&at(1), &at(1), false), None, "the watch shows what was written");
        assert_eq!(reached(&at(1), &at(2), false), Some(Reached::Live));
        assert_eq!(reached(&at(2), &[], false), Some(Reached::Left));
        assert_eq!(reached(&at(2), &[], true), None, "the problem was the last word");
    }

    #[test]
    fn a_reason_is_solved_when_no_problem_has_it_whatever_its_message() {
        let problem = |reason, message: &str| Problem::new(reason, message.to_owned());
        let told = [
            problem(Reason::PortTaken, "80"),
            problem(Reason::BindFailed, "a"),
            problem(Reason::BindFailed, "b"),
        ];
        let now = [problem(Reason::PortTaken, "81")];
        assert_eq!(solved(&told, now.iter()), [Reason::BindFailed]);
        assert_eq!(solved(&now, told.iter()), []);
    }

    #[test]
    fn claims_and_pools_say_what_they_are_and_counts_are_no_news() {
        assert_eq!(claim(None, None), None);
        let waits = claim(None, Some(("NoMatch", "none fits"))).expect("a state");
        assert_eq!((waits.text.as_str(), waits.well), (": NoMatch: none fits", false));
        let bound = claim(Some("edge"), Some(("Bound", ""))).expect("a state");
        assert_eq!((bound.text.as_str(), bound.well), (" is bound to load balancer edge", true));
        assert_eq!(pool([].into_iter(), 3), pool([].into_iter(), 2));
        assert!(!pool([].into_iter(), 0).well);
        assert_eq!(pool([("Overlaps", "with b")].into_iter(), 3).text, ": Overlaps: with b");
    }

    #[test]
    fn the_same_is_said_again_only_after_a_long_time() {
        let seconds = Duration::from_secs;
        let mut reminder = Reminder::new(seconds(600));
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        let said = [(&a, 1), (&a, 2), (&a, 600), (&b, 601), (&b, 1200), (&b, 1201), (&a, 1202)]
            .map(|(what, at)| reminder.says(what, seconds(at)));
        assert_eq!(said, [true, false, false, true, false, true, true]);
        reminder.rests();
        assert!(reminder.says(&a, seconds(1203)));
    }
}
