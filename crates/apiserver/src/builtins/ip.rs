//! IP addresses and CIDRs in fields of built-in kinds. They are read as old servers read them, then
//! refused, or warned about, if that reading is ambiguous. The rules call this module; it does no
//! I/O.

use crate::error::FieldError;
use serde_json::json;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Reads an address, also with leading zeros. An IPv4-mapped address counts as IPv4.
pub(super) fn parse(value: &str) -> Option<IpAddr> {
    if value.contains(':') {
        let address: Ipv6Addr = value.parse().ok()?;
        return Some(match address.to_ipv4_mapped() {
            Some(mapped) => IpAddr::V4(mapped),
            None => IpAddr::V6(address),
        });
    }
    let mut octets = [0u8; 4];
    let mut parts = value.split('.');
    for octet in &mut octets {
        let part = parts.next()?;
        let digits = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        *octet = if digits { part.parse().ok()? } else { return None };
    }
    parts.next().is_none().then_some(IpAddr::V4(Ipv4Addr::from(octets)))
}

/// Whether the value is an IPv6 address.
pub(super) fn is_v6(value: &str) -> bool {
    matches!(parse(value), Some(IpAddr::V6(_)))
}

fn mapped(value: &str) -> bool {
    value.parse::<Ipv6Addr>().is_ok_and(|v6| v6.to_ipv4_mapped().is_some())
}

/// The errors of an address in a field that is older than strict checking. A value that the old
/// object already has is accepted.
pub(super) fn check(field: &str, value: &str, old: &[&str]) -> Vec<FieldError> {
    let wrong = if old.contains(&value) {
        None
    } else if parse(value).is_none() {
        Some("must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")
    } else if mapped(value) {
        Some("must not be an IPv4-mapped IPv6 address")
    } else if value.parse::<IpAddr>().is_err() {
        Some("must not have leading 0s")
    } else {
        None
    };
    wrong.into_iter().map(|w| FieldError::invalid(field, &json!(value), w)).collect()
}

/// The errors of an address to which traffic is sent.
pub(super) fn check_endpoint(field: &str, value: &str) -> Vec<FieldError> {
    let Some(ip) = parse(value) else {
        return vec![FieldError::invalid(field, &json!(value), "must be a valid IP address")];
    };
    let (link_local, link_multicast) = match ip {
        IpAddr::V4(v4) => (v4.is_link_local(), matches!(v4.octets(), [224, 0, 0, _])),
        IpAddr::V6(v6) => {
            (v6.is_unicast_link_local(), v6.octets()[0] == 0xff && v6.octets()[1] & 0x0f == 2)
        }
    };
    let mut wrong = Vec::new();
    if ip.is_unspecified() {
        wrong.push(format!("may not be unspecified ({value})"));
    }
    if ip.is_loopback() {
        wrong.push("may not be in the loopback range (127.0.0.0/8, ::1/128)".to_owned());
    }
    if link_local {
        wrong.push("may not be in the link-local range (169.254.0.0/16, fe80::/10)".to_owned());
    }
    if link_multicast {
        wrong.push(
            "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)".to_owned(),
        );
    }
    wrong.into_iter().map(|w| FieldError::invalid(field, &json!(value), w)).collect()
}

/// The warnings about an accepted address.
pub(super) fn warnings(field: &str, value: &str) -> Vec<String> {
    let Some(ip) = parse(value) else { return Vec::new() };
    if mapped(value) || value.parse::<IpAddr>().is_err() {
        return vec![format!(
            "{field}: non-standard IP address {value:?} is invalid: use \"{ip}\""
        )];
    }
    if ip.is_ipv6() && ip.to_string() != value {
        return vec![format!(
            "{field}: IPv6 address {value:?} should be in RFC 5952 canonical format (\"{ip}\")"
        )];
    }
    Vec::new()
}

/// A network as written: its address with all bits, and its prefix length.
struct Network {
    address: IpAddr,
    bits: u8,
}

impl Network {
    fn parse(value: &str) -> Option<Self> {
        let (address, bits) = value.split_once('/')?;
        let v6 = address.contains(':');
        let digits = !bits.is_empty() && bits.bytes().all(|b| b.is_ascii_digit());
        let bits: u8 = if digits { bits.parse().ok()? } else { return None };
        let address = if v6 { IpAddr::V6(address.parse().ok()?) } else { parse(address)? };
        let limit = if v6 { 128 } else { 32 };
        (bits <= limit).then_some(Self { address, bits })
    }

    fn base(&self) -> IpAddr {
        match self.address {
            IpAddr::V4(v4) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & mask))
            }
            IpAddr::V6(v6) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.bits)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask))
            }
        }
    }

    fn leading_zeros(&self, value: &str) -> bool {
        let (address, bits) = value.split_once('/').unwrap_or_default();
        address.parse::<IpAddr>().is_err() || bits != self.bits.to_string()
    }
}

/// The errors of a CIDR in a field that is older than strict checking. A value that the old object
/// already has is accepted.
pub(super) fn check_cidr(field: &str, value: &str, old: &[&str]) -> Vec<FieldError> {
    if old.contains(&value) {
        return Vec::new();
    }
    let wrong = match Network::parse(value) {
        None => Some("must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"),
        Some(network) if network.leading_zeros(value) => {
            Some("must not have leading 0s in IP or prefix length")
        }
        Some(_) if mapped(value.split('/').next().unwrap_or_default()) => {
            Some("must not have an IPv4-mapped IPv6 address")
        }
        Some(network) if network.base() != network.address => {
            Some("must not have bits set beyond the prefix length")
        }
        Some(_) => None,
    };
    wrong.into_iter().map(|w| FieldError::invalid(field, &json!(value), w)).collect()
}

/// The warnings about an accepted CIDR.
pub(super) fn cidr_warnings(field: &str, value: &str) -> Vec<String> {
    let Some(network) = Network::parse(value) else { return Vec::new() };
    let base = format!("{}/{}", network.base(), network.bits);
    let mut out = Vec::new();
    if network.base() != network.address {
        let whole = if network.address.is_ipv4() { 32 } else { 128 };
        out.push(format!(
            "{field}: CIDR value {value:?} is ambiguous in this context (should be \"{base}\" or \"{}/{whole}\"?)",
            network.address
        ));
    }
    if network.leading_zeros(value) || mapped(value.split('/').next().unwrap_or_default()) {
        out.push(format!("{field}: non-standard CIDR value {value:?} is invalid: use \"{base}\""));
    }
    if out.is_empty() && network.address.is_ipv6() && base != value {
        out.push(format!(
            "{field}: IPv6 CIDR value {value:?} should be in RFC 5952 canonical format (\"{base}\")"
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(errors: Vec<FieldError>) -> String {
        errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn addresses_are_refused_where_they_can_be_read_in_two_ways() {
        let not = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
        for (value, wrong) in [
            ("10.0.0.1", ""),
            ("2001:DB8::1", ""),
            ("010.0.0.1", "must not have leading 0s"),
            ("::ffff:1.2.3.4", "must not be an IPv4-mapped IPv6 address"),
            ("", not),
            ("10.0.0", not),
            ("10.0.0.1.1", not),
            ("10.0.0.256", not),
            ("+1.0.0.1", not),
            ("1.2.3.4 ", not),
            ("fe80::1%eth0", not),
            ("host", not),
        ] {
            let expected = if wrong.is_empty() {
                String::new()
            } else {
                format!("f: Invalid value: {value:?}: {wrong}")
            };
            assert_eq!(said(check("f", value, &[])), expected);
        }
        assert_eq!(said(check("f", "010.0.0.1", &["010.0.0.1"])), "");
    }

    #[test]
    fn networks_have_no_bits_beyond_their_prefix() {
        let not = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
        for (value, wrong) in [
            ("10.0.0.0/8", ""),
            ("0.0.0.0/0", ""),
            ("::/0", ""),
            ("2001:db8::/64", ""),
            ("10.0.0.1/8", "must not have bits set beyond the prefix length"),
            ("010.0.0.0/8", "must not have leading 0s in IP or prefix length"),
            ("10.0.0.0/08", "must not have leading 0s in IP or prefix length"),
            ("::ffff:10.0.0.0/104", "must not have an IPv4-mapped IPv6 address"),
            ("10.0.0.0", not),
            ("10.0.0.0/33", not),
            ("10.0.0.0/", not),
            ("10.0.0.0/-1", not),
            ("::/129", not),
            ("/8", not),
            ("", not),
        ] {
            let expected = if wrong.is_empty() {
                String::new()
            } else {
                format!("f: Invalid value: {value:?}: {wrong}")
            };
            assert_eq!(said(check_cidr("f", value, &[])), expected);
        }
    }

    #[test]
    fn traffic_is_not_sent_to_special_addresses() {
        assert_eq!(said(check_endpoint("f", "192.0.2.1")), "");
        for (value, wrong) in [
            ("0.0.0.0", "may not be unspecified (0.0.0.0)"),
            ("::1", "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
            ("169.254.1.1", "may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
            ("224.0.0.9", "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"),
            ("nope", "must be a valid IP address"),
        ] {
            assert_eq!(
                said(check_endpoint("f", value)),
                format!("f: Invalid value: {value:?}: {wrong}")
            );
        }
    }

    #[test]
    fn odd_spellings_are_warned_about() {
        assert_eq!(warnings("f", "10.0.0.1"), Vec::<String>::new());
        assert_eq!(
            warnings("f", "2001:DB8:0::1"),
            [
                "f: IPv6 address \"2001:DB8:0::1\" should be in RFC 5952 canonical format (\"2001:db8::1\")"
            ]
        );
        assert_eq!(
            warnings("f", "010.0.0.1"),
            ["f: non-standard IP address \"010.0.0.1\" is invalid: use \"10.0.0.1\""]
        );
        assert_eq!(
            cidr_warnings("f", "10.0.0.1/8"),
            [
                "f: CIDR value \"10.0.0.1/8\" is ambiguous in this context (should be \"10.0.0.0/8\" or \"10.0.0.1/32\"?)"
            ]
        );
    }
}
