//! When the status of a load balancer is written: a change that is on its way is not worth two writes, and lists that
//! change often are written now and then; and which change is an Event, too. It owns the times of former writes; what a
//! status says is `status`. The controller asks it before each write.

use crate::clock::Uptime;
use crate::event_correlator::Severity;
use crate::status::{BEHIND, Condition};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// The least time between two writes of a load balancer's lists.
pub const GAP: Duration = Duration::from_millis(250);

/// See the module.
#[derive(Debug, Default)]
pub struct StatusWrites {
    /// Since when the agents of a load balancer are behind its plan.
    behind: HashMap<Arc<str>, Uptime>,
    written: HashMap<Arc<str>, Uptime>,
}

impl StatusWrites {
    /// A load balancer is deleted.
    pub fn forget(&mut self, lb: &str) {
        self.behind.remove(lb);
        self.written.remove(lb);
    }

    /// The agents of a load balancer are behind its plan, or are not. Returns until when its status does not say so.
    pub fn behind(&mut self, lb: &Arc<str>, is_behind: bool, now: Uptime) -> Option<Uptime> {
        if !is_behind {
            self.behind.remove(lb);
            return None;
        }
        let until = *self.behind.entry(Arc::clone(lb)).or_insert(now) + BEHIND;
        (now < until).then_some(until)
    }

    /// The status of a load balancer is written.
    pub fn wrote(&mut self, lb: &Arc<str>, now: Uptime) {
        self.written.insert(Arc::clone(lb), now);
    }

    /// When lists may be written again. None: now.
    pub fn next(&self, lb: &str, now: Uptime) -> Option<Uptime> {
        self.written.get(lb).map(|at| *at + GAP).filter(|at| now < *at)
    }
}

/// How an Event tells a change of the condition `Programmed` of a load balancer to its administrator: when its agent falls
/// silent or fails, and when the plan is in force again. None: there is nothing new. What passes by itself is not told.
pub fn event(before: Option<&Condition>, now: &Condition) -> Option<Severity> {
    let wrong = |it: &Condition| {
        !it.holds && matches!(&*it.reason, "AgentSilent" | "AgentFailed" | "NoDriver")
    };
    let told = before.filter(|it| wrong(it));
    match (told, now) {
        (Some(_), now) if now.holds => Some(Severity::Normal),
        (told, now) if wrong(now) => {
            told.is_none_or(|it| it.reason != now.reason).then_some(Severity::Warning)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_that_falls_silent_or_fails_is_told_once_and_so_is_its_return() {
        let condition =
            |holds, reason: &str| Condition { holds, reason: reason.into(), message: "".into() };
        let good = condition(true, "Programmed");
        let silent = condition(false, "AgentSilent");
        let failed = condition(false, "AgentFailed");
        let behind = condition(false, "AgentBehind");
        assert_eq!(event(Some(&good), &silent), Some(Severity::Warning));
        assert_eq!(event(Some(&silent), &silent), None, "it was told");
        assert_eq!(event(Some(&silent), &failed), Some(Severity::Warning));
        assert_eq!(event(Some(&failed), &good), Some(Severity::Normal));
        assert_eq!(event(Some(&good), &behind), None, "it passes");
        assert_eq!(event(Some(&behind), &good), None, "nothing was told");
        assert_eq!(event(None, &good), None);
        assert_eq!(event(None, &failed), Some(Severity::Warning));
    }

    fn edge() -> Arc<str> {
        "edge".into()
    }

    #[test]
    fn agents_that_are_behind_for_a_moment_are_not_reported() {
        let (mut writes, lb, start) = (StatusWrites::default(), edge(), Uptime::default());
        assert_eq!(writes.behind(&lb, true, start), Some(start + BEHIND));
        assert_eq!(writes.behind(&lb, true, start + BEHIND / 2), Some(start + BEHIND));
        assert_eq!(writes.behind(&lb, true, start + BEHIND), None);
    }

    #[test]
    fn agents_that_catch_up_have_the_whole_time_again() {
        let (mut writes, lb, start) = (StatusWrites::default(), edge(), Uptime::default());
        writes.behind(&lb, true, start);
        assert_eq!(writes.behind(&lb, false, start + BEHIND), None);
        assert_eq!(writes.behind(&lb, true, start + BEHIND), Some(start + BEHIND + BEHIND));
    }

    #[test]
    fn lists_are_written_at_most_once_in_a_gap() {
        let (mut writes, lb, start) = (StatusWrites::default(), edge(), Uptime::default());
        assert_eq!(writes.next(&lb, start), None);
        writes.wrote(&lb, start);
        assert_eq!(writes.next(&lb, start + GAP / 2), Some(start + GAP));
        assert_eq!(writes.next(&lb, start + GAP), None);
        writes.wrote(&lb, start + GAP);
        writes.forget(&lb);
        assert_eq!(writes.next(&lb, start + GAP), None);
    }
}
