//! The state that the driver of any program keeps: the desired state, what is excluded from it, the program's files and
//! its process. It installs files that the program accepts, finds out which addresses can be bound, and says when the
//! program may reload or restart. It sends the program nothing; the task and the [`Program`] call it.

use super::causes::{self, Changed};
use super::counters::Counters;
use super::folder::Folder;
use super::program_trait::Program;
use super::reload_pace::{Limits, ReloadPace};
use super::render_filter::Rendered;
use super::search::{Accepted, Search};
use super::suspects::{self, Excluded, Suspect};
use super::{hopeless, process, trouble};
use crate::Error;
use crate::desired::Desired;
use bowline_core::backoff::Backoff;
use bowline_core::key::ConsumerRef;
use bowline_core::plan::Transport;
use bowline_core::update::{ListenerKey, Refusal};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpSocket;
use tokio::process::Child;
use tokio::time::Instant;

/// The options that all programs share.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// The program's executable. It checks files even if the driven program was started by others.
    pub(crate) program: PathBuf,
    /// Whether to start the program and keep it running, rather than drive one that runs.
    pub(crate) exec: bool,
    /// The folder for its files.
    pub(crate) folder: PathBuf,
    /// The limits for reloads and old generations.
    pub(crate) limits: Limits,
}

/// The state that all drivers of programs share.
#[derive(Debug)]
pub(crate) struct Common<P: Program> {
    pub(crate) setup: Setup,
    pub(crate) counters: Counters,
    pub(crate) folder: Folder,
    pub(crate) desired: Desired,
    pub(crate) excluded: Excluded,
    /// What each excluded consumer asked for when it was excluded.
    asked: BTreeMap<ConsumerRef, String>,
    /// The desired state that the program accepted last, except for what was excluded.
    accepted: Desired,
    /// The search for what the program refuses, if one is running.
    pub(super) search: Option<Search>,
    pub(crate) wanted: P::Wanted,
    /// The listeners of the wanted configuration.
    listens: BTreeSet<ListenerKey>,
    pub(crate) refused: Vec<Refusal>,
    /// The listeners that the program holds.
    pub(crate) held: BTreeSet<ListenerKey>,
    /// The namespaces with changes in the update that is being sent.
    pub(crate) changed: Changed,
    /// Why the program must reload. None: it need not.
    pub(crate) reload: Option<String>,
    /// When the last attempt to load was over.
    pub(crate) reloaded: Option<Instant>,
    /// When the last successful load was over.
    pub(super) loaded_at: Option<Instant>,
    /// Decides when each namespace may reload; tracks old generations.
    pub(crate) pace: ReloadPace,
    /// The process that we started.
    pub(crate) child: Option<Child>,
    pub(crate) restart: Backoff,
    pub(crate) restart_at: Option<Instant>,
}

impl<P: Program> Common<P> {
    /// Opens the folder, and starts with nothing desired.
    pub(crate) fn open(setup: Setup, counters: Counters) -> Result<Self, Error> {
        let folder = Folder::open(&setup.folder, P::CONFIG);
        let folder = folder.map_err(|cause| {
            hopeless(format!("opening the folder {}", setup.folder.display()), cause)
        })?;
        Ok(Self {
            pace: ReloadPace::new(setup.limits),
            setup,
            counters,
            folder,
            desired: Desired::default(),
            excluded: Excluded::default(),
            asked: BTreeMap::new(),
            accepted: Desired::default(),
            search: None,
            wanted: P::Wanted::default(),
            listens: BTreeSet::new(),
            refused: Vec::new(),
            held: BTreeSet::new(),
            changed: Changed::default(),
            reload: None,
            reloaded: None,
            loaded_at: None,
            child: None,
            restart: Backoff::new(Duration::from_millis(200), Duration::from_secs(30)),
            restart_at: None,
        })
    }

    /// When the program may reload for the changes that wait.
    pub(crate) fn reload_at(&self) -> Instant {
        let soonest = self.soonest_reload();
        self.pace.due().map_or(soonest, |due| due.max(soonest))
    }

    /// When the program may reload for any reason: the minimum interval after the last load.
    pub(crate) fn soonest_reload(&self) -> Instant {
        self.reloaded.map_or_else(Instant::now, |at| at + self.pace.min())
    }

    /// The program is gone, or another one runs. Schedules a restart if we start the program ourselves.
    pub(crate) fn restart_later(&mut self) {
        if self.setup.exec && self.child.is_none() && self.restart_at.is_none() {
            // The random part of a backoff keeps many clients apart; a single process does not need it.
            self.restart_at = Some(Instant::now() + self.restart.failed(u32::MAX));
        }
    }

    /// Whether the process that we started has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| !matches!(child.try_wait(), Ok(None)))
    }

    /// Starts the program with the installed files.
    pub(crate) fn start(&mut self, args: &[&str], stderr: Stdio) -> Result<(), Error> {
        let started = process::start(&self.setup.program, args, &self.folder.config(), stderr);
        let started = started.map_err(|cause| trouble(format!("starting {}", P::NAME), cause))?;
        self.child = Some(started);
        Ok(())
    }

    /// Renders the desired state without what is excluded. Returns the wanted configuration from before.
    pub(crate) fn render(&mut self, program: &P) -> Result<P::Wanted, Error> {
        let Rendered { wanted, refused } = trial(program, &self.desired, &self.excluded)?;
        self.refused = refused;
        self.listens = listens(&self.desired, &self.excluded);
        Ok(std::mem::replace(&mut self.wanted, wanted))
    }

    /// Renders what a search has proved to be accepted, with the current members.
    pub(super) fn render_accepted(
        &mut self,
        program: &P,
        Accepted { desired, excluded }: &mut Accepted,
    ) -> Result<(), Error> {
        let members =
            desired.pools.keys().filter_map(|pool| self.desired.members.get_key_value(pool));
        desired.members = members.map(|(pool, members)| (pool.clone(), members.clone())).collect();
        // For listeners that are no longer desired, the earlier result of binding stands.
        excluded.listeners.retain(|key, _| !self.desired.listeners.contains_key(key));
        excluded.listeners.extend(self.excluded.listeners.clone());
        self.wanted = trial(program, desired, excluded)?.wanted;
        self.listens = listens(desired, excluded);
        Ok(())
    }

    /// The last applied update needs a reload: its namespaces wait for one. `with_members` says whether namespaces with
    /// changes of members only wait, too.
    pub(crate) fn ask_for_reload(&mut self, with_members: bool) {
        let changed = std::mem::take(&mut self.changed);
        let namespaces = if with_members { changed.all() } else { changed.structure };
        self.ask_for_reload_of(namespaces);
    }

    /// Makes these namespaces wait for a reload.
    pub(crate) fn ask_for_reload_of(&mut self, namespaces: BTreeSet<Arc<str>>) {
        self.pace.ask(namespaces, causes::is_shared(&self.desired));
    }

    /// Notes that a check and load of files begins.
    pub(super) fn begins_to_load(&mut self) {
        self.pace.begins(Instant::now(), causes::sizes(&self.desired));
    }

    /// Gives excluded consumers and certificates another try if they have changed or are gone. Returns whether there
    /// are any.
    pub(super) fn forget_exclusions(&mut self) -> bool {
        let desired = &self.desired;
        let before = self.excluded.consumers.len() + self.excluded.certificates.len();
        self.asked.retain(|consumer, asked| suspects::asks(desired, consumer) == *asked);
        let asked = &self.asked;
        self.excluded.consumers.retain(|consumer, _| asked.contains_key(consumer));
        self.excluded.certificates.retain(|hash, _| desired.certificates.contains_key(hash));
        self.excluded.listeners.retain(|key, _| desired.listeners.contains_key(key));
        before > self.excluded.consumers.len() + self.excluded.certificates.len()
    }

    /// Finds out which listeners can be bound. A listener that the program does not hold yet is bound, without listen, so
    /// that it takes no connection from another process. Of a listener that the program holds, only the address is
    /// tried, with another port: HAProxy and nginx refuse their whole configuration if an address is gone from the
    /// machine.
    pub(super) fn try_binding(&mut self) {
        let tried = self.desired.listeners.keys().filter_map(|key| {
            let bound = match self.held.contains(key) {
                true => try_binding::<P>(&ListenerKey { port: 0, ..*key }),
                false => try_binding::<P>(key),
            };
            Some((*key, bound.err()?.to_string()))
        });
        self.excluded.listeners = tried.collect();
    }

    /// Notes that the program has loaded the wanted configuration.
    pub(crate) fn has_loaded(&mut self) {
        self.held.clone_from(&self.listens);
    }

    /// Installs files with what the program got by commands.
    pub(crate) fn save(&mut self) -> Result<(), Error> {
        let set = self.write(&self.wanted.clone())?;
        self.install(&set)
    }

    pub(super) fn write(&mut self, wanted: &P::Wanted) -> Result<PathBuf, Error> {
        let written = self.folder.write(&P::files(wanted));
        written.map_err(|cause| trouble(format!("writing {}'s files", P::NAME), cause))
    }

    fn install(&self, set: &Path) -> Result<(), Error> {
        let installed = self.folder.install(set);
        installed.map_err(|cause| trouble(format!("putting {}'s files in place", P::NAME), cause))
    }

    /// The complaint of the check about these files. If there is none and `keep` is set, installs them.
    pub(super) fn judge(
        &self,
        set: &Path,
        said: io::Result<Option<String>>,
        keep: bool,
    ) -> Result<Option<String>, Error> {
        if keep && matches!(said, Ok(None)) {
            return self.install(set).map(|()| None);
        }
        self.folder.discard(set);
        let said = said.map_err(|cause| trouble(format!("checking {}'s files", P::NAME), cause))?;
        Ok(said.map(|said| P::complaint(&said).chars().take(300).collect()))
    }

    /// Notes that the program accepts this desired state, except for what is excluded.
    pub(super) fn accepts(&mut self, desired: Desired) {
        self.accepted = desired;
    }

    /// Notes that the program refuses this desired state, and begins a search or updates the running one.
    pub(super) fn search_for(&mut self, desired: Desired, why: String) {
        match &mut self.search {
            Some(search) => search.refused(&desired),
            None => {
                tracing::warn!(
                    why,
                    "{} refuses its files; the agent searches for the objects that it refuses",
                    P::NAME
                );
                let excluded = self.excluded.clone();
                self.search = Some(Search::new(desired, excluded, &self.accepted, why));
            }
        }
    }

    /// Whether the desired state is refused and the search for the reason still runs.
    pub(super) fn is_searched(&self) -> bool {
        self.search.as_ref().is_some_and(|search| search.covers(&self.desired))
    }

    /// Excludes what the finished search has found.
    pub(super) fn leave_out(&mut self, search: &Search) {
        for (suspect, why) in search.found() {
            tracing::warn!(why, "{suspect} is left out");
            suspects::leave_out(&mut self.excluded, suspect, why.clone());
            if let Suspect::Consumer(consumer) = suspect {
                let asked = suspects::asks(&search.desired, consumer);
                self.asked.insert(consumer.clone(), asked);
            }
        }
    }
}

/// The listeners that can be bound.
fn listens(desired: &Desired, excluded: &Excluded) -> BTreeSet<ListenerKey> {
    let can_be_bound = |key: &&ListenerKey| !excluded.listeners.contains_key(*key);
    desired.listeners.keys().filter(can_be_bound).copied().collect()
}

pub(super) fn trial<P: Program>(
    program: &P,
    desired: &Desired,
    excluded: &Excluded,
) -> Result<Rendered<P::Wanted>, Error> {
    let rendered = program.render(desired, excluded);
    rendered.map_err(|why| trouble(format!("writing the paths of {}'s files", P::NAME), why))
}

fn try_binding<P: Program>(key: &ListenerKey) -> io::Result<()> {
    match key.transport {
        Transport::Tcp => {
            let v4 = key.address.is_ipv4();
            let socket = if v4 { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
            socket.set_reuseaddr(true)?;
            socket.set_reuseport(P::REUSES_PORTS)?;
            socket.bind(key.socket())
        }
        Transport::Udp if P::CARRIES_UDP => std::net::UdpSocket::bind(key.socket()).map(drop),
        Transport::Udp | Transport::Sctp => Ok(()),
    }
}
