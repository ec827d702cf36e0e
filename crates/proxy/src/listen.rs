//! Addresses and ports: bound, accepting, released. What a listener serves can change while it stays
//! bound. A closed one accepts nothing more at once; its connections are asked to end, and are cut
//! when their drain time is over. Datagrams have none: their address must be free for who comes next.
//! It looks into no byte of a connection.
//!
//! Each connection needs a place, which a client is given or refused for what it has at all listeners
//! together ([`crate::places`]). When places run short, idle connections are asked to leave.

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

/// The first wait after accepting failed, as when there are no file descriptors; it doubles each time.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Why there is no listener.
#[derive(Debug)]
pub(crate) enum Failed {
    /// The address could not be bound.
    Bind(io::Error),
    /// Nothing here speaks it.
    NotSupported(ListenerProtocol),
    /// Its pool does not exist.
    NoPool,
}

/// What connections meet.
#[derive(Clone)]
pub(crate) enum Target {
    /// Passed through to this pool.
    Tcp(Arc<str>),
    /// Datagrams to this pool.
    Udp(Arc<str>),
    /// Requests in clear text.
    Http(Arc<Entry>),
    /// Requests in TLS.
    Https(Arc<Entry>),
}

/// An address and port that is bound.
pub(crate) struct Listener {
    key: ListenerKey,
    target: ArcSwap<Target>,
    part: Arc<Part>,
    stats: Arc<ListenerStats>,
    connections: Connections,
    shared: Arc<Shared>,
    /// What accepts, or carries datagrams.
    task: Mutex<Option<JoinHandle<()>>>,
    /// Where new sessions of datagrams go.
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

    /// Serves something else from now on; connections that are there go on as they began.
    pub(crate) fn serve(&self, target: Target) {
        self.target.store(Arc::new(target));
        self.find_pool();
    }

    /// Datagrams go to the pool that now has the name.
    pub(crate) fn find_pool(&self) {
        if let (Some(datagrams), Some(name)) = (&self.datagrams, self.pool())
            && let Some(backend) = self.shared.backend(&name)
        {
            datagrams.store(backend.pool.clone());
        }
    }

    /// The pool that it passes everything to.
    pub(crate) fn pool(&self) -> Option<Arc<str>> {
        match &**self.target.load() {
            Target::Tcp(pool) | Target::Udp(pool) => Some(pool.clone()),
            Target::Http(_) | Target::Https(_) => None,
        }
    }

    /// What is counted here.
    pub(crate) fn stats(&self) -> &Arc<ListenerStats> {
        &self.stats
    }

    /// What it has accepted.
    pub(crate) fn connections(&self) -> &Connections {
        &self.connections
    }

    /// Whether idle connections hold places that others could want.
    pub(crate) fn is_crowded(&self) -> bool {
        self.shared.hall.connections.is_crowded(&self.part)
    }

    /// A place for a request beside others on a connection; none if the client has its share.
    pub(crate) fn place(&self, client: IpAddr) -> Option<Place<Option<AbortHandle>>> {
        self.shared.hall.connections.enter_now(&self.part, client)
    }

    /// This task carries the request that has the place.
    pub(crate) fn carried_by(&self, place: u64, task: AbortHandle) {
        self.shared.hall.connections.carried_by(place, task);
    }

    /// Releases the address, and cuts what is left when the time is over.
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

    /// Has a connection carried, once there is a place for it; a client that has its share is sent away.
    async fn take(self: Arc<Self>, stream: TcpStream, client: SocketAddr, workers: &Workers) {
        let places = self.shared.hall.connections.clone();
        let Some(place) = places.enter(&self.part, client.ip()).await else {
            ListenerStats::add(&self.stats.refused, 1);
            tcp::reset(&stream);
            return;
        };
        // What gave way to it may still be there for a moment.
        let Ok(open) = self.shared.open.clone().acquire_owned().await else { return };
        let (id, place_id, listener) = (self.shared.number(), place.id(), self.clone());
        let carried = workers.carry(stream, move |stream, local, http| async move {
            listener.connection(id, stream, client, local, http).await;
            drop((place, open));
        });
        match carried {
            Ok(task) => places.carried_by(place_id, task),
            // Its client went away at once, as a rule.
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
        // What carries datagrams holds no listener, and would go on without one.
        if let Some(task) = self.task.get_mut().take() {
            task.abort();
        }
    }
}

/// Whether accepting failed because of the client, so that the next one may be taken at once.
fn is_of_one_client(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
            | io::ErrorKind::ConnectionRefused
    )
}
