//! Serving the API over TLS: one listener, HTTP/1.1 and HTTP/2, until told to stop.

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
#[error("cannot use the server's certificate: {0}")]
pub struct TlsError(String);

/// How long a client may take for its TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// How long requests under way may take after the server was told to stop.
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

/// Accepts connections until `stop` becomes true, then lets requests under way end.
pub async fn serve(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    router: Router,
    stop: watch::Receiver<bool>,
) {
    let acceptor = TlsAcceptor::from(tls);
    let mut told = stop.clone();
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = stopped(&mut told) => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(
                        stream, acceptor.clone(), router.clone(), stop.clone(),
                    ));
                }
                Err(error) => {
                    // Out of descriptors, most likely: without a pause this would spin.
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

/// Resolves when the server was told to stop, or nobody is left to tell it.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stopped| *stopped).await;
}

async fn connection(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    router: Router,
    mut stop: watch::Receiver<bool>,
) {
    let _ = stream.set_nodelay(true);
    let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await else {
        return;
    };
    let builder = Builder::new(TokioExecutor::new());
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
