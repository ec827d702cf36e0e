//! The task that keeps a program in step: it applies updates, loads files when it must and may, supervises the process,
//! and observes it. It owns the timers and the order of work; what is special about a program is in its [`Program`].
//! [`Driven`](super::Driven) starts it.

mod check;
mod meanwhile;
mod old;

use super::causes::Changed;
use super::common::Common;
use super::driven::Request;
use super::program_trait::{Program, Seen};
use super::reload_pace::Ended;
use super::{process, trouble};
use crate::Error;
use bowline_core::update::{Report, Update};
use meanwhile::TakesIn;
use nix::sys::signal::Signal;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until};

/// How often the task looks whether the program is still the same.
const LOOK: Duration = Duration::from_secs(1);
/// How often listeners that could not be bound are tried again.
const BIND: Duration = Duration::from_secs(2);
/// How long a program may take to load its files.
pub(crate) const LOADING: Duration = Duration::from_secs(60);
/// How often the task polls the program meanwhile.
pub(crate) const SOON: Duration = Duration::from_millis(10);

/// What the task did last. Requests, timers and steps of a search take turns in this order, so an endless supply of one
/// does not starve the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WorkKind {
    Request,
    Timer,
    Search,
}

#[derive(Debug)]
pub(super) struct Worker<P: Program> {
    common: Common<P>,
    program: P,
    /// Whether the first update has come.
    begun: bool,
    /// The last error, until everything is in force.
    trouble: Option<String>,
    /// Whether the log says already that changes wait because of earlier loads for their namespaces.
    told_of_wait: bool,
    requests: mpsc::Receiver<Request>,
    /// A request that waits for the end of a load or check.
    postponed: Option<Request>,
    /// The namespaces with changes in updates that came during a check or load and that the program did not get yet.
    /// None: no such update came, and the files have the current members.
    behind: Option<BTreeSet<Arc<str>>>,
    /// The generation that the last load has ended, until its remaining processes are found.
    ended: Option<Ended>,
    reports: watch::Sender<Report>,
    look_at: Instant,
    bind_at: Instant,
}

impl<P: Program> Worker<P> {
    pub(super) fn new(
        common: Common<P>,
        program: P,
        requests: mpsc::Receiver<Request>,
        reports: watch::Sender<Report>,
    ) -> Self {
        let now = Instant::now();
        Self {
            common,
            program,
            begun: false,
            trouble: None,
            told_of_wait: false,
            requests,
            postponed: None,
            behind: None,
            ended: None,
            reports,
            look_at: now,
            bind_at: now,
        }
    }

    pub(super) async fn run(mut self) {
        // The first update may come much later.
        if let Err(error) = self.resume().await {
            tracing::warn!(
                %error,
                "{} could not be started with its previous files; it waits for the first update",
                P::NAME
            );
        }
        let mut last = WorkKind::Request;
        loop {
            let next = self.next();
            let is_due = next <= Instant::now();
            let searches = self.common.search.is_some() && (!is_due || last == WorkKind::Timer);
            let listens = match last {
                WorkKind::Request => !(searches || is_due),
                WorkKind::Timer => !searches,
                WorkKind::Search => true,
            };
            let ended = async {
                match &mut self.common.child {
                    Some(child) => child.wait().await,
                    None => std::future::pending().await,
                }
            };
            let request = async {
                match self.postponed.take() {
                    Some(request) => Some(request),
                    None => self.requests.recv().await,
                }
            };
            tokio::select! {
                biased;
                request = request, if listens => match request {
                    Some(request) => {
                        last = WorkKind::Request;
                        if !self.answer(request).await {
                            return;
                        }
                    }
                    None => return,
                },
                status = ended => {
                    let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
                    tracing::warn!(status, "{} has ended", P::NAME);
                    self.common.child = None;
                    self.program.lost(&mut self.common);
                    self.publish();
                }
                // A request waits for one check at most.
                () = std::future::ready(()), if searches => {
                    last = WorkKind::Search;
                    let searched = self.search_on().await;
                    self.acted(searched);
                }
                () = sleep_until(next) => {
                    last = WorkKind::Timer;
                    let ticked = self.tick().await;
                    self.acted(ticked);
                }
            }
        }
    }

    /// Serves a request. False: it was the last one.
    async fn answer(&mut self, request: Request) -> bool {
        match request {
            Request::Apply(update, answer) => {
                let result = self.apply(&update).await;
                self.tell_result(result, answer);
                // The caller has its answer and need not wait for a load.
                let loaded = self.load_if_due().await;
                self.acted(loaded);
                true
            }
            Request::Drain(grace, answer) => {
                self.drain(grace).await;
                let _ = answer.send(());
                false
            }
        }
    }

    fn tell_result(
        &self,
        result: Result<Report, Error>,
        answer: oneshot::Sender<Result<Report, Error>>,
    ) {
        if let Ok(report) = &result {
            self.reports.send_replace(report.clone());
        }
        // The caller may have gone.
        let _ = answer.send(result);
    }

    /// Notes the result of work that no request asked for.
    fn acted(&mut self, done: Result<(), Error>) {
        if let Err(error) = done {
            tracing::warn!(%error, "{} is not in step with the plan", P::NAME);
            self.trouble = Some(error.to_string());
        }
        self.publish();
    }

    /// When the next work without a request is due.
    fn next(&self) -> Instant {
        let restart_at = self.common.restart_at;
        if !self.begun {
            return restart_at.unwrap_or_else(|| Instant::now() + Duration::from_secs(3600));
        }
        let at = restart_at.map_or(self.look_at, |restart| restart.min(self.look_at));
        if !self.program.runs() {
            return at;
        }
        let bind_at = (!self.common.excluded.listeners.is_empty()).then_some(self.bind_at);
        let due = self.common.reload.is_some() && !self.common.is_searched();
        let reload_at = due.then(|| self.common.reload_at());
        let others = [bind_at, reload_at, self.program.tend_at(&self.common)];
        others.into_iter().flatten().fold(at, Instant::min)
    }

    fn report(&self) -> Report {
        let waiting = self.common.reload.is_some() || self.behind.is_some() || !self.program.runs();
        let trouble = self.trouble.clone().filter(|_| waiting);
        let (refused, failing) = (self.common.refused.clone(), self.program.failing());
        Report { refused, waiting, trouble, failing }
    }

    fn publish(&mut self) {
        let report = self.report();
        self.trouble.clone_from(&report.trouble);
        self.reports.send_if_modified(|before| {
            let changed = *before != report;
            *before = report;
            changed
        });
    }

    async fn apply(&mut self, update: &Update) -> Result<Report, Error> {
        self.take_in(update);
        self.begun = true;
        self.common.forget_exclusions();
        if self.program.runs() {
            self.tell_update(update).await?;
        } else {
            self.common.changed = Changed::default();
            self.bring().await?;
        }
        self.tell_of_wait();
        Ok(self.report())
    }

    /// Brings the desired state into force, as far as possible now.
    async fn bring(&mut self) -> Result<(), Error> {
        if self.program.runs() {
            self.step().await
        } else if self.common.restart_at.is_none() {
            self.arrive().await
        } else {
            Ok(())
        }
    }

    /// Sends the running program what it lacks, and reloads it if a reload is due.
    async fn step(&mut self) -> Result<(), Error> {
        self.program.tell(&mut self.common, None).await?;
        self.load_if_due().await
    }

    async fn load_if_due(&mut self) -> Result<(), Error> {
        if !self.program.runs() {
            return Ok(());
        }
        if self.common.reload.is_none() {
            // What the search looks for is no longer desired.
            self.common.search = None;
            self.common.pace.rest();
            return Ok(());
        }
        let due = !self.common.is_searched() && self.common.reload_at() <= Instant::now();
        if due { self.load().await } else { Ok(()) }
    }

    /// Handles the first update, or the first one after the program has ended. The program may run already, started by
    /// an earlier agent.
    async fn arrive(&mut self) -> Result<(), Error> {
        self.common.render(&self.program)?;
        if self.program.find(&mut self.common).await? {
            tracing::info!("{} runs already", P::NAME);
            self.common.restart_at = None;
            self.see_old().await;
            self.common.pace.need();
            return self.step().await;
        }
        if self.common.is_searched() {
            return self.resume().await;
        }
        if !self.common.setup.exec {
            self.common.try_binding();
            self.common.render(&self.program)?;
            if !self.check().await? {
                return Ok(());
            }
            let cause = "it does not answer; start it with the files that were just written";
            return Err(trouble(format!("asking {}", P::NAME), cause));
        }
        let loaded = self.load().await;
        if loaded.is_err() || self.common.search.is_some() {
            self.resume().await?;
        }
        loaded
    }

    /// Starts the program with the installed files, which are the last that it accepted. Before the first update, or
    /// while newer files cannot be installed, traffic is served with these.
    async fn resume(&mut self) -> Result<(), Error> {
        let common = &mut self.common;
        if !common.setup.exec || common.child.is_some() || !common.folder.config().exists() {
            return Ok(());
        }
        self.program.start(common).await
    }

    async fn tick(&mut self) -> Result<(), Error> {
        let now = Instant::now();
        if self.common.restart_at.is_some_and(|at| at <= now) {
            self.common.restart_at = None;
            let arrived = if self.begun { self.arrive().await } else { self.resume().await };
            if !self.program.runs() && self.common.search.is_none() {
                self.common.restart_later();
            }
            return arrived;
        }
        if self.look_at <= now {
            self.look_at = now + LOOK;
            self.look().await?;
            if self.common.pace.old() > 0 {
                self.see_old().await;
            }
        }
        if !self.program.runs() {
            return Ok(());
        }
        if self.bind_at <= now && !self.common.excluded.listeners.is_empty() {
            self.bind_at = now + BIND;
            let before = self.common.excluded.listeners.clone();
            self.common.try_binding();
            if before != self.common.excluded.listeners {
                self.common.reload.get_or_insert_with(|| "addresses can be bound".to_owned());
                self.common.pace.need();
                self.step().await?;
            }
        }
        self.load_if_due().await?;
        self.program.tend(&mut self.common).await
    }

    async fn look(&mut self) -> Result<(), Error> {
        let seen = match self.program.look(&mut self.common).await {
            Ok(seen) => seen,
            Err(error) => {
                self.program.lost(&mut self.common);
                return Err(error);
            }
        };
        match seen {
            Seen::Same => self.common.restart.worked(),
            Seen::NotRunning => {}
            Seen::Drifted => {
                self.common.pace.need();
                self.step().await?;
            }
            Seen::NoSocket if self.common.soonest_reload() <= Instant::now() => self.load().await?,
            Seen::NoSocket => {}
            Seen::Other => {
                self.program.lost(&mut self.common);
                self.arrive().await?;
            }
        }
        Ok(())
    }

    /// Writes, checks, installs and loads files: by a reload, or by starting the program.
    async fn load(&mut self) -> Result<(), Error> {
        self.common.begins_to_load();
        let loaded = self.try_load().await;
        // Otherwise a load that takes longer than the interval would be followed by the next without a pause.
        self.common.reloaded = Some(Instant::now());
        if loaded.is_err() {
            self.common.counters.failed_reloads.inc();
            // Members that were sent meanwhile may be lost with a process that is gone.
            self.behind.get_or_insert_default();
        }
        // The new process has the members from the time when its files were written.
        let told = self.catch_up().await;
        self.see_left_behind().await;
        loaded.and(told)
    }

    async fn try_load(&mut self) -> Result<(), Error> {
        // Processes left from a killed program hold addresses until this is done.
        self.program.prepare(&mut self.common).await;
        self.common.try_binding();
        self.bind_at = Instant::now() + BIND;
        self.common.render(&self.program)?;
        if !self.program.has(&self.common.wanted) {
            if !self.check().await? {
                return Ok(());
            }
            self.load_files().await?;
        }
        self.common.pace.rest();
        self.common.search = None;
        self.common.has_loaded();
        self.common.reload = None;
        Ok(())
    }

    /// Makes the program load the installed files, and waits for it.
    async fn load_files(&mut self) -> Result<(), Error> {
        let mut loading = self.program.load(&mut self.common).await?;
        while !self.program.has_loaded(&mut self.common, &mut loading).await? {
            self.meanwhile(TakesIn::All, sleep(SOON)).await;
        }
        let now = Instant::now();
        self.common.loaded_at = Some(now);
        self.ended = Some(self.common.pace.loaded(now));
        Ok(())
    }

    /// Stops driving: a program that we started is ended, one that ran already stays.
    async fn drain(&mut self, grace: Duration) {
        self.program.leave(&mut self.common);
        if !self.common.setup.exec {
            return;
        }
        let Some(master) = self.program.master(&self.common).await else { return };
        process::signal(master, P::FINISH);
        let child = &mut self.common.child;
        let gone = async {
            if let Some(child) = child {
                let _ = child.wait().await;
            }
            while process::is_alive(master) {
                sleep(SOON).await;
            }
        };
        if tokio::time::timeout(grace, gone).await.is_err() {
            process::signal(master, Signal::SIGTERM);
        }
    }
}
