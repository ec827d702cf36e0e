//! The flags that HAProxy and nginx share, which run in processes of their own: whether the agent starts them, and how
//! often it may reload them.

use bowline_drivers::program::MAX_OLD_GENERATIONS;
use std::time::Duration;

/// How another program is driven.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "HAProxy and nginx (--driver haproxy, --driver nginx)")]
pub(super) struct ProgramFlags {
    /// Start the program and keep it running; without this flag the agent drives a program that already runs
    /// with its files
    #[arg(long)]
    exec: bool,

    /// The least time from the end of a reload to the next, in seconds; changes that come meanwhile share one
    /// reload
    #[arg(long, value_name = "SECONDS", default_value_t = 2)]
    min_reload_interval: u64,

    /// Old proxy generations that may drain connections at once; beyond this, one is ended and its connections are cut
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = MAX_OLD_GENERATIONS,
        value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1000)
    )]
    max_old_generations: usize,
}

impl ProgramFlags {
    /// Whether the agent starts the program.
    pub(super) fn exec(&self) -> bool {
        self.exec
    }

    /// The least time between two reloads.
    pub(super) fn min_reload_interval(&self) -> Duration {
        Duration::from_secs(self.min_reload_interval)
    }

    /// The most old generations of processes.
    pub(super) fn max_old_generations(&self) -> usize {
        self.max_old_generations
    }
}
