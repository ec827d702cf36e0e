//! How long to wait before trying again: longer each time up to a limit, and with a random part, so
//! that clients do not all retry at once. Watches, writers and drivers call it; it neither sleeps
//! nor draws random numbers.

use std::time::Duration;

/// Counts failures in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    failures: u32,
}

impl Backoff {
    /// Waits about `first` after the first failure and never more than `longest`.
    pub fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, failures: 0 }
    }

    /// Counts a failure and says how long to wait, given a random number. Between half and all of
    /// the full delay, so that clients that failed together do not come again together.
    pub fn failed(&mut self, random: u32) -> Duration {
        let full = self.first.saturating_mul(1 << self.failures.min(20)).min(self.longest);
        self.failures = self.failures.saturating_add(1);
        let share = f64::from(random) / f64::from(u32::MAX);
        full.mul_f64(0.5 + share / 2.0)
    }

    /// Notes a success: the next failure is a first one.
    pub fn worked(&mut self) {
        self.failures = 0;
    }

    /// How often it failed since it last worked.
    pub fn failures(&self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FIRST: Duration = Duration::from_millis(100);
    const LONGEST: Duration = Duration::from_secs(30);

    #[test]
    fn delays_double_up_to_the_limit_and_start_anew_after_success() {
        let mut backoff = Backoff::new(FIRST, LONGEST);
        let delays: Vec<_> = (0..10).map(|_| backoff.failed(u32::MAX).as_millis()).collect();
        assert_eq!(delays, [100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000]);
        backoff.worked();
        assert_eq!(backoff.failed(u32::MAX), FIRST);
    }

    proptest! {
        #[test]
        fn a_delay_lies_between_half_and_all_of_the_full_one(failures in 0u32..100, random: u32) {
            let mut backoff = Backoff { first: FIRST, longest: LONGEST, failures };
            let mut full = backoff.clone();
            let (delay, full) = (backoff.failed(random), full.failed(u32::MAX));
            prop_assert!(full / 2 <= delay && delay <= full, "{delay:?} {full:?}");
        }
    }
}
