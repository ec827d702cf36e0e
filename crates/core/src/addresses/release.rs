//! Releases addresses: one that its holder left, once its grace is over, no status shows it and no load balancer serves
//! it; and those of holders that are gone. After its last holder an address rests before another may have it.

use super::entry::Hold;
use super::machine::{Addresses, Deadline};
use super::record::{AddressState, Content};
use super::request::{AddressRequest, Families};
use super::requester::Requester;
use crate::objects::{Family, Timestamp};
use std::net::IpAddr;

impl Addresses {
    pub(super) fn release_unused(&mut self, request: &AddressRequest, now: Timestamp) {
        let who = request.holder_key();
        let Some(requester) = self.requesters.get(&who) else { return };
        let ended: Vec<IpAddr> = self
            .ledger
            .holds(&request.holder.uid)
            .iter()
            .filter(|hold| hold.leave.is_some_and(|until| until <= now))
            .map(|hold| hold.address)
            .filter(|it| !requester.shows(*it) && !self.is_served(&request.holder.uid, *it))
            .filter(|it| !self.ledger.is_being_recorded(*it, &request.holder.uid))
            .collect();
        ended.into_iter().for_each(|address| self.release(address, &request.holder.uid, now));
    }

    /// Removes a holder from an address. After the last one it rests.
    pub(super) fn release(&mut self, address: IpAddr, uid: &str, now: Timestamp) {
        let Some(held) = self.ledger.held(address) else { return };
        let mut content = held.clone();
        content.holders.retain(|it| *it.holder.uid != *uid);
        let rested = content.holders.is_empty().then(|| self.rest(address, content.clone(), now));
        self.ledger.set_held(address, rested.unwrap_or(Some(content)));
    }

    /// The content of an address after its last holder. One that was never recorded does not rest.
    pub(super) fn rest(
        &mut self,
        address: IpAddr,
        content: Content,
        now: Timestamp,
    ) -> Option<Content> {
        let reuse_after = self.ledger.pools.of(address).map_or(0, |slot| slot.pool.reuse_after);
        let recorded = self.ledger.entry(address).is_some_and(|it| it.recorded.is_some());
        if reuse_after <= 0 || !recorded {
            return None;
        }
        let until = now.saturating_add(reuse_after);
        self.deadlines.insert((until, Deadline::Address(address)));
        Some(Content { holders: Vec::new(), state: AddressState::Resting { until }, ..content })
    }

    /// Releases the addresses of holders that are gone, except those that are still served.
    pub(super) fn release_gone(&mut self, now: Timestamp) {
        for uid in std::mem::take(&mut self.to_bury) {
            if !self.gone.contains(&uid) {
                continue;
            }
            self.visited += 1;
            let free = |it: &IpAddr| !self.is_served(&uid, *it);
            let addresses: Vec<IpAddr> =
                self.ledger.holds(&uid).iter().map(|hold| hold.address).filter(free).collect();
            addresses.into_iter().for_each(|address| self.release(address, &uid, now));
            if self.ledger.holds(&uid).is_empty() {
                self.gone.remove(&uid);
                self.serving.remove(&uid);
            }
        }
    }

    /// Whether a holder that leaves an address is still served there: until its grace is over, and after that while
    /// its status shows this address and not yet the successor.
    pub(super) fn drains(&self, requester: &Requester, hold: &Hold, now: Timestamp) -> bool {
        let Some(until) = hold.leave else { return false };
        let shown = |address: IpAddr| requester.request.status.contains(&address);
        let next =
            successor(&requester.request, &requester.targets, requester.families, hold.address);
        let awaited = || next.is_some_and(|next| next != hold.address && !shown(next));
        until > now || !hold.at_once && shown(hold.address) && awaited()
    }
}

/// The successor of an address: the target of its family. With `OfPool`, if the pool no longer has that family, any
/// target.
pub(super) fn successor(
    request: &AddressRequest,
    targets: &[Option<IpAddr>; 2],
    families: &[Family],
    address: IpAddr,
) -> Option<IpAddr> {
    let family = Family::of(address);
    let instead = request.families == Families::OfPool && !families.contains(&family);
    let other = || targets.iter().flatten().next().copied().filter(|_| instead);
    targets[family as usize].or_else(other)
}
