//! System calls that no safe crate has: packet sockets bound to one interface, and options of TCP sockets that protect
//! BGP sessions. It is the only crate of the project with `unsafe`. It decides nothing and knows no protocol.

mod options;
mod packet;

pub use options::{TCP_MD5_KEY_LIMIT, set_minimum_ttl, set_tcp_md5};
pub use packet::{PacketSocket, Protocol};
