//! Keeps the speaker's Lease up to date: renews it while the speaker lives and writes news at once, but not too often.

use super::SpeakerOptions;
use crate::api_timeout::answer;
use crate::lease::speaker_patch;
use crate::metrics::Metrics;
use crate::random;
use crate::supervise::Works;
use bowline_api::names;
use bowline_core::backoff::Backoff;
use bowline_core::clock::in_words;
use bowline_core::report::speaker::SpeakerReport;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, Error};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::watch;

const RENEW: Duration = Duration::from_secs(5);
/// How long a speaker may take for its first report. One that cannot see anything says at least that it runs.
const FIRST: Duration = Duration::from_secs(10);
/// The least time between two writes.
const GAP: Duration = Duration::from_millis(500);

/// The Lease of a node's speaker.
#[derive(Clone)]
pub(super) struct Reporter {
    api: Api<Lease>,
    name: String,
    node: String,
    metrics: Metrics,
}

impl Reporter {
    pub(super) fn new(client: Client, options: &SpeakerOptions, metrics: Metrics) -> Self {
        let api = Api::namespaced(client, &options.namespace);
        let name = names::speaker_lease(&options.node);
        Self { api, name, node: options.node.clone(), metrics }
    }

    /// Reports until the sender of reports is dropped.
    pub(super) async fn run(self, mut reports: watch::Receiver<SpeakerReport>, works: Works) {
        let mut backoff = Backoff::new(GAP, RENEW);
        // Until then the report of an earlier speaker of this node counts: routes and addresses are still here.
        let _ = tokio::time::timeout(FIRST, reports.changed()).await;
        loop {
            let report = reports.borrow_and_update().clone();
            match self.write(&speaker_patch(&report, Timestamp::now())).await {
                Ok(_) => {
                    backoff.worked();
                    works.now();
                    tokio::time::sleep(GAP).await;
                    tokio::select! {
                        changed = reports.changed() => if changed.is_err() { return },
                        () = tokio::time::sleep(RENEW) => {}
                    }
                }
                Err(error) => {
                    let wait = backoff.failed(random::number());
                    // At a start the namespace may not exist yet, so the first failures are no error.
                    if backoff.failures() > 2 {
                        self.metrics.error("Lease");
                        tracing::warn!(lease = self.name, %error, wait = %in_words(wait), "cannot write the report into the Lease");
                    }
                    tokio::time::sleep(wait).await;
                    if reports.has_changed().is_err() {
                        return;
                    }
                }
            }
        }
    }

    async fn write(&self, patch: &Value) -> Result<Lease, Error> {
        match answer(self.api.patch(&self.name, &params(), &Patch::Merge(patch))).await {
            Err(Error::Api(status)) if status.is_not_found() => {
                let mut lease = patch.clone();
                lease["metadata"]["name"] = self.name.as_str().into();
                let lease: Lease = serde_json::from_value(lease).map_err(Error::SerdeError)?;
                let params = PostParams {
                    field_manager: Some(names::MANAGER_SPEAKER.to_owned()),
                    ..PostParams::default()
                };
                answer(self.api.create(&params, &lease)).await
            }
            written => written,
        }
    }

    /// Writes the report of a speaker whose successor goes on.
    pub(super) async fn last(&self, report: &SpeakerReport) {
        if let Err(error) = self.write(&speaker_patch(report, Timestamp::now())).await {
            tracing::debug!(lease = self.name, %error, "cannot write the last report");
        }
    }

    /// Says that the speaker has left and announces nothing.
    pub(super) async fn release(&self) {
        let node = self.node.as_str().into();
        let report = SpeakerReport::new(node, "".into(), BTreeMap::new(), [], []);
        let mut patch = speaker_patch(&report, Timestamp::now());
        patch["spec"]["holderIdentity"] = "".into();
        if let Err(error) = self.api.patch(&self.name, &params(), &Patch::Merge(&patch)).await {
            tracing::debug!(lease = self.name, %error, "cannot release the Lease");
        }
    }
}

fn params() -> PatchParams {
    PatchParams { field_manager: Some(names::MANAGER_SPEAKER.to_owned()), ..PatchParams::default() }
}
