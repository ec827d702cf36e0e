//! Carries a plan into the books: takes what is new, gives up what is old, in that order. An address is
//! given up when its successor is recorded, drained for a grace where there is one, and released when
//! nothing shows or serves it any more.

use super::choose::{Plan, View};
use super::claim::{Ask, Claim};
use super::entry::Hold;
use super::grant::terms;
use super::machine::{Addresses, Deadline};
use super::record::{AddressState, Age, Content, Holder, HolderRef, Who};
use super::seat::Seat;
use super::verdict::{Cause, Notice, NoticeKind};
use super::waiters::Wait;
use crate::objects::{Family, Timestamp};
use std::net::IpAddr;

impl Addresses {
    /// Decides for one who may want addresses.
    pub(super) fn decide(&mut self, age: &Age, now: Timestamp) {
        let who = &age.who;
        let Some(seat) = self.seats.get_mut(who) else { return };
        self.visited += 1;
        for wait in std::mem::take(&mut seat.waits) {
            self.ledger.waiters.remove(&wait, age);
        }
        let Some(seat) = self.seats.get(who) else { return };
        let plan = self.view().plan(seat);
        let claim = seat.claim.clone();
        self.wait(age, &plan);
        self.take_targets(&claim, &plan, age, now);
        self.give_up(&claim, &plan, now);
        if let Some(seat) = self.seats.get_mut(who) {
            (seat.targets, seat.families) = (plan.targets, plan.families);
            (seat.problem, seat.note) = (plan.problem, plan.note);
        }
        self.release_unused(&claim, now);
        // While it still has what it may no longer share, its edit is not forgotten.
        let lost = plan.drops.iter().filter(|(_, cause)| matches!(cause, Cause::Sharing(_)));
        let mut lost =
            lost.filter_map(|(address, _)| self.ledger.hold(&claim.holder.uid, *address));
        if lost.next().is_none()
            && claim.ask.is_ok()
            && let Some(seat) = self.seats.get_mut(who)
        {
            seat.accepted = claim.sharing.as_ref().map(|it| (it.local_only, it.selector.clone()));
        }
        self.to_publish.insert(age.clone());
    }

    pub(super) fn view(&self) -> View<'_> {
        View {
            ledger: &self.ledger,
            seats: &self.seats,
            namespaces: &self.namespaces,
            answers: &self.answers,
        }
    }

    fn wait(&mut self, age: &Age, plan: &Plan) {
        let waits: Vec<Wait> = plan.waits.clone();
        for wait in &waits {
            self.ledger.waiters.add(wait.clone(), age.clone());
        }
        if plan.problem.is_some() || plan.note.is_some() {
            self.unserved.insert(age.clone());
        } else {
            self.unserved.remove(age);
        }
        if let Some(seat) = self.seats.get_mut(&age.who) {
            seat.waits = waits;
        }
    }

    fn take_targets(&mut self, claim: &Claim, plan: &Plan, age: &Age, now: Timestamp) {
        let terms = terms(claim);
        let uid = &claim.holder.uid;
        for address in plan.targets.iter().flatten() {
            let Some(hold) = self.ledger.hold_mut(uid, *address) else {
                let holder = Holder {
                    holder: claim.holder.clone(),
                    ports: terms.ports.to_vec(),
                    key: terms.key.cloned(),
                    load_balancer: terms.load_balancer.cloned(),
                    since: now,
                };
                self.ledger.join(*address, holder);
                continue;
            };
            if hold.leave.take().is_some() {
                self.ledger.to_write.insert(*address);
            }
            let mine = self.ledger.held(*address).and_then(|held| held.holder(uid));
            let edited = |it: &Holder| {
                it.ports != terms.ports
                    || it.key.as_ref() != terms.key
                    || it.load_balancer.as_ref() != terms.load_balancer
            };
            if !mine.is_some_and(edited) || claim.ask.is_err() {
                continue;
            }
            if self.view().clashes_with_unknown(claim, *address) {
                self.ledger.waiters.add(Wait::Address(*address), age.clone());
                if let Some(seat) = self.seats.get_mut(&age.who) {
                    seat.waits.push(Wait::Address(*address));
                }
            } else {
                let (ports, key) = (terms.ports.to_vec(), terms.key.cloned());
                let load_balancer = terms.load_balancer.cloned();
                self.ledger.amend(*address, |content| {
                    let mut holders = content.holders.iter_mut();
                    if let Some(mine) = holders.find(|it| it.holder.uid == *uid) {
                        (mine.ports, mine.key) = (ports, key);
                        mine.load_balancer = load_balancer;
                    }
                });
            }
        }
    }

    /// What is no target is left, as soon as its successor is recorded.
    fn give_up(&mut self, claim: &Claim, plan: &Plan, now: Timestamp) {
        let uid = claim.holder.uid.clone();
        let kept = |hold: &&Hold| plan.targets.contains(&Some(hold.address));
        let holds = self.ledger.holds(&uid).iter().filter(|hold| !kept(hold));
        let holds: Vec<Hold> = holds.cloned().collect();
        let mut replaced: [Option<(IpAddr, Cause)>; 2] = [None, None];
        for hold in &holds {
            let family = Family::of(hold.address) as usize;
            let target = plan.targets[family];
            if let Some(until) = hold.leave {
                // A grace is for one who moved, not for one who may no longer have it at all.
                let over = target.is_none()
                    || matches!(
                        plan.drop_of(hold.address),
                        Some(Cause::Sharing(_) | Cause::Family)
                    );
                if let Some(hold) = self.ledger.hold_mut(&uid, hold.address).filter(|_| over) {
                    (hold.leave, hold.at_once) = (Some(until.min(now)), true);
                }
                continue;
            }
            let cause = match plan.drop_of(hold.address) {
                Some(cause) => cause.clone(),
                None => self.why_moved(claim, target),
            };
            let recorded = target.is_some_and(|it| self.ledger.is_recorded(it, &uid));
            let at_once = matches!(cause, Cause::Sharing(_) | Cause::Family);
            if target.is_some() && !recorded && hold.confirmed && !at_once {
                continue;
            }
            let until = match (&cause, self.ledger.held(hold.address).map(|held| held.state)) {
                _ if !hold.confirmed || at_once || target.is_none() => now,
                (_, Some(AddressState::Draining { until })) => until,
                (Cause::Spare, _) => now,
                _ => now.saturating_add(self.grace),
            };
            if let Some(hold) = self.ledger.hold_mut(&uid, hold.address) {
                // Should it come back, that is news.
                (hold.leave, hold.at_once, hold.told) = (Some(until), at_once, false);
            }
            self.ledger.to_write.insert(hold.address);
            if until > now {
                self.deadlines.insert((until, Deadline::Holder(claim.age())));
            }
            if hold.confirmed && recorded {
                replaced[family] = Some((hold.address, cause));
            } else if hold.confirmed && !claim.wants_nothing() {
                let message = format!("lost {}: {cause}", hold.address);
                self.tell(&claim.holder, NoticeKind::AddressLost, message);
            }
        }
        self.tell_of_targets(claim, plan, replaced);
    }

    fn why_moved(&self, claim: &Claim, target: Option<IpAddr>) -> Cause {
        match (&claim.ask, target) {
            (_, None) => Cause::Asked,
            (Ok(Ask::Name { name, .. }), Some(_)) => Cause::Name(name.clone()),
            (Ok(Ask::Any), Some(_)) => Cause::Spare,
            _ => Cause::Asked,
        }
    }

    fn tell_of_targets(
        &mut self,
        claim: &Claim,
        plan: &Plan,
        mut replaced: [Option<(IpAddr, Cause)>; 2],
    ) {
        for address in plan.targets.iter().flatten() {
            let pool = self.ledger.pools.of(*address).map(|slot| slot.pool.name.clone());
            let Some(hold) = self.ledger.hold_mut(&claim.holder.uid, *address) else { continue };
            if !hold.confirmed || std::mem::replace(&mut hold.told, true) {
                continue;
            }
            let pool = pool.as_deref().unwrap_or_default();
            match replaced[Family::of(*address) as usize].take() {
                Some((old, cause)) => {
                    let message =
                        format!("changed from {old} to {address} of pool {pool}: {cause}");
                    self.tell(&claim.holder, NoticeKind::AddressChanged, message);
                }
                None => {
                    let message = format!("assigned {address} of pool {pool}");
                    self.tell(&claim.holder, NoticeKind::AddressAssigned, message);
                }
            }
        }
    }

    pub(super) fn tell(&mut self, holder: &HolderRef, kind: NoticeKind, message: String) {
        self.notices.push(Notice { holder: holder.clone(), kind, message });
    }

    fn release_unused(&mut self, claim: &Claim, now: Timestamp) {
        let who = claim.who();
        let Some(seat) = self.seats.get(&who) else { return };
        let serving = self.serving.get(&claim.holder.uid);
        let ended: Vec<IpAddr> = self
            .ledger
            .holds(&claim.holder.uid)
            .iter()
            .filter(|hold| hold.leave.is_some_and(|until| until <= now))
            .map(|hold| hold.address)
            .filter(|it| !seat.shows(*it) && serving.is_none_or(|served| !served.contains(it)))
            .collect();
        ended.into_iter().for_each(|address| self.release(address, &claim.holder.uid, now));
    }

    /// Somebody no longer has an address. After the last one it rests.
    pub(super) fn release(&mut self, address: IpAddr, uid: &str, now: Timestamp) {
        let Some(held) = self.ledger.held(address) else { return };
        let mut content = held.clone();
        content.holders.retain(|it| *it.holder.uid != *uid);
        let rested = content.holders.is_empty().then(|| self.rest(address, content.clone(), now));
        self.ledger.set_held(address, rested.unwrap_or(Some(content)));
    }

    /// What an address says when nobody has it any more. One that was never recorded does not rest.
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

    /// Gives up what those have who are gone, unless something still serves it.
    pub(super) fn release_gone(&mut self, now: Timestamp) {
        for uid in std::mem::take(&mut self.to_bury) {
            if !self.gone.contains(&uid) {
                continue;
            }
            self.visited += 1;
            let serving = self.serving.get(&uid);
            let free = |it: &IpAddr| serving.is_none_or(|served| !served.contains(it));
            let addresses: Vec<IpAddr> =
                self.ledger.holds(&uid).iter().map(|hold| hold.address).filter(free).collect();
            addresses.into_iter().for_each(|address| self.release(address, &uid, now));
            if self.ledger.holds(&uid).is_empty() {
                self.gone.remove(&uid);
                self.serving.remove(&uid);
            }
        }
    }

    /// Whether somebody who leaves an address is still to be served there: until its grace is over, and
    /// after that for as long as its status shows this address and not yet the one in its place.
    pub(super) fn drains(&self, seat: &Seat, hold: &Hold, now: Timestamp) -> bool {
        let Some(until) = hold.leave else { return false };
        let shown = |address: IpAddr| seat.claim.status.contains(&address);
        let next = seat.targets[Family::of(hold.address) as usize];
        let awaited = || next.is_some_and(|next| next != hold.address && !shown(next));
        until > now || !hold.at_once && shown(hold.address) && awaited()
    }

    /// Whether somebody who is live wants an address, or has it for a grace; or something serves it for
    /// one who may be gone.
    pub(super) fn is_wanted(&self, holder: &HolderRef, address: IpAddr, now: Timestamp) -> bool {
        let serving = self.serving.get(&holder.uid);
        if serving.is_some_and(|served| served.contains(&address)) {
            return true;
        }
        let Some(seat) = self.seat_of(holder) else { return false };
        let hold = self.ledger.hold(seat.uid(), address);
        seat.targets.contains(&Some(address))
            || hold.is_some_and(|hold| hold.leave.is_none_or(|until| until > now))
    }

    pub(super) fn seat_of(&self, holder: &HolderRef) -> Option<&Seat> {
        let who = Who { key: holder.key.clone(), kind: holder.kind };
        self.seats.get(&who).filter(|seat| seat.uid() == &holder.uid)
    }
}
