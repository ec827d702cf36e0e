//! Accepts the connections of peers that may connect, and passes each to the task of its peer. Without such a peer
//! nothing listens, so that another BGP speaker on the machine can have the port.

use super::peer::{Password, Remote};
use super::socket::{index, words};
use super::task::Input;
use bowline_sys::set_tcp_md5;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// How long to wait when the port is taken, or a connection cannot be accepted.
const AGAIN: Duration = Duration::from_secs(5);
const SOON: Duration = Duration::from_millis(100);

/// A peer that may connect.
#[derive(Clone, Debug)]
pub(super) struct Expected {
    pub(super) remote: Remote,
    pub(super) password: Option<Password>,
    pub(super) input: mpsc::UnboundedSender<Input>,
}

/// The listener, which runs from the first peer that may connect on.
#[derive(Debug)]
pub(super) struct Listener {
    port: u16,
    expected: watch::Sender<Vec<Expected>>,
    task: Option<JoinHandle<()>>,
}

impl Listener {
    pub(super) fn new(port: u16) -> Self {
        Self { port, expected: watch::Sender::default(), task: None }
    }

    /// These peers may connect.
    pub(super) fn set(&mut self, expected: Vec<Expected>, runtime: &tokio::runtime::Handle) {
        if expected.is_empty() && self.task.is_none() {
            return;
        }
        self.expected.send_replace(expected);
        if self.task.is_none() {
            let state = State { port: self.port, sockets: Vec::new(), signed: BTreeMap::new() };
            self.task = Some(runtime.spawn(state.run(self.expected.subscribe())));
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

struct State {
    port: u16,
    sockets: Vec<TcpListener>,
    /// The passwords that the sockets have.
    signed: BTreeMap<IpAddr, Password>,
}

impl State {
    async fn run(mut self, mut expected: watch::Receiver<Vec<Expected>>) {
        loop {
            let peers = expected.borrow_and_update().clone();
            let prepared = self.prepare(&peers).map_err(|error| {
                self.close();
                format!("this node cannot listen at port {}: {}", self.port, words(&error))
            });
            for peer in &peers {
                // The task of a peer ends after it has left the set.
                let _ = peer.input.send(Input::NotListening(prepared.clone().err()));
            }
            loop {
                tokio::select! {
                    changed = expected.changed() => match changed {
                        Ok(()) => break,
                        Err(_) => return,
                    },
                    () = sleep(AGAIN), if prepared.is_err() => break,
                    accepted = accept(&self.sockets) => match accepted {
                        Ok((stream, from)) => pass(stream, from, &peers),
                        // Too many open files, for example. It would fail again at once.
                        Err(_) => sleep(SOON).await,
                    },
                }
            }
        }
    }

    fn close(&mut self) {
        self.sockets.clear();
        self.signed.clear();
    }

    fn prepare(&mut self, peers: &[Expected]) -> io::Result<()> {
        if peers.is_empty() {
            self.close();
            return Ok(());
        }
        if self.sockets.is_empty() {
            self.sockets.push(listen(Ipv4Addr::UNSPECIFIED.into(), self.port)?);
            match listen(Ipv6Addr::UNSPECIFIED.into(), self.port) {
                Ok(socket) => self.sockets.push(socket),
                // A machine without IPv6.
                Err(error) if error.raw_os_error() == Some(nix::libc::EAFNOSUPPORT) => {}
                Err(error) => return Err(error),
            }
        }
        let wanted: BTreeMap<_, _> = peers
            .iter()
            .filter_map(|peer| Some((peer.remote.address()?, peer.password.clone()?)))
            .collect();
        for address in self.signed.keys().filter(|address| !wanted.contains_key(address)) {
            self.sign(*address, &[])?;
        }
        for (address, password) in &wanted {
            if self.signed.get(address) != Some(password) {
                self.sign(*address, password.bytes())?;
            }
        }
        self.signed = wanted;
        Ok(())
    }

    fn sign(&self, address: IpAddr, password: &[u8]) -> io::Result<()> {
        for socket in &self.sockets {
            if socket.local_addr()?.is_ipv4() == address.is_ipv4() {
                set_tcp_md5(socket, address, password)?;
            }
        }
        Ok(())
    }
}

fn listen(address: IpAddr, port: u16) -> io::Result<TcpListener> {
    let at = SocketAddr::new(address, port);
    let socket = Socket::new(Domain::for_address(at), Type::STREAM, Some(Protocol::TCP))?;
    if at.is_ipv6() {
        socket.set_only_v6(true)?;
        // The answer to a peer that demands it (RFC 5082). What follows has the TTL of the peer.
        socket.set_unicast_hops_v6(255)?;
    } else {
        socket.set_ttl_v4(255)?;
    }
    // Connections of the process before do not keep the port.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&at.into())?;
    socket.listen(64)?;
    TcpListener::from_std(socket.into())
}

async fn accept(sockets: &[TcpListener]) -> io::Result<(TcpStream, SocketAddr)> {
    match sockets {
        [] => std::future::pending().await,
        [only] => only.accept().await,
        [one, other, ..] => tokio::select! {
            accepted = one.accept() => accepted,
            accepted = other.accept() => accepted,
        },
    }
}

/// Passes a connection to the task of its peer. A connection of anything else is reset: it is not worth an answer.
fn pass(stream: TcpStream, from: SocketAddr, peers: &[Expected]) {
    let is_from = |remote: &Remote| match (remote, from) {
        (Remote::LinkLocal(address, interface), SocketAddr::V6(from)) => {
            address == from.ip() && index(interface) == Ok(from.scope_id())
        }
        (Remote::Interface(interface), SocketAddr::V6(from)) => {
            from.ip().is_unicast_link_local() && index(interface) == Ok(from.scope_id())
        }
        (remote, from) => remote.address() == Some(from.ip()),
    };
    match peers.iter().find(|peer| is_from(&peer.remote)) {
        Some(peer) => _ = peer.input.send(Input::Accepted(stream)),
        None => _ = SockRef::from(&stream).set_linger(Some(Duration::ZERO)),
    }
}
