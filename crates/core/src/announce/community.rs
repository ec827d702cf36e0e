//! Communities: marks on a route that the peer's policy reads. Standard ones (RFC 1997), large ones (RFC 8092) and the
//! well-known ones by name.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A community. Written `65000:100`, `large:65000:1:2`, or as the name of a well-known one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Community {
    /// Four bytes, of which the first two are an AS number by custom.
    Standard(u32),
    /// Three numbers, of which the first is an AS number.
    Large(u32, u32, u32),
}

/// The names of well-known communities, as routers write them.
const WELL_KNOWN: [(&str, Community); 7] = [
    ("graceful-shutdown", Community::GRACEFUL_SHUTDOWN),
    ("accept-own", Community::Standard(0xffff_0001)),
    ("blackhole", Community::Standard(0xffff_029a)),
    ("no-export", Community::Standard(0xffff_ff01)),
    ("no-advertise", Community::Standard(0xffff_ff02)),
    ("no-export-subconfed", Community::Standard(0xffff_ff03)),
    ("no-peer", Community::Standard(0xffff_ff04)),
];

impl Community {
    /// A peer that knows it (RFC 8326) prefers every other path to a route with this one.
    pub const GRACEFUL_SHUTDOWN: Self = Self::Standard(0xffff_0000);
}

/// Text that is not a community.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a community: write ASN:NUMBER (each at most 65535), large:ASN:NUMBER:NUMBER, or one of {names}",
    names = WELL_KNOWN.map(|(name, _)| name).join(", ")
)]
pub struct NotACommunity(pub String);

impl FromStr for Community {
    type Err = NotACommunity;

    fn from_str(text: &str) -> Result<Self, NotACommunity> {
        let known = WELL_KNOWN.iter().find(|(name, _)| *name == text).map(|(_, value)| *value);
        known.or_else(|| parse(text)).ok_or_else(|| NotACommunity(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<Community> {
    if let Some(large) = text.strip_prefix("large:") {
        let mut parts = large.split(':').map(number::<u32>);
        let community = Community::Large(parts.next()??, parts.next()??, parts.next()??);
        return parts.next().is_none().then_some(community);
    }
    let (asn, value) = text.split_once(':')?;
    Some(Community::Standard(
        u32::from(number::<u16>(asn)?) << 16 | u32::from(number::<u16>(value)?),
    ))
}

/// Digits only: `u16::from_str` would also read `+1`.
fn number<T: FromStr>(text: &str) -> Option<T> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

impl fmt::Display for Community {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((name, _)) = WELL_KNOWN.iter().find(|(_, value)| value == self) {
            return f.write_str(name);
        }
        match self {
            Self::Standard(value) => write!(f, "{}:{}", value >> 16, value & 0xffff),
            Self::Large(asn, one, two) => write!(f, "large:{asn}:{one}:{two}"),
        }
    }
}

impl TryFrom<String> for Community {
    type Error = NotACommunity;

    fn try_from(text: String) -> Result<Self, NotACommunity> {
        text.parse()
    }
}

impl From<Community> for String {
    fn from(community: Community) -> Self {
        community.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn communities_are_read_as_routers_write_them() {
        for (text, community) in [
            ("65000:100", Community::Standard(65000 << 16 | 100)),
            ("0:0", Community::Standard(0)),
            ("large:4200000000:1:2", Community::Large(4_200_000_000, 1, 2)),
            ("graceful-shutdown", Community::GRACEFUL_SHUTDOWN),
            ("no-export", Community::Standard(0xffff_ff01)),
        ] {
            assert_eq!(text.parse(), Ok(community));
            assert_eq!(community.to_string(), text);
        }
        assert_eq!("65535:0".parse(), Ok(Community::GRACEFUL_SHUTDOWN));
    }

    #[test]
    fn what_is_no_community_is_refused_and_quoted() {
        for text in [
            "",
            "1",
            "1:",
            ":1",
            "65536:1",
            "1:65536",
            "1:2:3",
            "+1:2",
            "1: 2",
            "large:1:2",
            "large:1:2:3:4",
            "no-exp",
        ] {
            let refused = Community::from_str(text).unwrap_err();
            assert!(refused.to_string().starts_with(&format!("{text:?} is not")), "{refused}");
        }
    }

    proptest! {
        #[test]
        fn text_is_read_or_refused_but_never_changed(text in ".{0,20}") {
            if let Ok(community) = text.parse::<Community>() {
                prop_assert_eq!(community.to_string().parse(), Ok(community));
            }
        }
    }
}
