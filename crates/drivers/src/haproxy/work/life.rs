//! HAProxy as a process: told by its master's socket to load its files, or started, and waited for.

use super::{Common, MASTER, Proxy, trouble};
use crate::Error;
use crate::haproxy::readback::{self, Processes};
use crate::haproxy::socket::Socket;
use crate::program::work::{LOADING, Program as _, SOON};
use tokio::time::{Instant, sleep};

/// How many sessions are ended in one go: changes wait meanwhile.
const SESSIONS: usize = 1000;

impl Proxy {
    /// What its master says. One that has just reloaded is away for a moment.
    pub(super) async fn processes(&self, common: &Common) -> std::io::Result<Processes> {
        let there = common.child.is_some() || self.pid != 0;
        let answer = self.master.ask_patiently("show proc\n", there, MASTER).await?;
        Ok(readback::processes(&answer))
    }

    /// Makes HAProxy load the files that are in place, by a reload or by starting it.
    pub(super) async fn reload_or_start(&mut self, common: &mut Common) -> Result<(), Error> {
        self.log.begin();
        match self.processes(common).await {
            Ok(before) => {
                let said = self.master.ask("reload\n").await;
                let said =
                    said.map_err(|cause| trouble("asking HAProxy's master to reload", cause))?;
                self.await_mark(common, Some(before), &said).await?;
                common.counters.reloads.inc();
                let why = common.reload.as_deref().unwrap_or("asked");
                tracing::info!(why, "HAProxy reloaded");
                Ok(())
            }
            Err(_) if common.setup.exec => {
                if common.child.is_none() {
                    self.start(common).await?;
                }
                self.await_mark(common, None, "").await
            }
            Err(cause) => Err(trouble("asking HAProxy's master", cause)),
        }
    }

    /// Why HAProxy did not load what it was given: what its master said to that, which it does from 2.7 on, else
    /// what it printed, if that is ours to read.
    fn why(&self, said: &str) -> Option<String> {
        let printed = self.log.of_load();
        let alerted = [said, &printed].into_iter().find(|it| it.contains("[ALERT]"));
        alerted.map(|said| Self::complaint(said).chars().take(300).collect())
    }

    /// Whether workers from before a reload take no connections any more: each says that it stops, or is gone. They
    /// are told to before the new one begins, and on a busy machine may be the last to hear of it.
    async fn have_stopped(&self, before: Option<&Processes>) -> bool {
        for worker in before.into_iter().flat_map(|it| &it.workers) {
            let said = self.master.ask(&format!("@!{worker} show info\n")).await;
            if !said.is_ok_and(|said| readback::takes_nothing(&said)) {
                return false;
            }
        }
        true
    }

    /// Ends what an old worker carries, by its master's socket: HAProxy may run in another container, where it gets no
    /// signal of ours. The worker ends when clients have closed their side, or half a minute later; what remains is ended at the
    /// next look.
    pub(super) async fn end_sessions(&self, worker: u32) {
        let listed = self.master.ask(&format!("@!{worker} show sess\n")).await.unwrap_or_default();
        for session in readback::sessions(&listed).into_iter().take(SESSIONS) {
            // One that has ended meanwhile is what is wanted.
            let _ = self.master.ask(&format!("@!{worker} shutdown session {session}\n")).await;
        }
    }

    /// Waits until HAProxy says that it has loaded what is wanted, and the workers from before take nothing any
    /// more; on a reload, `before` is what ran until then, and `said` is what its master said to it.
    async fn await_mark(
        &mut self,
        common: &mut Common,
        before: Option<Processes>,
        said: &str,
    ) -> Result<(), Error> {
        let mark = common.wanted.mark();
        let until = Instant::now() + LOADING;
        let mut silent = None;
        let cause = loop {
            let answer = self.admin.ask("show info\n").await;
            // The one before it may have had the same files.
            let is_new = |info: readback::Info| {
                info.mark == mark
                    && before.as_ref().is_none_or(|it| !it.workers.contains(&info.pid))
            };
            if answer.as_deref().is_ok_and(|answer| is_new(readback::info(answer)))
                && self.have_stopped(before.as_ref()).await
            {
                return Ok(());
            }
            let refused = match &before {
                Some(before) => {
                    let now = self.master.ask("show proc\n").await.unwrap_or_default();
                    let now = readback::processes(&now);
                    let alone =
                        answer.is_err() && !now.workers.is_empty() && now.workers != before.workers;
                    silent = alone.then(|| silent.unwrap_or_else(Instant::now));
                    now.failed > before.failed || common.has_ended()
                }
                None => common.has_ended(),
            };
            if refused {
                let why = self.why(said);
                break why.unwrap_or_else(|| "it refuses; its log says why".to_owned());
            }
            // Somebody has removed it meanwhile: a worker takes it over and does not make it anew.
            if silent.is_some_and(|since: Instant| since.elapsed() >= MASTER) {
                break "its socket is gone".to_owned();
            }
            if Instant::now() >= until {
                break "it takes too long".to_owned();
            }
            sleep(SOON).await;
        };
        Err(trouble("loading HAProxy's files", cause))
    }

    /// A worker takes the sockets of the one before it over, and does not see that their files are gone: it is
    /// told of another file, which it must make.
    pub(super) fn take_other_socket(&mut self) {
        let usual = &self.options.admin_socket;
        let socket = match self.settings.admin_socket == *usual {
            true => usual.with_extension("2.sock"),
            false => usual.clone(),
        };
        self.admin = Socket::new(&socket);
        self.settings.admin_socket = socket;
    }
}
