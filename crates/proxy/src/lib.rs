//! The built-in data plane: HTTP/1.1, HTTP/2 and WebSocket by pingora, TCP and UDP beside it.
//!
//! It is told what to do by [`Update`]s, which it swaps in memory: no restart, and no connection is
//! dropped because something else changed. It knows neither Kubernetes nor files.

pub mod metrics;
pub mod pool;
pub mod proxy_protocol;
pub mod router;
pub mod tcp;
pub mod udp;

use bowline_core::update::{Report, Update};
use std::time::Duration;

/// How a proxy behaves, whatever its plan says.
#[derive(Clone, Debug, Default)]
pub struct Options {}

/// A running data plane. It serves nothing until it is given an update.
#[derive(Debug)]
pub struct Proxy {}

impl Proxy {
    /// A proxy; it uses the tokio runtime that it is made in.
    pub fn new(_options: Options) -> Self {
        Self {}
    }

    /// Brings a difference into force and says what could not be done.
    pub async fn apply(&self, _update: &Update) -> Report {
        Report::default()
    }

    /// Accepts nothing more, and returns when what is under way has ended or the grace is over.
    pub async fn drain(&self, _grace: Duration) {}
}
