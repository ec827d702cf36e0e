//! Whether what is behind a load balancer is wiped: nothing is planned for it any more and, if an agent drives it,
//! that agent has said so. A function of values; the controller calls it, and waits or reports.

use crate::programmed::Pending;
use crate::status::Waiting;
use std::sync::Arc;

/// How far the wipe of a load balancer is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wipe {
    /// Nothing of any consumer is left on it.
    Done,
    /// Something is still planned or recorded for it, or its agent is behind by a moment.
    NotYet,
    /// It waits for its agent, which is silent or fails. The agent's next report may end the wait, so no delay grows
    /// meanwhile.
    Waits(Arc<str>),
    /// It cannot be now, for this reason; it is tried again.
    Failed(Arc<str>),
}

impl Wipe {
    /// Judges the load balancer of this name. `same`: it is still the one to wipe. `empty`: nothing is planned or
    /// recorded for it. `waiting`: what keeps it from running an empty plan. Without an agent, or with none that
    /// could drive it, nothing can serve.
    pub fn of(name: &str, same: bool, empty: bool, waiting: Option<&Waiting>) -> Self {
        match waiting {
            _ if !same => {
                Self::Failed("it was replaced by another load balancer of the same name".into())
            }
            _ if !empty => Self::NotYet,
            Some(Waiting::Agent(Pending::AgentBehind)) => Self::NotYet,
            None | Some(Waiting::NoDriver | Waiting::Agent(Pending::NoAgent | Pending::NoPlan)) => {
                Self::Done
            }
            Some(why) => Self::Waits(why.message(name, None).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_wiped_when_nothing_is_planned_and_whoever_serves_it_has_said_so() {
        let agent = |pending| Some(Waiting::Agent(pending));
        let cases = [
            (None, Wipe::Done),
            (Some(Waiting::NoDriver), Wipe::Done),
            (agent(Pending::NoAgent), Wipe::Done),
            (agent(Pending::NoPlan), Wipe::Done),
            (agent(Pending::AgentBehind), Wipe::NotYet),
        ];
        for (waiting, expected) in cases {
            assert_eq!(Wipe::of("edge", true, true, waiting.as_ref()), expected, "{waiting:?}");
            assert_eq!(Wipe::of("edge", true, false, waiting.as_ref()), Wipe::NotYet);
        }
    }

    #[test]
    fn an_agent_that_fails_or_is_silent_is_waited_for_and_another_one_of_its_name_is_told() {
        let waits = |waiting: &Waiting| match Wipe::of("edge", true, true, Some(waiting)) {
            Wipe::Waits(why) => why.to_string(),
            other => format!("{other:?}"),
        };
        let silent = waits(&Waiting::Agent(Pending::AgentSilent));
        assert!(silent.contains("bowline agent --load-balancer edge"), "{silent}");
        let failing = waits(&Waiting::Agent(Pending::AgentFailed("no room".into())));
        assert!(failing.contains("no room"), "{failing}");
        let other = Wipe::of("edge", false, true, None);
        assert_eq!(
            other,
            Wipe::Failed("it was replaced by another load balancer of the same name".into())
        );
    }
}
