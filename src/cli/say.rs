//! What a command prints while it goes on. Who reads it may go away: that is no reason to stop, let alone
//! to panic.

use std::fmt::Display;
use std::io::Write as _;

/// A line to standard output.
pub(super) fn say(line: impl Display) {
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

/// A line to standard error.
pub(super) fn complain(line: impl Display) {
    let _ = writeln!(std::io::stderr().lock(), "bowline: {line}");
}
