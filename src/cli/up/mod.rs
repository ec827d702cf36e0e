//! `bowline up`: a Kubernetes API with Bowline's kinds, all roles and a load balancer, on a machine that has
//! nothing but this binary. It starts and stops the parts; each part is in a module of its own.

mod agents;
mod folders;
mod greeting;
mod ingress_class;
mod kubeconfig;
mod lines;
mod local;
mod programs;
mod roles;

use super::class::ClassFlag;
use super::connect::{OldNamespace, SystemNamespace};
use super::dns::DnsFlags;
use super::members::MembersFlag;
use super::proxy::ProxyFlags;
use super::role::{AddressGraceFlag, AdminFlag, GraceFlag};
use super::say::say;
use super::signals::{AT_ONCE, Signals};
use crate::cli::paint::Paint;
use crate::demo::{self, Served};
use crate::visible::visible;
use anyhow::Context as _;
use bowline_apiserver::cluster::{Cluster, StartError};
use bowline_runtime::admin::Admin;
use bowline_runtime::apply::{self, Applied};
use bowline_runtime::embedded::{self, EmbeddedError, EmbeddedOptions};
use bowline_runtime::manifests::{self, Manifest};
use bowline_runtime::roles::Context;
use greeting::Greeting;
use kube::Client;
use kubeconfig::Kubeconfig;
use lines::{Progress, Teller};
use roles::Roles;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Run everything on this machine, with nothing to install.
///
/// Serves the Kubernetes API over TLS on loopback, installs Bowline's kinds, and runs the controller and
/// a load balancer called "local". Applies the manifests that you name and writes a kubeconfig. Runs
/// until Ctrl-C; with --data the next start has everything back.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bowline up --demo                     three web servers behind one address
  bowline up --data DIR -f manifests/   yours, and back after a restart
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

    /// Add a context "bowline" to the kubeconfig instead, make it current, and remove it at the end; the file is
    /// that of --kubeconfig, or the one that kubectl uses
    #[arg(long)]
    merge_kubeconfig: bool,

    /// Apply this manifest, or every manifest in this folder; may be repeated
    #[arg(short = 'f', long = "filename", value_name = "MANIFEST_OR_DIR")]
    filename: Vec<PathBuf>,

    #[command(flatten)]
    class: ClassFlag,

    /// The load balancer for Services and Ingresses that name none [default: one called "local", which is
    /// made if it is missing]
    #[arg(
        long,
        value_name = "NAME",
        conflicts_with_all = ["addresses", "http_port", "https_port"]
    )]
    default_load_balancer: Option<String>,

    /// Make no load balancer and have no default one: Services that name none get an address of a pool and no
    /// load balancer
    #[arg(
        long,
        conflicts_with_all = ["default_load_balancer", "addresses", "http_port", "https_port", "demo"]
    )]
    no_default_load_balancer: bool,

    #[command(flatten)]
    local: local::Local,

    /// Announce addresses to routers by BGP and on links by ARP and neighbour discovery, as `bowline speaker` does
    #[cfg(feature = "speaker")]
    #[arg(long, help_heading = "Addresses and names")]
    speaker: bool,

    /// The name of this machine as a node, for nodeSelector and the status [default: the name of this host]
    #[cfg(feature = "speaker")]
    #[arg(long, value_name = "NAME", requires = "speaker", help_heading = "Addresses and names")]
    node_name: Option<String>,

    /// Where speakers on other machines reach this one [default: the first address of this machine, port 7949]
    #[cfg(feature = "speaker")]
    #[arg(
        long,
        value_name = "ADDR:PORT",
        requires = "speaker",
        help_heading = "Addresses and names"
    )]
    gossip: Option<std::net::SocketAddr>,

    #[command(flatten)]
    dns: DnsFlags,

    #[command(flatten)]
    address_grace: AddressGraceFlag,

    #[command(flatten)]
    members: MembersFlag,

    #[command(flatten)]
    proxy: ProxyFlags,

    #[command(flatten)]
    grace: GraceFlag,

    #[command(flatten)]
    admin: AdminFlag,

    #[command(flatten)]
    system: SystemNamespace,

    #[command(flatten)]
    old: OldNamespace,
}

impl Up {
    pub(super) fn run(self) -> anyhow::Result<()> {
        // Mistakes on the command line are found before anything is started.
        self.kubeconfig_file()?.check()?;
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

    fn kubeconfig_file(&self) -> anyhow::Result<Kubeconfig> {
        let (given, data) = (self.kubeconfig.as_deref(), self.data.as_deref());
        Kubeconfig::new(given, self.merge_kubeconfig, data, self.listen)
    }

    /// The load balancer of consumers that name none.
    fn default_load_balancer(&self) -> Option<String> {
        let given = self.default_load_balancer.clone();
        given.or_else(|| (!self.no_default_load_balancer).then(|| local::NAME.to_owned()))
    }

    /// The folder in which agents say to the speaker what is open. None: there is no speaker.
    fn sockets(&self) -> Option<PathBuf> {
        #[cfg(feature = "speaker")]
        return self.speaker.then(|| self.programs_folder().join("sockets"));
        #[cfg(not(feature = "speaker"))]
        None
    }

    /// The folder for the files of programs that are children of this process: with the data, so that the next
    /// process finds what this one left.
    fn programs_folder(&self) -> PathBuf {
        match &self.data {
            Some(data) => data.join("proxies"),
            None => std::env::temp_dir().join(format!("bowline-{}", std::process::id())),
        }
    }

    async fn serve(self, objects: Vec<Manifest>) -> anyhow::Result<()> {
        let mut signals = Signals::new()?;
        let admin = Admin::bind(self.admin.address()).await?;
        let options = EmbeddedOptions {
            data: self.data.clone(),
            listen: self.listen,
            dual_stack: true,
            loopback_endpoints: true,
        };
        let cluster = embedded::start(options).await.map_err(with_advice)?;
        let (result, written) = match self.kubeconfig_file()?.write(&cluster.kubeconfig()) {
            Ok(written) => {
                (self.live(&cluster, admin, &objects, &mut signals).await, Some(written))
            }
            Err(error) => (Err(error), None),
        };
        let at_once = matches!(result, Ok(End::AtOnce));
        if !at_once {
            cluster.shutdown().await;
        }
        if self.data.is_none() {
            let _ = std::fs::remove_dir_all(self.programs_folder());
        }
        if let Some(written) = written {
            written.end();
        }
        if at_once {
            // The store survives this as it survives a crash.
            std::process::exit(AT_ONCE);
        }
        result.map(drop)
    }

    /// Starts everything on top of the API, and waits for the end.
    async fn live(
        &self,
        cluster: &Cluster,
        admin: Admin,
        objects: &[Manifest],
        signals: &mut Signals,
    ) -> anyhow::Result<End> {
        let client = cluster.client();
        let address = admin.address;
        // What is recorded is served before anything else happens; then new objects are applied.
        let mut roles = Roles::start(self, &client, cluster.address(), admin).await?;
        let context = roles.context.clone();
        let (demo, changes) = (roles.demo.take(), roles.changes.take());
        let changes = changes.unwrap_or_else(|| context.changes.listen());
        let teller = Teller::new(changes);
        let progress = teller.progress();
        let starts = async {
            self.set_up(&client, objects).await?;
            self.wait_until_served(&client, &context, demo, &progress).await;
            self.greet(&client, &cluster.url(), address).await;
            progress.greeted();
            // The roles run on: what ends this is one of them, or a signal.
            std::future::pending::<anyhow::Result<()>>().await
        };
        let lives = async {
            tokio::select! {
                ended = starts => ended,
                () = teller.run() => Ok(()),
            }
        };
        let result = tokio::select! {
            ended = lives => ended,
            error = roles.failed() => Err(error),
            () = signals.next() => Ok(()),
        };
        if result.is_ok() {
            let grace = self.grace.time().as_secs();
            let line =
                format!("Stopping: requests under way have {grace} s. Ctrl-C again ends them.");
            say(format_args!("\n{line}"));
        }
        tokio::select! {
            () = roles.stop() => result.map(|()| End::Orderly),
            () = signals.next() => result.map(|()| End::AtOnce),
        }
    }

    async fn set_up(&self, client: &Client, objects: &[Manifest]) -> anyhow::Result<()> {
        for manifest in objects {
            apply(client, manifest).await?;
        }
        // A Pod that was deleted stays deleted across a restart: the demo is set up once.
        if self.demo && !demo::exists(client).await.context("cannot look for the demo")? {
            for manifest in demo::objects()? {
                apply(client, &manifest).await?;
            }
        }
        Ok(())
    }

    /// Waits, but not for long, until everything can be reached, so that the printed commands work.
    async fn wait_until_served(
        &self,
        client: &Client,
        context: &Context,
        demo: Option<Served>,
        progress: &Progress,
    ) {
        let served = async {
            while !context.readiness.missing().is_empty() {
                tokio::time::sleep(POLL).await;
            }
            if let Some(mut demo) = demo {
                while !demo.is_complete(client).await {
                    tokio::time::sleep(POLL).await;
                }
            }
        };
        // The line that tells what is in the way is printed already; what is not in its way may still come.
        let late = async {
            tokio::select! {
                () = tokio::time::sleep(PATIENCE) => {}
                () = async { progress.blocked().await; tokio::time::sleep(MEANWHILE).await } => {}
            }
        };
        tokio::select! {
            biased;
            () = served => {}
            () = late => say("Not everything is served yet; `bowline status` says what is missing."),
        }
    }

    async fn greet(&self, client: &Client, url: &str, admin: SocketAddr) {
        let Ok(Kubeconfig { path, merges, .. }) = self.kubeconfig_file() else { return };
        let greeting = Greeting {
            api: url.to_owned(),
            data: self.data.clone(),
            kubeconfig: std::path::absolute(&path).unwrap_or(path),
            merged: merges,
            load_balancers: greeting::serving(client).await,
            admin,
            demo: self.demo,
            alone: self.no_default_load_balancer,
        };
        say(greeting.text(Paint::stdout()).trim_end());
    }
}

/// How long `up` waits until everything is served, and how often it checks.
const PATIENCE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);
/// How long everything else has after it is known that something cannot be served.
const MEANWHILE: Duration = Duration::from_millis(500);

/// How `up` ended.
enum End {
    /// Work under way could end.
    Orderly,
    /// A second signal asked for an immediate end.
    AtOnce,
}

/// Adds advice where the error does not give it.
fn with_advice(error: EmbeddedError) -> anyhow::Error {
    let advice = match &error {
        EmbeddedError::Start(StartError::InUse { .. }) => {
            "stop it, or work with it by its kubeconfig"
        }
        EmbeddedError::Start(StartError::Listen { .. }) => {
            "name another address with --listen, or 127.0.0.1:0 for any port that is free"
        }
        _ => return error.into(),
    };
    anyhow::anyhow!("{error}; {advice}")
}

/// Applies one object, and prints the result.
async fn apply(client: &Client, manifest: &Manifest) -> anyhow::Result<()> {
    let object = &manifest.object;
    let applied = apply::strictly(client, object)
        .await
        .with_context(|| format!("{}, document {}", manifest.file.display(), manifest.document))?;
    let kind = object["kind"].as_str().unwrap_or_default();
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let word = match applied {
        Applied::Created => "created",
        Applied::Configured => "configured",
        Applied::Unchanged => "unchanged",
    };
    say(visible(&format!("{kind}/{name} {word}")));
    if matches!(kind, "Deployment" | "StatefulSet") {
        say(format_args!("  (stored only: nothing here runs {kind}s)"));
    }
    Ok(())
}
