//! The host of a request, as rules compare it: without port and trailing dot, in lower case.

use std::borrow::Cow;

/// The name in a `Host` header or `:authority`. An IPv6 literal keeps its brackets.
pub(super) fn normalize(host: &str) -> Cow<'_, str> {
    let name = match host.strip_prefix('[').and_then(|rest| rest.find(']')) {
        Some(end) => &host[..end + 2],
        None => match host.rsplit_once(':') {
            Some((name, _)) if !name.contains(':') => name,
            _ => host,
        },
    };
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(name.to_ascii_lowercase())
    } else {
        Cow::Borrowed(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn port_trailing_dot_and_case_do_not_matter() {
        for (host, name) in [
            ("shop.example", "shop.example"),
            ("Shop.Example:8080", "shop.example"),
            ("shop.example.", "shop.example"),
            ("shop.example.:80", "shop.example"),
            ("shop.example:", "shop.example"),
            ("192.0.2.1:80", "192.0.2.1"),
            ("[2001:DB8::1]:80", "[2001:db8::1]"),
            ("[::1]", "[::1]"),
            ("::1", "::1"),
            ("[::1", "[::1"),
            ("", ""),
            (".", ""),
        ] {
            assert_eq!(normalize(host), name, "{host}");
        }
    }

    proptest! {
        #[test]
        fn no_host_makes_it_fail(host in "[\\[\\]:.aA\u{e9}]{0,12}") {
            normalize(&host);
        }
    }
}
