//! The task that keeps HAProxy in step: takes updates, sends commands, reloads when it must and may, looks
//! after the process, and compares what runs with what is wanted. Everything it decides is decided by
//! `render` and `diff`; here are clocks, sockets and files.

use super::command::{self, Command};
use super::diff::{Observed, diff, diff_servers};
use super::driver::{Counters, Options};
use super::process;
use super::readback;
use super::render::{self, Settings, render};
use super::socket::Socket;
use super::text::Word;
use super::wanted::{Section, Wanted};
use crate::Error;
use crate::desired::Desired;
use crate::program::Excluded;
use crate::program::folder::Folder;
use crate::program::suspects::{self, Search, Suspect};
use bowline_core::backoff::Backoff;
use bowline_core::plan::Transport;
use bowline_core::update::{ListenerKey, Refusal, Report, Update};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpSocket;
use tokio::process::Child;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until};

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
    sections: BTreeMap<Section, String>,
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
            return Instant::now() + Duration::from_secs(3600);
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

    /// HAProxy is not there, or not the one we knew.
    fn lost(&mut self) {
        self.observed = None;
        self.leaving.clear();
        if self.options.exec && self.child.is_none() && self.restart_at.is_none() {
            // Everybody would come again at once otherwise; one process needs no dice.
            self.restart_at = Some(Instant::now() + self.restart.failed(u32::MAX));
        }
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
            if self.child.is_none() && self.restart_at.is_none() {
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

    /// The first update: HAProxy may run already, from an agent before us.
    async fn arrive(&mut self) -> Result<(), Error> {
        if self.admin.ask("show info\n").await.is_ok()
            && self.master.ask("show proc\n").await.is_ok()
        {
            tracing::info!("HAProxy runs already");
            return self.look_again().await;
        }
        if !self.options.exec {
            self.save().await?;
            return Err(trouble(
                &format!("asking HAProxy at {}", self.options.admin_socket.display()),
                "nobody answers; start it with the files that were just written",
            ));
        }
        self.load().await
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

    /// Sends commands. What HAProxy then has is known, unless it complains.
    async fn tell(&mut self, commands: Vec<Command>) -> Result<(), Error> {
        if commands.is_empty() {
            return Ok(());
        }
        self.unsaved.get_or_insert_with(Instant::now);
        self.counters.commands.inc_by(commands.len() as u64);
        let mut complaints = Vec::new();
        for part in commands.chunk_by(|a, b| !is_replace(a) && !is_replace(b)) {
            let answers = match part {
                [Command::Replace { map, entries }] => self.replace(map, entries).await,
                part => self.send(command::messages(part)).await,
            };
            match answers {
                Ok(answers) => complaints.extend(answers),
                Err(cause) => {
                    self.lost();
                    return Err(trouble("sending commands to HAProxy", cause));
                }
            }
        }
        for command in &commands {
            if let Command::Retire { backend, address } = command {
                let ends = Instant::now() + self.drain_time(backend);
                self.leaving.insert((backend.clone(), *address), ends);
                self.sweep_at = Instant::now() + SWEEP;
            }
            if let Command::Resume { backend, address } = command {
                self.leaving.remove(&(backend.clone(), *address));
            }
            if let Some(observed) = &mut self.observed {
                observed.done(command);
            }
        }
        if complaints.is_empty() {
            return Ok(());
        }
        tracing::warn!(
            ?complaints,
            "HAProxy does not take what it is told; what it has is read back"
        );
        self.observe().await?;
        let Some(observed) = &self.observed else { return Ok(()) };
        match diff(observed, &self.wanted).commands.is_empty() {
            true => Ok(()),
            false => Err(trouble("telling HAProxy", complaints.join("; "))),
        }
    }

    async fn send(&self, messages: Vec<String>) -> std::io::Result<Vec<String>> {
        let mut complaints = Vec::new();
        for message in messages {
            let answer = self.admin.ask(&message).await?;
            complaints.extend(command::complaints(&answer).into_iter().map(str::to_owned));
        }
        Ok(complaints)
    }

    /// Replaces a map from one moment to the next.
    async fn replace(&self, map: &str, entries: &[(Word, Word)]) -> std::io::Result<Vec<String>> {
        let answer = self.admin.ask(&format!("prepare map {map}\n")).await?;
        let Some(version) = answer.trim().strip_prefix("New version created: ") else {
            return Ok(vec![answer]);
        };
        let mut messages = command::entries_of(map, Some(version), entries);
        messages.push(format!("commit map @{version} {map}\n"));
        self.send(messages).await
    }

    fn drain_time(&self, backend: &Word) -> Duration {
        let mut pools = self.desired.pools.values();
        let pool = pools.find(|pool| Word::pool(&pool.name).as_ref() == Ok(backend));
        let seconds = pool.and_then(|pool| pool.timeouts.drain_seconds);
        seconds.map_or(DRAIN, |seconds| Duration::from_secs(u64::from(seconds)))
    }

    /// Reads back all that HAProxy has.
    async fn observe(&mut self) -> Result<(), Error> {
        match self.read_back().await {
            Ok((info, observed)) => {
                if self.pid != info.pid && self.pid != 0 {
                    self.counters.restarts.inc();
                    self.leaving.clear();
                }
                self.pid = info.pid;
                if self.loaded.mark != info.mark && info.mark == self.wanted.mark() {
                    self.loaded = self.loading();
                }
                self.observed = Some(observed);
                self.restart_at = None;
                // Servers that somebody before us retired are removed by us.
                let ends = Instant::now() + DRAIN;
                for (backend, servers) in self.observed.iter().flat_map(|it| &it.servers) {
                    for (address, _) in servers.iter().filter(|(_, it)| it.retired) {
                        self.leaving.entry((backend.clone(), *address)).or_insert(ends);
                    }
                }
                Ok(())
            }
            Err(cause) => {
                self.lost();
                Err(trouble("asking HAProxy what it has", cause))
            }
        }
    }

    async fn read_back(&self) -> std::io::Result<(readback::Info, Observed)> {
        let info = readback::info(&self.admin.ask("show info\n").await?);
        let mut observed = Observed {
            servers: readback::servers(&self.admin.ask("show servers state\n").await?),
            certificates: readback::certificates(&self.admin.ask("show ssl cert\n").await?),
            ..Observed::default()
        };
        if info.mark == self.loaded.mark {
            observed.sections.clone_from(&self.loaded.sections);
            observed.ranges.clone_from(&self.loaded.ranges);
        } else if info.mark == self.wanted.mark() {
            observed.sections.clone_from(&self.wanted.sections);
            observed.ranges.clone_from(&self.wanted.ranges);
        }
        for section in observed.sections.keys() {
            if let Section::Backend(name) = section {
                observed.servers.entry(name.clone()).or_default();
            }
        }
        observed
            .servers
            .retain(|name, _| observed.sections.contains_key(&Section::Backend(name.clone())));
        let maps = self.admin.ask("show map\n").await?;
        let lists = self.admin.ask("show ssl crt-list\n").await?;
        for map in self.wanted.maps.keys().filter(|map| maps.contains(&format!("({map})"))) {
            let answer = self.admin.ask(&format!("show map {map}\n")).await?;
            observed.maps.insert(map.clone(), readback::map(&answer));
        }
        for list in self.wanted.crt_lists.keys().filter(|list| lists.lines().any(|it| it == **list))
        {
            let answer = self.admin.ask(&format!("show ssl crt-list -n {list}\n")).await?;
            observed.crt_lists.insert(list.clone(), readback::crt_list(&answer));
        }
        Ok((info, observed))
    }

    async fn tick(&mut self) -> Result<(), Error> {
        let now = Instant::now();
        if self.restart_at.is_some_and(|at| at <= now) {
            self.restart_at = None;
            let arrived = self.arrive().await;
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

    /// Whether HAProxy is there and the one we know.
    async fn look(&mut self) -> Result<(), Error> {
        let info = match self.admin.ask("show info\n").await {
            Ok(answer) => readback::info(&answer),
            Err(cause) => {
                if self.observed.is_some() {
                    self.lost();
                    return Err(trouble("asking HAProxy how it is", cause));
                }
                return self.recover_socket().await;
            }
        };
        if self.observed.is_some() && info.pid == self.pid && info.mark == self.loaded.mark {
            self.restart.worked();
            return Ok(());
        }
        self.look_again().await
    }

    /// HAProxy runs, and its socket is gone. A worker takes the sockets of the one before it over, and does
    /// not see that their files are gone: it is told of another file, which it must make.
    async fn recover_socket(&mut self) -> Result<(), Error> {
        let Ok(answer) = self.master.ask("show proc\n").await else { return Ok(()) };
        if readback::processes(&answer).workers.is_empty() || self.reload_at() > Instant::now() {
            return Ok(());
        }
        let usual = &self.options.admin_socket;
        let socket = match self.settings.admin_socket == *usual {
            true => usual.with_extension("2.sock"),
            false => usual.clone(),
        };
        self.admin = Socket::new(&socket);
        self.settings.admin_socket = socket;
        self.load().await
    }

    /// Compares all that runs with all that is wanted, and counts what was otherwise.
    async fn compare(&mut self) -> Result<(), Error> {
        if self.reload.is_some() {
            return Ok(());
        }
        self.observe().await?;
        let Some(observed) = &self.observed else { return Ok(()) };
        let found = diff(observed, &self.wanted);
        let drift = found.commands.len() + usize::from(found.reload.is_some());
        if drift > 0 {
            tracing::warn!(drift, reload = ?found.reload, "HAProxy had something else than it was told");
            self.counters.drift.inc_by(drift as u64);
        }
        self.step().await
    }

    /// Removes retired servers that have no connections any more, and ends those of who had its time.
    async fn sweep(&mut self) -> Result<(), Error> {
        let now = Instant::now();
        let mut cuts = Vec::new();
        for ((backend, address), _) in self.leaving.iter().filter(|(_, ends)| **ends <= now) {
            cuts.push(Command::Cut { backend: backend.clone(), address: *address });
        }
        let lost = failed("removing servers");
        if let Err(cause) = self.send(command::messages(&cuts)).await {
            self.lost();
            return Err(lost(cause));
        }
        let leaving: Vec<_> = self.leaving.keys().cloned().collect();
        for (backend, address) in leaving {
            let command = Command::RemoveServer { backend: backend.clone(), address };
            let complaints =
                match self.send(command::messages(std::slice::from_ref(&command))).await {
                    Ok(complaints) => complaints,
                    Err(cause) => {
                        self.lost();
                        return Err(lost(cause));
                    }
                };
            if complaints.iter().any(|complaint| command::is_busy(complaint)) {
                continue;
            }
            self.leaving.remove(&(backend, address));
            if let Some(observed) = &mut self.observed {
                observed.done(&command);
            }
        }
        Ok(())
    }

    /// Finds out which listeners can be bound that HAProxy does not hold yet. Binding without listening
    /// takes no connection from anybody.
    fn try_binding(&mut self) {
        self.excluded.listeners.clear();
        for key in self.desired.listeners.keys() {
            if key.transport != Transport::Tcp || self.loaded.listeners.contains(key) {
                continue;
            }
            let bound = || {
                let socket =
                    if key.address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
                socket.set_reuseaddr(true)?;
                socket.set_reuseport(true)?;
                socket.bind(key.socket())
            };
            if let Err(why) = bound() {
                self.excluded.listeners.insert(*key, why.to_string());
            }
        }
    }

    /// Writes what is wanted, and makes it what HAProxy starts with.
    async fn save(&mut self) -> Result<(), Error> {
        let set =
            self.folder.write(&self.wanted.files()).map_err(failed("writing HAProxy's files"))?;
        self.folder.install(&set).map_err(failed("putting HAProxy's files in place"))?;
        self.unsaved = None;
        Ok(())
    }

    /// Writes, checks, puts in place, and loads: by a reload, or by starting HAProxy.
    async fn load(&mut self) -> Result<(), Error> {
        self.reloaded = Some(Instant::now());
        self.try_binding();
        self.bind_at = Instant::now() + BIND;
        self.render()?;
        self.checked().await?;
        let mark = self.wanted.mark();
        let runs = self.ask_master().await;
        match runs {
            Ok(answer) => {
                let before = readback::processes(&answer).failed;
                let reload = self.master.ask("reload\n").await;
                reload.map_err(failed("asking HAProxy's master to reload"))?;
                self.await_mark(&mark, Some(before)).await?;
                self.counters.reloads.inc();
                tracing::info!(why = self.reload.as_deref().unwrap_or("asked"), "HAProxy reloaded");
            }
            Err(_) if self.options.exec => {
                if self.child.is_none() {
                    let started = process::start(
                        &self.options.program,
                        &self.folder.config(),
                        &self.options.master_socket,
                    );
                    self.child = Some(started.map_err(failed("starting HAProxy"))?);
                }
                self.await_mark(&mark, None).await?;
            }
            Err(cause) => return Err(trouble("asking HAProxy's master", cause)),
        }
        self.loaded = self.loading();
        self.reload = None;
        self.leaving.clear();
        self.pid = 0;
        self.observe().await
    }

    /// What HAProxy has loaded when it has loaded what is wanted now.
    fn loading(&self) -> Loaded {
        let held = |key: &&ListenerKey| !self.excluded.listeners.contains_key(*key);
        Loaded {
            mark: self.wanted.mark(),
            sections: self.wanted.sections.clone(),
            ranges: self.wanted.ranges.clone(),
            listeners: self.desired.listeners.keys().filter(held).copied().collect(),
        }
    }

    /// What its master says. One that has just reloaded is away for a moment.
    async fn ask_master(&self) -> std::io::Result<String> {
        let there = self.child.is_some() || self.pid != 0;
        let until = Instant::now() + if there { MASTER } else { Duration::ZERO };
        loop {
            match self.master.ask("show proc\n").await {
                Err(_) if Instant::now() < until => sleep(Duration::from_millis(20)).await,
                said => return said,
            }
        }
    }

    /// Waits until HAProxy says that it has loaded this. What it then has is read back.
    async fn await_mark(&mut self, mark: &str, failures: Option<u32>) -> Result<(), Error> {
        let until = Instant::now() + LOADING;
        loop {
            if let Ok(answer) = self.admin.ask("show info\n").await
                && readback::info(&answer).mark == mark
            {
                return Ok(());
            }
            let refused = match failures {
                Some(before) => {
                    let answer = self.master.ask("show proc\n").await.unwrap_or_default();
                    readback::processes(&answer).failed > before
                }
                None => {
                    self.child.as_mut().is_some_and(|child| !matches!(child.try_wait(), Ok(None)))
                }
            };
            if refused || Instant::now() >= until {
                self.counters.failed_reloads.inc();
                let cause =
                    if refused { "it refuses; its log says why" } else { "it takes too long" };
                return Err(trouble("loading HAProxy's files", cause));
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Puts files in place that HAProxy accepts: what it refuses is found, told and left out.
    async fn checked(&mut self) -> Result<(), Error> {
        let wanted = self.wanted.clone();
        if let Some(why) = self.refuses(&wanted, true).await? {
            tracing::warn!(why, "HAProxy refuses its configuration; what it refuses is looked for");
            let all = suspects::all(&self.desired, &self.excluded);
            let none = self.trial(&all, &[])?;
            if let Some(why) = self.refuses(&none, false).await? {
                return Err(trouble("checking HAProxy's files", why));
            }
            let mut trials = self.excluded.clone();
            let mut search = Search::among(all.clone());
            while let Some(part) = search.next() {
                let wanted = self.trial(&all, part)?;
                search.tried(self.refuses(&wanted, false).await?);
            }
            for (suspect, why) in &search.found {
                tracing::warn!(?suspect, why, "left out");
                suspects::leave_out(&mut trials, suspect, why.clone());
                if let Suspect::Consumer(consumer) = suspect {
                    self.asked.insert(consumer.clone(), suspects::asks(&self.desired, consumer));
                }
            }
            self.excluded = trials;
            self.render()?;
            let wanted = self.wanted.clone();
            if let Some(why) = self.refuses(&wanted, true).await? {
                return Err(trouble("checking HAProxy's files", why));
            }
        }
        self.unsaved = None;
        Ok(())
    }

    fn trial(&self, all: &[Suspect], tried: &[Suspect]) -> Result<Wanted, Error> {
        let excluded = suspects::only(&self.excluded, all, tried);
        let rendered = render(&self.desired, &excluded, &self.settings);
        rendered.map(|it| it.wanted).map_err(|why| trouble("writing the paths of sockets", why))
    }

    /// What HAProxy has against this; if nothing and it is to be kept, it is in place.
    async fn refuses(&mut self, wanted: &Wanted, keep: bool) -> Result<Option<String>, Error> {
        let set = self.folder.write(&wanted.files()).map_err(failed("writing HAProxy's files"))?;
        let said = process::check(&self.options.program, &set.join(super::wanted::CONFIG)).await;
        match said {
            Ok(None) if keep => {
                self.folder.install(&set).map_err(failed("putting HAProxy's files in place"))?;
                Ok(None)
            }
            said => {
                self.folder.discard(&set);
                said.map_err(failed("checking HAProxy's files"))
            }
        }
    }

    /// Lets go: what we started ends, what was there stays.
    async fn drain(&mut self, grace: Duration) {
        if self.unsaved.is_some() && self.reload.is_none() {
            let _ = self.save().await;
        }
        if !self.options.exec {
            return;
        }
        let Ok(answer) = self.ask_master().await else { return };
        let master = readback::processes(&answer).master;
        process::finish(master);
        let gone = async {
            loop {
                if let Some(child) = &mut self.child {
                    let _ = child.wait().await;
                    return;
                }
                if self.master.ask("show proc\n").await.is_err() {
                    return;
                }
                sleep(Duration::from_millis(50)).await;
            }
        };
        if tokio::time::timeout(grace, gone).await.is_err() {
            process::end(master);
        }
    }
}

fn is_replace(command: &Command) -> bool {
    matches!(command, Command::Replace { .. })
}
