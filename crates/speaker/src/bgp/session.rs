//! The session with one peer (RFC 4271, section 8), with collision detection, graceful restart as the restarting side
//! (RFC 4724) and a send hold timer (RFC 9687).
//!
//! The shell passes events to [`Session::handle`], calls [`Session::take`] after every burst and at
//! [`Session::wake_at`], and carries out the effects in their order. An event of a connection that is already closed is
//! ignored, so the shell need not be exact about what comes last.

mod attempt;
mod config;
mod connection;
mod event;
mod negotiate;
mod received;
mod record;
mod status;

use super::message::Message;
use super::notification::{Kind, Notification, Refusal};
use super::rib_out::{NextHops, RibOut};
use attempt::Attempt;
use bowline_core::backoff::Backoff;
use bowline_core::clock::Uptime;
pub use config::{Config, Jitter, PeerAsn};
use connection::{Connection, Phase};
pub use event::{Conn, Effect, Event, Stop};
pub use negotiate::Peer;
pub use record::Record;
pub use status::{Counters, Report, State, Status};
use std::time::Duration;

/// How many bytes may be on their way to the kernel. Changes wait behind them, so that a slow peer costs no memory and
/// gets only the last state.
const ON_THE_WAY: usize = 64 * 1024;
/// A peer that completes a TCP connection has to send its OPEN within this time. RFC 4271 suggests four minutes.
const OPEN_WAIT: Duration = Duration::from_secs(60);
/// After a failure to connect, this long, and twice as long each time up to the configured connect time.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// After a session that ended by an error, likewise. Until then the peer's connections are refused, too.
const FIRST_HOLD: Duration = Duration::from_secs(5);
const LONGEST_HOLD: Duration = Duration::from_secs(60);
/// A session that lived this long was good: the next failure is a first one.
const STABLE: Duration = Duration::from_secs(60);

/// The session with one peer.
#[derive(Debug)]
pub struct Session {
    config: Config,
    jitter: Jitter,
    wanted: bool,
    attempt: Attempt,
    connections: Vec<Connection>,
    next_out: u64,
    retry: Backoff,
    hold: Backoff,
    refuse_until: Option<Uptime>,
    rib: RibOut,
    /// The routes are complete.
    complete: bool,
    /// No session of this process has ended its routes yet.
    restarted: bool,
    effects: Vec<Effect>,
    counters: Counters,
    last_failure: Option<String>,
}

impl Session {
    /// A session that is not wanted yet. The seed makes its delays differ from those of others.
    pub fn new(config: Config, seed: u64) -> Self {
        Self {
            retry: Backoff::new(FIRST_RETRY, config.connect_time),
            hold: Backoff::new(FIRST_HOLD, LONGEST_HOLD),
            config,
            jitter: Jitter(seed),
            wanted: false,
            attempt: Attempt::None,
            connections: Vec::new(),
            next_out: 0,
            refuse_until: None,
            rib: RibOut::default(),
            complete: false,
            restarted: true,
            effects: Vec::new(),
            counters: Counters::default(),
            last_failure: None,
        }
    }

    /// Takes note of an event. The effects come with the next [`Self::take`].
    pub fn handle(&mut self, event: Event, now: Uptime) {
        match event {
            Event::Start => self.start(now),
            Event::Stop(stop) => self.stop(&stop, now),
            Event::Configure(config) => self.configure(*config, now),
            Event::Reset => self.reset(now),
            Event::Connected(id, next_hops) => self.connected(id, next_hops, now),
            Event::NotConnected(id, why) => {
                if matches!(self.attempt, Attempt::Connecting(current, _) if current == id) {
                    self.not_connected(why, now);
                }
            }
            Event::Accepted(id, next_hops) => self.accepted(id, next_hops, now),
            Event::Received(id, bytes) => self.received(id, &bytes, now),
            Event::Sent(id) => {
                if let Some(connection) = self.connection(id) {
                    connection.on_the_way = 0;
                    connection.last_progress = now;
                }
            }
            Event::Closed(id, why) => {
                if let Some(at) = self.position(id) {
                    let connection = self.connections.remove(at);
                    self.ended(&connection, Some(closed(&connection, &why)), now);
                }
            }
            Event::BfdDown => {
                let why = "BFD says that the peer is not reached".to_owned();
                self.close_all(Some(Notification::new(Kind::BFD_DOWN)), Some(why), now);
            }
            Event::Announce(prefix, route) => self.rib.announce(prefix, route),
            Event::Withdraw(prefix) => self.rib.withdraw(prefix),
            Event::Complete => self.complete = true,
            Event::Drain(draining) => self.rib.drain(draining),
        }
    }

    /// What has to be done now, also because time has passed.
    pub fn take(&mut self, now: Uptime) -> Vec<Effect> {
        self.attempt_when_due(now);
        self.expire(now);
        self.send(now);
        std::mem::take(&mut self.effects)
    }

    /// When [`Self::take`] has to be called again, if no event comes before.
    pub fn wake_at(&self) -> Option<Uptime> {
        let attempt = match self.attempt {
            Attempt::None => None,
            Attempt::At(at) | Attempt::Connecting(_, at) => Some(at),
        };
        attempt.into_iter().chain(self.connections.iter().filter_map(Connection::wake_at)).min()
    }

    /// Whether the peer has been told everything, and it is with the kernel.
    pub fn is_settled(&self) -> bool {
        let settled = |it: &Connection| it.on_the_way == 0 && self.rib.is_told();
        self.established().is_none_or(settled)
    }

    fn start(&mut self, now: Uptime) {
        if !std::mem::replace(&mut self.wanted, true) {
            self.forgive();
            self.attempt_at(now);
        }
    }

    /// What failed before says nothing about what comes.
    fn forgive(&mut self) {
        self.refuse_until = None;
        self.retry.worked();
        self.hold.worked();
    }

    fn stop(&mut self, stop: &Stop, now: Uptime) {
        self.wanted = false;
        let (notification, why) = match stop {
            Stop::Leave(text) => {
                (Some(Notification::with_text(Kind::SHUTDOWN, text)), "this node leaves")
            }
            Stop::Upgrade => (None, "the speaker restarts"),
            Stop::Deconfigured => (
                Some(Notification::new(Kind::DECONFIGURED)),
                "the BGPPeer is gone or does not select this node",
            ),
        };
        self.close_all(notification, Some(why.to_owned()), now);
        self.drop_attempt();
    }

    fn configure(&mut self, config: Config, now: Uptime) {
        let old = std::mem::replace(&mut self.config, config);
        if old == self.config {
            return;
        }
        if old.connect_time != self.config.connect_time {
            self.retry = Backoff::new(FIRST_RETRY, self.config.connect_time);
        }
        if self.config.needs_reset_from(&old) {
            self.reset(now);
        } else if !self.config.connects {
            self.drop_attempt();
        } else if !old.connects && self.connections.is_empty() {
            self.attempt_at(now);
        }
        if let Some(at) = self.connections.iter().position(|it| it.phase == Phase::Established) {
            let next_hops = self.config.next_hops(self.connections[at].local);
            self.rib.set_next_hops(next_hops);
        }
    }

    fn reset(&mut self, now: Uptime) {
        let why = "the configuration of the peer changed".to_owned();
        self.close_all(Some(Notification::new(Kind::CONFIGURATION)), Some(why), now);
        self.drop_attempt();
        self.forgive();
        self.attempt_at(now);
    }

    fn connected(&mut self, id: Conn, local: NextHops, now: Uptime) {
        match self.attempt {
            Attempt::Connecting(current, _) if current == id => {
                self.attempt = Attempt::None;
                self.open(id, local, now);
            }
            _ => self.effects.push(Effect::Close(id)),
        }
    }

    fn accepted(&mut self, id: Conn, local: NextHops, now: Uptime) {
        let refused = self.refuse_until.is_some_and(|until| now < until);
        if !self.wanted || !self.config.accepts || refused {
            self.effects.push(Effect::Send(
                id,
                Message::Notification(Notification::new(Kind::REJECTED)).bytes(),
            ));
            self.effects.push(Effect::Close(id));
            return;
        }
        // A peer that connects anew has given up its previous connection.
        let previous =
            |it: &Connection| matches!(it.id, Conn::In(_)) && it.phase != Phase::Established;
        while let Some(at) = self.connections.iter().position(previous) {
            let connection = self.connections.remove(at);
            self.effects.push(Effect::Close(connection.id));
        }
        self.open(id, local, now);
    }

    fn open(&mut self, id: Conn, local: NextHops, now: Uptime) {
        let mut connection = Connection::new(id, local, now + OPEN_WAIT, now);
        let open = self.config.open(self.restarted);
        connection.queue(&mut self.effects, Message::Open(open).bytes(), now);
        self.connections.push(connection);
    }

    fn position(&self, id: Conn) -> Option<usize> {
        self.connections.iter().position(|it| it.id == id)
    }

    fn connection(&mut self, id: Conn) -> Option<&mut Connection> {
        self.connections.iter_mut().find(|it| it.id == id)
    }

    fn established(&self) -> Option<&Connection> {
        self.connections.iter().find(|it| it.phase == Phase::Established)
    }

    /// Ends a connection with a notification, for a reason that counts as a failure.
    fn refuse(&mut self, id: Conn, refusal: Refusal, now: Uptime) {
        if let Some(at) = self.position(id) {
            let connection = self.connections.remove(at);
            self.say_goodbye(id, Some(&refusal.notification));
            let next = self.ended(&connection, Some(refusal.why), now);
            // A peer that breaks the rules has to wait as this side does. Not one that was only cut off: two sides that
            // both wait would refuse each other for ever.
            if matches!(refusal.notification.kind, Kind(1 | 2 | 3 | 5, _)) {
                self.refuse_until = next;
            }
        }
    }

    fn say_goodbye(&mut self, id: Conn, notification: Option<&Notification>) {
        if let Some(notification) = notification {
            self.counters.notifications_sent += 1;
            let bytes = Message::Notification(notification.clone()).bytes();
            self.effects.push(Effect::Send(id, bytes));
        }
        self.effects.push(Effect::Close(id));
    }

    /// Ends all connections for a reason of this side.
    fn close_all(&mut self, notification: Option<Notification>, why: Option<String>, now: Uptime) {
        for connection in std::mem::take(&mut self.connections) {
            self.say_goodbye(connection.id, notification.as_ref());
            self.ended(&connection, why.clone(), now);
        }
    }

    /// A connection is gone. Unless another one is left, the next attempt comes after a delay: the time is returned.
    fn ended(
        &mut self,
        connection: &Connection,
        why: Option<String>,
        now: Uptime,
    ) -> Option<Uptime> {
        let mut next = None;
        let was_established = connection.phase == Phase::Established;
        if was_established {
            self.rib.end();
            self.counters.flaps += 1;
            if now.saturating_sub(connection.since) >= STABLE {
                self.retry.worked();
                self.hold.worked();
            }
        }
        if self.connections.is_empty() {
            let random = self.jitter.next();
            // A session that was good, and a connection that only ended: soon again. Errors: later.
            let delay = match was_established && self.hold.failures() == 0 {
                true => self.retry.failed(random),
                false => self.hold.failed(random),
            };
            next = Some(now + delay);
            self.drop_attempt();
            self.attempt_at(now + delay);
        }
        if let Some(why) = why {
            match was_established {
                true => self.down(why),
                false => self.failed(why),
            }
        }
        next
    }

    fn down(&mut self, why: String) {
        self.last_failure = Some(why.clone());
        self.effects.push(Effect::Report(Report::Down(why)));
    }

    fn failed(&mut self, why: String) {
        // While there is another connection, that one decides.
        if self.connections.is_empty() {
            self.last_failure = Some(why.clone());
            self.effects.push(Effect::Report(Report::NotUp(why)));
        }
    }

    /// Hold timers, and peers that read nothing.
    fn expire(&mut self, now: Uptime) {
        while let Some((id, refusal)) = self.connections.iter().find_map(|it| it.expired(now)) {
            self.refuse(id, refusal, now);
        }
    }

    fn send(&mut self, now: Uptime) {
        let established = self.connections.iter_mut().find(|it| it.phase == Phase::Established);
        if let Some(connection) = established {
            for family in connection.refresh.members() {
                self.rib.resend(family);
            }
            connection.refresh = Default::default();
            let room = ON_THE_WAY.saturating_sub(connection.on_the_way);
            let mut bytes = Vec::new();
            self.counters.updates_sent += self.rib.write(&mut bytes, room) as u64;
            if self.complete
                && self.rib.is_told()
                && !std::mem::replace(&mut connection.rib_ended, true)
            {
                connection.end_rib(&mut bytes);
                self.restarted = false;
            }
            connection.queue(&mut self.effects, bytes, now);
        }
        for connection in &mut self.connections {
            connection.keep_alive(&mut self.effects, &mut self.jitter, now);
        }
    }
}

fn closed(connection: &Connection, why: &str) -> String {
    match connection.phase {
        Phase::OpenSent => {
            format!(
                "the peer closed the connection before its OPEN ({why}): does it know this node's address?"
            )
        }
        Phase::OpenConfirm => format!("the peer closed the connection after its OPEN ({why})"),
        Phase::Established => format!("the connection ended ({why})"),
    }
}

#[cfg(test)]
mod tests;
