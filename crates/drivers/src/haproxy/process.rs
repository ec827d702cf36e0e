//! HAProxy as a [`Program`]: the driver knows what HAProxy has, sends what commands can change, and leaves the rest to
//! a reload. `render` and `diff` decide; this module owns the sockets. The task in [`crate::program`] calls it.

mod life;
mod see;
mod speak;

use super::command::Command;
use super::descriptor_budget::{self, Held};
use super::diff::{Observed, diff};
use super::driver::Options;
use super::failing::FailingServers;
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
use crate::program::program_trait::{Program, Seen};
use crate::program::{Excluded, process, trouble};
use bowline_core::update::{FailingPool, MemberChange, Update};
use life::Loading;
use nix::sys::signal::Signal;
use prometheus_client::metrics::counter::Counter;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How often the driver tries to remove retired servers.
const SWEEP: Duration = Duration::from_millis(500);
/// How many of them in one sweep: about 20 ms, for which everything else waits.
const SWEPT: usize = 1_000;
/// How long the driver waits before it sends refused servers again.
const RETRY: Duration = Duration::from_secs(1);
/// How long the installed files may be older than what runs.
const SAVE: Duration = Duration::from_secs(2);
/// How long connections of a removed member may live if the plan does not say.
const DRAIN: Duration = Duration::from_secs(30);
/// How long a master may be unreachable while it reloads.
const MASTER: Duration = Duration::from_secs(3);

type Common = crate::program::common::Common<HaproxyProcess>;

/// The configuration that HAProxy loaded last.
#[derive(Debug, Default)]
struct Loaded {
    mark: String,
    sections: BTreeMap<Section, Body>,
    ranges: BTreeMap<String, Vec<Word>>,
}

/// The state of the HAProxy driver.
#[derive(Debug)]
pub(super) struct HaproxyProcess {
    options: Options,
    settings: Settings,
    commands: Counter,
    log: Log,
    admin: Socket,
    master: Socket,
    /// What HAProxy has. None: unknown, or HAProxy does not run.
    observed: Option<Observed>,
    loaded: Loaded,
    pid: u32,
    /// Whether a load is in progress. A new worker is then expected, and not counted as a restart.
    loads: bool,
    /// Whether HAProxy runs but its admin socket is gone.
    deaf: bool,
    /// Backends with changes of servers that HAProxy did not get yet.
    lagging: Lagging,
    /// The namespaces of running backends, also of those with a removed pool.
    owners: BTreeMap<Word, Arc<str>>,
    /// Backends that nothing leads to any more. They must lose all servers.
    gone: BTreeSet<Word>,
    /// Namespaces with servers that HAProxy refused and that do not wait for a reload yet.
    refused: BTreeSet<Arc<str>>,
    /// When such servers are sent again.
    retry_at: Instant,
    /// Retired servers.
    leaving: Leaving,
    /// Pools with servers that do not answer.
    failing: FailingServers,
    /// Since when the installed files are older than what runs.
    unsaved: Option<Instant>,
    compare_at: Instant,
    sweep_at: Instant,
}

impl HaproxyProcess {
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
            failing: FailingServers::default(),
            unsaved: None,
            compare_at: now,
            sweep_at: now,
        }
    }

    /// The servers that HAProxy has, which keep their health checks if there are too few file descriptors for all.
    fn held(&self) -> &Held {
        static NOTHING: Held = Held::new();
        self.observed.as_ref().map_or(&NOTHING, |observed| &observed.servers)
    }

    /// Puts these members into the wanted configuration. The cost depends only on their number. Skips pools for which
    /// health checks must be distributed anew. True: none was skipped.
    fn take_members(&mut self, common: &mut Common, changes: &[MemberChange]) -> bool {
        let (mut lagging, mut all) = (Vec::new(), true);
        for change in changes {
            let Some((name, servers)) = servers_after(&common.wanted, change) else { continue };
            if has_to_share(&common.wanted, &name, &servers) {
                all = false;
                continue;
            }
            common.wanted.replace_servers(&name, servers);
            if self.failing.has(&name) {
                self.look_at_servers(common, &name);
            }
            lagging.push(name);
        }
        self.lag(common, lagging);
        all
    }

    /// Sends HAProxy every difference from the wanted configuration; of changes of servers, only the next part.
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
        // Backends that are newly gone are added below: a rule may lead to them until the structure is sent.
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

    /// Requests a reload after a command failed. The namespaces with refused servers wait for it.
    fn bring_by_reload(&mut self, common: &mut Common, error: &Error) {
        tracing::warn!(%error, "HAProxy refuses commands; it is reloaded instead");
        common.reload.get_or_insert_with(|| error.to_string());
        common.ask_for_reload_of(std::mem::take(&mut self.refused));
    }

    /// Compares everything that runs with the wanted configuration, and counts unexpected differences.
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
        // Changes that HAProxy did not get yet are no drift.
        let lagging = &self.lagging;
        let lags = !lagging.is_empty() || lagging.holds() || lagging.is_refused();
        let servers = if lags { 0 } else { split.changed.len() + split.gone.len() };
        let drift = split.structure.len() + servers + reloads;
        if drift > 0 {
            tracing::warn!(
                drift,
                reload = found.reload,
                "HAProxy's state differs from what it was told"
            );
            common.counters.drift.inc_by(drift as u64);
        }
        self.step(common).await;
        Ok(())
    }

    /// Installs files with the wanted configuration, for HAProxy's next start.
    fn save(&mut self, common: &mut Common) -> Result<(), Error> {
        // The disk may be full: then the next try waits as long as after a change.
        self.unsaved = Some(Instant::now());
        common.save()?;
        self.unsaved = None;
        Ok(())
    }
}

impl Program for HaproxyProcess {
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
        descriptor_budget::most_listeners(self.settings.descriptors)
    }

    fn files(wanted: &Wanted) -> BTreeMap<String, Vec<u8>> {
        wanted.files()
    }

    fn complaint(said: &str) -> String {
        let alert = said.lines().find(|line| line.contains("[ALERT]")).unwrap_or(said.trim());
        // The pid and the path of the file mean nothing to the reader.
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
        // If a reload is due already, a change of members does not wait for it.
        if common.reload.is_some() && !(waited && members) {
            // A new distribution of health checks may need one.
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
            // Commands sent meanwhile may have gone to a process that is gone.
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
        self.failing.has_loaded(Instant::now());
        self.observe(common).await?;
        Ok(true)
    }

    /// Each load has one worker, so each old worker is a generation.
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
        let seen = self.look_at_it(common).await?;
        if seen == Seen::Same {
            self.see_failing(common).await?;
        }
        Ok(seen)
    }

    fn failing(&self) -> Vec<FailingPool> {
        self.failing.pools()
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
        // Changes that wait for a reload are not checked yet.
        if common.reload.is_none() && self.unsaved.is_some_and(|since| since + SAVE <= now) {
            self.save(common)?;
        }
        Ok(())
    }

    fn lost(&mut self, common: &mut Common) {
        self.observed = None;
        self.lagging.clear();
        self.leaving.clear();
        self.failing = FailingServers::default();
        // Its addresses may be gone with it.
        common.held.clear();
        common.restart_later();
    }

    fn leave(&mut self, common: &mut Common) {
        self.log.pass_on();
        if self.unsaved.is_some() && common.reload.is_none() {
            // The agent ends, so there is no second try.
            let _ = self.save(common);
        }
    }

    async fn master(&self, common: &Common) -> Option<u32> {
        self.processes(common).await.ok().map(|it| it.master)
    }
}

/// The backend of a pool, and its servers after a change of members. None if the wanted configuration has no such
/// backend.
fn servers_after(wanted: &Wanted, change: &MemberChange) -> Option<(Word, Servers)> {
    let name = Word::pool(&change.pool).ok()?;
    let servers = wanted.servers.get(&name)?.after(&change.members);
    Some((name, servers))
}

/// Whether health checks must be distributed anew before a backend gets these servers: there would be more checks than
/// HAProxy has file descriptors for, or there is room to check members that have no check.
fn has_to_share(wanted: &Wanted, name: &Word, after: &Servers) -> bool {
    let Some(before) = wanted.servers.get(name) else { return false };
    let [was, is] = [before, after].map(|it| it.unchecked.len());
    let lacking = wanted.unchecked + is - was;
    let checks = wanted.checks + after.checks() - before.checks();
    let most = wanted.most_checks;
    let Some(room) = most.checked_sub(checks) else { return true };
    let more = room.min(lacking);
    let ends = was > 0 && is == 0;
    ends || is > was && room > 0 || descriptor_budget::is_worth_a_load(more, room - more, most)
}

impl Loaded {
    /// The loaded configuration after a load of `wanted`.
    fn of(wanted: &Wanted) -> Self {
        Self {
            mark: wanted.mark(),
            sections: wanted.sections.clone(),
            ranges: wanted.ranges.clone(),
        }
    }
}
