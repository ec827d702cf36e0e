//! Sends commands to HAProxy's runtime socket, and keeps track of what HAProxy then has. After a refusal it reads back
//! what HAProxy has; what commands cannot change it leaves to a reload. The driver calls it.

use super::{Common, DRAIN, HaproxyProcess, RETRY, SWEEP, SWEPT, trouble};
use crate::Error;
use crate::desired::Desired;
use crate::haproxy::command::{self, Command};
use crate::haproxy::diff::diff;
use crate::haproxy::lagging::{Lacks, Part, Split, Stay, of_server};
use crate::haproxy::leaving::Server;
use crate::haproxy::socket::Socket;
use crate::haproxy::text::Word;
use crate::haproxy::wanted::{Body, Section};
use crate::program::program_trait::Program as _;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How many removals of servers share one answer.
const TOLD_APART: usize = 50;

impl HaproxyProcess {
    /// Sends commands other than changes of servers. After a refusal it sends the remaining difference once more,
    /// computed from what was read back: our view of HAProxy may have been wrong.
    pub(super) async fn send_all(
        &mut self,
        common: &mut Common,
        commands: Vec<Command>,
    ) -> Result<(), Error> {
        if self.send_once(common, commands).await?.is_empty() {
            return Ok(());
        }
        let Some(observed) = &self.observed else { return Ok(()) };
        let rest = Split::of(diff(observed, &common.wanted).commands, &common.wanted);
        self.lag(common, rest.changed);
        let complaints = self.send_once(common, rest.structure).await?;
        let Some(observed) = &self.observed else { return Ok(()) };
        let rest = || Split::of(diff(observed, &common.wanted).commands, &common.wanted);
        match complaints.is_empty() || rest().structure.is_empty() {
            true => Ok(()),
            false => Err(trouble("telling HAProxy", complaints.join("; "))),
        }
    }

    /// Puts backends into the queue: HAProxy lacks changes of their servers.
    pub(super) fn lag(&mut self, common: &Common, backends: impl IntoIterator<Item = Word>) {
        for backend in backends {
            self.lagging.insert(&self.namespace_of(common, &backend), backend);
        }
    }

    /// Notes that a server was retired and that its connections may live until `ends`.
    pub(super) fn leaves(&mut self, common: &Common, server: Server, ends: Instant) {
        // A steady flow of retired servers must not delay the removal of earlier ones.
        if self.leaving.is_empty() {
            self.sweep_at = Instant::now() + SWEEP;
        }
        self.leaving.insert(&self.namespace_of(common, &server.0), server, ends);
    }

    /// Sends HAProxy the next part of the changes of servers that it lacks; nothing for backends that lack more than
    /// `most` lines. What HAProxy refuses is sent once more, as above. True: something was sent.
    pub(super) async fn tell_servers(
        &mut self,
        common: &mut Common,
        stay: Stay<'_>,
        most: usize,
    ) -> Result<bool, Error> {
        let Some(observed) = &self.observed else { return Ok(false) };
        let lacks_of = |backend: &Word| Lacks::of(observed, &common.wanted, &self.gone, backend);
        let parts = self.lagging.next(stay, most, lacks_of);
        for part in parts.iter().filter(|it| it.more) {
            self.lagging.insert(&part.namespace, part.backend.clone());
        }
        let told = parts.iter().any(|it| !it.commands.is_empty());
        self.tell_parts(common, parts).await.map(|()| told)
    }

    /// Sends HAProxy the first servers of backends that rules are about to lead to.
    pub(super) async fn tell_opening(
        &mut self,
        common: &mut Common,
        opening: Vec<(Word, Vec<Command>)>,
    ) -> Result<(), Error> {
        let part = |(backend, commands)| {
            let namespace = self.namespace_of(common, &backend);
            Part { namespace, backend, commands, more: false }
        };
        let parts = opening.into_iter().map(part).collect();
        self.tell_parts(common, parts).await
    }

    async fn tell_parts(&mut self, common: &mut Common, parts: Vec<Part>) -> Result<(), Error> {
        let commands = parts.iter().flat_map(|it| it.commands.clone()).collect();
        let complaints = self.send_once(common, commands).await?;
        if complaints.is_empty() || self.loads {
            return Ok(());
        }
        // HAProxy differs from our view, perhaps elsewhere too.
        let Some(observed) = &self.observed else { return Ok(()) };
        let rest = Split::of(diff(observed, &common.wanted).commands, &common.wanted);
        let again = self.lacking(common, parts.into_iter().flat_map(|it| it.commands).collect());
        self.lag(common, rest.changed.into_iter().chain(rest.gone));
        let complaints = self.send_once(common, again.clone()).await?;
        if !rest.structure.is_empty() {
            // Structure that is about to be sent is sent once; the comparison finds the remaining differences.
            self.compare_at = Instant::now();
        }
        let refused = self.lacking(common, again.into_iter().collect());
        if complaints.is_empty() || refused.is_empty() {
            return Ok(());
        }
        for backend in refused.iter().filter_map(of_server) {
            let namespace = self.namespace_of(common, backend);
            self.lagging.refuse(&namespace, backend.clone());
            self.refused.insert(namespace);
        }
        self.retry_at = Instant::now() + RETRY;
        Err(trouble("telling HAProxy of servers", complaints.join("; ")))
    }

    /// The namespace of a backend, also if its pool was removed.
    fn namespace_of(&self, common: &Common, backend: &Word) -> Arc<str> {
        let namespace = pool_namespace(common, backend);
        let namespace = namespace.or_else(|| self.owners.get(backend).cloned());
        namespace.unwrap_or_else(|| "".into())
    }

    /// The commands of these that HAProxy still lacks.
    fn lacking(&self, common: &Common, commands: BTreeSet<Command>) -> Vec<Command> {
        let Some(observed) = &self.observed else { return Vec::new() };
        let backends: BTreeSet<_> = commands.iter().filter_map(of_server).collect();
        let lacks = backends.into_iter().flat_map(|backend| {
            let lacks = Lacks::of(observed, &common.wanted, &self.gone, backend);
            lacks.coming.into_iter().chain(lacks.going)
        });
        lacks.filter(|it| commands.contains(it)).collect()
    }

    /// Sends commands, returns the complaints, and updates the view of HAProxy. If there are complaints, reads back
    /// what HAProxy has.
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
                self.leaves(common, (backend.clone(), *address), ends);
            }
            if let Command::Resume { backend, address } = command {
                self.leaving.remove(&(backend.clone(), *address));
            }
            if let Some(observed) = &mut self.observed {
                observed.done(command);
            }
            if let Command::AddBackend { backend, kind, options, unchecked } = command {
                let body = Body::of_a_kind(kind.clone(), options.clone(), unchecked.clone());
                self.loaded.sections.insert(Section::Backend(backend.clone()), body);
            }
        }
        // While a load is in progress another process may have answered; after the load everything is read back.
        if !complaints.is_empty() && !self.loads {
            tracing::warn!(
                complaints = complaints.join("; "),
                "HAProxy refuses commands; its state is read back"
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

    /// Replaces a map atomically.
    async fn replace(&self, map: &str, entries: &[(Word, Word)]) -> std::io::Result<Vec<String>> {
        let answer = self.admin.ask(&format!("prepare map {map}\n")).await?;
        let Some(version) = answer.trim().strip_prefix("New version created: ") else {
            return Ok(vec![answer]);
        };
        let complaints = self.send(command::entries_of(map, Some(version), entries)).await?;
        if complaints.is_empty() {
            return self.send(vec![format!("commit map @{version} {map}\n")]).await;
        }
        // Not all entries were accepted: the old map stays.
        self.send(vec![format!("clear map @{version} {map}\n")]).await?;
        Ok(complaints)
    }

    /// Deletes retired servers that have no connections, and cuts sessions of those past their drain time. One sweep
    /// handles 1,000 servers, and namespaces take turns, so a tenant that changes thousands of members does not delay
    /// other changes.
    pub(super) async fn sweep(&mut self, common: &mut Common) -> Result<(), Error> {
        let now = Instant::now();
        let leaving = self.leaving.next(SWEPT);
        let ended = leaving.iter().filter(|(_, ends)| *ends <= now);
        let cuts: Vec<_> = ended
            .map(|((backend, address), _)| Command::Cut {
                backend: backend.clone(),
                address: *address,
            })
            .collect();
        let removals: Vec<_> = leaving
            .iter()
            .map(|((backend, address), _)| Command::RemoveServer {
                backend: backend.clone(),
                address: *address,
            })
            .collect();
        let removed = match self.remove(&cuts, &removals).await {
            Ok(removed) => removed,
            Err(cause) => {
                self.lost(common);
                return Err(trouble("removing servers", cause));
            }
        };
        for (((server, _), command), _) in
            leaving.iter().zip(&removals).zip(removed).filter(|(_, removed)| *removed)
        {
            self.leaving.remove(server);
            if let Some(observed) = &mut self.observed {
                observed.done(command);
            }
        }
        self.lagging.release();
        Ok(())
    }

    /// Cuts connections and tries removals. Returns which removals succeeded.
    async fn remove(&self, cuts: &[Command], removals: &[Command]) -> std::io::Result<Vec<bool>> {
        self.send(command::messages(cuts)).await?;
        removed(removals, &self.admin).await
    }
}

/// Asks HAProxy for removals of servers, some at a time. Returns which succeeded. If an answer cannot be matched to its
/// removals, only those are tried again with the next sweep.
async fn removed(removals: &[Command], admin: &Socket) -> std::io::Result<Vec<bool>> {
    let mut removed = Vec::with_capacity(removals.len());
    for part in removals.chunks(TOLD_APART) {
        let mut answer = String::new();
        for message in command::messages(part) {
            answer.push_str(&admin.ask(&message).await?);
        }
        let done = command::removed(part.len(), &answer);
        removed.extend(done.unwrap_or_else(|| vec![false; part.len()]));
    }
    Ok(removed)
}

/// The namespace of a backend's pool. None: the pool was removed.
pub(super) fn pool_namespace(common: &Common, backend: &Word) -> Option<Arc<str>> {
    let pool = common.desired.pools.get(&*backend.pool_name())?;
    Some(pool.service.namespace.clone())
}

fn drain_time(desired: &Desired, backend: &Word) -> Duration {
    let seconds = desired.pools.get(&*backend.pool_name()).and_then(|it| it.timeouts.drain_seconds);
    seconds.map_or(DRAIN, |seconds| Duration::from_secs(u64::from(seconds)))
}

fn is_replace(command: &Command) -> bool {
    matches!(command, Command::Replace { .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::UnixListener;

    #[tokio::test]
    async fn an_answer_that_does_not_tell_keeps_only_the_servers_that_it_is_for() {
        let remove = |n: u16| Command::RemoveServer {
            backend: Word::key("pool").unwrap(),
            address: ([10, 0, 0, 1], n).into(),
        };
        let removals: Vec<_> = (0..1_000).map(remove).collect();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("admin.sock");
        let listener = UnixListener::bind(&path).unwrap();
        // Answers as HAProxy does, except for one server.
        let haproxy = tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut message = String::new();
                stream.read_to_string(&mut message).await.unwrap();
                let each = message.trim().split(';').map(|line| match line.ends_with(":7") {
                    true => "Something\nthat has two lines.\n\n",
                    false => "Server deleted.\n\n",
                });
                stream.write_all(each.collect::<String>().as_bytes()).await.unwrap();
            }
        });
        let removed = removed(&removals, &Socket::new(&path)).await.unwrap();
        haproxy.abort();
        let kept = removed.iter().filter(|removed| !**removed).count();
        assert_eq!((removed.len(), kept), (1_000, TOLD_APART));
        assert!(!removed[7]);
    }
}
