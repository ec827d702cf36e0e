//! The answers to writes: hands each to the part that wanted the write, and enqueues the targets that waited for it.
//! It does no I/O; the turn calls it.

use super::State;
use crate::controller::kinds::Parts;
use crate::controller::plans::PlanWrite;
use crate::controller::target::{Target, Tried};
use crate::controller::writer::bindings::{Current, StepReply};
use crate::controller::writer::provisions::Provisioned;
use crate::controller::writer::{Reply, Status, Write};
use crate::watch::Seen;
use bowline_api::names;
use bowline_core::binder;
use bowline_core::clock::Uptime;
use bowline_core::event_correlator::{EventDraft, Severity};
use bowline_core::key::{ConsumerKind, ConsumerRef, ObjectKey};
use bowline_core::planner::{Event, Read};
use std::sync::Arc;
use std::time::Duration;

/// How long a Plan is not written again after the API dropped fields of it.
const OLD_KIND: Duration = Duration::from_secs(60);

impl State {
    /// A write is sent. From now on a Plan may hold what is written, whatever the watch shows.
    pub(in crate::controller) fn sends(&mut self, target: &Target, write: &Write) {
        if let (Target::Plans(lb), Write::Plan(plan, _)) = (target, write) {
            debug_assert_eq!(plan.name, names::plan_name(lb, plan.write.index()));
            self.planner.handle(Event::Writing(plan.record()));
        }
    }

    /// The API refused a write: it changed nothing.
    pub(in crate::controller) fn unwritten(&mut self, target: &Target, tried: &Tried) {
        if let (Target::Plans(lb), Some(index)) = (target, names::plan_index(&tried.name)) {
            self.planner.handle(Event::WriteFailed(Arc::clone(lb), index));
        }
    }

    /// A write has succeeded.
    pub(in crate::controller) fn wrote(&mut self, target: &Target, written: Reply, now: Uptime) {
        match (target, written) {
            (Target::Consumer(kind, key), Reply::Status(status)) => {
                self.wrote_consumer(*kind, key, status);
            }
            (Target::LoadBalancer(lb), Reply::Status(Status::LoadBalancer(shown))) => {
                self.put_load_balancer(lb, *shown);
                let key = ObjectKey::new("", Arc::clone(lb));
                self.addresses.touch(ConsumerKind::LoadBalancer, &key);
                self.acknowledge(ConsumerKind::LoadBalancer, &key);
            }
            (target, Reply::Binding(id, answer)) => {
                self.bindings.answered(target, id, &answer, &mut self.outbox);
                self.put_found(answer);
            }
            (Target::Binding(lb), Reply::Seats(id, answer)) => {
                self.seats.answered(lb, id, &answer);
                self.put_found(answer);
            }
            (Target::Claim(_), Reply::Claim(shown))
                if !self.bindings.is_buried(&shown.status.known.uid) =>
            {
                self.bindings.observe_claim(Seen::Apply(&shown.status.known));
                self.put_claim(*shown);
            }
            (Target::Provision(lb), Reply::Provisioned(after)) => {
                self.provisioned(lb, &after, now);
            }
            (Target::Job(lb), Reply::Deprovisioned(id, result)) => {
                if let Some(result) = self.provisions.removed(lb, result, now, &mut self.outbox) {
                    self.bindings.finish_job(lb, id, result);
                }
            }
            (_, Reply::LookedFor(subject, version)) => {
                self.bindings.looked_for(subject, version);
            }
            (_, Reply::Leaver(consumer, lb, found)) => {
                self.looked_at(consumer, lb, found.as_deref());
            }
            (Target::Plans(lb), Reply::Plan(done, version)) => {
                self.wrote_plan(lb, *done, version, now);
            }
            (Target::Certificates(lb), Reply::Certificates(done, version)) => {
                self.certificates.entry(lb).wrote(done.write, version);
                self.outbox.enqueue(target.clone());
                self.outbox.enqueue(Target::Plans(Arc::clone(lb)));
            }
            (Target::Certificates(lb), Reply::Fetched(fetched, missed)) => {
                self.certificates.entry(lb).fetched(fetched, missed, now);
                self.outbox.enqueue(target.clone());
            }
            (Target::Address(address), Reply::Address(id, result)) => {
                self.addresses.wrote(*address, id, result);
            }
            (_, Reply::Announced(Some(seen))) => self.announced.put(&seen),
            (_, Reply::Confirmed(holder, exists)) => self.addresses.confirmed(holder, exists),
            (Target::Object(..), Reply::Object(shown)) => {
                let parts = &mut Parts { addresses: &mut self.addresses, speakers: &self.speakers };
                self.kinds.put(shown, parts, &mut self.outbox);
            }
            (Target::Agents(lb), Reply::Agents(removed)) => {
                if let Some(news) = self.agents.removed(lb, &removed) {
                    self.agents_changed(&news);
                }
            }
            (Target::Cookies(lb), Reply::Cookies(shown)) => {
                self.boards.cookies.put(Arc::clone(lb), shown);
                self.outbox.enqueue(target.clone());
            }
            _ => {}
        }
    }

    /// The status of a Service or Ingress was written.
    fn wrote_consumer(&mut self, kind: ConsumerKind, key: &ObjectKey, status: Status) {
        match status {
            Status::Service(shown) => {
                self.boards.services.put(key.clone(), shown);
                self.addresses.touch(kind, key);
                self.acknowledge(kind, key);
            }
            Status::Ingress(shown) => self.boards.ingresses.put(key.clone(), shown),
            Status::LoadBalancer(_) => {}
        }
        self.tell_reached(kind, key);
    }

    /// Prints in `bowline up` where a consumer is reached, as its status says now. The watch may show a write before
    /// its answer comes: whichever is first tells, and the other has no news.
    pub(super) fn tell_reached(&mut self, kind: ConsumerKind, key: &ObjectKey) {
        let Some(points) = self.boards.points(kind, key) else { return };
        let alone = || {
            let holder = self.holder(kind, key).filter(|_| self.is_alone(kind, key))?;
            let (namespace, name) = (Arc::clone(&key.namespace), Arc::clone(&key.name));
            Some(ConsumerRef { kind, namespace, name, uid: holder.uid })
        };
        let planned = self.planner.outcome(kind, key).map(|outcome| outcome.consumer.clone());
        if let Some(consumer) = planned.or_else(alone) {
            self.consumers.reached(&consumer, points, &mut self.outbox);
        }
    }

    /// Takes in the load balancer or claim that a write answer shows.
    fn put_found(&mut self, answer: StepReply) {
        let (StepReply::Ok(Some(found)) | StepReply::Conflict(Some(found))) = answer else {
            return;
        };
        match found {
            Current::LoadBalancer(shown) => {
                let lb = Arc::clone(&shown.status.known.name);
                self.put_load_balancer(&lb, *shown);
            }
            Current::Claim(shown) => self.put_claim(*shown),
        }
    }

    fn wrote_plan(&mut self, lb: &Arc<str>, done: PlanWrite, version: Option<String>, now: Uptime) {
        let plans = self.plans.entry(lb);
        let news = version.as_deref().is_none_or(|version| plans.is_news(&done.name, version));
        if news {
            self.planner.handle(Event::Recorded(done.record()));
        }
        // The API kept the version and holds something other than what was sent.
        let kept = version.is_some() && version == done.version;
        if kept && !news && plans.lacks(&done.write) {
            tracing::warn!(
                plan = done.name,
                "the API drops fields of this Plan: its CustomResourceDefinition is older than this \
                 controller. Apply deploy/crds"
            );
            plans.refused(&done.name, now + OLD_KIND);
        }
        plans.wrote(done.write, version, done.carrier);
        let (first, hash) = (plans.first_unwritten(), plans.hash());
        let all = first.map_or(self.plans.change(), |first| first.saturating_sub(1));
        self.agents.record_written(lb, hash, all);
        self.plans.prune(lb);
        self.outbox.enqueue(Target::Plans(Arc::clone(lb)));
        self.outbox.enqueue(Target::Certificates(Arc::clone(lb)));
    }

    /// Takes in the observed state of a load balancer's provisioned objects.
    pub(super) fn provisioned(&mut self, lb: &Arc<str>, after: &Provisioned, now: Uptime) {
        let uid = self.uid(lb);
        let known = self.provisions.provisioned(lb, uid, after, now, &mut self.outbox);
        if let Some(reach) = after.reach.as_ref().filter(|_| known) {
            self.reached(lb, reach);
        }
    }

    /// Takes in the read of a consumer that seems to have left a load balancer. None: it is deleted.
    fn looked_at(&mut self, consumer: ConsumerRef, lb: Arc<str>, found: Option<&Read>) {
        let claim = |it: &(ObjectKey, Option<Arc<str>>)| binder::ClaimRef {
            key: it.0.clone(),
            uid: it.1.clone(),
        };
        let planned = self.planner.load_balancer(&lb);
        let planned = planned.map(|lb| lb.claim.as_ref().map(claim));
        let shown = self.boards.load_balancers.get(&lb);
        let shown = shown.map(|shown| shown.status.known.tie.claim.clone());
        // While the planner has not seen the load balancer's present claim, no consumer has left it.
        let wants = found.is_some_and(|read| {
            planned != shown
                || self.planner.belongs(read, &lb)
                || self.planner.keeps(&consumer, &lb)
        });
        self.seats.confirmed(consumer, lb, wants);
    }

    /// Whether the object of a write is still at the version that the write replaces, as far as is known.
    pub(in crate::controller) fn is_at(&self, target: &Target, tried: &Tried) -> bool {
        let boards = &self.boards;
        let known = match target {
            Target::Consumer(ConsumerKind::Service, key) => {
                boards.services.get(key).map(|shown| &*shown.version)
            }
            Target::Consumer(_, key) => boards.ingresses.get(key).map(|shown| &*shown.version),
            Target::LoadBalancer(lb) => boards.load_balancers.get(lb).map(|shown| &*shown.version),
            Target::Plans(lb) => self.plans.get(lb).and_then(|plans| plans.version(&tried.name)),
            Target::Certificates(lb) => {
                self.certificates.get(lb).and_then(|it| it.version(&tried.name))
            }
            Target::Object(kind, key) => self.kinds.version(*kind, key),
            Target::Claim(key) => boards.claims.get(key).map(|shown| &*shown.version),
            Target::Cookies(lb) => boards.cookies.get(lb).map(|shown| &*shown.version),
            Target::Announced(address) => self.announced.version(*address),
            Target::Address(_)
            | Target::Holder(_)
            | Target::Subject(_)
            | Target::Leaver(..)
            | Target::Binding(_)
            | Target::Agents(_)
            | Target::Provision(_)
            | Target::Job(_) => None,
        };
        known == tried.version.as_deref()
    }

    /// Records that the write of one of a target's objects failed. The others go on; this one is retried later.
    /// False: the target has only one object.
    pub(in crate::controller) fn refused_write(
        &mut self,
        target: &Target,
        tried: &Tried,
        until: Uptime,
    ) -> bool {
        match target {
            _ if tried.name.is_empty() => return false,
            Target::Plans(lb) => {
                if let Some(plans) = self.plans.get_mut(lb) {
                    plans.refused(&tried.name, until);
                }
            }
            Target::Certificates(lb) => {
                if let Some(certificates) = self.certificates.get_mut(lb) {
                    certificates.refused(&tried.name, until);
                }
            }
            _ => return false,
        }
        self.outbox.enqueue(target.clone());
        true
    }

    /// Warns the load balancer's administrator that a foreign Secret has the name of one of Bowline's.
    pub(in crate::controller) fn taken(&mut self, target: &Target, tried: &Tried) {
        let (Target::Cookies(lb) | Target::Certificates(lb)) = target else { return };
        let Some(uid) = self.uid(lb) else { return };
        let (kind, name) = (ConsumerKind::LoadBalancer, Arc::clone(lb));
        let message = format!(
            "Secret {} has the name of one of Bowline's Secrets, and another type: delete it",
            tried.name
        );
        self.outbox.record(EventDraft {
            object: ConsumerRef { kind, namespace: "".into(), name, uid }.into(),
            severity: Severity::Warning,
            reason: "NameTaken".into(),
            message: message.into(),
        });
    }
}
