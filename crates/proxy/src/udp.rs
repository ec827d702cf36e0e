//! UDP datagrams: those of one client go to one member through a socket of their own, and answers go
//! to the client from the listening address. A session ends when it is idle, when its member is gone
//! and drained, or when another session gets its place. Listeners bind and call [`serve`].

mod sessions;
#[cfg(test)]
mod tests;

use crate::metrics::ListenerStats;
use crate::places::{Part, Sessions as Places};
use crate::pool::{Client, Failure, Pick, Pool};
use crate::proxy_protocol::{Carrier, Header};
use arc_swap::ArcSwap;
pub(crate) use sessions::{Session, SessionTable};
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::sleep_until;

/// The largest possible datagram.
const LARGEST: usize = 65_535;
/// This many datagrams are read before other tasks get a turn.
const BATCH: usize = 64;

/// How long a session may be silent.
pub(crate) const IDLE: Duration = Duration::from_secs(30);

/// Limits of sessions.
#[derive(Clone)]
pub(crate) struct Limits {
    /// Places for the sessions of all listeners.
    pub(crate) places: Arc<Places>,
    /// The listener's part of them.
    pub(crate) part: Arc<Part>,
    /// One permit for each session until its socket is closed.
    pub(crate) sockets: Arc<Semaphore>,
    /// How long a session may be silent.
    pub(crate) idle: Duration,
}

/// Serves a socket until it is dropped. A new session goes to the pool that is current when it begins.
pub(crate) async fn serve(
    socket: Arc<UdpSocket>,
    pool: Arc<ArcSwap<Pool>>,
    limits: Limits,
    stats: Arc<ListenerStats>,
) {
    let Ok(local) = socket.local_addr() else { return };
    let sessions = Arc::new(SessionTable::default());
    limits.part.has_sessions(&sessions);
    let mut listener =
        Listener { socket, local, pool, limits, stats, sessions, tasks: JoinSet::new() };
    listener.run().await;
}

struct Listener {
    socket: Arc<UdpSocket>,
    local: SocketAddr,
    pool: Arc<ArcSwap<Pool>>,
    limits: Limits,
    stats: Arc<ListenerStats>,
    sessions: Arc<SessionTable>,
    /// Ended with the listener.
    tasks: JoinSet<()>,
}

impl Listener {
    async fn run(&mut self) {
        let mut buffer = vec![0; LARGEST];
        loop {
            if self.socket.readable().await.is_err() {
                return;
            }
            for _ in 0..BATCH {
                match self.socket.try_recv_from(&mut buffer) {
                    Ok((length, client)) => self.datagram(client, &buffer[..length]),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    // For example, a client refused an answer.
                    Err(_) => {}
                }
            }
            while self.tasks.try_join_next().is_some() {}
            tokio::task::coop::consume_budget().await;
        }
    }

    fn datagram(&mut self, client: SocketAddr, bytes: &[u8]) {
        let pool = self.pool.load_full();
        if !pool.allows(client.ip()) {
            ListenerStats::add(&self.stats.refused, 1);
            return;
        }
        ListenerStats::add(&self.stats.bytes_in, bytes.len() as u64);
        let current = self.sessions.get(client).filter(|session| session.belongs_to(&pool));
        let mut refusing = None;
        if let Some(session) = current {
            if session.send(bytes) {
                return;
            }
            refusing = session.upstream.peer_addr().ok();
        }
        match self.begin(&pool, client, refusing.as_slice()) {
            Some(session) => _ = session.send(bytes),
            None => ListenerStats::add(&self.stats.refused, 1),
        }
    }

    /// Begins a session, with another member than the one that refuses, if there is another.
    fn begin(
        &mut self,
        pool: &Arc<Pool>,
        client: SocketAddr,
        refusing: &[SocketAddr],
    ) -> Option<Arc<Session>> {
        let who = Client { addr: client.ip(), cookie: None };
        let pick = pool.pick(&who, refusing).or_else(|| pool.pick(&who, &[]))?;
        // Sessions that were told to end may still be open for a moment.
        let open = self.limits.sockets.clone().try_acquire_owned().ok()?;
        let upstream = match connect(pick.address()) {
            Ok(upstream) => upstream,
            Err(error) => {
                tracing::debug!(member = %pick.address(), %error, "cannot open a socket");
                return None;
            }
        };
        let header = pool
            .config()
            .proxy_protocol
            .then(|| Header::new(client, self.local, Carrier::Datagram));
        let session = Arc::new(Session::new(upstream, Arc::downgrade(pool), header));
        let Limits { places, part, .. } = &self.limits;
        let place = places.enter(part, client.ip(), &session)?;
        session.takes(place.id());
        self.sessions.put(client, session.clone());
        let (socket, stats) = (self.socket.clone(), self.stats.clone());
        let (sessions, idle) = (self.sessions.clone(), self.limits.idle);
        let mine = session.clone();
        self.tasks.spawn(async move {
            let _active = stats.begin();
            answer(&mine, client, &socket, &pick, idle, &stats).await;
            sessions.remove(client, &mine);
            drop((mine, place, open));
        });
        Some(session)
    }
}

/// Sends the member's answers to the client until the session is over.
async fn answer(
    session: &Session,
    client: SocketAddr,
    socket: &UdpSocket,
    pick: &Pick,
    idle: Duration,
    stats: &ListenerStats,
) {
    let cancelled = pick.cancelled();
    tokio::pin!(cancelled);
    loop {
        let ends = session.last_used() + idle;
        tokio::select! {
            ready = session.upstream.readable() => {
                if ready.is_err() {
                    return;
                }
                match relay(session, client, socket, stats).await {
                    Ok(true) => pick.succeeded(),
                    Ok(false) => {}
                    Err(_) => return pick.failed(Failure::Connect),
                }
            }
            () = sleep_until(ends) => {
                if session.last_used() + idle <= tokio::time::Instant::now() {
                    return;
                }
            }
            () = &mut cancelled => return,
            refused = session.ended() => {
                if refused {
                    pick.failed(Failure::Connect);
                }
                return;
            }
        }
    }
}

/// Forwards the datagrams that are there, and returns whether there were any; an error is the
/// member's.
async fn relay(
    session: &Session,
    client: SocketAddr,
    socket: &UdpSocket,
    stats: &ListenerStats,
) -> io::Result<bool> {
    for i in 0..BATCH {
        let datagram = sessions::with_buffer(|buffer| match session.upstream.try_recv(buffer) {
            // Most datagrams are sent on at once and never copied.
            Ok(length) => match socket.try_send_to(&buffer[..length], client) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    Ok(Some((length, Some(buffer[..length].to_vec()))))
                }
                _ => Ok(Some((length, None))),
            },
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        })?;
        let Some((length, rest)) = datagram else { return Ok(i > 0) };
        session.touch();
        ListenerStats::add(&stats.bytes_out, length as u64);
        if let Some(rest) = rest {
            // A datagram that cannot be sent is lost, which UDP allows.
            let _ = socket.send_to(&rest, client).await;
        }
    }
    Ok(true)
}

fn connect(member: SocketAddr) -> io::Result<UdpSocket> {
    let any = match member {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let socket = std::net::UdpSocket::bind(any)?;
    socket.connect(member)?;
    socket.set_nonblocking(true)?;
    UdpSocket::from_std(socket)
}
