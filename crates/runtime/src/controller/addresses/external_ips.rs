//! ExternalIPs as holders: they ask the machine for addresses, are told what they have, and are deleted when nothing is
//! recorded for them any more. Where the traffic to their addresses goes is not decided here.

use super::super::render;
use super::super::shown::{ExternalIpShown, Shown};
use super::super::target::{Next, Tried};
use super::super::writer::{Amend, Write};
use super::AddressShell;
use crate::watch::Seen;
use bowline_api::external_ip::{ExternalIPPhase, ExternalIPStatus};
use bowline_api::names;
use bowline_core::addresses::{
    AddressRequest, Decision, Event, ExternalIpPhase, ExternalIpStatus, Guard, Kind, Object,
};
use bowline_core::key::ObjectKey;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;

impl AddressShell {
    /// Observes an ExternalIP.
    pub(in crate::controller) fn observe_external_ip(&mut self, seen: Seen<AddressRequest>) {
        self.tell(match seen {
            Seen::Begin => Event::Begin(Kind::ExternalIp),
            Seen::Apply(request) => Event::Apply(Box::new(Object::Request(request))),
            Seen::Delete(request) => Event::Delete(Kind::ExternalIp, request.holder.key),
            Seen::Done => Event::Done(Kind::ExternalIp),
        });
    }

    pub(in crate::controller) fn next_external_ip(
        &mut self,
        key: &ObjectKey,
        shown: Option<&Shown<ExternalIpShown>>,
        clock: Timestamp,
    ) -> Next {
        let Some(shown) = shown else { return Next::Nothing };
        let holder = shown.status.request.holder.clone();
        let tried = Tried::at(&shown.version);
        let write = |amend| Next::Write(Write::ExternalIp(key.clone(), amend), tried);
        let status = status(self.machine.decision(&holder), shown, clock);
        if status != shown.status.status {
            return write(Amend::Status(json!({
                "metadata": {"resourceVersion": &*shown.version},
                "status": {
                    "ips": (!status.ips.is_empty()).then_some(&status.ips),
                    "phase": status.phase,
                    "conditions": status.conditions,
                },
            })));
        }
        // What is not shown may be released.
        let addresses = status.ips;
        let held = !self.machine.addresses_of(&holder).is_empty();
        let ours = |it: &String| it == names::FINALIZER_CLEANUP;
        let mut finalizers = shown.status.finalizers.clone();
        match Guard::of_holder(held, finalizers.iter().any(ours), shown.status.deleting) {
            Guard::Keep => {
                self.tell(Event::Shown { holder, addresses });
                return Next::Nothing;
            }
            Guard::Add => finalizers.push(names::FINALIZER_CLEANUP.to_owned()),
            Guard::Remove => finalizers.retain(|it| !ours(it)),
        }
        let finalizers = (!finalizers.is_empty()).then_some(finalizers);
        write(Amend::Finalizers(json!({
            "metadata": {"resourceVersion": &*shown.version, "finalizers": finalizers},
        })))
    }
}

/// The status of an ExternalIP as it should be; what is said of its Pod stays.
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
