//! Files and reloads: what is wanted is written beside, checked, put in place and loaded. What HAProxy refuses
//! is looked for, left out and told.

use super::{BIND, Loaded, Worker, failed, trouble};
use crate::Error;
use crate::haproxy::process;
use crate::haproxy::readback;
use crate::haproxy::render::render;
use crate::haproxy::wanted::{CONFIG, Wanted};
use crate::program::suspects::{self, Search, Suspect};
use bowline_core::plan::Transport;
use bowline_core::update::ListenerKey;
use tokio::net::TcpSocket;
use tokio::time::Instant;

impl Worker {
    /// Finds out which listeners can be bound that HAProxy does not hold yet. Binding without listening
    /// takes no connection from anybody.
    pub(super) fn try_binding(&mut self) {
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
    pub(super) async fn save(&mut self) -> Result<(), Error> {
        // The disk may be full: then it is tried again as late as after a change.
        self.unsaved = Some(Instant::now());
        let set =
            self.folder.write(&self.wanted.files()).map_err(failed("writing HAProxy's files"))?;
        self.folder.install(&set).map_err(failed("putting HAProxy's files in place"))?;
        self.unsaved = None;
        Ok(())
    }

    /// Writes, checks, puts in place, and loads: by a reload, or by starting HAProxy.
    pub(super) async fn load(&mut self) -> Result<(), Error> {
        self.reloaded = Some(Instant::now());
        self.try_binding();
        self.bind_at = Instant::now() + BIND;
        self.render()?;
        self.checked().await?;
        let mark = self.wanted.mark();
        let runs = self.ask_master().await;
        match runs {
            Ok(answer) => {
                let before = readback::processes(&answer);
                let reload = self.master.ask("reload\n").await;
                reload.map_err(failed("asking HAProxy's master to reload"))?;
                self.await_mark(&mark, Some(before)).await?;
                self.counters.reloads.inc();
                tracing::info!(why = self.reload.as_deref().unwrap_or("asked"), "HAProxy reloaded");
            }
            Err(_) if self.options.exec => {
                if self.child.is_none() {
                    self.start()?;
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
    pub(super) fn loading(&self) -> Loaded {
        let held = |key: &&ListenerKey| !self.excluded.listeners.contains_key(*key);
        Loaded {
            mark: self.wanted.mark(),
            sections: self.wanted.sections.clone(),
            ranges: self.wanted.ranges.clone(),
            listeners: self.desired.listeners.keys().filter(held).copied().collect(),
        }
    }

    /// Puts files in place that HAProxy accepts: what it refuses is found, told and left out.
    pub(super) async fn checked(&mut self) -> Result<(), Error> {
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

    pub(super) fn trial(&self, all: &[Suspect], tried: &[Suspect]) -> Result<Wanted, Error> {
        let excluded = suspects::only(&self.excluded, all, tried);
        let rendered = render(&self.desired, &excluded, &self.settings);
        rendered.map(|it| it.wanted).map_err(|why| trouble("writing the paths of sockets", why))
    }

    /// What HAProxy has against this; if nothing and it is to be kept, it is in place.
    pub(super) async fn refuses(
        &mut self,
        wanted: &Wanted,
        keep: bool,
    ) -> Result<Option<String>, Error> {
        let set = self.folder.write(&wanted.files()).map_err(failed("writing HAProxy's files"))?;
        let said = process::check(&self.options.program, &set.join(CONFIG)).await;
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
}
