//! What a BGP peer says, in any pieces, before and after the session is established: never a panic, and each effect is for
//! a connection that is there.
#![no_main]
use bowline_speaker::bgp::family::PerFamily;
use bowline_speaker::bgp::open::{Capabilities, Open};
use bowline_speaker::bgp::rib_out::NextHops;
use bowline_speaker::bgp::session::{Conn, PeerAsn};
use bowline_speaker::bgp::{Config, Effect, Event, Message, Session};
use libfuzzer_sys::fuzz_target;
use std::net::Ipv4Addr;
use std::time::Duration;

fuzz_target!(|data: &[u8]| {
    let Some((how, data)) = data.split_first() else { return };
    let config = Config {
        asn: 65_001,
        router_id: Ipv4Addr::new(192, 0, 2, 1),
        peer_asn: PeerAsn::External,
        families: PerFamily::BOTH,
        hold_time: 90,
        keepalive_time: None,
        connect_time: Duration::from_secs(10),
        connects: true,
        accepts: false,
        graceful_restart: Some(120),
        next_hops: NextHops { v4: Some(Ipv4Addr::new(192, 0, 2, 1)), ..NextHops::default() },
    };
    let mut now = Duration::from_secs(1);
    let mut session = Session::new(config, 1);
    session.handle(Event::Start, now);
    let conn = Conn::Out(1);
    assert_eq!(session.take(now), [Effect::Connect(conn)]);
    session.handle(Event::Connected(conn, NextHops::default()), now);
    if how & 1 != 0 {
        let open = Open {
            asn: 65_002,
            hold_time: 90,
            id: Ipv4Addr::new(192, 0, 2, 2),
            capabilities: Capabilities {
                families: Some(PerFamily::BOTH),
                four_octet: how & 2 != 0,
                ..Capabilities::default()
            },
        };
        for message in [Message::Open(open), Message::KeepAlive] {
            session.handle(Event::Received(conn, message.bytes()), now);
        }
    }
    let mut open = true;
    for piece in data.chunks(usize::from(how >> 2) + 1) {
        session.handle(Event::Received(conn, piece.to_vec()), now);
        for effect in session.take(now) {
            match effect {
                Effect::Send(to, _) => assert!(open && to == conn),
                Effect::Close(which) => assert!(std::mem::take(&mut open) && which == conn),
                Effect::Connect(other) => assert_ne!(other, conn),
                Effect::Report(_) => {}
            }
        }
        now += Duration::from_millis(1);
    }
});
