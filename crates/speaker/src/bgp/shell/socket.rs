//! Sockets with the options that a peer's configuration asks for.

use super::peer::{Distance, Peer, Remote};
use bowline_sys::{set_minimum_ttl, set_tcp_md5};
use nix::net::if_::if_nametoindex;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// RFC 791's Internetwork Control, which routers serve first.
const CONTROL: u32 = 0xc0;
/// The port of a socket that nothing is sent from: discard.
const UNUSED_PORT: u16 = 9;
/// Linux's default.
const DEFAULT_TTL: u32 = 64;

/// An error without the number of the operating system.
pub(super) fn words(error: &io::Error) -> String {
    let text = error.to_string();
    text.split_once(" (os error").map_or(text.clone(), |(words, _)| words.to_owned())
}

/// The address to connect to.
pub(super) fn target(peer: &Peer) -> Result<SocketAddr, String> {
    Ok(match &peer.remote {
        Remote::Address(address) => SocketAddr::new(*address, peer.port),
        Remote::LinkLocal(address, interface) => on_link(*address, peer.port, index(interface)?),
        Remote::Interface(interface) => {
            index(interface)?;
            return Err(format!(
                "no router has been heard on {interface} (no router advertisement)"
            ));
        }
    })
}

fn on_link(address: Ipv6Addr, port: u16, index: u32) -> SocketAddr {
    SocketAddrV6::new(address, port, 0, index).into()
}

/// The index of an interface.
pub(super) fn index(interface: &str) -> Result<u32, String> {
    if_nametoindex(interface).map_err(|_| format!("this node has no interface {interface}"))
}

/// A socket to connect to `target` with.
pub(super) fn to_connect(peer: &Peer, target: SocketAddr) -> Result<Socket, String> {
    let what = |what: &'static str| move |e: io::Error| format!("cannot {what}: {}", words(&e));
    let socket = Socket::new(Domain::for_address(target), Type::STREAM, Some(Protocol::TCP))
        .map_err(what("open a socket"))?;
    socket.set_nonblocking(true).map_err(what("open a socket"))?;
    if let Some(vrf) = &peer.vrf {
        let bound = socket.bind_device(Some(vrf.as_bytes()));
        bound.map_err(|e| format!("cannot use the VRF {vrf}: {}", words(&e)))?;
    }
    if let Some(source) = peer.source {
        let from = match (source, target) {
            (IpAddr::V6(source), SocketAddr::V6(target)) if source.is_unicast_link_local() => {
                on_link(source, 0, target.scope_id())
            }
            _ => SocketAddr::new(source, 0),
        };
        let bound = socket.bind(&from.into());
        bound.map_err(|e| format!("cannot connect from {source}: {}", words(&e)))?;
    }
    if let Some(password) = &peer.password {
        set_tcp_md5(&socket, target.ip(), password.bytes()).map_err(what("set the password"))?;
    }
    tune(&socket, peer.distance, target.is_ipv6()).map_err(what("set the options of a socket"))?;
    Ok(socket)
}

/// The address of this node from which it would send to another one.
pub(super) fn routed_from(
    to: IpAddr,
    interface: Option<u32>,
    vrf: Option<&str>,
) -> Result<IpAddr, String> {
    let target = match (to, interface) {
        (IpAddr::V6(to), Some(index)) => on_link(to, UNUSED_PORT, index),
        _ => SocketAddr::new(to, UNUSED_PORT),
    };
    let routed = || {
        let socket = Socket::new(Domain::for_address(target), Type::DGRAM, Some(Protocol::UDP))?;
        if let Some(vrf) = vrf {
            socket.bind_device(Some(vrf.as_bytes()))?;
        }
        // It only looks for the route. Nothing is sent.
        socket.connect(&target.into())?;
        socket.local_addr()
    };
    let no_route = |e: io::Error| format!("no route to {to}: {}", words(&e));
    let local = routed().map_err(no_route)?.as_socket();
    Ok(local.ok_or_else(|| format!("no route to {to}"))?.ip())
}

/// Options that do not depend on who made the connection.
pub(super) fn tune<'a>(
    socket: impl Into<SockRef<'a>>,
    distance: Distance,
    v6: bool,
) -> io::Result<()> {
    let socket = socket.into();
    socket.set_tcp_nodelay(true)?;
    let ttl = match distance {
        Distance::Link => 1,
        Distance::LinkProven => 255,
        Distance::Routed => DEFAULT_TTL,
    };
    if v6 {
        socket.set_unicast_hops_v6(ttl)?;
        socket.set_tclass_v6(CONTROL)?;
    } else {
        socket.set_ttl_v4(ttl)?;
        socket.set_tos_v4(CONTROL)?;
    }
    match distance {
        Distance::LinkProven => set_minimum_ttl(&*socket, v6, 255),
        Distance::Link | Distance::Routed => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn errors_are_told_without_the_number_of_the_operating_system() {
        let refused = std::io::Error::from_raw_os_error(111);
        assert_eq!(words(&refused), "Connection refused");
        assert_eq!(words(&std::io::Error::other("no more")), "no more");
    }
}
