//! `bowline speaker`: announces addresses from the node on which it runs. It reads the flags and starts the role in
//! `bowline_runtime`.

use super::config::ConfigFlag;
use super::connect::Connect;
use super::role::{self, AdminFlag};
use super::version;
use anyhow::Context as _;
use bowline_runtime::roles::host_name;
use bowline_runtime::speaker::{self, Network, SpeakerOptions};
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

    /// Agents of this group may use the socket, too: its name or number [default: only those of the speaker's own user]
    #[arg(long, value_name = "GROUP", value_parser = group)]
    sockets_group: Option<u32>,

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
            let announcer = Network::new(&node, &context.metrics);
            let options = SpeakerOptions {
                node,
                namespace: self.connect.system.name,
                version: version::BUILD.to_owned(),
                grace: Duration::from_secs(self.grace),
                folder: Some(self.sockets),
                group: self.sockets_group,
                leaves: self.withdraw_at_end,
                gossip: self.gossip,
            };
            Ok(speaker::run(client, options, announcer, context))
        })
    }
}

/// The number of a group.
fn group(text: &str) -> anyhow::Result<u32> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    let groups = std::fs::read_to_string("/etc/group").context("cannot read /etc/group")?;
    number_of(text, &groups).with_context(|| format!("no group {text} in /etc/group"))
}

fn number_of(name: &str, groups: &str) -> Option<u32> {
    groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_group_is_found_by_its_name() {
        let groups = "root:x:0:\nbowlines:x:7:\nbowline:x:1066:a,b\n";
        assert_eq!(super::number_of("bowline", groups), Some(1066));
        assert_eq!(super::number_of("bow", groups), None);
    }
}
