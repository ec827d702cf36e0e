//! A way to the API server that remembers every request that goes through it, and that can hold back the
//! answers to writes. So a test sees what one process asks, and stops it in the middle of something.

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

/// A request that went through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Such as `PATCH`.
    pub method: String,
    /// Without the query.
    pub path: String,
}

impl Asked {
    /// Whether it changes something.
    pub fn is_write(&self) -> bool {
        !matches!(self.method.as_str(), "GET" | "HEAD" | "OPTIONS")
    }
}

/// Passes requests on and remembers them.
pub struct Recorder {
    /// A kubeconfig that leads through it.
    pub kubeconfig: PathBuf,
    asked: Arc<Mutex<Vec<Asked>>>,
    held: watch::Sender<Option<&'static str>>,
}

impl Recorder {
    /// One in front of this cluster, with the rights of an administrator.
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

    /// From now on writes to paths that end so are carried out, and their answers wait.
    pub fn hold(&self, ends: &'static str) {
        let _ = self.held.send(Some(ends));
    }

    /// Lets all answers go.
    pub fn release(&self) {
        let _ = self.held.send(None);
    }

    /// What was asked so far, in order.
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
            // How it ends is not this recorder's affair.
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
