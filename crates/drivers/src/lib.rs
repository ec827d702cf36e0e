//! Drivers: each keeps one kind of load balancer in step with a resolved plan. A driver sees
//! [`Update`]s, never a Kubernetes object, and answers with what it could not do.
//!
//! One module a driver; the agent chooses one by the source of its load balancer.

#[cfg(feature = "proxy")]
pub mod builtin;
pub mod desired;
pub mod elsewhere;
pub mod haproxy;
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
    /// Applies a difference. What concerns single objects is in the report; an error means that
    /// nothing is known about the rest, and that the caller should come again with everything.
    fn apply(&mut self, update: &Update) -> impl Future<Output = Result<Report, Error>> + Send;

    /// Resolves when what the last report said has changed without an update, such as an address that
    /// could be bound at last. It can be cancelled without loss. A driver whose reports stand until
    /// the next update never resolves. An error: a part of the driver is gone, and it cannot go on.
    fn changed(&mut self) -> impl Future<Output = Result<Report, Error>> + Send {
        std::future::pending()
    }

    /// How many listeners it can have open beside all else that it has to open. None: nothing here bounds them.
    fn most_listeners(&self) -> Option<usize> {
        None
    }

    /// Stops accepting, lets what is under way end within the grace, then stops.
    fn drain(&mut self, grace: std::time::Duration) -> impl Future<Output = ()> + Send;

    /// Whether clients may still be served after [`Self::drain`], as by a proxy that is a process of its own.
    fn serves_on(&self) -> bool {
        true
    }
}

/// Why an update was not applied.
#[derive(Debug, thiserror::Error)]
#[error("{doing}: {cause}")]
pub struct Error {
    /// What was being done, and to what.
    pub doing: String,
    /// What went wrong.
    pub cause: String,
    /// Whether the driver can be asked again. If not, a part of it is gone, and the agent ends so that its
    /// supervisor starts it anew.
    pub retry: bool,
}
