//! The only source of randomness in this crate; rules take what it gives as an argument.

/// Any number. Should the operating system have no randomness, the middle one: delays lose their
/// jitter, nothing else.
pub(crate) fn number() -> u32 {
    getrandom::u32().unwrap_or(u32::MAX / 2)
}
