//! Colours: only on a terminal, and never when NO_COLOR is set. The text is the same without them.

use super::log::coloured;
use std::fmt::Display;
use std::io::IsTerminal as _;

/// Adds colours, or none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paint(bool);

impl Paint {
    /// For standard output.
    pub(crate) fn stdout() -> Self {
        Self(coloured(std::io::stdout().is_terminal()))
    }

    /// Never adds colours.
    #[cfg(test)]
    pub(crate) const fn plain() -> Self {
        Self(false)
    }

    /// Text that the eye should find first.
    pub(crate) fn strong(self, text: impl Display) -> String {
        self.with("1", text)
    }

    /// Text that may be overlooked.
    pub(crate) fn faint(self, text: impl Display) -> String {
        self.with("2", text)
    }

    /// Text about something good.
    pub(crate) fn good(self, text: impl Display) -> String {
        self.with("32", text)
    }

    /// Text about something wrong.
    pub(crate) fn bad(self, text: impl Display) -> String {
        self.with("31", text)
    }

    fn with(self, code: &str, text: impl Display) -> String {
        if self.0 { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_stays_as_it_is_and_painted_text_ends_its_colour() {
        assert_eq!(Paint::plain().bad("no"), "no");
        assert_eq!(Paint(true).bad("no"), "\x1b[31mno\x1b[0m");
        assert!(!coloured(false));
    }
}
