//! When something that was refused is tried again: ever less often while it stays as it is, soon after it
//! has changed, and later where it changes all the time. It knows no clock; the publisher asks it.

use std::time::{Duration, Instant};

/// How soon something is tried again that is as it was.
const FIRST: Duration = Duration::from_secs(10);
/// How soon something is tried again that has changed since.
const SOON: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(600);

/// The tries of something that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Readmission {
    last: Instant,
    tries: u32,
    changes: u32,
    changed: bool,
}

impl Readmission {
    /// It was refused for the first time.
    pub(super) fn new(now: Instant) -> Self {
        Self { last: now, tries: 0, changes: 0, changed: false }
    }

    /// It is not what it was when it was refused.
    pub(super) fn changed(&mut self) {
        if !self.changed {
            self.changed = true;
            self.changes = self.changes.saturating_add(1);
        }
    }

    /// It was refused again.
    pub(super) fn refused(&mut self, now: Instant) {
        self.last = now;
        self.tries = self.tries.saturating_add(1);
        self.changed = false;
    }

    /// When to try it again.
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
