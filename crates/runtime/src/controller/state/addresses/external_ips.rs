//! ExternalIPs as holders: they ask the machine for addresses, are told what they have, and go when
//! nothing is recorded for them any more. Where the traffic to their addresses goes is not decided here.

use super::*;
use crate::controller::shown::Shown;
use crate::controller::writes::Amend;
use bowline_api::external_ip::{ExternalIPPhase, ExternalIPStatus};
use bowline_core::addresses::{Decision, ExternalIpPhase, ExternalIpStatus, Guard};
use serde_json::json;

impl State {
    pub(in crate::controller::state) fn hear_external_ip(
        &mut self,
        seen: Seen<Box<Shown<ExternalIpShown>>>,
    ) {
        match seen {
            Seen::Begin => {
                self.pooled.external_ips.begin();
                self.pooled.tell(Told::Begin(Class::ExternalIp));
            }
            Seen::Apply(seen) => self.put_external_ip(*seen),
            Seen::Delete(seen) => {
                let key = seen.status.claim.holder.key;
                self.pooled.external_ips.remove(&key);
                self.pooled.tell(Told::Delete(Class::ExternalIp, key));
            }
            Seen::Done => {
                self.pooled.external_ips.done();
                self.pooled.tell(Told::Done(Class::ExternalIp));
                self.listed.insert("ExternalIP");
            }
        }
    }

    /// An ExternalIP as it is now. A watch may be behind the answer to a write: then the newer one is told
    /// again, or the end of a list would mean that it is gone.
    pub(in crate::controller::state) fn put_external_ip(&mut self, shown: Shown<ExternalIpShown>) {
        let key = shown.status.claim.holder.key.clone();
        self.pooled.external_ips.put(key.clone(), shown);
        if let Some(known) = self.pooled.external_ips.get(&key) {
            let claim = known.status.claim.clone();
            self.pooled.tell(Told::Apply(Box::new(Thing::Claim(claim))));
        }
        self.dirty.insert(Target::ExternalIp(key));
    }

    pub(in crate::controller::state) fn next_external_ip(
        &mut self,
        key: &ObjectKey,
        clock: Timestamp,
    ) -> Next {
        let Some(shown) = self.pooled.external_ips.get(key) else { return Next::Nothing };
        let holder = shown.status.claim.holder.clone();
        let tried = Tried::at(&shown.version);
        let write = |amend| Next::Write(Write::ExternalIp(key.clone(), amend), tried);
        let status = status(self.pooled.machine.decision(&holder), shown, clock);
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
        let held = !self.pooled.machine.addresses_of(&holder).is_empty();
        let ours = |it: &String| it == names::FINALIZER_CLEANUP;
        let mut finalizers = shown.status.finalizers.clone();
        match Guard::of_holder(held, finalizers.iter().any(ours), shown.status.deleting) {
            Guard::Keep => {
                self.pooled.tell(Told::Shown { holder, addresses });
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
