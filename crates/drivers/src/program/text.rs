//! Checks which texts can be written into the files of any program. A text that does not fit is refused, never
//! repaired. What a text means to a program is known by that program's own module, which calls this one.

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
