//! The only source of randomness in this crate; machines get its values as arguments.

/// 32 random bytes for a secret; an error if the operating system has no randomness.
pub(crate) fn secret() -> Result<[u8; 32], getrandom::Error> {
    let mut secret = [0; 32];
    getrandom::fill(&mut secret)?;
    Ok(secret)
}

/// A random number. Without randomness in the operating system it is the middle value: delays lose
/// their jitter, nothing else.
pub(crate) fn number() -> u32 {
    getrandom::u32().unwrap_or(u32::MAX / 2)
}
