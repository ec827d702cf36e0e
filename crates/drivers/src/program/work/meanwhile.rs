//! What the task does while the program checks or loads its files, which takes a second where there is much of it. Where the
//! program can be told of members, no update waits for a load, since it may be another tenant's: the program is told of
//! members at once, and of the rest as soon as the load is over.

use super::{Program, Worker};
use crate::Error;
use crate::program::causes::{Changed, is_of_members};
use crate::program::driven::Request;
use bowline_core::update::{Report, Update};

/// Which updates are taken in while something takes long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TakesIn {
    /// All: files are checked to be loaded, or loaded, and the process that runs is about to be replaced.
    All,
    /// Those of members alone: a search has files checked that are not loaded. The first other update waits, and what comes after it becomes one update with the agent:
    /// so a tenant that makes refused objects without end makes one update of them for each check of a search.
    Members,
}

impl<P: Program> Worker<P> {
    /// Waits for something that takes long, and takes updates in meanwhile where the program can be told of some of
    /// them. The first other request waits until it is over.
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
        // Whether there may be members of which the program is not told yet.
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

    /// Takes an update in, and tells the program of its members. What it cannot be told, or does not take, it is told
    /// when it has loaded its files; those have the members of before.
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
        // Where no load follows, the program keeps what it was told.
        if is_replaced || !told || self.behind.is_some() {
            self.behind = Some(behind);
        }
        self.report()
    }

    /// Tells the program of an update that was taken in.
    pub(super) async fn tell_update(&mut self, update: &Update) -> Result<(), Error> {
        let told = self.program.tell(&mut self.common, Some(update)).await;
        self.common.changed = Changed::default();
        told
    }

    /// Tells the program of what came while it checked or loaded its files.
    pub(super) async fn catch_up(&mut self) -> Result<(), Error> {
        let Some(structure) = self.behind.take() else { return Ok(()) };
        self.common.forget_exclusions();
        self.common.changed = Changed { structure, ..Changed::default() };
        let told = self.program.tell(&mut self.common, None).await;
        self.common.changed = Changed::default();
        told
    }
}
