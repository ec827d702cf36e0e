//! Observes HAProxy: reads back everything when HAProxy may be another process, when it complains, and from time to
//! time, since others may have changed it. It changes nothing in HAProxy; the driver calls it.

use super::speak::pool_namespace;
use super::{Common, DRAIN, HaproxyProcess, Loaded, trouble};
use crate::Error;
use crate::haproxy::diff::Observed;
use crate::haproxy::failing::{RING, Read};
use crate::haproxy::readback;
use crate::haproxy::text::Word;
use crate::haproxy::version::{self, Version};
use crate::haproxy::wanted::{Section, Wanted};
use crate::program::program_trait::{Program as _, Seen};
use tokio::time::Instant;

impl HaproxyProcess {
    /// Reads back all that HAProxy has.
    pub(super) async fn observe(&mut self, common: &mut Common) -> Result<(), Error> {
        if let Ok(answer) = self.admin.ask("show info\n").await {
            self.meet(common, &readback::info(&answer).version)?;
        }
        match self.read_back(&common.wanted).await {
            Ok((info, observed)) => {
                if self.pid != info.pid && self.pid != 0 && !self.loads {
                    common.counters.restarts.inc();
                    self.leaving.clear();
                }
                self.pid = info.pid;
                if self.loaded.mark != info.mark && info.mark == common.wanted.mark() {
                    self.loaded = Loaded::of(&common.wanted);
                    common.has_loaded();
                }
                self.owners.retain(|backend, _| observed.servers.contains_key(backend));
                let known = |it: &Word| Some((it.clone(), pool_namespace(common, it)?));
                self.owners.extend(observed.servers.keys().filter_map(known));
                self.failing.retain(|backend| observed.servers.contains_key(backend));
                for (backend, servers) in &observed.servers {
                    self.failing.look(backend, servers, common.wanted.servers.get(backend));
                }
                self.observed = Some(observed);
                // The driver removes also servers that an earlier agent retired.
                let ends = Instant::now() + DRAIN;
                let servers = self.observed.iter().flat_map(|it| &it.servers);
                let retired = servers.flat_map(|(backend, servers)| {
                    let retired = servers.iter().filter(|(_, it)| it.retired);
                    retired.map(|(address, _)| (backend.clone(), *address))
                });
                let unknown: Vec<_> = retired.filter(|it| !self.leaving.contains(it)).collect();
                for server in unknown {
                    self.leaves(common, server, ends);
                }
                Ok(())
            }
            Err(cause) => {
                self.lost(common);
                Err(trouble("reading HAProxy's state", cause))
            }
        }
    }

    /// Takes the version of the running HAProxy, which may differ from the executable that checks files: it decides
    /// which commands can be used.
    fn meet(&mut self, common: &mut Common, running: &str) -> Result<(), Error> {
        version::is_usable(running)
            .map_err(|why| trouble("checking the HAProxy that runs", why))?;
        let version = Version::read(running);
        if self.settings.version != version {
            tracing::info!(
                version = running,
                "the HAProxy that runs has another version than the program"
            );
            self.settings.version = version;
            common.render(self)?;
            self.compare_at = Instant::now();
        }
        Ok(())
    }

    /// Reads the state of the servers of which HAProxy says that they went down or came up.
    pub(super) async fn see_failing(&mut self, common: &Common) -> Result<(), Error> {
        let cannot = |cause| trouble("asking HAProxy for its servers", cause);
        self.failing.hear(&self.ring().await.map_err(cannot)?);
        let begun = Instant::now();
        let backends = match self.failing.take(begun) {
            Read::Of(backends) if backends.is_empty() => return Ok(()),
            Read::Of(backends) => Some(backends),
            Read::All => None,
        };
        let of = |backend: &Word| format!("show servers state {backend}");
        let commands = backends.as_ref().map(|all| all.iter().map(of).collect::<Vec<_>>());
        let commands = commands.map_or("show servers state".to_owned(), |all| all.join(";"));
        let answer = self.admin.ask(&format!("{commands}\n")).await.map_err(cannot)?;
        let found = readback::servers(&answer);
        if backends.is_none() {
            self.failing.has_read_all(Instant::now(), begun.elapsed());
        }
        for (backend, servers) in found {
            let known = self.observed.as_mut().and_then(|it| it.servers.get_mut(&backend));
            let Some(known) = known else { continue };
            for (address, server) in servers {
                if let Some(known) = known.get_mut(&address) {
                    known.down = server.down;
                }
            }
            self.look_at_servers(common, &backend);
        }
        Ok(())
    }

    /// Finds out whether servers of a backend fail.
    pub(super) fn look_at_servers(&mut self, common: &Common, backend: &Word) {
        let running = self.observed.as_ref().and_then(|it| it.servers.get(backend));
        if let Some(running) = running {
            self.failing.look(backend, running, common.wanted.servers.get(backend));
        }
    }

    async fn ring(&self) -> std::io::Result<String> {
        self.admin.ask(&format!("show events {RING}\n")).await
    }

    async fn read_back(&mut self, wanted: &Wanted) -> std::io::Result<(readback::Info, Observed)> {
        let info = readback::info(&self.admin.ask("show info\n").await?);
        // Before the servers: what happens meanwhile is new.
        let ring = self.ring().await?;
        self.failing.begin(&ring);
        let mut observed = Observed {
            servers: readback::servers(&self.admin.ask("show servers state\n").await?),
            certificates: readback::certificates(&self.admin.ask("show ssl cert\n").await?),
            closed: readback::closed(&self.admin.ask("show stat -1 1 -1\n").await?),
            ..Observed::default()
        };
        if info.mark == self.loaded.mark {
            observed.sections.clone_from(&self.loaded.sections);
            observed.ranges.clone_from(&self.loaded.ranges);
        } else if info.mark == wanted.mark() {
            observed.sections.clone_from(&wanted.sections);
            observed.ranges.clone_from(&wanted.ranges);
        }
        if self.settings.version.adds_backends() {
            // An HAProxy that got backends by command and was then restarted has only those of its files.
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
        for map in wanted.maps.keys().filter(|map| maps.contains(&format!("({map})"))) {
            let answer = self.admin.ask(&format!("show map {map}\n")).await?;
            observed.maps.insert(map.clone(), readback::map(&answer));
        }
        for list in wanted.crt_lists.keys().filter(|list| lists.lines().any(|it| it == **list)) {
            let answer = self.admin.ask(&format!("show ssl crt-list -n {list}\n")).await?;
            observed.crt_lists.insert(list.clone(), readback::crt_list(&answer));
        }
        Ok((info, observed))
    }

    /// Whether HAProxy runs and is the one that the driver knows.
    pub(super) async fn look_at_it(&mut self, _common: &Common) -> Result<Seen, Error> {
        let info = match self.admin.ask("show info\n").await {
            Ok(answer) => readback::info(&answer),
            Err(cause) if self.observed.is_some() => {
                return Err(trouble("asking HAProxy for its state", cause));
            }
            Err(_) => {
                // It may run without its socket.
                let answer = self.master.ask("show proc\n").await.unwrap_or_default();
                self.deaf = !readback::processes(&answer).workers.is_empty();
                return Ok(if self.deaf { Seen::NoSocket } else { Seen::NotRunning });
            }
        };
        let known = info.pid == self.pid && info.mark == self.loaded.mark;
        Ok(if known && self.observed.is_some() { Seen::Same } else { Seen::Other })
    }
}
