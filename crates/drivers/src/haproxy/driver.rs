//! The entry point of the HAProxy driver: the agent's options, the metrics, and the start. It decides nothing about
//! HAProxy's configuration; the agent calls it.

use super::process::HaproxyProcess;
use super::version::{self, Version};
use crate::Error;
use crate::program::common::{Common, Setup};
use crate::program::reload_pace::Limits;
use crate::program::{self, Driven, hopeless, process};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use std::path::PathBuf;
use std::time::Duration;

/// The default time that HAProxy's processes from before a reload may take to finish their connections.
pub const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(3600);

/// The options of the driver.
#[derive(Clone, Debug)]
pub struct Options {
    /// The HAProxy executable. It checks files even if the driven HAProxy was started by others.
    pub program: PathBuf,
    /// Whether to start HAProxy and keep it running, rather than drive one that runs.
    pub exec: bool,
    /// The folder for its files.
    pub folder: PathBuf,
    /// The socket where HAProxy takes commands. The driver writes it into HAProxy's files.
    pub admin_socket: PathBuf,
    /// The socket where its master takes commands.
    pub master_socket: PathBuf,
    /// The least time between two reloads.
    pub min_reload_interval: Duration,
    /// How many old generations may exist.
    pub max_old_generations: usize,
    /// How long processes from before a reload may take to finish their connections.
    pub shutdown_timeout: Duration,
    /// How often everything that runs is compared with the wanted configuration.
    pub compare_every: Duration,
    /// Whether HAProxy prints a line for each request.
    pub access_log: bool,
}

/// HAProxy's metrics.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    pub(super) program: program::Counters,
    /// Commands sent to HAProxy.
    pub(super) commands: Counter,
}

impl Counters {
    /// Registers the metrics.
    pub fn register(&self, registry: &mut Registry) {
        self.program.register(registry, "HAProxy", "haproxy");
        let help = "Commands that HAProxy was sent while it ran";
        registry.register("haproxy_commands", help, self.commands.clone());
    }
}

/// The longest wait of a namespace for a reload. Members, hosts and certificates need no reload, so it can be long:
/// long enough that one namespace keeps at most the allowed number of old generations and none must be ended early.
fn longest_wait(options: &Options) -> Duration {
    let generations = u32::try_from(options.max_old_generations.max(1)).unwrap_or(u32::MAX);
    options.shutdown_timeout / generations
}

/// Checks that this HAProxy can be driven, and starts the driver. Before the first update HAProxy is started only if
/// files of an earlier agent are there.
pub async fn drive(options: Options, counters: Counters) -> Result<Driven, Error> {
    let program = options.program.display();
    let printed = process::ask(&options.program, "-v").await;
    let printed = printed.map_err(|cause| hopeless(format!("running {program} -v"), cause))?;
    let found = version::usable(&printed);
    let found = found.map_err(|cause| hopeless(format!("checking {program}"), cause))?;
    tracing::info!(version = found, exec = options.exec, "driving HAProxy");
    let setup = Setup {
        program: options.program.clone(),
        exec: options.exec,
        folder: options.folder.clone(),
        limits: Limits {
            min: options.min_reload_interval,
            longest: longest_wait(&options),
            most_old: options.max_old_generations,
        },
    };
    let common = Common::open(setup, counters.program)?;
    let version = Version::read(found);
    Ok(Driven::begin(common, HaproxyProcess::new(options, version, counters.commands)))
}
