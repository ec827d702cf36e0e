//! The few controllers that a server without a controller manager still needs. Each is an ordinary
//! client of the API and uses nothing else of this crate, so each also runs against kube-apiserver.
//!
//! ```text
//!  watch ──▶ small records ──▶ index (pure) ──▶ actions ──▶ API
//!                 ▲     table: mark and sweep      │  shell: coalesce, retry with back-off
//!                 └────────── what was written ◀───┘
//! ```
//!
//! They never exit by themselves: an error is logged and retried.

mod catalog;
mod custom_resources;
mod deletions;
mod endpoint_slices;
mod events;
mod expiry;
mod garbage;
mod namespaces;
mod pods;
mod queue;
mod shell;
mod table;

#[cfg(test)]
mod tests;

use kube::Client;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The delay before a failed controller starts again, so that one that fails at once does not spin.
const RESTART_AFTER: Duration = Duration::from_secs(1);

/// One of the controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controller {
    /// EndpointSlices from Services with a selector and their Pods.
    EndpointSlices,
    /// Deletes objects whose owners are deleted, and orphans dependents if the deletion asked for it.
    Garbage,
    /// Empties Namespaces that are being deleted, then removes their finalizer.
    Namespaces,
    /// Deletes the objects of a CustomResourceDefinition that is being deleted, then removes its
    /// finalizer. kube-apiserver does this itself.
    CustomResources,
    /// Deletes Events after an hour. kube-apiserver does this itself.
    Events,
    /// Deletes Pods whose grace period is over, because there is no kubelet. Not for a cluster with
    /// kubelets.
    Pods,
}

impl Controller {
    /// All controllers.
    pub const ALL: [Self; 6] = [
        Self::EndpointSlices,
        Self::Garbage,
        Self::Namespaces,
        Self::CustomResources,
        Self::Events,
        Self::Pods,
    ];

    /// Starts this controller. The task ends soon after `stop` becomes true or its sender is dropped.
    pub fn spawn(self, client: Client, stop: &watch::Receiver<bool>) -> JoinHandle<()> {
        let stop = stop.clone();
        tokio::spawn(async move {
            // A controller that ends before it is told to has panicked. Its open work is still in the
            // API, where the new one reads it.
            while let Err(error) = self.start(client.clone(), stop.clone()).await {
                tracing::error!(controller = ?self, %error, "a controller failed; it starts again");
                tokio::time::sleep(RESTART_AFTER).await;
            }
        })
    }

    fn start(self, client: Client, stop: watch::Receiver<bool>) -> JoinHandle<()> {
        match self {
            Self::EndpointSlices => tokio::spawn(endpoint_slices::run(client, stop)),
            Self::Garbage => tokio::spawn(garbage::run(client, stop)),
            Self::Namespaces => tokio::spawn(namespaces::run(client, stop)),
            Self::CustomResources => tokio::spawn(custom_resources::run(client, stop)),
            Self::Events => tokio::spawn(events::run(client, stop)),
            Self::Pods => tokio::spawn(pods::run(client, stop)),
        }
    }
}

/// Starts all controllers. The tasks end soon after `stop` becomes true or its sender is dropped.
pub fn spawn(client: Client, stop: &watch::Receiver<bool>) -> Vec<JoinHandle<()>> {
    Controller::ALL.iter().map(|controller| controller.spawn(client.clone(), stop)).collect()
}
