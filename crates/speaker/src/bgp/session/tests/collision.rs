//! Both sides connect at the same time (RFC 4271, section 6.8).

use super::*;

const OUT: Conn = Conn::Out(1);
const IN: Conn = Conn::In(1);

/// A session with a connection of each side, both in OpenSent.
fn both(router_id: [u8; 4]) -> Lab {
    let mut lab = Lab::new(Config { router_id: router_id.into(), ..config() });
    lab.connect();
    lab.event(Event::Accepted(IN, local()));
    lab.effects.clear();
    lab
}

#[test]
fn the_connection_of_the_side_with_the_higher_identifier_stays() {
    for (router_id, stays, goes) in [([192, 0, 2, 1], IN, OUT), ([192, 0, 2, 3], OUT, IN)] {
        for first in [IN, OUT] {
            let mut lab = both(router_id);
            let second = if first == IN { OUT } else { IN };
            lab.say(first, Message::Open(open()));
            lab.say(second, Message::Open(open()));
            let effects = lab.effects();
            let told = Message::Notification(Notification::new(Kind::COLLISION));
            assert_eq!(messages(&effects, goes).last(), Some(&told));
            assert!(effects.contains(&Effect::Close(goes)));
            lab.say(stays, Message::KeepAlive);
            assert_eq!(lab.session.state(), State::Established);
            assert_eq!(lab.why(), "", "a collision is no failure");
        }
    }
}

#[test]
fn an_established_session_stays_when_the_peer_connects_again() {
    let without = Capabilities { graceful_restart: None, ..open().capabilities };
    let peer = Open { capabilities: without, ..open() };
    let mut lab = Lab::new(config());
    let conn = lab.connect();
    lab.say(conn, Message::Open(peer.clone()));
    lab.say(conn, Message::KeepAlive);
    lab.event(Event::Accepted(IN, local()));
    lab.effects.clear();
    lab.say(IN, Message::Open(peer));
    assert_eq!(lab.heard(IN), [Message::Notification(Notification::new(Kind::COLLISION))]);
    assert_eq!(lab.session.state(), State::Established);
}

#[test]
fn a_session_that_does_not_accept_refuses_connections() {
    let mut lab = Lab::new(Config { accepts: false, ..config() });
    lab.connect();
    lab.effects.clear();
    lab.event(Event::Accepted(IN, local()));
    let effects = lab.effects();
    assert_eq!(messages(&effects, IN), [Message::Notification(Notification::new(Kind::REJECTED))]);
    assert_eq!(effects.last(), Some(&Effect::Close(IN)));
}

#[test]
fn a_session_that_does_not_connect_waits_for_the_peer() {
    let mut lab = Lab::new(Config { connects: false, ..config() });
    lab.event(Event::Start);
    lab.pass(secs(3600));
    assert_eq!((lab.effects(), lab.session.state()), (vec![], State::Active));
    lab.event(Event::Accepted(IN, local()));
    lab.say(IN, Message::Open(open()));
    lab.say(IN, Message::KeepAlive);
    assert_eq!(lab.session.state(), State::Established);
}

#[test]
fn a_peer_that_sent_garbage_is_refused_for_a_while() {
    let mut lab = Lab::new(config());
    let conn = lab.connect();
    lab.event(Event::Received(conn, b"garbage".to_vec()));
    lab.effects.clear();
    lab.event(Event::Accepted(IN, local()));
    assert_eq!(lab.heard(IN), [Message::Notification(Notification::new(Kind::REJECTED))]);
    lab.now += LONGEST_HOLD;
    lab.event(Event::Accepted(Conn::In(2), local()));
    let [Message::Open(_)] = &lab.heard(Conn::In(2))[..] else { panic!("an OPEN") };
}

#[test]
fn a_peer_that_connects_again_gives_up_its_previous_connection() {
    let mut lab = Lab::new(Config { connects: false, ..config() });
    lab.event(Event::Start);
    lab.event(Event::Accepted(IN, local()));
    lab.effects.clear();
    lab.event(Event::Accepted(Conn::In(2), local()));
    assert_eq!(lab.effects()[0], Effect::Close(IN));
    assert_eq!(lab.session.connections.len(), 1);
}
