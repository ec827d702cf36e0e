//! BFD: tells within a few hundred milliseconds that a router is gone (RFC 5880, 5881 and 5883, asynchronous mode).
//!
//! ```text
//! datagram ─▶ sessions ─(discriminator, or addresses)─▶ session ─▶ datagram, state
//!                 └ TTL                                   └ timers
//! ```
//!
//! `packet` reads and writes control packets, `session` is the machine for one peer, `sessions` finds the session of a
//! datagram, `shell` owns the sockets. The echo function and authentication are not built.

mod packet;
mod session;
mod sessions;
pub mod shell;

pub use packet::{BadPacket, Diagnostic, Packet, State};
pub use session::{BadParameters, Parameters};
pub use sessions::{Datagram, Effect, Event, Hops, Peer, SessionKey, Sessions};

/// The port of sessions over one hop.
pub const SINGLE_HOP_PORT: u16 = 3784;
/// The port of sessions over several hops.
pub const MULTIHOP_PORT: u16 = 4784;
