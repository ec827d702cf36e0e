//! Peers that refuse, reset, fall silent, read nothing, send garbage or a million routes.

use super::*;
use crate::bgp::attributes::{Attributes, Origin, Segment};
use ipnet::IpNet;

#[test]
fn a_peer_that_refuses_is_tried_again_after_longer_and_longer_pauses() {
    let mut lab = Lab::new(config());
    lab.event(Event::Start);
    let (mut last, mut pauses) = (lab.now, Vec::new());
    for number in 1..=8 {
        assert_eq!(lab.effects()[0], Effect::Connect(Conn::Out(number)));
        lab.event(Event::NotConnected(Conn::Out(number), "connection refused".to_owned()));
        let [Effect::Report(Report::NotUp(why))] = &lab.effects()[..] else { panic!("a report") };
        assert_eq!(why, "connection refused");
        lab.now = lab.session.wake_at().unwrap();
        pauses.push((lab.now - last).as_secs_f64());
        last = lab.now;
        lab.take();
    }
    for (pause, full) in pauses.into_iter().zip([1.0, 2.0, 4.0, 8.0, 10.0, 10.0, 10.0, 10.0]) {
        assert!((full / 2.0..=full).contains(&pause), "{pause} of {full}");
    }
}

#[test]
fn a_peer_that_does_not_answer_is_tried_again_for_an_hour() {
    let mut lab = Lab::new(config());
    lab.event(Event::Start);
    lab.pass(secs(3600));
    let effects = lab.effects();
    let count = |wanted: fn(&Effect) -> bool| effects.iter().filter(|it| wanted(it)).count();
    let attempts = count(|it| matches!(it, Effect::Connect(_)));
    // 20 s for an attempt and 5 to 10 s between two.
    assert!((115..=150).contains(&attempts), "{attempts}");
    assert_eq!(
        count(|it| matches!(it, Effect::Close(_))),
        attempts - usize::from(lab.session.state() == State::Connect)
    );
    assert_eq!(
        lab.why(),
        "no answer to the TCP connection for 20 s; a peer with another password does not answer"
    );
}

#[test]
fn a_peer_that_sends_no_open_is_given_up() {
    let mut lab = Lab::new(config());
    let conn = lab.connect();
    lab.effects.clear();
    lab.pass(secs(60));
    let effects = lab.effects();
    assert_eq!(
        messages(&effects, conn),
        [Message::Notification(Notification::new(Kind::HOLD_TIMER))]
    );
    assert_eq!(effects[1], Effect::Close(conn));
    assert_eq!(lab.why(), "the peer accepted the connection and sent no OPEN");
}

#[test]
fn a_peer_that_falls_silent_is_given_up_after_the_hold_time() {
    let mut lab = Lab::new(config());
    let conn = lab.establish();
    lab.pass(secs(89));
    assert_eq!(lab.session.state(), State::Established);
    lab.pass(secs(1));
    assert_eq!(lab.heard(conn), [Message::Notification(Notification::new(Kind::HOLD_TIMER))]);
    assert_eq!(lab.why(), "the peer sent nothing for the hold time of 90 s");
    // Half-open for an hour: the peer's machine drops what arrives.
    lab.pass(secs(3600));
    let attempts = lab.effects().iter().filter(|it| matches!(it, Effect::Connect(_))).count();
    assert!(attempts > 100, "{attempts}");
    assert_eq!(lab.session.counters().flaps, 1);
}

#[test]
fn a_peer_that_reads_nothing_is_given_up_and_costs_little_memory() {
    let mut lab = Lab::new(config());
    let conn = lab.establish();
    lab.sent = false;
    for round in 0..10u32 {
        for number in 0..20_000u32 {
            let prefix = IpNet::new(Ipv4Addr::from(0x0a00_0000 + number).into(), 32).unwrap();
            let route = Route { med: Some(round), ..Route::default() };
            lab.session.handle(Event::Announce(prefix, route), lab.now);
        }
        lab.take();
    }
    let size: usize = lab
        .effects()
        .iter()
        .map(|it| if let Effect::Send(_, it) = it { it.len() } else { 0 })
        .sum();
    assert!(size < 100_000, "{size}");
    assert!(!lab.session.is_settled());
    for _ in 0..47 {
        lab.pass(secs(10));
        lab.say(conn, Message::KeepAlive);
    }
    assert_eq!(lab.session.state(), State::Established);
    lab.pass(secs(10));
    let told = lab.heard(conn);
    assert_eq!(told.last(), Some(&Message::Notification(Notification::new(Kind::SEND_HOLD))));
    assert_eq!(lab.why(), "the peer read nothing for 480 s");
}

/// The peer's machine is gone and its TCP connection is not. Its kernel, or a middlebox, even accepts new connections; nothing is
/// read or said there for an hour, and routes change all the time.
#[test]
fn connections_that_stay_half_open_for_an_hour_end_one_by_one_and_cost_no_memory() {
    const PREFIXES: u32 = 50;
    let prefix = |number: u32| IpNet::new(Ipv4Addr::from(0x0a00_0000 + number).into(), 32).unwrap();
    let mut lab = Lab::new(config());
    let conn = lab.establish();
    lab.sent = false;
    let began = lab.now;
    let mut open = std::collections::BTreeMap::from([(conn, 0)]);
    let (mut attempts, mut ended_at, mut most) = (0, None, 0);
    for second in 0..3600_u32 {
        for number in 0..PREFIXES {
            let route = Route { med: Some(second), ..Route::default() };
            lab.session.handle(Event::Announce(prefix(number), route), lab.now);
        }
        lab.take();
        lab.pass(secs(1));
        for effect in lab.effects() {
            match effect {
                Effect::Send(conn, bytes) => {
                    *open.get_mut(&conn).expect("it is open") += bytes.len()
                }
                Effect::Close(conn) => {
                    open.remove(&conn);
                    ended_at.get_or_insert(lab.now - began);
                }
                Effect::Connect(conn) => {
                    attempts += 1;
                    open.insert(conn, 0);
                    lab.event(Event::Connected(conn, local()));
                }
                Effect::Report(_) => {}
            }
        }
        assert!(open.len() <= 1, "one connection at a time: {open:?}");
        most = most.max(open.values().sum());
    }
    assert_eq!(ended_at, Some(secs(90)), "the hold time ends the first one");
    // Each of the others is given a minute for its OPEN, and there is a pause before the next one.
    assert!((29..=59).contains(&attempts), "{attempts}");
    // What is on the way to the peer, and no more; what changed waits as one state.
    assert!(most < 100_000, "{most} bytes wait in sockets");
    assert_eq!(lab.session.counters().flaps, 1);

    // The peer is back.
    lab.sent = true;
    let conn = loop {
        let connects = |it: &Effect| match it {
            Effect::Connect(conn) => Some(*conn),
            _ => None,
        };
        if let Some(conn) = lab.effects().iter().find_map(connects) {
            break conn;
        }
        lab.pass(secs(1));
    };
    lab.event(Event::Connected(conn, local()));
    lab.say(conn, Message::Open(super::open()));
    lab.effects.clear();
    lab.say(conn, Message::KeepAlive);
    assert_eq!(lab.session.state(), State::Established);
    let heard = lab.heard(conn);
    let told: usize = heard.iter().map(|it| update(it).announced.len()).sum();
    assert_eq!(told, PREFIXES as usize, "each prefix once, as it is last");
    let last = |it: &Message| update(it).attributes.med == Some(3599);
    assert!(heard.iter().filter(|it| !update(it).announced.is_empty()).all(last), "{heard:?}");
}

#[test]
fn every_end_of_a_connection_has_its_words() {
    let reset = |lab: &mut Lab, conn| lab.event(Event::Closed(conn, "reset by peer".to_owned()));
    let mut lab = Lab::new(config());
    let conn = lab.connect();
    reset(&mut lab, conn);
    let words = "the peer closed the connection before its OPEN (reset by peer): does it know this node's address?";
    assert_eq!(lab.why(), words);

    let mut lab = Lab::new(config());
    let conn = lab.connect();
    lab.say(conn, Message::Open(open()));
    reset(&mut lab, conn);
    assert_eq!(lab.why(), "the peer closed the connection after its OPEN (reset by peer)");

    let mut lab = Lab::new(config());
    let conn = lab.establish();
    reset(&mut lab, conn);
    assert_eq!(lab.why(), "the connection ended (reset by peer)");

    let mut lab = Lab::new(config());
    let conn = lab.establish();
    lab.say(conn, Message::Notification(Notification::with_text(Kind::SHUTDOWN, "rack 4")));
    let words = "the peer ended the session: Cease: administrative shutdown \"rack 4\"; \
                 an operator shut the session down on the peer";
    assert_eq!(lab.why(), words);

    let mut lab = Lab::new(config());
    let conn = lab.connect();
    lab.say(conn, Message::Notification(Notification::new(Kind::PEER_AS)));
    let words = "the peer refused the session: OPEN error: bad peer AS; \
                 the peer expects another AS number here: compare myASN with its configuration";
    assert_eq!(lab.why(), words);

    let mut lab = Lab::new(config());
    lab.establish();
    lab.event(Event::BfdDown);
    assert_eq!(lab.why(), "BFD says that the peer is not reached");
}

#[test]
fn garbage_ends_the_session_in_any_state_and_the_peer_is_told_why() {
    let garbage = b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec();
    for phase in [State::OpenSent, State::OpenConfirm, State::Established] {
        let mut lab = Lab::new(config());
        let conn = lab.connect();
        if phase >= State::OpenConfirm {
            lab.say(conn, Message::Open(open()));
        }
        if phase == State::Established {
            lab.say(conn, Message::KeepAlive);
        }
        assert_eq!(lab.session.state(), phase);
        lab.effects.clear();
        lab.event(Event::Received(conn, garbage.clone()));
        let effects = lab.effects();
        let told = Message::Notification(Notification::new(Kind::NOT_SYNCHRONIZED));
        assert_eq!(messages(&effects, conn), [told]);
        assert!(effects.contains(&Effect::Close(conn)));
        assert_eq!(
            lab.why(),
            "the peer sent bytes that are not BGP (no marker in front of a message)"
        );
        // Not at once again.
        assert!(lab.session.wake_at().unwrap() > lab.now);
    }
}

#[test]
fn a_message_in_the_wrong_state_ends_the_session() {
    for (established, message, kind, why) in [
        (
            false,
            Message::KeepAlive,
            Kind::IN_OPEN_SENT,
            "the peer sent a KEEPALIVE while an OPEN was awaited",
        ),
        (
            true,
            Message::Open(open()),
            Kind::IN_ESTABLISHED,
            "the peer sent an OPEN while the session was established",
        ),
    ] {
        let mut lab = Lab::new(config());
        let conn = if established { lab.establish() } else { lab.connect() };
        lab.effects.clear();
        lab.say(conn, message);
        assert_eq!(lab.heard(conn), [Message::Notification(Notification::new(kind))]);
        assert_eq!(lab.why(), why);
    }
}

#[test]
fn a_million_routes_are_counted_and_dropped() {
    let mut lab = Lab::new(config());
    let conn = lab.establish();
    let attributes = Attributes {
        origin: Some(Origin::Igp),
        as_path: Some(vec![Segment::Sequence(vec![65_002])]),
        next_hop: Some(Ipv4Addr::new(192, 0, 2, 2)),
        ..Attributes::default()
    };
    for message in 0..1250u32 {
        let prefixes = (0..800)
            .map(|it| IpNet::new(Ipv4Addr::from((message * 800 + it) << 8).into(), 24).unwrap());
        let update = Update {
            attributes: attributes.clone(),
            announced: prefixes.collect(),
            ..Update::default()
        };
        lab.say(conn, Message::Update(Box::new(update)));
    }
    let status = lab.session.status();
    assert_eq!((status.state, status.counters.routes_ignored), (State::Established, 1_000_000));
    assert_eq!((status.wanted, lab.effects()), (PerFamily::default(), vec![]));
}

#[test]
fn an_update_with_bad_attributes_is_counted_and_the_session_stays() {
    let mut lab = Lab::new(config());
    let conn = lab.establish();
    let update = Update { announced: vec!["203.0.113.0/24".parse().unwrap()], ..Update::default() };
    lab.say(conn, Message::Update(Box::new(update)));
    assert_eq!(
        (lab.session.state(), lab.session.counters().malformed_updates),
        (State::Established, 1)
    );
}

#[test]
fn a_peer_that_fails_after_a_long_session_is_tried_again_soon() {
    let mut lab = Lab::new(config());
    lab.event(Event::Start);
    for number in 1..=5 {
        lab.event(Event::NotConnected(Conn::Out(number), "no route".to_owned()));
        lab.now = lab.session.wake_at().unwrap();
        lab.take();
    }
    let conn = Conn::Out(6);
    lab.event(Event::Connected(conn, local()));
    lab.say(conn, Message::Open(open()));
    lab.say(conn, Message::KeepAlive);
    lab.pass(secs(60));
    lab.event(Event::Closed(conn, "reset".to_owned()));
    assert!(lab.session.wake_at().unwrap() <= lab.now + secs(1));
}
