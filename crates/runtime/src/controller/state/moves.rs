//! Who has arrived where it moved to: tells the planner when a load balancer has served somebody, and its
//! status has said so, for as long as everybody may still come where it was. It decides nothing else.

use super::*;

/// Those who move, or have moved.
#[derive(Default)]
pub(super) struct Moves {
    /// So long a load balancer goes on serving who has left it.
    grace: Duration,
    /// Who is served where it goes, and since when.
    served: HashMap<ConsumerRef, (Arc<str>, Instant)>,
    /// Who has arrived.
    arrived: HashMap<ConsumerRef, Arc<str>>,
}

impl Moves {
    pub(super) fn new(grace: i64) -> Self {
        let grace = Duration::from_secs(u64::try_from(grace).unwrap_or_default());
        Self { grace, ..Self::default() }
    }
}

impl State {
    /// Somebody is somewhere else now, or nowhere.
    pub(super) fn departed(&mut self, consumer: &ConsumerRef) {
        self.moves.served.remove(consumer);
        if self.moves.arrived.remove(consumer).is_some() {
            self.planner.handle(Event::Arrived(consumer.clone(), None));
        }
    }

    /// Looks at those who move.
    pub(super) fn follow_moves(&mut self, now: Instant) {
        let moving = self.planner.moving();
        let moving = moving.filter_map(|it| Some((it.consumer.clone(), place(it)?.clone())));
        let moving: HashMap<_, _> = moving.collect();
        self.moves.served.retain(|consumer, _| moving.contains_key(consumer));
        for (consumer, lb) in moving {
            if !self.is_served(&consumer, now) {
                self.moves.served.remove(&consumer);
                continue;
            }
            let served = self.moves.served.entry(consumer.clone()).or_insert((lb.clone(), now));
            if served.0 != lb {
                *served = (lb.clone(), now);
            }
            if now >= served.1 + self.moves.grace {
                self.moves.served.remove(&consumer);
                self.moves.arrived.insert(consumer.clone(), lb.clone());
                self.planner.handle(Event::Arrived(consumer, Some(lb)));
            }
        }
    }

    /// Whether the load balancer that somebody goes to serves it, and its status says so.
    fn is_served(&self, consumer: &ConsumerRef, now: Instant) -> bool {
        let (kind, key) = (consumer.kind, key(consumer));
        let Some(outcome) = self.planner.outcome(kind, &key) else { return false };
        let Some(lb) = place(outcome) else { return false };
        let changed = self.tracked.get(&(kind, key.clone())).map_or(0, |it| it.changed);
        let verdict = self.verdict(lb, now);
        if !verdict.is_some_and(|verdict| verdict.covers(changed)) {
            return false;
        }
        if !self.planner.has_status_address(kind, &key) {
            return true;
        }
        let shown = match kind {
            ConsumerKind::Service => {
                self.services.get(&key).map(|it| render::reached_of_service(&it.status))
            }
            _ => self.ingresses.get(&key).map(|it| render::reached_of_ingress(&it.status)),
        };
        shown.is_some_and(|shown| addresses(outcome).iter().all(|it| shown.contains(it)))
    }
}
