//! Which member of a segment answers for an address. The machine of one speaker: it knows what the other members say of
//! each address (by gossip) and hears the frames of the segment.
//!
//! ```text
//!  candidates ─┐                       ┌─▶ stances, for gossip
//!  members ────┼─▶ Owners ─▶ effects ──┼─▶ frames
//!  links ──────┤   (state of each      ├─▶ groups to join
//!  frames ─────┘    address)           └─▶ changes, for the report
//! ```
//!
//! The present owner keeps an address while it is eligible. Without an owner, the first member by rank takes the address,
//! but asks the segment before: when another host answers, it does not. Two owners, as after a split heals, notice each
//! other by gossip or by frames, and the one of lower rank yields.

mod decide;
mod heard;
mod reach;
mod spot;
mod stand_in;

use super::frame::{Frame, Mac};
use super::member::{MemberId, Profile, Stance};
use crate::dice::Dice;
use bowline_core::clock::Uptime;
use ipnet::IpNet;
use reach::Reach;
use spot::{Spot, State};
use stand_in::Vital;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

/// How long a speaker listens to the other members after its start, before it takes an address.
pub const SETTLE_TIME: Duration = Duration::from_millis(2000);
/// How long an answer to a probe is awaited, in all.
pub const PROBE_TIME: Duration = Duration::from_millis(250);
/// A speaker whose process did not run for this long does not answer before it knows that no other member does. Other
/// members need longer to notice that a member is gone.
pub const PAUSE: Duration = Duration::from_millis(700);
/// When an owner announces itself, after it became the owner or a link came up.
const ANNOUNCE_AT: [Duration; 4] = [
    Duration::ZERO,
    Duration::from_millis(1100),
    Duration::from_millis(2200),
    Duration::from_millis(3300),
];
/// How many frames of probes and announcements are sent per second.
const FRAME_RATE: f64 = 5000.0;
/// How many of them are sent at once.
const FRAME_BURST: f64 = 1000.0;
/// How many of these announcements leave to probes, so that a takeover does not wait for them.
const ROOM_FOR_PROBES: f64 = 500.0;

/// An address that this node may answer for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Where the address is announced.
    pub interfaces: Arc<Interfaces>,
    /// Whether this node comes before those that are not preferred.
    pub preferred: bool,
    /// The node serves the address still, but another member should take it over.
    pub draining: bool,
}

/// On which interfaces an address is announced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interfaces {
    /// On the usual ones of its network.
    All,
    /// On these.
    Named(BTreeSet<String>),
}

impl Interfaces {
    fn contains(&self, link: &Link) -> bool {
        match self {
            Self::All => link.usual,
            Self::Named(names) => names.contains(&link.name),
        }
    }
}

/// An Ethernet interface of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its name.
    pub name: String,
    /// Its Ethernet address.
    pub mac: Mac,
    /// Whether frames can be sent from it now.
    pub up: bool,
    /// Whether addresses that name no interfaces may be announced there.
    pub usual: bool,
    /// Whether it has the address at which other speakers reach this one.
    pub home: bool,
    /// The networks that it is in.
    pub networks: Vec<IpNet>,
}

/// Which host has an address, as far as this speaker knows. While a member stands in for another one, that is the other one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Owner {
    /// None.
    #[default]
    Nobody,
    /// This node.
    Me,
    /// Another member.
    Member(MemberId),
    /// A host that is no member. This node does not take the address.
    Stranger(Mac),
}

/// What happens.
#[derive(Clone, Debug)]
pub enum Event {
    /// This node may answer for an address, or may not any more.
    Candidate(IpAddr, Option<Candidate>),
    /// A member is there. What it says of addresses was told before.
    Up(MemberId, Profile),
    /// A member is gone.
    Down(MemberId),
    /// What a member says of an address.
    Said(MemberId, IpAddr, Stance),
    /// A frame arrived at the interface with this index.
    Heard(u32, Frame),
    /// An interface is there, has changed, or is gone.
    Link(u32, Option<Link>),
    /// Another member should own the address. Only the present owner acts on it.
    Move(IpAddr, MemberId),
    /// This speaker is about to stop: other members should take its addresses.
    Leave,
    /// This speaker is about to be replaced by another one of this node: other members should stand in for it.
    Lend,
    /// The process did not run for [`PAUSE`] or longer. Frames that were queued meanwhile are not passed in.
    Paused,
}

/// What the shell has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Tell the other members what this one says of an address.
    Say(IpAddr, Stance),
    /// Send a frame from the interface with this index.
    Send(u32, Vec<u8>),
    /// Join the solicited-node group of the address on the interfaces with these indices, and leave it on others.
    Listen(Ipv6Addr, Vec<u32>),
    /// Another host answers for an address than before.
    Changed(IpAddr, Owner),
    /// A host that is no member claims an address that this node may answer for.
    Conflict(IpAddr, Mac),
    /// A frame says that a member has an address of which the member itself says by gossip that it does not own it: its
    /// kernel answers, or another host forges its frames.
    Contradicted(IpAddr, MemberId),
    /// The member that should own an address could not take it.
    NotMoved(IpAddr, MemberId),
}

/// What was counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// How often this node became the owner of an address.
    pub taken: u64,
    /// How often it stopped to be the owner.
    pub released: u64,
    /// Announcements: one for each address and interface.
    pub announcements: u64,
    /// Answers.
    pub answers: u64,
    /// Claims of hosts that are no members.
    pub conflicts: u64,
}

#[derive(Debug)]
struct Known {
    profile: Profile,
    /// Since when it is gone.
    down: Option<Uptime>,
}

/// The machine of all addresses.
#[derive(Debug)]
pub struct Owners {
    me: MemberId,
    settled_at: Uptime,
    settled: bool,
    leaving: bool,
    lending: bool,
    links: BTreeMap<u32, Link>,
    members: HashMap<MemberId, Known>,
    /// The nodes that this one stands in for.
    vitals: BTreeMap<MemberId, Vital>,
    macs: HashMap<Mac, MemberId>,
    spots: HashMap<IpAddr, Spot>,
    dirty: BTreeSet<IpAddr>,
    wakes: BTreeSet<(Uptime, IpAddr)>,
    effects: Vec<Effect>,
    frames: f64,
    refilled: Uptime,
    dice: Dice,
    counts: Counts,
}

impl Owners {
    /// The machine of the speaker `me`, which starts now. The seed spreads timers.
    pub fn new(me: MemberId, seed: u64, now: Uptime) -> Self {
        Self {
            me,
            settled_at: now + SETTLE_TIME,
            settled: false,
            leaving: false,
            lending: false,
            vitals: BTreeMap::new(),
            links: BTreeMap::new(),
            members: HashMap::new(),
            macs: HashMap::new(),
            spots: HashMap::new(),
            dirty: BTreeSet::new(),
            wakes: BTreeSet::new(),
            effects: Vec::new(),
            frames: FRAME_BURST,
            refilled: now,
            dice: Dice::new(seed),
            counts: Counts::default(),
        }
    }

    /// What was counted.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Which host answers for an address.
    pub fn owner_of(&self, address: &IpAddr) -> Owner {
        self.spots.get(address).map_or(Owner::Nobody, |it| it.told)
    }

    /// Whether this node answers for an address now, be it for another one.
    pub fn answers(&self, address: &IpAddr) -> bool {
        self.spots.get(address).is_some_and(|it| it.state.answers())
    }

    /// How many addresses this node answers for.
    pub fn owned(&self) -> u64 {
        self.counts.taken - self.counts.released
    }

    /// The name of a member that was heard of since the start.
    pub fn name(&self, member: &MemberId) -> Option<&str> {
        Some(self.members.get(member)?.profile.name.as_str())
    }

    /// Whether a speaker that leaves may stop: every address has another owner, or can have none.
    pub fn has_left(&self) -> bool {
        let hands_over =
            |it: &Spot| matches!(it.state, State::Offering { .. } | State::Lending { .. });
        self.leaving && !self.spots.values().any(hands_over)
    }

    /// Takes an event.
    pub fn handle(&mut self, event: Event, now: Uptime) {
        match event {
            Event::Candidate(address, candidate) => {
                let spot = self.spots.entry(address).or_default();
                if spot.candidate != candidate {
                    spot.candidate = candidate;
                    self.dirty.insert(address);
                }
            }
            Event::Up(member, profile) => self.up(member, profile),
            Event::Down(member) => self.down(member, now),
            Event::Said(member, address, stance) => {
                if self.spots.entry(address).or_default().note(member, stance) {
                    self.dirty.insert(address);
                }
            }
            Event::Heard(interface, frame) => self.heard(interface, &frame, now),
            Event::Link(index, link) => self.link(index, link, now),
            Event::Move(address, to) => self.offer(address, to, now),
            Event::Leave | Event::Lend => {
                self.leaving = true;
                self.lending = matches!(event, Event::Lend);
                self.dirty.extend(self.spots.keys());
            }
            Event::Paused => self.paused(now),
        }
    }

    fn up(&mut self, member: MemberId, profile: Profile) {
        self.macs.retain(|_, it| *it != member);
        self.macs.extend(profile.macs.iter().map(|mac| (*mac, member)));
        self.members.insert(member, Known { profile, down: None });
        self.touch(member);
    }

    fn down(&mut self, member: MemberId, now: Uptime) {
        if let Some(known) = self.members.get_mut(&member)
            && known.down.is_none()
        {
            known.down = Some(now);
            self.touch(member);
        }
    }

    /// Every address of which the member says something has to be looked at.
    fn touch(&mut self, member: MemberId) {
        let told = self.spots.iter().filter(|(_, it)| it.stance(member) != Stance::NOTHING);
        self.dirty.extend(told.map(|it| *it.0));
    }

    fn link(&mut self, index: u32, link: Option<Link>, now: Uptime) {
        let before = self.links.clone();
        match link {
            Some(link) => self.links.insert(index, link),
            None => self.links.remove(&index),
        };
        if before == self.links {
            return;
        }
        let same_sender = |index: &u32| {
            before.get(index).map(|it| it.mac) == self.links.get(index).map(|it| it.mac)
        };
        for (address, spot) in &mut self.spots {
            let Some(candidate) = &spot.candidate else { continue };
            let old = Reach::of(*address, &candidate.interfaces, &before);
            let new = Reach::of(*address, &candidate.interfaces, &self.links);
            let comes = |it: &u32| !old.links.contains(it) || !same_sender(it);
            let comes = new.links.iter().any(comes);
            if old == new && !comes {
                continue;
            }
            self.dirty.insert(*address);
            if let IpAddr::V6(address) = address
                && spot.state.listens()
            {
                self.effects.push(Effect::Listen(*address, new.links));
            }
            // The hosts behind a link that came up may know an older owner.
            if comes && let State::Owner { announced, .. } = &mut spot.state {
                *announced = 0;
                wake(&mut self.wakes, *address, spot, Some(now));
            }
        }
    }

    /// When to call [`Owners::take`] again.
    pub fn wake_at(&self) -> Option<Uptime> {
        if self.dirty.is_empty() && self.effects.is_empty() {
            let settles = (!self.settled).then_some(self.settled_at);
            self.wakes.first().map(|it| it.0).into_iter().chain(settles).min()
        } else {
            Some(Uptime::ZERO)
        }
    }

    /// What has to be done now.
    pub fn take(&mut self, now: Uptime) -> Vec<Effect> {
        if !self.settled && now >= self.settled_at {
            self.settled = true;
            self.dirty.extend(self.spots.keys());
        }
        while let Some((_, address)) = self.wakes.first().copied().filter(|it| it.0 <= now) {
            self.wakes.pop_first();
            if let Some(spot) = self.spots.get_mut(&address) {
                spot.wake = None;
            }
            self.tick(address, now);
            self.dirty.insert(address);
        }
        for address in std::mem::take(&mut self.dirty) {
            self.decide(address, now);
        }
        std::mem::take(&mut self.effects)
    }

    /// Whether this many frames may be sent now, with room left for so many others.
    fn spend(&mut self, frames: usize, room: f64, now: Uptime) -> bool {
        let passed = now.saturating_sub(self.refilled).as_secs_f64();
        self.refilled = self.refilled.max(now);
        self.frames = (self.frames + passed * FRAME_RATE).min(FRAME_BURST);
        let enough = self.frames >= frames as f64 + room;
        if enough {
            self.frames -= frames as f64;
        }
        enough
    }
}

/// Sets when an address is looked at again.
fn wake(
    wakes: &mut BTreeSet<(Uptime, IpAddr)>,
    address: IpAddr,
    spot: &mut Spot,
    at: Option<Uptime>,
) {
    if let Some(before) = std::mem::replace(&mut spot.wake, at) {
        wakes.remove(&(before, address));
    }
    wakes.extend(at.map(|at| (at, address)));
}

#[cfg(test)]
mod tests;
