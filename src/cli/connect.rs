//! Which cluster a command talks to, and the words for it when it does not answer.

use anyhow::Context as _;
use bowline_api::names;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use std::path::PathBuf;
use std::time::Duration;

/// Watches end after a minute and begin anew: a connection that is silent for longer is dead.
const SILENCE: Duration = Duration::from_secs(75);

/// Which cluster, and which of its namespaces is ours.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Cluster")]
pub(super) struct Connect {
    /// Reach the cluster by this file [default: $KUBECONFIG, the Pod's ServiceAccount, or
    /// ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Use this context of the kubeconfig instead of its current one
    #[arg(long, value_name = "NAME")]
    context: Option<String>,

    /// Bowline's own namespace: Plans and Leases are there
    #[arg(long, value_name = "NAME", default_value = names::NAMESPACE)]
    pub(super) namespace: String,
}

impl Connect {
    /// A client. Nothing has been asked yet.
    pub(super) async fn client(&self) -> anyhow::Result<Client> {
        let mut config = self.config().await?;
        config.read_timeout = Some(SILENCE);
        config.reset_reader_on_write = true;
        Client::try_from(config).context("cannot use the kubeconfig")
    }

    async fn config(&self) -> anyhow::Result<Config> {
        let options = KubeConfigOptions { context: self.context.clone(), ..Default::default() };
        match &self.kubeconfig {
            Some(file) => {
                let kubeconfig = Kubeconfig::read_from(file)
                    .with_context(|| format!("--kubeconfig {}", file.display()))?;
                Config::from_custom_kubeconfig(kubeconfig, &options)
                    .await
                    .with_context(|| format!("--kubeconfig {}", file.display()))
            }
            None if self.context.is_some() => {
                Config::from_kubeconfig(&options).await.context("cannot use the kubeconfig")
            }
            None => Config::infer().await.context(
                "no cluster to talk to: name a kubeconfig with --kubeconfig or KUBECONFIG (bowline up \
                 writes one)",
            ),
        }
    }
}
