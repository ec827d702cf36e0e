//! How this side comes to a connection: when it tries, and when it tries again.

use super::{Conn, Effect, Session};
use bowline_core::clock::Uptime;
use std::time::Duration;

/// TCP itself would try for two minutes.
const CONNECT_WAIT: Duration = Duration::from_secs(20);

/// How this side comes to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    None,
    At(Uptime),
    Connecting(Conn, Uptime),
}

impl Session {
    /// Connects at a time, if this side connects at all.
    pub(super) fn attempt_at(&mut self, at: Uptime) {
        if self.wanted && self.config.connects {
            self.attempt = Attempt::At(at);
        }
    }

    pub(super) fn drop_attempt(&mut self) {
        if let Attempt::Connecting(id, _) = std::mem::replace(&mut self.attempt, Attempt::None) {
            self.effects.push(Effect::Close(id));
        }
    }

    pub(super) fn attempt_when_due(&mut self, now: Uptime) {
        match self.attempt {
            Attempt::At(at) if at <= now && !self.connections.is_empty() => {
                // The peer was faster. If its connection fails, there is another attempt.
                self.attempt = Attempt::None;
            }
            Attempt::At(at) if at <= now => {
                self.next_out += 1;
                let id = Conn::Out(self.next_out);
                self.attempt = Attempt::Connecting(id, now + CONNECT_WAIT);
                self.effects.push(Effect::Connect(id));
            }
            Attempt::Connecting(id, deadline) if deadline <= now => {
                self.effects.push(Effect::Close(id));
                let seconds = CONNECT_WAIT.as_secs();
                let why = format!(
                    "no answer to the TCP connection for {seconds} s; a peer with another password does not answer"
                );
                self.not_connected(why, now);
            }
            _ => {}
        }
    }

    pub(super) fn not_connected(&mut self, why: String, now: Uptime) {
        self.attempt = Attempt::None;
        if self.connections.is_empty() {
            let delay = self.retry.failed(self.jitter.next());
            self.attempt_at(now + delay);
        }
        self.failed(why);
    }
}
