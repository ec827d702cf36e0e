//! Sends writes, one per object at a time, and jobs, one per load balancer at a time, through [`super::Changes`]; and
//! handles their answers. An answer carries the object as it is now, so nothing is guessed. It decides nothing.

use super::machine::{Binder, Deadline, Flight, RESTATE, Sent};
use super::object::{Claim, LoadBalancer, Object};
use super::{Id, Job, JobKind, Op, Target, Write, Written};
use crate::key::ObjectKey;
use crate::objects::{Timestamp, Version};
use std::sync::Arc;

/// Failed writes are repeated after 1, 2, 4 … seconds, and at last every 32.
const LONGEST_RETRY: u32 = 5;
/// Failed jobs after 2, 4, 8 … seconds, and at last every 256.
const LONGEST_JOB_RETRY: u32 = 8;

impl LoadBalancer {
    pub(super) fn target(&self) -> Target {
        let key = ObjectKey::new("", self.name.clone());
        Target { key, uid: self.uid.clone(), version: self.version.clone() }
    }
}

impl Claim {
    fn target(&self) -> Target {
        Target { key: self.key.clone(), uid: self.uid.clone(), version: self.version.clone() }
    }
}

/// The object after a write, or why the write had no effect, if that is known. A write that succeeded and left the
/// object as it was had no effect: it must not be repeated at once.
fn effective(
    result: Written,
    base: Option<&Version>,
) -> Result<Option<Box<Object>>, Option<Arc<str>>> {
    match result {
        Written::Failed => Err(None),
        Written::Refused(why) => Err(Some(why)),
        Written::Ok(Some(found)) if base.is_some() && found.version() == base => Err(None),
        Written::Ok(found) | Written::Conflict(found) => Ok(found),
    }
}

impl Binder {
    fn id(&mut self) -> Id {
        self.next_id += 1;
        Id(self.next_id)
    }

    pub(super) fn send_lb(&mut self, name: &Arc<str>, op: Op, tie: bool, now: Timestamp) {
        let id = self.id();
        let Some(slot) = self.lbs.get_mut(name) else { return };
        if slot.retry_at > now {
            self.deadlines.insert((slot.retry_at, Deadline::Lb(name.clone())));
            return;
        }
        let base = slot.seen.as_ref().map(|lb| lb.version.clone());
        slot.sent = Some(Sent { id, tie, base, gone: Vec::new() });
        self.in_flight.insert(id, Flight::Lb(name.clone()));
        self.changes.writes.push(Write { id, op });
    }

    /// Writes what a claim lacks: its finalizer first, then its status.
    pub(super) fn write_claim(&mut self, key: &ObjectKey, now: Timestamp) {
        let id = self.id();
        let in_use = self.is_in_use(key);
        let Some(slot) = self.claims.get_mut(key) else { return };
        if slot.sent.is_some() {
            return;
        }
        let claim = &slot.seen;
        let op = if in_use != claim.in_use {
            Op::GuardClaim(claim.target(), in_use)
        } else if let Some(report) = slot.report.clone()
            && claim.report.as_ref() != Some(&report)
        {
            let again = slot.told_at.map(|at| at + RESTATE);
            let agrees = claim.report.as_ref().is_some_and(|old| old.agrees(&report));
            if let Some(again) = again.filter(|again| agrees && *again > now) {
                self.deadlines.insert((again, Deadline::Claim(key.clone())));
                return;
            }
            Op::ReportClaim(claim.target(), report)
        } else {
            return;
        };
        if slot.retry_at > now {
            self.deadlines.insert((slot.retry_at, Deadline::Claim(key.clone())));
            return;
        }
        if matches!(op, Op::ReportClaim(..)) {
            slot.told_at = Some(now);
        }
        let base = Some(slot.seen.version.clone());
        slot.sent = Some(Sent { id, tie: false, base, gone: Vec::new() });
        self.in_flight.insert(id, Flight::Claim(key.clone()));
        self.changes.writes.push(Write { id, op });
    }

    /// Whether a claim needs its finalizer. It gets one before a consumer can use its load balancer, so that its
    /// deletion never comes first. While it is being deleted, it keeps the finalizer until no consumer of its
    /// namespace uses the load balancer.
    fn is_in_use(&self, key: &ObjectKey) -> bool {
        let Some(claim) = self.claims.get(key).map(|slot| &slot.seen) else { return false };
        let held = self.held.get(&claim.uid).into_iter().flatten();
        let held = held.filter_map(|name| self.lbs.get(name)?.seen.as_ref());
        let mut has = held.filter(|lb| lb.tie.is_of(claim)).peekable();
        if !claim.deleting {
            return has.peek().is_some();
        }
        // No finalizer can be added to an object that is being deleted.
        let wanted = self.is_wanted(key) && has.peek().is_some();
        claim.in_use && (wanted || has.any(|lb| self.users(lb).contains(&key.namespace)))
    }

    /// Starts a job, unless it is under way or was done.
    pub(super) fn work(
        &mut self,
        name: &Arc<str>,
        lb: &LoadBalancer,
        kind: Option<JobKind>,
        now: Timestamp,
    ) {
        let id = self.id();
        let Some(slot) = self.lbs.get_mut(name) else { return };
        let Some(kind) = kind else {
            // Its retries begin anew when the job is needed again.
            slot.job_failed = None;
            (slot.job_failures, slot.job_retry_at) = (0, 0);
            return;
        };
        if slot.job.is_some() {
            return;
        }
        if slot.job_retry_at > now {
            self.deadlines.insert((slot.job_retry_at, Deadline::Lb(name.clone())));
            return;
        }
        slot.job = Some((id, kind));
        self.jobs.insert(id, name.clone());
        let (load_balancer, uid) = (name.clone(), lb.uid.clone());
        let claim = lb.tie.uid().cloned();
        self.changes.jobs.push(Job { id, load_balancer, uid, claim, kind });
    }

    /// It is unknown how far a job got: it begins anew if it is still needed.
    pub(super) fn abandoned(&mut self, id: Id) {
        let Some(name) = self.jobs.remove(&id) else { return };
        let Some(slot) = self.lbs.get_mut(&name) else { return };
        slot.job.take_if(|(job, _)| *job == id);
        self.dirty_lbs.insert(name);
    }

    pub(super) fn finished(&mut self, id: Id, result: Result<(), Arc<str>>, now: Timestamp) {
        let Some(name) = self.jobs.remove(&id) else { return };
        let Some(slot) = self.lbs.get_mut(&name) else { return };
        let Some((_, kind)) = slot.job.take_if(|(job, _)| *job == id) else { return };
        match result {
            Ok(()) => {
                let claim = slot.seen.as_ref().and_then(|lb| lb.tie.uid().cloned());
                slot.done = Some((kind, claim));
                (slot.job_failed, slot.job_failures, slot.job_retry_at) = (None, 0, 0);
            }
            Err(message) => {
                slot.job_failures += 1;
                slot.job_retry_at = now + (1 << slot.job_failures.min(LONGEST_JOB_RETRY));
                slot.job_failed = Some(message);
            }
        }
        self.dirty_lbs.insert(name);
    }

    /// A job goes on. What it waits for is reported like a failure, but there is nothing to repeat.
    pub(super) fn waits(&mut self, id: Id, why: Arc<str>) {
        let Some(name) = self.jobs.get(&id).cloned() else { return };
        let Some(slot) = self.lbs.get_mut(&name) else { return };
        if slot.job_failed.as_ref() != Some(&why) {
            slot.job_failed = Some(why);
            self.dirty_lbs.insert(name);
        }
    }

    /// A write was answered.
    pub(super) fn written(&mut self, id: Id, result: Written, now: Timestamp) {
        match self.in_flight.remove(&id) {
            Some(Flight::Lb(name)) => self.written_lb(id, &name, result, now),
            Some(Flight::Claim(key)) => self.written_claim(id, &key, result, now),
            None => {}
        }
    }

    fn written_lb(&mut self, id: Id, name: &Arc<str>, result: Written, now: Timestamp) {
        let epoch = self.relists[super::Kind::LoadBalancer as usize].epoch();
        let Some(slot) = self.lbs.get_mut(name) else { return };
        let Some(sent) = slot.sent.take_if(|sent| sent.id == id) else { return };
        self.dirty_lbs.insert(name.clone());
        slot.epoch = epoch;
        let found = match effective(result, sent.base.as_ref()) {
            Ok(found) => found,
            Err(why) => {
                slot.retry_at = now + (1 << slot.failures.min(LONGEST_RETRY));
                slot.failures += 1;
                slot.refused = why;
                return self.failed(name, sent.base);
            }
        };
        (slot.failures, slot.retry_at, slot.refused) = (0, 0, None);
        if sent.tie {
            self.amend(name, |slot| (slot.want, slot.making) = (None, None));
        }
        match found.map(|found| *found) {
            Some(Object::LoadBalancer(lb)) if !sent.gone.contains(&lb.uid) => self.record_lb(lb),
            Some(_) => {}
            None => self.amend(name, |slot| (slot.seen, slot.dead) = (None, None)),
        }
    }

    /// The result of a write is unknown, or it was refused. If the watch delivered another version meanwhile, what
    /// was wanted is decided again. The claims concerned are enqueued.
    fn failed(&mut self, name: &Arc<str>, base: Option<Version>) {
        self.amend(name, |slot| {
            if slot.seen.as_ref().map(|lb| &lb.version) != base.as_ref() {
                (slot.want, slot.making) = (None, None);
            }
        });
    }

    fn written_claim(&mut self, id: Id, key: &ObjectKey, result: Written, now: Timestamp) {
        let epoch = self.relists[super::Kind::Claim as usize].epoch();
        let Some(slot) = self.claims.get_mut(key) else { return };
        let Some(sent) = slot.sent.take_if(|sent| sent.id == id) else { return };
        slot.epoch = epoch;
        self.dirty_claims.insert(slot.seen.age());
        let Ok(found) = effective(result, sent.base.as_ref()) else {
            slot.retry_at = now + (1 << slot.failures.min(LONGEST_RETRY));
            slot.failures += 1;
            return;
        };
        (slot.failures, slot.retry_at) = (0, 0);
        match found.map(|found| *found) {
            Some(Object::Claim(claim)) if !sent.gone.contains(&claim.uid) => {
                self.record_claim(claim);
            }
            Some(_) => {}
            None => self.remove_claim(key),
        }
    }
}
