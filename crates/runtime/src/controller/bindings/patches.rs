//! The patches by which LoadBalancers and claims record the binder's decisions. They are values; `bindings`
//! sends them.

use super::super::render;
use bowline_api::load_balancer::LoadBalancerPhase;
use bowline_api::quantity::ResourceList;
use bowline_api::{convert, names};
use bowline_core::binder::{Binding, ClaimReport, Phase, Report, Tie};
use bowline_core::status;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use std::sync::Arc;

/// Amounts for a merge patch. Null removes an old value.
pub(in crate::controller) fn amounts(list: Option<ResourceList>) -> Option<Value> {
    list.map(
        |it| json!({"network-bandwidth": it.network_bandwidth, "network-iops": it.network_iops}),
    )
}

/// The patch that binds a load balancer to a claim, or releases it.
pub(super) fn tied(tie: &Tie, finalizers: &[String], version: &str) -> Value {
    let finalizers = convert::finalizers(finalizers, tie);
    let claim = tie.claim.as_ref().map(|claim| {
        // In a merge patch null removes the uid.
        json!({
            "namespace": claim.key.namespace, "name": claim.key.name, "uid": claim.uid,
        })
    });
    json!({
        "metadata": {
            "resourceVersion": version,
            "finalizers": (!finalizers.is_empty()).then_some(finalizers),
        },
        "spec": {"claimRef": claim},
    })
}

pub(super) fn said(report: &ClaimReport) -> status::Condition {
    status::Condition {
        holds: report.phase == Phase::Bound,
        reason: report.reason.to_string().into(),
        message: Arc::clone(&report.message),
    }
}

/// The conditions of a load balancer, with those of its binding updated.
pub(super) fn standing(
    report: &Report,
    before: &[Condition],
    generation: i64,
    clock: Timestamp,
) -> Vec<Condition> {
    let bound = status::Condition {
        holds: report.binding == Binding::Bound,
        reason: report.binding.to_string().into(),
        message: Arc::clone(&report.message),
    };
    let type_ = names::CONDITION_BOUND;
    let mut all = render::with_condition(before, type_, &bound, generation, clock);
    let type_ = names::CONDITION_RECLAIMED;
    match &report.failed {
        Some(why) => {
            let reason = names::REASON_FAILED.into();
            let failed = status::Condition { holds: false, reason, message: Arc::clone(why) };
            all = render::with_condition(&all, type_, &failed, generation, clock);
        }
        None => all.retain(|it| it.type_ != type_),
    }
    all.retain(|it| it.type_ != names::CONDITION_IDLE);
    all.extend(report.idle_since.map(|since| Condition {
        type_: names::CONDITION_IDLE.to_owned(),
        status: "True".to_owned(),
        reason: names::REASON_NO_CONSUMERS.to_owned(),
        message: "it has no consumers".to_owned(),
        observed_generation: None,
        last_transition_time: Time(Timestamp::from_second(since).unwrap_or(clock)),
    }));
    all
}

/// The patch for the binding's part of a load balancer's status. A failed wipe or removal is its phase and
/// message.
pub(super) fn reported(report: &Report, conditions: &[Condition], version: &str) -> Value {
    let mut status = json!({"conditions": conditions});
    if let Some(why) = &report.failed {
        status["phase"] = json!(LoadBalancerPhase::Failed);
        status["message"] = json!(why);
    }
    json!({"metadata": {"resourceVersion": version}, "status": status})
}
