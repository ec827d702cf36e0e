use super::{BadParameters, Change, Packet, Parameters, Session, State};
use crate::bfd::packet::Diagnostic;
use crate::cases::cases;
use crate::dice::Dice;
use bowline_core::clock::Uptime;
use proptest::prelude::*;
use std::num::{NonZeroU8, NonZeroU32};
use std::time::Duration;

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn parameters(receive: u64, transmit: u64, multiplier: u32) -> Parameters {
    Parameters::new(ms(receive), ms(transmit), multiplier, false).expect("allowed")
}

fn session(number: u32, parameters: Parameters) -> Session {
    let discriminator = NonZeroU32::new(number).expect("not 0");
    Session::new(discriminator, parameters, Dice::new(number.into()), Uptime::ZERO)
}

fn change(state: State, diagnostic: Diagnostic, peer: State) -> Change {
    Change { state, diagnostic, peer }
}

/// Two sessions and the packets between them.
struct Link {
    sides: [Session; 2],
    /// Packets of side 0 or 1, with the time at which they arrive.
    under_way: Vec<(Uptime, usize, Packet)>,
    sent: [Vec<(Uptime, Packet)>; 2],
    now: Uptime,
    delay: Duration,
    open: [bool; 2],
}

impl Link {
    fn new(one: Parameters, other: Parameters) -> Self {
        Self {
            sides: [session(1, one), session(2, other)],
            under_way: Vec::new(),
            sent: [Vec::new(), Vec::new()],
            now: Uptime::ZERO,
            delay: ms(2),
            open: [true, true],
        }
    }

    /// Lets events happen in their order until this time.
    fn run_until(&mut self, end: Uptime) {
        loop {
            let wakes = self.sides.iter().filter_map(Session::wake_at);
            let next = self.under_way.iter().map(|it| it.0).chain(wakes).min();
            let Some(next) = next.filter(|it| *it <= end) else { break };
            self.now = next.max(self.now);
            let due: Vec<_> = self.under_way.extract_if(.., |it| it.0 <= self.now).collect();
            for (_, from, packet) in due {
                let read =
                    Packet::parse(&packet.to_bytes()).expect("what a session sends is valid");
                self.sides[1 - from].receive(&read, self.now);
            }
            for (side, session) in self.sides.iter_mut().enumerate() {
                for packet in session.take(self.now) {
                    self.sent[side].push((self.now, packet));
                    if self.open[side] {
                        self.under_way.push((self.now + self.delay, side, packet));
                    }
                }
                assert!(session.wake_at().is_none_or(|at| at > self.now), "it would not rest");
            }
        }
        self.now = end;
    }

    fn run(&mut self, time: Duration) {
        self.run_until(self.now + time);
    }

    fn states(&self) -> [State; 2] {
        [self.sides[0].state(), self.sides[1].state()]
    }

    /// The intervals at which a side sends without a request.
    fn intervals(&mut self, side: usize, time: Duration) -> Vec<Duration> {
        self.sent[side].clear();
        self.run(time);
        let times = self.sent[side].iter().filter(|it| !it.1.r#final).map(|it| it.0);
        let times: Vec<_> = times.collect();
        times.windows(2).map(|it| it[1] - it[0]).collect()
    }
}

#[test]
fn a_session_comes_up_and_leaves_the_slow_interval() {
    let mut link = Link::new(parameters(100, 100, 3), parameters(300, 50, 5));
    link.run(ms(3000));
    assert_eq!(link.states(), [State::Up, State::Up]);
    assert_eq!(
        link.sides[0].changes().last(),
        Some(&change(State::Up, Diagnostic::NONE, State::Init))
    );
    let sent = link.intervals(0, ms(10_000));
    assert!(
        sent.iter().all(|it| (ms(225)..=ms(300)).contains(it)),
        "the peer takes 300ms: {sent:?}"
    );
    let sent = link.intervals(1, ms(10_000));
    assert!(sent.iter().all(|it| (ms(75)..=ms(100)).contains(it)), "we take 100ms: {sent:?}");
    let (_, last) = link.sent[1].last().expect("sent");
    assert!(!last.poll && last.your_discriminator == 1, "{last:?}");
}

#[test]
fn a_silent_peer_is_gone_after_the_detection_time_and_not_before() {
    let mut link = Link::new(parameters(100, 100, 3), parameters(100, 100, 3));
    link.run(ms(3000));
    let last = link.sent[1].last().expect("sent").0 + link.delay;
    link.open[1] = false;
    link.run_until(last + ms(299));
    assert_eq!(link.states()[0], State::Up);
    link.run_until(last + ms(301));
    assert_eq!(link.states()[0], State::Down);
    assert_eq!(
        link.sides[0].changes().last(),
        Some(&change(State::Down, Diagnostic::TIME_EXPIRED, State::Down))
    );
    let (_, told) = link.sent[0].last().expect("the peer is told");
    assert_eq!((told.state, told.diagnostic), (State::Down, Diagnostic::TIME_EXPIRED));
    assert_eq!(told.your_discriminator, 0, "the peer may have forgotten it");
    link.run(ms(100));
    assert_eq!(link.states()[1], State::Down, "the peer hears that it is not heard");
    link.open[1] = true;
    link.run(ms(3000));
    assert_eq!(link.states(), [State::Up, State::Up]);
}

#[test]
fn an_ended_session_is_not_taken_for_a_failure() {
    let mut link = Link::new(parameters(100, 100, 3), parameters(100, 100, 3));
    link.run(ms(3000));
    let until = link.sides[0].end(link.now);
    assert_eq!(until, link.now + ms(3000), "three packets, at the slow interval");
    link.run(ms(50));
    assert_eq!(link.states(), [State::AdminDown, State::Down]);
    let told = link.sent[0].last().expect("told").1;
    assert_eq!(told.diagnostic, Diagnostic::ADMINISTRATIVELY_DOWN);
    assert_eq!(
        link.sides[1].changes().last(),
        Some(&change(State::Down, Diagnostic::NEIGHBOR_SIGNALED, State::AdminDown))
    );
}

#[test]
fn timers_change_without_a_flap() {
    let mut link = Link::new(parameters(100, 100, 3), parameters(100, 100, 3));
    link.run(ms(3000));
    let _ = [link.sides[0].changes(), link.sides[1].changes()];
    for (receive, transmit) in [(1000, 1000), (50, 50), (2000, 30), (30, 2000), (100, 100)] {
        link.sides[0].set_parameters(parameters(receive, transmit, 3), link.now);
        link.run(ms(8000));
        let sent = link.intervals(0, ms(8000));
        let expected = ms(transmit.max(100));
        assert!(
            sent.iter().all(|it| (expected.mul_f64(0.75)..=expected).contains(it)),
            "{receive}, {transmit}: {sent:?}"
        );
        assert_eq!(link.sides[0].detection_time(), ms(receive.max(100)) * 3);
    }
    assert_eq!([link.sides[0].changes(), link.sides[1].changes()], [vec![], vec![]]);
}

#[test]
fn a_peer_that_wants_no_periodic_packets_gets_none() {
    let mut link = Link::new(parameters(100, 100, 3), parameters(100, 100, 3));
    link.run(ms(3000));
    link.open = [false, false];
    let (_, packet) = *link.sent[1].last().expect("sent");
    for quiet in [Packet { demand: true, ..packet }, Packet { required_receive: 0, ..packet }] {
        link.sides[0].receive(&quiet, link.now);
        link.sides[0].receive(&Packet { poll: true, ..quiet }, link.now);
        let answers = link.sides[0].take(link.now);
        assert!(matches!(answers[..], [Packet { r#final: true, .. }]), "{answers:?}");
        link.sent[0].clear();
        link.run(ms(200));
        assert_eq!(link.sent[0], [], "{quiet:?}");
    }
}

#[test]
fn parameters_that_cannot_be_kept_are_refused() {
    let refused = |receive, multiplier, echo| {
        Parameters::new(ms(receive), ms(300), multiplier, echo).expect_err("refused").to_string()
    };
    assert_eq!(refused(300, 3, true), "echo is true: the echo function of BFD is not supported");
    assert_eq!(refused(9, 3, false), "receiveInterval is 9ms: not between 10ms and 60s");
    assert_eq!(refused(60_001, 3, false), "receiveInterval is 60.001s: not between 10ms and 60s");
    assert_eq!(refused(300, 1, false), "detectMultiplier is 1: not between 2 and 255");
    assert_eq!(refused(300, 256, false), "detectMultiplier is 256: not between 2 and 255");
    assert_eq!(
        Parameters::new(ms(300), Duration::MAX, 3, false),
        Err(BadParameters::Interval { name: "transmitInterval", value: Duration::MAX })
    );
}

/// A packet that a confused or hostile peer may send.
fn packets() -> impl Strategy<Value = Packet> {
    let states = [State::AdminDown, State::Down, State::Init, State::Up];
    let numbers = || prop_oneof![Just(0), Just(1), 1..3_000_000u32, any::<u32>()];
    (prop::sample::select(states.to_vec()), any::<[bool; 3]>(), any::<u8>(), numbers(), numbers())
        .prop_map(
            |(state, [poll, r#final, demand], multiplier, desired_transmit, required_receive)| {
                Packet {
                    diagnostic: Diagnostic::NONE,
                    state,
                    poll,
                    r#final,
                    control_plane_independent: false,
                    demand,
                    detect_multiplier: NonZeroU8::new(multiplier).unwrap_or(NonZeroU8::MIN),
                    my_discriminator: NonZeroU32::MIN,
                    your_discriminator: 1,
                    desired_transmit,
                    required_receive,
                    required_echo_receive: 0,
                }
            },
        )
}

proptest! {
    #![proptest_config(cases(60))]

    /// Whatever happened before, two sides that hear each other come up, and stay up.
    #[test]
    fn sessions_come_up_after_any_history(
        one in (10..2000u64, 10..2000u64, 2..10u32),
        other in (10..2000u64, 10..2000u64, 2..10u32),
        history in proptest::collection::vec((0..2usize, any::<bool>(), 0..3000u64), 0..12),
    ) {
        let mut link = Link::new(parameters(one.0, one.1, one.2), parameters(other.0, other.1, other.2));
        for (side, open, time) in history {
            link.open[side] = open;
            link.run(ms(time));
        }
        link.open = [true, true];
        // The longest detection time: nine packets of two seconds each.
        link.run(ms(25_000));
        let _ = [link.sides[0].changes(), link.sides[1].changes()];
        link.run(ms(30_000));
        prop_assert_eq!(link.states(), [State::Up, State::Up]);
        prop_assert_eq!([link.sides[0].changes(), link.sides[1].changes()], [vec![], vec![]]);
    }

    /// No packet of a peer makes a session send more often than its own interval allows, except for answers.
    #[test]
    fn a_hostile_peer_gets_one_answer_for_a_packet(
        received in proptest::collection::vec((packets(), 0..200u64), 1..60),
    ) {
        let mut session = session(1, parameters(100, 100, 3));
        let mut now = Uptime::ZERO;
        for (packet, pause) in received {
            let _ = session.take(now);
            let before = session.state();
            session.receive(&packet, now);
            let sent = session.take(now);
            let changed = usize::from(session.state() != before);
            prop_assert!(sent.len() <= 1 + changed, "{:?}", sent);
            prop_assert!(sent.iter().all(|it| !(it.poll && it.r#final)));
            let end = now + ms(pause);
            let mut count = 0;
            while let Some(at) = session.wake_at().filter(|at| *at <= end) {
                count += session.take(at.max(now)).len();
            }
            prop_assert!(count <= 2 + pause as usize / 75, "{} packets in {}ms", count, pause);
            now = end;
        }
    }
}
