//! What a load balancer on this machine cannot bind, according to the kernel: addresses, port range and
//! listening sockets. What cannot be read restricts nothing. The template role and the command line call it.

use bowline_core::exposed::foreign::Listening;
use bowline_core::exposed::view::Machine;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

const PORT_RANGE: &str = "/proc/sys/net/ipv4/ip_local_port_range";
const NONLOCAL_V4: &str = "/proc/sys/net/ipv4/ip_nonlocal_bind";
const NONLOCAL_V6: &str = "/proc/sys/net/ipv6/ip_nonlocal_bind";
/// Tables of TCP sockets, one per family.
const SOCKETS: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];
/// The state of a listening socket.
const LISTENS: &str = "0A";

/// This machine now, with the sockets of this process, and the listening sockets of all others.
pub(super) fn read() -> (Machine, Listening) {
    let text = |path: &str| std::fs::read_to_string(path).ok();
    let nonlocal = |path: &str| text(path).is_none_or(|text| text.trim() != "0");
    let own = own_sockets();
    let sockets = SOCKETS.iter().filter_map(|path| text(path));
    let sockets: Vec<Socket> = sockets.flat_map(|table| listening(&table)).collect();
    let (ours, others): (Vec<_>, Vec<_>) =
        sockets.into_iter().partition(|socket| own.contains(&socket.inode));
    let places = |sockets: Vec<Socket>| sockets.into_iter().map(|socket| (socket.ip, socket.port));
    let machine = Machine {
        ephemeral: text(PORT_RANGE).as_deref().and_then(range),
        addresses: machine_addresses(),
        nonlocal_v4: nonlocal(NONLOCAL_V4),
        nonlocal_v6: nonlocal(NONLOCAL_V6),
        listening: places(ours).collect(),
    };
    (machine, places(others).collect())
}

fn range(text: &str) -> Option<RangeInclusive<u16>> {
    let mut ports = text.split_whitespace().map(str::parse);
    match (ports.next()?, ports.next()?) {
        (Ok(first), Ok(last)) if first <= last => Some(first..=last),
        _ => None,
    }
}

/// The addresses of all interfaces of this machine, and the unspecified ones. None: they cannot be read.
pub fn machine_addresses() -> Option<BTreeSet<IpAddr>> {
    let interfaces = nix::ifaddrs::getifaddrs().ok()?;
    let addresses = interfaces.filter_map(|interface| {
        let address = interface.address?;
        let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
    });
    let all = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    Some(addresses.chain(all).collect())
}

#[derive(Debug, PartialEq, Eq)]
struct Socket {
    ip: IpAddr,
    port: u16,
    inode: u64,
}

/// The listening sockets of a table of the kernel.
fn listening(table: &str) -> Vec<Socket> {
    let sockets = table.lines().skip(1).filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, local, _, state, ..] = words.as_slice() else { return None };
        let (ip, port) = local.split_once(':').filter(|_| *state == LISTENS)?;
        let port = u16::from_str_radix(port, 16).ok()?;
        Some(Socket { ip: address(ip)?, port, inode: words.get(9)?.parse().ok()? })
    });
    sockets.collect()
}

/// Parses 32-bit words in memory order.
fn address(hex: &str) -> Option<IpAddr> {
    let word = |at: usize| Some(u32::from_str_radix(hex.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    match hex.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let words = [word(0)?, word(8)?, word(16)?, word(24)?];
            Some(Ipv6Addr::from(<[u8; 16]>::try_from(words.concat()).ok()?).into())
        }
        _ => None,
    }
}

/// The inodes of this process's sockets.
fn own_sockets() -> BTreeSet<u64> {
    let files = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let links = files.filter_map(|file| std::fs::read_link(file.path()).ok());
    let inode = |link: std::path::PathBuf| {
        link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    };
    links.filter_map(inode).collect()
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
        assert!(machine_addresses().unwrap().contains(&Ipv4Addr::LOCALHOST.into()));
    }

    #[test]
    fn what_this_process_listens_on_is_never_the_load_balancers() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let table = std::fs::read_to_string(SOCKETS[0]).unwrap();
        let mut found = listening(&table);
        found.retain(|socket| socket.port == at.port());
        let inode = found[0].inode;
        assert_eq!(found, [Socket { ip: at.ip(), port: at.port(), inode }]);
        assert!(own_sockets().contains(&inode));
        let (machine, others) = read();
        let at = (at.ip(), at.port());
        assert!(machine.listening.contains(&at) && !others.contains(at));
        let six = "0000000000000000FFFF00000100007F";
        assert_eq!(address(six), Some("::ffff:127.0.0.1".parse().unwrap()));
    }
}
