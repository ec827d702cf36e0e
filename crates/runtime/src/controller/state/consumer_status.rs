//! The status of a Service or Ingress: what it should say, and the write that makes it so.

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
            return self.next_stranger(kind, key);
        };
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
                render::service(&want, render::IP_MODE, dns.as_ref(), shown, clock)
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
        // Agents usually catch up within BEHIND: the status says only after that time that they are behind.
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

    /// The status of a Service that has its address alone: kube-proxy balances, a speaker announces.
    fn next_alone(&self, key: &ObjectKey, clock: Timestamp) -> Next {
        let kind = ConsumerKind::Service;
        let Some(shown) = self.boards.services.get(key) else { return Next::Nothing };
        let Some(holder) = self.holder(kind, key) else { return Next::Nothing };
        let Some(decision) = self.addresses.decision(&holder) else { return Next::Nothing };
        let before =
            render::condition_of(&shown.status.conditions, names::CONDITION_SERVICE_PROGRAMMED);
        let want = status::ConsumerStatus {
            // As the Service asks for its families, and what drains last.
            points: decision.shown().into_iter().map(Point::At).collect(),
            programmed: decision.condition(before),
        };
        let dns = self.name_condition(&holder);
        match render::service(&want, render::IP_MODE_ALONE, dns.as_ref(), shown, clock) {
            Some(patch) => {
                let tried = Tried::at(&shown.version);
                Next::Write(Write::Consumer(kind, key.clone(), patch), tried)
            }
            None => Next::Nothing,
        }
    }

    /// What a Service is told of the DNS name that it asks for.
    fn name_condition(&self, holder: &HolderRef) -> Option<status::Condition> {
        let shown = self.boards.services.get(&holder.key);
        let from_dns = names::CONDITION_ADDRESS_FROM_DNS;
        let before = shown.and_then(|it| render::condition_of(&it.status.conditions, from_dns));
        self.addresses.name_condition(holder, before)
    }

    /// What not all agents do for a consumer, and how many refusals they do not name that may be of it.
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

    /// A consumer that is not ours, or has no status of ours: what we once wrote is taken back.
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
