//! Carries bytes between one TCP connection and the task of its peer. What the task does not read in time waits in the
//! kernel, so a peer that sends much fills no memory.

use super::socket::words;
use crate::bgp::rib_out::NextHops;
use crate::bgp::session::Conn;
use std::net::IpAddr;
use std::pin::pin;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

/// How long a connection that this side closes may take to send what is left.
const LINGER: Duration = Duration::from_secs(1);

/// How much is read at once.
const READ: usize = 16 * 1024;

/// What a connection tells the task of its peer.
#[derive(Debug)]
pub(super) enum Happened {
    /// It was made, from a machine with these addresses.
    Connected(TcpStream, NextHops),
    /// It could not be made.
    NotConnected(String),
    /// Bytes of the peer.
    Received(Vec<u8>),
    /// The kernel has taken so many pieces.
    Written(u64),
    /// The peer or the kernel ended it.
    Closed(String),
}

pub(super) type Events = mpsc::Sender<(Conn, Happened)>;

/// What the task of a peer holds of a connection. Dropping it closes the connection after a last try to write what is
/// left, or ends the attempt to make it.
#[derive(Debug)]
pub(super) struct Link {
    /// `None` while the connection is being made.
    pub(super) outgoing: Option<mpsc::UnboundedSender<Vec<u8>>>,
    /// The address of this node that it uses, once it is made.
    pub(super) local: Option<IpAddr>,
    /// How many pieces were sent so far.
    pub(super) pieces: u64,
    _held: oneshot::Sender<()>,
}

impl Link {
    /// A link, and what becomes ready when it is dropped.
    pub(super) fn new(outgoing: Option<mpsc::UnboundedSender<Vec<u8>>>) -> (Self, Dropped) {
        let (held, dropped) = oneshot::channel();
        (Self { outgoing, local: None, pieces: 0, _held: held }, dropped)
    }
}

pub(super) type Dropped = oneshot::Receiver<()>;

/// Carries until one side ends the connection.
pub(super) async fn carry(
    id: Conn,
    stream: TcpStream,
    outgoing: mpsc::UnboundedReceiver<Vec<u8>>,
    dropped: Dropped,
    events: Events,
) {
    let events = &events;
    let (from, to) = stream.into_split();
    let late = async {
        let _ = dropped.await;
        sleep(LINGER).await;
    };
    let carried = async {
        let mut reading = pin!(read(id, from, events));
        tokio::select! {
            why = &mut reading => tell(id, Happened::Closed(why), events).await,
            written = write(id, to, outgoing, events) => match written {
                // Closing with bytes unread resets the connection, and the peer would lose what was just written.
                Ok(()) => _ = reading.await,
                Err(error) => tell(id, Happened::Closed(words(&error)), events).await,
            },
        }
    };
    tokio::select! {
        () = late => {}
        () = carried => {}
    }
}

async fn tell(id: Conn, happened: Happened, events: &Events) {
    // Without a task there is nothing to tell.
    let _ = events.send((id, happened)).await;
}

/// Reads until the peer ends the connection, and says how. It goes on reading when the task is no longer interested.
async fn read(id: Conn, mut from: OwnedReadHalf, events: &Events) -> String {
    let mut buffer = vec![0; READ];
    loop {
        match from.read(&mut buffer).await {
            Ok(0) => return "the peer closed it".to_owned(),
            Ok(length) => {
                let bytes = buffer.get(..length).unwrap_or_default().to_vec();
                tell(id, Happened::Received(bytes), events).await;
            }
            Err(error) => return words(&error),
        }
    }
}

async fn write(
    id: Conn,
    mut to: OwnedWriteHalf,
    mut outgoing: mpsc::UnboundedReceiver<Vec<u8>>,
    events: &Events,
) -> std::io::Result<()> {
    let mut pieces = 0;
    while let Some(bytes) = outgoing.recv().await {
        to.write_all(&bytes).await?;
        pieces += 1;
        tell(id, Happened::Written(pieces), events).await;
    }
    to.shutdown().await
}
