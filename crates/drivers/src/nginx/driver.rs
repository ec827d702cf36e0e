//! What the agent holds: a handle to the task that keeps nginx in step. Updates go in, reports come out;
//! reloads and restarts are the task's.

use super::log;
use super::process;
use super::render::{Settings, Stream};
use super::wanted::CONFIG;
use super::work::{Request, Worker};
use crate::program::folder::Folder;
use crate::{Driver, Error};
use bowline_core::update::{Report, Update};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};

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
    /// How long old processes may take to finish what they have.
    pub shutdown_timeout: Duration,
    /// Whether a line is printed for each request.
    pub access_log: bool,
}

/// What is counted of nginx.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Reloads that worked.
    pub(super) reloads: Counter,
    /// Reloads that did not.
    pub(super) failed_reloads: Counter,
    /// Times that it had something else than it should.
    pub(super) drift: Counter,
    /// Times that nginx was started again, or found to be another.
    pub(super) restarts: Counter,
}

impl Counters {
    /// Shows them.
    pub fn register(&self, registry: &mut Registry) {
        let all = [
            ("nginx_reloads", "Reloads of nginx", &self.reloads),
            ("nginx_failed_reloads", "Reloads of nginx that failed", &self.failed_reloads),
            ("nginx_drift", "Times that nginx had something else than it should", &self.drift),
            (
                "nginx_restarts",
                "Times that nginx was started again, or found to be another",
                &self.restarts,
            ),
        ];
        for (name, help, counter) in all {
            registry.register(name, help, counter.clone());
        }
    }
}

/// Drives nginx.
#[derive(Debug)]
pub struct Nginx {
    requests: mpsc::Sender<Request>,
    report: watch::Receiver<Report>,
}

impl Nginx {
    /// Finds out whether nginx can be driven, and begins to. Nothing is started before the first update.
    pub async fn new(options: Options, counters: Counters) -> Result<Self, Error> {
        let program = options.program.display().to_string();
        let error = |doing: String, cause: String| Error { doing, cause, retry: false };
        let printed = process::version(&options.program)
            .await
            .map_err(|cause| error(format!("running {program} -V"), cause.to_string()))?;
        let found = process::usable(&printed, |path| path.exists())
            .map_err(|cause| error(format!("looking at {program}"), cause))?;
        tracing::info!(version = found.version, exec = options.exec, "driving nginx");
        if found.stream == Stream::Missing {
            tracing::warn!(
                "this nginx has no stream module: TCP and UDP are refused (on Debian: libnginx-mod-stream)"
            );
        }
        let cannot_open = |cause: std::io::Error| {
            error(format!("opening the folder {}", options.folder.display()), cause.to_string())
        };
        let folder = Folder::open(&options.folder, CONFIG).map_err(cannot_open)?;
        let log_socket = options.access_log.then(|| options.folder.join("log.sock"));
        if let Some(socket) = &log_socket {
            log::print(socket).map_err(cannot_open)?;
        }
        let settings = Settings {
            folder: options.folder.clone(),
            status_socket: options.folder.join("status.sock"),
            log_socket,
            root: std::fs::metadata("/proc/self").map_err(cannot_open)?.uid() == 0,
            stream: found.stream,
            shutdown_seconds: options.shutdown_timeout.as_secs(),
        };
        let (requests, waiting) = mpsc::channel(1);
        let (reports, report) = watch::channel(Report::default());
        tokio::spawn(Worker::new(options, settings, counters, folder, reports).run(waiting));
        Ok(Self { requests, report })
    }
}

impl Driver for Nginx {
    async fn apply(&mut self, update: &Update) -> Result<Report, Error> {
        let gone = || Error {
            doing: "driving nginx".to_owned(),
            cause: "its task has ended".to_owned(),
            retry: false,
        };
        let (answer, answered) = oneshot::channel();
        let request = Request::Apply(Box::new(update.clone()), answer);
        self.requests.send(request).await.map_err(|_| gone())?;
        let report = answered.await.map_err(|_| gone())??;
        // What the task says at the same time is told with this.
        self.report.mark_unchanged();
        Ok(report)
    }

    async fn changed(&mut self) -> Report {
        match self.report.changed().await {
            Ok(()) => self.report.borrow_and_update().clone(),
            Err(_) => std::future::pending().await,
        }
    }

    async fn drain(&mut self, grace: Duration) {
        let (answer, answered) = oneshot::channel();
        if self.requests.send(Request::Drain(grace, answer)).await.is_ok() {
            let _ = answered.await;
        }
    }
}
