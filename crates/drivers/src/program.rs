//! What the drivers of all proxies share that are programs of their own, as HAProxy and nginx are: a task that keeps
//! one program in step with a plan, supervises its process, and finds the objects that it refuses. It knows no
//! program's language; each program implements [`Program`](program_trait::Program).
//!
//! ```text
//!  Driven ── updates ──▶ Worker ── desired, excluded ──▶ Program: render, check, apply, load, look
//!         ◀── reports ──    │
//!                           └── Common: files and their check, addresses, the process and when it restarts
//!                                 ├── Search: which consumer is refused; one check at a time, between updates
//!                                 └── ReloadPace: when a reload may start, and which old processes must end
//! ```

pub(crate) mod causes;
pub(crate) mod common;
mod counters;
mod driven;
pub(crate) mod folder;
pub mod pem;
pub(crate) mod process;
pub(crate) mod program_trait;
pub(crate) mod reload_pace;
pub(crate) mod render_filter;
mod search;
pub(crate) mod suspects;
pub mod text;
pub(crate) mod worker;

pub use counters::Counters;
pub use driven::Driven;
pub use reload_pace::MAX_OLD_GENERATIONS;
pub use render_filter::Rendered;
pub use suspects::Excluded;

use crate::Error;
use std::fmt::Display;

/// An error after which a retry may succeed.
pub(crate) fn trouble(doing: impl Into<String>, cause: impl Display) -> Error {
    Error { doing: doing.into(), cause: cause.to_string(), retry: true }
}

/// An error after which a retry cannot succeed.
pub(crate) fn hopeless(doing: impl Into<String>, cause: impl Display) -> Error {
    Error { retry: false, ..trouble(doing, cause) }
}
