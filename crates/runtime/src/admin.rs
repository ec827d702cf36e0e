//! The admin endpoint: liveness, readiness and metrics of the process, and how its agents are. It answers from what the roles have noted
//! and calls nothing else. In a cluster every Pod can reach it, so connections are few, short and shared out by
//! client: a client with many connections cannot keep a kubelet probe out. `bowline` starts it.

use crate::agents_page::AgentsPage;
use crate::metrics::Metrics;
use axum::Router;
use axum::body::Bytes;
use axum::http::{StatusCode, header};
use axum::routing::get;
use bowline_crowd::Door;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// What must happen before the process is ready. A role names what it waits for when it starts; until the first
/// role has done so, the process is not ready.
#[derive(Clone, Debug)]
pub struct Readiness {
    awaited: Arc<Mutex<BTreeSet<String>>>,
    /// Lines that a ready process adds to its answer, by subject.
    notes: Arc<Mutex<BTreeMap<String, String>>>,
}

/// What the process waits for until the first role starts.
const START: &str = "a role to start";

impl Default for Readiness {
    fn default() -> Self {
        let awaited = BTreeSet::from([START.to_owned()]);
        Self { awaited: Arc::new(Mutex::new(awaited)), notes: Arc::default() }
    }
}

impl Readiness {
    /// The process is not ready until `what` has happened.
    pub fn awaits(&self, what: impl Into<String>) {
        let mut awaited = self.awaited.lock();
        awaited.remove(START);
        awaited.insert(what.into());
    }

    /// `what` has happened.
    pub fn reached(&self, what: &str) {
        self.awaited.lock().remove(what);
    }

    /// Sets the line about a subject that a ready process adds to its answer; None removes it.
    pub fn note(&self, about: &str, text: Option<String>) {
        let mut notes = self.notes.lock();
        match text {
            Some(text) => drop(notes.insert(about.to_owned(), text)),
            None => drop(notes.remove(about)),
        }
    }

    /// The lines that a ready process adds to its answer.
    pub fn notes(&self) -> Vec<String> {
        self.notes.lock().values().cloned().collect()
    }

    /// What must still happen before the process is ready.
    pub fn missing(&self) -> Vec<String> {
        self.awaited.lock().iter().cloned().collect()
    }
}

/// Why the admin endpoint does not start.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot serve /livez, /readyz and /metrics on {address}: {source}; choose another with --admin"
)]
pub struct AdminError {
    /// The address that could not be served.
    pub address: SocketAddr,
    /// What the operating system said.
    pub source: io::Error,
}

/// Limits for the clients of the endpoint.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    /// Connections at once.
    most: usize,
    /// Connections of one client at once.
    each: usize,
    /// Time for the head of a request, from the start of the connection or from the previous request.
    head: Duration,
    /// Lifetime of a connection. A response under way at its end gets `head` as additional time.
    whole: Duration,
}

const BOUNDS: Bounds =
    Bounds { most: 64, each: 16, head: Duration::from_secs(5), whole: Duration::from_secs(60) };

/// How long responses under way may take after shutdown is announced.
const DRAIN: Duration = Duration::from_secs(1);

/// An admin endpoint whose port is bound.
#[derive(Debug)]
pub struct Admin {
    listener: TcpListener,
    /// The bound address.
    pub address: SocketAddr,
}

/// Whether this machine supports IPv6.
fn has_v6() -> bool {
    std::net::UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).is_ok()
}

impl Admin {
    /// Binds the port, so that a port in use is reported before anything else starts.
    pub async fn bind(address: SocketAddr) -> Result<Self, AdminError> {
        let refused = |source| AdminError { address, source };
        let listener = match TcpListener::bind(address).await {
            // All addresses are all IPv4 addresses on a machine without IPv6.
            Err(_) if address.ip() == Ipv6Addr::UNSPECIFIED && !has_v6() => {
                TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
            }
            bound => bound,
        };
        let listener = listener.map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        Ok(Self { listener, address })
    }

    /// Serves requests until shutdown is announced.
    pub async fn serve(
        self,
        metrics: Metrics,
        readiness: Readiness,
        agents: AgentsPage,
        shutdown: watch::Receiver<bool>,
    ) {
        self.serve_within(BOUNDS, metrics, readiness, agents, shutdown).await;
    }

    async fn serve_within(
        self,
        bounds: Bounds,
        metrics: Metrics,
        readiness: Readiness,
        agents: AgentsPage,
        mut shutdown: watch::Receiver<bool>,
    ) {
        let pages = Pages::default();
        let router = Router::new()
            .route("/livez", get(async || "ok\n"))
            .route("/readyz", get(async move || ready(&readiness)))
            .route("/agents", get(async move || agents_now(&agents)))
            .route("/metrics", get(async move || exposition(pages.page(&metrics).await)));
        let door = Door::new(bounds.most, bounds.each);
        let mut connections = JoinSet::new();
        let stop = shutdown.clone();
        loop {
            tokio::select! {
                () = stopped(&mut shutdown) => break,
                Some(_) = connections.join_next(), if !connections.is_empty() => {}
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, from)) => {
                        let (place, told) = door.enter(from.ip());
                        let (router, stop) = (router.clone(), stop.clone());
                        connections.spawn(async move {
                            tokio::select! {
                                () = exchange(stream, router, stop, bounds) => {}
                                Ok(()) = told => {}
                            }
                            drop(place);
                        });
                    }
                    Err(error) => {
                        // Most likely the process is out of descriptors: without a pause this loop would spin.
                        tracing::warn!(%error, "the admin endpoint cannot accept a connection");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                },
            }
        }
        let drained = async { while connections.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(DRAIN, drained).await;
    }
}

/// Resolves when shutdown is announced or its sender is dropped.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Serves one connection.
async fn exchange(
    stream: TcpStream,
    router: Router,
    mut stop: watch::Receiver<bool>,
    bounds: Bounds,
) {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(bounds.head);
    let serving = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    tokio::pin!(serving);
    tokio::select! {
        // It does not matter how the client ends the connection.
        _ = serving.as_mut() => return,
        () = tokio::time::sleep(bounds.whole) => {}
        () = stopped(&mut stop) => {}
    }
    serving.as_mut().graceful_shutdown();
    let _ = tokio::time::timeout(bounds.head, serving).await;
}

fn ready(readiness: &Readiness) -> (StatusCode, String) {
    match readiness.missing() {
        missing if missing.is_empty() => {
            let lines = [vec!["ok".to_owned()], readiness.notes()].concat();
            (StatusCode::OK, lines.join("\n") + "\n")
        }
        missing => {
            (StatusCode::SERVICE_UNAVAILABLE, format!("waiting for {}\n", missing.join(", ")))
        }
    }
}

fn agents_now(agents: &AgentsPage) -> ([(header::HeaderName, &'static str); 1], String) {
    let page = serde_json::to_string(&agents.page()).unwrap_or_default();
    ([(header::CONTENT_TYPE, "application/json")], page)
}

fn exposition(page: Bytes) -> ([(header::HeaderName, &'static str); 1], Bytes) {
    const TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, TYPE)], page)
}

/// The least time between two pages of metrics. It is at least ten times as long as the last page took: with many
/// members a page is expensive, and every Pod may request one.
const BETWEEN_PAGES: Duration = Duration::from_millis(100);

/// Pages of metrics. Requests that wait share the next page, so no page is older than its request.
#[derive(Clone, Default)]
struct Pages(Arc<tokio::sync::Mutex<Option<Page>>>);

struct Page {
    begun: Instant,
    next: Instant,
    text: Bytes,
}

impl Pages {
    async fn page(&self, metrics: &Metrics) -> Bytes {
        let asked = Instant::now();
        let mut last = self.0.lock().await;
        if let Some(page) = &*last {
            if page.begun > asked {
                return page.text.clone();
            }
            tokio::time::sleep_until(page.next).await;
        }
        let begun = Instant::now();
        let text = Bytes::from(metrics.text());
        let next = Instant::now() + BETWEEN_PAGES.max(begun.elapsed() * 10);
        *last = Some(Page { begun, next, text: text.clone() });
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    async fn ask(address: SocketAddr, path: &str) -> String {
        let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test(start_paused = true)]
    async fn many_who_ask_for_metrics_share_a_page_that_is_no_older_than_their_request() {
        let (pages, metrics) = (Pages::default(), Metrics::default());
        let start = Instant::now();
        pages.page(&metrics).await;
        assert_eq!(start.elapsed(), Duration::ZERO);
        metrics.queue("late", 7);
        let mut asking = JoinSet::new();
        for _ in 0..1_000 {
            let (pages, metrics) = (pages.clone(), metrics.clone());
            asking.spawn(async move { pages.page(&metrics).await });
        }
        let told = asking.join_all().await;
        assert!(told.iter().all(|page| page.as_ptr() == told[0].as_ptr()), "one page");
        assert!(String::from_utf8_lossy(&told[0]).contains("late"));
        let waited = start.elapsed();
        assert!(waited >= BETWEEN_PAGES, "{waited:?}");
    }

    #[tokio::test]
    async fn it_is_alive_at_once_and_ready_when_all_that_it_waits_for_has_happened() {
        let admin = Admin::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let address = admin.address;
        let (stop, shutdown) = watch::channel(false);
        let readiness = Readiness::default();
        readiness.awaits("the first plan");
        let serving = tokio::spawn(admin.serve(
            Metrics::default(),
            readiness.clone(),
            AgentsPage::default(),
            shutdown,
        ));
        assert!(ask(address, "/livez").await.starts_with("HTTP/1.1 200"));
        let answer = ask(address, "/readyz").await;
        assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
        assert!(answer.ends_with("waiting for the first plan\n"), "{answer}");
        readiness.reached("the first plan");
        assert!(ask(address, "/readyz").await.starts_with("HTTP/1.1 200"));
        assert!(ask(address, "/metrics").await.contains("bowline_leader 0"));
        stop.send(true).unwrap();
        serving.await.unwrap();
    }

    /// Starts an endpoint with these bounds; it ends with the test.
    async fn within(bounds: Bounds) -> SocketAddr {
        let admin = Admin::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let address = admin.address;
        let (stop, shutdown) = watch::channel(false);
        tokio::spawn(async move {
            let _stop = stop;
            let served = admin.serve_within(
                bounds,
                Metrics::default(),
                Readiness::default(),
                AgentsPage::default(),
                shutdown,
            );
            served.await;
        });
        address
    }

    #[tokio::test]
    async fn many_idle_connections_keep_nobody_from_an_answer() {
        let address = within(BOUNDS).await;
        let mut idle = Vec::new();
        for number in 0..300 {
            let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
            if number % 2 == 0 {
                socket.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\nx-slow: ").await.unwrap();
            }
            idle.push(socket);
            if number % 50 == 49 {
                assert!(ask(address, "/livez").await.starts_with("HTTP/1.1 200"));
            }
        }
        // At most as many connections stay open as one client may have.
        let mut open = 0;
        for socket in &mut idle {
            let mut byte = [0];
            let read = socket.read(&mut byte);
            let ended = tokio::time::timeout(Duration::from_millis(20), read).await;
            open += usize::from(ended.is_err());
        }
        assert!(open <= BOUNDS.each, "{open}");
    }

    #[tokio::test]
    async fn clients_that_take_all_places_keep_no_other_client_out() {
        let address = within(BOUNDS).await;
        let connect = async |last: u8| {
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            socket.bind(SocketAddr::from(([127, 0, 0, last], 0))).unwrap();
            socket.connect(address).await.unwrap()
        };
        // Enough clients to fill the endpoint, each with the most connections that it may have.
        let crowd = u8::try_from(BOUNDS.most / BOUNDS.each).unwrap();
        let mut idle = Vec::new();
        for number in 0..BOUNDS.most {
            idle.push(connect(10 + u8::try_from(number).unwrap() % crowd).await);
        }
        let mut other = connect(2).await;
        other
            .write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            .await
            .unwrap();
        let mut answer = String::new();
        other.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        // The oldest connection of a client with the most connections was closed to make room.
        assert_eq!(idle[0].read(&mut [0]).await.unwrap_or(0), 0);
    }

    #[tokio::test]
    async fn a_client_that_never_ends_its_request_is_let_go_and_so_is_one_that_always_asks_again() {
        let short = Duration::from_millis(200);
        let address = within(Bounds { head: short, ..BOUNDS }).await;
        let mut slow = tokio::net::TcpStream::connect(address).await.unwrap();
        slow.write_all(b"GET /livez HTTP/1.1\r\nx-slow: ").await.unwrap();
        let _ = slow.read_to_end(&mut Vec::new()).await;
        let address = within(Bounds { whole: short, ..BOUNDS }).await;
        let mut busy = tokio::net::TcpStream::connect(address).await.unwrap();
        while busy.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n").await.is_ok() {
            if busy.read(&mut [0; 1024]).await.unwrap_or(0) == 0 {
                break;
            }
        }
    }

    #[tokio::test]
    async fn a_port_in_use_is_an_error_that_names_the_flag() {
        let first = Admin::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let error = Admin::bind(first.address).await.unwrap_err().to_string();
        assert!(error.contains(&first.address.to_string()) && error.contains("--admin"), "{error}");
    }
}
