//! The few controllers that a cluster cannot do without, each an ordinary client of the API.

use crate::server::Server;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Starts all of them; they end when `stop` becomes true.
pub fn spawn(_server: &Arc<Server>, _stop: &watch::Receiver<bool>) -> Vec<JoinHandle<()>> {
    Vec::new()
}
