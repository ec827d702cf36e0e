//! `bowline announce move`: lets another node own an address on layer 2. The wish is an annotation of the Address, which
//! the speaker of the present owner carries out once; the command waits for it and takes the annotation away.

use super::connect::Connect;
use super::say::say;
use crate::view::moving::{Moving, stands};
use anyhow::{Context as _, anyhow, bail};
use bowline_api::address::address_name;
use bowline_api::{Address, names};
use bowline_core::report::speaker::SpeakerReport;
use bowline_runtime::lease::live_speaker;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, Error};
use serde_json::{Value, json};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// How often the reports of speakers are read.
const LOOK: Duration = Duration::from_millis(300);

/// Change by hand where addresses are announced.
#[derive(Debug, clap::Args)]
pub(super) struct Announce {
    #[command(subcommand)]
    command: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    Move(Move),
}

/// Let another node own an address on layer 2, without a lost connection attempt.
///
/// The present owner offers the address to the speaker of NODE. That one announces itself, and the old owner
/// stops to answer then. Established connections through a proxy stay with the old node and end. The address
/// stays at NODE while that node serves it: it does not go back by itself.
///
/// The command writes the annotation bowline.dev/move-to of the Address, waits until the reports of the
/// speakers show the new owner, and removes the annotation. It needs the rights to get and patch
/// addresses.bowline.dev, and to list Leases in Bowline's namespace.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bowline announce move 203.0.113.10 node-b
  bowline announce move 2001:db8::10 node-b --timeout 30")]
struct Move {
    /// The address
    address: IpAddr,

    /// The node that should own it: the name of its speaker, as `bowline status --announcements` shows it
    node: String,

    /// How long to wait for the move
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    timeout: u64,

    #[command(flatten)]
    connect: Connect,
}

impl Announce {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let What::Move(wanted) = self.command;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the async runtime")?;
        runtime.block_on(async {
            let client = wanted.connect.client().await?;
            wanted.run(&client).await
        })
    }
}

impl Move {
    async fn run(&self, client: &Client) -> anyhow::Result<()> {
        let Self { address, node, .. } = self;
        let api: Api<Address> = Api::all(client.clone());
        let name = address_name(*address);
        let found = api.get_opt(&name).await.map_err(read_failed)?;
        if found.is_none() {
            bail!("no object holds {address}: there is no Address {name}");
        }
        let wish = format!("{node}/{}", Timestamp::now().as_millisecond());
        let from = match stands(&self.reports(client).await?, *address, node, &wish) {
            Moving::Done => {
                say(format_args!("node {node} owns {address} already"));
                return Ok(());
            }
            Moving::At(owner) => owner,
            other => return Err(self.failed(&other)),
        };
        say(format_args!("moving {address} from node {from} to node {node}"));
        let begun = Instant::now();
        annotate(&api, &name, json!(wish)).await?;
        let end = tokio::select! {
            end = self.wait(client, &wish) => end,
            _ = tokio::signal::ctrl_c() => Err(anyhow!("interrupted; the move may come about all the same")),
        };
        // Speakers have seen the wish by now; without it a later look at the object raises no question.
        let removed = annotate(&api, &name, Value::Null).await;
        end?;
        removed?;
        let took = begun.elapsed().as_secs_f64();
        say(format_args!("node {node} owns {address} now ({took:.1} s)"));
        Ok(())
    }

    async fn wait(&self, client: &Client, wish: &str) -> anyhow::Result<()> {
        let deadline = Instant::now() + Duration::from_secs(self.timeout);
        loop {
            tokio::time::sleep(LOOK).await;
            match stands(&self.reports(client).await?, self.address, &self.node, wish) {
                Moving::Done => return Ok(()),
                Moving::At(_) | Moving::Nowhere if Instant::now() < deadline => {}
                other => return Err(self.failed(&other)),
            }
        }
    }

    /// The reports of the speakers that live.
    async fn reports(&self, client: &Client) -> anyhow::Result<Vec<SpeakerReport>> {
        let api: Api<Lease> = Api::namespaced(client.clone(), &self.connect.system.name);
        let leases = api.list(&ListParams::default()).await.map_err(read_failed)?;
        Ok(leases.items.iter().filter_map(live_speaker).collect())
    }

    fn failed(&self, why: &Moving) -> anyhow::Error {
        let Self { address, node, timeout, .. } = self;
        match why {
            Moving::NoSpeaker(nodes) if nodes.is_empty() => {
                anyhow!("no speaker runs in this cluster: start `bowline speaker` on the nodes")
            }
            Moving::NoSpeaker(nodes) => {
                anyhow!("no speaker of node {node} reports; speakers run at {}", nodes.join(", "))
            }
            Moving::Refused(reason) => {
                anyhow!("{address} was not moved to node {node}, and stays where it was: {reason}")
            }
            Moving::Nowhere => anyhow!(
                "no node owns {address} on layer 2; `bowline status --announcements` says why"
            ),
            Moving::At(owner) => anyhow!(
                "{address} is still at node {owner} after {timeout} s: see the log of its speaker"
            ),
            Moving::Done => anyhow!("{address} is at node {node}"),
        }
    }
}

async fn annotate(api: &Api<Address>, name: &str, wish: Value) -> anyhow::Result<()> {
    let patch = json!({"metadata": {"annotations": {names::ANNOTATION_MOVE_TO: wish}}});
    let done = api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await;
    done.map(drop).with_context(|| format!("cannot annotate Address {name}"))
}

fn read_failed(error: Error) -> anyhow::Error {
    anyhow::Error::new(error).context("cannot read from the cluster")
}
