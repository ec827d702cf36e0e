//! Decides for a load balancer: its claim, its finalizers, and when its claim is gone whether it waits for a person,
//! is wiped for the next claim or is deleted. It touches nothing that a claim may still need: a read confirms that
//! the claim is gone, and every write is under the version decided on. [`super::machine`] calls it.

use super::decide::{made_for, removable};
use super::machine::{Binder, Deadline, LbSlot};
use super::object::{Claim, LoadBalancer, Reclaim, Tie};
use super::report::{Binding, ClaimReport, LEAVING, Report};
use super::{JobKind, Op, Subject};
use crate::key::ObjectKey;
use crate::objects::Timestamp;
use std::sync::Arc;

/// The claim that a load balancer has.
#[derive(Clone, Debug)]
enum Owner {
    Unowned,
    /// No claim yet, but it is reserved for this one.
    Reserved(ObjectKey),
    Claim(Arc<Claim>),
    /// A claim that has another load balancer.
    Stray,
    /// A claim that is gone, or seems to be.
    Gone(ObjectKey, Arc<str>),
}

/// What to do with a load balancer.
#[derive(Debug)]
struct Course {
    tie: Tie,
    /// A claim that must be confirmed to be gone.
    confirm: Option<(ObjectKey, Arc<str>)>,
    job: Option<JobKind>,
    delete: bool,
    report: Report,
    look_at: Option<Timestamp>,
}

impl Binder {
    /// Decides for a load balancer.
    pub(super) fn settle(&mut self, name: &Arc<str>, now: Timestamp) {
        let Some(slot) = self.lbs.get(name) else { return };
        if slot.sent.is_some() {
            return;
        }
        let Some(lb) = slot.seen.clone() else { return self.make(name, now) };
        if self.is_in_vain(slot, &lb) {
            return self.amend(name, |slot| slot.want = None);
        }
        let course = self.course(slot, &lb, now);
        if let Some(at) = course.look_at {
            self.deadlines.insert((at, Deadline::Lb(name.clone())));
        }
        if let Some((key, uid)) = course.confirm {
            self.ask(Subject::Claim { key, uid, load_balancer: name.clone() }, now);
        }
        self.work(name, &lb, course.job, now);
        let Some(slot) = self.lbs.get(name) else { return };
        if slot.tie() != Some(&course.tie) {
            let tie = course.tie.clone();
            self.amend(name, |slot| slot.want = Some(tie));
        }
        if course.tie != lb.tie {
            let target = lb.target();
            let same = course.tie.claim == lb.tie.claim;
            let op = match course.tie.uid() {
                _ if same => Op::Guard(target, course.tie),
                Some(_) => Op::Bind(target, course.tie),
                None => Op::Release(target, course.tie),
            };
            return self.send_lb(name, op, true, now);
        }
        self.lbs.entry(name.clone()).and_modify(|slot| slot.want = None);
        if course.delete {
            return self.send_lb(name, Op::Delete(lb.target()), false, now);
        }
        if lb.report.as_ref() != Some(&course.report) {
            self.send_lb(name, Op::Report(lb.target(), course.report), false, now);
        }
    }

    /// Creates a load balancer, if its claim still needs it.
    fn make(&mut self, name: &Arc<str>, now: Timestamp) {
        let Some(slot) = self.lbs.get(name) else { return };
        let Some(new) = slot.making.clone() else { return };
        match self.claim(&new.claim.0, &new.claim.1).is_some_and(|claim| self.needs(claim)) {
            true => self.send_lb(name, Op::Create(new), true, now),
            false => self.amend(name, |slot| (slot.making, slot.want) = (None, None)),
        }
    }

    /// Whether a load balancer is still to be created for a claim.
    fn needs(&self, claim: &Claim) -> bool {
        let home = claim.report.as_ref().and_then(ClaimReport::home);
        let made = claim.ask.as_ref().is_ok_and(|ask| self.made(claim, ask).is_ok());
        made && home.is_none() && !claim.deleting && !self.is_idle(claim)
    }

    /// Whether its wanted tie is for a claim that is gone or being deleted, and that does not have it yet.
    fn is_in_vain(&self, slot: &LbSlot, lb: &LoadBalancer) -> bool {
        let meant = slot.want.as_ref().and_then(|tie| tie.claim.as_ref());
        let Some((claim, Some(uid))) = meant.map(|claim| (claim, &claim.uid)) else { return false };
        let needs = self.claim(&claim.key, uid).is_some_and(|claim| !claim.deleting);
        !needs && lb.tie.uid() != Some(uid)
    }

    fn owner(&self, tie: &Tie, lb: &LoadBalancer) -> Owner {
        let Some(claim) = &tie.claim else { return Owner::Unowned };
        let Some(uid) = &claim.uid else { return Owner::Reserved(claim.key.clone()) };
        match self.claim(&claim.key, uid) {
            None => Owner::Gone(claim.key.clone(), uid.clone()),
            Some(claim) if is_elsewhere(claim, lb) => Owner::Stray,
            Some(claim) => Owner::Claim(claim.clone()),
        }
    }

    /// Whether a load balancer has had no consumers for as long as its class allows.
    pub(super) fn idles(&self, lb: &LoadBalancer, now: Timestamp) -> bool {
        self.idle_at(lb).is_some_and(|at| at <= now)
    }

    fn idle_at(&self, lb: &LoadBalancer) -> Option<Timestamp> {
        let since = lb.report.as_ref()?.idle_since.filter(|_| !self.is_used(lb))?;
        Some(since.saturating_add(self.idle_timeout(lb)?))
    }

    fn idle_timeout(&self, lb: &LoadBalancer) -> Option<Timestamp> {
        lb.provisioned_for.as_ref()?;
        self.classes.get(lb.class.as_ref()?)?.0.idle_timeout
    }

    fn course(&self, slot: &LbSlot, lb: &LoadBalancer, now: Timestamp) -> Course {
        let tie = slot.want.clone().unwrap_or_else(|| lb.tie.clone());
        let owner = self.owner(&tie, lb);
        let idle_since = self.idle_since(lb, &owner, now);
        let look_at = self.idle_at(lb).filter(|at| *at > now);
        let report =
            Report { binding: Binding::Available, message: "".into(), failed: None, idle_since };
        let mut course = Course { tie, confirm: None, job: None, delete: false, report, look_at };
        let used = self.is_used(lb);
        let done = |kind| slot.done.as_ref() == Some(&(kind, lb.tie.uid().cloned()));
        // Whether nothing needs it any more.
        let mut loose = !used;
        match owner {
            Owner::Claim(claim) => {
                loose = false;
                course.report.binding = Binding::Bound;
                course.report.message = match lb.deleting {
                    true => format!("{LEAVING}, and claim {} holds it", claim.key).into(),
                    false => format!("claim {} has it", claim.key).into(),
                };
                course.tie.in_use = true;
                course.tie.cleanup |= removable(lb);
                let alone = self.held.get(&claim.uid).is_some_and(|held| held.len() == 1);
                let home = claim.report.as_ref().and_then(ClaimReport::home) == Some(&lb.name);
                let idle = alone && home && !claim.deleting && !lb.deleting && made_for(lb, &claim);
                if idle && self.idles(lb, now) && !self.is_wanted(&claim.key) {
                    course.release(true, used);
                }
            }
            Owner::Stray => {
                course.report.binding = Binding::Bound;
                course.release(false, used);
            }
            Owner::Unowned => {
                course.tie.in_use = used;
                self.course_of_unclaimed(slot, lb, now, &mut course);
            }
            Owner::Reserved(key) => {
                course.report.message = format!("it is reserved for claim {key}").into();
                course.tie.in_use = used;
                self.course_of_unclaimed(slot, lb, now, &mut course);
            }
            Owner::Gone(_, uid) if slot.dead.as_ref() == Some(&uid) => {
                course.report.binding = Binding::Released;
                let policy = if lb.deleting { Reclaim::Retain } else { lb.reclaim };
                match policy {
                    Reclaim::Retain => {
                        let message = "its claim is gone: clear claimRef to make it available";
                        course.report.message = message.into();
                    }
                    _ if used => {}
                    Reclaim::Delete => course.discard(),
                    Reclaim::Recycle if done(JobKind::Recycle) => course.release(false, used),
                    Reclaim::Recycle => {
                        course.report.message = "its configuration is being wiped".into();
                        course.job = Some(JobKind::Recycle);
                    }
                }
            }
            Owner::Gone(key, uid) => {
                loose = false;
                let recorded = lb.report.as_ref();
                course.report.binding = recorded.map_or(Binding::Bound, |it| it.binding);
                course.report.message = recorded.map_or_else(|| "".into(), |it| it.message.clone());
                course.confirm = Some((key, uid));
            }
        }
        let leaves = course.report.binding == Binding::Released || lb.deleting;
        if used && leaves && course.report.binding != Binding::Bound {
            let namespaces: Vec<Arc<str>> = self.users(lb).into_iter().collect();
            let users = format!("consumers in {} still use it", namespaces.join(", "));
            course.report.message = match lb.deleting {
                true => format!("{LEAVING}; {users}").into(),
                false => users.into(),
            };
        }
        if lb.deleting {
            course.leave(lb, loose, done(JobKind::Deprovision));
        }
        // No job begins before it is recorded that the claim no longer has it.
        if course.tie.claim != lb.tie.claim {
            course.job = None;
        }
        if course.job.is_some() {
            let recorded = lb.report.as_ref().and_then(|it| it.failed.clone());
            course.report.failed = slot.job_failed.clone().or(recorded);
        }
        course
    }

    /// Decides for a provisioned load balancer that no claim has.
    fn course_of_unclaimed(
        &self,
        slot: &LbSlot,
        lb: &LoadBalancer,
        now: Timestamp,
        course: &mut Course,
    ) {
        let Some((key, uid)) = &lb.provisioned_for else { return };
        if lb.deleting || self.is_used(lb) {
            return;
        }
        match self.claim(key, uid) {
            Some(claim) if is_elsewhere(claim, lb) || self.is_idle(claim) => course.discard(),
            Some(_) => {}
            None if lb.reclaim == Reclaim::Delete => match slot.dead.as_ref() == Some(uid) {
                true => course.discard(),
                false => course.confirm = Some((key.clone(), uid.clone())),
            },
            None if self.idles(lb, now) => course.discard(),
            None => {}
        }
    }

    fn idle_since(&self, lb: &LoadBalancer, owner: &Owner, now: Timestamp) -> Option<Timestamp> {
        self.idle_timeout(lb)?;
        let wanted = match owner {
            Owner::Claim(claim) => self.is_wanted(&claim.key),
            Owner::Reserved(key) => self.is_wanted(key),
            Owner::Unowned | Owner::Stray | Owner::Gone(..) => false,
        };
        let recorded = lb.report.as_ref().and_then(|report| report.idle_since);
        (!self.is_used(lb) && !wanted).then(|| recorded.unwrap_or(now))
    }
}

/// Whether a claim's status names another load balancer. That is for good.
fn is_elsewhere(claim: &Claim, lb: &LoadBalancer) -> bool {
    claim.report.as_ref().and_then(ClaimReport::home).is_some_and(|home| *home != lb.name)
}

impl Course {
    /// Takes it from its claim. `reserved`: it stays reserved for that claim.
    fn release(&mut self, reserved: bool, used: bool) {
        self.tie.in_use = used;
        match &mut self.tie.claim {
            Some(claim) if reserved => claim.uid = None,
            claim => *claim = None,
        }
    }

    /// Deletes it; before that, a finalizer holds it until what is behind it is removed.
    fn discard(&mut self) {
        self.report.message = LEAVING.into();
        self.delete = true;
        self.tie.cleanup = true;
    }

    /// It is being deleted: its finalizers are removed when nothing needs it and nothing is behind it any more.
    fn leave(&mut self, lb: &LoadBalancer, loose: bool, removed: bool) {
        self.delete = false;
        self.tie.in_use &= lb.tie.in_use;
        self.tie.cleanup &= lb.tie.cleanup;
        if !loose {
            return;
        }
        if !lb.tie.cleanup || removed {
            (self.tie.in_use, self.tie.cleanup) = (false, false);
            return;
        }
        self.tie.in_use = lb.tie.in_use;
        self.report.message = "the objects behind it are being removed".into();
        self.job = Some(JobKind::Deprovision);
    }
}
