//! HAProxy as a load balancer: the desired state becomes files and runtime commands, and a reload only where HAProxy
//! offers no other way. It owns HAProxy's files and sockets; the agent calls it through [`crate::Driver`].
//!
//! ```text
//!  Update ─▶ desired ─▶ render ─▶ wanted ─▶ diff ─▶ commands ─▶ runtime socket
//!            (pure)     (pure)      │      (pure) └▶ reload ───▶ files, check, master socket
//!                                   └────────▲── read back: what runs
//! ```

pub mod command;
mod descriptor_budget;
pub mod diff;
mod driver;
mod failing;
mod lagging;
mod leaving;
mod log;
mod process;
pub mod readback;
pub mod render;
mod socket;
pub mod text;
#[cfg(test)]
mod tokens;
mod version;
pub mod wanted;

pub use descriptor_budget::Held;
pub use driver::{Counters, Options, SHUTDOWN_TIMEOUT, drive};
pub use version::Version;
