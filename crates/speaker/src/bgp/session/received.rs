//! What the peer says, message by message.

use super::connection::Phase;
use super::negotiate::Peer;
use super::{Attempt, Conn, Effect, OPEN_WAIT, Report, Session};
use crate::bgp::message::Message;
use crate::bgp::notification::{Kind, Notification, Refusal};
use crate::bgp::open::Open;
use crate::bgp::update::Update;
use bowline_core::clock::Uptime;

impl Session {
    pub(super) fn received(&mut self, id: Conn, bytes: &[u8], now: Uptime) {
        if let Some(connection) = self.connection(id) {
            connection.framer.push(bytes);
        }
        // A message may end its connection.
        while let Some(connection) = self.connection(id) {
            let four_octet = connection.four_octet();
            let message = match connection.framer.next_frame() {
                Ok(Some(frame)) => Message::decode(&frame, four_octet),
                Ok(None) => return,
                Err(refusal) => Err(refusal),
            };
            let phase = connection.phase;
            match message {
                Ok(message) => self.message(id, phase, message, now),
                Err(refusal) => self.refuse(id, refusal, now),
            }
        }
    }

    fn message(&mut self, id: Conn, phase: Phase, message: Message, now: Uptime) {
        match (phase, message) {
            (_, Message::Notification(notification)) => {
                self.notified(id, phase, &notification, now)
            }
            (Phase::OpenSent, Message::Open(open)) => self.opened(id, &open, now),
            (Phase::OpenConfirm, Message::KeepAlive) => self.establish(id, now),
            (Phase::Established, Message::KeepAlive) => self.heard(id, now),
            (Phase::Established, Message::Update(update)) => {
                self.heard(id, now);
                self.update(&update);
            }
            (Phase::Established, Message::RouteRefresh(refresh)) => {
                self.heard(id, now);
                if let (Some(family), Some(connection)) = (refresh.family, self.connection(id)) {
                    *connection.refresh.get_mut(family) = true;
                }
            }
            (phase, message) => {
                let (kind, awaited) = match phase {
                    Phase::OpenSent => (Kind::IN_OPEN_SENT, "an OPEN was awaited"),
                    Phase::OpenConfirm => (Kind::IN_OPEN_CONFIRM, "a KEEPALIVE was awaited"),
                    Phase::Established => (Kind::IN_ESTABLISHED, "the session was established"),
                };
                let name = match message {
                    Message::Open(_) => "an OPEN",
                    Message::Update(_) => "an UPDATE",
                    Message::Notification(_) => "a NOTIFICATION",
                    Message::KeepAlive => "a KEEPALIVE",
                    Message::RouteRefresh(_) => "a ROUTE-REFRESH",
                };
                let why = format!("the peer sent {name} while {awaited}");
                self.refuse(id, Refusal::new(kind, why), now);
            }
        }
    }

    fn heard(&mut self, id: Conn, now: Uptime) {
        if let Some(connection) = self.connection(id) {
            connection.heard(now);
        }
    }

    /// Routes of a peer are never installed.
    fn update(&mut self, update: &Update) {
        self.counters.updates_received += 1;
        self.counters.malformed_updates += u64::from(update.fault.is_some());
        self.counters.routes_ignored += update.announced_count() as u64;
    }

    fn notified(&mut self, id: Conn, phase: Phase, notification: &Notification, now: Uptime) {
        self.counters.notifications_received += 1;
        let Some(at) = self.position(id) else { return };
        let connection = self.connections.remove(at);
        self.effects.push(Effect::Close(id));
        // The other connection of a collision lives on, or comes back.
        let hint = notification.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
        let what = match phase {
            Phase::Established => "the peer ended the session",
            _ => "the peer refused the session",
        };
        self.ended(&connection, Some(format!("{what}: {notification}{hint}")), now);
    }

    fn opened(&mut self, id: Conn, open: &Open, now: Uptime) {
        let peer = match Peer::negotiate(&self.config, open) {
            Ok(peer) => peer,
            Err(refusal) => return self.refuse(id, refusal, now),
        };
        if self.loses_collision(id, &peer) {
            let why = "the peer and this speaker connected at the same time";
            return self.refuse(id, Refusal::new(Kind::COLLISION, why), now);
        }
        if let Some(connection) = self.connections.iter_mut().find(|it| it.id == id) {
            connection.phase = Phase::OpenConfirm;
            connection.since = now;
            connection.keep_alive_at = peer.keepalive_time.map(|_| now);
            connection.peer = Some(peer);
            connection.heard(now);
            // A KEEPALIVE answers the OPEN, before anything else is sent: the peer's own may have come with its OPEN. Without a
            // hold time, too, and one has to come.
            connection.keep_alive(&mut self.effects, &mut self.jitter, now);
            if connection.keep_alive_at.is_none() {
                connection.deadline = Some(now + OPEN_WAIT);
                connection.queue(&mut self.effects, Message::KeepAlive.bytes(), now);
            }
        }
    }

    /// RFC 4271, section 6.8. Of two connections the one stays that the side with the higher identifier made; an
    /// established one stays in any case, unless the peer restarted. Closes the connections that lose to this one.
    fn loses_collision(&mut self, id: Conn, peer: &Peer) -> bool {
        // RFC 6286: between two ASes identifiers may be equal.
        let mine = (self.config.router_id, self.config.asn);
        let stays = match mine > (peer.id, peer.asn) {
            true => |id: Conn| matches!(id, Conn::Out(_)),
            false => |id: Conn| matches!(id, Conn::In(_)),
        };
        let mut losers = Vec::new();
        for other in self.connections.iter().filter(|other| other.id != id) {
            match other.phase {
                Phase::OpenSent => {}
                Phase::OpenConfirm if stays(id) => losers.push(other.id),
                // RFC 4724, section 5: the peer restarted, and TCP does not know yet.
                Phase::Established if other.peer.as_ref().is_some_and(|peer| peer.keeps_routes) => {
                    losers.push(other.id);
                }
                Phase::OpenConfirm | Phase::Established => return true,
            }
        }
        for loser in losers {
            let Some(at) = self.position(loser) else { continue };
            let connection = self.connections.remove(at);
            if connection.phase == Phase::Established {
                self.say_goodbye(loser, None);
                self.rib.end();
                self.counters.flaps += 1;
                self.down("the peer restarted and connected again".to_owned());
            } else {
                self.say_goodbye(loser, Some(&Notification::new(Kind::COLLISION)));
            }
        }
        false
    }

    fn establish(&mut self, id: Conn, now: Uptime) {
        let config = self.config.clone();
        let Some(connection) = self.connection(id) else { return };
        let Some(peer) = connection.peer.clone() else { return };
        connection.phase = Phase::Established;
        connection.since = now;
        connection.heard(now);
        let terms = peer.terms(&config, connection.local);
        self.rib.begin(terms);
        self.refuse_until = None;
        let others: Vec<_> =
            self.connections.iter().map(|it| it.id).filter(|it| *it != id).collect();
        for other in others {
            self.connections.retain(|it| it.id != other);
            self.say_goodbye(other, Some(&Notification::new(Kind::COLLISION)));
        }
        self.drop_attempt();
        debug_assert_eq!(self.attempt, Attempt::None);
        self.effects.push(Effect::Report(Report::Up(peer)));
    }
}
