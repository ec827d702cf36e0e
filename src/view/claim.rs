//! Why a claim has its load balancer, or waits: what `bowline explain lbc/NAME` prints. It asks the
//! leader's binder about every load balancer, while the leader reports only the first ten. Pure.

use super::facts::Facts;
use super::remedies::Names;
use super::status_text::notes;
use super::words::{bullet, count, paragraph, row};
use bowline_api::convert;
use bowline_api::names;
use bowline_core::binder::{Binder, ClaimReason, Event, Object};
use bowline_core::diagnosis::claims;
use bowline_core::key::ObjectKey;
use bowline_core::objects::Timestamp;
use bowline_runtime::controller;
use serde::Serialize;

/// A claim, and why it is in its state.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClaimView {
    namespace: String,
    name: String,
    /// Pending, Bound or Lost, as in its status; None if no leader has written a status.
    #[serde(skip_serializing_if = "Option::is_none")]
    phase: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    load_balancer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// The message of its status.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    /// What helps. None: it is bound, or nothing has to be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
    /// How many Services and Ingresses name it.
    consumers: u32,
    /// The load balancers that it does not get, each with one reason; only while it has none.
    passed_over: Vec<PassedOverView>,
    /// Why no load balancer is provisioned for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    unmade: Option<String>,
    pub(super) notes: Vec<String>,
}

/// A load balancer that a claim does not get.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct PassedOverView {
    load_balancer: String,
    why: String,
}

impl ClaimView {
    /// None: there is no such claim.
    pub(super) fn of(facts: &Facts, key: &ObjectKey) -> Option<Self> {
        let claim = facts.claims.get(key)?;
        let status = claim.status.clone().unwrap_or_default();
        let bound = status.conditions.iter().find(|it| it.type_ == names::CONDITION_BOUND);
        let waits = status.load_balancer_name.is_none();
        let binder = binder(facts);
        let passed = binder.explain(key).first.into_iter().filter(|_| waits);
        let unmade = binder.unmade(key).filter(|_| waits);
        let asks = facts.wanted.iter().find(|(claim, _)| claim == key);
        Some(Self {
            namespace: key.namespace.to_string(),
            name: key.name.to_string(),
            phase: status.phase.map(|phase| format!("{phase:?}")),
            reason: bound.map(|it| it.reason.clone()),
            remedy: bound
                .and_then(|it| claims::row(ClaimReason::parse(&it.reason)?).helps)
                .map(|it| Names::of_claim(key).fill(it.what)),
            message: bound.map(|it| it.message.clone()),
            load_balancer: status.load_balancer_name,
            consumers: asks.map_or(0, |(_, count)| *count),
            passed_over: passed
                .map(|(name, why)| PassedOverView {
                    load_balancer: name.to_string(),
                    why: why.to_string(),
                })
                .collect(),
            unmade: unmade.map(|it| it.to_string()),
            notes: facts.notes.clone(),
        })
    }

    pub(super) fn text(&self) -> String {
        let mut out = String::new();
        let whole = format!("Claim {}/{}", self.namespace, self.name);
        let headline = match (self.phase.as_deref(), &self.load_balancer) {
            (Some("Lost"), Some(name)) => format!("{whole} has lost load balancer {name}"),
            (_, Some(name)) => format!("{whole} has load balancer {name}"),
            (None, None) => format!("{whole} waits, and no controller has looked at it yet"),
            (Some(_), None) => format!("{whole} waits for a load balancer"),
        };
        paragraph(&mut out, &headline);
        out.push('\n');
        if let Some(reason) = &self.reason {
            row(&mut out, "Reason", reason);
        }
        if let Some(message) = &self.message {
            row(&mut out, "Leader says", message);
        }
        if let Some(remedy) = &self.remedy {
            row(&mut out, "What helps", remedy);
        }
        row(&mut out, "Used by", &count(self.consumers as usize, "consumer"));
        if let Some(unmade) = &self.unmade {
            row(&mut out, "And", unmade);
        }
        if !self.passed_over.is_empty() {
            out.push_str("\nLoad balancers that it does not get\n");
            for it in &self.passed_over {
                bullet(&mut out, "  - ", &format!("{}: {}", it.load_balancer, it.why));
            }
        }
        notes(&mut out, &self.notes);
        out
    }
}

/// The binder, fed with all objects.
fn binder(facts: &Facts) -> Binder {
    let mut binder = Binder::new();
    let now: Timestamp = facts.now.as_second();
    let lbs = facts.load_balancers.values().map(convert::bindable).map(Object::LoadBalancer);
    let claims = facts.claims.values().map(convert::claim).map(Object::Claim);
    let classes = facts.balancer_classes.iter().map(controller::class).map(Object::Class);
    let namespaces = facts.namespaces.iter().map(convert::namespace).map(Object::Namespace);
    for object in lbs.chain(claims).chain(classes).chain(namespaces) {
        binder.handle(Event::Apply(Box::new(object)), now);
    }
    binder
}
