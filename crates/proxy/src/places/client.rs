//! What counts as one client for shares of places and of bytes.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A client: an IPv4 address, or the /64 of an IPv6 address, since the holder of one address in such a
/// network usually has all of them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Client {
    V4(u32),
    V6(u64),
}

impl Client {
    /// The /48 around an IPv6 client, as its first /64: a site often gets a /48, and with it 65,536 clients.
    /// An IPv4 address has no such network.
    pub(super) fn network(self) -> Option<Self> {
        match self {
            Self::V4(_) => None,
            Self::V6(bits) => Some(Self::V6(bits >> 16 << 16)),
        }
    }
}

impl From<IpAddr> for Client {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address.to_bits()),
            IpAddr::V6(address) => Self::V6((address.to_bits() >> 64) as u64),
        }
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V4(bits) => Ipv4Addr::from_bits(*bits).fmt(f),
            Self::V6(bits) => write!(f, "{}/64", Ipv6Addr::from_bits(u128::from(*bits) << 64)),
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_an_ipv4_address_or_an_ipv6_network() {
        let client = |text: &str| Client::from(text.parse::<IpAddr>().unwrap());
        assert_eq!(client("192.0.2.1"), client("::ffff:192.0.2.1"));
        assert_ne!(client("192.0.2.1"), client("192.0.2.2"));
        assert_eq!(client("2001:db8::1"), client("2001:db8::ffff:1"));
        assert_ne!(client("2001:db8::1"), client("2001:db8:0:1::1"));
        assert_eq!(client("2001:db8:0:1::1").to_string(), "2001:db8:0:1::/64");
        assert_eq!(client("192.0.2.1").to_string(), "192.0.2.1");
        let network = client("2001:db8:7::").network();
        assert_eq!(client("2001:db8:7:9::1").network(), network);
        assert_ne!(client("2001:db8:8:9::1").network(), network);
        assert_eq!(client("192.0.2.1").network(), None);
    }
}
