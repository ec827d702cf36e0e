use super::{Datagram, Effect, Event, Hops, Packet, Peer, SessionKey, Sessions, State};
use crate::bfd::session::Parameters;
use bowline_core::clock::Uptime;
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU8;
use std::time::Duration;

const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 9));
const NEAR: SessionKey = SessionKey { peer: PEER, interface: Some(2), hops: Hops::Single };
const FAR: SessionKey = SessionKey { peer: PEER, interface: None, hops: Hops::Multi };

fn peer(key: SessionKey) -> Peer {
    let interval = Duration::from_millis(100);
    let parameters = Parameters::new(interval, interval, 3, false).expect("allowed");
    Peer { key, parameters, minimum_ttl: NonZeroU8::new(254).expect("not 0") }
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
    for (what, packet, from, interface, hops, ttl) in [
        ("a router forwarded it", answer(&near), PEER, 2, Hops::Single, 254),
        ("another sender", answer(&near), OTHER, 2, Hops::Single, 255),
        ("another interface", answer(&near), PEER, 3, Hops::Single, 255),
        ("the port of several hops", answer(&near), PEER, 2, Hops::Multi, 255),
        ("an unknown sender", unknown, OTHER, 2, Hops::Single, 255),
        ("a guessed discriminator", guessed, PEER, 2, Hops::Single, 255),
        ("too many routers", answer(&far), PEER, 2, Hops::Multi, 253),
    ] {
        let bytes = &packet.to_bytes();
        sessions.handle(Event::Received(Datagram { from, interface, hops, ttl, bytes }), now);
        refused += 1;
        assert_eq!(changes(&sessions.take(now)), [], "{what}");
        assert_eq!(sessions.refused(), refused, "{what}");
    }
    let mut receive = |packet: Packet, hops, ttl| {
        let bytes = &packet.to_bytes();
        let datagram = Datagram { from: PEER, interface: 2, hops, ttl, bytes };
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
    let datagram = Datagram { from: PEER, interface: 2, hops: Hops::Single, ttl: 255, bytes };
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
