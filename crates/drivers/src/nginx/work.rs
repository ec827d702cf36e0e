//! The task that keeps nginx in step: takes updates, reloads when it must and may, looks after the process,
//! and asks what it has loaded. What nginx is to have is decided by `render`; here are clocks, sockets,
//! signals and files.

use super::driver::{Counters, Options};
use super::find;
use super::process;
use super::render::{Settings, render};
use super::status;
use super::wanted::{CONFIG, Wanted};
use crate::Error;
use crate::desired::Desired;
use crate::program::Excluded;
use crate::program::folder::Folder;
use crate::program::suspects::{self, Search, Suspect};
use bowline_core::backoff::Backoff;
use bowline_core::key::ConsumerRef;
use bowline_core::plan::Transport;
use bowline_core::update::{ListenerKey, Refusal, Report, Update};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tokio::net::TcpSocket;
use tokio::process::Child;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until};

/// How often nginx is asked whether it is still the same.
const LOOK: Duration = Duration::from_secs(1);
/// How often addresses that could not be bound are tried again.
const BIND: Duration = Duration::from_secs(2);
/// How long new processes may take until they answer.
const LOADING: Duration = Duration::from_secs(60);
/// How often they are asked meanwhile.
const SOON: Duration = Duration::from_millis(10);

/// What the task is asked.
#[derive(Debug)]
pub(super) enum Request {
    /// Bring this into force.
    Apply(Box<Update>, oneshot::Sender<Result<Report, Error>>),
    /// Let go of nginx within this time.
    Drain(Duration, oneshot::Sender<()>),
}

/// The nginx that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Running {
    master: u32,
    /// What it has loaded; none while it has not said so.
    mark: Option<String>,
}

#[derive(Debug)]
pub(super) struct Worker {
    options: Options,
    settings: Settings,
    counters: Counters,
    folder: Folder,
    desired: Desired,
    excluded: Excluded,
    /// What the excluded consumers asked for when they were.
    asked: BTreeMap<ConsumerRef, String>,
    wanted: Wanted,
    refused: Vec<Refusal>,
    /// None while nobody answers.
    running: Option<Running>,
    /// What nginx listens at.
    held: BTreeSet<ListenerKey>,
    /// Whether something was given that is not loaded yet.
    due: bool,
    reloaded: Option<Instant>,
    child: Option<Child>,
    restart: Backoff,
    restart_at: Option<Instant>,
    begun: bool,
    reports: watch::Sender<Report>,
    look_at: Instant,
    bind_at: Instant,
}

fn trouble(doing: &str, cause: impl Display) -> Error {
    Error { doing: doing.to_owned(), cause: cause.to_string(), retry: true }
}

fn failed(doing: &str) -> impl Fn(std::io::Error) -> Error {
    let doing = doing.to_owned();
    move |cause| trouble(&doing, cause)
}

impl Worker {
    pub(super) fn new(
        options: Options,
        settings: Settings,
        counters: Counters,
        folder: Folder,
        reports: watch::Sender<Report>,
    ) -> Self {
        let now = Instant::now();
        Self {
            options,
            settings,
            counters,
            folder,
            desired: Desired::default(),
            excluded: Excluded::default(),
            asked: BTreeMap::new(),
            wanted: Wanted::default(),
            refused: Vec::new(),
            running: None,
            held: BTreeSet::new(),
            due: false,
            reloaded: None,
            child: None,
            restart: Backoff::new(Duration::from_millis(200), Duration::from_secs(30)),
            restart_at: None,
            begun: false,
            reports,
            look_at: now,
            bind_at: now,
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
                    tracing::warn!(status = ?status.ok(), "nginx has ended");
                    self.child = None;
                    self.lost();
                    self.publish();
                }
                () = sleep_until(next) => {
                    if let Err(error) = self.tick().await {
                        tracing::warn!(%error, "nginx is not in step");
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
        if self.running.is_none() {
            return at;
        }
        if !self.excluded.listeners.is_empty() {
            at = at.min(self.bind_at);
        }
        if self.due { at.min(self.reload_at()) } else { at }
    }

    fn reload_at(&self) -> Instant {
        self.reloaded.map_or_else(Instant::now, |at| at + self.options.min_reload_interval)
    }

    fn report(&self) -> Report {
        let waiting = self.due || self.running.is_none();
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

    /// nginx is not there.
    fn lost(&mut self) {
        if self.running.take().is_some_and(|it| it.mark.is_some()) {
            self.counters.restarts.inc();
        }
        self.held.clear();
        self.due = true;
        if self.options.exec && self.child.is_none() && self.restart_at.is_none() {
            // Everybody would come again at once otherwise; one process needs no dice.
            self.restart_at = Some(Instant::now() + self.restart.failed(u32::MAX));
        }
    }

    async fn apply(&mut self, update: &Update) -> Result<Report, Error> {
        self.due |= update.complete || !update.is_empty();
        self.desired.apply(update);
        self.forget_exclusions();
        self.begun = true;
        if self.running.is_some() {
            self.step().await?;
        } else if self.child.is_none() && self.restart_at.is_none() {
            self.arrive().await?;
        }
        Ok(self.report())
    }

    /// Loads what is due, if it may be by now.
    async fn step(&mut self) -> Result<(), Error> {
        if self.due && self.reload_at() <= Instant::now() { self.load().await } else { Ok(()) }
    }

    fn render(&mut self) -> Result<(), Error> {
        let rendered = render(&self.desired, &self.excluded, &self.settings);
        let rendered =
            rendered.map_err(|why| trouble("writing the paths of nginx's files", why))?;
        self.wanted = rendered.wanted;
        self.refused = rendered.refused;
        Ok(())
    }

    /// Those that nginx refused get another try when they ask for something else.
    fn forget_exclusions(&mut self) {
        let desired = &self.desired;
        self.asked.retain(|consumer, asked| suspects::asks(desired, consumer) == *asked);
        let asked = &self.asked;
        self.excluded.consumers.retain(|consumer, _| asked.contains_key(consumer));
        self.excluded.certificates.retain(|hash, _| desired.certificates.contains_key(hash));
        self.excluded.listeners.retain(|key, _| desired.listeners.contains_key(key));
    }

    /// nginx may run already, from an agent before us. Its socket may be gone, or another than the usual.
    async fn arrive(&mut self) -> Result<(), Error> {
        let there = find::holders(&self.sockets());
        if let Some(master) = there.iter().copied().find(|pid| find::is_master(*pid)) {
            tracing::info!(master, "nginx runs already");
            if let Some(socket) = find::socket_of(master, &self.sockets()) {
                self.settings.status_socket = socket;
            }
            let said = status::ask(&self.settings.status_socket).await;
            self.running = Some(Running { master, mark: said.ok().map(|said| said.mark) });
            self.restart_at = None;
            self.held = std::fs::read_to_string(self.folder.config())
                .map_or_else(|_| BTreeSet::new(), |config| listening(&config));
            return self.load().await;
        }
        if self.options.exec {
            self.end_orphans().await;
            return self.load().await;
        }
        let socket = self.settings.status_socket.clone();
        if status::ask(&socket).await.is_ok() {
            let cause = "its master is not to be seen from here";
            return Err(trouble("looking for nginx's master", cause));
        }
        self.try_binding();
        self.render()?;
        self.checked().await?;
        Err(trouble(
            &format!("asking nginx at {}", socket.display()),
            "nobody answers; start it with the file that was just written",
        ))
    }

    /// Processes whose master was killed hold on to their addresses: they finish what they have.
    async fn end_orphans(&self) {
        let until = Instant::now() + LOADING;
        loop {
            let mut orphans = find::holders(&self.sockets());
            orphans.retain(|pid| find::takes_connections(*pid));
            if orphans.is_empty() || Instant::now() >= until {
                return;
            }
            orphans.into_iter().for_each(process::finish);
            sleep(SOON).await;
        }
    }

    async fn tick(&mut self) -> Result<(), Error> {
        let now = Instant::now();
        if self.restart_at.is_some_and(|at| at <= now) {
            self.restart_at = None;
            let arrived = self.arrive().await;
            if self.running.is_none() {
                self.lost();
            }
            return arrived;
        }
        if self.look_at <= now {
            self.look_at = now + LOOK;
            self.look().await?;
        }
        if self.running.is_none() {
            return Ok(());
        }
        if self.bind_at <= now && !self.excluded.listeners.is_empty() {
            self.bind_at = now + BIND;
            let before = self.excluded.listeners.clone();
            self.try_binding();
            self.due |= before != self.excluded.listeners;
        }
        self.step().await
    }

    /// Whether nginx is there and has what it was given.
    async fn look(&mut self) -> Result<(), Error> {
        match (status::ask(&self.settings.status_socket).await, self.running.clone()) {
            (Ok(said), Some(running)) if Some(&said.mark) == running.mark.as_ref() => {
                self.restart.worked();
                Ok(())
            }
            (Ok(said), Some(running)) if find::master_of(said.pid) == Some(running.master) => {
                if running.mark.is_some() {
                    tracing::warn!("nginx has loaded something else than it was given");
                    self.counters.drift.inc();
                }
                self.running = Some(Running { mark: Some(said.mark), ..running });
                self.due = true;
                Ok(())
            }
            (Ok(_), Some(_)) => {
                self.lost();
                self.look_again().await
            }
            (Ok(_), None) => self.look_again().await,
            (Err(cause), Some(running)) if find::is_master(running.master) => {
                self.due |= status::is_gone(&cause);
                if self.due { Ok(()) } else { Err(trouble("asking nginx how it is", cause)) }
            }
            (Err(cause), Some(_)) => {
                self.lost();
                Err(trouble("asking nginx how it is", cause))
            }
            (Err(_), None) => Ok(()),
        }
    }

    /// Where nginx may say what it has loaded.
    fn sockets(&self) -> [PathBuf; 2] {
        ["status.sock", "status-2.sock"].map(|name| self.options.folder.join(name))
    }

    /// nginx keeps the socket that it has, and does not see that somebody has removed its file: it is to be told
    /// of another.
    async fn find_socket(&mut self, master: u32) {
        let sockets = self.sockets();
        let Some(held) = find::socket_of(master, &sockets) else { return };
        let gone = status::ask(&held).await.is_err_and(|cause| status::is_gone(&cause));
        let other = sockets.into_iter().find(|it| *it != held).filter(|_| gone);
        self.settings.status_socket = other.unwrap_or(held);
    }

    async fn look_again(&mut self) -> Result<(), Error> {
        if self.child.is_none() && self.restart_at.is_none() { self.arrive().await } else { Ok(()) }
    }

    /// Finds out which listeners can be bound that nginx does not hold yet. Binding without listening takes no
    /// connection from anybody.
    fn try_binding(&mut self) {
        self.excluded.listeners.clear();
        for key in self.desired.listeners.keys().filter(|key| !self.held.contains(*key)) {
            let bound = match key.transport {
                Transport::Tcp => try_tcp(key.socket()),
                Transport::Udp => std::net::UdpSocket::bind(key.socket()).map(drop),
                Transport::Sctp => continue,
            };
            if let Err(why) = bound {
                self.excluded.listeners.insert(*key, why.to_string());
            }
        }
    }

    /// Writes, checks, puts in place, and loads: by a reload, or by starting nginx.
    async fn load(&mut self) -> Result<(), Error> {
        self.reloaded = Some(Instant::now());
        self.try_binding();
        self.bind_at = Instant::now() + BIND;
        if let Some(Running { master, .. }) = self.running {
            self.find_socket(master).await;
        }
        self.render()?;
        let running = self.running.clone();
        let mark = self.wanted.mark();
        if running.as_ref().is_some_and(|it| it.mark.as_ref() == Some(&mark)) {
            self.due = false;
            return Ok(());
        }
        self.checked().await?;
        // Something may be left out now.
        let mark = self.wanted.mark();
        let master = match running {
            Some(Running { master, .. }) => {
                let old = find::workers(master);
                self.running = Some(Running { master, mark: None });
                if !process::reload(master) {
                    self.lost();
                    return Err(trouble("telling nginx to reload", "its master is gone"));
                }
                self.await_mark(master, &mark, &old).await?;
                self.counters.reloads.inc();
                tracing::info!(mark, "nginx reloaded");
                master
            }
            None if self.options.exec => {
                // One that was killed leaves it behind, and the next cannot make it again.
                let _ = std::fs::remove_file(&self.settings.status_socket);
                let started = process::start(&self.options.program, &self.folder.config());
                let child = self.child.insert(started.map_err(failed("starting nginx"))?);
                let master = child.id().ok_or_else(|| trouble("starting nginx", "it has ended"))?;
                self.running = Some(Running { master, mark: None });
                self.await_mark(master, &mark, &[]).await?;
                master
            }
            None => return Err(trouble("loading nginx's file", "nginx does not run")),
        };
        self.running = Some(Running { master, mark: Some(mark) });
        let held = |key: &&ListenerKey| !self.excluded.listeners.contains_key(*key);
        self.held = self.desired.listeners.keys().filter(held).copied().collect();
        self.due = false;
        Ok(())
    }

    /// Waits until new processes say that they have loaded this, and these old ones take nothing any more.
    async fn await_mark(&mut self, master: u32, mark: &str, old: &[u32]) -> Result<(), Error> {
        let until = Instant::now() + LOADING;
        let cause = loop {
            // The socket is made before them.
            let loaded = find::workers(master).iter().any(|pid| !old.contains(pid));
            let said = status::ask(&self.settings.status_socket).await;
            let gone = said.as_ref().is_err_and(status::is_gone);
            if said.is_ok_and(|said| said.mark == mark)
                && !old.iter().any(|pid| find::takes_connections(*pid))
            {
                return Ok(());
            }
            let ended =
                self.child.as_mut().is_some_and(|child| !matches!(child.try_wait(), Ok(None)));
            if ended {
                break "it has ended; its log says why";
            }
            if loaded && gone {
                break "somebody has removed its socket";
            }
            if Instant::now() >= until {
                break "it takes too long";
            }
            sleep(SOON).await;
        };
        self.counters.failed_reloads.inc();
        Err(trouble("loading nginx's file", cause))
    }

    /// Puts files in place that nginx accepts: what it refuses is found, told and left out.
    async fn checked(&mut self) -> Result<(), Error> {
        let wanted = self.wanted.clone();
        let Some(why) = self.refuses(&wanted, true).await? else { return Ok(()) };
        tracing::warn!(why, "nginx refuses its file; what it refuses is looked for");
        let all = suspects::all(&self.desired, &self.excluded);
        let none = self.trial(&all, &[])?;
        if let Some(why) = self.refuses(&none, false).await? {
            return Err(trouble("checking nginx's file", why));
        }
        let mut excluded = self.excluded.clone();
        let mut search = Search::among(all.clone());
        while let Some(part) = search.next() {
            let wanted = self.trial(&all, part)?;
            search.tried(self.refuses(&wanted, false).await?);
        }
        for (suspect, why) in &search.found {
            tracing::warn!(?suspect, why, "left out");
            suspects::leave_out(&mut excluded, suspect, why.clone());
            if let Suspect::Consumer(consumer) = suspect {
                self.asked.insert(consumer.clone(), suspects::asks(&self.desired, consumer));
            }
        }
        self.excluded = excluded;
        self.render()?;
        let wanted = self.wanted.clone();
        match self.refuses(&wanted, true).await? {
            Some(why) => Err(trouble("checking nginx's file", why)),
            None => Ok(()),
        }
    }

    fn trial(&self, all: &[Suspect], tried: &[Suspect]) -> Result<Wanted, Error> {
        let excluded = suspects::only(&self.excluded, all, tried);
        let rendered = render(&self.desired, &excluded, &self.settings);
        rendered
            .map(|it| it.wanted)
            .map_err(|why| trouble("writing the paths of nginx's files", why))
    }

    /// What nginx has against this; if nothing and it is to be kept, it is in place.
    async fn refuses(&mut self, wanted: &Wanted, keep: bool) -> Result<Option<String>, Error> {
        let set = self.folder.write(&wanted.files()).map_err(failed("writing nginx's files"))?;
        let said = process::check(&self.options.program, &set.join(CONFIG)).await;
        match said {
            Ok(None) if keep => {
                self.folder.install(&set).map_err(failed("putting nginx's files in place"))?;
                Ok(None)
            }
            said => {
                self.folder.discard(&set);
                said.map_err(failed("checking nginx's file"))
            }
        }
    }

    /// Lets go: what we started ends, what was there stays.
    async fn drain(&mut self, grace: Duration) {
        if !self.options.exec {
            return;
        }
        let child = self.child.as_ref().and_then(Child::id);
        let Some(master) = child.or(self.running.as_ref().map(|it| it.master)) else { return };
        process::finish(master);
        let gone = async {
            if let Some(child) = &mut self.child {
                let _ = child.wait().await;
            }
            while find::is_master(master) {
                sleep(SOON).await;
            }
        };
        if tokio::time::timeout(grace, gone).await.is_err() {
            process::end(master);
        }
    }
}

fn try_tcp(at: SocketAddr) -> std::io::Result<()> {
    let socket = if at.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(at)
}

/// What an nginx with this file of ours listens at. No text of a user begins a line.
fn listening(config: &str) -> BTreeSet<ListenerKey> {
    let lines = config.lines().filter_map(|line| line.trim_start().strip_prefix("listen "));
    let key = |line: &str| {
        let mut words = line.trim_end_matches(';').split(' ');
        let at: SocketAddr = words.next()?.parse().ok()?;
        let transport = if words.any(|it| it == "udp") { Transport::Udp } else { Transport::Tcp };
        Some(ListenerKey { address: at.ip(), port: at.port(), transport })
    };
    lines.filter_map(key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nginx_listens_at_is_read_from_its_file() {
        let golden = include_str!("render/everything.golden");
        let found: Vec<_> = listening(golden)
            .into_iter()
            .map(|it| (it.socket().to_string(), it.transport))
            .collect();
        let tcp = |at: &str| (at.to_owned(), Transport::Tcp);
        assert_eq!(
            found,
            [
                tcp("127.0.0.1:5432"),
                ("127.0.0.1:5353".to_owned(), Transport::Udp),
                tcp("127.0.0.1:8080"),
                tcp("127.0.0.1:8443"),
                tcp("[::1]:8443"),
            ]
            .into_iter()
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect::<Vec<_>>()
        );
    }
}
