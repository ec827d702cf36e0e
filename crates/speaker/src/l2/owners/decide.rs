//! Which state an address should have, as a function of candidates, members and what they say; and what entering a state
//! causes.

use super::spot::{Seen, Spot, State};
use super::stand_in::LEND_TIME;
use super::{ANNOUNCE_AT, Effect, Owner, Owners, PROBE_TIME, ROOM_FOR_PROBES, wake};
use crate::l2::frame::{self, Mac};
use crate::l2::member::{Hold, MemberId, Rank, Stance, Standing, rank};
use bowline_core::clock::Uptime;
use std::net::IpAddr;
use std::time::Duration;

/// How many probes ask for an address, spread over the first half of [`PROBE_TIME`].
const PROBES: u8 = 2;
/// How long the member that should take an address over has for it.
const OFFER_TIME: Duration = Duration::from_millis(2000);
/// How long the old owner has to stop.
const TAKE_TIME: Duration = Duration::from_millis(600);
/// When frames that were over the limit are tried again.
const LATER: Duration = Duration::from_millis(50);
/// How often an owner announces itself while a member seems down that may own the address, too: the longer the member is
/// gone, the more seldom, between these.
const REMIND: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(60)];

/// What this node could do about an address that it does not own.
enum Chance {
    None,
    /// It has no owner, and this node is the first.
    Free,
    /// Its owner offers it to this node.
    Offered(MemberId),
    /// Its owner asks this node to stand in.
    Lent(MemberId),
}

impl Owners {
    pub(super) fn is_up(&self, member: MemberId) -> bool {
        self.members.get(&member).is_some_and(|it| it.down.is_none())
    }

    /// Whether this node may answer for the address at all.
    fn is_able(&self, address: IpAddr, spot: &Spot) -> bool {
        !spot.reach(address, &self.links).links.is_empty()
    }

    /// What this node says of itself.
    pub(super) fn standing(&self, address: IpAddr, spot: &Spot) -> Standing {
        let Some(candidate) = &spot.candidate else { return Standing::Out };
        let reach = spot.reach(address, &self.links);
        if self.leaving || candidate.draining || reach.links.is_empty() {
            return Standing::Out;
        }
        match (reach.near, candidate.preferred) {
            (true, true) => Standing::Preferred,
            (true, false) => Standing::Eligible,
            (false, true) => Standing::ApartPreferred,
            (false, false) => Standing::Apart,
        }
    }

    /// Whether another member should have the address of this node: it must not own it, or is apart from its network and
    /// the other one is not.
    fn gives_way(&self, address: IpAddr, spot: &Spot) -> bool {
        let (mine, other) = (self.standing(address, spot), self.first_other(address, spot));
        match mine {
            Standing::Out => other.is_some(),
            Standing::Apart | Standing::ApartPreferred => {
                other.is_some_and(|it| it.0 >= Standing::Eligible)
            }
            Standing::Eligible | Standing::Preferred => false,
        }
    }

    /// What the members say that are there.
    pub(super) fn live<'a>(
        &'a self,
        spot: &'a Spot,
    ) -> impl Iterator<Item = (MemberId, Stance)> + 'a {
        spot.stances.iter().copied().filter(|it| self.is_up(it.0))
    }

    /// The member of the highest rank that says to be the owner, or to stand in for it.
    fn claimant(&self, address: IpAddr, spot: &Spot) -> Option<(MemberId, Stance)> {
        let claims = |it: &(MemberId, Stance)| match it.1.hold {
            Hold::Owns | Hold::Offers(_) | Hold::Lends(_) | Hold::StandsIn(_) => true,
            Hold::None | Hold::Verifies => false,
        };
        let order = |it: &(MemberId, Stance)| rank(address, it.1.standing, it.0);
        self.live(spot).filter(claims).max_by_key(order)
    }

    /// The eligible member of the highest rank but this node.
    pub(super) fn first_other(&self, address: IpAddr, spot: &Spot) -> Option<Rank> {
        let eligible = self.live(spot).filter(|it| it.1.standing != Standing::Out);
        eligible.map(|(member, stance)| rank(address, stance.standing, member)).max()
    }

    /// This node's rank.
    pub(super) fn my_rank(&self, address: IpAddr, spot: &Spot) -> Rank {
        rank(address, self.standing(address, spot), self.me)
    }

    fn chance(&self, address: IpAddr, spot: &Spot) -> Chance {
        if self.standing(address, spot) == Standing::Out {
            return Chance::None;
        }
        let claimant = self.claimant(address, spot);
        // The owner asks this node by name, so it need not have heard all others: speakers are upgraded in quick succession.
        if let Some((owner, Stance { hold: Hold::Lends(to), .. })) = claimant
            && to == self.me
        {
            return Chance::Lent(owner);
        }
        if !self.settled {
            return Chance::None;
        }
        let first = || {
            let mine = self.my_rank(address, spot);
            self.first_other(address, spot).is_none_or(|other| other < mine)
        };
        match claimant {
            Some((owner, Stance { hold: Hold::Offers(to), .. })) => {
                if to.map_or_else(first, |to| to == self.me) {
                    Chance::Offered(owner)
                } else {
                    Chance::None
                }
            }
            // It kept the address for this speaker.
            Some((other, Stance { hold: Hold::StandsIn(of), .. })) if of == self.me => {
                Chance::Offered(other)
            }
            Some(_) => Chance::None,
            None if self.live(spot).any(|it| it.1.hold == Hold::Verifies) => Chance::None,
            None if first() => Chance::Free,
            None => Chance::None,
        }
    }

    /// The state that an address should have now.
    fn next(&self, address: IpAddr, spot: &Spot, now: Uptime) -> State {
        let state = spot.state;
        if !self.is_able(address, spot) {
            return State::Idle;
        }
        let rival = self.claimant(address, spot);
        match state {
            State::Owner { since, announced, rival: before } => {
                let higher = |it: (MemberId, Stance)| {
                    rank(address, it.1.standing, it.0) > self.my_rank(address, spot)
                };
                if rival.is_some_and(|it| it.1.hold == Hold::Owns && higher(it)) {
                    State::Idle
                } else if self.gives_way(address, spot) {
                    self.hands_over(address, spot, now)
                } else {
                    // Clients may have heard the rival: they are told, now and when it is gone.
                    let announced = if before == rival.is_some() { announced } else { 0 };
                    State::Owner { since, announced, rival: rival.is_some() }
                }
            }
            State::Offering { to, until } => {
                let taken = |it: (MemberId, Stance)| {
                    it.1.hold == Hold::Owns && to.is_none_or(|to| to == it.0)
                };
                let owner = State::Owner { since: now, announced: 0, rival: false };
                if self.live(spot).any(taken) {
                    State::Idle
                } else if until.is_some_and(|until| now >= until)
                    || to.is_some_and(|to| !self.is_up(to))
                    || (to.is_none() && !self.gives_way(address, spot))
                {
                    owner
                } else {
                    state
                }
            }
            State::Verifying { .. } if rival.is_some() => State::Idle,
            State::Verifying { .. } => state,
            State::Taking { from, until } => {
                let old = self.live(spot).find(|it| it.0 == from).map(|it| it.1.hold);
                match old {
                    Some(Hold::Offers(_) | Hold::StandsIn(_)) if now < until => state,
                    Some(Hold::Offers(_) | Hold::StandsIn(_) | Hold::Owns) => State::Idle,
                    _ if rival.is_some() || self.standing(address, spot) == Standing::Out => {
                        State::Idle
                    }
                    _ => State::Owner { since: now, announced: 0, rival: false },
                }
            }
            State::Lending { .. } | State::Learning { .. } | State::StandingIn { .. } => {
                self.lent(address, spot, now)
            }
            State::Idle | State::Waiting(_) | State::Queued | State::Asking { .. } => {
                match (self.chance(address, spot), state) {
                    (Chance::None, _) => State::Idle,
                    (Chance::Offered(from), _) => State::Taking { from, until: now + TAKE_TIME },
                    (Chance::Lent(of), _) => State::Learning { of, since: now, probes: 0 },
                    (Chance::Free, State::Idle) => State::Queued,
                    (Chance::Free, State::Waiting(until)) if now >= until => State::Queued,
                    (Chance::Free, _) => state,
                }
            }
        }
    }

    /// An owner that should not be it any more makes place: for a while if its speaker is only replaced, else for good.
    fn hands_over(&self, address: IpAddr, spot: &Spot, now: Uptime) -> State {
        let stays = self.lending && spot.candidate.as_ref().is_some_and(|it| !it.draining);
        match self.first_other(address, spot).filter(|_| stays) {
            Some((_, _, to)) => State::Lending { to, until: now + LEND_TIME },
            None => State::Offering { to: None, until: None },
        }
    }

    /// Brings an address into the state that it should have.
    pub(super) fn decide(&mut self, address: IpAddr, now: Uptime) {
        let Some(spot) = self.spots.get(&address) else { return };
        let next = self.next(address, spot, now);
        self.enter(address, next, now);
        if self.spots.get(&address).is_some_and(Spot::is_empty) {
            self.spots.remove(&address);
        }
    }

    /// Enters a state, and does what it asks for.
    pub(super) fn enter(&mut self, address: IpAddr, next: State, now: Uptime) {
        let Some(spot) = self.spots.get_mut(&address) else { return };
        let before = std::mem::replace(&mut spot.state, next);
        if before.owns() != next.owns() {
            let count =
                if next.owns() { &mut self.counts.taken } else { &mut self.counts.released };
            *count += 1;
        }
        if next.answers() || next == State::Idle {
            (spot.seen, spot.contradicted) = (None, None);
        }
        let stood_in = matches!(before, State::StandingIn { .. });
        if before.listens() != next.listens()
            && let IpAddr::V6(v6) = address
        {
            let reach = spot.reach(address, &self.links);
            let indices = if next.listens() { reach.links } else { Vec::new() };
            self.effects.push(Effect::Listen(v6, indices));
        }
        if let (State::Offering { to: Some(to), .. }, State::Owner { .. }) = (before, next) {
            self.effects.push(Effect::NotMoved(address, to));
        }
        let started = std::mem::discriminant(&before) != std::mem::discriminant(&next);
        if started
            && let (State::Learning { .. }, Some(spot)) = (next, self.spots.get_mut(&address))
        {
            spot.lent.clear();
        }
        match next {
            State::Idle => self.set_wake(address, None),
            State::Waiting(until) => self.set_wake(address, Some(until)),
            State::Taking { until, .. } if started => {
                self.announce(address, now);
                self.set_wake(address, Some(until));
            }
            State::Queued | State::Asking { .. } | State::Verifying { .. } if started => {
                self.tick(address, now);
            }
            State::Owner { announced: 0, .. } => self.tick(address, now),
            State::Owner { .. } => self.remind(address, now),
            State::Offering { until, .. } => self.set_wake(address, until),
            State::Lending { .. } | State::Learning { .. } | State::StandingIn { .. }
                if before != next =>
            {
                let at = self.tick_lent(address, now);
                self.set_wake(address, at);
            }
            _ => {}
        }
        if stood_in && !matches!(next, State::StandingIn { .. }) {
            self.forget_vitals();
        }
        self.tell(address);
    }

    /// Does what is due.
    pub(super) fn tick(&mut self, address: IpAddr, now: Uptime) {
        let Some(spot) = self.spots.get(&address) else { return };
        match spot.state {
            State::Queued => {
                if self.probe(address, now) {
                    self.enter(address, State::Asking { since: now, probes: 1 }, now);
                } else {
                    self.set_wake(address, Some(now + LATER));
                }
            }
            State::Asking { since, probes } | State::Verifying { since, probes } => {
                let second = since + PROBE_TIME * u32::from(probes) / u32::from(PROBES * 2 - 1);
                if now >= since + PROBE_TIME && probes > 0 {
                    let owner = State::Owner { since: now, announced: 0, rival: false };
                    return self.enter(address, owner, now);
                }
                if probes < PROBES && (probes == 0 || now >= second) {
                    let sent = self.probe(address, now);
                    // The time for answers begins with the first probe.
                    let since = if probes == 0 { now } else { since };
                    let probes = probes + u8::from(sent);
                    if let Some(spot) = self.spots.get_mut(&address) {
                        spot.state = match spot.state {
                            State::Verifying { .. } => State::Verifying { since, probes },
                            _ => State::Asking { since, probes },
                        };
                    }
                    let at =
                        if sent && probes >= PROBES { since + PROBE_TIME } else { now + LATER };
                    return self.set_wake(address, Some(at));
                }
                let at = if probes < PROBES { second } else { since + PROBE_TIME };
                self.set_wake(address, Some(at));
            }
            State::Owner { since, announced, rival } => {
                let since = if announced == 0 { now } else { since };
                match ANNOUNCE_AT.get(announced) {
                    Some(after) if now < since + *after => {
                        self.set_wake(address, Some(since + *after));
                    }
                    Some(_) if self.announce(address, now) => {
                        let announced = announced + 1;
                        if let Some(spot) = self.spots.get_mut(&address) {
                            spot.state = State::Owner { since, announced, rival };
                        }
                        match ANNOUNCE_AT.get(announced) {
                            Some(after) => self.set_wake(address, Some(since + *after)),
                            None => self.remind(address, now),
                        }
                    }
                    Some(_) => self.set_wake(address, Some(now + LATER)),
                    None => {
                        if self.doubt(address, now).is_some() {
                            self.announce(address, now);
                        }
                        self.remind(address, now);
                    }
                }
            }
            State::Lending { .. } | State::Learning { .. } | State::StandingIn { .. } => {
                // What is due now is decided next.
                let at = self.tick_lent(address, now).filter(|at| *at > now);
                self.set_wake(address, at);
            }
            _ => {}
        }
    }

    /// How long the member is gone that went last, of those that may have the address.
    fn doubt(&self, address: IpAddr, now: Uptime) -> Option<Duration> {
        let down = |(member, stance): &(MemberId, Stance)| {
            let at = self.members.get(member)?.down?;
            (*stance != Stance::NOTHING).then(|| now.saturating_sub(at))
        };
        self.spots.get(&address)?.stances.iter().filter_map(down).min()
    }

    /// Sets when an owner, which has made its announcements, makes another one.
    fn remind(&mut self, address: IpAddr, now: Uptime) {
        let doubt = self.doubt(address, now);
        let Some(spot) = self.spots.get(&address) else { return };
        let State::Owner { announced, .. } = spot.state else { return };
        if announced < ANNOUNCE_AT.len() || (spot.wake.is_some() && doubt.is_some()) {
            return;
        }
        let after = doubt.map(|gone| (gone / 10).clamp(REMIND[0], REMIND[1]));
        self.set_wake(address, after.map(|after| now + after));
    }

    fn set_wake(&mut self, address: IpAddr, at: Option<Uptime>) {
        if let Some(spot) = self.spots.get_mut(&address) {
            wake(&mut self.wakes, address, spot, at);
        }
    }

    /// The links of an address, and the Ethernet address of each.
    pub(super) fn senders(
        &self,
        address: IpAddr,
        spot: &Spot,
    ) -> impl Iterator<Item = (u32, Mac)> + use<'_> {
        let links = spot.reach(address, &self.links).links;
        links.into_iter().filter_map(|index| Some((index, self.links.get(&index)?.mac)))
    }

    /// Asks on every link whether a host has the address. Whether there was room for it.
    pub(super) fn probe(&mut self, address: IpAddr, now: Uptime) -> bool {
        let Some(spot) = self.spots.get(&address) else { return true };
        let frames: Vec<_> = self
            .senders(address, spot)
            .map(|(index, mac)| Effect::Send(index, frame::probe(mac, address)))
            .collect();
        let enough = self.spend(frames.len(), 0.0, now);
        if enough {
            self.effects.extend(frames);
        }
        enough
    }

    /// Tells every link that this node has the address. Whether there was room for it.
    pub(super) fn announce(&mut self, address: IpAddr, now: Uptime) -> bool {
        let Some(spot) = self.spots.get(&address) else { return true };
        let mut links = 0;
        let mut frames = Vec::new();
        for (index, mac) in self.senders(address, spot) {
            let sent = frame::announcement(mac, address);
            frames.extend(sent.into_iter().map(|frame| Effect::Send(index, frame)));
            links += 1;
        }
        let enough = self.spend(frames.len(), ROOM_FOR_PROBES, now);
        if enough {
            self.counts.announcements += links;
            self.effects.extend(frames);
        }
        enough
    }

    /// Tells the other members and the report what changed.
    fn tell(&mut self, address: IpAddr) {
        let Some(spot) = self.spots.get(&address) else { return };
        let stance = Stance { standing: self.standing(address, spot), hold: spot.state.hold() };
        let owner = if spot.state.owns() {
            Owner::Me
        } else if let State::StandingIn { of, .. } = spot.state {
            Owner::Member(of)
        } else if let Some((member, stance)) = self.claimant(address, spot) {
            match stance.hold {
                Hold::StandsIn(of) if of == self.me => Owner::Me,
                Hold::StandsIn(of) => Owner::Member(of),
                _ => Owner::Member(member),
            }
        } else {
            match spot.seen {
                Some(Seen::Member(member)) => Owner::Member(member),
                Some(Seen::Stranger(mac)) => Owner::Stranger(mac),
                None => Owner::Nobody,
            }
        };
        let Some(spot) = self.spots.get_mut(&address) else { return };
        if std::mem::replace(&mut spot.said, stance) != stance {
            self.effects.push(Effect::Say(address, stance));
        }
        if std::mem::replace(&mut spot.told, owner) != owner {
            self.effects.push(Effect::Changed(address, owner));
        }
    }

    /// Offers an address to another member, if this node owns it.
    pub(super) fn offer(&mut self, address: IpAddr, to: MemberId, now: Uptime) {
        let Some(spot) = self.spots.get(&address) else { return };
        if !spot.state.owns() || to == self.me {
            return;
        }
        if !self.is_up(to) || spot.stance(to).standing == Standing::Out {
            return self.effects.push(Effect::NotMoved(address, to));
        }
        let offer = State::Offering { to: Some(to), until: Some(now + OFFER_TIME) };
        self.enter(address, offer, now);
    }

    /// The process stopped for a while: another member may have taken each address over.
    pub(super) fn paused(&mut self, now: Uptime) {
        let addresses: Vec<_> = self.spots.keys().copied().collect();
        for address in addresses {
            let Some(spot) = self.spots.get_mut(&address) else { continue };
            match &mut spot.state {
                State::Owner { .. } | State::Offering { .. } | State::Lending { .. } => {
                    self.enter(address, State::Verifying { since: now, probes: 0 }, now);
                }
                State::Taking { .. } | State::Learning { .. } | State::StandingIn { .. } => {
                    self.enter(address, State::Idle, now);
                }
                State::Asking { since, probes } | State::Verifying { since, probes } => {
                    (*since, *probes) = (now, 0);
                    self.tick(address, now);
                }
                State::Idle | State::Waiting(_) | State::Queued => {}
            }
            self.dirty.insert(address);
        }
    }
}
