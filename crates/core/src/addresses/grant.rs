//! Decides whether a requester may have a given address, and which address a pool has for it.
//! [`super::choose`] calls it. It only reads the books.

use super::choose::{Passed, Plan, View};
use super::pools::Slot;
use super::request::{AddressRequest, Labels};
use super::requester::Requester;
use super::share::{Clash, Terms, Traffic, Why, may_share};
use super::verdict::{Cause, Refusal};
use super::{Holder, HolderRef};
use crate::nearest::{MOST_COMPARED, nearest};
use crate::objects::Family;
use std::net::IpAddr;
use std::sync::Arc;

/// At most this many addresses shared under a key are tried for one more holder: their number is
/// not bounded, and a free address serves as well.
const MOST_SHARED_TRIED: usize = 64;
/// The most holders that an Address object can name.
const MOST_HOLDERS: usize = 256;
/// The most ports of a holder that an Address object can name. A holder with more has all of them.
const MOST_PORTS: usize = 1024;

impl View<'_> {
    pub(super) fn pool_name(&self, address: IpAddr) -> Option<&Arc<str>> {
        self.ledger.pools.of(address).map(|slot| &slot.pool.name)
    }

    /// The holder with which a requester can no longer share an address that both have. A requester
    /// loses the address by its own edit; if no edit is known, the later holder loses it.
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
            // A holder that is gone, or not observed yet, takes nothing from a live one.
            let their_requester = self.live(&other.holder)?;
            // A pool that now allows less takes nothing away either.
            let mut theirs = self.terms_of(other, Some(their_requester));
            // Two holders that move to another load balancer together keep sharing on the way.
            if their_requester.request.load_balancer.as_ref() == terms.load_balancer {
                theirs.load_balancer = terms.load_balancer;
            }
            if their_requester.request.ask.is_err() {
                // A holder with an unreadable value takes nothing away from others.
                let accepted = theirs.traffic.filter(|_| their_requester.accepted.is_some());
                theirs.traffic = accepted.or(terms.traffic);
            }
            let why = may_share(terms, theirs, true).err()?;
            // Old records do not name the load balancer. Naming it now, where both are on one, is
            // not an edit.
            let unknown = mine.load_balancer.is_none()
                && other.load_balancer.is_none()
                && their_requester.request.load_balancer.is_some();
            let went = mine.load_balancer.as_ref() != terms.load_balancer && !unknown;
            let later = (mine.since, &mine.holder) > (other.since, &other.holder);
            // A holder that is about to give the address up takes nothing from those that stay.
            // Neither does one with an edit that has not been judged yet.
            let hold = self.ledger.hold(&other.holder.uid, address);
            let leaves = hold.is_some_and(|hold| hold.leave.is_some())
                || their_requester.request.ask.is_ok() && has_edited(their_requester, other);
            (edited || went || later && !leaves).then(|| Clash { with: other.holder.clone(), why })
        })
    }

    /// Whether new terms would clash with those of another holder that is gone or not observed yet.
    /// The new terms are recorded when it is known which of the two it is.
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

    /// The terms under which a holder has an address.
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

    /// Whether a requester may share an address with all its holders.
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
            // A holder that was edited and not decided for yet must fit under its new terms, too.
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

    /// A pool does not exist. Of those that the requester may use, the one that it probably means.
    fn no_such_pool(&self, request: &AddressRequest, named: &str) -> Refusal {
        let usable = self.ledger.pools.iter().take(MOST_COMPARED).filter(|slot| {
            slot.usable().is_ok() && slot.pool.fits(request, self.labels(request)).is_ok()
        });
        Refusal::NoSuchPool(nearest(named, usable.map(|slot| &*slot.pool.name)).map(Into::into))
    }

    /// Whether a requester may have one address that its spec, its status or its DNS name gives.
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
            return Err((Some(named.clone()), self.no_such_pool(request, named)));
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
        // It gave the address up, and the record does not say so yet. If it took the address back
        // now, the address would be shown while it is not recorded.
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

    /// Whether an address would count as one more for the namespace.
    fn counts(&self, request: &AddressRequest, address: IpAddr) -> bool {
        let entry = self.ledger.entry(address);
        !entry.is_some_and(|it| it.mark.namespaces.contains(request.namespace()))
    }

    /// How many addresses of a pool the plan adds for the namespace in the other family.
    fn so_far(&self, request: &AddressRequest, slot: &Slot, family: Family, plan: &Plan) -> u32 {
        let chosen = plan.targets.iter().flatten().filter(|it| {
            Family::of(**it) != family
                && self.pool_name(**it) == Some(&slot.pool.name)
                && self.counts(request, **it)
        });
        chosen.count() as u32
    }

    /// How many addresses of a pool a requester holds alone and gives up for another one of this
    /// family. Those that are being given up already count until they are free, or moves would add
    /// up.
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

    /// The address that a pool has for a requester: one shared under its key, else the lowest free
    /// one.
    pub(super) fn pick(
        &self,
        request: &AddressRequest,
        pool: &str,
        family: Family,
        plan: &Plan,
    ) -> Result<IpAddr, Refusal> {
        let pools = &self.ledger.pools;
        let slot = pools.get(pool).ok_or_else(|| self.no_such_pool(request, pool))?;
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

/// Whether a requester has other terms now than those under which it was granted an address.
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
