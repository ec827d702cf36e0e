//! A proxy in front of the API server that records every request and can hold back the answers to
//! writes. With it a test sees the requests of one process, and stops the process in the middle of a
//! write.

use crate::{Access, Cluster};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::client::Body;
use serde_json::json;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;
use tokio::sync::watch;

/// A request that passed the recorder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Such as `PATCH`.
    pub method: String,
    /// The path without the query.
    pub path: String,
}

impl Asked {
    /// Whether it is a write.
    pub fn is_write(&self) -> bool {
        !matches!(self.method.as_str(), "GET" | "HEAD" | "OPTIONS")
    }
}

/// Passes requests on and records them.
pub struct Recorder {
    /// A kubeconfig that leads to the recorder.
    pub kubeconfig: PathBuf,
    asked: Arc<Mutex<Vec<Asked>>>,
    held: watch::Sender<Option<&'static str>>,
}

impl Recorder {
    /// A recorder in front of this cluster, with the administrator's rights.
    pub async fn new(cluster: &Cluster) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind a free port");
        let here = listener.local_addr().expect("an address");
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": format!("http://{here}")}}],
            "users": [{"name": "test", "user": {}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        });
        let kubeconfig = cluster.scratch().join("kubeconfig");
        std::fs::write(&kubeconfig, config.to_string()).expect("write a kubeconfig");
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (held, holds) = watch::channel(None);
        tokio::spawn(serve(listener, cluster.client_as(Access::Admin), asked.clone(), holds));
        Self { kubeconfig, asked, held }
    }

    /// From now on, holds back the answers to writes whose path ends like this. The writes are carried
    /// out.
    pub fn hold(&self, ends: &'static str) {
        let _ = self.held.send(Some(ends));
    }

    /// Releases all answers.
    pub fn release(&self) {
        let _ = self.held.send(None);
    }

    /// The requests so far, in order.
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().expect("no panic while locked").clone()
    }
}

async fn serve(
    listener: TcpListener,
    client: kube::Client,
    asked: Arc<Mutex<Vec<Asked>>>,
    holds: watch::Receiver<Option<&'static str>>,
) {
    while let Ok((stream, _)) = listener.accept().await {
        let (client, asked, holds) = (client.clone(), asked.clone(), holds.clone());
        let service = service_fn(move |request: http::Request<Incoming>| {
            pass(request, client.clone(), asked.clone(), holds.clone())
        });
        tokio::spawn(async move {
            let connection = hyper::server::conn::http1::Builder::new();
            // A client may end its connection in any way.
            let _ = connection.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn pass(
    request: http::Request<Incoming>,
    client: kube::Client,
    asked: Arc<Mutex<Vec<Asked>>>,
    mut holds: watch::Receiver<Option<&'static str>>,
) -> Result<http::Response<Body>, Box<dyn std::error::Error + Send + Sync>> {
    let (mut parts, body) = request.into_parts();
    let path = parts.uri.path().to_owned();
    let this = Asked { method: parts.method.to_string(), path: path.clone() };
    asked.lock().expect("no panic while locked").push(this.clone());
    parts.headers.remove(http::header::HOST);
    let body = body.collect().await?.to_bytes();
    let response = client.send(http::Request::from_parts(parts, Body::from(body))).await?;
    if this.is_write() {
        let free = |held: &Option<&str>| held.is_none_or(|ends| !path.ends_with(ends));
        holds.wait_for(free).await?;
    }
    Ok(response)
}
