//! The few controllers that a cluster cannot do without, each an ordinary client of the API.

use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Starts all of them; they end when `stop` becomes true.
pub fn spawn(_client: kube::Client, _stop: &watch::Receiver<bool>) -> Vec<JoinHandle<()>> {
    Vec::new()
}
