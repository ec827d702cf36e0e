use super::{Frame, Mac, Question, Refused, announcement, answer, parse, probe, solicited_node};
use crate::cases::cases;
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const OURS: Mac = Mac([2, 0, 0, 0, 0, 1]);
const THEIRS: Mac = Mac([2, 0, 0, 0, 0, 2]);

fn v4(last: u8) -> IpAddr {
    Ipv4Addr::new(192, 0, 2, last).into()
}

fn v6(last: u16) -> IpAddr {
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last).into()
}

/// Which host has 192.0.2.10? Tell 10.0.0.1. As Linux sends it, with the padding of a real network card.
const REQUEST: &str = "ffffffffffff 020000000002 0806 0001 0800 06 04 0001 020000000002 0a000001 \
     000000000000 c000020a 000000000000000000000000000000000000";

/// Which host has 2001:db8::10? From fd00::1, as Linux sent it.
const SOLICITATION: &str = "3333ff000010 ce73b1ed1f2b 86dd 60000000 0020 3a ff \
     fd000000000000000000000000000001 ff0200000000000000000001ff000010 \
     8700 af37 00000000 20010db8000000000000000000000010 0101 ce73b1ed1f2b";

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pair = |it: &[u8]| u8::from_str_radix(std::str::from_utf8(it).expect("ASCII"), 16);
    digits.chunks(2).map(|it| pair(it).expect("two digits")).collect()
}

#[test]
fn questions_of_linux_are_understood() {
    let question = |address, mac, asker: &str| {
        let asker = Some(asker.parse().expect("an address"));
        Ok(Frame::Question(Question { address, mac, asker }))
    };
    assert_eq!(parse(&bytes(REQUEST)), question(v4(10), THEIRS, "10.0.0.1"));
    let mac = Mac([0xce, 0x73, 0xb1, 0xed, 0x1f, 0x2b]);
    assert_eq!(parse(&bytes(SOLICITATION)), question(v6(0x10), mac, "fd00::1"));
}

#[test]
fn what_a_speaker_sends_says_what_it_means() {
    for (address, asker) in [(v4(10), v4(1)), (v6(10), v6(1))] {
        let claim = Ok(Frame::Claim { address, mac: OURS });
        for frame in announcement(OURS, address) {
            assert_eq!(parse(&frame), claim, "announcement of {address}");
        }
        for asker in [Some(asker), None] {
            let question = Question { address, mac: THEIRS, asker };
            let frame = answer(OURS, &question);
            assert_eq!(parse(&frame), claim, "{question:?}");
            let to_all = asker.is_none() && address.is_ipv6();
            assert_eq!(frame[..6] == THEIRS.0, !to_all, "{question:?}: sent to {:?}", &frame[..6]);
        }
        assert_eq!(
            parse(&probe(OURS, address)),
            Ok(Frame::Question(Question { address, mac: OURS, asker: None })),
        );
    }
}

#[test]
fn a_group_is_made_of_the_last_three_bytes() {
    let address = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0x12, 0x3456);
    assert_eq!(solicited_node(address).to_string(), "ff02::1:ff12:3456");
}

/// The solicitation with other bytes at an offset, and with the checksum of the result.
fn solicitation_with(at: usize, replaced: &[u8]) -> Vec<u8> {
    let mut frame = bytes(SOLICITATION);
    frame[at..at + replaced.len()].copy_from_slice(replaced);
    frame[56..58].fill(0);
    let words = frame[22..].chunks(2).map(|it| u32::from(u16::from_be_bytes([it[0], it[1]])));
    let mut sum: u32 = words.sum::<u32>() + 32 + 58;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    frame[56..58].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    frame
}

#[test]
fn messages_that_the_rfcs_forbid_are_refused() {
    assert!(parse(&solicitation_with(0, &[])).is_ok(), "the checksum of the test is right");
    let unspecified = [0; 16];
    let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1).octets();
    for (what, frame, expected) in [
        ("the hop limit of a router", solicitation_with(21, &[254]), Refused::HopLimit),
        ("an extension header", solicitation_with(20, &[0]), Refused::Other),
        ("an echo request", solicitation_with(54, &[128]), Refused::Other),
        ("a group as target", solicitation_with(62, &group), Refused::Nonsense),
        (
            "a detection with a link-layer address",
            solicitation_with(22, &unspecified),
            Refused::Nonsense,
        ),
        ("an option of length 0", solicitation_with(79, &[0]), Refused::Nonsense),
        ("an option that ends outside", solicitation_with(79, &[2]), Refused::Nonsense),
        ("a group as link-layer address", solicitation_with(80, &[0xff]), Refused::Nonsense),
        ("a group as source", solicitation_with(6, &[0xff]), Refused::Nonsense),
        (
            "a changed byte",
            {
                let mut it = bytes(SOLICITATION);
                it[70] ^= 1;
                it
            },
            Refused::Checksum,
        ),
    ] {
        assert_eq!(parse(&frame), Err(expected), "{what}");
    }
    let with = |at: usize, replaced: &[u8]| {
        let mut frame = bytes(REQUEST);
        frame[at..at + replaced.len()].copy_from_slice(replaced);
        parse(&frame)
    };
    for (what, at, replaced, expected) in [
        ("another network", 14, [0, 6].as_slice(), Refused::Other),
        ("another protocol", 16, &[8, 6], Refused::Other),
        ("a longer link-layer address", 18, &[8], Refused::Other),
        ("an unknown operation", 20, &[0, 3], Refused::Other),
        ("a group as sender", 22, &[1], Refused::Nonsense),
        ("the broadcast address as sender", 28, &[255; 4], Refused::Nonsense),
        ("a group as target", 38, &[224, 0, 0, 1], Refused::Nonsense),
        ("VLAN", 12, &[0x81, 0], Refused::Other),
    ] {
        assert_eq!(with(at, replaced), Err(expected), "{what}");
    }
}

#[test]
fn every_beginning_of_a_frame_is_refused() {
    for (frame, length) in [(bytes(REQUEST), 42), (bytes(SOLICITATION), 86)] {
        for end in 0..length {
            assert!(parse(&frame[..end]).is_err(), "{end} bytes of {length}");
        }
        assert!(parse(&frame[..length]).is_ok());
    }
}

proptest! {
    #![proptest_config(cases(100))]

    #[test]
    fn hostile_frames_are_refused_or_name_one_host(
        v6 in any::<bool>(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        noise in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut frame = if v6 { solicitation_with(0, &[]) } else { bytes(REQUEST) };
        for (at, byte) in changes {
            let at = at.index(frame.len());
            frame[at] = byte;
        }
        for bytes in [frame, noise] {
            if let Ok(Frame::Claim { address, mac } | Frame::Question(Question { address, mac, .. })) =
                parse(&bytes)
            {
                prop_assert!(mac.is_unicast() && !address.is_multicast(), "{address} at {mac}");
            }
        }
    }
}
