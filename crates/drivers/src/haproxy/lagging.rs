//! Backends with servers that HAProxy is not told of yet, in turn by namespace. A command takes HAProxy tens of microseconds,
//! and everything else waits meanwhile: where a tenant changes thousands of members, HAProxy is told of some of them at a
//! time, so that a change of another tenant waits for one such part. Only the newest is told: what changes again before
//! its turn costs nothing. Pure.

use super::command::Command;
use super::diff::{Observed, diff_servers};
use super::text::Word;
use super::wanted::{Body, Section, Servers, Wanted};
use bowline_core::fair::Queue;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

/// How many lines HAProxy is told in one go: about 10 ms, and several times that where all cores are busy.
const LINES: usize = 300;
/// How many of them of one namespace while others wait, and of one backend.
const LINES_OF_ONE: usize = 150;

/// The largest backlog, in lines, that HAProxy is sent during a check or load.
pub(super) const SMALL: usize = 1_000;

/// How many servers a backend may have beyond twice the wanted ones. Twice: all members of a pool can be replaced while
/// those from before drain. The rest is for small pools: a pool of one member can be replaced a hundred times within the
/// drain time.
const SPARE: usize = 100;

/// How many servers a backend without any has before rules lead to it. Two: one of them may be down.
const OPENING: usize = 2;

/// Backends with servers that HAProxy is not told of yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Lagging {
    queue: Queue<Arc<str>, Word>,
    /// The backends in the queue, with their namespaces.
    waits: BTreeMap<Word, Arc<str>>,
    /// Backends that get no further servers before retired ones are removed, with their namespaces.
    held: BTreeMap<Word, Arc<str>>,
    /// Backends of which HAProxy did not take servers, with their namespaces.
    refused: BTreeMap<Word, Arc<str>>,
}

/// What HAProxy lacks of the servers of a backend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Lacks {
    pub(super) coming: Vec<Command>,
    pub(super) going: Vec<Command>,
    /// Whether further servers come only after retired ones were removed.
    pub(super) held: bool,
}

impl Lacks {
    /// What HAProxy lacks of the servers of a backend that runs. Of a backend that no rule leads to any more all servers
    /// go; a backend that is not wanted, and that a rule leads to until a reload, stays as it is.
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

/// Leaves out servers beyond so many. True: there were more.
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

/// Namespaces of which removed servers stay until their rules are sent.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stay<'a> {
    All,
    Of(&'a BTreeSet<Arc<str>>),
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

/// What HAProxy is told of the servers of a backend in one go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) namespace: Arc<str>,
    pub(super) backend: Word,
    pub(super) commands: Vec<Command>,
    /// Whether there is more.
    pub(super) more: bool,
}

impl Lagging {
    /// A backend that waits already keeps its place, also where its pool has come or gone since.
    pub(super) fn insert(&mut self, namespace: &Arc<str>, backend: Word) {
        if !self.waits.contains_key(&backend) && !self.refused.contains_key(&backend) {
            self.waits.insert(backend.clone(), namespace.clone());
            self.queue.insert(namespace, 0, backend);
        }
    }

    /// HAProxy does not take servers of a backend. It is told of none before [`Self::retry`], whatever changes: all that
    /// HAProxy has is read back after each refusal.
    pub(super) fn refuse(&mut self, namespace: &Arc<str>, backend: Word) {
        if let Some(lane) = self.waits.remove(&backend) {
            self.queue.remove(&lane, &backend);
        }
        self.refused.insert(backend, namespace.clone());
    }

    /// Whether HAProxy did not take servers of a backend.
    pub(super) fn is_refused(&self) -> bool {
        !self.refused.is_empty()
    }

    /// What HAProxy did not take is told again.
    pub(super) fn retry(&mut self) {
        for (backend, namespace) in std::mem::take(&mut self.refused) {
            self.insert(&namespace, backend);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether servers of a backend wait until others are removed.
    pub(super) fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    /// Servers were removed: there may be room for those that wait.
    pub(super) fn release(&mut self) {
        for (backend, namespace) in std::mem::take(&mut self.held) {
            self.insert(&namespace, backend);
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// What HAProxy is told next, of what it lacks of each backend. Servers of a namespace of which something else is to
    /// be told first do not go yet. A backend that lacks more than `most` lines is left: a process that is about to be
    /// replaced is told of small changes alone. A part of which there is more is to be inserted again once it was told.
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
            // Namespaces take turns by lines: many small backends of one are told in a turn, or a part of a large one.
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
            // What a namespace leaves others have.
            left += turn;
        }
        // Small changes do not wait for parts of large ones.
        parts.sort_by_key(|part| (part.more, part.commands.len()));
        parts
    }

    /// The namespace whose turn it is.
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

    /// What HAProxy is told of a backend, with about so many lines.
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

/// The first of these, with about so many lines, and whether there are more. As many go as come: so a backend neither
/// becomes empty nor grows, also where its members are replaced faster than HAProxy is told.
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
    // Servers have no cookies before the key was told after them.
    let key = later.into_iter().find(|it| matches!(it, Command::KeyCookies { .. }));
    let adds = coming.iter().any(is_new);
    coming.extend(key.filter(|_| adds));
    coming.extend(going.drain(..go));
    (coming, more)
}

/// How many lines HAProxy is told by a command.
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
    /// All but servers of backends that run.
    pub(super) structure: Vec<Command>,
    /// Backends with other servers, to be told before what may lead to them.
    pub(super) changed: BTreeSet<Word>,
    /// Backends that are to have none, to be told when nothing leads to them any more.
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

    /// What HAProxy is told before the structure: the first servers of backends that it leads to, and that have none that
    /// takes traffic. The others follow in turn.
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

/// What of this is of the first servers that take traffic.
fn first_servers(mut coming: Vec<Command>, takes: impl Fn(&SocketAddr) -> bool) -> Vec<Command> {
    let mut chosen = BTreeSet::new();
    coming.retain(|command| match at(command) {
        Some(at) if chosen.len() < OPENING && takes(at) => {
            chosen.insert(*at);
            true
        }
        Some(at) => chosen.contains(at),
        // The key of their cookies.
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

/// The address of the server that a command brings, or changes.
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
