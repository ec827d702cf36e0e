//! The status of a Service or Ingress: what it should show, and the write for it. It does no I/O;
//! `State::next` calls it.

use super::State;
use crate::controller::consumers::key;
use crate::controller::render;
use crate::controller::target::{Next, Tried};
use crate::controller::writer::Write;
use bowline_api::names;
use bowline_core::addresses::HolderRef;
use bowline_core::clock::Uptime;
use bowline_core::in_force;
use bowline_core::key::{ConsumerKind, ConsumerRef, ObjectKey};
use bowline_core::outcome::State::Planned;
use bowline_core::point::Point;
use bowline_core::programmed::Pending;
use bowline_core::status::{self, BEHIND, Progress, Undone, Waiting};
use bowline_core::update::ListenerKey;
use k8s_openapi::jiff::Timestamp;
use std::sync::Arc;

impl State {
    pub(super) fn next_consumer(
        &mut self,
        kind: ConsumerKind,
        key: &ObjectKey,
        now: Uptime,
        clock: Timestamp,
    ) -> Next {
        if self.is_alone(kind, key) {
            return self.next_alone(key, clock);
        }
        let Some(outcome) = self.planner.outcome(kind, key) else {
            if kind == ConsumerKind::Ingress {
                self.shared_listeners.forget(key);
            }
            return self.next_stranger(kind, key);
        };
        if let Planned { load_balancer, .. } = &outcome.state {
            let joint = self.agents.joint(load_balancer);
            for problem in self.shared_listeners.tell(joint, &outcome.consumer) {
                self.outbox.warn(&outcome.consumer, &problem);
            }
        }
        if !self.planner.has_status_address(kind, key) {
            return self.next_stranger(kind, key);
        }
        let holder = self.holder(kind, key);
        let decided = holder.as_ref().is_none_or(|it| self.addresses.decision(it).is_some());
        if outcome.is_in_passing(decided) {
            return Next::Nothing;
        }
        let lb = outcome.load_balancer().cloned();
        let planned = self.consumers.planned(&(kind, key.clone())).unwrap_or_default();
        let verdict = lb.as_ref().and_then(|lb| self.verdict(lb, now));
        let (undone, unlisted) =
            lb.as_ref().map(|lb| self.undone(lb, &outcome.consumer)).unwrap_or_default();
        let progress = status::progress(verdict.as_ref(), planned.change, undone, unlisted);
        let names = |lb: &str| self.provisions.hostnames(lb);
        let carrier = lb.as_ref().and_then(|lb| self.planner.load_balancer(lb)?.carrier);
        let mut same_points = false;
        let patch = match kind {
            ConsumerKind::Service => {
                let Some(shown) = self.boards.services.get(key) else { return Next::Nothing };
                let written = status::Before {
                    points: &render::points_of_service(&shown.status),
                    programmed: render::is_programmed(&shown.status),
                };
                let want = status::consumer(outcome, &progress, written, names, carrier);
                same_points = want.points == written.points;
                let dns = holder.as_ref().and_then(|holder| self.name_condition(holder));
                let joint = lb.as_ref().and_then(|lb| self.agents.joint(lb));
                let degraded = match &progress {
                    Progress::Applied(_) => {
                        joint.and_then(|it| in_force::degraded(it, &outcome.consumer))
                    }
                    // An agent that starts has found nothing yet, and one that is silent says nothing.
                    Progress::Waiting(_) => render::condition_of(
                        &shown.status.conditions,
                        names::CONDITION_SERVICE_DEGRADED,
                    ),
                };
                let optional = [
                    (names::CONDITION_ADDRESS_FROM_DNS, dns),
                    (names::CONDITION_SERVICE_DEGRADED, degraded),
                    (names::CONDITION_SERVICE_ANNOUNCED, self.announced_condition(&want.points)),
                ];
                render::service(&want, render::IP_MODE, optional, shown, clock)
                    .map(|patch| (patch, Tried::at(&shown.version)))
            }
            _ => {
                let Some(shown) = self.boards.ingresses.get(key) else { return Next::Nothing };
                let points = render::points_of_ingress(&shown.status);
                let written = status::Before { programmed: !points.is_empty(), points: &points };
                let want = status::consumer(outcome, &progress, written, names, carrier);
                render::ingress(&want.points, shown).map(|patch| (patch, Tried::at(&shown.version)))
            }
        };
        if let Some(lb) = lb {
            let proven = !matches!(progress, Progress::Waiting(_));
            self.consumers.prove(&lb, &(kind, key.clone()), proven);
        }
        // Agents usually catch up within BEHIND. The status shows that they are behind only after that
        // time.
        let behind = progress == Progress::Waiting(Waiting::Agent(Pending::AgentBehind));
        let until = planned.since.map(|since| since + BEHIND).filter(|until| now < *until);
        if let Some(until) = until.filter(|_| behind && same_points && patch.is_some()) {
            return Next::Later(until);
        }
        match patch {
            None => Next::Nothing,
            Some((patch, tried)) => Next::Write(Write::Consumer(kind, key.clone(), patch), tried),
        }
    }

    /// The status of a Service without a load balancer: kube-proxy balances, and a speaker announces the
    /// address.
    fn next_alone(&self, key: &ObjectKey, clock: Timestamp) -> Next {
        let kind = ConsumerKind::Service;
        let Some(shown) = self.boards.services.get(key) else { return Next::Nothing };
        let Some(holder) = self.holder(kind, key) else { return Next::Nothing };
        let Some(decision) = self.addresses.decision(&holder) else { return Next::Nothing };
        let before =
            render::condition_of(&shown.status.conditions, names::CONDITION_SERVICE_PROGRAMMED);
        let want = status::ConsumerStatus {
            // In the order of the families that the Service asks for; draining addresses last.
            points: decision.shown().into_iter().map(Point::At).collect(),
            programmed: decision.condition(before),
        };
        let dns = self.name_condition(&holder);
        let optional = [
            (names::CONDITION_ADDRESS_FROM_DNS, dns),
            // No agent serves it.
            (names::CONDITION_SERVICE_DEGRADED, None),
            (names::CONDITION_SERVICE_ANNOUNCED, self.announced_condition(&want.points)),
        ];
        match render::service(&want, render::IP_MODE_ALONE, optional, shown, clock) {
            Some(patch) => {
                let tried = Tried::at(&shown.version);
                Next::Write(Write::Consumer(kind, key.clone(), patch), tried)
            }
            None => Next::Nothing,
        }
    }

    /// The condition of a Service about the DNS name that it asks for.
    fn name_condition(&self, holder: &HolderRef) -> Option<status::Condition> {
        let shown = self.boards.services.get(&holder.key);
        let from_dns = names::CONDITION_ADDRESS_FROM_DNS;
        let before = shown.and_then(|it| render::condition_of(&it.status.conditions, from_dns));
        self.addresses.name_condition(holder, before)
    }

    /// What some agents do not do for a consumer, and how many refusals that their Leases do not list may
    /// concern it.
    pub(super) fn undone(&self, lb: &Arc<str>, consumer: &ConsumerRef) -> (Undone, usize) {
        let Some(joint) = self.agents.joint(lb) else { return Default::default() };
        let (kind, key) = match consumer.kind {
            ConsumerKind::Ingress => {
                (ConsumerKind::LoadBalancer, ObjectKey::new("", Arc::clone(lb)))
            }
            kind => (kind, key(consumer)),
        };
        let parts = self.planner.parts(kind, &key);
        let listeners = parts.iter().flat_map(|part| &part.listeners).map(ListenerKey::of);
        in_force::undone(joint, self.certificates.withheld(lb), consumer, listeners)
    }

    /// The status of a consumer that is not Bowline's, or that should show nothing: what Bowline wrote is
    /// removed.
    fn next_stranger(&mut self, kind: ConsumerKind, key: &ObjectKey) -> Next {
        let who = (kind, key.clone());
        let patch = match kind {
            ConsumerKind::Service => self.boards.services.get(key).and_then(|shown| {
                let holder = self.holder(kind, key);
                let recorded = holder.map(|it| self.addresses.recorded(&it)).unwrap_or_default();
                let is_hostname = |it: &str| self.provisions.is_hostname(it);
                let patch = render::service_cleared(shown, &recorded, is_hostname)?;
                Some((patch, Tried::at(&shown.version)))
            }),
            ConsumerKind::Ingress => {
                let shown = self.boards.ingresses.get(key);
                let shown = shown.filter(|_| self.consumers.is_known(&who));
                shown.and_then(|shown| {
                    Some((render::ingress(&[], shown)?, Tried::at(&shown.version)))
                })
            }
            ConsumerKind::LoadBalancer => None,
        };
        match patch {
            Some((patch, tried)) => Next::Write(Write::Consumer(kind, key.clone(), patch), tried),
            None => {
                if self.planner.outcome(kind, key).is_none() {
                    self.consumers.forget(&who);
                }
                Next::Nothing
            }
        }
    }
}
