//!
//! ```text
//!  announcer ──▶ Session ──▶ effects: connect, send, close, report ──▶ shell (TCP)
//!                 │ ▲                                                     │
//!       rib_out ◀─┘ └──────────── events: connected, received, closed ◀───┘
//! ```
//!
//! the shell is without I/O, clock and randomness.

pub mod attributes;
pub mod community;
pub mod family;
pub mod framer;
pub mod message;
pub mod notification;
pub mod open;
pub mod rib_out;
pub mod route_refresh;
pub mod update;
mod wire;

pub use community::Community;
pub use family::{Family, PerFamily};
pub use message::Message;
pub use notification::Notification;
pub use rib_out::Route;
