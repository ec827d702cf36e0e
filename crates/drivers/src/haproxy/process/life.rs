//! HAProxy as a process: starts it, or makes its master load files, and waits for the result. The
//! [`Program`](crate::program::program_trait::Program) calls it.

use super::{Common, HaproxyProcess, Loaded, MASTER, trouble};
use crate::Error;
use crate::haproxy::readback::{self, Processes};
use crate::haproxy::socket::Socket;
use crate::program::program_trait::Program as _;
use crate::program::worker::LOADING;
use std::io;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// How many sessions are ended at once; changes wait meanwhile.
const SESSIONS: usize = 1000;

/// A load in progress.
pub(in crate::haproxy) struct Loading {
    /// The configuration that is being loaded.
    pub(super) loaded: Loaded,
    /// The processes from before. None: HAProxy was started.
    before: Option<Processes>,
    /// The reload command to its master, until the master has answered.
    asked: Option<JoinHandle<io::Result<String>>>,
    /// The master's answer.
    said: String,
    /// Since when a new worker runs without an admin socket.
    silent: Option<Instant>,
    until: Instant,
}

impl Loading {
    /// Takes the master's answer, if it has come.
    async fn hear(&mut self) -> Result<(), Error> {
        let Some(asked) = self.asked.take_if(|it| it.is_finished()) else { return Ok(()) };
        let said = asked.await.unwrap_or_else(|error| Err(io::Error::other(error)));
        self.said = said.map_err(|cause| trouble("asking HAProxy's master to reload", cause))?;
        Ok(())
    }

    /// Waits for that answer: it says why HAProxy refuses the files.
    async fn hear_out(&mut self) {
        if let Some(asked) = self.asked.take() {
            let said = tokio::time::timeout(MASTER, asked).await;
            self.said = said.ok().and_then(Result::ok).and_then(Result::ok).unwrap_or_default();
        }
    }
}

impl HaproxyProcess {
    /// The processes that its master lists. After a reload a master is unreachable for a moment.
    pub(super) async fn processes(&self, common: &Common) -> io::Result<Processes> {
        let there = common.child.is_some() || self.pid != 0;
        let answer = self.master.ask_patiently("show proc\n", there, MASTER).await?;
        Ok(readback::processes(&answer))
    }

    /// Makes HAProxy load the installed files, by a reload or by starting it.
    pub(super) async fn reload_or_start(&mut self, common: &mut Common) -> Result<Loading, Error> {
        self.log.begin();
        let (before, asked) = match self.processes(common).await {
            Ok(before) => {
                // Since 2.7 the master answers when the reload is over.
                let master = self.master.clone();
                let asked = tokio::spawn(async move { master.ask_for("reload\n", LOADING).await });
                (Some(before), Some(asked))
            }
            Err(_) if common.setup.exec => {
                if common.child.is_none() {
                    self.start(common).await?;
                }
                (None, None)
            }
            Err(cause) => return Err(trouble("asking HAProxy's master", cause)),
        };
        Ok(Loading {
            loaded: Loaded::of(&common.wanted),
            before,
            asked,
            said: String::new(),
            silent: None,
            until: Instant::now() + LOADING,
        })
    }

    /// Why HAProxy did not load its files: from the master's answer, which says so since 2.7, or else from HAProxy's
    /// output, if we can read it.
    fn why(&self, said: &str) -> Option<String> {
        let printed = self.log.of_load();
        let alerted = [said, &printed].into_iter().find(|it| it.contains("[ALERT]"));
        alerted.map(|said| Self::complaint(said).chars().take(300).collect())
    }

    /// Whether the workers from before a reload accept no more connections: each says that it stops, or is gone. They
    /// are told to stop before the new worker starts, but on a busy machine they may react last.
    async fn have_stopped(&self, before: Option<&Processes>) -> bool {
        for worker in before.into_iter().flat_map(|it| &it.workers) {
            let said = self.master.ask(&format!("@!{worker} show info\n")).await;
            if !said.is_ok_and(|said| readback::takes_nothing(&said)) {
                return false;
            }
        }
        true
    }

    /// Ends the sessions of an old worker through its master's socket: HAProxy may run in another container, where our
    /// signals do not reach it. The worker exits when clients have closed their side, or half a minute later. The next
    /// look ends what remains.
    pub(super) async fn end_sessions(&self, worker: u32) {
        let listed = self.master.ask(&format!("@!{worker} show sess\n")).await.unwrap_or_default();
        for session in readback::sessions(&listed).into_iter().take(SESSIONS) {
            // A session that has ended meanwhile needs nothing.
            let _ = self.master.ask(&format!("@!{worker} shutdown session {session}\n")).await;
        }
    }

    /// Whether HAProxy says that it has loaded what is wanted, and the earlier workers accept no more connections.
    pub(super) async fn has_mark(
        &mut self,
        common: &mut Common,
        loading: &mut Loading,
    ) -> Result<bool, Error> {
        loading.hear().await?;
        let Loading { loaded, before, .. } = &*loading;
        let answer = self.admin.ask("show info\n").await;
        // The earlier worker may have had the same files.
        let is_new = |info: readback::Info| {
            info.mark == loaded.mark
                && before.as_ref().is_none_or(|it| !it.workers.contains(&info.pid))
        };
        if answer.as_deref().is_ok_and(|answer| is_new(readback::info(answer)))
            && self.have_stopped(before.as_ref()).await
        {
            if before.is_some() {
                common.counters.reloads.inc();
                let why = common.reload.as_deref().unwrap_or("asked");
                tracing::info!(why, "HAProxy reloaded");
            }
            return Ok(true);
        }
        let refused = match before {
            Some(before) => {
                let now = self.master.ask("show proc\n").await.unwrap_or_default();
                let now = readback::processes(&now);
                let alone =
                    answer.is_err() && !now.workers.is_empty() && now.workers != before.workers;
                let refused = now.failed > before.failed;
                loading.silent = alone.then(|| loading.silent.unwrap_or_else(Instant::now));
                refused || common.has_ended()
            }
            None => common.has_ended(),
        };
        let cause = if refused {
            loading.hear_out().await;
            let why = self.why(&loading.said);
            why.unwrap_or_else(|| "it refuses its files; its log says why".to_owned())
        } else if loading.silent.is_some_and(|since| since.elapsed() >= MASTER) {
            // The socket's file was removed meanwhile: a new worker takes the socket over and does not create the file.
            "its socket is gone".to_owned()
        } else if Instant::now() >= loading.until {
            "it takes too long".to_owned()
        } else {
            return Ok(false);
        };
        Err(trouble("loading HAProxy's files", cause))
    }

    /// Chooses another socket for HAProxy's files. A worker takes over the sockets of the earlier one, and does not
    /// notice that their files are gone; a socket with another path it must create.
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
