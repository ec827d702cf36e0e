//! Why a Service, an Ingress, a claim or a load balancer is where it is, as values: what `bowline explain -o json`
//! prints. Pure.

use super::address_explanation::AddressExplanation;
use super::announcing::AnnouncingView;
use super::chain::ChainView;
use super::claim::ClaimView;
use super::facts::{Agent, Facts};
use super::free_ports;
use super::members::{MemberView, members};
use super::pooled::Told;
use super::status::{Applied, AppliedView, ConsumerName, LoadBalancerView};
use super::words::Certificate;
use super::{View, explain_text, why, words};
use bowline_core::key::{ConsumerKind, ConsumerRef, ObjectKey};
use bowline_core::outcome::{Problem, Reason, State};
use bowline_core::plan::{BY_NAME, Backends, Fragment, Listener, Pool, Serves};
use bowline_core::point::Point;
use bowline_core::pool_health::no_endpoints;
use bowline_core::remedy::{self, RoleProblem};
use bowline_core::status::Waiting;
use bowline_core::update::{Extent, ListenerKey};
use serde::Serialize;
use std::collections::BTreeSet;
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
            remedy: why::remedy(problem).map(str::to_owned),
        }
    }
}

impl ProblemView {
    /// A problem of the leader or the agents.
    pub(super) fn of_role(problem: RoleProblem, message: String) -> Self {
        let remedy = problem.remedy().what.to_owned();
        Self { reason: problem.to_string(), message, remedy: Some(remedy) }
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
                .or_else(|| remedy::of_word(&told.reason).map(|it| it.what))
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

fn consumer(facts: &Facts, kind: ConsumerKind, key: &ObjectKey) -> ConsumerView {
    let mut view = ConsumerView {
        object: ConsumerName {
            kind,
            namespace: key.namespace.to_string(),
            name: key.name.to_string(),
        },
        state: StateView::NotOurs,
        load_balancer: None,
        reason: None,
        waits: false,
        why: String::new(),
        remedy: None,
        addresses: Vec::new(),
        address: None,
        listeners: Vec::new(),
        hosts: Vec::new(),
        pools: Vec::new(),
        fragments: Vec::new(),
        problems: Vec::new(),
        recorded: None,
        applied: None,
        announcing: None,
        notes: facts.notes.clone(),
    };
    let words = why::words(facts, kind, key);
    (view.why, view.remedy) = (words.why, words.remedy);
    let Some(outcome) = facts.planner.outcome(kind, key) else { return view };
    if kind == ConsumerKind::Service {
        view.address = ChainView::of(facts, key);
    }
    let told = view.address.as_ref().and_then(|chain| chain.verdict.clone());
    let told = told.filter(|told| told.unmet);
    // The text of the pools is used, because its remedy is shown with it.
    let of_pools = |problem: &Problem| told.as_ref().filter(|told| told.is(problem));
    let problems = facts.problems(outcome);
    view.problems = problems
        .map(|it| of_pools(it).map_or_else(|| ProblemView::from(it), ProblemView::from))
        .collect();
    if let Some(told) = &told {
        view.remedy = told.remedy.map(str::to_owned);
    }
    match &outcome.state {
        State::Refused { load_balancer: None, problem }
            if view.address.as_ref().is_some_and(|chain| chain.alone) =>
        {
            let held = view.address.iter().flat_map(|chain| &chain.held);
            view.addresses = held.map(|it| Point::At(it.address)).collect();
            view.waits = view.addresses.is_empty();
            view.state = if view.waits { StateView::Refused } else { StateView::Alone };
            let leader = view.address.as_ref().and_then(ChainView::not_programmed);
            let wrong = told.as_ref().map(ProblemView::from).or(leader);
            let wrong = wrong.or_else(|| view.waits.then(|| problem.into()));
            view.reason = wrong.as_ref().filter(|_| view.waits).map(|it| it.reason.clone());
            if let Some(wrong) = wrong {
                view.problems.insert(0, wrong);
            }
        }
        State::Refused { load_balancer, problem } => {
            view.state = StateView::Refused;
            view.load_balancer = load_balancer.as_deref().map(str::to_owned);
            view.reason = Some(problem.reason.to_string());
            let told = of_pools(problem);
            view.waits = told.is_some();
            view.problems.insert(0, told.map_or_else(|| problem.into(), ProblemView::from));
            if told.is_none() {
                view.remedy = why::remedy(problem).map(str::to_owned);
            }
        }
        State::Planned { load_balancer, addresses, .. } => {
            view.state = StateView::Planned;
            view.load_balancer = Some(load_balancer.to_string());
            view.addresses = Point::all(addresses, &facts.hostnames(load_balancer));
            let parts = facts.planner.parts(kind, key);
            view.listeners = listeners(facts, kind, load_balancer, parts);
            if is_refused_by_all(facts, load_balancer, &outcome.consumer) {
                view.listeners.iter_mut().for_each(|it| it.closed = true);
            }
            view.hosts = hosts(facts, load_balancer, parts);
            view.pools = pools(facts, parts);
            view.fragments = parts.iter().map(|part| facts.told(load_balancer, part)).collect();
            view.recorded = Some(recorded(facts, load_balancer, parts));
            let mut applied = AppliedView::of(facts, load_balancer);
            if applied.state == Applied::Yes && view.listeners.iter().any(|it| it.closed) {
                applied.state = Applied::NotOpen;
            }
            view.problems.extend(undone(facts, load_balancer, &outcome.consumer));
            let empty = empty_pools(facts, parts, &view.pools);
            let empty: Vec<_> = empty.filter(|it| !view.problems.contains(it)).collect();
            view.problems.extend(empty);
            view.problems.extend(applied.problem(load_balancer));
            if view.recorded != Some(RecordedView::Yes) {
                view.problems.extend(no_leader(facts));
            }
            view.applied = Some(applied);
        }
    }
    // The address of a load balancer is announced for all that it carries.
    view.announcing = AnnouncingView::of_points(facts, &view.addresses);
    let alone = view.state == StateView::Alone;
    view.problems
        .extend(view.announcing.iter().flat_map(|announcing| announcing.problems(facts, alone)));
    if kind == ConsumerKind::Service {
        view.name_free_ports(facts, key);
    }
    view
}

impl ConsumerView {
    /// Says in the remedy for ports that others have which ones are free.
    fn name_free_ports(&mut self, facts: &Facts, key: &ObjectKey) {
        let Some(lb) = &self.load_balancer else { return };
        let taken = self.problems.iter_mut().filter(|it| free_ports::concerns(&it.reason));
        let taken: Vec<_> = taken.collect();
        if taken.is_empty() {
            return;
        }
        let Some(hint) = free_ports::hint(facts, lb, key) else { return };
        let of_all = self.reason.as_deref().is_some_and(free_ports::concerns);
        let remedies = taken.into_iter().filter_map(|it| it.remedy.as_mut());
        for remedy in remedies.chain(self.remedy.as_mut().filter(|_| of_all)) {
            *remedy = format!("{remedy}: {hint}");
        }
    }
}

/// Why what is planned stays unrecorded, if that is because no controller leads.
fn no_leader(facts: &Facts) -> Option<ProblemView> {
    let why = match &facts.controller {
        None => "none runs, or none is known (`--leader-elect=false`)".to_owned(),
        Some(holder) if holder.overdue => {
            format!("{} was last seen {}", holder.identity, words::ago(holder.silent_seconds))
        }
        Some(_) => return None,
    };
    let message = format!("what is planned is not recorded, and no controller leads: {why}");
    Some(ProblemView::of_role(RoleProblem::NoLeader, message))
}

/// What the agent refused for a consumer, or may have refused.
fn undone(facts: &Facts, load_balancer: &str, consumer: &ConsumerRef) -> Vec<ProblemView> {
    let withheld = withheld(facts, load_balancer, consumer);
    let Some(agents) = facts.agents.get(load_balancer) else { return withheld };
    let shared = consumer.kind == ConsumerKind::Ingress;
    let refused = agents.joint.refused.iter().filter(|it| {
        it.consumer == *consumer || shared && it.consumer.kind == ConsumerKind::LoadBalancer
    });
    // If the leader withholds a certificate, the agent knows only that it is missing.
    let refused =
        refused.filter(|it| withheld.is_empty() || it.problem.reason != Reason::SecretNotFound);
    let refused: Vec<_> = refused.map(|it| ProblemView::from(&it.problem)).collect();
    let mut problems = [withheld, refused].concat();
    let unlisted = agents.joint.unlisted.may_concern(consumer);
    if problems.is_empty() && unlisted > 0 {
        let why = Waiting::Unlisted(unlisted);
        problems.push(ProblemView::of_role((&why).into(), why.message(load_balancer, None)));
    }
    problems
}

/// The pools that have no ready member now. An agent waits before it reports them, because the Pods of a new Service need
/// time to start; a person who asks meanwhile is told at once. A Service of which no EndpointSlice is known is left out:
/// perhaps none could be read.
fn empty_pools(
    facts: &Facts,
    parts: &[Arc<Fragment>],
    views: &[PoolView],
) -> impl Iterator<Item = ProblemView> {
    let ready = |pool: &Pool| {
        let view = views.iter().find(|view| view.name == pool.name);
        view.is_some_and(|view| view.members.iter().any(MemberView::is_ready))
    };
    let known = |pool: &Pool| {
        facts.slices.iter().any(|slice| {
            slice.key.namespace == pool.service.namespace
                && slice.service.as_deref() == Some(&*pool.service.name)
        })
    };
    let pools = parts.iter().flat_map(|part| &part.pools);
    // Nodes are perhaps not listed, either.
    let of_pods = pools.filter(|pool| pool.backends == Backends::Pods);
    let empty = of_pods.filter(move |pool| !ready(pool) && known(pool));
    let problems: BTreeSet<Problem> = empty.map(|pool| no_endpoints(&pool.service)).collect();
    problems.into_iter().map(|it| ProblemView::from(&it))
}

/// Whether no agent serves anything of a Service. Its listeners are then not open, whatever the plan says.
fn is_refused_by_all(facts: &Facts, load_balancer: &str, consumer: &ConsumerRef) -> bool {
    let Some(agents) = facts.agents.get(load_balancer) else { return false };
    let refuses = |agent: &Agent| {
        let refused = &agent.said.refused;
        refused.iter().any(|it| it.consumer == *consumer && it.extent == Extent::All)
    };
    consumer.kind == ConsumerKind::Service
        && !agents.all.is_empty()
        && agents.all.iter().all(refuses)
}

/// Certificates that the leader withholds: it alone knows which have room.
fn withheld(facts: &Facts, load_balancer: &str, consumer: &ConsumerRef) -> Vec<ProblemView> {
    let reason = Reason::TooManyCertificates.to_string();
    let status = facts.load_balancers.get(load_balancer).and_then(|it| it.status.as_ref());
    let told = status.into_iter().flat_map(|it| &it.refused).filter(|it| it.reason == reason);
    let ingress = consumer.kind == ConsumerKind::Ingress;
    let told = told
        .filter(|it| ingress && *it.namespace == *consumer.namespace && *it.name == *consumer.name);
    let remedy = why::remedy_of(Reason::TooManyCertificates);
    told.map(|it| ProblemView {
        reason: it.reason.clone(),
        message: it.message.clone(),
        remedy: remedy.map(str::to_owned),
    })
    .collect()
}

/// The listeners of a consumer: its own, or those that the Ingresses of its load balancer share.
fn listeners(
    facts: &Facts,
    kind: ConsumerKind,
    load_balancer: &Arc<str>,
    parts: &[Arc<Fragment>],
) -> Vec<ListenerView> {
    let shared =
        facts.planner.parts(ConsumerKind::LoadBalancer, &ObjectKey::new("", load_balancer.clone()));
    let parts = if kind == ConsumerKind::Ingress { shared } else { parts };
    all_listeners(facts, load_balancer, parts)
}

/// The listeners of some fragments on a load balancer with these host names.
pub(super) fn all_listeners(
    facts: &Facts,
    load_balancer: &str,
    parts: &[Arc<Fragment>],
) -> Vec<ListenerView> {
    let names = facts.hostnames(load_balancer);
    let agents = facts.agents.get(load_balancer);
    let shut = agents.map(|it| it.joint.shut.clone()).unwrap_or_default();
    let pools: Vec<&Pool> = parts.iter().flat_map(|part| &part.pools).collect();
    let name = |wanted: &str| {
        let found = pools.iter().find(|pool| &*pool.name == wanted);
        found.map_or_else(|| wanted.to_owned(), |pool| words::pool_name(pool))
    };
    let all = parts.iter().flat_map(|part| &part.listeners);
    all.map(|listener| ListenerView {
        listener: listener.clone(),
        closed: shut.contains(&ListenerKey::of(listener)),
        hostnames: if listener.address == BY_NAME { names.clone() } else { Vec::new() },
        to: match &listener.serves {
            Serves::Pool(pool) => Some(name(pool)),
            Serves::Entry(_) => None,
        },
    })
    .collect()
}

fn hosts(facts: &Facts, load_balancer: &str, parts: &[Arc<Fragment>]) -> Vec<HostView> {
    let mut all = Vec::new();
    for part in parts {
        let name = |wanted: &str| {
            let found = part.pools.iter().find(|pool| &*pool.name == wanted);
            found.map_or_else(|| wanted.to_owned(), words::pool_name)
        };
        // A site without rules only records the host.
        for site in part.sites.iter().filter(|site| !site.rules.is_empty()) {
            let rules = site.rules.iter().map(|rule| RuleView {
                matches: words::rule_match(rule),
                to: words::rule_action(rule, name),
            });
            let tls = site.tls.as_ref();
            let certificate = tls.map(|tls| facts.certificate(load_balancer, part, site, tls));
            all.push(HostView {
                host: site.host.to_string(),
                tls: tls.zip(certificate.as_ref()).map(|(tls, known)| words::tls(tls, known)),
                certificate,
                rules: rules.collect(),
            });
        }
    }
    all
}

fn pools(facts: &Facts, parts: &[Arc<Fragment>]) -> Vec<PoolView> {
    let members = members(facts, parts);
    let all = parts.iter().flat_map(|part| &part.pools);
    all.map(|pool| PoolView {
        name: pool.name.clone(),
        title: words::pool_name(pool),
        treatment: words::treatment(pool),
        members: members.get(&pool.name).cloned().unwrap_or_default(),
    })
    .collect()
}

fn recorded(facts: &Facts, load_balancer: &str, parts: &[Arc<Fragment>]) -> RecordedView {
    let Some(consumer) = parts.first().map(|part| &part.consumer) else { return RecordedView::No };
    let recorded = facts.recorded.get(load_balancer);
    match recorded.and_then(|recorded| recorded.fragments.get(consumer)) {
        None => RecordedView::No,
        Some(found) => {
            let same = found
                .iter()
                .map(|it| facts.comparable(it))
                .eq(parts.iter().map(|it| facts.comparable(it)));
            if same { RecordedView::Yes } else { RecordedView::Differs }
        }
    }
}
