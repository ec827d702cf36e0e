//! Which texts can be written into the files of a program at all. What does not fit is refused, never repaired;
//! what a text means to a program is its own module's.

/// Why a text cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadText {
    /// It is longer than the program reads in one piece.
    #[error("is too long")]
    TooLong,
    /// It has a character that cannot stand there.
    #[error("has a character that cannot be written there")]
    Character,
    /// It is an expression that the program might take long to match.
    #[error(transparent)]
    Slow(#[from] bowline_core::expression::Slow),
}

/// Whether a text is there, no longer than this, and of bytes that fit.
pub(crate) fn check(text: &str, longest: usize, fits: impl Fn(u8) -> bool) -> Result<(), BadText> {
    if text.len() > longest {
        return Err(BadText::TooLong);
    }
    if text.is_empty() || !text.bytes().all(fits) {
        return Err(BadText::Character);
    }
    Ok(())
}
