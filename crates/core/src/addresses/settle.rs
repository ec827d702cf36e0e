//! Applies a plan to the books: takes the new addresses, then gives up the old ones. An address is given up when its
//! successor is recorded, drained for a grace if there is one, and released when no status shows it and no load
//! balancer serves it. It writes no objects; [`super::write`] does.

use super::choose::{Plan, View, describe};
use super::entry::Hold;
use super::grant::terms;
use super::machine::{Addresses, Deadline};
use super::record::{AddressState, Age, Holder, HolderKey, HolderKind, HolderRef};
use super::release::successor;
use super::request::{AddressRequest, Ask};
use super::requester::Requester;
use super::verdict::{Cause, Notice, NoticeKind};
use super::waiters::Wait;
use crate::objects::{Family, Timestamp};
use std::net::IpAddr;
use std::sync::Arc;

impl Addresses {
    /// Decides for one requester.
    pub(super) fn decide(&mut self, age: &Age, now: Timestamp) {
        let who = &age.holder;
        let Some(requester) = self.requesters.get_mut(who) else { return };
        self.visited += 1;
        for wait in std::mem::take(&mut requester.waits) {
            self.ledger.waiters.remove(&wait, age);
        }
        let Some(requester) = self.requesters.get(who) else { return };
        let plan = self.view().plan(requester);
        let request = requester.request.clone();
        self.wait(age, &plan);
        self.take_targets(&request, &plan, age, now);
        self.give_up(&request, &plan, now);
        self.await_successors(&request, &plan, now);
        if let Some(requester) = self.requesters.get_mut(who) {
            (requester.targets, requester.families) = (plan.targets, plan.families);
            (requester.problem, requester.note) = (plan.problem, plan.note);
        }
        self.release_unused(&request, now);
        // While it still has an address that it may no longer share, its edit is not forgotten.
        let lost = plan.drops.iter().filter(|(_, cause)| matches!(cause, Cause::Sharing(_)));
        let mut lost =
            lost.filter_map(|(address, _)| self.ledger.hold(&request.holder.uid, *address));
        if lost.next().is_none()
            && request.ask.is_ok()
            && let Some(requester) = self.requesters.get_mut(who)
        {
            let now = request.sharing.as_ref().map(|it| (it.local_only, it.selector.clone()));
            if std::mem::replace(&mut requester.accepted, now.clone()) != now {
                let held = self.ledger.holds(&request.holder.uid).iter().map(|hold| hold.address);
                held.collect::<Vec<_>>().into_iter().for_each(|it| self.ledger.invite(it));
            }
        }
        self.to_publish.insert(age.clone());
    }

    pub(super) fn view(&self) -> View<'_> {
        View {
            ledger: &self.ledger,
            requesters: &self.requesters,
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
        if let Some(requester) = self.requesters.get_mut(&age.holder) {
            requester.waits = waits;
        }
    }

    fn take_targets(&mut self, request: &AddressRequest, plan: &Plan, age: &Age, now: Timestamp) {
        let terms = terms(request);
        let uid = &request.holder.uid;
        for address in plan.targets.iter().flatten() {
            let Some(hold) = self.ledger.hold_mut(uid, *address) else {
                let holder = Holder {
                    holder: request.holder.clone(),
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
            let Some(mine) = mine.filter(|_| request.ask.is_ok()) else { continue };
            let load_balancer = self.recorded_at(*address, mine, terms.load_balancer).cloned();
            let (ports, key) = (terms.ports.to_vec(), terms.key.cloned());
            if (&mine.ports, &mine.key, &mine.load_balancer) == (&ports, &key, &load_balancer) {
                continue;
            }
            if self.view().clashes_with_unknown(request, *address) {
                self.ledger.waiters.add(Wait::Address(*address), age.clone());
                if let Some(requester) = self.requesters.get_mut(&age.holder) {
                    requester.waits.push(Wait::Address(*address));
                }
            } else {
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

    /// Gives up each address that is no target, as soon as its successor is recorded.
    fn give_up(&mut self, request: &AddressRequest, plan: &Plan, now: Timestamp) {
        let uid = request.holder.uid.clone();
        let kept = |hold: &&Hold| plan.targets.contains(&Some(hold.address));
        let holds = self.ledger.holds(&uid).iter().filter(|hold| !kept(hold));
        let holds: Vec<Hold> = holds.cloned().collect();
        let mut replaced: [Option<(IpAddr, Cause)>; 2] = [None, None];
        let had = self
            .requesters
            .get(&request.holder_key())
            .map_or([None; 2], |requester| requester.targets);
        for hold in &holds {
            let family = Family::of(hold.address) as usize;
            let target = successor(request, &plan.targets, plan.families, hold.address);
            if let Some(until) = hold.leave {
                // A grace is for a holder that moved, not for one that may no longer have the address at all.
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
                None => self.why_moved(request, target),
            };
            let recorded = target.is_some_and(|it| self.ledger.is_recorded(it, &uid));
            let at_once = matches!(cause, Cause::Sharing(_) | Cause::Family);
            if target.is_some() && !recorded && hold.confirmed && !at_once {
                continue;
            }
            let until = match (&cause, self.ledger.held(hold.address).map(|held| held.state)) {
                _ if !hold.confirmed || at_once || target.is_none() => now,
                // It drains already: for this holder, by a former leader, or for another holder.
                (_, Some(AddressState::Draining { until }))
                    if !had.contains(&Some(hold.address)) =>
                {
                    until
                }
                (Cause::Spare, _) => now,
                (_, Some(AddressState::Draining { until })) => {
                    until.max(now.saturating_add(self.grace))
                }
                _ => now.saturating_add(self.grace),
            };
            if let Some(hold) = self.ledger.hold_mut(&uid, hold.address) {
                // If the holder takes it back, it is told.
                (hold.leave, hold.at_once, hold.told) = (Some(until), at_once, false);
            }
            self.ledger.to_write.insert(hold.address);
            if until > now {
                self.deadlines.insert((until, Deadline::Holder(request.age())));
            }
            if hold.confirmed && recorded {
                replaced[family] = Some((hold.address, cause));
            } else if hold.confirmed && request.wants_nothing() {
                let message = format!(
                    "released {}: it no longer asks for an address of a pool",
                    hold.address
                );
                self.tell(&request.holder, NoticeKind::AddressReleased, message);
            } else if hold.confirmed {
                let message = format!("lost {}: {cause}", hold.address);
                self.tell(&request.holder, NoticeKind::AddressLost, message);
            }
        }
        self.tell_of_targets(request, plan, replaced);
    }

    /// If a successor came late because an agent was away, the grace begins when the status shows it: clients of the
    /// old address have had no time to learn the new one.
    fn await_successors(&mut self, request: &AddressRequest, plan: &Plan, now: Timestamp) {
        let uid = &request.holder.uid;
        let shown = |address: IpAddr| request.status.contains(&address);
        let leaving = self.ledger.holds(uid).iter().filter(|hold| hold.leave.is_some());
        let leaving: Vec<IpAddr> = leaving.map(|hold| hold.address).collect();
        for address in leaving {
            let next = successor(request, &plan.targets, plan.families, address);
            let state = self.ledger.held(address).map(|held| held.state);
            let graced = matches!(state, Some(AddressState::Draining { .. }));
            let Some(hold) = self.ledger.hold_mut(uid, address) else { continue };
            let awaits = !hold.at_once && shown(address) && next.is_some_and(|it| !shown(it));
            let came = std::mem::replace(&mut hold.awaits, awaits) && next.is_some_and(shown);
            let (half, until) =
                (now.saturating_add(self.grace / 2), now.saturating_add(self.grace));
            if came && graced && hold.leave.is_some_and(|leave| leave < half) {
                hold.leave = Some(until);
                self.ledger.to_write.insert(address);
                self.deadlines.insert((until, Deadline::Holder(request.age())));
            }
        }
    }

    fn why_moved(&self, request: &AddressRequest, target: Option<IpAddr>) -> Cause {
        match (&request.ask, target) {
            (_, None) => Cause::Asked,
            (Ok(Ask::Name { name, .. }), Some(_)) => Cause::Name(name.clone()),
            (Ok(Ask::Any), Some(_)) => Cause::Spare,
            _ => Cause::Asked,
        }
    }

    fn tell_of_targets(
        &mut self,
        request: &AddressRequest,
        plan: &Plan,
        mut replaced: [Option<(IpAddr, Cause)>; 2],
    ) {
        for address in plan.targets.iter().flatten() {
            let pool = self.ledger.pools.of(*address).map(|slot| slot.pool.name.clone());
            let Some(hold) = self.ledger.hold_mut(&request.holder.uid, *address) else { continue };
            if !hold.confirmed || std::mem::replace(&mut hold.told, true) {
                continue;
            }
            let pool = pool.as_deref().unwrap_or_default();
            let replaced = replaced[Family::of(*address) as usize].take();
            match replaced.or_else(|| self.shown_before(request, plan, *address)) {
                Some((old, cause)) => {
                    let message =
                        format!("changed from {old} to {address} of pool {pool}: {cause}");
                    self.tell(&request.holder, NoticeKind::AddressChanged, message);
                }
                None => {
                    let message = format!("assigned {address} of pool {pool}");
                    self.tell(&request.holder, NoticeKind::AddressAssigned, message);
                }
            }
        }
    }

    /// The address that the status shows in place of one that the requester has now, if this machine did not grant
    /// it: its load balancer's, or another product's.
    fn shown_before(
        &self,
        request: &AddressRequest,
        plan: &Plan,
        address: IpAddr,
    ) -> Option<(IpAddr, Cause)> {
        let of_family = request.status.iter().filter(|it| Family::of(**it) == Family::of(address));
        let mut others = of_family.filter(|it| !plan.targets.contains(&Some(**it)));
        let old = others.find(|it| self.ledger.hold(&request.holder.uid, **it).is_none())?;
        let refused = || self.view().grantable(request, *old, None, plan).err();
        let cause = match self.why_moved(request, Some(address)) {
            Cause::Spare => refused().map_or(Cause::Spare, |it| Cause::NotGranted(describe(&[it]))),
            cause => cause,
        };
        Some((*old, cause))
    }

    pub(super) fn tell(&mut self, holder: &HolderRef, kind: NoticeKind, message: String) {
        self.notices.push(Notice { holder: holder.clone(), kind, message });
    }

    /// Whether a live holder wants an address or has it for a grace, or a load balancer serves it for a holder that
    /// may be gone.
    pub(super) fn is_wanted(&self, holder: &HolderRef, address: IpAddr, now: Timestamp) -> bool {
        if self.is_served(&holder.uid, address) {
            return true;
        }
        let Some(requester) = self.requester_of(holder) else { return false };
        let hold = self.ledger.hold(requester.uid(), address);
        requester.targets.contains(&Some(address))
            || hold.is_some_and(|hold| hold.leave.is_none_or(|until| until > now))
    }

    /// The load balancers that serve an address for a holder, or may.
    fn served_at(&self, uid: &str, address: IpAddr) -> impl Iterator<Item = &Arc<str>> + Clone {
        let places = self.serving.get(uid).into_iter().flatten();
        places.filter(move |(it, _)| *it == address).map(|(_, place)| place)
    }

    pub(super) fn is_served(&self, uid: &str, address: IpAddr) -> bool {
        self.served_at(uid, address).next().is_some()
    }

    /// The load balancer to record for a holder that keeps an address and moves to `to`: the old one until nothing
    /// serves it there any more. Otherwise the next leader could not know of it. A LoadBalancer is recorded on none.
    fn recorded_at<'a>(
        &'a self,
        address: IpAddr,
        mine: &'a Holder,
        to: Option<&'a Arc<str>>,
    ) -> Option<&'a Arc<str>> {
        if mine.holder.kind == HolderKind::LoadBalancer {
            return None;
        }
        let mut old = self.served_at(&mine.holder.uid, address).filter(|it| Some(*it) != to);
        let was = mine.load_balancer.as_ref().filter(|was| old.clone().any(|it| it == *was));
        was.or_else(|| old.next()).or(to)
    }

    pub(super) fn requester_of(&self, holder: &HolderRef) -> Option<&Requester> {
        let who = HolderKey { key: holder.key.clone(), kind: holder.kind };
        self.requesters.get(&who).filter(|requester| requester.uid() == &holder.uid)
    }
}
