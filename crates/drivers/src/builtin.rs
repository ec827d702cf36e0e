//! The built-in proxy as a driver: updates are applied in memory, so they cannot fail as a whole.

use crate::{Driver, Error};
use bowline_core::update::{Report, Update};
use bowline_proxy::Proxy;
use std::sync::Arc;
use std::time::Duration;

/// Drives a proxy in the same process.
#[derive(Debug)]
pub struct Builtin {
    proxy: Arc<Proxy>,
}

impl Builtin {
    /// Drives this proxy.
    pub fn new(proxy: Arc<Proxy>) -> Self {
        Self { proxy }
    }
}

impl Driver for Builtin {
    async fn apply(&mut self, update: &Update) -> Result<Report, Error> {
        Ok(self.proxy.apply(update).await)
    }

    async fn drain(&mut self, grace: Duration) {
        self.proxy.drain(grace).await;
    }
}
