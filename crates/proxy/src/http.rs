//! HTTP: from an accepted connection to a member's answer. Connections are ours ([`connection`]): their
//! limits, their heads ([`head`]), HTTP/1.1 and HTTP/2 loops, draining. Each request is then carried
//! by pingora, which asks [`service`] what to do with it. Nothing here binds or accepts.

mod answer;
mod connection;
mod decide;
mod forwarded;
mod head;
mod log;
mod peer;
mod service;
mod stream;
mod target;

pub(crate) use connection::{Connection, Http, serve};
pub(crate) use stream::Io;

use crate::state::Shared;
use std::sync::Arc;

/// Pingora, deciding by these tables.
pub(crate) fn service(shared: Arc<Shared>) -> Http {
    service::Service::new(shared).into_http()
}
