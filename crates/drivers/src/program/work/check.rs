//! What the task does to find out what the program refuses: it lets the program check files, and searches for what is
//! refused a check at a time. What is tried next is decided by the search.

use super::meanwhile::TakesIn;
use super::{Program, Worker};
use crate::Error;
use crate::program::common::trial;
use crate::program::search::Accepted;
use crate::program::{causes, process, trouble};
use bowline_core::update::Update;
use tokio::time::Instant;

impl<P: Program> Worker<P> {
    /// Puts files in place if the program accepts them. False: it does not, and what it refuses is looked for.
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

    /// What the program has against this; if nothing and it is to be kept, it is in place.
    async fn refuses(&mut self, wanted: &P::Wanted, keep: bool) -> Result<Option<String>, Error> {
        let set = self.common.write(wanted)?;
        let (program, config) = (self.common.setup.program.clone(), set.join(P::CONFIG));
        let takes_in = if keep { TakesIn::All } else { TakesIn::Members };
        let said = self.meanwhile(takes_in, process::check(&program, P::CHECK, &config)).await;
        self.common.judge(&set, said, keep)
    }

    /// Goes on with the search for what is refused; when it is over, the rest goes into force.
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

    /// Takes the next step of the search. When it is over, what was found is left out from now on, and this is
    /// what the program accepts.
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

    /// What the search has found stays out of this one load, also where it asks for something else by now: a consumer that
    /// changes all the time keeps no other waiting. Then it is tried again. Where something else has come that is
    /// refused, and another search begins, what this one has shown to be accepted is loaded meanwhile: so each search
    /// brings all others a step further, however many follow.
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

    /// Loads what a search has shown to be accepted, while what is newer is refused.
    async fn load_accepted(&mut self, mut accepted: Accepted) -> Result<(), Error> {
        // One that was just started with the files of before is found first.
        if !self.program.runs() && self.common.child.is_some() {
            return Ok(());
        }
        // Too soon after the last load: there is another search, and at its end another try.
        let rest = self.common.pace.min();
        if self.common.loaded_at.is_some_and(|at| at.elapsed() < rest) {
            return Ok(());
        }
        let search = self.common.search.take();
        self.common.begins_to_load();
        let loaded = self.try_load_accepted(&mut accepted).await;
        self.common.search = search;
        self.common.reloaded = Some(Instant::now());
        // What is newer waits on.
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
        // Members of now may be refused, too.
        if !self.program.needs_load(&wanted) || self.refuses(&wanted, true).await?.is_some() {
            return Ok(());
        }
        self.common.accepts(accepted.desired.clone());
        self.load_files().await?;
        self.common.has_loaded();
        Ok(())
    }
}
