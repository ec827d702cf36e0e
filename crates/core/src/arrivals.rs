//! Decides when a consumer that moves from one load balancer to another has arrived: the new one serves it, its
//! status says so, and has said so for as long as clients may still come to the old one. Until then the planner
//! leaves it on both. Nothing is recorded: a new leader waits once more. The controller calls it.

use crate::clock::Uptime;
use crate::key::ConsumerRef;
use crate::outcome::{Outcome, State};
use crate::point::Point;
use crate::programmed::Verdict;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// Consumers that move, or have moved.
#[derive(Debug)]
pub struct Arrivals {
    /// How long the old load balancer goes on serving a consumer.
    grace: Duration,
    /// Consumers that the new load balancer serves, with that load balancer and since when.
    served: HashMap<ConsumerRef, (Arc<str>, Uptime)>,
    arrived: HashSet<ConsumerRef>,
}

/// A consumer that moves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moving {
    /// The consumer.
    pub consumer: ConsumerRef,
    /// The load balancer that it moves to.
    pub load_balancer: Arc<str>,
    /// Whether it is served there, as [`is_served`] says.
    pub served: bool,
}

impl Arrivals {
    /// No consumer moves yet. `grace`: how long the old load balancer goes on serving one.
    pub fn new(grace: Duration) -> Self {
        Self { grace, served: HashMap::new(), arrived: HashSet::new() }
    }

    /// A consumer belongs elsewhere now, or nowhere. Returns whether it had arrived.
    pub fn departed(&mut self, consumer: &ConsumerRef) -> bool {
        self.served.remove(consumer);
        self.arrived.remove(consumer)
    }

    /// Takes all consumers that move. Returns those that have arrived, with their load balancer; sorted.
    pub fn follow(
        &mut self,
        moving: impl IntoIterator<Item = Moving>,
        now: Uptime,
    ) -> Vec<(ConsumerRef, Arc<str>)> {
        let served = moving.into_iter().filter(|it| it.served);
        let served = served.map(|Moving { consumer, load_balancer, .. }| {
            let since = match self.served.get(&consumer) {
                Some((at, since)) if *at == load_balancer => *since,
                _ => now,
            };
            (consumer, (load_balancer, since))
        });
        let (there, waiting): (HashMap<_, _>, HashMap<_, _>) =
            served.partition(|(_, (_, since))| now >= *since + self.grace);
        self.served = waiting;
        self.arrived.extend(there.keys().cloned());
        let there = there.into_iter().map(|(consumer, (at, _))| (consumer, at));
        let mut there: Vec<_> = there.collect();
        there.sort_unstable();
        there
    }
}

/// Whether the load balancer that a consumer moves to serves it, and its status says so. `changed` is the last change
/// of what it wants. `shown` are the points that its status has; None: Bowline does not write its status.
pub fn is_served<'n>(
    outcome: &Outcome,
    verdict: Option<&Verdict>,
    changed: u64,
    shown: Option<&[Point]>,
    names: impl Fn(&str) -> &'n [Arc<str>],
) -> bool {
    let State::Planned { load_balancer, addresses, .. } = &outcome.state else { return false };
    if !verdict.is_some_and(|verdict| verdict.covers(changed)) {
        return false;
    }
    let Some(shown) = shown else { return true };
    let shows = |it: &Point| shown.contains(it);
    addresses.iter().all(|address| {
        let points = Point::all(&[*address], names(load_balancer));
        !points.is_empty() && points.iter().all(shows)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::ConsumerKind;
    use crate::outcome::{Problem, Reason};
    use crate::plan::BY_NAME;
    use crate::programmed::Phase;
    use std::net::IpAddr;

    const GRACE: Duration = Duration::from_secs(30);

    fn web() -> ConsumerRef {
        ConsumerRef {
            kind: ConsumerKind::Service,
            namespace: "shop".into(),
            name: "web".into(),
            uid: "u".into(),
        }
    }

    fn to(lb: &str, served: bool) -> [Moving; 1] {
        [Moving { consumer: web(), load_balancer: lb.into(), served }]
    }

    #[test]
    fn who_has_been_served_for_long_enough_has_arrived() {
        let (mut arrivals, start) = (Arrivals::new(GRACE), Uptime::default());
        let mut at = |seconds, moving: [Moving; 1]| {
            arrivals.follow(moving, start + Duration::from_secs(seconds))
        };
        assert_eq!(at(0, to("q", false)), []);
        assert_eq!(at(40, to("q", true)), [], "it is served from now on");
        assert_eq!(at(69, to("q", true)), []);
        assert_eq!(at(70, to("q", true)), [(web(), "q".into())]);
    }

    #[test]
    fn the_time_begins_anew_where_it_is_not_served_or_goes_elsewhere() {
        let (mut arrivals, start) = (Arrivals::new(GRACE), Uptime::default());
        let mut at = |seconds, moving: [Moving; 1]| {
            arrivals.follow(moving, start + Duration::from_secs(seconds))
        };
        assert_eq!(at(0, to("q", true)), []);
        assert_eq!(at(10, to("q", false)), []);
        assert_eq!(at(30, to("q", true)), []);
        assert_eq!(at(59, to("p", true)), []);
        assert_eq!(at(60, to("p", true)), []);
        assert_eq!(at(89, to("p", true)), [(web(), "p".into())]);
        let mut arrivals = Arrivals::new(GRACE);
        arrivals.follow(to("q", true), start);
        arrivals.follow([], start);
        assert_eq!(arrivals.follow(to("q", true), start + GRACE), [], "it did not move meanwhile");
    }

    #[test]
    fn who_departs_had_arrived_once() {
        let (mut arrivals, start) = (Arrivals::new(Duration::ZERO), Uptime::default());
        assert!(!arrivals.departed(&web()));
        assert_eq!(arrivals.follow(to("q", true), start), [(web(), "q".into())]);
        assert!(arrivals.departed(&web()));
        assert!(!arrivals.departed(&web()));
    }

    #[test]
    fn it_is_served_when_the_plan_is_applied_and_its_status_has_all_of_it() {
        let one = IpAddr::from([192, 0, 2, 1]);
        let planned = |addresses: &[IpAddr]| Outcome {
            consumer: web(),
            state: State::Planned {
                load_balancer: "q".into(),
                addresses: addresses.to_vec(),
                draining: Vec::new(),
                before: Vec::new(),
            },
            problems: Vec::new(),
            unmet: None,
        };
        let names: [Arc<str>; 1] = ["q.example".into()];
        let verdict = Verdict { phase: Phase::Running, applied: Some(4) };
        let served = |outcome: &Outcome, changed, shown: Option<&[Point]>| {
            is_served(outcome, Some(&verdict), changed, shown, |_| &names)
        };
        let both = planned(&[BY_NAME, one]);
        let (here, other) =
            (Point::all(&[BY_NAME, one], &names), Point::Named("old.example".into()));
        assert!(served(&both, 4, Some(&here)));
        assert!(served(&both, 4, None), "there is nothing to show");
        assert!(!served(&both, 5, Some(&here)), "what it wants now is not applied");
        assert!(!served(&both, 4, Some(&here[..1])));
        assert!(!served(&both, 4, Some(&[other, Point::At(one)])), "the name where it was");
        assert!(!is_served(&both, None, 0, None, |_| &names), "it has no driver");
        let nameless = is_served(&planned(&[BY_NAME]), Some(&verdict), 4, Some(&[]), |_| &[]);
        assert!(!nameless, "nobody can come there yet");
        let problem = Problem::new(Reason::NoCapacity, "full");
        let state = State::Refused { load_balancer: Some("q".into()), problem };
        assert!(!served(&Outcome { state, ..both }, 4, None));
    }
}
