//! What the driver of any program keeps: what is desired and what of it is left out, the program's files, and its
//! process. It writes files that the program accepts, finds out which addresses can be bound, and says when the
//! program may be loaded or started again; it sends the program nothing.

use super::counters::Counters;
use super::folder::Folder;
use super::pace::{Limits, Pace};
use super::search::Search;
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
use std::path::PathBuf;
use std::process::Stdio;
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
    pub(crate) refused: Vec<Refusal>,
    /// What the program listens at.
    pub(crate) held: BTreeSet<ListenerKey>,
    /// Why it is to be loaded anew.
    pub(crate) reload: Option<String>,
    /// When that was over the last time.
    pub(crate) reloaded: Option<Instant>,
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
            refused: Vec::new(),
            held: BTreeSet::new(),
            reload: None,
            reloaded: None,
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

    /// Renders what is desired, without what is left out.
    pub(crate) fn render(&mut self, program: &P) -> Result<(), Error> {
        let Rendered { wanted, refused } = trial(program, &self.desired, &self.excluded)?;
        (self.wanted, self.refused) = (wanted, refused);
        Ok(())
    }

    /// Those that the program refused get another try when they ask for something else.
    pub(super) fn forget_exclusions(&mut self) {
        let desired = &self.desired;
        self.asked.retain(|consumer, asked| suspects::asks(desired, consumer) == *asked);
        let asked = &self.asked;
        self.excluded.consumers.retain(|consumer, _| asked.contains_key(consumer));
        self.excluded.certificates.retain(|hash, _| desired.certificates.contains_key(hash));
        self.excluded.listeners.retain(|key, _| desired.listeners.contains_key(key));
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
        let held = |key: &&ListenerKey| !self.excluded.listeners.contains_key(*key);
        self.held = self.desired.listeners.keys().filter(held).copied().collect();
    }

    /// Puts files in place, which the program has been told of by other ways.
    pub(crate) fn save(&mut self) -> Result<(), Error> {
        let set = self.write(&self.wanted.clone())?;
        self.install(&set)
    }

    fn write(&mut self, wanted: &P::Wanted) -> Result<PathBuf, Error> {
        let written = self.folder.write(&P::files(wanted));
        written.map_err(|cause| trouble(format!("writing {}'s files", P::NAME), cause))
    }

    fn install(&self, set: &std::path::Path) -> Result<(), Error> {
        let installed = self.folder.install(set);
        installed.map_err(|cause| trouble(format!("putting {}'s files in place", P::NAME), cause))
    }

    /// Puts files in place if the program accepts them. False: it does not, and what it refuses is looked for.
    pub(super) async fn checked(&mut self) -> Result<bool, Error> {
        let wanted = self.wanted.clone();
        let Some(why) = self.refuses(&wanted, true).await? else {
            self.search = None;
            self.accepted = self.desired.clone();
            return Ok(true);
        };
        match &mut self.search {
            Some(search) => search.refused(&self.desired),
            None => {
                tracing::warn!(why, "{} refuses its files; what it refuses is looked for", P::NAME);
                let (desired, excluded) = (self.desired.clone(), self.excluded.clone());
                self.search = Some(Search::new(desired, excluded, &self.accepted, why));
            }
        }
        Ok(false)
    }

    /// Whether what is desired is refused, and it is not known yet why.
    pub(super) fn is_searched(&self) -> bool {
        self.search.as_ref().is_some_and(|search| search.covers(&self.desired))
    }

    /// Takes the next step of the search. True: it is over, and what was found is left out from now on.
    pub(super) async fn search_on(&mut self, program: &P) -> Result<bool, Error> {
        let Some(mut search) = self.search.take() else { return Ok(true) };
        if let Some(excluded) = search.next() {
            let some = trial(program, &search.desired, &excluded)?;
            let said = self.refuses(&some.wanted, false).await?;
            let answered = search.answer(said);
            answered.map_err(|why| trouble(format!("checking {}'s files", P::NAME), why))?;
            self.search = Some(search);
            return Ok(false);
        }
        for (suspect, why) in search.found() {
            tracing::warn!(?suspect, why, "left out");
            suspects::leave_out(&mut self.excluded, suspect, why.clone());
            if let Suspect::Consumer(consumer) = suspect {
                let asked = suspects::asks(&search.desired, consumer);
                self.asked.insert(consumer.clone(), asked);
            }
        }
        Ok(true)
    }

    /// What the program has against this; if nothing and it is to be kept, it is in place.
    async fn refuses(&mut self, wanted: &P::Wanted, keep: bool) -> Result<Option<String>, Error> {
        let set = self.write(wanted)?;
        let said = process::check(&self.setup.program, P::CHECK, &set.join(P::CONFIG)).await;
        if keep && matches!(said, Ok(None)) {
            return self.install(&set).map(|()| None);
        }
        self.folder.discard(&set);
        let said = said.map_err(|cause| trouble(format!("checking {}'s files", P::NAME), cause))?;
        Ok(said.map(|said| P::complaint(&said).chars().take(300).collect()))
    }
}

fn trial<P: Program>(
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
