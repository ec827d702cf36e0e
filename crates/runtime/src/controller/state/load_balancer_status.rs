//! The status of a LoadBalancer: what it should show, how often it is written, and the write for it. It does no I/O;
//! `State::next` calls it.

use super::State;
use crate::controller::render;
use crate::controller::target::{Next, Target, Tried};
use crate::controller::writer::Write;
use bowline_api::load_balancer::LoadBalancerPhase;
use bowline_api::names;
use bowline_core::clock::Uptime;
use bowline_core::event_correlator::EventDraft;
use bowline_core::in_force::{self, OwnAddresses};
use bowline_core::key::{ConsumerKind, ConsumerRef, ObjectKey};
use bowline_core::load_balancer_status_writes::event;
use bowline_core::objects::LoadBalancer;
use bowline_core::outcome::Problem;
use bowline_core::programmed::{Pending, Verdict};
use bowline_core::status::{self, Condition, Known, Waiting};
use k8s_openapi::jiff::Timestamp;
use std::net::IpAddr;
use std::sync::Arc;

impl State {
    pub(super) fn next_load_balancer(
        &mut self,
        lb: &Arc<str>,
        now: Uptime,
        clock: Timestamp,
    ) -> Next {
        let Some(shown) = self.boards.load_balancers.get(lb) else { return Next::Nothing };
        let Some(known) = self.planner.load_balancer(lb) else { return Next::Nothing };
        let verdict = self.verdict(lb, now);
        let before = &shown.status.status;
        let running = before.phase == Some(LoadBalancerPhase::Running);
        let mut waiting = status::waiting(verdict.as_ref());
        let is_behind = waiting == Some(Waiting::Agent(Pending::AgentBehind)) && running;
        let again = self.status_writes.behind(lb, is_behind, now);
        if again.is_some() {
            waiting = None;
        }
        // No agent has renewed since this leader began to watch, so none is known to be live. A renewal or its expiry
        // enqueues the load balancer again.
        if self.agents.are_unsure(lb) && waiting.is_none() && !running {
            return Next::Nothing;
        }
        // Lists that change often are written at intervals, and not built in between.
        if let Some(at) = self.status_writes.next(lb, now).filter(|_| running == waiting.is_none())
        {
            return Next::Later(at);
        }
        #[cfg(test)]
        {
            self.walks += 1;
        }
        let made = self.provisions.condition(lb);
        let said = render::condition_of(&before.conditions, names::CONDITION_ASSIGNED);
        let assigned = self.assigned(lb, said);
        let reported = self.agents.refused(lb).iter().chain(self.certificates.withheld(lb));
        let undone: Vec<_> = reported.cloned().collect();
        let want = status::load_balancer(Known {
            name: lb,
            carrier: known.carrier,
            verdict: verdict.as_ref(),
            addresses: self.addresses_in_force(known, verdict.as_ref()),
            consumers: self.planner.consumers(lb),
            refused: self.planner.refused(lb),
            undone: &undone,
            catching_up: again.is_some(),
            unreclaimed: render::unreclaimed(before),
            made: made.as_ref(),
            assigned: assigned.as_ref(),
            closed: self.closed(lb),
            held: render::held(before).filter(|_| known.deleting),
        });
        let hostnames = self.provisions.hostnames(lb);
        let mut rendered = render::load_balancer(want, hostnames, shown, clock);
        if let Some(made) = made {
            let (type_, before) = (names::CONDITION_PROVISIONED, &rendered.conditions);
            rendered.conditions =
                render::with_condition(before, type_, &made, shown.generation, clock);
        }
        let type_ = names::CONDITION_ASSIGNED;
        match assigned {
            None => rendered.conditions.retain(|it| it.type_ != type_),
            Some(assigned) => {
                let before = &rendered.conditions;
                rendered.conditions =
                    render::with_condition(before, type_, &assigned, shown.generation, clock);
            }
        }
        let joint = self.agents.joint(lb);
        if joint.is_none() {
            rendered.conditions.retain(|it| it.type_ != names::CONDITION_DEGRADED);
        }
        // While no agent has applied the plan, the condition stays as it is.
        if let Some(joint) = joint.filter(|_| waiting.is_none()) {
            let degraded = in_force::load_balancer_degraded(joint);
            rendered.conditions = render::with_condition(
                &rendered.conditions,
                names::CONDITION_DEGRADED,
                &degraded,
                shown.generation,
                clock,
            );
        }
        if rendered == *before {
            return again.map_or(Next::Nothing, Next::Later);
        }
        let programmed = |all: &[_]| render::condition_of(all, names::CONDITION_PROGRAMMED);
        let (was, is) = (programmed(&before.conditions), programmed(&rendered.conditions));
        let event = is.and_then(|is| Some((event(was.as_ref(), &is)?, is)));
        let tried = Tried::at(&shown.version);
        let patch = render::load_balancer_patch(&rendered, &shown.version);
        self.status_writes.wrote(lb, now);
        if let Some(((severity, is), uid)) = event.zip(self.uid(lb)) {
            let (kind, name) = (ConsumerKind::LoadBalancer, Arc::clone(lb));
            self.outbox.record(EventDraft {
                object: ConsumerRef { kind, namespace: "".into(), name, uid }.into(),
                severity,
                reason: is.reason,
                message: is.message,
            });
        }
        if again.is_some() {
            // Ask again when the write is answered.
            self.outbox.enqueue(Target::LoadBalancer(Arc::clone(lb)));
        }
        Next::Write(Write::LoadBalancer(Arc::clone(lb), patch), tried)
    }

    /// The condition of a load balancer about its addresses; `before` is the present one.
    fn assigned(&self, lb: &Arc<str>, before: Option<Condition>) -> Option<Condition> {
        let (kind, key) = (ConsumerKind::LoadBalancer, ObjectKey::new("", Arc::clone(lb)));
        self.address_request(kind, &key).filter(|claim| !claim.wants_nothing())?;
        let holder = self.holder(kind, &key);
        let decision = holder.and_then(|it| self.addresses.decision(&it));
        bowline_core::addresses::assigned(decision, before)
    }

    /// Why no listener of a load balancer is open. None: one is, or it has none.
    fn closed(&self, lb: &Arc<str>) -> Option<&Problem> {
        in_force::closed_entirely(self.agents.joint(lb)?, self.listeners_on(lb))
    }

    /// The addresses that the status of a load balancer shows.
    fn addresses_in_force(&self, lb: &LoadBalancer, verdict: Option<&Verdict>) -> Vec<IpAddr> {
        let (kind, key) = (ConsumerKind::LoadBalancer, ObjectKey::new("", Arc::clone(&lb.name)));
        let of_pool = lb.addresses.is_empty() && lb.address_pool.is_some();
        let shown = self.boards.addresses(kind, &key).unwrap_or_default();
        let planned = self.consumers.planned(&(kind, key)).filter(|_| of_pool);
        let own = OwnAddresses {
            planned: &self.planner.addresses(lb),
            draining: self.planner.draining(lb),
            shown: &shown,
            change: planned.map(|it| it.change),
        };
        in_force::addresses_in_force(own, verdict, || match self.agents.joint(&lb.name) {
            Some(joint) => in_force::closed(joint, self.listeners_on(&lb.name)),
            None => Default::default(),
        })
    }
}
