//! How HAProxy is driven: what the agent may choose, what is counted, and how it begins.

use super::version::{self, Version};
use super::work::Proxy;
use crate::Error;
use crate::program::common::{Common, Setup};
use crate::program::pace::Limits;
use crate::program::{self, Driven, hopeless, process};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use std::path::PathBuf;
use std::time::Duration;

/// How long HAProxy's processes from before a reload may finish what they have, where nothing else is said.
pub const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(3600);

/// How HAProxy is driven.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program; also where another one is driven, since it checks files.
    pub program: PathBuf,
    /// Whether to start HAProxy and keep it running, rather than drive one that is there.
    pub exec: bool,
    /// The folder for its files.
    pub folder: PathBuf,
    /// Where HAProxy takes commands. It is told so in its files.
    pub admin_socket: PathBuf,
    /// Where its master takes commands.
    pub master_socket: PathBuf,
    /// The least time between two reloads.
    pub min_reload_interval: Duration,
    /// How many old generations of processes there may be.
    pub max_old_generations: usize,
    /// How long processes from before a reload may finish what they have.
    pub shutdown_timeout: Duration,
    /// How often all that runs is compared with what is wanted.
    pub compare_every: Duration,
    /// Whether HAProxy prints a line for each request.
    pub access_log: bool,
}

/// What is counted of HAProxy.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    pub(super) program: program::Counters,
    /// Commands that were sent.
    pub(super) commands: Counter,
}

impl Counters {
    /// Shows them.
    pub fn register(&self, registry: &mut Registry) {
        self.program.register(registry, "HAProxy", "haproxy");
        let help = "Commands that HAProxy was sent while it ran";
        registry.register("haproxy_commands", help, self.commands.clone());
    }
}

/// How long changes of a namespace may wait for a reload. Members, hosts and certificates need none, so it is as long as keeps
/// the old generations of one namespace as many as may be, without ending one before its time.
fn longest_wait(options: &Options) -> Duration {
    let generations = u32::try_from(options.max_old_generations.max(1)).unwrap_or(u32::MAX);
    options.shutdown_timeout / generations
}

/// Finds out whether HAProxy can be driven, and begins to. Before the first update it is started only with files
/// of before.
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
    Ok(Driven::begin(common, Proxy::new(options, version, counters.commands)))
}
