//! Which cluster a command connects to, and what it prints if the cluster does not answer. Every command that uses a
//! cluster shares it.

use anyhow::Context as _;
use bowline_api::names;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::watch;

/// A watch ends after a minute and is resumed: a connection that is silent for longer is dead.
const SILENCE: Duration = Duration::from_secs(75);

/// How often the configuration is read for new marks of the cluster.
const REREAD: Duration = Duration::from_secs(60);

/// Which cluster, and which of its namespaces is ours.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Cluster")]
pub(super) struct Connect {
    /// Reach the cluster by this file [default: $KUBECONFIG, the Pod's ServiceAccount, or
    /// ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Use this context of the kubeconfig instead of its current one
    #[arg(long, value_name = "NAME")]
    context: Option<String>,

    #[command(flatten)]
    pub(super) system: SystemNamespace,
}

/// Bowline's own namespace.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Cluster")]
pub(super) struct SystemNamespace {
    /// Bowline's own namespace: Plans and Leases are there
    #[arg(long = "system-namespace", value_name = "NAME", default_value = names::NAMESPACE)]
    #[arg(id = "system_namespace")]
    pub(super) name: String,
}

/// Bowline's own namespace, as roles take it: they also accept the flag of earlier versions.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct OldNamespace {
    /// The former name of --system-namespace
    #[arg(long = "namespace", id = "old_namespace", value_name = "NAME", hide = true)]
    #[arg(conflicts_with = "system_namespace")]
    name: Option<String>,
}

impl OldNamespace {
    /// Bowline's own namespace. The old flag wins over the default of the new one, with a warning.
    pub(super) fn or(self, system: SystemNamespace) -> String {
        let Some(name) = self.name else { return system.name };
        tracing::warn!(
            "--namespace is an old name for Bowline's own namespace: write --system-namespace={name}"
        );
        name
    }
}

impl Connect {
    /// A client. It has not connected yet.
    pub(super) async fn client(&self) -> anyhow::Result<Client> {
        connected(self.config().await?)
    }

    /// A client, and the marks of the cluster that it is configured for. They are read again while the client is in
    /// use: a new CA is added beside the old one before the old one is removed.
    pub(super) async fn client_and_marks(
        &self,
    ) -> anyhow::Result<(Client, watch::Receiver<BTreeSet<String>>)> {
        let config = self.config().await?;
        let (sender, receiver) = watch::channel(marks(&config));
        let client = connected(config)?;
        let again = self.clone();
        tokio::spawn(async move {
            while !sender.is_closed() {
                tokio::time::sleep(REREAD).await;
                if let Ok(config) = again.config().await {
                    let now = marks(&config);
                    sender.send_if_modified(|before| std::mem::replace(before, now.clone()) != now);
                }
            }
        });
        Ok((client, receiver))
    }

    async fn config(&self) -> anyhow::Result<Config> {
        const NONE: &str = "no cluster to talk to: name a kubeconfig with --kubeconfig or KUBECONFIG \
                            (bowline up writes one)";
        let kubeconfig = match (&self.kubeconfig, &self.context) {
            (None, None) => return Config::infer().await.context(NONE),
            (None, Some(_)) => Kubeconfig::read().context(NONE)?,
            (Some(file), _) => Kubeconfig::read_from(file)
                .with_context(|| format!("--kubeconfig {}", file.display()))?,
        };
        if let Some(context) = &self.context {
            has_context(&kubeconfig, context)?;
        }
        let options = KubeConfigOptions { context: self.context.clone(), ..Default::default() };
        Config::from_custom_kubeconfig(kubeconfig, &options).await.with_context(|| {
            match &self.kubeconfig {
                Some(file) => format!("--kubeconfig {}", file.display()),
                None => "cannot use the kubeconfig".to_owned(),
            }
        })
    }
}

/// A client. It has not connected yet.
fn connected(mut config: Config) -> anyhow::Result<Client> {
    config.read_timeout = Some(SILENCE);
    config.reset_reader_on_write = true;
    Client::try_from(config).context("cannot use the kubeconfig")
}

fn marks(config: &Config) -> BTreeSet<String> {
    marks_of(config.root_cert.as_deref(), &config.cluster_url.to_string())
}

/// What distinguishes clusters while none answers: the CAs of the API, which each cluster has of its own, or its URL
/// if a public CA signs its certificate. One cluster may have several URLs, and two CAs during a rotation.
fn marks_of(authorities: Option<&[Vec<u8>]>, url: &str) -> BTreeSet<String> {
    let authorities = authorities.unwrap_or_default();
    if authorities.is_empty() {
        return [format!("url:{url}")].into();
    }
    let mark = |authority: &Vec<u8>| {
        let digest = Sha256::digest(authority);
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("ca:{hex}")
    };
    authorities.iter().map(mark).collect()
}

/// Refuses a context that does not exist, and lists those that do.
fn has_context(kubeconfig: &Kubeconfig, name: &str) -> anyhow::Result<()> {
    let names: Vec<_> = kubeconfig.contexts.iter().map(|one| one.name.as_str()).collect();
    anyhow::ensure!(
        names.contains(&name),
        "--context {name:?}: the kubeconfig has no such context; it has {}",
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_known_by_each_of_its_cas_and_without_one_by_its_url() {
        let of = |all: &[&str], url| {
            let all: Vec<_> = all.iter().map(|it| it.as_bytes().to_vec()).collect();
            marks_of(Some(&all), url)
        };
        let both = of(&["a", "b"], "https://10.0.0.1");
        assert_eq!(both, of(&["b", "a"], "https://api.example"));
        assert!(both.is_superset(&of(&["a"], "")) && both.is_superset(&of(&["b"], "")));
        assert_eq!(both.len(), 2);
        assert_ne!(marks_of(None, "https://a.example"), marks_of(None, "https://b.example"));
    }

    #[test]
    fn a_context_that_is_not_there_is_refused_with_those_that_are() {
        let read = |text: &str| Kubeconfig::from_yaml(text).expect("a kubeconfig");
        let two = read(
            "{contexts: [{name: a, context: {cluster: a}}, {name: b, context: {cluster: b}}]}",
        );
        assert!(has_context(&two, "b").is_ok());
        let said =
            |kubeconfig, name| has_context(kubeconfig, name).expect_err("refused").to_string();
        let why = "the kubeconfig has no such context; it has";
        assert_eq!(said(&two, "nope"), format!("--context \"nope\": {why} a, b"));
        assert_eq!(said(&read("{}"), "a"), format!("--context \"a\": {why} none"));
    }
}
