//! Which addresses somebody should have: keep what is valid, then its request, its pool, the pools
//! pinned to it, the others. A pure look at the books; nothing is changed here.

use super::ledger::Ledger;
use super::pools::Slot;
use super::record::{AddressState, HolderKey};
use super::request::{AddressRequest, Ask, Families};
use super::requester::Requester;
use super::verdict::{Cause, Refusal, Verdict, family_name};
use super::waiters::Wait;
use super::{Answer, Namespaces};
use crate::objects::Family;
use crate::outcome::{Reason, quote};
use rustc_hash::FxHashMap;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;

/// What somebody should have.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) targets: [Option<IpAddr>; 2],
    pub(super) families: &'static [Family],
    /// What it has and must not keep, and why.
    pub(super) drops: Vec<(IpAddr, Cause)>,
    pub(super) problem: Option<Verdict>,
    pub(super) note: Option<String>,
    pub(super) waits: Vec<Wait>,
}

impl Plan {
    pub(super) fn drop_of(&self, address: IpAddr) -> Option<&Cause> {
        self.drops.iter().find(|(it, _)| *it == address).map(|(_, cause)| cause)
    }
}

/// A pool, or none in particular, and why it did not serve.
pub(super) type Passed = (Option<Arc<str>>, Refusal);

pub(super) struct View<'a> {
    pub(super) ledger: &'a Ledger,
    pub(super) requesters: &'a FxHashMap<HolderKey, Requester>,
    pub(super) namespaces: &'a Namespaces,
    pub(super) answers: &'a FxHashMap<Arc<str>, Answer>,
}

impl View<'_> {
    pub(super) fn plan(&self, requester: &Requester) -> Plan {
        let request = &*requester.request;
        let families = self.wanted(request);
        let mut plan = Plan { families, ..Plan::default() };
        if request.wants_nothing() {
            return plan;
        }
        let current = self.current(requester, &mut plan);
        match &request.ask {
            Err(problem) => {
                plan.targets = current;
                plan.problem = Some(Verdict::new(Reason::BadValue, &*problem.message));
            }
            Ok(Ask::Nothing) => {}
            Ok(Ask::Any) => self.fill(requester, None, current, current, &mut plan),
            Ok(Ask::Pool(pool)) => {
                let elsewhere = |address: IpAddr| self.pool_name(address) != Some(pool);
                let kept = current.map(|it| it.filter(|address| !elsewhere(*address)));
                self.fill(requester, Some(pool), kept, current, &mut plan);
            }
            Ok(Ask::Addresses { addresses, pool }) => {
                match self.requested(request, addresses, pool.as_ref(), &mut plan) {
                    Ok(()) => {
                        let mut kept = current;
                        for address in addresses {
                            kept[Family::of(*address) as usize] = Some(*address);
                        }
                        self.fill(requester, pool.as_ref(), kept, current, &mut plan);
                    }
                    Err(passed) => {
                        plan.targets = current;
                        self.refuse(request, &[passed], &mut plan);
                    }
                }
            }
            Ok(Ask::Name { name, pool }) => {
                self.resolved(requester, name, pool.as_ref(), current, &mut plan);
            }
        }
        plan
    }

    /// Whether its status shows an address that is not recorded for it and that it may have.
    pub(super) fn adopts(&self, requester: &Requester) -> bool {
        let request = &*requester.request;
        let Ok(ask) = &request.ask else { return false };
        if *ask == Ask::Nothing {
            return false;
        }
        request.status.iter().any(|address| {
            self.ledger.hold(requester.uid(), *address).is_none()
                && self.is_asked_for(request, *address)
                && self.grantable(request, *address, ask.pool(), &Plan::default()).is_ok()
        })
    }

    /// The families that somebody wants, the first one first.
    pub(super) fn wanted(&self, request: &AddressRequest) -> &'static [Family] {
        use Family::{V4, V6};
        match request.families {
            Families::One(V4) => &[V4],
            Families::One(V6) => &[V6],
            Families::Prefer(V4) | Families::Require(V4) => &[V4, V6],
            Families::Prefer(V6) | Families::Require(V6) => &[V6, V4],
            Families::OfPool => {
                let pool = request.ask.as_ref().ok().and_then(Ask::pool);
                let slot = pool.and_then(|pool| self.ledger.pools.get(pool));
                // Where there is no such pool, what it has stays, whatever its family.
                let has = |family| slot.is_none_or(|slot| !slot.space(family).is_empty());
                match (has(V4), has(V6)) {
                    (true, true) => &[V4, V6],
                    (true, false) => &[V4],
                    (false, true) => &[V6],
                    (false, false) => &[],
                }
            }
        }
    }

    /// Of what somebody has, the best valid address of each family. What is not valid is dropped.
    fn current(&self, requester: &Requester, plan: &mut Plan) -> [Option<IpAddr>; 2] {
        let request = &*requester.request;
        let mut best = [None; 2];
        for hold in self.ledger.holds(requester.uid()) {
            let address = hold.address;
            let family = Family::of(address);
            // Whose families are those of its pool has another one for this before it loses it.
            let moves = request.families == Families::OfPool;
            let invalid = if !moves && !plan.families.contains(&family) {
                Some(Cause::Family)
            } else if self.ledger.pools.of(address).is_none() {
                Some(Cause::OutsidePools)
            } else if request.ask.is_err() {
                // Its key may be what cannot be read.
                None
            } else {
                self.broken_sharing(requester, address).map(|clash| Cause::Sharing(Box::new(clash)))
            };
            if let Some(cause) = invalid {
                plan.drops.push((address, cause));
                continue;
            }
            let rank = self.rank(request, address);
            let best = &mut best[family as usize];
            if best.as_ref().is_none_or(|(other, _)| rank < *other) {
                *best = Some((rank, address));
            }
        }
        best.map(|it| it.map(|(_, address)| address))
    }

    /// The lowest is what somebody keeps of several. It follows from its wish and from Addresses, where
    /// since when it has them never changes: two leaders who each gave it one agree on which goes, and
    /// neither gives up what the other keeps. What its status shows would not do: each has written its
    /// own, and sees the other's at another time.
    fn rank(&self, request: &AddressRequest, address: IpAddr) -> (bool, bool, bool, i64, IpAddr) {
        let held = self.ledger.held(address);
        let draining = held.is_some_and(|it| matches!(it.state, AddressState::Draining { .. }));
        // Made by hand, without a time: that takes nobody from what it was given.
        let since = held.and_then(|it| it.holder(&request.holder.uid)).map(|it| it.since);
        (
            !self.is_asked_for(request, address),
            draining,
            !self.ledger.is_recorded(address, &request.holder.uid),
            since.filter(|it| *it > 0).unwrap_or(i64::MAX),
            address,
        )
    }

    fn is_asked_for(&self, request: &AddressRequest, address: IpAddr) -> bool {
        match &request.ask {
            Ok(Ask::Pool(pool)) => self.pool_name(address) == Some(pool),
            Ok(Ask::Addresses { addresses, .. }) => {
                addresses.contains(&address)
                    || addresses.iter().all(|it| Family::of(*it) != Family::of(address))
            }
            Ok(Ask::Name { name, .. }) => match self.answers.get(name) {
                Some(Answer::Addresses(listed)) => listed.contains(&address),
                _ => true,
            },
            _ => true,
        }
    }

    /// Whether somebody may have all that it asks for, one after the other.
    fn requested(
        &self,
        request: &AddressRequest,
        addresses: &[IpAddr],
        named: Option<&Arc<str>>,
        plan: &mut Plan,
    ) -> Result<(), Passed> {
        for address in addresses {
            if !plan.families.contains(&Family::of(*address)) {
                return Err((None, Refusal::WrongFamily(*address)));
            }
            self.grantable(request, *address, named, plan)?;
            plan.targets[Family::of(*address) as usize] = Some(*address);
        }
        Ok(())
    }

    /// Keeps what is there, takes over what the status shows, and finds the rest.
    fn fill(
        &self,
        requester: &Requester,
        named: Option<&Arc<str>>,
        kept: [Option<IpAddr>; 2],
        good: [Option<IpAddr>; 2],
        plan: &mut Plan,
    ) {
        let request = &*requester.request;
        plan.targets = kept;
        if plan.families.is_empty() {
            plan.targets = good;
            return self.refuse(request, &[(named.cloned(), Refusal::Empty)], plan);
        }
        self.adopt(requester, named, plan);
        let missing = unserved(plan);
        if missing.is_empty() {
            return;
        }
        let passed = self.search(request, named, &missing, plan);
        let missing = unserved(plan);
        let Some(first_missing) = missing.first() else { return };
        plan.waits = waits(request, &passed);
        if let Some(sharing) = &request.sharing {
            plan.waits.push(Wait::Key(sharing.key.clone()));
        }
        let served = plan.targets.iter().any(Option::is_some);
        let lenient = match request.families {
            Families::One(_) | Families::Require(_) => false,
            Families::Prefer(_) => true,
            Families::OfPool => named.is_some_and(|it| self.ledger.pools.get(it).is_some()),
        };
        if !(served && lenient) {
            plan.targets = good;
            return self.refuse(request, &passed, plan);
        }
        plan.note =
            Some(format!("no {} address: {}", family_name(*first_missing), describe(&passed)));
        for (target, good) in plan.targets.iter_mut().zip(good) {
            *target = target.or(good);
        }
    }

    /// Takes over what the status shows, where a family has nothing.
    fn adopt(&self, requester: &Requester, named: Option<&Arc<str>>, plan: &mut Plan) {
        let request = &*requester.request;
        for family in unserved(plan) {
            let shown = request.status.iter().filter(|it| Family::of(**it) == family);
            // What it has and does not keep is not to come back by its own status.
            let shown = shown.filter(|it| self.ledger.hold(requester.uid(), **it).is_none());
            let mut shown = shown.filter(|it| self.grantable(request, **it, named, plan).is_ok());
            plan.targets[family as usize] = shown.next().copied();
        }
    }

    /// Finds addresses of the missing families: of one pool if one has them all, else of several.
    fn search(
        &self,
        request: &AddressRequest,
        named: Option<&Arc<str>>,
        missing: &[Family],
        plan: &mut Plan,
    ) -> Vec<Passed> {
        let mut pools: Vec<&Arc<str>> = Vec::new();
        match named {
            Some(named) => pools.push(named),
            None => {
                let beside = plan.targets.iter().flatten().filter_map(|it| self.pool_name(*it));
                let auto = |name: &&Arc<str>| self.ledger.pools.order().contains(name);
                pools.extend(beside.filter(auto));
                pools.extend(self.ledger.pools.order());
            }
        }
        if let [one, other] = missing {
            for pool in &pools {
                let Ok(first) = self.pick(request, pool, *one, plan) else { continue };
                plan.targets[*one as usize] = Some(first);
                if let Ok(second) = self.pick(request, pool, *other, plan) {
                    plan.targets[*other as usize] = Some(second);
                    return Vec::new();
                }
                plan.targets[*one as usize] = None;
            }
        }
        let mut passed: Vec<Passed> = Vec::new();
        for family in missing {
            for pool in &pools {
                match self.pick(request, pool, *family, plan) {
                    Ok(address) => {
                        plan.targets[*family as usize] = Some(address);
                        break;
                    }
                    Err(refusal) => {
                        let one = (Some((*pool).clone()), refusal);
                        if !passed.contains(&one) {
                            passed.push(one);
                        }
                    }
                }
            }
        }
        passed
    }

    /// What a DNS name says somebody should have.
    fn resolved(
        &self,
        requester: &Requester,
        name: &Arc<str>,
        named: Option<&Arc<str>>,
        current: [Option<IpAddr>; 2],
        plan: &mut Plan,
    ) {
        let request = &*requester.request;
        plan.targets = current;
        let listed = match self.answers.get(name) {
            None => {
                let message = format!("{} has not been looked up yet", quote(name));
                plan.problem = Some(Verdict::new(Reason::NamePending, message));
                return self.adopt_unanswered(requester, named, current, plan);
            }
            Some(Answer::Failed { reason }) => {
                let message = format!("{} cannot be looked up: {reason}", quote(name));
                plan.problem = Some(Verdict::new(Reason::NameFailed, message));
                return self.adopt_unanswered(requester, named, current, plan);
            }
            Some(Answer::Addresses(listed)) => listed,
        };
        let (mut passed, mut unserved) = (Vec::new(), Vec::new());
        for &family in plan.families {
            let current = current[family as usize];
            let mut usable: Vec<IpAddr> =
                listed.iter().copied().filter(|it| Family::of(*it) == family).collect();
            // What it has comes first, and must be what it may have today, too.
            let rank = |it: &IpAddr| (current != Some(*it), !request.status.contains(it), *it);
            usable.sort_unstable_by_key(rank);
            usable.dedup();
            if usable.is_empty() {
                passed.push((None, Refusal::NoFamily(family)));
            }
            let mut granted = None;
            for address in usable {
                match self.grantable(request, address, named, plan) {
                    Ok(()) => {
                        granted = Some(address);
                        break;
                    }
                    Err(refusal) => passed.push(refusal),
                }
            }
            match granted {
                Some(address) => plan.targets[family as usize] = Some(address),
                None => unserved.push(family),
            }
        }
        if unserved.is_empty() {
            return;
        }
        plan.waits = waits(request, &passed);
        let served = plan.targets.iter().flatten().any(|it| listed.contains(it));
        let kept = unserved.iter().any(|family| current[*family as usize].is_some());
        if served && !kept && matches!(request.families, Families::Prefer(_) | Families::OfPool) {
            plan.note = Some(describe(&passed));
            return;
        }
        if matches!(request.families, Families::Require(_)) {
            plan.targets = current;
        }
        let message =
            format!("{} resolves to no usable address: {}", quote(name), describe(&passed));
        plan.problem = Some(Verdict::new(Reason::NameUnusable, message));
    }

    /// What somebody shows goes on while its name does not answer.
    fn adopt_unanswered(
        &self,
        requester: &Requester,
        named: Option<&Arc<str>>,
        current: [Option<IpAddr>; 2],
        plan: &mut Plan,
    ) {
        self.adopt(requester, named, plan);
        if matches!(requester.request.families, Families::Require(_)) && !unserved(plan).is_empty()
        {
            plan.targets = current;
        }
    }

    fn refuse(&self, request: &AddressRequest, passed: &[Passed], plan: &mut Plan) {
        plan.waits.extend(waits(request, passed));
        let decides = passed.iter().map(|(_, refusal)| refusal).min_by_key(|it| it.weight());
        plan.problem = Some(match decides {
            Some(refusal) => Verdict::refused(refusal, describe(passed)),
            None => self.no_pool(),
        });
    }

    /// No pool is for those who name none: what of those there are.
    fn no_pool(&self) -> Verdict {
        let passed: Vec<Passed> = self.ledger.pools.iter().map(Slot::passed_by_all).collect();
        let message = match passed.is_empty() {
            true => "there is no AddressPool".to_owned(),
            false => format!("no AddressPool allows automatic assignment: {}", describe(&passed)),
        };
        Verdict::new(Reason::NoPool, message)
    }
}

/// The families that nothing is chosen for yet.
fn unserved(plan: &Plan) -> Vec<Family> {
    let missing = |family: &&Family| plan.targets[**family as usize].is_none();
    plan.families.iter().filter(missing).copied().collect()
}

fn waits(request: &AddressRequest, passed: &[Passed]) -> Vec<Wait> {
    passed.iter().filter_map(|(pool, refusal)| refusal.waits(pool.as_ref(), request)).collect()
}

/// So many of the addresses and pools that were passed over are told one by one.
const MOST_TOLD: usize = 8;

pub(super) fn describe(passed: &[Passed]) -> String {
    let mut text = String::new();
    for (at, (pool, refusal)) in passed.iter().take(MOST_TOLD).enumerate() {
        let comma = if at == 0 { "" } else { "; " };
        // Writing to a String does not fail.
        let _ = match pool {
            Some(pool) => write!(text, "{comma}pool {}: {refusal}", quote(pool)),
            None => write!(text, "{comma}{refusal}"),
        };
    }
    if let more @ 1.. = passed.len().saturating_sub(MOST_TOLD) {
        let _ = write!(text, "; and {more} more");
    }
    text
}
