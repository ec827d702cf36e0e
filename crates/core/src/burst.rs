//! When a burst of changes is over: once nothing has happened for a while, or, where it never ends, after
//! some times that while. Those who write files ask it; it neither sleeps nor looks at a clock.

use std::time::{Duration, Instant};

/// A burst that does not end is over all the same after so many times the pause that ends one.
const PATIENCE: u32 = 10;

/// Changes that nobody has acted on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    /// When the first was heard.
    pub first: Instant,
    last: Instant,
}

impl Burst {
    /// One change, or one more.
    pub fn heard(before: Option<Self>, now: Instant) -> Self {
        Self { first: before.map_or(now, |burst| burst.first), last: now }
    }

    /// When it is over, if nothing else is heard.
    pub fn over(&self, pause: Duration) -> Instant {
        (self.last + pause).min(self.first + pause * PATIENCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_over_after_a_pause_and_no_burst_lasts_for_ever() {
        let (begin, pause) = (Instant::now(), Duration::from_millis(100));
        let mut burst = Burst::heard(None, begin);
        assert_eq!(burst.over(pause), begin + pause);
        for tenths in 1..=30 {
            burst = Burst::heard(Some(burst), begin + pause * tenths / 2);
        }
        assert_eq!((burst.first, burst.over(pause)), (begin, begin + pause * 10));
    }
}
