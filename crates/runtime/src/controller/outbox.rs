//! The results of a turn for the shell: targets to enqueue, Events to record, and changes to show. The parts of
//! the state write into it; the turn empties it.

use super::target::Target;
use crate::observe::Change;
use bowline_core::event_correlator::EventDraft;
use bowline_core::key::ConsumerRef;
use bowline_core::outcome::Problem;
use std::collections::BTreeSet;

/// The outbox of a turn.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    targets: BTreeSet<Target>,
    events: Vec<EventDraft>,
    changes: Vec<Change>,
}

impl Outbox {
    /// Enqueues a target: the turn asks whether it needs a write.
    pub(super) fn enqueue(&mut self, target: Target) {
        self.targets.insert(target);
    }

    /// Enqueues several targets.
    pub(super) fn enqueue_all(&mut self, targets: impl IntoIterator<Item = Target>) {
        self.targets.extend(targets);
    }

    /// Adds an Event.
    pub(super) fn record(&mut self, event: EventDraft) {
        self.events.push(event);
    }

    /// Adds a problem as a Warning on the object that it concerns, if problems of its reason have Events.
    pub(super) fn warn(&mut self, consumer: &ConsumerRef, problem: &Problem) {
        self.events.extend(problem.event(consumer));
    }

    /// Publishes a change that people may want to see.
    pub(super) fn tell(&mut self, change: Change) {
        self.changes.push(change);
    }

    /// The Events that wait to be recorded.
    pub(super) fn events(&self) -> &[EventDraft] {
        &self.events
    }

    /// Takes the enqueued targets.
    pub(super) fn take_targets(&mut self) -> BTreeSet<Target> {
        std::mem::take(&mut self.targets)
    }

    /// Takes the Events.
    pub(super) fn take_events(&mut self) -> Vec<EventDraft> {
        std::mem::take(&mut self.events)
    }

    /// Takes the changes to publish.
    pub(super) fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// Whether a target is enqueued.
    #[cfg(test)]
    pub(super) fn has(&self, target: &Target) -> bool {
        self.targets.contains(target)
    }
}
