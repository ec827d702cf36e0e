//! The names of the two clocks. Nothing here reads one: the shell does, and passes the time as an argument.

use std::time::Duration;

/// Wall seconds since 1970, as `metadata.creationTimestamp` has them: for what objects record, and machines compare.
pub type Timestamp = i64;

/// Time on a clock that only grows: for everything else. The shell chooses the clock, where it matters one that counts
/// the time for which the machine is suspended (CLOCK_BOOTTIME).
pub type Uptime = Duration;
