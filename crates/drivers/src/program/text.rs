//! Text that is written into the files of a program. A text that does not fit is refused, never repaired. What fits is
//! the decision of each program's own module `text`, which alone makes words.

use ipnet::IpNet;
use std::fmt;
use std::marker::PhantomData;
use std::net::SocketAddr;

/// A piece of text that program `P` reads as one word, whatever it contains.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Word<P>(Box<str>, PhantomData<P>);

impl<P> Word<P> {
    /// Text that the caller has checked, or quoted, for the program.
    pub(crate) fn checked(text: impl Into<Box<str>>) -> Self {
        Self(text.into(), PhantomData)
    }

    /// An address and port.
    pub fn socket(address: SocketAddr) -> Self {
        Self::checked(address.to_string())
    }

    /// An address range.
    pub fn range(range: &IpNet) -> Self {
        Self::checked(range.to_string())
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<P> fmt::Display for Word<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a text cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadText {
    /// It is longer than the program can read in one piece.
    #[error("is too long")]
    TooLong,
    /// It has a character that is not allowed there.
    #[error("has a character that cannot be written there")]
    Character,
    /// It is a regular expression that may be slow to match.
    #[error(transparent)]
    Slow(#[from] bowline_core::expression::Slow),
}

/// Whether a text is not empty, no longer than this, and of allowed bytes only.
pub(crate) fn check(text: &str, longest: usize, fits: impl Fn(u8) -> bool) -> Result<(), BadText> {
    if text.len() > longest {
        return Err(BadText::TooLong);
    }
    if text.is_empty() || !text.bytes().all(fits) {
        return Err(BadText::Character);
    }
    Ok(())
}
