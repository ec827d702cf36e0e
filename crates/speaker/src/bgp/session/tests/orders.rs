//! Any events in any order, with bytes that no router sends.

use super::*;
use crate::cases::cases;
use proptest::prelude::*;
use std::collections::BTreeSet;

#[derive(Clone, Debug)]
enum Step {
    Start,
    Stop,
    Upgrade,
    Configure(u16, bool, bool),
    Reset,
    /// Answers the oldest attempt.
    Answer(bool),
    Accept,
    /// On a connection that is there, if there is one.
    Say(usize, Said),
    Close(usize),
    Sent(usize),
    Announce(u8),
    Withdraw(u8),
    Bfd,
    Complete,
    Drain(bool),
    Pass(u32),
}

#[derive(Clone, Debug)]
enum Said {
    Open,
    OtherOpen,
    KeepAlive,
    Refresh,
    Notification(u8, u8),
    Bytes(Vec<u8>),
    /// A header that is right, and any content.
    Body(u8, Vec<u8>),
}

fn said() -> impl Strategy<Value = Said> {
    prop_oneof![
        4 => Just(Said::Open),
        1 => Just(Said::OtherOpen),
        4 => Just(Said::KeepAlive),
        1 => Just(Said::Refresh),
        1 => any::<(u8, u8)>().prop_map(|(code, subcode)| Said::Notification(code, subcode)),
        1 => prop::collection::vec(any::<u8>(), 0..40).prop_map(Said::Bytes),
        1 => (0u8..7, prop::collection::vec(any::<u8>(), 0..60)).prop_map(|(it, body)| Said::Body(it, body)),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => Just(Step::Start),
        1 => Just(Step::Stop),
        1 => Just(Step::Upgrade),
        1 => (3u16..5, any::<bool>(), any::<bool>()).prop_map(|(it, c, a)| Step::Configure(it, c, a)),
        1 => Just(Step::Reset),
        4 => prop::bool::weighted(0.8).prop_map(Step::Answer),
        2 => Just(Step::Accept),
        9 => (0usize..3, said()).prop_map(|(at, said)| Step::Say(at, said)),
        1 => (0usize..3).prop_map(Step::Close),
        2 => (0usize..3).prop_map(Step::Sent),
        2 => any::<u8>().prop_map(Step::Announce),
        2 => any::<u8>().prop_map(Step::Withdraw),
        1 => Just(Step::Bfd),
        1 => Just(Step::Complete),
        1 => any::<bool>().prop_map(Step::Drain),
        3 => (0u32..100_000).prop_map(Step::Pass),
    ]
}

fn bytes(said: Said) -> Vec<u8> {
    match said {
        Said::Open => Message::Open(open()).bytes(),
        Said::OtherOpen => Message::Open(Open { asn: 9, ..open() }).bytes(),
        Said::KeepAlive => Message::KeepAlive.bytes(),
        Said::Refresh => Message::RouteRefresh(RouteRefresh { family: Some(Family::V4) }).bytes(),
        Said::Notification(code, subcode) => {
            Message::Notification(Notification::new(Kind(code, subcode))).bytes()
        }
        Said::Bytes(bytes) => bytes,
        Said::Body(kind, body) => {
            let length = (19 + body.len() as u16).to_be_bytes();
            [&[0xff; 16][..], &length, &[kind], &body].concat()
        }
    }
}

/// What a shell would have open.
#[derive(Default)]
struct Shell {
    attempts: BTreeSet<Conn>,
    open: BTreeSet<Conn>,
}

impl Shell {
    fn carry_out(&mut self, effects: &[Effect]) {
        for effect in effects {
            match effect {
                Effect::Connect(conn) => {
                    assert!(self.attempts.insert(*conn), "a number is used once")
                }
                Effect::Send(conn, bytes) => {
                    assert!(self.open.contains(conn), "sent on a connection that is not open");
                    assert!(!bytes.is_empty());
                }
                Effect::Close(conn) => {
                    assert!(
                        self.open.remove(conn) || self.attempts.remove(conn),
                        "{conn:?} closed twice"
                    );
                }
                Effect::Report(_) => {}
            }
        }
    }
}

proptest! {
    #![proptest_config(cases(100))]

    #[test]
    fn nothing_leaks_and_nothing_hangs(steps in prop::collection::vec(step(), 0..120)) {
        let mut session = Session::new(config(), 1);
        let (mut shell, mut now, mut inbound) = (Shell::default(), secs(5), 0);
        let (mut wanted, mut connects) = (false, true);
        for step in steps {
            let at = |shell: &Shell, at: usize| shell.open.iter().nth(at).copied();
            let event = match step {
                Step::Start => {
                    wanted = true;
                    Some(Event::Start)
                }
                Step::Stop => {
                    wanted = false;
                    Some(Event::Stop(Stop::Leave("test".to_owned())))
                }
                Step::Upgrade => {
                    wanted = false;
                    Some(Event::Stop(Stop::Upgrade))
                }
                Step::Configure(hold_time, connect, accepts) => {
                    connects = connect;
                    let config = Config { hold_time, connects, accepts, ..config() };
                    Some(Event::Configure(Box::new(config)))
                }
                Step::Reset => Some(Event::Reset),
                Step::Answer(well) => shell.attempts.pop_first().map(|conn| match well {
                    true => {
                        shell.open.insert(conn);
                        Event::Connected(conn, local())
                    }
                    false => Event::NotConnected(conn, "refused".to_owned()),
                }),
                Step::Accept => {
                    inbound += 1;
                    shell.open.insert(Conn::In(inbound));
                    Some(Event::Accepted(Conn::In(inbound), local()))
                }
                Step::Say(conn, said) => at(&shell, conn).map(|conn| Event::Received(conn, bytes(said))),
                Step::Close(conn) => at(&shell, conn).map(|conn| {
                    shell.open.remove(&conn);
                    Event::Closed(conn, "reset".to_owned())
                }),
                Step::Sent(conn) => at(&shell, conn).map(Event::Sent),
                Step::Announce(it) => Some(announce(&format!("203.0.113.{it}/32"))),
                Step::Withdraw(it) => Some(Event::Withdraw(format!("203.0.113.{it}/32").parse().unwrap())),
                Step::Bfd => Some(Event::BfdDown),
                Step::Complete => Some(Event::Complete),
                Step::Drain(it) => Some(Event::Drain(it)),
                Step::Pass(milliseconds) => {
                    now += Duration::from_millis(milliseconds.into());
                    None
                }
            };
            if let Some(event) = event {
                session.handle(event, now);
            }
            shell.carry_out(&session.take(now));

            let known: BTreeSet<_> = session.connections.iter().map(|it| it.id).collect();
            prop_assert_eq!(&known, &shell.open, "each connection is known on both sides");
            let attempt = match session.attempt {
                Attempt::Connecting(conn, _) => Some(conn),
                _ => None,
            };
            prop_assert_eq!(attempt.into_iter().collect::<BTreeSet<_>>(), shell.attempts.clone());
            let established = session.connections.iter().filter(|it| it.phase == Phase::Established);
            prop_assert!(established.count() <= 1);
            prop_assert!(known.len() <= 3, "{:?}", known);
            if let Some(at) = session.wake_at() {
                prop_assert!(at > now, "a take leaves nothing that is due");
            }
            if wanted && connects {
                prop_assert!(session.wake_at().is_some(), "the session goes on: {session:?}");
            }
            if !wanted {
                prop_assert!(known.is_empty() && session.wake_at().is_none());
            }
        }
    }
}
