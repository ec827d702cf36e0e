//! Checks what may be written into HAProxy's files. Every text from outside passes one of these functions and is a
//! [`Word`] from then on; a text that does not fit is refused, never repaired. The renderer, which calls them, writes
//! only `Word`s and its own constants.

pub use crate::program::text::BadText;
use crate::program::text::check;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

/// HAProxy, as the program that reads words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Haproxy {}

/// A piece of text that HAProxy reads as one word, whatever it contains.
pub type Word = crate::program::text::Word<Haproxy>;

/// The longest name of a section.
const NAME: usize = 700;
/// The longest key of a map. HAProxy cuts lines of map files at 16 KiB.
const KEY: usize = 6_000;
/// The longest quoted text.
const EXPRESSION: usize = 1_000;

impl Word {
    /// The name of a pool as the name of a section: `/` becomes `:`, which no pool's name contains, so no two pools get
    /// the same name.
    pub fn pool(name: &str) -> Result<Self, BadText> {
        if name.starts_with('/') {
            return Err(BadText::Character);
        }
        check(name, NAME, |byte| plain(byte) || byte == b'/')?;
        Ok(Self::checked(name.replace('/', ":")))
    }

    /// The pool that a section was named after.
    pub(super) fn pool_name(&self) -> String {
        self.as_str().replace(':', "/")
    }

    /// A name made of letters, digits, `-`, `_` and `.`.
    pub fn name(name: &str) -> Result<Self, BadText> {
        check(name, NAME, plain)?;
        Ok(Self::checked(name))
    }

    /// The name of one of our own sections. It may contain colons, because addresses do.
    pub(super) fn section(name: &str) -> Result<Self, BadText> {
        check(name, NAME, |byte| plain(byte) || byte == b':')?;
        Ok(Self::checked(name))
    }

    /// A value that a condition compares with: quoted, and not the brace that ends the condition.
    pub fn pattern(text: &str) -> Result<Self, BadText> {
        if text == "}" {
            return Err(BadText::Character);
        }
        Self::quoted(text)
    }

    /// The key of a map: printable, without spaces, and not a comment.
    pub fn key(key: &str) -> Result<Self, BadText> {
        check(key, KEY, |byte| byte.is_ascii_graphic())?;
        if key.starts_with('#') {
            return Err(BadText::Character);
        }
        Ok(Self::checked(key))
    }

    /// Any printable text, in single quotes: HAProxy interprets nothing between them.
    pub fn quoted(text: &str) -> Result<Self, BadText> {
        check(text, EXPRESSION, |byte| byte.is_ascii_graphic() || byte == b' ')?;
        Ok(Self::checked(format!("'{}'", text.replace('\'', r"'\''"))))
    }

    /// A path on this machine, chosen by an administrator.
    pub fn path(path: &Path) -> Result<Self, BadText> {
        path.to_str().ok_or(BadText::Character).and_then(Self::quoted)
    }

    /// A quoted text for a place where HAProxy expands `%`.
    pub fn format(text: &str) -> Result<Self, BadText> {
        Self::quoted(&text.replace('%', "%%"))
    }

    /// An address and port as part of a name, which may not contain brackets.
    pub fn named(address: SocketAddr) -> Self {
        Self::checked(format!("{}:{}", address.ip(), address.port()))
    }
}

/// The address and port that a name was made from.
pub(super) fn unnamed(name: &str) -> Option<SocketAddr> {
    let (ip, port) = name.rsplit_once(':')?;
    Some(SocketAddr::new(ip.parse::<IpAddr>().ok()?, port.parse().ok()?))
}

fn plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
}

#[cfg(test)]
mod tests {
    use super::super::tokens::words;
    use super::*;
    use crate::samples::hostile;
    use proptest::prelude::*;

    #[test]
    fn a_section_leads_back_to_its_pool() {
        let name = "ingress/shop/web/api/8080";
        assert_eq!(Word::pool(name).expect("a name").pool_name(), name);
    }

    #[test]
    fn no_two_pools_have_one_name() {
        assert_eq!(Word::pool("service/a/b/").unwrap().as_str(), "service:a:b:");
        assert_eq!(Word::pool("a:b"), Err(BadText::Character));
    }

    #[test]
    fn a_member_is_found_by_its_name() {
        for text in ["10.0.0.1:80", "[fd00::1:80]:8080", "[::]:1"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(unnamed(Word::named(address).as_str()), Some(address));
        }
        for bad in ["", ":", "a:1", "10.0.0.1", "10.0.0.1:x", "10.0.0.1:70000"] {
            assert_eq!(unnamed(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_taken_is_read_as_one_word_of_the_same_text(text in hostile(), name in hostile()) {
            let line = |word: &Word| format!("before {word} after\n");
            if let Ok(word) = Word::quoted(&text) {
                prop_assert_eq!(words(&line(&word)), vec![vec!["before", text.as_str(), "after"]]);
            }
            if let Ok(word) = Word::format(&text) {
                let doubled = text.replace('%', "%%");
                prop_assert_eq!(words(&line(&word)), vec![vec!["before", doubled.as_str(), "after"]]);
            }
            for word in [Word::name(&name), Word::pool(&name)].into_iter().flatten() {
                prop_assert_eq!(words(&line(&word)), vec![vec!["before", word.as_str(), "after"]]);
            }
            if let Ok(word) = Word::key(&name) {
                let file = format!("{word} value\n");
                prop_assert_eq!(super::super::tokens::map_lines(&file), vec![(name.as_str(), "value")]);
            }
        }

        #[test]
        fn no_control_character_is_ever_taken(text in ".{0,8}[\\x00-\\x1f\\x7f].{0,8}") {
            let all = [Word::quoted(&text), Word::format(&text), Word::key(&text), Word::name(&text)];
            prop_assert!(all.iter().all(Result::is_err), "{:?}", all);
        }
    }
}
