//! What all proxies have in common that are programs of their own: the task that keeps one in step with a plan,
//! looks after its process, and finds what it refuses. It knows none of their languages; what differs is a
//! [`Program`](work::Program) each.
//!
//! ```text
//!  Driven ── updates ──▶ Worker ── desired, excluded ──▶ Program: render, check, apply, load, look
//!         ◀── reports ──    │
//!                           └── Common: files and their check, addresses, the process and when it comes again
//!                                 ├── Search: who is refused, found a check at a time between updates
//!                                 └── ReloadPace: when a reload may be, and which old processes end
//! ```

pub(crate) mod causes;
pub(crate) mod common;
mod counters;
mod driven;
pub(crate) mod folder;
pub(crate) mod pace;
pub mod pem;
pub(crate) mod process;
mod search;
pub(crate) mod sieve;
pub(crate) mod suspects;
pub mod text;
pub(crate) mod work;

pub use counters::Counters;
pub use driven::Driven;
pub use pace::MAX_OLD_GENERATIONS;
pub use sieve::Rendered;
pub use suspects::Excluded;

use crate::Error;
use std::fmt::Display;

/// An error that may be gone at the next try.
pub(crate) fn trouble(doing: impl Into<String>, cause: impl Display) -> Error {
    Error { doing: doing.into(), cause: cause.to_string(), retry: true }
}

/// An error that stays.
pub(crate) fn hopeless(doing: impl Into<String>, cause: impl Display) -> Error {
    Error { retry: false, ..trouble(doing, cause) }
}
