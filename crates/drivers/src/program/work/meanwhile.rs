//! What the task does while the program checks or loads its files, which takes a second where there is much of it. A change
//! of members, where the program can be told of it, does not wait for that: it may be another tenant's.

use super::{Program, Worker};
use crate::Error;
use crate::program::driven::Request;
use bowline_core::update::{Report, Update};

impl<P: Program> Worker<P> {
    /// Waits for something that takes long. Updates that the program can be told at once are told; the first other
    /// request waits until it is over, and what comes after it waits with it.
    pub(super) async fn meanwhile<T>(&mut self, doing: impl Future<Output = T>) -> T {
        let mut doing = std::pin::pin!(doing);
        loop {
            let listens = self.postponed.is_none() && self.program.runs();
            tokio::select! {
                biased;
                done = &mut doing => return done,
                Some(request) = self.requests.recv(), if listens => match request {
                    Request::Apply(update, answer)
                        if self.program.is_told_at_once(&self.common, &update) =>
                    {
                        let report = self.tell_at_once(&update).await;
                        self.tell_result(Ok(report), answer);
                    }
                    other => self.postponed = Some(other),
                }
            }
        }
    }

    /// Tells the program of a change. What it does not take, it is told when it has loaded its files.
    async fn tell_at_once(&mut self, update: &Update) -> Report {
        self.take_in(update);
        self.is_behind = true;
        if let Err(error) = self.tell_update(update).await {
            tracing::debug!(%error, "{} is told after it has loaded its files", P::NAME);
        }
        self.report()
    }

    /// Tells the program of an update that was taken in.
    pub(super) async fn tell_update(&mut self, update: &Update) -> Result<(), Error> {
        let told = self.program.tell(&mut self.common, Some(update)).await;
        self.common.changed.clear();
        told
    }

    /// Tells the program, which has loaded its files, of what came while it did.
    pub(super) async fn catch_up(&mut self) -> Result<(), Error> {
        if !std::mem::take(&mut self.is_behind) {
            return Ok(());
        }
        self.program.tell(&mut self.common, None).await
    }
}
