//! Speakers over a network that is played: crashes, loss, splits, processes that stand still.

use super::{Config, Counts, Effect, Event, Gossip};
use crate::dice::Dice;
use crate::l2::member::{Hold, MemberId, Profile, Stance, Standing};
use crate::l2::owners;
use bowline_core::clock::Uptime;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

fn name(node: usize) -> String {
    format!("node-{node}")
}

fn id(node: usize) -> MemberId {
    MemberId::of(&name(node))
}

fn at(node: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, node as u8], 7949))
}

fn millis(it: u64) -> Duration {
    Duration::from_millis(it)
}

fn seconds(it: u64) -> Duration {
    Duration::from_secs(it)
}

fn address(number: u32) -> IpAddr {
    Ipv4Addr::from(0x0a00_0000 + number).into()
}

fn owned() -> Stance {
    Stance { standing: Standing::Eligible, hold: Hold::Owns }
}

struct Node {
    gossip: Gossip,
    /// What the owners were told: which members are there, and what they say.
    up: BTreeMap<MemberId, Profile>,
    said: BTreeMap<(MemberId, IpAddr), Stance>,
    downs: u64,
    /// Since when and until when it stands still.
    paused: Option<(Uptime, Uptime)>,
    inbox: Vec<(SocketAddr, Vec<u8>)>,
}

struct Network {
    now: Uptime,
    wall: u64,
    nodes: Vec<Option<Node>>,
    sides: Vec<u8>,
    loss: f64,
    queue: BTreeMap<(Uptime, u64), (usize, SocketAddr, Vec<u8>)>,
    /// Every datagram that was sent, if they are recorded.
    recorded: Option<Vec<(usize, SocketAddr, Vec<u8>)>>,
    number: u64,
    dice: Dice,
}

impl Network {
    fn new(count: usize) -> Self {
        let mut network = Self {
            now: seconds(50),
            wall: 1_000_000,
            nodes: (0..count).map(|_| None).collect(),
            sides: vec![0; count],
            loss: 0.0,
            queue: BTreeMap::new(),
            recorded: None,
            number: 0,
            dice: Dice::new(3),
        };
        for node in 0..count {
            network.start(node, b"key");
        }
        network
    }

    fn start(&mut self, node: usize, key: &[u8]) {
        self.wall += 1000;
        let (name, key, seed) = (name(node), key.to_vec(), self.dice.roll());
        let config = Config { name: name.clone(), at: at(node), key, start: self.wall, seed };
        let gossip = Gossip::new(&config, self.now).expect("a key");
        self.nodes[node] = Some(Node {
            gossip,
            up: BTreeMap::new(),
            said: BTreeMap::new(),
            downs: 0,
            paused: None,
            inbox: Vec::new(),
        });
        let peers = (0..self.nodes.len()).map(at).collect();
        self.feed(node, Event::Peers(peers));
        self.feed(node, Event::Profile(Profile { name, macs: vec![], at: None }));
    }

    fn crash(&mut self, node: usize) {
        self.nodes[node] = None;
    }

    fn node(&self, node: usize) -> &Node {
        self.nodes[node].as_ref().expect("it runs")
    }

    fn counts(&self, node: usize) -> Counts {
        self.node(node).gossip.counts()
    }

    fn pause(&mut self, node: usize, time: Duration) {
        let pause = (self.now, self.now + time);
        self.nodes[node].as_mut().expect("it runs").paused = Some(pause);
    }

    fn say(&mut self, node: usize, address: IpAddr, stance: Stance) {
        self.feed(node, Event::Say(address, stance));
    }

    fn feed(&mut self, node: usize, event: Event<'_>) {
        let now = self.now;
        if let Some(it) = &mut self.nodes[node] {
            it.gossip.handle(event, now);
        }
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.step(end) {}
    }

    fn run_until(&mut self, reached: impl Fn(&Self) -> bool) -> Duration {
        let (start, end) = (self.now, self.now + seconds(60));
        while !reached(self) {
            assert!(self.step(end), "not within a minute");
        }
        self.now - start
    }

    fn step(&mut self, end: Uptime) -> bool {
        let wake = |it: &Node| it.paused.map(|it| it.1).or_else(|| it.gossip.wake_at());
        let running = self.nodes.iter().enumerate();
        let wakes = running.filter_map(|(at, it)| Some((wake(it.as_ref()?)?, at)));
        let wake = wakes.min();
        let next = self.queue.keys().next().copied();
        match (wake, next) {
            (Some((at, node)), next) if next.is_none_or(|it| at <= it.0) && at <= end => {
                self.now = self.now.max(at);
                self.take(node);
            }
            (_, Some(key)) if key.0 <= end => {
                self.now = key.0;
                let Some((node, from, bytes)) = self.queue.remove(&key) else { return true };
                if let Some(it) = &mut self.nodes[node] {
                    it.inbox.push((from, bytes));
                    if it.paused.is_none() {
                        self.take(node);
                    }
                }
            }
            _ => {
                self.now = end;
                return false;
            }
        }
        true
    }

    fn take(&mut self, node: usize) {
        let now = self.now;
        let Some(it) = &mut self.nodes[node] else { return };
        if let Some((since, until)) = it.paused.take() {
            it.gossip.handle(Event::Paused(until - since), now);
        }
        for (from, bytes) in std::mem::take(&mut it.inbox) {
            it.gossip.handle(Event::Received(from, &bytes), now);
        }
        for effect in it.gossip.take(now) {
            match effect {
                Effect::Send(to, bytes) => {
                    if let Some(recorded) = &mut self.recorded {
                        recorded.push((node, to, bytes.clone()));
                    }
                    let to = (0..self.sides.len()).find(|it| at(*it) == to).expect("a node");
                    let lost = self.dice.between(0.0, 1.0) < self.loss;
                    if !lost && self.sides[to] == self.sides[node] {
                        self.number += 1;
                        let after = Duration::from_secs_f64(self.dice.between(0.0002, 0.002));
                        self.queue.insert((now + after, self.number), (to, at(node), bytes));
                    }
                }
                Effect::Tell(owners::Event::Up(member, profile)) => {
                    it.up.insert(member, profile);
                }
                Effect::Tell(owners::Event::Down(member)) => {
                    it.downs += 1;
                    it.up.remove(&member);
                }
                Effect::Tell(owners::Event::Said(member, address, stance)) => {
                    if stance == Stance::NOTHING {
                        it.said.remove(&(member, address));
                    } else {
                        it.said.insert((member, address), stance);
                    }
                }
                Effect::Tell(other) => panic!("{other:?}"),
            }
        }
    }

    /// Whether each running node sees exactly the others of its side.
    fn agrees(&self) -> bool {
        (0..self.nodes.len()).filter(|it| self.nodes[*it].is_some()).all(|node| {
            let others = (0..self.nodes.len()).filter(|it| {
                *it != node && self.nodes[*it].is_some() && self.sides[*it] == self.sides[node]
            });
            let others: BTreeSet<_> = others.map(id).collect();
            self.node(node).up.keys().copied().collect::<BTreeSet<_>>() == others
        })
    }

    fn downs(&self) -> u64 {
        self.nodes.iter().flatten().map(|it| it.downs).sum()
    }
}

#[test]
fn speakers_find_each_other_and_notice_a_crash_and_a_return() {
    for count in [2, 3, 5, 20] {
        let mut network = Network::new(count);
        let joined = network.run_until(Network::agrees);
        assert!(joined <= millis(2500), "{count} nodes: {joined:?}");
        network.run(seconds(5));
        network.crash(0);
        let noticed = network.run_until(Network::agrees);
        assert!(noticed <= millis(2400), "{count} nodes: {noticed:?}");
        network.start(0, b"key");
        let back = network.run_until(Network::agrees);
        assert!(back <= millis(2500), "{count} nodes: {back:?}");
    }
}

#[test]
fn a_speaker_that_starts_again_at_once_is_not_taken_for_the_old_one() {
    let mut network = Network::new(3);
    network.run_until(Network::agrees);
    network.say(0, address(1), owned());
    network.run_until(|it| it.node(1).said.contains_key(&(id(0), address(1))));
    network.crash(0);
    network.start(0, b"key");
    let time = network.run_until(|it| (1..3).all(|node| it.node(node).said.is_empty()));
    assert!(time <= millis(500), "{time:?}");
    network.run(seconds(3));
    assert!(network.agrees());
}

#[test]
fn a_split_and_its_end_are_noticed_on_both_sides() {
    let mut network = Network::new(5);
    network.run_until(Network::agrees);
    network.sides = vec![0, 0, 1, 1, 1];
    let noticed = network.run_until(Network::agrees);
    assert!(noticed <= seconds(5), "{noticed:?}");
    network.say(2, address(1), owned());
    network.run(seconds(600));
    assert!(network.agrees());
    network.sides = vec![0; 5];
    let healed = network.run_until(Network::agrees);
    assert!(healed <= millis(2500), "members that seem down are asked every second: {healed:?}");
    assert_eq!(network.node(0).said.get(&(id(2), address(1))), Some(&owned()));
}

#[test]
fn no_speaker_seems_down_while_a_tenth_of_the_datagrams_is_lost() {
    let mut network = Network::new(5);
    network.run_until(Network::agrees);
    network.loss = 0.1;
    network.run(seconds(300));
    assert_eq!(network.downs(), 0);
}

#[test]
fn speakers_that_have_nothing_to_say_send_little() {
    let mut network = Network::new(3);
    network.run_until(Network::agrees);
    for number in 0..1000 {
        network.say(0, address(number), owned());
    }
    network.run(seconds(5));
    let before = network.counts(1).sent;
    network.run(seconds(10));
    let sent = network.counts(1).sent - before;
    assert!((50..200).contains(&sent), "{sent} datagrams in ten seconds");
}

#[test]
fn what_is_said_arrives_although_datagrams_are_lost() {
    let mut network = Network::new(4);
    network.run_until(Network::agrees);
    network.loss = 0.3;
    for number in 0..2000 {
        network.say(0, address(number), owned());
    }
    let time = network.run_until(|it| (1..4).all(|node| it.node(node).said.len() == 2000));
    assert!(time <= seconds(10), "{time:?}");
    network.loss = 0.0;
    network.say(0, address(5), Stance::NOTHING);
    let time = network.run_until(|it| (1..4).all(|node| it.node(node).said.len() == 1999));
    assert!(time <= millis(10), "{time:?}");
}

#[test]
fn a_speaker_that_stands_still_takes_nobody_for_gone_when_it_goes_on() {
    let mut network = Network::new(4);
    network.run_until(Network::agrees);
    network.run(seconds(3));
    network.pause(0, seconds(20));
    network.run(seconds(10));
    assert_eq!((1..4).map(|it| network.node(it).downs).collect::<Vec<_>>(), [1, 1, 1]);
    network.run(seconds(11));
    network.run_until(Network::agrees);
    assert_eq!((1..4).map(|it| network.node(it).downs).collect::<Vec<_>>(), [1, 1, 1]);
}

#[test]
fn a_speaker_with_another_key_is_not_heard() {
    let mut network = Network::new(3);
    network.crash(2);
    network.start(2, b"another key");
    network.run(seconds(10));
    assert_eq!(network.node(0).up.keys().collect::<Vec<_>>(), [&id(1)]);
    assert!(network.node(2).up.is_empty());
    assert!(network.counts(0).refused > 0 && network.counts(2).refused > 0);
}

#[test]
fn another_key_takes_no_speaker_away() {
    let mut network = Network::new(4);
    network.run_until(Network::agrees);
    let downs = |network: &Network| (0..3).map(|it| network.node(it).downs).sum::<u64>();
    let mut before = downs(&network);
    // Each learns of it at another time, and the last one starts with it.
    for node in 0..3 {
        network.feed(node, Event::Key(b"another key".to_vec()));
        network.run(seconds(8));
        assert_eq!(downs(&network), before, "after {node}");
        if node == 0 {
            network.crash(3);
            network.run(seconds(5));
            network.start(3, b"another key");
            network.run_until(|it| it.node(0).up.contains_key(&id(3)));
            before = downs(&network);
        }
    }
    network.run_until(|it| (0..4).all(|node| it.node(node).up.len() == 3));
    let before = downs(&network);
    network.run(seconds(400));
    assert_eq!(downs(&network), before);
    // The old key does not count any more.
    network.crash(3);
    network.start(3, b"key");
    network.run(seconds(10));
    assert!(network.node(3).up.is_empty());
    assert!(!network.node(0).up.contains_key(&id(3)));
}

#[test]
fn recorded_datagrams_are_refused_also_after_a_restart() {
    let mut network = Network::new(2);
    network.recorded = Some(Vec::new());
    network.run_until(Network::agrees);
    network.say(0, address(1), owned());
    network.run(seconds(3));
    let recorded = network.recorded.take().expect("recorded");
    network.say(0, address(1), Stance::NOTHING);
    network.run(seconds(3));
    assert!(network.node(1).said.is_empty());

    let replay = |network: &mut Network| {
        let before = network.counts(1);
        for (_, _, bytes) in recorded.iter().filter(|it| it.1 == at(1)) {
            network.feed(1, Event::Received(at(0), bytes));
        }
        assert!(network.counts(1).replayed > before.replayed);
        assert_eq!(network.counts(1).received, before.received, "none is taken");
        network.run(millis(100));
        assert!(network.node(1).said.is_empty());
    };
    replay(&mut network);
    network.crash(1);
    network.crash(0);
    network.start(1, b"key");
    replay(&mut network);
    assert!(network.node(1).up.is_empty(), "the recorded one does not run");
}

#[test]
fn a_speaker_whose_clock_went_back_joins_all_the_same() {
    let mut network = Network::new(3);
    network.run_until(Network::agrees);
    network.say(0, address(1), owned());
    network.run(seconds(1));
    network.crash(0);
    network.wall = 500;
    network.start(0, b"key");
    network.run(seconds(4));
    assert!(network.agrees());
    network.say(0, address(2), owned());
    network.run(seconds(1));
    let said: Vec<_> = network.node(1).said.keys().map(|it| it.1).collect();
    assert_eq!(said, [address(2)], "the table of the new start counts");
}

#[test]
fn a_speaker_that_leaves_is_gone_at_once() {
    let mut network = Network::new(5);
    network.run_until(Network::agrees);
    network.feed(0, Event::Leave);
    network.run(millis(20));
    network.crash(0);
    let time = network.run_until(Network::agrees);
    assert!(time <= millis(700), "{time:?}");
}
