//! The rows of the leader and the agents of a load balancer: all its consumers suffer, because the plan is not in force.

use super::remedy::{Remedy, administrator};
use super::{Place, Row};
use crate::programmed::Pending;
use crate::status::Waiting;
use std::fmt;

/// A problem of the leader or of the agents of a load balancer, and of all its consumers: the plan is not in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoleProblem {
    /// What is planned is not recorded, and no controller leads.
    NoLeader,
    /// Nothing is recorded for the load balancer yet.
    NoPlan,
    /// No agent has ever reported.
    NoAgent,
    /// The agent has not reported in time.
    AgentSilent,
    /// The agent could not apply the plan.
    AgentFailed,
    /// The agent has not applied the plan yet.
    AgentBehind,
    /// This build has no driver for the source of the load balancer.
    NoDriver,
    /// The agent refuses more than its report has room for.
    RefusalsUnlisted,
}

/// What keeps the plan of a load balancer from being in force is told of the load balancer and of its consumers.
const PENDING: &[Place] =
    &[Place::Programmed, Place::LoadBalancerProgrammed, Place::Status, Place::Explain];
/// The leader writes conditions; without one there are none.
const UNWRITTEN: &[Place] = &[Place::Status, Place::Explain];
/// The load balancer runs; a consumer may be among those that are not named.
const OF_CONSUMERS: &[Place] = &[Place::Programmed, Place::Status, Place::Explain];

const PENDING_WORDS: &[&str] = &["core::status::message", "core::programmed"];

impl RoleProblem {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::NoLeader,
        Self::NoPlan,
        Self::NoAgent,
        Self::AgentSilent,
        Self::AgentFailed,
        Self::AgentBehind,
        Self::NoDriver,
        Self::RefusalsUnlisted,
    ];

    /// Its row of the table.
    pub fn row(self) -> Row {
        let (means, told, words, helps) = match self {
            Self::NoLeader => (
                "what is planned is not recorded, and no controller leads",
                UNWRITTEN,
                &["bowline::view::explain::roles::no_leader"][..],
                administrator(
                    "start `bowline controller`, or see in the log of each one that runs what it waits for; \
                     `bowline doctor` checks its rights",
                ),
            ),
            Self::NoPlan => (
                "nothing is recorded for the load balancer yet",
                PENDING,
                PENDING_WORDS,
                administrator("see that a controller runs and leads: `bowline status`"),
            ),
            Self::NoAgent => (
                "no agent of the load balancer has ever reported",
                PENDING,
                PENDING_WORDS,
                administrator(
                    "start an agent with the command that the message names, where the addresses of the load balancer are",
                ),
            ),
            Self::AgentSilent => (
                "the agent of the load balancer has not reported in time",
                PENDING,
                PENDING_WORDS,
                administrator(
                    "see on the agent's machine whether it runs, and in its log whether it reaches the API server and \
                     has its rights (`bowline doctor`); one that does not run or does not answer: end it, and start it \
                     with the command that the message names",
                ),
            ),
            Self::AgentFailed => (
                "the agent of the load balancer could not apply the plan",
                PENDING,
                PENDING_WORDS,
                administrator(
                    "remove the cause that the message names; the agent tries again, at the latest after half a minute",
                ),
            ),
            Self::AgentBehind => (
                "the agent of the load balancer has not applied the newest plan yet",
                PENDING,
                PENDING_WORDS,
                administrator("wait a moment; if it lasts, see the log of the agent"),
            ),
            Self::NoDriver => (
                "this build has no driver for the source of the load balancer",
                PENDING,
                PENDING_WORDS,
                administrator(
                    "use a build of Bowline that has the driver (`bowline version` lists features), or a load balancer \
                     with another source",
                ),
            ),
            Self::RefusalsUnlisted => (
                "the agent refuses more than its report has room for, and this may be part of it",
                OF_CONSUMERS,
                PENDING_WORDS,
                administrator("see the log of the agent, which names all that it refuses"),
            ),
        };
        Row { means, told, words, helps }
    }

    /// What helps against it.
    pub fn remedy(self) -> Option<Remedy> {
        self.row().helps
    }
}

impl fmt::Display for RoleProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl From<&Waiting> for RoleProblem {
    fn from(waiting: &Waiting) -> Self {
        match waiting {
            Waiting::NoDriver => Self::NoDriver,
            Waiting::Unlisted(_) => Self::RefusalsUnlisted,
            Waiting::Agent(Pending::NoPlan) => Self::NoPlan,
            Waiting::Agent(Pending::NoAgent) => Self::NoAgent,
            Waiting::Agent(Pending::AgentSilent) => Self::AgentSilent,
            Waiting::Agent(Pending::AgentFailed(_)) => Self::AgentFailed,
            Waiting::Agent(Pending::AgentBehind) => Self::AgentBehind,
        }
    }
}
