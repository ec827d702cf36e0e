//! One TCP connection of a session: its state, its timers, and what is on its way.

use super::config::Jitter;
use super::negotiate::Peer;
use super::{Conn, Effect};
use crate::bgp::family::PerFamily;
use crate::bgp::framer::Framer;
use crate::bgp::message::Message;
use crate::bgp::notification::{Kind, Refusal};
use crate::bgp::rib_out::NextHops;
use crate::bgp::update::Update;
use bowline_core::clock::Uptime;
use std::time::Duration;

/// The states of RFC 4271 that a connection has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// An OPEN is awaited.
    OpenSent,
    /// A KEEPALIVE is awaited.
    OpenConfirm,
    /// Routes are exchanged.
    Established,
}

/// RFC 9687: a peer that reads nothing for so long is dead, even if it sends.
const SEND_HOLD: Duration = Duration::from_secs(480);

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) id: Conn,
    pub(super) phase: Phase,
    /// Addresses of this side.
    pub(super) local: NextHops,
    pub(super) framer: Framer,
    /// What the peer's OPEN says; there from OpenConfirm on.
    pub(super) peer: Option<Peer>,
    /// When the peer must have sent something.
    pub(super) deadline: Option<Uptime>,
    pub(super) keep_alive_at: Option<Uptime>,
    /// Bytes that the kernel does not have yet.
    pub(super) on_the_way: usize,
    /// When the kernel last had everything.
    pub(super) last_progress: Uptime,
    /// When the phase began.
    pub(super) since: Uptime,
    /// Families that the peer wants to be told again.
    pub(super) refresh: PerFamily<bool>,
    /// End-of-RIB has been sent.
    pub(super) rib_ended: bool,
}

impl Connection {
    pub(super) fn new(id: Conn, local: NextHops, deadline: Uptime, now: Uptime) -> Self {
        Self {
            id,
            phase: Phase::OpenSent,
            local,
            framer: Framer::default(),
            peer: None,
            deadline: Some(deadline),
            keep_alive_at: None,
            on_the_way: 0,
            last_progress: now,
            since: now,
            refresh: PerFamily::default(),
            rib_ended: false,
        }
    }

    /// AS numbers have four bytes.
    pub(super) fn four_octet(&self) -> bool {
        self.peer.as_ref().is_some_and(|peer| peer.four_octet)
    }

    pub(super) fn queue(&mut self, effects: &mut Vec<Effect>, bytes: Vec<u8>, now: Uptime) {
        if !bytes.is_empty() {
            if self.on_the_way == 0 {
                self.last_progress = now;
            }
            self.on_the_way += bytes.len();
            effects.push(Effect::Send(self.id, bytes));
        }
    }

    /// A message came: the peer is alive for another hold time.
    pub(super) fn heard(&mut self, now: Uptime) {
        self.deadline = self.peer.as_ref().and_then(|peer| peer.hold_time).map(|hold| now + hold);
    }

    pub(super) fn end_rib(&self, bytes: &mut Vec<u8>) {
        for family in self.peer.iter().flat_map(|peer| peer.families.members()) {
            Message::Update(Box::new(Update::end_of_rib(family))).encode(bytes, true);
        }
    }

    /// Sends a KEEPALIVE if it is time, between three quarters of the interval and the whole (RFC 4271, section 10).
    pub(super) fn keep_alive(
        &mut self,
        effects: &mut Vec<Effect>,
        jitter: &mut Jitter,
        now: Uptime,
    ) {
        let interval = self.peer.as_ref().and_then(|peer| peer.keepalive_time);
        if let (Some(interval), Some(at)) = (interval, self.keep_alive_at)
            && at <= now
        {
            let share = f64::from(jitter.next()) / f64::from(u32::MAX);
            self.keep_alive_at = Some(now + interval.mul_f64(0.75 + share / 4.0));
            self.queue(effects, Message::KeepAlive.bytes(), now);
        }
    }

    fn send_deadline(&self) -> Option<Uptime> {
        let hold = self.peer.as_ref().and_then(|peer| peer.hold_time).unwrap_or_default();
        (self.on_the_way > 0).then(|| self.last_progress + SEND_HOLD.max(2 * hold))
    }

    pub(super) fn wake_at(&self) -> Option<Uptime> {
        [self.deadline, self.keep_alive_at, self.send_deadline()].into_iter().flatten().min()
    }

    /// Why the connection ends now because nothing happened.
    pub(super) fn expired(&self, now: Uptime) -> Option<(Conn, Refusal)> {
        let is_over = |deadline: Option<Uptime>| deadline.is_some_and(|deadline| deadline <= now);
        if is_over(self.deadline) {
            let why = match (self.phase, self.peer.as_ref().and_then(|peer| peer.hold_time)) {
                (Phase::OpenSent, _) => {
                    "the peer accepted the connection and sent no OPEN".to_owned()
                }
                (_, None) => "the peer sent an OPEN and no KEEPALIVE".to_owned(),
                (_, Some(hold)) => {
                    format!("the peer sent nothing for the hold time of {} s", hold.as_secs())
                }
            };
            return Some((self.id, Refusal::new(Kind::HOLD_TIMER, why)));
        }
        if is_over(self.send_deadline()) {
            let seconds = (now - self.last_progress).as_secs();
            let why = format!("the peer read nothing for {seconds} s");
            return Some((self.id, Refusal::new(Kind::SEND_HOLD, why)));
        }
        None
    }
}
