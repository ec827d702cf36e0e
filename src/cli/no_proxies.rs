//! Replaces `proxies` in a build without the feature `proxy`: it has no proxies, and returns an error that says so.

use super::proxy::ProxyFlags;
use bowline_core::update::{Report, Update};
use bowline_drivers::{Driver, Error};
use bowline_runtime::metrics::Metrics;
use std::convert::Infallible;
use std::path::Path;
use std::time::Duration;

/// The user asked for the built-in proxy.
#[derive(Debug, thiserror::Error)]
#[error(
    "this build has no built-in proxy (feature `proxy`): choose --driver haproxy or --driver nginx"
)]
pub(super) struct NoProxy;

/// No value of this type exists.
#[derive(Clone)]
pub(super) struct Proxies(Infallible);

impl Proxies {
    pub(super) fn new(_: ProxyFlags, _: &Metrics, _: Option<&Path>) -> Result<Self, NoProxy> {
        Err(NoProxy)
    }

    pub(super) fn driver(&self, _: &str) -> Self {
        match self.0 {}
    }
}

impl Driver for Proxies {
    async fn apply(&mut self, _: &Update) -> Result<Report, Error> {
        match self.0 {}
    }

    async fn drain(&mut self, _: Duration) {
        match self.0 {}
    }
}
