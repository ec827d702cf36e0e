//! The embedded cluster of `bowline up` and of the tests: a small Kubernetes API that has Bowline's kinds
//! installed and accepts the older spellings that Bowline translates.

use crate::apply::{self, ApplyError};
use bowline_apiserver::cluster::{Cluster, ClusterOptions, StartError};
use bowline_apiserver::server::Options;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

/// How to start it.
#[derive(Clone, Debug)]
pub struct EmbeddedOptions {
    /// Where its state is kept; in memory when absent.
    pub data: Option<PathBuf>,
    /// Where it listens; port 0 takes any that is free.
    pub listen: SocketAddr,
}

impl Default for EmbeddedOptions {
    fn default() -> Self {
        Self { data: None, listen: SocketAddr::from(([127, 0, 0, 1], 0)) }
    }
}

/// Why it does not start.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddedError {
    /// The cluster itself.
    #[error(transparent)]
    Start(#[from] StartError),
    /// Bowline's kinds cannot be installed.
    #[error("cannot install Bowline's kinds: {0}")]
    Kinds(ApplyError),
}

/// Starts a cluster that serves Bowline's kinds.
pub async fn start(options: EmbeddedOptions) -> Result<Cluster, EmbeddedError> {
    let cluster = Cluster::start(ClusterOptions {
        name: "bowline".to_owned(),
        data: options.data,
        listen: options.listen,
        server: Options {
            translate: Some(Arc::new(bowline_api::translate::translate)),
            ..Options::default()
        },
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
