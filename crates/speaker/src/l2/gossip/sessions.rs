//! Datagrams that come and go: which speakers talk with which, safe from replays.

use super::seal::{Header, Kind, Window};
use super::swim::Node;
use super::wire::{Delta, Digest, Hello};
use super::{Effect, Gossip, Peer};
use crate::l2::member::MemberId;
use bowline_core::clock::Uptime;
use std::net::SocketAddr;

impl Gossip {
    pub(super) fn receive(&mut self, from: SocketAddr, bytes: &[u8], now: Uptime) {
        let Some((header, body)) = self.keys.open(from, bytes) else {
            self.counts.refused += 1;
            return;
        };
        if header.from == self.swim.me().id {
            self.counts.namesakes += u64::from(header.start != self.start);
            return;
        }
        let known = self.peers.get(&header.from).map_or(0, |it| it.start);
        if header.to_start != self.start || header.start < known {
            // It does not know this speaker's start, or does not know that its own is too low; or it is a recording.
            self.counts.replayed += u64::from(header.to_start != 0);
            return self.hello(from, header.start, known);
        }
        if header.kind == Kind::Hello {
            return match Hello::parse(body) {
                Some(hello) => self.meet(&header, &hello, now),
                None => self.counts.refused += 1,
            };
        }
        let unknown = Peer { at: from, start: 0, window: Window::default(), heard: now };
        let peer = self.peers.entry(header.from).or_insert(unknown);
        if peer.start < header.start {
            // It overtook the greeting. Its sender knows this speaker's start, so it is no recording.
            (peer.start, peer.window) = (header.start, Window::from(header.counter));
        } else if !peer.window.accept(header.counter) {
            self.counts.replayed += 1;
            return;
        }
        peer.heard = now;
        let understood = match header.kind {
            Kind::Hello => true,
            Kind::Swim => self.swim.receive(body, now),
            Kind::Digest => {
                Digest::parse(body).map(|it| self.compare(header.from, &it, now)).is_some()
            }
            Kind::Delta => Delta::parse(body).map(|it| self.learn(header.from, &it, now)).is_some(),
        };
        *(if understood { &mut self.counts.received } else { &mut self.counts.refused }) += 1;
    }

    /// A speaker introduces itself that knows this one.
    pub(super) fn meet(&mut self, header: &Header, hello: &Hello, now: Uptime) {
        if hello.known > self.start {
            // The wall clock went back since the last start.
            self.start = hello.known.saturating_add(1);
            self.swim.raise(self.start, now);
            self.tables.raise(self.start);
            self.news = true;
            self.hello(hello.at, header.start, header.start);
            return;
        }
        let unknown = Peer { at: hello.at, start: 0, window: Window::default(), heard: now };
        let peer = self.peers.entry(header.from).or_insert(unknown);
        let new = peer.start < header.start;
        if new {
            peer.start = header.start;
            peer.window = Window::from(header.counter);
        } else if !peer.window.accept(header.counter) {
            self.counts.replayed += 1;
            return;
        }
        (peer.at, peer.heard) = (hello.at, now);
        self.counts.received += 1;
        if new {
            // So it knows that it is known.
            self.hello(hello.at, header.start, header.start);
        }
        if new || !self.swim.is_live(header.from) {
            let node = Node { id: header.from, at: hello.at, generation: hello.generation };
            self.swim.join(node, now);
        }
    }

    pub(super) fn send(&mut self, to: MemberId, kind: Kind, body: &[u8]) {
        let Some(peer) = self.peers.get(&to) else { return };
        let (at, to_start) = (peer.at, peer.start);
        self.post(at, kind, to_start, body);
    }

    pub(super) fn hello(&mut self, to: SocketAddr, to_start: u64, known: u64) {
        let me = self.swim.me();
        let hello = Hello { at: me.at, generation: me.generation, known };
        self.post(to, Kind::Hello, to_start, &hello.to_bytes());
    }

    pub(super) fn post(&mut self, to: SocketAddr, kind: Kind, to_start: u64, body: &[u8]) {
        self.counter += 1;
        self.counts.sent += 1;
        let from = self.swim.me().id;
        let header = Header { kind, from, start: self.start, counter: self.counter, to_start };
        let sealed = self.keys.seal(to, &header, body, self.now);
        self.effects.push(Effect::Send(to, sealed));
    }
}
