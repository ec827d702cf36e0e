//! What holds when nothing is left to do.

use super::cloud::{Cloud, PARTS};
use crate::binder::fit::{free, suits};
use crate::binder::*;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use std::collections::{BTreeMap, BTreeSet};

impl Cloud {
    pub(super) fn check_rest(&self) -> Result<(), TestCaseError> {
        for lb in self.store.lbs.values() {
            self.check_lb(lb)?;
        }
        for claim in self.store.claims.values() {
            self.check_claim(claim)?;
        }
        let made = self.store.lbs.values();
        let made = made.filter(|lb| lb.provisioned_for.is_some() && !lb.deleting);
        let parts = |lb: &LoadBalancer| PARTS.map(|part| ((lb.name.clone(), part), lb.uid.clone()));
        let expected: BTreeMap<_, _> = made.flat_map(parts).collect();
        let lasting = self.store.lbs.values().filter(|lb| lb.deleting);
        let lasting: BTreeSet<_> = lasting.map(|lb| lb.uid.clone()).collect();
        let mut left = self.parts.clone();
        left.retain(|_, owner| !lasting.contains(owner));
        prop_assert_eq!(left, expected, "parts and load balancers that classes made");
        // A new leader that reads everything has nothing to do.
        let mut fresh = self.fresh();
        let changes = fresh.take(self.now);
        prop_assert_eq!(&changes.writes, &[], "a new leader writes");
        prop_assert_eq!(&changes.jobs, &[], "a new leader works");
        Ok(())
    }

    fn check_lb(&self, lb: &LoadBalancer) -> Result<(), TestCaseError> {
        let Some(report) = &lb.report else {
            return Err(TestCaseError::fail(format!("{lb:?}: nothing is said")));
        };
        let owner = lb.tie.claim.as_ref().and_then(|it| self.store.claims.get(&it.key));
        let owner = owner.filter(|it| Some(&it.uid) == lb.tie.uid());
        let binding = match (lb.tie.uid(), owner) {
            (None, _) => Binding::Available,
            (Some(_), Some(_)) => Binding::Bound,
            (Some(_), None) => Binding::Released,
        };
        prop_assert_eq!(report.binding, binding, "{:?}", lb);
        if let Some(owner) = owner.filter(|it| !it.deleting) {
            let home = owner.report.as_ref().and_then(ClaimReport::home);
            prop_assert_eq!(home, Some(&lb.name), "a claim has two: {:?}", lb);
            prop_assert!(lb.tie.in_use || lb.deleting);
        }
        if binding == Binding::Released && lb.users.is_empty() {
            prop_assert_eq!(lb.reclaim, Reclaim::Retain, "{:?} was not reclaimed", lb);
            prop_assert!(!lb.deleting);
        }
        if let Some((key, uid)) = &lb.provisioned_for
            && lb.users.is_empty()
            && lb.reclaim == Reclaim::Delete
        {
            let claim = self.store.claims.get(key).filter(|claim| claim.uid == *uid);
            // A load balancer that was taken from its claim and changed is left to a person.
            let home = |it: &Claim| it.report.as_ref().and_then(ClaimReport::home).cloned();
            let needed = owner.is_some()
                || claim.is_some_and(|it| home(it).is_none_or(|home| home == lb.name));
            prop_assert!(needed, "{:?} has no owner", lb);
        }
        Ok(())
    }

    fn check_claim(&self, claim: &Claim) -> Result<(), TestCaseError> {
        let wanted = self.wanted.get(&claim.key).is_some_and(|count| *count > 0);
        let Some(report) = claim.report.as_ref() else {
            prop_assert!(claim.deleting, "{:?}: nothing is said", claim);
            return Ok(());
        };
        let home = report.load_balancer.as_ref().and_then(|name| self.store.lbs.get(name));
        let lives = |uid: &str| self.store.claims.values().any(|it| *it.uid == *uid);
        let ask = claim.ask.as_ref().unwrap();
        let gets = |lb: &LoadBalancer, selected: bool| {
            free(claim, lb, &lb.tie, lb.users.iter(), lives)
                .and_then(|()| suits(ask, lb, selected))
                .is_ok()
        };
        if claim.deleting {
            let used = home.is_some_and(|lb| lb.users.contains(&claim.key.namespace));
            prop_assert!(claim.in_use && (wanted || used), "{:?} is held by nobody", claim);
            return Ok(());
        }
        match report.phase {
            Phase::Bound => {
                let uid = home.and_then(|lb| lb.tie.uid());
                prop_assert_eq!(uid, Some(&claim.uid), "{:?} has nothing", claim);
                prop_assert!(claim.in_use, "{:?} is not held", claim);
            }
            Phase::Lost => {
                let meddled =
                    report.load_balancer.as_ref().is_some_and(|it| self.meddled.contains(it));
                prop_assert!(meddled, "{:?} was lost by nobody", claim);
                prop_assert!(home.is_none_or(|lb| !gets(lb, false)), "{:?} is there", home);
            }
            Phase::Pending => {
                let idle = report.reason == ClaimReason::Idle;
                prop_assert!(!idle || !wanted, "{:?} is wanted", claim);
                if idle {
                    return Ok(());
                }
                // A provisioned load balancer fits no claim once its class is gone, unless it is
                // reserved.
                let class = self.class.as_ref().map(|it| &it.name);
                let inherits = |lb: &&LoadBalancer| {
                    lb.provisioned_for.is_none()
                        || lb.tie.claim.is_some()
                        || lb.class.as_ref() == class
                };
                let lbs = self.store.lbs.values().filter(inherits);
                let mut fitting = lbs.filter(|lb| match &ask.load_balancer {
                    Some(name) => lb.name == *name && gets(lb, false),
                    None => gets(lb, true),
                });
                prop_assert_eq!(fitting.next(), None, "{:?} could have it", claim);
                let made = provisioned_name(&claim.uid);
                let can = self.class.is_some()
                    && ask.load_balancer.is_none()
                    && ask.class != ClassWish::Never;
                let taken = self.store.lbs.get(&made);
                prop_assert!(!can || taken.is_some(), "{:?}: one could be made", claim);
                let reason = match taken {
                    Some(lb) if can && lb.deleting => ClaimReason::Removing,
                    _ => ClaimReason::NoMatch,
                };
                prop_assert_eq!(report.reason, reason);
            }
        }
        Ok(())
    }
}
