//! What status should say. It combines the planner's outcomes, the proof of the agents' Leases and the current status
//! of consumers and load balancers into their next status. The leader's shell compares that with the current one and
//! writes; nothing here writes or measures time.

use crate::diagnosis::Place;
use crate::fair_queue;
use crate::key::{ConsumerKind, ConsumerRef};
use crate::objects::Carrier;
use crate::outcome::{Outcome, Problem, Reason, State};
use crate::point::Point;
use crate::programmed::{Pending, Phase, Verdict};
use crate::update::{Extent, ListenerKey, Refusal};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// The most consumers in a load balancer's status.
pub const MOST_CONSUMERS: usize = 1000;
/// The most refusals in a load balancer's status.
pub const MOST_REFUSED: usize = 20;
/// The most addresses in a load balancer's status.
pub const MOST_ADDRESSES: usize = 16;
/// Agents may be this long behind a plan before a status says so: a change on its way is not worth two writes.
pub const BEHIND: Duration = Duration::from_secs(2);
/// The most problems in one message.
const MOST_NAMED: usize = 3;

/// A condition of a status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Whether it is true.
    pub holds: bool,
    /// The reason, for programs.
    pub reason: Arc<str>,
    /// The message, for people.
    pub message: Arc<str>,
}

impl Condition {
    fn current() -> Self {
        Self {
            holds: true,
            reason: "Programmed".into(),
            message: "the current plan is in force".into(),
        }
    }

    fn no(problem: &Problem) -> Self {
        Self {
            holds: false,
            reason: problem.reason.to_string().into(),
            message: problem.message.clone(),
        }
    }
}

/// What the status of a Service or Ingress should say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerStatus {
    /// The points at which it can be reached. Those that a load balancer serves are sorted.
    pub points: Vec<Point>,
    /// Whether it is in force.
    pub programmed: Condition,
}

/// The current status of a consumer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Before<'a> {
    /// The points at which the status says that the consumer is reached.
    pub points: &'a [Point],
    /// Whether its condition says that it is in force.
    pub programmed: bool,
}

/// How far the load balancer of a consumer has applied what the consumer wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It has applied it, except for this.
    Applied(Undone),
    /// It has not, as far as is known.
    Waiting(Waiting),
}

/// The part of what a consumer wants that a load balancer does not do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Undone {
    /// Nothing is done.
    all: bool,
    /// Addresses at which no listener of the consumer is open.
    closed: BTreeSet<IpAddr>,
    /// Why listeners are not open.
    problems: Vec<Problem>,
    /// Problems that leave every listener open: a host, a rule, a setting.
    parts: Vec<Problem>,
}

impl Undone {
    /// What these refusals take from a consumer with these listeners.
    pub fn of<'a>(
        refusals: impl IntoIterator<Item = &'a Refusal>,
        listeners: impl IntoIterator<Item = ListenerKey>,
    ) -> Self {
        let mut undone = Self::default();
        let mut shut = BTreeSet::new();
        for refusal in refusals {
            let problems = match refusal.extent {
                Extent::Part | Extent::Host(_) => &mut undone.parts,
                Extent::All | Extent::Listener(_) => &mut undone.problems,
            };
            problems.push(refusal.problem.clone());
            match refusal.extent {
                Extent::All => undone.all = true,
                Extent::Listener(key) => drop(shut.insert(key)),
                Extent::Part | Extent::Host(_) => {}
            }
        }
        if shut.is_empty() {
            return undone;
        }
        let (closed, open): (Vec<_>, Vec<_>) =
            listeners.into_iter().partition(|key| shut.contains(key));
        let open: BTreeSet<_> = open.into_iter().map(|key| key.address).collect();
        let closed = closed.into_iter().map(|key| key.address);
        undone.closed = closed.filter(|address| !open.contains(address)).collect();
        undone
    }

    /// Whether everything is done.
    pub fn is_nothing(&self) -> bool {
        self.problems.is_empty() && self.parts.is_empty()
    }

    fn serves(&self, point: &Point) -> bool {
        !self.all && !self.closed.contains(&point.listener())
    }
}

/// Why a load balancer has not applied its plan yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// This build has no driver for its source.
    NoDriver,
    /// Its agent is the reason.
    Agent(Pending),
    /// Its agent refuses more than it can name. This consumer may be among the refusals that are not named.
    Unlisted(usize),
}

impl Waiting {
    /// One word for programs.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NoDriver => "NoDriver",
            Self::Agent(pending) => pending.reason(),
            Self::Unlisted(_) => "RefusalsUnlisted",
        }
    }

    /// A sentence for people that says what they can do. `carrier`: what the agents of the load balancer run.
    pub fn message(&self, load_balancer: &str, carrier: Option<Carrier>) -> String {
        match self {
            Self::NoDriver => {
                format!("this build has no driver for the source of load balancer {load_balancer}")
            }
            Self::Agent(pending @ (Pending::NoAgent | Pending::AgentSilent)) => {
                format!("{pending}: start one with `{}`", Carrier::command(carrier, load_balancer))
            }
            Self::Agent(pending) => pending.to_string(),
            Self::Unlisted(number) => format!(
                "the agent of load balancer {load_balancer} could not serve some consumers and has room to name \
                 only part of them; this may be one of the {number} that it does not name"
            ),
        }
    }
}

/// How far a load balancer is with a consumer that last changed with `changed`. No verdict: it has no driver.
/// `unlisted`: how many refusals its agent does not name.
pub fn progress(
    verdict: Option<&Verdict>,
    changed: u64,
    undone: Undone,
    unlisted: usize,
) -> Progress {
    let Some(verdict) = verdict else { return Progress::Waiting(Waiting::NoDriver) };
    if !verdict.covers(changed) {
        let pending = match &verdict.phase {
            Phase::Pending(pending) => pending.clone(),
            Phase::Running => Pending::AgentBehind,
        };
        return Progress::Waiting(Waiting::Agent(pending));
    }
    if unlisted > 0 && undone.problems.is_empty() {
        return Progress::Waiting(Waiting::Unlisted(unlisted));
    }
    Progress::Applied(undone)
}

/// The points of a consumer: as planned, and where it is still served meanwhile.
struct Reached {
    planned: Vec<Point>,
    draining: Vec<Point>,
    /// On load balancers from which the consumer moves.
    before: Vec<Point>,
}

impl Reached {
    fn at(planned: &[IpAddr], draining: &[IpAddr]) -> Self {
        let points = |addresses| Point::all(addresses, &[]);
        Self { planned: points(planned), draining: points(draining), before: Vec::new() }
    }
}

/// The next status of a consumer, where `names` has the host names of load balancers, and `carrier` is what the agents
/// of its load balancer run. A point is shown once the load
/// balancer serves it, and stays while it is planned: an agent that is behind or silent for a moment revokes nothing. A
/// point that drains, or is on a load balancer from which the consumer moves, stays until its successor is served.
pub fn consumer<'n>(
    outcome: &Outcome,
    progress: &Progress,
    written: Before<'_>,
    names: impl Fn(&str) -> &'n [Arc<str>],
    carrier: Option<Carrier>,
) -> ConsumerStatus {
    let (load_balancer, reached) = match &outcome.state {
        State::Refused { load_balancer, problem } => {
            let undriven = *progress == Progress::Waiting(Waiting::NoDriver)
                && problem.reason == Reason::NoAddress;
            let programmed = match load_balancer {
                // No address helps where nothing could serve it.
                Some(name) if undriven => Condition {
                    holds: false,
                    reason: Waiting::NoDriver.reason().into(),
                    message: Waiting::NoDriver.message(name, carrier).into(),
                },
                _ => Condition::no(problem),
            };
            return ConsumerStatus { points: Vec::new(), programmed };
        }
        State::Planned { load_balancer, addresses, draining, before } => {
            let here = names(load_balancer);
            let before = before.iter();
            let before = before.flat_map(|it| Point::all(&it.addresses, names(&it.load_balancer)));
            let reached = Reached {
                planned: Point::all(addresses, here),
                draining: Point::all(draining, here),
                before: before.collect(),
            };
            (load_balancer, reached)
        }
    };
    match progress {
        Progress::Applied(undone) => {
            let points = served(undone, &reached, written.points);
            let programmed = if undone.problems.is_empty() {
                served_by(load_balancer, outcome.problems.iter().chain(&undone.parts))
            } else {
                not_all(&undone.problems, !points.is_empty())
            };
            ConsumerStatus { points, programmed }
        }
        Progress::Waiting(why) => {
            let kept = still_served(why, &reached, written.points);
            // A change on its way is not worth two writes, one to revoke the status and one to restore it.
            let moment = matches!(
                why,
                Waiting::Agent(Pending::AgentBehind | Pending::AgentSilent) | Waiting::Unlisted(_)
            );
            let programmed = if moment && written.programmed && kept == reached.planned {
                served_by(load_balancer, &outcome.problems)
            } else {
                Condition {
                    holds: false,
                    reason: why.reason().into(),
                    message: why.message(load_balancer, carrier).into(),
                }
            };
            ConsumerStatus { points: kept, programmed }
        }
    }
}

/// The addresses of a load balancer that may be shown: those that it serves. Until its agent has applied them, those
/// that are shown already and still served.
pub fn in_force(
    progress: &Progress,
    planned: &[IpAddr],
    draining: &[IpAddr],
    shown: &[IpAddr],
) -> Vec<IpAddr> {
    let (reached, shown) = (Reached::at(planned, draining), Point::all(shown, &[]));
    let points = match progress {
        Progress::Applied(undone) => served(undone, &reached, &shown),
        Progress::Waiting(why) => still_served(why, &reached, &shown),
    };
    points.iter().map(Point::listener).collect()
}

/// The points that an agent serves, of those in the plan that it has applied. Where it could not open an address, the
/// previous one stays: a move ends when its successor is served.
fn served(undone: &Undone, reached: &Reached, shown: &[Point]) -> Vec<Point> {
    let Reached { planned, draining, before } = reached;
    let mut open: Vec<_> = planned.iter().filter(|it| undone.serves(it)).cloned().collect();
    if open.len() < planned.len() {
        let replaced = |it: &Point| open.iter().any(|other| other.replaces(it));
        let awaited = |it: &&Point| shown.contains(it) && !replaced(it);
        let draining = draining.iter().filter(|it| undone.serves(it));
        let old: Vec<_> = draining.chain(before).filter(awaited).cloned().collect();
        open.extend(old);
        open.sort_unstable();
    }
    open
}

/// The shown points that are planned, drain, or belong to a load balancer from which the consumer moves. Without an
/// agent nothing drains: an administrator who deletes a Lease says that its agent is dead.
fn still_served(why: &Waiting, reached: &Reached, shown: &[Point]) -> Vec<Point> {
    let dead = *why == Waiting::Agent(Pending::NoAgent);
    let draining = if dead { &[][..] } else { &reached.draining };
    let served = reached.planned.iter().chain(draining).chain(&reached.before);
    let mut kept: Vec<_> = served.filter(|point| shown.contains(point)).cloned().collect();
    kept.sort_unstable();
    kept.dedup();
    kept
}

/// The reason of the first of these problems, and a message with the first few. None: there are no problems.
pub(crate) fn first_few(problems: &[Problem]) -> Option<(Arc<str>, Arc<str>)> {
    let first = problems.first()?;
    let named: Vec<_> = problems.iter().take(MOST_NAMED).map(|it| &*it.message).collect();
    let mut message = named.join("; ");
    if let more @ 1.. = problems.len().saturating_sub(MOST_NAMED) {
        message.push_str(&format!("; and {more} more"));
    }
    Some((first.reason.to_string().into(), message.into()))
}

/// Not in force, or not all of it.
fn not_all(problems: &[Problem], rest: bool) -> Condition {
    let (reason, mut message) = first_few(problems).unwrap_or_default();
    if rest {
        message = format!("{message}; the rest is served").into();
    }
    Condition { holds: false, reason, message }
}

/// The condition of a consumer in force. It lists problems that do not keep the consumer from being served.
fn served_by<'a>(
    load_balancer: &str,
    problems: impl IntoIterator<Item = &'a Problem>,
) -> Condition {
    let mut message = format!("load balancer {load_balancer} serves it");
    let told = |it: &&Problem| it.reason.is_told(Place::Programmed);
    for problem in problems.into_iter().filter(told) {
        message.push_str("; ");
        message.push_str(&problem.message);
    }
    Condition { holds: true, reason: "Programmed".into(), message: message.into() }
}

/// The phase of a load balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadBalancerPhase {
    /// It has not applied its plan.
    Pending,
    /// It has.
    Running,
    /// The objects behind it could not be wiped or removed, or none of its listeners is open.
    Failed,
}

/// What the status of a load balancer should say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadBalancerStatus {
    /// Its phase.
    pub phase: LoadBalancerPhase,
    /// Why it does not run, which addresses it lacks, or that it is being deleted. None: nothing of that.
    pub message: Option<String>,
    /// Its addresses, at most [`MOST_ADDRESSES`].
    pub addresses: Vec<IpAddr>,
    /// The consumers on it, at most [`MOST_CONSUMERS`].
    pub consumers: Vec<ConsumerRef>,
    /// The refused consumers and why, at most [`MOST_REFUSED`], with a share for every namespace.
    pub refused: Vec<(ConsumerRef, Problem)>,
    /// Whether the plan is in force.
    pub programmed: Condition,
}

/// The facts from which the status of a load balancer follows.
pub struct Known<'a, C, R> {
    /// Its name.
    pub name: &'a str,
    /// What its agents run. None: no agent drives it.
    pub carrier: Option<Carrier>,
    /// The proof of its agents' Leases. None: it has no driver.
    pub verdict: Option<&'a Verdict>,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// The consumers planned on it.
    pub consumers: C,
    /// The outcomes of the consumers that it refused, in whole or in part.
    pub refused: R,
    /// What its agents could not do.
    pub undone: &'a [Refusal],
    /// Whether its agents are only a moment behind, and count as up to date.
    pub catching_up: bool,
    /// Why the objects behind it could not be wiped or removed.
    pub unreclaimed: Option<&'a str>,
    /// Whether the objects that a class makes for it are in place. None: it has no class.
    pub made: Option<&'a Condition>,
    /// Whether it has the addresses of its AddressPool. None: it requests none.
    pub assigned: Option<&'a Condition>,
    /// Why none of its listeners is open. None: one is, or it has none.
    pub closed: Option<&'a Problem>,
    /// Why it is still there, while it is being deleted. None: it is not, or nothing holds it.
    pub held: Option<&'a str>,
}

/// Why a load balancer does not run; None: it does. No verdict: it has no driver.
pub fn waiting(verdict: Option<&Verdict>) -> Option<Waiting> {
    match verdict.map(|verdict| &verdict.phase) {
        None => Some(Waiting::NoDriver),
        Some(Phase::Pending(pending)) => Some(Waiting::Agent(pending.clone())),
        Some(Phase::Running) => None,
    }
}

/// What the status of a load balancer should say.
pub fn load_balancer<'a>(
    known: Known<'a, impl Iterator<Item = &'a ConsumerRef>, impl Iterator<Item = &'a Outcome>>,
) -> LoadBalancerStatus {
    let waiting = waiting(known.verdict).filter(|_| !known.catching_up);
    let refused = known.undone.iter().filter(|it| it.problem.reason.is_told(Place::Refused));
    let undone = refused.map(|undone| (undone.consumer.clone(), undone.problem.clone()));
    // Each namespace has a share, so many refusals of one do not hide those of another.
    let refused = known
        .refused
        .flat_map(|it| refusals_by(it, known.name))
        .chain(undone.clone())
        .map(|it| (Arc::clone(&it.0.namespace), it));
    let refused = fair_queue::share(refused, MOST_REFUSED);
    let waits = waiting.as_ref().map(|waiting| waiting.message(known.name, known.carrier));
    let own = undone.into_iter().find(|(consumer, _)| consumer.kind == ConsumerKind::LoadBalancer);
    let programmed = match (&waiting, own) {
        (Some(waiting), _) => Condition {
            holds: false,
            reason: waiting.reason().into(),
            message: waits.as_deref().unwrap_or_default().into(),
        },
        (None, Some((_, problem))) => Condition::no(&problem),
        (None, None) => Condition::current(),
    };
    // A failure to wipe or remove objects is told first. Objects of a class that are not in place come before the
    // state of agents, which waits for them.
    let unmade = known.made.filter(|made| !made.holds).map(|made| made.message.to_string());
    let unassigned = known.assigned.filter(|it| !it.holds).map(|it| it.message.to_string());
    let (phase, message) = match (known.unreclaimed, waits) {
        (Some(why), _) => (LoadBalancerPhase::Failed, Some(why.to_owned())),
        (None, Some(waits)) => (LoadBalancerPhase::Pending, unmade.or(Some(waits))),
        (None, None) if known.closed.is_some() => {
            let why = known.closed.map(|it| format!("no listener is open: {}", it.message));
            (LoadBalancerPhase::Failed, why)
        }
        (None, None) => {
            (LoadBalancerPhase::Running, unassigned.or_else(|| known.held.map(str::to_owned)))
        }
    };
    LoadBalancerStatus {
        phase,
        message,
        addresses: known.addresses.into_iter().take(MOST_ADDRESSES).collect(),
        consumers: known.consumers.take(MOST_CONSUMERS).cloned().collect(),
        refused,
        programmed,
    }
}

/// The refusals of a consumer by one load balancer, except those that pass in a moment.
pub fn refusals_by(outcome: &Outcome, lb: &str) -> impl Iterator<Item = (ConsumerRef, Problem)> {
    told(outcome, outcome.refusals_by(lb), Place::Refused)
}

/// What the owner of a consumer is told by Events.
pub fn problems(outcome: &Outcome) -> impl Iterator<Item = (ConsumerRef, Problem)> {
    let whole = match &outcome.state {
        State::Refused { problem, .. } => Some(problem),
        State::Planned { .. } => None,
    };
    told(outcome, whole.into_iter().chain(&outcome.problems), Place::Event)
}

fn told<'a>(
    outcome: &'a Outcome,
    problems: impl Iterator<Item = &'a Problem>,
    place: Place,
) -> impl Iterator<Item = (ConsumerRef, Problem)> {
    let told = problems.filter(move |problem| problem.reason.is_told(place));
    told.map(|problem| (outcome.consumer.clone(), problem.clone()))
}

#[cfg(test)]
mod tests;
