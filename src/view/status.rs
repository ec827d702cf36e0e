//! The load balancers of a cluster, who is on them, and whether they do what was planned: what `bowline
//! status -o json` prints. Pure.

use super::explain::{ListenerView, ProblemView, all_listeners};
use super::facts::{Facts, Holder};
use super::status_text;
use bowline_api::LoadBalancer;
use bowline_core::key::{ConsumerKind, ConsumerRef};
use bowline_core::outcome::{Outcome, State};
use serde::Serialize;
use std::net::IpAddr;

/// A whole cluster.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Status {
    /// The leader of the controllers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) controller: Option<Holder>,
    pub(super) load_balancers: Vec<LoadBalancerView>,
    /// Who asked for a load balancer that does not exist, or for none.
    pub(super) nowhere: Vec<RefusedView>,
    pub(super) notes: Vec<String>,
}

/// A load balancer.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LoadBalancerView {
    pub(super) name: String,
    /// What it is: `builtin`, `external` and so on.
    pub(super) source: String,
    /// As its status says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) phase: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) message: Option<String>,
    pub(super) addresses: Vec<IpAddr>,
    pub(super) http_port: u16,
    pub(super) https_port: u16,
    /// Who may use it.
    pub(super) open_to: String,
    pub(super) listeners: Vec<ListenerView>,
    pub(super) consumers: Vec<ConsumerName>,
    pub(super) refused: Vec<RefusedView>,
    pub(super) applied: AppliedView,
    pub(super) notes: Vec<String>,
}

/// A Service or Ingress.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct ConsumerName {
    pub(super) kind: ConsumerKind,
    pub(super) namespace: String,
    pub(super) name: String,
}

impl From<&ConsumerRef> for ConsumerName {
    fn from(consumer: &ConsumerRef) -> Self {
        Self {
            kind: consumer.kind,
            namespace: consumer.namespace.to_string(),
            name: consumer.name.to_string(),
        }
    }
}

/// A Service or Ingress of which something was refused.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct RefusedView {
    #[serde(flatten)]
    pub(super) consumer: ConsumerName,
    #[serde(flatten)]
    pub(super) problem: ProblemView,
}

/// Whether what is planned is in force.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AppliedView {
    pub(super) state: Applied,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) agent: Option<Holder>,
    /// What the agent says is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
}

/// How far the way to the load balancer has been gone.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) enum Applied {
    /// The agent has applied exactly this plan.
    Yes,
    /// The agent has applied an older plan.
    Older,
    /// The leader has not recorded this plan yet.
    NotRecorded,
    /// The agent has applied none.
    Nothing,
    /// No agent has ever reported, or it left.
    NoAgent,
    /// The agent is silent.
    Silent,
}

impl AppliedView {
    pub(super) fn of(facts: &Facts, load_balancer: &str) -> Self {
        let planned = facts.planner.hash(load_balancer);
        let recorded = facts.recorded.get(load_balancer).map(|it| it.hash).unwrap_or_default();
        let Some(agent) = facts.agents.get(load_balancer) else {
            return Self { state: Applied::NoAgent, agent: None, error: None };
        };
        let state = match (&agent.holder, agent.hash) {
            (None, _) => Applied::NoAgent,
            (Some(holder), _) if !holder.alive => Applied::Silent,
            (_, None) => Applied::Nothing,
            (_, Some(hash)) if hash != recorded => Applied::Older,
            // Without Secrets the plan made here has no certificates; what is recorded has.
            (_, Some(_)) if facts.knows_secrets && recorded != planned => Applied::NotRecorded,
            (_, Some(_)) => Applied::Yes,
        };
        Self { state, agent: agent.holder.clone(), error: agent.error.clone() }
    }
}

impl Status {
    /// What there is to say about a cluster.
    pub(crate) fn of(facts: &Facts) -> Self {
        let names = facts.load_balancers.keys();
        let nowhere = facts.planner.outcomes().filter_map(|outcome| match &outcome.state {
            State::Refused { load_balancer: None, problem } => {
                Some(RefusedView { consumer: (&outcome.consumer).into(), problem: problem.into() })
            }
            _ => None,
        });
        Self {
            controller: facts.controller.clone(),
            load_balancers: names
                .filter_map(|name| LoadBalancerView::of(facts, name))
                .map(|view| LoadBalancerView { notes: Vec::new(), ..view })
                .collect(),
            nowhere: nowhere.collect(),
            notes: facts.notes.clone(),
        }
    }

    /// The status for people.
    pub(crate) fn text(&self) -> String {
        status_text::status(self)
    }
}

impl LoadBalancerView {
    /// The load balancer of this name, if there is one.
    pub(super) fn of(facts: &Facts, name: &str) -> Option<Self> {
        let object = facts.load_balancers.get(name)?;
        let planner = &facts.planner;
        let planned = planner.load_balancers().find(|lb| &*lb.name == name)?;
        let status = object.status.clone().unwrap_or_default();
        let parts: Vec<_> = planner.fragments(name).cloned().collect();
        let mut refused: Vec<RefusedView> =
            planner.refused(name).flat_map(|outcome| refusals(facts, outcome)).collect();
        for refusal in facts.agents.get(name).into_iter().flat_map(|agent| &agent.refused) {
            refused.push(RefusedView {
                consumer: (&refusal.consumer).into(),
                problem: refusal.into(),
            });
        }
        Some(Self {
            name: name.to_owned(),
            source: source(object),
            phase: status.phase.map(|phase| format!("{phase:?}")),
            message: status.message,
            addresses: planner.addresses(planned),
            http_port: planned.http_port,
            https_port: planned.https_port,
            open_to: open_to(object),
            listeners: all_listeners(&parts),
            consumers: planner.consumers(name).map(ConsumerName::from).collect(),
            refused,
            applied: AppliedView::of(facts, name),
            notes: facts.notes.clone(),
        })
    }

    /// How many of a kind are on it.
    pub(super) fn count(&self, kind: ConsumerKind) -> usize {
        self.consumers.iter().filter(|one| one.kind == kind).count()
    }
}

fn refusals(facts: &Facts, outcome: &Outcome) -> Vec<RefusedView> {
    let whole = match &outcome.state {
        State::Refused { problem, .. } => Some(problem),
        State::Planned { .. } => None,
    };
    let parts = facts.problems(outcome).filter(|problem| !problem.reason.is_warning());
    let all = whole.into_iter().chain(parts);
    all.map(|problem| RefusedView { consumer: (&outcome.consumer).into(), problem: problem.into() })
        .collect()
}

fn source(object: &LoadBalancer) -> String {
    let spec = serde_json::to_value(&object.spec).unwrap_or_default();
    let sources = [
        "builtin",
        "bareMetalLoadBalancer",
        "template",
        "external",
        "awsLoadBalancer",
        "gceLoadBalancer",
    ];
    let found = sources.into_iter().find(|source| spec.get(source).is_some());
    found.unwrap_or("unknown").to_owned()
}

fn open_to(object: &LoadBalancer) -> String {
    if let Some(claim) = &object.spec.claim_ref {
        return format!("namespace {}, by its claim {}", claim.namespace, claim.name);
    }
    let allowed = serde_json::to_value(&object.spec.allowed_namespaces).unwrap_or_default();
    match allowed["from"].as_str() {
        Some("All") => "all namespaces".to_owned(),
        Some("Selector") => format!("namespaces that match {}", allowed["selector"]),
        _ => "nobody: it is unclaimed, and allowedNamespaces is None".to_owned(),
    }
}
