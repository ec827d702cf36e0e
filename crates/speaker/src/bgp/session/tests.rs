//! A session and a router that the tests play.

mod collision;
mod failures;
mod graceful;
mod orders;
mod pair;
mod replay;

use super::*;
use crate::bgp::family::{Family, PerFamily};
use crate::bgp::framer::Framer;
use crate::bgp::open::{Capabilities, GracefulRestart, Open};
use crate::bgp::rib_out::Route;
use crate::bgp::route_refresh::RouteRefresh;
use crate::bgp::update::Update;
use std::net::Ipv4Addr;

pub(super) fn config() -> Config {
    Config {
        asn: 65_001,
        router_id: Ipv4Addr::new(192, 0, 2, 1),
        peer_asn: PeerAsn::Is(65_002),
        families: PerFamily::BOTH,
        hold_time: 90,
        keepalive_time: None,
        connect_time: Duration::from_secs(10),
        connects: true,
        accepts: true,
        graceful_restart: Some(120),
        next_hops: NextHops::default(),
    }
}

pub(super) fn local() -> NextHops {
    NextHops {
        v4: Some(Ipv4Addr::new(192, 0, 2, 1)),
        v6: Some("2001:db8::1".parse().unwrap()),
        link_local: None,
    }
}

/// The OPEN of a router that can do everything.
pub(super) fn open() -> Open {
    let graceful_restart = Some(GracefulRestart {
        restarted: false,
        notification: true,
        restart_time: 120,
        forwarding: PerFamily { v4: Some(false), v6: Some(false) },
    });
    let capabilities = Capabilities {
        families: Some(PerFamily::BOTH),
        four_octet: true,
        route_refresh: true,
        extended_next_hop: true,
        graceful_restart,
    };
    Open { asn: 65_002, hold_time: 180, id: Ipv4Addr::new(192, 0, 2, 2), capabilities }
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A session, the time, and the effects so far.
pub(super) struct Lab {
    session: Session,
    now: Uptime,
    effects: Vec<Effect>,
    /// The kernel takes everything at once.
    sent: bool,
}

impl Lab {
    pub(super) fn new(config: Config) -> Self {
        Self { session: Session::new(config, 7), now: secs(1000), effects: Vec::new(), sent: true }
    }

    pub(super) fn event(&mut self, event: Event) {
        self.session.handle(event, self.now);
        self.take();
    }

    fn take(&mut self) {
        let effects = self.session.take(self.now);
        for effect in &effects {
            if let Effect::Send(conn, _) = effect
                && self.sent
            {
                self.session.handle(Event::Sent(*conn), self.now);
            }
        }
        let more = !effects.is_empty();
        self.effects.extend(effects);
        if more {
            self.take();
        }
    }

    /// Lets time pass, and wakes the session whenever it wants to be.
    pub(super) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(at) = self.session.wake_at().filter(|at| *at <= end) {
            assert!(at >= self.now, "the session wants to be woken in the past");
            self.now = at;
            self.take();
        }
        self.now = end;
    }

    pub(super) fn say(&mut self, conn: Conn, message: Message) {
        self.event(Event::Received(conn, message.bytes()));
    }

    /// The effects since the last call.
    fn effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// The messages on a connection since the last call, without KEEPALIVE; the other effects are dropped.
    fn heard(&mut self, conn: Conn) -> Vec<Message> {
        let effects = self.effects();
        messages(&effects, conn).into_iter().filter(|it| *it != Message::KeepAlive).collect()
    }

    /// Starts the session and makes it connect.
    fn connect(&mut self) -> Conn {
        self.event(Event::Start);
        let conn = Conn::Out(1);
        assert_eq!(self.effects(), [Effect::Connect(conn)]);
        self.event(Event::Connected(conn, local()));
        conn
    }

    /// Starts the session and establishes it.
    pub(super) fn establish(&mut self) -> Conn {
        let conn = self.connect();
        self.say(conn, Message::Open(open()));
        self.say(conn, Message::KeepAlive);
        assert_eq!(self.session.state(), State::Established);
        self.effects.clear();
        conn
    }

    /// Why the session last ended or could not be established.
    fn why(&self) -> String {
        self.session.status().last_failure.unwrap_or_default()
    }
}

fn messages(effects: &[Effect], conn: Conn) -> Vec<Message> {
    let mut framer = Framer::default();
    let mut messages = Vec::new();
    for effect in effects {
        if let Effect::Send(to, bytes) = effect
            && *to == conn
        {
            framer.push(bytes);
            let frames = std::iter::from_fn(|| framer.next_frame().unwrap());
            messages.extend(frames.map(|frame| Message::decode(&frame, true).unwrap()));
        }
    }
    messages
}

fn announce(prefix: &str) -> Event {
    Event::Announce(prefix.parse().unwrap(), Route::default())
}

fn update(message: &Message) -> &Update {
    let Message::Update(update) = message else { panic!("{message:?} is no UPDATE") };
    update
}

#[test]
fn the_open_of_a_peer_is_answered_before_routes_are_announced() {
    let mut lab = Lab::new(config());
    lab.event(announce("203.0.113.1/32"));
    let conn = lab.connect();
    lab.effects.clear();
    let both = [Message::Open(open()).bytes(), Message::KeepAlive.bytes()].concat();
    lab.event(Event::Received(conn, both));
    let [Message::KeepAlive, Message::Update(_)] = &messages(&lab.effects(), conn)[..] else {
        panic!("a KEEPALIVE, then an UPDATE")
    };
}

#[test]
fn a_session_is_established_and_announces_its_routes() {
    let mut lab = Lab::new(config());
    lab.event(announce("203.0.113.1/32"));
    let conn = lab.connect();
    let [Message::Open(ours)] = &lab.heard(conn)[..] else { panic!("one OPEN") };
    assert_eq!((ours.asn, ours.hold_time, ours.id), (65_001, 90, Ipv4Addr::new(192, 0, 2, 1)));
    assert!(ours.capabilities.four_octet && ours.capabilities.route_refresh);
    assert_eq!(lab.session.state(), State::OpenSent);

    lab.say(conn, Message::Open(open()));
    assert_eq!(messages(&lab.effects(), conn), [Message::KeepAlive]);
    assert_eq!(lab.session.state(), State::OpenConfirm);

    lab.say(conn, Message::KeepAlive);
    let effects = lab.effects();
    let Effect::Report(Report::Up(peer)) = &effects[0] else { panic!("{effects:?}") };
    assert_eq!(
        (peer.asn, peer.hold_time, peer.keepalive_time),
        (65_002, Some(secs(90)), Some(secs(30)))
    );
    let [message] = &messages(&effects, conn)[..] else { panic!("{effects:?}") };
    assert_eq!(update(message).announced, ["203.0.113.1/32".parse().unwrap()]);

    lab.event(announce("2001:db8::7/128"));
    lab.event(Event::Withdraw("203.0.113.1/32".parse().unwrap()));
    let [new, gone] = &lab.heard(conn)[..] else { panic!("two UPDATEs") };
    assert_eq!(
        update(new).attributes.reach.as_ref().unwrap().prefixes,
        ["2001:db8::7/128".parse().unwrap()]
    );
    assert_eq!(update(gone).withdrawn, ["203.0.113.1/32".parse().unwrap()]);
    let status = lab.session.status();
    assert_eq!(
        (status.told, status.wanted),
        (PerFamily { v4: 0, v6: 1 }, PerFamily { v4: 0, v6: 1 })
    );
    assert_eq!((status.counters.updates_sent, status.last_failure), (3, None));
}

#[test]
fn an_event_that_changes_nothing_sends_nothing() {
    let mut lab = Lab::new(config());
    lab.establish();
    lab.event(announce("203.0.113.1/32"));
    lab.effects.clear();
    for event in [
        announce("203.0.113.1/32"),
        Event::Withdraw("203.0.113.2/32".parse().unwrap()),
        Event::Configure(Box::new(config())),
        Event::Start,
        Event::Drain(false),
        Event::Closed(Conn::Out(9), "old".to_owned()),
        Event::Received(Conn::In(9), b"old".to_vec()),
        Event::NotConnected(Conn::Out(1), "old".to_owned()),
    ] {
        lab.event(event);
        assert_eq!(lab.effects(), []);
    }
}

#[test]
fn a_peer_that_asks_for_the_routes_gets_those_of_the_family_again() {
    let mut lab = Lab::new(config());
    let conn = lab.establish();
    lab.event(announce("203.0.113.1/32"));
    lab.event(announce("2001:db8::7/128"));
    lab.effects.clear();
    let refresh = |family| Message::RouteRefresh(RouteRefresh { family });
    // Several requests in one burst are one.
    let bytes = [refresh(Some(Family::V4)).bytes(), refresh(Some(Family::V4)).bytes()].concat();
    lab.event(Event::Received(conn, bytes));
    let [again] = &lab.heard(conn)[..] else { panic!("one UPDATE") };
    assert_eq!(update(again).announced, ["203.0.113.1/32".parse().unwrap()]);
    lab.say(conn, refresh(None));
    assert_eq!(lab.effects(), []);
}

#[test]
fn keepalives_keep_a_session_without_routes_up() {
    let mut lab = Lab::new(config());
    let conn = lab.establish();
    for _ in 0..60 {
        lab.pass(secs(30));
        lab.say(conn, Message::KeepAlive);
    }
    assert_eq!(lab.session.state(), State::Established);
    let sent = messages(&lab.effects(), conn).len();
    // 1,800 s with pauses of 22.5 to 30 s.
    assert!((60..=81).contains(&sent), "{sent}");
}

#[test]
fn without_a_hold_time_nothing_is_sent_and_nothing_expires() {
    let mut lab = Lab::new(Config { hold_time: 0, ..config() });
    lab.establish();
    assert_eq!(lab.session.wake_at(), None);
    lab.pass(secs(100_000));
    assert_eq!((lab.session.state(), lab.effects()), (State::Established, vec![]));
}

#[test]
fn a_changed_configuration_resets_only_what_depends_on_it() {
    let mut lab = Lab::new(config());
    let conn = lab.establish();
    lab.event(announce("203.0.113.1/32"));
    lab.effects.clear();
    let connect_time = secs(3);
    lab.event(Event::Configure(Box::new(Config { connect_time, accepts: false, ..config() })));
    assert_eq!(lab.effects(), []);

    let v4 = Some(Ipv4Addr::new(192, 0, 2, 99));
    let next_hops = NextHops { v4, ..NextHops::default() };
    lab.event(Event::Configure(Box::new(Config { next_hops, ..config() })));
    let [again] = &lab.heard(conn)[..] else { panic!("one UPDATE") };
    assert_eq!(update(again).attributes.next_hop, v4);

    lab.event(Event::Configure(Box::new(Config { hold_time: 30, ..config() })));
    let effects = lab.effects();
    let told = Message::Notification(Notification::new(Kind::CONFIGURATION));
    assert_eq!(messages(&effects, conn), [told]);
    assert_eq!(effects[1], Effect::Close(conn));
    assert_eq!(effects.last(), Some(&Effect::Connect(Conn::Out(2))), "at once");
    assert_eq!(lab.why(), "the configuration of the peer changed");
}

#[test]
fn a_peer_is_checked_before_there_is_a_session() {
    let with = |change: fn(&mut Open)| {
        let mut open = open();
        change(&mut open);
        open
    };
    for (peer_asn, open, kind, why) in [
        (
            PeerAsn::Is(65_003),
            open(),
            Kind::PEER_AS,
            "the peer has AS 65002, and peerASN says 65003",
        ),
        (
            PeerAsn::Internal,
            open(),
            Kind::PEER_AS,
            "the peer has AS 65002, and peerASN says internal",
        ),
        (
            PeerAsn::External,
            with(|it| it.asn = 65_001),
            Kind::PEER_AS,
            "the peer has AS 65001, and peerASN says external",
        ),
        (
            PeerAsn::External,
            with(|it| it.asn = 0),
            Kind::PEER_AS,
            "the peer has AS 0, and peerASN says external",
        ),
        (
            PeerAsn::Internal,
            with(|it| (it.asn, it.id) = (65_001, Ipv4Addr::new(192, 0, 2, 1))),
            Kind::IDENTIFIER,
            "the peer has the router ID 192.0.2.1, which this speaker has or nobody can have",
        ),
        (
            PeerAsn::External,
            with(|it| it.id = Ipv4Addr::UNSPECIFIED),
            Kind::IDENTIFIER,
            "the peer has the router ID 0.0.0.0, which this speaker has or nobody can have",
        ),
        (
            PeerAsn::External,
            with(|it| it.hold_time = 2),
            Kind::HOLD_TIME,
            "the peer proposes a hold time of 2 s; 0 or at least 3 is allowed",
        ),
    ] {
        let mut lab = Lab::new(Config { peer_asn, ..config() });
        let conn = lab.connect();
        lab.effects.clear();
        lab.say(conn, Message::Open(open));
        let [Message::Notification(told)] = &lab.heard(conn)[..] else { panic!("a NOTIFICATION") };
        assert_eq!((told.kind, lab.why().as_str()), (kind, why));
    }
}

#[test]
fn a_peer_without_a_common_family_is_told_which_are_needed() {
    let families = PerFamily { v4: false, v6: true };
    let mut lab = Lab::new(Config { families, ..config() });
    let conn = lab.connect();
    lab.effects.clear();
    lab.say(conn, Message::Open(Open { capabilities: Capabilities::default(), ..open() }));
    let data = vec![1, 4, 0, 2, 0, 1];
    let told = Notification { kind: Kind::CAPABILITY, data };
    assert_eq!(lab.heard(conn), [Message::Notification(told)]);
    assert_eq!(lab.why(), "the peer does not exchange IPv6 routes");
}

#[test]
fn a_peer_without_capabilities_gets_ipv4_routes_with_small_as_numbers() {
    let mut lab = Lab::new(Config { asn: 4_200_000_001, ..config() });
    let conn = lab.connect();
    lab.say(conn, Message::Open(Open { capabilities: Capabilities::default(), ..open() }));
    lab.say(conn, Message::KeepAlive);
    lab.event(announce("203.0.113.1/32"));
    lab.effects.clear();
    lab.event(announce("2001:db8::7/128"));
    assert_eq!(lab.effects(), []);
    let status = lab.session.status();
    assert_eq!(
        (status.told, status.wanted),
        (PerFamily { v4: 1, v6: 0 }, PerFamily { v4: 1, v6: 1 })
    );
    assert_eq!(status.held_back.v6.as_deref(), Some("the peer does not exchange IPv6 routes"));
}
