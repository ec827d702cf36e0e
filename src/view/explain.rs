//! Why a Service, an Ingress, a claim or a load balancer is where it is, as values: what `bowline explain -o json`
//! prints. Pure.

mod consumer;
mod parts;
mod problems;
mod roles;

pub(super) use parts::all_listeners;

use super::address_explanation::AddressExplanation;
use super::announcing::AnnouncingView;
use super::chain::ChainView;
use super::claim::ClaimView;
use super::facts::Facts;
use super::members::MemberView;
use super::pooled::Told;
use super::remedies::Names;
use super::status::{AppliedView, ConsumerName, LoadBalancerView};
use super::words::Certificate;
use super::{View, explain_text};
use bowline_core::diagnosis::{self, RoleProblem};
use bowline_core::key::{ConsumerKind, ObjectKey};
use bowline_core::outcome::Problem;
use bowline_core::plan::{Fragment, Listener};
use bowline_core::point::Point;
use consumer::consumer;
use serde::Serialize;
use std::sync::Arc;

/// The kind of object to explain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Subject {
    Service,
    Ingress,
    LoadBalancer,
    Claim,
    Address,
}

/// An explanation.
#[derive(Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Explanation {
    Consumer(Box<ConsumerView>),
    LoadBalancer(Box<LoadBalancerView>),
    Claim(Box<ClaimView>),
    Address(Box<AddressExplanation>),
}

/// Where a Service or Ingress is, or why it is nowhere.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ConsumerView {
    /// The consumer.
    pub(super) object: ConsumerName,
    pub(super) state: StateView,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) load_balancer: Option<String>,
    /// The reason for which it was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
    /// Whether it is refused only because it has no address yet.
    #[serde(skip)]
    pub(super) waits: bool,
    /// How its load balancer was found, or why it has none.
    pub(super) why: String,
    /// A remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) remedy: Option<String>,
    /// Host names take the place of unknown addresses.
    pub(super) addresses: Vec<Point>,
    /// How a Service gets an address of a pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) address: Option<ChainView>,
    pub(super) listeners: Vec<ListenerView>,
    pub(super) hosts: Vec<HostView>,
    pub(super) pools: Vec<PoolView>,
    /// Its planned fragments, as in Plan objects.
    pub(super) fragments: Vec<Fragment>,
    pub(super) problems: Vec<ProblemView>,
    /// Whether the Plan objects match the plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) recorded: Option<RecordedView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) applied: Option<AppliedView>,
    /// Who announces its addresses. None: no Address object records them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) announcing: Option<AnnouncingView>,
    pub(super) notes: Vec<String>,
}

/// What the planner decided for it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) enum StateView {
    Planned,
    /// It has an address, and requests no load balancer.
    Alone,
    Refused,
    NotOurs,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) enum RecordedView {
    Yes,
    Differs,
    No,
}

#[derive(Debug, PartialEq, Serialize)]
pub(super) struct ListenerView {
    #[serde(flatten)]
    pub(super) listener: Listener,
    /// Host names by which it is reached, if its address is unknown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) hostnames: Vec<Arc<str>>,
    /// Whether no agent could open it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) closed: bool,
    /// The display name of the pool; None if rules decide.
    #[serde(skip)]
    pub(super) to: Option<String>,
}

#[derive(Debug, PartialEq, Serialize)]
pub(super) struct HostView {
    pub(super) host: String,
    /// None: it is not served over TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) certificate: Option<Certificate>,
    #[serde(skip)]
    pub(super) tls: Option<String>,
    #[serde(skip)]
    pub(super) rules: Vec<RuleView>,
}

/// A rule in words.
#[derive(Debug, PartialEq)]
pub(super) struct RuleView {
    pub(super) matches: String,
    pub(super) to: String,
}

#[derive(Debug, PartialEq, Serialize)]
pub(super) struct PoolView {
    /// The name in fragments and metrics.
    pub(super) name: Arc<str>,
    pub(super) members: Vec<MemberView>,
    /// The display name, and how its traffic is treated.
    #[serde(skip)]
    pub(super) title: String,
    #[serde(skip)]
    pub(super) treatment: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct ProblemView {
    pub(super) reason: String,
    pub(super) message: String,
    /// What helps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) remedy: Option<String>,
}

impl From<&Problem> for ProblemView {
    fn from(problem: &Problem) -> Self {
        Self {
            reason: problem.reason.to_string(),
            message: problem.message.to_string(),
            remedy: problem.reason.remedy().map(|it| it.what.to_owned()),
        }
    }
}

impl ProblemView {
    /// The same with these names in the commands of its remedy.
    pub(super) fn with_names(mut self, names: &Names) -> Self {
        self.remedy = self.remedy.map(|it| names.fill(&it));
        self
    }

    /// A problem of the leader or the agents.
    pub(super) fn of_role(problem: RoleProblem, message: String) -> Self {
        let remedy = problem.remedy().map(|it| it.what.to_owned());
        Self { reason: problem.to_string(), message, remedy }
    }
}

impl From<&Told> for ProblemView {
    fn from(told: &Told) -> Self {
        Self {
            reason: told.reason.clone(),
            message: told.message.clone(),
            // The leader's own words on a DNS name come without a remedy.
            remedy: told
                .remedy
                .or_else(|| diagnosis::of_word(&told.reason)?.helps.map(|it| it.what))
                .map(str::to_owned),
        }
    }
}

impl Explanation {
    /// Explains an object; None: there is no such object.
    pub(crate) fn of(facts: &Facts, subject: Subject, key: &ObjectKey) -> Option<Self> {
        match subject {
            Subject::Service if facts.services.contains_key(key) => {
                Some(Self::Consumer(Box::new(consumer(facts, ConsumerKind::Service, key))))
            }
            Subject::Ingress if facts.ingresses.contains_key(key) => {
                Some(Self::Consumer(Box::new(consumer(facts, ConsumerKind::Ingress, key))))
            }
            Subject::LoadBalancer => LoadBalancerView::of(facts, &key.name)
                .map(|view| Self::LoadBalancer(Box::new(view.announced(facts)))),
            Subject::Claim => ClaimView::of(facts, key).map(|view| Self::Claim(Box::new(view))),
            Subject::Address => {
                AddressExplanation::of(facts, &key.name).map(|view| Self::Address(Box::new(view)))
            }
            Subject::Service | Subject::Ingress => None,
        }
    }
}

impl View for Explanation {
    fn kind(&self) -> &'static str {
        match self {
            Self::Consumer(_) => "ConsumerExplanation",
            Self::LoadBalancer(_) => "LoadBalancerExplanation",
            Self::Claim(_) => "ClaimExplanation",
            Self::Address(_) => "AddressExplanation",
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Consumer(view) => explain_text::consumer(view),
            Self::LoadBalancer(view) => explain_text::load_balancer(view),
            Self::Claim(view) => view.text(),
            Self::Address(view) => view.text(),
        }
    }
}
