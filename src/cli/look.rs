//! What the read-only commands share: their flags, the one list of the cluster's objects, and the two
//! forms of output.

use super::class::ClassFlag;
use super::connect::Connect;
use super::say::complain;
use crate::view::announcements::AnnouncementLists;
use crate::view::{AddressLists, Facts, Lists, View};
use crate::visible::visible_json;
use anyhow::Context as _;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use std::io::Write as _;
use std::time::Duration;

/// How long to wait before telling the user about it.
const PATIENCE: Duration = Duration::from_secs(3);

/// How to look at a cluster. Reading is all that is done, and all that needs to be allowed.
#[derive(Debug, clap::Args)]
pub(super) struct Look {
    /// Print text, or JSON for programs
    #[arg(short = 'o', long, value_enum, default_value_t, value_name = "FORM")]
    output: Output,

    #[command(flatten)]
    class: ClassFlag,

    /// The load balancer for Services and Ingresses that name none [default: the setting of the
    /// controllers]
    #[arg(long, value_name = "NAME")]
    default_load_balancer: Option<String>,

    #[command(flatten)]
    connect: Connect,
}

/// The forms of what a command prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, clap::ValueEnum)]
pub(super) enum Output {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

impl Look {
    /// Runs `show` with a client, on a small runtime.
    pub(super) fn block_on<T>(
        &self,
        show: impl AsyncFnOnce(&Self, Client) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the async runtime")?;
        runtime.block_on(async { show(self, self.connect.client().await?).await })
    }

    /// The facts about the cluster now. An error if it has no namespace of the given name.
    pub(super) async fn facts_about(
        &self,
        client: &Client,
        namespace: Option<&str>,
    ) -> anyhow::Result<Facts> {
        let facts = self.facts(client).await?;
        if let Some(name) = namespace.filter(|name| !facts.has_namespace(name)) {
            anyhow::bail!(
                "there is no namespace {name:?}; Bowline's own namespace is --system-namespace"
            );
        }
        Ok(facts)
    }

    /// The facts about the cluster now.
    pub(super) async fn facts(&self, client: &Client) -> anyhow::Result<Facts> {
        let lists = patiently(Lists::read(client, self.system())).await?;
        Ok(self.facts_of(lists, Timestamp::now()))
    }

    /// The facts about these lists.
    pub(super) fn facts_of(&self, lists: Lists, now: Timestamp) -> Facts {
        let name = self.default_load_balancer.as_deref();
        Facts::new(lists, self.class.default_class, name, now)
    }

    /// Bowline's own namespace.
    pub(super) fn system(&self) -> &str {
        &self.connect.system.name
    }

    /// The pools and addresses of the cluster now.
    pub(super) async fn addresses(&self, client: &Client) -> anyhow::Result<AddressLists> {
        Ok(patiently(AddressLists::read(client)).await?)
    }

    /// Whether people read it.
    pub(super) fn is_text(&self) -> bool {
        self.output == Output::Text
    }

    /// What is announced now, and what decides about it.
    pub(super) async fn announcements(&self, client: &Client) -> anyhow::Result<AnnouncementLists> {
        Ok(patiently(AnnouncementLists::read(client, &self.connect.system.name)).await?)
    }

    /// Prints in the requested form.
    pub(super) fn print(&self, view: &impl View) -> anyhow::Result<()> {
        print(self.output, view)
    }
}

/// Prints a view.
pub(super) fn print(output: Output, view: &impl View) -> anyhow::Result<()> {
    write(match output {
        Output::Text => view.text(),
        Output::Json => visible_json(&view.json().context("cannot write JSON")?) + "\n",
    })
}

/// Writes to standard output. A reader that goes away is no failure, as in `bowline status | head`.
pub(super) fn write(text: impl AsRef<[u8]>) -> anyhow::Result<()> {
    match std::io::stdout().lock().write_all(text.as_ref()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        result => result.context("cannot write to standard output"),
    }
}

/// Waits for a result, and says so when it takes long.
pub(super) async fn patiently<T>(read: impl Future<Output = T>) -> T {
    let mut read = std::pin::pin!(read);
    tokio::select! {
        done = &mut read => done,
        () = tokio::time::sleep(PATIENCE) => {
            complain("the cluster takes long to answer; still waiting (Ctrl-C ends it)");
            read.await
        }
    }
}
