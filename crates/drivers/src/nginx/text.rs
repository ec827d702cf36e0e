//! Checks what may be written into nginx's file. Every text from outside passes one of these functions and is a
//! [`Word`] from then on; a text that does not fit is refused, never repaired. The renderer, which calls them, writes
//! only `Word`s, numbers and its own constants.

pub use crate::program::text::BadText;
use crate::program::text::check;
use std::path::Path;

/// nginx, as the program that reads words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Nginx {}

/// A piece of text that nginx reads as one word, whatever it contains.
pub type Word = crate::program::text::Word<Nginx>;

/// The longest name of an upstream.
const NAME: usize = 700;
/// The longest name of a host.
const HOST: usize = 253;
/// The longest word with its quotation marks. nginx reads files in blocks of 4096 bytes, and a word must fit into one
/// block.
const LONGEST: usize = 3_800;

/// The variable with a dollar sign: nginx has no escape for it.
pub(super) const DOLLAR: &str = "${bowline_dollar}";

impl Word {
    /// The name of a pool as the name of an upstream: `/` becomes `_`, which no pool's name contains, so no two pools
    /// get the same name.
    pub fn pool(name: &str) -> Result<Self, BadText> {
        if name.starts_with('/') {
            return Err(BadText::Character);
        }
        // nginx ignores the case of upstream names.
        check(name, NAME, |byte| lower(byte) || byte == b'/')?;
        Ok(Self::checked(name.replace('/', "_")))
    }

    /// The name of a host: letters, digits, `-` and `.`. With a leading dot it would mean several hosts to nginx.
    pub fn host(name: &str) -> Result<Self, BadText> {
        check(name, HOST, lower)?;
        if name.split('.').any(str::is_empty) {
            return Err(BadText::Character);
        }
        Ok(Self::checked(name))
    }

    /// A regular expression of this kind for all names one label below a domain.
    pub fn below(kind: &str, domain: &str) -> Result<Self, BadText> {
        let domain = Self::host(domain)?.as_str().replace('.', r"\.");
        Self::quoted(&format!(r"{kind}^[^.]+\.{domain}$"))
    }

    /// The path of a location. nginx compares it with the request's path after unescaping that.
    pub fn location(path: &str) -> Result<Self, BadText> {
        if !path.starts_with('/') {
            return Err(BadText::Character);
        }
        Self::quoted(path)
    }

    /// Any printable text, for a place where nginx expands no variables.
    pub fn quoted(text: &str) -> Result<Self, BadText> {
        check(text, LONGEST, |byte| byte.is_ascii_graphic() || byte == b' ')?;
        let text = format!("\"{}\"", text.replace('\\', r"\\").replace('"', "\\\""));
        if text.len() > LONGEST { Err(BadText::TooLong) } else { Ok(Self::checked(text)) }
    }

    /// Part of a quoted text in which nginx expands variables, without the quotation marks. A variable stands for a
    /// dollar sign.
    pub fn literal(text: &str) -> Result<Self, BadText> {
        check(text, LONGEST, |byte| byte.is_ascii_graphic())?;
        let text = text.replace('\\', r"\\").replace('"', "\\\"").replace('$', DOLLAR);
        if text.len() > LONGEST { Err(BadText::TooLong) } else { Ok(Self::checked(text)) }
    }

    /// A host or address as in a URL.
    pub fn authority(host: &str) -> Result<Self, BadText> {
        check(host, HOST, |byte| {
            byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b':' | b'[' | b']')
        })?;
        Ok(Self::checked(host))
    }

    /// A path on this machine, chosen by an administrator, after the text `before`. nginx expands no variables here,
    /// and a path with a dollar sign is refused.
    pub fn path(before: &str, path: &Path) -> Result<Self, BadText> {
        let path = path.to_str().filter(|path| !path.contains('$')).ok_or(BadText::Character)?;
        Self::quoted(&format!("{before}{path}"))
    }
}

/// The path of a rule without escapes, as nginx unescapes the paths of requests. None if an escape is malformed.
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
