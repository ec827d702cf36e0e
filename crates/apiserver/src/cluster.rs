//! An embedded cluster: store, server, TLS listener and the small controllers, started and stopped
//! together. `bowline up` and tests use it.

use crate::controllers;
use crate::error::ApiError;
use crate::http::{self, serve};
use crate::pki::{Credentials, PkiError, private_folder, write_private};
use crate::server::{Options, Server};
use crate::store::{Limits, OpenError, Store};
use serde_json::json;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The options of a cluster.
#[derive(Clone)]
pub struct ClusterOptions {
    /// Its name in kubeconfig and certificates.
    pub name: String,
    /// The folder of its state. None: the state is in memory and lost with the process.
    pub data: Option<PathBuf>,
    /// The address on which it listens. Port 0: any free port.
    pub listen: SocketAddr,
    /// How much history is kept for watchers.
    pub limits: Limits,
    /// The server's own options.
    pub server: Options,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self {
            name: "embedded".to_owned(),
            data: None,
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            limits: Limits::default(),
            server: Options::default(),
        }
    }
}

/// Why a cluster cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Another process uses the data folder.
    #[error("{} is in use{}", .data.display(), by(.owner))]
    InUse {
        /// The data folder.
        data: PathBuf,
        /// What the other process recorded about itself.
        owner: Option<String>,
    },
    /// The address is in use or does not belong to this machine.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: std::io::Error,
    },
    /// The store cannot be opened.
    #[error("cannot open {}: {source}", .file.display())]
    Store {
        /// The store's file.
        file: PathBuf,
        /// The error.
        source: OpenError,
    },
    /// Credentials cannot be made or kept.
    #[error(transparent)]
    Credentials(#[from] PkiError),
    /// The server's certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] serve::TlsError),
    /// The server cannot create its first objects.
    #[error("cannot set up the API: {0}")]
    Setup(ApiError),
}

fn by(owner: &Option<String>) -> String {
    owner.as_ref().map(|text| format!(" by {text}")).unwrap_or_default()
}

/// A running cluster.
pub struct Cluster {
    server: Arc<Server>,
    address: SocketAddr,
    credentials: Credentials,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Cluster {
    /// Starts a cluster, and returns when it answers.
    pub async fn start(options: ClusterOptions) -> Result<Self, StartError> {
        let store = match &options.data {
            None => Store::memory(options.limits),
            Some(data) => {
                private_folder(data, STORE)?;
                open(data, options.limits)?
            }
        };
        let failed = |source| StartError::Listen { address: options.listen, source };
        let listener = TcpListener::bind(options.listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let credentials = match &options.data {
            None => Credentials::ephemeral(&options.name, address)?,
            Some(data) => {
                let owner = json!({"pid": std::process::id(), "address": address.to_string()});
                write_private(&owner_file(data), owner.to_string().as_bytes())?;
                Credentials::kept(&options.name, &data.join("credentials.json"), address)?
            }
        };
        let server = Arc::new(Server::new(store, options.server).map_err(StartError::Setup)?);
        server.bootstrap().await.map_err(StartError::Setup)?;
        let tls = serve::tls(&credentials.certificate, &credentials.key)?;
        let router = http::router(server.clone(), credentials.access());
        let (stop, stopped) = watch::channel(false);
        let mut tasks = controllers::spawn(server.client(), &stopped);
        tasks.push(tokio::spawn(serve::serve(listener, tls, router, stopped)));
        Ok(Self { server, address, credentials, stop, tasks })
    }

    /// The server, for use in the same process.
    pub fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// The address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `https://…`, as clients on this machine reach it.
    pub fn url(&self) -> String {
        url_of(self.address)
    }

    /// Certificate authority and tokens.
    pub fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// A client in the same process, without a socket.
    pub fn client(&self) -> kube::Client {
        self.server.client()
    }

    /// A kubeconfig for other processes.
    pub fn kubeconfig(&self) -> String {
        self.credentials.kubeconfig(&self.url())
    }

    /// Stops answering, stops the controllers, and closes the store.
    pub async fn shutdown(self) {
        let _ = self.stop.send(true);
        for task in self.tasks {
            let _ = task.await;
        }
        let store = self.server.store().clone();
        drop(self.server);
        store.close().await;
    }
}

/// The store's file in a data folder.
const STORE: &str = "store.redb";

fn owner_file(data: &Path) -> PathBuf {
    data.join("owner.json")
}

fn open(data: &Path, limits: Limits) -> Result<Store, StartError> {
    let file = data.join(STORE);
    let store = Store::open(&file, limits).map_err(|error| match error {
        OpenError::InUse => StartError::InUse { data: data.to_owned(), owner: owner(data) },
        source => StartError::Store { file, source },
    })?;
    // The former owner no longer holds the store, and no client should be sent to its address.
    let _ = std::fs::remove_file(owner_file(data));
    Ok(store)
}

/// The owner of the data folder, as it recorded itself.
fn owner(data: &Path) -> Option<String> {
    let bytes = std::fs::read(owner_file(data)).ok()?;
    let owner: serde_json::Value = serde_json::from_slice(&bytes).ok()?;
    Some(format!("process {}, which serves https://{}", owner["pid"], owner["address"].as_str()?))
}

/// The URL by which clients on this machine reach a server that listens here.
pub fn url_of(mut listens: SocketAddr) -> String {
    match listens.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => listens.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => listens.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    format!("https://{listens}")
}
