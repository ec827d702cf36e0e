//! What the driver of any program keeps: what is desired and what of it is left out, the program's files, and its
//! process. It writes files that the program accepts, finds out which addresses can be bound, and says when the
//! program may be loaded or started again; it sends the program nothing.

use super::causes::{self, Changed};
use super::counters::Counters;
use super::folder::Folder;
use super::pace::{Limits, Pace};
use super::search::{Accepted, Search};
use super::sieve::Rendered;
use super::suspects::{self, Excluded, Suspect};
use super::work::Program;
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

/// How a program is driven, whichever it is.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// The program; also where another one is driven, since it checks files.
    pub(crate) program: PathBuf,
    /// Whether to start it and keep it running, rather than drive one that is there.
    pub(crate) exec: bool,
    /// The folder for its files.
    pub(crate) folder: PathBuf,
    /// What bounds reloads, and processes from before them.
    pub(crate) limits: Limits,
}

/// What the driver of a program keeps.
#[derive(Debug)]
pub(crate) struct Common<P: Program> {
    pub(crate) setup: Setup,
    pub(crate) counters: Counters,
    pub(crate) folder: Folder,
    pub(crate) desired: Desired,
    pub(crate) excluded: Excluded,
    /// What the excluded consumers asked for when they were.
    asked: BTreeMap<ConsumerRef, String>,
    /// What was desired when the program accepted all of it but what is left out.
    accepted: Desired,
    /// What is refused is being looked for.
    pub(super) search: Option<Search>,
    pub(crate) wanted: P::Wanted,
    /// What the program listens at when it has what is wanted.
    listens: BTreeSet<ListenerKey>,
    pub(crate) refused: Vec<Refusal>,
    /// What the program listens at.
    pub(crate) held: BTreeSet<ListenerKey>,
    /// The namespaces with changes in the update that is being told.
    pub(crate) changed: Changed,
    /// Why it is to be loaded anew.
    pub(crate) reload: Option<String>,
    /// When that was over the last time.
    pub(crate) reloaded: Option<Instant>,
    /// When the program had loaded files the last time.
    pub(super) loaded_at: Option<Instant>,
    /// Decides when each namespace may reload; tracks old generations.
    pub(crate) pace: Pace,
    /// The one that we started.
    pub(crate) child: Option<Child>,
    pub(crate) restart: Backoff,
    pub(crate) restart_at: Option<Instant>,
}

impl<P: Program> Common<P> {
    /// Opens the folder.
    pub(crate) fn open(setup: Setup, counters: Counters) -> Result<Self, Error> {
        let folder = Folder::open(&setup.folder, P::CONFIG);
        let folder = folder.map_err(|cause| {
            hopeless(format!("opening the folder {}", setup.folder.display()), cause)
        })?;
        Ok(Self {
            pace: Pace::new(setup.limits),
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

    /// When the program may be loaded anew.
    pub(crate) fn reload_at(&self) -> Instant {
        let soonest = self.soonest_reload();
        self.pace.due().map_or(soonest, |due| due.max(soonest))
    }

    /// When the program may be loaded anew whatever changes wait.
    pub(crate) fn soonest_reload(&self) -> Instant {
        self.reloaded.map_or_else(Instant::now, |at| at + self.pace.min())
    }

    /// The program is not there, or not the one we knew: one of ours is started again.
    pub(crate) fn restart_later(&mut self) {
        if self.setup.exec && self.child.is_none() && self.restart_at.is_none() {
            // Everybody would come again at once otherwise; one process needs no dice.
            self.restart_at = Some(Instant::now() + self.restart.failed(u32::MAX));
        }
    }

    /// Whether the one that we started has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| !matches!(child.try_wait(), Ok(None)))
    }

    /// Starts the program with the files that are in place.
    pub(crate) fn start(&mut self, args: &[&str], stderr: Stdio) -> Result<(), Error> {
        let started = process::start(&self.setup.program, args, &self.folder.config(), stderr);
        let started = started.map_err(|cause| trouble(format!("starting {}", P::NAME), cause))?;
        self.child = Some(started);
        Ok(())
    }

    /// Renders what is desired, without what is left out. Returns what was wanted before.
    pub(crate) fn render(&mut self, program: &P) -> Result<P::Wanted, Error> {
        let Rendered { wanted, refused } = trial(program, &self.desired, &self.excluded)?;
        self.refused = refused;
        self.listens = listens(&self.desired, &self.excluded);
        Ok(std::mem::replace(&mut self.wanted, wanted))
    }

    /// The same of what a search has shown to be accepted, with the members of now.
    pub(super) fn render_accepted(
        &mut self,
        program: &P,
        Accepted { desired, excluded }: &mut Accepted,
    ) -> Result<(), Error> {
        let members =
            desired.pools.keys().filter_map(|pool| self.desired.members.get_key_value(pool));
        desired.members = members.map(|(pool, members)| (pool.clone(), members.clone())).collect();
        // Which of those can be bound that are not desired any more is known from before.
        excluded.listeners.retain(|key, _| !self.desired.listeners.contains_key(key));
        excluded.listeners.extend(self.excluded.listeners.clone());
        self.wanted = trial(program, desired, excluded)?.wanted;
        self.listens = listens(desired, excluded);
        Ok(())
    }

    /// What was taken in last needs a reload: the namespaces that it is of wait for one, with those of which only members
    /// change or without them.
    pub(crate) fn ask_for_reload(&mut self, with_members: bool) {
        let changed = std::mem::take(&mut self.changed);
        let namespaces = if with_members { changed.all() } else { changed.structure };
        self.ask_for_reload_of(namespaces);
    }

    /// These namespaces wait for a reload.
    pub(crate) fn ask_for_reload_of(&mut self, namespaces: BTreeSet<Arc<str>>) {
        self.pace.ask(namespaces, causes::is_shared(&self.desired));
    }

    /// Files are about to be checked and loaded.
    pub(super) fn begins_to_load(&mut self) {
        self.pace.begins(Instant::now(), causes::sizes(&self.desired));
    }

    /// Those that the program refused get another try when they ask for something else. Returns whether there are any.
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

    /// Finds out which listeners can be bound that the program does not hold yet. Binding without listening takes
    /// no connection from anybody. An address that is gone would have everything refused, though the program holds
    /// it: it is tried with another port.
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

    /// The program has loaded what is wanted now.
    pub(crate) fn has_loaded(&mut self) {
        self.held.clone_from(&self.listens);
    }

    /// Puts files in place, which the program has been told of by other ways.
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

    /// What the check of these files has said against them. If it has said nothing, and the files are to be kept, they
    /// are in place now.
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

    /// The program accepts what was desired then, but what is left out.
    pub(super) fn accepts(&mut self, desired: Desired) {
        self.accepted = desired;
    }

    /// The program refuses what was desired then; what it refuses is looked for.
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

    /// Whether what is desired is refused, and it is not known yet why.
    pub(super) fn is_searched(&self) -> bool {
        self.search.as_ref().is_some_and(|search| search.covers(&self.desired))
    }

    /// The search is over: what it has found is left out from now on.
    pub(super) fn leave_out(&mut self, search: &Search) {
        for (suspect, why) in search.found() {
            tracing::warn!(?suspect, why, "left out");
            suspects::leave_out(&mut self.excluded, suspect, why.clone());
            if let Suspect::Consumer(consumer) = suspect {
                let asked = suspects::asks(&search.desired, consumer);
                self.asked.insert(consumer.clone(), asked);
            }
        }
    }
}

/// What a program listens at when it has this.
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
