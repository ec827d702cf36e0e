//! What may be written into nginx's file. Everything that comes from outside passes one of these functions
//! and is a [`Word`] from then on; what does not fit is refused, never repaired. The renderer writes
//! nothing that is neither a `Word`, a number, nor a constant of its own.

pub use crate::program::text::BadText;
use crate::program::text::check;
use std::path::Path;

/// nginx, as the program that reads words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Nginx {}

/// A piece of text that nginx reads as one word, whatever was put into it.
pub type Word = crate::program::text::Word<Nginx>;

/// The longest name of an upstream.
const NAME: usize = 700;
/// The longest name of a host.
const HOST: usize = 253;
/// The longest word with its quotation marks. nginx reads files in pieces of 4096 bytes, and a word must
/// fit into one.
const LONGEST: usize = 3_800;

/// The variable that stands for a dollar sign, for which nginx has no other way.
pub(super) const DOLLAR: &str = "${bowline_dollar}";

impl Word {
    /// The name of a pool as the name of an upstream: `/` becomes `_`, which no name of a pool has, so that
    /// no two pools get one name.
    pub fn pool(name: &str) -> Result<Self, BadText> {
        if name.starts_with('/') {
            return Err(BadText::Character);
        }
        // nginx compares names of upstreams without case.
        check(name, NAME, |byte| lower(byte) || byte == b'/')?;
        Ok(Self::checked(name.replace('/', "_")))
    }

    /// The name of a host: of letters, digits, `-` and `.`. With a dot at its beginning it would be more than
    /// one host to nginx.
    pub fn host(name: &str) -> Result<Self, BadText> {
        check(name, HOST, lower)?;
        if name.split('.').any(str::is_empty) {
            return Err(BadText::Character);
        }
        Ok(Self::checked(name))
    }

    /// An expression of this kind for the names that are one label below a domain.
    pub fn below(kind: &str, domain: &str) -> Result<Self, BadText> {
        let domain = Self::host(domain)?.as_str().replace('.', r"\.");
        Self::quoted(&format!(r"{kind}^[^.]+\.{domain}$"))
    }

    /// A path of requests as nginx compares it: with escapes undone.
    pub fn location(path: &str) -> Result<Self, BadText> {
        if !path.starts_with('/') {
            return Err(BadText::Character);
        }
        Self::quoted(path)
    }

    /// Any printable text where nginx reads nothing into it but quotation marks.
    pub fn quoted(text: &str) -> Result<Self, BadText> {
        check(text, LONGEST, |byte| byte.is_ascii_graphic() || byte == b' ')?;
        let text = format!("\"{}\"", text.replace('\\', r"\\").replace('"', "\\\""));
        if text.len() > LONGEST { Err(BadText::TooLong) } else { Ok(Self::checked(text)) }
    }

    /// Part of a text in which nginx replaces variables: without quotation marks around it, for a place between
    /// some. A dollar sign is written by a variable of its own.
    pub fn literal(text: &str) -> Result<Self, BadText> {
        check(text, LONGEST, |byte| byte.is_ascii_graphic())?;
        let text = text.replace('\\', r"\\").replace('"', "\\\"").replace('$', DOLLAR);
        if text.len() > LONGEST { Err(BadText::TooLong) } else { Ok(Self::checked(text)) }
    }

    /// A host as it stands in a URL, also an address.
    pub fn authority(host: &str) -> Result<Self, BadText> {
        check(host, HOST, |byte| {
            byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b':' | b'[' | b']')
        })?;
        Ok(Self::checked(host))
    }

    /// A path of this machine, which an administrator chose, with this before it. Variables are not known
    /// there, and must not be: a path with a dollar sign is refused.
    pub fn path(before: &str, path: &Path) -> Result<Self, BadText> {
        let path = path.to_str().filter(|path| !path.contains('$')).ok_or(BadText::Character)?;
        Self::quoted(&format!("{before}{path}"))
    }
}

/// A path of a rule with its escapes undone, as nginx undoes those of requests; nothing if one is none.
pub fn unescaped(path: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let [high, low, after @ ..] = after else { return None };
        let digit = |byte: u8| char::from(byte).to_digit(16);
        bytes.push(u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()?);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}

fn lower(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.')
}

#[cfg(test)]
mod tests {
    use super::super::tokens::{Token, tokens};
    use super::*;
    use crate::samples::hostile;
    use proptest::prelude::*;

    #[test]
    fn no_two_pools_have_one_name() {
        assert_eq!(Word::pool("service/a/b/").unwrap().as_str(), "service_a_b_");
        for bad in ["a_b", "A", "/a", "", "a b", "a:b"] {
            assert_eq!(Word::pool(bad), Err(BadText::Character), "{bad}");
        }
    }

    #[test]
    fn a_host_is_one_host() {
        assert!(Word::host("a.example").is_ok());
        for bad in [".example", "a..example", "a.example.", "", "*.example", "~a"] {
            assert_eq!(Word::host(bad), Err(BadText::Character), "{bad}");
        }
    }

    #[test]
    fn escapes_of_a_rule_are_undone_as_those_of_a_request_are() {
        assert_eq!(unescaped("/a%20b%2Fc").as_deref(), Some("/a b/c"));
        assert_eq!(unescaped("/a"), Some("/a".to_owned()));
        for bad in ["/%", "/%2", "/%zz", "/%ff"] {
            assert_eq!(unescaped(bad), None, "{bad}");
        }
    }

    fn words(text: &str) -> Vec<Token> {
        vec![
            Token::Word("before".into()),
            Token::Word(text.into()),
            Token::Word("after".into()),
            Token::End,
        ]
    }

    proptest! {
        #[test]
        fn whatever_is_taken_is_read_as_one_word_of_the_same_text(text in hostile()) {
            let read = |word: &Word| tokens(&format!("before {word} after;\n"));
            for word in [Word::quoted(&text), Word::location(&text)].into_iter().flatten() {
                prop_assert_eq!(read(&word), Ok(words(&text)));
            }
            if let Ok(word) = Word::literal(&text) {
                let read = tokens(&format!("before \"x{word}y\" after;\n"));
                prop_assert_eq!(read, Ok(words(&format!("x{}y", text.replace('$', DOLLAR)))));
            }
            for word in [Word::pool(&text), Word::host(&text), Word::authority(&text)].into_iter().flatten() {
                prop_assert_eq!(read(&word), Ok(words(word.as_str())));
            }
            if let Ok(word) = Word::path("unix:", Path::new(&text)) {
                prop_assert_eq!(read(&word), Ok(words(&format!("unix:{text}"))));
            }
        }

        #[test]
        fn no_control_character_is_ever_taken(text in ".{0,8}[\\x00-\\x1f\\x7f].{0,8}") {
            let all = [
                Word::quoted(&text), Word::literal(&text), Word::location(&format!("/{text}")),
                Word::pool(&text), Word::host(&text), Word::authority(&text), Word::path("", Path::new(&text)),
            ];
            prop_assert!(all.iter().all(Result::is_err), "{:?}", all);
        }
    }
}
