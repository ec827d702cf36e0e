//! Listeners: bind, accept, release. What a listener serves can change while it stays bound. A closed
//! listener accepts nothing more at once; its connections are asked to end, and are cut when the drain
//! time is over. A UDP listener has no drain time: the address must be free for the next listener. It
//! reads no byte of a connection; `state` calls it.
//!
//! Each connection needs a place, and how many a client may have counts all listeners together
//! ([`crate::places`]). When places run short, idle connections are asked to end.

mod bind;
mod connections;

use crate::http::{self, Connection, Http, Io};
use crate::metrics::ListenerStats;
use crate::places::{Part, Place};
use crate::pool::Pool;
use crate::state::{Entry, Shared};
use crate::workers::Workers;
use crate::{tcp, tls, udp};
use arc_swap::ArcSwap;
use bowline_core::plan::ListenerProtocol;
use bowline_core::update::ListenerKey;
use connections::Connections;
use parking_lot::Mutex;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::{AbortHandle, JoinHandle};

/// The first wait after accepting failed, for example for lack of file descriptors; each further wait is
/// twice as long.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Why a listener could not be opened.
#[derive(Debug)]
pub(crate) enum Failed {
    /// The address could not be bound.
    Bind(io::Error),
    /// This proxy does not support the protocol.
    NotSupported(ListenerProtocol),
    /// Its pool does not exist.
    NoPool,
}

/// What a listener serves.
#[derive(Clone)]
pub(crate) enum Target {
    /// TCP connections to this pool.
    Tcp(Arc<str>),
    /// Datagrams to this pool.
    Udp(Arc<str>),
    /// Requests in clear text.
    Http(Arc<Entry>),
    /// Requests over TLS.
    Https(Arc<Entry>),
}

/// A bound address and port.
pub(crate) struct Listener {
    key: ListenerKey,
    target: ArcSwap<Target>,
    part: Arc<Part>,
    stats: Arc<ListenerStats>,
    connections: Connections,
    shared: Arc<Shared>,
    /// The task that accepts, or that forwards datagrams.
    task: Mutex<Option<JoinHandle<()>>>,
    /// The pool of new UDP sessions.
    datagrams: Option<Arc<ArcSwap<Pool>>>,
}

impl Listener {
    /// Binds, and accepts from now on.
    pub(crate) fn open(
        key: ListenerKey,
        target: Target,
        shared: &Arc<Shared>,
        workers: &Arc<Workers>,
    ) -> Result<Arc<Self>, Failed> {
        let address = key.socket();
        let protocol = match target {
            Target::Tcp(_) => "tcp",
            Target::Udp(_) => "udp",
            Target::Http(_) => "http",
            Target::Https(_) => "https",
        };
        let stats = shared.metrics.listener(address, protocol);
        let mut listener = Self {
            key,
            target: ArcSwap::from_pointee(target),
            part: Part::new(stats.clone()),
            stats,
            connections: Connections::default(),
            shared: shared.clone(),
            task: Mutex::new(None),
            datagrams: None,
        };
        if let Target::Udp(name) = &**listener.target.load() {
            let pool = shared.backend(name).ok_or(Failed::NoPool)?.pool.clone();
            let pool = Arc::new(ArcSwap::new(pool));
            let socket = bind::udp(address).and_then(UdpSocket::from_std).map_err(Failed::Bind)?;
            let limits = udp::Limits {
                places: shared.hall.sessions.clone(),
                part: listener.part.clone(),
                sockets: shared.sessions.clone(),
                idle: udp::IDLE,
            };
            let stats = listener.stats.clone();
            let carry = udp::serve(Arc::new(socket), pool.clone(), limits, stats);
            *listener.task.lock() = Some(tokio::spawn(carry));
            listener.datagrams = Some(pool);
            return Ok(Arc::new(listener));
        }
        let socket = bind::tcp(address).and_then(TcpListener::from_std).map_err(Failed::Bind)?;
        let listener = Arc::new(listener);
        let task = tokio::spawn(listener.clone().accept(socket, workers.clone()));
        *listener.task.lock() = Some(task);
        Ok(listener)
    }

    /// Serves another target from now on; existing connections go on as they began.
    pub(crate) fn serve(&self, target: Target) {
        self.target.store(Arc::new(target));
        self.find_pool();
    }

    /// Sends new UDP sessions to the pool that now has the name.
    pub(crate) fn find_pool(&self) {
        if let (Some(datagrams), Some(name)) = (&self.datagrams, self.pool())
            && let Some(backend) = self.shared.backend(&name)
        {
            datagrams.store(backend.pool.clone());
        }
    }

    /// The pool of a TCP or UDP listener.
    pub(crate) fn pool(&self) -> Option<Arc<str>> {
        match &**self.target.load() {
            Target::Tcp(pool) | Target::Udp(pool) => Some(pool.clone()),
            Target::Http(_) | Target::Https(_) => None,
        }
    }

    /// The counters of this listener.
    pub(crate) fn stats(&self) -> &Arc<ListenerStats> {
        &self.stats
    }

    /// The connections that it has accepted.
    pub(crate) fn connections(&self) -> &Connections {
        &self.connections
    }

    /// Whether places run short, so that idle connections should end.
    pub(crate) fn is_crowded(&self) -> bool {
        self.shared.hall.connections.is_crowded(&self.part)
    }

    /// A place for a further concurrent request on a connection; None if the client has its share.
    pub(crate) fn place(&self, client: IpAddr) -> Option<Place<Option<AbortHandle>>> {
        self.shared.hall.connections.enter_now(&self.part, client)
    }

    /// This task serves the request that has the place.
    pub(crate) fn carried_by(&self, place: u64, task: AbortHandle) {
        self.shared.hall.connections.carried_by(place, task);
    }

    /// Releases the address, and cuts the remaining connections when the time is over.
    pub(crate) async fn close(self: &Arc<Self>, time: Duration) {
        self.connections.ask();
        self.stop().await;
        let (places, part) = (self.shared.hall.connections.clone(), self.part.clone());
        tokio::spawn(async move {
            tokio::time::sleep(time).await;
            places.cut(&part);
        });
    }

    async fn stop(&self) {
        let task = self.task.lock().take();
        if let Some(task) = task {
            task.abort();
            let _ = task.await;
        }
    }

    async fn accept(self: Arc<Self>, socket: TcpListener, workers: Arc<Workers>) {
        let mut pause = SHORTEST_PAUSE;
        loop {
            match socket.accept().await {
                Ok((stream, client)) => {
                    pause = SHORTEST_PAUSE;
                    self.clone().take(stream, client, &workers).await;
                }
                Err(error) if is_of_one_client(&error) => {}
                Err(error) => {
                    tracing::warn!(listener = %self.key.socket(), %error, "cannot accept");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    /// Waits for a place and hands the connection to a worker; a client that has its share is refused.
    async fn take(self: Arc<Self>, stream: TcpStream, client: SocketAddr, workers: &Workers) {
        let places = self.shared.hall.connections.clone();
        let Some(place) = places.enter(&self.part, client.ip()).await else {
            ListenerStats::add(&self.stats.refused, 1);
            tcp::reset(&stream);
            return;
        };
        // A connection that gave way to this one may still be open for a moment.
        let Ok(open) = self.shared.open.clone().acquire_owned().await else { return };
        let (id, place_id, listener) = (self.shared.number(), place.id(), self.clone());
        let carried = workers.carry(stream, move |stream, local, http| async move {
            listener.connection(id, stream, client, local, http).await;
            drop((place, open));
        });
        match carried {
            Ok(task) => places.carried_by(place_id, task),
            // Mostly the client closed the connection at once.
            Err(error) => {
                tracing::debug!(listener = %self.key.socket(), %error, "a connection was lost");
            }
        }
    }

    async fn connection(
        self: Arc<Self>,
        id: u64,
        stream: TcpStream,
        client: SocketAddr,
        local: SocketAddr,
        http: Http,
    ) {
        let target = self.target.load_full();
        let entry = match &*target {
            Target::Tcp(pool) => return self.pass(stream, client, local, pool).await,
            Target::Udp(_) => return,
            Target::Http(entry) | Target::Https(entry) => entry,
        };
        let _active = self.stats.begin();
        let _ = stream.set_nodelay(true);
        let limits = self.shared.options.limits;
        let (io, tls) = if matches!(*target, Target::Https(_)) {
            let certificate = |name: &str| self.shared.certificate(&entry.name, name);
            let certificates = &self.shared.certificates;
            let shaken = tls::accept(stream, certificate, certificates, limits.header_time);
            let Some((stream, given)) = shaken.await else {
                ListenerStats::add(&self.stats.refused, 1);
                return;
            };
            (Io::Tls(stream), Some(given))
        } else {
            (Io::Plain(stream), None)
        };
        let connection = Connection::new(id, client, local, tls, entry.clone(), self.clone());
        http::serve(http, self.shared.clone(), Arc::new(connection), io).await;
    }

    async fn pass(
        self: &Arc<Self>,
        stream: TcpStream,
        client: SocketAddr,
        local: SocketAddr,
        pool: &str,
    ) {
        let Some(backend) = self.shared.backend(pool) else {
            ListenerStats::add(&self.stats.refused, 1);
            return;
        };
        let limits = tcp::Limits {
            connect: self.shared.options.limits.connect_time,
            idle: self.shared.options.limits.tunnel_time,
            crowded: self.shared.options.limits.idle_time,
            is_crowded: {
                let listener = self.clone();
                Arc::new(move || listener.is_crowded())
            },
        };
        let pool = backend.pool.clone();
        tcp::serve(stream, client, local, pool, &limits, &self.stats).await;
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // The task that forwards datagrams holds no listener, and would go on without one.
        if let Some(task) = self.task.get_mut().take() {
            task.abort();
        }
    }
}

/// Whether accepting failed because of the client, so that the next connection may be accepted at once.
fn is_of_one_client(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
            | io::ErrorKind::ConnectionRefused
    )
}
