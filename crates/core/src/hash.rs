//! Hashes of plans. Each fragment has one, and the hash of a plan is their sum: a changed fragment
//! costs only its own hash, and neither order nor sharding matters. The leader and agents compare
//! them.

use crate::plan::Fragment;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};
use std::fmt;
use std::io;
use std::str::FromStr;

/// The hash of a fragment or of a set of them. The default is the hash of nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PlanHash([u64; 4]);

/// Why a text is no hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not a plan hash: 64 hexadecimal digits")]
pub struct BadHash;

impl PlanHash {
    /// The hash of one fragment: of its JSON, whose fields have a fixed order.
    pub fn of(fragment: &Fragment) -> Self {
        let mut digest = Digester(Sha256::new());
        // Writing into a digest cannot fail, and a fragment has no map with other keys than strings.
        let written = serde_json::to_writer(&mut digest, fragment);
        debug_assert!(written.is_ok());
        let bytes = digest.0.finalize();
        let mut lanes = [0u64; 4];
        for (lane, chunk) in lanes.iter_mut().zip(bytes.chunks_exact(8)) {
            *lane = chunk.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        }
        Self(lanes)
    }

    /// The set with one more.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i].wrapping_add(other.0[i])))
    }

    /// The set without one that is in it.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i].wrapping_sub(other.0[i])))
    }
}

struct Digester(Sha256);

impl io::Write for Digester {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Display for PlanHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|lane| write!(f, "{lane:016x}"))
    }
}

impl FromStr for PlanHash {
    type Err = BadHash;

    fn from_str(text: &str) -> Result<Self, BadHash> {
        if text.len() != 64 || !text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(BadHash);
        }
        let mut lanes = [0; 4];
        for (i, lane) in lanes.iter_mut().enumerate() {
            *lane = u64::from_str_radix(&text[i * 16..][..16], 16).map_err(|_| BadHash)?;
        }
        Ok(Self(lanes))
    }
}

impl Serialize for PlanHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PlanHash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_set_does_not_depend_on_order_and_forgets_what_is_taken_out(a: [u64; 4], b: [u64; 4]) {
            let (a, b) = (PlanHash(a), PlanHash(b));
            prop_assert_eq!(a.plus(b), b.plus(a));
            prop_assert_eq!(a.plus(b).minus(b), a);
        }

        #[test]
        fn what_is_printed_is_read_back(lanes: [u64; 4]) {
            prop_assert_eq!(PlanHash(lanes).to_string().parse(), Ok(PlanHash(lanes)));
        }

        #[test]
        fn no_text_makes_the_reader_fail_otherwise_than_by_an_error(text in "\\PC{0,70}") {
            let _ = text.parse::<PlanHash>();
        }
    }
}
