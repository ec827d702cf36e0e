//! Backends that stand for Pods. Each listens on a Pod's address, answers with its name and what it
//! received, counts its traffic, and can be stopped gracefully or killed. They decide nothing about
//! traffic.

mod http;
mod proxy_header;

pub use http::Echo;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// The counts of received traffic.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    connections: AtomicUsize,
    requests: AtomicUsize,
    open: AtomicUsize,
    sick: AtomicBool,
}

/// Whether a backend expects a PROXY protocol header first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preamble {
    /// It expects none.
    #[default]
    None,
    /// It expects one, and closes connections without it.
    ProxyV2,
}

/// A running backend. Dropping it kills it.
pub struct Backend {
    /// Its name, which it sends to clients.
    pub name: String,
    /// The address on which it listens.
    pub at: SocketAddr,
    counters: Arc<Counters>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Backend {
    /// Speaks HTTP/1.1, HTTP/2 with prior knowledge and WebSocket, and answers with an [`Echo`].
    pub async fn http(name: &str, address: IpAddr, port: u16) -> Self {
        Self::http_with(name, address, port, Preamble::None).await
    }

    /// As [`Self::http`], with or without a PROXY header.
    pub async fn http_with(name: &str, address: IpAddr, port: u16, preamble: Preamble) -> Self {
        let name_ = name.to_owned();
        Self::accept(name, address, port, move |stream, peer, counters, stopping| {
            http::serve(stream, peer, name_.clone(), preamble, counters, stopping)
        })
        .await
    }

    /// Sets the answer of an HTTP backend to `/healthz`: 200 (the default) or 503. Other requests are
    /// served in both cases.
    pub fn feels(&self, healthy: bool) {
        self.counters.sick.store(!healthy, Ordering::Relaxed);
    }

    /// Sends its name as a line, then echoes each line.
    pub async fn tcp(name: &str, address: IpAddr, port: u16) -> Self {
        Self::tcp_with(name, address, port, Preamble::None).await
    }

    /// As [`Self::tcp`], with or without a PROXY header.
    pub async fn tcp_with(name: &str, address: IpAddr, port: u16, preamble: Preamble) -> Self {
        let name_ = name.to_owned();
        Self::accept(name, address, port, move |stream, _, counters, stopping| {
            lines(stream, name_.clone(), preamble, counters, stopping)
        })
        .await
    }

    /// Answers each datagram with its name, a colon and the datagram.
    pub async fn udp(name: &str, address: IpAddr, port: u16) -> Self {
        let at = SocketAddr::new(address, port);
        let socket = UdpSocket::bind(at).await.unwrap_or_else(|e| panic!("bind {at}: {e}"));
        let at = socket.local_addr().expect("a bound address");
        let counters = Arc::new(Counters::default());
        let (stop, mut stopping) = watch::channel(false);
        let task = tokio::spawn({
            let (name, counters) = (name.to_owned(), counters.clone());
            async move {
                let mut buffer = vec![0; 65536];
                loop {
                    let (length, peer) = tokio::select! {
                        received = socket.recv_from(&mut buffer) => match received {
                            Ok(received) => received,
                            // The ICMP error of an earlier answer that no client received.
                            Err(_) => continue,
                        },
                        _ = stopping.changed() => return,
                    };
                    counters.requests.fetch_add(1, Ordering::Relaxed);
                    let answer = [name.as_bytes(), b":", &buffer[..length]].concat();
                    let _ = socket.send_to(&answer, peer).await;
                }
            }
        });
        Self { name: name.to_owned(), at, counters, stop, task }
    }

    async fn accept<F>(
        name: &str,
        address: IpAddr,
        port: u16,
        serve: impl Fn(TcpStream, SocketAddr, Arc<Counters>, watch::Receiver<bool>) -> F
        + Send
        + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let at = SocketAddr::new(address, port);
        let listener = TcpListener::bind(at).await.unwrap_or_else(|e| panic!("bind {at}: {e}"));
        let at = listener.local_addr().expect("a bound address");
        let counters = Arc::new(Counters::default());
        let (stop, mut stopping) = watch::channel(false);
        let task = tokio::spawn({
            let counters = counters.clone();
            async move {
                let mut connections = JoinSet::new();
                loop {
                    let (stream, peer) = tokio::select! {
                        Ok(accepted) = listener.accept() => accepted,
                        Some(_) = connections.join_next() => continue,
                        _ = stopping.changed() => break,
                    };
                    let _ = stream.set_nodelay(true);
                    counters.connections.fetch_add(1, Ordering::Relaxed);
                    counters.open.fetch_add(1, Ordering::Relaxed);
                    let serving = serve(stream, peer, counters.clone(), stopping.clone());
                    let counters = counters.clone();
                    connections.spawn(async move {
                        serving.await;
                        counters.open.fetch_sub(1, Ordering::Relaxed);
                    });
                }
                drop(listener);
                while connections.join_next().await.is_some() {}
            }
        });
        Self { name: name.to_owned(), at, counters, stop, task }
    }

    /// The number of accepted connections.
    pub fn connections(&self) -> usize {
        self.counters.connections.load(Ordering::Relaxed)
    }

    /// The number of open connections.
    pub fn open(&self) -> usize {
        self.counters.open.load(Ordering::Relaxed)
    }

    /// The number of received requests, lines or datagrams.
    pub fn requests(&self) -> usize {
        self.counters.requests.load(Ordering::Relaxed)
    }

    /// Accepts no more connections, lets the open ones finish, and returns when they have.
    pub async fn stop(mut self) {
        let _ = self.stop.send(true);
        let _ = (&mut self.task).await;
    }

    /// Ends at once, with all open connections.
    pub async fn kill(mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn lines(
    mut stream: TcpStream,
    name: String,
    preamble: Preamble,
    counters: Arc<Counters>,
    mut stopping: watch::Receiver<bool>,
) {
    let greeting = match preamble {
        Preamble::None => format!("{name}\n"),
        Preamble::ProxyV2 => match proxy_header::read(&mut stream).await {
            Ok(header) => format!("{name} {header}\n"),
            Err(why) => format!("{name} {why}\n"),
        },
    };
    if stream.write_all(greeting.as_bytes()).await.is_err() {
        return;
    }
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    loop {
        line.clear();
        tokio::select! {
            read = stream.read_line(&mut line) => if !matches!(read, Ok(1..)) { return },
            _ = stopping.changed() => return,
        }
        counters.requests.fetch_add(1, Ordering::Relaxed);
        if stream.write_all(line.as_bytes()).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dial, Request};

    async fn arrived(backend: &Backend) {
        crate::eventually("a request", || async {
            if backend.requests() == 1 { Ok(()) } else { Err("none yet".to_owned()) }
        })
        .await;
    }

    fn here() -> IpAddr {
        IpAddr::from([127, 0, 0, 1])
    }

    #[tokio::test]
    async fn an_http_backend_says_who_it_is_in_every_protocol() {
        let backend = Backend::http("a", here(), 0).await;
        let dial = Dial::to(here(), backend.at.port());
        let echo = dial.get("web.example", "/x?y=1").await.and_then(|it| it.echo()).expect("HTTP");
        assert_eq!((&*echo.name, &*echo.host, &*echo.path), ("a", "web.example", "/x?y=1"));
        let answer = dial.clone().http2().send(Request::post("h", "/", "body")).await;
        let echo = answer.and_then(|it| it.echo()).expect("HTTP/2");
        assert_eq!((&*echo.version, echo.body), ("HTTP/2.0", 4));
        let mut socket = dial.websocket("web.example", "/ws").await.expect("WebSocket");
        assert_eq!(socket.ask("hello").await.as_deref(), Ok("a:hello"));
        assert_eq!((backend.connections(), backend.requests()), (3, 4));
    }

    #[tokio::test]
    async fn a_stopped_backend_ends_what_it_has_begun_and_a_killed_one_does_not() {
        let backend = Backend::http("a", here(), 0).await;
        let dial = Dial::to(here(), backend.at.port());
        let slow = tokio::spawn(async move { dial.get("h", "/?delay=300").await });
        arrived(&backend).await;
        backend.stop().await;
        assert_eq!(slow.await.expect("no panic").expect("an answer").status, 200);

        let backend = Backend::http("a", here(), 0).await;
        let dial = Dial::to(here(), backend.at.port());
        let slow = tokio::spawn(async move { dial.get("h", "/?delay=300").await });
        arrived(&backend).await;
        backend.kill().await;
        slow.await.expect("no panic").expect_err("a failure");
    }

    #[tokio::test]
    async fn lines_and_datagrams_come_back() {
        let tcp = Backend::tcp("t", here(), 0).await;
        let mut line = Dial::to(here(), tcp.at.port()).line().await.expect("a line");
        assert_eq!(line.ask("hello").await.as_deref(), Ok("hello"));
        assert_eq!(line.name, "t");
        let udp = Backend::udp("u", here(), 0).await;
        let answer = Dial::to(here(), udp.at.port()).datagram("hello").await;
        assert_eq!(answer.as_deref(), Ok("u:hello"));
    }
}
