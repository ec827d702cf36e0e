//! How nginx is driven: what the agent may choose, what is counted, and how it begins.

use super::log;
use super::render::{Settings, Stream};
use super::version;
use super::work::Proxy;
use crate::Error;
use crate::program::common::{Common, Setup};
use crate::program::pace::{Limits, SHORT};
use crate::program::{self, Driven, hopeless, process};
use prometheus_client::registry::Registry;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::Duration;

/// How nginx is driven.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program; also where another one is driven, since it checks files.
    pub program: PathBuf,
    /// Whether to start nginx and keep it running, rather than drive one that is there.
    pub exec: bool,
    /// The folder for its files and sockets.
    pub folder: PathBuf,
    /// The least time between two reloads.
    pub min_reload_interval: Duration,
    /// How many old generations of processes there may be.
    pub max_old_generations: usize,
    /// How long old processes may take to finish what they have.
    pub shutdown_timeout: Duration,
    /// Whether a line is printed for each request.
    pub access_log: bool,
}

/// What is counted of nginx.
#[derive(Clone, Debug, Default)]
pub struct Counters(program::Counters);

impl Counters {
    /// Shows them.
    pub fn register(&self, registry: &mut Registry) {
        self.0.register(registry, "nginx", "nginx");
    }
}

/// Finds out whether nginx can be driven, and begins to. Before the first update it is started only with files of
/// before.
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
            // Members are in its file.
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
    let settings = Settings {
        status_socket: options.folder.join("status.sock"),
        folder: options.folder,
        log_socket,
        root: std::fs::metadata("/proc/self").map_err(who)?.uid() == 0,
        stream: found.stream,
        shutdown_seconds: options.shutdown_timeout.as_secs(),
        files: process::files(),
    };
    Ok(Driven::begin(common, Proxy::new(settings)))
}
