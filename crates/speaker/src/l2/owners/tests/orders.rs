//! Whatever happens, in any order: at most one node of each connected side answers for an address, and one does in the
//! end.

use super::segment::{Segment, millis, seconds};
use super::{Candidate, candidate};
use crate::cases::cases;
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

const NODES: usize = 4;

fn addresses() -> [IpAddr; 4] {
    [
        Ipv4Addr::new(192, 0, 2, 1).into(),
        Ipv4Addr::new(192, 0, 2, 2).into(),
        Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
        Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2).into(),
    ]
}

#[derive(Clone, Debug)]
enum Act {
    Crash(usize),
    Start(usize),
    Candidate { node: usize, address: usize, candidate: Option<Candidate> },
    Link(usize, bool),
    Move { address: usize, to: usize },
    Pause(usize, u64),
    Split(Vec<usize>),
    Heal,
    Gossip(bool),
    Upgrade(usize),
    Power(usize, bool),
}

fn act() -> impl Strategy<Value = Act> {
    let node = || 0..NODES;
    let of = |candidate: Candidate| {
        (any::<bool>(), any::<bool>()).prop_map(move |(preferred, draining)| Candidate {
            preferred,
            draining,
            ..candidate.clone()
        })
    };
    prop_oneof![
        1 => node().prop_map(Act::Crash),
        2 => node().prop_map(Act::Start),
        4 => (node(), 0..4usize, prop::option::weighted(0.7, of(candidate())))
            .prop_map(|(node, address, candidate)| Act::Candidate { node, address, candidate }),
        1 => (node(), any::<bool>()).prop_map(|(node, up)| Act::Link(node, up)),
        3 => (0..4usize, node()).prop_map(|(address, to)| Act::Move { address, to }),
        2 => (node(), 750..4000u64).prop_map(|(node, time)| Act::Pause(node, time)),
        2 => prop::collection::vec(node(), 1..3).prop_map(Act::Split),
        3 => Just(Act::Heal),
        1 => any::<bool>().prop_map(Act::Gossip),
        3 => node().prop_map(Act::Upgrade),
        1 => (node(), any::<bool>()).prop_map(|(node, on)| Act::Power(node, on)),
    ]
}

/// Until when two nodes of a side may both answer, because they have not noticed each other yet.
struct Patience {
    began: Duration,
    split: bool,
    gossip: bool,
    /// Since when every node hears the gossip of every other one.
    well_since: Option<Duration>,
    /// There may be nodes that never heard the gossip of each other. They cannot tell which one has the higher rank.
    strangers: bool,
    until: Duration,
}

impl Patience {
    /// Something changed.
    fn change(&mut self, now: Duration, change: impl FnOnce(&mut Self)) {
        if self.well_since.is_some_and(|since| now - since > millis(1100)) {
            self.strangers = false;
        }
        change(self);
        let well = self.gossip && !self.split;
        self.well_since = well.then(|| self.well_since.unwrap_or(now));
        // By gossip, or by reminders after a tenth of the time for which the others are gone.
        let frames = ((now - self.began) / 5).min(seconds(64)) + seconds(4);
        let time = if self.gossip { seconds(4) } else { frames };
        self.until = if self.strangers && !self.gossip {
            Duration::MAX
        } else if self.until == Duration::MAX {
            now + time
        } else {
            self.until.max(now + time)
        };
    }
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn at_most_one_node_of_a_side_answers(
        seed: u64,
        acts in prop::collection::vec((act(), 0..5000u64), 1..40),
    ) {
        let mut segment = Segment::new(NODES, seed);
        for address in addresses() {
            for node in 0..NODES {
                segment.set(node, address, Some(candidate()));
            }
        }
        segment.run(seconds(6));
        let mut patience = Patience {
            began: segment.now,
            split: false,
            gossip: true,
            well_since: Some(segment.now),
            strangers: false,
            until: segment.now,
        };
        for (act, pause) in acts {
            let now = segment.now;
            match act.clone() {
                Act::Crash(node) => segment.crash(node),
                Act::Start(node) if segment.is_running(node) => {}
                Act::Start(node) => {
                    segment.start(node);
                    for address in addresses() {
                        segment.set(node, address, Some(candidate()));
                    }
                    let until = patience.until;
                    patience.change(now, |it| {
                        it.strangers = true;
                        it.well_since = None;
                    });
                    // A start alone is no reason for two owners.
                    if patience.until != Duration::MAX {
                        patience.until = until;
                    }
                }
                Act::Candidate { node, address, candidate } => {
                    segment.set(node, addresses()[address], candidate);
                }
                Act::Link(node, up) => segment.link(node, up),
                Act::Move { address, to } => {
                    let address = addresses()[address];
                    for node in segment.answering(address) {
                        segment.offer(node, address, to);
                    }
                }
                Act::Upgrade(node) => segment.lend(node),
                Act::Power(node, on) => segment.power(node, on),
                Act::Pause(node, time) => segment.pause(node, millis(time)),
                Act::Split(apart) => {
                    segment.split(&apart);
                    // Those that change sides meet there.
                    patience.change(now, |it| it.split = true);
                }
                Act::Heal => {
                    segment.split(&[]);
                    patience.change(now, |it| it.split = false);
                }
                Act::Gossip(on) => {
                    segment.block_gossip(!on);
                    patience.change(now, |it| it.gossip = on);
                }
            }
            let until = patience.until;
            segment.run_checked(millis(pause), |segment| {
                for address in addresses() {
                    let owners = segment.answering(address);
                    for side in 0..2 {
                        let owners: Vec<_> =
                            owners.iter().filter(|it| segment.side(**it) == side).collect();
                        assert!(
                            owners.len() <= 1 || segment.now <= until,
                            "{address} at {:?} after {act:?}: {owners:?} of side {side}",
                            segment.now,
                        );
                    }
                }
            });
            if let Act::Upgrade(node) = act {
                segment.crash(node);
            }
        }

        // All is well again: each address has one owner, and keeps it.
        segment.split(&[]);
        segment.block_gossip(false);
        for node in 0..NODES {
            if !segment.is_running(node) {
                segment.start(node);
            }
            segment.link(node, true);
            segment.power(node, true);
            for address in addresses() {
                segment.set(node, address, Some(candidate()));
            }
        }
        segment.run(seconds(15));
        let owners = addresses().map(|it| segment.answering(it));
        prop_assert!(owners.iter().all(|it| it.len() == 1), "{owners:?}");
        let taken = segment.taken();
        segment.run(seconds(120));
        prop_assert_eq!(addresses().map(|it| segment.answering(it)), owners);
        prop_assert_eq!(segment.taken(), taken, "an owner changed without a cause");
    }
}
