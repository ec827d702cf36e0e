//! Finds the router on the link of an interface, for peers that are configured by interface (unnumbered). Routers announce
//! themselves by router advertisements (RFC 4861). Some also look for their peers that way, so the node advertises itself,
//! as a router for nothing: with a lifetime of 0.

use super::socket::{index, words};
use super::task::Input;
use crate::datagram::{receive, tell_headers};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddrV6};
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

const SOLICITATION: u8 = 133;
const ADVERTISEMENT: u8 = 134;
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
/// Type, code, checksum (by the kernel), and nothing of interest.
const SOLICIT: [u8; 8] = [SOLICITATION, 0, 0, 0, 0, 0, 0, 0];
/// The same, then no hop limit, no flags, lifetime 0, no timers.
const ADVERTISE: [u8; 16] = [ADVERTISEMENT, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
/// As often as FRR.
const EVERY: Duration = Duration::from_secs(10);
/// While no router is known.
const SOON: Duration = Duration::from_secs(1);

/// Looks for the router until it is dropped.
#[derive(Debug)]
pub(super) struct Discovery {
    pub(super) interface: String,
    task: JoinHandle<()>,
}

impl Discovery {
    /// Tells the task of a peer which router was heard last, and why none can be heard.
    pub(super) fn start(interface: &str, found: mpsc::UnboundedSender<Input>) -> Self {
        let task = tokio::spawn(look(interface.to_owned(), found));
        Self { interface: interface.to_owned(), task }
    }
}

impl Drop for Discovery {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn look(interface: String, found: mpsc::UnboundedSender<Input>) {
    loop {
        let Err(why) = listen(&interface, &found).await;
        // The task of a peer may have ended.
        let _ = found.send(Input::Found(Err(why)));
        sleep(SOON).await;
    }
}

async fn listen(
    interface: &str,
    found: &mpsc::UnboundedSender<Input>,
) -> Result<std::convert::Infallible, String> {
    let index = index(interface)?;
    let failed = |e: io::Error| format!("cannot look for a router at {interface}: {}", words(&e));
    // Tokio has no raw sockets. It only waits here, for which one datagram socket is as good as another.
    let socket = open(interface, index).and_then(|it| UdpSocket::from_std(it.into()));
    let socket = socket.map_err(failed)?;
    let mut last = None;
    let (mut next, mut told) = (Instant::now(), Instant::now());
    loop {
        tokio::select! {
            () = sleep_until(next) => {
                // Without a link nothing can be sent; it may come.
                let to = |group| SocketAddrV6::new(group, 0, 0, index).into();
                let sender = SockRef::from(&socket);
                let _ = sender.send_to(&ADVERTISE, &to(ALL_NODES));
                if last.is_none() {
                    let _ = sender.send_to(&SOLICIT, &to(ALL_ROUTERS));
                }
                next = Instant::now() + if last.is_none() { SOON } else { EVERY };
            }
            ready = socket.readable() => {
                ready.map_err(failed)?;
                let mut buffer = [0; 64];
                let arrived = match socket.try_io(Interest::READABLE, || receive(&socket, &mut buffer)) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                    arrived => arrived.map_err(failed)?,
                };
                // RFC 4861, section 6.1.2.
                if let IpAddr::V6(from) = arrived.from
                    && from.is_unicast_link_local()
                    && (arrived.ttl, arrived.interface) == (255, index)
                    && buffer[..2] == [ADVERTISEMENT, 0]
                    && arrived.length >= ADVERTISE.len()
                    && (last != Some(from) || told.elapsed() > SOON)
                {
                    (last, told) = (Some(from), Instant::now());
                    let _ = found.send(Input::Found(Ok(from)));
                }
            }
        }
    }
}

fn open(interface: &str, index: u32) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6))?;
    socket.set_nonblocking(true)?;
    socket.bind_device(Some(interface.as_bytes()))?;
    socket.set_multicast_if_v6(index)?;
    socket.set_multicast_hops_v6(255)?;
    socket.set_multicast_loop_v6(false)?;
    tell_headers(&socket, true)?;
    Ok(socket)
}
