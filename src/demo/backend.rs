//! The small web servers of the demo: each answers with its name. It knows nothing of Kubernetes;
//! the demo's kubelet starts and stops them.

use axum::Router;
use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use tokio::net::TcpListener;

/// A server that already listens.
pub(super) struct Backend {
    listeners: Vec<TcpListener>,
    name: String,
}

impl Backend {
    /// Listens on loopback at each of these ports; the error names a port that cannot be bound.
    pub(super) async fn bind(name: &str, ports: &[u16]) -> Result<Self, (u16, io::Error)> {
        let mut listeners = Vec::new();
        for port in ports {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, *port));
            listeners.push(TcpListener::bind(address).await.map_err(|error| (*port, error))?);
        }
        Ok(Self { listeners, name: name.to_owned() })
    }

    /// Answers until `stopped`; requests under way are still answered.
    pub(super) async fn serve<F>(self, stopped: impl Fn() -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut servers = tokio::task::JoinSet::new();
        for listener in self.listeners {
            let Ok(address) = listener.local_addr() else { continue };
            let line = greeting(&self.name, address);
            let router = Router::new().fallback(move || std::future::ready(line.clone()));
            let server = axum::serve(listener, router).with_graceful_shutdown(stopped());
            servers.spawn(async move { server.await });
        }
        while servers.join_next().await.is_some() {}
    }
}

fn greeting(name: &str, address: SocketAddr) -> String {
    format!("Hello from {name} at {address}\n")
}
