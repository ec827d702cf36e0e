use super::{Datagram, Effect, Event, Hops, Packet, Peer, SessionKey, Sessions, State};
use crate::bfd::session::Parameters;
use crate::cases::cases;
use bowline_core::clock::Uptime;
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU8;
use std::time::Duration;

const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 9));
const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const SECOND: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 3));
const NEAR: SessionKey =
    SessionKey { local: LOCAL, peer: PEER, interface: Some(2), hops: Hops::Single };
const FAR: SessionKey = SessionKey { local: LOCAL, peer: PEER, interface: None, hops: Hops::Multi };

fn peer(key: SessionKey) -> Peer {
    let interval = Duration::from_millis(100);
    let parameters = Parameters::new(interval, interval, 3, false).expect("allowed");
    Peer { key, parameters, minimum_ttl: NonZeroU8::new(254).expect("not 0") }
}

/// A datagram from the peer of a session to its local address.
fn received(key: SessionKey, bytes: &[u8]) -> Datagram<'_> {
    let SessionKey { local, peer, hops, .. } = key;
    Datagram { from: peer, to: local, interface: 2, hops, ttl: 255, bytes }
}

fn sent(effects: &[Effect]) -> Vec<(SessionKey, Packet)> {
    let packet = |effect: &Effect| match effect {
        Effect::Send { key, bytes } => Some((*key, Packet::parse(bytes).expect("valid"))),
        _ => None,
    };
    effects.iter().filter_map(packet).collect()
}

fn changes(effects: &[Effect]) -> Vec<(SessionKey, State)> {
    let change = |effect: &Effect| match effect {
        Effect::Changed { key, state, .. } => Some((*key, *state)),
        _ => None,
    };
    effects.iter().filter_map(change).collect()
}

#[test]
fn only_datagrams_of_the_peer_that_are_near_enough_are_heard() {
    let now = Uptime::ZERO;
    let mut sessions = Sessions::new(1);
    sessions.handle(Event::Configured(peer(NEAR)), now);
    sessions.handle(Event::Configured(peer(FAR)), now);
    let first = sent(&sessions.take(now));
    let keys: Vec<_> = first.iter().map(|it| it.0).collect();
    assert_eq!(keys, [FAR, NEAR]);
    let [far, near] = [first[0].1, first[1].1];
    assert_ne!(near.my_discriminator, far.my_discriminator);

    let answer = |packet: &Packet| Packet {
        state: State::Init,
        your_discriminator: packet.my_discriminator.get(),
        ..*packet
    };
    let unknown = Packet { your_discriminator: 0, state: State::Down, ..near };
    let guessed = Packet { your_discriminator: 1, ..answer(&near) };
    let mut refused = 0;
    for (what, packet, from, to, interface, hops, ttl) in [
        ("a router forwarded it", answer(&near), PEER, LOCAL, 2, Hops::Single, 254),
        ("another sender", answer(&near), OTHER, LOCAL, 2, Hops::Single, 255),
        ("another address of this node", answer(&near), PEER, SECOND, 2, Hops::Single, 255),
        ("another address of this node", unknown, PEER, SECOND, 2, Hops::Single, 255),
        ("another interface", answer(&near), PEER, LOCAL, 3, Hops::Single, 255),
        ("the port of several hops", answer(&near), PEER, LOCAL, 2, Hops::Multi, 255),
        ("an unknown sender", unknown, OTHER, LOCAL, 2, Hops::Single, 255),
        ("a guessed discriminator", guessed, PEER, LOCAL, 2, Hops::Single, 255),
        ("too many routers", answer(&far), PEER, LOCAL, 2, Hops::Multi, 253),
    ] {
        let bytes = &packet.to_bytes();
        sessions.handle(Event::Received(Datagram { from, to, interface, hops, ttl, bytes }), now);
        refused += 1;
        assert_eq!(changes(&sessions.take(now)), [], "{what}");
        assert_eq!(sessions.refused(), refused, "{what}");
    }
    let mut receive = |packet: Packet, hops, ttl| {
        let bytes = &packet.to_bytes();
        let datagram = Datagram { from: PEER, to: LOCAL, interface: 2, hops, ttl, bytes };
        sessions.handle(Event::Received(datagram), now);
        changes(&sessions.take(now))
    };
    assert_eq!(receive(answer(&near), Hops::Single, 255), [(NEAR, State::Up)]);
    assert_eq!(receive(answer(&far), Hops::Multi, 254), [(FAR, State::Up)]);
}

#[test]
fn a_removed_session_tells_its_peer_and_ends() {
    let now = Uptime::ZERO;
    let mut sessions = Sessions::new(1);
    sessions.handle(Event::Configured(peer(NEAR)), now);
    let (_, first) = sent(&sessions.take(now))[0];
    let heard =
        Packet { state: State::Init, your_discriminator: first.my_discriminator.get(), ..first };
    let bytes = &heard.to_bytes();
    let datagram = received(NEAR, bytes);
    sessions.handle(Event::Received(datagram), now);
    assert_eq!(changes(&sessions.take(now)), [(NEAR, State::Up)]);

    sessions.handle(Event::Removed(NEAR), now);
    let mut closed_at = None;
    let mut packets = 0;
    while let Some(now) = sessions.wake_at() {
        for (_, packet) in {
            let effects = sessions.take(now);
            if effects.contains(&Effect::Closed(NEAR)) {
                closed_at = Some(now);
            }
            sent(&effects)
        } {
            packets += 1;
            assert_eq!(packet.state, State::AdminDown);
        }
    }
    assert!(closed_at.is_some_and(|at| at > now), "{closed_at:?}");
    assert!(packets >= 1);
    assert_eq!(sessions.state(&NEAR), None);
}

#[test]
fn a_changed_configuration_keeps_the_session() {
    let mut sessions = Sessions::new(1);
    sessions.handle(Event::Configured(peer(NEAR)), Uptime::ZERO);
    let (_, first) = sent(&sessions.take(Uptime::ZERO))[0];
    let interval = Duration::from_millis(500);
    let parameters = Parameters::new(interval, interval, 3, false).expect("allowed");
    sessions.handle(Event::Configured(Peer { parameters, ..peer(NEAR) }), Uptime::ZERO);
    let (_, next) = sent(&sessions.take(Uptime::ZERO))[0];
    assert_eq!(next, Packet { required_receive: 500_000, ..first });
}

#[test]
fn two_addresses_of_this_node_have_a_session_each_with_one_peer() {
    let now = Uptime::ZERO;
    let second = SessionKey { local: SECOND, ..NEAR };
    let mut sessions = Sessions::new(1);
    sessions.handle(Event::Configured(peer(NEAR)), now);
    let (_, first) = sent(&sessions.take(now))[0];
    let down = Packet { your_discriminator: 0, state: State::Down, ..first };
    let up =
        Packet { your_discriminator: first.my_discriminator.get(), state: State::Init, ..first };
    sessions.handle(Event::Received(received(NEAR, &up.to_bytes())), now);
    assert_eq!(changes(&sessions.take(now)), [(NEAR, State::Up)]);

    sessions.handle(Event::Received(received(second, &down.to_bytes())), now);
    assert_eq!(changes(&sessions.take(now)), [], "the second address has no session");
    assert_eq!(sessions.refused(), 1);

    sessions.handle(Event::Configured(peer(second)), now);
    sessions.handle(Event::Received(received(second, &down.to_bytes())), now);
    assert_eq!(changes(&sessions.take(now)), [(second, State::Init)]);
    assert_eq!(sessions.state(&NEAR), Some(State::Up));
}

/// Pairs of addresses. This node has no session for the last one.
fn pairs() -> [SessionKey; 5] {
    let with = |local, peer, interface| SessionKey { local, peer, interface, hops: Hops::Single };
    [
        with(LOCAL, PEER, None),
        with(SECOND, PEER, None),
        with(LOCAL, OTHER, Some(2)),
        SessionKey { hops: Hops::Multi, ..with(SECOND, PEER, None) },
        with(SECOND, OTHER, None),
    ]
}

/// What a router sends to one pair of addresses.
#[derive(Clone, Copy, Debug)]
struct Sent {
    after: Duration,
    pair: usize,
    state: State,
    /// The session whose discriminator it names, if it names one.
    names: Option<usize>,
}

fn a_datagram() -> impl Strategy<Value = Sent> {
    let state = prop::sample::select(vec![
        State::AdminDown,
        State::Down,
        State::Init,
        State::Up,
        State::Up,
    ]);
    let names = prop::option::weighted(0.6, 0..4_usize);
    (0..400_u64, 0..5_usize, state, names).prop_map(|(after, pair, state, names)| Sent {
        after: Duration::from_millis(after),
        pair,
        state,
        names,
    })
}

/// What happens to one session, if only these datagrams arrive.
fn story(all: &[Sent], of: SessionKey, arrives: impl Fn(&Sent) -> bool) -> Vec<Effect> {
    let mut sessions = Sessions::new(7);
    let own = &pairs()[..4];
    for key in own {
        sessions.handle(Event::Configured(peer(*key)), Uptime::ZERO);
    }
    let mut now = Uptime::ZERO;
    let mut effects = sessions.take(now);
    let first = sent(&effects);
    let number = |key: &SessionKey| {
        let found = first.iter().find(|it| it.0 == *key);
        found.expect("each session sends at once").1.my_discriminator
    };
    for it in all {
        now += it.after;
        if arrives(it) {
            let packet = Packet {
                state: it.state,
                my_discriminator: number(&own[it.pair % 4]),
                your_discriminator: it.names.map_or(0, |name| number(&own[name]).get()),
                ..first[0].1
            };
            let bytes = packet.to_bytes();
            sessions.handle(Event::Received(received(pairs()[it.pair], &bytes)), now);
        }
        effects.extend(sessions.take(now));
    }
    let key = |effect: &Effect| match effect {
        Effect::Send { key, .. } | Effect::Changed { key, .. } | Effect::Closed(key) => *key,
    };
    effects.retain(|effect| key(effect) == of);
    effects
}

proptest! {
    #![proptest_config(cases(64))]

    /// In whatever order datagrams of all pairs of addresses arrive, and whichever discriminator they name, a session
    /// goes on as if only those of its own pair had.
    #[test]
    fn a_session_hears_only_its_own_pair_of_addresses(
        all in prop::collection::vec(a_datagram(), 1..60),
    ) {
        for (number, key) in pairs().into_iter().enumerate().take(4) {
            let alone = story(&all, key, |it| it.pair == number);
            prop_assert_eq!(story(&all, key, |_| true), alone, "{:?}", key);
        }
    }
}
