//! `bowline speaker`: announces addresses from the node on which it runs. It reads the flags and starts the role in
//! `bowline_runtime`.

use super::config::ConfigFlag;
use super::connect::Connect;
use super::role::{self, AdminFlag};
use super::version;
use anyhow::Context as _;
use bowline_runtime::roles::host_name;
use bowline_runtime::speaker::{self, Network, Routers, SpeakerOptions};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Announce addresses from this node, so that the network sends their traffic here.
///
/// Follows Addresses, Advertisements and BGPPeers. Tells routers by BGP which addresses this node serves,
/// and answers on its links by ARP and neighbour discovery for the addresses that it owns there. Addresses
/// behind an agent are put on interface lo. While the API is away, it announces what it knows.
///
/// When it stops, other nodes take over what it owns on links, and routers keep the routes for the next
/// speaker of the node (graceful restart). If the Node is cordoned, excluded or deleted, it withdraws them
/// first and waits.
///
/// Announcing on links takes the capabilities NET_RAW and NET_ADMIN and the program nft. Routers alone take none.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bowline speaker
  bowline speaker --node-name edge-1 --withdraw-at-end
  bowline speaker --gossip 192.0.2.11:7949
  bowline speaker --config /etc/bowline/speaker.yaml")]
pub(super) struct Speaker {
    /// The node from which it announces; a machine that is no Node of the cluster has a name of its own
    /// [default: $NODE_NAME, or the name of this host]
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    node_name: Option<String>,

    /// Agents of this node say in a socket in this folder what is open
    #[arg(long, value_name = "DIR", default_value = SOCKETS)]
    sockets: PathBuf,

    /// Where the speakers of other nodes reach this one, to agree on owners of addresses on links
    /// [default: the address of the Node, or the first address of this machine; port 7949]
    #[arg(long, value_name = "ADDR:PORT")]
    gossip: Option<SocketAddr>,

    /// Withdraw everything when it stops, whatever the Node object says
    #[arg(long, help_heading = "Process")]
    withdraw_at_end: bool,

    /// How long it waits after it has withdrawn everything, until traffic has gone elsewhere; a second signal
    /// ends it at once
    #[arg(long, value_name = "SECONDS", default_value_t = 10, help_heading = "Process")]
    grace: u64,

    #[command(flatten)]
    admin: AdminFlag,

    #[command(flatten)]
    _config: ConfigFlag,

    #[command(flatten)]
    connect: Connect,
}

/// Where the sockets between agents and the speaker of a node are.
pub(super) const SOCKETS: &str = "/run/bowline";

impl Speaker {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let node = self.node_name.filter(|name| !name.is_empty()).or_else(host_name);
        let node = node.context("this host has no name: give --node-name")?;
        role::run(Some(self.admin.address()), async |context| {
            let client = self.connect.client().await?;
            let announcer = Network::new(&node, Routers::new(&node), &context.metrics);
            let options = SpeakerOptions {
                node,
                namespace: self.connect.system.name,
                version: version::BUILD.to_owned(),
                grace: Duration::from_secs(self.grace),
                folder: Some(self.sockets),
                leaves: self.withdraw_at_end,
                gossip: self.gossip,
            };
            Ok(speaker::run(client, options, announcer, context))
        })
    }
}
