//! `bowline status`: all load balancers of a cluster at a glance. It reads the flags; `view`
//! decides what to print.

use super::look::Look;
use crate::view::addresses::Addresses;
use crate::view::status::Status;

/// Show the load balancers, their consumers, and whether everything is in force.
///
/// With --addresses: the address pools, how many addresses are free, and which object has which
/// address.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bowline status
  bowline status --addresses
  bowline status -o json | jq '.loadBalancers[] | {name, phase}'")]
pub(super) struct StatusCommand {
    /// Show address pools and addresses instead; reads AddressPool and Address objects only
    #[arg(long)]
    addresses: bool,

    #[command(flatten)]
    look: Look,
}

impl StatusCommand {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let addresses = self.addresses;
        self.look.block_on(async |look, client| {
            if !addresses {
                return look.print(&Status::of(&look.facts(&client).await?));
            }
            let lists = look.addresses(&client).await?;
            let now = k8s_openapi::jiff::Timestamp::now();
            look.print(&Addresses::of(&lists.pools, &lists.addresses, lists.notes, now))
        })
    }
}
