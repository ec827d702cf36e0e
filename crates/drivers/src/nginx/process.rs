//! nginx as a [`Program`]: every change is a reload, by a signal to its master, and nginx reports at its status socket
//! what it has loaded. `render` decides what nginx gets; this module owns sockets and signals. The task in
//! [`crate::program`] calls it.

use super::failing::FailingMembers;
use super::find;
use super::render::{self, LOG, Rendered, Settings};
use super::status;
use super::text::BadText;
use super::wanted::{CONFIG, Wanted};
use crate::Error;
use crate::desired::Desired;
use crate::program::program_trait::{Program, Seen};
use crate::program::worker::{LOADING, SOON};
use crate::program::{Excluded, trouble};
use bowline_core::plan::Transport;
use bowline_core::update::{FailingPool, ListenerKey, Update};
use nix::sys::signal::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Child;
use tokio::time::{Instant, sleep};

/// How long nginx may take to load its file after it has complained.
const REFUSED: Duration = Duration::from_secs(3);

/// After a load that others requested: how long the earlier processes may take to stop.
const SETTLES: Duration = Duration::from_secs(2);

type Common = crate::program::common::Common<NginxProcess>;

/// The running nginx.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Running {
    master: u32,
    /// The mark of the file that it has loaded. None: unknown.
    mark: Option<String>,
}

/// The state of the nginx driver.
#[derive(Debug)]
pub(super) struct NginxProcess {
    settings: Settings,
    /// None: nginx does not run.
    running: Option<Running>,
    /// Members that do not answer.
    failing: FailingMembers,
}

impl NginxProcess {
    pub(super) fn new(settings: Settings, failing: FailingMembers) -> Self {
        Self { settings, running: None, failing }
    }

    /// The status sockets that nginx may have.
    fn sockets(&self) -> [PathBuf; 2] {
        ["status.sock", "status-2.sock"].map(|name| self.settings.folder.join(name))
    }

    /// The master process that holds one of them.
    fn holder(&self) -> Option<u32> {
        find::holders(&self.sockets()).into_iter().find(|pid| find::is_master(*pid))
    }

    /// The mark that all workers of a master have loaded. None if workers of an earlier load still accept connections,
    /// or if no worker answers. A worker that nginx replaced after a crash is younger than the others, too: then the
    /// wanted file is loaded once more, which is harmless.
    async fn said_by_all(&self, master: u32) -> Option<String> {
        let until = Instant::now() + SETTLES;
        loop {
            let said = status::ask(&self.settings.status_socket).await.ok()?;
            if !find::has_older(master, said.pid) {
                return Some(said.mark);
            }
            if Instant::now() >= until {
                return None;
            }
            sleep(SOON).await;
        }
    }

    /// Tells processes of a killed master to finish their connections: they still hold addresses.
    async fn end_orphans(&self) {
        let until = Instant::now() + LOADING;
        loop {
            let mut orphans = find::holders(&self.sockets());
            orphans.retain(|pid| find::takes_connections(*pid));
            if orphans.is_empty() || Instant::now() >= until {
                return;
            }
            for orphan in orphans {
                find::signal(orphan, Self::FINISH);
            }
            sleep(SOON).await;
        }
    }

    /// Waits until new workers report the wanted mark, and the `old` ones accept no more connections.
    async fn await_mark(&self, common: &mut Common, master: u32, old: &[u32]) -> Result<(), Error> {
        let mark = common.wanted.mark();
        let until = Instant::now() + LOADING;
        let mut refused = None;
        let cause = loop {
            // The socket exists before the workers do.
            let loaded = find::workers(master).iter().any(|pid| !old.contains(pid));
            let said = status::ask(&self.settings.status_socket).await;
            let gone = said.as_ref().is_err_and(status::is_gone);
            if said.is_ok_and(|said| said.mark == mark)
                && !old.iter().any(|pid| find::takes_connections(*pid))
            {
                return Ok(());
            }
            let why = self.why();
            if common.has_ended() {
                break why.unwrap_or_else(|| "it has ended; its log says why".to_owned());
            }
            if loaded && gone {
                // nginx holds its listeners all the same; otherwise they would seem to be taken, and be excluded.
                common.has_loaded();
                break "its socket was removed".to_owned();
            }
            // nginx complains of minor problems too, and loads its file all the same.
            if let Some(why) = why.filter(|_| !loaded)
                && refused.get_or_insert_with(Instant::now).elapsed() >= REFUSED
            {
                break why;
            }
            if Instant::now() >= until {
                break "it takes too long".to_owned();
            }
            sleep(SOON).await;
        };
        Err(trouble("loading nginx's file", cause))
    }

    fn log(&self) -> PathBuf {
        self.settings.folder.join(LOG)
    }

    fn forget_complaints(&self) {
        // If this fails, an old complaint may be reported in place of a new one.
        let _ = std::fs::write(self.log(), "");
    }

    /// nginx's complaints since it was told to load its file.
    fn why(&self) -> Option<String> {
        let said = std::fs::read_to_string(self.log()).ok()?;
        // If nginx may not change its groups it says so at each load, and serves all the same.
        let lines: Vec<_> = said.lines().filter(|line| !line.contains("initgroups(")).collect();
        (!lines.is_empty()).then(|| Self::complaint(&lines.join("\n")))
    }
}

impl Program for NginxProcess {
    const NAME: &'static str = "nginx";
    const CONFIG: &'static str = CONFIG;
    const CHECK: &'static [&'static str] = &["-e", "stderr", "-t", "-q", "-c"];
    const FINISH: Signal = Signal::SIGQUIT;
    const REUSES_PORTS: bool = false;
    const CARRIES_UDP: bool = true;
    const IS_TOLD_MEMBERS: bool = false;
    type Wanted = Wanted;
    /// A change is a reload, so nothing can be sent during one.
    type Loading = ();

    fn render(&self, desired: &Desired, excluded: &Excluded) -> Result<Rendered, BadText> {
        render::render(desired, excluded, &self.settings)
    }

    fn most_listeners(&self) -> usize {
        render::most_listeners(&self.settings)
    }

    fn files(wanted: &Wanted) -> BTreeMap<String, Vec<u8>> {
        wanted.files()
    }

    /// The first error without time, pid and place, which mean nothing to the reader.
    fn complaint(said: &str) -> String {
        let line = said.lines().find(|line| line.contains("[emerg]")).unwrap_or(said.trim());
        let text = line.split_once("[emerg] ").map_or(line, |(_, rest)| rest);
        let text = text.split_once('#').and_then(|(_, rest)| rest.split_once(": "));
        let text = text.map_or(line, |(_, text)| text);
        text.rsplit_once(" in /").map_or(text, |(text, _)| text).to_owned()
    }

    fn runs(&self) -> bool {
        self.running.is_some()
    }

    /// nginx's status socket may be gone, or be the other one.
    async fn find(&mut self, common: &mut Common) -> Result<bool, Error> {
        let until = Instant::now() + LOADING;
        let master = loop {
            match self.holder() {
                // It was started just now and has no socket yet.
                None if common.child.is_some() && !common.has_ended() && Instant::now() < until => {
                    sleep(SOON).await;
                }
                found => break found,
            }
        };
        let Some(master) = master else {
            let seen = status::ask(&self.settings.status_socket).await.is_ok();
            let cause = "its master process cannot be seen from here; let nginx and the agent share a process \
                namespace";
            return match seen && !common.setup.exec {
                true => Err(trouble("looking for nginx's master", cause)),
                false => Ok(false),
            };
        };
        if let Some(socket) = find::socket_of(master, &self.sockets()) {
            self.settings.status_socket = socket;
        }
        let mark = self.said_by_all(master).await;
        self.running = Some(Running { master, mark });
        common.held = std::fs::read_to_string(common.folder.config())
            .map_or_else(|_| BTreeSet::new(), |config| listening(&config));
        common.reload = Some("it may have loaded another file".to_owned());
        Ok(true)
    }

    async fn start(&mut self, common: &mut Common) -> Result<(), Error> {
        if self.holder().is_some() {
            return Ok(());
        }
        self.end_orphans().await;
        self.forget_complaints();
        for socket in self.sockets() {
            // A killed nginx leaves the socket behind, and the next one could not bind it.
            let _ = std::fs::remove_file(socket);
        }
        common.start(&["-e", "stderr", "-g", "daemon off;", "-c"], Stdio::inherit())
    }

    async fn tell(&mut self, common: &mut Common, update: Option<&Update>) -> Result<(), Error> {
        if update.is_some_and(|update| update.complete || !update.is_empty()) {
            common.reload = Some("the plan has changed".to_owned());
            common.ask_for_reload(true);
        }
        Ok(())
    }

    /// nginx keeps its status socket, and does not notice that the file is gone: then the new file names the other
    /// socket. The processes of a killed nginx still hold its addresses, and must end first.
    async fn prepare(&mut self, common: &mut Common) {
        let sockets = self.sockets();
        let held = self.running.as_ref().and_then(|it| find::socket_of(it.master, &sockets));
        let Some(held) = held else {
            if self.running.is_none() && common.setup.exec {
                self.end_orphans().await;
            }
            return;
        };
        let gone = status::ask(&held).await.is_err_and(|cause| status::is_gone(&cause));
        let other = sockets.into_iter().find(|it| *it != held).filter(|_| gone);
        self.settings.status_socket = other.unwrap_or(held);
    }

    fn has(&self, wanted: &Wanted) -> bool {
        self.running.as_ref().is_some_and(|it| it.mark.as_ref() == Some(&wanted.mark()))
    }

    async fn load(&mut self, common: &mut Common) -> Result<(), Error> {
        let master = match &self.running {
            Some(Running { master, .. }) => *master,
            None if common.setup.exec && common.child.is_none() => {
                self.start(common).await?;
                let child = common.child.as_ref().and_then(Child::id);
                let master = child.ok_or_else(|| trouble("starting nginx", "it has ended"))?;
                self.running = Some(Running { master, mark: None });
                self.await_mark(common, master, &[]).await?;
                self.running = Some(Running { master, mark: Some(common.wanted.mark()) });
                return Ok(());
            }
            None => return Err(trouble("loading nginx's file", "nginx does not run")),
        };
        self.forget_complaints();
        let old = find::workers(master);
        self.running = Some(Running { master, mark: None });
        if !find::signal(master, Signal::SIGHUP) {
            self.lost(common);
            return Err(trouble("telling nginx to reload", "its master is gone"));
        }
        self.await_mark(common, master, &old).await?;
        common.counters.reloads.inc();
        let mark = common.wanted.mark();
        tracing::info!(mark, why = common.reload, "nginx reloaded");
        self.running = Some(Running { master, mark: Some(mark) });
        Ok(())
    }

    async fn has_loaded(&mut self, _common: &mut Common, (): &mut ()) -> Result<bool, Error> {
        Ok(true)
    }

    async fn old(&self, _common: &Common) -> Option<Vec<Vec<u32>>> {
        self.running.as_ref().map(|it| find::finishing(it.master))
    }

    async fn end(&self, _common: &Common, pids: &[u32]) {
        let Some(running) = &self.running else { return };
        let own = find::finishing(running.master).concat();
        for pid in pids.iter().filter(|pid| own.contains(pid)) {
            find::signal(*pid, Signal::SIGTERM);
        }
    }

    async fn look(&mut self, common: &mut Common) -> Result<Seen, Error> {
        self.failing.look(&common.desired);
        let said = status::ask(&self.settings.status_socket).await;
        let Some(running) = self.running.clone() else {
            return Ok(if said.is_ok() { Seen::Other } else { Seen::NotRunning });
        };
        match said {
            Ok(said) if Some(&said.mark) == running.mark.as_ref() => Ok(Seen::Same),
            Ok(said) if find::master_of(said.pid) == Some(running.master) => {
                let mark = self.said_by_all(running.master).await;
                if running.mark.is_some() {
                    tracing::warn!("nginx has loaded another file than Bowline wrote");
                    common.counters.drift.inc();
                }
                self.running = Some(Running { mark, ..running });
                common.reload = Some("it has loaded another file".to_owned());
                Ok(Seen::Drifted)
            }
            Ok(_) => Ok(Seen::Other),
            Err(cause) if status::is_gone(&cause) && find::is_master(running.master) => {
                common.reload = Some("its socket is gone".to_owned());
                Ok(Seen::NoSocket)
            }
            Err(cause) => Err(trouble("asking nginx for its state", cause)),
        }
    }

    fn failing(&self) -> Vec<FailingPool> {
        self.failing.pools()
    }

    fn lost(&mut self, common: &mut Common) {
        if self.running.take().is_some_and(|it| it.mark.is_some()) {
            common.counters.restarts.inc();
        }
        common.held.clear();
        common.restart_later();
    }

    async fn master(&self, common: &Common) -> Option<u32> {
        let child = common.child.as_ref().and_then(Child::id);
        child.or(self.running.as_ref().map(|it| it.master))
    }
}

/// The listeners in a file that we wrote. No text of a user is at the beginning of a line.
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

    #[test]
    fn a_complaint_is_told_without_time_and_place() {
        let said = "2026/11/16 00:50:07 [emerg] 10204#10204: invalid port in upstream \"10.0.0.1:0\" in \
                    /tmp/x/nginx.conf:205\nnginx: configuration file /tmp/x/nginx.conf test failed\n";
        assert_eq!(NginxProcess::complaint(said), "invalid port in upstream \"10.0.0.1:0\"");
        assert_eq!(NginxProcess::complaint("other\n"), "other");
    }
}
