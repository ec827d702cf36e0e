//! Telling HAProxy: commands go to its runtime socket, and what it then has is known. What it does not take is
//! read back; what it cannot be told is left to a reload.

use super::{Common, DRAIN, Proxy, SWEEP, trouble};
use crate::Error;
use crate::desired::Desired;
use crate::haproxy::command::{self, Command};
use crate::haproxy::diff::diff;
use crate::haproxy::text::Word;
use crate::haproxy::wanted::{Body, Section};
use crate::program::work::Program as _;
use std::time::Duration;
use tokio::time::Instant;

impl Proxy {
    /// Sends commands. What HAProxy does not take is told once more, as it is after what HAProxy says that it
    /// has: we may have been wrong about it.
    pub(super) async fn send_all(
        &mut self,
        common: &mut Common,
        commands: Vec<Command>,
    ) -> Result<(), Error> {
        if self.send_once(common, commands).await?.is_empty() {
            return Ok(());
        }
        let Some(observed) = &self.observed else { return Ok(()) };
        let rest = diff(observed, &common.wanted).commands;
        let complaints = self.send_once(common, rest).await?;
        let Some(observed) = &self.observed else { return Ok(()) };
        match complaints.is_empty() || diff(observed, &common.wanted).commands.is_empty() {
            true => Ok(()),
            false => Err(trouble("telling HAProxy", complaints.join("; "))),
        }
    }

    /// Sends commands and returns the complaints. What HAProxy then has is known; it is read back if it
    /// complains.
    async fn send_once(
        &mut self,
        common: &mut Common,
        commands: Vec<Command>,
    ) -> Result<Vec<String>, Error> {
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        self.unsaved.get_or_insert_with(Instant::now);
        self.commands.inc_by(commands.len() as u64);
        let mut complaints = Vec::new();
        for part in commands.chunk_by(|a, b| !is_replace(a) && !is_replace(b)) {
            let answers = match part {
                [Command::Replace { map, entries }] => self.replace(map, entries).await,
                part => self.send(command::messages(part)).await,
            };
            match answers {
                Ok(answers) => complaints.extend(answers),
                Err(cause) => {
                    self.lost(common);
                    return Err(trouble("sending commands to HAProxy", cause));
                }
            }
        }
        for command in &commands {
            if let Command::Retire { backend, address } = command {
                let ends = Instant::now() + drain_time(&common.desired, backend);
                self.leaving.insert((backend.clone(), *address), ends);
                self.sweep_at = Instant::now() + SWEEP;
            }
            if let Command::Resume { backend, address } = command {
                self.leaving.remove(&(backend.clone(), *address));
            }
            if let Some(observed) = &mut self.observed {
                observed.done(command);
            }
            if let Command::AddBackend { backend, kind, options } = command {
                let body = Body::of_a_kind(kind.clone(), options.clone());
                self.loaded.sections.insert(Section::Backend(backend.clone()), body);
            }
        }
        if !complaints.is_empty() {
            tracing::warn!(
                ?complaints,
                "HAProxy does not take what it is told; what it has is read back"
            );
            self.observe(common).await?;
        }
        Ok(complaints)
    }

    async fn send(&self, messages: Vec<String>) -> std::io::Result<Vec<String>> {
        let mut complaints = Vec::new();
        for message in messages {
            let answer = self.admin.ask(&message).await?;
            complaints.extend(command::complaints(&answer).into_iter().map(str::to_owned));
        }
        Ok(complaints)
    }

    /// Replaces a map from one moment to the next.
    async fn replace(&self, map: &str, entries: &[(Word, Word)]) -> std::io::Result<Vec<String>> {
        let answer = self.admin.ask(&format!("prepare map {map}\n")).await?;
        let Some(version) = answer.trim().strip_prefix("New version created: ") else {
            return Ok(vec![answer]);
        };
        let complaints = self.send(command::entries_of(map, Some(version), entries)).await?;
        if complaints.is_empty() {
            return self.send(vec![format!("commit map @{version} {map}\n")]).await;
        }
        // Not all of it is there: what was there before stays.
        self.send(vec![format!("clear map @{version} {map}\n")]).await?;
        Ok(complaints)
    }

    /// Removes retired servers that have no connections any more, and ends those of who had its time.
    pub(super) async fn sweep(&mut self, common: &mut Common) -> Result<(), Error> {
        let now = Instant::now();
        let mut cuts = Vec::new();
        for ((backend, address), _) in self.leaving.iter().filter(|(_, ends)| **ends <= now) {
            cuts.push(Command::Cut { backend: backend.clone(), address: *address });
        }
        let lost = |cause| trouble("removing servers", cause);
        if let Err(cause) = self.send(command::messages(&cuts)).await {
            self.lost(common);
            return Err(lost(cause));
        }
        let leaving: Vec<_> = self.leaving.keys().cloned().collect();
        for (backend, address) in leaving {
            let command = Command::RemoveServer { backend: backend.clone(), address };
            let complaints =
                match self.send(command::messages(std::slice::from_ref(&command))).await {
                    Ok(complaints) => complaints,
                    Err(cause) => {
                        self.lost(common);
                        return Err(lost(cause));
                    }
                };
            if complaints.iter().any(|complaint| command::is_busy(complaint)) {
                continue;
            }
            self.leaving.remove(&(backend, address));
            if let Some(observed) = &mut self.observed {
                observed.done(&command);
            }
        }
        Ok(())
    }
}

fn drain_time(desired: &Desired, backend: &Word) -> Duration {
    let mut pools = desired.pools.values();
    let pool = pools.find(|pool| Word::pool(&pool.name).as_ref() == Ok(backend));
    let seconds = pool.and_then(|pool| pool.timeouts.drain_seconds);
    seconds.map_or(DRAIN, |seconds| Duration::from_secs(u64::from(seconds)))
}

fn is_replace(command: &Command) -> bool {
    matches!(command, Command::Replace { .. })
}
