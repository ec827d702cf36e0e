//! Two sessions that talk to each other over a network that delays and cuts, in any order.

use super::*;
use crate::cases::cases;
use proptest::prelude::*;
use proptest::sample::Index;
use std::collections::{BTreeMap, VecDeque};

/// One direction of a connection: bytes, and then perhaps its end.
#[derive(Default)]
struct Pipe {
    bytes: VecDeque<Vec<u8>>,
    ended: bool,
}

/// A connection as both sides number it, and what travels to side 0 and side 1.
struct Link {
    ends: [Conn; 2],
    to: [Pipe; 2],
}

struct Network {
    sides: [Session; 2],
    now: Uptime,
    links: Vec<Link>,
    attempts: Vec<(usize, Conn)>,
    accepted: u64,
    flaps: usize,
}

impl Network {
    fn new() -> Self {
        let first = Config { connect_time: secs(5), ..config() };
        let second = Config {
            asn: 65_002,
            peer_asn: PeerAsn::Is(65_001),
            router_id: Ipv4Addr::new(192, 0, 2, 2),
            ..first.clone()
        };
        let mut sides = [Session::new(first, 1), Session::new(second, 2)];
        for (at, side) in sides.iter_mut().enumerate() {
            for number in 0..=at * 5 {
                side.handle(announce(&format!("203.0.113.{number}/32")), secs(1));
            }
            side.handle(Event::Complete, secs(1));
            side.handle(Event::Start, secs(1));
        }
        Self { sides, now: secs(1), links: vec![], attempts: vec![], accepted: 0, flaps: 0 }
    }

    fn handle(&mut self, side: usize, event: Event) {
        self.sides[side].handle(event, self.now);
        self.take(side);
    }

    fn take(&mut self, side: usize) {
        for effect in self.sides[side].take(self.now) {
            match effect {
                Effect::Connect(conn) => self.attempts.push((side, conn)),
                Effect::Send(conn, bytes) => {
                    if let Some(link) = self.links.iter_mut().find(|it| it.ends[side] == conn) {
                        link.to[1 - side].bytes.push_back(bytes);
                    }
                    self.sides[side].handle(Event::Sent(conn), self.now);
                }
                Effect::Close(conn) => {
                    self.attempts.retain(|it| *it != (side, conn));
                    if let Some(link) = self.links.iter_mut().find(|it| it.ends[side] == conn) {
                        link.to[1 - side].ended = true;
                    }
                }
                Effect::Report(Report::Down(_)) => self.flaps += 1,
                Effect::Report(_) => {}
            }
        }
    }

    /// One of the things that can happen next happens. False if nothing can.
    fn step(&mut self, which: Index) -> bool {
        let mut choices: Vec<(usize, usize)> = (0..self.attempts.len()).map(|it| (2, it)).collect();
        for (at, link) in self.links.iter().enumerate() {
            let busy = |side: &usize| !link.to[*side].bytes.is_empty() || link.to[*side].ended;
            choices.extend((0..2).filter(busy).map(|side| (side, at)));
        }
        if choices.is_empty() {
            return false;
        }
        match choices[which.index(choices.len())] {
            (2, at) => {
                let (side, conn) = self.attempts.swap_remove(at);
                self.accepted += 1;
                let mut ends = [conn; 2];
                ends[1 - side] = Conn::In(self.accepted);
                self.links.push(Link { ends, to: Default::default() });
                self.handle(side, Event::Connected(conn, local()));
                self.handle(1 - side, Event::Accepted(Conn::In(self.accepted), local()));
            }
            (side, at) => {
                let conn = self.links[at].ends[side];
                if let Some(bytes) = self.links[at].to[side].bytes.pop_front() {
                    self.handle(side, Event::Received(conn, bytes));
                } else {
                    self.links[at].to[side].ended = false;
                    self.handle(side, Event::Closed(conn, "end of file".to_owned()));
                }
            }
        }
        true
    }

    fn cut(&mut self, which: Index) {
        if !self.links.is_empty() {
            let link = self.links.swap_remove(which.index(self.links.len()));
            for side in 0..2 {
                self.handle(side, Event::Closed(link.ends[side], "reset".to_owned()));
            }
        }
    }

    /// Time passes until a side wants to be woken.
    fn wait(&mut self) {
        let wake = self.sides.iter().filter_map(Session::wake_at).min();
        self.now = self.now.max(wake.unwrap());
        (0..2).for_each(|side| self.take(side));
    }

    fn states(&self) -> [State; 2] {
        [self.sides[0].state(), self.sides[1].state()]
    }
}

proptest! {
    #![proptest_config(cases(100))]

    #[test]
    fn after_any_beginning_two_sessions_agree_on_one_connection_and_stay(
        beginning in prop::collection::vec((0u8..8, any::<Index>()), 0..80), order in any::<[Index; 16]>(),
    ) {
        let mut network = Network::new();
        (0..2).for_each(|side| network.take(side));
        for (what, which) in beginning {
            match what {
                0 => network.cut(which),
                1 => network.wait(),
                _ => { network.step(which); }
            }
        }
        // From now on everything arrives.
        let mut turn = order.iter().cycle();
        let begin = network.now;
        while network.now < begin + secs(600) {
            while network.step(*turn.next().unwrap()) {}
            network.wait();
        }
        while network.step(order[0]) {}
        prop_assert_eq!(network.states(), [State::Established; 2]);
        let ids = network.sides.each_ref().map(|side| side.established().unwrap().id);
        prop_assert!(network.links.iter().any(|link| link.ends == ids), "one connection: {ids:?}");
        let told: BTreeMap<_, _> = (0..2).map(|at| (at, network.sides[at].status().told.v4)).collect();
        prop_assert_eq!(told, BTreeMap::from([(0, 1), (1, 6)]));
        let flaps = network.flaps;
        let end = network.now + secs(3600);
        while network.now < end {
            while network.step(*turn.next().unwrap()) {}
            network.wait();
        }
        prop_assert_eq!((network.states(), network.flaps), ([State::Established; 2], flaps));
    }
}
