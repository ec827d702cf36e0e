//! The string formats of CustomResourceDefinitions. Formats not listed here are ignored, as
//! kube-apiserver does; listed ones are checked as loosely as kube-apiserver checks them. Validation
//! calls it.

use super::Type;
use base64::Engine;
use regex::Regex;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::LazyLock;

/// A check of one format.
type Check = fn(&str) -> bool;

/// The check of a format for a node of this type. None: the format is not checked.
pub(super) fn check(type_: Option<Type>, format: &str) -> Option<Check> {
    if !matches!(type_, None | Some(Type::String)) {
        return None;
    }
    // Dashes are ignored: `date-time` and `datetime` are the same format.
    let known: Check = match format.replace('-', "").as_str() {
        "bsonobjectid" => |s| s.len() == 24 && s.bytes().all(|b| b.is_ascii_hexdigit()),
        "uri" => is_uri,
        "email" => is_email,
        "hostname" => is_hostname,
        "ipv4" => is_ipv4,
        "ipv6" => |s| s.contains(':') && parse_ip(s).is_some(),
        "cidr" => is_cidr,
        "mac" => is_mac,
        "uuid" => |s| UUID.is_match(s),
        "uuid3" => |s| UUID3.is_match(s),
        "uuid4" => |s| UUID4.is_match(s),
        "uuid5" => |s| UUID5.is_match(s),
        "isbn" => |s| is_isbn10(s) || is_isbn13(s),
        "isbn10" => is_isbn10,
        "isbn13" => is_isbn13,
        "creditcard" => is_credit_card,
        "ssn" => |s| SSN.is_match(s),
        "hexcolor" => |s| HEX_COLOR.is_match(s),
        "rgbcolor" => |s| RGB_COLOR.is_match(s),
        "byte" => is_base64,
        "password" => |_| true,
        "date" => is_date,
        "duration" => is_duration,
        "datetime" => is_date_time,
        "k8sshortname" => |s| s.len() <= 63 && SHORT_NAME.is_match(s),
        "k8slongname" => |s| s.len() <= 253 && LONG_NAME.is_match(s),
        _ => return None,
    };
    Some(known)
}

/// Whether a format has a meaning for a node of this type.
pub(super) fn recognized(type_: Option<Type>, format: &str) -> bool {
    match type_ {
        None | Some(Type::String) => check(type_, format).is_some(),
        Some(Type::Integer) => matches!(format, "int32" | "int64"),
        Some(Type::Number) => matches!(format, "float" | "double"),
        _ => false,
    }
}

macro_rules! patterns {
    ($($name:ident = $text:expr;)*) => {
        $(static $name: LazyLock<Regex> = LazyLock::new(|| fixed($text));)*
    };
}

patterns! {
    UUID = r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$";
    UUID3 = r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?3[0-9a-f]{3}-?[0-9a-f]{4}-?[0-9a-f]{12}$";
    UUID4 = r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?4[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$";
    UUID5 = r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?5[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$";
    SSN = r"^[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}$";
    HEX_COLOR = r"^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$";
    RGB_COLOR = concat!(
        r"^rgb\(\s*(0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])\s*,",
        r"\s*(0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])\s*,",
        r"\s*(0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])\s*\)$"
    );
    CARD = concat!(
        r"^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}",
        r"|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11})$"
    );
    SHORT_NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
    LONG_NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
    TIME = r"^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$";
    GO_DURATION = r"^[-+]?(0|([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$";
    SCALA_DURATION = r"[0-9]+\s*([A-Za-zµ]+)";
    MAC = r"^(([0-9a-fA-F]{2}[:-]){5}[0-9a-fA-F]{2}|([0-9a-fA-F]{4}\.){2}[0-9a-fA-F]{4})$";
}

/// A pattern of this file. A test covers all of them, so the fallback is never used.
fn fixed(text: &str) -> Regex {
    Regex::new(text).or_else(|_| Regex::new("$^")).unwrap_or_else(|_| unreachable!())
}

/// A request URI as Go parses it: an absolute URI or an absolute path.
fn is_uri(s: &str) -> bool {
    if s.is_empty() || s.contains('#') && s.starts_with('#') {
        return false;
    }
    if s.bytes().any(|b| b < 0x20 || b == 0x7f || b == b' ') {
        return false;
    }
    if s == "*" || s.starts_with('/') {
        return true;
    }
    let Some((scheme, rest)) = s.split_once(':') else { return false };
    let mut letters = scheme.bytes();
    letters.next().is_some_and(|b| b.is_ascii_alphabetic())
        && letters.all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
        && rest.starts_with('/')
}

/// `local@domain`, optionally as `Name <local@domain>`.
fn is_email(s: &str) -> bool {
    let address = match (s.rfind('<'), s.strip_suffix('>')) {
        (Some(open), Some(inner)) => &inner[open + 1..],
        (None, None) => s.trim(),
        _ => return false,
    };
    let atom = |text: &str| {
        !text.is_empty()
            && text.split('.').all(|part| {
                !part.is_empty()
                    && part.chars().all(|c| {
                        c.is_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c) || !c.is_ascii()
                    })
            })
    };
    let Some((local, domain)) = address.rsplit_once('@') else { return false };
    let quoted = local.len() > 2 && local.starts_with('"') && local.ends_with('"');
    let literal = domain.starts_with('[') && domain.ends_with(']');
    (quoted || atom(local)) && (literal || atom(domain))
}

fn is_hostname(s: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c.is_alphabetic() || is_symbol(c);
    let labels: Vec<&str> = s.split('.').collect();
    let label = |text: &str| {
        text.len() <= 63
            && text.starts_with(word)
            && text.ends_with(word)
            && text.chars().all(|c| word(c) || c == '-')
    };
    let top = |text: &str| text.chars().count() >= 2 && text.chars().all(char::is_alphabetic);
    s.len() <= 255
        && labels.iter().all(|l| label(l))
        && (labels.len() == 1 || labels.last().is_some_and(|l| top(l)))
}

fn is_symbol(c: char) -> bool {
    !c.is_ascii() && !c.is_alphanumeric() && !c.is_whitespace() && !c.is_control()
        || "$+<=>^`|~".contains(c)
}

/// An address as older Go versions parsed it: leading zeros in IPv4 are accepted.
fn parse_ip(s: &str) -> Option<IpAddr> {
    if s.contains(':') {
        return s.parse::<Ipv6Addr>().ok().map(IpAddr::V6);
    }
    let octets: Vec<u8> = s
        .split('.')
        .map(|part| {
            let digits =
                !part.is_empty() && part.len() < 20 && part.bytes().all(|b| b.is_ascii_digit());
            digits.then(|| part.parse::<u8>().ok()).flatten()
        })
        .collect::<Option<_>>()?;
    <[u8; 4]>::try_from(octets).ok().map(IpAddr::from)
}

fn is_ipv4(s: &str) -> bool {
    s.contains('.') && parse_ip(s).is_some()
}

fn is_cidr(s: &str) -> bool {
    let Some((address, bits)) = s.split_once('/') else { return false };
    let limit = match parse_ip(address) {
        Some(IpAddr::V4(_)) => 32,
        Some(IpAddr::V6(_)) => 128,
        None => return false,
    };
    bits.bytes().all(|b| b.is_ascii_digit()) && bits.parse::<u8>().is_ok_and(|n| n <= limit)
}

fn is_mac(s: &str) -> bool {
    let groups = |separator: char, width: usize, counts: &[usize]| {
        let parts: Vec<&str> = s.split(separator).collect();
        counts.contains(&parts.len())
            && parts.iter().all(|p| p.len() == width && p.bytes().all(|b| b.is_ascii_hexdigit()))
    };
    MAC.is_match(s)
        || groups(':', 2, &[6, 8, 20])
        || groups('-', 2, &[6, 8, 20])
        || groups('.', 4, &[3, 4, 10])
}

fn isbn_digits(s: &str) -> Vec<char> {
    s.chars().filter(|c| !matches!(c, ' ' | '-')).collect()
}

fn is_isbn10(s: &str) -> bool {
    let digits = isbn_digits(s);
    let value = |(i, c): (usize, &char)| match c {
        'X' if i == 9 => Some(10),
        c => c.to_digit(10),
    };
    let values: Option<Vec<u32>> = digits.iter().enumerate().map(value).collect();
    values.is_some_and(|v| {
        v.len() == 10 && v.iter().zip(1..).map(|(n, weight)| n * weight).sum::<u32>() % 11 == 0
    })
}

fn is_isbn13(s: &str) -> bool {
    let values: Option<Vec<u32>> = isbn_digits(s).iter().map(|c| c.to_digit(10)).collect();
    values.is_some_and(|v| {
        let weighted = v.iter().enumerate().map(|(i, n)| n * if i % 2 == 0 { 1 } else { 3 });
        v.len() == 13 && weighted.sum::<u32>() % 10 == 0
    })
}

fn is_credit_card(s: &str) -> bool {
    let digits: String = s.chars().filter(char::is_ascii_digit).collect();
    let sum: u32 = digits
        .bytes()
        .rev()
        .enumerate()
        .map(|(i, b)| {
            let n = u32::from(b - b'0') * if i % 2 == 1 { 2 } else { 1 };
            if n > 9 { n - 9 } else { n }
        })
        .sum();
    CARD.is_match(&digits) && sum.is_multiple_of(10)
}

fn is_base64(s: &str) -> bool {
    !s.is_empty() && base64::engine::general_purpose::STANDARD.decode(s).is_ok()
}

fn is_date(s: &str) -> bool {
    let shape = s.len() == 10
        && s.bytes().enumerate().all(|(i, b)| match i {
            4 | 7 => b == b'-',
            _ => b.is_ascii_digit(),
        });
    shape && s.parse::<jiff::civil::Date>().is_ok()
}

fn is_date_time(s: &str) -> bool {
    let lower = s.to_lowercase();
    let mut parts = lower.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else { return false };
    let Some(found) = TIME.captures(time) else { return false };
    is_date(date) && &found[1] <= "23" && &found[2] <= "59" && &found[3] <= "59"
}

fn is_duration(s: &str) -> bool {
    const UNITS: [&[&str]; 8] = [
        &["ns", "nano"],
        &["us", "µs", "micro"],
        &["ms", "milli"],
        &["s", "sec"],
        &["m", "min"],
        &["h", "hr", "hour"],
        &["d", "day"],
        &["w", "wk", "week"],
    ];
    let known = |unit: &str| {
        UNITS.iter().any(|names| {
            names.contains(&unit) || names.last().is_some_and(|last| unit.starts_with(last))
        })
    };
    GO_DURATION.is_match(s)
        || SCALA_DURATION.captures_iter(s).any(|found| known(&found[1].to_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_accept_and_refuse_what_the_real_server_does() {
        for (format, good, bad) in [
            ("date-time", "2024-02-29T23:59:59Z", "2023-02-29T00:00:00Z"),
            ("date-time", "2024-01-01T00:00:00.5+01:00", "2024-01-01T24:00:00Z"),
            ("datetime", "2024-01-01t00:00:00z", "2024-01-01 00:00:00Z"),
            ("date", "2024-12-31", "2024-13-01"),
            ("ipv4", "010.0.0.1", "256.0.0.1"),
            ("ipv4", "10.0.0.1", "::1"),
            ("ipv6", "fe80::1", "10.0.0.1"),
            ("cidr", "10.0.0.0/8", "10.0.0.0/33"),
            ("cidr", "2001:db8::/128", "10.0.0.0"),
            ("mac", "00:1a:2B:3c:4d:5e", "00:1a:2b"),
            ("uuid", "F47AC10B-58CC-4372-A567-0E02B2C3D479", "f47ac10b"),
            ("uuid4", "f47ac10b58cc4372a5670e02b2c3d479", "f47ac10b-58cc-1372-a567-0e02b2c3d479"),
            ("uuid3", "f47ac10b-58cc-3372-0567-0e02b2c3d479", "x"),
            ("uuid5", "f47ac10b-58cc-5372-a567-0e02b2c3d479", "x"),
            ("byte", "aGk=", "aGk"),
            ("email", "a.b@example.com", "a@"),
            ("email", "Ann <a@example.com>", "a b@example.com"),
            ("uri", "https://example.com/a?b", "example.com"),
            ("uri", "/rooted", "has space:/x"),
            ("hostname", "a-b.example.com", "-a.com"),
            ("hostname", "localhost", "under_score"),
            ("duration", "1h30m", "fast"),
            ("duration", "22 ns", "5"),
            ("isbn10", "0321751043", "0321751044"),
            ("isbn13", "978-0321751041", "978-0321751042"),
            ("isbn", "0321751043", "x"),
            ("creditcard", "4111-1111-1111-1111", "4111-1111-1111-1112"),
            ("ssn", "111-11-1111", "111-11-11111"),
            ("hexcolor", "#FFF", "#FFFF"),
            ("rgbcolor", "rgb(255, 0,12)", "rgb(256,0,0)"),
            ("bsonobjectid", "507f1f77bcf86cd799439011", "507f"),
            ("k8s-short-name", "a-b", "a.b"),
            ("k8s-long-name", "a.b-c", "A"),
        ] {
            let check = check(Some(Type::String), format).unwrap();
            assert!(check(good), "{format} should take {good}");
            assert!(!check(bad), "{format} should refuse {bad}");
        }
    }

    #[test]
    fn formats_outside_the_list_or_of_another_type_are_not_checked() {
        assert!(check(Some(Type::String), "quantity").is_none());
        assert!(check(Some(Type::Integer), "ipv4").is_none());
        assert!(recognized(Some(Type::Integer), "int32") && !recognized(Some(Type::Integer), "u8"));
    }
}
