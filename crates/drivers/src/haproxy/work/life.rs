//! HAProxy as a process: one that runs already is taken over, one that should run is started, one that has
//! ended is started again, and at the end it is let go.

use super::{LOADING, MASTER, Worker, failed, trouble};
use crate::Error;
use crate::haproxy::process;
use crate::haproxy::readback::{self, Processes};
use crate::haproxy::socket::Socket;
use std::time::Duration;
use tokio::time::{Instant, sleep};

impl Worker {
    /// HAProxy is not there, or not the one we knew.
    pub(super) fn lost(&mut self) {
        self.observed = None;
        self.leaving.clear();
        if self.options.exec && self.child.is_none() && self.restart_at.is_none() {
            // Everybody would come again at once otherwise; one process needs no dice.
            self.restart_at = Some(Instant::now() + self.restart.failed(u32::MAX));
        }
    }

    /// The first update, or the first after HAProxy has ended. It may run already, from an agent before us.
    pub(super) async fn arrive(&mut self) -> Result<(), Error> {
        let there = self.child.is_some();
        if patiently(&self.admin, "show info\n", there).await.is_ok()
            && patiently(&self.master, "show proc\n", there).await.is_ok()
        {
            tracing::info!("HAProxy runs already");
            return self.look_again().await;
        }
        if !self.options.exec {
            self.checked().await?;
            return Err(trouble(
                &format!("asking HAProxy at {}", self.options.admin_socket.display()),
                "nobody answers; start it with the files that were just written",
            ));
        }
        let loaded = self.load().await;
        if loaded.is_err() {
            self.resume().await?;
        }
        loaded
    }

    /// Starts HAProxy with the files that are in place, the last that it accepted: while it is not known what is
    /// wanted, or while that cannot be written, this is what traffic can have.
    pub(super) async fn resume(&mut self) -> Result<(), Error> {
        if !self.options.exec || self.child.is_some() || !self.folder.config().exists() {
            return Ok(());
        }
        if self.master.ask("show proc\n").await.is_ok() {
            return Ok(());
        }
        tracing::info!("HAProxy is started with the files of before");
        self.start()
    }

    /// Starts HAProxy with the files that are in place.
    pub(super) fn start(&mut self) -> Result<(), Error> {
        let (program, master) = (&self.options.program, &self.options.master_socket);
        let started = process::start(program, &self.folder.config(), master);
        self.child = Some(started.map_err(failed("starting HAProxy"))?);
        Ok(())
    }

    /// What its master says. One that has just reloaded is away for a moment.
    pub(super) async fn ask_master(&self) -> std::io::Result<String> {
        let there = self.child.is_some() || self.pid != 0;
        patiently(&self.master, "show proc\n", there).await
    }

    /// Waits until HAProxy says that it has loaded this; on a reload, `before` is what ran until then.
    pub(super) async fn await_mark(
        &mut self,
        mark: &str,
        before: Option<Processes>,
    ) -> Result<(), Error> {
        let until = Instant::now() + LOADING;
        let mut silent = None;
        let cause = loop {
            let answer = self.admin.ask("show info\n").await;
            if answer.as_ref().is_ok_and(|answer| readback::info(answer).mark == mark) {
                return Ok(());
            }
            let refused = match &before {
                Some(before) => {
                    let now = self.master.ask("show proc\n").await.unwrap_or_default();
                    let now = readback::processes(&now);
                    let alone =
                        answer.is_err() && !now.workers.is_empty() && now.workers != before.workers;
                    silent = alone.then(|| silent.unwrap_or_else(Instant::now));
                    now.failed > before.failed
                }
                None => {
                    self.child.as_mut().is_some_and(|child| !matches!(child.try_wait(), Ok(None)))
                }
            };
            if refused {
                break "it refuses; its log says why";
            }
            // Somebody has removed it meanwhile: a worker takes it over and does not make it anew.
            if silent.is_some_and(|since: Instant| since.elapsed() >= MASTER) {
                break "its socket is gone";
            }
            if Instant::now() >= until {
                break "it takes too long";
            }
            sleep(Duration::from_millis(20)).await;
        };
        self.counters.failed_reloads.inc();
        Err(trouble("loading HAProxy's files", cause))
    }

    /// Lets go: what we started ends, what was there stays.
    pub(super) async fn drain(&mut self, grace: Duration) {
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

/// Asks one that is there, as far as we know, again for a while if it does not answer.
async fn patiently(socket: &Socket, message: &str, there: bool) -> std::io::Result<String> {
    let until = Instant::now() + if there { MASTER } else { Duration::ZERO };
    loop {
        match socket.ask(message).await {
            Err(_) if Instant::now() < until => sleep(Duration::from_millis(20)).await,
            said => return said,
        }
    }
}
