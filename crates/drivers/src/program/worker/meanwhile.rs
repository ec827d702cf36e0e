//! What the task does while the program checks or loads its files, which takes a second if they are large. If the
//! program takes members without a load, no update waits for a load, which may be another tenant's: the program gets
//! members at once, and the rest as soon as the load is over.

use super::{Program, Worker};
use crate::Error;
use crate::program::causes::{Changed, is_of_members};
use crate::program::driven::Request;
use bowline_core::update::{Report, Update};

/// Which updates are applied during a check or load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TakesIn {
    /// All updates. Files are checked to be loaded, or are loaded, and the running process is about to be replaced.
    All,
    /// Only updates of members, because a search checks files that are not loaded. The first other update waits, and
    /// the agent merges later ones into one. So a tenant that creates refused objects without end causes one such
    /// update for each check of a search.
    Members,
}

impl<P: Program> Worker<P> {
    /// Waits for `doing`, and meanwhile applies updates that the program can take in part. The first other request
    /// waits until `doing` is over.
    pub(super) async fn meanwhile<T>(
        &mut self,
        takes_in: TakesIn,
        doing: impl Future<Output = T>,
    ) -> T {
        let is_taken_in = |update: &Update| {
            P::IS_TOLD_MEMBERS && (takes_in == TakesIn::All || is_of_members(update))
        };
        let is_replaced = takes_in == TakesIn::All;
        let mut doing = std::pin::pin!(doing);
        // Whether the program may lack members that it can get now.
        let mut lags = true;
        loop {
            let listens = self.postponed.is_none() && self.program.runs();
            tokio::select! {
                biased;
                done = &mut doing => return done,
                Some(request) = self.requests.recv(), if listens => match request {
                    Request::Apply(update, answer) if is_taken_in(&update) => {
                        let report = self.tell_meanwhile(&update, is_replaced).await;
                        self.tell_result(Ok(report), answer);
                        lags = true;
                    }
                    other => self.postponed = Some(other),
                },
                () = std::future::ready(()), if lags && self.program.runs() => {
                    let untold = self.behind.clone().unwrap_or_default();
                    let told = self.program.tell_on(&mut self.common, &untold, is_replaced).await;
                    lags = told.unwrap_or(false);
                }
            }
        }
    }

    /// Applies an update, and sends its members to the program. What the program cannot take now, it gets after it has
    /// loaded its files, which have the earlier members.
    async fn tell_meanwhile(&mut self, update: &Update, is_replaced: bool) -> Report {
        self.take_in(update);
        let Changed { mut structure, mut members } = std::mem::take(&mut self.common.changed);
        let mut behind = self.behind.clone().unwrap_or_default();
        behind.append(&mut structure);
        let changes = &update.members;
        let told = self.program.tell_members(&mut self.common, changes, &behind, is_replaced).await;
        let told = told.unwrap_or_else(|error| {
            tracing::debug!(%error, "{} is told after it has loaded its files", P::NAME);
            false
        });
        if !told {
            behind.append(&mut members);
        }
        // If no load follows, the program keeps what it got.
        if is_replaced || !told || self.behind.is_some() {
            self.behind = Some(behind);
        }
        self.report()
    }

    /// Sends an applied update to the program.
    pub(super) async fn tell_update(&mut self, update: &Update) -> Result<(), Error> {
        let told = self.program.tell(&mut self.common, Some(update)).await;
        self.common.changed = Changed::default();
        told
    }

    /// Sends the program what came while it checked or loaded its files.
    pub(super) async fn catch_up(&mut self) -> Result<(), Error> {
        let Some(structure) = self.behind.take() else { return Ok(()) };
        self.common.forget_exclusions();
        self.common.changed = Changed { structure, ..Changed::default() };
        let told = self.program.tell(&mut self.common, None).await;
        self.common.changed = Changed::default();
        told
    }
}
