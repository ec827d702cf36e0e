//! `bowline plan`: the plan that the leader would record now, compared with the recorded one. It reads
//! the flags; `view` decides what to print.

use super::look::Look;
use crate::view::plan::Difference;
use std::process::ExitCode;

/// Show what would change compared to what is recorded.
///
/// Lists the cluster's objects once, plans them as the controller does, and compares the result with the
/// recorded Plans. Changes nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  bowline plan
  bowline plan -o json | jq '.loadBalancers[].consumers[].change'
  bowline plan --exit-code --default-load-balancer edge")]
pub(super) struct PlanCommand {
    /// Exit with 0 if nothing would change, 1 if something would, and 2 on failure, as diff does
    /// [without this flag: 0, and 1 on failure]
    #[arg(long)]
    exit_code: bool,

    /// Show only changes of Services and Ingresses of this namespace [default: all namespaces]
    #[arg(short = 'n', long, value_name = "NAME")]
    namespace: Option<String>,

    #[command(flatten)]
    look: Look,
}

impl PlanCommand {
    /// The exit code of a failure.
    pub(super) fn failure(&self) -> ExitCode {
        if self.exit_code { ExitCode::from(2) } else { ExitCode::FAILURE }
    }

    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let Self { exit_code, namespace, look } = self;
        look.block_on(async |look, client| {
            let facts = look.facts_about(&client, namespace.as_deref()).await?;
            let mut difference = Difference::of(&facts);
            if let Some(namespace) = &namespace {
                difference = difference.in_namespace(namespace);
            }
            look.print(&difference)?;
            let differs = exit_code && !difference.is_empty();
            Ok(if differs { ExitCode::FAILURE } else { ExitCode::SUCCESS })
        })
    }
}
