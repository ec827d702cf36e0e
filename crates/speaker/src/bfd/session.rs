//! The machine for one peer (RFC 5880, sections 6.2 and 6.8). It decides what is sent when, and whether the peer is
//! there; it knows no addresses.

use super::packet::{Diagnostic, Packet, State, interval};
use crate::dice::Dice;
use bowline_core::clock::Uptime;
use std::num::{NonZeroU8, NonZeroU32};
use std::time::Duration;

/// What an administrator configures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    receive: u32,
    transmit: u32,
    detect_multiplier: NonZeroU8,
}

/// Why parameters are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadParameters {
    /// An interval that is too short or too long.
    #[error("{name} is {value:?}: not between 10ms and 60s")]
    Interval {
        /// The field.
        name: &'static str,
        /// Its value.
        value: Duration,
    },
    /// Too few or too many packets.
    #[error("detectMultiplier is {0}: not between 2 and 255")]
    DetectMultiplier(u32),
    /// The echo function.
    #[error("echo is true: the echo function of BFD is not supported")]
    Echo,
}

impl Parameters {
    /// Takes the fields of a BGPPeer's `bfd`.
    pub fn new(
        receive: Duration,
        transmit: Duration,
        detect_multiplier: u32,
        echo: bool,
    ) -> Result<Self, BadParameters> {
        if echo {
            return Err(BadParameters::Echo);
        }
        let allowed = Duration::from_millis(10)..=Duration::from_secs(60);
        let interval = |name, value: Duration| match u32::try_from(value.as_micros()) {
            Ok(it) if allowed.contains(&value) => Ok(it),
            _ => Err(BadParameters::Interval { name, value }),
        };
        Ok(Self {
            receive: interval("receiveInterval", receive)?,
            transmit: interval("transmitInterval", transmit)?,
            detect_multiplier: u8::try_from(detect_multiplier)
                .ok()
                .filter(|it| *it >= 2)
                .and_then(NonZeroU8::new)
                .ok_or(BadParameters::DetectMultiplier(detect_multiplier))?,
        })
    }
}

/// While a session is not up, nobody sends more often (section 6.8.3).
const SLOW: u32 = 1_000_000;

/// A new state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) state: State,
    /// Why the session is not up any more.
    pub(super) diagnostic: Diagnostic,
    /// What the peer said last of its own.
    pub(super) peer: State,
}

/// What is known of the peer.
#[derive(Clone, Copy, Debug)]
struct Remote {
    discriminator: u32,
    state: State,
    demand: bool,
    desired_transmit: u32,
    required_receive: u32,
    detect_multiplier: u8,
}

const UNKNOWN: Remote = Remote {
    discriminator: 0,
    state: State::Down,
    demand: false,
    desired_transmit: 0,
    required_receive: 1,
    detect_multiplier: 0,
};

/// One session.
#[derive(Debug)]
pub(super) struct Session {
    discriminator: NonZeroU32,
    parameters: Parameters,
    state: State,
    diagnostic: Diagnostic,
    remote: Remote,
    /// A poll sequence runs: the peer has not confirmed the parameters yet.
    polls: bool,
    /// The intervals that were in use before the running poll sequence.
    before: Parameters,
    last_sent: Option<Uptime>,
    next_send: Option<Uptime>,
    last_heard: Option<Uptime>,
    dice: Dice,
    out: Vec<Packet>,
    changes: Vec<Change>,
}

impl Session {
    /// Begins to look for the peer.
    pub(super) fn new(
        discriminator: NonZeroU32,
        parameters: Parameters,
        dice: Dice,
        now: Uptime,
    ) -> Self {
        Self {
            discriminator,
            parameters,
            state: State::Down,
            diagnostic: Diagnostic::NONE,
            remote: UNKNOWN,
            polls: false,
            before: parameters,
            last_sent: None,
            next_send: Some(now),
            last_heard: None,
            dice,
            out: Vec::new(),
            changes: Vec::new(),
        }
    }

    pub(super) fn state(&self) -> State {
        self.state
    }

    /// The states since the last call.
    pub(super) fn changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// Changes the parameters. A session that is up stays up.
    pub(super) fn set_parameters(&mut self, parameters: Parameters, now: Uptime) {
        if self.parameters == parameters {
            return;
        }
        if !self.polls {
            self.before = self.parameters;
        }
        self.parameters = parameters;
        self.polls = self.state == State::Up;
        self.next_send = Some(now);
    }

    /// Tells the peer that an administrator ended the session. It is told until the returned time.
    pub(super) fn end(&mut self, now: Uptime) -> Uptime {
        self.change(State::AdminDown, Diagnostic::ADMINISTRATIVELY_DOWN, now);
        // The peer's detection time: after it, the peer knows in any case.
        let multiplier = u32::from(self.parameters.detect_multiplier.get());
        match self.remote.discriminator {
            0 => now,
            _ => now + self.interval() * multiplier,
        }
    }

    /// Takes a packet of the peer.
    pub(super) fn receive(&mut self, packet: &Packet, now: Uptime) {
        self.remote = Remote {
            discriminator: packet.my_discriminator.get(),
            state: packet.state,
            demand: packet.demand,
            desired_transmit: packet.desired_transmit,
            required_receive: packet.required_receive,
            detect_multiplier: packet.detect_multiplier.get(),
        };
        if packet.r#final && self.polls {
            self.polls = false;
            self.before = self.parameters;
        }
        if self.state == State::AdminDown {
            return;
        }
        self.last_heard = Some(now);
        match (self.state, packet.state) {
            (State::Down, State::Down) => self.change(State::Init, self.diagnostic, now),
            (State::Down, State::Init) | (State::Init, State::Init | State::Up) => {
                self.change(State::Up, Diagnostic::NONE, now);
            }
            (State::Init | State::Up, State::AdminDown) | (State::Up, State::Down) => {
                self.change(State::Down, Diagnostic::NEIGHBOR_SIGNALED, now);
            }
            _ => {}
        }
        if packet.poll {
            self.send(true, now);
        } else {
            self.bring_forward();
        }
    }

    fn change(&mut self, state: State, diagnostic: Diagnostic, now: Uptime) {
        self.state = state;
        self.diagnostic = diagnostic;
        self.changes.push(Change { state, diagnostic, peer: self.remote.state });
        // Both sides leave the slow interval, or come back to it; the peer has to know.
        self.polls = state == State::Up;
        self.before = self.parameters;
        self.next_send = Some(now);
    }

    /// What this side says of its sending: slow until the session is up.
    fn desired_transmit(&self, parameters: Parameters) -> u32 {
        if self.state == State::Up { parameters.transmit } else { parameters.transmit.max(SLOW) }
    }

    /// The time between two packets, before it is spread. A longer one counts once the peer has confirmed it.
    fn interval(&self) -> Duration {
        let mut own = self.desired_transmit(self.parameters);
        if self.polls {
            own = own.min(self.desired_transmit(self.before));
        }
        interval(own.max(self.remote.required_receive))
    }

    /// Without a packet for so long, the peer is gone. A shorter time counts once the peer has confirmed it.
    fn detection_time(&self) -> Duration {
        let mut own = self.parameters.receive;
        if self.polls {
            own = own.max(self.before.receive);
        }
        let each = interval(own.max(self.remote.desired_transmit));
        each * u32::from(self.remote.detect_multiplier)
    }

    fn silent_at(&self) -> Option<Uptime> {
        Some(self.last_heard? + self.detection_time())
    }

    /// Whether packets are sent without a request (section 6.8.7).
    fn is_periodic(&self) -> bool {
        let up = self.state == State::Up && self.remote.state == State::Up;
        self.polls || (self.remote.required_receive > 0 && !(self.remote.demand && up))
    }

    /// The peer may want packets sooner than the next one is due.
    fn bring_forward(&mut self) {
        if let (Some(last), Some(next)) = (self.last_sent, self.next_send) {
            self.next_send = Some(next.min(last + self.interval()));
        }
    }

    /// When to call [`Session::take`] again.
    pub(super) fn wake_at(&self) -> Option<Uptime> {
        let send = self.next_send.filter(|_| self.is_periodic());
        send.into_iter().chain(self.silent_at()).min()
    }

    /// What has to be sent. The shell has passed on every packet that arrived before `now`.
    pub(super) fn take(&mut self, now: Uptime) -> Vec<Packet> {
        if self.silent_at().is_some_and(|at| at <= now) {
            self.last_heard = None;
            self.remote = UNKNOWN;
            if matches!(self.state, State::Init | State::Up) {
                self.change(State::Down, Diagnostic::TIME_EXPIRED, now);
            }
        }
        if self.next_send.is_some_and(|at| at <= now) && self.is_periodic() {
            self.send(false, now);
        }
        std::mem::take(&mut self.out)
    }

    fn send(&mut self, r#final: bool, now: Uptime) {
        self.out.push(Packet {
            diagnostic: self.diagnostic,
            state: self.state,
            poll: self.polls && !r#final,
            r#final,
            control_plane_independent: false,
            demand: false,
            detect_multiplier: self.parameters.detect_multiplier,
            my_discriminator: self.discriminator,
            your_discriminator: self.remote.discriminator,
            desired_transmit: self.desired_transmit(self.parameters),
            required_receive: self.parameters.receive,
            required_echo_receive: 0,
        });
        // An answer to a poll carries the news of a change, but not the poll of this side.
        if r#final && self.polls {
            return;
        }
        self.last_sent = Some(now);
        self.next_send = Some(now + self.interval().mul_f64(self.dice.between(0.75, 1.0)));
    }
}

#[cfg(test)]
mod tests;
