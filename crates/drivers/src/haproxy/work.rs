//! HAProxy as a program that is driven: what it has is known, what it can be told it is told, and the rest is a
//! reload. Everything is decided by `render` and `diff`; here are its sockets.

mod life;
mod see;
mod speak;

use super::budget::{self, Held};
use super::command::Command;
use super::diff::{Observed, diff};
use super::driver::Options;
use super::lagging::{Lagging, SMALL, Split, Stay};
use super::leaving::Leaving;
use super::log::Log;
use super::render::{self, Rendered, Settings};
use super::socket::Socket;
use super::text::{BadText, Word};
use super::version::Version;
use super::wanted::{Body, CONFIG, Section, Servers, Wanted};
use crate::Error;
use crate::desired::Desired;
use crate::program::causes::is_of_members;
use crate::program::work::{Program, Seen};
use crate::program::{Excluded, process, trouble};
use bowline_core::update::{MemberChange, Update};
use life::Loading;
use nix::sys::signal::Signal;
use prometheus_client::metrics::counter::Counter;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How often servers that were retired are tried to be removed.
const SWEEP: Duration = Duration::from_millis(500);
/// How many of them at a time: about 20 ms, for which everything else waits.
const SWEPT: usize = 1_000;
/// How long HAProxy is not told again of servers that it did not take.
const RETRY: Duration = Duration::from_secs(1);
/// How long files may be behind what runs.
const SAVE: Duration = Duration::from_secs(2);
/// How long connections of a removed member live on where the plan does not say.
const DRAIN: Duration = Duration::from_secs(30);
/// How long a master may be away while it reloads.
const MASTER: Duration = Duration::from_secs(3);

type Common = crate::program::common::Common<Proxy>;

/// What HAProxy loaded last.
#[derive(Debug, Default)]
struct Loaded {
    mark: String,
    sections: BTreeMap<Section, Body>,
    ranges: BTreeMap<String, Vec<Word>>,
}

/// What is known of HAProxy.
#[derive(Debug)]
pub(super) struct Proxy {
    options: Options,
    settings: Settings,
    commands: Counter,
    log: Log,
    admin: Socket,
    master: Socket,
    /// What HAProxy has; none while that is not known.
    observed: Option<Observed>,
    loaded: Loaded,
    pid: u32,
    /// Whether a load is under way: then another worker is none that was started by itself.
    loads: bool,
    /// Whether it runs and its socket is gone.
    deaf: bool,
    /// Backends with servers that HAProxy is not told of yet.
    lagging: Lagging,
    /// The namespaces of backends that run, also of those of which the pool is gone.
    owners: BTreeMap<Word, Arc<str>>,
    /// Backends that nothing leads to any more: they are to have no servers.
    gone: BTreeSet<Word>,
    /// Namespaces with servers that HAProxy did not take, for which no reload was asked yet.
    refused: BTreeSet<Arc<str>>,
    /// When HAProxy is told of such servers again.
    retry_at: Instant,
    /// Servers that were retired.
    leaving: Leaving,
    /// Since when files are behind.
    unsaved: Option<Instant>,
    compare_at: Instant,
    sweep_at: Instant,
}

impl Proxy {
    pub(super) fn new(options: Options, version: Version, commands: Counter) -> Self {
        let now = Instant::now();
        Self {
            settings: Settings {
                admin_socket: options.admin_socket.clone(),
                peers_socket: options.folder.join("peers.sock"),
                access_log: options.access_log,
                version,
                shutdown_seconds: options.shutdown_timeout.as_secs(),
                descriptors: usize::try_from(process::files()).unwrap_or(usize::MAX),
            },
            commands,
            log: Log::new(&options.folder),
            admin: Socket::new(&options.admin_socket),
            master: Socket::new(&options.master_socket),
            options,
            observed: None,
            loaded: Loaded::default(),
            pid: 0,
            loads: false,
            deaf: false,
            lagging: Lagging::default(),
            owners: BTreeMap::new(),
            gone: BTreeSet::new(),
            refused: BTreeSet::new(),
            retry_at: now,
            leaving: Leaving::default(),
            unsaved: None,
            compare_at: now,
            sweep_at: now,
        }
    }

    /// What HAProxy has, and so keeps where there are too few files for all.
    fn held(&self) -> &Held {
        static NOTHING: Held = Held::new();
        self.observed.as_ref().map_or(&NOTHING, |observed| &observed.servers)
    }

    /// HAProxy is to have these members. They cost as much as there are of them, whatever else there is. Those for which
    /// health checks have to be shared out again are left; true: there are none.
    fn take_members(&mut self, common: &mut Common, changes: &[MemberChange]) -> bool {
        let (mut lagging, mut all) = (Vec::new(), true);
        for change in changes {
            let Some((name, servers)) = servers_after(&common.wanted, change) else { continue };
            if has_to_share(&common.wanted, &name, &servers) {
                all = false;
                continue;
            }
            common.wanted.replace_servers(&name, servers);
            lagging.push(name);
        }
        self.lag(common, lagging);
        all
    }

    /// Tells HAProxy whatever differs from what is wanted; of servers the next part.
    async fn step(&mut self, common: &mut Common) {
        let Some(observed) = &self.observed else { return };
        let found = diff(observed, &common.wanted);
        let told = self.tell_difference(common, found.commands).await;
        common.reload = found.reload;
        if let Err(error) = told {
            self.bring_by_reload(common, &error);
        } else if self.lagging.is_refused() {
            common.reload.get_or_insert_with(|| "HAProxy did not accept servers".to_owned());
        }
    }

    async fn tell_difference(
        &mut self,
        common: &mut Common,
        commands: Vec<Command>,
    ) -> Result<(), Error> {
        let Some(observed) = &self.observed else { return Ok(()) };
        let split = Split::of(commands, &common.wanted);
        let opening = split.opening(observed, &common.wanted);
        let Split { structure, changed, gone } = split;
        // Something may lead to them again until the structure is told.
        self.gone.retain(|backend| gone.contains(backend));
        self.lag(common, changed);
        let come = self.tell_opening(common, opening).await;
        let come = come.and(self.tell_servers(common, Stay::All, usize::MAX).await);
        let told = self.send_all(common, structure).await;
        self.lag(common, gone.iter().cloned());
        self.gone = gone;
        let go = self.tell_servers(common, Stay::None, usize::MAX).await;
        come.and(told).and(go.map(drop))
    }

    /// What a command could not bring, a reload brings. The namespaces with servers that HAProxy did not take wait for it.
    fn bring_by_reload(&mut self, common: &mut Common, error: &Error) {
        tracing::warn!(%error, "HAProxy refuses commands; it is reloaded instead");
        common.reload.get_or_insert_with(|| error.to_string());
        common.ask_for_reload_of(std::mem::take(&mut self.refused));
    }

    /// Compares all that runs with all that is wanted, and counts what was otherwise.
    async fn compare(&mut self, common: &mut Common) -> Result<(), Error> {
        let due = common.reload.is_some();
        self.observe(common).await?;
        let Some(observed) = &self.observed else { return Ok(()) };
        let found = diff(observed, &common.wanted);
        if found.reload.is_some() && !due {
            common.pace.need();
        }
        let reloads = usize::from(found.reload.is_some() && !due);
        let split = Split::of(found.commands, &common.wanted);
        // What HAProxy is not told of yet is no drift.
        let lagging = &self.lagging;
        let lags = !lagging.is_empty() || lagging.holds() || lagging.is_refused();
        let servers = if lags { 0 } else { split.changed.len() + split.gone.len() };
        let drift = split.structure.len() + servers + reloads;
        if drift > 0 {
            tracing::warn!(drift, reload = ?found.reload, "HAProxy's state differs from what it was told");
            common.counters.drift.inc_by(drift as u64);
        }
        self.step(common).await;
        Ok(())
    }

    /// Writes what is wanted, and makes it what HAProxy starts with.
    fn save(&mut self, common: &mut Common) -> Result<(), Error> {
        // The disk may be full: then it is tried again as late as after a change.
        self.unsaved = Some(Instant::now());
        common.save()?;
        self.unsaved = None;
        Ok(())
    }
}

impl Program for Proxy {
    const NAME: &'static str = "HAProxy";
    const CONFIG: &'static str = CONFIG;
    const CHECK: &'static [&'static str] = &["-c", "-f"];
    const FINISH: Signal = Signal::SIGUSR1;
    const REUSES_PORTS: bool = true;
    const CARRIES_UDP: bool = false;
    const IS_TOLD_MEMBERS: bool = true;
    type Wanted = Wanted;
    type Loading = Loading;

    fn render(&self, desired: &Desired, excluded: &Excluded) -> Result<Rendered, BadText> {
        render::render(desired, excluded, &self.settings, self.held())
    }

    fn most_listeners(&self) -> usize {
        budget::most_listeners(self.settings.descriptors)
    }

    fn files(wanted: &Wanted) -> BTreeMap<String, Vec<u8>> {
        wanted.files()
    }

    fn complaint(said: &str) -> String {
        let alert = said.lines().find(|line| line.contains("[ALERT]")).unwrap_or(said.trim());
        // Without the pid and the path of the file, which mean nothing to the reader.
        alert.split(" : ").skip(1).last().unwrap_or(alert).to_owned()
    }

    fn runs(&self) -> bool {
        self.observed.is_some()
    }

    async fn find(&mut self, common: &mut Common) -> Result<bool, Error> {
        let there = common.child.is_some();
        if self.admin.ask_patiently("show info\n", there, MASTER).await.is_err()
            || self.master.ask_patiently("show proc\n", there, MASTER).await.is_err()
        {
            return Ok(false);
        }
        self.observe(common).await.map(|()| true)
    }

    async fn start(&mut self, common: &mut Common) -> Result<(), Error> {
        if self.master.ask("show proc\n").await.is_ok() {
            return Ok(());
        }
        let socket = format!("{},mode,600,level,admin", self.options.master_socket.display());
        common.start(&["-W", "-S", &socket, "-f"], self.log.stdio())
    }

    async fn tell_members(
        &mut self,
        common: &mut Common,
        changes: &[MemberChange],
        untold: &BTreeSet<Arc<str>>,
        is_replaced: bool,
    ) -> Result<bool, Error> {
        let all = self.take_members(common, changes);
        let most = if is_replaced { SMALL } else { usize::MAX };
        self.tell_servers(common, Stay::Of(untold), most).await.map(|_| all)
    }

    async fn tell_on(
        &mut self,
        common: &mut Common,
        untold: &BTreeSet<Arc<str>>,
        is_replaced: bool,
    ) -> Result<bool, Error> {
        let most = if is_replaced { SMALL } else { usize::MAX };
        self.tell_servers(common, Stay::Of(untold), most).await
    }

    async fn tell(&mut self, common: &mut Common, update: Option<&Update>) -> Result<(), Error> {
        let members = update.is_some_and(is_of_members);
        let (mut refused, mut all) = (None, true);
        if let Some(update) = update {
            let untold = common.changed.structure.clone();
            all = self.take_members(common, &update.members);
            // Members need not wait until everything is rendered.
            refused = self.tell_servers(common, Stay::Of(&untold), usize::MAX).await.err();
            if let Some(error) = refused.take_if(|_| self.observed.is_none()) {
                return Err(error);
            }
            if all && members && refused.is_none() {
                return Ok(());
            }
        }
        let waited = common.reload.is_some();
        common.render(self)?;
        self.step(common).await;
        // A change of members needs none that is due already.
        if common.reload.is_some() && !(waited && members) {
            // Health checks that are shared out again may need one.
            common.ask_for_reload(!all);
        }
        if let Some(error) = refused {
            self.bring_by_reload(common, &error);
        }
        Ok(())
    }

    async fn prepare(&mut self, _common: &mut Common) {
        if std::mem::take(&mut self.deaf) {
            self.take_other_socket();
        }
    }

    fn needs_load(&self, wanted: &Wanted) -> bool {
        self.observed.as_ref().is_none_or(|observed| diff(observed, wanted).reload.is_some())
    }

    async fn load(&mut self, common: &mut Common) -> Result<Loading, Error> {
        self.unsaved = None;
        self.loads = true;
        let begun = self.reload_or_start(common).await;
        self.loads = begun.is_ok();
        begun
    }

    async fn has_loaded(
        &mut self,
        common: &mut Common,
        loading: &mut Loading,
    ) -> Result<bool, Error> {
        let has = self.has_mark(common, loading).await;
        if matches!(has, Ok(false)) {
            return Ok(false);
        }
        self.loads = false;
        if let Err(error) = has {
            // What HAProxy was told meanwhile may have gone to a process that did not stay.
            if self.observed.is_some() {
                self.observe(common).await?;
            }
            return Err(error);
        }
        self.loaded = std::mem::take(&mut loading.loaded);
        self.leaving.clear();
        self.lagging.release();
        self.lagging.retry();
        self.pid = 0;
        self.observe(common).await?;
        Ok(true)
    }

    /// Each load has one worker.
    async fn old(&self, common: &Common) -> Option<Vec<Vec<u32>>> {
        let found = self.processes(common).await.ok()?;
        Some(found.old.into_iter().rev().map(|pid| vec![pid]).collect())
    }

    async fn end(&self, common: &Common, pids: &[u32]) {
        let found = self.processes(common).await.unwrap_or_default();
        for pid in pids.iter().filter(|pid| found.old.contains(pid)) {
            if !process::end_child(*pid, found.master) {
                self.end_sessions(*pid).await;
            }
        }
    }

    async fn look(&mut self, common: &mut Common) -> Result<Seen, Error> {
        self.log.pass_on();
        self.look_at_it(common).await
    }

    fn tend_at(&self, common: &Common) -> Option<Instant> {
        let sweep_at = (!self.leaving.is_empty()).then_some(self.sweep_at);
        let save_at = self.unsaved.filter(|_| common.reload.is_none()).map(|since| since + SAVE);
        let lagging_at = (!self.lagging.is_empty()).then(Instant::now);
        let retry_at = self.lagging.is_refused().then_some(self.retry_at);
        let all = [Some(self.compare_at), sweep_at, save_at, lagging_at, retry_at];
        all.into_iter().flatten().min()
    }

    async fn tend(&mut self, common: &mut Common) -> Result<(), Error> {
        if self.retry_at <= Instant::now() {
            self.lagging.retry();
        }
        if !self.lagging.is_empty()
            && let Err(error) = self.tell_servers(common, Stay::None, usize::MAX).await
        {
            if self.observed.is_none() {
                return Err(error);
            }
            self.bring_by_reload(common, &error);
        }
        let now = Instant::now();
        if self.sweep_at <= now && !self.leaving.is_empty() {
            self.sweep_at = now + SWEEP;
            self.sweep(common).await?;
        }
        if self.compare_at <= now {
            self.compare_at = now + self.options.compare_every;
            self.compare(common).await?;
        }
        // What waits for a reload is not checked yet.
        if common.reload.is_none() && self.unsaved.is_some_and(|since| since + SAVE <= now) {
            self.save(common)?;
        }
        Ok(())
    }

    fn lost(&mut self, common: &mut Common) {
        self.observed = None;
        self.lagging.clear();
        self.leaving.clear();
        // Addresses that it had may be gone with it.
        common.held.clear();
        common.restart_later();
    }

    fn leave(&mut self, common: &mut Common) {
        self.log.pass_on();
        if self.unsaved.is_some() && common.reload.is_none() {
            // The agent ends, and does not try it again.
            let _ = self.save(common);
        }
    }

    async fn master(&self, common: &Common) -> Option<u32> {
        self.processes(common).await.ok().map(|it| it.master)
    }
}

/// The backend of a pool and its servers after a change of members, where a plan with this pool is rendered so.
fn servers_after(wanted: &Wanted, change: &MemberChange) -> Option<(Word, Servers)> {
    let name = Word::pool(&change.pool).ok()?;
    let servers = wanted.servers.get(&name)?.after(&change.members);
    Some((name, servers))
}

/// Whether a backend cannot have these servers before health checks are shared out again: there would be more than
/// HAProxy has files for, or there are files for members without a check.
fn has_to_share(wanted: &Wanted, name: &Word, after: &Servers) -> bool {
    let Some(before) = wanted.servers.get(name) else { return false };
    let [was, is] = [before, after].map(|it| it.unchecked.len());
    let lacking = wanted.unchecked + is - was;
    let checks = wanted.checks + after.checks() - before.checks();
    let most = wanted.most_checks;
    let Some(room) = most.checked_sub(checks) else { return true };
    let more = room.min(lacking);
    let ends = was > 0 && is == 0;
    ends || is > was && room > 0 || budget::is_worth_a_load(more, room - more, most)
}

impl Loaded {
    /// What HAProxy has loaded when it has loaded this.
    fn of(wanted: &Wanted) -> Self {
        Self {
            mark: wanted.mark(),
            sections: wanted.sections.clone(),
            ranges: wanted.ranges.clone(),
        }
    }
}
