//! A connection to the API server that a test can cut: a loopback port that forwards bytes until it
//! is told otherwise. So the server is unreachable for one process and reachable for all others.

use crate::{Cluster, Machine};
use kube::config::Kubeconfig;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// A link. It forwards until it is cut.
pub struct Link {
    /// A kubeconfig that leads to the link.
    pub kubeconfig: PathBuf,
    /// The link's own address.
    url: String,
    up: watch::Sender<bool>,
}

impl Link {
    /// A link to the server in a kubeconfig of this cluster.
    pub async fn new(cluster: &Cluster, kubeconfig: &Path) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bind a free port");
        Self::from(cluster, kubeconfig, listener)
    }

    /// The same for a process on a machine of its own, where loopback is another one.
    pub fn on(machine: &Machine, cluster: &Cluster, kubeconfig: &Path) -> Self {
        let listener = machine.on(|| std::net::TcpListener::bind("127.0.0.1:0"));
        Self::from(cluster, kubeconfig, listener.expect("bind a free port"))
    }

    fn from(cluster: &Cluster, kubeconfig: &Path, listener: std::net::TcpListener) -> Self {
        listener.set_nonblocking(true).expect("a listener that does not block");
        let listener = TcpListener::from_std(listener).expect("a listener of the runtime");
        let url = format!("https://{}", listener.local_addr().expect("an address"));
        let (file, server) = redirected(cluster, kubeconfig, &url);
        let (up, state) = watch::channel(true);
        tokio::spawn(serve(listener, server, state));
        Self { kubeconfig: file, url, up }
    }

    /// A kubeconfig of another account at the same server that leads to the link.
    pub fn also(&self, cluster: &Cluster, kubeconfig: &Path) -> PathBuf {
        redirected(cluster, kubeconfig, &self.url).0
    }

    /// Closes all connections and accepts no more.
    pub fn cut(&self) {
        let _ = self.up.send(false);
    }

    /// Accepts connections again.
    pub fn mend(&self) {
        let _ = self.up.send(true);
    }
}

/// A copy of a kubeconfig that leads there, and where the original leads.
fn redirected(cluster: &Cluster, kubeconfig: &Path, there: &str) -> (PathBuf, SocketAddr) {
    let mut config = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig");
    let target = config.clusters[0].cluster.as_mut().expect("a cluster");
    let server = target.server.replace(there.to_owned());
    let server = server
        .as_deref()
        .and_then(|url| url.strip_prefix("https://"))
        .and_then(|address| address.trim_end_matches('/').parse().ok())
        .expect("the server is on loopback");
    let file = cluster.scratch().join("kubeconfig");
    // JSON is valid YAML.
    let text = serde_json::to_string(&config).expect("a kubeconfig is JSON");
    std::fs::write(&file, text).expect("write a kubeconfig");
    (file, server)
}

async fn serve(listener: TcpListener, server: SocketAddr, mut up: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Ok((mut near, _)) = listener.accept() => {
                if *up.borrow() {
                    connections.spawn(async move {
                        if let Ok(mut far) = TcpStream::connect(server).await {
                            // Either side may end the connection in any way.
                            let _ = copy_bidirectional(&mut near, &mut far).await;
                        }
                    });
                }
            }
            Some(_) = connections.join_next() => {}
            changed = up.changed() => {
                if changed.is_err() {
                    return;
                }
                if !*up.borrow() {
                    connections.abort_all();
                }
            }
        }
    }
}
