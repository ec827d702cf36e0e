//! The proxy under traffic: real clients, real members, real sockets on loopback.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failing test panics")]

mod answers;
mod http1;
mod kit;
mod listeners;
mod members;
mod shares;
mod slow;
mod targets;
mod tls;
