//! The part of the task that finds out which objects the program refuses: it has the program check files, and runs the
//! search one check at a time. The search decides what to try next.

use super::meanwhile::TakesIn;
use super::{Program, Worker};
use crate::Error;
use crate::program::common::trial;
use crate::program::search::Accepted;
use crate::program::{causes, process, trouble};
use bowline_core::update::Update;
use tokio::time::Instant;

impl<P: Program> Worker<P> {
    /// Checks the wanted files and installs them if the program accepts them. False: the program refuses them, and a
    /// search has begun.
    pub(super) async fn check(&mut self) -> Result<bool, Error> {
        let tried = self.common.desired.clone();
        let wanted = self.common.wanted.clone();
        match self.refuses(&wanted, true).await? {
            None => {
                self.common.search = None;
                self.common.accepts(tried);
                Ok(true)
            }
            Some(why) => {
                self.common.search_for(tried, why);
                let what = format!(
                    "{} refuses its files; the agent searches for the objects that it refuses",
                    P::NAME
                );
                self.trouble = Some(what);
                Ok(false)
            }
        }
    }

    /// The program's complaint about these files. If there is none and `keep` is set, the files are installed.
    async fn refuses(&mut self, wanted: &P::Wanted, keep: bool) -> Result<Option<String>, Error> {
        let set = self.common.write(wanted)?;
        let (program, config) = (self.common.setup.program.clone(), set.join(P::CONFIG));
        let takes_in = if keep { TakesIn::All } else { TakesIn::Members };
        let said = self.meanwhile(takes_in, process::check(&program, P::CHECK, &config)).await;
        self.common.judge(&set, said, keep)
    }

    /// Takes one step of the search. When the search is over, loads everything that is not refused.
    pub(super) async fn search_on(&mut self) -> Result<(), Error> {
        let searched = match self.try_next().await {
            Ok(None) => Ok(()),
            Ok(Some(accepted)) => self.bring_the_rest(accepted).await,
            Err(error) => {
                self.common.counters.failed_reloads.inc();
                self.common.reloaded = Some(Instant::now());
                if !self.program.runs() {
                    self.common.restart_later();
                }
                Err(error)
            }
        };
        searched.and(self.catch_up().await)
    }

    /// Takes the next step of the search. When the search is over, excludes what it has found, and returns what the
    /// program accepts.
    async fn try_next(&mut self) -> Result<Option<Accepted>, Error> {
        let Some(mut search) = self.common.search.take() else { return Ok(None) };
        if let Some(excluded) = search.next() {
            let some = trial(&self.program, &search.desired, &excluded)?;
            let said = self.refuses(&some.wanted, false).await?;
            let answered = search.answer(said);
            answered.map_err(|why| trouble(format!("checking {}'s files", P::NAME), why))?;
            self.common.search = Some(search);
            return Ok(None);
        }
        self.common.leave_out(&search);
        Ok(Some(search.accepted()))
    }

    /// Loads without what the search has found. That stays excluded from this one load even if it has changed by now,
    /// so a consumer that changes all the time does not block others. After the load, changed objects are tried again.
    ///
    /// If a newer object is refused and starts another search, what this search has proved to be accepted is loaded
    /// meanwhile. So each search brings all other consumers a step forward, however many searches follow.
    async fn bring_the_rest(&mut self, accepted: Accepted) -> Result<(), Error> {
        self.common.reloaded = None;
        let brought = self.bring().await;
        if !self.program.runs() && self.common.search.is_none() {
            self.common.restart_later();
        }
        brought?;
        let loaded = match self.common.search.is_some() {
            true => self.load_accepted(accepted).await,
            false => Ok(()),
        };
        if self.common.forget_exclusions() && self.common.search.is_none() {
            self.common.reload.get_or_insert_with(|| "what was refused has changed".to_owned());
        }
        loaded.and(self.bring().await)
    }

    /// Loads what a search has proved to be accepted, while the newest state is refused.
    async fn load_accepted(&mut self, mut accepted: Accepted) -> Result<(), Error> {
        // If a program was just started with the old files, it must be found first.
        if !self.program.runs() && self.common.child.is_some() {
            return Ok(());
        }
        // Too soon after the last load. Another search is running, and its end is the next chance.
        let rest = self.common.pace.min();
        if self.common.loaded_at.is_some_and(|at| at.elapsed() < rest) {
            return Ok(());
        }
        let search = self.common.search.take();
        self.common.begins_to_load();
        let loaded = self.try_load_accepted(&mut accepted).await;
        self.common.search = search;
        self.common.reloaded = Some(Instant::now());
        // Newer changes still wait for a reload.
        let all = Update { complete: true, ..Update::default() };
        let newest = &self.common.desired;
        self.common.changed = causes::namespaces(&accepted.desired, &all, newest);
        self.common.ask_for_reload(!P::IS_TOLD_MEMBERS);
        self.common.render(&self.program)?;
        self.behind = None;
        let told = match self.program.runs() {
            true => self.program.tell(&mut self.common, None).await,
            false => Ok(()),
        };
        self.see_left_behind().await;
        loaded.and(told)
    }

    async fn try_load_accepted(&mut self, accepted: &mut Accepted) -> Result<(), Error> {
        self.common.render_accepted(&self.program, accepted)?;
        let wanted = self.common.wanted.clone();
        // The current members may be refused, too.
        if !self.program.needs_load(&wanted) || self.refuses(&wanted, true).await?.is_some() {
            return Ok(());
        }
        self.common.accepts(accepted.desired.clone());
        self.load_files().await?;
        self.common.has_loaded();
        Ok(())
    }
}
