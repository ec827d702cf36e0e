//! The only source of randomness in this crate; rules take what it gives as an argument.

/// Bytes that nobody can guess. Where the operating system has none, there are none.
pub(crate) fn secret() -> Result<[u8; 32], getrandom::Error> {
    let mut secret = [0; 32];
    getrandom::fill(&mut secret)?;
    Ok(secret)
}

/// Any number. Should the operating system have no randomness, the middle one: delays lose their
/// jitter, nothing else.
pub(crate) fn number() -> u32 {
    getrandom::u32().unwrap_or(u32::MAX / 2)
}
