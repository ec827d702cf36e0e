//! Output of a command that goes on afterwards. The reader of the output may be gone: that must neither
//! stop the command nor make it panic.

use std::fmt::Display;
use std::io::Write as _;

/// Prints a line to standard output.
pub(super) fn say(line: impl Display) {
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

/// Prints a line to standard error.
pub(super) fn complain(line: impl Display) {
    let _ = writeln!(std::io::stderr().lock(), "bowline: {line}");
}
