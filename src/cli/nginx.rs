//! nginx as `bowline agent` drives it: its flags, and the default places of its files.

use super::program::ProgramFlags;
use bowline_drivers::nginx::{Counters, Options, drive};
use bowline_drivers::program::Driven;
use bowline_runtime::metrics::Metrics;
use std::path::PathBuf;
use std::time::Duration;

/// How nginx is driven.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "nginx (--driver nginx)")]
pub(super) struct NginxFlags {
    /// The nginx program, which also checks files before they are put in place
    #[arg(long, value_name = "FILE", default_value = "nginx")]
    nginx_program: PathBuf,

    /// Folder for nginx's files, used by this agent only; nginx runs with current/nginx.conf in it
    #[arg(long, value_name = "FOLDER", default_value = "/run/bowline-nginx")]
    nginx_folder: PathBuf,

    /// How long, in seconds, processes from before a reload may serve the connections that they
    /// have
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 3600,
        value_parser = clap::value_parser!(u64).range(1..=604_800)
    )]
    nginx_shutdown_timeout: u64,
}

impl NginxFlags {
    /// The driver; its counters are added to `metrics`.
    pub(super) async fn driver(
        self,
        program: &ProgramFlags,
        access_log: bool,
        metrics: &Metrics,
    ) -> anyhow::Result<Driven> {
        let counters = Counters::default();
        metrics.register(|registry| counters.register(registry));
        let options = Options {
            program: self.nginx_program,
            exec: program.exec(),
            folder: std::path::absolute(&self.nginx_folder)?,
            min_reload_interval: program.min_reload_interval(),
            max_old_generations: program.max_old_generations(),
            shutdown_timeout: Duration::from_secs(self.nginx_shutdown_timeout),
            access_log,
        };
        Ok(drive(options, counters).await?)
    }
}
