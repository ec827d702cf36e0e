//! Makes a connection to a peer.

use super::connection::{Dropped, Events, Happened};
use super::interface;
use super::peer::Peer;
use super::socket::{target, to_connect, words};
use crate::bgp::rib_out::NextHops;
use crate::bgp::session::Conn;
use tokio::net::{TcpSocket, TcpStream};

/// Connects, and tells the task of the peer how that ended, unless it is no longer interested.
pub(super) async fn dial(id: Conn, peer: Result<Peer, String>, dropped: Dropped, events: Events) {
    let happened = tokio::select! {
        _ = dropped => return,
        connected = connect(peer) => match connected {
            Ok((stream, local)) => Happened::Connected(stream, local),
            Err(why) => Happened::NotConnected(why),
        },
    };
    // Without a task the connection is not wanted.
    let _ = events.send((id, happened)).await;
}

async fn connect(peer: Result<Peer, String>) -> Result<(TcpStream, NextHops), String> {
    let peer = peer?;
    let target = target(&peer)?;
    let socket = TcpSocket::from_std_stream(to_connect(&peer, target)?.into());
    let connected = socket.connect(target).await;
    let stream = connected.map_err(|e| {
        format!("cannot connect to {} at port {}: {}", peer.remote, peer.port, words(&e))
    })?;
    let local = interface::next_hops_of(&stream);
    Ok((stream, local))
}
