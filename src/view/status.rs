//! The load balancers of a cluster, their consumers, and whether the plan is in force: what `bowline
//! status -o json` prints. Pure.

use super::announcing::{AnnouncingView, Summary};
use super::explain::{ListenerView, ProblemView, all_listeners};
use super::facts::{Agent, Agents, Facts, Holder};
use super::now::NowView;
use super::pooled::Told;
use super::remedies::Names;
use super::{View, status_text};
use bowline_api::load_balancer::ClaimRef;
use bowline_api::selector::AllowedNamespaces;
use bowline_api::{LoadBalancer, convert, names};
use bowline_core::diagnosis::Place;
use bowline_core::hash::PlanHash;
use bowline_core::key::{ConsumerKind, ConsumerRef, ObjectKey};
use bowline_core::objects::Carrier;
use bowline_core::outcome::{Outcome, Problem, State};
use bowline_core::point::Point;
use bowline_core::programmed::{History, LeaseReport, Pending, Phase};
use bowline_core::status::Waiting;
use bowline_runtime::controller::has_driver;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

/// A whole cluster.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Status {
    /// The only namespace that is shown. None: all are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) namespace: Option<String>,
    /// The leader of the controllers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) controller: Option<Holder>,
    /// None: no speaker runs, and nothing is to be announced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) announcing: Option<Summary>,
    pub(super) load_balancers: Vec<LoadBalancerView>,
    /// Consumers that asked for a load balancer that does not exist, or for none.
    pub(super) nowhere: Vec<RefusedView>,
    pub(super) notes: Vec<String>,
}

/// A load balancer.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LoadBalancerView {
    pub(super) name: String,
    /// Its source: `builtin`, `external` and so on.
    pub(super) source: String,
    /// As in its status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) phase: Option<String>,
    /// Whether its condition says that a listener is not open, or that a pool serves no client.
    pub(super) degraded: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) message: Option<String>,
    /// Host names take the place of unknown addresses.
    pub(super) addresses: Vec<Point>,
    /// Why it does not have the addresses that it requests from a pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) waits: Option<Told>,
    pub(super) http_port: u16,
    pub(super) https_port: u16,
    /// The claim that has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) claim_ref: Option<ClaimRef>,
    /// The namespaces that may use it while no claim has it.
    pub(super) allowed_namespaces: AllowedNamespaces,
    /// The same, in words.
    #[serde(skip)]
    pub(super) open_to: String,
    pub(super) listeners: Vec<ListenerView>,
    pub(super) consumers: Vec<ConsumerName>,
    pub(super) refused: Vec<RefusedView>,
    /// How many refusals its agent had no room to name.
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) unlisted: usize,
    pub(super) applied: AppliedView,
    /// Who announces its addresses, in `explain`. None: no Advertisement names it, and no node announces them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) announcing: Option<AnnouncingView>,
    /// Why an address of it is announced by no node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) unannounced: Vec<ProblemView>,
    pub(super) notes: Vec<String>,
}

/// A Service or Ingress.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct ConsumerName {
    pub(super) kind: ConsumerKind,
    /// Empty for a LoadBalancer, which has none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) namespace: String,
    pub(super) name: String,
}

impl fmt::Display for ConsumerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = ObjectKey::new(self.namespace.as_str(), self.name.as_str());
        write!(f, "{} {key}", self.kind)
    }
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

/// A Service or Ingress with a refusal.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct RefusedView {
    #[serde(flatten)]
    pub(super) consumer: ConsumerName,
    #[serde(flatten)]
    pub(super) problem: ProblemView,
}

impl RefusedView {
    fn of(consumer: &ConsumerRef, problem: &Problem, load_balancer: Option<&str>) -> Self {
        let key = ObjectKey::new(consumer.namespace.clone(), consumer.name.clone());
        let names = Names::of_object(consumer.kind, &key, load_balancer);
        Self { consumer: consumer.into(), problem: ProblemView::from(problem).with_names(&names) }
    }
}

/// Whether the plan is in force.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AppliedView {
    pub(super) state: Applied,
    /// The agent with the latest renewal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) agent: Option<Holder>,
    /// The error of an agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
    /// All agents that have not left, the one with the latest renewal first.
    pub(super) agents: Vec<AgentView>,
    /// What they have to run.
    #[serde(skip)]
    pub(super) carrier: Option<Carrier>,
    /// The hash of what is recorded.
    #[serde(skip)]
    pub(super) recorded: PlanHash,
}

/// One agent of a load balancer.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AgentView {
    #[serde(flatten)]
    pub(super) holder: Holder,
    /// How far it has applied what is recorded.
    pub(super) state: Applied,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
    /// Until when its kept state was known to be true, if it serves that after a restart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kept_since: Option<String>,
    /// Where its admin endpoint is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) admin: Option<SocketAddr>,
    /// What it answered there just now; None: it was not asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) now: Option<NowView>,
}

/// How far the plan has come on its way to the load balancer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) enum Applied {
    /// The agent has applied exactly this plan.
    Yes,
    /// The agent could not apply all of it.
    Failed,
    /// The agent has applied an older plan.
    Older,
    /// The leader has not recorded this plan yet.
    NotRecorded,
    /// The agent has applied none.
    Nothing,
    /// No agent has ever reported, or all have left.
    NoAgent,
    /// The leader says that the agent is silent.
    Silent,
    /// This build has no driver for it.
    NoDriver,
    /// The plan is in force, but for a listener of this consumer that is not open. Never of a load balancer.
    NotOpen,
}

impl AppliedView {
    pub(super) fn of(facts: &Facts, load_balancer: &str) -> Self {
        let agents = facts.agents.get(load_balancer).cloned().unwrap_or_default();
        let recorded = facts.recorded.get(load_balancer).map(|it| it.hash).unwrap_or_default();
        let views = agents.all.iter().filter_map(|agent| {
            let state = match (&agent.said.error, agent.said.hash) {
                (Some(_), _) => Applied::Failed,
                (None, None) => Applied::Nothing,
                (None, Some(hash)) if hash == recorded => Applied::Yes,
                (None, Some(_)) => Applied::Older,
            };
            let kept = agent.said.kept_since.and_then(|at| Timestamp::from_second(at).ok());
            Some(AgentView {
                holder: agent.holder.clone()?,
                state,
                error: agent.said.error.clone(),
                kept_since: kept.map(|at| at.to_string()),
                admin: agent.said.admin,
                now: None,
            })
        });
        let views: Vec<_> = views.collect();
        let named = |view: &AgentView| match views.len() {
            1 => view.error.clone(),
            _ => Some(format!("{}: {}", view.holder.identity, view.error.as_ref()?)),
        };
        let left = agents.all.iter().find_map(|agent| agent.said.error.clone());
        Self {
            state: applied(facts, load_balancer, &agents),
            agent: views.first().map(|view| view.holder.clone()),
            error: views.iter().find_map(named).or(left.filter(|_| views.is_empty())),
            agents: views,
            recorded,
            carrier: facts
                .load_balancers
                .get(load_balancer)
                .and_then(|it| convert::load_balancer(it).carrier),
        }
    }
}

impl AppliedView {
    /// What is wrong with the agents of a load balancer for all its consumers. None: they carry its traffic.
    pub(super) fn problem(&self, load_balancer: &str) -> Option<ProblemView> {
        let waiting = match self.state {
            Applied::NoAgent => Waiting::Agent(Pending::NoAgent),
            Applied::Silent => Waiting::Agent(Pending::AgentSilent),
            Applied::NoDriver => Waiting::NoDriver,
            Applied::Failed => {
                Waiting::Agent(Pending::AgentFailed(self.error.clone().unwrap_or_default().into()))
            }
            Applied::Yes
            | Applied::Older
            | Applied::NotRecorded
            | Applied::Nothing
            | Applied::NotOpen => return None,
        };
        let message = waiting.message(load_balancer, self.carrier);
        Some(ProblemView::of_role((&waiting).into(), message))
    }
}

/// Judges as the leader does, from what is recorded; only the leader can tell how old a report is. An
/// overdue agent is ignored only if another agent has renewed in time.
fn applied(facts: &Facts, load_balancer: &str, agents: &Agents) -> Applied {
    let object = facts.load_balancers.get(load_balancer);
    if !object.is_some_and(|object| has_driver(&object.spec.source)) {
        return Applied::NoDriver;
    }
    let recorded = facts.recorded.get(load_balancer).map(|it| it.hash).unwrap_or_default();
    let gone = agents.all.iter().all(|agent| agent.holder.is_none());
    let silent = object.and_then(programmed).is_some_and(|condition| {
        condition.status == "False" && condition.reason == Pending::AgentSilent.reason()
    });
    let heard = |agent: &Agent| agent.holder.as_ref().is_some_and(|holder| !holder.overdue);
    let some = agents.all.iter().any(heard);
    let reports = agents.all.iter().map(|agent| {
        let live = !silent && if some { heard(agent) } else { agent.holder.is_some() };
        LeaseReport {
            agent: agent.holder.as_ref().map_or("", |holder| &holder.identity).into(),
            hash: agent.said.hash,
            error: agent.said.error.as_deref().map(Into::into),
            age: if live { Duration::ZERO } else { Duration::MAX },
            lasts: Duration::ZERO,
            after: u64::MAX,
            ended: false,
        }
    });
    let reports: Vec<_> = reports.collect();
    let mut history = History::default();
    history.record(&load_balancer.into(), recorded, 1);
    match history.judge(load_balancer, &reports).phase {
        // Without Secrets the plan made here has no certificates, and the recorded one has.
        Phase::Running if facts.knows_secrets && recorded != facts.planner.hash(load_balancer) => {
            Applied::NotRecorded
        }
        Phase::Running => Applied::Yes,
        Phase::Pending(Pending::NoPlan | Pending::NoAgent) => Applied::NoAgent,
        Phase::Pending(Pending::AgentSilent) if gone => Applied::NoAgent,
        Phase::Pending(Pending::AgentSilent) => Applied::Silent,
        Phase::Pending(Pending::AgentFailed(_)) => Applied::Failed,
        Phase::Pending(Pending::AgentBehind) => match reports.iter().find_map(|it| it.hash) {
            None => Applied::Nothing,
            Some(_) => Applied::Older,
        },
    }
}

/// The leader's condition about the plan of a load balancer.
fn programmed(object: &LoadBalancer) -> Option<&Condition> {
    let conditions = &object.status.as_ref()?.conditions;
    conditions.iter().find(|condition| condition.type_ == names::CONDITION_PROGRAMMED)
}

impl Status {
    /// The status of a cluster.
    pub(crate) fn of(facts: &Facts) -> Self {
        let names = facts.load_balancers.keys();
        let nowhere = facts.planner.outcomes().filter_map(|outcome| nowhere(facts, outcome));
        Self {
            controller: facts.controller.clone(),
            announcing: Summary::of(facts),
            load_balancers: names
                .filter_map(|name| LoadBalancerView::of(facts, name))
                .map(|view| LoadBalancerView { notes: Vec::new(), ..view })
                .collect(),
            nowhere: nowhere.collect(),
            notes: facts.notes.clone(),
            namespace: None,
        }
    }

    /// The same for one namespace: its consumers, and the load balancers that one of them uses or was refused by, or
    /// that a claim of the namespace has.
    pub(crate) fn in_namespace(mut self, namespace: &str) -> Self {
        for lb in &mut self.load_balancers {
            lb.consumers.retain(|one| one.namespace == namespace);
            lb.refused.retain(|one| one.consumer.namespace == namespace);
        }
        self.load_balancers.retain(|lb| {
            let claimed = lb.claim_ref.as_ref().is_some_and(|claim| claim.namespace == namespace);
            claimed || !lb.consumers.is_empty() || !lb.refused.is_empty()
        });
        self.nowhere.retain(|one| one.consumer.namespace == namespace);
        Self { namespace: Some(namespace.to_owned()), ..self }
    }
}

impl View for Status {
    fn kind(&self) -> &'static str {
        "Status"
    }

    fn text(&self) -> String {
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
        let hostnames = facts.hostnames(name);
        let parts: Vec<_> = planner.fragments(name).cloned().collect();
        let mut refused: Vec<RefusedView> =
            planner.refused(name).flat_map(|outcome| refusals(facts, outcome, name)).collect();
        let report = facts.agents.get(name).map(|agents| &agents.joint);
        let reported = report.into_iter().flat_map(|report| &report.refused);
        for refusal in reported.filter(|it| it.problem.reason.is_told(Place::Status)) {
            refused.push(RefusedView::of(&refusal.consumer, &refusal.problem, Some(name)));
        }
        Some(Self {
            name: name.to_owned(),
            source: source(object),
            phase: status.phase.map(|phase| format!("{phase:?}")),
            degraded: status
                .conditions
                .iter()
                .any(|it| it.type_ == names::CONDITION_DEGRADED && it.status == "True"),
            message: status.message,
            addresses: Point::all(&planner.addresses(planned), &hostnames),
            waits: facts
                .told_of_address(ConsumerKind::LoadBalancer, &ObjectKey::new("", name))
                .filter(|told| told.unmet),
            http_port: planned.http_port,
            https_port: planned.https_port,
            claim_ref: object.spec.claim_ref.clone(),
            allowed_namespaces: object.spec.allowed_namespaces.clone(),
            open_to: open_to(object),
            listeners: all_listeners(facts, name, &parts),
            consumers: planner.consumers(name).map(ConsumerName::from).collect(),
            refused,
            unlisted: report.map_or(0, |report| report.unlisted.count),
            applied: AppliedView::of(facts, name),
            announcing: None,
            unannounced: Vec::new(),
            notes: facts.notes.clone(),
        })
    }

    /// The same with who announces its addresses.
    pub(super) fn announced(mut self, facts: &Facts) -> Self {
        let mut advertisements = facts.announcing.advertisements.iter();
        let named = advertisements.any(|it| it.spec.load_balancers.contains(&self.name));
        let announcing = AnnouncingView::of_points(facts, &self.addresses);
        let is_announced = |it: &AnnouncingView| it.addresses.iter().any(|it| it.problem.is_none());
        self.announcing = announcing.filter(|it| named || is_announced(it));
        let problems = self.announcing.iter().flat_map(|it| it.problems(facts, named));
        let names = Names::of_load_balancer(&self.name);
        self.unannounced = problems.map(|it| it.with_names(&names)).collect();
        self
    }

    /// Its phase, and whether it is degraded.
    pub(super) fn phase_text(&self) -> Option<String> {
        let degraded = if self.degraded { ", degraded" } else { "" };
        self.phase.as_ref().map(|phase| format!("{phase}{degraded}"))
    }

    /// How many consumers of a kind are on it.
    pub(super) fn count(&self, kind: ConsumerKind) -> usize {
        self.consumers.iter().filter(|one| one.kind == kind).count()
    }
}

fn refusals(facts: &Facts, outcome: &Outcome, lb: &str) -> Vec<RefusedView> {
    let all = bowline_core::status::refusals_by(outcome, lb);
    all.filter(|(_, problem)| facts.can_tell(problem.reason))
        .map(|(consumer, problem)| RefusedView::of(&consumer, &problem, Some(lb)))
        .collect()
}

/// A consumer on no load balancer, unless it needs only an address and has it.
fn nowhere(facts: &Facts, outcome: &Outcome) -> Option<RefusedView> {
    let State::Refused { load_balancer: None, problem } = &outcome.state else { return None };
    let consumer = ConsumerName::from(&outcome.consumer);
    let key = ObjectKey::new(consumer.namespace.as_str(), consumer.name.as_str());
    let alone = consumer.kind == ConsumerKind::Service && facts.planner.is_alone(&key);
    let problem = match (alone, facts.told_of_address(consumer.kind, &key)) {
        (true, Some(told)) if !told.unmet => return None,
        (true, Some(told)) => told.whole(),
        (true, None) if facts.has_address(&outcome.consumer.uid) => return None,
        (true, None) | (false, _) => problem.into(),
    };
    let names = Names::of_object(consumer.kind, &key, None);
    Some(RefusedView { consumer, problem: problem.with_names(&names) })
}

fn is_zero(number: &usize) -> bool {
    *number == 0
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
