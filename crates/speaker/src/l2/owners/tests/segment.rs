//! A segment with speakers, whose gossip is played: what a member says arrives after some milliseconds, a member that
//! cannot be reached is down after a second or more, and up again, after all that it said, when it can be reached.

use super::super::{Candidate, Effect, Event, Link, Owner, Owners, PAUSE};
use crate::dice::Dice;
use crate::l2::frame::{self, Frame, Mac};
use crate::l2::member::{MemberId, Profile, Stance};
use bowline_core::clock::Uptime;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

pub(super) fn millis(it: u64) -> Duration {
    Duration::from_millis(it)
}

pub(super) fn seconds(it: u64) -> Duration {
    Duration::from_secs(it)
}

pub(super) fn name(node: usize) -> String {
    format!("node-{node}")
}

pub(super) fn mac(node: usize) -> Mac {
    Mac([2, 0, 0, 0, 0, node as u8])
}

pub(super) const LINK: u32 = 7;

/// The link of a node to the segment.
pub(super) fn eth0(node: usize) -> Link {
    let networks = ["192.0.2.0/24", "2001:db8::/64", "10.0.0.0/8"];
    let networks = networks.map(|it| it.parse().expect("a network")).to_vec();
    Link { name: "eth0".into(), mac: mac(node), up: true, usual: true, home: true, networks }
}

/// The node's own address, for which its kernel answers.
pub(super) fn host(node: usize) -> IpAddr {
    [192, 0, 2, 200 + node as u8].into()
}

#[derive(Debug)]
enum What {
    Event(Event),
    /// The pair is looked at again: its connection changed.
    Gossip {
        from: usize,
        change: u64,
    },
}

#[derive(Debug)]
struct Node {
    owners: Owners,
    said: BTreeMap<IpAddr, Stance>,
    paused_until: Option<Uptime>,
    start: u64,
    touched: usize,
}

pub(super) struct Segment {
    pub(super) now: Uptime,
    pub(super) frames: Vec<(Uptime, usize, Frame)>,
    /// Frames that were sent on other links.
    pub(super) elsewhere: Vec<(usize, u32)>,
    pub(super) conflicts: Vec<(usize, IpAddr, Mac)>,
    /// How often an owner was told.
    pub(super) changed: usize,
    pub(super) not_moved: Vec<(IpAddr, MemberId)>,
    pub(super) contradicted: Vec<(usize, IpAddr, MemberId)>,
    pub(super) stranger: Option<(IpAddr, Mac)>,
    /// Since when each address is not answered for, and for how long it was not at most.
    silence: BTreeMap<IpAddr, (Option<Uptime>, Duration)>,
    /// The addresses of which this is observed.
    watched: Vec<IpAddr>,
    nodes: Vec<Option<Node>>,
    powered: Vec<bool>,
    sides: Vec<u8>,
    gossip: bool,
    /// Which node sees which, and the number of the last change of their connection.
    sees: BTreeMap<(usize, usize), (bool, u64)>,
    queue: BTreeMap<(Uptime, u64), (usize, u64, What)>,
    number: u64,
    dice: Dice,
}

impl Segment {
    pub(super) fn new(count: usize, seed: u64) -> Self {
        let mut segment = Self {
            now: seconds(1000),
            frames: Vec::new(),
            elsewhere: Vec::new(),
            conflicts: Vec::new(),
            changed: 0,
            not_moved: Vec::new(),
            contradicted: Vec::new(),
            stranger: None,
            silence: BTreeMap::new(),
            watched: vec![super::V4, super::V6],
            nodes: (0..count).map(|_| None).collect(),
            powered: vec![true; count],
            sides: vec![0; count],
            gossip: true,
            sees: BTreeMap::new(),
            queue: BTreeMap::new(),
            number: 0,
            dice: Dice::new(seed),
        };
        for node in 0..count {
            segment.start(node);
        }
        segment
    }

    pub(super) fn is_running(&self, node: usize) -> bool {
        self.nodes[node].is_some()
    }

    pub(super) fn start(&mut self, node: usize) {
        self.number += 1;
        let owners = Owners::new(MemberId::of(&name(node)), self.dice.roll(), self.now);
        let said = BTreeMap::new();
        self.nodes[node] =
            Some(Node { owners, said, paused_until: None, start: self.number, touched: 0 });
        self.link(node, true);
        self.connections_changed();
    }

    pub(super) fn crash(&mut self, node: usize) {
        self.nodes[node] = None;
        for other in 0..self.nodes.len() {
            self.sees.remove(&(node, other));
        }
        self.connections_changed();
    }

    /// These nodes are on a side of their own.
    pub(super) fn split(&mut self, apart: &[usize]) {
        for node in 0..self.sides.len() {
            self.sides[node] = u8::from(apart.contains(&node));
        }
        self.connections_changed();
    }

    pub(super) fn block_gossip(&mut self, blocked: bool) {
        self.gossip = !blocked;
        self.connections_changed();
    }

    pub(super) fn pause(&mut self, node: usize, time: Duration) {
        let until = self.now + time;
        if let Some(node) = &mut self.nodes[node] {
            node.paused_until = Some(until);
        }
        self.connections_changed();
        self.later(time, node, What::Event(Event::Paused));
    }

    pub(super) fn set(&mut self, node: usize, address: IpAddr, candidate: Option<Candidate>) {
        self.feed(node, Event::Candidate(address, candidate));
    }

    pub(super) fn offer(&mut self, node: usize, address: IpAddr, to: usize) {
        self.feed(node, Event::Move(address, MemberId::of(&name(to))));
    }

    pub(super) fn leave(&mut self, node: usize) {
        self.feed(node, Event::Leave);
    }

    pub(super) fn lend(&mut self, node: usize) {
        self.feed(node, Event::Lend);
    }

    /// The machine of a node is off, or on: its kernel does not answer for its own address any more.
    pub(super) fn power(&mut self, node: usize, on: bool) {
        self.powered[node] = on;
    }

    pub(super) fn hear(&mut self, node: usize, frame: &Frame) {
        self.feed(node, Event::Heard(LINK, *frame));
    }

    pub(super) fn hear_on(&mut self, node: usize, interface: u32, frame: &Frame) {
        self.feed(node, Event::Heard(interface, *frame));
    }

    /// How many addresses the last event made a node look at.
    pub(super) fn touched(&self, node: usize) -> usize {
        self.nodes[node].as_ref().expect("it runs").touched
    }

    pub(super) fn link(&mut self, node: usize, up: bool) {
        self.feed(node, Event::Link(LINK, Some(Link { up, ..eth0(node) })));
    }

    /// An interface of a node, or none any more.
    pub(super) fn interface(&mut self, node: usize, index: u32, link: Option<Link>) {
        self.feed(node, Event::Link(index, link));
    }

    pub(super) fn has_left(&self, node: usize) -> bool {
        self.nodes[node].as_ref().is_some_and(|it| it.owners.has_left())
    }

    pub(super) fn owner_of(&self, node: usize, address: IpAddr) -> Owner {
        self.nodes[node].as_ref().expect("it runs").owners.owner_of(&address)
    }

    pub(super) fn remembered(&self, node: usize) -> usize {
        self.nodes[node].as_ref().expect("it runs").owners.spots.len()
    }

    pub(super) fn taken(&self) -> u64 {
        self.nodes.iter().flatten().map(|it| it.owners.counts().taken).sum()
    }

    /// The nodes that would answer a question now.
    pub(super) fn answering(&self, address: IpAddr) -> Vec<usize> {
        let answers = |node: &Node| node.paused_until.is_none() && node.owners.answers(&address);
        let running = self.nodes.iter().enumerate();
        running.filter(|it| it.1.as_ref().is_some_and(answers)).map(|it| it.0).collect()
    }

    pub(super) fn side(&self, node: usize) -> u8 {
        self.sides[node]
    }

    /// The longest time for which no node answered, after one did.
    pub(super) fn longest_silence(&self, address: IpAddr) -> Duration {
        self.silence.get(&address).map_or(Duration::ZERO, |it| it.1)
    }

    pub(super) fn run(&mut self, time: Duration) {
        self.run_checked(time, |_| {});
    }

    /// Looks at the segment after each event.
    pub(super) fn run_checked(&mut self, time: Duration, mut check: impl FnMut(&Self)) {
        let end = self.now + time;
        while self.step(end) {
            check(self);
        }
    }

    pub(super) fn run_until(&mut self, reached: impl Fn(&Self) -> bool) {
        let end = self.now + seconds(60);
        while !reached(self) {
            assert!(self.step(end), "not within a minute");
        }
    }

    fn step(&mut self, end: Uptime) -> bool {
        let wakes = self.nodes.iter().enumerate().filter_map(|(index, node)| {
            let node = node.as_ref().filter(|it| it.paused_until.is_none())?;
            Some((node.owners.wake_at()?, index))
        });
        let wake = wakes.min();
        let next = self.queue.keys().next().copied();
        match (wake, next) {
            (Some((at, node)), next) if next.is_none_or(|it| at <= it.0) && at <= end => {
                self.now = self.now.max(at);
                self.take(node);
            }
            (_, Some(key)) if key.0 <= end => {
                self.now = key.0;
                if let Some((node, start, what)) = self.queue.remove(&key) {
                    self.happen(node, start, what);
                }
            }
            _ => {
                self.now = end;
                return false;
            }
        }
        self.note_silence();
        true
    }

    fn note_silence(&mut self) {
        let addresses: Vec<_> = self.silence.keys().copied().collect();
        for address in addresses {
            let answered = !self.answering(address).is_empty();
            if let Some((since, longest)) = self.silence.get_mut(&address) {
                let time = self.now - since.unwrap_or(self.now);
                *longest = (*longest).max(time);
                *since = if answered { None } else { Some(since.unwrap_or(self.now)) };
            }
        }
    }

    fn happen(&mut self, node: usize, start: u64, what: What) {
        let Some(it) = &mut self.nodes[node] else { return };
        if it.start != start {
            return;
        }
        match what {
            What::Event(Event::Paused) => {
                it.paused_until = None;
                self.connections_changed();
                self.feed(node, Event::Paused);
            }
            // Nothing is read meanwhile, and what is in the sockets is dropped.
            _ if it.paused_until.is_some() => {}
            What::Event(event) => self.feed(node, event),
            What::Gossip { from, change } => self.gossip(node, from, change),
        }
    }

    fn feed(&mut self, node: usize, event: Event) {
        let now = self.now;
        if let Some(it) = &mut self.nodes[node] {
            it.owners.handle(event, now);
            it.touched = it.owners.dirty.len();
            self.take(node);
        }
    }

    fn take(&mut self, node: usize) {
        let now = self.now;
        let Some(it) = &mut self.nodes[node] else { return };
        for effect in it.owners.take(now) {
            self.changed += usize::from(matches!(effect, Effect::Changed(..)));
            match effect {
                Effect::Say(address, stance) => self.say(node, address, stance),
                Effect::Send(LINK, bytes) => self.send(node, &bytes),
                Effect::Send(index, _) => self.elsewhere.push((node, index)),
                Effect::Changed(address, Owner::Me) if self.watched.contains(&address) => {
                    self.silence.entry(address).or_insert((None, Duration::ZERO));
                }
                Effect::Conflict(address, mac) => self.conflicts.push((node, address, mac)),
                Effect::NotMoved(address, to) => self.not_moved.push((address, to)),
                Effect::Contradicted(address, by) => self.contradicted.push((node, address, by)),
                Effect::Changed(..) | Effect::Listen(..) => {}
            }
        }
    }

    fn later(&mut self, after: Duration, node: usize, what: What) {
        let Some(start) = self.nodes[node].as_ref().map(|it| it.start) else { return };
        self.number += 1;
        self.queue.insert((self.now + after, self.number), (node, start, what));
    }

    fn after(&mut self, from: f64, to: f64) -> Duration {
        Duration::from_secs_f64(self.dice.between(from, to))
    }

    fn others(&self, node: usize) -> impl Iterator<Item = usize> + use<> {
        (0..self.nodes.len()).filter(move |it| *it != node)
    }

    fn say(&mut self, node: usize, address: IpAddr, stance: Stance) {
        if let Some(it) = &mut self.nodes[node] {
            it.said.insert(address, stance);
        }
        let event = Event::Said(MemberId::of(&name(node)), address, stance);
        for other in self.others(node) {
            if self.hears(other, node) && self.sees.get(&(other, node)).is_some_and(|it| it.0) {
                // In order: a later word never arrives before an earlier one.
                self.later(millis(2), other, What::Event(event.clone()));
            }
        }
    }

    fn send(&mut self, node: usize, bytes: &[u8]) {
        let frame = frame::parse(bytes).expect("a frame that is understood");
        self.frames.push((self.now, node, frame));
        if let (Frame::Question(question), Some((address, mac))) = (frame, self.stranger)
            && question.address == address
        {
            self.later(
                millis(1),
                node,
                What::Event(Event::Heard(LINK, Frame::Claim { address, mac })),
            );
        }
        let asked = match frame {
            Frame::Question(question) => self.others(node).find(|it| host(*it) == question.address),
            Frame::Claim { .. } => None,
        };
        if let Some(asked) = asked
            && self.powered[asked]
            && self.sides[asked] == self.sides[node]
        {
            let claim = Frame::Claim { address: host(asked), mac: mac(asked) };
            self.later(millis(1), node, What::Event(Event::Heard(LINK, claim)));
        }
        for other in self.others(node) {
            let to_it = bytes[0] & 1 == 1 || bytes[..6] == mac(other).0;
            if to_it && self.sides[node] == self.sides[other] {
                let after = self.after(0.0002, 0.002);
                self.later(after, other, What::Event(Event::Heard(LINK, frame)));
            }
        }
    }

    /// Whether gossip of `from` reaches a node.
    fn hears(&self, node: usize, from: usize) -> bool {
        let runs = |it: usize| self.nodes[it].as_ref().is_some_and(|it| it.paused_until.is_none());
        self.gossip && runs(node) && runs(from) && self.sides[node] == self.sides[from]
    }

    fn connections_changed(&mut self) {
        for node in 0..self.nodes.len() {
            for from in self.others(node) {
                self.number += 1;
                let change = self.number;
                self.sees.entry((node, from)).or_default().1 = change;
                let after = if self.hears(node, from) {
                    self.after(0.05, 1.0)
                } else {
                    // A process that does not run notices nothing for less than this.
                    self.after(PAUSE.as_secs_f64() + 0.3, 1.9)
                };
                self.later(after, node, What::Gossip { from, change });
            }
        }
    }

    fn gossip(&mut self, node: usize, from: usize, change: u64) {
        let seen = self.sees.entry((node, from)).or_default();
        if seen.1 != change {
            return;
        }
        let id = MemberId::of(&name(from));
        let heard = self.hears(node, from);
        self.sees.insert((node, from), (heard, change));
        if !heard {
            return self.feed(node, Event::Down(id));
        }
        let Some(said) = self.nodes[from].as_ref().map(|it| it.said.clone()) else { return };
        let known: Vec<IpAddr> = match &self.nodes[node] {
            Some(it) => it.owners.spots.keys().copied().collect(),
            None => return,
        };
        for address in known.iter().chain(said.keys()) {
            let stance = said.get(address).copied().unwrap_or_default();
            self.feed(node, Event::Said(id, *address, stance));
        }
        let profile = Profile { name: name(from), macs: vec![mac(from)], at: Some(host(from)) };
        self.feed(node, Event::Up(id, profile));
    }
}
