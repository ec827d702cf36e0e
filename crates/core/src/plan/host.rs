//! The host of a site: any, one name, the names one label below a domain, or a regular expression.
//! It parses and prints hosts and matches no request; the API conversion and everything that reads
//! Plans use it.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The hosts of a site. The order is the order in which sites are tried.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    /// This name, in lower case.
    Exact(Arc<str>),
    /// Names with exactly one label before this domain.
    Wildcard(Arc<str>),
    /// Names that this regular expression matches from their beginning to their end.
    Regex(Arc<str>),
    /// Every name, and requests without one.
    Any,
}

/// Why a text is not a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadHost {
    /// Neither a DNS name nor a wildcard.
    #[error("is not a DNS name such as shop.example.com or *.example.com")]
    NotAName,
    /// The regular expression cannot be read or is too large.
    #[error("is not a regular expression that can be used")]
    NotARegex,
}

/// The largest compiled size of a user's regular expression; a larger one is refused.
const REGEX_SIZE: usize = 64 * 1024;

impl FromStr for Host {
    type Err = BadHost;

    fn from_str(text: &str) -> Result<Self, BadHost> {
        if text.is_empty() || text == "*" {
            return Ok(Self::Any);
        }
        if let Some(pattern) = text.strip_prefix('~') {
            return regex::RegexBuilder::new(pattern)
                .size_limit(REGEX_SIZE)
                .build()
                .map(|_| Self::Regex(pattern.into()))
                .map_err(|_| BadHost::NotARegex);
        }
        let lower = text.to_ascii_lowercase();
        match lower.strip_prefix("*.") {
            Some(domain) if is_dns_name(domain) => Ok(Self::Wildcard(domain.into())),
            None if is_dns_name(&lower) => Ok(Self::Exact(lower.into())),
            _ => Err(BadHost::NotAName),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Exact(name) => f.write_str(name),
            Self::Wildcard(domain) => write!(f, "*.{domain}"),
            Self::Regex(pattern) => write!(f, "~{pattern}"),
        }
    }
}

impl Serialize for Host {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Host {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|bad| D::Error::custom(format!("{text:?} {bad}")))
    }
}

/// A DNS-1123 subdomain, in lower case.
pub(crate) fn is_dns_name(text: &str) -> bool {
    let label = |label: &str| {
        let bytes = label.as_bytes();
        !bytes.is_empty()
            && bytes.len() <= 63
            && bytes.iter().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-'))
            && bytes.first() != Some(&b'-')
            && bytes.last() != Some(&b'-')
    };
    text.len() <= 253 && text.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_host_is_a_name_a_wildcard_a_regular_expression_or_any() {
        assert_eq!("".parse(), Ok(Host::Any));
        assert_eq!("Shop.Example".parse(), Ok(Host::Exact("shop.example".into())));
        assert_eq!("*.shop.example".parse(), Ok(Host::Wildcard("shop.example".into())));
        assert_eq!("~^a+$".parse(), Ok(Host::Regex("^a+$".into())));
        for bad in ["a b", "a\n", "a;b", "{", "-a", "a..b", ".", "*.", "*", "**.a", "a.*", "*a.b"] {
            let read = bad.parse::<Host>();
            assert!(bad == "*" || read == Err(BadHost::NotAName), "{bad:?} {read:?}");
        }
        assert_eq!("~(".parse::<Host>(), Err(BadHost::NotARegex));
        assert_eq!("~((a{100}){100}){100}".parse::<Host>(), Err(BadHost::NotARegex));
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_back(text in "\\PC{0,30}") {
            if let Ok(host) = text.parse::<Host>() {
                prop_assert_eq!(host.to_string().parse(), Ok(host));
            }
        }
    }
}
