//! The task that keeps HAProxy in step: takes updates, sends commands, reloads when it must and may, looks
//! after the process, and compares what runs with what is wanted. Everything it decides is decided by
//! `render` and `diff`; here are clocks, sockets and files.

mod life;
mod load;
mod see;
mod speak;

use super::diff::{Observed, diff, diff_servers};
use super::driver::{Counters, Options};
use super::render::{self, Settings, render};
use super::socket::Socket;
use super::text::Word;
use super::wanted::{Body, Section, Wanted};
use crate::Error;
use crate::desired::Desired;
use crate::program::Excluded;
use crate::program::folder::Folder;
use crate::program::suspects;
use bowline_core::backoff::Backoff;
use bowline_core::update::{ListenerKey, Refusal, Report, Update};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::process::Child;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};

/// How often HAProxy is asked whether it is still the same.
const LOOK: Duration = Duration::from_secs(1);
/// How often servers that were retired are tried to be removed.
const SWEEP: Duration = Duration::from_millis(500);
/// How long files may be behind what runs.
const SAVE: Duration = Duration::from_secs(2);
/// How often addresses that could not be bound are tried again.
const BIND: Duration = Duration::from_secs(2);
/// How long connections of a removed member live on where the plan does not say.
const DRAIN: Duration = Duration::from_secs(30);
/// How long a master may be away while it reloads.
const MASTER: Duration = Duration::from_secs(3);
/// How long a new process may take until it answers.
const LOADING: Duration = Duration::from_secs(60);

/// What the task is asked.
#[derive(Debug)]
pub(super) enum Request {
    /// Bring this into force.
    Apply(Box<Update>, oneshot::Sender<Result<Report, Error>>),
    /// Let go of HAProxy within this time.
    Drain(Duration, oneshot::Sender<()>),
}

/// What HAProxy loaded last.
#[derive(Debug, Default)]
struct Loaded {
    mark: String,
    sections: BTreeMap<Section, Body>,
    ranges: BTreeMap<String, Vec<Word>>,
    /// Listeners that it holds.
    listeners: BTreeSet<ListenerKey>,
}

#[derive(Debug)]
pub(super) struct Worker {
    options: Options,
    settings: Settings,
    counters: Counters,
    folder: Folder,
    admin: Socket,
    master: Socket,
    desired: Desired,
    excluded: Excluded,
    /// What the excluded consumers asked for when they were.
    asked: BTreeMap<bowline_core::key::ConsumerRef, String>,
    wanted: Wanted,
    refused: Vec<Refusal>,
    /// What HAProxy has; none while that is not known.
    observed: Option<Observed>,
    loaded: Loaded,
    pid: u32,
    /// Why a reload is due.
    reload: Option<String>,
    reloaded: Option<Instant>,
    /// Servers that were retired, and until when their connections may live.
    leaving: BTreeMap<(Word, SocketAddr), Instant>,
    /// Since when files are behind.
    unsaved: Option<Instant>,
    child: Option<Child>,
    restart: Backoff,
    restart_at: Option<Instant>,
    begun: bool,
    reports: watch::Sender<Report>,
    look_at: Instant,
    compare_at: Instant,
    bind_at: Instant,
    sweep_at: Instant,
}

fn failed(doing: &str) -> impl Fn(std::io::Error) -> Error {
    let doing = doing.to_owned();
    move |cause| trouble(&doing, cause)
}

fn trouble(doing: &str, cause: impl Display) -> Error {
    Error { doing: doing.to_owned(), cause: cause.to_string(), retry: true }
}

impl Worker {
    pub(super) fn new(
        options: Options,
        adds_backends: bool,
        counters: Counters,
        folder: Folder,
        reports: watch::Sender<Report>,
    ) -> Self {
        let now = Instant::now();
        Self {
            settings: Settings {
                admin_socket: options.admin_socket.clone(),
                peers_socket: options.folder.join("peers.sock"),
                access_log: options.access_log,
                adds_backends,
            },
            admin: Socket::new(&options.admin_socket),
            master: Socket::new(&options.master_socket),
            options,
            counters,
            folder,
            desired: Desired::default(),
            excluded: Excluded::default(),
            asked: BTreeMap::new(),
            wanted: Wanted::default(),
            refused: Vec::new(),
            observed: None,
            loaded: Loaded::default(),
            pid: 0,
            reload: None,
            reloaded: None,
            leaving: BTreeMap::new(),
            unsaved: None,
            child: None,
            restart: Backoff::new(Duration::from_millis(200), Duration::from_secs(30)),
            restart_at: None,
            begun: false,
            reports,
            look_at: now,
            compare_at: now,
            bind_at: now,
            sweep_at: now,
        }
    }

    pub(super) async fn run(mut self, mut requests: mpsc::Receiver<Request>) {
        // Who knows what is wanted may be away for long.
        if let Err(error) = self.resume().await {
            tracing::warn!(%error, "HAProxy is not started before it is known what is wanted");
        }
        loop {
            let next = self.next();
            let ended = async {
                match &mut self.child {
                    Some(child) => child.wait().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                request = requests.recv() => match request {
                    Some(Request::Apply(update, answer)) => {
                        let result = self.apply(&update).await;
                        if let Ok(report) = &result {
                            self.reports.send_replace(report.clone());
                        }
                        // Who asked may be gone.
                        let _ = answer.send(result);
                    }
                    Some(Request::Drain(grace, answer)) => {
                        self.drain(grace).await;
                        let _ = answer.send(());
                        return;
                    }
                    None => return,
                },
                status = ended => {
                    tracing::warn!(status = ?status.ok(), "HAProxy has ended");
                    self.child = None;
                    self.lost();
                    self.publish();
                }
                () = sleep_until(next) => {
                    if let Err(error) = self.tick().await {
                        tracing::warn!(%error, "HAProxy is not in step");
                    }
                    self.publish();
                }
            }
        }
    }

    /// When there is something to do by itself.
    fn next(&self) -> Instant {
        if !self.begun {
            return self.restart_at.unwrap_or_else(|| Instant::now() + Duration::from_secs(3600));
        }
        let mut at = self.restart_at.map_or(self.look_at, |restart| restart.min(self.look_at));
        if self.observed.is_none() {
            return at;
        }
        at = at.min(self.compare_at);
        if !self.leaving.is_empty() {
            at = at.min(self.sweep_at);
        }
        if !self.excluded.listeners.is_empty() {
            at = at.min(self.bind_at);
        }
        match (&self.reload, self.unsaved) {
            (Some(_), _) => at.min(self.reload_at()),
            (None, Some(since)) => at.min(since + SAVE),
            (None, None) => at,
        }
    }

    fn reload_at(&self) -> Instant {
        self.reloaded.map_or_else(Instant::now, |at| at + self.options.min_reload_interval)
    }

    fn report(&self) -> Report {
        let waiting = self.reload.is_some() || self.observed.is_none();
        Report { refused: self.refused.clone(), waiting }
    }

    fn publish(&self) {
        let report = self.report();
        self.reports.send_if_modified(|before| {
            let changed = *before != report;
            *before = report;
            changed
        });
    }

    async fn apply(&mut self, update: &Update) -> Result<Report, Error> {
        self.desired.apply(update);
        let members_only = !update.complete
            && update.certificates.is_empty()
            && update.cookie_secret.is_none()
            && update.pools.is_empty()
            && update.sites.is_empty()
            && update.listeners.is_empty();
        if members_only && self.observed.is_some() {
            self.apply_members(update).await?;
            return Ok(self.report());
        }
        self.forget_exclusions();
        self.render()?;
        if self.observed.is_none() {
            self.begun = true;
            if self.restart_at.is_none() {
                self.arrive().await?;
            }
            return Ok(self.report());
        }
        self.step().await?;
        Ok(self.report())
    }

    /// Members alone cost as much as there are of them, whatever else there is.
    async fn apply_members(&mut self, update: &Update) -> Result<(), Error> {
        let (mut coming, mut going) = (Vec::new(), Vec::new());
        for change in &update.members {
            let Some((name, servers)) = render::servers(&self.desired, &change.pool) else {
                continue;
            };
            let Some(now) = self.wanted.servers.get_mut(&name) else { continue };
            *now = servers;
            let running = self.observed.as_ref().and_then(|it| it.servers.get(&name));
            if let Some(running) = running
                && self.loaded.sections.get(&Section::Backend(name.clone()))
                    == self.wanted.sections.get(&Section::Backend(name.clone()))
            {
                diff_servers(&name, running, now, &mut coming, &mut going);
            }
        }
        coming.append(&mut going);
        self.tell(coming).await
    }

    fn render(&mut self) -> Result<(), Error> {
        let rendered = render(&self.desired, &self.excluded, &self.settings);
        let rendered = rendered.map_err(|why| trouble("writing the paths of sockets", why))?;
        self.wanted = rendered.wanted;
        self.refused = rendered.refused;
        Ok(())
    }

    /// Those that HAProxy refused get another try when they ask for something else.
    fn forget_exclusions(&mut self) {
        let desired = &self.desired;
        self.asked.retain(|consumer, asked| suspects::asks(desired, consumer) == *asked);
        let asked = &self.asked;
        self.excluded.consumers.retain(|consumer, _| asked.contains_key(consumer));
        self.excluded.certificates.retain(|hash, _| desired.certificates.contains_key(hash));
        self.excluded.listeners.retain(|key, _| desired.listeners.contains_key(key));
    }

    /// Finds out what runs, and brings it in step.
    async fn look_again(&mut self) -> Result<(), Error> {
        self.observe().await?;
        self.step().await
    }

    async fn step(&mut self) -> Result<(), Error> {
        let Some(observed) = &self.observed else { return Ok(()) };
        let found = diff(observed, &self.wanted);
        let reload = found.reload;
        let told = self.tell(found.commands).await;
        // What a command could not bring, a reload brings.
        self.reload = reload.or_else(|| told.as_ref().err().map(ToString::to_string));
        match &self.reload {
            Some(_) if self.observed.is_some() && self.reload_at() <= Instant::now() => {
                self.load().await
            }
            _ => Ok(()),
        }
    }

    async fn tick(&mut self) -> Result<(), Error> {
        let now = Instant::now();
        if self.restart_at.is_some_and(|at| at <= now) {
            self.restart_at = None;
            let arrived = if self.begun { self.arrive().await } else { self.resume().await };
            if arrived.is_err() {
                self.lost();
            }
            return arrived;
        }
        if self.look_at <= now {
            self.look_at = now + LOOK;
            self.look().await?;
        }
        if self.observed.is_none() {
            return Ok(());
        }
        if self.sweep_at <= now && !self.leaving.is_empty() {
            self.sweep_at = now + SWEEP;
            self.sweep().await?;
        }
        if self.bind_at <= now && !self.excluded.listeners.is_empty() {
            self.bind_at = now + BIND;
            self.try_binding();
            self.render()?;
            self.step().await?;
        }
        if self.compare_at <= now {
            self.compare_at = now + self.options.compare_every;
            self.compare().await?;
        }
        if self.reload.is_some() && self.reload_at() <= now {
            self.load().await?;
        }
        // What waits for a reload is not checked yet.
        if self.reload.is_none() && self.unsaved.is_some_and(|since| since + SAVE <= now) {
            self.save().await?;
        }
        Ok(())
    }
}
