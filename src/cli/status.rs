//! `bowline status`: all load balancers of a cluster at a glance.

use super::look::Look;
use crate::view::status::Status;

/// Show the load balancers, who is on them and whether all is in force.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bowline status
  bowline status -o json | jq '.loadBalancers[] | {name, phase}'")]
pub(super) struct StatusCommand {
    #[command(flatten)]
    look: Look,
}

impl StatusCommand {
    pub(super) fn run(self) -> anyhow::Result<()> {
        self.look
            .block_on(async |look, client| look.print(&Status::of(&look.facts(&client).await?)))
    }
}
