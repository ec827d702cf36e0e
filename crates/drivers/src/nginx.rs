//! nginx as a load balancer: the desired state becomes one file. nginx checks it and loads it with new processes, while
//! the old ones finish their connections. It owns nginx's files; the agent calls it through [`crate::Driver`].
//!
//! ```text
//!  Update ─▶ desired ─▶ render ─▶ wanted ─▶ files, check, SIGHUP ─▶ new processes
//!            (pure)     (pure)                                          │
//!                                 ◀── status socket: what they loaded ──┘
//! ```

mod driver;
mod failing;
mod find;
mod log;
mod process;
pub mod render;
mod status;
pub mod text;
#[cfg(test)]
mod tokens;
mod version;
pub mod wanted;

pub use driver::{Counters, Options, drive};
