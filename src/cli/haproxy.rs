//! HAProxy as `bowline agent` drives it: its flags, and the default places of its files.

use super::program::ProgramFlags;
use bowline_drivers::haproxy::{Counters, Options, SHUTDOWN_TIMEOUT, drive};
use bowline_drivers::program::Driven;
use bowline_runtime::metrics::Metrics;
use std::path::PathBuf;
use std::time::Duration;

/// How often the complete state of HAProxy is compared with what it should be.
const COMPARE: Duration = Duration::from_secs(30);

/// How HAProxy is driven.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "HAProxy (--driver haproxy)")]
pub(super) struct HaproxyFlags {
    /// The HAProxy program, which also checks files before they are put in place
    #[arg(long, value_name = "FILE", default_value = "haproxy")]
    haproxy_program: PathBuf,

    /// Folder for HAProxy's files, used by this agent only; HAProxy runs with current/haproxy.cfg
    /// in it
    #[arg(long, value_name = "FOLDER", default_value = "/run/bowline-haproxy")]
    haproxy_folder: PathBuf,

    /// HAProxy's runtime socket [default: admin.sock in the folder]
    #[arg(long, value_name = "FILE")]
    haproxy_socket: Option<PathBuf>,

    /// The socket of HAProxy's master, as it was given with -S [default: master.sock in the folder]
    #[arg(long, value_name = "FILE")]
    haproxy_master_socket: Option<PathBuf>,
}

impl HaproxyFlags {
    /// The driver; its counters are added to `metrics`.
    pub(super) async fn driver(
        self,
        program: &ProgramFlags,
        access_log: bool,
        metrics: &Metrics,
    ) -> anyhow::Result<Driven> {
        let counters = Counters::default();
        metrics.register(|registry| counters.register(registry));
        let folder = std::path::absolute(&self.haproxy_folder)?;
        let within = |given: Option<PathBuf>, name: &str| match given {
            Some(path) => std::path::absolute(path),
            None => Ok(folder.join(name)),
        };
        let options = Options {
            program: self.haproxy_program,
            exec: program.exec(),
            admin_socket: within(self.haproxy_socket, "admin.sock")?,
            master_socket: within(self.haproxy_master_socket, "master.sock")?,
            folder,
            min_reload_interval: program.min_reload_interval(),
            max_old_generations: program.max_old_generations(),
            shutdown_timeout: SHUTDOWN_TIMEOUT,
            compare_every: COMPARE,
            access_log,
        };
        Ok(drive(options, counters).await?)
    }
}
