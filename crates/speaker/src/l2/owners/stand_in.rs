//! Standing in for a member whose speaker is replaced. The address stays where it is: the kernel and the proxy of that node
//! go on. Another member only tells who asks where the address is, so that no connection ends and no attempt is lost.
//!
//! ```text
//!  owner    Owner ── Lend ──▶ Lending ──(stands in)──▶ stops ··· starts again ─▶ Taking ─▶ Owner
//!  another            Learning ─▶ StandingIn ─▶ answers for the owner ─────────────(owns)─▶ Idle
//! ```
//!
//! It is bounded: a speaker that does not come back, or a node that falls silent meanwhile, loses the address.

use super::heard::DEFEND_MEMBER;
use super::spot::{Spot, State};
use super::{Effect, Owners, PROBE_TIME};
use crate::l2::frame::{self, Mac};
use crate::l2::member::{Hold, MemberId, Stance, Standing, rank};
use bowline_core::clock::Uptime;
use std::net::IpAddr;
use std::time::Duration;

/// How long the member that should stand in has for it, before the address is offered as for good.
pub(super) const LEND_TIME: Duration = Duration::from_millis(1000);
/// How long the owner has to stop.
const STOP_TIME: Duration = Duration::from_millis(600);
/// For how long a member stands in at most. An image that has to be fetched takes so long.
const LONGEST: Duration = Duration::from_secs(60);
/// The same for a node whose own address does not answer on the link: whether it lives is not known.
const LONGEST_UNPROVED: Duration = Duration::from_secs(10);
/// How often the node is asked whether it lives.
const PROVE_PERIOD: Duration = Duration::from_millis(500);
/// A node that has answered and then is silent for so long is gone.
const SILENT: Duration = Duration::from_millis(2000);

/// Whether a node lives whose speaker is away.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vital {
    asked: Uptime,
    heard: Option<Uptime>,
}

impl Owners {
    /// The state of an address that this node lends, or stands in for.
    pub(super) fn lent(&self, address: IpAddr, spot: &Spot, now: Uptime) -> State {
        let state = spot.state;
        match state {
            State::Lending { to, until } => {
                let owns = |it: (MemberId, Stance)| it.1.hold == Hold::Owns;
                let stands_in =
                    |it: (MemberId, Stance)| it.0 == to && it.1.hold == Hold::StandsIn(self.me);
                if self.live(spot).any(|it| owns(it) || stands_in(it)) {
                    State::Idle
                } else if now < until && self.is_up(to) && spot.stance(to).standing != Standing::Out
                {
                    state
                } else if self.first_other(address, spot).is_some() {
                    State::Offering { to: None, until: None }
                } else {
                    State::Owner { since: now, announced: 0, rival: false }
                }
            }
            State::Learning { of, since, .. } => {
                let asks = spot.stance(of).hold == Hold::Lends(self.me) && self.is_up(of);
                let links = spot.reach(address, &self.links).links.len();
                let heard = spot.lent.len();
                if !asks || self.standing(address, spot) == Standing::Out {
                    State::Idle
                } else if heard >= links || (heard > 0 && now >= since + PROBE_TIME) {
                    State::StandingIn { of, since: now, answers: false }
                } else {
                    state
                }
            }
            State::StandingIn { of, since, answers } => {
                let rank_of = |it: &(MemberId, Stance)| rank(address, it.1.standing, it.0);
                let higher = |it: &(MemberId, Stance)| rank_of(it) > self.my_rank(address, spot);
                let has = |it: (MemberId, Stance)| match it.1.hold {
                    Hold::Owns | Hold::Offers(_) | Hold::Verifies => true,
                    Hold::Lends(to) => to != self.me || answers,
                    Hold::StandsIn(_) => higher(&it),
                    Hold::None => false,
                };
                let lends = self.is_up(of) && spot.stance(of).hold == Hold::Lends(self.me);
                if self.leaving || self.live(spot).any(has) {
                    State::Idle
                } else if !answers {
                    match (lends, now < since + STOP_TIME) {
                        (true, true) => state,
                        (true, false) => State::Idle,
                        (false, _) => State::StandingIn { of, since: now, answers: true },
                    }
                } else if !self.is_over(of, since, now) {
                    state
                } else if self.standing(address, spot) == Standing::Out {
                    State::Idle
                } else {
                    State::Owner { since: now, announced: 0, rival: false }
                }
            }
            _ => state,
        }
    }

    fn is_over(&self, of: MemberId, since: Uptime, now: Uptime) -> bool {
        let heard = self.vitals.get(&of).and_then(|it| it.heard);
        let longest = if heard.is_some() { LONGEST } else { LONGEST_UNPROVED };
        now >= since + longest || heard.is_some_and(|at| now > at + SILENT)
    }

    /// Does what is due for such an address, and returns when to come again.
    pub(super) fn tick_lent(&mut self, address: IpAddr, now: Uptime) -> Option<Uptime> {
        let state = self.spots.get(&address)?.state;
        match state {
            State::Lending { until, .. } => Some(until),
            State::Learning { of, since, probes } => {
                // Asked again in time, as frames may be lost.
                let period = PROBE_TIME / 2;
                if now >= since + period * u32::from(probes) && self.probe(address, now) {
                    let probes = probes.saturating_add(1);
                    self.spots.get_mut(&address)?.state = State::Learning { of, since, probes };
                    return Some(since + period * u32::from(probes));
                }
                Some((since + period * u32::from(probes)).max(now + PROVE_PERIOD / 10))
            }
            State::StandingIn { since, answers: false, .. } => Some(since + STOP_TIME),
            State::StandingIn { of, answers: true, .. } => {
                self.prove(address, of, now);
                Some(now + PROVE_PERIOD)
            }
            _ => None,
        }
    }

    /// Asks the node of a member on the links of an address whether it lives: its kernel answers for its own address.
    fn prove(&mut self, address: IpAddr, of: MemberId, now: Uptime) {
        let Some(at) = self.members.get(&of).and_then(|it| it.profile.at) else { return };
        let vital = self.vitals.entry(of).or_insert(Vital { asked: Uptime::ZERO, heard: None });
        if now < vital.asked + PROVE_PERIOD / 2 {
            return;
        }
        vital.asked = now;
        if let Some(spot) = self.spots.get(&address) {
            let probe = |(index, mac): (u32, Mac)| Effect::Send(index, frame::probe(mac, at));
            let probes: Vec<_> = self.senders(address, spot).map(probe).collect();
            self.effects.extend(probes);
        }
    }

    /// A host says that it has an address, which may be a node's own.
    pub(super) fn proved(&mut self, address: IpAddr, mac: Mac, now: Uptime) {
        let Self { vitals, members, .. } = self;
        for (member, vital) in vitals {
            let profile = members.get(member).map(|it| &it.profile);
            if profile.is_some_and(|it| it.at == Some(address) && it.macs.contains(&mac)) {
                vital.heard = Some(now);
            }
        }
    }

    /// A host tells that this node has the address, which this node is about to ask for: a member stands in for it, and
    /// neither hears the other's gossip yet. The member stops when it hears this node announce itself.
    pub(super) fn kept(&mut self, address: IpAddr, now: Uptime) {
        let asks = |it: &Spot| matches!(it.state, State::Asking { .. } | State::Verifying { .. });
        if !self.spots.get(&address).is_some_and(asks)
            || !self.may_defend(address, DEFEND_MEMBER, now)
        {
            return;
        }
        self.announce(address, now);
        if let Some(spot) = self.spots.get_mut(&address)
            && let State::Asking { since, probes } | State::Verifying { since, probes } =
                &mut spot.state
        {
            (*since, *probes) = (now, 0);
            self.tick(address, now);
        }
    }

    /// Forgets the nodes that no address needs any more.
    pub(super) fn forget_vitals(&mut self) {
        if self.vitals.is_empty() {
            return;
        }
        let needed = |member: &MemberId| {
            self.spots
                .values()
                .any(|it| matches!(it.state, State::StandingIn { of, .. } if of == *member))
        };
        let gone: Vec<_> = self.vitals.keys().filter(|it| !needed(it)).copied().collect();
        for member in gone {
            self.vitals.remove(&member);
        }
    }
}
