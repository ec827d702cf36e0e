//! Decides when a refused consumer is tried again: ever less often while it does not change, soon after a change, and
//! later if it changes all the time. It has no clock; the publisher asks it.

use std::time::{Duration, Instant};

/// The first delay for an unchanged consumer.
const FIRST: Duration = Duration::from_secs(10);
/// The first delay after a change.
const SOON: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(600);

/// The tries of a refused consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Readmission {
    last: Instant,
    tries: u32,
    changes: u32,
    changed: bool,
}

impl Readmission {
    /// Starts after the first refusal.
    pub(super) fn new(now: Instant) -> Self {
        Self { last: now, tries: 0, changes: 0, changed: false }
    }

    /// Notes that the consumer has changed.
    pub(super) fn changed(&mut self) {
        if !self.changed {
            self.changed = true;
            self.changes = self.changes.saturating_add(1);
        }
    }

    /// Notes that the consumer was refused again.
    pub(super) fn refused(&mut self, now: Instant) {
        self.last = now;
        self.tries = self.tries.saturating_add(1);
        self.changed = false;
    }

    /// When to try the consumer again.
    pub(super) fn due(&self) -> Instant {
        let grown =
            |first: Duration, times: u32| first.saturating_mul(1 << times.min(20)).min(LONGEST);
        let same = grown(FIRST, self.tries);
        let other = grown(SOON, self.changes.saturating_sub(1));
        self.last + if self.changed { same.min(other) } else { same }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_tried_ever_less_often_and_soon_after_a_change_unless_it_flaps() {
        let now = Instant::now();
        let seconds = |readmission: &Readmission| (readmission.due() - now).as_secs();
        let mut same = Readmission::new(now);
        let mut waits = vec![seconds(&same)];
        for _ in 0..7 {
            same.refused(now);
            waits.push(seconds(&same));
        }
        assert_eq!(waits, [10, 20, 40, 80, 160, 320, 600, 600]);
        let mut flapping = Readmission::new(now);
        let mut waits = Vec::new();
        for _ in 0..5 {
            flapping.changed();
            flapping.changed();
            waits.push(seconds(&flapping));
            flapping.refused(now);
        }
        assert_eq!(waits, [1, 2, 4, 8, 16]);
    }
}
