//! A link to the API server that a test can cut: a port on loopback that passes bytes on, until told
//! otherwise. So a server is away for one process and there for everybody else.

use crate::Cluster;
use kube::config::Kubeconfig;
use std::net::SocketAddr;
use std::path::PathBuf;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// A link that is up until it is cut.
pub struct Link {
    /// A kubeconfig that leads through it.
    pub kubeconfig: PathBuf,
    up: watch::Sender<bool>,
}

impl Link {
    /// A link to the server that a kubeconfig of this cluster leads to.
    pub async fn new(cluster: &Cluster, kubeconfig: &std::path::Path) -> Self {
        let mut config = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind a free port");
        let here = listener.local_addr().expect("an address");
        let target = config.clusters[0].cluster.as_mut().expect("a cluster");
        let url = target.server.replace(format!("https://{here}"));
        let server: SocketAddr = url
            .as_deref()
            .and_then(|url| url.strip_prefix("https://"))
            .and_then(|address| address.trim_end_matches('/').parse().ok())
            .expect("the server is on loopback");
        let file = cluster.scratch().join("kubeconfig");
        // JSON is YAML.
        let text = serde_json::to_string(&config).expect("a kubeconfig is JSON");
        std::fs::write(&file, text).expect("write a kubeconfig");
        let (up, state) = watch::channel(true);
        tokio::spawn(serve(listener, server, state));
        Self { kubeconfig: file, up }
    }

    /// Ends every connection and accepts no more.
    pub fn cut(&self) {
        let _ = self.up.send(false);
    }

    /// Lets connections through again.
    pub fn mend(&self) {
        let _ = self.up.send(true);
    }
}

async fn serve(listener: TcpListener, server: SocketAddr, mut up: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Ok((mut near, _)) = listener.accept() => {
                if *up.borrow() {
                    connections.spawn(async move {
                        if let Ok(mut far) = TcpStream::connect(server).await {
                            // How either side ends is not this link's affair.
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
