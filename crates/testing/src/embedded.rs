//! The embedded cluster behind the harness: started in memory on a free port, on a thread with a
//! runtime of its own because every test has another. The only file that knows its Rust API.

use crate::cluster::Server;
use crate::janitor::Scratch;
use std::sync::Arc;

/// Starts the embedded cluster and waits until it answers.
pub(crate) fn start(_scratch: Arc<Scratch>) -> Server {
    panic!(
        "the embedded cluster is not wired yet; set KUBEBUILDER_ASSETS or BOWLINE_TEST_KUBECONFIG"
    )
}
