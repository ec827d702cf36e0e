//! Serves the API over TLS: one listener, HTTP/1.1 and HTTP/2, until it is told to stop. It limits
//! connections without a token. `Cluster` calls it.

use axum::Router;
use bowline_crowd::{Door, Place};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt as _;

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
#[error("cannot use the server's certificate: {0}")]
pub struct TlsError(String);

/// The times that a client may take. Without them, every client could hold connections forever, without a
/// token.
#[derive(Clone, Copy, Debug)]
struct Patience {
    /// For the TLS handshake.
    handshake: Duration,
    /// For the head of a request, after the end of the previous one. It is longer than the 90 s for which
    /// Go's and hyper's clients keep an idle connection: a server that closes first may cut off a
    /// request.
    head: Duration,
    /// For the first request with a token.
    stranger: Duration,
    /// For the answer to a ping, so that a watch ends when its client has vanished.
    ping: Duration,
}

const PATIENCE: Patience = Patience {
    handshake: Duration::from_secs(10),
    head: Duration::from_secs(100),
    stranger: Duration::from_secs(30),
    ping: Duration::from_secs(30),
};

/// The most connections without a token: in total, and of one client.
const STRANGERS: (usize, usize) = (512, 256);

/// A connection that has not shown a token yet. Every request of the connection carries it.
#[derive(Clone, Debug)]
pub(super) struct Stranger(Arc<Mutex<Option<Place>>>);

impl Stranger {
    /// The connection has shown a token: it may stay, and its place is free for another.
    pub(super) fn is_known(&self) {
        drop(self.0.lock().take());
    }

    /// Returns when the connection must end: it is told to, or has shown no token in time.
    async fn has_to_go(self, told: oneshot::Receiver<()>, patience: Duration) {
        let told = async {
            if told.await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        if tokio::time::timeout(patience, told).await.is_err() && self.0.lock().is_none() {
            std::future::pending().await
        }
    }
}

/// How long running requests may take after the server is told to stop.
const DRAIN: Duration = Duration::from_secs(2);

/// TLS from a PEM certificate chain and key.
pub fn tls(certificates: &str, key: &str) -> Result<Arc<ServerConfig>, TlsError> {
    let failed = |error: &dyn std::fmt::Display| TlsError(error.to_string());
    let chain = CertificateDer::pem_slice_iter(certificates.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| failed(&error))?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|error| failed(&error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(&error))?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| failed(&error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Accepts connections until `stop` becomes true, then lets running requests end.
pub async fn serve(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    router: Router,
    stop: watch::Receiver<bool>,
) {
    let acceptor = TlsAcceptor::from(tls);
    let door = Door::new(STRANGERS.0, STRANGERS.1);
    let mut told = stop.clone();
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = stopped(&mut told) => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, from)) => {
                    let _ = stream.set_nodelay(true);
                    connections.spawn(connection(
                        (stream, from.ip()),
                        acceptor.clone(),
                        router.clone(),
                        (stop.clone(), door.clone()),
                        PATIENCE,
                    ));
                }
                Err(error) => {
                    // Probably no file descriptor is left: without a pause this would spin.
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
        }
    }
    let drained = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(DRAIN, drained).await.is_err() {
        tracing::debug!("connections were cut after the drain time");
    }
}

/// Resolves when the server is told to stop, or the sender is dropped.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stopped| *stopped).await;
}

async fn connection(
    (stream, from): (impl AsyncRead + AsyncWrite + Unpin + Send + 'static, IpAddr),
    acceptor: TlsAcceptor,
    router: Router,
    (stop, door): (watch::Receiver<bool>, Door),
    patience: Patience,
) {
    let (place, told) = door.enter(from);
    let stranger = Stranger(Arc::new(Mutex::new(Some(place))));
    let goes = stranger.clone().has_to_go(told, patience.stranger);
    tokio::select! {
        () = exchange(stream, acceptor, router, stop, patience, stranger) => {}
        () = goes => tracing::debug!(%from, "a connection without a token was closed"),
    }
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    acceptor: TlsAcceptor,
    router: Router,
    mut stop: watch::Receiver<bool>,
    patience: Patience,
    stranger: Stranger,
) {
    let accepting = tokio::time::timeout(patience.handshake, acceptor.accept(stream));
    let Ok(Ok(mut stream)) = accepting.await else { return };
    let Ok(Ok(_)) = tokio::time::timeout(patience.head, stream.fill_buf()).await else { return };
    // The protocol comes from the handshake: detecting it from the first bytes could wait forever.
    let builder = Builder::new(TokioExecutor::new());
    let mut builder = match stream.get_ref().1.alpn_protocol() {
        Some(b"h2") => builder.http2_only(),
        _ => builder.http1_only(),
    };
    builder.http1().timer(TokioTimer::new()).header_read_timeout(patience.head);
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(patience.ping);
    let router = router.map_request(move |mut request: http::Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(stranger.clone());
        request
    });
    let serving = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    tokio::pin!(serving);
    let stopping = tokio::select! {
        result = serving.as_mut() => {
            if let Err(error) = result {
                tracing::debug!(%error, "connection ended");
            }
            false
        }
        () = stopped(&mut stop) => true,
    };
    if stopping {
        serving.as_mut().graceful_shutdown();
        let _ = serving.await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Extension;
    use rustls::pki_types::ServerName;
    use rustls::{ClientConfig, RootCertStore};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
    use tokio_rustls::TlsConnector;
    use tokio_rustls::client::TlsStream;

    const SHORT: Patience = Patience {
        handshake: Duration::from_millis(50),
        head: Duration::from_millis(50),
        stranger: Duration::from_secs(30),
        ping: Duration::from_secs(30),
    };

    /// The client's end of a connection that is served, before its handshake.
    fn served(patience: Patience) -> (DuplexStream, TlsConnector, watch::Sender<bool>) {
        let credentials =
            crate::pki::Credentials::ephemeral("test", "127.0.0.1:1".parse().unwrap()).unwrap();
        let acceptor = TlsAcceptor::from(tls(&credentials.certificate, &credentials.key).unwrap());
        let mut roots = RootCertStore::empty();
        let authority = CertificateDer::from_pem_slice(credentials.authority().as_bytes());
        roots.add(authority.unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let (near, far) = duplex(1 << 16);
        let (stop, stopped) = watch::channel(false);
        let router = Router::new().fallback(|| async { "here" }).route(
            "/known",
            axum::routing::get(async |Extension(stranger): Extension<Stranger>| {
                stranger.is_known();
                "here"
            }),
        );
        let (from, door) = (IpAddr::from([192, 0, 2, 1]), Door::new(1, 1));
        tokio::spawn(connection((far, from), acceptor, router, (stopped, door), patience));
        (near, TlsConnector::from(Arc::new(client)), stop)
    }

    async fn greeted(patience: Patience) -> (TlsStream<DuplexStream>, watch::Sender<bool>) {
        let (near, connector, stop) = served(patience);
        let name = ServerName::try_from("localhost").unwrap();
        (connector.connect(name, near).await.unwrap(), stop)
    }

    #[tokio::test]
    async fn a_client_that_never_greets_is_let_go() {
        let (mut near, _, _stop) = served(SHORT);
        near.write_all(&[22, 3, 1]).await.unwrap();
        assert_eq!(near.read(&mut [0; 100]).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn a_client_that_asks_for_nothing_is_let_go() {
        let (mut stream, _stop) = greeted(SHORT).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        assert_eq!(String::from_utf8_lossy(&answer), "");
    }

    #[tokio::test]
    async fn a_client_that_never_ends_its_request_is_let_go() {
        let (mut stream, _stop) = greeted(SHORT).await;
        stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nx-").await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        assert!(!String::from_utf8_lossy(&answer).contains("here"));
    }

    async fn asks(stream: &mut TlsStream<DuplexStream>, path: &str) -> std::io::Result<()> {
        let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        while !answer.ends_with("here") {
            let mut byte = [0];
            stream.read_exact(&mut byte).await?;
            answer.push(byte[0].into());
        }
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_shows_no_token_in_time_is_let_go_and_one_that_has_shown_one_stays() {
        let patience = PATIENCE;
        for (path, stays) in [("/", false), ("/known", true)] {
            let (mut stream, _stop) = greeted(patience).await;
            asks(&mut stream, path).await.unwrap();
            tokio::time::sleep(patience.stranger * 2).await;
            assert_eq!(asks(&mut stream, path).await.is_ok(), stays, "{path}");
        }
    }

    #[tokio::test]
    async fn a_client_that_asks_is_answered_and_may_ask_again() {
        let (mut stream, _stop) = greeted(PATIENCE).await;
        for _ in 0..2 {
            stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
            let mut answer = String::new();
            while !answer.ends_with("here") {
                let mut byte = [0];
                stream.read_exact(&mut byte).await.unwrap();
                answer.push(byte[0].into());
            }
        }
    }
}
