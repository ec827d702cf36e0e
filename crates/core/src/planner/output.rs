//! The results of planning: outcomes by consumer; fragments, hash, certificates and consumers by load balancer. It
//! compares a new result with the previous one and keeps the difference. It plans nothing.

use super::asked_load_balancer::Refusal;
use super::build::{Built, outcome};
use super::certificates::{self, NeededCertificates};
use super::consumer::ConsumerKey;
use super::{Changes, FragmentChange};
use crate::hash::PlanHash;
use crate::key::{ConsumerKind, ConsumerRef};
use crate::outcome::{Origin, Outcome, Problem, State, Unmet};
use crate::plan::Fragment;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

#[derive(Debug, Default)]
pub(super) struct Output {
    planned: BTreeMap<ConsumerKey, HashedPlan>,
    by_lb: BTreeMap<Arc<str>, OnLb>,
    changes: Changes,
    /// Load balancers for which the set of using namespaces changed.
    used: BTreeSet<Arc<str>>,
    /// Consumers that are still on a load balancer from which they move.
    moving: BTreeSet<ConsumerKey>,
    /// The empty certificates of a load balancer without any.
    none: NeededCertificates,
    /// How often the certificates of any load balancer changed.
    revision: u64,
}

/// The result for one consumer.
#[derive(Debug, PartialEq)]
pub(super) struct Planned {
    outcome: Outcome,
    parts: Vec<Arc<Fragment>>,
    certificates: BTreeSet<certificates::Use>,
    /// What it has on load balancers from which it moves, by name.
    before: Vec<Before>,
}

/// What a consumer has on a load balancer from which it moves.
#[derive(Debug, PartialEq)]
pub(super) struct Before {
    load_balancer: Arc<str>,
    addresses: Vec<IpAddr>,
    parts: Vec<Arc<Fragment>>,
    /// The hash of its parts.
    hash: PlanHash,
    certificates: BTreeSet<certificates::Use>,
}

impl Before {
    /// None: it has no address there.
    pub(super) fn built(lb: &Arc<str>, built: Built) -> Option<Self> {
        let parts: Vec<_> = built.parts.into_iter().map(Arc::new).collect();
        Some(Self {
            load_balancer: lb.clone(),
            addresses: built.addresses.ok()?,
            hash: hash(&parts),
            parts,
            certificates: built.certificates,
        })
    }
}

fn hash(parts: &[Arc<Fragment>]) -> PlanHash {
    parts.iter().fold(PlanHash::default(), |sum, part| sum.plus(PlanHash::of(part)))
}

/// What a consumer has on one load balancer.
#[derive(Clone, Copy)]
struct Share<'a> {
    load_balancer: &'a Arc<str>,
    parts: &'a [Arc<Fragment>],
    certificates: &'a BTreeSet<certificates::Use>,
}

impl Planned {
    /// The result for a consumer that is placed on a load balancer.
    pub(super) fn built(who: &ConsumerKey, uid: &Arc<str>, lb: &Arc<str>, built: Built) -> Self {
        let state = match built.addresses {
            Ok(addresses) => {
                let (load_balancer, draining) = (lb.clone(), built.draining);
                State::Planned { load_balancer, addresses, draining, before: Vec::new() }
            }
            Err(problem) => State::Refused { load_balancer: Some(lb.clone()), problem },
        };
        Self {
            outcome: outcome(who, uid, state, built.problems),
            parts: built.parts.into_iter().map(Arc::new).collect(),
            certificates: built.certificates,
            before: Vec::new(),
        }
    }

    /// Adds why the consumer does not move to where it asks to be.
    pub(super) fn staying(mut self, unmet: Option<Refusal>) -> Self {
        self.outcome.unmet =
            unmet.map(|Refusal { load_balancer, problem }| Unmet { load_balancer, problem });
        self
    }

    /// Adds what the consumer has on load balancers from which it moves. If the new load balancer refuses it, it stays
    /// on the first of them.
    pub(super) fn coming_from(mut self, mut before: Vec<Before>) -> Self {
        if !before.is_empty()
            && let State::Refused { load_balancer: asked, problem } = &self.outcome.state
        {
            let Before { load_balancer, addresses, parts, certificates, .. } = before.remove(0);
            let problem = problem.clone();
            self.outcome.problems.push(problem.clone());
            self.outcome.unmet = Some(Unmet { load_balancer: asked.clone(), problem });
            self.outcome.problems.sort_unstable();
            let (draining, before) = <_>::default();
            self.outcome.state = State::Planned { load_balancer, addresses, draining, before };
            (self.parts, self.certificates) = (parts, certificates);
        }
        if let State::Planned { before: at, .. } = &mut self.outcome.state {
            let origin = |it: &Before| Origin {
                load_balancer: it.load_balancer.clone(),
                addresses: it.addresses.clone(),
            };
            *at = before.iter().map(origin).collect();
        }
        self.before = before;
        self
    }

    /// The result for a consumer that is not placed.
    pub(super) fn refused(
        who: &ConsumerKey,
        uid: &Arc<str>,
        refusal: Refusal,
        problems: Vec<Problem>,
    ) -> Self {
        let Refusal { load_balancer, problem } = refusal;
        let state = State::Refused { load_balancer, problem };
        Self {
            outcome: outcome(who, uid, state, problems),
            parts: Vec::new(),
            certificates: BTreeSet::new(),
            before: Vec::new(),
        }
    }

    /// What the consumer has on each of its load balancers.
    fn shares(&self) -> impl Iterator<Item = Share<'_>> {
        let own = self.load_balancer().map(|load_balancer| Share {
            load_balancer,
            parts: &self.parts,
            certificates: &self.certificates,
        });
        let before = self.before.iter().map(|it| Share {
            load_balancer: &it.load_balancer,
            parts: &it.parts,
            certificates: &it.certificates,
        });
        own.into_iter().chain(before)
    }

    fn load_balancer(&self) -> Option<&Arc<str>> {
        self.outcome.load_balancer()
    }
}

#[derive(Debug)]
struct HashedPlan {
    planned: Planned,
    /// The hash of its parts.
    hash: PlanHash,
}

impl HashedPlan {
    fn new(planned: Planned) -> Self {
        Self { hash: hash(&planned.parts), planned }
    }

    /// What the consumer has on each of its load balancers, with the hash of its parts there.
    fn shares(&self) -> impl Iterator<Item = (Share<'_>, PlanHash)> {
        let before = self.planned.before.iter().map(|it| it.hash);
        let own = self.planned.load_balancer().map(|_| self.hash);
        self.planned.shares().zip(own.into_iter().chain(before))
    }
}

/// The results for one load balancer.
#[derive(Debug, Default)]
struct OnLb {
    /// Consumers that are on it, or were refused by it.
    consumers: BTreeSet<ConsumerKey>,
    /// Consumers that it refused, in whole or in part.
    refused: BTreeSet<ConsumerKey>,
    /// The number of served consumers of each namespace.
    namespaces: BTreeMap<Arc<str>, usize>,
    hash: PlanHash,
    certificates: NeededCertificates,
    /// The revision at which the certificates last changed.
    revision: u64,
}

/// The fragments of a consumer, by load balancer and consumer.
fn fragments(planned: Option<&Planned>) -> BTreeMap<(&Arc<str>, &ConsumerRef), &[Arc<Fragment>]> {
    let shares = planned.into_iter().flat_map(|it| it.shares().map(move |share| (it, share)));
    let there = shares.filter(|(_, share)| !share.parts.is_empty());
    there.map(|(it, share)| ((share.load_balancer, &it.outcome.consumer), share.parts)).collect()
}

/// The namespace of a served consumer, unless it is the load balancer itself.
fn served(outcome: &Outcome) -> Option<&Arc<str>> {
    let planned = matches!(outcome.state, State::Planned { .. });
    let consumer = &outcome.consumer;
    (planned && consumer.kind != ConsumerKind::LoadBalancer).then_some(&consumer.namespace)
}

/// The load balancers that refused a consumer something: the one that it is on, and the one to which it asks to move.
fn refused_by(outcome: &Outcome) -> impl Iterator<Item = &Arc<str>> {
    let (here, there) = (outcome.load_balancer(), outcome.unmet.as_ref());
    let there = there.and_then(|it| it.load_balancer.as_ref()).filter(|it| Some(*it) != here);
    let all = here.into_iter().chain(there);
    all.filter(|lb| outcome.refusals_by(lb).next().is_some())
}

impl Output {
    /// Sets the result for a consumer. None: it is gone or not ours.
    pub(super) fn set(&mut self, who: ConsumerKey, new: Option<Planned>) {
        let old = self.planned.remove(&who);
        if old.as_ref().map(|kept| &kept.planned) == new.as_ref() {
            self.planned.extend(old.map(|kept| (who, kept)));
            return;
        }
        if let Some(old) = &old {
            self.leave(&who, old);
        }
        self.tell(old.as_ref().map(|kept| &kept.planned), new.as_ref());
        if let Some(planned) = new {
            let kept = match old {
                Some(old) if old.planned.parts == planned.parts => {
                    HashedPlan { planned: Planned { parts: old.planned.parts, ..planned }, ..old }
                }
                _ => HashedPlan::new(planned),
            };
            self.enter(&who, &kept);
            self.planned.insert(who, kept);
        }
    }

    fn enter(&mut self, who: &ConsumerKey, kept: &HashedPlan) {
        for lb in refused_by(&kept.planned.outcome) {
            self.by_lb.entry(lb.clone()).or_default().refused.insert(who.clone());
        }
        for (share, hash) in kept.shares() {
            let lb = share.load_balancer;
            let on = self.by_lb.entry(lb.clone()).or_default();
            on.consumers.insert(who.clone());
            if let Some(namespace) = served(&kept.planned.outcome) {
                let count = on.namespaces.entry(namespace.clone()).or_default();
                *count += 1;
                if *count == 1 {
                    self.used.insert(lb.clone());
                }
            }
            on.hash = on.hash.plus(hash);
            let needed = &mut on.certificates;
            let new = share.certificates.iter().filter(|it| certificates::need(needed, it));
            if new.count() > 0 {
                self.revision += 1;
                on.revision = self.revision;
            }
        }
        if !kept.planned.before.is_empty() {
            self.moving.insert(who.clone());
        }
    }

    fn leave(&mut self, who: &ConsumerKey, kept: &HashedPlan) {
        self.moving.remove(who);
        for (share, hash) in kept.shares() {
            let lb = share.load_balancer;
            let Some(on) = self.by_lb.get_mut(lb) else { continue };
            on.consumers.remove(who);
            if let Some(namespace) = served(&kept.planned.outcome)
                && let Some(count) = on.namespaces.get_mut(namespace)
            {
                *count -= 1;
                if *count == 0 {
                    on.namespaces.remove(namespace);
                    self.used.insert(lb.clone());
                }
            }
            on.hash = on.hash.minus(hash);
            let needed = &mut on.certificates;
            let gone = share.certificates.iter().filter(|it| certificates::release(needed, it));
            if gone.count() > 0 {
                self.revision += 1;
                on.revision = self.revision;
            }
        }
        let refused = refused_by(&kept.planned.outcome);
        for lb in refused.chain(kept.planned.shares().map(|share| share.load_balancer)) {
            let Some(on) = self.by_lb.get_mut(lb) else { continue };
            on.refused.remove(who);
            if on.consumers.is_empty() && on.refused.is_empty() {
                self.by_lb.remove(lb);
            }
        }
    }

    fn tell(&mut self, old: Option<&Planned>, new: Option<&Planned>) {
        let (was, is) = (fragments(old), fragments(new));
        let mut tell = |(lb, consumer): &(&Arc<str>, &ConsumerRef), parts: &[Arc<Fragment>]| {
            self.changes.fragments.push(FragmentChange {
                load_balancer: (*lb).clone(),
                consumer: (*consumer).clone(),
                parts: parts.to_vec(),
            });
        };
        let gone = was.keys().filter(|place| !is.contains_key(place));
        gone.for_each(|place| tell(place, &[]));
        let come = is.iter().filter(|(place, parts)| was.get(place) != Some(parts));
        come.for_each(|(place, parts)| tell(place, parts));
        let (was, is) = (old.map(|it| &it.outcome), new.map(|it| &it.outcome));
        if let Some(was) = was
            && is.map(|is| &is.consumer) != Some(&was.consumer)
        {
            self.changes.outcomes.push((was.consumer.clone(), None));
        }
        if let Some(is) = is.filter(|is| was != Some(is)) {
            self.changes.outcomes.push((is.consumer.clone(), Some(is.clone())));
        }
    }

    /// The changes since the last call.
    pub(super) fn take(&mut self) -> Changes {
        let mut changes = std::mem::take(&mut self.changes);
        changes
            .fragments
            .sort_by(|a, b| (&a.load_balancer, &a.consumer).cmp(&(&b.load_balancer, &b.consumer)));
        changes.outcomes.sort_by(|a, b| a.0.cmp(&b.0));
        changes.users = std::mem::take(&mut self.used)
            .into_iter()
            .map(|lb| {
                let namespaces =
                    self.by_lb.get(&lb).map(|on| on.namespaces.keys().cloned().collect());
                (lb, namespaces.unwrap_or_default())
            })
            .collect();
        changes
    }

    pub(super) fn outcome(&self, who: &ConsumerKey) -> Option<&Outcome> {
        self.planned.get(who).map(|kept| &kept.planned.outcome)
    }

    pub(super) fn outcomes(&self) -> impl Iterator<Item = &Outcome> {
        self.planned.values().map(|kept| &kept.planned.outcome)
    }

    pub(super) fn parts(&self, who: &ConsumerKey) -> &[Arc<Fragment>] {
        self.planned.get(who).map(|kept| &*kept.planned.parts).unwrap_or_default()
    }

    /// The parts of a consumer on one load balancer.
    pub(super) fn parts_on(&self, who: &ConsumerKey, lb: &str) -> &[Arc<Fragment>] {
        let shares = self.planned.get(who).into_iter().flat_map(|kept| kept.planned.shares());
        let mut here = shares.filter(|share| **share.load_balancer == *lb);
        here.next().map(|share| share.parts).unwrap_or_default()
    }

    /// The outcomes of consumers that are still on a load balancer from which they move.
    pub(super) fn moving(&self) -> impl Iterator<Item = &Outcome> {
        self.moving.iter().filter_map(|who| self.outcome(who))
    }

    /// The consumers that are on a load balancer or were refused by it.
    pub(super) fn consumers(&self, lb: &str) -> impl Iterator<Item = &ConsumerKey> {
        self.by_lb.get(lb).into_iter().flat_map(|on| &on.consumers)
    }

    pub(super) fn hash(&self, lb: &str) -> PlanHash {
        self.by_lb.get(lb).map(|on| on.hash).unwrap_or_default()
    }

    pub(super) fn certificates(&self, lb: &str) -> &NeededCertificates {
        self.by_lb.get(lb).map_or(&self.none, |on| &on.certificates)
    }

    pub(super) fn certificates_revision(&self, lb: &str) -> u64 {
        self.by_lb.get(lb).map_or(0, |on| on.revision)
    }

    /// The outcomes of consumers that a load balancer refused, in whole or in part.
    pub(super) fn refused(&self, lb: &str) -> impl Iterator<Item = &Outcome> {
        let refused = self.by_lb.get(lb).into_iter().flat_map(|on| &on.refused);
        refused.filter_map(|who| self.outcome(who))
    }
}
