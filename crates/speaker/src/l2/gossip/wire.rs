//! The bytes of datagrams: numbers, addresses, what members say. What is read may come from anywhere and is refused
//! unless it is complete and canonical.

use crate::l2::frame::Mac;
use crate::l2::member::{Hold, MemberId, Profile, Stance, Standing};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The most interfaces that a member tells of.
pub(crate) const MACS_LIMIT: usize = 32;
/// The longest name of a member, in bytes: that of a Kubernetes Node.
pub(crate) const NAME_LIMIT: usize = 253;

/// Reads from the front of some bytes.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl Reader<'_> {
    pub(super) fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        self.take::<1>().map(|it| it[0])
    }

    pub(super) fn short(&mut self) -> Option<u16> {
        self.take().map(u16::from_be_bytes)
    }

    pub(super) fn number(&mut self) -> Option<u64> {
        self.take().map(u64::from_be_bytes)
    }

    /// A number in groups of seven bits, the lowest first.
    fn groups(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let group = u64::from(byte & 0x7f);
            if group << shift >> shift != group || (byte == 0 && shift > 0) {
                return None;
            }
            number |= group << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    pub(super) fn address(&mut self) -> Option<IpAddr> {
        match self.byte()? {
            4 => Some(Ipv4Addr::from(self.take::<4>()?).into()),
            6 => Some(Ipv6Addr::from(self.take::<16>()?).into()),
            _ => None,
        }
    }

    pub(super) fn socket(&mut self) -> Option<SocketAddr> {
        Some(SocketAddr::new(self.address()?, self.short()?))
    }

    fn stance(&mut self) -> Option<Stance> {
        let byte = self.byte()?;
        let standing = match byte & 0x0f {
            0 => Standing::Out,
            1 => Standing::Eligible,
            2 => Standing::Preferred,
            3 => Standing::Apart,
            4 => Standing::ApartPreferred,
            _ => return None,
        };
        let hold = match byte >> 4 {
            0 => Hold::None,
            1 => Hold::Verifies,
            2 => Hold::Owns,
            3 => Hold::Offers(None),
            4 => Hold::Offers(Some(MemberId(self.number()?))),
            5 => Hold::Lends(MemberId(self.number()?)),
            6 => Hold::StandsIn(MemberId(self.number()?)),
            _ => return None,
        };
        Some(Stance { standing, hold })
    }

    fn profile(&mut self) -> Option<Profile> {
        let length = usize::from(self.byte()?);
        let (name, rest) = self.0.split_at_checked(length).filter(|_| length <= NAME_LIMIT)?;
        self.0 = rest;
        let name = std::str::from_utf8(name).ok()?.to_owned();
        let count = usize::from(self.byte()?);
        let macs = (0..count).map(|_| self.take().map(Mac)).collect::<Option<Vec<_>>>()?;
        (macs.len() <= MACS_LIMIT && macs.iter().all(|it| it.is_unicast())).then_some(())?;
        let at = match self.byte()? {
            0 => None,
            1 => Some(self.address()?),
            _ => return None,
        };
        Some(Profile { name, macs, at })
    }

    pub(super) fn word(&mut self) -> Option<Word> {
        match self.0.first()? {
            0 => {
                self.byte()?;
                self.profile().map(Word::Profile)
            }
            _ => Some(Word::Stance(self.address()?, self.stance()?)),
        }
    }
}

/// Appends to some bytes.
#[derive(Default)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn finish(self) -> Vec<u8> {
        self.0
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    pub(super) fn short(&mut self, number: u16) {
        self.bytes(&number.to_be_bytes());
    }

    pub(super) fn number(&mut self, number: u64) {
        self.bytes(&number.to_be_bytes());
    }

    fn groups(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.byte(number as u8 | 0x80);
            number >>= 7;
        }
        self.byte(number as u8);
    }

    pub(super) fn address(&mut self, address: IpAddr) {
        match address {
            IpAddr::V4(it) => {
                self.byte(4);
                self.bytes(&it.octets());
            }
            IpAddr::V6(it) => {
                self.byte(6);
                self.bytes(&it.octets());
            }
        }
    }

    pub(super) fn socket(&mut self, socket: SocketAddr) {
        self.address(socket.ip());
        self.short(socket.port());
    }

    pub(super) fn word(&mut self, word: &Word) {
        match word {
            Word::Profile(profile) => {
                let name = &profile.name[..profile.name.floor_char_boundary(NAME_LIMIT)];
                self.byte(0);
                self.byte(name.len() as u8);
                self.bytes(name.as_bytes());
                let macs = &profile.macs[..profile.macs.len().min(MACS_LIMIT)];
                self.byte(macs.len() as u8);
                for mac in macs {
                    self.bytes(&mac.0);
                }
                self.byte(profile.at.is_some().into());
                if let Some(at) = profile.at {
                    self.address(at);
                }
            }
            Word::Stance(address, stance) => {
                self.address(*address);
                let standing = match stance.standing {
                    Standing::Out => 0,
                    Standing::Eligible => 1,
                    Standing::Preferred => 2,
                    Standing::Apart => 3,
                    Standing::ApartPreferred => 4,
                };
                let (hold, to) = match stance.hold {
                    Hold::None => (0, None),
                    Hold::Verifies => (1, None),
                    Hold::Owns => (2, None),
                    Hold::Offers(None) => (3, None),
                    Hold::Offers(Some(to)) => (4, Some(to)),
                    Hold::Lends(to) => (5, Some(to)),
                    Hold::StandsIn(of) => (6, Some(of)),
                };
                self.byte(hold << 4 | standing);
                if let Some(to) = to {
                    self.number(to.0);
                }
            }
        }
    }
}

/// One thing that a member says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// Of itself.
    Profile(Profile),
    /// Of an address.
    Stance(IpAddr, Stance),
}

/// Introduces the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    /// Where it receives datagrams.
    pub(super) at: SocketAddr,
    /// The number of its membership, which grows each time that it joins anew.
    pub(super) generation: u64,
    /// The latest start of the receiver that the sender knows, or 0.
    pub(super) known: u64,
}

impl Hello {
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let hello =
            Self { at: reader.socket()?, generation: reader.number()?, known: reader.number()? };
        reader.0.is_empty().then_some(hello)
    }

    pub(super) fn to_bytes(self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.socket(self.at);
        writer.number(self.generation);
        writer.number(self.known);
        writer.finish()
    }
}

/// Up to which version a member has the table of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) of: MemberId,
    /// Which table: a member begins a new one when it starts.
    pub(super) table: u64,
    pub(super) version: u64,
}

impl Mark {
    pub(super) const SIZE: usize = 24;

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            of: MemberId(reader.number()?),
            table: reader.number()?,
            version: reader.number()?,
        })
    }

    fn write(&self, writer: &mut Writer) {
        for number in [self.of.0, self.table, self.version] {
            writer.number(number);
        }
    }
}

/// What a member has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Digest {
    /// Whether it has nothing else.
    pub(super) complete: bool,
    pub(super) marks: Vec<Mark>,
}

impl Digest {
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let complete = match reader.byte()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        let mut marks = Vec::new();
        while !reader.0.is_empty() {
            marks.push(Mark::read(&mut reader)?);
        }
        Some(Self { complete, marks })
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.byte(self.complete.into());
        for mark in &self.marks {
            mark.write(&mut writer);
        }
        writer.finish()
    }
}

/// The words of one member from one version to another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Delta {
    /// Whose words, of which table, and the version after them.
    pub(super) to: Mark,
    /// The version before them.
    pub(super) after: u64,
    /// The latest version that the sender has.
    pub(super) latest: u64,
    /// Each with its version, in order. Words that were replaced leave gaps.
    pub(super) words: Vec<(u64, Word)>,
}

impl Delta {
    /// Bytes before the words.
    pub(super) const HEAD: usize = Mark::SIZE + 16;

    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let to = Mark::read(&mut reader)?;
        let (after, latest) = (reader.number()?, reader.number()?);
        let mut words = Vec::new();
        let mut version = after;
        while !reader.0.is_empty() {
            let step = reader.groups()?;
            version = version.checked_add(step).filter(|it| step > 0 && *it <= to.version)?;
            words.push((version, reader.word()?));
        }
        let delta = Self { to, after, latest, words };
        (after <= to.version && to.version <= latest).then_some(delta)
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        self.to.write(&mut writer);
        writer.number(self.after);
        writer.number(self.latest);
        let mut before = self.after;
        for (version, word) in &self.words {
            writer.groups(version - before);
            writer.word(word);
            before = *version;
        }
        writer.finish()
    }
}

/// How many bytes a word takes in a delta, so many versions after the word before it.
pub(super) fn size(step: u64, word: &Word) -> usize {
    let mut writer = Writer::default();
    writer.groups(step);
    writer.word(word);
    writer.0.len()
}

#[cfg(test)]
mod tests;
