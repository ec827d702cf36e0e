//! What the agent holds: a handle to the task that keeps HAProxy in step. Updates go in, reports come out;
//! endpoints, reloads and restarts are the task's.

use super::process;
use super::wanted::CONFIG;
use super::work::{Request, Worker};
use crate::program::folder::Folder;
use crate::{Driver, Error};
use bowline_core::update::{Report, Update};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};

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
    /// How often all that runs is compared with what is wanted.
    pub compare_every: Duration,
    /// Whether HAProxy prints a line for each request.
    pub access_log: bool,
}

/// What is counted of HAProxy.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Reloads that worked.
    pub(super) reloads: Counter,
    /// Reloads that did not.
    pub(super) failed_reloads: Counter,
    /// Commands that were sent.
    pub(super) commands: Counter,
    /// What was found otherwise than it should be, and repaired.
    pub(super) drift: Counter,
    /// Times that HAProxy was found to be another process than before.
    pub(super) restarts: Counter,
}

impl Counters {
    /// Shows them.
    pub fn register(&self, registry: &mut Registry) {
        let all = [
            ("haproxy_reloads", "Reloads of HAProxy", &self.reloads),
            ("haproxy_failed_reloads", "Reloads of HAProxy that failed", &self.failed_reloads),
            ("haproxy_commands", "Commands that HAProxy was sent while it ran", &self.commands),
            (
                "haproxy_drift",
                "What HAProxy had otherwise than it should, and was repaired",
                &self.drift,
            ),
            (
                "haproxy_restarts",
                "Times that HAProxy was started again, or found to be another",
                &self.restarts,
            ),
        ];
        for (name, help, counter) in all {
            registry.register(name, help, counter.clone());
        }
    }
}

/// Drives HAProxy.
#[derive(Debug)]
pub struct Haproxy {
    requests: mpsc::Sender<Request>,
    report: watch::Receiver<Report>,
}

impl Haproxy {
    /// Finds out whether HAProxy can be driven, and begins to. Nothing is started before the first update.
    pub async fn new(options: Options, counters: Counters) -> Result<Self, Error> {
        let program = options.program.display().to_string();
        let error = |doing: String, cause: String| Error { doing, cause, retry: false };
        let printed = process::version(&options.program)
            .await
            .map_err(|cause| error(format!("running {program} -v"), cause.to_string()))?;
        let version = process::usable(&printed)
            .map_err(|cause| error(format!("looking at {program}"), cause))?;
        tracing::info!(version, exec = options.exec, "driving HAProxy");
        let folder = Folder::open(&options.folder, CONFIG).map_err(|cause| {
            error(format!("opening the folder {}", options.folder.display()), cause.to_string())
        })?;
        let (requests, waiting) = mpsc::channel(1);
        let (reports, report) = watch::channel(Report::default());
        tokio::spawn(
            Worker::new(options, process::adds_backends(version), counters, folder, reports)
                .run(waiting),
        );
        Ok(Self { requests, report })
    }
}

impl Driver for Haproxy {
    async fn apply(&mut self, update: &Update) -> Result<Report, Error> {
        let gone = || Error {
            doing: "driving HAProxy".to_owned(),
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
