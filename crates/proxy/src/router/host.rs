//! Normalizes the host of a request for rules: without port and trailing dot, in lower case. Pure.

use std::borrow::Cow;

/// The host name of a `Host` header or `:authority`; None if it is not valid. An IPv6 literal keeps
/// its brackets.
pub fn host(authority: &str) -> Option<Cow<'_, str>> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn port_trailing_dot_and_case_do_not_matter() {
        for (authority, name) in [
            ("shop.example", "shop.example"),
            ("Shop.Example:8080", "shop.example"),
            ("shop.example.", "shop.example"),
            ("shop.example.:80", "shop.example"),
            ("shop.example:", "shop.example"),
            ("192.0.2.1:80", "192.0.2.1"),
            ("[2001:DB8::1]:80", "[2001:db8::1]"),
            ("[::1]", "[::1]"),
            ("", ""),
            (".", ""),
        ] {
            assert_eq!(host(authority).as_deref(), Some(name), "{authority}");
        }
    }

    #[test]
    fn what_is_no_host_is_refused() {
        for bad in ["a b", "a/b", "a@b", "a:b", "[::1", "[::1]x", "a:80:90", "::1", "a\u{e4}"] {
            assert_eq!(host(bad), None, "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn no_host_makes_it_fail(authority in "[\\[\\]:.aA\u{e9}]{0,12}") {
            let _ = host(&authority);
        }
    }
}
