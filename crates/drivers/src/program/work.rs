//! The task that keeps a program in step: takes updates, loads it when it must and may, looks after the process,
//! and asks what it has. Clocks and the order of things are here; what a program is and can is its [`Program`].

mod check;
mod meanwhile;
mod old;

use super::causes::Changed;
use super::common::Common;
use super::driven::Request;
use super::pace::Ended;
use super::{process, trouble};
use crate::Error;
use crate::desired::Desired;
use crate::program::text::BadText;
use crate::program::{Excluded, Rendered};
use bowline_core::update::{MemberChange, Report, Update};
use meanwhile::TakesIn;
use nix::sys::signal::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until};

/// How often a program is asked whether it is still the same.
const LOOK: Duration = Duration::from_secs(1);
/// How often addresses that could not be bound are tried again.
const BIND: Duration = Duration::from_secs(2);
/// How long a program may take until it says that it has loaded what it was given.
pub(crate) const LOADING: Duration = Duration::from_secs(60);
/// How often it is asked meanwhile.
pub(crate) const SOON: Duration = Duration::from_millis(10);

/// What a look at a program shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// The one that is known, with what it was given.
    Same,
    /// The one that is known, which is to be brought in step.
    Astray,
    /// Another one, or one where there was none.
    Other,
    /// One that runs and cannot be asked: it is to be loaded with another socket.
    Deaf,
    /// None, as before.
    Nobody,
}

/// What differs between programs. Each keeps what it knows of the one that runs.
pub(crate) trait Program: Send + Sync + Sized + 'static {
    /// How it is called.
    const NAME: &'static str;
    /// Its main file.
    const CONFIG: &'static str;
    /// How it is asked to check a file.
    const CHECK: &'static [&'static str];
    /// The signal by which it finishes what it has, and ends.
    const FINISH: Signal;
    /// Whether several processes of it bind one address.
    const REUSES_PORTS: bool;
    /// Whether it carries UDP.
    const CARRIES_UDP: bool;
    /// Whether it can be told of members without a load ([`Self::tell_members`]).
    const IS_TOLD_MEMBERS: bool;
    /// All that it is to have.
    type Wanted: Clone + Debug + Default + Send + Sync;

    /// How many listeners it can open, whatever else it has to open.
    fn most_listeners(&self) -> usize;

    /// From what is desired to what it is to have, and what it will not do. Pure.
    fn render(
        &self,
        desired: &Desired,
        excluded: &Excluded,
    ) -> Result<Rendered<Self::Wanted>, BadText>;

    /// What it is to have, as files.
    fn files(wanted: &Self::Wanted) -> BTreeMap<String, Vec<u8>>;

    /// What its check complains about, in what it printed.
    fn complaint(said: &str) -> String;

    /// Whether it runs, and can be told something.
    fn runs(&self) -> bool;

    /// Finds one that runs though it is not known yet, and takes it over.
    fn find(
        &mut self,
        common: &mut Common<Self>,
    ) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Starts it with the files that are in place, unless one runs.
    fn start(
        &mut self,
        common: &mut Common<Self>,
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// Tells the one that runs of changes of members, also while it loads its files, or while they are checked. Members
    /// of namespaces of which something else is not told yet do not go before that is. One that is about to be replaced is
    /// told of small changes alone. True: it was told of all, or will be.
    fn tell_members(
        &mut self,
        _common: &mut Common<Self>,
        _changes: &[MemberChange],
        _untold: &BTreeSet<Arc<str>>,
        _is_replaced: bool,
    ) -> impl Future<Output = Result<bool, Error>> + Send {
        std::future::ready(Ok(false))
    }

    /// Tells the one that runs of more members, while something that takes long goes on. False: there is nothing that it
    /// can be told now.
    fn tell_on(
        &mut self,
        _common: &mut Common<Self>,
        _untold: &BTreeSet<Arc<str>>,
        _is_replaced: bool,
    ) -> impl Future<Output = Result<bool, Error>> + Send {
        std::future::ready(Ok(false))
    }

    /// Tells the one that runs what it can be told of a change, or of whatever there is; what it cannot be told
    /// makes a reload due, for which the namespaces of the change wait ([`Common::ask_for_reload`]).
    fn tell(
        &mut self,
        common: &mut Common<Self>,
        update: Option<&Update>,
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// Before files are rendered to be loaded.
    fn prepare(&mut self, _common: &mut Common<Self>) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// Whether the one that runs has all that is wanted.
    fn has(&self, _wanted: &Self::Wanted) -> bool {
        false
    }

    /// Whether only a load can bring it to have all that is wanted.
    fn needs_load(&self, wanted: &Self::Wanted) -> bool {
        !self.has(wanted)
    }

    /// What is known of a load that is under way.
    type Loading: Send;

    /// Makes the one that runs load the files that are in place, or starts it with them.
    fn load(
        &mut self,
        common: &mut Common<Self>,
    ) -> impl Future<Output = Result<Self::Loading, Error>> + Send;

    /// Whether it has loaded them. An error: it never will.
    fn has_loaded(
        &mut self,
        common: &mut Common<Self>,
        loading: &mut Self::Loading,
    ) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Whether it is there and has what it was given. An error: it is there no more.
    fn look(
        &mut self,
        common: &mut Common<Self>,
    ) -> impl Future<Output = Result<Seen, Error>> + Send;

    /// Its processes from before the last load that finish what they have, a list for each load, oldest first; none
    /// where that cannot be found out now.
    fn old(&self, common: &Common<Self>) -> impl Future<Output = Option<Vec<Vec<u32>>>> + Send;

    /// Ends such processes, whatever connections they have.
    fn end(&self, common: &Common<Self>, pids: &[u32]) -> impl Future<Output = ()> + Send;

    /// When it wants to be tended.
    fn tend_at(&self, _common: &Common<Self>) -> Option<Instant> {
        None
    }

    /// What else is to be done for it from time to time.
    fn tend(
        &mut self,
        _common: &mut Common<Self>,
    ) -> impl Future<Output = Result<(), Error>> + Send {
        std::future::ready(Ok(()))
    }

    /// It is not there any more.
    fn lost(&mut self, common: &mut Common<Self>);

    /// Nothing more is asked of us.
    fn leave(&mut self, _common: &mut Common<Self>) {}

    /// The pid of the process that is to end when it is let go.
    fn master(&self, common: &Common<Self>) -> impl Future<Output = Option<u32>> + Send;
}

/// What the task did last. A request, what is due and a step of a search take turns, in this order: none of them without
/// end keeps another from being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Request,
    Timer,
    Search,
}

#[derive(Debug)]
pub(super) struct Worker<P: Program> {
    common: Common<P>,
    program: P,
    /// Whether it is known what is wanted.
    begun: bool,
    /// What went wrong last, until all is in force.
    trouble: Option<String>,
    /// Whether it was said that changes wait because of earlier loads for their namespaces.
    told_of_wait: bool,
    requests: mpsc::Receiver<Request>,
    /// A request that waits until a load or a check is over.
    postponed: Option<Request>,
    /// The namespaces with changes in updates that came while the program checked or loaded its files, and of which it
    /// was not told yet; none where no update came, and the files have the members of now.
    behind: Option<BTreeSet<Arc<str>>>,
    /// What the last load has ended, until it is seen what is left of it.
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
        // The agent may learn only much later what is wanted.
        if let Err(error) = self.resume().await {
            tracing::warn!(
                %error,
                "{} could not be started with its previous files; it waits for the first update",
                P::NAME
            );
        }
        let mut last = Turn::Request;
        loop {
            let next = self.next();
            let is_due = next <= Instant::now();
            let searches = self.common.search.is_some() && (!is_due || last == Turn::Timer);
            let listens = match last {
                Turn::Request => !(searches || is_due),
                Turn::Timer => !searches,
                Turn::Search => true,
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
                        last = Turn::Request;
                        if !self.answer(request).await {
                            return;
                        }
                    }
                    None => return,
                },
                status = ended => {
                    tracing::warn!(status = ?status.ok(), "{} has ended", P::NAME);
                    self.common.child = None;
                    self.program.lost(&mut self.common);
                    self.publish();
                }
                // A caller waits for one check at most.
                () = std::future::ready(()), if searches => {
                    last = Turn::Search;
                    let searched = self.search_on().await;
                    self.acted(searched);
                }
                () = sleep_until(next) => {
                    last = Turn::Timer;
                    let ticked = self.tick().await;
                    self.acted(ticked);
                }
            }
        }
    }

    /// Does what is asked. False: it was the last request.
    async fn answer(&mut self, request: Request) -> bool {
        match request {
            Request::Apply(update, answer) => {
                let result = self.apply(&update).await;
                self.tell_result(result, answer);
                // What comes next need not wait for it.
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
        // The caller may be gone.
        let _ = answer.send(result);
    }

    /// Something was done by itself.
    fn acted(&mut self, done: Result<(), Error>) {
        if let Err(error) = done {
            tracing::warn!(%error, "{} is not in step with the plan", P::NAME);
            self.trouble = Some(error.to_string());
        }
        self.publish();
    }

    /// When there is something to do by itself.
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
        Report { refused: self.common.refused.clone(), waiting, trouble }
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

    /// Brings what is desired into force, as far as that may be now.
    async fn bring(&mut self) -> Result<(), Error> {
        if self.program.runs() {
            self.step().await
        } else if self.common.restart_at.is_none() {
            self.arrive().await
        } else {
            Ok(())
        }
    }

    /// Tells the one that runs what it lacks, and loads it anew if that is due and may be.
    async fn step(&mut self) -> Result<(), Error> {
        self.program.tell(&mut self.common, None).await?;
        self.load_if_due().await
    }

    async fn load_if_due(&mut self) -> Result<(), Error> {
        if !self.program.runs() {
            return Ok(());
        }
        if self.common.reload.is_none() {
            // What was refused is not wanted any more.
            self.common.search = None;
            self.common.pace.rest();
            return Ok(());
        }
        let due = !self.common.is_searched() && self.common.reload_at() <= Instant::now();
        if due { self.load().await } else { Ok(()) }
    }

    /// The first update, or the first after the program has ended. It may run already, from an agent before us.
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

    /// Starts the program with the files that are in place, the last that it accepted: while it is not known what
    /// is wanted, or while that cannot be written, this is what traffic can have.
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
            Seen::Nobody => {}
            Seen::Astray => {
                self.common.pace.need();
                self.step().await?;
            }
            Seen::Deaf if self.common.soonest_reload() <= Instant::now() => self.load().await?,
            Seen::Deaf => {}
            Seen::Other => {
                self.program.lost(&mut self.common);
                self.arrive().await?;
            }
        }
        Ok(())
    }

    /// Writes, checks, puts in place, and loads: by a reload, or by starting the program.
    async fn load(&mut self) -> Result<(), Error> {
        self.common.begins_to_load();
        let loaded = self.try_load().await;
        // One that takes longer than the interval would follow another without a rest.
        self.common.reloaded = Some(Instant::now());
        if loaded.is_err() {
            self.common.counters.failed_reloads.inc();
            // Members that were told meanwhile may be lost with a process that did not stay.
            self.behind.get_or_insert_default();
        }
        // The one that was just loaded has the members of before.
        let told = self.catch_up().await;
        self.see_left_behind().await;
        loaded.and(told)
    }

    async fn try_load(&mut self) -> Result<(), Error> {
        // What is left of one that was killed holds addresses until this is done.
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

    /// Lets the program load the files that are in place.
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

    /// Lets go: what we started ends, what was there stays.
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
