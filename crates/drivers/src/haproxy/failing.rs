//! Which pools have servers that do not answer, as HAProxy learns from clients' connections and its health checks. HAProxy
//! writes a line into a ring of lines when a server goes down or comes up. The driver reads the new lines, and then the
//! state of the servers of these backends only, so the cost follows changes. Pure; the driver asks and calls it.

use super::diff::Running;
use super::text::Word;
use super::wanted::Servers;
use bowline_core::update::FailingPool;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::Instant;

/// The name of the ring in HAProxy's configuration.
pub(super) const RING: &str = "failing";

/// A process that was just loaded counts every server as good until its first check, which comes within a second. Until
/// this time is over, a pool that was failing before stays failing: other tenants' reloads must not change what it is told.
const SETTLES: Duration = Duration::from_secs(3);

/// With more changed backends than this, the state of all servers is read at once. HAProxy reads 16 KiB of commands at
/// once, and the name of a backend has up to 700 bytes.
const FEW: usize = 16;

/// All servers are read again after this many times as long as it took.
const REST: u32 = 10;

/// Whose servers are to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// Those of these backends, perhaps of none.
    Of(BTreeSet<Word>),
    /// Those of all backends.
    All,
}

/// See the module.
#[derive(Debug)]
pub(super) struct FailingServers {
    pools: BTreeMap<Word, FailingPool>,
    /// The lines of the ring when it was taken in last.
    known: Vec<String>,
    due: Read,
    /// When all servers may be read again.
    all_at: Option<Instant>,
    /// Backends whose state from before a load counts until this time.
    settling: Option<(Instant, BTreeSet<Word>)>,
}

impl Default for FailingServers {
    fn default() -> Self {
        let due = Read::Of(BTreeSet::new());
        Self { pools: BTreeMap::new(), known: Vec::new(), due, all_at: None, settling: None }
    }
}

impl FailingServers {
    /// All servers are about to be read: what the ring says up to here needs no further look.
    pub(super) fn begin(&mut self, ring: &str) {
        self.known = lines(ring).map(str::to_owned).collect();
        self.due = Read::Of(BTreeSet::new());
    }

    /// Takes in what the ring says since the last call.
    pub(super) fn hear(&mut self, ring: &str) {
        let all: Vec<_> = lines(ring).collect();
        if all.is_empty() {
            return;
        }
        let new = new_lines(&self.known, &all);
        match (&mut self.due, new) {
            (Read::All, _) => {}
            // Lines were overwritten before they were read.
            (_, None) => self.due = Read::All,
            (Read::Of(backends), Some(new)) => {
                backends.extend(new.iter().filter_map(|line| changed(line)));
                if backends.len() > FEW {
                    self.due = Read::All;
                }
            }
        }
        if new != Some(&[]) {
            self.known = all.into_iter().map(str::to_owned).collect();
        }
    }

    /// Whose servers the driver has to read now.
    pub(super) fn take(&mut self, now: Instant) -> Read {
        if let Some((_, backends)) = self.settling.take_if(|(until, _)| *until <= now) {
            match &mut self.due {
                Read::Of(due) => due.extend(backends),
                Read::All => {}
            }
        }
        let nothing = Read::Of(BTreeSet::new());
        match &self.due {
            Read::All if self.all_at.is_some_and(|at| at > now) => nothing,
            Read::Of(backends) if backends.len() > FEW => {
                self.due = nothing;
                Read::All
            }
            _ => std::mem::replace(&mut self.due, nothing),
        }
    }

    /// All servers were read just now, which took so long.
    pub(super) fn has_read_all(&mut self, now: Instant, took: Duration) {
        self.all_at = Some(now + took * REST);
    }

    /// A process has loaded new files, and counts every server as good until it has checked it.
    pub(super) fn has_loaded(&mut self, now: Instant) {
        let before = self.settling.take().map(|(_, backends)| backends).unwrap_or_default();
        let failing = self.pools.keys().cloned().chain(before).collect();
        self.settling = Some((now + SETTLES, failing));
    }

    /// Takes in the servers of a backend, as they run and as they are wanted. Servers that shall take no new traffic do
    /// not count.
    pub(super) fn look(
        &mut self,
        backend: &Word,
        running: &BTreeMap<SocketAddr, Running>,
        wanted: Option<&Servers>,
    ) {
        if self.settling.as_ref().is_some_and(|(_, backends)| backends.contains(backend)) {
            return;
        }
        let takes =
            |at: &SocketAddr| wanted.is_some_and(|it| it.weights.get(at).is_some_and(|it| *it > 0));
        let down = running.iter().filter(|(at, it)| it.down && !it.retired && takes(at));
        let (mut count, mut named) = (0, Vec::new());
        for (address, _) in down {
            count += 1;
            if named.len() < FailingPool::NAMED {
                named.push(*address);
            }
        }
        if count == 0 {
            self.pools.remove(backend);
            return;
        }
        let failing = FailingPool { pool: backend.pool_name().into(), count, named };
        self.pools.insert(backend.clone(), failing);
    }

    /// Forgets the backends that HAProxy does not have.
    pub(super) fn retain(&mut self, has: impl Fn(&Word) -> bool) {
        self.pools.retain(|backend, _| has(backend));
    }

    /// Whether servers of a backend fail.
    pub(super) fn has(&self, backend: &Word) -> bool {
        self.pools.contains_key(backend)
    }

    /// The pools with servers that do not answer, by name.
    pub(super) fn pools(&self) -> Vec<FailingPool> {
        self.pools.values().cloned().collect()
    }
}

/// The lines that were written since the ring had the known ones, of which the oldest are overwritten. Lines that say the
/// same in the same second are equal, so all that is left of the known lines has to be found, not one of them. None: nothing is
/// left of them.
fn new_lines<'a>(known: &[String], all: &'a [&'a str]) -> Option<&'a [&'a str]> {
    if known.is_empty() {
        return Some(all);
    }
    (0..known.len()).find_map(|at| {
        let left = known.get(at..)?;
        let (old, new) = all.split_at_checked(left.len())?;
        (old == left).then_some(new)
    })
}

fn lines(ring: &str) -> impl Iterator<Item = &str> {
    ring.lines().filter(|line| line.starts_with('<'))
}

/// The backend of a server that went down or came up. A line is `<LEVEL>TIME Server BACKEND/SERVER is DOWN, …`.
fn changed(line: &str) -> Option<Word> {
    let (_, text) = line.split_once(' ')?;
    let (server, what) = text.strip_prefix("Server ")?.split_once(' ')?;
    if !(what.starts_with("is DOWN") || what.starts_with("is UP")) {
        return None;
    }
    Word::key(server.rsplit_once('/')?.0).ok()
}

#[cfg(test)]
mod tests;
