//! Backends with changes of servers that HAProxy did not get yet; namespaces take turns. A command takes HAProxy tens
//! of microseconds, and everything else waits meanwhile. If a tenant changes thousands of members, HAProxy gets some of
//! them at a time, so that a change of another tenant waits only for one such part. Only the newest state is sent: what
//! changes again before its turn costs nothing. Pure; the HAProxy driver sends the parts.

use super::command::Command;
use super::diff::{Observed, diff_servers};
use super::text::Word;
use super::wanted::{Body, Section, Servers, Wanted};
use bowline_core::fair_queue::Queue;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

/// How many lines are sent at once: about 10 ms of work, and several times that if all cores are busy.
const LINES: usize = 300;
/// How many of these lines are for one namespace while others wait, and for one backend.
const LINES_OF_ONE: usize = 150;

/// The largest backlog of a backend, in lines, that HAProxy gets during a check or load.
pub(super) const SMALL: usize = 1_000;

/// How many servers a backend may have beyond twice the wanted ones. Twice, because all members of a pool can be
/// replaced while the old ones drain. The rest is for small pools: a pool of one member can be replaced a hundred times
/// within the drain time.
const SPARE: usize = 100;

/// How many servers an empty backend gets before rules lead to it. Two, because one may be down.
const OPENING: usize = 2;

/// The queue of such backends.
#[derive(Clone, Debug, Default)]
pub(super) struct Lagging {
    queue: Queue<Arc<str>, Word>,
    /// The backends in the queue, with their namespaces.
    waits: BTreeMap<Word, Arc<str>>,
    /// Backends that get no more servers until retired ones are removed, with their namespaces.
    held: BTreeMap<Word, Arc<str>>,
    /// Backends with servers that HAProxy refused, with their namespaces.
    refused: BTreeMap<Word, Arc<str>>,
}

/// The commands that HAProxy lacks for the servers of one backend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Lacks {
    pub(super) coming: Vec<Command>,
    pub(super) going: Vec<Command>,
    /// Whether more servers wait for the removal of retired ones.
    pub(super) held: bool,
}

impl Lacks {
    /// What a running backend lacks. A backend that no rule leads to any more loses all servers. A backend that is not
    /// wanted but that a rule leads to until a reload stays as it is.
    pub(super) fn of(
        observed: &Observed,
        wanted: &Wanted,
        gone: &BTreeSet<Word>,
        backend: &Word,
    ) -> Self {
        let none = Servers::default();
        let servers = wanted.servers.get(backend);
        let servers = servers.or_else(|| gone.contains(backend).then_some(&none));
        let (Some(running), Some(servers)) = (observed.servers.get(backend), servers) else {
            return Self::default();
        };
        let nothing = Body::default();
        let body = observed.sections.get(&Section::Backend(backend.clone())).unwrap_or(&nothing);
        let Self { mut coming, mut going, .. } = Self::default();
        diff_servers(backend, body, running, servers, &mut coming, &mut going);
        let most = 2 * servers.weights.len() + SPARE;
        let held = hold(&mut coming, most.saturating_sub(running.len()));
        Self { coming, going, held }
    }
}

/// Drops commands for new servers beyond `room`. True: some were dropped.
fn hold(coming: &mut Vec<Command>, room: usize) -> bool {
    let (mut left, before) = (room, coming.len());
    coming.retain(|command| {
        let comes = !is_new(command) || left > 0;
        left = left.saturating_sub(usize::from(is_new(command)));
        comes
    });
    let held = coming.len() < before;
    if held && room == 0 {
        coming.retain(|command| !matches!(command, Command::KeyCookies { .. }));
    }
    held
}

fn is_new(command: &Command) -> bool {
    matches!(command, Command::AddServer { .. })
}

/// The namespaces whose removed servers stay, because HAProxy does not have the namespaces' new rules yet.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stay<'a> {
    /// All namespaces.
    All,
    /// These.
    Of(&'a BTreeSet<Arc<str>>),
    /// No namespace.
    None,
}

impl Stay<'_> {
    fn is_for(self, namespace: &Arc<str>) -> bool {
        match self {
            Self::All => true,
            Self::Of(namespaces) => namespaces.contains(namespace),
            Self::None => false,
        }
    }
}

/// The commands for one backend that are sent at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) namespace: Arc<str>,
    pub(super) backend: Word,
    pub(super) commands: Vec<Command>,
    /// Whether the backend needs more commands later.
    pub(super) more: bool,
}

impl Lagging {
    /// Adds a backend to the queue. A backend that waits already keeps its place, also if its pool has come or gone
    /// since.
    pub(super) fn insert(&mut self, namespace: &Arc<str>, backend: Word) {
        if !self.waits.contains_key(&backend) && !self.refused.contains_key(&backend) {
            self.waits.insert(backend.clone(), namespace.clone());
            self.queue.insert(namespace, 0, backend);
        }
    }

    /// Notes that HAProxy refused servers of a backend. The backend gets nothing before [`Self::retry`], whatever
    /// changes, because each refusal makes the driver read back everything.
    pub(super) fn refuse(&mut self, namespace: &Arc<str>, backend: Word) {
        if let Some(lane) = self.waits.remove(&backend) {
            self.queue.remove(&lane, &backend);
        }
        self.refused.insert(backend, namespace.clone());
    }

    /// Whether HAProxy refused servers of any backend.
    pub(super) fn is_refused(&self) -> bool {
        !self.refused.is_empty()
    }

    /// Puts refused backends into the queue again.
    pub(super) fn retry(&mut self) {
        for (backend, namespace) in std::mem::take(&mut self.refused) {
            self.insert(&namespace, backend);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether servers of a backend wait for the removal of others.
    pub(super) fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    /// Notes that servers were removed, so there may be room for those that wait.
    pub(super) fn release(&mut self) {
        for (backend, namespace) in std::mem::take(&mut self.held) {
            self.insert(&namespace, backend);
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The parts to send next. Where `stay` applies to a namespace, its servers are not retired yet. A backend that
    /// lacks more than `most` lines gets nothing now, since a process that is about to be replaced gets only small
    /// changes. The caller inserts a part with `more` again once it was sent.
    pub(super) fn next(
        &mut self,
        stay: Stay<'_>,
        most: usize,
        lacks: impl Fn(&Word) -> Lacks,
    ) -> Vec<Part> {
        let (mut parts, mut left) = (Vec::new(), LINES);
        while left > 0
            && let Some(namespace) = self.next_namespace()
        {
            // Namespaces take turns by lines: a turn serves many small backends, or a part of a large one.
            let mut turn = left.min(LINES_OF_ONE);
            left -= turn;
            while turn > 0
                && let Some(backend) = self.pop_of(&namespace)
            {
                let lacking = lacks(&backend);
                let part = self.part(&namespace, backend, lacking, (stay, most, turn));
                turn = turn.saturating_sub(part.lines());
                if part.more || !part.commands.is_empty() {
                    parts.push(part);
                }
            }
            // What a namespace does not use goes to others.
            left += turn;
        }
        // Small changes go before parts of large ones.
        parts.sort_by_key(|part| (part.more, part.commands.len()));
        parts
    }

    /// The namespace that has its turn.
    fn next_namespace(&mut self) -> Option<Arc<str>> {
        let namespace = self.queue.lanes().next()?.clone();
        self.queue.served(&namespace);
        Some(namespace)
    }

    /// The next backend of a namespace.
    fn pop_of(&mut self, namespace: &Arc<str>) -> Option<Word> {
        let backend = self.queue.items(namespace).next()?.clone();
        self.queue.remove(namespace, &backend);
        self.waits.remove(&backend);
        Some(backend)
    }

    /// The part for one backend, with about `turn` lines.
    fn part(
        &mut self,
        namespace: &Arc<str>,
        backend: Word,
        lacks: Lacks,
        (stay, most, turn): (Stay<'_>, usize, usize),
    ) -> Part {
        let Lacks { coming, mut going, held } = lacks;
        let stays = !going.is_empty() && stay.is_for(namespace);
        if stays {
            going.clear();
        }
        let is_large = coming.iter().chain(&going).map(lines).sum::<usize>() > most;
        let (commands, more) = first(coming, going, if is_large { 0 } else { turn });
        let more = more || stays;
        if held && !more {
            self.held.insert(backend.clone(), namespace.clone());
        }
        Part { namespace: namespace.clone(), backend, commands, more }
    }
}

impl Part {
    fn lines(&self) -> usize {
        self.commands.iter().map(lines).sum()
    }
}

/// The first of these commands, with about `most` lines, and whether there are more. Servers are added and retired in
/// equal numbers, so a backend neither becomes empty nor grows, even if its members are replaced faster than HAProxy
/// gets them.
fn first(mut coming: Vec<Command>, mut going: Vec<Command>, most: usize) -> (Vec<Command>, bool) {
    let (mut come, mut go, mut left) = (0, 0, most);
    while left > 0 && (come < coming.len() || go < going.len()) {
        for (all, count) in [(&coming, &mut come), (&going, &mut go)] {
            if let Some(command) = all.get(*count) {
                left = left.saturating_sub(lines(command));
                *count += 1;
            }
        }
    }
    let later = coming.split_off(come);
    let more = !later.is_empty() || go < going.len();
    // New servers have no cookies until the key is sent after them.
    let key = later.into_iter().find(|it| matches!(it, Command::KeyCookies { .. }));
    let adds = coming.iter().any(is_new);
    coming.extend(key.filter(|_| adds));
    coming.extend(going.drain(..go));
    (coming, more)
}

/// How many lines a command has.
fn lines(command: &Command) -> usize {
    match command {
        Command::AddServer { .. } => 3,
        Command::Check { .. } => 2,
        _ => 1,
    }
}

/// Separates structural commands from server changes of running backends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Split {
    /// Everything but changes of servers in running backends.
    pub(super) structure: Vec<Command>,
    /// Backends with new or changed servers, to be sent before the rules that may lead to them.
    pub(super) changed: BTreeSet<Word>,
    /// Backends that must lose all servers, to be sent after the last rule that leads to them is removed.
    pub(super) gone: BTreeSet<Word>,
}

impl Split {
    pub(super) fn of(commands: Vec<Command>, wanted: &Wanted) -> Self {
        let added: BTreeSet<Word> = commands.iter().filter_map(added).cloned().collect();
        let mut split = Self::default();
        for command in commands {
            match of_server(&command).filter(|backend| !added.contains(*backend)) {
                None => split.structure.push(command),
                Some(backend) if wanted.servers.contains_key(backend) => {
                    split.changed.insert(backend.clone());
                }
                Some(backend) => {
                    split.gone.insert(backend.clone());
                }
            }
        }
        split
    }

    /// What to send before the structure: the first servers of backends that new rules lead to and in which no server
    /// takes traffic. The other servers follow in turn.
    pub(super) fn opening(
        &self,
        observed: &Observed,
        wanted: &Wanted,
    ) -> Vec<(Word, Vec<Command>)> {
        let leads = led_to(&self.structure);
        let opens = self.changed.iter().filter(|it| leads.contains(it) && is_empty(observed, it));
        let first = |backend: &Word| {
            let lacks = Lacks::of(observed, wanted, &BTreeSet::new(), backend);
            let weights = wanted.servers.get(backend).map(|it| &it.weights);
            let takes =
                |at: &SocketAddr| weights.and_then(|it| it.get(at)).is_some_and(|it| *it > 0);
            (backend.clone(), first_servers(lacks.coming, takes))
        };
        opens.map(first).collect()
    }
}

/// Whether no server of a backend takes traffic.
fn is_empty(observed: &Observed, backend: &Word) -> bool {
    let servers = observed.servers.get(backend);
    !servers.is_some_and(|it| it.values().any(|it| !it.retired && !it.drains))
}

/// The commands for the first servers that take traffic.
fn first_servers(mut coming: Vec<Command>, takes: impl Fn(&SocketAddr) -> bool) -> Vec<Command> {
    let mut chosen = BTreeSet::new();
    coming.retain(|command| match at(command) {
        Some(at) if chosen.len() < OPENING && takes(at) => {
            chosen.insert(*at);
            true
        }
        Some(at) => chosen.contains(at),
        // The key of their cookies has no address.
        None => !chosen.is_empty(),
    });
    coming
}

/// Backends that the new map entries name.
fn led_to(commands: &[Command]) -> BTreeSet<&Word> {
    let values = commands.iter().flat_map(|command| match command {
        Command::AddEntries { entries, .. } | Command::Replace { entries, .. } => {
            entries.iter().map(|(_, value)| value).collect()
        }
        Command::SetEntry { value, .. } => vec![value],
        _ => Vec::new(),
    });
    values.collect()
}

/// The backend that a command adds.
fn added(command: &Command) -> Option<&Word> {
    if let Command::AddBackend { backend, .. } = command { Some(backend) } else { None }
}

/// The backend of the server that a command changes.
pub(super) fn of_server(command: &Command) -> Option<&Word> {
    match command {
        Command::AddServer { backend, .. }
        | Command::KeyCookies { backend, .. }
        | Command::Check { backend, .. }
        | Command::Resume { backend, .. }
        | Command::Place { backend, .. }
        | Command::Weigh { backend, .. }
        | Command::Retire { backend, .. } => Some(backend),
        _ => None,
    }
}

/// The address of the server that a command adds or changes.
fn at(command: &Command) -> Option<&SocketAddr> {
    match command {
        Command::AddServer { address, .. }
        | Command::Check { address, .. }
        | Command::Resume { address, .. }
        | Command::Place { address, .. }
        | Command::Weigh { address, .. } => Some(address),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
