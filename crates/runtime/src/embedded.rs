//! The embedded cluster: a small Kubernetes API that has Bowline's kinds installed and accepts the older
//! spellings that Bowline translates. `bowline up` and the tests start it.

use crate::apply::{self, ApplyError};
use bowline_apiserver::builtins::ServiceNetwork;
use bowline_apiserver::cluster::{Cluster, ClusterOptions, StartError};
use bowline_apiserver::server::Options;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

/// IPv6 cluster addresses for dual-stack Services: a unique local network of the size that Kubernetes
/// allows.
const CLUSTER_V6: &str = "fd00:10:96::/108";

/// How to start the cluster.
#[derive(Clone, Debug)]
pub struct EmbeddedOptions {
    /// Where its state is stored; None: in memory.
    pub data: Option<PathBuf>,
    /// Where it listens; port 0 takes any free port.
    pub listen: SocketAddr,
    /// Whether Services may have IPv6 cluster addresses beside IPv4 ones.
    pub dual_stack: bool,
    /// Whether Pods may have loopback addresses, which a real server refuses in EndpointSlices.
    pub loopback_endpoints: bool,
}

impl Default for EmbeddedOptions {
    fn default() -> Self {
        Self {
            data: None,
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            dual_stack: false,
            loopback_endpoints: false,
        }
    }
}

/// Why the cluster does not start.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddedError {
    /// The cluster itself failed.
    #[error(transparent)]
    Start(#[from] StartError),
    /// Bowline's kinds cannot be installed.
    #[error("cannot install Bowline's kinds: {0}")]
    Kinds(ApplyError),
}

/// Starts a cluster that serves Bowline's kinds.
pub async fn start(options: EmbeddedOptions) -> Result<Cluster, EmbeddedError> {
    let mut services = ServiceNetwork {
        loopback_endpoints: options.loopback_endpoints,
        ..ServiceNetwork::default()
    };
    if options.dual_stack
        && let Ok(network) = CLUSTER_V6.parse()
    {
        services.cluster_cidrs.push(network);
    }
    let cluster = Cluster::start(ClusterOptions {
        name: "bowline".to_owned(),
        data: options.data,
        listen: options.listen,
        server: Options { services, translate: Some(Arc::new(bowline_api::translate::translate)) },
        ..ClusterOptions::default()
    })
    .await?;
    match install(&cluster).await {
        Ok(()) => Ok(cluster),
        Err(error) => {
            cluster.shutdown().await;
            Err(EmbeddedError::Kinds(error))
        }
    }
}

/// Creates or updates the CustomResourceDefinitions of this build.
async fn install(cluster: &Cluster) -> Result<(), ApplyError> {
    let client = cluster.client();
    for definition in bowline_api::crds::all() {
        let object = serde_json::to_value(&definition)
            .map_err(|error| ApplyError::Unreadable(error.to_string()))?;
        apply::object(&client, &object).await?;
    }
    Ok(())
}
