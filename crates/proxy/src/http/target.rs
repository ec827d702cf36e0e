//! What a request asks for: host, path and query, as they were sent. Pure functions over request heads.
//!
//! Paths are compared as sent, without percent-decoding, as Kubernetes' path types say. A path that
//! climbs (`..`, also written `%2e%2e`, `..%2f` or with backslashes) is refused: members resolve it
//! in their own ways, so a rule could be passed by. Clients resolve such paths before they send them.

use pingora_http::RequestHeader;
use std::borrow::Cow;

/// Host, path and query of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target<'a> {
    /// The host in lower case, without port; empty when HTTP/1.0 gives none.
    pub(super) host: Cow<'a, str>,
    /// Host and port as sent.
    pub(super) authority: &'a str,
    /// Path and query as sent.
    pub(super) path_and_query: &'a str,
    /// The path as sent.
    pub(super) path: &'a str,
    /// What follows the question mark.
    pub(super) query: Option<&'a str>,
}

impl<'a> Target<'a> {
    /// Reads it; nothing if the request is to be refused.
    pub(super) fn of(request: &'a RequestHeader) -> Option<Self> {
        let authority = match request.headers.get(http::header::HOST) {
            Some(host) => host.to_str().ok()?,
            None => request.uri.authority().map_or("", |authority| authority.as_str()),
        };
        let raw = std::str::from_utf8(request.raw_path()).ok()?;
        let path_and_query = match raw.as_bytes().first() {
            Some(b'/') => raw,
            Some(b'*') if raw == "*" => raw,
            _ => request.uri.path_and_query()?.as_str(),
        };
        if path_and_query.contains('#') {
            return None;
        }
        let (path, query) = match path_and_query.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (path_and_query, None),
        };
        if climbs(path) {
            return None;
        }
        Some(Self { host: host(authority)?, authority, path_and_query, path, query })
    }
}

/// The host of an authority; nothing if it is none.
fn host(authority: &str) -> Option<Cow<'_, str>> {
    let (host, port) = if authority.starts_with('[') {
        let end = authority.find(']')? + 1;
        let (host, rest) = authority.split_at(end);
        match rest.strip_prefix(':') {
            Some(port) => (host, port),
            None if rest.is_empty() => (host, ""),
            None => return None,
        }
    } else {
        authority.split_once(':').unwrap_or((authority, ""))
    };
    let host = host.strip_suffix('.').unwrap_or(host);
    let usual = |byte: u8| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'[' | b']' | b':')
    };
    if !host.bytes().all(usual) || !port.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Some(Cow::Owned(host.to_ascii_lowercase()));
    }
    Some(Cow::Borrowed(host))
}

/// Whether some reader could find a `..` element in the path.
fn climbs(path: &str) -> bool {
    let mut bytes = path.as_bytes();
    // The dots since the last separator; nothing once the element has anything else.
    let mut dots = Some(0);
    while let Some((&first, rest)) = bytes.split_first() {
        bytes = rest;
        let byte = match (first, rest) {
            (b'%', [b'2', b'e' | b'E', ..]) => b'.',
            (b'%', [b'2', b'f' | b'F', ..]) => b'/',
            (b'%', [b'5', b'c' | b'C', ..]) => b'/',
            (b'\\', _) => b'/',
            _ => first,
        };
        if first == b'%' && byte != first {
            bytes = &rest[2..];
        }
        match byte {
            b'/' if dots == Some(2) => return true,
            b'/' => dots = Some(0),
            b'.' => dots = dots.map(|dots| dots + 1),
            _ => dots = None,
        }
    }
    dots == Some(2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request(path: &str, host: &str) -> RequestHeader {
        let mut request = RequestHeader::build("GET", path.as_bytes(), None).unwrap();
        request.insert_header("host", host).unwrap();
        request
    }

    #[test]
    fn a_target_is_read_as_sent() {
        let request = request("/a%20b/?x=1&y", "Shop.Example:8080");
        let target = Target::of(&request);
        assert_eq!(
            target,
            Some(Target {
                host: "shop.example".into(),
                authority: "Shop.Example:8080",
                path_and_query: "/a%20b/?x=1&y",
                path: "/a%20b/",
                query: Some("x=1&y"),
            })
        );
    }

    #[test]
    fn hosts_are_names_or_addresses_with_or_without_port() {
        let read = |text| host(text).map(Cow::into_owned);
        assert_eq!(read("a.b"), Some("a.b".to_owned()));
        assert_eq!(read("a.b.:80"), Some("a.b".to_owned()));
        assert_eq!(read("[2001:DB8::1]:80"), Some("[2001:db8::1]".to_owned()));
        assert_eq!(read(""), Some(String::new()));
        for bad in ["a b", "a/b", "a@b", "a:b", "[::1", "[::1]x", "a:80:90", "a\u{e4}"] {
            assert_eq!(read(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_path_that_climbs_is_refused_however_it_is_written() {
        for path in
            ["/..", "/a/../b", "/a/%2e%2E/b", "/a/.%2e", "/a/..%2fb", "/a/..\\b", "/a%5c..%5Cb"]
        {
            assert!(climbs(path), "{path}");
            assert_eq!(Target::of(&request(path, "a")), None, "{path}");
        }
        for path in ["/", "/a..b", "/...", "/..a", "/a./b", "/%2e", "/a/%2f./b", "/%2"] {
            assert!(!climbs(path), "{path}");
        }
    }

    proptest! {
        #[test]
        fn climbing_is_what_splitting_the_decoded_path_finds(path in "(/|\\.|%2e|%2F|%5c|a|%){0,12}") {
            let decoded = path
                .replace("%2e", ".")
                .replace("%2F", "/")
                .replace("%5c", "/");
            prop_assert_eq!(climbs(&path), decoded.split('/').any(|element| element == ".."));
        }
    }
}
