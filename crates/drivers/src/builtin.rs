//! The built-in proxy as a driver: updates are applied in memory, so they cannot fail as a whole.

use crate::{Driver, Error};
use bowline_core::update::{Report, Update};
use bowline_proxy::Proxy;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Drives a proxy in the same process.
#[derive(Debug)]
pub struct Builtin {
    proxy: Arc<Proxy>,
    report: watch::Receiver<Report>,
}

impl Builtin {
    /// Drives this proxy.
    pub fn new(proxy: Arc<Proxy>) -> Self {
        Self { report: proxy.report(), proxy }
    }
}

impl Driver for Builtin {
    async fn apply(&mut self, update: &Update) -> Result<Report, Error> {
        self.proxy.apply(update).await;
        // What was bound since is in it as well, and counts as told.
        Ok(self.report.borrow_and_update().clone())
    }

    async fn changed(&mut self) -> Report {
        match self.report.changed().await {
            Ok(()) => self.report.borrow_and_update().clone(),
            Err(_) => std::future::pending().await,
        }
    }

    async fn drain(&mut self, grace: Duration) {
        self.proxy.drain(grace).await;
    }
}
