//! The entry point of the nginx driver: the agent's options, the metrics, and the start. It decides nothing about
//! nginx's configuration; the agent calls it.

use super::failing::{self, FailingMembers};
use super::log;
use super::process::NginxProcess;
use super::render::{Settings, Stream};
use super::version;
use crate::Error;
use crate::program::common::{Common, Setup};
use crate::program::reload_pace::{Limits, SHORT};
use crate::program::{self, Driven, hopeless, process};
use prometheus_client::registry::Registry;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::Duration;

/// The options of the driver.
#[derive(Clone, Debug)]
pub struct Options {
    /// The nginx executable. It checks files even if the driven nginx was started by others.
    pub program: PathBuf,
    /// Whether to start nginx and keep it running, rather than drive one that runs.
    pub exec: bool,
    /// The folder for its files and sockets.
    pub folder: PathBuf,
    /// The least time between two reloads.
    pub min_reload_interval: Duration,
    /// How many old generations may exist.
    pub max_old_generations: usize,
    /// How long old processes may take to finish their connections.
    pub shutdown_timeout: Duration,
    /// Whether the agent prints a line for each request.
    pub access_log: bool,
}

/// nginx's metrics.
#[derive(Clone, Debug, Default)]
pub struct Counters(program::Counters);

impl Counters {
    /// Registers the metrics.
    pub fn register(&self, registry: &mut Registry) {
        self.0.register(registry, "nginx", "nginx");
    }
}

/// Checks that this nginx can be driven, and starts the driver. Before the first update nginx is started only if files
/// of an earlier agent are there.
pub async fn drive(options: Options, counters: Counters) -> Result<Driven, Error> {
    let program = options.program.display();
    let printed = process::ask(&options.program, "-V").await;
    let printed = printed.map_err(|cause| hopeless(format!("running {program} -V"), cause))?;
    let found = version::usable(&printed, |path| path.exists());
    let found = found.map_err(|cause| hopeless(format!("checking {program}"), cause))?;
    tracing::info!(version = found.version, exec = options.exec, "driving nginx");
    if found.stream == Stream::Missing {
        tracing::warn!(
            "this nginx has no stream module: TCP and UDP are refused (on Debian: libnginx-mod-stream)"
        );
    }
    let setup = Setup {
        program: options.program,
        exec: options.exec,
        folder: options.folder.clone(),
        limits: Limits {
            min: options.min_reload_interval,
            // Members are in nginx's file, and their changes must not wait for long.
            longest: SHORT,
            most_old: options.max_old_generations,
        },
    };
    let common = Common::open(setup, counters.0)?;
    let cannot_open = |cause| hopeless("opening the socket for nginx's log", cause);
    let who = |cause| hopeless("finding out who runs this", cause);
    let log_socket = options.access_log.then(|| options.folder.join("log.sock"));
    if let Some(socket) = &log_socket {
        log::print(socket).map_err(cannot_open)?;
    }
    let cannot_listen =
        |cause| hopeless("opening the socket where nginx tells of its members", cause);
    let failing =
        FailingMembers::listen(&options.folder.join(failing::SOCKET)).map_err(cannot_listen)?;
    let settings = Settings {
        status_socket: options.folder.join("status.sock"),
        folder: options.folder,
        log_socket,
        root: std::fs::metadata("/proc/self").map_err(who)?.uid() == 0,
        stream: found.stream,
        shutdown_seconds: options.shutdown_timeout.as_secs(),
        files: process::files(),
    };
    Ok(Driven::begin(common, NginxProcess::new(settings, failing)))
}
