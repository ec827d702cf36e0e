//! Which texts of users may reach a template: each kind of text has a character set of its own, none of
//! which holds white space, quotes, braces, `#`, `;` or anything else that a configuration file could take
//! for the end of a word or the beginning of a directive.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The longest regular expression.
const LONGEST_REGEXP: usize = 512;
/// The largest compiled size of one: more is refused, not tried.
const REGEXP_SIZE: usize = 64 * 1024;

/// A further name of a Service: a DNS name, one of its wildcards, or, after `~`, a regular expression.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerName(Arc<str>);

/// Why a text is no name of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadName {
    /// Neither a name nor marked as a regular expression.
    #[error("is not a DNS name such as shop.example.com, nor a regular expression after ~")]
    NotAName,
    /// It has characters that may not stand in a configuration.
    #[error(
        "is not a regular expression that may be used: letters, digits, - _ . ^ $ ( ) | [ ] * + ? and \
         \\ before one of . - d w"
    )]
    NotPlain,
    /// It cannot be compiled.
    #[error("is not a regular expression that can be used")]
    NotARegexp,
}

impl ServerName {
    /// As written, with the `~` of a regular expression.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is a regular expression.
    pub fn is_regexp(&self) -> bool {
        self.0.starts_with('~')
    }

    /// What follows the `~`, or the name itself.
    pub fn regexp(&self) -> &str {
        self.0.strip_prefix('~').unwrap_or(&self.0)
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for ServerName {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        match text.strip_prefix('~') {
            Some(pattern) => {
                if !is_plain_regexp(pattern) {
                    return Err(BadName::NotPlain);
                }
                let compiled = regex::RegexBuilder::new(pattern).size_limit(REGEXP_SIZE).build();
                compiled.map_err(|_| BadName::NotARegexp)?;
            }
            None => {
                let name = text.strip_prefix("*.").unwrap_or(text);
                if !is_name(&name.to_ascii_lowercase()) {
                    return Err(BadName::NotAName);
                }
            }
        }
        Ok(Self(text.into()))
    }
}

/// A name of an object, a host or a node: lower-case labels of letters, digits and `-`.
pub fn is_name(text: &str) -> bool {
    crate::plan::is_dns_name(text)
}

/// A mode of a port: `http`, `tcp`, or a word that some template knows.
pub fn is_mode(text: &str) -> bool {
    let plain = |b: u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-');
    (1..=32).contains(&text.len()) && text.bytes().all(plain) && !text.starts_with('-')
}

/// A `$` is the end of something, never the beginning of a variable's name; a backslash makes a character
/// literal or a class, never an escape that a configuration file knows.
fn is_plain_regexp(pattern: &str) -> bool {
    let mut chars = pattern.chars().peekable();
    while let Some(char) = chars.next() {
        let next = chars.peek().copied();
        let plain = match char {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '-' | '_' | '.' | '^' => true,
            '(' | ')' | '|' | '[' | ']' | '*' | '+' | '?' => true,
            '$' => matches!(next, None | Some(')' | '|')),
            '\\' => {
                chars.next();
                matches!(next, Some('.' | '-' | 'd' | 'w'))
            }
            _ => false,
        };
        if !plain {
            return false;
        }
    }
    (1..=LONGEST_REGEXP).contains(&pattern.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_wildcards_and_regular_expressions_are_names_of_servers() {
        let read = |text: &str| {
            let name: ServerName = text.parse().expect("a name");
            (name.to_string(), name.is_regexp(), name.regexp().to_owned())
        };
        let plain = |text: &str| (text.to_owned(), false, text.to_owned());
        assert_eq!(read("Shop.example.com"), plain("Shop.example.com"));
        assert_eq!(read("*.example.com"), plain("*.example.com"));
        let pattern = r"~^(test1|test2)\.example\.(com|net)$";
        assert_eq!(read(pattern), (pattern.to_owned(), true, pattern[1..].to_owned()));
    }

    #[test]
    fn nothing_that_could_end_a_word_is_a_name() {
        let bad = [
            "",
            "~",
            "a b",
            "a\nb",
            "a;b",
            "a#b",
            "a{b",
            "a}b",
            "a\"b",
            "a'b",
            "a\\",
            "a\0b",
            "a`b",
            "~a b",
            "~a\n",
            "~a{2}",
            "~a#",
            "~a;",
            "~\\",
            "~\\n",
            "~\\x0a",
            "~a\\",
            "~$HOME",
            "~${X}",
            "~%[env(X)]",
            "~a\"",
            "~a'",
            "~é",
            "~(",
            "~[",
            "a..b",
            "-a",
            "a/b",
            "a:80",
        ];
        for text in bad {
            assert!(text.parse::<ServerName>().is_err(), "{text:?}");
        }
        assert!(!is_mode("") && !is_mode("HTTP") && !is_mode("a b") && !is_mode("-f"));
        assert!(is_mode("http") && is_mode("tcp") && is_mode("tls-pass"));
    }
}
