//! Which links count for an address, and which frames.

use super::super::Link;
use super::segment::{LINK, Segment, eth0, mac, millis, name, seconds};
use super::{Frame, MemberId, NO_NODE, STRANGER, V4, agreed, candidate, order};
use crate::l2::frame::Mac;

const STORAGE: u32 = 8;

/// A link that is in no network of the addresses.
fn storage(node: usize) -> Link {
    let networks = vec!["172.16.0.0/16".parse().expect("a network")];
    let mac = Mac([2, 0, 0, 0, 1, node as u8]);
    Link { name: "eth1".into(), mac, networks, home: false, ..eth0(node) }
}

#[test]
fn frames_of_another_link_count_for_nothing() {
    let mut segment = agreed();
    let order = order(V4, 3);
    segment.crash(order[0]);
    segment.run(seconds(4));
    segment.start(order[0]);
    segment.set(order[0], V4, Some(candidate()));
    segment.run(seconds(4));
    let owner = order[1];
    segment.interface(owner, STORAGE, Some(storage(owner)));
    for mac in [mac(order[0]), STRANGER] {
        segment.hear_on(owner, STORAGE, &Frame::Claim { address: V4, mac });
        assert_eq!(segment.answering(V4), [owner], "{mac}");
    }
    assert_eq!((segment.conflicts.as_slice(), segment.elsewhere.as_slice()), (&[][..], &[][..]));
}

#[test]
fn a_forged_frame_of_a_member_takes_no_address_away() {
    let mut segment = agreed();
    let order = order(V4, 3);
    segment.crash(order[0]);
    segment.run(seconds(4));
    segment.start(order[0]);
    segment.set(order[0], V4, Some(candidate()));
    segment.run(seconds(4));
    let owner = order[1];
    assert_eq!(segment.answering(V4), [owner], "a member of higher rank is there");
    for _ in 0..50 {
        segment.hear(owner, &Frame::Claim { address: V4, mac: mac(order[0]) });
        assert_eq!(segment.answering(V4), [owner]);
        segment.run(millis(30));
    }
}

#[test]
fn forged_frames_of_a_member_do_not_keep_an_address_from_failing_over() {
    let mut segment = agreed();
    let order = order(V4, 3);
    segment.crash(order[0]);
    let at = segment.now;
    while segment.answering(V4) == NO_NODE {
        assert!(segment.now - at < seconds(6), "nobody takes it");
        segment.run(millis(20));
        segment.hear(order[1], &Frame::Claim { address: V4, mac: mac(order[2]) });
    }
    assert_eq!(segment.answering(V4), [order[1]]);
    let by = MemberId::of(&name(order[2]));
    assert_eq!(segment.contradicted, [(order[1], V4, by)], "told once");
}

#[test]
fn an_owner_whose_link_of_the_address_is_down_hands_it_over_although_other_links_are_up() {
    let mut segment = agreed();
    let order = order(V4, 3);
    segment.interface(order[0], STORAGE, Some(storage(order[0])));
    segment.run(seconds(1));
    assert_eq!(segment.answering(V4), [order[0]]);
    segment.link(order[0], false);
    segment.run(seconds(1));
    assert_eq!(segment.answering(V4), [order[1]]);
    assert_eq!(segment.elsewhere, [], "the other link has nothing to do with the address");
}

#[test]
fn a_node_of_another_network_has_an_address_only_while_no_other_node_may() {
    let mut segment = Segment::new(3, 1);
    let order = order(V4, 3);
    let far = Link { networks: storage(0).networks, ..eth0(order[0]) };
    segment.interface(order[0], LINK, Some(far));
    for node in 0..3 {
        segment.set(node, V4, Some(candidate()));
    }
    segment.run(seconds(6));
    assert_eq!(segment.answering(V4), [order[1]], "the first in the network of the address");
    segment.set(order[1], V4, None);
    segment.set(order[2], V4, None);
    segment.run(seconds(3));
    assert_eq!(segment.answering(V4), [order[0]], "better than none");
    segment.set(order[2], V4, Some(candidate()));
    segment.run(seconds(3));
    assert_eq!(segment.answering(V4), [order[2]], "it gives way");
}

#[test]
fn an_interface_that_no_address_belongs_to_causes_no_frame_and_touches_no_address() {
    let mut segment = agreed();
    let owner = segment.answering(V4)[0];
    segment.run(seconds(10));
    segment.frames.clear();
    for number in 0..20 {
        let link = storage(owner);
        segment.interface(owner, 100 + number, Some(link));
        assert_eq!(segment.touched(owner), 0, "it comes");
        segment.interface(owner, 100 + number, None);
        assert_eq!(segment.touched(owner), 0, "it goes");
        segment.run(seconds(1));
    }
    assert_eq!((segment.frames.as_slice(), segment.elsewhere.as_slice()), (&[][..], &[][..]));
    // Its own link is announced on again.
    segment.link(owner, false);
    segment.link(owner, true);
    segment.run(seconds(1));
    assert!(!segment.frames.is_empty());
}
