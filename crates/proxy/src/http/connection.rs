//! The life of a client's connection: requests one after another on HTTP/1.1, concurrent streams on
//! HTTP/2, until it is idle for too long, drains, or is cut. It decides nothing about requests; `listen`
//! calls it.

use super::answer;
use super::callbacks::Callbacks;
use super::forwarded::Told;
use super::head::{self, Bounds, Next, unless_lost};
use super::scope::run;
use super::stream::{Downstream, Io};
use crate::listen::Listener;
use crate::metrics::ListenerStats;
use crate::places::{Budget, HeadBytes, Place, Taken};
use crate::state::{Entry, Shared};
use crate::tls::Given;
use pingora_core::apps::{HttpPersistentSettings, HttpServerApp, ReusedHttpStream};
use pingora_core::protocols::Digest;
use pingora_core::protocols::http::ServerSession;
use pingora_core::protocols::http::v2::server::{
    H2Accept, H2Options, HttpSession as Http2Session, handshake,
};
use pingora_core::server::configuration::ServerConf;
use pingora_http::{RequestHeader, ResponseHeader};
use pingora_proxy::{HttpProxy, http_proxy};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How long an idle connection stays when its place is wanted or the proxy is about to end: long enough
/// for a request that is already on its way.
const BRIEFLY: Duration = Duration::from_secs(1);
/// How often a connection that waits for a request checks whether its place is wanted.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// How many bytes of a response wait in memory for the client, on HTTP/2.
const SEND_BUFFER: usize = 64 * 1024;
/// Malformed streams after which an HTTP/2 connection is closed.
const MALFORMED: u32 = 32;

/// Pingora's side: one for each worker, which shares connections to members among all listeners.
#[derive(Clone)]
pub(crate) struct Http {
    proxy: Arc<HttpProxy<Callbacks>>,
    /// Pingora requires a shutdown signal; connections here end by themselves.
    never: watch::Receiver<bool>,
}

impl Http {
    async fn process(&self, session: ServerSession) -> Option<ReusedHttpStream> {
        self.proxy.process_new_http(session, &self.never).await
    }
}

impl Callbacks {
    /// Pingora with these callbacks.
    pub(crate) fn into_http(self) -> Http {
        let limits = self.shared().options.limits;
        let conf = ServerConf {
            threads: 1,
            max_retries: usize::from(limits.tries),
            upstream_keepalive_pool_size: (limits.idle_members / self.shared().options.workers())
                .max(1),
            ..ServerConf::default()
        };
        let proxy = Arc::new(http_proxy(&Arc::new(conf), self));
        Http { proxy, never: watch::channel(false).1 }
    }
}

/// What is known of a connection while it serves requests.
pub(crate) struct Connection {
    /// Unique among the connections.
    pub(crate) id: u64,
    /// The address of the client.
    pub(crate) client: SocketAddr,
    /// The local address that the client connected to.
    pub(crate) local: SocketAddr,
    /// The name and certificate of the TLS session; None in clear text.
    pub(crate) tls: Option<Given>,
    /// The sites that it can reach.
    pub(crate) entry: Arc<Entry>,
    /// The listener that accepted it.
    pub(crate) listener: Arc<Listener>,
    /// What members are told of the client.
    pub(super) told: Told,
}

impl Connection {
    /// A new connection.
    pub(crate) fn new(
        id: u64,
        client: SocketAddr,
        local: SocketAddr,
        tls: Option<Given>,
        entry: Arc<Entry>,
        listener: Arc<Listener>,
    ) -> Self {
        let told = Told::new(client.ip(), local.port(), tls.is_some());
        Self { id, client, local, tls, entry, listener, told }
    }

    /// Whether it should end after the current request: its listener drains, or its place is wanted.
    pub(super) fn is_ending(&self) -> bool {
        self.listener.connections().are_ending() || self.listener.is_crowded()
    }
}

/// Serves a connection until it ends.
pub(crate) async fn serve(http: Http, shared: Arc<Shared>, connection: Arc<Connection>, io: Io) {
    let patience = shared.options.limits.write_time;
    let stream = Downstream::new(io, patience, connection.listener.stats().clone());
    if connection.tls.as_ref().is_some_and(|given| given.http2) {
        http2(http, shared, connection, stream).await;
    } else {
        http1(http, shared, connection, stream).await;
    }
}

async fn http1(
    http: Http,
    shared: Arc<Shared>,
    connection: Arc<Connection>,
    mut stream: Downstream,
) {
    let limits = shared.options.limits;
    let link = stream.link();
    let mut first = true;
    let mut settings = None;
    loop {
        let bounds = Bounds {
            size: limits.header_bytes,
            time: limits.header_time,
            http2: first && connection.tls.is_none(),
        };
        if stream.ahead().is_empty() {
            let patience = if first { limits.header_time } else { limits.idle_time };
            if !begins(&connection, &mut stream, patience).await {
                return;
            }
        }
        let heads = &shared.hall.heads;
        let next = head::next(&mut stream, &bounds, heads, connection.client.ip()).await;
        let (head, taken) = match next {
            Next::Request(head, taken) => (head, taken),
            Next::Http2 => return http2(http, shared, connection, stream).await,
            Next::Closed => return,
            Next::Refused(status) => {
                shared.counters.refused_request(status);
                return stream.answer_and_close(&answer::raw(status)).await;
            }
        };
        first = false;

        let mut session = ServerSession::new_http1(Box::new(stream));
        if let Some(settings) = settings.take() {
            HttpPersistentSettings::apply_to_session(settings, &mut session);
        }
        session.set_pipelined_prefix(head);
        session.set_read_timeout(Some(limits.body_time));
        session.set_write_timeout(Some(limits.write_time));
        session.set_total_drain_timeout(Some(limits.header_time));
        let request = run(&connection, Some(link.clone()), http.process(session));
        let Some(done) = unless_lost(taken.as_ref(), request).await else {
            return ListenerStats::add(&connection.listener.stats().displaced, 1);
        };
        let Some(Some(reused)) = done else { return };
        let (back, kept) = reused.consume();
        let Ok(back) = back.into_any().downcast::<Downstream>() else {
            return;
        };
        stream = *back;
        settings = kept;
    }
}

/// Waits for the next request; returns whether one begins in time. The wait is short when places run short
/// or when all connections have to end.
async fn begins(connection: &Connection, stream: &mut Downstream, patience: Duration) -> bool {
    let since = Instant::now();
    let connections = connection.listener.connections();
    loop {
        let ending = connections.are_ending();
        let left = if ending || connection.listener.is_crowded() {
            patience.min(BRIEFLY)
        } else {
            let left = patience.saturating_sub(since.elapsed());
            if left.is_zero() {
                return false;
            }
            left.min(LOOK_AGAIN)
        };
        tokio::select! {
            biased;
            begun = head::begin(stream, left) => match begun {
                Some(begun) => return begun,
                None if left < LOOK_AGAIN => return false,
                None => {}
            },
            () = connections.asked(), if !ending => {}
        }
    }
}

async fn http2(http: Http, shared: Arc<Shared>, connection: Arc<Connection>, stream: Downstream) {
    let limits = shared.options.limits;
    let mut options = H2Options::default();
    options
        .max_header_list_size(u32::try_from(limits.header_bytes).unwrap_or(u32::MAX))
        .max_concurrent_streams(limits.streams)
        .max_concurrent_reset_streams(64)
        .max_send_buffer_size(SEND_BUFFER);
    let shaken = handshake(Box::new(stream), Some(options));
    let Ok(Ok(mut streams)) = tokio::time::timeout(limits.header_time, shaken).await else {
        return;
    };
    let digest = Arc::new(Digest::default());
    let mut requests = JoinSet::new();
    let heads = Budget::new(limits.connection_header_bytes);
    let mut malformed = 0;
    let mut ending = false;
    let mut since = Instant::now();
    loop {
        let most = if connection.is_ending() { BRIEFLY } else { limits.idle_time };
        let idle = if ending { BRIEFLY } else { most.saturating_sub(since.elapsed()) };
        tokio::select! {
            biased;
            () = connection.listener.connections().asked(), if !ending => {
                streams.graceful_shutdown();
                ending = true;
            }
            accepted = Http2Session::from_h2_conn(&mut streams, digest.clone()) => match accepted {
                Ok(Some(H2Accept::Session(mut request))) => {
                    while requests.try_join_next().is_some() {}
                    let large = size(request.req_header()).saturating_sub(head::SMALL);
                    let Some(taken) = bytes(large, &heads, &connection, &shared) else {
                        refuse(&mut request, &connection, &shared);
                        continue;
                    };
                    // The connection has a place for one request. The place for a further one is taken
                    // last, since another client may lose one for it.
                    let place = if requests.is_empty() {
                        None
                    } else {
                        let Some(place) = connection.listener.place(connection.client.ip()) else {
                            refuse(&mut request, &connection, &shared);
                            continue;
                        };
                        Some(place)
                    };
                    let place_id = place.as_ref().map(Place::id);
                    let (http, of) = (http.clone(), connection.clone());
                    let task = requests.spawn(async move {
                        let mut session = ServerSession::new_http2(request);
                        session.set_write_timeout(Some(limits.write_time));
                        session.set_total_drain_timeout(Some(limits.header_time));
                        let shared_bytes = taken.as_ref().map(|(_, shared)| shared);
                        let work = run(&of, None, http.process(session));
                        if unless_lost(shared_bytes, work).await.is_none() {
                            ListenerStats::add(&of.listener.stats().displaced, 1);
                        }
                        drop((place, taken));
                    });
                    if let Some(id) = place_id {
                        connection.listener.carried_by(id, task);
                    }
                }
                Ok(Some(H2Accept::Rejected)) => {
                    malformed += 1;
                    if malformed > MALFORMED {
                        return;
                    }
                }
                Ok(None) | Err(_) => return,
            },
            Some(_) = requests.join_next(), if !requests.is_empty() => since = Instant::now(),
            () = tokio::time::sleep(idle.min(LOOK_AGAIN)), if requests.is_empty() => {
                if ending {
                    return;
                }
                if idle <= LOOK_AGAIN {
                    streams.graceful_shutdown();
                    ending = true;
                }
            }
        }
    }
}

/// Takes the bytes for a head from the budget of the connection and of all clients; None if there are too
/// few. A small head takes none.
fn bytes(
    large: usize,
    of_connection: &Arc<Budget>,
    connection: &Connection,
    shared: &Shared,
) -> Option<Option<(Taken, HeadBytes)>> {
    if large == 0 {
        return Some(None);
    }
    let here = of_connection.take(large)?;
    Some(Some((here, shared.hall.heads.take(connection.client.ip(), large)?)))
}

/// The size of a head, as HTTP/2 counts it.
fn size(request: &RequestHeader) -> usize {
    let field = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        name.as_str().len() + value.len() + 32
    };
    request.raw_path().len() + request.headers.iter().map(field).sum::<usize>()
}

/// Refuses a request for which its client has no place, or for whose head no bytes are left.
fn refuse(request: &mut Http2Session, connection: &Connection, shared: &Shared) {
    ListenerStats::add(&connection.listener.stats().refused, 1);
    shared.counters.refused_request(503);
    if let Ok(answer) = ResponseHeader::build(503, Some(0)) {
        let _ = request.write_response_header(Box::new(answer), true);
    }
}
