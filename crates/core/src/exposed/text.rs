//! Which texts of users may reach a template: each kind of text has a character set of its own, none of
//! which holds white space, quotes, braces, `#`, `;` or anything else that a configuration file could take
//! for the end of a word or the beginning of a directive.

use crate::expression::{Slow, is_linear};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The longest regular expression.
const LONGEST_REGEXP: usize = 512;
/// The largest compiled size of one: more is refused, not tried.
const REGEXP_SIZE: usize = 64 * 1024;

/// A further name of a Service: a DNS name, a wildcard such as `*.example.com`, or, after `~`, a regular expression.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerName(Arc<str>);

/// Why a text is no server name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadName {
    /// Neither a name nor marked as a regular expression.
    #[error("is not a DNS name such as shop.example.com, nor a regular expression after ~")]
    NotAName,
    /// It has characters that may not stand in a configuration.
    #[error(
        "is not a regular expression that may be used: letters, digits, - _ . ^ $ ( ) (?: | [ ] * + ? and \
         \\ before one of . - d w; no - at its beginning, one repetition at a time, and in [ ] letters, \
         digits, _ . and ranges such as a-z only"
    )]
    NotPlain,
    /// It cannot be compiled.
    #[error("is not a regular expression that can be used")]
    NotARegexp,
    /// The proxy might take long to match it.
    #[error(transparent)]
    Slow(#[from] Slow),
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
                is_linear(pattern)?;
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

/// Whether every engine that a proxy may be built with reads the pattern alike. A `$` is the end of something, never
/// the beginning of a variable's name; a backslash makes a character literal or a class, never an escape that a
/// configuration file knows; a `-` at the beginning would be an option.
fn is_plain_regexp(pattern: &str) -> bool {
    let bytes = pattern.as_bytes();
    let fits = (1..=LONGEST_REGEXP).contains(&bytes.len()) && !pattern.starts_with('-');
    fits && regexp(bytes).is_some()
}

fn regexp(mut rest: &[u8]) -> Option<()> {
    let mut repeatable = false;
    while let [first, after @ ..] = rest {
        rest = after;
        repeatable = match (first, rest) {
            (b'*' | b'+' | b'?', _) if repeatable => false,
            (b'(', [b'?', b':', inner @ ..]) => {
                rest = inner;
                false
            }
            (b'(' | b'|' | b'^', _) | (b'$', [] | [b')' | b'|', ..]) => false,
            (b'\\', [b'.' | b'-' | b'd' | b'w', after @ ..]) => {
                rest = after;
                true
            }
            (b'[', _) => {
                rest = class(rest)?;
                true
            }
            (b')' | b'.' | b'-' | b'_', _) => true,
            (letter, _) if letter.is_ascii_alphanumeric() => true,
            _ => return None,
        };
    }
    Some(())
}

/// The text behind a class. A class may have letters, digits, `_`, `.`, ranges of letters or digits, the escapes of a
/// pattern, and `-` at its end: engines differ in how they read anything else.
fn class(rest: &[u8]) -> Option<&[u8]> {
    let mut rest = rest.strip_prefix(b"^").unwrap_or(rest);
    let mut empty = true;
    loop {
        rest = match rest {
            [b']', after @ ..] if !empty => return Some(after),
            [b'-', b']', after @ ..] => return Some(after),
            [b'\\', b'.' | b'-' | b'd' | b'w', b'-', next, ..] if *next != b']' => return None,
            [b'\\', b'.' | b'-' | b'd' | b'w', after @ ..] => after,
            [first, b'-', last, after @ ..] if *last != b']' => {
                let same = first.is_ascii_digit() && last.is_ascii_digit()
                    || first.is_ascii_lowercase() && last.is_ascii_lowercase()
                    || first.is_ascii_uppercase() && last.is_ascii_uppercase();
                same.then_some(after)?
            }
            [b'_' | b'.', after @ ..] => after,
            [letter, after @ ..] if letter.is_ascii_alphanumeric() => after,
            _ => return None,
        };
        empty = false;
    }
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
        let patterns = [
            r"~^(test1|test2)\.example\.(com|net)$",
            r"~^(?:[a-z0-9-]+\.)?shop-\d+\.example$",
            r"~^[^a-z_.]*[\w\-.-]\.example$",
        ];
        for pattern in patterns {
            assert_eq!(read(pattern), (pattern.to_owned(), true, pattern[1..].to_owned()));
        }
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
            "~-i",
            "~-f",
            "~a++",
            "~a**",
            "~a+?",
            "~*a",
            "~^*",
            "~(?i)a",
            "~(?=a)",
            "~(?P<x>a)",
            "~[a-\\d]",
            "~[\\d-z]",
            "~[a--b]",
            "~[z-a]",
            "~[[a]]",
            "~[]a]",
            "~[]",
            "~a]",
            "a..b",
            "-a",
            "a/b",
            "a:80",
            "~^(a+)+$",
            "~^a*a*a*a*b$",
            "~[a-z]+.example",
        ];
        for text in bad {
            assert!(text.parse::<ServerName>().is_err(), "{text:?}");
        }
        assert!(!is_mode("") && !is_mode("HTTP") && !is_mode("a b") && !is_mode("-f"));
        assert!(is_mode("http") && is_mode("tcp") && is_mode("tls-pass"));
    }
}
