//! Decides for a claim: it keeps its load balancer, gets the one that it names, one reserved for it or the best
//! match, has one created, or waits and is told why. It sends nothing itself; [`super::machine`] calls it.

use super::Subject;
use super::fit::{PassedOver, Unfit, fill, free, suits};
use super::machine::{Age, Binder};
use super::object::{Ask, Claim, ClaimRef, LoadBalancer, NewLoadBalancer, Reclaim, Tie};
use super::provision::{Unmade, provisioned_name};
use super::report::{ClaimReason, ClaimReport, Phase};
use crate::key::ObjectKey;
use crate::nearest::did_you_mean;
use crate::objects::Timestamp;
use crate::outcome::{Problem, quote};
use crate::resources::{Amounts, Quantity, Resource};
use std::cmp::Reverse;
use std::sync::Arc;

/// The most load balancers that are searched for a name that a claim may mean.
const MOST_NAMED: usize = 1_000;

enum Judgement {
    /// Something in flight decides first.
    Wait,
    /// This goes into its status.
    Say(ClaimReport),
    /// It gets this load balancer.
    Bind(Arc<str>),
    /// A load balancer is created for it.
    Make(NewLoadBalancer),
    /// The load balancer that it has seems to be lost.
    Check(Arc<str>),
}

impl Binder {
    /// Decides for a claim.
    pub(super) fn decide(&mut self, age: &Age, now: Timestamp) {
        let Some(slot) = self.claims.get(&age.key) else { return };
        // The answer of a write decides what comes next.
        if slot.sent.is_some() {
            return;
        }
        let claim = slot.seen.clone();
        self.pending.remove(age);
        if claim.age() != *age {
            return;
        }
        let report = match self.judge(&claim, now, true) {
            Judgement::Wait => None,
            Judgement::Say(report) => Some(report),
            Judgement::Bind(name) => {
                self.bind(&name, &claim);
                None
            }
            Judgement::Make(new) => {
                let (name, tie) = (new.name.clone(), new.tie());
                self.amend(&name, |slot| (slot.making, slot.want) = (Some(new), Some(tie)));
                None
            }
            Judgement::Check(name) => {
                self.ask(Subject::LoadBalancer { name, claim: claim.key.clone() }, now);
                None
            }
        };
        if report.as_ref().is_some_and(|report| report.phase == Phase::Pending) {
            self.pending.insert(age.clone());
        }
        if let Some(slot) = self.claims.get_mut(&age.key) {
            slot.report = report;
        }
        self.write_claim(&age.key, now);
    }

    /// Updates why a claim waits, without a search of the index: a load balancer that fits would have woken the
    /// claim.
    pub(super) fn restate(&mut self, age: &Age, now: Timestamp) {
        let Some(slot) = self.claims.get(&age.key).filter(|slot| slot.sent.is_none()) else {
            return;
        };
        let claim = slot.seen.clone();
        let report = match self.judge(&claim, now, false) {
            Judgement::Say(report) if report.phase == Phase::Pending => report,
            _ => {
                self.dirty_claims.insert(age.clone());
                return;
            }
        };
        if let Some(slot) = self.claims.get_mut(&age.key) {
            slot.report = Some(report);
        }
        self.write_claim(&age.key, now);
    }

    fn bind(&mut self, name: &Arc<str>, claim: &Claim) {
        let claim = ClaimRef { key: claim.key.clone(), uid: Some(claim.uid.clone()) };
        self.amend(name, |slot| {
            if let Some(lb) = &slot.seen {
                let cleanup = lb.tie.cleanup || removable(lb);
                slot.want = Some(Tie { claim: Some(claim), in_use: true, cleanup });
            }
        });
    }

    /// `looks`: whether to search the index for a load balancer.
    fn judge(&self, claim: &Claim, now: Timestamp, looks: bool) -> Judgement {
        if let Some(home) = claim.report.as_ref().and_then(ClaimReport::home) {
            return self.judge_home(claim, home, now);
        }
        if let Some(name) = self.held_by(claim) {
            return self.say_bound(claim, &name);
        }
        if self.is_idle(claim) {
            return match &claim.report {
                Some(report) => Judgement::Say(report.clone()),
                None => Judgement::Wait,
            };
        }
        if claim.deleting {
            return Judgement::Wait;
        }
        self.select(claim, looks)
    }

    /// Whether its load balancer was given up because no consumer used it, and none does now.
    pub(super) fn is_idle(&self, claim: &Claim) -> bool {
        let idle = |report: &ClaimReport| report.reason == ClaimReason::Idle;
        claim.report.as_ref().is_some_and(idle) && !self.is_wanted(&claim.key)
    }

    /// Of the load balancers that name a claim, the one for its status: one that is not being deleted, the one that
    /// it asks for, else the first by name.
    fn held_by(&self, claim: &Claim) -> Option<Arc<str>> {
        let slot = |name: &Arc<str>| self.lbs.get(name);
        let deleting = |name: &Arc<str>| {
            slot(name).and_then(|slot| slot.seen.as_ref()).is_some_and(|lb| lb.deleting)
        };
        let its = |name: &&Arc<str>| {
            slot(name).and_then(|slot| slot.tie()).is_some_and(|tie| tie.is_of(claim))
        };
        let held = self.held.get(&claim.uid)?.iter().filter(its);
        let asked = claim.ask.as_ref().ok().and_then(|ask| ask.load_balancer.as_ref());
        held.min_by_key(|name| (deleting(name), asked != Some(name), *name)).cloned()
    }

    /// The claim has a load balancer. It is told so once that is recorded there.
    fn say_bound(&self, claim: &Claim, name: &Arc<str>) -> Judgement {
        let Some(slot) = self.lbs.get(name) else { return Judgement::Wait };
        let Some(lb) = slot.seen.as_ref() else {
            if slot.failures == 0 {
                return Judgement::Wait;
            }
            let why = slot.refused.as_ref().map_or_else(String::new, |why| format!(": {why}"));
            let message =
                format!("load balancer {name} could not be made yet{why}; it is tried again");
            return Judgement::Say(ClaimReport::pending(ClaimReason::Provisioning, message));
        };
        if !lb.tie.is_of(claim) {
            // A claim that was told its load balancer keeps its status.
            let told = claim.report.as_ref().and_then(ClaimReport::home).is_some();
            return match slot.refused.as_ref().filter(|_| !told) {
                Some(why) => {
                    let message =
                        format!("load balancer {name} cannot be bound: {why}; it is tried again");
                    Judgement::Say(ClaimReport::pending(ClaimReason::Refused, message))
                }
                None => Judgement::Wait,
            };
        }
        let requests = claim.ask.as_ref().map(|ask| ask.requests).unwrap_or_default();
        let message = match lb.capacity.exceeded_by(&requests) {
            Some(it) => format!(
                "bound to load balancer {name}, which has {} {it}; {} is requested by now",
                Quantity::from(lb.capacity.amount(it)),
                Quantity::from(requests.amount(it))
            ),
            None => format!("bound to load balancer {name}"),
        };
        Judgement::Say(ClaimReport {
            phase: Phase::Bound,
            load_balancer: Some(name.clone()),
            capacity: lb.capacity,
            reason: ClaimReason::Bound,
            message: message.into(),
        })
    }

    /// The claim's status names a load balancer: it keeps that one, or is Lost.
    fn judge_home(&self, claim: &Claim, home: &Arc<str>, now: Timestamp) -> Judgement {
        let slot = self.lbs.get(home);
        let Some((slot, lb)) = slot.and_then(|slot| Some((slot, slot.seen.as_ref()?))) else {
            let message = format!("load balancer {home} is gone");
            return self.lose(claim, home, ClaimReason::LoadBalancerGone, message);
        };
        let taken = |what: &Unfit| {
            let message =
                format!("the claim cannot be bound to load balancer {home} again: {what}");
            self.lose(claim, home, ClaimReason::LoadBalancerTaken, message)
        };
        let tie = slot.want.as_ref().unwrap_or(&lb.tie);
        if tie.is_of(claim) {
            return self.say_bound(claim, home);
        }
        if claim.deleting {
            return Judgement::Wait;
        }
        if let Err(unfit) = self.free(claim, lb, tie) {
            return taken(&unfit);
        }
        // The idle timeout released it, and not a person.
        let bound = claim.report.as_ref().is_some_and(|it| it.phase == Phase::Bound);
        let released = bound && tie.claim.is_some() && made_for(lb, claim);
        if released && self.idles(lb, now) && !self.is_wanted(&claim.key) {
            let message = format!(
                "load balancer {home} was removed because it had no consumers; a new one is made when a Service \
                 or Ingress names the claim"
            );
            return Judgement::Say(ClaimReport::pending(ClaimReason::Idle, message));
        }
        match claim.ask.as_ref().map(|ask| suits(ask, lb, false)) {
            Ok(Err(unfit)) => taken(&unfit),
            Ok(Ok(())) | Err(_) => Judgement::Bind(home.clone()),
        }
    }

    /// The claim is Lost, once a read has confirmed what the watch says.
    fn lose(
        &self,
        claim: &Claim,
        home: &Arc<str>,
        reason: ClaimReason,
        message: String,
    ) -> Judgement {
        let slot = self.lbs.get(home);
        // A change of its tie that is in flight decides first.
        if slot.is_some_and(|slot| slot.want.is_some()) {
            return Judgement::Wait;
        }
        let version = slot.and_then(|slot| slot.seen.as_ref()).map(|lb| lb.version.clone());
        let lost = self.claims.get(&claim.key).and_then(|slot| slot.lost.as_ref());
        let known = claim.report.as_ref().is_some_and(|it| it.phase == Phase::Lost);
        // The watch has delivered what the read has seen, or more.
        let confirmed = lost.is_some_and(|(name, read)| {
            name == home
                && match (read, &version) {
                    (Some(read), Some(seen)) => !seen.is_older_than(read),
                    (None, None) => true,
                    _ => false,
                }
        });
        if !known && !confirmed {
            return Judgement::Check(home.clone());
        }
        Judgement::Say(ClaimReport {
            phase: Phase::Lost,
            load_balancer: Some(home.clone()),
            capacity: Amounts::default(),
            reason,
            message: message.into(),
        })
    }

    pub(super) fn free(&self, claim: &Claim, lb: &LoadBalancer, tie: &Tie) -> Result<(), Unfit> {
        // A load balancer that is being released has its claim until the release is recorded.
        for tie in [tie, &lb.tie] {
            let owner = tie.claim.as_ref().map(|claim| &claim.key);
            let lives = |uid: &str| owner.is_some_and(|key| self.claim(key, uid).is_some());
            let planned = self.users.get(&lb.name).into_iter().flatten();
            free(claim, lb, tie, lb.users.iter().chain(planned), lives)?;
        }
        Ok(())
    }

    /// Whether a claim may have a load balancer. `selected`: whether labels matter.
    pub(super) fn fits(
        &self,
        claim: &Claim,
        ask: &Ask,
        name: &str,
        selected: bool,
    ) -> Result<&Arc<LoadBalancer>, Unfit> {
        let slot = self.lbs.get(name).ok_or(Unfit::Missing)?;
        let lb = slot.seen.as_ref().ok_or(Unfit::Missing)?;
        let tie = slot.want.as_ref().unwrap_or(&lb.tie);
        self.free(claim, lb, tie)?;
        self.inherits(claim, lb, tie)?;
        suits(ask, lb, selected)?;
        Ok(lb)
    }

    fn select(&self, claim: &Claim, looks: bool) -> Judgement {
        let ask = match checked(claim) {
            Ok(ask) => ask,
            Err(message) => {
                return Judgement::Say(ClaimReport::pending(ClaimReason::Invalid, message));
            }
        };
        if let Some(name) = &ask.load_balancer {
            return match self.fits(claim, ask, name, false) {
                Ok(lb) => Judgement::Bind(lb.name.clone()),
                Err(unfit) => {
                    let meant = match unfit {
                        Unfit::Missing => self.meant_lb(claim, ask, name),
                        _ => String::new(),
                    };
                    let message = format!("load balancer {}: {unfit}{meant}", quote(name));
                    Judgement::Say(ClaimReport::pending(ClaimReason::NoMatch, message))
                }
            };
        }
        let reserved = self.reserved.get(&claim.key).into_iter().flatten();
        let reserved = reserved.filter_map(|name| self.fits(claim, ask, name, false).ok());
        let best = reserved.min_by_key(|lb| (Reverse(fill(&lb.capacity, &ask.requests)), &lb.name));
        let best = best.map(|lb| lb.name.clone());
        let fits = |name: &Arc<str>| self.fits(claim, ask, name, true).is_ok();
        let best = best.or_else(|| looks.then(|| self.index.best(ask, fits)).flatten());
        if let Some(name) = best {
            return Judgement::Bind(name);
        }
        let (reason, unmade) = match self.made(claim, ask) {
            Ok(new) => return Judgement::Make(new),
            Err(unmade @ Unmade::Removing(_)) => (ClaimReason::Removing, unmade),
            Err(unmade) => (ClaimReason::NoMatch, unmade),
        };
        let passed = self.passed_over(claim, ask, PassedOver::TOLD);
        Judgement::Say(ClaimReport::pending(reason, format!("{passed}; {unmade}")))
    }

    /// Which of the load balancers that a claim could have it probably means: the others are not its business.
    fn meant_lb(&self, claim: &Claim, ask: &Ask, name: &str) -> String {
        let names = self.lbs.keys().take(MOST_NAMED);
        let could = names.filter(|name| self.fits(claim, ask, name, false).is_ok());
        did_you_mean(name, could.map(|name| &**name))
    }

    fn passed_over(&self, claim: &Claim, ask: &Ask, most: usize) -> PassedOver {
        let why = |name: &Arc<str>| {
            let unfit = self.fits(claim, ask, name, ask.load_balancer.is_none()).err()?;
            Some((name.clone(), unfit))
        };
        if let Some(name) = &ask.load_balancer {
            return PassedOver { first: why(name).into_iter().collect(), more: 0 };
        }
        let open = self.index.names();
        let rest = self.lbs.iter().filter(|(_, slot)| slot.seen.is_some());
        let rest = rest.map(|(name, _)| name).filter(|name| !open.contains(*name));
        let names: Vec<_> = open.iter().chain(rest).take(most).collect();
        let more = self.lbs.len().saturating_sub(names.len());
        PassedOver { first: names.into_iter().filter_map(why).collect(), more }
    }

    /// Why a claim that waits does not get any of the existing load balancers.
    pub fn explain(&self, claim: &ObjectKey) -> PassedOver {
        let claim = self.claims.get(claim).map(|slot| &slot.seen);
        let asked = claim.and_then(|claim| Some((claim, claim.ask.as_ref().ok()?)));
        asked.map_or_else(PassedOver::default, |(claim, ask)| {
            self.passed_over(claim, ask, usize::MAX)
        })
    }

    /// Why no load balancer is created for a claim. None: it is unknown or unreadable, or one would be.
    pub fn unmade(&self, claim: &ObjectKey) -> Option<Unmade> {
        let claim = &self.claims.get(claim)?.seen;
        self.made(claim, claim.ask.as_ref().ok()?).err()
    }
}

/// What a claim asks for, if it can be read and its limits cover its requests.
fn checked(claim: &Claim) -> Result<&Ask, Arc<str>> {
    let ask = claim.ask.as_ref().map_err(|Problem { message, .. }| message.clone())?;
    let over =
        |it: &Resource| ask.limits.of(*it).is_some_and(|limit| limit < ask.requests.amount(*it));
    match Resource::ALL.into_iter().find(over) {
        Some(it) => Err(format!(
            "the limit of {it} is {}, less than the request of {}",
            Quantity::from(ask.limits.amount(it)),
            Quantity::from(ask.requests.amount(it))
        )
        .into()),
        None => Ok(ask),
    }
}

/// Whether there is something to remove behind a load balancer before its object goes.
pub(super) fn removable(lb: &LoadBalancer) -> bool {
    lb.reclaim == Reclaim::Delete || lb.provisioned_for.is_some()
}

pub(super) fn made_for(lb: &LoadBalancer, claim: &Claim) -> bool {
    lb.provisioned_for.as_ref().is_some_and(|(_, uid)| *uid == claim.uid)
        && lb.name == provisioned_name(&claim.uid)
}
