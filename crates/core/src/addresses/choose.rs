//! Chooses the addresses that a requester should have: first keeps what is valid, then tries its
//! request, its named pool, the pools pinned to it, and the others. It only reads the books.
//! [`super::settle`] calls it and applies the plan.

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

/// The addresses that a requester should have.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) targets: [Option<IpAddr>; 2],
    pub(super) families: &'static [Family],
    /// Addresses that it has and must not keep, each with the cause.
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

/// A pool that was passed over, and why. None: no pool in particular.
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

    /// Whether a requester's status shows an address that it does not hold and that it may have.
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

    /// The families that a request wants, the first one first.
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
                // Without such a pool both families count, so that the requester keeps what it has.
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

    /// The best valid address of each family that a requester holds. Invalid ones go to
    /// `plan.drops`.
    fn current(&self, requester: &Requester, plan: &mut Plan) -> [Option<IpAddr>; 2] {
        let request = &*requester.request;
        let mut best = [None; 2];
        for hold in self.ledger.holds(requester.uid()) {
            let address = hold.address;
            let family = Family::of(address);
            // With `OfPool`, an address of a family that the pool lost stays until there is a
            // successor.
            let moves = request.families == Families::OfPool;
            let invalid = if !moves && !plan.families.contains(&family) {
                Some(Cause::Family)
            } else if self.ledger.pools.of(address).is_none() {
                Some(Cause::OutsidePools)
            } else if request.ask.is_err() {
                // The unreadable value may be the sharing key.
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

    /// Of several addresses of a family, a requester keeps the one with the lowest rank. The rank
    /// depends only on the request and on recorded Addresses, where `since` never changes. So two
    /// leaders that each granted it an address agree on which one goes, and neither gives up the
    /// one that the other keeps. The status could not decide that: each leader writes its own, and
    /// observes the other's at another time.
    fn rank(&self, request: &AddressRequest, address: IpAddr) -> (bool, bool, bool, i64, IpAddr) {
        let held = self.ledger.held(address);
        let draining = held.is_some_and(|it| matches!(it.state, AddressState::Draining { .. }));
        // An Address made by hand has no time. It ranks last, so that no granted address is given
        // up for it.
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

    /// Plans all addresses that are asked for. Fails at the first one that the requester may not
    /// have.
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

    /// Keeps `kept`, adopts addresses that the status shows, and searches the pools for the rest.
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

    /// Adopts an address that the status shows for each family that has none.
    fn adopt(&self, requester: &Requester, named: Option<&Arc<str>>, plan: &mut Plan) {
        let request = &*requester.request;
        for family in unserved(plan) {
            let shown = request.status.iter().filter(|it| Family::of(**it) == family);
            // An address that it holds and does not keep must not come back by its own status.
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

    /// Plans the addresses that a DNS name resolves to.
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
            // The current address comes first, but must be allowed today, too.
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

    /// Keeps the addresses that the status shows while the name cannot be resolved.
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

    /// The verdict when no pool allows automatic assignment: why each existing pool was passed
    /// over.
    fn no_pool(&self) -> Verdict {
        let passed: Vec<Passed> = self.ledger.pools.iter().map(Slot::passed_by_all).collect();
        let message = match passed.is_empty() {
            true => "there is no AddressPool".to_owned(),
            false => format!("no AddressPool allows automatic assignment: {}", describe(&passed)),
        };
        Verdict::new(Reason::NoPool, message)
    }
}

/// The families for which no address is chosen yet.
fn unserved(plan: &Plan) -> Vec<Family> {
    let missing = |family: &&Family| plan.targets[**family as usize].is_none();
    plan.families.iter().filter(missing).copied().collect()
}

fn waits(request: &AddressRequest, passed: &[Passed]) -> Vec<Wait> {
    passed.iter().filter_map(|(pool, refusal)| refusal.waits(pool.as_ref(), request)).collect()
}

/// At most this many of the addresses and pools that were passed over are listed in a message.
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
