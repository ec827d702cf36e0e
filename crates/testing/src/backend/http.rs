//! The HTTP backend: HTTP/1.1, HTTP/2 with prior knowledge, and WebSocket. The query selects its
//! behaviour (`delay`, `status`, `bytes`, `trailer`), so that one backend serves every test.

use super::{Counters, Preamble, proxy_header};
use bytes::Bytes;
use futures::{SinkExt as _, StreamExt as _};
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_tungstenite::tungstenite::{Error, Message};

/// What a backend received.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Echo {
    /// The backend's name.
    pub name: String,
    /// Such as `GET`.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// The host, from the header or from the authority of the URI.
    pub host: String,
    /// Such as `HTTP/1.1`.
    pub version: String,
    /// Names in lower case. Several values of one name are joined by `, `.
    pub headers: BTreeMap<String, String>,
    /// The length of the body.
    pub body: usize,
    /// The address of the client.
    pub client: SocketAddr,
    /// The addresses of the PROXY header, if the backend expects one.
    pub proxy: Option<String>,
}

impl Echo {
    /// The value of a header. Empty: it is absent.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

pub(super) async fn serve(
    mut stream: TcpStream,
    client: SocketAddr,
    name: String,
    preamble: Preamble,
    counters: Arc<Counters>,
    mut stopping: watch::Receiver<bool>,
) {
    let proxy = match preamble {
        Preamble::None => None,
        Preamble::ProxyV2 => match proxy_header::read(&mut stream).await {
            Ok(header) => Some(header),
            Err(_) => return,
        },
    };
    let answer = service_fn(move |request: Request<Incoming>| {
        counters.requests.fetch_add(1, Ordering::Relaxed);
        let (name, proxy, counters) = (name.clone(), proxy.clone(), counters.clone());
        async move { Ok::<_, Infallible>(answer(request, name, client, proxy, counters).await) }
    });
    let builder = auto::Builder::new(TokioExecutor::new());
    let mut connection = pin!(builder.serve_connection_with_upgrades(TokioIo::new(stream), answer));
    tokio::select! {
        // A client may end its connection in any way.
        _ = connection.as_mut() => return,
        _ = stopping.changed() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

async fn answer(
    mut request: Request<Incoming>,
    name: String,
    client: SocketAddr,
    proxy: Option<String>,
    counters: Arc<Counters>,
) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
    if let Some(key) = request.headers().get("sec-websocket-key") {
        let accept = derive_accept_key(key.as_bytes());
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            if let Ok(upgraded) = upgrade.await {
                let io = TokioIo::new(upgraded);
                let stream = WebSocketStream::from_raw_socket(io, Role::Server, None).await;
                // A client may end its connection in any way.
                let _ = echo_messages(stream, name, counters).await;
            }
        });
        return Response::builder()
            .status(101)
            .header("connection", "upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-accept", accept)
            .body(Full::default().boxed_unsync())
            .expect("a response");
    }
    let sick = request.uri().path() == "/healthz" && counters.sick.load(Ordering::Relaxed);
    let query = request.uri().query().unwrap_or_default().to_owned();
    let number = |key: &str| {
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.filter(|(name, _)| *name == key).find_map(|(_, value)| value.parse::<u64>().ok())
    };
    let mut headers = BTreeMap::<String, String>::new();
    for (name, value) in request.headers() {
        let value = String::from_utf8_lossy(value.as_bytes());
        headers
            .entry(name.as_str().to_owned())
            .and_modify(|all| all.push_str(&format!(", {value}")))
            .or_insert_with(|| value.into_owned());
    }
    let authority = request.uri().authority().map(ToString::to_string);
    let mut echo = Echo {
        host: authority.or_else(|| headers.get("host").cloned()).unwrap_or_default(),
        name,
        method: request.method().to_string(),
        path: request.uri().path_and_query().map(ToString::to_string).unwrap_or_default(),
        version: format!("{:?}", request.version()),
        headers,
        body: 0,
        client,
        proxy,
    };
    echo.body = request.into_body().collect().await.map_or(0, |body| body.to_bytes().len());
    if let Some(delay) = number("delay") {
        tokio::time::sleep(Duration::from_millis(delay)).await;
    }
    let body = match number("bytes") {
        Some(length) => vec![b'x'; length as usize].into(),
        None => serde_json::to_vec(&echo).expect("an echo is JSON").into(),
    };
    let body = Full::new(body);
    let body = match number("trailer") {
        Some(status) => {
            let name = HeaderName::from_static("grpc-status");
            let trailers = HeaderMap::from_iter([(name, HeaderValue::from(status))]);
            body.with_trailers(async move { Some(Ok(trailers)) }).boxed_unsync()
        }
        None => body.boxed_unsync(),
    };
    Response::builder()
        .status(number("status").unwrap_or(if sick { 503 } else { 200 }) as u16)
        .header("x-backend", &echo.name)
        .body(body)
        .expect("a response")
}

async fn echo_messages<S>(
    mut stream: WebSocketStream<S>,
    name: String,
    counters: Arc<Counters>,
) -> Result<(), Error>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    while let Some(message) = stream.next().await {
        if let Message::Text(text) = message? {
            counters.requests.fetch_add(1, Ordering::Relaxed);
            stream.send(Message::text(format!("{name}:{text}"))).await?;
        }
    }
    Ok(())
}
