//! When a burst of changes is over: after a pause without a change or, if changes never pause, after a multiple of
//! that pause. The writers of files call it, each with a clock `T` of its own; it neither sleeps nor reads a clock.

use std::ops::Add;
use std::time::Duration;

/// A burst without a pause is over after this many times the pause that ends one.
const PATIENCE: u32 = 10;

/// Changes that are not written yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst<T> {
    /// When the first change came.
    pub first: T,
    last: T,
}

impl<T: Copy + Ord + Add<Duration, Output = T>> Burst<T> {
    /// Begins a burst with a change, or adds a change to one.
    pub fn heard(before: Option<Self>, now: T) -> Self {
        Self { first: before.map_or(now, |burst| burst.first), last: now }
    }

    /// When it is over, if no change comes meanwhile.
    pub fn over(&self, pause: Duration) -> T {
        (self.last + pause).min(self.first + pause * PATIENCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Uptime;

    #[test]
    fn a_burst_is_over_after_a_pause_and_no_burst_lasts_for_ever() {
        let (begin, pause) = (Uptime::default(), Duration::from_millis(100));
        let mut burst = Burst::heard(None, begin);
        assert_eq!(burst.over(pause), begin + pause);
        for tenths in 1..=30 {
            burst = Burst::heard(Some(burst), begin + pause * tenths / 2);
        }
        assert_eq!((burst.first, burst.over(pause)), (begin, begin + pause * 10));
    }
}
