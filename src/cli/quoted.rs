//! Paths in commands that are printed for a shell.

/// A path, quoted where a shell needs it.
pub(crate) fn quoted(path: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@:".contains(c);
    if path.chars().all(plain) {
        path.to_owned()
    } else {
        format!("'{}'", path.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_with_spaces_and_quotes_survives_the_shell() {
        assert_eq!(quoted("/tmp/a-b.c"), "/tmp/a-b.c");
        assert_eq!(quoted("/tmp/it's me"), r"'/tmp/it'\''s me'");
    }
}
