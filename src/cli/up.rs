//! `bowline up`: a Kubernetes API with Bowline's kinds, on a machine that has nothing but this binary.

use anyhow::Context as _;
use bowline_runtime::apply::{self, Applied};
use bowline_runtime::embedded::{self, EmbeddedOptions};
use bowline_runtime::manifests;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Run everything on this machine, with nothing to install.
///
/// Serves the Kubernetes API over TLS on loopback, installs Bowline's kinds, applies the manifests that
/// you name and writes a kubeconfig. Runs until Ctrl-C; with --data the next start has everything back.
#[derive(Debug, clap::Args)]
pub(super) struct Up {
    /// Keep all state in this folder (made with mode 0700) [default: in memory, gone at the end]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,

    /// Serve the Kubernetes API here; port 0 takes any that is free
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:6443")]
    listen: SocketAddr,

    /// Write the kubeconfig here, readable by you alone [default: in the data folder, or
    /// ./bowline.kubeconfig]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Apply this manifest, or every manifest in this folder; may be repeated
    #[arg(short = 'f', long = "filename", value_name = "MANIFEST_OR_DIR")]
    filename: Vec<PathBuf>,
}

impl Up {
    pub(super) fn run(self) -> anyhow::Result<()> {
        // Slips are found before anything has been started.
        check_replaceable(&self.kubeconfig_file())?;
        let mut objects = Vec::new();
        for path in &self.filename {
            objects.extend(manifests::read(path)?);
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .context("cannot start the async runtime")?;
        runtime.block_on(self.serve(objects))
    }

    fn kubeconfig_file(&self) -> PathBuf {
        match (&self.kubeconfig, &self.data) {
            (Some(file), _) => file.clone(),
            (None, Some(data)) => data.join("kubeconfig"),
            (None, None) => PathBuf::from("bowline.kubeconfig"),
        }
    }

    async fn serve(self, objects: Vec<manifests::Manifest>) -> anyhow::Result<()> {
        let interrupted = shutdown_signal()?;
        let options = EmbeddedOptions {
            data: self.data.clone(),
            listen: self.listen,
            dual_stack: true,
            loopback_endpoints: true,
        };
        let cluster = embedded::start(options).await?;
        let file = self.kubeconfig_file();
        if let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder)
                .with_context(|| format!("cannot make {}", folder.display()))?;
        }
        let kubeconfig = cluster.kubeconfig();
        bowline_apiserver::pki::write_private(&file, kubeconfig.as_bytes())?;
        let result = self.apply(&cluster.client(), &objects).await;
        if result.is_ok() {
            self.greet(&cluster.url(), &file);
            interrupted.await;
            println!("\nStopping.");
        }
        cluster.shutdown().await;
        // Without data the credentials die with the process; a kubeconfig that points nowhere would only
        // mislead. Another `up` may have put its own there meanwhile.
        let ours = || std::fs::read(&file).is_ok_and(|now| now == kubeconfig.as_bytes());
        if self.data.is_none() && ours() {
            let _ = std::fs::remove_file(&file);
        }
        result
    }

    async fn apply(
        &self,
        client: &kube::Client,
        objects: &[manifests::Manifest],
    ) -> anyhow::Result<()> {
        for manifest in objects {
            let object = &manifest.object;
            let applied = apply::object(client, object).await.with_context(|| {
                format!("{}, document {}", manifest.file.display(), manifest.document)
            })?;
            let kind = object["kind"].as_str().unwrap_or_default();
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let word = match applied {
                Applied::Created => "created",
                Applied::Configured => "configured",
                Applied::Unchanged => "unchanged",
            };
            println!("{kind}/{name} {word}");
            if matches!(kind, "Deployment" | "StatefulSet") {
                println!("  (stored only: nothing here runs {kind}s)");
            }
        }
        Ok(())
    }

    fn greet(&self, url: &str, kubeconfig: &Path) {
        let kept = match &self.data {
            Some(data) => format!("kept in {}", data.display()),
            None => "in memory, gone at the end (keep it with --data DIR)".to_owned(),
        };
        let file = std::path::absolute(kubeconfig).unwrap_or_else(|_| kubeconfig.to_owned());
        println!("Kubernetes API  {url}");
        println!("State           {kept}");
        println!("Bowline's kinds stored and checked; nothing acts on them yet in this version");
        println!("Workloads       Deployments and StatefulSets are stored, not run");
        println!();
        println!("In another terminal:");
        println!("  export KUBECONFIG={}", quoted(&file.display().to_string()));
        println!("  kubectl get lb,lbc,svc -A");
        println!();
        println!("Ctrl-C stops it.");
    }
}

/// Refuses to write over a kubeconfig that leads elsewhere: it may be the only key to other clusters.
fn check_replaceable(file: &Path) -> anyhow::Result<()> {
    let Ok(found) = file.metadata() else { return Ok(()) };
    let ours = |cluster: &kube::config::NamedCluster| cluster.name == "bowline";
    let leads_here = || {
        kube::config::Kubeconfig::read_from(file)
            .is_ok_and(|config| config.clusters.iter().all(ours))
    };
    anyhow::ensure!(
        found.is_file() && (found.len() == 0 || leads_here()),
        "{} exists and was not written by bowline up; name another file with --kubeconfig",
        file.display()
    );
    Ok(())
}

/// A path as a shell reads it back.
fn quoted(path: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@:".contains(c);
    if path.chars().all(plain) {
        path.to_owned()
    } else {
        format!("'{}'", path.replace('\'', r"'\''"))
    }
}

/// Resolves on Ctrl-C or SIGTERM. The handlers are in place when this returns, so that a signal during
/// the start is not lost.
fn shutdown_signal() -> anyhow::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn a_path_with_spaces_and_quotes_survives_the_shell() {
        assert_eq!(quoted("/tmp/a-b.c"), "/tmp/a-b.c");
        assert_eq!(quoted("/tmp/it's me"), r"'/tmp/it'\''s me'");
    }
}
