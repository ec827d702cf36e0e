//! The clients that a pool admits, merged and sorted so that the cost of a look-up hardly depends
//! on the number of ranges.

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::net::IpAddr;

#[derive(Debug, Default)]
pub(super) struct Ranges {
    v4: Box<[(u32, u32)]>,
    v6: Box<[(u128, u128)]>,
    open: bool,
}

impl Ranges {
    /// Without any range, all clients are admitted.
    pub(super) fn new(ranges: &[IpNet]) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for range in ranges {
            match range {
                IpNet::V4(net) => v4.push(*net),
                IpNet::V6(net) => v6.push(*net),
            }
        }
        let bounds4 = |net: &Ipv4Net| (net.network().to_bits(), net.broadcast().to_bits());
        let bounds6 = |net: &Ipv6Net| (net.network().to_bits(), net.broadcast().to_bits());
        Self {
            v4: Ipv4Net::aggregate(&v4).iter().map(bounds4).collect(),
            v6: Ipv6Net::aggregate(&v6).iter().map(bounds6).collect(),
            open: ranges.is_empty(),
        }
    }

    pub(super) fn admit(&self, client: IpAddr) -> bool {
        self.open
            || match client.to_canonical() {
                IpAddr::V4(v4) => within(&self.v4, v4.to_bits()),
                IpAddr::V6(v6) => within(&self.v6, v6.to_bits()),
            }
    }
}

fn within<T: Ord + Copy>(ranges: &[(T, T)], value: T) -> bool {
    let after = ranges.partition_point(|(first, _)| *first <= value);
    after.checked_sub(1).and_then(|i| ranges.get(i)).is_some_and(|(_, last)| value <= *last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_family_without_a_range_is_not_admitted_by_the_other_ones() {
        let v6_only = Ranges::new(&["::/0".parse().unwrap()]);
        assert!(v6_only.admit("2001:db8::1".parse().unwrap()));
        assert!(!v6_only.admit("192.0.2.1".parse().unwrap()));
        assert!(!v6_only.admit("::ffff:192.0.2.1".parse().unwrap()));
        let v4_only = Ranges::new(&["0.0.0.0/0".parse().unwrap()]);
        assert!(v4_only.admit("::ffff:192.0.2.1".parse().unwrap()));
        assert!(!v4_only.admit("::1".parse().unwrap()));
    }

    proptest! {
        #[test]
        fn a_client_is_admitted_if_some_range_contains_it(
            nets in prop::collection::vec((any::<u8>(), 20u8..=32), 0..6), client: u8,
        ) {
            let nets: Vec<IpNet> = nets
                .into_iter()
                .map(|(low, len)| IpNet::new(IpAddr::from([10, 0, 0, low]), len).unwrap())
                .collect();
            let client = IpAddr::from([10, 0, 0, client]);
            let expected = nets.is_empty() || nets.iter().any(|net| net.contains(&client));
            prop_assert_eq!(Ranges::new(&nets).admit(client), expected);
        }
    }
}
