//! The target of a request: host, path and query. Pure functions over request heads; the callbacks
//! use them.
//!
//! Three forms of targets are accepted: a path, `*` with `OPTIONS`, and a full `http` or `https`
//! URL, whose authority becomes the host. A member is sent the path that was matched, so no member
//! can read another one. Paths are compared as sent, without decoding. A path with an element that
//! members could resolve (`.` or `..`, also written with `%2e`, ended by `%2f`, a backslash or a
//! parameter) is refused, since it could bypass a rule; clients resolve such paths before they send
//! them. Empty elements (`//`) and other escapes pass and match as they are written.

use crate::router;
use http::uri::PathAndQuery;
use http::{HeaderValue, Method, Version};
use pingora_http::RequestHeader;
use pingora_http::authority::{RawTargetAuthority, raw_target_authority};
use std::borrow::Cow;

/// Host, path and query of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// The host in lower case, without port; empty if an HTTP/1.0 request has none.
    pub(super) host: Box<str>,
    /// Host and port as sent.
    pub(super) authority: Option<HeaderValue>,
    /// Path and query as sent.
    pub(super) path_and_query: PathAndQuery,
}

impl Target {
    /// Parses the target; None if the request must be refused.
    pub(super) fn of(request: &RequestHeader) -> Option<Self> {
        let named = request.headers.get(http::header::HOST);
        let path_and_query = request.uri.path_and_query().cloned();
        let raw = request.raw_path();
        let (authority, path_and_query) = if request.version == Version::HTTP_2 {
            let authority = request.uri.authority().map(|it| it.as_str().as_bytes());
            (authority.map(Cow::Borrowed), path_and_query?)
        } else if raw.first() == Some(&b'/') || (raw == b"*" && request.method == Method::OPTIONS) {
            (None, path_and_query?)
        } else {
            let RawTargetAuthority::Absolute { scheme, authority, .. } = raw_target_authority(raw)
            else {
                return None;
            };
            let web = [&b"http"[..], b"https"].iter().any(|it| it.eq_ignore_ascii_case(scheme));
            if !web || authority.is_empty() {
                return None;
            }
            let root = || PathAndQuery::from_static("/");
            (Some(Cow::Borrowed(authority)), path_and_query.unwrap_or_else(root))
        };
        if authority.is_none() && raw != path_and_query.as_str().as_bytes() {
            return None;
        }
        let authority = match (authority, named) {
            (Some(authority), Some(named)) if named.as_bytes() != &*authority => return None,
            (Some(authority), None) => Some(HeaderValue::from_bytes(&authority).ok()?),
            (_, named) => named.cloned(),
        };
        let path = path_and_query.path();
        let everything = path == "*" && request.method == Method::OPTIONS;
        if climbs(path) || !(path.starts_with('/') || everything) {
            return None;
        }
        let host = match &authority {
            Some(authority) => router::host(authority.to_str().ok()?)?.into(),
            None => Box::default(),
        };
        Some(Self { host, authority, path_and_query })
    }

    /// The host, if the request has one.
    pub(super) fn host(&self) -> Option<&str> {
        (!self.host.is_empty()).then_some(&*self.host)
    }

    /// The path as sent.
    pub(super) fn path(&self) -> &str {
        self.path_and_query.path()
    }

    /// Writes the target into the request for a member.
    pub(super) fn write(&self, request: &mut RequestHeader) -> pingora_core::Result<()> {
        if request.raw_path() != self.path_and_query.as_str().as_bytes() {
            request.set_raw_path(self.path_and_query.as_str().as_bytes())?;
        }
        if let (Some(authority), None) = (&self.authority, request.headers.get(http::header::HOST))
        {
            request.insert_header(http::header::HOST, authority)?;
        }
        Ok(())
    }
}

/// Checks that a complete head is a request, and that its target, once written for a member, is
/// parsed as the same target again. Panics if not.
#[cfg(feature = "fuzzing")]
pub(crate) fn fuzz_head(bytes: &[u8]) {
    let Some(length) = super::head::whole(bytes) else { return };
    let mut fields = [httparse::EMPTY_HEADER; 128];
    let mut parsed = httparse::Request::new(&mut fields);
    assert_eq!(parsed.parse(&bytes[..length]), Ok(httparse::Status::Complete(length)));
    let (method, path) = (parsed.method.unwrap_or(""), parsed.path.unwrap_or(""));
    let Ok(mut request) = RequestHeader::build(method, path.as_bytes(), None) else { return };
    for field in parsed.headers.iter() {
        if request.append_header(field.name.to_owned(), field.value).is_err() {
            return;
        }
    }
    let Some(target) = Target::of(&request) else { return };
    assert!(target.write(&mut request).is_ok());
    assert_eq!(request.raw_path(), target.path_and_query.as_str().as_bytes());
    assert_eq!(Target::of(&request), Some(target));
}

/// Whether a member could find an element `.` or `..` in the path.
fn climbs(path: &str) -> bool {
    let mut bytes = path.as_bytes();
    // The number of dots since the last separator; None once the element has another character.
    let mut dots = Some(0);
    while let Some((&first, rest)) = bytes.split_first() {
        bytes = rest;
        let byte = match (first, rest) {
            (b'%', [b'2', b'e' | b'E', ..]) => b'.',
            (b'%', [b'2', b'f' | b'F', ..]) => b'/',
            (b'%', [b'5', b'c' | b'C', ..]) => b'/',
            (b'%', [b'3', b'b' | b'B', ..]) => b'/',
            // Some members cut parameters off before they resolve a path.
            (b'\\' | b';', _) => b'/',
            _ => first,
        };
        if first == b'%' && byte != first {
            bytes = &rest[2..];
        }
        match byte {
            b'/' if matches!(dots, Some(1 | 2)) => return true,
            b'/' => dots = Some(0),
            b'.' => dots = dots.map(|dots| dots + 1),
            _ => dots = None,
        }
    }
    matches!(dots, Some(1 | 2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request(method: &str, target: &str, host: &str) -> RequestHeader {
        let mut request = RequestHeader::build(method, target.as_bytes(), None).unwrap();
        if !host.is_empty() {
            request.insert_header("host", host).unwrap();
        }
        request
    }

    /// Host, authority, path and query.
    fn read(method: &str, target: &str, host: &str) -> Option<(String, String, String)> {
        let target = Target::of(&request(method, target, host))?;
        let authority = target.authority.as_ref().map_or("", |it| it.to_str().unwrap());
        Some((target.host.into(), authority.into(), target.path_and_query.to_string()))
    }

    fn told(host: &str, authority: &str, path: &str) -> Option<(String, String, String)> {
        Some((host.into(), authority.into(), path.into()))
    }

    #[test]
    fn a_target_is_read_as_sent() {
        assert_eq!(
            read("GET", "/a%20b/?x=1&y", "Shop.Example:8080"),
            told("shop.example", "Shop.Example:8080", "/a%20b/?x=1&y")
        );
        assert_eq!(read("GET", "/", ""), told("", "", "/"));
        assert_eq!(read("OPTIONS", "*", "a"), told("a", "a", "*"));
        assert_eq!(read("GET", "http://A:80/b?c", ""), told("a", "A:80", "/b?c"));
        assert_eq!(read("GET", "HTTPS://a", "a"), told("a", "a", "/"));
        assert_eq!(read("GET", "//a/b", "c"), told("c", "c", "//a/b"));
    }

    #[test]
    fn a_target_of_another_form_is_refused() {
        for target in [
            "*",
            "a",
            "../a",
            "?a",
            "a:b",
            "ftp://a/",
            "http:a",
            "http:/a",
            "http:///a",
            "http://b/",
        ] {
            assert_eq!(read("GET", target, "a"), None, "{target}");
        }
        assert_eq!(read("GET", "/", "a b"), None);
    }

    #[test]
    fn a_path_that_climbs_is_refused_however_it_is_written() {
        for path in [
            "/..",
            "/a/../b",
            "/a/%2e%2E/b",
            "/a/.%2e",
            "/a/..%2fb",
            "/a/..\\b",
            "/a%5c..%5Cb",
            "/a/..;/b",
            "/a/..;x=1/b",
            "/a/..%3Bx/b",
            "/./a",
            "/a/.",
            "/%2e/a",
            "/a/.;b",
        ] {
            assert!(climbs(path), "{path}");
            assert_eq!(read("GET", path, "a"), None, "{path}");
        }
        for path in [
            "/",
            "/a..b",
            "/...",
            "/..a",
            "/a./b",
            "/.well-known/x",
            "/%2",
            "/a;b=1/c",
            "/a//b",
            "/a;",
        ] {
            assert!(!climbs(path), "{path}");
        }
    }

    proptest! {
        #[test]
        fn climbing_is_what_splitting_the_decoded_path_finds(path in "(/|\\.|%2e|%2F|%5c|%3b|;|a|%){0,12}") {
            let decoded = path
                .replace("%2e", ".")
                .replace("%2F", "/")
                .replace("%5c", "/")
                .replace("%3b", "/")
                .replace(';', "/");
            let found = decoded.split('/').any(|element| element == "." || element == "..");
            prop_assert_eq!(climbs(&path), found);
        }

        #[test]
        fn what_is_matched_is_what_is_sent(target in "(/|http://|a|\\.|\\?|#|:|@|%2e|\\\\|\\*){0,8}", host in "(a|)") {
            let Ok(mut sent) = RequestHeader::build("GET", target.as_bytes(), None) else {
                return Ok(());
            };
            if !host.is_empty() {
                sent.insert_header("host", &host).unwrap();
            }
            let Some(target) = Target::of(&sent) else { return Ok(()) };
            target.write(&mut sent).unwrap();
            prop_assert_eq!(sent.raw_path(), target.path_and_query.as_str().as_bytes());
            prop_assert_eq!(Target::of(&sent), Some(target));
        }
    }
}
