//! Observing agents: hands changed reports to the planner and enqueues the consumers that they concern.

use super::super::State;
use crate::controller::agents::News;
use crate::controller::consumers::key_of;
use crate::controller::plans::Plans;
use crate::controller::target::Target;
use bowline_core::key::{ConsumerKind, ConsumerRef, ObjectKey};
use bowline_core::planner::Event;
use bowline_core::update::Refusal;
use std::sync::Arc;

impl State {
    /// Takes in a change in what the agents of a load balancer report together, and enqueues the consumers that it
    /// may concern.
    pub(in crate::controller::state) fn agents_changed(&mut self, news: &News) {
        let lb = &news.load_balancer;
        // Clients reach a provisioned load balancer through its Service, whatever agents report.
        let own = !self.provisions.is_reached(lb);
        if let Some(addresses) = news.addresses().filter(|_| own) {
            self.planner.handle(Event::Reported(Arc::clone(lb), addresses.to_vec()));
        }
        self.observe_unserved(lb);
        for refusal in news.refused() {
            self.outbox.warn(&refusal.consumer, &refusal.problem);
        }
        let changed = news.ended().chain(news.refused());
        let concerned = changed.flat_map(|refusal| self.concerned(lb, &refusal.consumer));
        let unproven = self.consumers.unproven(lb).cloned();
        let all: Vec<_> = unproven.chain(concerned).collect();
        self.outbox.enqueue_all(all.into_iter().map(|(kind, key)| Target::Consumer(kind, key)));
        if self.plans.get(lb).is_some_and(Plans::has_foreign) {
            // Agents may have refused a fragment that this leader could replan.
            self.outbox.enqueue(Target::Plans(Arc::clone(lb)));
        }
        self.outbox.enqueue(Target::LoadBalancer(Arc::clone(lb)));
    }

    /// Tells the planner what agents do not serve for one consumer because they serve it for another.
    pub(super) fn observe_unserved(&mut self, lb: &Arc<str>) {
        let unserved = self.agents.refused(lb).iter().filter_map(Refusal::unserved).collect();
        self.planner.handle(Event::Unserved(Arc::clone(lb), unserved));
    }

    /// The consumers that a refusal concerns. A refused listener of the load balancer itself concerns all its
    /// Ingresses.
    fn concerned(&self, lb: &str, consumer: &ConsumerRef) -> Vec<(ConsumerKind, ObjectKey)> {
        if consumer.kind != ConsumerKind::LoadBalancer {
            return vec![key_of(consumer)];
        }
        let ingresses = self.planner.consumers(lb).filter(|it| it.kind == ConsumerKind::Ingress);
        ingresses.map(key_of).collect()
    }
}
