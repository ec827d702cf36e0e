//! Datagrams of speakers: each carries who sent it, numbers against replays, and a code over all of it (HMAC-SHA256) that
//! only holders of the key can make. What is inside is readable: it says who announces which address, which every host
//! of the segment hears anyway.
//!
//! A number of the sender's start and a counter make each datagram unlike every other one. It also names the start of
//! the receiver that it is for: what was recorded before a receiver started, it refuses.

use super::wire::{Reader, Writer};
use crate::l2::member::MemberId;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// The largest datagram, with which no link of Ethernet fragments. IPv6 and UDP take 48 bytes, tunnels some more.
pub(crate) const DATAGRAM_LIMIT: usize = 1232;
/// Bytes of the code.
const CODE: usize = 16;
const HEADER: usize = 4 + 1 + 4 * 8;
/// The largest body.
pub(super) const BODY_LIMIT: usize = DATAGRAM_LIMIT - HEADER - CODE;
/// "BWL" and the version of the format.
const MAGIC: [u8; 4] = *b"BWL\x01";

/// What a datagram is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Introduces the sender.
    Hello,
    /// A message about who is there.
    Swim,
    /// Up to which version the sender has what members say of addresses.
    Digest,
    /// What a member says of addresses.
    Delta,
}

const KINDS: [Kind; 4] = [Kind::Hello, Kind::Swim, Kind::Digest, Kind::Delta];

/// The part of a datagram before the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: Kind,
    pub(super) from: MemberId,
    /// The start of the sender. A later start has a higher number.
    pub(super) start: u64,
    pub(super) counter: u64,
    /// The start of the receiver, or 0 if the sender does not know it.
    pub(super) to_start: u64,
}

/// Seals and opens datagrams.
pub(super) struct Sealer(Hmac<Sha256>);

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sealer")
    }
}

impl Sealer {
    /// With a key of any length but 0.
    pub(super) fn new(key: &[u8]) -> Option<Self> {
        (!key.is_empty()).then_some(())?;
        Some(Self(Hmac::new_from_slice(key).ok()?))
    }

    fn code(&self, bytes: &[u8]) -> Hmac<Sha256> {
        let mut code = self.0.clone();
        code.update(bytes);
        code
    }

    pub(super) fn seal(&self, header: &Header, body: &[u8]) -> Vec<u8> {
        let mut out = Writer::default();
        out.bytes(&MAGIC);
        out.byte(KINDS.iter().position(|it| *it == header.kind).unwrap_or(0) as u8);
        for number in [header.from.0, header.start, header.counter, header.to_start] {
            out.number(number);
        }
        out.bytes(body);
        let mut bytes = out.finish();
        let code = self.code(&bytes).finalize().into_bytes();
        bytes.extend_from_slice(&code[..CODE]);
        bytes
    }

    /// The header and the body. Nothing if it is no datagram of a holder of the key.
    pub(super) fn open<'a>(&self, bytes: &'a [u8]) -> Option<(Header, &'a [u8])> {
        let split = bytes.len().checked_sub(CODE).filter(|it| *it >= HEADER)?;
        let (bytes, code) = bytes.split_at(split);
        let (header, body) = parse(bytes)?;
        self.code(bytes).verify_truncated_left(code).ok()?;
        Some((header, body))
    }
}

fn parse(bytes: &[u8]) -> Option<(Header, &[u8])> {
    let mut reader = Reader(bytes);
    (reader.take::<4>()? == MAGIC).then_some(())?;
    let kind = *KINDS.get(usize::from(reader.byte()?))?;
    let mut number = || reader.number();
    let (from, start, counter, to_start) = (number()?, number()?, number()?, number()?);
    Some((Header { kind, from: MemberId(from), start, counter, to_start }, reader.0))
}

/// The counters of one sender that were seen since its start: the highest, and which of those shortly before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Window {
    highest: u64,
    seen: u128,
}

impl Window {
    /// After this counter: earlier ones are not accepted, whether they arrived or not.
    pub(super) fn from(counter: u64) -> Self {
        Self { highest: counter, seen: u128::MAX }
    }

    /// Whether the counter is new.
    pub(super) fn accept(&mut self, counter: u64) -> bool {
        if counter > self.highest {
            let by = u32::try_from(counter - self.highest).unwrap_or(u32::MAX);
            self.seen = self.seen.checked_shl(by).unwrap_or(0) | 1;
            self.highest = counter;
            return true;
        }
        let bit = u32::try_from(self.highest - counter).ok().and_then(|by| 1u128.checked_shl(by));
        let Some(bit) = bit else { return false };
        let new = self.seen & bit == 0;
        self.seen |= bit;
        new
    }
}

#[cfg(test)]
mod tests {
    use super::{Header, Kind, Sealer, Window};
    use crate::l2::member::MemberId;

    fn header() -> Header {
        Header { kind: Kind::Delta, from: MemberId(1), start: 2, counter: 3, to_start: 4 }
    }

    #[test]
    fn only_the_unchanged_datagrams_of_a_holder_of_the_key_are_opened() {
        let sealer = Sealer::new(b"secret").expect("a key");
        let sealed = sealer.seal(&header(), b"body");
        assert_eq!(sealer.open(&sealed), Some((header(), b"body".as_slice())));
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert_eq!(sealer.open(&changed), None, "byte {at} is changed");
            assert_eq!(sealer.open(&sealed[..at]), None, "cut at {at}");
        }
        assert_eq!(Sealer::new(b"other").expect("a key").open(&sealed), None);
        assert!(Sealer::new(b"").is_none());
    }

    #[test]
    fn each_counter_is_accepted_once_in_nearly_any_order() {
        let mut window = Window::default();
        let accepted: Vec<_> = [1, 2, 5, 4, 5, 4, 3, 200, 73, 72, 200, 5000, 1]
            .into_iter()
            .filter(|it| window.accept(*it))
            .collect();
        assert_eq!(accepted, [1, 2, 5, 4, 3, 200, 73, 5000]);
    }
}
