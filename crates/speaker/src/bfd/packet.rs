//! Control packets (RFC 5880, section 4.1). Bytes of a peer become a packet, or are refused with the reason.

use std::fmt;
use std::num::{NonZeroU8, NonZeroU32};
use std::time::Duration;

/// The state of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// An administrator ended it.
    AdminDown,
    /// The peer is not heard.
    Down,
    /// The peer is heard, and does not hear this side yet.
    Init,
    /// Both hear each other.
    Up,
}

impl State {
    fn number(self) -> u8 {
        match self {
            Self::AdminDown => 0,
            Self::Down => 1,
            Self::Init => 2,
            Self::Up => 3,
        }
    }

    fn of(number: u8) -> Self {
        match number & 3 {
            0 => Self::AdminDown,
            1 => Self::Down,
            2 => Self::Init,
            _ => Self::Up,
        }
    }
}

/// Why a session left the state Up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Diagnostic(u8);

impl Diagnostic {
    /// No reason.
    pub const NONE: Self = Self(0);
    /// The detection time passed without a packet of the peer.
    pub const TIME_EXPIRED: Self = Self(1);
    /// The peer says that the session is down.
    pub const NEIGHBOR_SIGNALED: Self = Self(3);
    /// An administrator ended it.
    pub const ADMINISTRATIVELY_DOWN: Self = Self(7);
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            0 => "no reason",
            1 => "the peer was not heard within the detection time",
            2 => "the echo function failed",
            3 => "the peer signaled that the session is down",
            4 => "the forwarding plane was reset",
            5 => "the path is down",
            6 => "a concatenated path is down",
            7 => "an administrator ended the session",
            8 => "a reverse concatenated path is down",
            other => return write!(f, "diagnostic {other}"),
        })
    }
}

/// A control packet. Authentication, the demand mode of this side and the echo function have no field, as this side
/// uses none of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Why the sender left the state Up.
    pub diagnostic: Diagnostic,
    /// The state of the sender's session.
    pub state: State,
    /// The sender asks for an answer at once, because its parameters changed.
    pub poll: bool,
    /// The answer to that.
    pub r#final: bool,
    /// The sender's BFD does not share the fate of its control plane.
    pub control_plane_independent: bool,
    /// While both are up, the sender wants no periodic packets.
    pub demand: bool,
    /// After how many missing packets the session is down.
    pub detect_multiplier: NonZeroU8,
    /// The sender's number of the session.
    pub my_discriminator: NonZeroU32,
    /// The receiver's number of the session; 0 if the sender does not know it.
    pub your_discriminator: u32,
    /// The interval at which the sender would like to send, in microseconds.
    pub desired_transmit: u32,
    /// The shortest interval at which the sender can receive, in microseconds; 0 if it wants no periodic packets.
    pub required_receive: u32,
    /// The shortest interval at which the sender can return echo packets, in microseconds; 0 if it returns none.
    pub required_echo_receive: u32,
}

/// Why bytes are no control packet for us.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPacket {
    /// Shorter than a control packet, or than it says.
    #[error("the packet is cut")]
    Cut,
    /// Another version than 1.
    #[error("BFD version {0}")]
    Version(u8),
    /// It is authenticated, and no key is configured.
    #[error("the packet is authenticated, and no BFD key is configured")]
    Authenticated,
    /// A value that RFC 5880 forbids.
    #[error("RFC 5880 forbids {0}")]
    Forbidden(&'static str),
}

const LENGTH: usize = 24;

impl Packet {
    /// Reads one, with the checks of RFC 5880, section 6.8.6.
    pub fn parse(bytes: &[u8]) -> Result<Self, BadPacket> {
        let Some((&[version, flags, multiplier, length], rest)) = bytes.split_first_chunk() else {
            return Err(BadPacket::Cut);
        };
        if version >> 5 != 1 {
            return Err(BadPacket::Version(version >> 5));
        }
        if usize::from(length) < LENGTH || usize::from(length) > bytes.len() {
            return Err(BadPacket::Cut);
        }
        let mut words = rest.as_chunks::<4>().0.iter().map(|word| u32::from_be_bytes(*word));
        let mut word = || words.next().ok_or(BadPacket::Cut);
        let (mine, yours) = (word()?, word()?);
        let (desired_transmit, required_receive, required_echo_receive) =
            (word()?, word()?, word()?);
        if flags & 1 != 0 {
            return Err(BadPacket::Forbidden("the multipoint bit"));
        }
        let state = State::of(flags >> 6);
        if yours == 0 && !matches!(state, State::Down | State::AdminDown) {
            return Err(BadPacket::Forbidden("state Init or Up without your discriminator"));
        }
        if flags & 4 != 0 {
            return Err(BadPacket::Authenticated);
        }
        Ok(Self {
            diagnostic: Diagnostic(version & 0x1f),
            state,
            poll: flags & 0x20 != 0,
            r#final: flags & 0x10 != 0,
            control_plane_independent: flags & 8 != 0,
            demand: flags & 2 != 0,
            detect_multiplier: NonZeroU8::new(multiplier)
                .ok_or(BadPacket::Forbidden("detect multiplier 0"))?,
            my_discriminator: NonZeroU32::new(mine)
                .ok_or(BadPacket::Forbidden("my discriminator 0"))?,
            your_discriminator: yours,
            desired_transmit,
            required_receive,
            required_echo_receive,
        })
    }

    /// The bytes.
    pub fn to_bytes(&self) -> [u8; LENGTH] {
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        let flags = self.state.number() << 6
            | bit(self.poll, 0x20)
            | bit(self.r#final, 0x10)
            | bit(self.control_plane_independent, 8)
            | bit(self.demand, 2);
        let head = [1 << 5 | self.diagnostic.0, flags, self.detect_multiplier.get(), LENGTH as u8];
        let words = [
            self.my_discriminator.get(),
            self.your_discriminator,
            self.desired_transmit,
            self.required_receive,
            self.required_echo_receive,
        ];
        let mut bytes = [0; LENGTH];
        let (first, rest) = bytes.split_at_mut(4);
        first.copy_from_slice(&head);
        for (place, word) in rest.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *place = word.to_be_bytes();
        }
        bytes
    }
}

/// An interval of a packet.
pub(super) fn interval(microseconds: u32) -> Duration {
    Duration::from_micros(microseconds.into())
}

#[cfg(test)]
mod tests {
    use super::{BadPacket, Diagnostic, Packet, State};
    use crate::cases::cases;
    use proptest::prelude::*;
    use std::num::{NonZeroU8, NonZeroU32};

    /// As bfdd of FRR 8.4 sends it when it hears nothing.
    const OF_FRR: [u8; 24] = [
        0x20, 0x40, 0x03, 0x18, 0x3c, 0x24, 0x60, 0x4f, 0, 0, 0, 0, 0, 0x0f, 0x42, 0x40, 0, 0x04,
        0x93, 0xe0, 0, 0, 0xc3, 0x50,
    ];

    fn expected() -> Packet {
        Packet {
            diagnostic: Diagnostic::NONE,
            state: State::Down,
            poll: false,
            r#final: false,
            control_plane_independent: false,
            demand: false,
            detect_multiplier: NonZeroU8::new(3).expect("3"),
            my_discriminator: NonZeroU32::new(0x3c24_604f).expect("not 0"),
            your_discriminator: 0,
            desired_transmit: 1_000_000,
            required_receive: 300_000,
            required_echo_receive: 50_000,
        }
    }

    #[test]
    fn a_packet_is_read_and_written() {
        assert_eq!(Packet::parse(&OF_FRR), Ok(expected()));
        assert_eq!(expected().to_bytes(), OF_FRR);
    }

    #[test]
    fn packets_that_rfc_5880_tells_to_discard_are_refused() {
        let with = |at: usize, bytes: &[u8]| {
            let mut packet = OF_FRR;
            packet[at..at + bytes.len()].copy_from_slice(bytes);
            Packet::parse(&packet)
        };
        assert_eq!(with(0, &[0x00]), Err(BadPacket::Version(0)));
        assert_eq!(with(3, &[23]), Err(BadPacket::Cut));
        assert_eq!(with(3, &[25]), Err(BadPacket::Cut));
        assert_eq!(with(2, &[0]), Err(BadPacket::Forbidden("detect multiplier 0")));
        assert_eq!(with(1, &[0x41]), Err(BadPacket::Forbidden("the multipoint bit")));
        assert_eq!(with(4, &[0; 4]), Err(BadPacket::Forbidden("my discriminator 0")));
        let no_discriminator = "state Init or Up without your discriminator";
        assert_eq!(with(1, &[0xc0]), Err(BadPacket::Forbidden(no_discriminator)));
        assert_eq!(with(1, &[0x80]), Err(BadPacket::Forbidden(no_discriminator)));
        assert_eq!(with(1, &[0x44]), Err(BadPacket::Authenticated));
        for end in 0..OF_FRR.len() {
            assert_eq!(Packet::parse(&OF_FRR[..end]), Err(BadPacket::Cut), "{end} bytes");
        }
        let longer = [&OF_FRR[..], &[1, 2, 3]].concat();
        assert_eq!(Packet::parse(&longer), Ok(expected()), "what follows is not a part of it");
    }

    proptest! {
        #![proptest_config(cases(100))]

        #[test]
        fn what_is_accepted_is_written_again(
            mut bytes in proptest::collection::vec(any::<u8>(), 24..40),
        ) {
            bytes[0] = bytes[0] & 0x1f | 0x20;
            bytes[3] = 24;
            if let Ok(packet) = Packet::parse(&bytes) {
                prop_assert_eq!(packet.to_bytes().to_vec(), bytes[..24].to_vec());
            }
        }
    }
}
