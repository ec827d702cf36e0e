//! Layer 2: one node of a segment answers ARP and NDP questions for an address.
//!
//! ```text
//!  Speaker (thread) ─┬─ Gossip: who is there, what each says ── swim (foca), tables, seal
//!                    ├─ Owners: who answers for an address
//!                    └─ frame:  ARP and NDP
//! ```
//!
//! [`speaker`] is the shell; everything else is without I/O, clock and randomness.

pub mod frame;
pub mod gossip;
pub mod member;
pub mod owners;
pub mod speaker;
