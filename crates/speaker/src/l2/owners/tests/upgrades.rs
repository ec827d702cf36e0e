//! The speaker of a node is replaced by another one: the addresses stay on the node, and another speaker tells who asks
//! where they are.

use super::segment::{Segment, host, mac, millis, seconds};
use super::{NO_NODE, V4, V6, agreed, candidate, order};
use crate::l2::frame::{Frame, Mac};
use std::net::IpAddr;

const BOTH: [IpAddr; 2] = [V4, V6];

/// The interfaces at which the frames so far say that an address is.
fn places(segment: &Segment, address: IpAddr) -> Vec<Mac> {
    let claim = |it: &(_, usize, Frame)| match it.2 {
        Frame::Claim { address: of, mac } if of == address => Some(mac),
        _ => None,
    };
    let mut all: Vec<_> = segment.frames.iter().filter_map(claim).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// A client asks for an address, of every node that hears it.
fn ask(segment: &mut Segment, address: IpAddr) {
    let asker = match address {
        IpAddr::V4(_) => [192, 0, 2, 99].into(),
        IpAddr::V6(_) => "2001:db8::99".parse().unwrap(),
    };
    let mac = Mac([4, 4, 4, 4, 4, 4]);
    let question = super::Question { address, mac, asker: Some(asker) };
    for node in 0..3 {
        segment.hear(node, &Frame::Question(question));
    }
}

fn at_most_one(segment: &Segment) {
    for address in BOTH {
        let all = segment.answering(address);
        assert!(all.len() <= 1, "{address}: {all:?} at {:?}", segment.now);
    }
}

/// The owner of an address lends what it has and ends.
fn lent(address: IpAddr) -> (Segment, Vec<usize>) {
    let mut segment = agreed();
    let order = order(address, 3);
    assert_eq!(segment.answering(address), [order[0]]);
    segment.frames.clear();
    segment.lend(order[0]);
    segment.run_checked(millis(500), at_most_one);
    assert!(segment.has_left(order[0]));
    assert_eq!(segment.answering(address), [order[1]], "{address}: the first other stands in");
    segment.crash(order[0]);
    (segment, order)
}

#[test]
fn an_address_stays_where_it_is_while_the_speaker_of_its_owner_is_replaced() {
    for address in BOTH {
        let (mut segment, order) = lent(address);
        let owner = order[0];
        for _ in 0..30 {
            ask(&mut segment, address);
            segment.run_checked(millis(1000), at_most_one);
            assert_eq!(segment.answering(address), [order[1]], "{address}");
        }
        segment.start(owner);
        segment.run_checked(millis(300), at_most_one);
        segment.set(owner, address, Some(candidate()));
        segment.run_checked(seconds(6), at_most_one);
        assert_eq!(segment.answering(address), [owner], "{address}");
        ask(&mut segment, address);
        assert_eq!(places(&segment, address), [mac(owner)], "{address} is never anywhere else");
        let silence = segment.longest_silence(address);
        assert!(silence <= millis(20), "{address}: no answer for {silence:?}");
    }
}

/// All speakers are upgraded one after another: the one that should stand in has just begun itself.
#[test]
fn a_speaker_that_has_just_begun_stands_in() {
    for address in BOTH {
        let mut segment = agreed();
        let order = order(address, 3);
        segment.lend(order[1]);
        segment.run_checked(millis(500), at_most_one);
        segment.crash(order[1]);
        segment.start(order[1]);
        segment.set(order[1], address, Some(candidate()));
        segment.run_checked(millis(500), at_most_one);
        segment.lend(order[0]);
        segment.run_checked(millis(900), at_most_one);
        assert!(segment.has_left(order[0]));
        assert_eq!(segment.answering(address), [order[1]], "{address}");
        segment.frames.clear();
        ask(&mut segment, address);
        assert_eq!(places(&segment, address), [mac(order[0])], "{address} stays where it is");
    }
}

#[test]
fn a_speaker_that_does_not_come_back_loses_its_addresses_after_a_minute() {
    for address in BOTH {
        let (mut segment, order) = lent(address);
        segment.run_checked(seconds(57), at_most_one);
        assert_eq!(places(&segment, address), [mac(order[0])], "{address}");
        segment.run_checked(seconds(5), at_most_one);
        assert_eq!(segment.answering(address), [order[1]], "{address}");
        segment.frames.clear();
        ask(&mut segment, address);
        assert_eq!(places(&segment, address), [mac(order[1])], "{address} has moved");
        // It is the owner as any other.
        segment.start(order[0]);
        segment.set(order[0], address, Some(candidate()));
        segment.run_checked(seconds(10), at_most_one);
        assert_eq!(segment.answering(address), [order[1]], "{address}: no fail-back");
    }
}

#[test]
fn a_node_that_crashes_while_its_speaker_is_replaced_is_noticed() {
    for address in BOTH {
        let (mut segment, order) = lent(address);
        segment.run_checked(seconds(5), at_most_one);
        segment.power(order[0], false);
        segment.frames.clear();
        segment.run_checked(seconds(3), at_most_one);
        ask(&mut segment, address);
        assert_eq!(places(&segment, address), [mac(order[1])], "{address}");
    }
}

#[test]
fn of_a_node_that_never_proved_to_live_the_addresses_are_kept_for_ten_seconds() {
    for address in BOTH {
        let mut segment = agreed();
        let order = order(address, 3);
        // Its own address is on another link.
        segment.power(order[0], false);
        segment.lend(order[0]);
        segment.run_checked(millis(500), at_most_one);
        segment.crash(order[0]);
        segment.frames.clear();
        segment.run_checked(seconds(8), at_most_one);
        assert_eq!(places(&segment, address), NO_MACS);
        assert_eq!(segment.answering(address), [order[1]]);
        segment.run_checked(seconds(3), at_most_one);
        assert_eq!(places(&segment, address), [mac(order[1])], "{address}");
    }
}

const NO_MACS: [Mac; 0] = [];

#[test]
fn without_another_speaker_an_address_waits_for_its_own() {
    let mut segment = Segment::new(1, 1);
    segment.set(0, V4, Some(candidate()));
    segment.run(seconds(5));
    assert_eq!(segment.answering(V4), [0]);
    segment.lend(0);
    assert!(segment.has_left(0));
    assert_eq!(segment.answering(V4), [0], "until it ends");
    segment.crash(0);
    assert_eq!(segment.answering(V4), NO_NODE);
}

#[test]
fn a_draining_owner_gives_its_address_away_also_in_an_upgrade() {
    let mut segment = agreed();
    let order = order(V4, 3);
    segment.set(order[0], V4, Some(super::Candidate { draining: true, ..candidate() }));
    segment.lend(order[0]);
    segment.frames.clear();
    segment.run_checked(seconds(1), at_most_one);
    assert_eq!(segment.answering(V4), [order[1]]);
    assert_eq!(places(&segment, V4), [mac(order[1])]);
}

#[test]
fn the_member_that_should_stand_in_may_be_gone() {
    let mut segment = agreed();
    let order = order(V4, 3);
    // The owner does not know it yet.
    segment.crash(order[1]);
    segment.lend(order[0]);
    segment.run_checked(seconds(2), at_most_one);
    assert!(segment.has_left(order[0]));
    assert_eq!(segment.answering(V4), [order[2]], "the address moves, and is not lost");
    assert_eq!(segment.longest_silence(V4).max(millis(20)), millis(20));
}

#[test]
fn without_gossip_a_speaker_that_comes_back_is_heard_before_it_answers() {
    for address in BOTH {
        let (mut segment, order) = lent(address);
        segment.run_checked(seconds(5), at_most_one);
        segment.block_gossip(true);
        segment.start(order[0]);
        segment.set(order[0], address, Some(candidate()));
        segment.run_checked(seconds(8), at_most_one);
        assert_eq!(segment.answering(address), [order[0]], "{address}");
        assert_eq!(places(&segment, address), [mac(order[0])], "{address}");
    }
}

#[test]
fn members_know_the_owner_of_a_lent_address_as_the_one_that_has_it() {
    let (segment, order) = lent(V4);
    let owner = super::Owner::Member(super::MemberId::of(&super::segment::name(order[0])));
    assert_eq!(segment.owner_of(order[1], V4), owner);
    assert_eq!(segment.owner_of(order[2], V4), owner);
    assert_ne!(host(order[0]), host(order[1]));
}
