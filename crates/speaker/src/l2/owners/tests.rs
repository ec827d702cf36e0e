//! Single situations. `segment` plays a whole segment of speakers, `orders` lets random things happen there.

mod links;
mod orders;
mod segment;
mod upgrades;

use super::{Candidate, Interfaces, Owner, PROBE_TIME};
use crate::l2::frame::{self, Frame, Mac, Question};
use crate::l2::member::{MemberId, Standing, rank};
use segment::{Segment, millis, seconds};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

const V4: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 10));
const V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 10));
const NO_NODE: [usize; 0] = [];
const STRANGER: Mac = Mac([6, 6, 6, 6, 6, 6]);

fn candidate() -> Candidate {
    Candidate { interfaces: Arc::new(Interfaces::All), preferred: false, draining: false }
}

/// The nodes from the highest rank to the lowest.
fn order(address: IpAddr, nodes: usize) -> Vec<usize> {
    let mut order: Vec<_> = (0..nodes).collect();
    let id = |node: &usize| MemberId::of(&segment::name(*node));
    order.sort_by_key(|it| std::cmp::Reverse(rank(address, Standing::Eligible, id(it))));
    order
}

/// Three speakers, all of which may own both addresses, after they agreed.
fn agreed() -> Segment {
    let mut segment = Segment::new(3, 1);
    segment.run(millis(100));
    for address in [V4, V6] {
        for node in 0..3 {
            segment.set(node, address, Some(candidate()));
        }
    }
    segment.run(seconds(6));
    segment
}

#[test]
fn one_owner_is_chosen_and_stays_when_one_of_higher_rank_comes_back() {
    let mut segment = agreed();
    for address in [V4, V6] {
        let order = order(address, 3);
        assert_eq!(segment.answering(address), [order[0]], "{address}");
        segment.crash(order[0]);
        let at = segment.now;
        segment.run_until(|it| !it.answering(address).is_empty());
        assert!(segment.now - at <= seconds(3), "{:?}", segment.now - at);
        assert_eq!(segment.answering(address), [order[1]], "{address}");
        segment.start(order[0]);
        segment.set(order[0], address, Some(candidate()));
        segment.run(seconds(10));
        assert_eq!(segment.answering(address), [order[1]], "{address}: no fail-back");
        for node in 0..3 {
            segment.set(node, address, None);
        }
        segment.run(seconds(1));
        assert_eq!(segment.answering(address), NO_NODE, "{address}");
    }
}

#[test]
fn the_addresses_of_a_crashed_node_are_all_taken_within_three_seconds() {
    let mut segment = Segment::new(3, 1);
    for number in 0..1500 {
        let address = IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + number));
        for node in 0..3 {
            segment.set(node, address, Some(candidate()));
        }
    }
    segment.run(seconds(10));
    assert_eq!(segment.taken(), 1500);
    let all = segment.taken();
    segment.crash(0);
    let left = segment.taken();
    assert!((1500 - left) > 350, "its share: {}", 1500 - left);
    let at = segment.now;
    segment.run_until(|it| it.taken() == all);
    assert!(segment.now - at <= seconds(3), "{:?}", segment.now - at);
}

#[test]
fn a_preferred_node_comes_before_others_and_only_a_preference() {
    let mut segment = Segment::new(3, 1);
    let order = order(V4, 3);
    let preferred = Candidate { preferred: true, ..candidate() };
    for node in 0..3 {
        let last = node == order[2];
        segment.set(node, V4, Some(if last { preferred.clone() } else { candidate() }));
    }
    segment.run(seconds(6));
    assert_eq!(segment.answering(V4), [order[2]]);
    segment.crash(order[2]);
    segment.run(seconds(6));
    assert_eq!(segment.answering(V4), [order[0]]);
}

#[test]
fn an_owner_announces_itself_four_times() {
    let mut segment = agreed();
    segment.frames.clear();
    let order = order(V4, 3);
    segment.set(order[0], V4, None);
    segment.run(seconds(6));
    let claims: Vec<_> = segment
        .frames
        .iter()
        .filter(|it| matches!(it.2, Frame::Claim { address: V4, .. }) && it.1 == order[1])
        .map(|it| it.0.as_millis())
        .collect();
    // Request and reply for each.
    let first = claims[0];
    let after: Vec<_> = claims.iter().step_by(2).map(|at| at - first).collect();
    assert_eq!(after, [0, 1100, 2200, 3300]);
    assert_eq!(claims.len(), 8);
}

#[test]
fn a_moved_address_is_announced_by_the_new_owner_before_the_old_one_stops() {
    for (from, to) in [(0, 2), (0, 1)] {
        let mut segment = agreed();
        let order = order(V4, 3);
        let (from, to) = (order[from], order[to]);
        segment.frames.clear();
        segment.offer(from, V4, to);
        let at = segment.now;
        segment.run_until(|it| it.answering(V4) == [to]);
        assert!(segment.now - at <= millis(100), "{:?}", segment.now - at);
        let by = |it: &(std::time::Duration, usize, Frame)| {
            matches!(it.2, Frame::Claim { address: V4, .. }).then_some(it.1)
        };
        assert_eq!(segment.frames.iter().find_map(by), Some(to), "announced first");
        assert!(segment.longest_silence(V4) <= millis(20), "{:?}", segment.longest_silence(V4));
        segment.run(seconds(10));
        assert_eq!(segment.answering(V4), [to]);
    }
}

#[test]
fn an_address_is_not_moved_to_a_node_that_may_not_own_it() {
    let mut segment = agreed();
    let order = order(V4, 3);
    segment.set(order[2], V4, None);
    segment.run(millis(100));
    segment.offer(order[0], V4, order[2]);
    segment.run(seconds(1));
    assert_eq!(segment.answering(V4), [order[0]]);
    assert_eq!(segment.not_moved, [(V4, MemberId::of(&segment::name(order[2])))]);
}

#[test]
fn a_speaker_that_leaves_answers_until_another_one_does() {
    let mut segment = agreed();
    let order = order(V4, 3);
    segment.leave(order[0]);
    segment.run_until(|it| it.has_left(order[0]));
    segment.crash(order[0]);
    segment.run(millis(20));
    assert_eq!(segment.answering(V4), [order[1]]);
    assert!(segment.longest_silence(V4) <= millis(20), "{:?}", segment.longest_silence(V4));
}

#[test]
fn a_draining_node_keeps_the_address_while_no_other_may_own_it() {
    let mut segment = agreed();
    let order = order(V4, 3);
    let draining = Candidate { draining: true, ..candidate() };
    segment.set(order[1], V4, None);
    segment.set(order[2], V4, None);
    segment.run(millis(100));
    segment.set(order[0], V4, Some(draining));
    segment.run(seconds(2));
    assert_eq!(segment.answering(V4), [order[0]]);
    segment.set(order[1], V4, Some(candidate()));
    segment.run(seconds(2));
    assert_eq!(segment.answering(V4), [order[1]]);
}

#[test]
fn without_gossip_the_owner_stays_and_its_crash_is_noticed() {
    let mut segment = agreed();
    let order = order(V4, 3);
    segment.block_gossip(true);
    segment.run(seconds(30));
    assert_eq!(segment.answering(V4), [order[0]]);
    assert!(segment.longest_silence(V4).is_zero());
    segment.crash(order[0]);
    segment.run(seconds(4));
    assert_eq!(segment.answering(V4).len(), 1);
}

#[test]
fn without_gossip_two_owners_notice_each_other_by_frames() {
    let mut segment = agreed();
    let order = order(V4, 3);
    segment.split(&[order[0]]);
    segment.run(seconds(5));
    assert_eq!(segment.answering(V4).len(), 2, "one on each side");
    segment.block_gossip(true);
    segment.split(&[]);
    segment.run(seconds(5));
    assert_eq!(segment.answering(V4), [order[0]]);
}

#[test]
fn a_stranger_that_answers_keeps_the_address_and_is_reported() {
    let mut segment = Segment::new(2, 1);
    segment.stranger = Some((V4, STRANGER));
    for node in 0..2 {
        segment.set(node, V4, Some(candidate()));
    }
    segment.run(seconds(10));
    assert_eq!(segment.answering(V4), NO_NODE);
    let first = order(V4, 2)[0];
    assert_eq!(segment.conflicts, [(first, V4, STRANGER)], "told once");
    assert_eq!(segment.owner_of(first, V4), Owner::Stranger(STRANGER));
    segment.stranger = None;
    segment.run(seconds(6));
    assert_eq!(segment.answering(V4), [first]);
}

#[test]
fn strangers_without_end_are_told_seldom() {
    let mut segment = Segment::new(1, 1);
    segment.stranger = Some((V4, STRANGER));
    segment.set(0, V4, Some(candidate()));
    segment.run(seconds(3));
    assert_eq!(segment.conflicts.len(), 1, "it waits");
    let changed = segment.changed;
    for number in 0..3000u16 {
        let [a, b] = number.to_be_bytes();
        segment.hear(0, &Frame::Claim { address: V4, mac: Mac([2, 9, 9, 9, a, b]) });
        segment.run(millis(10));
    }
    assert!(segment.conflicts.len() <= 5, "every ten seconds: {}", segment.conflicts.len());
    assert!(segment.changed - changed <= 5, "{}", segment.changed - changed);
}

#[test]
fn a_stranger_that_claims_an_owned_address_is_answered_seldom() {
    let mut segment = agreed();
    let owner = segment.answering(V4)[0];
    segment.frames.clear();
    for _ in 0..50 {
        segment.hear(owner, &Frame::Claim { address: V4, mac: STRANGER });
        segment.run(millis(100));
    }
    assert_eq!(segment.answering(V4), [owner]);
    assert_eq!(segment.conflicts, [(owner, V4, STRANGER)]);
    assert_eq!(segment.frames.len(), 2, "one announcement: {:?}", segment.frames);
}

#[test]
fn two_clusters_that_want_one_address_do_not_both_take_it() {
    for seed in 0..20 {
        let mut segment = Segment::new(2, seed);
        // They have different keys: neither hears the gossip of the other.
        segment.block_gossip(true);
        for node in 0..2 {
            segment.set(node, V6, Some(candidate()));
        }
        segment.run(seconds(10));
        let owners = segment.answering(V6);
        assert_eq!(owners.len(), 1, "seed {seed}");
        assert!(!segment.conflicts.is_empty(), "seed {seed}");
    }
}

#[test]
fn a_speaker_that_stood_still_does_not_answer_before_it_asked() {
    let mut segment = agreed();
    let order = order(V4, 3);
    segment.pause(order[0], seconds(5));
    segment.run(seconds(6));
    assert_eq!(segment.answering(V4), [order[1]], "the owner of meanwhile stays");

    // Nobody noticed a short stop: the owner goes on.
    segment.pause(order[1], millis(800));
    segment.run(millis(800));
    assert_eq!(segment.answering(V4), NO_NODE, "it does not know yet");
    segment.run(PROBE_TIME + millis(20));
    assert_eq!(segment.answering(V4), [order[1]]);
}

#[test]
fn an_owner_whose_link_is_gone_stops_and_another_one_takes_over() {
    let mut segment = agreed();
    let order = order(V4, 3);
    segment.link(order[0], false);
    segment.run(seconds(1));
    assert_eq!(segment.answering(V4), [order[1]]);
    segment.frames.clear();
    segment.link(order[1], false);
    segment.run(millis(1));
    segment.link(order[1], true);
    segment.link(order[0], true);
    segment.run(seconds(3));
    assert_eq!(segment.answering(V4).len(), 1);
}

#[test]
fn questions_are_answered_by_the_owner_with_its_own_address() {
    let mut segment = agreed();
    for (address, asker) in [(V4, "192.0.2.1"), (V6, "2001:db8::1")] {
        let asker = Some(asker.parse().expect("an address"));
        for asker in [asker, None] {
            let question = Question { address, mac: STRANGER, asker };
            let answers: Vec<_> = (0..3)
                .flat_map(|node| {
                    segment.frames.clear();
                    segment.hear(node, &Frame::Question(question));
                    segment.run(millis(1));
                    segment.frames.iter().map(|it| it.2).collect::<Vec<_>>()
                })
                .collect();
            let mac = segment::mac(order(address, 3)[0]);
            assert_eq!(answers, [Frame::Claim { address, mac }], "{question:?}");
        }
    }
    let unknown =
        Question { address: "192.0.2.77".parse().expect("one"), mac: STRANGER, asker: None };
    segment.frames.clear();
    segment.hear(0, &Frame::Question(unknown));
    segment.run(millis(1));
    assert_eq!(segment.frames, []);
    assert!(frame::parse(&frame::answer(STRANGER, &unknown)).is_ok());
}

#[test]
fn an_address_in_use_nowhere_leaves_nothing_behind() {
    let mut segment = agreed();
    for node in 0..3 {
        segment.set(node, V4, None);
        segment.set(node, V6, None);
    }
    segment.run(seconds(1));
    assert_eq!((0..3).map(|it| segment.remembered(it)).collect::<Vec<_>>(), [0, 0, 0]);
}
