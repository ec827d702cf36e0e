//! The names of the two clocks. Nothing here reads one: the shell does, and passes the time as an argument.

use std::time::Duration;

/// Wall seconds since 1970, as `metadata.creationTimestamp` has them: for what objects record, and machines compare.
pub type Timestamp = i64;

/// Time on a clock that only grows: for everything else. The shell chooses the clock, where it matters one that counts
/// the time for which the machine is suspended (CLOCK_BOOTTIME).
pub type Uptime = Duration;

/// A time to wait, as a person says it: `72 ms`, `5 s`, `2 min`.
pub fn in_words(wait: Duration) -> String {
    match (wait.as_millis(), wait.as_secs()) {
        (millis @ 0..1_000, _) => format!("{millis} ms"),
        (_, seconds @ 0..120) => format!("{seconds} s"),
        (_, seconds) => format!("{} min", seconds / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_said_in_one_unit() {
        let said = [0, 71_672, 999_999, 5_400_000, 119_900_000, 180_000_000]
            .map(|micros| in_words(Duration::from_micros(micros)));
        assert_eq!(said, ["0 ms", "71 ms", "999 ms", "5 s", "119 s", "3 min"]);
    }
}
