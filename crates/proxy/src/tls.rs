//! Certificates by hash, and the choice for a connection: the certificate of the site that its SNI
//! names. A name without a usable certificate fails the handshake; there is no default certificate.
//! Updates change the tables in memory; a connection keeps the certificate it began with.

use bowline_core::update::Certificate;
use parking_lot::RwLock;
use rustls::ServerConfig;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{Acceptor, ClientHello, ProducesTickets, ResolvesServerCert};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

/// The hash of a certificate.
pub(crate) type Hash = Arc<str>;

/// Certificates that can be served, each with its TLS settings.
pub(crate) struct Certificates {
    provider: Arc<CryptoProvider>,
    tickets: Option<Arc<dyn ProducesTickets>>,
    /// Settings under which every handshake fails with the proper TLS alert.
    none: Option<Arc<ServerConfig>>,
    /// None for a hash whose certificate or key cannot be used.
    served: RwLock<HashMap<Hash, Option<Arc<ServerConfig>>>>,
}

impl Certificates {
    /// No certificates yet.
    pub(crate) fn new() -> Self {
        let provider = Arc::new(ring::default_provider());
        let tickets = ring::Ticketer::new().ok();
        let none = settings(&provider, tickets.as_ref(), Arc::new(Nobody));
        Self { provider, tickets, none, served: RwLock::default() }
    }

    /// Adds a certificate; an error says why it cannot be served.
    pub(crate) fn put(&self, hash: Hash, certificate: &Certificate) -> Result<(), String> {
        let config = certified(certificate, &self.provider).and_then(|key| {
            let resolver = Arc::new(SingleCertAndKey::from(key));
            settings(&self.provider, self.tickets.as_ref(), resolver)
                .ok_or_else(|| "no protocol version can be used".to_owned())
        });
        let (config, outcome) = match config {
            Ok(config) => (Some(config), Ok(())),
            Err(why) => (None, Err(why)),
        };
        self.served.write().insert(hash, config);
        outcome
    }

    /// All hashes that were added, whether or not they can be served.
    pub(crate) fn hashes(&self) -> impl ExactSizeIterator<Item = Hash> + use<> {
        self.served.read().keys().cloned().collect::<Vec<_>>().into_iter()
    }

    /// Removes a certificate; connections that use it go on.
    pub(crate) fn remove(&self, hash: &str) {
        self.served.write().remove(hash);
    }

    fn settings(&self, hash: &str) -> Option<Arc<ServerConfig>> {
        self.served.read().get(hash).cloned().flatten()
    }
}

fn settings(
    provider: &Arc<CryptoProvider>,
    tickets: Option<&Arc<dyn ProducesTickets>>,
    resolver: Arc<dyn ResolvesServerCert>,
) -> Option<Arc<ServerConfig>> {
    let mut config = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .ok()?
        .with_no_client_auth()
        .with_cert_resolver(resolver);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // Tickets need no memory per session, and rustls accepts a ticket only for the name it was issued
    // for.
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    if let Some(tickets) = tickets {
        config.ticketer = tickets.clone();
    }
    Some(Arc::new(config))
}

fn certified(certificate: &Certificate, provider: &CryptoProvider) -> Result<CertifiedKey, String> {
    let chain = CertificateDer::pem_slice_iter(certificate.chain.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|bad| format!("the chain cannot be read: {bad}"))?;
    if chain.is_empty() {
        return Err("the chain is empty".to_owned());
    }
    let key = PrivateKeyDer::from_pem_slice(certificate.key.as_bytes())
        .map_err(|bad| format!("the key cannot be read: {bad}"))?;
    CertifiedKey::from_der(chain, key, provider)
        .map_err(|bad| format!("certificate and key cannot be used: {bad}"))
}

#[derive(Debug)]
struct Nobody;

impl ResolvesServerCert for Nobody {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        None
    }
}

/// What a TLS connection has negotiated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    /// The name that the client asked for, in lower case; empty: none.
    pub(crate) name: Arc<str>,
    /// The hash of the certificate that it got.
    pub(crate) certificate: Hash,
    /// Whether HTTP/2 was negotiated.
    pub(crate) http2: bool,
}

/// Does the TLS handshake with the certificate for the client's name, which is empty without SNI.
pub(crate) async fn accept(
    stream: TcpStream,
    certificate: impl FnOnce(&str) -> Option<Hash>,
    certificates: &Certificates,
    patience: Duration,
) -> Option<(Box<TlsStream<TcpStream>>, Given)> {
    tokio::time::timeout(patience, async {
        let start = LazyConfigAcceptor::new(Acceptor::default(), stream).await.ok()?;
        let name = start.client_hello().server_name().unwrap_or("").to_ascii_lowercase();
        let chosen =
            certificate(&name).and_then(|hash| Some((certificates.settings(&hash)?, hash)));
        let Some((config, certificate)) = chosen else {
            tracing::debug!(name, "no certificate for the name that a client asks for");
            start.into_stream(certificates.none.clone()?).await.ok();
            return None;
        };
        let stream = start.into_stream(config).await.ok()?;
        let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2".as_slice());
        Some((Box::new(stream), Given { name: name.into(), certificate, http2 }))
    })
    .await
    .ok()
    .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_that_cannot_be_read_is_told_and_not_usable() {
        let certificates = Certificates::new();
        let bad = Certificate { chain: "no".into(), key: "no".into() };
        let why = certificates.put("hash".into(), &bad).unwrap_err();
        assert_eq!(why, "the chain is empty");
        assert!(certificates.settings("hash").is_none());
    }
}
