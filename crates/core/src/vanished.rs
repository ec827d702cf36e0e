//! Whether an agent goes on serving Plans that are gone. The leader deletes a Plan when nothing is planned any more;
//! then it is not served any more either. But when Bowline's namespace is deleted, all Plans vanish with it, and nobody
//! has decided that traffic ends. The agent looks at the namespace and tells [`Vanished`]; it does no I/O itself.

use std::sync::Arc;
use std::time::Duration;

/// How long the leader has to write the Plans again, from when the namespace is there and from each Plan.
pub const SETTLES: Duration = Duration::from_secs(60);

/// What a look at Bowline's namespace has shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Namespace {
    /// It is there. Its uid, if that may be read.
    There(Option<Arc<str>>),
    /// It is being deleted or gone, or that is unknown: the API does not answer, or has withdrawn the agent's rights.
    Unsure,
}

/// Whether Plans that are gone are served. Times are of one clock that only goes forward.
#[derive(Debug, Default)]
pub struct Vanished {
    uid: Option<Arc<str>>,
    holds: bool,
    /// When the leader has had the time to write the Plans again.
    until: Option<Duration>,
}

impl Vanished {
    /// Whether Plans that are gone are served. Then the namespace is looked at from time to time.
    pub fn holds(&self) -> bool {
        self.holds
    }

    /// The namespace was looked at: after a Plan was deleted, after a list of Plans, or because Plans are held. Some:
    /// whether Plans that are gone are served from now on.
    pub fn looked(&mut self, found: Namespace, now: Duration) -> Option<bool> {
        let before = self.holds;
        match found {
            Namespace::Unsure => (self.holds, self.until) = (true, None),
            Namespace::There(uid) => {
                let another = uid.is_some() && self.uid.is_some() && uid != self.uid;
                if uid.is_some() {
                    self.uid = uid;
                }
                if another {
                    // It was deleted and made again in between.
                    (self.holds, self.until) = (true, None);
                }
                if self.holds {
                    let until = *self.until.get_or_insert(now + SETTLES);
                    self.holds = now < until;
                }
            }
        }
        if !self.holds {
            self.until = None;
        }
        (self.holds != before).then_some(self.holds)
    }

    /// A Plan was written: the leader is at work.
    pub fn written(&mut self, now: Duration) {
        if self.until.is_some() {
            self.until = Some(now + SETTLES);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn there(uid: &str) -> Namespace {
        Namespace::There(Some(uid.into()))
    }

    #[test]
    fn a_plan_that_the_leader_deletes_is_not_held() {
        let mut vanished = Vanished::default();
        assert_eq!(vanished.looked(there("a"), at(0)), None);
        assert_eq!(vanished.looked(there("a"), at(9)), None);
        assert!(!vanished.holds());
    }

    #[test]
    fn plans_that_vanish_with_their_namespace_are_held_until_the_leader_has_written_them_again() {
        let mut vanished = Vanished::default();
        vanished.looked(there("a"), at(0));
        assert_eq!(vanished.looked(Namespace::Unsure, at(10)), Some(true));
        // Also for hours.
        assert_eq!(vanished.looked(Namespace::Unsure, at(9_999)), None);
        assert_eq!(vanished.looked(there("b"), at(10_000)), None);
        vanished.written(at(10_050));
        assert_eq!(vanished.looked(there("b"), at(10_100)), None);
        assert!(vanished.holds());
        assert_eq!(vanished.looked(there("b"), at(10_110)), Some(false));
    }

    #[test]
    fn a_namespace_that_is_made_again_before_anybody_looks_is_another_one() {
        let mut vanished = Vanished::default();
        vanished.looked(there("a"), at(0));
        assert_eq!(vanished.looked(there("b"), at(10)), Some(true));
        assert_eq!(vanished.looked(there("b"), at(70)), Some(false));
    }

    #[test]
    fn an_agent_that_may_not_read_the_namespace_holds_while_that_refuses_content() {
        let mut vanished = Vanished::default();
        assert_eq!(vanished.looked(Namespace::There(None), at(0)), None);
        assert_eq!(vanished.looked(Namespace::Unsure, at(10)), Some(true));
        assert_eq!(vanished.looked(Namespace::There(None), at(20)), None);
        assert_eq!(vanished.looked(Namespace::There(None), at(80)), Some(false));
    }
}
