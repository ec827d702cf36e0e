//! Where traffic for announced routes can come in: the addresses of the interface that a connection uses.

use crate::bgp::rib_out::NextHops;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use std::net::IpAddr;
use tokio::net::TcpStream;

/// An address of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Local {
    interface: String,
    address: IpAddr,
    loopback: bool,
}

/// The next hops for routes that are announced over a connection.
pub(super) fn next_hops_of(stream: &TcpStream) -> NextHops {
    let here = stream.local_addr().map(|it| it.ip().to_canonical());
    here.map(|here| next_hops(here, &addresses())).unwrap_or_default()
}

/// The address of the connection for its own family, and for the other family the first address of the same interface.
/// A session between link-local addresses shall need no others, so it uses none. Addresses on loopback are those that
/// are announced, which lead nowhere.
fn next_hops(here: IpAddr, all: &[Local]) -> NextHops {
    let interface = all.iter().find(|it| it.address == here).filter(|it| !it.loopback);
    let beside = || all.iter().filter(|it| interface.is_some_and(|i| i.interface == it.interface));
    match here {
        IpAddr::V6(link_local) if link_local.is_unicast_link_local() => {
            NextHops { link_local: Some(link_local), ..NextHops::default() }
        }
        IpAddr::V6(v6) => NextHops {
            v4: beside().find_map(|it| match it.address {
                IpAddr::V4(address) => Some(address),
                IpAddr::V6(_) => None,
            }),
            v6: Some(v6),
            link_local: None,
        },
        IpAddr::V4(v4) => NextHops {
            v4: Some(v4),
            // A link-local address is no next hop for a peer that may be on another link.
            v6: beside().find_map(|it| match it.address {
                IpAddr::V6(address) if !address.is_unicast_link_local() => Some(address),
                _ => None,
            }),
            link_local: None,
        },
    }
}

fn addresses() -> Vec<Local> {
    let Ok(all) = getifaddrs() else { return Vec::new() };
    let local = |it: nix::ifaddrs::InterfaceAddress| {
        let address = it.address?;
        let v4 = address.as_sockaddr_in().map(|it| IpAddr::from(it.ip()));
        let v6 = || address.as_sockaddr_in6().map(|it| IpAddr::from(it.ip()));
        let loopback = it.flags.contains(InterfaceFlags::IFF_LOOPBACK);
        Some(Local { interface: it.interface_name, address: v4.or_else(v6)?, loopback })
    };
    all.filter_map(local).collect()
}

#[cfg(test)]
mod tests {
    use super::{Local, next_hops};
    use crate::bgp::rib_out::NextHops;

    fn machine() -> Vec<Local> {
        [
            ("lo", "127.0.0.1"),
            ("lo", "203.0.113.7"),
            ("lo", "2001:db8:9::7"),
            ("eth0", "192.0.2.1"),
            ("eth0", "192.0.2.2"),
            ("eth0", "fe80::1"),
            ("eth0", "2001:db8::1"),
            ("eth1", "198.51.100.1"),
            ("eth1", "fe80::2"),
        ]
        .map(|(interface, address)| Local {
            interface: interface.to_owned(),
            address: address.parse().unwrap(),
            loopback: interface == "lo",
        })
        .to_vec()
    }

    fn of(here: &str) -> (String, String, String) {
        let NextHops { v4, v6, link_local } = next_hops(here.parse().unwrap(), &machine());
        let text = |it: Option<String>| it.unwrap_or_else(|| "-".to_owned());
        (
            text(v4.map(|it| it.to_string())),
            text(v6.map(|it| it.to_string())),
            text(link_local.map(|it| it.to_string())),
        )
    }

    fn expect(here: &str, expected: [&str; 3]) {
        let [v4, v6, link_local] = expected.map(str::to_owned);
        assert_eq!(of(here), (v4, v6, link_local), "{here}");
    }

    #[test]
    fn routes_lead_to_the_address_of_the_session_and_the_others_of_its_interface() {
        expect("192.0.2.2", ["192.0.2.2", "2001:db8::1", "-"]);
        expect("2001:db8::1", ["192.0.2.1", "2001:db8::1", "-"]);
        expect("198.51.100.1", ["198.51.100.1", "-", "-"]);
    }

    #[test]
    fn a_session_without_addresses_needs_none() {
        expect("fe80::1", ["-", "-", "fe80::1"]);
    }

    #[test]
    fn announced_addresses_on_loopback_are_no_next_hops() {
        expect("203.0.113.7", ["203.0.113.7", "-", "-"]);
        expect("2001:db8:9::7", ["-", "2001:db8:9::7", "-"]);
    }
}
