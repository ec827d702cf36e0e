//! What differs between programs, as the [`Worker`](super::worker::Worker) needs it: the trait [`Program`].

use super::common::Common;
use super::{Excluded, Rendered};
use crate::Error;
use crate::desired::Desired;
use crate::program::text::BadText;
use bowline_core::update::{FailingPool, MemberChange, Update};
use nix::sys::signal::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;
use tokio::time::Instant;

/// What a look at the program shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// The known program, with the files it was given.
    Same,
    /// The known program, but it has something else than it was given.
    Drifted,
    /// Another program, or one where none ran.
    Other,
    /// A program runs, but its socket is gone. It must load files that name another socket.
    NoSocket,
    /// No program runs, as before.
    NotRunning,
}

/// A program that a worker keeps in step. An implementation remembers the state of the running program.
pub(crate) trait Program: Send + Sync + Sized + 'static {
    /// The program's name.
    const NAME: &'static str;
    /// Its main file.
    const CONFIG: &'static str;
    /// The arguments that make it check a file.
    const CHECK: &'static [&'static str];
    /// The signal that makes it finish its connections and exit.
    const FINISH: Signal;
    /// Whether several of its processes bind the same address.
    const REUSES_PORTS: bool;
    /// Whether it can forward UDP.
    const CARRIES_UDP: bool;
    /// Whether it takes members without loading files ([`Self::tell_members`]).
    const IS_TOLD_MEMBERS: bool;
    /// The complete configuration of the program.
    type Wanted: Clone + Debug + Default + Send + Sync;

    /// How many listeners it can open, beside all else that it must open.
    fn most_listeners(&self) -> usize;

    /// Renders the desired state without what is excluded, and lists what the program cannot do. Pure.
    fn render(
        &self,
        desired: &Desired,
        excluded: &Excluded,
    ) -> Result<Rendered<Self::Wanted>, BadText>;

    /// The files of a configuration, by name.
    fn files(wanted: &Self::Wanted) -> BTreeMap<String, Vec<u8>>;

    /// The complaint in the output of its check.
    fn complaint(said: &str) -> String;

    /// Whether it runs and takes commands or signals.
    fn runs(&self) -> bool;

    /// Finds a running program that is not known yet, and adopts it. False: none runs.
    fn find(
        &mut self,
        common: &mut Common<Self>,
    ) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Starts it with the installed files, unless it runs.
    fn start(
        &mut self,
        common: &mut Common<Self>,
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// Sends changes of members to the running program, also while it loads files or while they are checked. The
    /// members of the namespaces in `untold` wait, since the program lacks other changes of those namespaces. A process
    /// that is about to be replaced gets only small changes. True: the program got all changes, or will.
    fn tell_members(
        &mut self,
        _common: &mut Common<Self>,
        _changes: &[MemberChange],
        _untold: &BTreeSet<Arc<str>>,
        _is_replaced: bool,
    ) -> impl Future<Output = Result<bool, Error>> + Send {
        std::future::ready(Ok(false))
    }

    /// Sends more members to the running program while a load or check goes on. False: nothing can be sent now.
    fn tell_on(
        &mut self,
        _common: &mut Common<Self>,
        _untold: &BTreeSet<Arc<str>>,
        _is_replaced: bool,
    ) -> impl Future<Output = Result<bool, Error>> + Send {
        std::future::ready(Ok(false))
    }

    /// Sends an update to the running program, or without an update all that it lacks. What it cannot take while it
    /// runs needs a reload, and the namespaces of the update wait for it ([`Common::ask_for_reload`]).
    fn tell(
        &mut self,
        common: &mut Common<Self>,
        update: Option<&Update>,
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// Prepares a load. Called before its files are rendered.
    fn prepare(&mut self, _common: &mut Common<Self>) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// Whether the running program has exactly this configuration.
    fn has(&self, _wanted: &Self::Wanted) -> bool {
        false
    }

    /// Whether the running program needs a load to get this configuration.
    fn needs_load(&self, wanted: &Self::Wanted) -> bool {
        !self.has(wanted)
    }

    /// The state of a load in progress.
    type Loading: Send;

    /// Makes the running program load the installed files, or starts it with them.
    fn load(
        &mut self,
        common: &mut Common<Self>,
    ) -> impl Future<Output = Result<Self::Loading, Error>> + Send;

    /// Whether the program has loaded them. An error: the load has failed.
    fn has_loaded(
        &mut self,
        common: &mut Common<Self>,
        loading: &mut Self::Loading,
    ) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Whether it runs and has what it was given. An error: it is gone.
    fn look(
        &mut self,
        common: &mut Common<Self>,
    ) -> impl Future<Output = Result<Seen, Error>> + Send;

    /// Its processes from before the last load that still finish connections, one list for each load, oldest first.
    /// None: they cannot be found out now.
    fn old(&self, common: &Common<Self>) -> impl Future<Output = Option<Vec<Vec<u32>>>> + Send;

    /// Ends such processes together with their connections.
    fn end(&self, common: &Common<Self>, pids: &[u32]) -> impl Future<Output = ()> + Send;

    /// The pools with members that do not answer, as far as the program or its driver knows; by name.
    fn failing(&self) -> Vec<FailingPool>;

    /// When [`Self::tend`] is due.
    fn tend_at(&self, _common: &Common<Self>) -> Option<Instant> {
        None
    }

    /// Periodic work of its own.
    fn tend(
        &mut self,
        _common: &mut Common<Self>,
    ) -> impl Future<Output = Result<(), Error>> + Send {
        std::future::ready(Ok(()))
    }

    /// Called when the program is gone.
    fn lost(&mut self, common: &mut Common<Self>);

    /// Called when the agent stops driving the program.
    fn leave(&mut self, _common: &mut Common<Self>) {}

    /// The pid of the process to end when the agent stops.
    fn master(&self, common: &Common<Self>) -> impl Future<Output = Option<u32>> + Send;
}
