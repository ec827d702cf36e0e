//! The two clocks. Wall seconds ([`Timestamp`]) are for what is recorded in objects and compared between machines.
//! Everything else is measured by [`Uptime`], which only grows and counts the time for which the machine is suspended.
//! Nothing here reads a clock: the shell does, and passes the time as an argument.

use std::ops::Add;
use std::time::Duration;

/// Seconds since 1970, as `metadata.creationTimestamp` has them.
pub type Timestamp = i64;

/// Time since the machine booted, suspension included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uptime(Duration);

impl Uptime {
    /// So long after the machine booted.
    pub const fn new(since_boot: Duration) -> Self {
        Self(since_boot)
    }

    /// The time that has passed since an earlier moment; none, where that is later.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Uptime {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        Self(self.0.saturating_add(time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_time_has_passed_since_a_later_moment_and_none_is_beyond_the_last() {
        let second = Duration::from_secs(1);
        let (early, late) = (Uptime::new(second), Uptime::new(second) + second);
        assert_eq!((late.since(early), early.since(late)), (second, Duration::ZERO));
        assert_eq!(late + Duration::MAX, Uptime::new(Duration::MAX));
    }
}
