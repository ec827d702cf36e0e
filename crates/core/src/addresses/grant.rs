//! Whether somebody may have one certain address, and which one a pool has for it. Part of the look at
//! the books that [`super::choose`] takes; changes nothing.

use super::choose::{Passed, Plan, View};
use super::pools::Slot;
use super::request::{AddressRequest, Labels};
use super::requester::Requester;
use super::share::{Clash, Terms, Traffic, Why, may_share};
use super::verdict::{Cause, Refusal};
use super::{Holder, HolderRef};
use crate::objects::Family;
use std::net::IpAddr;
use std::sync::Arc;

/// Of the addresses that are shared under a key at most so many are tried for one more: their number
/// is not bounded, and a free address does as well.
const MOST_SHARED_TRIED: usize = 64;
/// So many holders an Address object can name.
const MOST_HOLDERS: usize = 256;
/// So many ports of a holder an Address object can name. One with more has all of them.
const MOST_PORTS: usize = 1024;

impl View<'_> {
    pub(super) fn pool_name(&self, address: IpAddr) -> Option<&Arc<str>> {
        self.ledger.pools.of(address).map(|slot| &slot.pool.name)
    }

    /// Whom somebody can no longer share an address with that both have. It loses by an edit of its
    /// own; where nobody's edit is known, the one who came later does.
    pub(super) fn broken_sharing(&self, requester: &Requester, address: IpAddr) -> Option<Clash> {
        let request = &*requester.request;
        let held = self.ledger.held(address)?;
        if held.holders.len() < 2 {
            return None;
        }
        let mine = held.holder(requester.uid())?;
        let terms = terms(request);
        let edited = has_edited(requester, mine);
        held.holders.iter().filter(|it| it.holder.uid != mine.holder.uid).find_map(|other| {
            // One who is gone, or not known yet, takes nothing from those who are there.
            let their_requester = self.live(&other.holder)?;
            // Pools that allow less than before take nothing away either.
            let mut theirs = self.terms_of(other, Some(their_requester));
            // Two who go to another place together do not lose each other on the way.
            if their_requester.request.load_balancer.as_ref() == terms.load_balancer {
                theirs.load_balancer = terms.load_balancer;
            }
            if their_requester.request.ask.is_err() {
                // What cannot be read takes nothing away from others.
                let accepted = theirs.traffic.filter(|_| their_requester.accepted.is_some());
                theirs.traffic = accepted.or(terms.traffic);
            }
            let why = may_share(terms, theirs, true).err()?;
            // Records once did not say who is where: that is not an edit by one of two who both are
            // somewhere.
            let unknown = mine.load_balancer.is_none()
                && other.load_balancer.is_none()
                && their_requester.request.load_balancer.is_some();
            let went = mine.load_balancer.as_ref() != terms.load_balancer && !unknown;
            let later = (mine.since, &mine.holder) > (other.since, &other.holder);
            // One who is about to give it up takes nothing from those who stay, and neither does one
            // whose own edit is yet to be judged.
            let hold = self.ledger.hold(&other.holder.uid, address);
            let leaves = hold.is_some_and(|hold| hold.leave.is_some())
                || their_requester.request.ask.is_ok() && has_edited(their_requester, other);
            (edited || went || later && !leaves).then(|| Clash { with: other.holder.clone(), why })
        })
    }

    /// Whether new terms would clash with those of somebody who has the address, too, and is gone or
    /// not known yet. They are recorded when it has been found out which.
    pub(super) fn clashes_with_unknown(&self, request: &AddressRequest, address: IpAddr) -> bool {
        let mine = terms(request);
        let held = self.ledger.held(address).into_iter();
        held.flat_map(|held| &held.holders).any(|other| {
            let theirs = Terms { traffic: mine.traffic, ..self.terms_of(other, None) };
            other.holder.uid != request.holder.uid
                && self.live(&other.holder).is_none()
                && may_share(mine, theirs, true).is_err()
        })
    }

    fn live(&self, holder: &HolderRef) -> Option<&Requester> {
        self.requesters.get(&holder.holder_key()).filter(|requester| *requester.uid() == holder.uid)
    }

    /// The terms under which somebody has an address.
    fn terms_of<'b>(&self, holder: &'b Holder, requester: Option<&'b Requester>) -> Terms<'b> {
        let traffic = requester.and_then(|requester| {
            match (&requester.accepted, &requester.request.sharing) {
                (Some((local_only, selector)), _) => {
                    Some(Traffic { local_only: *local_only, selector })
                }
                (None, sharing) => sharing.as_ref().map(Traffic::of),
            }
        });
        Terms {
            namespace: &holder.holder.key.namespace,
            key: holder.key.as_ref(),
            load_balancer: holder.load_balancer.as_ref(),
            ports: &holder.ports,
            traffic,
        }
    }

    /// Whether a newcomer may share an address with all who have it.
    fn may_join(
        &self,
        request: &AddressRequest,
        address: IpAddr,
        across: bool,
    ) -> Result<(), Clash> {
        let holders = self.ledger.held(address).map_or(&[][..], |held| &held.holders);
        for other in holders.iter().filter(|it| it.holder.uid != request.holder.uid) {
            let live = self.live(&other.holder);
            let recorded = self.terms_of(other, live);
            // One who has edited itself and is not decided for yet is not joined on its old terms.
            let edited = live.filter(|it| it.request.ask.is_ok()).map(|it| terms(&it.request));
            for theirs in [Some(recorded), edited].into_iter().flatten() {
                may_share(terms(request), theirs, across)
                    .map_err(|why| Clash { with: other.holder.clone(), why })?;
            }
        }
        match holders.first() {
            Some(first) if holders.len() >= MOST_HOLDERS => {
                Err(Clash { with: first.holder.clone(), why: Why::Full(MOST_HOLDERS) })
            }
            _ => Ok(()),
        }
    }

    fn labels(&self, request: &AddressRequest) -> Option<&Labels> {
        self.namespaces.get(request.namespace()).map(|(labels, _)| labels)
    }

    /// Whether somebody may have one address that it, its status or its name says.
    pub(super) fn grantable(
        &self,
        request: &AddressRequest,
        address: IpAddr,
        named: Option<&Arc<str>>,
        plan: &Plan,
    ) -> Result<(), Passed> {
        if let Some(named) = named
            && self.ledger.pools.get(named).is_none()
        {
            return Err((Some(named.clone()), Refusal::NoSuchPool));
        }
        let Some(slot) = self.ledger.pools.of(address) else {
            return Err((None, Refusal::NotInPools(address)));
        };
        if let Some(named) = named.filter(|named| **named != slot.pool.name) {
            return Err((Some(named.clone()), Refusal::NotInPool(address)));
        }
        let refuse = |refusal| (Some(slot.pool.name.clone()), refusal);
        if let Some(name) = request.name()
            && !slot.pool.allows_name(name)
        {
            return Err(refuse(Refusal::Domain));
        }
        if let Some(Cause::Sharing(clash)) = plan.drop_of(address) {
            return Err(refuse(Refusal::Clash(address, clash.clone())));
        }
        if self.ledger.hold(&request.holder.uid, address).is_some() {
            return Ok(());
        }
        // It gave it up, and the record does not say so yet: taken back before that is carried out, the
        // address would be shown while it is not recorded.
        if self.ledger.is_recorded(address, &request.holder.uid) {
            return Err(refuse(Refusal::Leaving(address)));
        }
        slot.usable().map_err(refuse)?;
        slot.pool.fits(request, self.labels(request)).map_err(|it| refuse(Refusal::Unfit(it)))?;
        if slot.avoids(address) {
            return Err(refuse(Refusal::Avoided(address)));
        }
        let entry = self.ledger.entry(address);
        if let Some(entry) = entry {
            if let Some(user) = entry.user_besides(&request.holder_key()) {
                return Err(refuse(Refusal::Foreign(address, user.to_string())));
            }
            match &entry.held {
                Some(held) if held.holders.is_empty() => {
                    return Err(refuse(Refusal::Resting(address)));
                }
                Some(_) => self
                    .may_join(request, address, slot.pool.sharing_across_namespaces)
                    .map_err(|clash| refuse(Refusal::Clash(address, Box::new(clash))))?,
                None if entry.recorded.is_some() || entry.sent.is_some() => {
                    return Err(refuse(Refusal::Leaving(address)));
                }
                None => {}
            }
        }
        let more = match self.counts(request, address) {
            true => 1 + self.so_far(request, slot, Family::of(address), plan),
            false => 0,
        };
        let replaced = self.replaced(request, slot, Family::of(address));
        quota(slot, request, more, replaced).map_err(refuse)
    }

    /// Whether an address would be one more for the namespace.
    fn counts(&self, request: &AddressRequest, address: IpAddr) -> bool {
        let entry = self.ledger.entry(address);
        !entry.is_some_and(|it| it.mark.namespaces.contains(request.namespace()))
    }

    /// How many more addresses of a pool it is to have beside one of this family.
    fn so_far(&self, request: &AddressRequest, slot: &Slot, family: Family, plan: &Plan) -> u32 {
        let chosen = plan.targets.iter().flatten().filter(|it| {
            Family::of(**it) != family
                && self.pool_name(**it) == Some(&slot.pool.name)
                && self.counts(request, **it)
        });
        chosen.count() as u32
    }

    /// How many addresses of a pool somebody alone has and gives up for another of this family. What
    /// it gives up already counts until it is free, or moves would add up.
    fn replaced(&self, request: &AddressRequest, slot: &Slot, family: Family) -> u32 {
        let holds = self.ledger.holds(&request.holder.uid).iter();
        let replaced = holds.filter(|hold| {
            hold.leave.is_none()
                && Family::of(hold.address) == family
                && self.pool_name(hold.address) == Some(&slot.pool.name)
                && self.ledger.held(hold.address).is_some_and(|held| held.holders.len() == 1)
        });
        replaced.count() as u32
    }

    /// The address that a pool has for somebody: one that is shared under its key, else the lowest.
    pub(super) fn pick(
        &self,
        request: &AddressRequest,
        pool: &str,
        family: Family,
        plan: &Plan,
    ) -> Result<IpAddr, Refusal> {
        let slot = self.ledger.pools.get(pool).ok_or(Refusal::NoSuchPool)?;
        slot.usable()?;
        slot.pool.fits(request, self.labels(request)).map_err(Refusal::Unfit)?;
        if slot.space(family).is_empty() {
            return Err(Refusal::NoFamily(family));
        }
        if let Some(sharing) = &request.sharing {
            let shared = self.ledger.shared(&sharing.key);
            let across = slot.pool.sharing_across_namespaces;
            let near = |holder: &Holder| holder.holder.key.namespace == *request.namespace();
            let mut shared = shared
                .filter(|it| {
                    Family::of(*it) == family && self.pool_name(*it) == Some(&slot.pool.name)
                })
                .filter(|it| {
                    across || self.ledger.held(*it).is_some_and(|it| it.holders.iter().all(near))
                })
                .take(MOST_SHARED_TRIED);
            let named = Some(&slot.pool.name);
            if let Some(address) =
                shared.find(|it| self.grantable(request, *it, named, plan).is_ok())
            {
                return Ok(address);
            }
        }
        quota(slot, request, self.so_far(request, slot, family, plan) + 1, 0)?;
        slot.space(family).lowest().ok_or(Refusal::Exhausted(family))
    }
}

/// Whether somebody is to share an address under other terms than it was given.
fn has_edited(requester: &Requester, recorded: &Holder) -> bool {
    let terms = terms(&requester.request);
    let traffic = requester.request.sharing.as_ref().map(|it| (it.local_only, &it.selector));
    let accepted = requester.accepted.as_ref().map(|(local, selector)| (*local, selector));
    recorded.key.as_ref() != terms.key
        || recorded.ports != terms.ports
        || accepted.is_some_and(|accepted| Some(accepted) != traffic)
}

pub(super) fn terms(request: &AddressRequest) -> Terms<'_> {
    let sharing = request.sharing.as_ref();
    Terms {
        namespace: request.namespace(),
        key: sharing.map(|it| &it.key),
        load_balancer: request.load_balancer.as_ref(),
        ports: sharing.filter(|it| it.ports.len() <= MOST_PORTS).map_or(&[], |it| &it.ports),
        traffic: sharing.map(Traffic::of),
    }
}

fn quota(slot: &Slot, request: &AddressRequest, more: u32, less: u32) -> Result<(), Refusal> {
    let Some(quota) = slot.pool.per_namespace_quota else { return Ok(()) };
    let Some(namespace) = request.tenant() else { return Ok(()) };
    let held = slot.held_by(namespace).saturating_sub(less);
    if more == 0 || held.saturating_add(more) <= quota {
        return Ok(());
    }
    Err(Refusal::Quota { quota, used: slot.held_by(namespace), moves: less > 0 })
}
