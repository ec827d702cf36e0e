//! The clients of load balancers: HTTP/1.1, HTTP/2, TLS with SNI, WebSocket, TCP and UDP, each with a
//! selectable source address. They report what they receive and assert nothing.

use crate::backend::Echo;
use bytes::Bytes;
use futures::{SinkExt as _, StreamExt as _};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ClientConfig;
use rustls::pki_types::{CertificateDer, ServerName};
use std::convert::Infallible;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpSocket, TcpStream, UdpSocket};
use tokio_rustls::TlsConnector;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

/// The longest exchange. Only a failing test reaches this limit.
const LIMIT: Duration = Duration::from_secs(10);

/// A byte stream.
pub trait Io: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Io for T {}

/// How to connect.
#[derive(Clone)]
pub struct Dial {
    to: SocketAddr,
    from: Option<IpAddr>,
    tls: Option<(Arc<ClientConfig>, String)>,
    http2: bool,
}

impl Dial {
    /// In clear text, from an address that the system chooses.
    pub fn to(address: IpAddr, port: u16) -> Self {
        Self { to: SocketAddr::new(address, port), from: None, tls: None, http2: false }
    }

    /// Sets the source address.
    pub fn from(mut self, address: IpAddr) -> Self {
        self.from = Some(address);
        self
    }

    /// Uses TLS with this server name.
    pub fn tls(mut self, config: &Arc<ClientConfig>, name: &str) -> Self {
        self.tls = Some((config.clone(), name.to_owned()));
        self
    }

    /// Uses HTTP/2; in clear text with prior knowledge.
    pub fn http2(mut self) -> Self {
        self.http2 = true;
        self
    }

    /// A TCP connection.
    pub async fn tcp(&self) -> Result<TcpStream, String> {
        let connect = async {
            let socket = if self.to.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
            if let Some(from) = self.from {
                socket.bind(SocketAddr::new(from, 0))?;
            }
            let stream = socket.connect(self.to).await?;
            stream.set_nodelay(true)?;
            Ok::<_, std::io::Error>(stream)
        };
        within("connect", connect).await
    }

    /// A connection, after the TLS handshake if it uses TLS.
    pub async fn connect(&self) -> Result<Box<dyn Io>, String> {
        let Some((config, name)) = &self.tls else { return Ok(Box::new(self.tcp().await?)) };
        Ok(Box::new(self.handshake(config, name).await?))
    }

    /// The certificate that the server presents in a TLS handshake.
    pub async fn certificate(&self) -> Result<CertificateDer<'static>, String> {
        let (config, name) = self.tls.as_ref().ok_or("not a TLS connection")?;
        let stream = self.handshake(config, name).await?;
        let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        Ok(shown.ok_or("no certificate was shown")?.clone().into_owned())
    }

    async fn handshake(
        &self,
        config: &Arc<ClientConfig>,
        name: &str,
    ) -> Result<tokio_rustls::client::TlsStream<TcpStream>, String> {
        let name = ServerName::try_from(name.to_owned()).map_err(|e| e.to_string())?;
        let stream = self.tcp().await?;
        within("TLS handshake", TlsConnector::from(config.clone()).connect(name, stream)).await
    }

    /// A connection for several HTTP requests.
    pub async fn session(&self) -> Result<Session, String> {
        let io = TokioIo::new(self.connect().await?);
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let sender = if self.http2 {
            let (sender, connection) =
                within("HTTP/2", http2::handshake(TokioExecutor::new(), io)).await?;
            tokio::spawn(connection);
            Sender::Two(sender)
        } else {
            let (sender, connection) = within("HTTP/1.1", http1::handshake(io)).await?;
            tokio::spawn(connection);
            Sender::One(sender)
        };
        Ok(Session { sender, scheme })
    }

    /// Sends one request on a connection of its own.
    pub async fn send(&self, request: Request) -> Result<Answer, String> {
        self.session().await?.send(request).await
    }

    /// `GET` of a path of a host.
    pub async fn get(&self, host: &str, path: &str) -> Result<Answer, String> {
        self.send(Request::get(host, path)).await
    }

    /// A WebSocket to a path of a host.
    pub async fn websocket(&self, host: &str, path: &str) -> Result<WebSocket, String> {
        let io = self.connect().await?;
        let scheme = if self.tls.is_some() { "wss" } else { "ws" };
        let request =
            format!("{scheme}://{host}{path}").into_client_request().map_err(|e| e.to_string())?;
        let (stream, _) = within("WebSocket", tokio_tungstenite::client_async(request, io)).await?;
        Ok(WebSocket { stream })
    }

    /// A TCP connection to a [`crate::Backend::tcp`], after its first line, the name.
    pub async fn line(&self) -> Result<Line, String> {
        let mut line = Line { stream: BufReader::new(self.connect().await?), name: String::new() };
        line.name = line.read().await?;
        Ok(line)
    }

    /// A UDP socket that is connected to this address.
    pub async fn udp(&self) -> Result<UdpSocket, String> {
        let any = match self.to {
            SocketAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let bind = async {
            let socket = UdpSocket::bind((self.from.unwrap_or(any), 0)).await?;
            socket.connect(self.to).await?;
            Ok::<_, std::io::Error>(socket)
        };
        within("UDP", bind).await
    }

    /// Sends a datagram and waits for the answer.
    pub async fn datagram(&self, text: &str) -> Result<String, String> {
        ask(&self.udp().await?, text).await
    }
}

/// Sends a datagram on a connected socket and waits a moment for the answer. Datagrams may be lost, so
/// a test repeats this.
pub async fn ask(socket: &UdpSocket, text: &str) -> Result<String, String> {
    let exchange = async {
        socket.send(text.as_bytes()).await?;
        let mut buffer = vec![0; 65536];
        let length = socket.recv(&mut buffer).await?;
        Ok::<_, std::io::Error>(String::from_utf8_lossy(&buffer[..length]).into_owned())
    };
    match tokio::time::timeout(Duration::from_millis(500), exchange).await {
        Ok(done) => done.map_err(|e| format!("UDP: {e}")),
        Err(_) => Err("UDP: no answer".to_owned()),
    }
}

async fn within<T, E: fmt::Display>(
    what: &str,
    future: impl Future<Output = Result<T, E>>,
) -> Result<T, String> {
    match tokio::time::timeout(LIMIT, future).await {
        Ok(done) => done.map_err(|e| format!("{what}: {e}")),
        Err(_) => Err(format!("{what}: not within {LIMIT:?}")),
    }
}

/// One HTTP request.
#[derive(Clone, Debug)]
pub struct Request {
    method: &'static str,
    host: String,
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<Bytes>,
    pause: Duration,
}

impl Request {
    /// `GET` of a path of a host.
    pub fn get(host: &str, path: &str) -> Self {
        Self {
            method: "GET",
            host: host.to_owned(),
            path: path.to_owned(),
            headers: Vec::new(),
            body: Vec::new(),
            pause: Duration::ZERO,
        }
    }

    /// This method, without a body.
    pub fn method(method: &'static str, host: &str, path: &str) -> Self {
        Self { method, ..Self::get(host, path) }
    }

    /// `POST` of this body.
    pub fn post(host: &str, path: &str, body: impl Into<Bytes>) -> Self {
        Self { method: "POST", body: vec![body.into()], ..Self::get(host, path) }
    }

    /// `POST` of a body in pieces, with a pause after each.
    pub fn slowly(host: &str, path: &str, pieces: &[&'static str], pause: Duration) -> Self {
        let body = pieces.iter().map(|piece| Bytes::from_static(piece.as_bytes())).collect();
        Self { method: "POST", body, pause, ..Self::get(host, path) }
    }

    /// Adds a header.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }
}

enum Sender {
    One(http1::SendRequest<Body>),
    Two(http2::SendRequest<Body>),
}

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// A body with a known length, unless it is sent in pieces.
fn body(mut pieces: Vec<Bytes>, pause: Duration) -> Body {
    if pieces.len() < 2 {
        return Full::new(pieces.pop().unwrap_or_default()).boxed_unsync();
    }
    let pieces = futures::stream::iter(pieces).then(move |piece| async move {
        tokio::time::sleep(pause).await;
        Ok(Frame::data(piece))
    });
    StreamBody::new(pieces).boxed_unsync()
}

/// A connection for HTTP requests, one after another.
pub struct Session {
    sender: Sender,
    scheme: &'static str,
}

impl Session {
    /// Sends a request and reads the whole answer.
    pub async fn send(&mut self, request: Request) -> Result<Answer, String> {
        let Request { method, host, path, headers, body: pieces, pause } = request;
        let builder = hyper::Request::builder().method(method);
        let mut builder = match self.sender {
            Sender::One(_) => builder.uri(path).header("host", host),
            Sender::Two(_) => builder.uri(format!("{}://{host}{path}", self.scheme)),
        };
        for (name, value) in headers {
            builder = builder.header(name, value);
        }
        let request = builder.body(body(pieces, pause)).map_err(|e| format!("bad request: {e}"))?;
        let exchange = async {
            let response = match &mut self.sender {
                Sender::One(sender) => {
                    sender.ready().await?;
                    sender.send_request(request).await?
                }
                Sender::Two(sender) => {
                    sender.ready().await?;
                    sender.send_request(request).await?
                }
            };
            let (head, body) = response.into_parts();
            let body = body.collect().await?;
            Ok::<_, hyper::Error>(Answer {
                status: head.status.as_u16(),
                headers: head.headers,
                trailers: body.trailers().cloned().unwrap_or_default(),
                body: body.to_bytes(),
            })
        };
        within("request", exchange).await
    }

    /// `GET` of a path of a host.
    pub async fn get(&mut self, host: &str, path: &str) -> Result<Answer, String> {
        self.send(Request::get(host, path)).await
    }

    /// The same connection, for a concurrent request. HTTP/1.1 has none.
    pub fn beside(&self) -> Result<Self, String> {
        match &self.sender {
            Sender::One(_) => Err("HTTP/1.1 carries one request at a time".to_owned()),
            Sender::Two(sender) => {
                Ok(Self { sender: Sender::Two(sender.clone()), scheme: self.scheme })
            }
        }
    }
}

/// One HTTP answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Its headers.
    pub headers: http::HeaderMap,
    /// The trailers after its body.
    pub trailers: http::HeaderMap,
    /// Its body.
    pub body: Bytes,
}

impl Answer {
    /// A header as text. Empty: it is absent.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// What a [`crate::Backend::http`] received. Another answer is an error.
    pub fn echo(&self) -> Result<Echo, String> {
        if self.status != 200 {
            return Err(format!("status {}: {}", self.status, self.text()));
        }
        serde_json::from_slice(&self.body).map_err(|e| format!("{e}: {}", self.text()))
    }
}

/// An open WebSocket.
pub struct WebSocket {
    stream: tokio_tungstenite::WebSocketStream<Box<dyn Io>>,
}

impl WebSocket {
    /// Sends a message and waits for the answer.
    pub async fn ask(&mut self, text: &str) -> Result<String, String> {
        within("send", self.stream.send(Message::text(text))).await?;
        match tokio::time::timeout(LIMIT, self.stream.next()).await {
            Ok(Some(Ok(Message::Text(text)))) => Ok(text.to_string()),
            other => Err(format!("WebSocket: {other:?}")),
        }
    }
}

/// A TCP connection to a backend that echoes lines.
pub struct Line {
    stream: BufReader<Box<dyn Io>>,
    /// The first text of the backend: its name and the PROXY header, if it received one.
    pub name: String,
}

impl Line {
    /// Sends a line and waits for the answer.
    pub async fn ask(&mut self, text: &str) -> Result<String, String> {
        within("send", self.stream.write_all(format!("{text}\n").as_bytes())).await?;
        self.read().await
    }

    async fn read(&mut self) -> Result<String, String> {
        let mut line = String::new();
        match within("read", self.stream.read_line(&mut line)).await? {
            0 => Err("read: the connection has ended".to_owned()),
            _ => Ok(line.trim_end().to_owned()),
        }
    }
}
