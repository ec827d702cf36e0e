//! Seeing what HAProxy has: all of it is read back when HAProxy may be another one, when it complains, and from
//! time to time, since somebody else may have changed it.

use super::{DRAIN, Worker, trouble};
use crate::Error;
use crate::haproxy::diff::{Observed, diff};
use crate::haproxy::readback;
use crate::haproxy::socket::Socket;
use crate::haproxy::wanted::Section;
use tokio::time::Instant;

impl Worker {
    /// Reads back all that HAProxy has.
    pub(super) async fn observe(&mut self) -> Result<(), Error> {
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

    pub(super) async fn read_back(&self) -> std::io::Result<(readback::Info, Observed)> {
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
        if self.settings.adds_backends {
            // One that was told of backends and then started again has those of its files.
            let there = readback::backends(&self.admin.ask("show backend\n").await?);
            observed.sections.retain(|section, _| match section {
                Section::Backend(name) => there.contains(name),
                _ => true,
            });
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

    /// Whether HAProxy is there and the one we know.
    pub(super) async fn look(&mut self) -> Result<(), Error> {
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
    pub(super) async fn recover_socket(&mut self) -> Result<(), Error> {
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
    pub(super) async fn compare(&mut self) -> Result<(), Error> {
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
}
