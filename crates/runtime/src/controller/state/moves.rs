//! Who moves: tells the planner who has arrived where it goes, as `core::arrivals` decides.

use super::*;
use bowline_core::arrivals::{self, Moving};

impl State {
    /// Somebody is somewhere else now, or nowhere.
    pub(super) fn departed(&mut self, consumer: &ConsumerRef) {
        if self.arrivals.departed(consumer) {
            self.planner.handle(Event::Arrived(consumer.clone(), None));
        }
    }

    /// Looks at those who move.
    pub(super) fn follow_moves(&mut self, now: Instant) {
        let moving = self.planner.moving().filter_map(|outcome| {
            Some(Moving {
                consumer: outcome.consumer.clone(),
                load_balancer: place(outcome)?.clone(),
                served: self.is_served(outcome, now),
            })
        });
        let moving: Vec<_> = moving.collect();
        for (consumer, lb) in self.arrivals.follow(moving, now) {
            self.planner.handle(Event::Arrived(consumer, Some(lb)));
        }
    }

    fn is_served(&self, outcome: &Outcome, now: Instant) -> bool {
        let (kind, key) = (outcome.consumer.kind, key(&outcome.consumer));
        let changed = self.tracked.get(&(kind, key.clone())).map_or(0, |it| it.changed);
        let verdict = place(outcome).and_then(|lb| self.verdict(lb, now));
        let shown = self.planner.has_status_address(kind, &key).then(|| match kind {
            ConsumerKind::Service => {
                self.services.get(&key).map(|it| render::points_of_service(&it.status))
            }
            _ => self.ingresses.get(&key).map(|it| render::points_of_ingress(&it.status)),
        });
        let shown = shown.map(Option::unwrap_or_default);
        let names = |lb: &str| self.hostnames(lb);
        arrivals::is_served(outcome, verdict.as_ref(), changed, shown.as_deref(), names)
    }
}
