//! The routes of a peer, as a router that reads the updates sees them.

use super::*;
use crate::bgp::framer::Framer;
use crate::cases::cases;
use proptest::prelude::*;

fn terms() -> Terms {
    Terms {
        families: PerFamily::BOTH,
        next_hops: NextHops {
            v4: Some(Ipv4Addr::new(192, 0, 2, 1)),
            v6: Some("2001:db8::1".parse().unwrap()),
            link_local: None,
        },
        extended_next_hop: false,
        four_octet: true,
        asn: 65_001,
        internal: false,
    }
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn med(med: u32) -> Route {
    Route { med: Some(med), ..Route::default() }
}

fn updates(bytes: &[u8]) -> Vec<Update> {
    let mut framer = Framer::default();
    framer.push(bytes);
    let frames = std::iter::from_fn(|| framer.next_frame().unwrap());
    let messages = frames.map(|frame| Message::decode(&frame, true).unwrap());
    messages
        .map(|it| if let Message::Update(update) = it { *update } else { panic!("{it:?}") })
        .collect()
}

/// What a router has learnt.
#[derive(Debug, Default)]
struct Router {
    routes: BTreeMap<IpNet, Attributes>,
    updates: usize,
}

impl Router {
    fn read(&mut self, bytes: &[u8]) {
        for update in updates(bytes) {
            assert_eq!(update.fault, None);
            self.updates += 1;
            let mut attributes = update.attributes.clone();
            let (reach, unreach) = (attributes.reach.take(), attributes.unreach.take());
            let gone =
                update.withdrawn.into_iter().chain(unreach.into_iter().flat_map(|it| it.prefixes));
            for prefix in gone {
                assert!(self.routes.remove(&prefix).is_some(), "{prefix} was never announced");
            }
            let new =
                update.announced.into_iter().chain(reach.into_iter().flat_map(|it| it.prefixes));
            self.routes.extend(new.map(|prefix| (prefix, attributes.clone())));
        }
    }
}

/// Writes everything and lets a router read it.
fn tell(rib: &mut RibOut, router: &mut Router) -> usize {
    let mut bytes = Vec::new();
    let messages = rib.write(&mut bytes, usize::MAX);
    assert!(rib.is_told());
    router.read(&bytes);
    messages
}

#[test]
fn routes_with_the_same_content_share_messages() {
    let (mut rib, mut router) = (RibOut::default(), Router::default());
    for number in 0..10_000u32 {
        let address = Ipv4Addr::from(0x0a00_0000 + number);
        rib.announce(IpNet::new(address.into(), 32).unwrap(), med(number % 2));
    }
    rib.begin(terms());
    // 5,000 routes of five bytes take seven messages, whatever their order.
    assert!(tell(&mut rib, &mut router) <= 3 * 7);
    assert_eq!((router.routes.len(), rib.told().v4), (10_000, 10_000));
    for number in 0..10_000u32 {
        rib.withdraw(IpNet::new(Ipv4Addr::from(0x0a00_0000 + number).into(), 32).unwrap());
    }
    assert!(tell(&mut rib, &mut router) <= 3 * 7);
    assert_eq!((router.routes.len(), rib.told().v4, rib.entries.len()), (0, 0, 0));
}

#[test]
fn a_change_that_is_taken_back_sends_nothing() {
    let (mut rib, mut router) = (RibOut::default(), Router::default());
    rib.begin(terms());
    rib.announce(net("203.0.113.1/32"), med(1));
    assert_eq!(tell(&mut rib, &mut router), 1);
    rib.announce(net("203.0.113.1/32"), med(1));
    assert!(rib.is_told());
    rib.announce(net("203.0.113.1/32"), med(2));
    rib.withdraw(net("203.0.113.1/32"));
    rib.announce(net("203.0.113.1/32"), med(1));
    rib.announce(net("203.0.113.2/32"), med(1));
    rib.withdraw(net("203.0.113.2/32"));
    assert_eq!(tell(&mut rib, &mut router), 0);
}

#[test]
fn a_changed_attribute_is_an_update_without_a_withdrawal() {
    let (mut rib, mut router) = (RibOut::default(), Router::default());
    rib.begin(terms());
    rib.announce(net("203.0.113.1/32"), Route::default());
    tell(&mut rib, &mut router);
    let communities =
        BTreeSet::from(["65001:7".parse().unwrap(), "large:65001:1:2".parse().unwrap()]);
    rib.announce(net("203.0.113.1/32"), Route { prepend: 2, communities, ..Route::default() });
    let mut bytes = Vec::new();
    rib.write(&mut bytes, usize::MAX);
    let [update] = updates(&bytes).try_into().unwrap();
    assert_eq!(
        update.attributes,
        Attributes {
            origin: Some(Origin::Igp),
            as_path: Some(vec![Segment::Sequence(vec![65_001; 3])]),
            next_hop: Some(Ipv4Addr::new(192, 0, 2, 1)),
            communities: vec![65_001 << 16 | 7],
            large_communities: vec![[65_001, 1, 2]],
            ..Attributes::default()
        }
    );
    assert_eq!((update.withdrawn.len(), update.announced), (0, vec![net("203.0.113.1/32")]));
}

#[test]
fn inside_an_as_there_is_a_preference_and_no_path() {
    let (mut rib, mut router) = (RibOut::default(), Router::default());
    rib.begin(Terms { internal: true, ..terms() });
    rib.announce(net("203.0.113.1/32"), Route { local_pref: Some(300), ..Route::default() });
    rib.announce(net("203.0.113.2/32"), Route::default());
    tell(&mut rib, &mut router);
    let of = |router: &Router, it: &str| {
        let attributes = &router.routes[&net(it)];
        (attributes.local_pref, attributes.as_path.clone(), attributes.communities.clone())
    };
    assert_eq!(of(&router, "203.0.113.1/32"), (Some(300), Some(vec![]), vec![]));
    assert_eq!(of(&router, "203.0.113.2/32"), (Some(100), Some(vec![]), vec![]));
    rib.drain(true);
    tell(&mut rib, &mut router);
    assert_eq!(of(&router, "203.0.113.1/32"), (Some(0), Some(vec![]), vec![0xffff_0000]));
    rib.drain(false);
    tell(&mut rib, &mut router);
    assert_eq!(of(&router, "203.0.113.1/32"), (Some(300), Some(vec![]), vec![]));
}

#[test]
fn what_replaces_a_route_is_announced_before_the_route_is_withdrawn() {
    let (mut rib, mut router) = (RibOut::default(), Router::default());
    rib.begin(terms());
    rib.announce(net("203.0.113.1/32"), Route::default());
    tell(&mut rib, &mut router);
    rib.withdraw(net("203.0.113.1/32"));
    rib.announce(net("203.0.113.0/24"), Route::default());
    let mut bytes = Vec::new();
    rib.write(&mut bytes, usize::MAX);
    let [first, second] = updates(&bytes).try_into().unwrap();
    assert_eq!(first.announced, [net("203.0.113.0/24")]);
    assert_eq!(second.withdrawn, [net("203.0.113.1/32")]);
}

#[test]
fn ipv4_routes_have_an_ipv6_next_hop_only_where_the_peer_can() {
    let link: Ipv6Addr = "fe80::1".parse().unwrap();
    let next_hops = NextHops { v4: None, v6: None, link_local: Some(link) };
    for (extended_next_hop, told) in [(true, 2), (false, 1)] {
        let (mut rib, mut router) = (RibOut::default(), Router::default());
        rib.begin(Terms { next_hops, extended_next_hop, ..terms() });
        rib.announce(net("203.0.113.1/32"), Route::default());
        rib.announce(net("2001:db8::1/128"), Route::default());
        let mut bytes = Vec::new();
        rib.write(&mut bytes, usize::MAX);
        for update in updates(&bytes) {
            let reach = update.attributes.reach.as_ref().unwrap();
            assert_eq!(reach.next_hop, MpNextHop::V6(link));
        }
        router.read(&bytes);
        assert_eq!(router.routes.len(), told);
        let reason =
            "this node has no IPv4 address that the peer could send traffic to; set nextHop";
        assert_eq!(rib.held_back(Family::V4), (!extended_next_hop).then(|| reason.to_owned()));
    }
}

#[test]
fn routes_without_a_next_hop_any_more_are_withdrawn_and_come_back() {
    let (mut rib, mut router) = (RibOut::default(), Router::default());
    rib.begin(terms());
    rib.announce(net("2001:db8::1/128"), Route::default());
    tell(&mut rib, &mut router);
    rib.set_next_hops(NextHops { v6: None, ..terms().next_hops });
    tell(&mut rib, &mut router);
    assert_eq!((router.routes.len(), rib.told().v6), (0, 0));
    rib.set_next_hops(terms().next_hops);
    tell(&mut rib, &mut router);
    assert_eq!((router.routes.len(), rib.told().v6), (1, 1));
}

#[test]
fn a_next_hop_that_comes_back_at_once_withdraws_nothing() {
    let (mut rib, mut router) = (RibOut::default(), Router::default());
    rib.begin(terms());
    rib.announce(net("203.0.113.1/32"), Route::default());
    rib.announce(net("2001:db8::1/128"), Route::default());
    tell(&mut rib, &mut router);
    rib.set_next_hops(NextHops { v6: None, ..terms().next_hops });
    rib.announce(net("203.0.113.2/32"), Route::default());
    let mut bytes = Vec::new();
    rib.write(&mut bytes, 1);
    router.read(&bytes);
    rib.set_next_hops(terms().next_hops);
    tell(&mut rib, &mut router);
    assert_eq!((router.routes.len(), rib.told()), (3, PerFamily { v4: 2, v6: 1 }));
}

#[test]
fn a_route_with_too_much_content_still_fits_into_a_message() {
    let (mut rib, mut router) = (RibOut::default(), Router::default());
    rib.begin(Terms { four_octet: false, asn: 4_200_000_000, ..terms() });
    let large = (0..500).map(|it| Community::Large(it, it, it));
    let communities = large.chain((0..500).map(Community::Standard)).collect();
    rib.announce(net("2001:db8::1/128"), Route { prepend: 255, communities, ..med(1) });
    let mut bytes = Vec::new();
    assert_eq!(rib.write(&mut bytes, usize::MAX), 1);
    assert!(bytes.len() <= LONGEST);
    rib.begin(terms());
    tell(&mut rib, &mut router);
    assert_eq!(router.routes.len(), 1);
}

#[test]
fn a_peer_that_reads_slowly_gets_the_last_state_only() {
    let (mut rib, mut router) = (RibOut::default(), Router::default());
    rib.begin(terms());
    for number in 0..20_000u32 {
        rib.announce(IpNet::new(Ipv4Addr::from(0x0a00_0000 + number).into(), 32).unwrap(), med(1));
    }
    let mut bytes = Vec::new();
    rib.write(&mut bytes, 1);
    assert!(bytes.len() < 6 * GROUPED, "{}", bytes.len());
    router.read(&bytes);
    for number in 0..20_000u32 {
        rib.withdraw(IpNet::new(Ipv4Addr::from(0x0a00_0000 + number).into(), 32).unwrap());
    }
    tell(&mut rib, &mut router);
    assert_eq!(router.routes.len(), 0);
    assert_eq!(router.updates, 2 * 6, "only what was told is withdrawn");
}

#[derive(Clone, Debug)]
enum Step {
    Announce(usize, Route),
    Withdraw(usize),
    Write(usize),
    Refresh(Family),
    Drain(bool),
    NextHops(bool, bool),
    Session,
}

const PREFIXES: [&str; 6] = [
    "10.0.0.1/32",
    "10.0.0.2/32",
    "10.0.0.0/24",
    "2001:db8::1/128",
    "2001:db8::2/128",
    "2001:db8::/64",
];

fn step() -> impl Strategy<Value = Step> {
    let route = (0u32..2, 0u8..2).prop_map(|(value, prepend)| Route { prepend, ..med(value) });
    prop_oneof![
        6 => (0usize..6, route).prop_map(|(at, route)| Step::Announce(at, route)),
        4 => (0usize..6).prop_map(Step::Withdraw),
        4 => prop_oneof![Just(0), Just(1), Just(usize::MAX)].prop_map(Step::Write),
        1 => prop_oneof![Just(Family::V4), Just(Family::V6)].prop_map(Step::Refresh),
        1 => any::<bool>().prop_map(Step::Drain),
        1 => any::<(bool, bool)>().prop_map(|(v4, v6)| Step::NextHops(v4, v6)),
        1 => Just(Step::Session),
    ]
}

proptest! {
    #![proptest_config(cases(100))]

    #[test]
    fn after_any_history_the_router_has_the_wanted_routes(steps in prop::collection::vec(step(), 0..60)) {
        let (mut rib, mut router, mut terms) = (RibOut::default(), Router::default(), terms());
        let (mut wanted, mut draining) = (BTreeMap::new(), false);
        rib.begin(terms);
        for step in steps {
            match step {
                Step::Announce(at, route) => {
                    wanted.insert(net(PREFIXES[at]), route.clone());
                    rib.announce(net(PREFIXES[at]), route);
                }
                Step::Withdraw(at) => {
                    wanted.remove(&net(PREFIXES[at]));
                    rib.withdraw(net(PREFIXES[at]));
                }
                Step::Write(room) => {
                    let mut bytes = Vec::new();
                    rib.write(&mut bytes, room);
                    router.read(&bytes);
                }
                Step::Refresh(family) => rib.resend(family),
                Step::Drain(value) => {
                    draining = value;
                    rib.drain(value);
                }
                Step::NextHops(v4, v6) => {
                    let all = super::tests::terms().next_hops;
                    terms.next_hops =
                        NextHops { v4: all.v4.filter(|_| v4), v6: all.v6.filter(|_| v6), link_local: None };
                    rib.set_next_hops(terms.next_hops);
                }
                Step::Session => {
                    router = Router::default();
                    rib.begin(terms);
                }
            }
        }
        tell(&mut rib, &mut router);
        let expected = wanted.into_iter().filter_map(|(prefix, route)| {
            let mut expected = attributes(&route, &terms, draining);
            match terms.next_hop(Family::of(&prefix))? {
                NextHop::Classic(address) => expected.next_hop = Some(address),
                NextHop::Mp(_) => {}
            }
            Some((prefix, expected))
        });
        let expected: BTreeMap<_, _> = expected.collect();
        prop_assert_eq!(rib.told().v4 + rib.told().v6, expected.len());
        prop_assert_eq!(&router.routes, &expected);
        prop_assert_eq!(tell(&mut rib, &mut router), 0);
    }
}
