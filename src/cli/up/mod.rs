//! `bowline up`: a Kubernetes API with Bowline's kinds, the roles that act on them and a load balancer,
//! on a machine that has nothing but this binary.

mod greeting;
mod local;

use crate::cli::paint::Paint;
use crate::demo;
use anyhow::Context as _;
use bowline_runtime::apply::{self, Applied};
use bowline_runtime::embedded::{self, EmbeddedOptions};
use bowline_runtime::manifests::{self, Manifest};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use tokio::sync::{mpsc, watch};

/// Run everything on this machine, with nothing to install.
///
/// Serves the Kubernetes API over TLS on loopback, installs Bowline's kinds, and runs the controller and
/// a load balancer called "local". Applies the manifests that you name and writes a kubeconfig. Runs
/// until Ctrl-C; with --data the next start has everything back.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bowline up --demo                           three web servers behind one address
  bowline up --data DIR -f manifests/         yours, and back after a restart
  bowline up --address 192.0.2.10 --http-port 80 --https-port 443
                                              the entrance of a network, as root")]
pub(super) struct Up {
    /// Run three small web servers behind a Service and an Ingress, to play with
    #[arg(long)]
    demo: bool,

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

    #[command(flatten)]
    local: local::Local,
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

    async fn serve(self, objects: Vec<Manifest>) -> anyhow::Result<()> {
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
        let (say, mut said) = mpsc::unbounded_channel();
        let (stop, stopped) = watch::channel(false);
        let kubelet = self
            .demo
            .then(|| tokio::spawn(demo::Kubelet::run(cluster.client(), say, stopped.clone())));
        let result = self.set_up(&cluster.client(), &objects).await;
        if result.is_ok() {
            self.greet(&cluster.url(), &file);
            let mut interrupted = std::pin::pin!(interrupted);
            loop {
                tokio::select! {
                    () = &mut interrupted => break,
                    Some(line) = said.recv() => println!("{}", Paint::stdout().bad(line)),
                }
            }
            println!("\nStopping.");
        }
        let _ = stop.send(true);
        if let Some(kubelet) = kubelet {
            let _ = kubelet.await;
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

    async fn set_up(&self, client: &Client, objects: &[Manifest]) -> anyhow::Result<()> {
        self.local.ensure(client).await?;
        for manifest in objects {
            apply(client, manifest).await?;
        }
        // A Pod that was deleted stays deleted over a restart: the demo is set up once.
        let namespaces: Api<Namespace> = Api::all(client.clone());
        if self.demo
            && namespaces.get_opt("demo").await.context("cannot look for the demo")?.is_none()
        {
            for manifest in demo::objects()? {
                apply(client, &manifest).await?;
            }
        }
        Ok(())
    }

    fn greet(&self, url: &str, kubeconfig: &Path) {
        let greeting = greeting::Greeting {
            api: url.to_owned(),
            data: self.data.clone(),
            kubeconfig: std::path::absolute(kubeconfig).unwrap_or_else(|_| kubeconfig.to_owned()),
            load_balancers: Vec::new(),
            admin: None,
            demo: self.demo,
        };
        print!("{}", greeting.text(Paint::stdout()));
    }
}

/// Brings one object to the API, and says what became of it.
async fn apply(client: &Client, manifest: &Manifest) -> anyhow::Result<()> {
    let object = &manifest.object;
    let applied = apply::object(client, object)
        .await
        .with_context(|| format!("{}, document {}", manifest.file.display(), manifest.document))?;
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
    Ok(())
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
