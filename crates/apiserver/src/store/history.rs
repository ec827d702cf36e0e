//! The bounded history of one resource: its newest events in order, and the revision up to which events
//! were dropped. It does no I/O; the state owns one for each resource.

use super::{Event, EventKind, Expired, Limits};
use std::collections::VecDeque;
use std::sync::Arc;

/// The cost of an event besides the objects that only it keeps: the event, its place in the ring, and
/// the allocator's overhead.
const EVENT_OVERHEAD: usize = 192;

/// The newest events of a resource.
///
/// A watcher may resume from revision R if and only if no event after R was dropped, even if nothing
/// happened at R itself. So a resource that is unchanged for a million revisions loses no watcher.
#[derive(Debug, Default)]
pub(super) struct History {
    events: VecDeque<Arc<Event>>,
    bytes: usize,
    compacted: u64,
}

/// How a history grows: [`History::grow`] plans it; it is made durable and then applied.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Growth {
    /// The new events that are kept.
    pub(super) events: Vec<Arc<Event>>,
    /// The revisions of the oldest events, which are dropped.
    pub(super) forget: Vec<u64>,
    /// The new revision up to which events are dropped.
    pub(super) compacted: u64,
}

impl History {
    /// A restored history: these events, with everything up to and including `compacted` dropped.
    pub(super) fn restore(compacted: u64, events: VecDeque<Arc<Event>>) -> Self {
        let bytes = events.iter().map(|event| cost(event)).sum();
        Self { events, bytes, compacted }
    }

    /// Whether all events after `from` are kept.
    pub(super) fn reaches(&self, from: u64) -> Result<(), Expired> {
        if from < self.compacted {
            return Err(Expired { requested: from, oldest: self.compacted });
        }
        Ok(())
    }

    /// The events after `from`, oldest first.
    pub(super) fn after(
        &self,
        from: u64,
    ) -> Result<impl ExactSizeIterator<Item = &Arc<Event>> + DoubleEndedIterator, Expired> {
        self.reaches(from)?;
        let start = self.events.partition_point(|event| event.revision <= from);
        Ok(self.events.range(start..))
    }

    /// Whether there was an event after `from`.
    pub(super) fn moved_since(&self, from: u64) -> bool {
        from < self.compacted || self.events.back().is_some_and(|event| event.revision > from)
    }

    /// The revision of the newest event, dropped or not.
    pub(super) fn newest(&self) -> u64 {
        self.events.back().map_or(self.compacted, |event| event.revision)
    }

    /// Plans the growth by `new` events within `limits`.
    pub(super) fn grow(&self, new: Vec<Arc<Event>>, limits: Limits) -> Growth {
        let mut count = self.events.len() + new.len();
        let mut bytes = self.bytes + new.iter().map(|event| cost(event)).sum::<usize>();
        let mut growth = Growth { compacted: self.compacted, ..Growth::default() };
        let mut dropped = 0;
        for event in self.events.iter().chain(&new) {
            let over = count > limits.history_events || bytes > limits.history_bytes;
            if count <= 1 || !over {
                break;
            }
            count -= 1;
            bytes -= cost(event);
            dropped += 1;
            growth.compacted = event.revision;
        }
        growth.forget = self.events.iter().take(dropped).map(|event| event.revision).collect();
        growth.events = new.into_iter().skip(dropped - growth.forget.len()).collect();
        growth
    }

    /// How an empty history becomes this one.
    pub(super) fn whole(&self) -> Growth {
        let events = self.events.iter().cloned().collect();
        Growth { events, forget: Vec::new(), compacted: self.compacted }
    }

    /// Goes on as decided. Gives back what fell out, to be freed where no lock is held.
    pub(super) fn apply(&mut self, growth: Growth) -> Vec<Arc<Event>> {
        let fallen: Vec<_> = self.events.drain(..growth.forget.len()).collect();
        self.events.extend(growth.events.iter().cloned());
        let freed: usize = fallen.iter().map(|event| cost(event)).sum();
        let added: usize = growth.events.iter().map(|event| cost(event)).sum();
        self.bytes = self.bytes + added - freed;
        self.compacted = growth.compacted;
        fallen
    }
}

/// The cost of keeping an event. The object after the change is the current one, or is counted as
/// `previous` of the next event of its key. Only the last object of a deletion is kept by the event
/// alone.
fn cost(event: &Event) -> usize {
    let last = if event.kind == EventKind::Deleted { event.object.len() } else { 0 };
    EVENT_OVERHEAD + last + event.previous.as_ref().map_or(0, |bytes| bytes.len())
}

#[cfg(test)]
mod tests {
    use super::super::Key;
    use super::*;
    use bytes::Bytes;

    fn event(revision: u64, size: usize) -> Arc<Event> {
        Arc::new(Event {
            revision,
            key: Key::new("things", "", "x"),
            kind: EventKind::Modified,
            object: Bytes::new(),
            previous: Some(vec![b'x'; size].into()),
        })
    }

    fn few(history_events: usize) -> Limits {
        Limits { history_events, history_bytes: usize::MAX }
    }

    fn with(revisions: &[u64], limits: Limits) -> History {
        let mut history = History::default();
        for &revision in revisions {
            let growth = history.grow(vec![event(revision, 0)], limits);
            history.apply(growth);
        }
        history
    }

    fn after(history: &History, from: u64) -> Result<Vec<u64>, Expired> {
        Ok(history.after(from)?.map(|event| event.revision).collect())
    }

    #[test]
    fn a_resource_without_events_can_be_resumed_from_anywhere() {
        let history = History::default();
        assert_eq!(after(&history, 0), Ok(vec![]));
        assert_eq!(after(&history, 99), Ok(vec![]));
        assert!(!history.moved_since(0));
    }

    #[test]
    fn only_newer_events_are_given() {
        let history = with(&[3, 7, 8], few(10));
        assert_eq!(after(&history, 0), Ok(vec![3, 7, 8]));
        assert_eq!(after(&history, 3), Ok(vec![7, 8]));
        assert_eq!(after(&history, 6), Ok(vec![7, 8]));
        assert_eq!(after(&history, 8), Ok(vec![]));
        assert_eq!([7, 8].map(|from| history.moved_since(from)), [true, false]);
    }

    #[test]
    fn resuming_works_from_the_last_dropped_event_and_no_earlier() {
        let history = with(&[3, 7, 8, 20], few(2));
        assert_eq!(after(&history, 7), Ok(vec![8, 20]));
        assert_eq!(after(&history, 6), Err(Expired { requested: 6, oldest: 7 }));
    }

    #[test]
    fn bytes_bound_the_history_and_the_newest_event_always_stays() {
        let limits = Limits { history_events: 100, history_bytes: 3 * (EVENT_OVERHEAD + 100) };
        let mut history = History::default();
        for revision in 1..=5 {
            let growth = history.grow(vec![event(revision, 100)], limits);
            history.apply(growth);
        }
        assert_eq!(after(&history, 2), Ok(vec![3, 4, 5]));
        let growth = history.grow(vec![event(6, 5000)], limits);
        assert_eq!(growth.forget, [3, 4, 5]);
        assert_eq!(history.apply(growth).len(), 3);
        assert_eq!(after(&history, 5), Ok(vec![6]));
        assert_eq!(after(&history, 4), Err(Expired { requested: 4, oldest: 5 }));
        assert_eq!(history.bytes, EVENT_OVERHEAD + 5000);
    }

    #[test]
    fn a_batch_larger_than_the_history_drops_its_own_beginning() {
        let mut history = with(&[1], few(2));
        let growth = history.grow(vec![event(2, 0), event(3, 0), event(4, 0)], few(2));
        assert_eq!((growth.forget.clone(), growth.compacted), (vec![1], 2));
        history.apply(growth);
        assert_eq!(after(&history, 2), Ok(vec![3, 4]));
        assert_eq!(after(&history, 1), Err(Expired { requested: 1, oldest: 2 }));
    }
}
