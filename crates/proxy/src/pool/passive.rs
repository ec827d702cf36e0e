//! Passive health: what the failures of real traffic say about one member. It only counts and
//! measures; the pool decides whether to eject the member.

use std::time::Duration;
use tokio::time::Instant;

/// This many failures in a row, within [`WINDOW`], eject a member.
const LIMIT: u32 = 3;
const WINDOW: Duration = Duration::from_secs(10);
/// The first ejection time; each further one is twice as long.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);
/// A member that was not ejected for this long starts again with the shortest time.
const FORGIVEN: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct Passive {
    failures: u32,
    first: Option<Instant>,
    out: bool,
    times: u32,
    back: Option<Instant>,
}

impl Passive {
    pub(super) fn is_out(&self) -> bool {
        self.out
    }

    /// Counts a failure; returns whether the member should be ejected.
    pub(super) fn failed(&mut self, now: Instant) -> bool {
        let recent = self.first.is_some_and(|first| now.duration_since(first) <= WINDOW);
        if !recent {
            self.failures = 0;
            self.first = Some(now);
        }
        self.failures += 1;
        !self.out && self.failures >= LIMIT
    }

    pub(super) fn succeeded(&mut self) {
        self.failures = 0;
        self.first = None;
    }

    /// Ejects the member; returns for how long at least.
    pub(super) fn put_out(&mut self, now: Instant) -> Duration {
        if self.back.is_none_or(|back| now.duration_since(back) >= FORGIVEN) {
            self.times = 0;
        }
        self.out = true;
        let time = SHORTEST.saturating_mul(1 << self.times.min(16)).min(LONGEST);
        self.times += 1;
        time
    }

    pub(super) fn let_in(&mut self, now: Instant) {
        self.out = false;
        self.back = Some(now);
        self.succeeded();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_failures_in_a_row_within_the_window_are_the_limit() {
        let (mut passive, start) = (Passive::default(), Instant::now());
        assert_eq!([0, 1, 2].map(|s| passive.failed(start + secs(s))), [false, false, true]);
    }

    #[test]
    fn a_success_or_a_quiet_window_starts_the_count_again() {
        let (mut passive, start) = (Passive::default(), Instant::now());
        passive.failed(start);
        passive.failed(start);
        passive.succeeded();
        assert!(!passive.failed(start));
        assert!(!passive.failed(start));
        assert!(!passive.failed(start + secs(11)));
    }

    #[test]
    fn time_out_grows_to_its_longest_and_is_forgiven_after_a_good_minute() {
        let (mut passive, mut now) = (Passive::default(), Instant::now());
        let mut times = Vec::new();
        for _ in 0..7 {
            times.push(passive.put_out(now).as_secs());
            passive.let_in(now);
        }
        now += FORGIVEN;
        times.push(passive.put_out(now).as_secs());
        assert_eq!(times, [1, 2, 4, 8, 16, 30, 30, 1]);
    }

    fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }
}
