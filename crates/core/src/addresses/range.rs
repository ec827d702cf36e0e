//! A range of addresses of one family, as an administrator writes it: `203.0.113.0/24` or
//! `203.0.113.10-203.0.113.20`. This is the only parser of that text. Text that it cannot parse is
//! an error that quotes it, never a guess.

use crate::objects::Family;
use crate::outcome::quote;
use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use thiserror::Error;

/// Addresses from a first to a last one, both included and of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Range {
    first: IpAddr,
    last: IpAddr,
}

/// Why an entry of a pool cannot be used. The other entries are.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RangeError {
    /// Neither a network nor a range.
    #[error(
        "{} is neither a network such as 203.0.113.0/24 nor a range such as 203.0.113.10-203.0.113.20",
        quote(.0)
    )]
    Unreadable(String),
    /// A network with bits set behind its prefix.
    #[error("network {0} has host bits: write {1}, or a range")]
    HostBits(String, IpNet),
    /// The ends are of different families.
    #[error("range {} mixes IPv4 and IPv6", quote(.0))]
    Mixed(String),
    /// The last address comes before the first.
    #[error("range {0}-{1} runs backwards: write {1}-{0}")]
    Backwards(IpAddr, IpAddr),
}

impl Range {
    /// The addresses from `first` to `last`. None where they differ in family or run backwards.
    pub fn new(first: IpAddr, last: IpAddr) -> Option<Self> {
        (Family::of(first) == Family::of(last) && first <= last).then_some(Self { first, last })
    }

    /// Reads one entry of a pool.
    pub fn parse(text: &str) -> Result<Self, RangeError> {
        let unreadable = || RangeError::Unreadable(text.to_owned());
        if let Some((first, last)) = text.split_once('-') {
            let first = address(first).ok_or_else(unreadable)?;
            let last = address(last).ok_or_else(unreadable)?;
            if Family::of(first) != Family::of(last) {
                return Err(RangeError::Mixed(text.to_owned()));
            }
            return Self::new(first, last).ok_or(RangeError::Backwards(first, last));
        }
        let net: IpNet = text.trim().parse().map_err(|_| unreadable())?;
        if address(&net.addr().to_string()).is_none() {
            return Err(unreadable());
        }
        if net.trunc() != net {
            return Err(RangeError::HostBits(text.trim().to_owned(), net.trunc()));
        }
        // A network's own ends, not its hosts: a pool of 192.0.2.0/31 has two addresses.
        Ok(Self { first: net.network(), last: net.broadcast() })
    }

    /// Reads the entries of a pool: those that can be read, and what is wrong with the others.
    pub fn parse_all<T: AsRef<str>>(
        entries: impl IntoIterator<Item = T>,
    ) -> (Vec<Self>, Vec<RangeError>) {
        let (mut ranges, mut errors) = (Vec::new(), Vec::new());
        for entry in entries {
            match Self::parse(entry.as_ref()) {
                Ok(range) => ranges.push(range),
                Err(error) => errors.push(error),
            }
        }
        (ranges, errors)
    }

    /// Its first address.
    pub fn first(&self) -> IpAddr {
        self.first
    }

    /// Its last address.
    pub fn last(&self) -> IpAddr {
        self.last
    }

    /// The family of its addresses.
    pub fn family(&self) -> Family {
        Family::of(self.first)
    }

    /// Whether an address lies in it. Families never meet: all of IPv4 sorts before IPv6.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.first <= address && address <= self.last
    }

    /// Whether it has an address in common with another one.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

impl std::fmt::Display for Range {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

/// Parses an address. An IPv4-mapped IPv6 address is refused, as Kubernetes does: it is a second
/// spelling of an IPv4 address.
fn address(text: &str) -> Option<IpAddr> {
    let address: IpAddr = text.trim().parse().ok()?;
    let mapped = matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some());
    (!mapped).then_some(address)
}

/// An address as a number within its family.
pub(super) fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

/// The address of a number that [`number`] made.
pub(super) fn from_number(family: Family, number: u128) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::from_bits(number as u32).into(),
        Family::V6 => Ipv6Addr::from_bits(number).into(),
    }
}

/// Whether old equipment mistakes an address for that of a network: IPv4 that ends in .0 or .255.
pub(super) fn is_buggy(address: IpAddr) -> bool {
    matches!(address, IpAddr::V4(v4) if matches!(v4.octets()[3], 0 | 255))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn range(first: &str, last: &str) -> Range {
        Range::new(ip(first), ip(last)).unwrap()
    }

    #[test]
    fn networks_and_ranges_of_both_families_are_read() {
        for (text, first, last) in [
            ("203.0.113.0/24", "203.0.113.0", "203.0.113.255"),
            ("192.0.2.7/32", "192.0.2.7", "192.0.2.7"),
            ("192.0.2.0/31", "192.0.2.0", "192.0.2.1"),
            ("0.0.0.0/0", "0.0.0.0", "255.255.255.255"),
            ("203.0.113.10-203.0.113.20", "203.0.113.10", "203.0.113.20"),
            (" 203.0.113.10 - 203.0.113.10 ", "203.0.113.10", "203.0.113.10"),
            ("2001:db8::/126", "2001:db8::", "2001:db8::3"),
            ("2001:db8::1-2001:db8::f", "2001:db8::1", "2001:db8::f"),
            ("::/0", "::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ] {
            assert_eq!(Range::parse(text), Ok(range(first, last)), "{text}");
        }
    }

    #[test]
    fn a_backwards_range_is_refused_and_says_how_to_write_it() {
        let error = Range::parse("192.0.2.9-192.0.2.1").unwrap_err();
        assert_eq!(error, RangeError::Backwards(ip("192.0.2.9"), ip("192.0.2.1")));
        assert_eq!(
            error.to_string(),
            "range 192.0.2.9-192.0.2.1 runs backwards: write 192.0.2.1-192.0.2.9"
        );
    }

    #[test]
    fn garbage_is_refused_entry_by_entry_and_the_rest_is_used() {
        let entries = [
            "",
            "-",
            "192.0.2.1",
            "192.0.2.0/33",
            "192.0.2.0/24/1",
            "192.0.2.1-192.0.2.3-192.0.2.9",
            "192.0.2.1-2001:db8::1",
            "192.0.2.5/24",
            "::ffff:192.0.2.1-::ffff:192.0.2.9",
            "::ffff:192.0.2.0/120",
            "fe80::1%eth0-fe80::2%eth0",
            "192.0.2.0/24",
        ];
        let (ranges, errors) = Range::parse_all(entries);
        assert_eq!(ranges, [range("192.0.2.0", "192.0.2.255")]);
        assert_eq!(errors.len(), entries.len() - 1);
        assert_eq!(errors[6], RangeError::Mixed("192.0.2.1-2001:db8::1".to_owned()));
        assert_eq!(
            errors[7].to_string(),
            "network 192.0.2.5/24 has host bits: write 192.0.2.0/24, or a range"
        );
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_fail_otherwise_than_by_an_error(text in "[0-9a-f:./% -]{0,60}|\\PC{0,40}") {
            if let Ok(range) = Range::parse(&text) {
                prop_assert!(range.first() <= range.last());
                prop_assert_eq!(Range::parse(&range.to_string()), Ok(range));
            }
        }

        #[test]
        fn every_address_is_found_again_by_its_number(address: IpAddr) {
            prop_assert_eq!(from_number(Family::of(address), number(address)), address);
        }
    }
}
