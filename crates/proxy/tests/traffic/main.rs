//! The proxy under traffic: real clients, real members, real sockets on loopback.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failing test panics")]

mod http1;
mod kit;
mod listeners;
mod members;
mod tls;
