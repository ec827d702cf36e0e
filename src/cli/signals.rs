//! Ctrl-C and SIGTERM, as a future.

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};

/// Resolves on Ctrl-C or SIGTERM. The handlers are in place when this returns, so that a signal during
/// the start is not lost.
pub(super) fn shutdown() -> anyhow::Result<impl Future<Output = ()>> {
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}
