//! The admin endpoint: whether the process lives, whether it is ready, what it counts. It answers with
//! what roles have noted and asks nobody.

use crate::metrics::Metrics;
use axum::Router;
use axum::http::{StatusCode, header};
use axum::routing::get;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// What must happen before a process is ready. A role names what it waits for when it starts; before the
/// first one has, nothing is ready.
#[derive(Clone, Debug)]
pub struct Readiness {
    awaited: Arc<Mutex<BTreeSet<String>>>,
    /// What a ready process says of itself, by what it is about.
    notes: Arc<Mutex<BTreeMap<String, String>>>,
}

/// What is awaited until a role says what it waits for.
const START: &str = "a role to start";

impl Default for Readiness {
    fn default() -> Self {
        let awaited = BTreeSet::from([START.to_owned()]);
        Self { awaited: Arc::new(Mutex::new(awaited)), notes: Arc::default() }
    }
}

impl Readiness {
    /// Something must happen first.
    pub fn awaits(&self, what: impl Into<String>) {
        let mut awaited = self.awaited.lock();
        awaited.remove(START);
        awaited.insert(what.into());
    }

    /// It has happened.
    pub fn reached(&self, what: &str) {
        self.awaited.lock().remove(what);
    }

    /// Says something of a process that may be ready all the same; None: no more.
    pub fn note(&self, about: &str, text: Option<String>) {
        let mut notes = self.notes.lock();
        match text {
            Some(text) => drop(notes.insert(about.to_owned(), text)),
            None => drop(notes.remove(about)),
        }
    }

    /// What is to be said of the process beside whether it is ready: a line each.
    pub fn notes(&self) -> Vec<String> {
        self.notes.lock().values().cloned().collect()
    }

    /// What is still to happen.
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
    /// Where it should have been.
    pub address: SocketAddr,
    /// What the operating system said.
    pub source: io::Error,
}

/// An admin endpoint with its port taken.
#[derive(Debug)]
pub struct Admin {
    listener: TcpListener,
    /// Where it is.
    pub address: SocketAddr,
}

/// Whether this machine has addresses of version 6 at all.
fn has_v6() -> bool {
    std::net::UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).is_ok()
}

impl Admin {
    /// Takes the port, so that a port in use is known before anything else starts.
    pub async fn bind(address: SocketAddr) -> Result<Self, AdminError> {
        let refused = |source| AdminError { address, source };
        let listener = match TcpListener::bind(address).await {
            // All addresses, on a machine without version 6.
            Err(_) if address.ip() == Ipv6Addr::UNSPECIFIED && !has_v6() => {
                TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
            }
            bound => bound,
        };
        let listener = listener.map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        Ok(Self { listener, address })
    }

    /// Answers until the shutdown is announced.
    pub async fn serve(
        self,
        metrics: Metrics,
        readiness: Readiness,
        mut shutdown: watch::Receiver<bool>,
    ) {
        let router = Router::new()
            .route("/livez", get(async || "ok\n"))
            .route("/readyz", get(async move || ready(&readiness)))
            .route("/metrics", get(async move || exposition(&metrics)));
        let stopped = async move {
            let _ = shutdown.wait_for(|stop| *stop).await;
        };
        if let Err(error) = axum::serve(self.listener, router).with_graceful_shutdown(stopped).await
        {
            tracing::error!(%error, "the admin endpoint stopped");
        }
    }
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

fn exposition(metrics: &Metrics) -> ([(header::HeaderName, &'static str); 1], String) {
    const TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, TYPE)], metrics.text())
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

    #[tokio::test]
    async fn it_is_alive_at_once_and_ready_when_all_that_it_waits_for_has_happened() {
        let admin = Admin::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let address = admin.address;
        let (stop, shutdown) = watch::channel(false);
        let readiness = Readiness::default();
        readiness.awaits("the first plan");
        let serving = tokio::spawn(admin.serve(Metrics::default(), readiness.clone(), shutdown));
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

    #[tokio::test]
    async fn a_port_in_use_is_an_error_that_names_the_flag() {
        let first = Admin::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let error = Admin::bind(first.address).await.unwrap_err().to_string();
        assert!(error.contains(&first.address.to_string()) && error.contains("--admin"), "{error}");
    }
}
