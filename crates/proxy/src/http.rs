//! HTTP: from an accepted connection to a member's response. Bowline handles connections itself
//! ([`connection`]): their limits, request heads ([`head`]), HTTP/1.1 and HTTP/2 loops, draining.
//! Pingora then forwards each request, and asks [`callbacks`] what to do with it. Nothing here binds or
//! accepts; `listen` calls it.

mod answer;
mod callbacks;
mod chunks;
mod connection;
mod cookies;
mod decide;
mod exchange;
mod forwarded;
mod head;
mod log;
mod pace;
mod peer;
mod scope;
mod stream;
mod target;

pub(crate) use connection::{Connection, Http, serve};
pub(crate) use stream::Io;
#[cfg(feature = "fuzzing")]
pub(crate) use target::fuzz_head;

use crate::state::Shared;
use std::sync::Arc;

/// Pingora with callbacks that decide by these tables.
pub(crate) fn carrier(shared: Arc<Shared>) -> Http {
    callbacks::Callbacks::new(shared).into_http()
}
