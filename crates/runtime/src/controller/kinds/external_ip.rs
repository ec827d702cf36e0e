//! ExternalIPs as holders: they request addresses from the address machine, show what they got, and lose their
//! finalizer when no Address records them any more. Where traffic to their addresses goes is not decided here.

use super::{Amend, Parts, StatusKind};
use crate::controller::render;
use crate::controller::shown::Shown;
use crate::watch::Seen;
use bowline_api::external_ip::{ExternalIP, ExternalIPPhase, ExternalIPStatus};
use bowline_api::{convert, names};
use bowline_core::addresses::{AddressRequest, Decision, ExternalIpPhase, ExternalIpStatus, Guard};
use bowline_core::key::ObjectKey;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::Api;
use serde_json::json;

/// What the leader keeps of an ExternalIP.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::controller) struct ExternalIpShown {
    /// Its address request.
    pub(in crate::controller) request: AddressRequest,
    status: ExternalIPStatus,
    finalizers: Vec<String>,
    deleting: bool,
}

impl StatusKind for ExternalIP {
    type Shown = ExternalIpShown;
    const NAME: &'static str = "ExternalIP";

    fn api(client: Client, key: &ObjectKey) -> Api<Self> {
        Api::namespaced(client, &key.namespace)
    }

    fn shown(&self) -> ExternalIpShown {
        let meta = &self.metadata;
        ExternalIpShown {
            request: convert::external_ip(self),
            status: self.status.clone().unwrap_or_default(),
            finalizers: meta.finalizers.clone().unwrap_or_default(),
            deleting: meta.deletion_timestamp.is_some(),
        }
    }

    fn observe(seen: Seen<&ExternalIpShown>, parts: &mut Parts<'_>) {
        parts.addresses.observe_external_ip(seen.map(|it| &it.request));
    }

    fn next(
        _: &ObjectKey,
        shown: &Shown<ExternalIpShown>,
        parts: &mut Parts<'_>,
        clock: Timestamp,
    ) -> Option<Amend> {
        let holder = shown.status.request.holder.clone();
        let status = status(parts.addresses.decision(&holder), shown, clock);
        if status != shown.status.status {
            return Some(Amend::Status(json!({
                "ips": (!status.ips.is_empty()).then_some(&status.ips),
                "phase": status.phase,
                "conditions": status.conditions,
            })));
        }
        let held = !parts.addresses.recorded(&holder).is_empty();
        let ours = |it: &String| it == names::FINALIZER_CLEANUP;
        let mut finalizers = shown.status.finalizers.clone();
        match Guard::of_holder(held, finalizers.iter().any(ours), shown.status.deleting) {
            Guard::Keep => {
                // Addresses that its status does not show may be released.
                parts.addresses.acknowledge(holder, status.ips);
                return None;
            }
            Guard::Add => finalizers.push(names::FINALIZER_CLEANUP.to_owned()),
            Guard::Remove => finalizers.retain(|it| !ours(it)),
        }
        Some(Amend::Finalizers(finalizers))
    }
}

/// The wanted status of an ExternalIP. What the status says of its Pod stays.
fn status(
    decision: Option<&Decision>,
    shown: &Shown<ExternalIpShown>,
    clock: Timestamp,
) -> ExternalIPStatus {
    let before = &shown.status.status;
    let said = ExternalIpStatus {
        addresses: before.ips.clone(),
        phase: before.phase.map(|phase| match phase {
            ExternalIPPhase::Pending => ExternalIpPhase::Pending,
            ExternalIPPhase::Assigned => ExternalIpPhase::Assigned,
            ExternalIPPhase::Forwarding => ExternalIpPhase::Forwarding,
        }),
        condition: None,
    };
    let now = ExternalIpStatus::of(decision, said, shown.status.deleting);
    let conditions = match &now.condition {
        Some(condition) => render::with_condition(
            &before.conditions,
            names::CONDITION_ASSIGNED,
            condition,
            shown.generation,
            clock,
        ),
        None => before.conditions.clone(),
    };
    let phase = now.phase.map(|phase| match phase {
        ExternalIpPhase::Pending => ExternalIPPhase::Pending,
        ExternalIpPhase::Assigned => ExternalIPPhase::Assigned,
        ExternalIpPhase::Forwarding => ExternalIPPhase::Forwarding,
    });
    ExternalIPStatus { ips: now.addresses, phase, conditions, pod_ips: before.pod_ips.clone() }
}
