//! The Lease of a speaker: its report is one annotation, and it alone writes it.

use super::DURATION_SECONDS;
use bowline_api::names;
use bowline_core::announce::SpeakerLease;
use bowline_core::report::speaker::SpeakerReport;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
#[cfg(feature = "speaker")]
use serde_json::{Value, json};
use std::time::Duration;

/// What a speaker says in its Lease. None: the Lease is no speaker's, or the report cannot be read.
pub(crate) fn speaker(lease: &Lease) -> Option<SpeakerLease> {
    let text = lease.metadata.annotations.as_ref()?.get(names::ANNOTATION_SPEAKER)?;
    let spec = lease.spec.as_ref()?;
    let report = serde_json::from_str(text).ok()?;
    let holder = spec.holder_identity.as_deref().unwrap_or_default();
    let renewed = spec.renew_time.as_ref().map(|time| time.0.to_string()).unwrap_or_default();
    let lasts = spec.lease_duration_seconds.and_then(|it| u64::try_from(it).ok());
    Some(SpeakerLease {
        // A speaker that leaves gives up the Lease.
        report: (!holder.is_empty()).then_some(report),
        renewed: renewed.into(),
        lasts: Duration::from_secs(lasts.unwrap_or(DURATION_SECONDS.into())),
    })
}

/// The report of a speaker that has renewed its Lease lately.
pub fn live_speaker(lease: &Lease, now: Timestamp) -> Option<SpeakerReport> {
    /// Clocks of machines differ.
    const TOLERANCE: Duration = Duration::from_secs(15);
    let said = speaker(lease)?;
    let renewed = lease.spec.as_ref()?.renew_time.as_ref()?.0;
    let silent = now.duration_since(renewed).unsigned_abs();
    said.report.filter(|_| silent <= said.lasts + TOLERANCE)
}

/// The node of a speaker that has not renewed its Lease in time and did not give it up, and for how many seconds it has
/// been silent.
pub fn silent_speaker(lease: &Lease, now: Timestamp) -> Option<(String, i64)> {
    let report = speaker(lease)?.report?;
    let renewed = lease.spec.as_ref()?.renew_time.as_ref()?.0;
    let silent = now.as_second() - renewed.as_second();
    live_speaker(lease, now).is_none().then(|| (report.node.to_string(), silent))
}

/// The merge patch that writes the report of a speaker.
#[cfg(feature = "speaker")]
pub(crate) fn speaker_patch(report: &SpeakerReport, now: Timestamp) -> Value {
    let text = serde_json::to_string(report).unwrap_or_default();
    json!({
        "metadata": {"annotations": {names::ANNOTATION_SPEAKER: text}},
        "spec": {
            "holderIdentity": report.node,
            "leaseDurationSeconds": DURATION_SECONDS,
            "renewTime": format!("{now:.6}"),
        },
    })
}

#[cfg(all(test, feature = "speaker"))]
mod tests {
    use super::*;

    #[test]
    fn the_report_of_a_speaker_is_read_until_it_gives_up_its_lease() {
        let report = SpeakerReport::new("a".into(), "1".into(), Default::default(), [], []);
        let mut patch = speaker_patch(&report, Timestamp::UNIX_EPOCH);
        let read = |patch: &Value| {
            speaker(&serde_json::from_value(patch.clone()).unwrap()).map(|it| it.report)
        };
        assert_eq!(read(&patch), Some(Some(report)));
        patch["spec"]["holderIdentity"] = "".into();
        assert_eq!(read(&patch), Some(None));
        patch["metadata"]["annotations"][names::ANNOTATION_SPEAKER] = "{".into();
        assert_eq!(read(&patch), None);
    }
}
