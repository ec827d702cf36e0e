//! Restarts that lose no route, and leaving so that no traffic comes any more.

use super::*;
use crate::bgp::Community;

fn restart(message: &Message) -> GracefulRestart {
    let Message::Open(open) = message else { panic!("{message:?} is no OPEN") };
    open.capabilities.graceful_restart.unwrap()
}

#[test]
fn the_end_of_the_routes_is_told_when_they_are_complete_and_only_once() {
    let mut lab = Lab::new(config());
    let conn = lab.establish();
    lab.event(announce("203.0.113.1/32"));
    assert_eq!(lab.heard(conn).len(), 1, "the routes, and no End-of-RIB yet");
    lab.event(Event::Complete);
    let ends: Vec<_> = lab.heard(conn).iter().map(|it| update(it).ends_rib()).collect();
    assert_eq!(ends, [Some(Family::V4), Some(Family::V6)]);
    lab.event(Event::Complete);
    lab.event(announce("203.0.113.2/32"));
    assert_eq!(lab.heard(conn).len(), 1);
}

#[test]
fn the_restart_bit_is_set_until_the_routes_of_this_process_are_complete() {
    let mut lab = Lab::new(config());
    let conn = lab.connect();
    let first = restart(&lab.heard(conn)[0]);
    let forwarding = PerFamily { v4: Some(true), v6: Some(true) };
    let expected =
        GracefulRestart { restarted: true, notification: false, restart_time: 120, forwarding };
    assert_eq!(first, expected);
    lab.say(conn, Message::Open(open()));
    lab.say(conn, Message::KeepAlive);
    for (complete, number) in [(false, 2), (true, 3)] {
        if complete {
            lab.event(Event::Complete);
        }
        lab.event(Event::Closed(Conn::Out(number - 1), "reset".to_owned()));
        lab.now = lab.session.wake_at().unwrap();
        lab.take();
        let conn = Conn::Out(number);
        lab.effects.clear();
        lab.event(Event::Connected(conn, local()));
        assert_eq!(restart(&lab.heard(conn)[0]).restarted, !complete);
        lab.say(conn, Message::Open(open()));
        lab.say(conn, Message::KeepAlive);
    }
}

#[test]
fn an_upgrade_closes_without_a_word_and_leaving_says_so() {
    let mut lab = Lab::new(config());
    let conn = lab.establish();
    lab.event(Event::Stop(Stop::Upgrade));
    let why = "the speaker restarts".to_owned();
    assert_eq!(lab.effects(), [Effect::Close(conn), Effect::Report(Report::Down(why))]);

    for (stop, told) in [
        (
            Stop::Leave("node drained".to_owned()),
            Notification::with_text(Kind::SHUTDOWN, "node drained"),
        ),
        (Stop::Deconfigured, Notification::new(Kind::DECONFIGURED)),
    ] {
        let mut lab = Lab::new(config());
        let conn = lab.establish();
        lab.event(Event::Stop(stop));
        assert_eq!(lab.heard(conn), [Message::Notification(told)]);
        lab.pass(secs(3600));
        assert_eq!((lab.effects(), lab.session.wake_at()), (vec![], None));
        lab.event(Event::Start);
        assert_eq!(lab.effects(), [Effect::Connect(Conn::Out(2))], "at once");
    }
}

#[test]
fn before_a_drain_all_routes_are_marked_and_then_withdrawn() {
    let mut lab = Lab::new(config());
    let conn = lab.establish();
    lab.event(announce("203.0.113.1/32"));
    lab.effects.clear();
    lab.event(Event::Drain(true));
    let [marked] = &lab.heard(conn)[..] else { panic!("one UPDATE") };
    let Community::Standard(mark) = Community::GRACEFUL_SHUTDOWN else { panic!("a standard one") };
    assert_eq!(update(marked).attributes.communities, [mark]);
    lab.sent = false;
    lab.event(Event::Withdraw("203.0.113.1/32".parse().unwrap()));
    assert!(!lab.session.is_settled(), "not with the kernel yet");
    lab.event(Event::Sent(conn));
    assert!(lab.session.is_settled());
}

#[test]
fn a_peer_that_restarted_replaces_its_session_before_tcp_notices() {
    let mut lab = Lab::new(config());
    let old = lab.establish();
    lab.event(announce("203.0.113.1/32"));
    let new = Conn::In(1);
    lab.event(Event::Accepted(new, local()));
    lab.effects.clear();
    lab.say(new, Message::Open(open()));
    let effects = lab.effects();
    assert!(effects.contains(&Effect::Close(old)) && messages(&effects, old).is_empty());
    lab.say(new, Message::KeepAlive);
    assert_eq!(lab.heard(new).len(), 1, "all routes again");
    assert_eq!(lab.session.counters().flaps, 1);
}
