//! Observing LoadBalancers: hands an event to the parts that it concerns, and enqueues the targets that may need a
//! write. It decides nothing.

use super::super::State;
use crate::controller::consumers::key_of;
use crate::controller::observed::LoadBalancerSeen;
use crate::controller::shown::{LoadBalancerShown, Shown};
use crate::controller::target::Target;
use crate::watch::Seen;
use bowline_core::key::{ConsumerKind, ObjectKey};
use bowline_core::objects::LoadBalancer;
use bowline_core::planner::{Event, Kind, Object};
use bowline_core::provision::Reach;
use std::net::IpAddr;
use std::sync::Arc;

impl State {
    pub(super) fn observe_load_balancer(&mut self, seen: Seen<Box<LoadBalancerSeen>>) {
        self.bindings.observe_load_balancer(seen.as_ref().map(|it| &it.shown.status.known));
        self.seats.observe(seen.as_ref().map(|it| &it.shown.status));
        let planned = match seen {
            Seen::Begin => {
                self.boards.load_balancers.begin();
                Seen::Begin
            }
            Seen::Apply(it) => {
                self.apply_load_balancer(&it.planned, it.shown);
                Seen::Apply(it.planned)
            }
            Seen::Delete(it) => {
                self.delete_load_balancer(&it.planned.name);
                Seen::Delete(it.planned)
            }
            Seen::Done => {
                for (name, _) in self.boards.load_balancers.done() {
                    self.delete_load_balancer(&name);
                }
                self.addresses.relisted(ConsumerKind::LoadBalancer);
                Seen::Done
            }
        };
        self.observe_planned(Kind::LoadBalancer, planned, |it| {
            (ObjectKey::new("", Arc::clone(&it.name)), Object::LoadBalancer(it))
        });
    }

    fn apply_load_balancer(&mut self, planned: &LoadBalancer, shown: Shown<LoadBalancerShown>) {
        let name = &planned.name;
        if self.boards.load_balancers.get(name).is_none() {
            let points = &shown.status.status.ingress;
            let addresses: Vec<_> = points.iter().filter_map(|point| point.ip).collect();
            if planned.door.is_some() {
                let names = points.iter().filter_map(|point| point.hostname.as_deref());
                let hostnames = names.map(Into::into).collect();
                self.reached(name, &Reach { addresses: addresses.clone(), hostnames });
            }
            // If there are no fixed addresses and no Service in front, the status shows what agents reported.
            let from_agents = planned.addresses.is_empty() && planned.door.is_none();
            self.meet(name, if from_agents { addresses } else { Vec::new() });
        } else if self.uid(name).as_ref() != Some(&planned.uid) {
            // Another object with the same name: the objects of the former one get the new owner.
            self.enqueue_load_balancer(name);
        }
        self.show_load_balancer(name, shown);
        self.addresses.touch(ConsumerKind::LoadBalancer, &ObjectKey::new("", Arc::clone(name)));
        // The Service in front of a load balancer may use the AddressPools that its consumers may use, so its
        // request is recomputed.
        if let Some(door) = &planned.door {
            self.addresses.touch(ConsumerKind::Service, door);
        }
    }

    /// Takes in a load balancer from a write answer. A load balancer that is already deleted is ignored.
    pub(in crate::controller::state) fn put_load_balancer(
        &mut self,
        lb: &Arc<str>,
        shown: Shown<LoadBalancerShown>,
    ) {
        if self.bindings.is_buried(&shown.status.known.uid) {
            return;
        }
        self.seats.observe(Seen::Apply(&shown.status));
        self.bindings.observe_load_balancer(Seen::Apply(&shown.status.known));
        // The answer to its creation may arrive before the watch shows it.
        if self.boards.load_balancers.get(lb).is_none() {
            self.meet(lb, Vec::new());
        }
        self.show_load_balancer(lb, shown);
    }

    fn show_load_balancer(&mut self, lb: &Arc<str>, shown: Shown<LoadBalancerShown>) {
        // A claim shows the ingress points of its load balancer.
        if let Some(claim) = &shown.status.known.tie.claim {
            self.outbox.enqueue(Target::Claim(claim.key.clone()));
        }
        self.boards.load_balancers.put(Arc::clone(lb), shown);
        self.outbox.enqueue(Target::LoadBalancer(Arc::clone(lb)));
    }

    /// A load balancer appears. If its agents' Lease was not observed yet, the addresses in its status (`shown`)
    /// count as reported.
    fn meet(&mut self, name: &Arc<str>, shown: Vec<IpAddr>) {
        let reported = self.agents.meet(name);
        // Clients reach a provisioned load balancer through its Service, whatever agents report.
        let own = !reported.is_empty() && !self.provisions.is_reached(name);
        let addresses = if own { reported } else { shown };
        if !addresses.is_empty() {
            self.planner.handle(Event::Reported(Arc::clone(name), addresses));
        }
        self.observe_unserved(name);
        self.plans.mark_stale_hash(Arc::clone(name));
        self.enqueue_load_balancer(name);
    }

    fn delete_load_balancer(&mut self, name: &Arc<str>) {
        self.boards.load_balancers.remove(name);
        self.agents.forget(name);
        self.planner.handle(Event::Unserved(Arc::clone(name), Vec::new()));
        self.consumers.forget_load_balancer(name);
        self.status_writes.forget(name);
        self.provisions.forget(name);
        self.enqueue_load_balancer(name);
        self.addresses.touch(ConsumerKind::LoadBalancer, &ObjectKey::new("", Arc::clone(name)));
    }

    /// Records where clients reach a provisioned load balancer.
    pub(in crate::controller::state) fn reached(&mut self, lb: &Arc<str>, reach: &Reach) {
        let Some(before) = self.provisions.reached(lb, reach) else { return };
        self.planner.handle(Event::Reported(Arc::clone(lb), reach.listeners()));
        if before.is_some_and(|before| before.hostnames != reach.hostnames) {
            // Another hostname does not change the plan, but it changes the statuses that show it.
            let consumers = self.planner.consumers(lb).map(key_of);
            self.outbox.enqueue_all(consumers.map(|(kind, key)| Target::Consumer(kind, key)));
        }
    }
}
