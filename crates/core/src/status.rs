//! What status should say: folds what the planner decided, what the agent's Lease proves and what is
//! already written into the status of consumers and load balancers. The leader's writer compares it
//! with what is there; nothing here is written or timed.

use crate::key::{ConsumerKind, ConsumerRef};
use crate::outcome::{Outcome, Problem, State};
use crate::programmed::{Pending, Phase, Verdict};
use std::net::IpAddr;
use std::sync::Arc;

/// Consumers that a load balancer's status lists.
pub const MOST_CONSUMERS: usize = 1000;
/// Refusals that a load balancer's status lists.
pub const MOST_REFUSED: usize = 20;

/// Whether something is in force, as a condition says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Whether it is.
    pub holds: bool,
    /// Why, for programs.
    pub reason: Arc<str>,
    /// Why, for people.
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
    /// Where it can be reached; sorted.
    pub addresses: Vec<IpAddr>,
    /// Whether it is in force.
    pub programmed: Condition,
}

/// What a consumer's status says now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written<'a> {
    /// The addresses in it.
    pub addresses: &'a [IpAddr],
    /// Whether its condition says that it is in force.
    pub programmed: bool,
}

/// How far the load balancer of a consumer is with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It has applied what the consumer wants.
    Applied,
    /// It could not do it.
    Refused(Problem),
    /// Not yet, as far as is known.
    Waiting(Waiting),
}

/// Why a load balancer does not yet do what is planned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// This build has no driver for its source.
    NoDriver,
    /// Its agent.
    Agent(Pending),
}

impl Waiting {
    /// One word for programs.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NoDriver => "NoDriver",
            Self::Agent(pending) => pending.reason(),
        }
    }

    /// A sentence for people that says what they can do.
    pub fn message(&self, load_balancer: &str) -> String {
        match self {
            Self::NoDriver => {
                format!("this build has no driver for the source of load balancer {load_balancer}")
            }
            Self::Agent(pending @ (Pending::NoAgent | Pending::AgentSilent)) => {
                format!("{pending}: start one with `bowline agent --load-balancer {load_balancer}`")
            }
            Self::Agent(pending) => pending.to_string(),
        }
    }
}

/// How far a load balancer is with a consumer that last changed with `changed`. None: it has no
/// driver.
pub fn progress(verdict: Option<&Verdict>, changed: u64, refused: Option<&Problem>) -> Progress {
    let Some(verdict) = verdict else { return Progress::Waiting(Waiting::NoDriver) };
    if !verdict.covers(changed) {
        let pending = match &verdict.phase {
            Phase::Pending(pending) => pending.clone(),
            Phase::Running => Pending::AgentBehind,
        };
        return Progress::Waiting(Waiting::Agent(pending));
    }
    refused.map_or(Progress::Applied, |problem| Progress::Refused(problem.clone()))
}

/// What the status of a consumer should say. An address is shown once the load balancer serves it, and
/// stays while it is planned: an agent that is behind or silent for a moment takes nothing back.
pub fn consumer(outcome: &Outcome, progress: &Progress, written: Written<'_>) -> ConsumerStatus {
    let (load_balancer, planned) = match &outcome.state {
        State::Refused { problem, .. } => {
            return ConsumerStatus { addresses: Vec::new(), programmed: Condition::no(problem) };
        }
        State::Planned { load_balancer, addresses } => (load_balancer, addresses),
    };
    match progress {
        Progress::Refused(problem) => {
            ConsumerStatus { addresses: Vec::new(), programmed: Condition::no(problem) }
        }
        Progress::Applied => ConsumerStatus {
            addresses: planned.clone(),
            programmed: in_force(load_balancer, &outcome.problems),
        },
        Progress::Waiting(why) => {
            let mut kept = planned.clone();
            kept.retain(|address| written.addresses.contains(address));
            // A change that is on its way is not worth two writes, one to take back and one to restore.
            let moment = matches!(why, Waiting::Agent(Pending::AgentBehind | Pending::AgentSilent));
            let programmed = if moment && written.programmed && kept == *planned {
                in_force(load_balancer, &outcome.problems)
            } else {
                Condition {
                    holds: false,
                    reason: why.reason().into(),
                    message: why.message(load_balancer).into(),
                }
            };
            ConsumerStatus { addresses: kept, programmed }
        }
    }
}

/// In force; problems that do not keep it from being served are told along.
fn in_force(load_balancer: &str, problems: &[Problem]) -> Condition {
    let mut message = format!("load balancer {load_balancer} serves it");
    for problem in problems {
        message.push_str("; ");
        message.push_str(&problem.message);
    }
    Condition { holds: true, reason: "Programmed".into(), message: message.into() }
}

/// What the status of a load balancer should say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadBalancerStatus {
    /// Whether it runs; else why not.
    pub waiting: Option<Waiting>,
    /// Why it does not run, or nothing.
    pub message: Option<String>,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// Who uses it, at most [`MOST_CONSUMERS`].
    pub consumers: Vec<ConsumerRef>,
    /// Who was refused and why, at most [`MOST_REFUSED`].
    pub refused: Vec<(ConsumerRef, Problem)>,
    /// Whether the plan is in force.
    pub programmed: Condition,
}

impl LoadBalancerStatus {
    /// As if the agent had caught up already.
    pub fn assume_running(&mut self) {
        self.waiting = None;
        self.message = None;
        self.programmed = Condition::current();
    }
}

/// What is known of a load balancer.
pub struct Known<'a, C, R> {
    /// Its name.
    pub name: &'a str,
    /// What its agent's Lease proves. None: it has no driver.
    pub verdict: Option<&'a Verdict>,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// Who is planned on it.
    pub consumers: C,
    /// What became of those whom it refused, in whole or in part.
    pub refused: R,
    /// What its agent could not do.
    pub undone: &'a [crate::update::Refusal],
}

/// What the status of a load balancer should say.
pub fn load_balancer<'a>(
    known: Known<'a, impl Iterator<Item = &'a ConsumerRef>, impl Iterator<Item = &'a Outcome>>,
) -> LoadBalancerStatus {
    let waiting = match known.verdict {
        None => Some(Waiting::NoDriver),
        Some(Verdict { phase: Phase::Pending(pending), .. }) => {
            Some(Waiting::Agent(pending.clone()))
        }
        Some(Verdict { phase: Phase::Running, .. }) => None,
    };
    let undone =
        known.undone.iter().map(|undone| (undone.consumer.clone(), undone.problem.clone()));
    let refused: Vec<_> =
        known.refused.flat_map(refusals).chain(undone.clone()).take(MOST_REFUSED).collect();
    let message = waiting.as_ref().map(|waiting| waiting.message(known.name));
    let own = undone.into_iter().find(|(consumer, _)| consumer.kind == ConsumerKind::LoadBalancer);
    let programmed = match (&waiting, own) {
        (Some(waiting), _) => Condition {
            holds: false,
            reason: waiting.reason().into(),
            message: message.as_deref().unwrap_or_default().into(),
        },
        (None, Some((_, problem))) => Condition::no(&problem),
        (None, None) => Condition::current(),
    };
    LoadBalancerStatus {
        waiting,
        message,
        addresses: known.addresses,
        consumers: known.consumers.take(MOST_CONSUMERS).cloned().collect(),
        refused,
        programmed,
    }
}

/// All that a consumer was refused.
pub fn refusals(outcome: &Outcome) -> impl Iterator<Item = (ConsumerRef, Problem)> {
    let whole = match &outcome.state {
        State::Refused { problem, .. } => Some(problem),
        State::Planned { .. } => None,
    };
    let parts = outcome.problems.iter().filter(|problem| !problem.reason.is_warning());
    whole.into_iter().chain(parts).map(|problem| (outcome.consumer.clone(), problem.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Reason;

    fn web() -> ConsumerRef {
        ConsumerRef {
            kind: ConsumerKind::Service,
            namespace: "shop".into(),
            name: "web".into(),
            uid: "u".into(),
        }
    }

    fn planned(addresses: &[&str]) -> Outcome {
        let addresses = addresses.iter().map(|a| a.parse().unwrap()).collect();
        let state = State::Planned { load_balancer: "edge".into(), addresses };
        Outcome { consumer: web(), state, problems: Vec::new() }
    }

    fn serves() -> Condition {
        in_force("edge", &[])
    }

    fn behind() -> Progress {
        Progress::Waiting(Waiting::Agent(Pending::AgentBehind))
    }

    #[test]
    fn an_address_is_shown_only_once_it_is_served() {
        let outcome = planned(&["192.0.2.1"]);
        let status = consumer(&outcome, &behind(), Written::default());
        assert_eq!((status.addresses, status.programmed.holds), (vec![], false));
        let status = consumer(&outcome, &Progress::Applied, Written::default());
        let expected =
            ConsumerStatus { addresses: vec!["192.0.2.1".parse().unwrap()], programmed: serves() };
        assert_eq!(status, expected);
    }

    #[test]
    fn a_change_on_its_way_takes_nothing_back_but_what_is_no_longer_planned() {
        let shown = ["192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap()];
        let written = Written { addresses: &shown, programmed: true };
        let same = consumer(&planned(&["192.0.2.1", "192.0.2.2"]), &behind(), written);
        assert_eq!(
            same,
            ConsumerStatus { addresses: shown.to_vec(), programmed: serves() },
            "nothing to write"
        );
        let moved = consumer(&planned(&["192.0.2.2", "192.0.2.3"]), &behind(), written);
        assert_eq!((moved.addresses, moved.programmed.holds), (vec![shown[1]], false));
    }

    #[test]
    fn who_is_refused_has_no_address_and_is_told_why() {
        let problem = Problem::new(Reason::PortTaken, "shop/old has 192.0.2.1:80/TCP");
        let state = State::Refused { load_balancer: None, problem: problem.clone() };
        let outcome = Outcome { consumer: web(), state, problems: Vec::new() };
        let refused = ConsumerStatus {
            addresses: Vec::new(),
            programmed: Condition {
                holds: false,
                reason: "PortTaken".into(),
                message: "shop/old has 192.0.2.1:80/TCP".into(),
            },
        };
        assert_eq!(consumer(&outcome, &Progress::Applied, Written::default()), refused);
        let by_agent = Progress::Refused(problem);
        assert_eq!(consumer(&planned(&["192.0.2.1"]), &by_agent, Written::default()), refused);
    }

    #[test]
    fn a_load_balancer_without_an_agent_says_how_to_start_one() {
        let verdict = Verdict { phase: Phase::Pending(Pending::NoAgent), applied: None };
        let status = load_balancer(Known {
            name: "edge",
            verdict: Some(&verdict),
            addresses: Vec::new(),
            consumers: std::iter::empty(),
            refused: std::iter::empty(),
            undone: &[],
        });
        let message =
            "no agent has reported yet: start one with `bowline agent --load-balancer edge`";
        assert_eq!(status.message.as_deref(), Some(message));
        assert_eq!((status.programmed.holds, &*status.programmed.reason), (false, "NoAgent"));
    }

    #[test]
    fn a_source_without_a_driver_is_said_to_have_none() {
        let status = load_balancer(Known {
            name: "edge",
            verdict: None,
            addresses: Vec::new(),
            consumers: std::iter::empty(),
            refused: std::iter::empty(),
            undone: &[],
        });
        assert_eq!(status.programmed.reason, "NoDriver".into());
    }
}
