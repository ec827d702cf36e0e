//! The clock for the leader's turn, the election and Leases. It counts the time for which the machine is suspended,
//! which `Instant` does not on Linux: a leader that slept through its lease must see at once that the lease has
//! expired.

use bowline_core::clock::Uptime;
use nix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Reads a clock.
pub(crate) type Clock = fn() -> Duration;

/// The clock that counts suspension.
const CLOCK: ClockId = ClockId::CLOCK_BOOTTIME;

/// Time since the machine was started, suspension included. If the clock fails, every lease counts as expired.
pub(crate) fn since_boot() -> Duration {
    const NEVER: Duration = Duration::from_secs(u64::MAX / 4);
    clock_gettime(CLOCK).map_or(NEVER, Duration::from)
}

/// What this clock shows now.
pub(crate) fn now() -> Uptime {
    since_boot()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    const TOLD: &str = "BOWLINE_TEST_SAYS_CLOCK";
    const OFFSET: u64 = 100_000;

    /// A time namespace sets CLOCK_BOOTTIME ahead, as if the machine had slept, and leaves CLOCK_MONOTONIC as it is
    /// outside. So only a process that reads the right clock sees the difference.
    #[test]
    fn the_clock_of_the_election_is_the_one_that_counts_suspension() {
        let election = crate::elect::Election::new("us");
        if std::env::var_os(TOLD).is_some() {
            println!("{TOLD}={}", election.now().as_secs());
            return;
        }
        let before = election.now().as_secs();
        let this = std::env::current_exe().unwrap();
        let name = "clock::tests::the_clock_of_the_election_is_the_one_that_counts_suspension";
        // Root may create such a namespace; other users may within a user namespace, if the kernel allows these.
        let unshared = |user: &[&str]| {
            let mut unshare = Command::new("unshare");
            unshare.args(user).args(["--time", "--boottime", &OFFSET.to_string(), "--"]).arg(&this);
            unshare.args(["--exact", name, "--nocapture"]).env(TOLD, "1");
            unshare.output().ok().filter(|it| it.status.success())
        };
        let told = unshared(&[]).or_else(|| unshared(&["--user", "--map-root-user"]));
        let Some(told) = told.map(|it| String::from_utf8_lossy(&it.stdout).into_owned()) else {
            // On a machine that never slept all clocks agree, so the time itself proves nothing. The election must read
            // the clock named above, and that must be the right one.
            assert_eq!(super::CLOCK, nix::time::ClockId::CLOCK_BOOTTIME);
            let (early, now, late) = (super::since_boot(), election.now(), super::since_boot());
            assert!(early <= now && now <= late, "{early:?} {now:?} {late:?}");
            return;
        };
        let seen = told.lines().find_map(|line| line.strip_prefix(TOLD)?.strip_prefix('='));
        let seen: u64 = seen.unwrap_or_else(|| panic!("{told}")).parse().unwrap();
        assert!((OFFSET..OFFSET + 100).contains(&(seen - before)), "{before} {seen}");
    }
}
