//! Whether the demo can be reached as its greeting promises: its Service and Ingress have an address, and
//! every Ready Pod is a member. It reads the changes that agents send and writes nothing; `bowline up`
//! asks it before it greets.

use super::kubelet::NAMESPACE;
use bowline_runtime::observe::{Change, Changes};
use k8s_openapi::api::core::v1::{LoadBalancerStatus, Pod, Service};
use k8s_openapi::api::networking::v1::Ingress;
use kube::api::{Api, ListParams};
use kube::{Client, Result};
use std::sync::Arc;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::TryRecvError;

/// The name of the demo's Service and Ingress.
const NAME: &str = "hello";

/// The demo's members, as agents report them.
pub(crate) struct Served {
    changes: Receiver<Arc<Change>>,
    /// How many there are; None: the receiver missed changes, so the number is unknown.
    members: Option<usize>,
}

impl Served {
    /// Listens from now on: before the first agent starts.
    pub(crate) fn listen(changes: &Changes) -> Self {
        Self { changes: changes.listen(), members: Some(0) }
    }

    /// Whether everything is in force. Deleted objects are not waited for.
    pub(crate) async fn is_complete(&mut self, client: &Client) -> bool {
        let Ok(Some(ready)) = ready(client).await else { return false };
        self.hear();
        self.members.is_none_or(|members| members == ready)
            && matches!(addressed(client).await, Ok(true))
    }

    fn hear(&mut self) {
        loop {
            match self.changes.try_recv() {
                Ok(change) => {
                    if let Change::Members { service, after, .. } = &*change
                        && *service.namespace == *NAMESPACE
                        && *service.name == *NAME
                    {
                        self.members = Some(*after);
                    }
                }
                Err(TryRecvError::Lagged(_)) => self.members = None,
                Err(_) => return,
            }
        }
    }
}

/// How many Pods behind the Service are Ready; None while a Pod has no Ready condition yet.
async fn ready(client: &Client) -> Result<Option<usize>> {
    let services: Api<Service> = Api::namespaced(client.clone(), NAMESPACE);
    let Some(service) = services.get_opt(NAME).await? else { return Ok(Some(0)) };
    let selector = service.spec.and_then(|spec| spec.selector).unwrap_or_default();
    let labels: Vec<_> = selector.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let pods = pods.list(&ListParams::default().labels(&labels.join(","))).await?;
    let living = pods.items.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
    let ready: Option<Vec<bool>> = living.map(is_ready).collect();
    Ok(ready.map(|all| all.into_iter().filter(|ready| *ready).count()))
}

/// Whether a Pod is Ready; Some(false) if its port is in use. None: not known yet.
fn is_ready(pod: &Pod) -> Option<bool> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|it| it.type_ == "Ready").map(|it| it.status == "True")
}

/// Whether Service and Ingress, if they exist, have an address.
async fn addressed(client: &Client) -> Result<bool> {
    let services: Api<Service> = Api::namespaced(client.clone(), NAMESPACE);
    let ingresses: Api<Ingress> = Api::namespaced(client.clone(), NAMESPACE);
    let service = services.get_opt(NAME).await?.is_none_or(|it| {
        let status: Option<LoadBalancerStatus> = it.status.and_then(|it| it.load_balancer);
        status.and_then(|it| it.ingress).is_some_and(|points| !points.is_empty())
    });
    let ingress = ingresses.get_opt(NAME).await?.is_none_or(|it| {
        let status = it.status.and_then(|it| it.load_balancer);
        status.and_then(|it| it.ingress).is_some_and(|points| !points.is_empty())
    });
    Ok(service && ingress)
}
