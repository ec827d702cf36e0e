//! The agent's handle to the task that keeps a program in step. Updates go in, reports come out; commands, reloads and
//! restarts are the task's work.

use super::common::Common;
use super::hopeless;
use super::program_trait::Program;
use super::worker::Worker;
use crate::{Driver, Error};
use bowline_core::update::{Report, Update};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};

/// A request to the task.
#[derive(Debug)]
pub(super) enum Request {
    /// Apply this update.
    Apply(Box<Update>, oneshot::Sender<Result<Report, Error>>),
    /// Stop driving the program within this time.
    Drain(Duration, oneshot::Sender<()>),
}

/// A driven program, as a [`Driver`].
#[derive(Debug)]
pub struct Driven {
    name: &'static str,
    most_listeners: usize,
    requests: mpsc::Sender<Request>,
    report: watch::Receiver<Report>,
}

impl Driven {
    /// Spawns the task that drives a program.
    pub(crate) fn begin<P: Program>(common: Common<P>, program: P) -> Self {
        let (requests, waiting) = mpsc::channel(1);
        let (reports, report) = watch::channel(Report::default());
        let most_listeners = program.most_listeners();
        tokio::spawn(Worker::new(common, program, waiting, reports).run());
        Self { name: P::NAME, most_listeners, requests, report }
    }

    fn gone(&self) -> Error {
        hopeless(format!("driving {}", self.name), "its task has ended")
    }
}

impl Driver for Driven {
    async fn apply(&mut self, update: &Update) -> Result<Report, Error> {
        let (answer, answered) = oneshot::channel();
        let request = Request::Apply(Box::new(update.clone()), answer);
        self.requests.send(request).await.map_err(|_| self.gone())?;
        answered.await.map_err(|_| self.gone())??;
        // This report may be newer than the answer, and counts as delivered.
        Ok(self.report.borrow_and_update().clone())
    }

    async fn changed(&mut self) -> Result<Report, Error> {
        self.report.changed().await.map_err(|_| self.gone())?;
        Ok(self.report.borrow_and_update().clone())
    }

    fn most_listeners(&self) -> Option<usize> {
        Some(self.most_listeners)
    }

    async fn drain(&mut self, grace: Duration) {
        let (answer, answered) = oneshot::channel();
        if self.requests.send(Request::Drain(grace, answer)).await.is_ok() {
            let _ = answered.await;
        }
    }
}
