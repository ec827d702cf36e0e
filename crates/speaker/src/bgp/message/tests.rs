//! Messages against an independent implementation (netgauze-bgp-pkt), and against bytes that no router should send.

use super::*;
use crate::bgp::attributes::{Attributes, MpNextHop, Origin, Reach, Segment, Unreach};
use crate::bgp::family::{Family, PerFamily};
use crate::bgp::framer::Framer;
use crate::bgp::open::{AS_TRANS, Capabilities, GracefulRestart};
use crate::cases::cases;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use netgauze_bgp_pkt::BgpMessage;
use netgauze_bgp_pkt::wire::deserializer::BgpParsingContext;
use netgauze_parse_utils::WritablePdu as _;
use netgauze_parse_utils::reader::SliceReader;
use netgauze_parse_utils::traits::ParseFromWithOneInput as _;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use std::collections::HashMap;

fn v4() -> impl Strategy<Value = IpNet> {
    (any::<u32>(), 0u8..=32)
        .prop_map(|(ip, len)| Ipv4Net::new(ip.into(), len).unwrap().trunc().into())
}

/// Multicast prefixes are not unicast routes, and the other implementation refuses them.
fn unicast4() -> impl Strategy<Value = IpNet> {
    v4().prop_filter("unicast", |net| match net {
        IpNet::V4(net) => !net.addr().is_multicast() && !net.addr().is_broadcast(),
        IpNet::V6(_) => false,
    })
}

fn v6() -> impl Strategy<Value = IpNet> {
    (any::<u128>(), 0u8..=128).prop_map(|(ip, len)| {
        // 2000::/3.
        let ip = ip >> 3 | 1 << 125;
        Ipv6Net::new(ip.into(), len).unwrap().trunc().into()
    })
}

fn capabilities() -> impl Strategy<Value = Capabilities> {
    let per_family = |it: (bool, bool)| PerFamily { v4: it.0, v6: it.1 };
    let restart = (any::<bool>(), 0u16..4096, option::of(any::<bool>()), option::of(any::<bool>()));
    let restart = restart.prop_map(|(restarted, restart_time, v4, v6)| GracefulRestart {
        restarted,
        notification: false,
        restart_time,
        forwarding: PerFamily { v4, v6 },
    });
    let families =
        any::<(bool, bool)>().prop_filter("some", |it| it.0 || it.1).prop_map(per_family);
    (option::of(families), any::<bool>(), any::<bool>(), any::<bool>(), option::of(restart))
        .prop_map(|(families, four_octet, route_refresh, extended_next_hop, graceful_restart)| {
            Capabilities {
                families,
                four_octet,
                route_refresh,
                extended_next_hop,
                graceful_restart,
            }
        })
}

fn open() -> impl Strategy<Value = Open> {
    let asn = prop_oneof![1u32..65_536, 65_536u32..];
    // The other implementation refuses identifiers from 224.0.0.0 on, which RFC 6286 allows.
    let id = 1u32..0xe000_0000;
    (asn, prop_oneof![Just(0u16), 3u16..], id, capabilities()).prop_map(
        |(asn, hold_time, id, capabilities)| {
            let asn = if capabilities.four_octet { asn } else { asn % 65_535 + 1 };
            Open { asn, hold_time, id: id.into(), capabilities }
        },
    )
}

fn path() -> impl Strategy<Value = Vec<Segment>> {
    let segment = prop_oneof![
        vec(1u32.., 1..4).prop_map(Segment::Sequence),
        vec(1u32.., 1..4).prop_map(Segment::Set),
    ];
    vec(segment, 0..3)
}

fn mp_next_hop() -> impl Strategy<Value = MpNextHop> {
    prop_oneof![
        any::<u128>().prop_map(|it| MpNextHop::V6(it.into())),
        any::<(u128, u64)>().prop_map(|(it, link)| {
            MpNextHop::V6Both(it.into(), (0xfe80 << 112 | u128::from(link)).into())
        }),
    ]
}

fn update() -> impl Strategy<Value = Update> {
    let reach = (mp_next_hop(), any::<bool>(), vec(v6(), 1..9), vec(unicast4(), 1..9));
    let reach = reach.prop_map(|(next_hop, six, v6, v4)| Reach {
        family: if six { Family::V6 } else { Family::V4 },
        next_hop,
        prefixes: if six { v6 } else { v4 },
    });
    let unreach = vec(v6(), 1..9).prop_map(|prefixes| Unreach { family: Family::V6, prefixes });
    let numbers = (option::of(any::<u32>()), option::of(any::<u32>()), any::<bool>());
    let communities = (vec(any::<u32>(), 0..80), vec(any::<[u32; 3]>(), 0..30));
    let routes =
        (vec(unicast4(), 0..9), vec(unicast4(), 0..9), option::of(reach), option::of(unreach));
    (path(), any::<u32>(), numbers, communities, routes).prop_map(
        |(path, next_hop, (med, local_pref, atomic_aggregate), communities, routes)| {
            let (withdrawn, announced, reach, unreach) = routes;
            let attributes = Attributes {
                origin: Some(Origin::Igp),
                as_path: Some(path),
                next_hop: (!announced.is_empty()).then(|| next_hop.into()),
                med,
                local_pref,
                atomic_aggregate,
                communities: communities.0,
                large_communities: communities.1,
                reach,
                unreach,
            };
            Update { withdrawn, attributes, announced, fault: None }
        },
    )
}

fn notification() -> impl Strategy<Value = Notification> {
    let known = prop_oneof![
        Just(Kind::HOLD_TIMER),
        Just(Kind::PEER_AS),
        Just(Kind::NOT_SYNCHRONIZED),
        Just(Kind::IN_OPEN_SENT),
        Just(Kind::COLLISION),
    ];
    prop_oneof![
        known.prop_map(Notification::new),
        "[a-z ]{0,40}".prop_map(|text| Notification::with_text(Kind::SHUTDOWN, &text)),
    ]
}

fn message() -> impl Strategy<Value = Message> {
    let family = prop_oneof![Just(Family::V4), Just(Family::V6)];
    prop_oneof![
        open().prop_map(Message::Open),
        update().prop_map(|it| Message::Update(Box::new(it))),
        notification().prop_map(Message::Notification),
        Just(Message::KeepAlive),
        family.prop_map(|it| Message::RouteRefresh(RouteRefresh { family: Some(it) })),
    ]
}

fn decode(bytes: &[u8], four_octet: bool) -> Result<Message, Refusal> {
    let mut framer = Framer::default();
    framer.push(bytes);
    let frame = framer.next_frame()?.expect("a whole message");
    Message::decode(&frame, four_octet)
}

/// The message as the other implementation reads and writes it.
fn elsewhere(bytes: &[u8], four_octet: bool) -> Vec<u8> {
    let mut context =
        BgpParsingContext::new(four_octet, HashMap::new(), HashMap::new(), true, true, true, true);
    let mut reader = SliceReader::new(bytes);
    let message = BgpMessage::parse(&mut reader, &mut context)
        .unwrap_or_else(|e| panic!("netgauze reads {bytes:02x?}: {e:?}"));
    let mut out = Vec::new();
    message.write(&mut out).unwrap_or_else(|e| panic!("netgauze writes {message:?}: {e:?}"));
    out
}

proptest! {
    #![proptest_config(cases(100))]

    #[test]
    fn a_message_is_the_same_after_another_implementation_read_and_wrote_it(message in message()) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes, true);
        prop_assert_eq!(decode(&bytes, true).unwrap(), message.clone());
        prop_assert_eq!(decode(&elsewhere(&bytes, true), true).unwrap(), message);
    }

    #[test]
    fn bytes_are_read_or_refused_and_never_a_panic(
        kind in 0u8..7, body in vec(any::<u8>(), 0..200), four_octet: bool,
    ) {
        if let Ok(message) = Message::decode(&Frame { kind, body }, four_octet) {
            let mut again = Vec::new();
            message.encode(&mut again, four_octet);
        }
    }

    #[test]
    fn a_damaged_message_is_read_or_refused_and_never_a_panic(
        message in message(), damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4), four_octet: bool,
    ) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes, true);
        let mut body = bytes.split_off(HEADER);
        let kind = bytes[HEADER - 1];
        for (at, byte) in damage {
            if !body.is_empty() {
                let at = at.index(body.len());
                body[at] = byte;
            }
        }
        let _ = Message::decode(&Frame { kind, body }, four_octet);
    }
}

fn sample() -> Update {
    Update {
        attributes: Attributes {
            origin: Some(Origin::Igp),
            as_path: Some(vec![Segment::Sequence(vec![4_200_000_000, 65_000])]),
            next_hop: Some("192.0.2.1".parse().unwrap()),
            ..Attributes::default()
        },
        announced: vec!["203.0.113.7/32".parse().unwrap()],
        ..Update::default()
    }
}

#[test]
fn to_a_peer_with_small_as_numbers_the_true_path_travels_beside_the_path() {
    let mut bytes = Vec::new();
    Message::Update(Box::new(sample())).encode(&mut bytes, false);
    let Message::Update(read) = decode(&bytes, false).unwrap() else { panic!("an UPDATE") };
    let small = vec![Segment::Sequence(vec![AS_TRANS.into(), 65_000])];
    assert_eq!(read.attributes.as_path, Some(small));
    // Flags, code 17, length, a sequence of two.
    let as4_path = [0xc0, 17, 10, 2, 2, 0xfa, 0x56, 0xea, 0, 0, 0, 0xfd, 0xe8];
    assert!(bytes.windows(as4_path.len()).any(|it| it == as4_path), "{bytes:02x?}");
}

/// An UPDATE from parts: withdrawn routes, attributes, announced routes.
fn raw(withdrawn: &[u8], attributes: &[u8], announced: &[u8]) -> Result<Message, Refusal> {
    let length = |part: &[u8]| u16::try_from(part.len()).unwrap().to_be_bytes();
    let body = [&length(withdrawn), withdrawn, &length(attributes), attributes, announced].concat();
    Message::decode(&Frame { kind: 2, body }, true)
}

const ORIGIN: [u8; 4] = [0x40, 1, 1, 0];
const AS_PATH: [u8; 9] = [0x40, 2, 6, 2, 1, 0, 0, 0xfd, 0xe8];
const NEXT_HOP: [u8; 7] = [0x40, 3, 4, 192, 0, 2, 1];
const PREFIX: [u8; 4] = [24, 203, 0, 113];

#[test]
fn bad_attributes_withdraw_their_routes_and_leave_the_session_up() {
    let good = [ORIGIN.as_slice(), &AS_PATH, &NEXT_HOP].concat();
    let with = |more: &[u8]| [good.as_slice(), more].concat();
    let instead = |at: usize, other: &[u8]| {
        let mut parts = [ORIGIN.as_slice(), &AS_PATH, &NEXT_HOP];
        parts[at] = other;
        parts.concat()
    };
    for (attributes, fault) in [
        (good.clone(), None),
        (instead(0, &[]), Some("the origin is missing")),
        (instead(1, &[]), Some("the AS path is missing")),
        (instead(2, &[]), Some("the next hop is missing")),
        (instead(0, &[0x40, 1, 1, 3]), Some("attribute 1 has a malformed value")),
        (instead(0, &[0xc0, 1, 1, 0]), Some("attribute 1 has the wrong flags")),
        (instead(1, &[0x40, 2, 2, 2, 0]), Some("attribute 2 has a malformed value")),
        (instead(1, &[0x40, 2, 6, 9, 1, 0, 0, 0, 1]), Some("attribute 2 has a malformed value")),
        (instead(1, &[0x40, 2, 6, 2, 9, 0, 0, 0, 1]), Some("attribute 2 has a malformed value")),
        (instead(2, &[0x40, 3, 3, 192, 0, 2]), Some("attribute 3 has a malformed value")),
        (with(&[0x80, 4, 1, 0]), Some("attribute 4 has a malformed value")),
        (with(&[0x40, 5, 5, 0, 0, 0, 0, 0]), Some("attribute 5 has a malformed value")),
        (with(&[0xc0, 8, 0]), Some("attribute 8 has a malformed value")),
        (with(&[0xc0, 8, 3, 0, 0, 0]), Some("attribute 8 has a malformed value")),
        (with(&[0xc0, 32, 8, 0, 0, 0, 0, 0, 0, 0, 0]), Some("attribute 32 has a malformed value")),
        (with(&[0x40, 200, 0]), Some("attribute 200 is mandatory and unknown")),
        (with(&[0xc0, 200, 9, 0]), Some("the attributes are longer than their length says")),
        // Of no meaning for the route, unknown, or there twice.
        (with(&[0x40, 6, 1, 0]), None),
        (with(&[0xc0, 7, 1, 0]), None),
        (with(&[0xc0, 200, 1, 0]), None),
        (with(&[0x40, 1, 1, 9]), None),
    ] {
        let Message::Update(update) = raw(&[], &attributes, &PREFIX).unwrap() else {
            panic!("an UPDATE")
        };
        assert_eq!(update.fault.as_deref(), fault, "{attributes:02x?}");
        assert_eq!(update.announced_count(), 1);
    }
}

#[test]
fn an_update_whose_prefixes_cannot_be_found_ends_the_session() {
    let good = [ORIGIN.as_slice(), &AS_PATH, &NEXT_HOP].concat();
    let mp = |value: &[u8]| [&[0x80, 14, value.len() as u8], value].concat();
    for (result, kind) in [
        (raw(&[], &good, &[33, 1, 2, 3, 4, 5]), Kind::NETWORK),
        (raw(&[], &good, &[24, 1, 2]), Kind::NETWORK),
        (raw(&[255], &[], &[]), Kind::NETWORK),
        (raw(&[], &mp(&[0, 2]), &[]), Kind::OPTIONAL_ATTRIBUTE),
        (raw(&[], &mp(&[0, 2, 1, 4, 1, 2, 3, 4, 0]), &[]), Kind::OPTIONAL_ATTRIBUTE),
        (raw(&[], &mp(&[0, 2, 1, 16, 1]), &[]), Kind::OPTIONAL_ATTRIBUTE),
        (
            raw(&[], &[mp(&[0, 9, 9, 0, 0]), mp(&[0, 9, 9, 0, 0])].concat(), &[]),
            Kind::ATTRIBUTE_LIST,
        ),
        (Message::decode(&Frame { kind: 2, body: vec![0, 9, 0, 0] }, true), Kind::ATTRIBUTE_LIST),
        (Message::decode(&Frame { kind: 2, body: vec![0] }, true), Kind::ATTRIBUTE_LIST),
        (Message::decode(&Frame { kind: 6, body: vec![] }, true), Kind::BAD_TYPE),
        (Message::decode(&Frame { kind: 4, body: vec![1] }, true), Kind::BAD_LENGTH),
        (Message::decode(&Frame { kind: 3, body: vec![1] }, true), Kind::BAD_LENGTH),
        (Message::decode(&Frame { kind: 5, body: vec![0, 1, 0] }, true), Kind::REFRESH_LENGTH),
    ] {
        assert_eq!(result.unwrap_err().notification.kind, kind);
    }
}

#[test]
fn a_family_that_is_not_announced_here_is_skipped() {
    // VPN-IPv4 with a next hop of 12 bytes.
    let mp = [&[0x80, 14, 20, 0, 1, 128, 12][..], &[0; 16]].concat();
    let Message::Update(update) = raw(&[], &mp, &[]).unwrap() else { panic!("an UPDATE") };
    assert_eq!((update.announced_count(), update.fault), (0, None));
}

#[test]
fn the_end_of_a_rib_is_recognized() {
    for family in Family::ALL {
        let bytes = Message::Update(Box::new(Update::end_of_rib(family))).bytes();
        let Message::Update(update) = decode(&bytes, true).unwrap() else { panic!("an UPDATE") };
        assert_eq!(update.ends_rib(), Some(family));
    }
    assert_eq!(sample().ends_rib(), None);
}

#[test]
fn an_open_that_cannot_be_is_refused() {
    let start = [4, 0xfd, 0xe8, 0, 90, 192, 0, 2, 1];
    let open = |rest: &[u8]| {
        Message::decode(&Frame { kind: 1, body: [start.as_slice(), rest].concat() }, true)
    };
    for (result, kind) in [
        (open(&[]), Kind::OPEN),
        (open(&[1]), Kind::OPEN),
        (open(&[0, 0]), Kind::OPEN),
        (open(&[2, 2, 9]), Kind::OPEN),
        (open(&[2, 1, 0]), Kind::PARAMETER),
        (open(&[4, 2, 2, 65, 4]), Kind::OPEN),
        (open(&[5, 2, 3, 65, 1, 0]), Kind::OPEN),
        (open(&[5, 2, 3, 1, 1, 0]), Kind::OPEN),
        (Message::decode(&Frame { kind: 1, body: vec![3] }, true), Kind::VERSION),
        (Message::decode(&Frame { kind: 1, body: vec![4, 0] }, true), Kind::BAD_LENGTH),
    ] {
        assert_eq!(result.unwrap_err().notification.kind, kind);
    }
}

#[test]
fn an_open_with_long_parameters_is_read() {
    // RFC 9072: 255, 255, a length of two bytes, and lengths of two bytes in it.
    let body =
        [4, 0x5b, 0xa0, 0, 90, 192, 0, 2, 1, 255, 255, 0, 9, 2, 0, 6, 65, 4, 0xfa, 0x56, 0xea, 0];
    let Message::Open(open) =
        Message::decode(&Frame { kind: 1, body: body.to_vec() }, true).unwrap()
    else {
        panic!("an OPEN")
    };
    assert_eq!((open.asn, open.capabilities.four_octet), (4_200_000_000, true));
}
