//! What the status of claims and load balancers says of a binding: one word for programs, a sentence for people. The
//! status is parsed into the same values, so that a report is written only when it differs. Nothing is decided here.

use crate::diagnosis;
use crate::event_correlator::{About, EventDraft, Severity};
use crate::key::{ConsumerKind, ConsumerRef, ObjectKey};
use crate::objects::Timestamp;
use crate::resources::Amounts;
use std::fmt;
use std::sync::Arc;

/// How the message of a load balancer that is being deleted begins.
pub(super) const LEAVING: &str = "it is being deleted";

/// Phases of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// No load balancer yet.
    Pending,
    /// Has a load balancer.
    Bound,
    /// Its load balancer is gone.
    Lost,
}

/// Why a claim is in its phase: the reason of its condition `Bound`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClaimReason {
    /// It has a load balancer.
    Bound,
    /// What it asks for is contradictory or cannot be read.
    Invalid,
    /// No load balancer fits, and none is made.
    NoMatch,
    /// There is a load balancer for it, and the API refuses to record that.
    Refused,
    /// A load balancer is to be created, and that has not worked yet.
    Provisioning,
    /// The load balancer that was created for it is being removed; then another one is created.
    Removing,
    /// Its load balancer was removed because no consumer used it; one is created when a consumer does.
    Idle,
    /// The load balancer that it had does not exist any more.
    LoadBalancerGone,
    /// The load balancer that it had has another claim, or does not fit any more.
    LoadBalancerTaken,
}

impl ClaimReason {
    /// All reasons.
    pub const ALL: [Self; 9] = [
        Self::Bound,
        Self::Invalid,
        Self::NoMatch,
        Self::Refused,
        Self::Provisioning,
        Self::Removing,
        Self::Idle,
        Self::LoadBalancerGone,
        Self::LoadBalancerTaken,
    ];

    /// Parses a reason.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.to_string() == text)
    }
}

impl fmt::Display for ClaimReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What the status of a claim says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimReport {
    /// Its phase.
    pub phase: Phase,
    /// The load balancer that it has or had.
    pub load_balancer: Option<Arc<str>>,
    /// What that load balancer can carry.
    pub capacity: Amounts,
    /// Why, for programs.
    pub reason: ClaimReason,
    /// Why, for people.
    pub message: Arc<str>,
}

impl ClaimReport {
    pub(super) fn pending(reason: ClaimReason, message: impl Into<Arc<str>>) -> Self {
        let (phase, capacity) = (Phase::Pending, Amounts::default());
        Self { phase, load_balancer: None, capacity, reason, message: message.into() }
    }

    /// The load balancer that it has or had.
    pub(super) fn home(&self) -> Option<&Arc<str>> {
        self.load_balancer.as_ref().filter(|_| self.phase != Phase::Pending)
    }

    /// The Event for the owner of a claim when its status becomes this.
    pub fn event(&self, claim: &ObjectKey, uid: &Arc<str>) -> EventDraft {
        EventDraft {
            object: About::Claim { key: claim.clone(), uid: uid.clone() },
            severity: match diagnosis::claims::row(self.reason).helps {
                None => Severity::Normal,
                Some(_) => Severity::Warning,
            },
            reason: self.reason.to_string().into(),
            message: self.message.clone(),
        }
    }

    /// Whether another report says the same, maybe in other words.
    pub fn agrees(&self, other: &Self) -> bool {
        let Self { phase, load_balancer, capacity, reason, message: _ } = self;
        (phase, load_balancer, capacity, reason)
            == (&other.phase, &other.load_balancer, &other.capacity, &other.reason)
    }
}

/// Whether a load balancer has a claim: the reason of its condition `Bound`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Binding {
    /// It has no claim.
    Available,
    /// It has a claim.
    Bound,
    /// Its claim is gone.
    Released,
}

impl fmt::Display for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl Report {
    /// The Event for administrators when the status of a load balancer becomes this, after `before`.
    pub fn event(
        &self,
        before: Option<&Self>,
        name: &Arc<str>,
        uid: &Arc<str>,
    ) -> Option<EventDraft> {
        let failed = |it: &Self| it.failed.clone();
        let (severity, reason, message) = match (&self.failed, before) {
            (Some(why), before) if before.and_then(failed).as_ref() != Some(why) => {
                (Severity::Warning, "ReclaimFailed", why.clone())
            }
            (_, Some(before)) if before.binding != self.binding => {
                let reason = match self.binding {
                    Binding::Available => "Available",
                    Binding::Bound => "Bound",
                    Binding::Released => "Released",
                };
                let empty = self.message.is_empty();
                let nobody = "no claim has it";
                (Severity::Normal, reason, if empty { nobody.into() } else { self.message.clone() })
            }
            (_, Some(before)) if self.is_held_back() && !before.is_held_back() => {
                (Severity::Normal, "InUse", self.message.clone())
            }
            _ => return None,
        };
        let (kind, namespace) = (ConsumerKind::LoadBalancer, "".into());
        let object = ConsumerRef { kind, namespace, name: name.clone(), uid: uid.clone() };
        Some(EventDraft { object: object.into(), severity, reason: reason.into(), message })
    }
}

impl Report {
    /// Whether it is being deleted, and consumers or a claim hold it.
    fn is_held_back(&self) -> bool {
        self.message.strip_prefix(LEAVING).is_some_and(|holders| !holders.is_empty())
    }
}

/// What the status of a load balancer says of its binding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Whether it has a claim.
    pub binding: Binding,
    /// What it waits for, or what holds it, for people.
    pub message: Arc<str>,
    /// Why it could not be recycled or deprovisioned: its phase is Failed then.
    pub failed: Option<Arc<str>>,
    /// Since when it has had no consumers, if its class has an idle timeout.
    pub idle_since: Option<Timestamp>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_read_as_they_are_written() {
        for reason in ClaimReason::ALL {
            assert_eq!(ClaimReason::parse(&reason.to_string()), Some(reason));
        }
        assert_eq!(ClaimReason::parse("Else"), None);
    }
}
