//! Keeps the agent's Lease up to date: renews it while the agent lives, writes news at once, and limits how
//! often it writes. It only passes on what the agent found; `agent.rs` starts it.

use super::memory::Contact;
use crate::agents_page::{Place, Reporting};
use crate::api_timeout::answer;
use crate::causes::causes;
use crate::lease;
use crate::metrics::Metrics;
use crate::random;
use crate::supervise::Works;
use bowline_api::names;
use bowline_core::backoff::Backoff;
use bowline_core::replicas::{Left, Said};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, Error};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

const RENEW: Duration = Duration::from_secs(5);
/// The least time between two writes.
const GAP: Duration = Duration::from_millis(200);

/// The Lease of a load balancer, and the agent that reports there.
#[derive(Clone)]
pub(super) struct Reporter {
    api: Api<Lease>,
    name: String,
    identity: String,
    metrics: Metrics,
    contact: Contact,
}

impl Reporter {
    pub(super) fn new(
        client: Client,
        namespace: &str,
        load_balancer: &str,
        identity: String,
        metrics: Metrics,
        contact: Contact,
    ) -> Self {
        let name = names::agent_lease(load_balancer);
        Self { api: Api::namespaced(client, namespace), name, identity, metrics, contact }
    }

    /// Reports until the sender of reports is dropped.
    pub(super) async fn run(
        self,
        mut report: watch::Receiver<Said>,
        place: Arc<Place>,
        works: Works,
    ) {
        let mut backoff = Backoff::new(GAP, RENEW);
        let mut room = lease::room();
        loop {
            let now = report.borrow_and_update().clone();
            let patch = lease::patch(&now, &self.identity, Timestamp::now(), room);
            match self.write(&patch).await {
                Ok(after) => {
                    backoff.worked();
                    place.reported(Reporting::Written);
                    room.written(lease::count(&after));
                    works.now();
                    self.contact.notify_one();
                    tokio::time::sleep(GAP).await;
                    tokio::select! {
                        changed = report.changed() => if changed.is_err() { return },
                        () = tokio::time::sleep(RENEW) => {}
                    }
                }
                // A smaller report may fit, and the API answers: waiting gains nothing.
                Err(error) if is_too_large(&error) && room.refused() => {
                    tracing::debug!(lease = self.name, %error, "the report is made smaller");
                }
                Err(error) => {
                    place.reported(match &error {
                        Error::Api(status) if status.code == 403 => Reporting::Forbidden,
                        _ => Reporting::Failed,
                    });
                    let wait = backoff.failed(random::number());
                    // At a start the namespace may not exist yet, so the first failures are no error.
                    if backoff.failures() > 2 {
                        self.metrics.error("Lease");
                        tracing::warn!(
                            lease = self.name,
                            error = causes(&error),
                            ?wait,
                            "cannot write the report into the Lease"
                        );
                    }
                    tokio::time::sleep(wait).await;
                    if report.has_changed().is_err() {
                        return;
                    }
                }
            }
        }
    }

    /// Marks the agent's own entry as left, so that the leader does not wait for it to expire. What it
    /// reported stays, because the next agent has the same addresses. It gives up the Lease itself only as
    /// its holder, the agent that wrote last. False: the API did not take the write.
    pub(super) async fn release(&self, last: &Said) -> bool {
        let released = self.let_go(last).await;
        if let Err(error) = &released {
            tracing::debug!(lease = self.name, %error, "cannot release the Lease");
        }
        released.is_ok()
    }

    /// Reports that the agent has left and its proxy has ended with it.
    pub(super) async fn ended(&self, last: &Said) {
        if let Err(error) = self.leave(last, Left::ProxyEnded).await {
            tracing::debug!(lease = self.name, %error, "cannot report that the proxy has ended");
        }
    }

    /// Writes the last entry of this agent, with fewer refusals if the Lease has no room for all.
    async fn leave(&self, last: &Said, left: Left) -> Result<Lease, Error> {
        let mut room = lease::room();
        room.written(lease::count(&self.api.get(&self.name).await?));
        loop {
            let patch =
                lease::entry_patch(last, &self.identity, Timestamp::now(), room, Some(left));
            match self.api.patch(&self.name, &params(), &Patch::Merge(&patch)).await {
                Err(error) if is_too_large(&error) && room.refused() => {}
                written => return written,
            }
        }
    }

    async fn let_go(&self, last: &Said) -> Result<(), Error> {
        let lease = self.leave(last, Left::ProxyRuns).await?;
        match self.let_go_of_all(lease).await {
            // The Lease was written meanwhile; this agent may still be its holder.
            Err(Error::Api(status)) if status.code == 409 => {
                self.let_go_of_all(self.api.get(&self.name).await?).await
            }
            ended => ended,
        }
    }

    async fn let_go_of_all(&self, lease: Lease) -> Result<(), Error> {
        let holder = lease.spec.and_then(|spec| spec.holder_identity);
        if holder.as_ref() != Some(&self.identity) {
            return Ok(());
        }
        let patch = json!({
            "metadata": {"resourceVersion": lease.metadata.resource_version},
            "spec": {"holderIdentity": ""},
        });
        self.api.patch(&self.name, &params(), &Patch::Merge(&patch)).await.map(drop)
    }

    async fn write(&self, patch: &Value) -> Result<Lease, Error> {
        match answer(self.api.patch(&self.name, &params(), &Patch::Merge(patch))).await {
            Err(Error::Api(status)) if status.is_not_found() => self.create(patch).await,
            written => written,
        }
    }

    async fn create(&self, patch: &Value) -> Result<Lease, Error> {
        let mut lease = patch.clone();
        lease["metadata"]["name"] = json!(self.name);
        if let Some(annotations) = lease["metadata"]["annotations"].as_object_mut() {
            annotations.retain(|_, value| !value.is_null());
        }
        let lease: Lease = serde_json::from_value(lease).map_err(Error::SerdeError)?;
        let params = PostParams {
            field_manager: Some(names::MANAGER_AGENT.into()),
            ..PostParams::default()
        };
        answer(self.api.create(&params, &lease)).await
    }
}

/// Whether the API refuses the Lease because all reports together are too long.
fn is_too_large(error: &Error) -> bool {
    matches!(error, Error::Api(status) if status.code == 422)
}

fn params() -> PatchParams {
    PatchParams { field_manager: Some(names::MANAGER_AGENT.into()), ..PatchParams::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agents_page::AgentsPage;
    use kube::client::Body;
    use parking_lot::Mutex;
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn a_report_that_is_too_large_is_made_smaller_at_once_and_tried_later_where_it_cannot_be()
    {
        let written: Arc<Mutex<Vec<Duration>>> = Arc::default();
        let (begun, times) = (Instant::now(), Arc::clone(&written));
        let service = tower::service_fn(move |_: http::Request<Body>| {
            times.lock().push(begun.elapsed());
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Invalid",
                "message": "annotations: Too long", "code": 422,
            });
            let response = http::Response::builder().status(422);
            std::future::ready(response.body(Body::from(status.to_string().into_bytes())))
        });
        let client = Client::new(service, "bowline-system");
        let reporter = Reporter::new(
            client,
            "bowline-system",
            "edge",
            "vm1_a".to_owned(),
            Metrics::default(),
            Contact::default(),
        );
        let (said, report) = watch::channel(Said::default());
        let place = AgentsPage::default().add("vm1_a", "edge", report.clone());
        let run = tokio::spawn(reporter.run(report, Arc::new(place), Works::of_nobody()));
        tokio::time::sleep(Duration::from_secs(60)).await;
        drop(said);
        run.await.unwrap();
        let times = written.lock().clone();
        let at_once = times.iter().take_while(|at| at.is_zero()).count();
        // 160 KiB can be halved 18 times.
        assert_eq!(at_once, 19, "{times:?}");
        let waits = times[at_once - 1..].windows(2).map(|pair| pair[1] - pair[0]);
        assert!(times.len() > at_once && waits.clone().all(|wait| wait >= GAP / 2), "{times:?}");
    }
}
