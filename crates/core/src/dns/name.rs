//! Parses names that can be looked up, from what users write, and the domains that limit them. A
//! text that is no name is refused with the reason and what to write instead; nothing is guessed,
//! and no search list applies.
//!
//! Underscores are accepted although host names have none: the DNS has such names, the resolvers of
//! glibc and Go look them up, and we only ask.

use crate::outcome::quote;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

/// The longest name in text, without the dot at its end.
const LONGEST_NAME: usize = 253;
const LONGEST_LABEL: usize = 63;

/// A name that can be looked up: fully qualified, in lower case, without the dot at its end. Names that
/// differ only in case or in that dot are equal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

/// A domain that names may be under; unlike a [`Name`] it may be a single label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Domain(Arc<str>);

/// A text that is no name, quoted, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{quoted} {why}")]
pub struct BadName {
    /// The text as it may stand in a message.
    pub quoted: String,
    /// Why.
    pub why: Why,
}

/// Why a text is no name to look up, and what to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// There is nothing.
    #[error("is empty; write a name such as shop.example.com, or leave it out")]
    Empty,
    /// Several values.
    #[error("is more than one name; write one")]
    Several,
    /// White space or control characters.
    #[error("has white space or control characters; write the name alone")]
    Blank,
    /// An address, or what could be mistaken for one.
    #[error("is an address and not a name; ask for an address as such")]
    Address,
    /// A wildcard.
    #[error("is a wildcard, which cannot be looked up; write one name")]
    Wildcard,
    /// Letters outside of ASCII.
    #[error("has letters beyond a to z; write the xn-- form of the name")]
    NotAscii,
    /// A character that no name has.
    #[error("has {0:?}, which no DNS name may have; use letters, digits, '-', '_' and '.'")]
    Character(char),
    /// Two dots in a row, or one at the beginning.
    #[error("has an empty part: a dot at the beginning, or two in a row")]
    EmptyLabel,
    /// A label begins or ends with a hyphen.
    #[error("has a part that begins or ends with '-'")]
    Hyphen,
    /// A label that is too long.
    #[error("has a part of more than {LONGEST_LABEL} characters")]
    LongLabel,
    /// The name is too long.
    #[error("is longer than {LONGEST_NAME} characters")]
    Long,
    /// A single label.
    #[error(
        "is not fully qualified, and no search list is used; write it whole, such as shop.example.com"
    )]
    Unqualified,
}

impl Name {
    /// The name, without a dot at its end.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name as it is to be looked up: with the dot at its end no search list applies.
    pub fn fully_qualified(&self) -> String {
        format!("{}.", self.0)
    }

    /// Whether it is that domain or a name below it.
    pub fn is_under(&self, domain: &Domain) -> bool {
        is_under(&self.0, &domain.0)
    }
}

/// Whether a name is a domain or below it; both in lower case and without a dot at the end.
pub(crate) fn is_under(name: &str, domain: &str) -> bool {
    name.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

impl FromStr for Name {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        let whole = |name: Arc<str>| name.contains('.').then_some(name).ok_or(Why::Unqualified);
        read(text).and_then(whole).map(Self).map_err(|why| BadName { quoted: quote(text), why })
    }
}

impl FromStr for Domain {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        read(text).map(Self).map_err(|why| BadName { quoted: quote(text), why })
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Parses labels into lower case, without the dot at the end. Of several mistakes the most telling
/// one is reported.
fn read(text: &str) -> Result<Arc<str>, Why> {
    let bare = text.trim();
    if bare.is_empty() {
        return Err(Why::Empty);
    }
    if bare.contains([',', ';']) || bare.split_whitespace().nth(1).is_some() {
        return Err(Why::Several);
    }
    if text.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err(Why::Blank);
    }
    if is_address(text) {
        return Err(Why::Address);
    }
    if text.contains('*') {
        return Err(Why::Wildcard);
    }
    if !text.is_ascii() {
        return Err(Why::NotAscii);
    }
    let strange = |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    if let Some(strange) = text.chars().find(|c| strange(*c)) {
        return Err(Why::Character(strange));
    }
    let name = text.strip_suffix('.').unwrap_or(text);
    if name.len() > LONGEST_NAME {
        return Err(Why::Long);
    }
    for label in name.split('.') {
        match label.len() {
            0 => return Err(Why::EmptyLabel),
            long if long > LONGEST_LABEL => return Err(Why::LongLabel),
            _ if label.starts_with('-') || label.ends_with('-') => return Err(Why::Hyphen),
            _ => {}
        }
    }
    Ok(name.to_ascii_lowercase().into())
}

/// An address, also one in brackets, and names that end in a number: no top-level domain does, and
/// some programs read such names as IPv4 addresses.
fn is_address(text: &str) -> bool {
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    let last = text.trim_end_matches('.').rsplit('.').next().unwrap_or_default();
    let number = !last.is_empty() && last.bytes().all(|b| b.is_ascii_digit());
    bare.parse::<IpAddr>().is_ok() || number
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(text: &str) -> Name {
        text.parse().expect(text)
    }

    fn why(text: &str) -> Why {
        text.parse::<Name>().expect_err(text).why
    }

    #[test]
    fn names_that_differ_in_case_or_in_the_last_dot_are_one() {
        assert_eq!(name("Shop.Example.COM."), name("shop.example.com"));
        assert_eq!(name("Shop.Example.COM.").to_string(), "shop.example.com");
        assert_eq!(name("shop.example.com").fully_qualified(), "shop.example.com.");
    }

    #[test]
    fn a_name_has_letters_digits_hyphens_and_underscores() {
        for good in ["a.b", "1.example", "xn--bcher-kva.example", "a-b.c--d", "_x.my_host.example"]
        {
            assert_eq!(name(good).as_str(), good);
        }
    }

    #[test]
    fn what_is_no_name_is_refused_by_its_reason() {
        let cases = [
            ("", Why::Empty),
            (" \n", Why::Empty),
            ("a.example,b.example", Why::Several),
            ("a.example, b.example", Why::Several),
            ("a.example b.example", Why::Several),
            ("a.example\nb.example", Why::Several),
            ("a.example\n", Why::Blank),
            (" a.example", Why::Blank),
            ("a\0.example", Why::Blank),
            ("a\u{7f}.example", Why::Blank),
            ("192.0.2.1", Why::Address),
            ("192.0.2.1.", Why::Address),
            ("192.0.2.999", Why::Address),
            ("2001:db8::1", Why::Address),
            ("[2001:db8::1]", Why::Address),
            ("*.example.com", Why::Wildcard),
            ("bücher.example", Why::NotAscii),
            ("аpple.example", Why::NotAscii),
            ("a.example:53", Why::Character(':')),
            ("https://a.example", Why::Character(':')),
            ("a.example/24", Why::Character('/')),
            ("a\\.example", Why::Character('\\')),
            (".example.com", Why::EmptyLabel),
            ("a..example", Why::EmptyLabel),
            ("a.example..", Why::EmptyLabel),
            (".", Why::EmptyLabel),
            ("-a.example", Why::Hyphen),
            ("a-.example", Why::Hyphen),
            ("shop", Why::Unqualified),
            ("shop.", Why::Unqualified),
            ("localhost", Why::Unqualified),
        ];
        for (text, expected) in cases {
            assert_eq!(why(text), expected, "{text:?}");
        }
    }

    #[test]
    fn labels_have_63_characters_and_names_253() {
        let label = "a".repeat(63);
        let longest = format!("{label}.{label}.{label}.{}", "a".repeat(61));
        assert_eq!(longest.len(), 253);
        assert_eq!(name(&format!("{longest}.")).as_str(), longest);
        assert_eq!(why(&format!("a{longest}")), Why::Long);
        assert_eq!(why(&format!("{label}a.example")), Why::LongLabel);
        assert_eq!(why(&"a.".repeat(10_000)), Why::Long);
    }

    #[test]
    fn an_error_quotes_the_value_on_one_line_and_says_what_to_write() {
        let error = |text: &str| text.parse::<Name>().unwrap_err().to_string();
        assert_eq!(
            error("bücher.example"),
            "\"bücher.example\" has letters beyond a to z; write the xn-- form of the name"
        );
        assert_eq!(
            error("a\u{1b}.example"),
            "\"a\\u{1b}.example\" has white space or control characters; write the name alone"
        );
        assert_eq!(
            error(&"x".repeat(300)),
            format!("\"{}\"… is longer than 253 characters", "x".repeat(100))
        );
    }

    #[test]
    fn a_domain_holds_itself_and_the_names_below_it() {
        let under =
            |name: &str, domain: &str| self::name(name).is_under(&domain.parse().expect(domain));
        assert!(under("example.com", "example.com"));
        assert!(under("a.b.Example.com", "EXAMPLE.com."));
        assert!(under("a.corp", "corp"));
        assert!(!under("badexample.com", "example.com"));
        assert!(!under("example.com", "a.example.com"));
        assert!(!under("example.com.evil.test", "example.com"));
        assert_eq!("*.example.com".parse::<Domain>().unwrap_err().why, Why::Wildcard);
    }

    proptest! {
        #[test]
        fn whatever_is_read_is_safe_to_look_up_and_reads_back(text in "\\PC{0,20}(\\.[A-Za-z0-9_-]{1,20}){0,3}\\.?") {
            if let Ok(name) = text.parse::<Name>() {
                prop_assert_eq!(&name.to_string().parse::<Name>(), &Ok(name.clone()));
                let safe = |b: u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.');
                prop_assert!(name.as_str().bytes().all(safe));
                prop_assert!(name.as_str().parse::<IpAddr>().is_err());
            }
        }

        #[test]
        fn no_text_makes_the_reader_fail_otherwise_than_by_a_short_error(text: String) {
            if let Err(error) = text.parse::<Name>() {
                prop_assert!(error.quoted.chars().count() <= 1_100);
                prop_assert!(!error.to_string().contains(char::is_control));
            }
        }
    }
}
