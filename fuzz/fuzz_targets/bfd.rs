//! Datagrams of BFD peers: never a panic, a packet that is accepted is written as it was read, and none of them ends a
//! session of another peer.
#![no_main]
use bowline_speaker::bfd::{
    Datagram, Event, Hops, Packet, Parameters, Peer, SessionKey, Sessions, State,
};
use libfuzzer_sys::fuzz_target;
use std::net::Ipv4Addr;
use std::num::NonZeroU8;
use std::time::Duration;

fuzz_target!(|data: &[u8]| {
    if let Ok(packet) = Packet::parse(data) {
        // The length may count what follows the packet.
        let mut read: [u8; 24] = data[..24].try_into().expect("24 bytes");
        read[3] = 24;
        assert_eq!(packet.to_bytes(), read);
    }
    let interval = Duration::from_millis(100);
    let parameters = Parameters::new(interval, interval, 3, false).expect("allowed");
    let key = SessionKey {
        peer: Ipv4Addr::new(192, 0, 2, 2).into(),
        interface: None,
        hops: Hops::Single,
    };
    let mut sessions = Sessions::new(1);
    let mut now = Duration::from_secs(1);
    let peer = Peer { key, parameters, minimum_ttl: NonZeroU8::MAX };
    sessions.handle(Event::Configured(peer), now);
    for piece in data.chunks(25) {
        let Some((from, bytes)) = piece.split_first() else { break };
        let from = Ipv4Addr::new(192, 0, 2, from & 3).into();
        let before = sessions.state(&key);
        let datagram = Datagram { from, interface: 1, hops: Hops::Single, ttl: 255, bytes };
        sessions.handle(Event::Received(datagram), now);
        if from != key.peer {
            assert_eq!(sessions.state(&key), before);
        }
        sessions.take(now);
        assert_ne!(sessions.state(&key), Some(State::AdminDown));
        now += Duration::from_millis(1);
    }
});
