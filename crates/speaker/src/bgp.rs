//! BGP: the messages, the session with one peer, and the routes that the peer is told.
//!
//! ```text
//!  announcer ──▶ Session ──▶ effects: connect, send, close, report ──▶ shell (TCP)
//!                 │ ▲                                                     │
//!       rib_out ◀─┘ └──────────── events: connected, received, closed ◀───┘
//! ```
//!
//! A session announces routes and installs none: what a peer sends is checked, counted and dropped. Everything but
//! the shell is without I/O, clock and randomness.

pub mod attributes;
pub mod family;
pub mod framer;
pub mod message;
pub mod notification;
pub mod open;
pub mod rib_out;
pub mod route_refresh;
pub mod session;
pub mod shell;
pub mod update;
mod wire;

pub use bowline_core::announce::Community;
pub use family::{Family, PerFamily};
pub use message::Message;
pub use notification::Notification;
pub use rib_out::Route;
pub use session::{Config, Effect, Event, Session, Stop};
