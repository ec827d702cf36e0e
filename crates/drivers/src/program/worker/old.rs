//! The part of the task that deals with processes from before a reload: it tells [`ReloadPace`](crate::program::reload_pace::ReloadPace)
//! which namespaces have changes and which processes are left, logs that changes wait, and ends processes above the
//! limit. `ReloadPace` decides.

use super::{Program, Worker};
use crate::program::causes;
use crate::program::reload_pace::Surplus;
use bowline_core::update::Update;
use tokio::time::Instant;

impl<P: Program> Worker<P> {
    /// Applies an update to the desired state, and notes the namespaces with changes: they wait if these need a reload.
    pub(super) fn take_in(&mut self, update: &Update) {
        let desired = &mut self.common.desired;
        let changed = if causes::is_of_members(update) {
            desired.apply(update);
            causes::of_members(update, desired)
        } else {
            let before = desired.clone();
            desired.apply(update);
            causes::namespaces(&before, update, desired)
        };
        // With the first update everything is new, but no namespace has changed anything.
        self.common.changed = if self.begun { changed } else { causes::Changed::default() };
    }

    /// Logs once that changes wait because of earlier loads for their namespaces.
    pub(super) fn tell_of_wait(&mut self) {
        let pace = &self.common.pace;
        let soonest = self.common.soonest_reload();
        let wait = pace.due().map(|due| due.saturating_duration_since(soonest));
        let waits = self.common.reload.is_some() && pace.old() > 0;
        let wait = wait.filter(|it| !it.is_zero() && waits);
        if let (Some(wait), false) = (wait, self.told_of_wait) {
            tracing::info!(
                namespaces = ?pace.asking(),
                ?wait,
                old_generations = pace.old(),
                "changes wait for a reload of {}: earlier reloads for these namespaces took long, or left processes \
                 behind that hold connections",
                P::NAME
            );
        }
        self.told_of_wait = wait.is_some();
    }

    /// Finds the processes that the last load has left behind. Asking the program may take long, so more urgent work
    /// comes first.
    pub(super) async fn see_left_behind(&mut self) {
        let Some(ended) = self.ended.take() else { return };
        if let Some(old) = self.program.old(&self.common).await {
            self.common.pace.left_behind(ended, old);
        }
        self.bound_old().await;
    }

    /// Finds the processes from before the last load that still run.
    pub(super) async fn see_old(&mut self) {
        if let Some(old) = self.program.old(&self.common).await {
            self.common.pace.seen(old, Instant::now());
            self.bound_old().await;
        }
    }

    /// Terminates old generations above the limit.
    async fn bound_old(&mut self) {
        let old = i64::try_from(self.common.pace.old()).unwrap_or(i64::MAX);
        self.common.counters.old_generations.set(old);
        for Surplus { pids, new } in self.common.pace.surplus() {
            if new {
                tracing::warn!(
                    ?pids,
                    "{} has too many old generations: one is ended with its connections",
                    P::NAME
                );
                self.common.counters.ended_generations.inc();
            }
            self.program.end(&self.common, &pids).await;
        }
    }
}
