//! The life of a client's connection: request after request on HTTP/1.1, streams side by side on
//! HTTP/2, until it is idle for too long, drains, or is cut. It decides nothing about requests.

use super::answer;
use super::head::{self, Bounds, Next};
use super::service::Service;
use super::stream::{Downstream, Io};
use crate::listen::{Listener, turned};
use crate::state::{Entry, Shared};
use crate::tls::Given;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use pingora_core::apps::{HttpPersistentSettings, HttpServerApp};
use pingora_core::protocols::Digest;
use pingora_core::protocols::http::ServerSession;
use pingora_core::protocols::http::v2::server::{
    H2Accept, H2Options, HttpSession as Http2Session, handshake,
};
use pingora_core::server::configuration::ServerConf;
use pingora_proxy::{HttpProxy, http_proxy};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How long an idle connection stays when its place is wanted, or when the proxy is about to end: long
/// enough for a request that is already on its way.
const BRIEFLY: Duration = Duration::from_secs(1);
/// Malformed streams after which an HTTP/2 connection is closed.
const MALFORMED: u32 = 32;

/// Pingora's side: one for all listeners, so that they share connections to members.
pub(crate) type Http = Arc<HttpProxy<Service>>;

impl Service {
    /// Pingora with this service in it.
    pub(crate) fn into_http(self) -> Http {
        let limits = self.shared().options.limits;
        let conf = ServerConf {
            threads: 1,
            max_retries: usize::from(limits.tries),
            upstream_keepalive_pool_size: limits.idle_members,
            ..ServerConf::default()
        };
        Arc::new(http_proxy(&Arc::new(conf), self))
    }
}

/// What is known of a connection while its requests are answered.
pub(crate) struct Connection {
    /// Tells connections apart.
    pub(crate) id: u64,
    /// Where the client is.
    pub(crate) client: SocketAddr,
    /// Where it came in.
    pub(crate) local: SocketAddr,
    /// What it was given over TLS; none in clear text.
    pub(crate) tls: Option<Given>,
    /// Whose sites it meets.
    pub(crate) entry: Arc<Entry>,
    /// Where it was accepted.
    pub(crate) listener: Arc<Listener>,
}

tokio::task_local! {
    static CURRENT: Arc<Scope>;
}

/// What a request knows of its surroundings, beside what pingora passes on.
pub(super) struct Scope {
    pub(super) connection: Arc<Connection>,
    /// Resolves when the member in use has drained for long enough.
    cut: Mutex<Option<BoxFuture<'static, ()>>>,
}

impl Scope {
    /// The scope of the request at hand.
    pub(super) fn current() -> Option<Arc<Self>> {
        CURRENT.try_with(Arc::clone).ok()
    }

    /// Ends the request when this resolves; replaces what was said before.
    pub(super) fn cut_when(&self, over: BoxFuture<'static, ()>) {
        *self.cut.lock() = Some(over);
    }
}

/// Runs a request; nothing if it was cut.
async fn run<T>(connection: &Arc<Connection>, request: impl Future<Output = T>) -> Option<T> {
    let scope = Arc::new(Scope { connection: connection.clone(), cut: Mutex::new(None) });
    let mut request = pin!(CURRENT.scope(scope.clone(), request));
    std::future::poll_fn(move |cx| {
        if let Poll::Ready(outcome) = request.as_mut().poll(cx) {
            return Poll::Ready(Some(outcome));
        }
        match scope.cut.lock().as_mut().map(|cut| cut.as_mut().poll(cx)) {
            Some(Poll::Ready(())) => Poll::Ready(None),
            _ => Poll::Pending,
        }
    })
    .await
}

/// Serves a connection until it ends.
pub(crate) async fn serve(http: Http, shared: Arc<Shared>, connection: Arc<Connection>, io: Io) {
    let draining = connection.listener.draining();
    let stream = Downstream::new(io, connection.listener.stats().clone());
    if connection.tls.as_ref().is_some_and(|given| given.http2) {
        http2(http, shared, connection, stream, draining).await;
    } else {
        http1(http, shared, connection, stream, draining).await;
    }
}

async fn http1(
    http: Http,
    shared: Arc<Shared>,
    connection: Arc<Connection>,
    mut stream: Downstream,
    mut draining: watch::Receiver<bool>,
) {
    let limits = shared.options.limits;
    let mut first = true;
    let mut settings = None;
    loop {
        let ending = *draining.borrow();
        let crowded = connection.listener.is_crowded();
        let bounds = Bounds {
            size: limits.header_bytes,
            time: limits.header_time,
            idle: match first {
                _ if ending || crowded => BRIEFLY,
                true => limits.header_time,
                false => limits.idle_time,
            },
            http2: first && connection.tls.is_none(),
        };
        if stream.ahead().is_empty() {
            let begun = tokio::select! {
                biased;
                begun = head::begin(&mut stream, bounds.idle) => begun,
                changed = draining.changed(), if !ending => match changed {
                    Ok(()) => continue,
                    Err(_) => return,
                },
            };
            if !begun {
                return;
            }
        }
        let head = match head::next(&mut stream, &bounds).await {
            Next::Request(head) => head,
            Next::Http2 => return http2(http, shared, connection, stream, draining).await,
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
        let keep = !(ending || crowded);
        session.set_keepalive(keep.then_some(limits.idle_time.as_secs().max(1)));
        session.set_pipelined_prefix(head);
        session.set_read_timeout(Some(limits.body_time));
        session.set_write_timeout(Some(limits.write_time));
        session.set_total_drain_timeout(Some(limits.header_time));
        let request = http.process_new_http(session, &draining);
        let Some(Some(reused)) = run(&connection, request).await else {
            return;
        };
        let (back, kept) = reused.consume();
        let Ok(back) = back.into_any().downcast::<Downstream>() else {
            return;
        };
        stream = *back;
        settings = kept;
    }
}

async fn http2(
    http: Http,
    shared: Arc<Shared>,
    connection: Arc<Connection>,
    stream: Downstream,
    draining: watch::Receiver<bool>,
) {
    let limits = shared.options.limits;
    let mut ends = draining.clone();
    let mut options = H2Options::default();
    options
        .max_header_list_size(u32::try_from(limits.header_bytes).unwrap_or(u32::MAX))
        .max_concurrent_streams(limits.streams)
        .max_concurrent_reset_streams(64);
    let shaken = handshake(Box::new(stream), Some(options));
    let Ok(Ok(mut streams)) = tokio::time::timeout(limits.header_time, shaken).await else {
        return;
    };
    let digest = Arc::new(Digest::default());
    let mut requests = JoinSet::new();
    let mut malformed = 0;
    let mut ending = false;
    loop {
        let idle =
            if ending || connection.listener.is_crowded() { BRIEFLY } else { limits.idle_time };
        tokio::select! {
            biased;
            () = turned(&mut ends), if !ending => {
                streams.graceful_shutdown();
                ending = true;
            }
            accepted = Http2Session::from_h2_conn(&mut streams, digest.clone()) => match accepted {
                Ok(Some(H2Accept::Session(request))) => {
                    let (http, connection) = (http.clone(), connection.clone());
                    let draining = draining.clone();
                    requests.spawn(async move {
                        let mut session = ServerSession::new_http2(request);
                        session.set_write_timeout(Some(limits.write_time));
                        session.set_total_drain_timeout(Some(limits.header_time));
                        run(&connection, http.process_new_http(session, &draining)).await;
                    });
                }
                Ok(Some(H2Accept::Rejected)) => {
                    malformed += 1;
                    if malformed > MALFORMED {
                        return;
                    }
                }
                Ok(None) | Err(_) => return,
            },
            Some(_) = requests.join_next(), if !requests.is_empty() => {}
            () = tokio::time::sleep(idle), if requests.is_empty() => {
                if ending {
                    return;
                }
                streams.graceful_shutdown();
                ending = true;
            }
        }
    }
}
