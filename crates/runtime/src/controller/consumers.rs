//! What the leader remembers of each consumer beside its plan: since which change it is unchanged, where it was
//! planned before, and which problems its owner was told. It does no I/O.

use super::outbox::Outbox;
use crate::observe::Change;
use bowline_core::clock::Uptime;
use bowline_core::key::{ConsumerKind, ConsumerRef, ObjectKey};
use bowline_core::lines::{self, Reached};
use bowline_core::outcome::{Outcome, Problem, Reason, State};
use bowline_core::point::Point;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

/// The key of a consumer, without its kind.
pub(super) fn key(consumer: &ConsumerRef) -> ObjectKey {
    ObjectKey { namespace: Arc::clone(&consumer.namespace), name: Arc::clone(&consumer.name) }
}

/// The kind and key of a consumer. Objects of two kinds may have the same name.
pub(super) fn key_of(consumer: &ConsumerRef) -> (ConsumerKind, ObjectKey) {
    (consumer.kind, key(consumer))
}

/// All consumers that the leader tracks.
#[derive(Debug, Default)]
pub(super) struct Consumers {
    tracked: HashMap<(ConsumerKind, ObjectKey), Tracked>,
    /// By load balancer: consumers that its agents have not proved to serve.
    unproven: HashMap<Arc<str>, BTreeSet<(ConsumerKind, ObjectKey)>>,
    /// The number of current problems, by reason.
    refused: BTreeMap<Reason, usize>,
}

#[derive(Clone, Debug, Default)]
struct Tracked {
    planned: Planned,
    /// The load balancer on which it was last planned.
    load_balancer: Option<Arc<str>>,
    /// The load balancer that refuses it while it stays on another one.
    refused_by: Option<Arc<str>>,
    /// The addresses at which it was planned.
    addresses: Vec<IpAddr>,
    /// The problems that its owner was told.
    problems: Vec<(ConsumerRef, Problem)>,
    /// The points at which it is reached, as `bowline up` has printed them.
    told: Vec<Point>,
}

/// Since when the plan of a consumer is unchanged.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Planned {
    /// The number of the change.
    pub(super) change: u64,
    /// The time of the change. None: unknown.
    pub(super) since: Option<Uptime>,
}

/// How a consumer's outcome differs from the one before.
#[derive(Debug, Default)]
pub(super) struct Moved {
    /// The load balancer that it left.
    pub(super) left: Option<Arc<str>>,
    /// Whether it moved to another load balancer or its addresses changed: then only a newer plan proves it.
    pub(super) elsewhere: bool,
    /// Load balancers whose status lists the consumer, now or before.
    pub(super) concerned: Vec<Arc<str>>,
}

impl Consumers {
    /// Records that the plan of a consumer changed with this change.
    pub(super) fn replan(&mut self, who: (ConsumerKind, ObjectKey), change: u64, now: Uptime) {
        self.tracked.entry(who).or_default().planned = Planned { change, since: Some(now) };
    }

    /// Records that the addresses of a consumer's load balancer changed with this change.
    pub(super) fn readdress(&mut self, who: (ConsumerKind, ObjectKey), change: u64) {
        self.tracked.entry(who).or_default().planned.change = change;
    }

    /// Since when the plan of a consumer is unchanged.
    pub(super) fn planned(&self, who: &(ConsumerKind, ObjectKey)) -> Option<Planned> {
        self.tracked.get(who).map(|tracked| tracked.planned)
    }

    /// Whether a consumer was ever planned, or its owner told something.
    pub(super) fn is_known(&self, who: &(ConsumerKind, ObjectKey)) -> bool {
        self.tracked.contains_key(who)
    }

    /// Forgets a consumer that is not Bowline's any more.
    pub(super) fn forget(&mut self, who: &(ConsumerKind, ObjectKey)) {
        self.tracked.remove(who);
    }

    /// Records the outcome of a consumer with this change. None: it is deleted, or not Bowline's any more.
    pub(super) fn observe(
        &mut self,
        who: &(ConsumerKind, ObjectKey),
        outcome: Option<&Outcome>,
        change: u64,
        now: Uptime,
    ) -> Moved {
        let place = outcome.and_then(Outcome::load_balancer);
        let refuses = outcome.and_then(refuses);
        let tracked = self.tracked.entry(who.clone()).or_default();
        let before = std::mem::replace(&mut tracked.load_balancer, place.cloned());
        let refused = std::mem::replace(&mut tracked.refused_by, refuses.cloned());
        let all = [before.as_ref(), place, refused.as_ref(), refuses];
        let concerned = all.into_iter().flatten().cloned().collect();
        if let Some(unproven) = before.as_ref().and_then(|lb| self.unproven.get_mut(lb)) {
            unproven.remove(who);
        }
        let left = before.filter(|before| Some(before) != place);
        let addresses = outcome.map_or(&[][..], addresses);
        let elsewhere = tracked.addresses != addresses || left.is_some();
        if elsewhere {
            tracked.addresses = addresses.to_vec();
            tracked.planned = Planned { change, since: Some(now) };
        }
        Moved { left, elsewhere, concerned }
    }

    /// Records the problems that a consumer's owner is told, and records Events for the new ones.
    pub(super) fn tell(
        &mut self,
        who: (ConsumerKind, ObjectKey),
        problems: Vec<(ConsumerRef, Problem)>,
        outbox: &mut Outbox,
    ) {
        let tracked = self.tracked.entry(who).or_default();
        let known = std::mem::replace(&mut tracked.problems, problems.clone());
        for (_, problem) in &known {
            *self.refused.entry(problem.reason).or_default() -= 1;
        }
        for (_, problem) in &problems {
            *self.refused.entry(problem.reason).or_default() += 1;
        }
        if let Some((consumer, _)) = known.first() {
            let before = known.iter().map(|(_, problem)| problem);
            for reason in lines::solved(before, problems.iter().map(|(_, problem)| problem)) {
                outbox.tell(Change::Solved { consumer: consumer.clone(), reason });
            }
        }
        for (consumer, problem) in problems.into_iter().filter(|it| !known.contains(it)) {
            outbox.warn(&consumer, &problem);
            outbox.tell(Change::Refused { consumer, problem });
        }
    }

    /// Takes in the points at which the status of a consumer says that it is reached. `bowline up` prints the new ones.
    pub(super) fn reached(
        &mut self,
        consumer: &ConsumerRef,
        points: Vec<Point>,
        outbox: &mut Outbox,
    ) {
        let tracked = self.tracked.entry(key_of(consumer)).or_default();
        let wrong = !tracked.problems.is_empty();
        let line = lines::reached(&tracked.told, &points, wrong);
        if tracked.told != points {
            tracked.told.clone_from(&points);
        }
        let consumer = consumer.clone();
        match line {
            Some(Reached::Live) => outbox.tell(Change::Live { consumer, points }),
            Some(Reached::Left) => outbox.tell(Change::Left { consumer }),
            None => {}
        }
    }

    /// A consumer is deleted, or not Bowline's any more. `bowline up` prints that, if it has printed anything of it.
    pub(super) fn left(&mut self, consumer: &ConsumerRef, outbox: &mut Outbox) {
        let Some(tracked) = self.tracked.get_mut(&key_of(consumer)) else { return };
        let told = !std::mem::take(&mut tracked.told).is_empty();
        for (_, problem) in &tracked.problems {
            *self.refused.entry(problem.reason).or_default() -= 1;
        }
        if !std::mem::take(&mut tracked.problems).is_empty() || told {
            outbox.tell(Change::Left { consumer: consumer.clone() });
        }
    }

    /// Records all problems again: this leader begins, and does not know which Events the former leader recorded.
    pub(super) fn tell_all_again(&self, outbox: &mut Outbox) {
        let said = outbox.events().iter().map(|it| (it.object.clone(), Arc::clone(&it.message)));
        let said: BTreeSet<_> = said.collect();
        for (consumer, problem) in self.tracked.values().flat_map(|tracked| &tracked.problems) {
            if !said.contains(&(consumer.clone().into(), Arc::clone(&problem.message))) {
                outbox.warn(consumer, problem);
            }
        }
    }

    /// The number of current problems, by reason.
    pub(super) fn refused(&self) -> &BTreeMap<Reason, usize> {
        &self.refused
    }

    /// Records whether the agents of a load balancer have proved that they serve a consumer.
    pub(super) fn prove(&mut self, lb: &Arc<str>, who: &(ConsumerKind, ObjectKey), proven: bool) {
        let unproven = self.unproven.entry(Arc::clone(lb)).or_default();
        match proven {
            true => _ = unproven.remove(who),
            false => _ = unproven.insert(who.clone()),
        }
    }

    /// Consumers that the agents of a load balancer have not proved to serve.
    pub(super) fn unproven(&self, lb: &str) -> impl Iterator<Item = &(ConsumerKind, ObjectKey)> {
        self.unproven.get(lb).into_iter().flatten()
    }

    /// Forgets a deleted load balancer.
    pub(super) fn forget_load_balancer(&mut self, lb: &str) {
        self.unproven.remove(lb);
    }
}

/// The load balancer that refuses a consumer while the consumer stays on another one.
fn refuses(outcome: &Outcome) -> Option<&Arc<str>> {
    outcome.unmet.as_ref()?.load_balancer.as_ref()
}

/// The addresses at which clients reach a consumer once its plan is in force.
fn addresses(outcome: &Outcome) -> &[IpAddr] {
    match &outcome.state {
        State::Planned { addresses, .. } => addresses,
        State::Refused { .. } => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_of_a_consumer_is_told_once_and_the_last_one_is_true() {
        let consumer = ConsumerRef {
            kind: ConsumerKind::Service,
            namespace: "shop".into(),
            name: "web".into(),
            uid: "1".into(),
        };
        let (mut consumers, mut outbox) = (Consumers::default(), Outbox::default());
        let problem = Problem::new(Reason::ClaimNotBound, "no load balancer yet".to_owned());
        let points = vec![Point::At([192, 0, 2, 1].into())];
        let refused = vec![(consumer.clone(), problem.clone())];
        consumers.tell(key_of(&consumer), refused.clone(), &mut outbox);
        consumers.tell(key_of(&consumer), refused, &mut outbox);
        consumers.reached(&consumer, Vec::new(), &mut outbox);
        consumers.tell(key_of(&consumer), Vec::new(), &mut outbox);
        // The watch shows the write of the status before its answer comes.
        consumers.reached(&consumer, points.clone(), &mut outbox);
        consumers.reached(&consumer, points.clone(), &mut outbox);
        consumers.left(&consumer, &mut outbox);
        consumers.left(&consumer, &mut outbox);
        assert_eq!(
            outbox.take_changes(),
            [
                Change::Refused { consumer: consumer.clone(), problem },
                Change::Solved { consumer: consumer.clone(), reason: Reason::ClaimNotBound },
                Change::Live { consumer: consumer.clone(), points },
                Change::Left { consumer },
            ]
        );
        assert!(consumers.refused().values().all(|count| *count == 0));
    }
}
