//! What the frames of other hosts tell of an address, and the answers to their questions.

use super::spot::{Seen, Spot, State};
use super::{Effect, Owners};
use crate::l2::frame::{self, Frame, Mac, Question};
use crate::l2::member::{Hold, MemberId, Standing, rank};
use bowline_core::clock::Uptime;
use std::net::IpAddr;
use std::time::Duration;

/// After how long a member is asked again that has an address although it seems down; up to half of it is added.
const ASK_MEMBER_AGAIN: Duration = Duration::from_millis(1000);
/// How long it takes at most until a member says that it owns an address, or is known to be gone.
const GOSSIP_TIME: Duration = Duration::from_millis(2000);
/// After how long a stranger is asked again.
const ASK_STRANGER_AGAIN: Duration = Duration::from_millis(3000);
/// How long a frame may be under way that was sent before its sender said something else by gossip.
const UNDER_WAY: Duration = Duration::from_millis(50);
/// How often an address is defended against a member of lower rank.
pub(super) const DEFEND_MEMBER: Duration = Duration::from_millis(500);
/// How often an address is defended against a stranger, and how often the conflict is told (RFC 5227).
const DEFEND_STRANGER: Duration = Duration::from_secs(10);

impl Owners {
    pub(super) fn heard(&mut self, interface: u32, frame: &Frame, now: Uptime) {
        let (address, mac) = match frame {
            Frame::Question(Question { address, mac, .. }) | Frame::Claim { address, mac } => {
                (*address, *mac)
            }
        };
        if let Frame::Claim { .. } = frame {
            self.proved(address, mac, now);
        }
        let Some(spot) = self.spots.get(&address) else { return };
        if self.links.values().any(|it| it.mac == mac) {
            if let Frame::Claim { .. } = frame {
                self.kept(address, now);
            }
            return;
        }
        if !spot.reach(address, &self.links).links.contains(&interface) {
            return;
        }
        let Some(own) = self.links.get(&interface).map(|it| it.mac) else { return };
        match frame {
            Frame::Question(question) if matches!(spot.state, State::StandingIn { .. }) => {
                let lent = spot.lent.iter().find(|it| it.0 == interface);
                if let Some((_, has)) = lent.filter(|_| spot.state.answers()) {
                    let answer = frame::answer_for(own, *has, question);
                    self.counts.answers += 1;
                    self.effects.push(Effect::Send(interface, answer));
                }
            }
            Frame::Question(question) if spot.state.answers() => {
                self.counts.answers += 1;
                self.effects.push(Effect::Send(interface, frame::answer(own, question)));
            }
            Frame::Question(Question { asker: None, .. }) => self.asked_too(address, mac, own, now),
            Frame::Question(_) => {}
            Frame::Claim { .. } => self.claimed(interface, address, mac, now),
        }
    }

    /// Whether the member has a higher rank than this node. Without gossip, neither knows whether the other is preferred
    /// now: both must come to the same result, so this does not count then.
    fn is_higher(&self, address: IpAddr, spot: &Spot, seen: Seen) -> Option<bool> {
        let Seen::Member(member) = seen else { return None };
        let (theirs, mine) = if self.is_up(member) {
            (spot.stance(member).standing, self.standing(address, spot))
        } else {
            (Standing::Eligible, Standing::Eligible)
        };
        Some(rank(address, theirs, member) > rank(address, mine, self.me))
    }

    fn seen(&self, mac: Mac) -> Seen {
        self.macs.get(&mac).map_or(Seen::Stranger(mac), |member| Seen::Member(*member))
    }

    /// Another host wants to take the address, too. One of both goes on.
    fn asked_too(&mut self, address: IpAddr, mac: Mac, own: Mac, now: Uptime) {
        let seen = self.seen(mac);
        let Some(spot) = self.spots.get(&address) else { return };
        if !matches!(spot.state, State::Asking { .. } | State::Verifying { .. }) {
            return;
        }
        if self.is_higher(address, spot, seen).unwrap_or(mac > own) {
            self.wait(address, None, ASK_MEMBER_AGAIN, now);
        }
    }

    /// Another host says that it has the address.
    fn claimed(&mut self, interface: u32, address: IpAddr, mac: Mac, now: Uptime) {
        let seen = self.seen(mac);
        if let Seen::Member(member) = seen
            && self.is_up(member)
        {
            return self.claimed_by_live(interface, address, mac, member, now);
        }
        let Some(spot) = self.spots.get(&address) else { return };
        let is_higher = self.is_higher(address, spot, seen);
        match (spot.state, seen) {
            (State::Idle | State::Queued, _) => {}
            (State::Learning { of, .. }, Seen::Member(by)) if by == of => {
                self.lent_at(interface, address, mac);
            }
            (State::Learning { .. }, _) => {}
            // An answer to the question where it is, which was under way.
            (State::StandingIn { of, since, answers }, Seen::Member(by))
                if by == of && (!answers || now < since + UNDER_WAY) => {}
            (State::StandingIn { .. }, Seen::Member(_)) => {
                self.wait(address, Some(seen), ASK_MEMBER_AGAIN, now);
            }
            (State::StandingIn { .. }, Seen::Stranger(_)) => {
                if self.may_defend(address, DEFEND_STRANGER, now) {
                    self.conflict(address, mac);
                }
            }
            (State::Taking { .. }, Seen::Member(_)) => {}
            (State::Offering { to, .. }, Seen::Member(by)) if to.is_none_or(|to| to == by) => {
                self.wait(address, Some(seen), ASK_MEMBER_AGAIN, now);
            }
            (
                State::Owner { .. } | State::Offering { .. } | State::Lending { .. },
                Seen::Member(_),
            ) => {
                if is_higher == Some(true) {
                    self.wait(address, Some(seen), ASK_MEMBER_AGAIN, now);
                } else if self.may_defend(address, DEFEND_MEMBER, now) {
                    self.announce(address, now);
                }
            }
            (
                State::Owner { .. }
                | State::Offering { .. }
                | State::Lending { .. }
                | State::Taking { .. },
                Seen::Stranger(_),
            ) => {
                if self.may_defend(address, DEFEND_STRANGER, now) {
                    self.conflict(address, mac);
                    self.announce(address, now);
                }
            }
            (
                State::Waiting(_) | State::Asking { .. } | State::Verifying { .. },
                Seen::Member(_),
            ) => {
                self.wait(address, Some(seen), ASK_MEMBER_AGAIN, now);
            }
            (
                State::Waiting(_) | State::Asking { .. } | State::Verifying { .. },
                Seen::Stranger(_),
            ) => {
                let (known, before) = (spot.seen == Some(seen), spot.seen);
                let may = known || self.may_tell(address, now);
                if !known && may {
                    self.conflict(address, mac);
                }
                // Frames with ever other addresses are one conflict, until the next may be told.
                let first = !matches!(before, Some(Seen::Stranger(_)));
                let seen = (may || first).then_some(seen);
                self.wait(address, seen, ASK_STRANGER_AGAIN, now);
            }
        }
    }

    /// A frame says that a member has the address which is heard by gossip. What the member says itself counts, since any
    /// host of the link can send such a frame, and its kernel may answer although its speaker does not own the address.
    fn claimed_by_live(
        &mut self,
        interface: u32,
        address: IpAddr,
        mac: Mac,
        member: MemberId,
        now: Uptime,
    ) {
        let Some(spot) = self.spots.get(&address) else { return };
        let owns =
            matches!(spot.stance(member).hold, Hold::Owns | Hold::Offers(_) | Hold::Lends(_))
                || self.live(spot).any(|it| it.1.hold == Hold::StandsIn(member));
        match spot.state {
            State::Learning { of, .. } if of == member => self.lent_at(interface, address, mac),
            // It stops when a member says by gossip that it has the address.
            State::Learning { .. } | State::StandingIn { .. } => {}
            State::Idle | State::Queued | State::Taking { .. } => {}
            // It stops when the member says by gossip that it took over.
            State::Offering { to, .. } if owns || to.is_none_or(|to| to == member) => {}
            State::Owner { .. } | State::Offering { .. } | State::Lending { .. } => {
                if self.may_defend(address, DEFEND_MEMBER, now) {
                    self.announce(address, now);
                }
            }
            State::Waiting(_) | State::Asking { .. } | State::Verifying { .. } => {
                let since = spot.contradicted.unwrap_or(now);
                if !owns && now >= since + GOSSIP_TIME {
                    return;
                }
                let seen = Some(Seen::Member(member));
                if !owns && let Some(spot) = self.spots.get_mut(&address) {
                    let new = spot.contradicted.replace(since).is_none();
                    if new {
                        self.effects.push(Effect::Contradicted(address, member));
                    }
                    let until = (since + GOSSIP_TIME).saturating_sub(now);
                    return self.wait_exactly(address, seen, until, now);
                }
                self.wait(address, seen, ASK_MEMBER_AGAIN, now);
            }
        }
    }

    /// The owner, for which this node is to stand in, has the address there.
    fn lent_at(&mut self, interface: u32, address: IpAddr, mac: Mac) {
        if let Some(spot) = self.spots.get_mut(&address)
            && spot.lent.iter().all(|it| it.0 != interface)
        {
            spot.lent.push((interface, mac));
            self.dirty.insert(address);
        }
    }

    fn conflict(&mut self, address: IpAddr, mac: Mac) {
        self.counts.conflicts += 1;
        self.effects.push(Effect::Conflict(address, mac));
    }

    /// Whether another stranger may be told now.
    fn may_tell(&mut self, address: IpAddr, now: Uptime) -> bool {
        let Some(spot) = self.spots.get_mut(&address) else { return false };
        let may = spot.conflict.is_none_or(|at| now >= at + DEFEND_STRANGER);
        if may {
            spot.conflict = Some(now);
        }
        may
    }

    pub(super) fn may_defend(&mut self, address: IpAddr, pause: Duration, now: Uptime) -> bool {
        let Some(spot) = self.spots.get_mut(&address) else { return false };
        let may = spot.defended.is_none_or(|at| now >= at + pause);
        if may {
            spot.defended = Some(now);
        }
        may
    }

    /// Leaves an address to the host that has it, and asks again later. Two that left it to each other do not ask at
    /// the same time again.
    fn wait(&mut self, address: IpAddr, seen: Option<Seen>, time: Duration, now: Uptime) {
        let time = time.mul_f64(self.dice.between(1.0, 1.5));
        self.wait_exactly(address, seen, time, now);
    }

    fn wait_exactly(&mut self, address: IpAddr, seen: Option<Seen>, time: Duration, now: Uptime) {
        if let Some(spot) = self.spots.get_mut(&address)
            && seen.is_some()
        {
            spot.seen = seen;
        }
        self.enter(address, State::Waiting(now + time), now);
        self.dirty.insert(address);
    }
}
