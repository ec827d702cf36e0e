//! Observing what the leader recorded for agents: Plans and certificate Secrets. The events go to
//! the planner and to the parts that write these objects.

use super::super::State;
use crate::controller::observed::{CertificatesSeen, PlanSeen};
use crate::controller::target::Target;
use crate::watch::Seen;
use bowline_api::names;
use bowline_api::plan::Unread;
use bowline_core::planner::{Event, Record};
use std::sync::Arc;

impl State {
    pub(super) fn observe_plan(&mut self, seen: Seen<PlanSeen>) {
        match seen {
            Seen::Apply(plan) | Seen::Delete(plan) if !plan.is_ours() => {}
            Seen::Begin => self.plans.begin(),
            Seen::Apply(plan) => {
                let lb = Arc::clone(&plan.load_balancer);
                // The watch may show an earlier write of this process after the next write was
                // answered.
                if self.plans.observe(&plan) {
                    self.record(&plan);
                    if !plan.unread.is_empty() {
                        // With unread fragments, the hash that agents report differs from the hash
                        // of what is planned here.
                        self.plans.mark_stale_hash(Arc::clone(&lb));
                    }
                    self.plans.entry(&lb).seen(plan);
                    self.agents.record_shown(&lb, self.plans.shown(&lb));
                }
                self.outbox.enqueue(Target::Plans(lb));
            }
            Seen::Delete(plan) => self.plan_gone(&plan.load_balancer, &plan.name),
            Seen::Done => {
                self.listed.insert("Plan");
                for (lb, name) in self.plans.done() {
                    self.plan_gone(&lb, &name);
                }
            }
        }
    }

    /// Hands the planner a Plan's record.
    fn record(&mut self, plan: &PlanSeen) {
        if let Some(index) = names::plan_index(&plan.name) {
            let unread: Vec<_> = plan.unread.iter().filter_map(Unread::holds).collect();
            let fragments = plan.fragments.iter().chain(&unread);
            let record = Record::new(Arc::clone(&plan.load_balancer), index, fragments);
            self.planner.handle(Event::Recorded(record));
        }
    }

    fn plan_gone(&mut self, lb: &Arc<str>, name: &str) {
        if let Some(record) = self.plans.gone(lb, name) {
            self.planner.handle(Event::Recorded(record));
        }
        if self.plans.get(lb).is_some() {
            self.agents.record_shown(lb, self.plans.shown(lb));
            self.plans.prune(lb);
        }
        self.outbox.enqueue(Target::Plans(Arc::clone(lb)));
        self.outbox.enqueue(Target::Certificates(Arc::clone(lb)));
    }

    pub(super) fn observe_certificates(&mut self, seen: Seen<CertificatesSeen>) {
        match seen {
            Seen::Apply(secret) | Seen::Delete(secret) if !secret.is_ours() => {}
            Seen::Begin => self.certificates.begin(),
            Seen::Apply(secret) => {
                self.outbox.enqueue(Target::Certificates(Arc::clone(&secret.load_balancer)));
                self.certificates.apply(secret);
            }
            Seen::Delete(secret) => {
                self.certificates.delete(&secret.load_balancer, &secret.name);
                self.outbox.enqueue(Target::Certificates(secret.load_balancer));
            }
            Seen::Done => {
                self.listed.insert("Secret");
                for (lb, name) in self.certificates.done() {
                    self.certificates.delete(&lb, &name);
                    self.outbox.enqueue(Target::Certificates(lb));
                }
            }
        }
    }
}
