//! Bytes to and from the port of a server, with TLS but without an HTTP client in between: what no
//! client library would send can be sent.

use crate::bowline::Bowline;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Only reached by a failing test.
const PATIENCE: Duration = Duration::from_secs(30);

/// How to reach one server.
#[derive(Clone)]
pub(crate) struct Wire {
    address: SocketAddr,
    connector: TlsConnector,
    admin: String,
}

impl Wire {
    pub(crate) fn to(server: &Bowline) -> Self {
        Self::trusting(server, &server.authority())
    }

    /// Trusts this authority, whoever it is.
    pub(crate) fn trusting(server: &Bowline, authority: &[u8]) -> Self {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(authority) {
            roots.add(certificate.expect("PEM")).expect("a certificate");
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("TLS versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self {
            address: server.address,
            connector: TlsConnector::from(Arc::new(config)),
            admin: server.token("admin"),
        }
    }

    /// A TLS connection.
    pub(crate) async fn connect(&self) -> io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(self.address).await?;
        self.connector.connect(ServerName::from(self.address.ip()), stream).await
    }

    /// Sends these bytes on a connection of their own, and returns what comes back before the server
    /// closes it or has answered in full. No answer at all is empty.
    pub(crate) async fn exchange(&self, request: &[u8]) -> Vec<u8> {
        let work = async {
            let mut stream = self.connect().await.expect("the server takes connections");
            let (mut reading, mut writing) = tokio::io::split(&mut stream);
            // A server that has answered an endless request does not read its end.
            let send = async {
                let _ = writing.write_all(request).await;
                let _ = writing.flush().await;
            };
            let receive = async {
                let mut answer = Vec::new();
                let mut buffer = vec![0; 1 << 16];
                while let Ok(count) = reading.read(&mut buffer).await {
                    answer.extend_from_slice(&buffer[..count]);
                    if count == 0 || complete(&answer) {
                        break;
                    }
                }
                answer
            };
            tokio::join!(send, receive).1
        };
        tokio::time::timeout(PATIENCE, work).await.expect("an answer, or the end of the connection")
    }

    /// Sends these bytes, whatever they are, says that no more will come, and waits for the end.
    pub(crate) async fn hurl(&self, bytes: &[u8]) {
        let work = async {
            let mut stream = self.connect().await.expect("the server takes connections");
            let _ = stream.write_all(bytes).await;
            let _ = stream.shutdown().await;
            let _ = stream.read_to_end(&mut Vec::new()).await;
        };
        tokio::time::timeout(PATIENCE, work).await.expect("the end of the connection");
    }

    /// As the administrator: a request with this method, path and body. Returns status and body.
    pub(crate) async fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &str,
        body: &[u8],
    ) -> (u16, String) {
        let headers = format!("authorization: Bearer {}\r\n{headers}", self.admin);
        self.ask_with(method, path, &headers, body).await
    }

    /// The same with these headers only, each with its line end.
    pub(crate) async fn ask_with(
        &self,
        method: &str,
        path: &str,
        headers: &str,
        body: &[u8],
    ) -> (u16, String) {
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n",
            self.address
        );
        let answer = self.exchange(&[head.as_bytes(), body].concat()).await;
        (status(&answer), body_of(&answer))
    }
}

/// The status code of an answer; 0 when there is none.
pub(crate) fn status(answer: &[u8]) -> u16 {
    let code = answer.strip_prefix(b"HTTP/1.1 ").and_then(|rest| rest.get(..3));
    code.and_then(|code| std::str::from_utf8(code).ok()?.parse().ok()).unwrap_or(0)
}

fn body_of(answer: &[u8]) -> String {
    let text = String::from_utf8_lossy(answer);
    text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default()
}

/// Whether the answer is whole, as far as its `content-length` tells.
fn complete(answer: &[u8]) -> bool {
    let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") else { return false };
    let head = String::from_utf8_lossy(&answer[..end]);
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length = length.and_then(|length| length.trim().parse::<usize>().ok());
    length.is_some_and(|length| answer.len() >= end + 4 + length)
}
