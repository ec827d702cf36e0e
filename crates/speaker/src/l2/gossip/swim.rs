//! Who is there: the SWIM protocol of foca, with members as this crate knows them, its bytes, chance and timers.

use super::wire::{Reader, Writer};
use crate::dice::Dice;
use crate::l2::member::MemberId;
use bowline_core::clock::Uptime;
use bytes::{Buf, BufMut};
use foca::{
    Codec, Config, Foca, Header, Identity, Member, Message, NoCustomBroadcast, Notification,
    PeriodicParams, Runtime, State, Timer,
};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::num::{NonZeroU8, NonZeroUsize};
use std::time::Duration;

/// How often a member is probed.
const PROBE_PERIOD: Duration = Duration::from_millis(300);
/// How long an answer takes at most, before other members are asked to probe, too.
const PROBE_ANSWER: Duration = Duration::from_millis(120);
/// How long a member that did not answer has to say that it is there.
const SUSPICION: Duration = Duration::from_millis(1000);
/// How often changes are passed on.
const SPREAD_PERIOD: Duration = Duration::from_millis(200);
/// How often a member is asked which other members it knows.
const ROSTER_PERIOD: Duration = Duration::from_secs(10);
/// How long a member that is down is remembered. It comes back as another one all the same.
const REMEMBER: Duration = Duration::from_secs(600);

/// A member as it takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) id: MemberId,
    /// Where it receives datagrams.
    pub(super) at: SocketAddr,
    /// It grows each time that the member joins anew.
    pub(super) generation: u64,
}

impl Identity for Node {
    type Addr = MemberId;

    fn renew(&self) -> Option<Self> {
        Some(Self { generation: self.generation.saturating_add(1), ..*self })
    }

    fn addr(&self) -> MemberId {
        self.id
    }

    fn win_addr_conflict(&self, other: &Self) -> bool {
        (self.generation, self.at) > (other.generation, other.at)
    }
}

/// A change of who is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Up(Node),
    Down(Node),
}

/// The protocol, driven from outside.
pub(super) struct Swim {
    foca: Foca<Node, Bytes, Chance, NoCustomBroadcast>,
    pending: Pending,
}

impl std::fmt::Debug for Swim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Swim").field(self.foca.identity()).finish()
    }
}

#[derive(Default)]
struct Pending {
    now: Uptime,
    number: u64,
    timers: BTreeMap<(Uptime, u64), Timer<Node>>,
    sends: Vec<(Node, Vec<u8>)>,
    changes: Vec<Change>,
}

impl Runtime<Node> for Pending {
    fn notify(&mut self, notification: Notification<'_, Node>) {
        let change = match notification {
            Notification::MemberUp(node) => Change::Up(*node),
            Notification::MemberDown(node) => Change::Down(*node),
            _ => return,
        };
        self.changes.push(change);
    }

    fn send_to(&mut self, to: Node, data: &[u8]) {
        self.sends.push((to, data.to_vec()));
    }

    fn submit_after(&mut self, event: Timer<Node>, after: Duration) {
        self.number += 1;
        self.timers.insert((self.now + after, self.number), event);
    }
}

impl Swim {
    pub(super) fn new(me: Node, limit: usize, seed: u64) -> Self {
        let count = |it: usize| NonZeroUsize::new(it).unwrap_or(NonZeroUsize::MIN);
        let config = Config {
            probe_period: PROBE_PERIOD,
            probe_rtt: PROBE_ANSWER,
            num_indirect_probes: count(3),
            max_transmissions: NonZeroU8::new(10).unwrap_or(NonZeroU8::MIN),
            suspect_to_down_after: SUSPICION,
            remove_down_after: Some(REMEMBER),
            max_packet_size: count(limit),
            notify_down_members: true,
            periodic_announce: Some(PeriodicParams {
                frequency: ROSTER_PERIOD,
                num_members: count(1),
            }),
            // The owner of this machine asks them, also those of which foca never heard.
            periodic_announce_to_down_members: None,
            periodic_gossip: Some(PeriodicParams {
                frequency: SPREAD_PERIOD,
                num_members: count(3),
            }),
        };
        let foca = Foca::new(me, config, Chance(Dice::new(seed)), Bytes);
        Self { foca, pending: Pending::default() }
    }

    pub(super) fn me(&self) -> Node {
        *self.foca.identity()
    }

    pub(super) fn live(&self) -> impl Iterator<Item = Node> {
        self.foca.iter_members().map(|it| *it.id())
    }

    pub(super) fn is_live(&self, member: MemberId) -> bool {
        self.live().any(|it| it.id == member)
    }

    /// Takes a message. Whether it was understood.
    pub(super) fn receive(&mut self, data: &[u8], now: Uptime) -> bool {
        self.pending.now = now;
        self.foca.handle_data(data, &mut self.pending).is_ok()
    }

    /// Asks a member to let this one join.
    pub(super) fn join(&mut self, node: Node, now: Uptime) {
        self.pending.now = now;
        // It fails if the message does not fit, which it does.
        let _ = self.foca.announce(node, &mut self.pending);
    }

    /// Takes part under a higher generation.
    pub(super) fn raise(&mut self, generation: u64, now: Uptime) {
        self.pending.now = now;
        let me = self.me();
        if generation > me.generation {
            let _ = self.foca.change_identity(Node { generation, ..me }, &mut self.pending);
        }
    }

    /// Tells some members that this one goes.
    pub(super) fn leave(&mut self, now: Uptime) {
        self.pending.now = now;
        let _ = self.foca.leave_cluster(&mut self.pending);
    }

    /// The process did not run for so long: what should have happened meanwhile, did not.
    pub(super) fn postpone(&mut self, by: Duration) {
        let timers = std::mem::take(&mut self.pending.timers);
        self.pending.timers =
            timers.into_iter().map(|((at, number), timer)| ((at + by, number), timer)).collect();
    }

    pub(super) fn wake_at(&self) -> Option<Uptime> {
        let pending = &self.pending;
        if pending.sends.is_empty() && pending.changes.is_empty() {
            pending.timers.keys().next().map(|it| it.0)
        } else {
            Some(Uptime::ZERO)
        }
    }

    /// Messages to send, and changes.
    pub(super) fn take(&mut self, now: Uptime) -> (Vec<(Node, Vec<u8>)>, Vec<Change>) {
        self.pending.now = now;
        while let Some(entry) = self.pending.timers.first_entry().filter(|it| it.key().0 <= now) {
            let timer = entry.remove();
            // An error is a timer that came late. Foca goes on with the next one.
            let _ = self.foca.handle_timer(timer, &mut self.pending);
        }
        (std::mem::take(&mut self.pending.sends), std::mem::take(&mut self.pending.changes))
    }
}

/// Randomness for foca.
struct Chance(Dice);

impl rand::TryRng for Chance {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok((self.0.roll() >> 32) as u32)
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(self.0.roll())
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.0.roll().to_le_bytes()[..chunk.len()]);
        }
        Ok(())
    }
}

/// The bytes of foca's messages.
struct Bytes;

/// Why bytes are refused, or do not fit.
#[derive(Debug, thiserror::Error)]
enum BadBytes {
    #[error("the message is cut or has an unknown kind")]
    Unknown,
    #[error("no room")]
    NoRoom,
}

impl Writer {
    fn node(&mut self, node: &Node) {
        self.number(node.id.0);
        self.number(node.generation);
        self.socket(node.at);
    }
}

impl Reader<'_> {
    fn node(&mut self) -> Option<Node> {
        let (id, generation) = (MemberId(self.number()?), self.number()?);
        Some(Node { id, generation, at: self.socket()? })
    }

    fn header(&mut self) -> Option<Header<Node>> {
        let (src, src_incarnation, dst) = (self.node()?, self.short()?, self.node()?);
        let message = match self.byte()? {
            0 => Message::Ping(self.byte()?),
            1 => Message::Ack(self.byte()?),
            2 => Message::PingReq { target: self.node()?, probe_number: self.byte()? },
            3 => Message::IndirectPing { origin: self.node()?, probe_number: self.byte()? },
            4 => Message::IndirectAck { target: self.node()?, probe_number: self.byte()? },
            5 => Message::ForwardedAck { origin: self.node()?, probe_number: self.byte()? },
            6 => Message::Announce,
            7 => Message::Feed,
            8 => Message::Gossip,
            9 => Message::Broadcast,
            10 => Message::TurnUndead,
            _ => return None,
        };
        Some(Header { src, src_incarnation, dst, message })
    }

    fn member(&mut self) -> Option<Member<Node>> {
        let (node, incarnation) = (self.node()?, self.short()?);
        let state = match self.byte()? {
            0 => State::Alive,
            1 => State::Suspect,
            2 => State::Down,
            _ => return None,
        };
        Some(Member::new(node, incarnation, state))
    }
}

fn write(writer: Writer, mut to: impl BufMut) -> Result<(), BadBytes> {
    let bytes = writer.finish();
    if to.remaining_mut() < bytes.len() {
        return Err(BadBytes::NoRoom);
    }
    to.put_slice(&bytes);
    Ok(())
}

fn read<T>(
    mut from: impl Buf,
    parse: impl FnOnce(&mut Reader<'_>) -> Option<T>,
) -> Result<T, BadBytes> {
    let mut reader = Reader(from.chunk());
    let value = parse(&mut reader).ok_or(BadBytes::Unknown)?;
    let used = from.chunk().len() - reader.0.len();
    from.advance(used);
    Ok(value)
}

impl Codec<Node> for Bytes {
    type Error = BadBytes;

    fn encode_header(&mut self, header: &Header<Node>, to: impl BufMut) -> Result<(), BadBytes> {
        let mut writer = Writer::default();
        writer.node(&header.src);
        writer.short(header.src_incarnation);
        writer.node(&header.dst);
        let (kind, node, number) = match &header.message {
            Message::Ping(number) => (0, None, Some(*number)),
            Message::Ack(number) => (1, None, Some(*number)),
            Message::PingReq { target, probe_number } => (2, Some(target), Some(*probe_number)),
            Message::IndirectPing { origin, probe_number } => {
                (3, Some(origin), Some(*probe_number))
            }
            Message::IndirectAck { target, probe_number } => (4, Some(target), Some(*probe_number)),
            Message::ForwardedAck { origin, probe_number } => {
                (5, Some(origin), Some(*probe_number))
            }
            Message::Announce => (6, None, None),
            Message::Feed => (7, None, None),
            Message::Gossip => (8, None, None),
            Message::Broadcast => (9, None, None),
            Message::TurnUndead => (10, None, None),
        };
        writer.byte(kind);
        if let Some(node) = node {
            writer.node(node);
        }
        if let Some(number) = number {
            writer.byte(number);
        }
        write(writer, to)
    }

    fn decode_header(&mut self, from: impl Buf) -> Result<Header<Node>, BadBytes> {
        read(from, |it| it.header())
    }

    fn encode_member(&mut self, member: &Member<Node>, to: impl BufMut) -> Result<(), BadBytes> {
        let mut writer = Writer::default();
        writer.node(member.id());
        writer.short(member.incarnation());
        writer.byte(match member.state() {
            State::Alive => 0,
            State::Suspect => 1,
            State::Down => 2,
        });
        write(writer, to)
    }

    fn decode_member(&mut self, from: impl Buf) -> Result<Member<Node>, BadBytes> {
        read(from, |it| it.member())
    }
}

#[cfg(test)]
mod tests;
