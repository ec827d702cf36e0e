//! What a load balancer on this machine cannot bind, as the kernel says it. What cannot be read is not
//! held against anybody.

use bowline_core::exposed::view::Machine;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

const PORT_RANGE: &str = "/proc/sys/net/ipv4/ip_local_port_range";
const NONLOCAL_BIND: &str = "/proc/sys/net/ipv4/ip_nonlocal_bind";

/// This machine now.
pub(super) fn read() -> Machine {
    let ephemeral = std::fs::read_to_string(PORT_RANGE).ok();
    let nonlocal = std::fs::read_to_string(NONLOCAL_BIND).ok();
    Machine {
        ephemeral: ephemeral.as_deref().and_then(range),
        addresses: nonlocal.filter(|text| text.trim() == "0").and_then(|_| addresses()),
    }
}

fn range(text: &str) -> Option<RangeInclusive<u16>> {
    let mut ports = text.split_whitespace().map(str::parse);
    match (ports.next()?, ports.next()?) {
        (Ok(first), Ok(last)) if first <= last => Some(first..=last),
        _ => None,
    }
}

/// The addresses of all interfaces, and those that mean all of them.
fn addresses() -> Option<BTreeSet<IpAddr>> {
    let interfaces = nix::ifaddrs::getifaddrs().ok()?;
    let addresses = interfaces.filter_map(|interface| {
        let address = interface.address?;
        let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
    });
    let all = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    Some(addresses.chain(all).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_range_is_read_and_anything_else_is_none() {
        assert_eq!(range("32768\t60999\n"), Some(32_768..=60_999));
        for bad in ["", "1", "a b", "9 1", "1 70000"] {
            assert_eq!(range(bad), None, "{bad}");
        }
    }

    #[test]
    fn loopback_is_an_address_of_this_machine() {
        assert!(addresses().unwrap().contains(&Ipv4Addr::LOCALHOST.into()));
    }
}
