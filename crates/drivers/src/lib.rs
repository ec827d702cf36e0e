//! Drivers: each keeps one kind of load balancer in step with a resolved plan. A driver sees [`Update`]s, never a
//! Kubernetes object, and answers with what it could not do. The agent calls drivers.
//!
//! Each driver is a module of its own; the agent chooses one by the source of its load balancer.

#[cfg(feature = "proxy")]
pub mod builtin;
pub mod desired;
pub mod haproxy;
pub mod local_addresses;
pub mod nginx;
pub mod program;
pub mod provision;
#[cfg(test)]
mod samples;
mod sift;
pub mod template;

use bowline_core::update::{Report, Update};
use std::future::Future;

/// Keeps a load balancer in step.
pub trait Driver: Send {
    /// Applies an update. The report lists what could not be done for single objects. After an error, the state of the
    /// load balancer is unknown, and the caller should apply a complete update.
    fn apply(&mut self, update: &Update) -> impl Future<Output = Result<Report, Error>> + Send;

    /// Resolves when the last report is no longer true although no update came, for example because an address could be
    /// bound at last. The future is cancel-safe. A driver whose reports stay true until the next update never resolves
    /// it. An error means that a part of the driver is gone and that the driver cannot go on.
    fn changed(&mut self) -> impl Future<Output = Result<Report, Error>> + Send {
        std::future::pending()
    }

    /// How many listeners the driver can have open, beside all else that it must open. None: the driver sets no limit.
    fn most_listeners(&self) -> Option<usize> {
        None
    }

    /// Stops accepting connections, lets requests in progress end within the grace, then stops.
    fn drain(&mut self, grace: std::time::Duration) -> impl Future<Output = ()> + Send;

    /// Whether clients may still be served after [`Self::drain`]. They may where the proxy is a process of its own.
    fn serves_on(&self) -> bool {
        true
    }
}

/// Why an update was not applied.
#[derive(Debug, thiserror::Error)]
#[error("{doing}: {cause}")]
pub struct Error {
    /// What the driver was doing, and to what.
    pub doing: String,
    /// What went wrong.
    pub cause: String,
    /// Whether the caller may try again. If not, a part of the driver is gone, and the agent exits so that its
    /// supervisor restarts it.
    pub retry: bool,
}
